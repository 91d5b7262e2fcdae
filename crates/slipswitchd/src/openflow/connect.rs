// SPDX-License-Identifier: Apache-2.0
//! Active connections to controllers, kept up with backoff (OVS: rconn).

use super::control::SharedControl;
use super::end::{self, End};
use super::listen::OPENFLOW_PORT;
use super::stream::Stream;
use super::{Services, peer};
use bridge::connection::{ConnectionId, Connections, Options};
use bridge::snapshot::BridgeIndex;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use unixctl::SocketName;

/// A connection attempt that takes longer has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first wait between two attempts.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// Time between two checks whether a version was agreed on.
const HANDSHAKE_LOOK: Duration = Duration::from_millis(500);
const SUPPRESSING: &str =
    "continuing to retry connections in the background but suppressing further logging";

/// Where a controller is: `tcp:IP[:PORT]`, `ssl:IP[:PORT]`, `unix:FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP to a name or address, and a port.
    Tcp(String, u16),
    /// TLS over TCP.
    Tls(String, u16),
}

impl Target {
    /// Parses a controller's target; relative files are in `rundir`. `None` when it is not an active
    /// target.
    pub fn parse(target: &str, rundir: &Path) -> Option<Target> {
        Target::parse_with_port(target, rundir, OPENFLOW_PORT)
    }

    /// The same for a target whose TCP port, where it has none, is `default_port`.
    pub fn parse_with_port(target: &str, rundir: &Path, default_port: u16) -> Option<Target> {
        let (method, rest) = target.split_once(':')?;
        match method {
            "unix" if !rest.is_empty() => Some(Target::Unix(rundir.join(rest))),
            "tcp" => host(rest, default_port).map(|(h, p)| Target::Tcp(h, p)),
            "ssl" => host(rest, default_port).map(|(h, p)| Target::Tls(h, p)),
            _ => None,
        }
    }
}

/// `HOST[:PORT]`; an IPv6 address is in brackets.
fn host(text: &str, default_port: u16) -> Option<(String, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, port) = rest.split_once(']')?;
        ip.parse::<IpAddr>().ok()?;
        let port = match port.strip_prefix(':') {
            Some(p) => p.parse().ok()?,
            None if port.is_empty() => default_port,
            None => return None,
        };
        return Some((ip.to_owned(), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((h, p)) => (h, p.parse().ok()?),
        None => (text, default_port),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |h: &str| if h.contains(':') { format!("[{h}]") } else { h.to_owned() };
        match self {
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Tcp(h, p) => write!(f, "tcp:{}:{p}", bracketed(h)),
            Target::Tls(h, p) => write!(f, "ssl:{}:{p}", bracketed(h)),
        }
    }
}

/// Status of a connector, for the Controller table.
#[derive(Clone, Debug, Default)]
pub struct ConnectorStatus {
    /// The connection, while there is one.
    pub id: Option<ConnectionId>,
    /// OVS's word for its state: "IDLE", "BACKOFF", "CONNECTING", "ACTIVE".
    pub state: &'static str,
    /// Why the last attempt or connection ended, in Open vSwitch's words; `None` where nothing went
    /// wrong.
    pub last_error: Option<String>,
    /// The time at which the last connection was established.
    pub connected: Option<Instant>,
    /// The time at which the last connection ended.
    pub disconnected: Option<Instant>,
}

/// Keeps one controller connected until [`Connector::close`].
pub struct Connector {
    settings: Rc<Settings>,
    task: AbortHandle,
    stopped: Rc<Cell<bool>>,
    status: Rc<RefCell<ConnectorStatus>>,
}

/// Settings that may change while a connector runs.
struct Settings {
    /// Settings of later connections.
    options: RefCell<Options>,
    /// The longest wait between two attempts.
    max_backoff: Cell<Duration>,
}

impl Connector {
    /// Starts to connect. `max_backoff` is the longest wait between two attempts. `tls` is for
    /// [`Target::Tls`]; its files are read for each attempt.
    pub fn start(
        control: &SharedControl,
        target: Target,
        bridge: BridgeIndex,
        options: Options,
        max_backoff: Duration,
        tls: Option<tls::Files>,
    ) -> Connector {
        let settings = Rc::new(Settings {
            options: RefCell::new(options),
            max_backoff: Cell::new(max_backoff),
        });
        let status = Rc::new(RefCell::new(ConnectorStatus {
            state: "BACKOFF",
            ..ConnectorStatus::default()
        }));
        let stopped = Rc::new(Cell::new(false));
        let attempt = Attempt {
            control: Rc::clone(control),
            target,
            bridge,
            settings: Rc::clone(&settings),
            tls,
            stopped: Rc::clone(&stopped),
            status: Rc::clone(&status),
        };
        let task = tokio::task::spawn_local(attempt.keep_connected());
        Connector { settings, task: task.abort_handle(), stopped, status }
    }

    /// Changes the settings of the present connection and of later connections. A present
    /// connection keeps its kind, its versions and whether it gets asynchronous messages.
    pub fn reconfigure(
        &self,
        options: &Options,
        max_backoff: Duration,
        connections: &mut Connections,
    ) {
        self.settings.options.borrow_mut().clone_from(options);
        self.settings.max_backoff.set(max_backoff);
        if let Some(id) = self.status.borrow().id {
            connections.reconfigure(id, options);
        }
    }

    /// Returns the present status.
    pub fn status(&self) -> ConnectorStatus {
        self.status.borrow().clone()
    }

    /// Stops and ends the connection.
    pub fn close(self, connections: &mut Connections, services: &Services) {
        // A task with a connection has state to remove, so it is asked to end. A task without a
        // connection has none.
        self.stopped.set(true);
        match self.status.borrow().id {
            Some(id) => {
                connections.close(id, "controller removed");
                services.kick(id);
            }
            None => self.task.abort(),
        }
    }
}

/// Logs at INFO, or at DEBUG when `quiet`.
fn say(quiet: bool, name: &str, text: &str) {
    if quiet {
        tracing::debug!(target: "rconn", "{name}: {text}");
    } else {
        tracing::info!(target: "rconn", "{name}: {text}");
    }
}

struct Attempt {
    control: SharedControl,
    target: Target,
    bridge: BridgeIndex,
    settings: Rc<Settings>,
    tls: Option<tls::Files>,
    stopped: Rc<Cell<bool>>,
    status: Rc<RefCell<ConnectorStatus>>,
}

impl Attempt {
    async fn keep_connected(self) {
        let mut backoff = MIN_BACKOFF;
        // The waits have reached their longest: further messages would be repetitions.
        let mut quiet = false;
        let name = format!("{}<->{}", self.bridge_name(), self.target);
        loop {
            self.status.borrow_mut().state = "CONNECTING";
            say(quiet, &name, "connecting...");
            self.control.borrow_mut().parts().services.attempts += 1;
            let attempt = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
            let attempt = attempt.unwrap_or_else(|_| Err(Errno::TIMEDOUT.into()));
            let (text, last_error) = match attempt {
                Ok(stream) => {
                    say(quiet, &name, "connected");
                    let up = Instant::now();
                    let mut agreed = false;
                    let end = self
                        .serve(stream, quiet, || {
                            agreed = true;
                            // After a silence in the log, a controller that answers is logged.
                            if std::mem::take(&mut quiet) {
                                say(false, &name, "connected");
                            }
                        })
                        .await;
                    if agreed && up.elapsed() >= backoff {
                        backoff = MIN_BACKOFF;
                    }
                    (end.to_string(), end.last_error())
                }
                Err(error) => {
                    (format!("connection failed ({error})"), Some(end::error_text(&error)))
                }
            };
            if self.stopped.get() {
                return;
            }
            say(quiet, &name, &text);
            {
                let mut status = self.status.borrow_mut();
                status.state = "BACKOFF";
                status.last_error = last_error;
            }
            let longest = self.settings.max_backoff.get().max(MIN_BACKOFF);
            backoff = backoff.min(longest);
            if backoff < longest {
                let wait = backoff.as_secs();
                say(false, &name, &format!("waiting {wait} seconds before reconnect"));
            } else if !std::mem::replace(&mut quiet, true) {
                say(false, &name, SUPPRESSING);
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(longest);
        }
    }

    fn bridge_name(&self) -> String {
        let mut control = self.control.borrow_mut();
        let bridge = control.parts().switch.bridge(self.bridge);
        bridge.map_or_else(String::new, |b| b.name.clone())
    }

    fn is_agreed(&self) -> bool {
        let id = self.status.borrow().id;
        let mut control = self.control.borrow_mut();
        let connections = control.parts().connections;
        id.and_then(|id| connections.status(id)).is_some_and(|s| s.version.is_some())
    }

    async fn connect(&self) -> io::Result<Stream> {
        match &self.target {
            Target::Unix(path) => {
                let name = SocketName::new(path)?;
                UnixStream::connect(name.path()).await.map(Stream::Unix)
            }
            Target::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Target::Tls(host, port) => {
                let files = self.tls.as_ref().ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::Unsupported,
                        "private key and certificate are not configured; use ovs-vsctl set-ssl",
                    )
                })?;
                let tls = tls::connector(files)?;
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                let peer: SocketAddr = stream.peer_addr()?;
                let name = tokio_rustls::rustls::pki_types::ServerName::IpAddress(peer.ip().into());
                let stream = tls.connect(files.policy.server_name(name), stream).await?;
                Ok(Stream::Tls(Box::new(stream.into())))
            }
        }
    }

    /// Serves a connection to its end; calls `agreed` some time after a version was agreed on.
    async fn serve(&self, stream: Stream, quiet: bool, mut agreed: impl FnMut()) -> End {
        let started = |id| {
            let mut status = self.status.borrow_mut();
            status.id = Some(id);
            status.state = "ACTIVE";
            status.connected = Some(Instant::now());
        };
        let options = Options { quiet, ..self.settings.options.borrow().clone() };
        let serving = peer::serve(&self.control, stream, self.bridge, options, started);
        tokio::pin!(serving);
        let end = loop {
            tokio::select! {
                end = &mut serving => break end,
                () = tokio::time::sleep(HANDSHAKE_LOOK) => {}
            }
            if self.is_agreed() {
                agreed();
                break serving.await;
            }
        };
        let mut status = self.status.borrow_mut();
        status.id = None;
        status.disconnected = Some(Instant::now());
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_targets() {
        let run = Path::new("/run/ovs");
        assert_eq!(Target::parse("unix:c.sock", run), Some(Target::Unix("/run/ovs/c.sock".into())));
        assert_eq!(Target::parse("tcp:10.0.0.1", run), Some(Target::Tcp("10.0.0.1".into(), 6653)));
        assert_eq!(Target::parse("ssl:[::1]:6633", run), Some(Target::Tls("::1".into(), 6633)));
        assert_eq!(Target::parse("tcp:[::1]:6633", run).unwrap().to_string(), "tcp:[::1]:6633");
        for bad in ["ptcp:1", "tcp:", "tcp:h:x", "unix:", "ssl:[::1", ""] {
            assert_eq!(Target::parse(bad, run), None, "{bad}");
        }
    }
}
