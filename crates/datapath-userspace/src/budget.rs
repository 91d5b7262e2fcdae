// SPDX-License-Identifier: Apache-2.0
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
//! Three things tell a flood from a port that has much to do. What is saved pays for tens of
//! thousands of flows at once, after a start, say. A megaflow that meets packets has been worth
//! what it cost, which is *given back* ([`refund`]): nothing follows most packets of a flood. And
//! CPU time that nobody wants is nobody's loss ([`crate::spare`]).
//!
//! A port whose account is less than half full is *pressed*: its upcalls are told so, and
//! megaflows are made for what comes twice only. Pressed ports divide one share among them, so
//! that several floods cost no more than one.
//!
//! What errs on which side: a batch pays when it is over, so an account may be overdrawn by a
//! batch, or by what a faster tier had let go before it heard. The port is closed the longer, but
//! for no more than [`DEBT`]. Who sends each packet of a flood twice, late enough, is no flood by
//! this measure.

use crate::ports::PortMap;
use crate::spare::Spare;
use clock::{Millis, OncePer};
use datapath::PortNo;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What misses of a port may cost on end, and what all ports that ask for more divide among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpcallShare {
    /// CPU time in a second, which ports may save up for five seconds. Zero is no limit.
    pub time: Duration,
    /// They may cost what no one else wants, too, as far as that can be known.
    pub takes_spare: bool,
}

/// A share is CPU time in this time.
const SECOND: Nanos = 1_000_000_000;
/// A full account has what comes in this time.
const SAVINGS: Nanos = 5 * SECOND;
/// An account is overdrawn by no more than what comes in this time.
const DEBT: Nanos = SECOND;

/// Interval between two lines in the log about a port.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

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
    pub(crate) fn settle(&mut self) -> Vec<Due> {
        let Some(since) = self.since.take().filter(|_| !self.upcalls.is_empty()) else {
            return Vec::new();
        };
        let spent = used().saturating_sub(since);
        let all: u64 = self.upcalls.iter().map(|(_, n)| n).sum();
        let due = |(port, upcalls)| Due { port, upcalls, cost: spent * upcalls / all.max(1) };
        self.upcalls.drain(..).map(due).collect()
    }
}

/// What a port owes for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    port: PortNo,
    upcalls: u64,
    cost: Nanos,
}

/// By which an account fills, and until when.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Nanoseconds in a second.
    rate: u64,
    /// The same, for what the account has room for.
    share: u64,
    /// What there was to spare by now, in all; see [`crate::spare::Spare`].
    spare: Nanos,
    now: Nanos,
}

/// A port's account.
pub(crate) struct Account {
    balance: Mutex<Option<Balance>>,
    standing: Standing,
    /// Of the log telling that the port is closed.
    told: OncePer,
}

/// What is there, and since when.
struct Balance {
    /// CPU time; less than zero when it is overdrawn.
    time: i64,
    at: Nanos,
    /// [`Terms::spare`] at that time.
    spare: Nanos,
    /// What a miss cost of late.
    price: Nanos,
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
        Account { balance, standing, told: OncePer::new(TELL_INTERVAL) }
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

    /// Takes what a batch of `upcalls` did cost off the account. Until when the port is closed,
    /// when it is.
    fn pay(&self, upcalls: u64, cost: Nanos, terms: Terms) -> Option<Nanos> {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = terms.balance(balance.as_ref());
        new.time = new.time.saturating_sub_unsigned(cost).max(terms.worth(DEBT).saturating_neg());
        let price = cost / upcalls.max(1);
        new.price = if new.price == 0 { price } else { new.price - new.price / 8 + price / 8 };
        self.stand(balance.insert(new), terms)
    }

    /// Gives back what `n` misses cost.
    fn refund(&self, n: u64, terms: Terms) {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(old) = balance.as_ref() else { return };
        let mut new = terms.balance(Some(old));
        let back = new.price.saturating_mul(n);
        new.time = new.time.saturating_add_unsigned(back).min(terms.worth(SAVINGS));
        self.stand(balance.insert(new), terms);
    }

    /// Says what follows from a balance.
    fn stand(&self, balance: &Balance, terms: Terms) -> Option<Nanos> {
        let when = |wanted: i64| match wanted.saturating_sub(balance.time) {
            missing @ 1.. => {
                let wait = scaled(missing.unsigned_abs(), SECOND, terms.rate);
                terms.now.saturating_add(wait)
            }
            _ => 0,
        };
        let closed = when(0);
        self.standing.closed_until.store(closed, Ordering::Relaxed);
        self.standing.pressed_until.store(when(terms.worth(SAVINGS) / 2), Ordering::Relaxed);
        (closed != 0).then_some(closed)
    }
}

impl Terms {
    /// What comes in some time.
    fn worth(self, time: Nanos) -> i64 {
        i64::try_from(scaled(self.share, time, SECOND)).unwrap_or(i64::MAX)
    }

    /// What is there by now; a full account where there was none.
    fn balance(self, old: Option<&Balance>) -> Balance {
        let Terms { rate, share, spare, now } = self;
        let full = self.worth(SAVINGS);
        let time = old.map_or(full, |old| {
            let gained = scaled(now.saturating_sub(old.at), rate, SECOND);
            // As ports divide the share, so they do with what is to spare.
            let spared = scaled(spare.saturating_sub(old.spare), rate, share);
            old.time.saturating_add_unsigned(gained.saturating_add(spared)).min(full)
        });
        Balance { time, at: now, spare, price: old.map_or(0, |old| old.price) }
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

/// What all ports go by: pressed ones divide `share` (CPU time in a second) among them.
struct Rules {
    share: u64,
    pressed: u64,
    spare: Nanos,
    now: Nanos,
}

impl Rules {
    /// `None` when nobody pays. `spare` is asked only when somebody does.
    fn new(ports: &PortMap, share: UpcallShare, spare: &Spare) -> Option<Rules> {
        let time = u64::try_from(share.time.as_nanos()).unwrap_or(u64::MAX);
        let now = now();
        (time != 0).then(|| Rules {
            share: time,
            pressed: ports.values().filter(|port| port.account.is_pressed()).count() as u64,
            spare: if share.takes_spare { spare.by(now) } else { 0 },
            now,
        })
    }

    fn of(&self, account: &Account) -> Terms {
        let among = if account.is_pressed() { self.pressed.max(1) } else { 1 };
        let rate = (self.share / among).max(1);
        Terms { rate, share: self.share, spare: self.spare, now: self.now }
    }
}

/// Has ports pay what they owe; tells of those that are closed, and until when.
pub(crate) fn charge(
    ports: &PortMap,
    bill: &[Due],
    share: UpcallShare,
    spare: &Spare,
) -> Vec<(PortNo, Nanos)> {
    if bill.is_empty() {
        return Vec::new();
    }
    let Some(rules) = Rules::new(ports, share, spare) else { return Vec::new() };
    let pay = |due: &Due| {
        let port = ports.get(&due.port)?;
        let account = &port.account;
        let until = account.pay(due.upcalls, due.cost, rules.of(account))?;
        if account.told.is_due(Millis((rules.now / 1_000_000) as i64)) {
            tracing::info!(
                target: "dpif_netdev",
                "{}: so many packets match no megaflow that more are dropped \
                 (counter datapath_drop_upcall_limit; other_config:upcall-cpu-percent)",
                port.info.name,
            );
        }
        Some((due.port, until))
    };
    bill.iter().filter_map(pay).collect()
}

/// `n` megaflows that misses of `port` led to have met packets: what these misses cost is given
/// back.
pub(crate) fn refund(ports: &PortMap, port: PortNo, n: u64, share: UpcallShare, spare: &Spare) {
    if let Some(port) = ports.get(&port)
        && let Some(rules) = Rules::new(ports, share, spare)
    {
        port.account.refund(n, rules.of(&port.account));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn terms(rate: u64, share: u64, now: Nanos) -> Terms {
        Terms { rate, share, spare: 0, now }
    }

    #[test]
    fn savings_are_spent_and_come_back_at_the_rate() {
        let account = Account::default();
        let (share, start) = (20 * MS, now() + 3_600_000 * MS); // far ahead: nothing expires here
        let pay = |cost, rate, now| account.pay(1, cost, terms(rate, share, now));
        assert_eq!(pay(40 * MS, share, start), None);
        assert!(!account.is_closed() && !account.is_pressed());
        assert_eq!(pay(20 * MS, share, start), None);
        assert!(!account.is_closed() && account.is_pressed());
        // 40 of 100 are left: 50 more are 10 too many, which takes 500 ms at 20 ms a second.
        assert_eq!(pay(50 * MS, share, start), Some(start + 500 * MS));
        assert!(account.is_closed());
        let open = start + 500 * MS;
        assert_eq!(pay(0, share, open), None);
        assert!(!account.is_closed() && account.is_pressed());
        // Half as fast, as another port is pressed.
        assert_eq!(pay(5 * MS, share / 2, open), Some(open + 500 * MS));
        // No more than the savings come back.
        let later = open + 3_600_000 * MS;
        assert_eq!(pay(0, share, later), None);
        assert_eq!(pay(110 * MS, share, later), Some(later + 500 * MS));
        // However much it was, a second is the most.
        assert_eq!(pay(900 * MS, share, later), Some(later + 1000 * MS));
        account.reset();
        assert!(!account.is_closed() && !account.is_pressed());
    }

    #[test]
    fn what_megaflows_that_are_used_did_cost_is_given_back() {
        let account = Account::default();
        let terms = terms(20 * MS, 20 * MS, now() + 3_600_000 * MS);
        account.refund(1000, terms);
        assert_eq!(account.pay(10, 120 * MS, terms), Some(terms.now + 1000 * MS));
        assert!(account.is_closed() && account.is_pressed());
        account.refund(2, terms); // 12 ms each; a second is 20
        assert!(!account.is_closed() && account.is_pressed());
        account.refund(8, terms);
        assert!(!account.is_closed() && !account.is_pressed());
        // Never more than a full account.
        account.refund(u64::MAX, terms);
        assert_eq!(account.pay(1, 101 * MS, terms), Some(terms.now + 50 * MS));
    }

    #[test]
    fn what_is_to_spare_is_divided_as_the_share_is() {
        let account = Account::default();
        let begin = terms(20 * MS, 20 * MS, now() + 3_600_000 * MS);
        account.pay(1, 120 * MS, begin);
        let spared = |spare, rate| Terms { spare, rate, ..begin };
        account.pay(1, 0, spared(10 * MS, 20 * MS));
        assert!(account.is_closed(), "10 of 20 are missing");
        account.pay(1, 0, spared(20 * MS, 10 * MS));
        assert!(account.is_closed(), "half of the other 10");
        assert_eq!(account.pay(1, 0, spared(30 * MS, 10 * MS)), None);
        // What was spared is had once.
        assert_eq!(account.pay(1, MS, spared(30 * MS, 20 * MS)), Some(begin.now + 50 * MS));
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
        let [
            Due { port: PortNo(1), upcalls: 3, cost: first },
            Due { port: PortNo(2), upcalls: 1, cost: second },
        ] = owed.as_slice()
        else {
            panic!("{owed:?}")
        };
        assert!(*second >= MS && *first >= 3 * second && *first <= 3 * second + 3, "{owed:?}");
        assert_eq!(bill.settle(), []);
    }

    #[test]
    fn numbers_of_any_size_do_no_harm() {
        let account = Account::default();
        assert_eq!(account.pay(1, u64::MAX, terms(1, u64::MAX, 5)), Some(u64::MAX));
        let last = Terms { spare: u64::MAX, ..terms(u64::MAX, 1, u64::MAX) };
        assert_eq!(account.pay(0, u64::MAX, last), Some(u64::MAX));
        account.refund(u64::MAX, last);
        assert!(!account.is_closed());
        assert_eq!(scaled(u64::MAX, u64::MAX, 0), u64::MAX);
    }
}
