// SPDX-License-Identifier: Apache-2.0
//! A proxy between two Unix sockets, controlled by the test.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The treatment of the server's messages on later connections.
#[derive(Clone, Debug)]
pub enum Manner {
    /// It is handed on as it is.
    Honest,
    /// Pieces of this many bytes, with a millisecond between them.
    Dribbling(usize),
    /// The connection ends after this many bytes.
    Broken(usize),
    /// These bytes come instead, and the server is never asked.
    Lying(Vec<u8>),
}

#[derive(Debug)]
struct State {
    manner: Mutex<Manner>,
    /// The clients' ends of living connections.
    clients: Mutex<Vec<UnixStream>>,
    accepted: AtomicUsize,
    stopped: AtomicBool,
}

/// Accepts at one path and connects to another; ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts at `path`, in front of `server`.
    pub fn start(path: &Path, server: &Path) -> Proxy {
        let listener = UnixListener::bind(path).expect("the place is ours");
        listener.set_nonblocking(true).expect("sockets can be");
        let state = Arc::new(State {
            manner: Mutex::new(Manner::Honest),
            clients: Mutex::default(),
            accepted: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let (shared, server) = (Arc::clone(&state), server.to_owned());
        let thread = std::thread::spawn(move || {
            while !shared.stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => shared.serve(client, &server),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        });
        Proxy { state, thread: Some(thread) }
    }

    /// Changes what connections to come are like.
    pub fn behave(&self, manner: Manner) {
        *lock(&self.state.manner) = manner;
    }

    /// Says something to the clients that are connected, between what the server says.
    pub fn say(&self, bytes: &[u8]) {
        for client in lock(&self.state.clients).iter_mut() {
            let _ = client.write_all(bytes); // a client that has left need not hear it
        }
    }

    /// Ends the connections that there are.
    pub fn cut(&self) {
        for client in lock(&self.state.clients).drain(..) {
            let _ = client.shutdown(Shutdown::Both); // it has ended already
        }
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        self.cut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was reported
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn serve(&self, client: UnixStream, server: &Path) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        client.set_nonblocking(false).expect("sockets can be");
        let both = |stream: &UnixStream| stream.try_clone().expect("descriptors are left");
        lock(&self.clients).push(both(&client));
        let manner = lock(&self.manner).clone();
        if let Manner::Lying(words) = manner {
            let mut liar = both(&client);
            std::thread::spawn(move || liar.write_all(&words));
            std::thread::spawn(move || pump(client, None, &Manner::Honest));
            return;
        }
        let Ok(server) = UnixStream::connect(server) else {
            let _ = client.shutdown(Shutdown::Both); // it has ended already
            return;
        };
        let (from, to) = (both(&client), both(&server));
        std::thread::spawn(move || pump(from, Some(to), &Manner::Honest));
        std::thread::spawn(move || pump(server, Some(client), &manner));
    }
}

/// Hands on until one side ends, then ends the other. Without `to` nothing is handed on.
fn pump(mut from: UnixStream, mut to: Option<UnixStream>, manner: &Manner) {
    let mut buffer = vec![0; 1 << 16];
    let mut left = if let Manner::Broken(bytes) = manner { *bytes } else { usize::MAX };
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let data = buffer.get(..count.min(left)).unwrap_or_default();
        left -= data.len();
        let Some(to) = &mut to else { continue };
        if hand_on(data, to, manner).is_err() || left == 0 {
            break;
        }
    }
    for end in [Some(from), to].into_iter().flatten() {
        let _ = end.shutdown(Shutdown::Both); // it has ended already
    }
}

fn hand_on(data: &[u8], to: &mut UnixStream, manner: &Manner) -> std::io::Result<()> {
    let Manner::Dribbling(piece) = manner else { return to.write_all(data) };
    data.chunks(*piece).try_for_each(|piece| {
        std::thread::sleep(Duration::from_millis(1));
        to.write_all(piece)
    })
}
