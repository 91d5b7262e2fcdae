// SPDX-License-Identifier: Apache-2.0
//! The times at which a pass must look at megaflows, also at those that do not move.
//!
//! A schedule is a timing wheel without an end: megaflows by the *tick* in which a visit is due. A
//! megaflow is in it once. When packets use the megaflow its place stays, so that counting costs
//! nothing here; the visit then finds that the megaflow is not idle long enough, and puts it into a
//! later tick. So a megaflow is looked at about once in its idle time.

use clock::Millis;
use datapath::Ufid;
use std::collections::BTreeMap;

/// Length of a tick in milliseconds.
const TICK_MS: i64 = 256;

/// A part of time, [`TICK_MS`] long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(i64);

impl Tick {
    /// No time at all.
    pub(crate) const NEVER: Tick = Tick(i64::MAX);

    /// Returns the tick in which `time` is.
    pub(crate) fn of(time: Millis) -> Tick {
        Tick(time.0.div_euclid(TICK_MS))
    }

    /// Returns the first moment after the tick.
    pub(crate) fn end(self) -> Millis {
        Millis(self.0.saturating_add(1).saturating_mul(TICK_MS))
    }
}

/// The looks that are due at some time.
#[derive(Debug, Default)]
pub(crate) struct Schedule(BTreeMap<Tick, Vec<Ufid>>);

impl Schedule {
    /// Adds a visit to a megaflow.
    pub(crate) fn add(&mut self, tick: Tick, ufid: Ufid) {
        self.0.entry(tick).or_default().push(ufid);
    }

    /// Takes the visits of the tick of `now` and of earlier ones.
    pub(crate) fn take(&mut self, now: Millis) -> BTreeMap<Tick, Vec<Ufid>> {
        let later = self.0.split_off(&Tick(Tick::of(now).0.saturating_add(1)));
        std::mem::replace(&mut self.0, later)
    }

    /// Returns the first tick in which a visit may be due.
    pub(crate) fn first(&self) -> Option<Tick> {
        self.0.first_key_value().map(|(tick, _)| *tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_taken_when_their_tick_begins() {
        let mut schedule = Schedule::default();
        for (ms, n) in [(0, 1), (255, 2), (256, 3), (-1, 4), (100_000, 5)] {
            schedule.add(Tick::of(Millis(ms)), Ufid(n));
        }
        let mut take = |ms| -> Vec<u128> {
            schedule.take(Millis(ms)).into_values().flatten().map(|ufid| ufid.0).collect()
        };
        assert_eq!(take(-1), [4]);
        assert_eq!(take(0), [1, 2]);
        assert_eq!(take(255), []);
        assert_eq!(take(99_999), [3, 5], "the same tick");
        assert_eq!(schedule.first(), None);
        assert_eq!(Tick::of(Millis(511)).end(), Millis(512));
    }
}
