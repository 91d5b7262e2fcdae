// SPDX-License-Identifier: Apache-2.0
//! The sweeper: ends expired connections, frees slots, and lets the table grow, in slices.
//!
//! A slot is free again after two grace periods. In the first, each creator that may still enter it
//! into the index ends. Then its entries are removed. In the second, each reader that may have its
//! number from the index ends. The sweeper waits for neither: it does other work, and returns.

use crate::atomic::Ordering;
use crate::epoch::Grace;
use crate::head::{Head, Phase};
use crate::index::{Index, entry};
use crate::layout::{
    BUCKET_PLACES, CHUNK_CONNS, CHUNK_SHIFT, CHUNKS, RINGS, ZONES, config, conn::WORDS, flags,
};
use crate::table::Table;
use crate::ticks::Ticks;
use std::collections::HashMap;
use std::sync::Arc;

/// Slots that a slice visits.
pub const SLICE: usize = 4_096;
/// Slots that are on their way to freedom at one time.
const BATCH: usize = 65_536;
/// Ticks after which the maker of a tentative connection counts as dead: 1 s.
const TENTATIVE_TICKS: i32 = 60;
/// The index grows when this share of its places is in use, in percent.
const GROW_PERCENT: usize = 55;

/// Waits until all BPF programs have ended that ran when it was called.
pub trait Barrier: Send {
    /// Blocks until then.
    fn wait(&mut self);
}

/// The barrier where no BPF program uses the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBarrier;

impl Barrier for NoBarrier {
    fn wait(&mut self) {}
}

/// The effects of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Connections that had expired.
    pub expired: usize,
    /// Slots that became free.
    pub freed: usize,
    /// True when the slice was the last of a pass over all slots.
    pub end_of_pass: bool,
    /// True when nothing is left to do but to begin the next pass: no slot is on its way to
    /// freedom.
    pub settled: bool,
    /// True while entries move to a larger index.
    pub is_growing: bool,
}

/// The way of a batch of dead slots to freedom.
enum Batch {
    Collecting(Vec<u32>),
    /// Creators may still enter the slots into the index.
    Entered(Vec<u32>, Grace),
    /// Readers may still hold the slots' numbers.
    Removed(Vec<u32>, Grace),
}

/// The steps from one index to a larger one.
enum Growth {
    None,
    /// Threads may not know the new index yet.
    Searched(Grace),
    /// Creators may still use the old index alone.
    Entered(Grace),
    /// Connections of the old index are copied, up to a cursor.
    Copying(u32),
    /// Readers may still use the old index.
    Retiring(Grace, u8),
}

/// A number of connections, and of half-open ones.
type Pair = (i64, i64);

/// A part of the table that has counts: a zone, or all of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    All,
    Zone(u16),
}

/// The sweeper of a table. One thread of one process has it.
pub struct Sweeper {
    table: Arc<Table>,
    barrier: Box<dyn Barrier>,
    cursor: u32,
    batch: Batch,
    growth: Growth,
    /// Free slots that are in no ring.
    pool: Vec<u32>,
    /// Free slots in no ring and not in the pool, if they are that after the grace period, too:
    /// a creator took each, and was killed.
    lost: Option<(Vec<u32>, Grace)>,
    /// Connections that this pass has met, by zone.
    counted: Vec<(u32, u32)>,
    /// Connections that this pass has met.
    counted_in_all: Pair,
    /// The counts that were not zero at the start of the pass.
    at_start: HashMap<Scope, Pair>,
    /// Counts that differed from the connections at the end of an earlier pass, and the
    /// differences. The grace period began then: makers that were at work have ended with it.
    drift: HashMap<Scope, (Pair, Pair)>,
    drift_grace: Option<Grace>,
    /// The grace period was over when this pass began.
    may_correct: bool,
    /// Entries that the connections of this pass have.
    entries: usize,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// Makes the sweeper of a table. It finds the free slots of memory that was in use, and fills
    /// the rings. No other sweeper of the same memory runs.
    pub fn new(table: Arc<Table>, barrier: Box<dyn Barrier>) -> Sweeper {
        let mut sweeper = Sweeper {
            table,
            barrier,
            cursor: 0,
            batch: Batch::Collecting(Vec::new()),
            growth: Growth::None,
            pool: Vec::new(),
            lost: None,
            counted: vec![(0, 0); ZONES],
            counted_in_all: (0, 0),
            at_start: HashMap::new(),
            drift: HashMap::new(),
            drift_grace: None,
            may_correct: false,
            entries: 0,
        };
        sweeper.resume_growth();
        sweeper.table.reclaim_extensions();
        sweeper.find_lost_slots();
        sweeper.begin_pass();
        sweeper.advance();
        sweeper.fill_rings();
        sweeper
    }

    /// Does a slice of work. It holds no lock and never waits for a packet thread.
    pub fn slice(&mut self, now: Ticks) -> Swept {
        let mut swept = Swept { freed: self.advance(), ..Swept::default() };
        let (slots, next) = self.table.slice(self.cursor, SLICE);
        for slot in slots {
            swept.expired += usize::from(self.visit(slot, now));
        }
        swept.end_of_pass = next.is_none();
        self.cursor = next.unwrap_or(0);
        self.begin_growth();
        if swept.end_of_pass {
            self.end_pass();
        }
        self.close_batch(swept.end_of_pass);
        self.fill_rings();
        swept.settled = swept.end_of_pass
            && matches!(&self.batch, Batch::Collecting(slots) if slots.is_empty())
            && matches!(self.growth, Growth::None)
            && self.lost.is_none();
        swept.is_growing = !matches!(self.growth, Growth::None);
        swept
    }

    /// Does slices until a whole pass has ended and all slots that were dead at its start are free.
    /// For tests, and for one thread alone: packet threads that stay pinned make it spin.
    pub fn pass(&mut self, now: Ticks) -> usize {
        self.cursor = 0;
        self.begin_pass();
        if let Batch::Collecting(slots) = &mut self.batch {
            slots.clear(); // this pass visits them again
        }
        let mut expired = 0;
        loop {
            let swept = self.slice(now);
            expired += swept.expired;
            if swept.settled {
                return expired;
            }
            std::hint::spin_loop();
        }
    }

    fn visit(&mut self, slot: u32, now: Ticks) -> bool {
        let Some(conn) = self.table.slot(slot) else {
            return false;
        };
        let mut expired = false;
        let head = conn.head();
        let dead = match head.phase() {
            Phase::Free => false,
            Phase::Live if now.reached(head.expires()) => {
                expired = self.table.kill(conn, head);
                expired
            }
            Phase::Live => {
                let natted = head.flags() & (flags::NAT_SRC | flags::NAT_DST) != 0;
                self.entries += 1 + usize::from(natted);
                let is_half_open = head.has(flags::HALF_OPEN);
                self.counted_in_all.0 += 1;
                self.counted_in_all.1 += i64::from(is_half_open);
                if let Some((conns, half)) =
                    self.counted.get_mut(usize::from(conn.key(head).zone()))
                {
                    *conns += 1;
                    *half += u32::from(is_half_open);
                }
                false
            }
            Phase::Tentative => {
                now.since(conn.made()) >= TENTATIVE_TICKS
                    && conn.exchange_head(head, head.with_phase(Phase::Dead)).is_ok()
            }
            Phase::Dead => true,
        };
        if dead
            && let Batch::Collecting(slots) = &mut self.batch
            && slots.len() < BATCH
        {
            slots.push(slot);
        }
        expired
    }

    /// Begins the first grace period of the collected slots, if it is time.
    fn close_batch(&mut self, end_of_pass: bool) {
        let rings_low = self.is_low();
        if let Batch::Collecting(slots) = &mut self.batch
            && !slots.is_empty()
            && (end_of_pass || slots.len() >= BATCH || rings_low)
        {
            let slots = std::mem::take(slots);
            let grace = self.grace();
            self.batch = Batch::Entered(slots, grace);
        }
    }

    fn grace(&mut self) -> Grace {
        let grace = self.table.epochs().begin();
        self.barrier.wait();
        grace
    }

    /// Takes the steps for which the grace period has passed. Returns the number of freed slots.
    fn advance(&mut self) -> usize {
        let mut freed = 0;
        loop {
            match std::mem::replace(&mut self.batch, Batch::Collecting(Vec::new())) {
                Batch::Entered(slots, mut grace) => {
                    if !grace.has_passed() {
                        self.batch = Batch::Entered(slots, grace);
                        break;
                    }
                    for conn in slots.iter().filter_map(|slot| self.table.slot(*slot)) {
                        self.table.remove_entries(conn, conn.head());
                    }
                    let grace = self.grace();
                    self.batch = Batch::Removed(slots, grace);
                }
                Batch::Removed(slots, mut grace) => {
                    if !grace.has_passed() {
                        self.batch = Batch::Removed(slots, grace);
                        break;
                    }
                    freed += slots.len();
                    self.free(slots);
                }
                collecting @ Batch::Collecting(_) => {
                    self.batch = collecting;
                    break;
                }
            }
        }
        if let Some((slots, mut grace)) = self.lost.take() {
            if grace.has_passed() {
                let is_free = |slot: &u32| {
                    self.table.slot(*slot).is_some_and(|conn| conn.head().phase() == Phase::Free)
                };
                self.pool.extend(slots.into_iter().filter(is_free));
            } else {
                self.lost = Some((slots, grace));
            }
        }
        self.grow();
        freed
    }

    fn free(&mut self, slots: Vec<u32>) {
        for slot in slots {
            let Some(conn) = self.table.slot(slot) else { continue };
            if conn.head().phase() != Phase::Dead {
                continue; // damaged memory
            }
            if let Some(extension) = conn.extension() {
                self.table.return_extension(extension);
                conn.change_word(crate::layout::conn::NAT_PORTS, |old| old & !0x1_ffff);
            }
            let head = conn.head();
            let free = Head::new(Phase::Free, 0, head.generation(), Ticks(0));
            if conn.exchange_head(head, free).is_ok() {
                self.pool.push(slot);
            }
        }
    }

    /// Returns the number of connections of a chunk.
    fn chunk_conns(&self) -> usize {
        let first = self.table.memory().chunk(0).map_or(CHUNK_CONNS * WORDS, <[_]>::len);
        (first / WORDS).max(1)
    }

    fn rings_len(&self) -> usize {
        (0..RINGS).filter_map(|number| self.table.ring(number)).map(|ring| ring.len()).sum()
    }

    /// Returns the number of free slots that creators should find.
    fn reserve(&self) -> usize {
        let conns = usize::try_from(self.table.counts().conns()).unwrap_or(usize::MAX);
        (conns / 4).max(self.chunk_conns() / 2)
    }

    fn is_low(&self) -> bool {
        self.pool.is_empty() && self.rings_len() < self.reserve() / 2
    }

    /// Shares the free slots among the rings, and makes chunks while free slots are few.
    fn fill_rings(&mut self) {
        while (self.rings_len() + self.pool.len() < self.reserve()
            || (self.pool.is_empty() && self.table.is_low()))
            && !self.has_enough()
        {
            if !self.add_chunk() {
                break;
            }
        }
        let share = (self.rings_len() + self.pool.len()).div_ceil(RINGS);
        for number in 0..RINGS {
            let Some(ring) = self.table.ring(number) else { continue };
            while ring.len() < share.min(ring.capacity()) {
                let Some(slot) = self.pool.pop() else { return };
                ring.put(slot);
            }
        }
    }

    /// Returns true when there are slots for all connections that may exist, and a chunk of those
    /// on their way to freedom.
    fn has_enough(&self) -> bool {
        let chunks = (0..CHUNKS).take_while(|chunk| self.table.memory().chunk(*chunk).is_some());
        let slots = chunks.count().saturating_sub(1) * self.chunk_conns();
        slots as u64 >= self.table.counts().max()
    }

    fn add_chunk(&mut self) -> bool {
        let memory = self.table.memory();
        let Some(number) = (0..CHUNKS).find(|chunk| memory.chunk(*chunk).is_none()) else {
            return false;
        };
        if memory.add_chunk(number).is_err() {
            return false;
        }
        let conns = memory.chunk(number).map_or(0, <[_]>::len) / WORDS;
        self.pool
            .extend((0..conns as u32).rev().map(|place| (number as u32) << CHUNK_SHIFT | place));
        true
    }

    /// Returns the number of free slots in the rings and in the sweeper's pool.
    pub fn free_slots(&self) -> usize {
        self.rings_len() + self.pool.len()
    }

    /// Searches for free slots that no ring has.
    pub fn find_lost_slots(&mut self) {
        let mut known: std::collections::HashSet<u32> = self.pool.iter().copied().collect();
        for number in 0..RINGS {
            if let Some(ring) = self.table.ring(number) {
                ring.each(|slot| {
                    known.insert(slot);
                });
            }
        }
        let is_lost = |slot: &u32| {
            self.table.slot(*slot).is_some_and(|conn| conn.head().phase() == Phase::Free)
                && !known.contains(slot)
        };
        let slots: Vec<_> = self.table.slots().filter(is_lost).collect();
        if !slots.is_empty() {
            let grace = self.grace();
            self.lost = Some((slots, grace));
        }
    }

    fn begin_pass(&mut self) {
        self.entries = 0;
        self.counted.fill((0, 0));
        self.counted_in_all = (0, 0);
        self.at_start = scopes()
            .map(|scope| (scope, self.count(scope)))
            .filter(|(_, count)| *count != (0, 0))
            .collect();
        self.may_correct = self.drift_grace.as_mut().is_some_and(Grace::has_passed);
    }

    fn count(&self, scope: Scope) -> Pair {
        let counts = self.table.counts();
        match scope {
            Scope::All => counts.totals(),
            Scope::Zone(zone) => counts.of_zone(zone),
        }
    }

    fn counted(&self, scope: Scope) -> Pair {
        match scope {
            Scope::All => self.counted_in_all,
            Scope::Zone(zone) => {
                let pair = self.counted.get(usize::from(zone)).copied().unwrap_or_default();
                (pair.0.into(), pair.1.into())
            }
        }
    }

    /// Takes off the counts what killed makers left: differences that two passes agree on, in
    /// scopes whose counts did not change meanwhile. A maker that lives counts its connection before
    /// it makes it live, so between the passes all makers end that were at work. A thread may be
    /// killed after it has changed the count of a zone and before it changes the totals, so each
    /// scope has a difference of its own.
    fn end_pass(&mut self) {
        let mut found = HashMap::new();
        for scope in scopes() {
            let (count, counted) = (self.count(scope), self.counted(scope));
            let off = (count.0.wrapping_sub(counted.0), count.1.wrapping_sub(counted.1));
            let at_start = self.at_start.get(&scope).copied().unwrap_or_default();
            if off != (0, 0) && at_start == count {
                found.insert(scope, (count, off));
            }
        }
        if self.drift.is_empty() {
            self.drift = found;
            self.drift_grace = (!self.drift.is_empty()).then(|| self.grace());
        } else {
            self.drift.retain(|scope, drift| found.get(scope) == Some(drift));
            if self.may_correct {
                for (scope, (_, off)) in self.drift.drain() {
                    match scope {
                        Scope::All => self.table.counts().correct_totals(off),
                        Scope::Zone(zone) => self.table.counts().correct_zone(zone, off),
                    }
                }
            }
        }
        self.begin_pass();
    }

    fn index_word(&self) -> (u8, Option<u8>) {
        let word = self.table.config(config::INDEX);
        let other = (word >> 8) as u8;
        (word as u8, (u64::from(other) != config::NO_INDEX).then_some(other))
    }

    fn set_index_word(&self, enter: u8, other: Option<u8>) {
        let value = u64::from(enter) | other.map_or(config::NO_INDEX, u64::from) << 8;
        if let Some(word) = self.table.memory().config().get(config::INDEX) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Begins to make a larger index when the present one is too full. Connections may be many more
    /// than this pass has visited.
    fn begin_growth(&mut self) {
        let [Some(index), None] = self.table.indexes() else {
            return;
        };
        let places = index.buckets() * BUCKET_PLACES;
        let conns = usize::try_from(self.table.counts().conns()).unwrap_or(usize::MAX);
        let entries = self.entries.max(conns);
        if !matches!(self.growth, Growth::None)
            || entries.saturating_mul(100) < places * GROW_PERCENT
        {
            return;
        }
        let (present, _) = self.index_word();
        let Some(next) = present.checked_add(1) else { return };
        if self.table.memory().add_index(next).is_err() {
            return;
        }
        self.set_index_word(present, Some(next));
        let grace = self.grace();
        self.growth = Growth::Searched(grace);
    }

    /// Continues the growth that an earlier sweeper began.
    fn resume_growth(&mut self) {
        if let (enter, Some(other)) = self.index_word() {
            let grace = self.grace();
            self.growth =
                if other > enter { Growth::Searched(grace) } else { Growth::Entered(grace) };
        }
    }

    fn grow(&mut self) {
        match std::mem::replace(&mut self.growth, Growth::None) {
            Growth::None => {}
            Growth::Searched(mut grace) => {
                if !grace.has_passed() {
                    self.growth = Growth::Searched(grace);
                    return;
                }
                if let (present, Some(next)) = self.index_word() {
                    self.set_index_word(next, Some(present));
                    let grace = self.grace();
                    self.growth = Growth::Entered(grace);
                }
            }
            Growth::Entered(mut grace) => {
                self.growth =
                    if grace.has_passed() { Growth::Copying(0) } else { Growth::Entered(grace) };
            }
            Growth::Copying(cursor) => self.copy_entries(cursor),
            Growth::Retiring(mut grace, old) => {
                if grace.has_passed() {
                    self.table.memory().retire_index(old);
                } else {
                    self.growth = Growth::Retiring(grace, old);
                }
            }
        }
    }

    /// Enters a slice of the live connections into the new index.
    fn copy_entries(&mut self, cursor: u32) {
        let [Some(index), _] = self.table.indexes() else {
            return;
        };
        let (slots, next) = self.table.slice(cursor, SLICE);
        for slot in slots {
            self.copy_entry(&index, slot);
        }
        self.growth = match (next, self.index_word()) {
            (Some(next), _) => Growth::Copying(next),
            (None, (enter, Some(old))) => {
                self.set_index_word(enter, None);
                Growth::Retiring(self.grace(), old)
            }
            (None, (_, None)) => Growth::None,
        };
    }

    fn copy_entry(&self, index: &Index<'_>, slot: u32) {
        let Some(conn) = self.table.slot(slot) else {
            return;
        };
        let head = conn.head();
        if head.phase() != Phase::Live {
            return;
        }
        let keys = [Some(conn.key(head)), conn.reply(head).and_then(|reply| reply.canonical())];
        for key in keys.into_iter().flatten() {
            let entry = entry(self.table.hash(&key), slot);
            let is_dead =
                |slot| self.table.slot(slot).is_some_and(|conn| conn.head().phase() == Phase::Dead);
            if !index.contains(entry) && !index.insert(entry, is_dead) {
                // No room in four times the space: the connection would be found no more.
                self.table.kill(conn, head);
            }
        }
    }
}

fn scopes() -> impl Iterator<Item = Scope> {
    std::iter::once(Scope::All).chain((0..=u16::MAX).map(Scope::Zone))
}

#[cfg(test)]
mod tests;
