// SPDX-License-Identifier: Apache-2.0
//! Where database servers listen, in OVS's notation (ovsdb(7), "Connection Methods"), and how to
//! reach them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::{TlsOptions, tls};

/// The port that IANA assigned to OVSDB.
const DEFAULT_PORT: u16 = 6640;

/// The longest path that a socket address holds.
const MAX_SOCKET_PATH: usize = 107;

/// One server to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    text: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: bool },
}

/// A remote that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{remote}: {problem}")]
pub struct RemoteError {
    remote: String,
    problem: &'static str,
}

impl Remote {
    /// Reads `unix:FILE`, `tcp:HOST[:PORT]` or `ssl:HOST[:PORT]`. A `FILE` that is not absolute
    /// is relative to `rundir`. IPv6 addresses stand in brackets.
    ///
    /// # Errors
    /// When the text is nothing of the kind; a passive remote (`punix:` and so on) is none that a
    /// client can connect to.
    pub fn parse(text: &str, rundir: &Path) -> Result<Self, RemoteError> {
        let fail = |problem| RemoteError { remote: text.to_owned(), problem };
        let (kind, rest) = text.split_once(':').ok_or_else(|| {
            fail("a remote is written unix:FILE, tcp:HOST[:PORT] or ssl:HOST[:PORT]")
        })?;
        let target = match kind {
            "unix" if rest.is_empty() => return Err(fail("the file name is missing")),
            "unix" => Target::Unix(rundir.join(rest)),
            "tcp" | "ssl" => {
                let (host, port) = host_and_port(rest).map_err(fail)?;
                Target::Tcp { host, port, tls: kind == "ssl" }
            }
            "punix" | "ptcp" | "pssl" => {
                return Err(fail(
                    "a passive remote cannot be connected to; name where the server listens",
                ));
            }
            _ => {
                return Err(fail("the kind of connection is unknown; use unix, tcp or ssl"));
            }
        };
        Ok(Remote { text: text.to_owned(), target })
    }

    /// Reads several remotes, separated by commas.
    ///
    /// # Errors
    /// As [`Remote::parse`]; also when there is none.
    pub fn parse_list(text: &str, rundir: &Path) -> Result<Vec<Self>, RemoteError> {
        let remotes: Result<Vec<Remote>, RemoteError> = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| Remote::parse(part, rundir))
            .collect();
        match remotes?.as_slice() {
            [] => Err(RemoteError { remote: text.to_owned(), problem: "no remote is named" }),
            remotes => Ok(remotes.to_vec()),
        }
    }

    /// Opens a connection to this remote.
    pub(crate) async fn connect(
        &self,
        options: Option<&TlsOptions>,
    ) -> io::Result<Box<dyn Stream>> {
        match &self.target {
            Target::Unix(path) => Ok(Box::new(connect_unix(path).await?)),
            Target::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                if !tls {
                    return Ok(Box::new(stream));
                }
                let options = options.ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "private key, certificate and CA certificate must be configured to use SSL",
                    )
                })?;
                Ok(Box::new(tls::connect(stream, host, options).await?))
            }
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A connected byte stream of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

fn host_and_port(text: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the address lacks its closing bracket")?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err("the bracketed address must be followed by :PORT or nothing"),
        }
    } else {
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err("an IPv6 address must stand in brackets");
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err("the port must be a number from 1 to 65535"),
        },
    };
    Ok((host.to_owned(), port))
}

/// Connects to a socket file, also where its path is longer than a socket address can be: then by
/// way of the open directory it is in.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return UnixStream::connect(path).await;
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "File name too long"));
    };
    let directory = File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    UnixStream::connect(short).await
}

/// An I/O error in the words of strerror(3), without the number that Rust adds.
pub(crate) fn error_words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text.get(..end).unwrap_or(&text).to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, String> {
        Remote::parse(text, Path::new("/run/ovs")).map(|r| r.target).map_err(|e| e.to_string())
    }

    #[test]
    fn remotes_are_read_as_ovs_reads_them() {
        assert_eq!(parse("unix:db.sock"), Ok(Target::Unix("/run/ovs/db.sock".into())));
        assert_eq!(parse("unix:/x/db.sock"), Ok(Target::Unix("/x/db.sock".into())));
        let tcp = |host: &str, port, tls| Ok(Target::Tcp { host: host.into(), port, tls });
        assert_eq!(parse("tcp:10.0.0.1"), tcp("10.0.0.1", 6640, false));
        assert_eq!(parse("tcp:[::1]:1234"), tcp("::1", 1234, false));
        assert_eq!(parse("ssl:[::1]"), tcp("::1", 6640, true));
        assert_eq!(parse("ssl:db.example:99"), tcp("db.example", 99, true));
        for bad in [
            "",
            "unix:",
            "tcp:",
            "tcp:::1",
            "tcp:h:0",
            "tcp:h:x",
            "tcp:[::1",
            "tcp:[::1]x",
            "ptcp:6640",
            "foo:1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let list = Remote::parse_list("unix:a, tcp:h", Path::new("/r")).unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["unix:a", "tcp:h"]);
        assert!(Remote::parse_list(" ,", Path::new("/r")).is_err());
    }

    #[test]
    fn errors_are_in_the_systems_words() {
        assert_eq!(error_words(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(error_words(&io::Error::other("x (os error 2)")), "x (os error 2)");
    }
}
