// SPDX-License-Identifier: Apache-2.0
//! Packets of ever new flows, out of a host as fast as one thread can.

use crate::generator::{SIZES, frame};
use crate::object::{Hook, Load, Programs};
use crate::pin::pin;
use crate::topology::End;
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Packets of one system call.
const BURST: u32 = 64;
/// Until the first packet.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that sends until it is told to end, or dropped.
pub struct Flooder {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Flooder {
    /// Begins to send out of the host at `end`, on `cpu`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(end: &End, cpu: usize) -> Result<Flooder> {
        let (stop, sent): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (over, count, device) = (Arc::clone(&stop), Arc::clone(&sent), end.ifindex);
        let (ready, begins) = channel();
        let thread = end.host.netns.spawn(move || {
            pin(cpu)?;
            let load = Load { output: device, ..Load::at(Hook::Tc) };
            let programs = Programs::load(load)?;
            let frame = frame(SIZES[0]);
            let burst = || programs.repeat("flood", &frame, device, BURST).map(drop);
            burst()?;
            ready.send(()).ok();
            while !over.load(Ordering::Relaxed) {
                burst()?;
                count.fetch_add(u64::from(BURST), Ordering::Relaxed);
            }
            Ok(())
        });
        let flooder = Flooder { stop, sent, thread: Some(thread) };
        match begins.recv_timeout(PATIENCE) {
            Ok(()) => Ok(flooder),
            Err(_) => Err(flooder.end().err().unwrap_or_else(|| anyhow!("no packet is sent"))),
        }
    }

    /// Packets that were sent so far, but for the first few.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends.
    ///
    /// # Errors
    /// When it could not go on sending.
    pub fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it has ended")?;
        thread.join().map_err(|_| anyhow!("the thread that floods panicked"))?.context("flooding")
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && let Ok(Err(error)) = thread.join()
        {
            eprintln!("  flooding: {error:#}");
        }
    }
}
