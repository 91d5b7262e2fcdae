// SPDX-License-Identifier: Apache-2.0
//! Meters in cards. Each flow's filter has the policer of its meter, and those of one meter share it.

use super::state::State;
use super::{CardProvider, HANDLE, NUMBER};
use crate::policer::{self, Policer, PolicerCounts};
use datapath::{Action, DropReason, MeterConfig, MeterStats, Refusal};

/// A meter.
#[derive(Clone, Debug)]
pub(super) struct Metered {
    pub policer: Policer,
    /// The counts of policers that have ended: one does with its last filter.
    earlier: PolicerCounts,
    /// The counts of the present one, as last read.
    counts: PolicerCounts,
}

impl Metered {
    pub fn stats(&self) -> MeterStats {
        MeterStats {
            packets: self.earlier.packets + self.counts.packets,
            bytes: self.earlier.bytes + self.counts.bytes,
            // The kernel counts no bytes of dropped packets.
            bands: vec![(self.earlier.drops + self.counts.drops, 0)],
            ..MeterStats::default()
        }
    }

    /// Notes counts that were read, and returns the number of new drops.
    fn note(&mut self, counts: PolicerCounts) -> u64 {
        let is_another = counts.packets < self.counts.packets || counts.drops < self.counts.drops;
        if is_another {
            self.begin_again();
        }
        let new = counts.drops - self.counts.drops;
        self.counts = counts;
        new
    }

    /// Ends the counts of one policer: the next one counts from zero.
    fn begin_again(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        self.earlier.packets += counts.packets;
        self.earlier.bytes += counts.bytes;
        self.earlier.drops += counts.drops;
    }
}

impl State {
    /// Returns the meter that a policer belongs to. There is none for the policer of a former
    /// configuration.
    fn metered(&mut self, index: u32) -> Option<&mut Metered> {
        self.meters.values_mut().find(|metered| metered.policer.index == index)
    }

    /// Notes the counts of policers.
    pub fn note_policers(&mut self, seen: &[(u32, PolicerCounts)]) {
        for (index, counts) in seen {
            let Some(metered) = self.metered(*index) else { continue };
            let new = metered.note(*counts);
            *self.drops.entry(DropReason::Meter).or_default() += new;
        }
    }

    /// Notes that a filter has left a policer, which had these counts before.
    pub fn leave_policer(&mut self, (index, counts): &(u32, PolicerCounts)) {
        if counts.filters <= 1
            && let Some(metered) = self.metered(*index)
        {
            metered.begin_again();
        }
    }

    /// Has placement offer the flows of a meter again.
    fn lose_metered(&mut self, id: u32) {
        let State { flows, lost, .. } = self;
        for (ufid, held) in flows {
            if !held.is_lost && held.flow.actions.contains(&Action::Meter(id)) {
                held.is_lost = true;
                lost.push(*ufid);
            }
        }
    }
}

impl CardProvider {
    /// Sets a meter. The filters of its flows have its new policer when they are installed again.
    pub(super) fn limit(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        let _kernel = self.kernel(); // no flow is under way with the former policer
        let mut state = self.state();
        // A number of its own: the kernel ignores the rate of a policer that exists.
        let number = state.last_policer % NUMBER + 1;
        match policer::of(HANDLE | number, config) {
            Ok(policer) => {
                state.last_policer = number;
                let (earlier, counts) = Default::default();
                state.meters.insert(id, Metered { policer, earlier, counts });
                state.lose_metered(id);
                Ok(())
            }
            Err(refused) => {
                state.note_explanation(&format!("meter {id}: {}", refused.words));
                Err(refused.refusal)
            }
        }
    }

    /// Removes a meter.
    pub(super) fn end_limit(&self, id: u32) {
        let _kernel = self.kernel();
        let mut state = self.state();
        if state.meters.remove(&id).is_some() {
            state.lose_metered(id);
        }
    }
}
