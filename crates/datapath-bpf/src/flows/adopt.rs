// SPDX-License-Identifier: Apache-2.0
//! Taking over the tables of an earlier daemon. Every number in them is checked before it is used,
//! because that daemon may have died at any point.

use super::*;
use crate::layout::{
    BUCKET, FLOW_BOND, FLOW_CHAIN, FLOW_CHAIN_END, FLOW_METADATA, FLOW_POP, FLOW_PRECHECK,
    HOOK_XDP, MAX_PORTS, NO_PORT,
};
use datapath::DropReason;

/// The result of taking over tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Number of flows that go on.
    pub flows: usize,
    /// Number of index entries that were removed because a check failed.
    pub refused: usize,
}

impl Flows {
    /// Returns a table over arrays that may have flows, whose statistics go on. Parameters are
    /// those of [`Flows::new`]. Waits for grace periods.
    ///
    /// # Errors
    ///
    /// Fails when the kernel does not wait ([`Grace::wait`]).
    pub fn adopt(
        maps: impl Into<Arc<Maps>>,
        devmaps: Vec<OwnedFd>,
        factors: Factors,
        grace: Grace,
        clock: Clock,
    ) -> std::io::Result<(Flows, Adopted)> {
        let flows = Flows::new(maps, devmaps, factors, grace, clock);
        let mut found = Adopted { flows: 0, refused: 0 };
        {
            let unused = Record { state: RecordState::Free, ..Record::published(Ufid(0), 0) };
            {
                let mut inner = flows.lock();
                let slots = flows.maps.slots.len();
                inner.records.resize(slots, unused);
                inner.in_use = SlotSet::new(0..slots as u32, slots);
            }
            let mut counts = flows.counting();
            flows.read_counts(&mut counts);
            let mut inner = flows.lock();
            inner.masks = Masks::adopt(&flows.maps.masks);
            for position in 0..(flows.maps.index.len() * BUCKET) as Position {
                match flows.adopt_entry(&mut inner, position, &counts) {
                    Ok(true) => found.flows += 1,
                    Ok(false) => {}
                    Err(()) => {
                        index::take(&flows.maps.index, position);
                        found.refused += 1;
                    }
                }
            }
            inner.programs.adopted();
            inner.headers.adopted();
            flows.sets.adopted(&flows.maps);
        }
        flows.free_the_rest()?;
        flows.reclaim();
        Ok((flows, found))
    }

    /// Takes over the flow of one index entry. Returns false when the entry is free, and an error
    /// when the entry is to be removed.
    fn adopt_entry(
        &self,
        inner: &mut Inner,
        position: Position,
        counts: &[FlowCount],
    ) -> Result<bool, ()> {
        let entry = index::entry_at(&self.maps.index, position);
        if entry == 0 {
            return Ok(false);
        }
        let number = hash::slot_of(entry).ok_or(())?;
        let at = number as usize;
        if at >= self.maps.slots.len() {
            return Err(());
        }
        let slot = Slot::read(&self.maps, at);
        let ufid = Ufid(u128::from(slot.ufid[0]) << 64 | u128::from(slot.ufid[1]));
        let unknown = !inner.by_ufid.contains_key(&ufid)
            && inner.records.get(at).is_some_and(|r| r.state == RecordState::Free);
        if !unknown || !self.is_sound(&slot) || !self.is_at(&slot, entry, position) {
            return Err(());
        }
        let mask = inner.masks.adopt_flow(&self.maps.masks, slot.mask).ok_or(())?;
        let words = slot.words;
        let under = words.iter().zip(&mask).all(|(word, mask)| word & !mask == 0);
        let mut headers = Some(Vec::new());
        let program = slot.program == NO_PROGRAM
            || (self.adopt_set(&slot)
                && {
                    headers = self.headers_of(&slot);
                    headers.is_some()
                }
                && inner.programs.adopt_flow(&self.maps.programs, slot.program));
        if !under || !program || slot.needs != keys::needs(&mask) || !keys::names_port(&mask) {
            inner.masks.release(&self.maps.masks, slot.mask);
            if program && slot.program != NO_PROGRAM {
                inner.programs.release(&self.maps.programs, slot.program);
            }
            return Err(());
        }
        let count = reading::count_in(counts, number);
        let used = if count.packets == 0 { Millis(0) } else { self.clock.now() };
        let mut record = Record { used, ..Record::published(ufid, position) };
        record.see(&count);
        inner.record(number, record);
        inner.by_ufid.insert(ufid, number);
        for (number, held) in headers.iter().flatten() {
            inner.headers.adopt(held, *number);
        }
        inner.count_features(self.features_of(&slot), 1);
        Ok(true)
    }

    /// Counts the flow at the set of ports that its program names. Returns false when its outputs
    /// want another set, or when it declares that it needs none. (A flow that is counted and then
    /// refused keeps its set until the next start.)
    fn adopt_set(&self, slot: &Slot) -> bool {
        if slot.program as usize >= self.maps.programs.len() {
            return false;
        }
        let program = self.maps.programs.read(slot.program as usize);
        let traits = Traits::of(&program.cells);
        if traits.needs_precheck() != (slot.flags & FLOW_PRECHECK != 0)
            || traits.chain != slot.flags & (FLOW_CHAIN | FLOW_CHAIN_END)
            || traits.bond != slot.flags & FLOW_BOND
        {
            return false;
        }
        let Some(set) = program.set() else {
            return traits.copies.is_none() || slot.hooks & HOOK_XDP == 0;
        };
        let in_port = PortNo(keys::from_words(&slot.words).in_port.get());
        let wanted = traits.copies.and_then(|outputs| sets::members(&outputs, in_port));
        wanted.is_some_and(|(ports, exclude)| {
            exclude == (program.exclude != 0) && self.sets.adopt_flow(&self.maps, set, &ports)
        })
    }

    /// Returns the headers of tunnels that the program of a flow pushes, with their numbers. `None`: one
    /// of them is none that programs can push.
    fn headers_of(&self, slot: &Slot) -> Option<Vec<(u32, TunnelHeader)>> {
        let program = self.maps.programs.read(slot.program as usize);
        let header_of = self.header_of();
        let sound = |(number, length)| {
            let held = header_of(number)?;
            (held.length == length && held.header().is_some()).then_some((number, held))
        };
        encode::headers_of(&program.cells).map(sound).collect()
    }

    /// Checks a slot by its own contents alone.
    fn is_sound(&self, slot: &Slot) -> bool {
        let hooks = HookSet::from_bits(slot.hooks).is_some_and(|hooks| !hooks.is_empty());
        let short = slot.instructions <= encode::MOST_INSTRUCTIONS as u64;
        let effect = match (slot.output, slot.program) {
            (NO_PORT, NO_PROGRAM) if slot.flags & FLOW_POP != 0 => {
                slot.reason == 0 && ports::tunnel(&self.maps, slot.tunnel).is_some()
            }
            _ if slot.flags & FLOW_POP != 0 || slot.tunnel != 0 => false,
            (NO_PORT, NO_PROGRAM) => DropReason::from_number(slot.reason).is_some(),
            (NO_PORT, _) => slot.reason == 0,
            (port, NO_PROGRAM) => port < MAX_PORTS && slot.reason == 0,
            _ => false,
        };
        let in_port = keys::from_words(&slot.words).in_port.get();
        let is_from =
            !keys::is_of_tunnel(&slot.words) || ports::tunnel(&self.maps, in_port).is_some();
        let tracked = keys::has_metadata(&slot.words) == (slot.flags & FLOW_METADATA != 0);
        slot.dead == 0 && hooks && effect && short && tracked && is_from
    }

    /// Returns true when the index entry is in a bucket of the slot's hash.
    fn is_at(&self, slot: &Slot, entry: u64, position: Position) -> bool {
        let hash = hash::of_flow(&slot.words, slot.mask.into(), &self.factors);
        let buckets = hash::buckets(hash, self.maps.index.len() as u32 - 1);
        slot.hash == hash.into()
            && (entry >> 32) as u32 == hash
            && buckets.contains(&(position / BUCKET as u32))
    }

    /// Reclaims every slot that no index entry names: the cache may name it, and packets may be
    /// about to count on it.
    fn free_the_rest(&self) -> std::io::Result<()> {
        let mut rest: Vec<u32> = {
            let inner = self.lock();
            let free =
                inner.records.iter().enumerate().filter(|(_, r)| r.state == RecordState::Free);
            free.map(|(slot, _)| slot as u32).collect()
        };
        {
            let _inner = self.lock();
            rest.iter().for_each(|slot| self.kill(*slot));
        }
        self.grace.wait()?;
        entries::take(&self.maps, &rest);
        self.scrub(&rest);
        self.grace.wait()?;
        rest.reverse(); // low numbers are taken first
        rest.iter().for_each(|slot| stats::clear(&self.maps, *slot));
        let mut inner = self.lock();
        rest.iter().for_each(|slot| inner.in_use.remove(*slot));
        inner.free = rest;
        Ok(())
    }
}
