//! Datagrams of flows that the switch has not seen.
//!
//! One thread sends and receives, so that it waits for a datagram where the kernel delivers it:
//! a burst of new flows goes out, and the next when all of it has arrived. A burst of one shows
//! how long the first packet of a flow takes, larger ones how many flows a second can begin.

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
    /// Most that begin at once.
    pub burst: u32,
}

/// What the new flows took.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// All of them, without the lost bursts' time.
    pub time: Duration,
    /// Of each burst that was not lost, in microseconds.
    pub bursts: Vec<f64>,
    /// Datagrams that arrived.
    pub arrived: u32,
    /// Those that did not.
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
    let mut next = 0;
    while next < misses.flows {
        let end = misses.flows.min(next + misses.burst.max(1));
        let begin = Instant::now();
        for flow in next..end {
            let address = Ipv4Addr::from_bits(misses.first.to_bits().wrapping_add(flow));
            sender.send_to(&flow.to_be_bytes(), (address, PORT)).context("sending")?;
        }
        let arrived = arrivals(receiver, next..end)?;
        taken.arrived += arrived;
        if arrived == end - next {
            taken.time += begin.elapsed();
            taken.bursts.push(begin.elapsed().as_secs_f64() * 1e6);
        } else {
            taken.lost += end - next - arrived;
        }
        next = end;
    }
    Ok(taken)
}

/// Waits for a datagram of each of these flows; how many came.
fn arrivals(receiver: &UdpSocket, flows: std::ops::Range<u32>) -> Result<u32> {
    let wanted = flows.end - flows.start;
    let mut arrived = 0;
    while arrived < wanted {
        let mut number = [0; 4];
        match receiver.recv(&mut number) {
            // One of a burst that was given up does not count.
            Ok(4) if flows.contains(&u32::from_be_bytes(number)) => arrived += 1,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) => return Err(e).context("receiving"),
        }
    }
    Ok(arrived)
}
