// SPDX-License-Identifier: Apache-2.0
//! The system log: local datagram socket, UDP, or nothing.
//!
//! A syslog daemon that is absent, slow or restarted never holds the process up: sockets do not
//! block, a datagram that cannot be sent at once is dropped, and a lost socket is reconnected
//! at most once a second.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How messages reach the system log (`--syslog-method`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogMethod {
    /// As the C library's `syslog(3)`: `/dev/log`, RFC 3164 header with the program's name.
    Libc,
    /// A datagram socket at a path; the line carries the priority and nothing else before it.
    Unix(PathBuf),
    /// UDP to a numeric address and port; same content as [`SyslogMethod::Unix`].
    Udp(SocketAddr),
    /// No syslog: messages are discarded.
    Null,
}

impl SyslogMethod {
    /// Reads `libc`, `unix:FILE`, `udp:IP:PORT` or `null`.
    ///
    /// # Errors
    /// OVS's text for a method that does not exist.
    pub fn parse(text: &str) -> Result<SyslogMethod, String> {
        if text == "libc" {
            Ok(SyslogMethod::Libc)
        } else if text == "null" {
            Ok(SyslogMethod::Null)
        } else if let Some(path) = text.strip_prefix("unix:") {
            Ok(SyslogMethod::Unix(PathBuf::from(path)))
        } else if let Some(address) = text.strip_prefix("udp:") {
            parse_target(address).map(SyslogMethod::Udp)
        } else {
            Err(format!("unsupported syslog method '{text}'"))
        }
    }

    /// The prefix that `vlog/list-pattern` shows.
    pub(crate) fn shown_prefix(&self) -> &'static str {
        match self {
            SyslogMethod::Libc => "<%B> %D{%h %e %T} %E %A: ",
            SyslogMethod::Unix(_) | SyslogMethod::Udp(_) => "<%B>",
            SyslogMethod::Null => "",
        }
    }

    /// The pattern put before each message on the wire.
    pub(crate) fn wire_prefix(&self) -> &'static str {
        match self {
            SyslogMethod::Libc => "<%B>%d{%h %e %T} %A: ",
            other => other.shown_prefix(),
        }
    }
}

/// Reads `IP:PORT`, the address numeric, IPv6 in brackets or not.
///
/// # Errors
/// Says which part is wrong.
pub fn parse_target(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("{text}: port must be specified"));
    };
    let port: u16 = port.parse().map_err(|_| format!("{text}: bad port number \"{port}\""))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        Ok(SocketAddr::from((ip, port)))
    } else if let Ok(ip) = host.parse::<Ipv6Addr>() {
        Ok(SocketAddr::from((ip, port)))
    } else {
        Err(format!("{text}: bad IP address \"{host}\""))
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

/// An open way to the system log.
#[derive(Debug)]
pub(crate) struct Syslog {
    method: SyslogMethod,
    socket: Option<Socket>,
    tried: Option<Instant>,
    /// Datagrams that could not be sent.
    pub(crate) lost: u64,
}

impl Syslog {
    pub(crate) fn new(method: SyslogMethod) -> Syslog {
        Syslog { method, socket: None, tried: None, lost: 0 }
    }

    pub(crate) fn method(&self) -> &SyslogMethod {
        &self.method
    }

    /// Sends one datagram, or counts it as lost.
    pub(crate) fn send(&mut self, line: &[u8]) {
        if self.method == SyslogMethod::Null {
            return;
        }
        if self.try_send(line).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    fn try_send(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.socket.is_none() {
            self.connect()?;
        }
        let result = match &self.socket {
            Some(Socket::Unix(socket)) => socket.send(line),
            Some(Socket::Udp(socket)) => socket.send(line),
            None => return Err(std::io::ErrorKind::NotConnected.into()),
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => {
                // A full queue or an oversized datagram says nothing about the socket; anything
                // else (the daemon restarted) makes the next message reconnect.
                let keep = error.kind() == std::io::ErrorKind::WouldBlock
                    || error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
                if !keep && matches!(self.socket, Some(Socket::Unix(_))) {
                    self.socket = None;
                }
                Err(error)
            }
        }
    }

    fn connect(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        if let Some(tried) = self.tried
            && now.saturating_duration_since(tried) < Duration::from_secs(1)
        {
            return Err(std::io::ErrorKind::NotConnected.into());
        }
        self.tried = Some(now);
        let unix = |path: &Path| -> std::io::Result<Socket> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(path)?;
            Ok(Socket::Unix(socket))
        };
        self.socket = Some(match &self.method {
            SyslogMethod::Libc => unix(Path::new("/dev/log"))?,
            SyslogMethod::Unix(path) => unix(path)?,
            SyslogMethod::Udp(address) => {
                let any = match address {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                socket.connect(address)?;
                Socket::Udp(socket)
            }
            SyslogMethod::Null => return Ok(()),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_targets() {
        assert_eq!(SyslogMethod::parse("libc"), Ok(SyslogMethod::Libc));
        assert_eq!(SyslogMethod::parse("unix:/x"), Ok(SyslogMethod::Unix("/x".into())));
        assert_eq!(SyslogMethod::parse("foo"), Err("unsupported syslog method 'foo'".into()));
        assert_eq!(
            SyslogMethod::parse("udp:127.0.0.1:514"),
            Ok(SyslogMethod::Udp(([127, 0, 0, 1], 514).into()))
        );
        assert_eq!(parse_target("[::1]:514").map(|a| a.port()), Ok(514));
        assert_eq!(parse_target("::1:514").map(|a| a.port()), Ok(514));
        assert_eq!(parse_target("x"), Err("x: port must be specified".into()));
        assert!(parse_target("host:1").is_err());
        assert!(parse_target("1.2.3.4:70000").is_err());
    }

    #[test]
    fn an_absent_daemon_costs_nothing() {
        let mut syslog = Syslog::new(SyslogMethod::Unix("/nonexistent/socket".into()));
        syslog.send(b"a");
        syslog.send(b"b");
        assert_eq!(syslog.lost, 2);
    }
}
