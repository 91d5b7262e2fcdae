// SPDX-License-Identifier: Apache-2.0
//! A limit on the CPU time of each port's upcalls.
//!
//! An upcall costs some ten microseconds: a translation, mostly a megaflow, and all that follows
//! from it. A sender whose every packet begins a new flow could use up the CPU time of the machine,
//! at the expense of ports whose packets never leave the kernel. So each port has a *token bucket*
//! of CPU time. It fills at the rate of the [`UpcallShare`] and holds at most
//! [`BURST_NS`] of that rate. After each batch the port is charged the CPU time of its upcalls,
//! measured by the clock of the thread. A port whose bucket is below zero is *closed* until it is
//! not: its misses are dropped and counted ([`datapath::DropReason::UpcallLimit`]), in the tier
//! where they occur.
//!
//! Three rules distinguish a flood from a busy port:
//!
//! - A full bucket pays for tens of thousands of new flows at once, for example after a start.
//! - The cost of a megaflow that has met packets is given back ([`TokenBucket::refund`]): most
//!   packets of a flood have no successor. Measured for 20 s on two CPUs with
//!   `upcall-cpu-percent=3`, for a port that opens 3,000 flows a second of 4 packets each, after
//!   its bucket was empty: with refunds all 3,000 pass, without them 955 and 846 in two runs.
//! - Idle CPU time is free ([`crate::idle_cpu`]).
//!
//! A port whose bucket is less than half full is *pressed*: its upcalls carry that flag, and
//! megaflows are installed for packets that come a second time only. Pressed ports divide one share
//! among them, so several floods cost no more than one.
//!
//! Packets that have a megaflow, and go up because the daemon has to track their connection, are
//! charged to a second account of their port. They add no megaflows, and a flood of them leaves the
//! port's misses alone.
//!
//! # Which side it errs on
//!
//! A batch is charged after its end. So a port may overdraw its bucket by a batch, or by what a
//! faster tier had passed on before it received the notice. The port is then closed for longer, but
//! for at most [`DEBT_NS`]. A flood that sends each packet twice, late enough, is not recognised.

use crate::config::UpcallShare;
use crate::idle_cpu::IdleCpu;
use clock::{Millis, OncePer};
use datapath::PortNo;
use datapath::offload::UpcallAccount;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

const SECOND_NS: Nanos = 1_000_000_000;
/// A full bucket holds the tokens of this time at the rate of the share.
const BURST_NS: Nanos = 5 * SECOND_NS;
/// A bucket goes below zero by at most the tokens of this time.
const DEBT_NS: Nanos = SECOND_NS;

/// Interval between two log lines about the same port.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Nanoseconds of CPU time, or of `CLOCK_MONOTONIC`, which all threads and the kernel's programs
/// share.
pub(crate) type Nanos = u64;

fn nanos(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(SECOND_NS).wrapping_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn now() -> Nanos {
    nanos(ClockId::Monotonic)
}

/// Returns the CPU time that the calling thread has used.
fn thread_cpu_time() -> Nanos {
    nanos(ClockId::ThreadCPUTime)
}

/// Counts the upcalls of one batch and measures its CPU time.
#[derive(Default)]
pub(crate) struct UpcallMeter {
    /// CPU time of the thread at the start of the batch; without [`UpcallMeter::begin`], at the
    /// first upcall.
    since: Option<Nanos>,
    upcalls: Vec<(PortNo, UpcallAccount, u64)>,
}

impl UpcallMeter {
    /// Starts the measurement before the batch is received, for a batch that consists of misses.
    pub(crate) fn begin(&mut self) {
        self.since = Some(thread_cpu_time());
    }

    /// Counts a packet of `port` that makes an upcall, or that the daemon has to track.
    pub(crate) fn count(&mut self, port: PortNo, account: UpcallAccount) {
        self.since.get_or_insert_with(thread_cpu_time);
        match self.upcalls.iter_mut().find(|(p, a, _)| (*p, *a) == (port, account)) {
            Some((.., n)) => *n += 1,
            None => self.upcalls.push((port, account, 1)),
        }
    }

    /// Ends the batch and divides its CPU time among the accounts of ports by their packets.
    pub(crate) fn end(&mut self) -> Vec<UpcallCost> {
        let Some(since) = self.since.take().filter(|_| !self.upcalls.is_empty()) else {
            return Vec::new();
        };
        let spent = thread_cpu_time().saturating_sub(since);
        let total = self.upcalls.iter().map(|(.., n)| n).sum::<u64>().max(1);
        let cost = |(port, account, upcalls)| UpcallCost {
            port,
            account,
            upcalls,
            cost: spent * upcalls / total,
        };
        self.upcalls.drain(..).map(cost).collect()
    }
}

/// The upcalls of a port in one batch, and their CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpcallCost {
    pub(crate) port: PortNo,
    pub(crate) account: UpcallAccount,
    upcalls: u64,
    cost: Nanos,
}

/// A port whose packets are to be dropped, as far as the account pays for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedPort {
    pub(crate) port: PortNo,
    pub(crate) account: UpcallAccount,
    /// The end of that time, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) until: Nanos,
}

/// The limit of one account of a datapath: the share and the idle CPU time. The buckets belong to
/// the ports.
pub(crate) struct UpcallLimiter {
    share: RwLock<UpcallShare>,
    idle_cpu: IdleCpu,
}

impl UpcallLimiter {
    pub(crate) fn new(share: UpcallShare) -> UpcallLimiter {
        UpcallLimiter { share: RwLock::new(share), idle_cpu: IdleCpu::default() }
    }

    fn share(&self) -> UpcallShare {
        *self.share.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the share. Returns true when it changed; the caller then resets all buckets.
    pub(crate) fn set_share(&self, share: UpcallShare) -> bool {
        let mut old = self.share.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *old, share) != share
    }

    /// Measures the idle CPU time since the last call, where upcalls may use it. For the
    /// housekeeping thread.
    pub(crate) fn sample_idle_cpu(&self) {
        let share = self.share();
        if share.uses_idle_cpu && !share.time.is_zero() {
            self.idle_cpu.sample();
        }
    }

    /// Returns the rates at which `buckets`, those of all ports, fill at present. `None` without a
    /// limit.
    pub(crate) fn refill<'a>(
        &self,
        buckets: impl Iterator<Item = &'a TokenBucket>,
    ) -> Option<Refill> {
        let share = self.share();
        let per_second = u64::try_from(share.time.as_nanos()).unwrap_or(u64::MAX);
        (per_second != 0).then(|| Refill {
            share: per_second,
            pressed: buckets.filter(|bucket| bucket.is_pressed()).count() as u64,
            idle: if share.uses_idle_cpu { self.idle_cpu.total_ns() } else { 0 },
            now: now(),
        })
    }
}

/// The rates at which buckets fill. Pressed ports divide the share among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// Nanoseconds of CPU time per second.
    share: u64,
    /// Number of pressed ports.
    pressed: u64,
    /// [`IdleCpu::total_ns`] at present.
    idle: Nanos,
    now: Nanos,
}

impl Refill {
    /// Returns the time at which this was computed, for a rate limit of log lines.
    pub(crate) fn log_time(&self) -> Millis {
        Millis((self.now / 1_000_000) as i64)
    }

    fn rate(&self, bucket: &TokenBucket) -> Rate {
        let among = if bucket.is_pressed() { self.pressed.max(1) } else { 1 };
        let per_second = (self.share / among).max(1);
        Rate { per_second, share: self.share, idle: self.idle, now: self.now }
    }
}

/// The rate at which one bucket fills.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Nanoseconds of CPU time per second.
    per_second: u64,
    /// The undivided share, in the same unit; it determines the size of the bucket.
    share: u64,
    /// [`IdleCpu::total_ns`] at `now`.
    idle: Nanos,
    now: Nanos,
}

/// A port's token bucket of CPU time. Any thread may use it.
pub(crate) struct TokenBucket {
    /// `None`: full, because it was never charged.
    level: Mutex<Option<Level>>,
    /// Times at which the bucket is above zero and half full. Zero or in the past when it is.
    closed_until: AtomicU64,
    pressed_until: AtomicU64,
    /// Limits the log lines about dropped misses of the port.
    pub(crate) log: OncePer,
}

/// The tokens of a bucket at a point in time.
struct Level {
    /// Nanoseconds of CPU time; less than zero when the bucket is overdrawn.
    tokens: i64,
    at: Nanos,
    /// [`IdleCpu::total_ns`] at that time.
    idle: Nanos,
    /// Moving average of the CPU time of one upcall.
    price: Nanos,
}

impl Default for TokenBucket {
    fn default() -> TokenBucket {
        TokenBucket {
            level: Mutex::default(),
            closed_until: AtomicU64::new(0),
            pressed_until: AtomicU64::new(0),
            log: OncePer::new(LOG_INTERVAL),
        }
    }
}

impl TokenBucket {
    /// Returns true when misses of the port are to be dropped.
    pub(crate) fn is_closed(&self) -> bool {
        is_in_future(&self.closed_until)
    }

    /// Returns true when the bucket is less than half full.
    pub(crate) fn is_pressed(&self) -> bool {
        is_in_future(&self.pressed_until)
    }

    /// Fills the bucket.
    pub(crate) fn reset(&self) {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        *level = None;
        self.closed_until.store(0, Ordering::Relaxed);
        self.pressed_until.store(0, Ordering::Relaxed);
    }

    /// Takes the cost of a batch out of the bucket. Returns the time until which the port is
    /// closed, when it is.
    pub(crate) fn charge(&self, cost: UpcallCost, refill: Refill) -> Option<Nanos> {
        self.take(cost.upcalls, cost.cost, refill.rate(self))
    }

    /// Gives back the cost of `n` upcalls.
    pub(crate) fn refund(&self, n: u64, refill: Refill) {
        self.give_back(n, refill.rate(self));
    }

    fn take(&self, upcalls: u64, cost: Nanos, rate: Rate) -> Option<Nanos> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = rate.filled(level.as_ref());
        new.tokens =
            new.tokens.saturating_sub_unsigned(cost).max(rate.tokens_in(DEBT_NS).saturating_neg());
        let price = cost / upcalls.max(1);
        new.price = if new.price == 0 { price } else { new.price - new.price / 8 + price / 8 };
        self.publish(level.insert(new), rate)
    }

    fn give_back(&self, n: u64, rate: Rate) {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(old) = level.as_ref() else { return };
        let mut new = rate.filled(Some(old));
        let refund = new.price.saturating_mul(n);
        new.tokens = new.tokens.saturating_add_unsigned(refund).min(rate.tokens_in(BURST_NS));
        self.publish(level.insert(new), rate);
    }

    /// Stores the times that follow from a level. Returns the time until which the port is closed,
    /// when it is.
    fn publish(&self, level: &Level, rate: Rate) -> Option<Nanos> {
        let time_of = |wanted: i64| match wanted.saturating_sub(level.tokens) {
            missing @ 1.. => {
                let wait = scaled(missing.unsigned_abs(), SECOND_NS, rate.per_second);
                rate.now.saturating_add(wait)
            }
            _ => 0,
        };
        let closed_until = time_of(0);
        self.closed_until.store(closed_until, Ordering::Relaxed);
        self.pressed_until.store(time_of(rate.tokens_in(BURST_NS) / 2), Ordering::Relaxed);
        (closed_until != 0).then_some(closed_until)
    }
}

impl Rate {
    /// Returns the tokens that the undivided share yields in `time`.
    fn tokens_in(self, time: Nanos) -> i64 {
        i64::try_from(scaled(self.share, time, SECOND_NS)).unwrap_or(i64::MAX)
    }

    /// Returns the level at present; that of a full bucket where there was none.
    fn filled(self, old: Option<&Level>) -> Level {
        let Rate { per_second, share, idle, now } = self;
        let full = self.tokens_in(BURST_NS);
        let tokens = old.map_or(full, |old| {
            let from_share = scaled(now.saturating_sub(old.at), per_second, SECOND_NS);
            // Ports divide idle time as they divide the share.
            let from_idle = scaled(idle.saturating_sub(old.idle), per_second, share);
            old.tokens.saturating_add_unsigned(from_share.saturating_add(from_idle)).min(full)
        });
        Level { tokens, at: now, idle, price: old.map_or(0, |old| old.price) }
    }
}

/// Reads the clock only when there is a time to compare with.
fn is_in_future(time: &AtomicU64) -> bool {
    let time = time.load(Ordering::Relaxed);
    time != 0 && time > now()
}

/// Returns `n * by / of` without overflow.
fn scaled(n: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(n) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use UpcallAccount::{Connections, Misses};

    const MS: u64 = 1_000_000;

    fn rate(per_second: u64, share: u64, now: Nanos) -> Rate {
        Rate { per_second, share, idle: 0, now }
    }

    #[test]
    fn the_cost_of_a_batch_is_divided_among_the_accounts_of_ports() {
        let (first, second) = (PortNo(1), PortNo(2));
        let mut meter = UpcallMeter::default();
        let start = thread_cpu_time();
        meter.begin();
        while thread_cpu_time() < start + 2 * MS {
            std::hint::spin_loop();
        }
        [first, first, second].into_iter().for_each(|port| meter.count(port, Misses));
        (0..5).for_each(|_| meter.count(second, Connections));
        let costs = meter.end();
        let all = thread_cpu_time() - start;
        let counts: Vec<_> = costs.iter().map(|c| (c.port, c.account, c.upcalls)).collect();
        assert_eq!(counts, [(first, Misses, 2), (second, Misses, 1), (second, Connections, 5)]);
        let [a, b, c] = costs[..] else { panic!("{costs:?}") };
        assert_eq!([a.cost / 2, c.cost / 5], [b.cost; 2]);
        assert!((MS / 8..=all / 8).contains(&b.cost), "{costs:?} of {all}");
        // A batch without upcalls costs nobody.
        meter.begin();
        assert_eq!(meter.end(), []);
        meter.begin();
        meter.count(first, Misses);
        let start = thread_cpu_time();
        while thread_cpu_time() < start + MS {
            std::hint::spin_loop();
        }
        assert!(meter.end()[0].cost >= MS, "the whole batch is one upcall");
    }

    #[test]
    fn a_full_bucket_is_spent_and_fills_at_the_rate() {
        let bucket = TokenBucket::default();
        let (share, start) = (20 * MS, now() + 3_600_000 * MS); // an hour ahead: nothing expires here
        let take = |cost, per_second, now| bucket.take(1, cost, rate(per_second, share, now));
        assert_eq!(take(40 * MS, share, start), None);
        assert!(!bucket.is_closed() && !bucket.is_pressed());
        assert_eq!(take(20 * MS, share, start), None);
        assert!(!bucket.is_closed() && bucket.is_pressed());
        // 40 of 100 are left: 50 more are 10 too many, which takes 500 ms at 20 ms a second.
        assert_eq!(take(50 * MS, share, start), Some(start + 500 * MS));
        assert!(bucket.is_closed());
        let open = start + 500 * MS;
        assert_eq!(take(0, share, open), None);
        assert!(!bucket.is_closed() && bucket.is_pressed());
        // Half as fast while another port is pressed.
        assert_eq!(take(5 * MS, share / 2, open), Some(open + 500 * MS));
        // It fills up to its size.
        let later = open + 3_600_000 * MS;
        assert_eq!(take(0, share, later), None);
        assert_eq!(take(110 * MS, share, later), Some(later + 500 * MS));
        // A port is closed for a second at most.
        assert_eq!(take(900 * MS, share, later), Some(later + 1000 * MS));
        bucket.reset();
        assert!(!bucket.is_closed() && !bucket.is_pressed());
    }

    #[test]
    fn the_cost_of_megaflows_that_are_used_is_given_back() {
        let bucket = TokenBucket::default();
        let rate = rate(20 * MS, 20 * MS, now() + 3_600_000 * MS);
        bucket.give_back(1000, rate);
        assert_eq!(bucket.take(10, 120 * MS, rate), Some(rate.now + 1000 * MS));
        assert!(bucket.is_closed() && bucket.is_pressed());
        bucket.give_back(2, rate); // 12 ms each; a second is 20
        assert!(!bucket.is_closed() && bucket.is_pressed());
        bucket.give_back(8, rate);
        assert!(!bucket.is_closed() && !bucket.is_pressed());
        // It never holds more than its size.
        bucket.give_back(u64::MAX, rate);
        assert_eq!(bucket.take(1, 101 * MS, rate), Some(rate.now + 50 * MS));
    }

    #[test]
    fn idle_time_is_divided_as_the_share_is() {
        let bucket = TokenBucket::default();
        let start = rate(20 * MS, 20 * MS, now() + 3_600_000 * MS);
        bucket.take(1, 120 * MS, start);
        let with_idle = |idle, per_second| Rate { idle, per_second, ..start };
        bucket.take(1, 0, with_idle(10 * MS, 20 * MS));
        assert!(bucket.is_closed(), "10 of 20 are missing");
        bucket.take(1, 0, with_idle(20 * MS, 10 * MS));
        assert!(bucket.is_closed(), "half of the other 10");
        assert_eq!(bucket.take(1, 0, with_idle(30 * MS, 10 * MS)), None);
        // Idle time counts once.
        assert_eq!(bucket.take(1, MS, with_idle(30 * MS, 20 * MS)), Some(start.now + 50 * MS));
    }

    #[test]
    fn the_cost_of_a_batch_is_divided_by_upcalls() {
        let mut meter = UpcallMeter::default();
        assert_eq!(meter.end(), []);
        for (port, account) in [(1, Misses), (1, Misses), (2, Connections), (1, Misses)] {
            meter.count(PortNo(port), account);
        }
        let begin = thread_cpu_time();
        while thread_cpu_time() < begin + 4 * MS {
            std::hint::black_box(begin);
        }
        let costs = meter.end();
        meter.begin();
        assert_eq!(meter.end(), [], "there was no upcall");
        let [
            UpcallCost { port: PortNo(1), account: Misses, upcalls: 3, cost: first },
            UpcallCost { port: PortNo(2), account: Connections, upcalls: 1, cost: second },
        ] = costs.as_slice()
        else {
            panic!("{costs:?}")
        };
        assert!(*second >= MS && *first >= 3 * second && *first <= 3 * second + 3, "{costs:?}");
        assert_eq!(meter.end(), []);
    }

    #[test]
    fn only_the_housekeeping_thread_reads_idle_times() {
        let time = Duration::from_millis(1);
        for uses_idle_cpu in [false, true] {
            let limiter = UpcallLimiter::new(UpcallShare { time, uses_idle_cpu });
            assert!(limiter.refill(std::iter::empty()).is_some());
            assert!(!limiter.idle_cpu.has_sample());
            limiter.sample_idle_cpu();
            assert_eq!(limiter.idle_cpu.has_sample(), uses_idle_cpu);
        }
    }

    #[test]
    fn numbers_of_any_size_do_no_harm() {
        let bucket = TokenBucket::default();
        assert_eq!(bucket.take(1, u64::MAX, rate(1, u64::MAX, 5)), Some(u64::MAX));
        let last = Rate { idle: u64::MAX, ..rate(u64::MAX, 1, u64::MAX) };
        assert_eq!(bucket.take(0, u64::MAX, last), Some(u64::MAX));
        bucket.give_back(u64::MAX, last);
        assert!(!bucket.is_closed());
        assert_eq!(scaled(u64::MAX, u64::MAX, 0), u64::MAX);
    }
}
