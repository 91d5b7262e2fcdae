//! Looking at flows.

use datapath::{DropReason, FlowStats};

use super::*;
use crate::attachment::Held;
use crate::decode;
use crate::layout::NO_PORT;

impl Flows {
    /// One flow.
    pub fn flow(&self, ufid: Ufid) -> Option<Held> {
        let mut inner = self.lock();
        let slot = *inner.by_ufid.get(&ufid)?;
        Some(self.held(&mut inner, slot))
    }

    fn held(&self, inner: &mut Inner, number: u32) -> Held {
        let slot = Slot::read(&self.maps, number as usize);
        let matching = Matching {
            words: slot.words,
            mask: self.maps.masks.read(slot.mask.into()).words,
            packet_type: slot.flags & FLOW_PACKET_TYPE != 0,
        };
        Held {
            matching: matching.to_match(),
            hooks: HookSet::from_bits_truncate(slot.hooks),
            stats: self.observe(inner, number, self.clock.now()),
        }
    }

    /// What a flow does; see [`crate::decode`].
    pub fn actions(&self, ufid: Ufid) -> Option<Vec<Action>> {
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

    /// All flows, for people.
    pub fn dump(&self) -> Vec<(Ufid, Held)> {
        let ufids: Vec<Ufid> = self.lock().by_ufid.keys().copied().collect();
        let mut all = Vec::with_capacity(ufids.len());
        for some in ufids.chunks(256) {
            let mut inner = self.lock();
            for ufid in some {
                if let Some(slot) = inner.by_ufid.get(ufid).copied() {
                    all.push((*ufid, self.held(&mut inner, slot)));
                }
            }
        }
        all
    }

    /// Calls `each` for the statistics of every flow.
    pub fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut some = Vec::with_capacity(CHUNK);
        let mut from = 0;
        loop {
            let now = self.clock.now();
            let mut inner = self.lock();
            if from >= inner.records.len() {
                return;
            }
            self.look_at(&mut inner, from, now, &mut some);
            drop(inner);
            for (ufid, stats) in some.drain(..) {
                each(ufid, stats);
            }
            from += CHUNK;
        }
    }

    fn look_at(
        &self,
        inner: &mut Inner,
        from: usize,
        now: Millis,
        out: &mut Vec<(Ufid, FlowStats)>,
    ) {
        for at in from..inner.records.len().min(from + CHUNK) {
            let Some(record) = inner.records.get(at).copied() else { return };
            if record.state != State::Published {
                continue;
            }
            out.push((record.ufid, self.observe(inner, at as u32, now)));
        }
    }

    /// What a flow counted, and when it was used last. Nothing in it is ever less than it was
    /// before.
    fn observe(&self, inner: &mut Inner, slot: u32, now: Millis) -> FlowStats {
        let count = self.count(inner, slot);
        let Some(record) = inner.records.get_mut(slot as usize) else { return count.told(now) };
        let seen = record.seen();
        let count = count.at_least(&seen);
        if count != seen {
            record.see(&count);
        }
        let new = count.packets - seen.packets; // not less
        if new != 0 {
            record.used = now;
            inner.hits = inner.hits.wrapping_add(new);
        }
        count.told(record.used)
    }

    /// Packets that flows took, as of the last sweep.
    pub fn hits(&self) -> u64 {
        self.lock().hits
    }

    fn count(&self, inner: &Inner, slot: u32) -> FlowCount {
        let mut count = FlowCount::of_slot(&self.maps, slot);
        let has_earlier = inner.records.get(slot as usize).is_some_and(|r| r.has_earlier);
        if has_earlier && let Some(earlier) = inner.earlier.get(&slot) {
            count.add(&earlier.count(&self.maps));
        }
        count
    }
}
