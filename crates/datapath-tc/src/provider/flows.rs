// SPDX-License-Identifier: Apache-2.0
//! Flows in cards.

use super::CardProvider;
use super::state::Held;
use crate::act::Act;
use crate::filter::{Filter, Place, Shown};
use crate::kernel::{Existing, TrafficControl};
use datapath::{FlowStats, Megaflow, Refusal, Ufid};
use netlink::Error;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;

/// Why the kernel or a driver refused a filter.
struct Declined {
    refusal: Refusal,
    words: Option<String>,
}

impl From<Error> for Declined {
    fn from(error: Error) -> Declined {
        let refusal = match error.errno() {
            Some(ENOSPC) => Refusal::TableFull,
            Some(ENODEV) => Refusal::PortNotHere,
            Some(EPERM) => Refusal::NoPermission,
            _ => Refusal::CardRefused,
        };
        Declined { refusal, words: Some(error.words.unwrap_or(error.error.to_string())) }
    }
}

impl CardProvider {
    /// Installs a flow.
    pub(super) fn add(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let mut kernel = self.kernel();
        let (filter, needs_card) = {
            let mut state = self.state();
            if state.flows.contains_key(&flow.ufid) {
                return Err(Refusal::Exists);
            }
            let filter = state.filter(flow).map_err(|refused| refused.refusal)?;
            (filter, state.needs_card(flow))
        };
        let installed = install(&mut **kernel, &filter, Existing::Refuse, needs_card);
        let mut state = self.state();
        match installed {
            Ok(in_card) => {
                let held = Held::new(flow, filter.place, needs_card, in_card);
                state.flows.insert(flow.ufid, held);
                Ok(())
            }
            Err(declined) => {
                state.release(&filter.place);
                declined.words.iter().for_each(|words| state.note_explanation(words));
                Err(declined.refusal)
            }
        }
    }

    /// Gives a flow other actions. Its filter is replaced at once, so that no packet meets neither.
    pub(super) fn change(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let mut kernel = self.kernel();
        let (filter, needs_card) = {
            let state = self.state();
            let held = state.flows.get(&flow.ufid).filter(|held| !held.is_lost);
            let place = held.ok_or(Refusal::Lost)?.place;
            let filter = state.filter_at(flow, place).map_err(|refused| refused.refusal)?;
            (filter, state.needs_card(flow))
        };
        // The filter that follows counts from zero.
        let last = kernel.read(&filter.place).ok().flatten();
        let installed = install(&mut **kernel, &filter, Existing::Replace, needs_card);
        let mut state = self.state();
        if let Some(shown) = &last {
            state.note_counts(flow.ufid, shown.counts, self.clock.now());
            state.note_policers(&shown.policers);
        }
        match installed {
            Ok(in_card) => {
                if let Some(held) = state.flows.get_mut(&flow.ufid) {
                    held.begin_again();
                    held.is_in_card = in_card;
                    held.flow = flow.clone();
                }
                let polices = |index: u32| {
                    let is_it = |act: &Act| matches!(act, Act::Police(p) if p.index == index);
                    filter.acts.iter().any(is_it)
                };
                let last = last.map(|shown| shown.policers).unwrap_or_default();
                last.iter()
                    .filter(|(index, _)| !polices(*index))
                    .for_each(|p| state.leave_policer(p));
                Ok(())
            }
            Err(declined) => {
                declined.words.iter().for_each(|words| state.note_explanation(words));
                Err(declined.refusal)
            }
        }
    }

    /// Removes a flow. Returns its final statistics.
    pub(super) fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let mut kernel = self.kernel();
        let place = self.state().flows.get(&ufid)?.place;
        let removed = kernel.remove(&place);
        let mut state = self.state();
        match removed {
            Ok(Some(shown)) => {
                state.note_counts(ufid, shown.counts, self.clock.now());
                state.note_policers(&shown.policers);
                shown.policers.iter().for_each(|policer| state.leave_policer(policer));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    target: "dpif",
                    "the filter {:#x} of device {} stays, and will be removed later ({error})",
                    place.handle,
                    place.ifindex,
                );
                state.stuck.push(place);
            }
        }
        if !state.stuck.contains(&place) {
            state.release(&place);
        }
        state.flows.remove(&ufid).map(|held| held.stats())
    }

    /// Returns a flow's statistics with all packets that the card reports.
    pub(super) fn read(&self, ufid: Ufid) -> Option<FlowStats> {
        let mut kernel = self.kernel();
        let place = self.state().flows.get(&ufid)?.place;
        let shown = kernel.read(&place).ok().flatten();
        let mut state = self.state();
        if let Some(shown) = shown {
            state.note_counts(ufid, shown.counts, self.clock.now());
            state.note_policers(&shown.policers);
        }
        state.flows.get(&ufid).map(Held::stats)
    }

    /// Removes filters that the kernel did not remove before.
    pub(super) fn remove_stuck(&self) {
        if self.state().stuck.is_empty() {
            return;
        }
        let mut kernel = self.kernel();
        let stuck = std::mem::take(&mut self.state().stuck);
        let (mut gone, mut left): (Vec<Place>, Vec<Place>) = (Vec::new(), Vec::new());
        for place in stuck {
            let list = if kernel.remove(&place).is_ok() { &mut gone } else { &mut left };
            list.push(place);
        }
        let mut state = self.state();
        gone.iter().for_each(|place| state.release(place));
        state.stuck.extend(left);
    }
}

/// Installs a filter, or leaves none. Returns true when a card has it. When `existing` is replaced and
/// this fails, the old filter may be gone.
fn install(
    kernel: &mut dyn TrafficControl,
    filter: &Filter,
    existing: Existing,
    needs_card: bool,
) -> Result<bool, Declined> {
    let (shown, warning) = match kernel.install(filter, existing) {
        // Another program has removed the qdisc.
        Err(error) if matches!(error.errno(), Some(ENOENT | EINVAL)) => {
            if kernel.add_clsact(filter.place.ifindex).is_err() {
                return Err(error.into());
            }
            kernel.install(filter, existing)?
        }
        result => result?,
    };
    let Err(words) = check(filter, &shown, needs_card) else { return Ok(shown.in_hw) };
    kernel.remove(&filter.place)?;
    let words = warning.unwrap_or_else(|| words.to_owned());
    Err(Declined { refusal: Refusal::CardRefused, words: Some(words) })
}

/// Checks that the kernel has the filter that was asked for, because an older kernel ignores attributes
/// that it does not know, and that a card has it, where that is needed.
fn check(filter: &Filter, shown: &Shown, needs_card: bool) -> Result<(), &'static str> {
    let is_it = |shown: &Filter| shown == filter || *shown == without_df(filter);
    if !shown.filter.as_ref().is_some_and(is_it) {
        return Err("the kernel shows another filter than the one that was asked for");
    }
    if needs_card && !shown.in_hw {
        return Err("the kernel took the filter, and no card has it");
    }
    Ok(())
}

/// Returns a filter as a kernel before Linux 6.11 shows it, whose `tunnel_key` does not know DF. The card
/// decides about it then.
fn without_df(filter: &Filter) -> Filter {
    let mut filter = filter.clone();
    for act in &mut filter.acts {
        if let Act::SetTunnel(key) = act {
            key.has_df = false;
        }
    }
    filter
}
