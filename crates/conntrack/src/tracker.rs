// SPDX-License-Identifier: Apache-2.0
//! The `ct` action: from a packet and its metadata to its state, with all effects on the table.

use crate::conn::{Class, ConnId, Direction, Helper};
use crate::counters::{Counter, Counters};
use crate::creation::{CreateError, NewConn};
use crate::epoch::Pinned;
use crate::expectations::{Expectation, Expectations};
use crate::extract::{Checksums, Extracted, Family, Untrackable, extract};
use crate::helper::Edit;
use crate::layout::flags;
use crate::machine;
use crate::nat::{Manip, Nat, NatError};
use crate::rewrite::{ChecksumState, rewrite};
use crate::table::{Found, Table};
use crate::tcp::{Update, has_invalid_flags};
use crate::ticks::Ticks;
use crate::tuple::{Ports, Tuple};
use crate::zones::Exceeded;
use std::sync::Arc;

pub use flow::ct_state;

use ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};

/// Whether `ct` makes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Commit {
    /// It does not.
    #[default]
    No,
    /// It does, for packets of new connections.
    Yes,
    /// It does, and ends a connection whose opposite direction began it.
    Force,
}

/// The arguments of a `ct` action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The zone.
    pub zone: u16,
    /// Whether a connection is made.
    pub commit: Commit,
    /// Value and mask for the mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask for the label.
    pub label: Option<(u128, u128)>,
    /// Address translation; `None` leaves the packet as it is.
    pub nat: Option<Nat>,
    /// Helper of a new connection.
    pub helper: Option<Helper>,
    /// Number of the timeout policy of a new connection.
    pub policy: u16,
}

/// The connection that an earlier `ct` found for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    id: ConnId,
    direction: Direction,
    zone: u16,
}

/// The metadata of connection tracking that goes with a packet: the fields `ct_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bits of [`ct_state`].
    pub state: u8,
    /// `ct_zone`.
    pub zone: u16,
    /// `ct_mark`.
    pub mark: u32,
    /// `ct_label`.
    pub label: u128,
    /// `ct_nw_src` to `ct_tp_dst`: the tuple of the connection's original direction.
    pub original: Option<Tuple>,
    /// For the next `ct`. Any change of the packet's addresses or ports other than by `ct` clears
    /// it.
    pub cached: Option<Cached>,
}

/// A packet of IP.
#[derive(Debug)]
pub struct IpPacket<'p> {
    /// From the IP header on; padding may follow.
    pub bytes: &'p mut [u8],
    /// The IP version, by the Ethernet type.
    pub family: Family,
    /// The checksums to verify.
    pub verify: Checksums,
    /// The state of the transport checksum.
    pub checksum: ChecksumState,
}

/// The effects of a `ct` action that the caller completes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The packet's bytes were changed.
    pub changed: bool,
    /// An ICMP error was changed; its checksum is finished now.
    pub finished_checksum: bool,
    /// A helper replaces a part of the data by one of another length.
    pub edit: Option<Edit>,
    /// The reason for which no connection was made, or a helper refused the packet. It is counted;
    /// Open vSwitch logs [`Counter::NatExhausted`] and [`Counter::InvalidFtp`].
    pub failure: Option<Counter>,
}

/// A tracker: the table, with what only the daemon does.
#[derive(Debug)]
pub struct Tracker {
    table: Arc<Table>,
    pub(crate) expectations: Expectations,
    counters: Counters,
}

impl Tracker {
    /// Makes the tracker of a table, the only one. It has no expectations yet; those that an earlier
    /// daemon counted in the table are gone.
    pub fn new(table: Arc<Table>) -> Tracker {
        table.counts().forget_expectations();
        let counters = Counters::new(table.shared_memory());
        Tracker { table, expectations: Expectations::default(), counters }
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the expectations.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// Carries out a `ct` action on a packet that cannot be tracked: a fragment that was given up.
    pub fn process_untrackable(&self, meta: &mut Metadata, zone: u16) {
        *meta = Metadata { state: INV | TRK, zone, ..Metadata::default() };
    }

    /// Carries out a `ct` action: finds or makes the packet's connection, moves its state, and
    /// changes the packet as its translation says. Any thread may call it, pinned.
    pub fn process(
        &self,
        pinned: &Pinned<'_>,
        packet: &mut IpPacket<'_>,
        meta: &mut Metadata,
        request: &Request,
        now: Ticks,
    ) -> Done {
        let mut done = Done::default();
        if self.process_cached(packet, meta, request, now, &mut done) {
            return done;
        }
        // The bits of a state accumulate within a zone.
        if meta.state != 0 && meta.zone != request.zone {
            meta.state = 0;
        }
        let extracted = match self.extract(packet, request.zone) {
            Ok(extracted) => extracted,
            Err(_) => {
                self.process_untrackable(meta, request.zone);
                return done;
            }
        };
        let natted = meta.state & (SNAT | DNAT) != 0;
        let mut found = if natted {
            self.find_translated(&extracted.tuple, now)
        } else {
            self.find(&extracted.tuple, now)
        };
        if let Some(old) = found
            && request.commit == Commit::Force
            && old.direction == Direction::Reply
        {
            self.end(&old);
            found = None;
        }
        let mut expectation = None;
        let translates = request.nat.is_some();
        let mut ctx = Packet { packet, extracted, meta, done: &mut done, translates };
        if let Some(old) = found {
            if self.advance(&old, &mut ctx, now) {
                found = None; // another connection begins with this tuple
            } else if request.nat.is_some() {
                ctx.translate(&old);
            }
        } else if let Some(old) = self.find_by_original(&ctx, request, now) {
            found = if self.advance(&old, &mut ctx, now) { None } else { Some(old) };
        } else if ctx.extracted.inner.is_some() {
            // Errors begin no connection.
            ctx.meta.state = INV;
            ctx.write(None, None, request.zone, &self.table);
            return done;
        }
        let is_new = found.is_none();
        if is_new {
            expectation = self.expectations.find(&self.table, &ctx.extracted.tuple, now);
            found = self.begin(pinned, &mut ctx, request, expectation.as_ref(), now);
        }
        ctx.write(found.as_ref(), expectation.as_ref(), request.zone, &self.table);
        if let Some(found) = &found {
            ctx.set_mark_and_label(found, request);
            if found.conn.class().helper.is_some() {
                self.help(found, &mut ctx, now);
            }
        }
        let is_cachable = request.nat.is_none() && ctx.extracted.inner.is_none();
        ctx.meta.cached = found.filter(|_| is_cachable).map(|found| Cached {
            id: found.conn.id(found.head),
            direction: found.direction,
            zone: request.zone,
        });
        done
    }

    /// Carries out the action on the connection that an earlier `ct` in this zone found. The state
    /// does not move a second time.
    fn process_cached(
        &self,
        packet: &mut IpPacket<'_>,
        meta: &mut Metadata,
        request: &Request,
        now: Ticks,
        done: &mut Done,
    ) -> bool {
        let Some(cached) = meta.cached.take() else {
            return false;
        };
        if cached.zone != request.zone
            || request.commit == Commit::Force
            || request.helper.is_some()
        {
            return false;
        }
        let Some((conn, head)) = self.table.get(cached.id, now) else {
            return false;
        };
        if conn.class().helper.is_some() {
            return false;
        }
        let found = Found { conn, head, direction: cached.direction };
        if request.nat.is_some() {
            let verify = Checksums::NONE;
            let Ok(extracted) = extract(packet.bytes, packet.family, request.zone, verify) else {
                return false;
            };
            let mut ctx = Packet { packet, extracted, meta, done, translates: true };
            ctx.translate(&found);
        } else {
            meta.cached = Some(cached);
        }
        meta.zone = request.zone;
        meta.mark = conn.mark();
        meta.label = conn.label();
        set_mark_and_label(meta, &found, request);
        true
    }

    fn extract(&self, packet: &IpPacket<'_>, zone: u16) -> Result<Extracted, Untrackable> {
        if packet.verify.ip && packet.family == Family::V4 {
            self.counters.add(Counter::IpChecksumChecked);
        }
        if packet.verify.transport {
            self.counters.add(Counter::TransportChecksumChecked);
        }
        let result = extract(packet.bytes, packet.family, zone, packet.verify);
        match result {
            Err(Untrackable::IpChecksum) => self.counters.add(Counter::IpChecksumError),
            Err(Untrackable::TransportChecksum) => {
                self.counters.add(Counter::TransportChecksumError);
            }
            _ => {}
        }
        result
    }

    fn find(&self, tuple: &Tuple, now: Ticks) -> Option<Found<'_>> {
        self.table.find(&tuple.canonical()?, now)
    }

    /// Looks up the connection of a packet that was translated in this zone: it has the tuple that
    /// the other direction's packets reverse.
    fn find_translated(&self, tuple: &Tuple, now: Ticks) -> Option<Found<'_>> {
        let found = self.find(&tuple.reversed(), now);
        if found.is_none() {
            self.counters.add(Counter::LookupNattedMiss);
        }
        found.map(|found| Found { direction: found.direction.opposite(), ..found })
    }

    /// Looks up the connection of a packet that was translated and then changed, by its metadata.
    fn find_by_original(
        &self,
        ctx: &Packet<'_, '_>,
        request: &Request,
        now: Ticks,
    ) -> Option<Found<'_>> {
        if ctx.meta.state & (SNAT | DNAT) == 0 || request.nat.is_some() {
            return None;
        }
        let original = Tuple { zone: request.zone, ..ctx.meta.original? };
        let found = self.table.find(&original.canonical()?, now)?;
        // The metadata has the original direction's tuple in packets of both directions.
        let direction = if ctx.meta.state & RPL != 0 { Direction::Reply } else { found.direction };
        Some(Found { direction, ..found })
    }

    /// Ends a connection, whatever happens to it meanwhile.
    fn end(&self, found: &Found<'_>) {
        let id = found.conn.id(found.head);
        while found.conn.is(id) && !self.table.kill(found.conn, found.conn.head()) {}
    }

    /// Moves the state of a connection by a packet. Returns true when another connection begins.
    fn advance(&self, found: &Found<'_>, ctx: &mut Packet<'_, '_>, now: Ticks) -> bool {
        let reply = if found.direction == Direction::Reply { RPL } else { 0 };
        if ctx.extracted.inner.is_some() {
            ctx.meta.state |= REL | reply;
            return false;
        }
        if found.head.has(flags::RELATED) {
            ctx.meta.state |= REL;
        }
        let segment = self.unskew(found, ctx);
        if segment.as_ref().is_some_and(has_invalid_flags) {
            self.counters.add(Counter::InvalidTcpFlags);
        }
        let moved =
            self.table.advance(found.conn, found.head, found.direction, segment.as_ref(), now);
        if !moved.in_window {
            self.counters.add(if moved.update == Update::Invalid {
                Counter::SequenceCheckFailed
            } else {
                Counter::SequenceCheckBypassed
            });
        }
        match moved.update {
            Update::Established => ctx.meta.state = ctx.meta.state & !NEW | EST | reply,
            Update::StillNew => ctx.meta.state |= NEW,
            Update::Invalid => ctx.meta.state = INV,
            Update::Another => {
                self.end(found);
                return true;
            }
        }
        false
    }

    /// Begins a connection, and makes it when the action commits.
    fn begin<'t>(
        &'t self,
        pinned: &Pinned<'_>,
        ctx: &mut Packet<'_, '_>,
        request: &Request,
        expectation: Option<&Expectation>,
        now: Ticks,
    ) -> Option<Found<'t>> {
        let tuple = ctx.extracted.tuple;
        let Some(start) = machine::begin(&tuple, ctx.extracted.segment.as_ref()) else {
            if ctx.extracted.segment.as_ref().is_some_and(has_invalid_flags) {
                self.counters.add(Counter::InvalidTcpFlags);
            }
            ctx.meta.state = INV;
            return None;
        };
        ctx.meta.state = NEW | if expectation.is_some() { REL } else { 0 };
        if request.commit == Commit::No {
            return None;
        }
        let value = |pair: Option<(u32, u32)>| pair.map_or(0, |(value, mask)| value & mask);
        let class = Class {
            policy: request.policy,
            timeout: start.timeout as u8,
            shard: 0,
            helper: request.helper,
        };
        let ticks = self.table.policies().ticks(request.policy, start.timeout);
        let mut new = NewConn {
            class,
            tcp: start.tcp,
            mark: value(request.mark),
            label: request.label.map_or(0, |(value, mask)| value & mask),
            ..NewConn::new(tuple, ticks)
        };
        if let Some(expectation) = expectation {
            new.flags |= flags::RELATED;
            new.mark = expectation.mark;
            new.label = expectation.label;
        }
        if request.helper.is_some() {
            new.flags |= flags::DAEMON;
        }
        if request.helper.is_some() || expectation.is_some() {
            new.extension =
                self.table.take_extension(expectation.map(|expectation| &expectation.parent_tuple));
        }
        let made = self.create(pinned, &new, request, expectation, now);
        match (&made, new.extension) {
            (Ok(found), Some(number)) => {
                self.table.own_extension(number, found.conn.id(found.head));
            }
            (Err(_), Some(number)) => self.table.return_extension(number),
            (_, None) => {}
        }
        match made {
            Ok(found) => {
                ctx.translate(&found);
                Some(found)
            }
            // The packet goes on as one of a new connection.
            Err(error) => {
                let reason = counter_of(error);
                self.counters.add(reason);
                ctx.done.failure = Some(reason);
                None
            }
        }
    }

    fn create<'t>(
        &'t self,
        pinned: &Pinned<'_>,
        new: &NewConn,
        request: &Request,
        expectation: Option<&Expectation>,
        now: Ticks,
    ) -> Result<Found<'t>, NatError> {
        let translation = expectation.and_then(|expectation| expectation.translation);
        match (request.nat, translation) {
            (None, _) => self.table.create(pinned, new, now).map_err(NatError::Create),
            (Some(_), Some(translation)) => {
                let reply = new.original.reversed();
                let (reply, flag) = match (translation.manip, reply.ports) {
                    (Manip::Src, _) => {
                        (Tuple { dst: translation.address, ..reply }, flags::NAT_SRC)
                    }
                    (Manip::Dst, Ports::Pair { src, dst }) => {
                        let src = translation.port.unwrap_or(src);
                        let ports = Ports::Pair { src, dst };
                        (Tuple { src: translation.address, ports, ..reply }, flags::NAT_DST)
                    }
                    (Manip::Dst, Ports::Icmp(_)) => {
                        (Tuple { src: translation.address, ..reply }, flags::NAT_DST)
                    }
                };
                let new = NewConn { reply, flags: new.flags | flag, ..*new };
                self.table.create(pinned, &new, now).map_err(NatError::Create)
            }
            (Some(Nat::Existing), None) => self.table.create_with_null_nat(pinned, new, now),
            (Some(Nat::Range(range)), None) => self.table.create_with_nat(pinned, new, &range, now),
        }
    }
}

fn counter_of(error: NatError) -> Counter {
    match error {
        NatError::Exhausted => Counter::NatExhausted,
        NatError::Create(CreateError::Exceeded(Exceeded::Total) | CreateError::NoSlot) => {
            Counter::Full
        }
        NatError::Create(CreateError::Exceeded(Exceeded::Zone)) => Counter::ZoneFull,
        NatError::Create(CreateError::Exceeded(Exceeded::HalfOpen | Exceeded::ZoneHalfOpen)) => {
            Counter::HalfOpenFull
        }
        NatError::Create(CreateError::BucketFull) => Counter::BucketFull,
        NatError::Create(CreateError::Clash | CreateError::Overtaken | CreateError::BadTuple) => {
            Counter::Overtaken
        }
    }
}

/// A packet in the midst of a `ct` action.
pub(crate) struct Packet<'a, 'p> {
    pub packet: &'a mut IpPacket<'p>,
    pub extracted: Extracted,
    pub meta: &'a mut Metadata,
    pub done: &'a mut Done,
    /// The action has `nat`.
    pub translates: bool,
}

impl Packet<'_, '_> {
    /// Changes the packet as its connection's translation says, once in a zone.
    fn translate(&mut self, found: &Found<'_>) {
        let bit =
            match (found.head.has(flags::NAT_SRC), found.head.has(flags::NAT_DST), found.direction)
            {
                (false, false, _) => return,
                (true, _, Direction::Original) | (false, true, Direction::Reply) => SNAT,
                (true, _, Direction::Reply) | (false, true, Direction::Original) => DNAT,
            };
        if self.meta.state & (SNAT | DNAT) != 0 {
            return;
        }
        let Some(to) = found.translated() else { return };
        self.meta.state |= bit;
        if to == self.extracted.tuple {
            return;
        }
        let packet = &mut *self.packet;
        let family = packet.family;
        let done = rewrite(packet.bytes, family, &self.extracted, &to, packet.checksum);
        debug_assert!(done.is_some(), "a tuple of another kind");
        self.done.changed = true;
        self.done.finished_checksum |= self.extracted.inner.is_some();
    }

    /// Writes the metadata.
    fn write(
        &mut self,
        found: Option<&Found<'_>>,
        expectation: Option<&Expectation>,
        zone: u16,
        table: &Table,
    ) {
        self.meta.state |= TRK;
        self.meta.zone = zone;
        let original = match (found, expectation) {
            (Some(found), _) => {
                self.meta.mark = found.conn.mark();
                self.meta.label = found.conn.label();
                let parent =
                    if found.head.has(flags::RELATED) { table.parent(found.conn) } else { None };
                parent.or_else(|| found.conn.original(found.head))
            }
            (None, Some(expectation)) => {
                self.meta.mark = expectation.mark;
                self.meta.label = expectation.label;
                Some(expectation.parent_tuple)
            }
            (None, None) => {
                self.meta.mark = 0;
                self.meta.label = 0;
                Some(self.extracted.tuple)
            }
        };
        self.meta.original = original;
        self.meta.cached = None;
    }

    fn set_mark_and_label(&mut self, found: &Found<'_>, request: &Request) {
        set_mark_and_label(self.meta, found, request);
    }
}

/// Sets mark and label of a connection and of the packet. An expected connection keeps its
/// parent's.
fn set_mark_and_label(meta: &mut Metadata, found: &Found<'_>, request: &Request) {
    if found.head.has(flags::RELATED) {
        return;
    }
    if let Some((value, mask)) = request.mark {
        meta.mark = meta.mark & !mask | value & mask;
        found.conn.set_mark(value, mask);
    }
    if let Some((value, mask)) = request.label {
        meta.label = meta.label & !mask | value & mask;
        found.conn.set_label(value, mask);
    }
}

#[cfg(test)]
pub(crate) mod tests;
