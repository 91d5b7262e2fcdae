// SPDX-License-Identifier: Apache-2.0
//! The creation of a connection, step by step.
//!
//! A creator writes a slot that it alone has, marks it tentative, enters it into the index, and
//! only then searches for other owners of its tuples. Of two creators with a common tuple at least
//! one meets the other's entry. It ends the other's connection while that is tentative, and gives
//! up when that is live. One compare-and-swap from tentative to live makes all tuples known at
//! once. No creator waits for another. A creator that is killed leaves a tentative connection,
//! which the next creator or the sweeper ends.

use crate::atomic::{Ordering, fence};
use crate::conn::{Class, Conn};
use crate::head::{Head, Phase};
use crate::index::entry;
use crate::layout::{conn, flags};
use crate::table::Table;
use crate::ticks::Ticks;
use crate::tuple::{Canonical, Ports, Tuple};
use crate::zones::Exceeded;
use std::net::IpAddr;

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// Another live connection has one of the tuples.
    Clash,
    /// A limit is reached.
    Exceeded(Exceeded),
    /// No slot is free.
    NoSlot,
    /// The buckets of a tuple are full.
    BucketFull,
    /// Other creators with one of the tuples ended this one each time.
    Overtaken,
    /// The tuples are of different families, or differ in more than NAT may change.
    BadTuple,
}

/// A connection to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewConn {
    /// The tuple of the original direction.
    pub original: Tuple,
    /// The tuple of the reply direction. Without NAT it is the reverse of the original's.
    pub reply: Tuple,
    /// Flags (`layout::flags`), without those of orientation and half-openness. With NAT exactly
    /// one of `NAT_SRC` and `NAT_DST`.
    pub flags: u16,
    /// Timeout in ticks.
    pub timeout: u32,
    /// Policy, number of the timeout, helper. The shard is set by the creation.
    pub class: Class,
    /// The mark of the connection and its packets.
    pub mark: u32,
    /// The label of the connection and its packets.
    pub label: u128,
    /// Words of the TCP state (`layout::conn::WINDOW`, twice, and `CONTROL`).
    pub tcp: [u64; 3],
    /// Number of the extension.
    pub extension: Option<u16>,
}

impl NewConn {
    /// Returns a connection without NAT.
    pub fn new(original: Tuple, timeout: u32) -> NewConn {
        NewConn {
            original,
            reply: original.reversed(),
            flags: 0,
            timeout,
            class: Class::default(),
            mark: 0,
            label: 0,
            tcp: [0; 3],
            extension: None,
        }
    }

    fn is_natted(&self) -> bool {
        self.flags & (flags::NAT_SRC | flags::NAT_DST) != 0
    }
}

/// A creation under way.
#[derive(Debug)]
pub(crate) struct Creation<'t> {
    table: &'t Table,
    conn: Conn<'t>,
    /// The state word while tentative.
    head: Head,
    original: Canonical,
    reply: Canonical,
    hashes: [u32; 2],
    zone: u16,
    shard: u8,
}

impl<'t> Creation<'t> {
    /// Takes a slot and writes it.
    pub(crate) fn begin(
        table: &'t Table,
        number: usize,
        new: &NewConn,
        now: Ticks,
    ) -> Result<Creation<'t>, CreateError> {
        let original = new.original.canonical().ok_or(CreateError::BadTuple)?;
        let reply = new.reply.canonical().ok_or(CreateError::BadTuple)?;
        if !new.is_natted() && new.reply != new.original.reversed() {
            return Err(CreateError::BadTuple);
        }
        let zone = new.original.zone;
        let shard = (number % crate::layout::config::SHARDS) as u8;
        table.counts().reserve(zone, shard).map_err(CreateError::Exceeded)?;
        let creation = Creation::write(table, number, new, now, (original, reply, shard));
        if creation.is_none() {
            table.counts().release(zone, shard);
            table.counts().release_half_open(zone, shard);
        }
        creation.ok_or(CreateError::NoSlot)
    }

    fn write(
        table: &'t Table,
        number: usize,
        new: &NewConn,
        now: Ticks,
        (original, reply, shard): (Canonical, Canonical, u8),
    ) -> Option<Creation<'t>> {
        let conn = table.slot(table.take_slot(number)?)?;
        let free = conn.head();
        if free.phase() != Phase::Free {
            return None; // damaged memory: the ring has a number twice
        }
        for (at, word) in original.words.iter().enumerate() {
            conn.set_word(conn::KEY + at, *word);
        }
        let [first, second, control] = new.tcp;
        conn.set_word(conn::WINDOW, first);
        conn.set_word(conn::WINDOW + 1, second);
        conn.set_word(conn::CONTROL, control);
        let class = Class { shard, ..new.class };
        conn.set_word(conn::MARK, u64::from(new.mark) | class.to_bits());
        conn.set_word(conn::LABEL, new.label as u64);
        conn.set_word(conn::LABEL + 1, (new.label >> 64) as u64);
        let address = if new.flags & flags::NAT_SRC != 0 { new.reply.dst } else { new.reply.src };
        let address = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        conn.set_word(conn::NAT_ADDRESS, (address >> 64) as u64);
        conn.set_word(conn::NAT_ADDRESS + 1, address as u64);
        let (src, dst) = match new.reply.ports {
            Ports::Pair { src, dst } => (src, dst),
            Ports::Icmp(icmp) => (icmp.id, icmp.code.into()),
        };
        let extension = new.extension.map_or(0, |number| u64::from(number) + 1);
        conn.set_word(conn::NAT_PORTS, u64::from(src) << 48 | u64::from(dst) << 32 | extension);
        conn.set_word(conn::MADE, now.0.into());
        let orientation = if original.high { flags::ORIGINAL_IS_HIGH } else { 0 };
        let head = Head::new(
            Phase::Tentative,
            new.flags | orientation | flags::HALF_OPEN,
            free.generation().wrapping_add(1),
            now.after(new.timeout),
        );
        conn.exchange_head(free, head).ok()?;
        let hashes = [table.hash(&original), table.hash(&reply)];
        Some(Creation {
            table,
            conn,
            head,
            original,
            reply,
            hashes,
            zone: new.original.zone,
            shard,
        })
    }

    /// Enters the connection into the index.
    pub(crate) fn place(&mut self) -> Result<(), CreateError> {
        let [index, _] = self.table.indexes();
        let index = index.ok_or(CreateError::BucketFull)?;
        let is_dead =
            |slot| self.table.slot(slot).is_some_and(|conn| conn.head().phase() == Phase::Dead);
        for hash in self.distinct_hashes() {
            if !index.insert(entry(hash, self.conn.slot()), is_dead) {
                return Err(CreateError::BucketFull);
            }
        }
        Ok(())
    }

    fn distinct_hashes(&self) -> impl Iterator<Item = u32> + use<> {
        let [original, reply] = self.hashes;
        std::iter::once(original).chain((reply != original).then_some(reply))
    }

    /// Searches for other owners of the tuples. Ends those that are not live.
    pub(crate) fn check(&self, now: Ticks) -> Result<(), CreateError> {
        // The entries are in the index before the first of the others' entries is read.
        fence(Ordering::SeqCst);
        for index in self.table.indexes().into_iter().flatten() {
            for hash in self.distinct_hashes() {
                let clash = index.find(hash, |slot| self.is_taken_by(slot, now).then_some(()));
                if clash.is_some() {
                    return Err(CreateError::Clash);
                }
            }
        }
        Ok(())
    }

    /// Returns true when the connection in `slot` is live and has one of the tuples.
    fn is_taken_by(&self, slot: u32, now: Ticks) -> bool {
        if slot == self.conn.slot() {
            return false;
        }
        let Some(other) = self.table.slot(slot) else {
            return false;
        };
        let head = other.head();
        if !matches!(head.phase(), Phase::Tentative | Phase::Live) {
            return false;
        }
        if other.direction_of(head, &self.original).is_none()
            && other.direction_of(head, &self.reply).is_none()
        {
            return false;
        }
        if head.is_live(now) {
            return true;
        }
        if head.phase() == Phase::Live {
            // Expired; when the exchange fails it was refreshed or ended.
            return !self.table.kill(other, head) && other.head().phase() == Phase::Live;
        }
        // Its maker finds it dead, and takes it off the counts.
        match other.exchange_head(head, head.with_phase(Phase::Dead)) {
            Ok(()) => false,
            Err(now) => now.phase() == Phase::Live,
        }
    }

    /// Makes the connection live.
    pub(crate) fn publish(&self) -> Result<Head, CreateError> {
        let live = self.head.with_phase(Phase::Live);
        self.conn.exchange_head(self.head, live).map_err(|_| CreateError::Overtaken)?;
        Ok(live)
    }

    /// Gives up. The sweeper frees the slot.
    pub(crate) fn abort(self) {
        let _ = self.conn.exchange_head(self.head, self.head.with_phase(Phase::Dead));
        for index in self.table.indexes().into_iter().flatten() {
            for hash in self.distinct_hashes() {
                index.remove(entry(hash, self.conn.slot()));
            }
        }
        self.table.counts().release(self.zone, self.shard);
        self.table.counts().release_half_open(self.zone, self.shard);
    }

    pub(crate) fn conn(&self) -> Conn<'t> {
        self.conn
    }
}

#[cfg(test)]
pub(crate) mod tests;
