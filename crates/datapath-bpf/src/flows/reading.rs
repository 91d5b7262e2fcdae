// SPDX-License-Identifier: Apache-2.0
//! Reading flows and their statistics.

use datapath::DropReason;

use super::*;
use crate::attachment::Held;
use crate::decode;
use crate::layout::NO_PORT;

impl Flows {
    /// Returns a flow with its statistics; `None`: there is no such flow. Reads all entries of the
    /// exact-match caches.
    pub(crate) fn flow(&self, ufid: Ufid) -> Option<Held> {
        let _counting = self.counting();
        let slots = {
            let inner = self.lock();
            let slot = *inner.by_ufid.get(&ufid)?;
            let earlier = inner.earlier.get(&slot).map(|earlier| earlier.slots.clone());
            [vec![slot], earlier.unwrap_or_default()].concat()
        };
        let counts = entries::read_some(&self.maps, &slots);
        self.held(ufid, |slot| counts.get(&slot).copied().unwrap_or_default())
    }

    /// Returns a flow with its statistics as of the last sweep, or later; `None`: there is no such
    /// flow.
    pub(crate) fn flow_as_swept(&self, ufid: Ufid) -> Option<Held> {
        self.held(ufid, |slot| FlowCount::added(&self.maps, slot, Reads::Some))
    }

    /// Returns a flow, where `of` returns the counts of a slot.
    fn held(&self, ufid: Ufid, of: impl Fn(u32) -> FlowCount) -> Option<Held> {
        let mut inner = self.lock();
        let number = *inner.by_ufid.get(&ufid)?;
        let slot = Slot::read(&self.maps, number as usize);
        let matching = Matching {
            words: slot.words,
            mask: self.maps.masks.read(slot.mask.into()).words,
            packet_type: slot.flags & FLOW_PACKET_TYPE != 0,
        };
        let Inner { records, earlier, hits, .. } = &mut *inner;
        let record = records.get_mut(number as usize)?;
        let count = record.count(number, earlier, of);
        *hits = hits.wrapping_add(record.observe(&count, self.clock.now()));
        Some(Held {
            matching: matching.to_match(&self.maps.options()),
            hooks: HookSet::from_bits_truncate(slot.hooks),
            stats: record.flow_stats(),
        })
    }

    /// Returns the actions of a flow; see [`crate::decode`].
    pub(crate) fn actions(&self, ufid: Ufid) -> Option<Vec<Action>> {
        let inner = self.lock();
        let slot = Slot::read(&self.maps, *inner.by_ufid.get(&ufid)? as usize);
        Some(match (slot.output, slot.program) {
            _ if slot.flags & FLOW_POP != 0 => vec![Action::TunnelPop(PortNo(slot.tunnel))],
            (NO_PORT, NO_PROGRAM) => {
                let reason = DropReason::from_number(slot.reason);
                let reason = reason.filter(|reason| *reason != DropReason::Flow);
                reason.map(Action::Drop).into_iter().collect()
            }
            (NO_PORT, program) => {
                decode::actions(&self.maps.programs.read(program as usize).cells, &self.header_of())
            }
            (port, _) => vec![Action::Output(PortNo(port))],
        })
    }

    /// Returns all flows, for people.
    pub fn dump(&self) -> Vec<(Ufid, Held)> {
        let mut counts = self.counting();
        self.read_counts(&mut counts);
        let ufids: Vec<Ufid> = self.lock().by_ufid.keys().copied().collect();
        let of = |slot| count_in(&counts, slot);
        ufids.into_iter().filter_map(|ufid| Some((ufid, self.held(ufid, of)?))).collect()
    }

    /// Calls `each` with the statistics of every flow. No mutex is held meanwhile.
    pub fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let now = self.clock.now();
        let mut counts = self.counting();
        self.read_counts(&mut counts);
        let mut all = Vec::with_capacity(self.len());
        for from in (0..counts.len()).step_by(CHUNK) {
            let mut inner = self.lock(); // packet threads install in between
            let some = from as u32..counts.len().min(from + CHUNK) as u32;
            all.extend(some.filter_map(|slot| inner.observe(slot, now, &counts)));
        }
        drop(counts);
        for (ufid, stats) in all {
            each(ufid, stats);
        }
    }

    /// Reads the counts of all slots. A slot that is published meanwhile has none.
    pub(super) fn read_counts(&self, counts: &mut Vec<FlowCount>) {
        let (slots, in_use) = {
            let inner = self.lock();
            (inner.records.len(), inner.in_use.clone())
        };
        counts.clear();
        counts.resize(slots, FlowCount::default());
        entries::read_all(&self.maps, &in_use, counts);
    }

    /// Returns the number of packets that flows took, as of the last read of each flow.
    pub(crate) fn hits(&self) -> u64 {
        self.lock().hits
    }
}

/// Returns the counts of a slot that [`Flows::read_counts`] read.
pub(super) fn count_in(counts: &[FlowCount], slot: u32) -> FlowCount {
    counts.get(slot as usize).copied().unwrap_or_default()
}

impl Inner {
    /// Returns the statistics of the flow in a slot, with counts that were read; `None`: no flow is
    /// published there.
    #[inline]
    pub(super) fn observe(
        &mut self,
        slot: u32,
        now: Millis,
        counts: &[FlowCount],
    ) -> Option<(Ufid, FlowStats)> {
        let Inner { records, earlier, hits, .. } = self;
        let record = records.get_mut(slot as usize)?;
        if record.state != RecordState::Published {
            return None;
        }
        let count = record.count(slot, earlier, |slot| count_in(counts, slot));
        *hits = hits.wrapping_add(record.observe(&count, now));
        Some((record.ufid, record.flow_stats()))
    }
}

impl Record {
    /// Returns the counts of the flow in `slot`, with those of the flows that it replaced. `of`
    /// returns the counts of a slot.
    #[inline]
    fn count(
        &self,
        slot: u32,
        earlier: &HashMap<u32, Earlier>,
        of: impl Fn(u32) -> FlowCount,
    ) -> FlowCount {
        let mut count = of(slot);
        if self.has_earlier
            && let Some(earlier) = earlier.get(&slot)
        {
            count.add(&earlier.count(of));
        }
        count
    }
}
