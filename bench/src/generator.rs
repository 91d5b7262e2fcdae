//! Traffic: live frames by `BPF_PROG_RUN`, and its rate where it ends.

use crate::args::Plan;
use crate::cpu_time::Movers;
use crate::object::{Programs, control, seen};
use crate::pin;
use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::MapHandle;
use packet::build::Frame;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Frames of one run; the kernel sleeps some 20 ms after each.
const FRAMES: u32 = 4_000_000;
/// From the first packet until traffic flows as it will.
const WARM_UP: Duration = Duration::from_millis(150);
/// How long the first packet may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ethernet address of the sender.
pub const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ethernet address of the receiver.
pub const TARGET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Address of the receiver.
pub const TARGET: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
/// UDP ports of sender and receiver.
pub const PORTS: (u16, u16) = (4000, 5000);

/// What the source addresses of all flows have in common.
pub const SOURCES: &str = "10.0.0.0/10";

/// An Ethernet address as tools take it.
pub fn mac_text(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Source address of a flow.
pub fn source(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | flow)
}

/// A UDP frame of 60 bytes, of flow 0 until a program changes it. It has no UDP checksum, which
/// would cover the address.
pub fn frame() -> Vec<u8> {
    let mut frame = Frame::ethernet(TARGET_MAC, SOURCE_MAC)
        .ipv4(source(0), TARGET, 64)
        .udp(PORTS.0, PORTS.1)
        .payload(&[0; 18])
        .finish();
    if let Some(checksum) = frame.get_mut(40..42) {
        checksum.fill(0);
    }
    frame
}

/// Where frames begin, and where they are counted.
pub struct Traffic<'a> {
    /// Has the generator.
    pub programs: &'a Programs,
    /// `generate` or `arrive`.
    pub program: &'static str,
    /// Interface that the frames say they arrive on.
    pub ifindex: u32,
    /// Flows that take turns.
    pub flows: u32,
    /// The map in which the sink counts.
    pub sink: MapHandle,
    /// Where the generator runs, and who looks at it.
    pub cpus: pin::Cpus,
}

impl Traffic<'_> {
    /// Millions of packets that reach the sink in a second of CPU time, looked at during the
    /// plan's window. Generator, switch and sink share that time; what else runs on the CPU has
    /// no part in it.
    ///
    /// # Errors
    /// When no packet arrives.
    pub fn rate(&self, plan: Plan) -> Result<f64> {
        let movers = Movers::here(self.cpus.traffic);
        self.run(|sink| {
            thread::sleep(WARM_UP);
            let (begin, before) = (movers.time()?, seen(sink)?);
            thread::sleep(plan.window());
            let (packets, time) = (seen(sink)? - before, movers.time()? - begin);
            Ok(packets as f64 / time.as_secs_f64() / 1e6)
        })
    }

    /// Generates traffic while `look` runs, which begins after the first packet reached the
    /// sink; it gets the sink's map.
    ///
    /// # Errors
    /// When no packet arrives, and those of `look`.
    pub fn run<T: Send>(&self, look: impl FnOnce(&MapHandle) -> Result<T> + Send) -> Result<T> {
        let brake = self.programs.map("control")?;
        control(&brake, self.flows, false)?;
        let looked = AtomicBool::new(false);
        let failed = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let result = pin::pin(self.cpus.other)
                    .and_then(|()| self.first_packet(&failed))
                    .and_then(|()| look(&self.sink));
                looked.store(true, Ordering::Release);
                control(&brake, self.flows, true)?;
                result
            });
            let mut sent = pin::pin(self.cpus.traffic);
            while sent.is_ok() && !looked.load(Ordering::Acquire) {
                sent = self.programs.send(self.program, &frame(), self.ifindex, FRAMES);
            }
            failed.store(sent.is_err(), Ordering::Release);
            let seen = watch.join().map_err(|_| anyhow!("the watching thread panicked"))?;
            sent.context("generating traffic")?;
            seen
        })
    }

    fn first_packet(&self, failed: &AtomicBool) -> Result<()> {
        let (begin, before) = (Instant::now(), seen(&self.sink)?);
        while seen(&self.sink)? == before {
            if begin.elapsed() > PATIENCE || failed.load(Ordering::Acquire) {
                bail!("no packet reached the sink");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_what_the_programs_expect() {
        let frame = frame();
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[26..30], [10, 0, 0, 0]);
        assert_eq!(source(0x10203).octets(), [10, 1, 2, 3]);
    }
}
