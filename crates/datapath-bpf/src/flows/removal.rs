// SPDX-License-Identifier: Apache-2.0
//! Removing flows and using their slots again.

use std::sync::atomic::Ordering;

use super::*;

/// A flow that was removed from the index.
struct Unlinked {
    ufid: Ufid,
    slot: u32,
    record: Record,
}

impl Flows {
    /// Removes flows, waits for one grace period, and calls `each` with their final statistics. The
    /// mutex is not held during the calls.
    pub fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut unlinked = Vec::with_capacity(ufids.len());
        for some in ufids.chunks(CHUNK) {
            let mut inner = self.lock(); // packet threads install in between
            unlinked.extend(some.iter().filter_map(|ufid| self.unlink(&mut inner, *ufid)));
        }
        if unlinked.is_empty() {
            return;
        }
        if let Err(e) = self.grace.wait() {
            // The slots stay out of use: a packet might still run one.
            tracing::error!(target: "dpif", "could not wait for BPF programs to end ({e}): slots are lost");
            return self.report(&unlinked, each);
        }
        self.report(&unlinked, each);
        let low = {
            let mut inner = self.lock();
            inner.removed.extend(unlinked.iter().map(|u| u.slot));
            let unused = self.maps.slots.len() - inner.records.len() + inner.free.len();
            unused < self.maps.slots.len() / 8
        };
        if low {
            self.reclaim();
        }
    }

    fn unlink(&self, inner: &mut Inner, ufid: Ufid) -> Option<Unlinked> {
        let slot = inner.by_ufid.remove(&ufid)?;
        let at = slot as usize;
        let record = *inner.records.get(at)?;
        index::take(&self.maps.index, record.position);
        self.kill(slot);
        inner.records.get_mut(at)?.state = RecordState::Removed;
        let features = self.features_of(&Slot::read(&self.maps, at));
        inner.count_features(features, -1);
        Some(Unlinked { ufid, slot, record })
    }

    /// Calls `each` with the final statistics of slots on which no program counts any more, and
    /// neither on the slots that they replaced. A slot becomes free only after it is in `removed`,
    /// or its counts were added in `earlier`.
    fn report(&self, unlinked: &[Unlinked], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let now = self.clock.now();
        let batches = Batches::read(&self.maps);
        for Unlinked { ufid, slot, record } in unlinked {
            let mut count = FlowCount::with(&self.maps, *slot, batches.all(), Reads::Last);
            let mut inner = self.lock();
            if record.has_earlier
                && let Some(earlier) = inner.earlier.remove(slot)
            {
                count.add(&earlier.count(&self.maps, batches.all(), Reads::Last));
            }
            let mut record = *record;
            inner.hits = inner.hits.wrapping_add(record.observe(&count, now));
            drop(inner);
            each(*ufid, record.flow_stats());
        }
    }

    /// Frees the slots of removed flows and the places of unused masks. Waits for two grace periods
    /// when there are any.
    pub fn reclaim(&self) {
        let _one = self.reclaiming.lock().unwrap_or_else(|e| e.into_inner());
        self.release_lingering();
        let (batch, masks) = {
            let mut inner = self.lock();
            let masks = inner.masks.retire(&self.maps.masks);
            (std::mem::take(&mut inner.removed), masks)
        };
        if batch.is_empty() && !masks {
            return;
        }
        if let Err(e) = self.reclaim_batch(&batch) {
            tracing::error!(target: "dpif", "could not wait for BPF programs to end ({e})");
            self.lock().removed.extend(batch);
        }
    }

    fn reclaim_batch(&self, batch: &[u32]) -> std::io::Result<()> {
        self.grace.wait()?;
        self.finish_counts(batch);
        self.scrub(batch);
        self.grace.wait()?;
        let batches = Batches::read(&self.maps);
        let mut inner = self.lock();
        inner.masks.free(&self.maps.masks);
        for some in batch.chunks(CHUNK) {
            some.iter().for_each(|slot| self.free(&mut inner, *slot, &batches));
            drop(inner); // packet threads install meanwhile
            inner = self.lock();
        }
        Ok(())
    }

    /// Marks the statistics of these slots as final. Adds the counts of each replaced slot to the
    /// flow that replaced it.
    fn finish_counts(&self, batch: &[u32]) {
        let batches = Batches::read(&self.maps);
        let mut inner = self.lock();
        let Inner { records, earlier, .. } = &mut *inner;
        for slot in batch {
            if let Some(record) = records.get_mut(*slot as usize) {
                record.state = RecordState::Settled;
            }
        }
        for earlier in earlier.values_mut() {
            let Earlier { sum, slots } = earlier;
            slots.retain(|slot| {
                let final_now =
                    records.get(*slot as usize).is_some_and(|r| r.state == RecordState::Settled);
                if final_now {
                    sum.add(&FlowCount::with(&self.maps, *slot, batches.all(), Reads::Last));
                }
                !final_now
            });
        }
    }

    /// Removes the numbers of these slots from the signature cache. Programs add none of them
    /// again: the index does not have them, and the slots are dead.
    pub(super) fn scrub(&self, batch: &[u32]) {
        let mut gone = vec![0u64; self.maps.slots.len().div_ceil(64)];
        for slot in batch {
            if let Some(bits) = gone.get_mut(*slot as usize / 64) {
                *bits |= 1 << (slot % 64);
            }
        }
        for word in self.maps.cache.all_words() {
            let entry = word.load(Ordering::Relaxed);
            let Some(slot) = hash::slot_of(entry) else { continue };
            // An entry that names no slot at all is removed as well.
            if gone.get(slot as usize / 64).is_none_or(|bits| bits >> (slot % 64) & 1 != 0) {
                // A program may have stored another entry there.
                let _ = word.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn free(&self, inner: &mut Inner, slot: u32, batches: &Batches) {
        let at = slot as usize;
        let held = Slot::read(&self.maps, at);
        inner.masks.release(&self.maps.masks, held.mask);
        if held.program != NO_PROGRAM {
            let program = self.maps.programs.read(held.program as usize);
            inner.programs.release(&self.maps.programs, held.program);
            program.set().into_iter().for_each(|set| self.sets.release(set));
        }
        if let Some(record) = inner.records.get_mut(at) {
            record.state = RecordState::Free;
        }
        self.release_slot(inner, slot, batches);
    }

    /// Frees a slot for which no program notes packets any more. If a batch still names the slot,
    /// its packets would be added to the next flow there, so the slot lingers.
    fn release_slot(&self, inner: &mut Inner, slot: u32, batches: &Batches) {
        if batches.may_name(slot) {
            inner.lingering.push(slot);
        } else {
            stats::clear(&self.maps, slot);
            inner.free.push(slot);
        }
    }

    /// Frees many slots; see [`Flows::release_slot`].
    pub(super) fn release_slots(&self, slots: &[u32]) {
        let batches = Batches::read(&self.maps);
        for some in slots.chunks(CHUNK) {
            let mut inner = self.lock(); // packet threads install in between
            some.iter().for_each(|slot| self.release_slot(&mut inner, *slot, &batches));
        }
    }

    /// Frees the lingering slots that no batch names any more.
    fn release_lingering(&self) {
        let lingering = std::mem::take(&mut self.lock().lingering);
        if !lingering.is_empty() {
            self.release_slots(&lingering);
        }
    }
}
