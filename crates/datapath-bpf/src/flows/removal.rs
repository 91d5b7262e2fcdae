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
        let counting = self.counting();
        let mut slots: Vec<u32> = unlinked.iter().map(|u| u.slot).collect();
        let earlier: Vec<Option<Earlier>> = {
            let mut inner = self.lock();
            slots.iter().map(|slot| inner.earlier.remove(slot)).collect()
        };
        slots.extend(earlier.iter().flatten().flat_map(|earlier| &earlier.slots));
        let taken = entries::take(&self.maps, &slots);
        let last = |slot| self.last_count(slot, &taken);
        let (mut all, mut hits) = (Vec::with_capacity(unlinked.len()), 0u64);
        for (Unlinked { ufid, slot, record }, earlier) in unlinked.iter().zip(earlier) {
            let mut count = last(*slot);
            if let Some(earlier) = earlier {
                count.add(&earlier.count(last));
            }
            let mut record = *record;
            hits = hits.wrapping_add(record.observe(&count, now));
            all.push((*ufid, record.flow_stats()));
        }
        {
            let mut inner = self.lock();
            inner.hits = inner.hits.wrapping_add(hits);
        }
        drop(counting);
        all.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }

    /// Returns the final counts of a slot, with those that were taken out of entries.
    fn last_count(&self, slot: u32, taken: &entries::Counts) -> FlowCount {
        let mut count = FlowCount::added(&self.maps, slot, Reads::Last);
        count.add(&taken.get(&slot).copied().unwrap_or_default());
        count
    }

    /// Frees the slots of removed flows and the places of unused masks. Waits for two grace periods
    /// when there are any.
    pub fn reclaim(&self) {
        let _one = self.reclaiming.lock().unwrap_or_else(|e| e.into_inner());
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
        let _counting = self.counting();
        let mut inner = self.lock();
        inner.masks.free(&self.maps.masks);
        for some in batch.chunks(CHUNK) {
            some.iter().for_each(|slot| self.free(&mut inner, *slot));
            drop(inner); // packet threads install meanwhile
            inner = self.lock();
        }
        Ok(())
    }

    /// Marks the statistics of these slots as final. Adds the counts of each replaced slot to the
    /// flow that replaced it.
    fn finish_counts(&self, batch: &[u32]) {
        let _counting = self.counting();
        let taken = entries::take(&self.maps, batch);
        let mut inner = self.lock();
        let Inner { records, earlier, reported, .. } = &mut *inner;
        for slot in batch {
            if let Some(record) = records.get_mut(*slot as usize) {
                record.state = RecordState::Settled;
            }
        }
        for (present, earlier) in earlier {
            let Earlier { sum, slots } = earlier;
            if !slots.is_empty() {
                reported.renew(*present);
            }
            slots.retain(|slot| {
                let final_now =
                    records.get(*slot as usize).is_some_and(|r| r.state == RecordState::Settled);
                if final_now {
                    sum.add(&self.last_count(*slot, &taken));
                }
                !final_now
            });
        }
    }

    /// Removes the numbers of these slots from the signature cache. Programs add none of them
    /// again: the index does not have them, and the slots are dead.
    pub(super) fn scrub(&self, batch: &[u32]) {
        let gone = SlotSet::new(batch.iter().copied(), self.maps.slots.len());
        for word in self.maps.cache.all_words() {
            let entry = word.load(Ordering::Relaxed);
            let Some(slot) = hash::slot_of(entry) else { continue };
            // An entry that names no slot at all is removed as well.
            if gone.has(slot).is_none_or(|is_gone| is_gone) {
                // A program may have stored another entry there.
                let _ = word.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn free(&self, inner: &mut Inner, slot: u32) {
        let at = slot as usize;
        let held = Slot::read(&self.maps, at);
        inner.masks.release(&self.maps.masks, held.mask);
        if held.program != NO_PROGRAM {
            let program = self.maps.programs.read(held.program as usize);
            inner.programs.release(&self.maps.programs, held.program);
            self.release_headers(inner, &program.cells);
            program.set().into_iter().for_each(|set| self.sets.release(set));
        }
        if let Some(record) = inner.records.get_mut(at) {
            record.state = RecordState::Free;
        }
        inner.in_use.remove(slot);
        stats::clear(&self.maps, slot);
        inner.free.push(slot);
    }
}
