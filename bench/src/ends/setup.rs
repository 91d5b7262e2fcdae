// SPDX-License-Identifier: Apache-2.0
//! Datagrams of flows that the switch has not seen.
//!
//! One thread sends and receives, so that it waits for a datagram where the kernel delivers it.
//! One datagram at a time shows how long the first packet of a flow takes. How many flows a second
//! can begin shows a window: so many datagrams are on their way, and with each that arrives
//! another flow begins, so that the switch always has work, and never more than its queues hold.

use super::{Ends, PORT};
use crate::pin::pin;
use anyhow::{Context, Result, ensure};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// How long a datagram may take before it counts as lost.
const LOST: Duration = Duration::from_millis(500);

/// Which flows begin, and how many at once.
#[derive(Clone, Copy, Debug)]
pub struct Misses {
    /// Address of the first flow; the server is reached by all of them.
    pub first: Ipv4Addr,
    /// How many flows.
    pub flows: u32,
    /// Most datagrams that are on their way.
    pub window: u32,
}

/// What the new flows took.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// All of them, without the time in which nothing came because a datagram was lost.
    pub time: Duration,
    /// Each of those that arrived, from before it was sent, in microseconds.
    pub delays: Vec<f64>,
    /// Datagrams that did not arrive.
    pub lost: u32,
}

/// Begins the flows.
///
/// # Errors
/// Those of the sockets; when more than one in a hundred is lost, because then the time says
/// nothing.
pub fn misses(ends: &Ends, misses: Misses) -> Result<Taken> {
    let receiver = ends.server.with(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)));
    let receiver = receiver.context("receiving")?;
    receiver.set_read_timeout(Some(LOST))?;
    let cpu = ends.cpus.traffic;
    let taken = ends.client.with(move || {
        pin(cpu)?;
        let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        begin_all(&sender, &receiver, misses)
    })?;
    ensure!(
        taken.lost <= misses.flows / 100,
        "{} of {} first packets were lost",
        taken.lost,
        misses.flows
    );
    Ok(taken)
}

fn begin_all(sender: &UdpSocket, receiver: &UdpSocket, misses: Misses) -> Result<Taken> {
    let mut taken = Taken::default();
    let mut sent: Vec<Instant> = Vec::new(); // by flow
    let mut given_up = 0; // flows before this one are not waited for
    let begin = Instant::now();
    let mut waste = Duration::ZERO;
    loop {
        let began = u32::try_from(sent.len())?;
        let arrived = u32::try_from(taken.delays.len())?;
        let on_their_way = began - arrived - taken.lost;
        if began < misses.flows && on_their_way < misses.window.max(1) {
            let address = Ipv4Addr::from_bits(misses.first.to_bits().wrapping_add(began));
            sent.push(Instant::now());
            sender.send_to(&began.to_be_bytes(), (address, PORT)).context("sending")?;
            continue;
        }
        if on_their_way == 0 {
            break;
        }
        match arrival(receiver)? {
            // One that was given up does not count.
            Some(flow) if flow < given_up => {}
            Some(flow) => {
                let since = sent.get(flow as usize).context("a datagram that was never sent")?;
                taken.delays.push(since.elapsed().as_secs_f64() * 1e6);
            }
            None => {
                waste += LOST;
                taken.lost += on_their_way;
                given_up = began;
            }
        }
    }
    taken.time = begin.elapsed().saturating_sub(waste);
    Ok(taken)
}

/// Waits for a datagram; the number of its flow. `None`: none came for long.
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
