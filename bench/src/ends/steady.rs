// SPDX-License-Identifier: Apache-2.0
//! Datagrams of many flows at a steady rate, that nobody has to answer.

use super::{Ends, PORT};
use crate::pin::pin;
use anyhow::{Context, Result, anyhow};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two bursts.
const BEAT: Duration = Duration::from_millis(1);

/// Sends datagrams to `flows` addresses from `first` in turn, `burst` in a millisecond, while
/// `meanwhile` runs; what that returns.
///
/// # Errors
/// Those of the sockets and of `meanwhile`.
pub fn steady<T>(
    ends: &Ends,
    first: Ipv4Addr,
    flows: u32,
    burst: u32,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // Takes what arrives, so that the server answers nothing, until its buffer is full.
    let sink = ends.server.with(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)));
    let _sink = sink.context("receiving")?;
    let over = Arc::new(AtomicBool::new(false));
    let (there, cpu) = (Arc::clone(&over), ends.cpus.traffic);
    let sender = ends.client.spawn(move || -> Result<()> {
        pin(cpu)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let mut addresses = (0..flows).map(|flow| first.to_bits().wrapping_add(flow)).cycle();
        let mut next = Instant::now();
        while !there.load(Ordering::Acquire) {
            for address in addresses.by_ref().take(burst as usize) {
                socket
                    .send_to(&[0; 18], (Ipv4Addr::from_bits(address), PORT))
                    .context("sending")?;
            }
            next += BEAT;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    });
    let result = meanwhile();
    over.store(true, Ordering::Release);
    sender.join().map_err(|_| anyhow!("the sender panicked"))??;
    result
}
