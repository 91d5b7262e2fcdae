// SPDX-License-Identifier: Apache-2.0
//! Stream connections between dummies: frames in both directions, each preceded by its length
//! in 2 bytes, most significant first.
//!
//! A connection has a thread that accepts (`pstream`) or connects repeatedly (`stream`), and for
//! each peer one that reads and one that writes. All sleep when there is nothing to do, and end
//! when the [`Connection`] is dropped. When the queue of a slow peer is full, frames for it are
//! dropped.

use super::{Dummy, lock};
use crate::sys;
use packet::Packet;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Maximum number of frames that wait for a peer.
const PEER_QUEUE: usize = 1024;
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(500);
/// Time between two checks whether frames are on their way.
const PAUSE: Duration = Duration::from_micros(50);

/// Number of frames that all dummies have sent to peers.
static SENT: AtomicU64 = AtomicU64::new(0);

/// The `stream` or `pstream` of an open dummy.
pub struct Connection {
    /// The option that asked for it.
    option: (&'static str, String),
    shared: Arc<Shared>,
    /// Dropping it wakes the accepting or connecting thread.
    _stop: UnixStream,
    path: Option<PathBuf>,
}

struct Shared {
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    closed: bool,
    next: u64,
    list: Vec<Peer>,
}

struct Peer {
    id: u64,
    queue: SyncSender<Vec<u8>>,
    stream: Stream,
    /// Number of frames that are queued, or being written.
    queued: Arc<AtomicUsize>,
    /// The reading thread passes on a frame.
    is_receiving: Arc<AtomicBool>,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }

    /// Returns the number of received bytes that were not read yet.
    fn unread(&self) -> i32 {
        let mut count: libc::c_int = 0;
        // SAFETY: the descriptor is open, and `count` is where FIONREAD writes an int.
        let done = unsafe { libc::ioctl(self.fd().as_raw_fd(), libc::FIONREAD, &raw mut count) };
        if done < 0 { 0 } else { count }
    }

    fn shutdown(&self) {
        // Fails only if it is closed already.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(buf),
            Stream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(buf),
            Stream::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Unix(l) => Stream::Unix(l.accept()?.0),
            Listener::Tcp(l) => Stream::Tcp(l.accept()?.0),
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(l) => l.as_fd(),
            Listener::Tcp(l) => l.as_fd(),
        }
    }
}

#[derive(Clone)]
enum Remote {
    Unix(PathBuf),
    Tcp(String),
}

impl Remote {
    fn connect(&self) -> io::Result<Stream> {
        Ok(match self {
            Remote::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Remote::Tcp(address) => Stream::Tcp(TcpStream::connect(address)?),
        })
    }
}

impl Connection {
    /// Starts the connection of `options`, if any.
    ///
    /// # Errors
    ///
    /// The key of the invalid option and the reason.
    pub(super) fn from_options(
        device: &Arc<Dummy>,
        options: &BTreeMap<String, String>,
    ) -> Result<Option<Connection>, (String, String)> {
        match (options.get("pstream"), options.get("stream")) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err(("stream".to_owned(), "stream and pstream exclude each other".to_owned()))
            }
            (Some(text), None) => Connection::listen(device, text)
                .map(Some)
                .map_err(|reason| ("pstream".to_owned(), reason)),
            (None, Some(text)) => Connection::connect(device, text)
                .map(Some)
                .map_err(|reason| ("stream".to_owned(), reason)),
        }
    }

    fn listen(device: &Arc<Dummy>, text: &str) -> Result<Connection, String> {
        let failed = |e: io::Error| format!("could not listen on \"{text}\": {e}");
        let (listener, path) = if let Some(path) = text.strip_prefix("punix:") {
            // A socket of a daemon that was killed.
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).map_err(failed)?;
            (Listener::Unix(listener), Some(PathBuf::from(path)))
        } else if let Some(rest) = text.strip_prefix("ptcp:") {
            let (port, host) = rest.split_once(':').unwrap_or((rest, "0.0.0.0"));
            let listener = TcpListener::bind(format!("{host}:{port}")).map_err(failed)?;
            (Listener::Tcp(listener), None)
        } else {
            return Err(format!("\"{text}\" is neither punix:PATH nor ptcp:PORT[:HOST]"));
        };
        let (shared, stop, stopped) = Connection::parts().map_err(failed)?;
        let (s, weak) = (shared.clone(), Arc::downgrade(device));
        spawn("dummy-accept", move || {
            while wait(stopped.as_fd(), Some(listener.fd()), None) {
                if let Ok(stream) = listener.accept() {
                    // Without threads the connection is closed.
                    let _ = add_peer(&s, stream, weak.clone());
                }
            }
        })
        .map_err(failed)?;
        Ok(Connection { option: ("pstream", text.to_owned()), shared, _stop: stop, path })
    }

    fn connect(device: &Arc<Dummy>, text: &str) -> Result<Connection, String> {
        let remote = if let Some(path) = text.strip_prefix("unix:") {
            Remote::Unix(PathBuf::from(path))
        } else if let Some(address) = text.strip_prefix("tcp:") {
            Remote::Tcp(address.to_owned())
        } else {
            return Err(format!("\"{text}\" is neither unix:PATH nor tcp:HOST:PORT"));
        };
        let failed = |e: io::Error| format!("could not start a connection to \"{text}\": {e}");
        let (shared, stop, stopped) = Connection::parts().map_err(failed)?;
        let (s, weak) = (shared.clone(), Arc::downgrade(device));
        spawn("dummy-connect", move || {
            loop {
                if lock(&s.peers).list.is_empty()
                    && let Ok(stream) = remote.connect()
                {
                    let _ = add_peer(&s, stream, weak.clone());
                }
                if !wait(stopped.as_fd(), None, Some(RETRY)) {
                    return;
                }
            }
        })
        .map_err(failed)?;
        Ok(Connection { option: ("stream", text.to_owned()), shared, _stop: stop, path: None })
    }

    fn parts() -> io::Result<(Arc<Shared>, UnixStream, UnixStream)> {
        let (stop, stopped) = UnixStream::pair()?;
        Ok((Arc::new(Shared { peers: Mutex::default() }), stop, stopped))
    }

    /// Returns the name and the value of the option that asked for the connection.
    pub(super) fn option(&self) -> (&'static str, String) {
        self.option.clone()
    }

    /// Returns true when frames are on their way: queued for a peer, or received and not yet
    /// passed on. The order of the checks is that of the way.
    pub(super) fn is_busy(&self) -> bool {
        let peers = lock(&self.shared.peers);
        peers.list.iter().any(|p| p.queued.load(Ordering::SeqCst) > 0)
            || peers.list.iter().any(|p| p.stream.unread() > 0)
            || peers.list.iter().any(|p| p.is_receiving.load(Ordering::SeqCst))
    }

    /// Returns true when at least one peer is connected.
    pub fn is_connected(&self) -> bool {
        !lock(&self.shared.peers).list.is_empty()
    }

    /// Queues `frame` for all peers. A frame above 65,535 bytes is dropped.
    pub(super) fn send(&self, frame: &[u8]) {
        let Ok(length) = u16::try_from(frame.len()) else { return };
        let mut message = length.to_be_bytes().to_vec();
        message.extend_from_slice(frame);
        for peer in &lock(&self.shared.peers).list {
            SENT.fetch_add(1, Ordering::SeqCst);
            peer.queued.fetch_add(1, Ordering::SeqCst);
            // A full queue drops the frame, as a slow link does.
            if peer.queue.try_send(message.clone()).is_err() {
                peer.queued.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut peers = lock(&self.shared.peers);
        peers.closed = true;
        for peer in peers.list.drain(..) {
            peer.stream.shutdown();
        }
        if let Some(path) = &self.path {
            // Another process may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Sleeps until `other` is readable or `timeout` is over (returns true), or `stop` is closed
/// (returns false).
fn wait(stop: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
    let entry = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // poll(2) ignores negative descriptors.
    let mut fds = [entry(stop.as_raw_fd()), entry(other.map_or(-1, |o| o.as_raw_fd()))];
    let timeout = timeout.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `fds` lives through the call, and its length is given.
    let done =
        sys::check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) });
    match done {
        Ok(_) => fds[0].revents == 0,
        Err(e) => e.kind() == io::ErrorKind::Interrupted,
    }
}

fn add_peer(shared: &Arc<Shared>, stream: Stream, device: Weak<Dummy>) -> io::Result<()> {
    let (reader, writer) = (stream.try_clone()?, stream.try_clone()?);
    let (queue, frames) = sync_channel(PEER_QUEUE);
    let queued = Arc::new(AtomicUsize::new(0));
    let is_receiving = Arc::new(AtomicBool::new(false));
    let id = {
        let mut peers = lock(&shared.peers);
        if peers.closed {
            return Ok(());
        }
        let id = peers.next;
        peers.next += 1;
        peers.list.push(Peer {
            id,
            queue,
            stream,
            queued: Arc::clone(&queued),
            is_receiving: Arc::clone(&is_receiving),
        });
        id
    };
    let forget = |shared: &Shared| lock(&shared.peers).list.retain(|p| p.id != id);
    let started =
        spawn("dummy-write", move || write_frames(writer, &frames, &queued)).and_then(|()| {
            let shared = shared.clone();
            spawn("dummy-read", move || {
                read_frames(reader, &device, &is_receiving);
                lock(&shared.peers).list.retain(|p| p.id != id);
            })
        });
    if started.is_err() {
        forget(shared);
    }
    started
}

fn write_frames(mut stream: Stream, frames: &Receiver<Vec<u8>>, queued: &AtomicUsize) {
    // Ends when the peer's queue is closed or the peer closed the connection.
    for frame in frames {
        let done = stream.write_all(&frame);
        queued.fetch_sub(1, Ordering::SeqCst);
        if done.is_err() {
            stream.shutdown();
            return;
        }
    }
}

fn read_frames(mut stream: Stream, device: &Weak<Dummy>, is_receiving: &AtomicBool) {
    let mut length = [0; 2];
    // The flag is set before bytes leave the socket, so that a frame is always seen in one of both.
    while wait_readable(&stream) {
        is_receiving.store(true, Ordering::SeqCst);
        if stream.read_exact(&mut length).is_err() {
            break;
        }
        let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut frame).is_err() {
            break;
        }
        let Some(device) = device.upgrade() else { break };
        device.receive(0, vec![Packet::from_slice(&frame)]);
        is_receiving.store(false, Ordering::SeqCst);
    }
    is_receiving.store(false, Ordering::SeqCst);
    stream.shutdown();
}

/// Blocks until the stream has bytes, or has ended.
fn wait_readable(stream: &Stream) -> bool {
    let mut entry = libc::pollfd { fd: stream.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: `entry` lives through the call, and the length is one.
        match sys::check(unsafe { libc::poll(&raw mut entry, 1, -1) }) {
            Ok(_) => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Blocks until no frame is on its way between dummies of this process, or `limit` is over.
pub(super) fn wait_until_idle(devices: &[Arc<Dummy>], limit: Duration) {
    let end = Instant::now() + limit;
    loop {
        // A frame that arrives may send others, on connections that were found idle before.
        let sent = SENT.load(Ordering::SeqCst);
        let is_busy = devices.iter().any(|device| device.is_busy());
        let is_idle = !is_busy && sent == SENT.load(Ordering::SeqCst);
        if is_idle || Instant::now() >= end {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}
