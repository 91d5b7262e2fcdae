//! What the misses of a port may cost.
//!
//! A miss costs the switch a translation, mostly a megaflow, and all that follows from it: some
//! ten microseconds. Whoever sends packets of ever new flows could have all CPU time of the
//! machine spent on them, and ports whose packets never leave the kernel would lose it. So each
//! port has an *account* of CPU time. It fills at the rate of the *share* up to what comes in
//! [`SAVINGS`], and pays for the port's misses behind each batch, by what the clock of the thread
//! says. A port whose account is overdrawn is *closed* until it is not: its misses are dropped and
//! counted ([`datapath::DropReason::UpcallLimit`]), in the tier where they happen.
//!
//! What is saved tells a flood from a port that has tens of thousands of flows at once, after a
//! start, say: those are paid for by savings, and a flood has soon used them up.
//!
//! A port whose account is less than half full is *pressed*: its upcalls are told so, and
//! megaflows are made for what comes twice only. Pressed ports divide one share among them, so
//! that several floods cost no more than one.
//!
//! What errs on which side: a batch pays when it is over, so an account may be overdrawn by a
//! batch, or by what a faster tier had let go before it heard. The port is closed the longer, but
//! for no more than [`DEBT`].

use crate::ports::PortMap;
use clock::{Millis, Seldom};
use datapath::PortNo;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A share is CPU time in this time.
const SECOND: Nanos = 1_000_000_000;
/// A full account has what comes in this time.
const SAVINGS: Nanos = 5 * SECOND;
/// An account is overdrawn by no more than what comes in this time.
const DEBT: Nanos = SECOND;

/// Milliseconds between two lines in the log about a port.
const TELL_INTERVAL: u64 = 60_000;

/// Nanoseconds: of CPU time, or since a beginning that all threads and the kernel's programs
/// share (`CLOCK_MONOTONIC`).
pub(crate) type Nanos = u64;

fn nanos(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Now, on the clock of [`Standing`].
pub(crate) fn now() -> Nanos {
    nanos(ClockId::Monotonic)
}

/// CPU time that the calling thread has used.
fn used() -> Nanos {
    nanos(ClockId::ThreadCPUTime)
}

/// The upcalls of one batch, and the CPU time since it began, or since the first of them where
/// that was not said.
#[derive(Default)]
pub(crate) struct Bill {
    since: Option<Nanos>,
    upcalls: Vec<(PortNo, u64)>,
}

impl Bill {
    /// A batch begins that upcalls are expected of: to take its packets is part of what they cost.
    pub(crate) fn begin(&mut self) {
        self.since = Some(used());
    }

    /// An upcall for a packet of `port` begins.
    pub(crate) fn note(&mut self, port: PortNo) {
        self.since.get_or_insert_with(used);
        match self.upcalls.iter_mut().find(|(p, _)| *p == port) {
            Some((_, n)) => *n += 1,
            None => self.upcalls.push((port, 1)),
        }
    }

    /// Ends the batch: what each port owes.
    pub(crate) fn settle(&mut self) -> Vec<(PortNo, Nanos)> {
        let Some(since) = self.since.take().filter(|_| !self.upcalls.is_empty()) else {
            return Vec::new();
        };
        let spent = used().saturating_sub(since);
        let all: u64 = self.upcalls.iter().map(|(_, n)| n).sum();
        self.upcalls.drain(..).map(|(port, n)| (port, spent * n / all.max(1))).collect()
    }
}

/// A port's account.
pub(crate) struct Account {
    balance: Mutex<Option<Balance>>,
    standing: Standing,
    /// Of the log telling that the port is closed.
    told: Seldom,
}

/// CPU time that is there, less than zero when it is overdrawn, and when that was so.
struct Balance {
    time: i64,
    at: Nanos,
}

/// What follows from the balance. Both times are past when it does not.
#[derive(Default)]
struct Standing {
    closed_until: AtomicU64,
    pressed_until: AtomicU64,
}

impl Default for Account {
    fn default() -> Account {
        let (balance, standing) = (Mutex::default(), Standing::default());
        Account { balance, standing, told: Seldom::new(TELL_INTERVAL) }
    }
}

impl Account {
    /// True when misses are to be dropped.
    pub(crate) fn is_closed(&self) -> bool {
        is_ahead(&self.standing.closed_until)
    }

    /// True when half of what was saved is spent.
    pub(crate) fn is_pressed(&self) -> bool {
        is_ahead(&self.standing.pressed_until)
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        *balance = None;
        self.standing.closed_until.store(0, Ordering::Relaxed);
        self.standing.pressed_until.store(0, Ordering::Relaxed);
    }

    /// Takes `cost` off the account, which fills by `rate` nanoseconds a second and has room for
    /// what comes with `share` nanoseconds a second. Until when the port is closed, when it is.
    fn pay(&self, cost: Nanos, rate: u64, share: u64, now: Nanos) -> Option<Nanos> {
        let in_time = |time| i64::try_from(scaled(share, time, SECOND)).unwrap_or(i64::MAX);
        let (full, debt) = (in_time(SAVINGS), in_time(DEBT));
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let time = balance.as_ref().map_or(full, |old| {
            let gained = scaled(now.saturating_sub(old.at), rate, SECOND);
            old.time.saturating_add_unsigned(gained).min(full)
        });
        let time = time.saturating_sub_unsigned(cost).max(debt.saturating_neg());
        *balance = Some(Balance { time, at: now });
        let when = |wanted: i64| match wanted.saturating_sub(time) {
            missing @ 1.. => now.saturating_add(scaled(missing.unsigned_abs(), SECOND, rate)),
            _ => 0,
        };
        let closed = when(0);
        self.standing.closed_until.store(closed, Ordering::Relaxed);
        self.standing.pressed_until.store(when(full / 2), Ordering::Relaxed);
        (closed != 0).then_some(closed)
    }
}

/// The clock is asked only when there is something to compare it with.
fn is_ahead(time: &AtomicU64) -> bool {
    let time = time.load(Ordering::Relaxed);
    time != 0 && time > now()
}

/// `n * by / of`, without overflow.
fn scaled(n: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(n) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// Has ports pay what they owe; tells of those that are closed, and until when. `share` is CPU
/// time in a second; zero: nobody pays.
pub(crate) fn charge(
    ports: &PortMap,
    bill: &[(PortNo, Nanos)],
    share: Duration,
) -> Vec<(PortNo, Nanos)> {
    let share = u64::try_from(share.as_nanos()).unwrap_or(u64::MAX);
    if share == 0 || bill.is_empty() {
        return Vec::new();
    }
    let now = now();
    let pressed = ports.values().filter(|port| port.account.is_pressed()).count() as u64;
    let pay = |(port, cost): &(PortNo, Nanos)| {
        let account = &ports.get(port)?.account;
        let among = if account.is_pressed() { pressed.max(1) } else { 1 };
        let until = account.pay(*cost, (share / among).max(1), share, now)?;
        if account.told.is_time(Millis((now / 1_000_000) as i64)) {
            tracing::info!(
                target: "dpif_netdev",
                "{}: so many packets match no megaflow that more are dropped \
                 (counter datapath_drop_upcall_limit; other_config:upcall-cpu-percent)",
                ports.get(port)?.info.name,
            );
        }
        Some((*port, until))
    };
    bill.iter().filter_map(pay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn savings_are_spent_and_come_back_at_the_rate() {
        let account = Account::default();
        let (share, start) = (20 * MS, now() + 3_600_000 * MS); // far ahead: nothing expires here
        assert_eq!(account.pay(40 * MS, share, share, start), None);
        assert!(!account.is_closed() && !account.is_pressed());
        assert_eq!(account.pay(20 * MS, share, share, start), None);
        assert!(!account.is_closed() && account.is_pressed());
        // 40 of 100 are left: 50 more are 10 too many, which takes 500 ms at 20 ms a second.
        assert_eq!(account.pay(50 * MS, share, share, start), Some(start + 500 * MS));
        assert!(account.is_closed());
        let open = start + 500 * MS;
        assert_eq!(account.pay(0, share, share, open), None);
        assert!(!account.is_closed() && account.is_pressed());
        // Half as fast, as another port is pressed.
        assert_eq!(account.pay(5 * MS, share / 2, share, open), Some(open + 500 * MS));
        // No more than the savings come back.
        let later = open + 3_600_000 * MS;
        assert_eq!(account.pay(0, share, share, later), None);
        assert_eq!(account.pay(110 * MS, share, share, later), Some(later + 500 * MS));
        // However much it was, a second is the most.
        assert_eq!(account.pay(900 * MS, share, share, later), Some(later + 1000 * MS));
        account.reset();
        assert!(!account.is_closed() && !account.is_pressed());
    }

    #[test]
    fn a_batch_is_divided_by_upcalls() {
        let mut bill = Bill::default();
        assert_eq!(bill.settle(), []);
        for port in [1, 1, 2, 1] {
            bill.note(PortNo(port));
        }
        let begin = used();
        while used() < begin + 4 * MS {
            std::hint::black_box(begin);
        }
        let owed = bill.settle();
        bill.begin();
        assert_eq!(bill.settle(), [], "nothing called up");
        let [(PortNo(1), first), (PortNo(2), second)] = owed.as_slice() else { panic!("{owed:?}") };
        assert!(*second >= MS && *first >= 3 * second && *first <= 3 * second + 3, "{owed:?}");
        assert_eq!(bill.settle(), []);
    }

    #[test]
    fn numbers_of_any_size_do_no_harm() {
        let account = Account::default();
        assert_eq!(account.pay(u64::MAX, 1, u64::MAX, 5), Some(u64::MAX));
        assert_eq!(account.pay(u64::MAX, u64::MAX, 1, u64::MAX), Some(u64::MAX));
        assert_eq!(scaled(u64::MAX, u64::MAX, 0), u64::MAX);
    }
}
