// SPDX-License-Identifier: Apache-2.0
//! Senders and receivers of datagrams: numbered ones, ones of many flows, and first packets.

use super::{Endpoints, PORT};
use crate::attempt::Worker;
use crate::pin::pin;
use crate::rules::destination;
use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two bursts.
const BEAT: Duration = Duration::from_millis(1);
/// How late bursts may be before the following ones are late, too.
const LATE: Duration = Duration::from_millis(5);
/// Datagrams in a burst of numbered ones.
const NUMBERED_BURST: u32 = 10;
/// Bytes of the receiver's queue: a second of datagrams with the kernel's overhead for each.
const BUFFER: usize = 16 << 20;
/// After the last datagram, for those in flight.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a first packet may take before it counts as lost.
const LOST: Duration = Duration::from_millis(500);

/// A socket at an unspecified address.
fn any(port: u16) -> Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).context("a UDP socket")
}

/// Calls `burst` in every [`BEAT`] until `stop` is set.
fn beat(stop: &AtomicBool, mut burst: impl FnMut() -> Result<()>) -> Result<()> {
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        burst()?;
        // A sender that was late does not send all of it at once.
        next = (next + BEAT).max(Instant::now().checked_sub(LATE).unwrap_or(next));
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Counts of the outcomes of numbered datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Datagrams that did not arrive.
    pub lost: u64,
    /// The longest that a datagram was in flight.
    pub delay: Duration,
}

/// Sends 10,000 numbered datagrams a second while `meanwhile` runs.
pub fn numbered(endpoints: &Endpoints, meanwhile: impl FnOnce() -> Result<()>) -> Result<Delivery> {
    let (cpus, target) = (endpoints.cpus, (endpoints.address, PORT));
    let socket = endpoints.server.with(move || UdpSocket::bind(target)).context("receiving")?;
    // A receiver that waits for its CPU loses nothing.
    set_socket_recv_buffer_size_force(&socket, BUFFER).context("a large receive buffer")?;
    let begin = Instant::now();
    let receiver = Worker::start(Some(&endpoints.server), cpus.other, move |stop| {
        receive(&socket, begin, stop)
    });
    let sender = Worker::start(Some(&endpoints.client), cpus.traffic, move |stop| {
        let socket = any(0)?;
        socket.connect(target)?;
        let mut number = 0u64;
        beat(stop, || {
            for _ in 0..NUMBERED_BURST {
                let now = nanoseconds(begin);
                match socket.send(&[number.to_be_bytes(), now.to_be_bytes()].concat()) {
                    Ok(_) => number += 1,
                    // ENOBUFS, a device whose queue is full: not sent, so not lost either.
                    Err(e) if e.raw_os_error() == Some(105) => break,
                    Err(e) => return Err(e).context("sending"),
                }
            }
            Ok(())
        })?;
        Ok(number)
    });
    let happened = meanwhile();
    let sent = sender.stop()?;
    let (received, delay) = receiver.stop()?;
    happened?;
    Ok(Delivery { lost: sent.saturating_sub(received), delay })
}

/// Datagrams received, copies not counted, and the longest that one was in flight.
fn receive(socket: &UdpSocket, begin: Instant, stop: &AtomicBool) -> Result<(u64, Duration)> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut seen, mut delay) = (HashSet::new(), 0);
    let mut end = None;
    loop {
        let mut datagram = [0; 16];
        match socket.recv(&mut datagram) {
            Ok(16) => {
                let [number, sent] = [&datagram[..8], &datagram[8..]]
                    .map(|bytes| bytes.first_chunk().map_or(0, |b| u64::from_be_bytes(*b)));
                seen.insert(number);
                delay = delay.max(nanoseconds(begin).saturating_sub(sent));
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e).context("receiving"),
        }
        if stop.load(Ordering::Acquire)
            && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + DRAIN)
        {
            return Ok((seen.len() as u64, Duration::from_nanos(delay)));
        }
    }
}

fn nanoseconds(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends datagrams to the first `flows` destinations in turn, `burst` in a millisecond, while
/// `meanwhile` runs; what that returns.
pub fn steady<T>(
    endpoints: &Endpoints,
    flows: u32,
    burst: u32,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // Takes the datagrams until its buffer is full, so that the server answers nothing.
    let _receiver = endpoints.server.with(|| any(PORT))?;
    let sender = Worker::start(Some(&endpoints.client), endpoints.cpus.traffic, move |stop| {
        let socket = any(0)?;
        let mut addresses = (0..flows).map(destination).cycle();
        beat(stop, || {
            for address in addresses.by_ref().take(burst as usize) {
                socket.send_to(&[0; 18], (address, PORT)).context("sending")?;
            }
            Ok(())
        })
    });
    let result = meanwhile();
    sender.stop()?;
    result
}

/// Result of the start of new flows: times and losses.
#[derive(Clone, Debug, Default)]
pub struct NewFlows {
    /// All of them, without the time in which nothing arrived because a datagram was lost.
    pub time: Duration,
    /// Microseconds of each datagram that arrived, from before it was sent.
    pub delays: Vec<f64>,
    /// Datagrams that did not arrive.
    pub lost: u32,
}

/// Sends one datagram to each of the first `flows` destinations. With each that arrives another
/// flow begins, so that up to `in_flight` are on their way: the switch always has work, and never
/// more than its queues hold. One thread sends and receives, so that it waits for a datagram where
/// the kernel delivers it.
///
/// # Errors
/// Those of the sockets; also when more than one datagram in a hundred is lost, because then the
/// time has no meaning.
pub fn begin_flows(endpoints: &Endpoints, flows: u32, in_flight: u32) -> Result<NewFlows> {
    let receiver = endpoints.server.with(|| any(PORT))?;
    receiver.set_read_timeout(Some(LOST))?;
    let cpu = endpoints.cpus.traffic;
    let begun = endpoints.client.with(move || {
        pin(cpu)?;
        begin_all(&any(0)?, &receiver, flows, in_flight)
    })?;
    ensure!(begun.lost <= flows / 100, "{} of {flows} first packets were lost", begun.lost);
    Ok(begun)
}

fn begin_all(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    flows: u32,
    in_flight: u32,
) -> Result<NewFlows> {
    let mut new = NewFlows::default();
    let mut sent: Vec<Instant> = Vec::new(); // by flow
    let mut given_up = 0; // flows before this one are not waited for
    let begin = Instant::now();
    let mut waste = Duration::ZERO;
    loop {
        let began = u32::try_from(sent.len())?;
        let arrived = u32::try_from(new.delays.len())?;
        let under_way = began - arrived - new.lost;
        if began < flows && under_way < in_flight.max(1) {
            sent.push(Instant::now());
            let to = (destination(began), PORT);
            sender.send_to(&began.to_be_bytes(), to).context("sending")?;
            continue;
        }
        if under_way == 0 {
            break;
        }
        match arrival(receiver)? {
            Some(flow) if flow < given_up => {}
            Some(flow) => {
                let since = sent.get(flow as usize).context("a datagram that was never sent")?;
                new.delays.push(since.elapsed().as_secs_f64() * 1e6);
            }
            None => {
                waste += LOST;
                new.lost += under_way;
                given_up = began;
            }
        }
    }
    new.time = begin.elapsed().saturating_sub(waste);
    Ok(new)
}

/// Waits for a datagram; the number of its flow. `None` when none came within [`LOST`].
fn arrival(receiver: &UdpSocket) -> Result<Option<u32>> {
    loop {
        let mut number = [0; 4];
        match receiver.recv(&mut number) {
            Ok(4) => return Ok(Some(u32::from_be_bytes(number))),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(e) => return Err(e).context("receiving"),
        }
    }
}
