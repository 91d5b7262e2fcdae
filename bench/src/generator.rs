// SPDX-License-Identifier: Apache-2.0
//! Traffic: live frames by `BPF_PROG_RUN`, and its rate where it ends.
//!
//! The kernel sleeps some 20 ms after each run, so one run has more frames than are looked at,
//! and is interrupted when they have been. A switch in a map has ended the traffic by then.

use crate::args::Plan;
use crate::cpu_time::Movers;
use crate::histogram::Histogram;
use crate::live::Runner;
use crate::object::{Control, Programs};
use crate::pin;
use crate::sink::{Sink, Tally};
use anyhow::{Context, Result, anyhow, bail, ensure};
use packet::build::Frame;
use slipswitch_tests::harness::Netns;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// More frames a second than any generator makes.
const BEYOND: f64 = 20e6;
/// Frames of one run, at most.
const FRAMES: u32 = 16_000_000;
/// From the first packet until traffic flows as it will.
const WARM_UP: Duration = Duration::from_millis(50);
/// How long the first packet may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Nanoseconds that the generator can wait for, less than it waits at most.
const LONGEST_GAP: u64 = 1_000_000;

/// Bytes of the smallest and of the largest frame, with Ethernet's checksum.
pub const SIZES: [u32; 2] = [64, 1518];
/// Bytes of Ethernet's checksum, which no program sees.
pub const CHECKSUM: u32 = 4;

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

/// A UDP frame of `size` bytes on the wire (its last four, the checksum, are not there), of flow
/// 0 until a program changes it. It has no UDP checksum, which would cover the address.
pub fn frame(size: u32) -> Vec<u8> {
    let payload = size.clamp(SIZES[0], SIZES[1]) - CHECKSUM - HEADERS;
    let mut frame = Frame::ethernet(TARGET_MAC, SOURCE_MAC)
        .ipv4(source(0), TARGET, 64)
        .udp(PORTS.0, PORTS.1)
        .payload(&vec![0; payload as usize])
        .finish();
    if let Some(checksum) = frame.get_mut(40..42) {
        checksum.fill(0);
    }
    frame
}

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u32 = 42;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Flows that take turns, in random order.
    pub flows: u32,
    /// Bytes of each frame, with Ethernet's checksum.
    pub size: u32,
    /// How fast.
    pub pace: Pace,
}

/// How fast frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as possible, in batches of the kernel's choice.
    Flood,
    /// So many a second, one at a time, each with the time at which it was made.
    Even(u32),
}

impl Stream {
    /// The smallest frames as fast as possible.
    pub fn flood(flows: u32) -> Stream {
        Stream { flows, size: SIZES[0], pace: Pace::Flood }
    }

    fn control(self, stop: bool) -> Result<Control> {
        let (stamp, gap) = match self.pace {
            Pace::Flood => (false, 0),
            Pace::Even(rate) => (true, 1_000_000_000 / u64::from(rate.max(1))),
        };
        ensure!(gap <= LONGEST_GAP, "the generator sends at least 1000 frames a second");
        Ok(Control { flows: self.flows, stop, stamp, gap })
    }

    /// Frames of one run, in which there is time for warming up and then for `span`.
    fn frames(self, span: Duration) -> u32 {
        let rate = match self.pace {
            Pace::Flood => BEYOND,
            Pace::Even(rate) => f64::from(rate) * 1.2,
        };
        let frames = rate * (2 * WARM_UP + span).as_secs_f64();
        frames.min(f64::from(FRAMES)) as u32
    }
}

/// Where frames begin, and where they are counted.
pub struct Traffic<'a> {
    /// Has the generator.
    pub programs: &'a Programs,
    /// `generate` or `arrive`.
    pub program: &'static str,
    /// Where the frames begin.
    pub netns: Netns,
    /// Interface of that namespace that the frames say they arrive on.
    pub ifindex: u32,
    /// The frames.
    pub stream: Stream,
    /// Where they end.
    pub sink: &'a Sink,
    /// Processes that move packets, too.
    pub daemons: Vec<u32>,
    /// Where the generator runs, and who looks at it.
    pub cpus: pin::Cpus,
}

/// Traffic that flows.
pub struct Live<'a> {
    traffic: &'a Traffic<'a>,
    movers: Movers,
}

/// How far traffic was at some time.
#[derive(Clone, Debug)]
pub struct Look {
    at: Instant,
    sent: u64,
    tally: Tally,
    busy: Duration,
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Seconds between them.
    pub seconds: f64,
    /// Frames that the generator made.
    pub sent: u64,
    /// What reached the sink.
    pub arrived: Tally,
    /// Seconds of CPU time of all that moves packets.
    pub busy: f64,
}

impl Live<'_> {
    /// How far it is now.
    ///
    /// # Errors
    /// When the kernel refuses, or a daemon has ended.
    pub fn look(&self) -> Result<Look> {
        let busy = self.movers.time()?;
        let (sent, tally) = (self.traffic.programs.sent()?, self.traffic.sink.tally()?);
        Ok(Look { at: Instant::now(), sent, tally, busy })
    }

    /// What happens from now on for so long.
    ///
    /// # Errors
    /// Those of [`Live::look`].
    pub fn watch(&self, window: Duration) -> Result<Span> {
        let begin = self.look()?;
        thread::sleep(window);
        Ok(self.look()?.since(&begin))
    }

    fn first_packet(&self, failed: &AtomicBool) -> Result<()> {
        let (begin, before) = (Instant::now(), self.traffic.sink.tally()?);
        while self.traffic.sink.tally()? == before {
            if begin.elapsed() > PATIENCE || failed.load(Ordering::Acquire) {
                bail!("no packet reached the sink");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Look {
    /// What happened since an earlier look.
    pub fn since(&self, earlier: &Look) -> Span {
        Span {
            seconds: (self.at - earlier.at).as_secs_f64(),
            sent: self.sent - earlier.sent,
            arrived: Tally {
                packets: self.tally.packets - earlier.tally.packets,
                bytes: self.tally.bytes - earlier.tally.bytes,
            },
            busy: self.busy.saturating_sub(earlier.busy).as_secs_f64(),
        }
    }
}

impl Span {
    /// Millions of frames a second that reach the sink.
    pub fn mpps(&self) -> f64 {
        self.arrived.packets as f64 / self.seconds / 1e6
    }

    /// Gbit/s of frames with their checksums.
    pub fn gbits(&self) -> f64 {
        let bytes = self.arrived.bytes + self.arrived.packets * u64::from(CHECKSUM);
        bytes as f64 * 8.0 / self.seconds / 1e9
    }

    /// Millions of frames in a second of CPU time.
    pub fn per_core(&self) -> f64 {
        self.arrived.packets as f64 / self.busy / 1e6
    }

    /// CPUs that are busy.
    pub fn cores(&self) -> f64 {
        self.busy / self.seconds
    }

    /// Percent of the frames that do not arrive. What is on its way at both looks evens out.
    pub fn loss(&self) -> f64 {
        let lost = self.sent as f64 - self.arrived.packets as f64;
        (lost / self.sent as f64 * 100.0).max(0.0)
    }
}

impl Traffic<'_> {
    /// Millions of packets that reach the sink in a second of CPU time, looked at during the
    /// plan's window. Generator, switch and sink share that time; what else runs on the CPU has
    /// no part in it.
    ///
    /// # Errors
    /// When no packet arrives.
    pub fn rate(&self, plan: Plan) -> Result<f64> {
        Ok(self.measure(plan.window())?.per_core())
    }

    /// What happens during `window`, when traffic flows as it will.
    ///
    /// # Errors
    /// When no packet arrives.
    pub fn measure(&self, window: Duration) -> Result<Span> {
        self.run(window, |live| {
            thread::sleep(WARM_UP);
            let span = live.watch(window)?;
            ensure!(span.arrived.packets > 0 && span.busy > 0.0, "packets stopped arriving");
            Ok(span)
        })
    }

    /// The same, and how long frames were on their way. Only frames of an even pace tell.
    ///
    /// # Errors
    /// When no packet arrives.
    pub fn delays(&self, window: Duration) -> Result<(Span, Histogram)> {
        self.run(window, |live| {
            thread::sleep(WARM_UP);
            let before = self.sink.delays()?;
            let span = live.watch(window)?;
            let delays = self.sink.delays()?.since(&before);
            ensure!(delays.count() > 0, "packets stopped arriving");
            Ok((span, delays))
        })
    }

    /// Lets traffic flow for `least`, and then until its rate rises no more; false when it still
    /// does after `most`.
    ///
    /// # Errors
    /// When no packet arrives.
    pub fn settle(&self, least: Duration, most: Duration) -> Result<bool> {
        const STEP: Duration = Duration::from_millis(150);
        // Pauses between runs do no harm here, and the rest of a short one is over soon.
        const RUN: Duration = Duration::from_millis(100);
        const STEADY: u32 = 3;
        const RISE: f64 = 1.03;
        self.run(RUN, |live| {
            let begin = Instant::now();
            let (mut best, mut steady) = (0.0, 0);
            while begin.elapsed() < most {
                let rate = live.watch(STEP)?.mpps();
                steady = if rate > best * RISE { 0 } else { steady + 1 };
                best = rate.max(best);
                if steady >= STEADY && begin.elapsed() >= least {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Generates traffic while `look` runs, which begins after the first packet reached the
    /// sink. Without a pause for `span` after warming up, if that is not too long; and then with
    /// pauses of some 20 ms.
    ///
    /// # Errors
    /// When no packet arrives, and those of `look`.
    pub fn run<T: Send>(
        &self,
        span: Duration,
        look: impl FnOnce(&Live<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        self.programs.control(self.stream.control(false)?)?;
        let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (tell, told) = channel();
        thread::scope(|scope| {
            let (over, failed) = (&over, &failed);
            let watch = scope.spawn(move || {
                let told_first = told.recv().context("there is no generator");
                let (runner, result) = match told_first {
                    Ok((runner, movers)) => (Some(runner), self.watch(movers, failed, look)),
                    Err(e) => (None, Err(e)),
                };
                over.store(true, Ordering::Release);
                let stopped = self.stream.control(true).and_then(|c| self.programs.control(c));
                if let Some(runner) = runner {
                    until_ended(runner, &told);
                }
                stopped?;
                result
            });
            let sent = self.netns.with(|| self.generate(span, tell, over));
            failed.store(sent.is_err(), Ordering::Release);
            let seen = watch.join().map_err(|_| anyhow!("the watching thread panicked"))?;
            sent.context("generating traffic")?;
            seen
        })
    }

    /// On the thread that generates: says who it is and what moves packets, then sends until it is
    /// over.
    fn generate(
        &self,
        span: Duration,
        tell: Sender<(Runner, Movers)>,
        over: &AtomicBool,
    ) -> Result<()> {
        pin::pin(self.cpus.traffic)?;
        let movers = Movers::here(self.cpus.traffic).and(&self.daemons, self.cpus.other);
        tell.send((Runner::here(), movers)).ok();
        let batch = match self.stream.pace {
            Pace::Flood => 0,
            Pace::Even(_) => 1,
        };
        let (frame, frames) = (frame(self.stream.size), self.stream.frames(span));
        while !over.load(Ordering::Acquire) {
            self.programs.send(self.program, &frame, self.ifindex, frames, batch)?;
        }
        Ok(())
    }

    /// On the thread that looks.
    fn watch<T>(
        &self,
        movers: Movers,
        failed: &AtomicBool,
        look: impl FnOnce(&Live<'_>) -> Result<T>,
    ) -> Result<T> {
        pin::pin(self.cpus.other)?;
        let live = Live { traffic: self, movers };
        live.first_packet(failed)?;
        look(&live)
    }
}

/// Interrupts the thread that generates until it holds its end of the channel no more.
fn until_ended(runner: Runner, told: &Receiver<(Runner, Movers)>) {
    const AGAIN: Duration = Duration::from_millis(1);
    loop {
        runner.interrupt();
        if matches!(told.recv_timeout(AGAIN), Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_what_the_programs_expect() {
        assert_eq!(SIZES.map(|size| frame(size).len()), [60, 1514]);
        let frame = frame(64);
        assert_eq!(frame[26..30], [10, 0, 0, 0]);
        assert_eq!(source(0x10203).octets(), [10, 1, 2, 3]);
    }
    #[test]
    fn a_run_outlasts_what_is_looked_at() {
        let span = Duration::from_millis(200);
        let flood = Stream::flood(1);
        assert!(f64::from(flood.frames(span)) > BEYOND * span.as_secs_f64());
        let even = Stream { pace: Pace::Even(100_000), ..flood };
        assert!((20_000..100_000).contains(&even.frames(span)));
        assert_eq!(even.control(false).unwrap().gap, 10_000);
        assert!(Stream { pace: Pace::Even(10), ..flood }.control(false).is_err());
    }

    #[test]
    fn spans_say_what_was_lost() {
        let arrived = Tally { packets: 900_000, bytes: 54_000_000 };
        let span = Span { seconds: 0.5, sent: 1_000_000, arrived, busy: 0.25 };
        assert_eq!((span.mpps(), span.per_core(), span.cores()), (1.8, 3.6, 0.5));
        assert!((span.loss() - 10.0).abs() < 1e-9);
        assert!((span.gbits() - 0.9216).abs() < 1e-9);
    }
}
