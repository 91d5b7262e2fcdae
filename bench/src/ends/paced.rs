// SPDX-License-Identifier: Apache-2.0
//! Numbered datagrams at a steady rate, to see which are lost while something happens.

use super::{Ends, PORT};
use crate::pin::pin;
use anyhow::{Context, Result, anyhow};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two bursts.
const BEAT: Duration = Duration::from_millis(1);
/// How late bursts may be before those behind them are, too.
const LATE: Duration = Duration::from_millis(5);
/// Bytes of the receiver's queue: a second of datagrams with what the kernel keeps for each.
const BUFFER: usize = 16 << 20;
/// After the last datagram, for those under way.
const DRAIN: Duration = Duration::from_millis(500);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Datagrams in a burst, of which there are a thousand a second.
    pub burst: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Those that did not arrive.
    pub lost: u64,
    /// The longest that one was on its way.
    pub delay: Duration,
}

/// Sends while `happening` runs; what became of the datagrams, and what it returned.
///
/// # Errors
/// Those of the sockets and of `happening`.
pub fn paced<T>(
    ends: &Ends,
    flood: Flood,
    happening: impl FnOnce() -> Result<T>,
) -> Result<(Outcome, T)> {
    let over = Arc::new(AtomicBool::new(false));
    let (cpus, target) = (ends.cpus, (ends.address, PORT));
    let socket = ends.server.with(move || UdpSocket::bind(target)).context("receiving")?;
    // A receiver that waits for its CPU loses nothing.
    set_socket_recv_buffer_size_force(&socket, BUFFER).context("a large receive buffer")?;
    let there = Arc::clone(&over);
    let begin = Instant::now();
    let receiver = ends.server.spawn(move || {
        pin(cpus.other)?;
        receive(&socket, begin, &there)
    });
    let there = Arc::clone(&over);
    let sender = ends.client.spawn(move || -> Result<u64> {
        pin(cpus.traffic)?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(target)?;
        send(&socket, flood, begin, &there)
    });
    let happened = happening();
    over.store(true, Ordering::Release);
    let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))??;
    let (received, delay) = receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
    Ok((Outcome { sent, lost: sent.saturating_sub(received), delay }, happened?))
}

fn send(socket: &UdpSocket, flood: Flood, begin: Instant, over: &AtomicBool) -> Result<u64> {
    let mut number = 0u64;
    let mut next = Instant::now();
    while !over.load(Ordering::Acquire) {
        for _ in 0..flood.burst {
            let now = nanoseconds(begin);
            match socket.send(&[number.to_be_bytes(), now.to_be_bytes()].concat()) {
                Ok(_) => number += 1,
                // A device whose queue is full: not sent, so not lost either.
                Err(e) if e.raw_os_error() == Some(105) => break,
                Err(e) => return Err(e).context("sending"),
            }
        }
        // A sender that was late does not send it all at once.
        next = (next + BEAT).max(Instant::now().checked_sub(LATE).unwrap_or(next));
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(number)
}

/// Datagrams received, copies not counted, and the longest that one was on its way.
fn receive(socket: &UdpSocket, begin: Instant, over: &AtomicBool) -> Result<(u64, Duration)> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut seen, mut delay) = (Numbers::default(), 0);
    let mut end = None;
    loop {
        let mut datagram = [0; 16];
        match socket.recv(&mut datagram) {
            Ok(16) => {
                let [number, sent] = [&datagram[..8], &datagram[8..]]
                    .map(|bytes| bytes.first_chunk().map_or(0, |b| u64::from_be_bytes(*b)));
                seen.add(number);
                delay = delay.max(nanoseconds(begin).saturating_sub(sent));
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e).context("receiving"),
        }
        if over.load(Ordering::Acquire)
            && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + DRAIN)
        {
            return Ok((seen.count, Duration::from_nanos(delay)));
        }
    }
}

fn nanoseconds(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A set of numbers.
#[derive(Default)]
struct Numbers {
    words: Vec<u64>,
    count: u64,
}

impl Numbers {
    /// Numbers beyond this are not from a sender of ours.
    const MOST: u64 = 1 << 32;

    fn add(&mut self, number: u64) {
        if number >= Numbers::MOST {
            return;
        }
        let (word, bit) = ((number / 64) as usize, number % 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word)
            && *word >> bit & 1 == 0
        {
            *word |= 1 << bit;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_count_once() {
        let mut numbers = Numbers::default();
        for number in [0, 63, 64, 63, 1000, u64::MAX, 0] {
            numbers.add(number);
        }
        assert_eq!(numbers.count, 4);
    }
}
