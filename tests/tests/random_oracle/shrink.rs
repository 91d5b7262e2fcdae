// SPDX-License-Identifier: Apache-2.0
//! A failing case made small: steps, actions and parts of matches are left out as long as it
//! still fails.

use crate::case::{Case, Megaflows, Step};
use crate::generate::left_out::admits;
use flow::Field;

/// The smallest case found from `case` for which `fails` holds, in at most `rounds` tries.
pub fn shrink(case: &Case, rounds: usize, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let mut left = rounds;
    let mut attempt = |candidate: Case, best: &mut Case| {
        let fits = left > 0 && admits(&candidate.steps) && {
            left -= 1;
            fails(&candidate)
        };
        if fits {
            *best = candidate;
        }
        fits
    };
    // Mostly the last of all that happens is enough.
    let is_setup = |step: &Step| {
        matches!(step, Step::Configure(_) | Step::Underlay(_)) || step.receiver().is_some()
    };
    if let Some((last, before)) = case.steps.split_last() {
        let before = before.iter().filter(|step| is_setup(step));
        let steps: Vec<Step> = before.chain([last]).cloned().collect();
        attempt(Case { steps, ..case.clone() }, &mut best);
    }
    loop {
        let before = format!("{best:?}");
        let mut size = best.steps.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < best.steps.len() {
                let mut steps = best.steps.clone();
                steps.drain(at..(at + size).min(steps.len()));
                if !attempt(Case { steps, ..best.clone() }, &mut best) {
                    at += size;
                }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        for at in 0..best.steps.len() {
            let mut n = 0;
            while let Some(smaller) = best.steps.get(at).and_then(|step| smaller(step, n)) {
                let mut steps = best.steps.clone();
                if let Some(step) = steps.get_mut(at) {
                    *step = smaller;
                }
                if !attempt(Case { steps, ..best.clone() }, &mut best) {
                    n += 1;
                }
            }
        }
        if best.megaflows == Megaflows::Live {
            attempt(Case { megaflows: Megaflows::Purged, ..best.clone() }, &mut best);
        }
        if format!("{best:?}") == before {
            return best;
        }
    }
}

/// The case up to its `n`th step, and the following packets if they were sent together with it.
pub fn up_to(case: &Case, n: usize) -> Case {
    let is_with_it =
        |step: &&Step| case.megaflows == Megaflows::Live && matches!(step, Step::Packet { .. });
    let more = case.steps.iter().skip(n + 1).take_while(is_with_it).count();
    Case { steps: case.steps.iter().take(n + 1 + more).cloned().collect(), ..case.clone() }
}

/// The `n`th step that is a little less than `step`.
fn smaller(step: &Step, n: usize) -> Option<Step> {
    match step {
        Step::Flow { bridge, version, change } => {
            let mut less = change.clone();
            if let Some(actions) = without(&change.actions, n) {
                less.actions = actions.into();
            } else {
                let n = n - change.actions.len();
                let used = |f: &Field| !change.matching.is_any(*f);
                let field = Field::ALL.into_iter().filter(used).nth(n)?;
                less.matching.clear(field);
            }
            Some(Step::Flow { bridge, version: *version, change: less })
        }
        Step::Group { bridge, version, change } => {
            let mut less = change.clone();
            let mut n = n;
            for b in &mut less.buckets {
                if let Some(actions) = without(&b.actions, n) {
                    b.actions = actions.into();
                    return Some(Step::Group { bridge, version: *version, change: less });
                }
                n -= b.actions.len();
            }
            (n < less.buckets.len()).then(|| {
                less.buckets.remove(n);
                Step::Group { bridge, version: *version, change: less }
            })
        }
        Step::Packet { port, frame } => {
            let keep = [14, 34, 42, 60].into_iter().filter(|len| *len < frame.len()).nth(n)?;
            let frame = frame.get(..keep)?.to_vec();
            Some(Step::Packet { port, frame })
        }
        Step::Configure(words) => {
            let split: Vec<&str> = words.split(' ').collect();
            if !words.starts_with("set port") || split.len() <= 4 || n + 3 >= split.len() {
                return None;
            }
            let mut split = split;
            split.remove(n + 3);
            Some(Step::Configure(split.join(" ")))
        }
        _ => None,
    }
}

fn without(actions: &[openflow::Action], n: usize) -> Option<Vec<openflow::Action>> {
    (n < actions.len()).then(|| {
        let mut actions = actions.to_vec();
        actions.remove(n);
        actions
    })
}
