// SPDX-License-Identifier: Apache-2.0
//! Traffic: live frames by `BPF_PROG_RUN`, and its rate at the sink.
//!
//! The kernel sleeps some 20 ms after each run. So one run has more frames than are measured, and
//! is interrupted after the measurement; a flag in a map has stopped the traffic by then.

use crate::cpu_time::CpuUsers;
use crate::histogram::Histogram;
use crate::live::Runner;
use crate::pin;
use crate::programs::{Control, Programs};
use crate::sink::{Sink, Tally};
use anyhow::{Context, Result, anyhow, bail, ensure};
use packet::build::Frame;
use packet::{Mac, TcpHeader};
use slipswitch_tests::harness::Netns;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Frames a second that no generator exceeds.
const BEYOND: f64 = 20e6;
/// Frames of one run, at most.
const FRAMES: u32 = 16_000_000;
/// From the first packet until the rate is steady.
const WARM_UP: Duration = Duration::from_millis(50);
/// How long the first packet may take.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);
/// Nanoseconds between frames for which the generator can wait.
const LONGEST_GAP: u64 = 1_000_000;

/// Bytes of the smallest and of the largest frame, with Ethernet's checksum.
pub const SIZES: [u32; 2] = [64, 1518];
/// Bytes of Ethernet's checksum, which no program gets.
pub const CHECKSUM: u32 = 4;

/// Ethernet address of the sender.
pub const SOURCE_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Ethernet address of the receiver.
pub const TARGET_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Address of the receiver.
pub const TARGET: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
/// UDP ports of sender and receiver.
pub const PORTS: (u16, u16) = (4000, 5000);

/// The source addresses of all flows.
pub const SOURCES: &str = "10.0.0.0/10";

/// Source address of a flow.
pub fn source(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | flow)
}

/// A UDP frame of `size` bytes on the wire, without the last four, the checksum; of flow 0 until a
/// program changes it. It has no UDP checksum, which would cover the address.
pub fn frame(size: u32) -> Vec<u8> {
    let (from, to) = ((SOURCE_MAC, source(0), PORTS.0), (TARGET_MAC, TARGET, PORTS.1));
    frame_between(from, to, size)
}

/// The answer to [`frame`].
fn reply(size: u32) -> Vec<u8> {
    let (from, to) = ((TARGET_MAC, TARGET, PORTS.1), (SOURCE_MAC, source(0), PORTS.0));
    frame_between(from, to, size)
}

type End = (Mac, Ipv4Addr, u16);

fn frame_between(from: End, to: End, size: u32) -> Vec<u8> {
    let payload = size.clamp(SIZES[0], SIZES[1]) - CHECKSUM - HEADERS;
    let mut frame = Frame::ethernet(to.0.0, from.0.0)
        .ipv4(from.1, to.1, 64)
        .udp(from.2, to.2)
        .payload(&vec![0; payload as usize])
        .finish();
    if let Some(checksum) = frame.get_mut(40..42) {
        checksum.fill(0);
    }
    frame
}

/// The first segment of a TCP connection, from address and port 0 until a program changes them. Both
/// checksums are right.
pub fn syn() -> Vec<u8> {
    const OFFSET_AND_SYN: u16 = 5 << 12 | 2;
    let header = TcpHeader {
        src: 0u16.into(),
        dst: PORTS.1.into(),
        seq: 1u32.into(),
        ack: 0u32.into(),
        offset_flags: OFFSET_AND_SYN.into(),
        window: u16::MAX.into(),
        checksum: 0u16.into(),
        urgent: 0u16.into(),
    };
    let frame = Frame::ethernet(TARGET_MAC.0, SOURCE_MAC.0);
    frame.ipv4(Ipv4Addr::UNSPECIFIED, TARGET, 64).tcp_header(header).finish()
}

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u32 = 42;

/// Frames that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Flows that take turns, in random order.
    pub flows: u32,
    /// Bytes of each frame, with Ethernet's checksum.
    pub size: u32,
    pub pace: Pace,
    /// Frames are the answers to those of the flows.
    pub reply: bool,
}

/// How fast frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as possible, in batches of the kernel's choice.
    Flood,
    /// This many a second, one at a time, each with the time at which it was made.
    Even(u32),
}

impl Stream {
    /// The smallest frames as fast as possible.
    pub fn flood(flows: u32) -> Stream {
        Stream { flows, size: SIZES[0], pace: Pace::Flood, reply: false }
    }

    fn control(self, stop: bool) -> Result<Control> {
        let (stamp, gap) = match self.pace {
            Pace::Flood => (false, 0),
            Pace::Even(rate) => (true, 1_000_000_000 / u64::from(rate.max(1))),
        };
        ensure!(gap <= LONGEST_GAP, "the generator sends at least 1000 frames a second");
        Ok(Control { flows: self.flows, stop, stamp, gap, reply: self.reply })
    }

    /// Frames of one run, enough for warming up and then for `span`.
    fn frames(self, span: Duration) -> u32 {
        let rate = match self.pace {
            Pace::Flood => BEYOND,
            Pace::Even(rate) => f64::from(rate) * 1.2,
        };
        let frames = rate * (2 * WARM_UP + span).as_secs_f64();
        frames.min(f64::from(FRAMES)) as u32
    }
}

/// A stream from the generator to a sink.
pub struct Traffic<'a> {
    pub programs: &'a Programs,
    /// The sender's namespace.
    pub netns: Netns,
    /// Interface of that namespace on which the frames arrive, for the kernel.
    pub ifindex: u32,
    pub stream: Stream,
    pub sink: &'a Sink,
    /// Other processes that move packets.
    pub daemons: Vec<u32>,
    /// The generator runs on the CPU for traffic; counters are read on the other.
    pub cpus: pin::Cpus,
}

/// Traffic while it flows.
pub struct Live<'a> {
    traffic: &'a Traffic<'a>,
    cpu_users: CpuUsers,
}

/// Counters at some time.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    sent: u64,
    tally: Tally,
    busy: Duration,
}

/// Traffic between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub seconds: f64,
    /// Frames that the generator made.
    pub sent: u64,
    /// Frames that reached the sink.
    pub arrived: Tally,
    /// Seconds of CPU time of everything that moves packets.
    pub busy: f64,
}

impl Live<'_> {
    /// Reads the counters.
    pub fn read(&self) -> Result<Reading> {
        let busy = self.cpu_users.time()?;
        let (sent, tally) = (self.traffic.programs.sent()?, self.traffic.sink.tally()?);
        Ok(Reading { at: Instant::now(), sent, tally, busy })
    }

    /// Traffic during `window` from now on.
    pub fn watch(&self, window: Duration) -> Result<Span> {
        let begin = self.read()?;
        thread::sleep(window);
        Ok(self.read()?.since(&begin))
    }

    fn first_packet(&self, failed: &AtomicBool) -> Result<()> {
        let (begin, before) = (Instant::now(), self.traffic.sink.tally()?);
        while self.traffic.sink.tally()? == before {
            if begin.elapsed() > FIRST_TIMEOUT || failed.load(Ordering::Acquire) {
                bail!("no packet reached the sink");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Reading {
    /// Traffic since an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Span {
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

    /// The number of busy CPUs.
    pub fn cores(&self) -> f64 {
        self.busy / self.seconds
    }

    /// Percent of the frames that do not arrive. Frames in flight at both readings cancel out.
    pub fn loss(&self) -> f64 {
        let lost = self.sent as f64 - self.arrived.packets as f64;
        (lost / self.sent as f64 * 100.0).max(0.0)
    }
}

impl Traffic<'_> {
    /// Traffic during `window`, after warming up.
    pub fn measure(&self, window: Duration) -> Result<Span> {
        self.run(window, |live| {
            thread::sleep(WARM_UP);
            let span = live.watch(window)?;
            ensure!(span.arrived.packets > 0 && span.busy > 0.0, "packets stopped arriving");
            Ok(span)
        })
    }

    /// The same, with the delays of frames, which only frames of an even pace have.
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

    /// Lets traffic flow for `least`, and then until its rate no longer rises; false when it still
    /// rises after `most`.
    pub fn run_until_steady(&self, least: Duration, most: Duration) -> Result<bool> {
        const STEP: Duration = Duration::from_millis(150);
        // Pauses between runs do no harm here, and a short run ends soon.
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

    /// Generates traffic while `observe` runs, which begins after the first packet reached the
    /// sink. There is no pause for `span` after warming up, if [`FRAMES`] last that long; later
    /// there are pauses of some 20 ms.
    pub fn run<T: Send>(
        &self,
        span: Duration,
        observe: impl FnOnce(&Live<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        self.programs.control(self.stream.control(false)?)?;
        let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (report, reports) = channel();
        thread::scope(|scope| {
            let (over, failed) = (&over, &failed);
            let watch = scope.spawn(move || {
                let first = reports.recv().context("there is no generator");
                let (runner, result) = match first {
                    Ok((runner, cpu_users)) => {
                        (Some(runner), self.watch(cpu_users, failed, observe))
                    }
                    Err(e) => (None, Err(e)),
                };
                over.store(true, Ordering::Release);
                let stopped = self.stream.control(true).and_then(|c| self.programs.control(c));
                if let Some(runner) = runner {
                    until_ended(runner, &reports);
                }
                stopped?;
                result
            });
            let sent = self.netns.with(|| self.generate(span, report, over));
            failed.store(sent.is_err(), Ordering::Release);
            let seen = watch.join().map_err(|_| anyhow!("the watching thread panicked"))?;
            sent.context("generating traffic")?;
            seen
        })
    }

    /// On the generating thread: reports itself and what moves packets, then sends until `over` is
    /// set.
    fn generate(
        &self,
        span: Duration,
        report: Sender<(Runner, CpuUsers)>,
        over: &AtomicBool,
    ) -> Result<()> {
        pin::pin(self.cpus.traffic)?;
        let cpu_users = CpuUsers::here(self.cpus.traffic).and(&self.daemons, self.cpus.other);
        report.send((Runner::here(), cpu_users)).ok();
        let batch = match self.stream.pace {
            Pace::Flood => 0,
            Pace::Even(_) => 1,
        };
        let Stream { size, reply: is_reply, .. } = self.stream;
        let frame = if is_reply { reply(size) } else { frame(size) };
        let frames = self.stream.frames(span);
        while !over.load(Ordering::Acquire) {
            self.programs.generate(&frame, self.ifindex, frames, batch)?;
        }
        Ok(())
    }

    /// On the observing thread.
    fn watch<T>(
        &self,
        cpu_users: CpuUsers,
        failed: &AtomicBool,
        observe: impl FnOnce(&Live<'_>) -> Result<T>,
    ) -> Result<T> {
        pin::pin(self.cpus.other)?;
        let live = Live { traffic: self, cpu_users };
        live.first_packet(failed)?;
        observe(&live)
    }
}

/// Interrupts the generating thread until it has dropped its end of the channel.
fn until_ended(runner: Runner, reports: &Receiver<(Runner, CpuUsers)>) {
    const AGAIN: Duration = Duration::from_millis(1);
    loop {
        runner.interrupt();
        if matches!(reports.recv_timeout(AGAIN), Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_has_the_layout_that_the_programs_expect() {
        assert_eq!(SIZES.map(|size| frame(size).len()), [60, 1514]);
        let frame = frame(64);
        assert_eq!(frame[26..30], [10, 0, 0, 0]);
        assert_eq!(source(0x10203).octets(), [10, 1, 2, 3]);
        let reply = reply(64);
        assert_eq!((&reply[..6], &reply[30..34]), (&frame[6..12], &[10, 0, 0, 0][..]));
        assert_eq!((&reply[34..36], &reply[36..38]), (&frame[36..38], &frame[34..36]));
    }

    #[test]
    fn a_run_outlasts_the_measured_span() {
        let span = Duration::from_millis(200);
        let flood = Stream::flood(1);
        assert!(f64::from(flood.frames(span)) > BEYOND * span.as_secs_f64());
        let even = Stream { pace: Pace::Even(100_000), ..flood };
        assert!((20_000..100_000).contains(&even.frames(span)));
        assert_eq!(even.control(false).unwrap().gap, 10_000);
        assert!(Stream { pace: Pace::Even(10), ..flood }.control(false).is_err());
    }

    #[test]
    fn spans_have_the_loss() {
        let arrived = Tally { packets: 900_000, bytes: 54_000_000 };
        let span = Span { seconds: 0.5, sent: 1_000_000, arrived, busy: 0.25 };
        assert_eq!((span.mpps(), span.per_core(), span.cores()), (1.8, 3.6, 0.5));
        assert!((span.loss() - 10.0).abs() < 1e-9);
        assert!((span.gbits() - 0.9216).abs() < 1e-9);
    }
}
