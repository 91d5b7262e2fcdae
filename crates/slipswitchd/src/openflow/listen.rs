//! Listening for OpenFlow peers.

use super::stream::Stream;
use super::{Services, peer};
use crate::daemon::Shared;
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
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

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
        /// Why.
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

/// A socket that accepts peers for one bridge. Dropping it stops listening and removes its
/// socket file; [`Listener::close`] also ends the connections that it accepted.
pub struct Listener {
    task: AbortHandle,
    path: Option<PathBuf>,
    accepted: Accepted,
}

/// Connections that a listener accepted and that are still there.
type Accepted = Rc<RefCell<HashSet<ConnectionId>>>;

impl Listener {
    /// Starts to listen. `tls` makes an acceptor from the present certificates.
    pub fn start(
        daemon: &Shared,
        endpoint: &Endpoint,
        bridge: BridgeIndex,
        options: Options,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Io { what: endpoint.to_string(), error };
        let accepted = Accepted::default();
        let context =
            Context { daemon: Rc::clone(daemon), bridge, options, accepted: Rc::clone(&accepted) };
        let (task, path) = match endpoint {
            Endpoint::Unix(path) => {
                let listener = bind_unix(path).map_err(failed)?;
                (tokio::task::spawn_local(accept_unix(listener, context)), Some(path.clone()))
            }
            Endpoint::Tcp(address) => {
                let listener = bind_tcp(*address).map_err(failed)?;
                (tokio::task::spawn_local(accept_tcp(listener, context, None)), None)
            }
            Endpoint::Tls(address) => {
                let tls = tls.ok_or(ListenError::NoTls)?;
                let listener = bind_tcp(*address).map_err(failed)?;
                (tokio::task::spawn_local(accept_tcp(listener, context, Some(tls))), None)
            }
        };
        Ok(Listener { task: task.abort_handle(), path, accepted })
    }

    /// Stops listening and ends the connections that were accepted.
    pub fn close(self, connections: &mut Connections, services: &Services) {
        for id in self.accepted.borrow().iter() {
            connections.close(*id, "its listener was removed");
            services.kick(*id);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path); // already gone is as good
        }
    }
}

/// Binds a Unix socket for owner and, as far as the umask lets it, group, in the place of a stale
/// one.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()), // what it is, is not ours to say
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
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
    daemon: Shared,
    bridge: BridgeIndex,
    options: Options,
    accepted: Accepted,
}

impl Context {
    /// Serves a peer, which has `slot` until it is gone.
    fn serve(&self, stream: Stream, slot: OwnedSemaphorePermit) {
        let c = self.clone();
        tokio::task::spawn_local(async move {
            let mine = Cell::new(None);
            let started = |id| {
                mine.set(Some(id));
                c.accepted.borrow_mut().insert(id);
            };
            let result = peer::serve(&c.daemon, stream, c.bridge, c.options, started).await;
            if let Some(id) = mine.get() {
                c.accepted.borrow_mut().remove(&id);
            }
            drop(slot);
            if let Err(error) = result {
                tracing::debug!(target: "rconn", "connection ended ({error})");
            }
        });
    }
}

/// Waits until there is room for one more peer: the others wait in the listener's queue.
async fn room(slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(slots).acquire_owned().await.ok()
}

async fn accept_unix(listener: UnixListener, context: Context) {
    let slots = Arc::new(Semaphore::new(MAX_PEERS));
    while let Some(slot) = room(&slots).await {
        match listener.accept().await {
            Ok((stream, _)) => context.serve(Stream::Unix(stream), slot),
            Err(error) => accept_failed(&error).await,
        }
    }
}

async fn accept_tcp(
    listener: TcpListener,
    context: Context,
    tls: Option<tokio_rustls::TlsAcceptor>,
) {
    let slots = Arc::new(Semaphore::new(MAX_PEERS));
    while let Some(slot) = room(&slots).await {
        match listener.accept().await {
            Ok((stream, _)) => match &tls {
                None => context.serve(Stream::Tcp(stream), slot),
                Some(tls) => {
                    let (tls, context) = (tls.clone(), context.clone());
                    tokio::task::spawn_local(async move {
                        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                            Ok(Ok(s)) => context.serve(Stream::Tls(Box::new(s.into())), slot),
                            Ok(Err(error)) => {
                                tracing::warn!(target: "stream_ssl", "TLS handshake with a peer failed ({error})");
                            }
                            Err(_) => {
                                tracing::warn!(target: "stream_ssl", "a peer did not finish its TLS handshake, disconnecting");
                            }
                        }
                    });
                }
            },
            Err(error) => accept_failed(&error).await,
        }
    }
}

/// Out of descriptors, most likely: wait, so that the loop does not spin.
async fn accept_failed(error: &io::Error) {
    tracing::warn!(target: "stream", "accept failed ({error})");
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

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
