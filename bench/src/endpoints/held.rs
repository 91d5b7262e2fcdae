// SPDX-License-Identifier: Apache-2.0
//! Many TCP connections that are held open and used in turn. The server is a process of its own: a
//! process may have too few descriptors for both ends.

use super::{Endpoints, PORT, SILENCE, connect};
use crate::attempt::Worker;
use anyhow::{Context, Result, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipswitch_tests::harness::{Process, Sandbox, wait_until};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The option that makes this program a server.
pub const SERVER: &str = "echo-server";
/// The key of the listening socket.
const LISTENER: u64 = u64::MAX;
/// Events of one call.
const EVENTS: usize = 256;
/// Timeouts after which connections are not used in turn any more.
const MOST_TIMEOUTS: u32 = 3;
/// The least that an answer is waited for, after the time for all answers.
const MOMENT: Duration = Duration::from_millis(1);

/// The connections.
pub struct Held {
    streams: Vec<Option<TcpStream>>,
    cpu: usize,
    _server: Process,
}

/// The fate of connections that were in use all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Connections that ended, or do not answer any more.
    pub lost: usize,
    /// The longest that an answer took.
    pub pause: Duration,
}

/// The outcome of one use of a connection.
#[derive(PartialEq, Eq)]
enum Answer {
    Came,
    TimedOut,
    /// The connection has ended.
    Ended,
}

/// Lets this process have as many descriptors as it may.
fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context("descriptors")
}

impl Held {
    /// Starts a server, whose output goes to `sandbox`, and connects `count` times.
    pub fn open(endpoints: &Endpoints, sandbox: &Sandbox, count: usize) -> Result<Held> {
        raise_file_limit()?;
        let address = SocketAddr::new(endpoints.address, PORT);
        let program = std::env::current_exe().context("the path of this program")?;
        let cpu = endpoints.cpus.other.to_string();
        let option = format!("--{SERVER}={address}");
        let arguments = ["-c", &cpu, &program.to_string_lossy(), &option];
        let netns = Some(&endpoints.server);
        let server = Process::start(sandbox, netns, SERVER, "taskset", &arguments);
        let listens = || endpoints.client.with(|| TcpStream::connect(address).is_ok());
        ensure!(
            wait_until(SILENCE, listens),
            "the server does not listen: {}",
            sandbox.read(&format!("{SERVER}.err"))
        );
        let streams = endpoints.client.with(|| {
            let connect = |_| connect(&address, SILENCE).map(Some);
            (0..count).map(connect).collect::<Result<Vec<_>>>()
        })?;
        let mut held = Held { streams, cpu: endpoints.cpus.traffic, _server: server };
        let lost = held.check();
        ensure!(lost == 0, "{lost} of {count} connections do not answer");
        Ok(held)
    }

    /// Uses the connections in turn while `meanwhile` runs, and checks each of them afterwards.
    pub fn observe(&mut self, meanwhile: impl FnOnce() -> Result<()>) -> Result<Fate> {
        let had = self.streams.iter().flatten().count();
        let streams = std::mem::take(&mut self.streams);
        let user = Worker::start(None, self.cpu, move |over| Ok(in_turn(streams, over)));
        let happened = meanwhile();
        let (streams, pause) = user.stop()?;
        self.streams = streams;
        happened?;
        self.check();
        Ok(Fate { lost: had - self.streams.iter().flatten().count(), pause })
    }

    /// Uses all connections at once. Drops those that do not answer, and returns their number.
    fn check(&mut self) -> usize {
        let had = self.streams.iter().flatten().count();
        for stream in &mut self.streams {
            if stream.as_mut().is_some_and(|stream| stream.write_all(&[1]).is_err()) {
                *stream = None;
            }
        }
        let end = Instant::now() + SILENCE;
        for stream in &mut self.streams {
            let left = end.saturating_duration_since(Instant::now()).max(MOMENT);
            let answers = |stream: &mut TcpStream| {
                stream.set_read_timeout(Some(left)).is_ok() && stream.read_exact(&mut [0]).is_ok()
            };
            if !stream.as_mut().is_some_and(answers) {
                *stream = None;
            }
        }
        had - self.streams.iter().flatten().count()
    }
}

/// Uses connections one after the other until `over` is set. Returns those that are left, and the
/// longest that an answer took.
fn in_turn(
    mut streams: Vec<Option<TcpStream>>,
    over: &AtomicBool,
) -> (Vec<Option<TcpStream>>, Duration) {
    let (mut pause, mut timeouts) = (Duration::ZERO, 0);
    let is_over = || over.load(Ordering::Acquire);
    while !is_over() && timeouts < MOST_TIMEOUTS && streams.iter().any(Option::is_some) {
        for place in &mut streams {
            let Some(stream) = place.as_mut().filter(|_| timeouts < MOST_TIMEOUTS) else {
                continue;
            };
            let begin = Instant::now();
            let answer = use_once(stream);
            pause = pause.max(begin.elapsed());
            timeouts += u32::from(answer == Answer::TimedOut);
            if answer != Answer::Came {
                *place = None;
            }
            if is_over() {
                break;
            }
        }
    }
    (streams, pause)
}

fn use_once(stream: &mut TcpStream) -> Answer {
    let once = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])
    };
    match once(stream) {
        Ok(()) => Answer::Came,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Answer::TimedOut
        }
        Err(_) => Answer::Ended,
    }
}

/// Returns each byte of any number of connections, until the process is killed.
pub fn serve(address: SocketAddr) -> Result<()> {
    raise_file_limit()?;
    let listener = TcpListener::bind(address).context("listening")?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            // The structure is packed, so its field is copied, not borrowed.
            let key = { event.data }.u64();
            if key != LISTENER {
                let place = usize::try_from(key).ok().and_then(|key| streams.get_mut(key));
                if let Some(place) = place
                    && !place.as_mut().is_some_and(answer)
                {
                    *place = None; // the kernel takes it out of the set
                }
                continue;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let key = EventData::new_u64(streams.len() as u64);
                    epoll::add(&epoll, &stream, key, EventFlags::IN)?;
                    streams.push(Some(stream));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("accepting a connection"),
            }
        }
    }
}

/// Sends back what arrived. Returns false at the end of a connection.
fn answer(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(n) => bytes.get(..n).is_some_and(|bytes| stream.write_all(bytes).is_ok()),
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    }
}
