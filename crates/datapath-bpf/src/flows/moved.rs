// SPDX-License-Identifier: Apache-2.0
//! Flows whose counts have changed since a sweep last asked.

use super::*;

/// By slot, the number of packets counted on the slot when a sweep last reported the flow. The number
/// grows with every packet. While a program moves counts, a sweep may read less, and reports the flow
/// once more after that.
#[derive(Debug)]
pub(super) struct Reported(Vec<u64>);

/// A flow with this number is reported in any case.
const NEVER: u64 = u64::MAX;

impl Reported {
    /// Returns numbers for up to `slots` slots, without any flow.
    pub(super) fn new(slots: usize) -> Reported {
        Reported(Vec::with_capacity(slots))
    }

    /// Has the next sweep report the flow in a slot.
    pub(super) fn renew(&mut self, slot: u32) {
        let at = slot as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0); // no flow: no packets
        }
        if let Some(packets) = self.0.get_mut(at) {
            *packets = NEVER;
        }
    }

    /// Sets the number of a slot. Returns true if it changed.
    fn set(&mut self, slot: usize, packets: u64) -> bool {
        self.0.get_mut(slot).is_some_and(|before| std::mem::replace(before, packets) != packets)
    }
}

impl Flows {
    /// Calls `each` with the statistics of every flow whose statistics changed since the last call.
    /// No mutex is held meanwhile.
    pub fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let now = self.clock.now();
        let mut counts = self.counting();
        self.read_counts(&mut counts);
        let mut moved = Vec::new();
        for from in (0..counts.len()).step_by(CHUNK) {
            let mut inner = self.lock(); // packet threads install in between
            for slot in from..counts.len().min(from + CHUNK) {
                if inner.reported.set(slot, reading::count_in(&counts, slot as u32).packets) {
                    moved.extend(inner.report_moved(slot as u32, now, &counts));
                }
            }
        }
        drop(counts);
        moved.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }
}

impl Inner {
    /// Returns the statistics of the flow in a slot, if there is one.
    fn report_moved(
        &mut self,
        slot: u32,
        now: Millis,
        counts: &[FlowCount],
    ) -> Option<(Ufid, FlowStats)> {
        // Packets are still counted on a slot that the flow had before.
        if self.earlier.get(&slot).is_some_and(|earlier| !earlier.slots.is_empty()) {
            self.reported.renew(slot);
        }
        self.observe(slot, now, counts)
    }
}
