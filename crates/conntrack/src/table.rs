// SPDX-License-Identifier: Apache-2.0
//! The table of connections.

use crate::atomic::Ordering;
use crate::conn::{Conn, ConnId, Direction};
use crate::creation::{CreateError, Creation, NewConn};
use crate::epoch::{Epochs, Pinned, Worker};
use crate::extensions::Extensions;
use crate::head::{Head, Phase};
use crate::index::{HashKey, Index, entry};
use crate::layout::{
    CHUNK_SHIFT, CHUNKS, EVICTION_BUCKETS, REFRESH_TICKS, RINGS, VERSION, config, config_flags,
    conn, flags,
};
use crate::memory::{Memory, PlainMemory, Sizes, WrongLayout, check};
use crate::policy::Policies;
use crate::ring::Ring;
use crate::ticks::Ticks;
use crate::tuple::{Canonical, Tuple};
use crate::zones::{Counts, Exceeded};
use std::sync::Arc;

/// Open vSwitch's largest number of connections.
pub const DEFAULT_MAX_CONNS: u32 = 3_000_000;
/// The share of half-open connections in all, in percent.
pub const DEFAULT_HALF_OPEN_PERCENT: u8 = 50;
/// Times that a creation begins again after another thread ended it.
const CREATE_TRIES: usize = 3;

/// A connection that a lookup found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'t> {
    /// The connection.
    pub conn: Conn<'t>,
    /// The state word by which it was found.
    pub head: Head,
    /// The direction of packets with the tuple.
    pub direction: Direction,
}

/// The table. All threads may use it at once, together with other processes and BPF programs that
/// share its memory. Lookups and creations take no lock.
#[derive(Debug)]
pub struct Table {
    memory: Arc<dyn Memory>,
    hash: HashKey,
    epochs: Epochs,
    pub(crate) extensions: Extensions,
}

/// Writes the configuration of a fresh table.
fn format(memory: &dyn Memory, secret: [u64; 2]) {
    let key = HashKey::new(secret);
    let factors = (config::FACTORS..).zip(key.factors.into_iter().flatten());
    for (at, value) in factors.chain([
        (config::SEED, key.seed),
        (config::MAX_CONNS, DEFAULT_MAX_CONNS.into()),
        (config::HALF_OPEN_PERCENT, DEFAULT_HALF_OPEN_PERCENT.into()),
        (config::INDEX, config::NO_INDEX << 8),
        (config::MAGIC, config::MAGIC_VALUE | VERSION),
    ]) {
        if let Some(word) = memory.config().get(at) {
            word.store(value, Ordering::SeqCst);
        }
    }
}

impl Table {
    /// Opens the table in `memory`: a fresh one gets the `secret` of its hash and the default
    /// limits; one that exists is continued.
    ///
    /// # Errors
    ///
    /// The memory has another layout, or is damaged. It is left as it is.
    pub fn open(memory: Arc<dyn Memory>, secret: [u64; 2]) -> Result<Table, WrongLayout> {
        let config = memory.config();
        let is_fresh =
            config.get(config::MAGIC).is_some_and(|word| word.load(Ordering::Acquire) == 0);
        if is_fresh && config.len() >= config::WORDS {
            format(&*memory, secret);
        }
        check(&*memory)?;
        Ok(Table::adopt(memory))
    }

    /// Makes a table in memory of this process alone.
    pub fn in_plain_memory(secret: [u64; 2]) -> Table {
        let memory = Arc::new(PlainMemory::new(Sizes::default()));
        format(&*memory, secret);
        Table::adopt(memory)
    }

    fn adopt(memory: Arc<dyn Memory>) -> Table {
        let config = memory.config();
        let load = |at: usize| config.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        let factor = |word: usize, half: usize| load(config::FACTORS + 2 * word + half);
        let factors = std::array::from_fn(|word| [factor(word, 0), factor(word, 1)]);
        let hash = HashKey { seed: load(config::SEED), factors };
        let extensions = Extensions::adopt(&*memory);
        Table { memory, hash, epochs: Epochs::default(), extensions }
    }

    /// Adds a packet thread.
    pub fn worker(&self) -> Worker {
        self.epochs.worker()
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    pub(crate) fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    pub(crate) fn shared_memory(&self) -> Arc<dyn Memory> {
        self.memory.clone()
    }

    /// Returns the counts and limits.
    pub fn counts(&self) -> Counts<'_> {
        Counts(&*self.memory)
    }

    /// Returns the timeout policies.
    pub fn policies(&self) -> Policies<'_> {
        Policies(&*self.memory)
    }

    pub(crate) fn config(&self, at: usize) -> u64 {
        self.memory.config().get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Returns true when TCP segments outside the window are invalid.
    pub fn sequence_check(&self) -> bool {
        self.config(config::FLAGS) & config_flags::NO_SEQUENCE_CHECK == 0
    }

    /// Sets whether TCP segments outside the window are invalid.
    pub fn set_sequence_check(&self, on: bool) {
        if let Some(word) = self.memory.config().get(config::FLAGS) {
            if on {
                word.fetch_and(!config_flags::NO_SEQUENCE_CHECK, Ordering::Relaxed);
            } else {
                word.fetch_or(config_flags::NO_SEQUENCE_CHECK, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn ring(&self, number: usize) -> Option<Ring<'_>> {
        Ring::new(self.memory.ring(number % RINGS))
    }

    /// Returns true when half the rings of free slots are empty. The sweeper then has to fill them,
    /// before creators find no slot.
    pub fn is_low(&self) -> bool {
        let is_empty = |number: &usize| self.ring(*number).is_none_or(|ring| ring.len() == 0);
        (0..RINGS).filter(is_empty).count() >= RINGS / 2
    }

    pub(crate) fn take_slot(&self, number: usize) -> Option<u32> {
        (0..RINGS).find_map(|other| self.ring(number + other)?.take())
    }

    /// Returns the index that takes new entries, and the other one that is searched.
    pub(crate) fn indexes(&self) -> [Option<Index<'_>>; 2] {
        let word = self.config(config::INDEX);
        let index = |generation: u8| Index::new(self.memory.index(generation)?);
        let other = (word >> 8) as u8;
        [index(word as u8), if u64::from(other) == config::NO_INDEX { None } else { index(other) }]
    }

    pub(crate) fn hash(&self, key: &Canonical) -> u32 {
        self.hash.hash(&key.words)
    }

    /// Returns the connection in a slot, in any phase.
    pub fn slot(&self, slot: u32) -> Option<Conn<'_>> {
        let chunk = self.memory.chunk((slot >> CHUNK_SHIFT) as usize)?;
        let at = (slot & ((1 << CHUNK_SHIFT) - 1)) as usize * conn::WORDS;
        Conn::new(chunk.get(at..at + conn::WORDS)?, slot)
    }

    /// Returns the slot numbers that there are.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..CHUNKS as u32).flat_map(|chunk| {
            let places = self.memory.chunk(chunk as usize).map_or(0, <[_]>::len) / conn::WORDS;
            (0..places as u32).map(move |place| chunk << CHUNK_SHIFT | place)
        })
    }

    /// Returns the slot numbers from `cursor` on, in slices: at most `max`, and the next cursor.
    pub fn slice(&self, cursor: u32, max: usize) -> (std::ops::Range<u32>, Option<u32>) {
        let chunk = cursor >> CHUNK_SHIFT;
        let places = self.memory.chunk(chunk as usize).map_or(0, <[_]>::len) / conn::WORDS;
        if places == 0 {
            return (cursor..cursor, None);
        }
        let end = (chunk << CHUNK_SHIFT) + places as u32;
        let stop = cursor.saturating_add(u32::try_from(max).unwrap_or(u32::MAX)).min(end);
        let next = if stop < end { Some(stop) } else { chunk.checked_add(1) };
        let next = if stop < end {
            next
        } else {
            next.filter(|chunk| self.memory.chunk(*chunk as usize).is_some())
                .map(|chunk| chunk << CHUNK_SHIFT)
        };
        (cursor.min(stop)..stop, next)
    }

    /// Returns the live connection with this identity.
    pub fn get(&self, id: ConnId, now: Ticks) -> Option<(Conn<'_>, Head)> {
        let conn = self.slot(id.slot)?;
        let head = conn.head();
        (head.generation() == id.generation && head.is_live(now)).then_some((conn, head))
    }

    /// Looks up the connection of packets with `key`. The thread is pinned.
    pub(crate) fn find(&self, key: &Canonical, now: Ticks) -> Option<Found<'_>> {
        let hash = self.hash(key);
        self.indexes().into_iter().flatten().find_map(|index| {
            index.find(hash, |slot| {
                let conn = self.slot(slot)?;
                let head = conn.head();
                if !head.is_live(now) {
                    return None;
                }
                let direction = conn.direction_of(head, key)?;
                Some(Found { conn, head, direction })
            })
        })
    }

    /// Looks up the connection of packets with `tuple`.
    pub fn lookup<'t>(&'t self, _: &Pinned<'_>, tuple: &Tuple, now: Ticks) -> Option<Found<'t>> {
        self.find(&tuple.canonical()?, now)
    }

    /// Makes a connection.
    ///
    /// # Errors
    ///
    /// There is a connection with one of its tuples, or no room.
    pub fn create<'t>(
        &'t self,
        pinned: &Pinned<'_>,
        new: &NewConn,
        now: Ticks,
    ) -> Result<Found<'t>, CreateError> {
        let mut result = self.try_create(pinned.number(), new, now);
        // The limit of one zone ends no connection of another.
        let zone = match result {
            Err(
                CreateError::Exceeded(Exceeded::HalfOpen | Exceeded::Total) | CreateError::NoSlot,
            ) => None,
            Err(CreateError::Exceeded(Exceeded::ZoneHalfOpen)) => Some(new.original.zone),
            _ => return result,
        };
        if self.evict(new, zone, now) {
            result = self.try_create(pinned.number(), new, now);
        }
        result
    }

    fn try_create(
        &self,
        number: usize,
        new: &NewConn,
        now: Ticks,
    ) -> Result<Found<'_>, CreateError> {
        let mut last = CreateError::Overtaken;
        for _ in 0..CREATE_TRIES {
            let mut creation = Creation::begin(self, number, new, now)?;
            let done = creation
                .place()
                .and_then(|()| creation.check(now))
                .and_then(|()| creation.publish());
            match done {
                Ok(head) => {
                    let conn = creation.conn();
                    return Ok(Found { conn, head, direction: Direction::Original });
                }
                Err(CreateError::Overtaken) => creation.abort(),
                Err(error) => {
                    creation.abort();
                    return Err(error);
                }
            }
            last = CreateError::Overtaken;
        }
        Err(last)
    }

    /// Ends a half-open connection, of `zone` or of any, for a connection that found no room: the
    /// oldest in its buckets, else the oldest that is first in one of the following buckets. A zone has
    /// few connections there, so for a zone these are not searched.
    fn evict(&self, new: &NewConn, zone: Option<u16>, now: Ticks) -> bool {
        let Some(key) = new.original.canonical() else {
            return false;
        };
        let hash = self.hash(&key);
        let mut oldest = None;
        let indexes = self.indexes();
        for index in indexes.iter().flatten() {
            index.neighbours(hash, |slot| self.consider(&mut oldest, slot, zone, now));
        }
        if let (None, None, [Some(index), _]) = (&oldest, zone, &indexes) {
            index.following(hash, EVICTION_BUCKETS, |slot| {
                self.consider(&mut oldest, slot, None, now);
            });
        }
        oldest.is_some_and(|(_, conn, head)| self.kill(conn, head))
    }

    /// Takes the connection in a slot for the oldest half-open one, of `zone` or of any, if it is that.
    fn consider<'t>(
        &'t self,
        oldest: &mut Option<(i32, Conn<'t>, Head)>,
        slot: u32,
        zone: Option<u16>,
        now: Ticks,
    ) {
        let Some(conn) = self.slot(slot) else { return };
        let head = conn.head();
        if head.phase() != Phase::Live || !head.has(flags::HALF_OPEN) {
            return;
        }
        if zone.is_some_and(|zone| conn.key(head).zone() != zone) {
            return;
        }
        let age = now.since(conn.made());
        if oldest.is_none_or(|(other, ..)| age > other) {
            *oldest = Some((age, conn, head));
        }
    }

    /// Ends a live connection that was judged by `head`. Returns false when another thread
    /// refreshed or ended it since.
    pub fn kill(&self, conn: Conn<'_>, head: Head) -> bool {
        let killed = head.phase() == Phase::Live
            && conn.exchange_head(head, head.with_phase(Phase::Dead)).is_ok();
        if killed {
            // The winner alone takes the connection off the counts.
            let zone = conn.key(head).zone();
            let shard = conn.class().shard;
            self.counts().release(zone, shard);
            if head.has(flags::HALF_OPEN) {
                self.counts().release_half_open(zone, shard);
            }
        }
        killed
    }

    /// Sets flags of a live connection, and its expiry `timeout` ticks from now. Gives up when
    /// other threads change the connection at the same time, or it has ended.
    pub fn refresh(&self, conn: Conn<'_>, generation: u16, set: u16, timeout: u32, now: Ticks) {
        for _ in 0..3 {
            let head = conn.head();
            if head.phase() != Phase::Live || head.generation() != generation {
                return;
            }
            let mut flags = head.flags() | set;
            if flags & flags::ASSURED != 0 {
                flags &= !flags::HALF_OPEN;
            }
            let mut expires = now.after(timeout);
            if expires.since(head.expires()).abs() < REFRESH_TICKS {
                expires = head.expires();
            }
            let new = head.with(flags, expires);
            if new == head {
                return;
            }
            if conn.exchange_head(head, new).is_ok() {
                if head.has(flags::HALF_OPEN) && flags & flags::HALF_OPEN == 0 {
                    let zone = conn.key(head).zone();
                    self.counts().release_half_open(zone, conn.class().shard);
                }
                return;
            }
        }
    }

    /// Takes a connection's entries out of all indexes.
    pub(crate) fn remove_entries(&self, conn: Conn<'_>, head: Head) {
        let original = conn.key(head);
        let reply = conn.reply(head).and_then(|reply| reply.canonical());
        let hashes = [Some(self.hash(&original)), reply.map(|reply| self.hash(&reply))];
        for index in self.indexes().into_iter().flatten() {
            for hash in hashes.into_iter().flatten() {
                index.remove(entry(hash, conn.slot()));
            }
        }
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
