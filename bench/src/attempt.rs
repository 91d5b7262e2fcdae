// SPDX-License-Identifier: Apache-2.0
//! Panics as errors, and threads that end when they are stopped.
//!
//! The test harness, which is used here too, panics where a test would fail. A benchmark reports
//! the panic as the reason that a figure is missing, and goes on.

use crate::pin::pin;
use anyhow::{Context, Result, anyhow};
use slipswitch_tests::harness::Netns;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Runs `work`; a panic becomes an error with the panic's message.
pub fn attempt<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(anyhow!(text.unwrap_or_else(|| "panicked".into())))
    })
}

/// Runs `work` on a thread of its own, so that the CPU that it pins is not pinned afterwards.
pub fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(|| attempt(work)).join())
        .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
}

/// A thread that works until it is stopped or dropped.
pub struct Worker<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Runs `work` on `cpu`, in `netns` if there is one. `work` has to return soon after the flag
    /// that it gets is set.
    pub fn start(
        netns: Option<&Netns>,
        cpu: usize,
        work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    ) -> Worker<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let run = move || attempt(|| pin(cpu).and_then(|()| work(&flag)));
        let thread = match netns {
            Some(netns) => netns.spawn(run),
            None => thread::spawn(run),
        };
        Worker { stop, thread: Some(thread) }
    }

    /// Sets the flag without waiting for the thread.
    pub fn announce(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Stops the thread; what it returned.
    pub fn stop(mut self) -> Result<T> {
        self.announce();
        let thread = self.thread.take().context("the thread was stopped before")?;
        thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("  a thread failed: {error:#}");
        }
    }
}
