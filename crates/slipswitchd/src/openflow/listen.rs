// SPDX-License-Identifier: Apache-2.0
//! Listening for OpenFlow peers.

use super::control::SharedControl;
use super::stream::Stream;
use super::{Services, peer};
use bridge::connection::{ConnectionId, Connections, Options};
use bridge::snapshot::BridgeIndex;
use hashbrown::HashSet;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use unixctl::SocketName;

/// Port that the Internet Assigned Numbers Authority gave to OpenFlow.
pub const OPENFLOW_PORT: u16 = 6653;
/// How long a peer's TLS handshake may take: one that sends nothing holds a descriptor.
const HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// Most peers of one listener at once, so that they cannot use up the process's descriptors.
const MAX_PEERS: usize = 256;

/// Where to listen: `punix:FILE`, `ptcp:[PORT][:IP]`, `pssl:[PORT][:IP]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
    /// TLS over TCP.
    Tls(SocketAddr),
}

/// Why a listener could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not one of the forms.
    #[error(
        "{0}: not a passive connection method; use punix:FILE, ptcp:[PORT][:IP] or pssl:[PORT][:IP]"
    )]
    Syntax(String),
    /// The operating system refused.
    #[error("{what}: listen failed ({error})")]
    Io {
        /// The endpoint.
        what: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// TLS is not set up.
    #[error(
        "pssl: private key and certificate are not configured (ovs-vsctl set-ssl, or --private-key and --certificate)"
    )]
    NoTls,
}

impl Endpoint {
    /// Parses a target; relative files are in `rundir`.
    pub fn parse(target: &str, rundir: &Path) -> Result<Endpoint, ListenError> {
        let syntax = || ListenError::Syntax(target.to_owned());
        let (method, rest) = target.split_once(':').ok_or_else(syntax)?;
        match method {
            "punix" if !rest.is_empty() => Ok(Endpoint::Unix(rundir.join(rest))),
            "ptcp" => Ok(Endpoint::Tcp(address(rest).ok_or_else(syntax)?)),
            "pssl" => Ok(Endpoint::Tls(address(rest).ok_or_else(syntax)?)),
            _ => Err(syntax()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "punix:{}", path.display()),
            Endpoint::Tcp(a) => write!(f, "ptcp:{}:{}", a.port(), a.ip()),
            Endpoint::Tls(a) => write!(f, "pssl:{}:{}", a.port(), a.ip()),
        }
    }
}

/// `[PORT][:IP]`; an IPv6 address may be in brackets.
fn address(text: &str) -> Option<SocketAddr> {
    let (port, ip) = match text.split_once(':') {
        Some((port, ip)) => (port, ip.trim_start_matches('[').trim_end_matches(']')),
        None => (text, ""),
    };
    let port = if port.is_empty() { OPENFLOW_PORT } else { port.parse().ok()? };
    let ip: IpAddr = if ip.is_empty() { Ipv4Addr::UNSPECIFIED.into() } else { ip.parse().ok()? };
    Some(SocketAddr::new(ip, port))
}

/// A socket that accepts peers for one bridge. Dropping it stops listening, at once, and removes
/// its socket file; [`Listener::close`] also ends the connections that it accepted.
pub struct Listener {
    task: AbortHandle,
    path: Option<PathBuf>,
    shared: Rc<Listening>,
}

/// State that a listener and its tasks share.
struct Listening {
    /// `None` after the end of listening: a peer whose handshake ends then is refused.
    socket: RefCell<Option<Socket>>,
    /// Settings of later connections.
    options: RefCell<Options>,
    /// Connections that were accepted and are still there.
    accepted: RefCell<HashSet<ConnectionId>>,
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Socket {
    fn poll_accept(&self, cx: &mut std::task::Context<'_>) -> Poll<io::Result<Stream>> {
        match self {
            Socket::Unix(l) => l.poll_accept(cx).map_ok(|(stream, _)| Stream::Unix(stream)),
            Socket::Tcp(l) => l.poll_accept(cx).map_ok(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl Listener {
    /// Starts to listen. The files of `tls` are read for each peer.
    pub fn start(
        control: &SharedControl,
        endpoint: &Endpoint,
        bridge: BridgeIndex,
        options: Options,
        tls: Option<tls::Files>,
    ) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Io { what: endpoint.to_string(), error };
        let (socket, path) = match endpoint {
            Endpoint::Unix(path) => {
                (Socket::Unix(bind_unix(path).map_err(failed)?), Some(path.clone()))
            }
            Endpoint::Tls(_) if tls.is_none() => return Err(ListenError::NoTls),
            Endpoint::Tcp(address) | Endpoint::Tls(address) => {
                (Socket::Tcp(bind_tcp(*address).map_err(failed)?), None)
            }
        };
        let tls = tls.filter(|_| matches!(endpoint, Endpoint::Tls(_)));
        let shared = Rc::new(Listening {
            socket: RefCell::new(Some(socket)),
            options: RefCell::new(options),
            accepted: RefCell::default(),
        });
        let context = Context { control: Rc::clone(control), bridge, shared: Rc::clone(&shared) };
        let task = tokio::task::spawn_local(accept(context, tls));
        Ok(Listener { task: task.abort_handle(), path, shared })
    }

    /// Changes the settings of present and later connections. Present connections keep their kind,
    /// their versions and whether they get asynchronous messages.
    pub fn reconfigure(&self, options: &Options, connections: &mut Connections) {
        self.shared.options.borrow_mut().clone_from(options);
        for id in self.shared.accepted.borrow().iter() {
            connections.reconfigure(*id, options);
        }
    }

    /// Stops listening and ends the connections that were accepted.
    pub fn close(self, connections: &mut Connections, services: &Services) {
        for id in self.shared.accepted.borrow().iter() {
            connections.close(*id, "its listener was removed");
            services.kick(*id);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The task ends only when it runs next, but the address must be free now.
        drop(self.shared.socket.borrow_mut().take());
        self.task.abort();
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path); // it may be gone already
        }
    }
}

/// Binds a Unix socket in the place of a stale one. Its owner has access, and its group as far as
/// the umask permits.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()), // a file of another program
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(SocketName::new(path)?.path())?;
    let mode = std::fs::symlink_metadata(path)?.permissions().mode() & 0o770;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[derive(Clone)]
struct Context {
    control: SharedControl,
    bridge: BridgeIndex,
    shared: Rc<Listening>,
}

impl Context {
    /// Serves a peer, which has `slot` until it is gone.
    fn serve(&self, stream: Stream, slot: OwnedSemaphorePermit) {
        let c = self.clone();
        tokio::task::spawn_local(async move {
            if c.shared.socket.borrow().is_none() {
                return;
            }
            let mine = Cell::new(None);
            let started = |id| {
                mine.set(Some(id));
                c.shared.accepted.borrow_mut().insert(id);
            };
            let options = c.shared.options.borrow().clone();
            let end = peer::serve(&c.control, stream, c.bridge, options, started).await;
            if let Some(id) = mine.get() {
                c.shared.accepted.borrow_mut().remove(&id);
            }
            drop(slot);
            tracing::debug!(target: "rconn", "{end}");
        });
    }

    /// Serves a peer by TLS after a successful handshake.
    async fn shake_hands(self, stream: TcpStream, slot: OwnedSemaphorePermit, files: tls::Files) {
        let tls = match tls::acceptor(&files) {
            Ok(tls) => tls,
            Err(error) => {
                tracing::warn!(target: "stream_ssl", "a peer was refused: TLS is not set up: {error}");
                return;
            }
        };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(s)) => self.serve(Stream::Tls(Box::new(s.into())), slot),
            Ok(Err(error)) => {
                tracing::warn!(target: "stream_ssl", "TLS handshake with a peer failed ({error})");
            }
            Err(_) => {
                tracing::warn!(target: "stream_ssl", "a peer did not finish its TLS handshake, disconnecting");
            }
        }
    }

    /// Returns the next peer; `None` after the end of listening.
    async fn next(&self) -> Option<io::Result<Stream>> {
        std::future::poll_fn(|cx| match &*self.shared.socket.borrow() {
            Some(socket) => socket.poll_accept(cx).map(Some),
            None => Poll::Ready(None),
        })
        .await
    }
}

/// Waits until there is room for one more peer. Further peers wait in the kernel's queue.
async fn room(slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(slots).acquire_owned().await.ok()
}

async fn accept(context: Context, tls: Option<tls::Files>) {
    let slots = Arc::new(Semaphore::new(MAX_PEERS));
    while let Some(slot) = room(&slots).await
        && let Some(peer) = context.next().await
    {
        match (peer, &tls) {
            (Ok(Stream::Tcp(stream)), Some(files)) => {
                let context = context.clone();
                tokio::task::spawn_local(context.shake_hands(stream, slot, files.clone()));
            }
            (Ok(stream), _) => context.serve(stream, slot),
            (Err(error), _) => accept_failed(&error).await,
        }
    }
}

/// Logs a failure, most likely a lack of descriptors, and waits so that the loop does not spin.
async fn accept_failed(error: &io::Error) {
    tracing::warn!(target: "stream", "accept failed ({error})");
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_may_have_a_longer_path_than_an_address_holds() {
        let directory =
            std::env::temp_dir().join(format!("{}-{}", std::process::id(), "x".repeat(120)));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("br0.mgmt");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let bound = runtime.expect("a runtime").block_on(async { bind_unix(&path).map(drop) });
        let is_there = path.exists();
        std::fs::remove_dir_all(&directory).expect("it was made");
        assert!(bound.is_ok() && is_there, "{bound:?}");
    }

    #[test]
    fn passive_targets() {
        let run = Path::new("/run/ovs");
        assert_eq!(
            Endpoint::parse("punix:br0.mgmt", run).unwrap(),
            Endpoint::Unix("/run/ovs/br0.mgmt".into())
        );
        assert_eq!(Endpoint::parse("punix:/x", run).unwrap(), Endpoint::Unix("/x".into()));
        assert_eq!(
            Endpoint::parse("ptcp:", run).unwrap(),
            Endpoint::Tcp("0.0.0.0:6653".parse().unwrap())
        );
        assert_eq!(
            Endpoint::parse("ptcp:6633:127.0.0.1", run).unwrap(),
            Endpoint::Tcp("127.0.0.1:6633".parse().unwrap())
        );
        assert_eq!(
            Endpoint::parse("pssl:1:[::1]", run).unwrap(),
            Endpoint::Tls("[::1]:1".parse().unwrap())
        );
        for bad in ["tcp:1.2.3.4", "ptcp:x", "punix:", "", "ptcp:1:2:3:4"] {
            assert!(Endpoint::parse(bad, run).is_err(), "{bad}");
        }
    }
}
