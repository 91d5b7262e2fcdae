// SPDX-License-Identifier: Apache-2.0
//! Sockets to the collectors of NetFlow and sFlow.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Connected UDP sockets, one for each collector. Sending never waits: a datagram that the kernel
/// does not take is counted. For the control thread.
#[derive(Debug, Default)]
pub(crate) struct Collectors {
    sockets: Vec<UdpSocket>,
    sent: u64,
    unsent: u64,
}

impl Collectors {
    /// Opens sockets to `targets`, in their order. Returns the collectors, and each target without a
    /// socket with its error.
    pub fn open<'a>(
        targets: impl IntoIterator<Item = &'a String>,
        default_port: Option<u16>,
    ) -> (Collectors, Vec<(&'a str, String)>) {
        let mut collectors = Collectors::default();
        let mut failed = Vec::new();
        for target in targets {
            let socket = parse(target, default_port)
                .ok_or_else(|| "it is not IP:PORT".to_owned())
                .and_then(|address| connect(address).map_err(|error| error.to_string()));
            match socket {
                Ok(socket) => collectors.sockets.push(socket),
                Err(error) => failed.push((target.as_str(), error)),
            }
        }
        (collectors, failed)
    }

    /// Sends a datagram to each collector.
    pub fn send(&mut self, datagram: &[u8]) {
        for socket in &self.sockets {
            match socket.send(datagram) {
                Ok(_) => self.sent += 1,
                // A collector that is not there answers one datagram with the error of the next.
                Err(_) => self.unsent += 1,
            }
        }
    }

    /// Returns the number of collectors with a socket.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the address that the datagrams to the first collector come from.
    pub fn source(&self) -> Option<IpAddr> {
        self.sockets.first()?.local_addr().ok().map(|address| address.ip())
    }

    /// Returns the numbers of datagrams that were sent, and that the kernel did not take.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.unsent)
    }
}

/// Reads `IP:PORT`, `[IPV6]:PORT`, or an address alone where there is a default port.
fn parse(target: &str, default_port: Option<u16>) -> Option<SocketAddr> {
    if let Ok(address) = target.parse::<SocketAddr>() {
        return (address.port() != 0).then_some(address);
    }
    let bare = target.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(target);
    Some(SocketAddr::new(bare.parse().ok()?, default_port?))
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_with_ports() {
        let of = |text: &str, port| parse(text, port).map(|a| a.to_string());
        assert_eq!(of("10.0.0.1:2055", None).as_deref(), Some("10.0.0.1:2055"));
        assert_eq!(of("[fd00::1]:2055", None).as_deref(), Some("[fd00::1]:2055"));
        assert_eq!(of("10.0.0.1", Some(6343)).as_deref(), Some("10.0.0.1:6343"));
        assert_eq!(of("[::1]", Some(6343)).as_deref(), Some("[::1]:6343"));
        for wrong in ["", "10.0.0.1", "10.0.0.1:0", "host:2055", "10.0.0.1:99999", "[::1"] {
            assert_eq!(of(wrong, None), None, "{wrong}");
        }
    }

    #[test]
    fn each_collector_gets_each_datagram() {
        let receivers = [UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0")];
        let receivers = receivers.map(Result::unwrap);
        let mut targets: Vec<String> =
            receivers.iter().map(|r| r.local_addr().unwrap().to_string()).collect();
        targets.push("nonsense".to_owned());
        let (mut collectors, failed) = Collectors::open(&targets, None);
        assert_eq!(failed, [("nonsense", "it is not IP:PORT".to_owned())]);
        assert_eq!(collectors.source(), Some(Ipv4Addr::LOCALHOST.into()));
        collectors.send(b"records");
        for receiver in &receivers {
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 32];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"records");
        }
        assert_eq!(collectors.counts(), (2, 0));
    }
}
