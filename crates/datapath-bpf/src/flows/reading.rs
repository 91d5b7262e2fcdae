// SPDX-License-Identifier: Apache-2.0
//! Reading flows and their statistics.

use datapath::DropReason;

use super::*;
use crate::attachment::Held;
use crate::decode;
use crate::layout::NO_PORT;

impl Flows {
    /// Returns a flow with its statistics; `None`: there is no such flow.
    pub(crate) fn flow(&self, ufid: Ufid) -> Option<Held> {
        let batches = Batches::read(&self.maps);
        let mut inner = self.lock();
        let slot = *inner.by_ufid.get(&ufid)?;
        Some(self.held(&mut inner, slot, &batches))
    }

    fn held(&self, inner: &mut Inner, number: u32, batches: &Batches) -> Held {
        let slot = Slot::read(&self.maps, number as usize);
        let matching = Matching {
            words: slot.words,
            mask: self.maps.masks.read(slot.mask.into()).words,
            packet_type: slot.flags & FLOW_PACKET_TYPE != 0,
        };
        Held {
            matching: matching.to_match(),
            hooks: HookSet::from_bits_truncate(slot.hooks),
            stats: self.stats(inner, number, batches),
        }
    }

    /// Returns the actions of a flow; see [`crate::decode`].
    pub(crate) fn actions(&self, ufid: Ufid) -> Option<Vec<Action>> {
        let inner = self.lock();
        let slot = Slot::read(&self.maps, *inner.by_ufid.get(&ufid)? as usize);
        Some(match (slot.output, slot.program) {
            (NO_PORT, NO_PROGRAM) => {
                let reason = DropReason::from_number(slot.reason);
                let reason = reason.filter(|reason| *reason != DropReason::Flow);
                reason.map(Action::Drop).into_iter().collect()
            }
            (NO_PORT, program) => decode::actions(&self.maps.programs.read(program as usize).cells),
            (port, _) => vec![Action::Output(PortNo(port))],
        })
    }

    /// Returns all flows, for people.
    pub fn dump(&self) -> Vec<(Ufid, Held)> {
        let ufids: Vec<Ufid> = self.lock().by_ufid.keys().copied().collect();
        let mut all = Vec::with_capacity(ufids.len());
        for some in ufids.chunks(256) {
            let batches = Batches::read(&self.maps);
            let mut inner = self.lock();
            for ufid in some {
                if let Some(slot) = inner.by_ufid.get(ufid).copied() {
                    all.push((*ufid, self.held(&mut inner, slot, &batches)));
                }
            }
        }
        all
    }

    /// Calls `each` with the statistics of every flow. The mutex is not held meanwhile.
    pub fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut some = Vec::with_capacity(CHUNK);
        let batches = Batches::read(&self.maps);
        let mut from = 0;
        loop {
            let now = self.clock.now();
            let mut inner = self.lock();
            if from >= inner.records.len() {
                return;
            }
            self.sweep_chunk(&mut inner, from, now, &batches, &mut some);
            drop(inner);
            for (ufid, stats) in some.drain(..) {
                each(ufid, stats);
            }
            from += CHUNK;
        }
    }

    /// Reads the statistics of up to [`CHUNK`] slots, from slot `from` on.
    fn sweep_chunk(
        &self,
        inner: &mut Inner,
        from: usize,
        now: Millis,
        batches: &Batches,
        out: &mut Vec<(Ufid, FlowStats)>,
    ) {
        let Inner { records, earlier, hits, .. } = inner;
        let some = records.get_mut(from..).unwrap_or_default();
        let batched = batches.all().within(from as u32..(from + CHUNK) as u32);
        for (record, slot) in some.iter_mut().zip(from as u32..).take(CHUNK) {
            if record.state == RecordState::Published {
                let count = self.count(record, slot, earlier, batched, batches);
                *hits = hits.wrapping_add(record.observe(&count, now));
                out.push((record.ufid, record.flow_stats()));
            }
        }
    }

    /// Reads the statistics of one flow.
    fn stats(&self, inner: &mut Inner, slot: u32, batches: &Batches) -> FlowStats {
        let Inner { records, earlier, hits, .. } = inner;
        let Some(record) = records.get_mut(slot as usize) else { return FlowStats::default() };
        let count = self.count(record, slot, earlier, batches.all(), batches);
        *hits = hits.wrapping_add(record.observe(&count, self.clock.now()));
        record.flow_stats()
    }

    /// Returns the number of packets that flows took, as of the last read of each flow.
    pub(crate) fn hits(&self) -> u64 {
        self.lock().hits
    }

    /// Returns the counts of a flow, with those of the flows that it replaced. `batched` is the
    /// part of `batches` that may belong to the slot.
    #[inline]
    fn count(
        &self,
        record: &Record,
        slot: u32,
        earlier: &HashMap<u32, Earlier>,
        batched: Batched<'_>,
        batches: &Batches,
    ) -> FlowCount {
        let mut count = FlowCount::with(&self.maps, slot, batched, Reads::Some);
        if record.has_earlier
            && let Some(earlier) = earlier.get(&slot)
        {
            count.add(&earlier.count(&self.maps, batches.all(), Reads::Some));
        }
        count
    }
}
