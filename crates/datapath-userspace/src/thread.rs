// SPDX-License-Identifier: Apache-2.0
//! Packet threads, which sleep in `epoll` until a queue has packets.

use crate::BATCH;
use crate::engine::Engine;
use crate::miss_queue::{MissedPacket, count_by_port};
use crate::ports::{RxQueue, Source};
use crate::shared::Shared;
use crate::stats::ThreadStats;
use crate::upcall_limiter::ClosedPort;
use datapath::{DropReason, PortNo};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// The token of the wakeup descriptor; queues count from 1.
const WAKE: u64 = 0;
/// Maximum number of queues that one `epoll_wait` reports. The kernel reports the others next.
const EVENTS: usize = 64;
/// Number of successive turns without packets after which a queue that is reported ready is ignored
/// for [`PAUSE`]. So a device in an unexpected state cannot make the thread spin.
const EMPTY_TURNS: u32 = 64;
const PAUSE: Duration = Duration::from_millis(50);

/// The part of a packet thread that other threads use.
pub(crate) struct PacketThread {
    pub(crate) core: Option<usize>,
    pub(crate) stats: Arc<ThreadStats>,
    epoll: OwnedFd,
    wake: OwnedFd,
    stop: AtomicBool,
    /// The queues by token.
    queues: Mutex<HashMap<u64, Arc<RxQueue>>>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // whole values only
}

impl PacketThread {
    /// Starts a thread and pins it to `core` if there is one.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        number: usize,
        core: Option<usize>,
    ) -> io::Result<Arc<PacketThread>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let thread = Arc::new(PacketThread {
            core,
            stats: Arc::default(),
            epoll,
            wake,
            stop: AtomicBool::new(false),
            queues: Mutex::default(),
            handle: Mutex::default(),
        });
        let name = match core {
            Some(core) => format!("pmd-c{core:02}"),
            None => format!("packets-{number}"),
        };
        let seed = shared.seed.wrapping_add(1 + number as u64);
        let (shared, own) = (shared.clone(), thread.clone());
        let handle =
            std::thread::Builder::new().name(name).spawn(move || own.run(&shared, seed))?;
        *lock(&thread.handle) = Some(handle);
        Ok(thread)
    }

    /// Adds `queue` to the queues that the thread serves.
    pub(crate) fn add(&self, queue: &Arc<RxQueue>) -> io::Result<()> {
        lock(&self.queues).insert(queue.token, queue.clone());
        let added = queue.with_fd(|fd| {
            epoll::add(&self.epoll, fd, EventData::new_u64(queue.token), EventFlags::IN)
        });
        match added {
            Some(Ok(())) => Ok(()),
            Some(Err(e)) => {
                lock(&self.queues).remove(&queue.token);
                Err(e.into())
            }
            None => {
                lock(&self.queues).remove(&queue.token);
                Ok(())
            }
        }
    }

    /// Removes `queue` from the queues that the thread serves. The thread may still be processing a
    /// batch of it.
    pub(crate) fn remove(&self, queue: &RxQueue) {
        if lock(&self.queues).remove(&queue.token).is_some() {
            // If the descriptor is closed already, the kernel has removed it.
            let _ = queue.with_fd(|fd| epoll::delete(&self.epoll, fd));
        }
    }

    pub(crate) fn queues(&self) -> Vec<Arc<RxQueue>> {
        let mut queues: Vec<_> = lock(&self.queues).values().cloned().collect();
        queues.sort_by(|a, b| (&a.port_name, a.number).cmp(&(&b.port_name, b.number)));
        queues
    }

    pub(crate) fn id(&self) -> Option<ThreadId> {
        lock(&self.handle).as_ref().map(|h| h.thread().id())
    }

    /// Ends the thread and waits for its end, unless it is the caller.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // A full counter means that a wakeup is pending already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        let handle = lock(&self.handle).take();
        if let Some(handle) = handle
            && handle.thread().id() != std::thread::current().id()
            && handle.join().is_err()
        {
            tracing::error!(target: "dpif_netdev", "a packet thread had panicked");
        }
    }

    fn run(&self, shared: &Shared, seed: u64) {
        if let Some(core) = self.core {
            pin(core);
        }
        let mut engine = Engine::new(self.stats.clone(), shared.cache_entries, seed);
        let mut loop_state = Loop::default();
        while !self.stop.load(Ordering::Acquire) {
            // A panic, mostly in an upcall, costs one batch, not the ports.
            let turn = AssertUnwindSafe(|| self.turn(shared, &mut engine, &mut loop_state));
            match catch_unwind(turn) {
                Ok(Ok(())) => {}
                Ok(Err(e)) => {
                    tracing::error!(target: "dpif_netdev", "epoll_wait failed ({e}); packets of this thread stop");
                    return;
                }
                Err(_) => {
                    tracing::error!(
                        target: "dpif_netdev",
                        "processing a batch panicked; it is lost, the thread goes on: please report this",
                    );
                    engine = Engine::new(self.stats.clone(), shared.cache_entries, seed);
                    let unfinished = loop_state.unfinished.take();
                    loop_state = Loop { paused: loop_state.paused, unfinished, ..Loop::default() };
                    // The lost packets are reported as done, else their ports would wait for ever.
                    let finish = AssertUnwindSafe(|| loop_state.finish_misses());
                    if catch_unwind(finish).is_err() {
                        tracing::error!(
                            target: "dpif_netdev",
                            "finishing a batch of a faster tier panicked; the thread goes on: please report this",
                        );
                    }
                }
            }
        }
    }

    /// Sleeps until a queue is ready, then processes one batch of each ready queue.
    fn turn(&self, shared: &Shared, engine: &mut Engine, state: &mut Loop) -> io::Result<()> {
        let timeout = state.paused.first().map(|(until, _)| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) } // PAUSE is below a second
        });
        let mut events: Vec<Event> = std::mem::take(&mut state.events);
        events.clear();
        events.reserve(EVENTS);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        state.ready.clear();
        {
            let queues = lock(&self.queues);
            for event in &events {
                // The structure is packed, so its field is copied, not borrowed.
                let token = { event.data }.u64();
                if token != WAKE
                    && let Some(queue) = queues.get(&token)
                {
                    state.ready.push(queue.clone());
                }
            }
        }
        state.events = events;
        let ready = std::mem::take(&mut state.ready);
        let mut begin = if ready.is_empty() { None } else { Some(Instant::now()) };
        for queue in &ready {
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            self.serve(shared, engine, queue, state);
            let end = Instant::now();
            if let Some(begin) = begin.replace(end) {
                queue.load.add(end.saturating_duration_since(begin));
            }
        }
        state.ready = ready;
        state.ready.clear();
        self.resume(state);
        Ok(())
    }

    fn serve(&self, shared: &Shared, engine: &mut Engine, queue: &Arc<RxQueue>, state: &mut Loop) {
        let _turn = queue.begin_turn();
        let received = match &mut *queue.lock() {
            Some(Source::Queue(q)) => {
                q.recv(&mut state.packets, &mut engine.pool, BATCH).map(|_| 0)
            }
            Some(Source::Misses(source)) => {
                engine.expect_upcalls();
                source.recv(&mut state.missed, &mut engine.pool, BATCH)
            }
            None => return, // the port was removed
        };
        let count = state.packets.len() + state.missed.len();
        if !state.packets.is_empty() {
            engine.receive(shared, queue.port, &mut state.packets);
        }
        if !state.missed.is_empty() {
            state.unfinished =
                Some(Unfinished { queue: queue.clone(), taken: count_by_port(&state.missed) });
            engine.receive_misses(shared, &mut state.missed);
            state.finish_misses();
        }
        close_ports(queue, &engine.charge_upcalls(shared));
        match received {
            Ok(lost) if count > 0 || lost > 0 => {
                shared.drops.add(DropReason::Malformed, lost);
                state.empty_turns.remove(&queue.token);
            }
            Ok(_) => {
                let turns = state.empty_turns.entry(queue.token).or_insert(0);
                *turns += 1;
                if *turns >= EMPTY_TURNS {
                    state.empty_turns.remove(&queue.token);
                    let _ = queue.with_fd(|fd| epoll::delete(&self.epoll, fd));
                    state.paused.push((Instant::now() + PAUSE, queue.clone()));
                }
            }
            Err(e) => {
                self.remove(queue);
                // Link monitoring reports that a port's device is gone. No other code reports it
                // for a miss queue.
                let is_gone = e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error());
                if queue.fail() && (!is_gone || queue.is_miss_queue()) {
                    tracing::warn!(
                        target: "dpif_netdev",
                        "{}: receiving from the device failed ({e}); its packets stop until {}",
                        queue.port_name,
                        if queue.is_miss_queue() { "the switch is started again" } else { "the port is added again" },
                    );
                }
                queue.close();
            }
        }
    }

    /// Waits again for queues whose pause is over.
    fn resume(&self, state: &mut Loop) {
        let now = Instant::now();
        while let Some((until, _)) = state.paused.first() {
            if *until > now {
                return;
            }
            let (_, queue) = state.paused.remove(0);
            if lock(&self.queues).contains_key(&queue.token)
                && let Some(Err(e)) = queue.with_fd(|fd| {
                    epoll::add(&self.epoll, fd, EventData::new_u64(queue.token), EventFlags::IN)
                })
            {
                tracing::warn!(target: "dpif_netdev", "{}: cannot wait for packets: {e}", queue.port_name);
            }
        }
    }
}

/// The miss queue whose packets are being processed.
struct Unfinished {
    queue: Arc<RxQueue>,
    /// The number of packets of each port.
    taken: Vec<(PortNo, u64)>,
}

/// The state that a thread keeps from turn to turn.
#[derive(Default)]
struct Loop {
    events: Vec<Event>,
    ready: Vec<Arc<RxQueue>>,
    packets: Vec<packet::Packet>,
    missed: Vec<MissedPacket>,
    unfinished: Option<Unfinished>,
    empty_turns: HashMap<u64, u32>,
    /// Queues that are ignored, and the end of each pause, in the order of these times.
    paused: Vec<(Instant, Arc<RxQueue>)>,
}

impl Loop {
    /// Reports to the miss queue that its packets were processed.
    fn finish_misses(&mut self) {
        if let Some(Unfinished { queue, taken }) = self.unfinished.take()
            && let Some(Source::Misses(source)) = &mut *queue.lock()
        {
            source.done(&taken);
        }
    }
}

/// Asks a faster tier to drop packets of closed ports.
fn close_ports(queue: &RxQueue, closed: &[ClosedPort]) {
    if !closed.is_empty()
        && let Some(Source::Misses(source)) = &mut *queue.lock()
    {
        for ClosedPort { port, account, until } in closed {
            source.close_port(*port, *account, *until);
        }
    }
}

fn pin(core: usize) {
    let result = if core < CpuSet::MAX_CPU {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set)
    } else {
        Err(Errno::INVAL)
    };
    if let Err(e) = result {
        tracing::warn!(
            target: "dpif_netdev",
            "cannot pin a packet thread to core {core} ({e}); it runs on any core: check other_config:pmd-cpu-mask",
        );
    }
}
