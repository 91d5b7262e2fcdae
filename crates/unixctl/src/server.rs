// SPDX-License-Identifier: Apache-2.0
//! The listening side.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tracing::{debug, warn};

use crate::framer::Framer;
use crate::message;
use crate::registry::{Format, Registry, Reply};
use crate::socket_name::SocketName;
use crate::{MAX_CONNECTIONS, MAX_REQUEST};

/// The control socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{}: could not initialize control socket ({})", path.display(), reason(source))]
pub struct ServerError {
    /// The socket's path.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// The system's words without Rust's "(os error N)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or(&text).to_owned()
}

/// The requests whose replies have not been written yet.
///
/// A daemon that is about to end waits for [`Replies::written`], so that the peer that asked it to
/// end gets its answer.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    pending: Rc<Cell<usize>>,
    change: Rc<Notify>,
}

impl Replies {
    /// The number of requests under way.
    pub fn pending(&self) -> usize {
        self.pending.get()
    }

    /// Waits until every reply has been written, or `timeout` has passed (a peer may not read, and
    /// a command may never answer). Returns whether all were written.
    pub async fn written(&self, timeout: Duration) -> bool {
        let all = async {
            while self.pending.get() > 0 {
                self.change.notified().await;
            }
        };
        tokio::time::timeout(timeout, all).await.is_ok()
    }

    fn begin(&self) -> UnderWay {
        self.pending.set(self.pending.get() + 1);
        UnderWay(self.clone())
    }
}

/// One request under way.
struct UnderWay(Replies);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.pending.set(self.0.pending.get().saturating_sub(1));
        self.0.change.notify_one();
    }
}

/// The control socket. Its file goes when the server is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    registry: Registry,
    replies: Replies,
}

impl Server {
    /// Makes the socket at `path`, closed to all but its owner and group, in place of whatever
    /// socket a process before us left there. Needs a running `tokio` runtime.
    ///
    /// # Errors
    /// The path is taken by something that is no socket, or the socket cannot be made there.
    pub fn bind(path: &Path, registry: Registry) -> Result<Server, ServerError> {
        let fail = |source| ServerError { path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path).map_err(fail)?,
            Ok(_) => return Err(fail(io::ErrorKind::AlreadyExists.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let listener =
            SocketName::new(path).and_then(|name| UnixListener::bind(name.path())).map_err(fail)?;
        // The owner and the group only.
        let mode = fs::metadata(path).map_err(fail)?.permissions().mode() & 0o770;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)?;
        Ok(Server { listener, path: path.to_owned(), registry, replies: Replies::default() })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The requests under way, to be asked after [`Server::run`] has taken the server.
    pub fn replies(&self) -> Replies {
        self.replies.clone()
    }

    /// Answers requests for ever. Runs in a `LocalSet`: connections are local tasks of their own,
    /// which end with it. Dropping the future closes the listener, not the connections.
    pub async fn run(self) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let registry = self.registry.clone();
                    let replies = self.replies.clone();
                    tokio::task::spawn_local(async move {
                        serve(stream, &registry, &replies).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: give connections time to end.
                    warn!(target: "unixctl", "{}: accept failed: {}", self.path.display(), reason(&error));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, with its directory.
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves one connection until its peer ends it or sends something that is no request.
async fn serve(mut stream: UnixStream, registry: &Registry, replies: &Replies) {
    let mut framer = Framer::new(MAX_REQUEST);
    let mut buffer = vec![0; 4096];
    let mut format = Format::default();
    loop {
        let object = match framer.next_object() {
            Ok(Some(object)) => object,
            Ok(None) => match stream.read(&mut buffer).await {
                Ok(0) => return,
                Ok(n) => {
                    framer.push(buffer.get(..n).unwrap_or_default());
                    continue;
                }
                Err(error) => {
                    debug!(target: "unixctl", "receive error: {}", reason(&error));
                    return;
                }
            },
            Err(error) => {
                debug!(target: "unixctl", "disconnecting a peer: {error}");
                return;
            }
        };
        let request = match message::parse_request(&object) {
            Ok(request) => request,
            Err(error) => {
                debug!(target: "unixctl", "disconnecting a peer: {error}");
                return;
            }
        };
        drop(object);
        let _under_way = replies.begin();
        debug!(target: "unixctl", "received request {}{:?}, id={}", request.method, request.params, request.id);
        let (reply, answer) = Reply::channel();
        registry.dispatch_params(&request.method, request.params, &mut format, reply);
        // `Reply` answers even when it is dropped, so the channel cannot end without an answer.
        let outcome = answer.await.unwrap_or_else(|_| Err("no answer".into()));
        debug!(target: "unixctl", "replying with {}, id={}", if outcome.is_ok() { "success" } else { "error" }, request.id);
        let bytes = message::reply(&request.id, outcome, format);
        if let Err(error) = stream.write_all(&bytes).await {
            debug!(target: "unixctl", "send error: {}", reason(&error));
            return;
        }
    }
}
