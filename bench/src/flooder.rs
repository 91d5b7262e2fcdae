// SPDX-License-Identifier: Apache-2.0
//! Packets of always new flows or connections, out of a host as fast as one thread can send.

use crate::attempt::Worker;
use crate::generator::{SIZES, frame, syn};
use crate::programs::{Hook, Programs};
use crate::topology::Wire;
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Packets of one system call.
const BURST: u32 = 64;
/// Until the first packet.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The packets of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The smallest UDP packets, between random addresses and ports.
    Udp,
    /// First segments of TCP connections to one port, from random addresses and ports.
    Syns,
}

/// A thread that sends until it is stopped or dropped.
pub struct Flooder {
    sent: Arc<AtomicU64>,
    worker: Worker<()>,
}

impl Flooder {
    /// Begins to send out of the host at `wire`, on `cpu`.
    pub fn start(wire: &Wire, cpu: usize, kind: Kind) -> Result<Flooder> {
        let sent = Arc::new(AtomicU64::new(0));
        let (count, device) = (Arc::clone(&sent), wire.ifindex);
        let (ready, begins) = channel();
        let worker = Worker::start(Some(&wire.host.netns), cpu, move |stop| {
            let programs = Programs::load(Hook::Tc, device)?;
            let (program, frame) = match kind {
                Kind::Udp => ("flood", frame(SIZES[0])),
                Kind::Syns => ("flood_tcp", syn()),
            };
            let burst = || programs.repeat(program, &frame, device, BURST).context("flooding");
            burst()?;
            ready.send(()).ok();
            while !stop.load(Ordering::Relaxed) {
                burst()?;
                count.fetch_add(u64::from(BURST), Ordering::Relaxed);
            }
            Ok(())
        });
        let flooder = Flooder { sent, worker };
        match begins.recv_timeout(START_TIMEOUT) {
            Ok(()) => Ok(flooder),
            Err(_) => Err(flooder.stop().err().unwrap_or_else(|| anyhow!("no packet is sent"))),
        }
    }

    /// Packets that were sent so far, except the first burst.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn stop(self) -> Result<()> {
        self.worker.stop()
    }
}
