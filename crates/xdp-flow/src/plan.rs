// SPDX-License-Identifier: Apache-2.0
//! From a device's filters to rules in the order of traffic control.
//!
//! A packet meets the filters of chain 0 by priority, and the first that matches decides. A rule either
//! runs such a filter whole, or stops: it leaves its packets to traffic control, which then meets the
//! same filter. The match of a rule that stops may be wider than its filter's. So a packet that a rule
//! runs matches no filter in front of it.

use crate::effect::{self, Effect, Targets, Verdict};
use crate::layout::MAX_TABLES;
use crate::matching::{self, Compiled, Match};
use crate::reader::{Body, TcFilter};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Longest way through chains that is followed.
const MAX_DEPTH: usize = 4;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its packets.
    pub matching: Match,
    /// Their fate; `None`: they are left to traffic control.
    pub effect: Option<Effect>,
    /// The filters that it stands for, as numbers in the list: those that lead to a chain, and the
    /// last.
    pub filters: Vec<usize>,
}

/// The rules of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In their order: the first that matches decides. A packet without a rule is left to traffic
    /// control.
    pub rules: Vec<Rule>,
    /// For each filter of the list the reason why it does not run at XDP; `None`: it does.
    pub reasons: Vec<Option<String>>,
}

/// A filter on its own.
struct Step {
    filter: usize,
    priority: u16,
    matching: Match,
    does: Does,
}

enum Does {
    Run(Effect),
    Goto(u32),
    Stop,
}

/// A card leaves packets to the kernel in the midst of its filters, and the kernel continues there. At
/// XDP such a packet looks like any other.
const HANDED_OVER: &str = "a card may hand packets over within filters (goto chain, ct)";

impl Plan {
    /// Leaves all packets of a device with these filters to traffic control.
    pub fn none(filters: &[TcFilter], reason: &str) -> Plan {
        Plan { rules: Vec::new(), reasons: vec![Some(reason.to_owned()); filters.len()] }
    }

    /// Makes the plan of a device with these filters, in any order, with at most `most_rules` rules.
    /// Filters that do not fit in are left to traffic control with all after them.
    pub fn new(filters: &[TcFilter], targets: &dyn Targets, most_rules: usize) -> Plan {
        if filters.iter().any(|filter| filter.body.hands_over()) {
            return Plan::none(filters, HANDED_OVER);
        }
        let mut plan = Plan { rules: Vec::new(), reasons: vec![None; filters.len()] };
        let mut chains: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
        for (number, filter) in filters.iter().enumerate() {
            let step = match step(number, filter, targets) {
                Ok(step) => step,
                Err(Unused::Never(reason)) => {
                    plan.reasons[number] = Some(reason);
                    continue;
                }
                Err(Unused::Stop(matching, reason)) => {
                    let matching = *matching;
                    plan.reasons[number] = Some(reason);
                    let priority = filter.place.priority;
                    Step { filter: number, priority, matching, does: Does::Stop }
                }
            };
            chains.entry(filter.place.chain).or_default().push(step);
        }
        for steps in chains.values_mut() {
            // Numbers keep the order stable; within a priority no two that overlap run.
            steps.sort_by_key(|step| (step.priority, step.filter));
            for number in ambiguous(steps) {
                steps[number].does = Does::Stop;
                let reason = &mut plan.reasons[steps[number].filter];
                reason.get_or_insert_with(|| {
                    "it overlaps another filter of its priority: their order is not known".into()
                });
            }
        }
        let mut walk = Walk { chains: &chains, plan, most_rules, masks: HashSet::new() };
        let is_whole = walk.chain(0, Match::ALL, &mut Vec::new());
        let Walk { mut plan, .. } = walk;
        let used: HashSet<usize> =
            plan.rules.iter().flat_map(|rule| &rule.filters).copied().collect();
        for (number, reason) in plan.reasons.iter_mut().enumerate() {
            if !used.contains(&number) {
                reason.get_or_insert_with(|| match is_whole {
                    true => "no packet reaches it at XDP".into(),
                    false => "there are more filters or masks in front of it than XDP has room for"
                        .into(),
                });
            }
        }
        plan
    }
}

enum Unused {
    /// No packet at XDP meets it.
    Never(String),
    /// Packets with this match are left to it.
    Stop(Box<Match>, String),
}

fn step(number: usize, filter: &TcFilter, targets: &dyn Targets) -> Result<Step, Unused> {
    let (keys, unknown, acts, in_hw) = match &filter.body {
        Body::Flower { keys, unknown, acts, in_hw } => (keys, unknown, acts, in_hw),
        Body::CardOnly(_) => return Err(Unused::Never("it is for cards only (skip_sw)".into())),
        Body::Other { .. } => {
            let all = matching::of_protocol(filter.protocol);
            let reason = format!("XDP does not run the classifier {}", filter.kind);
            return Err(Unused::Stop(Box::new(all), reason));
        }
    };
    let matching = match matching::compile(filter.protocol, keys) {
        Compiled::Exact(matching) => matching,
        Compiled::Wider(matching, reason) => return Err(Unused::Stop(Box::new(matching), reason)),
        Compiled::Never => return Err(Unused::Never("it is for fragments only".into())),
    };
    let stop = |reason: String| Unused::Stop(Box::new(matching), reason);
    if let Some(kind) = unknown {
        return Err(stop(format!("XDP does not know attribute {kind} of flower")));
    }
    if *in_hw {
        return Err(stop("a card has it".into()));
    }
    let Some(acts) = acts else { return Err(stop("XDP does not know one of its actions".into())) };
    let does = match effect::compile(acts, &matching, targets) {
        Ok(Verdict::Ends(effect)) => Does::Run(effect),
        Ok(Verdict::Goto(chain)) => Does::Goto(chain),
        Err(reason) => return Err(stop(reason)),
    };
    Ok(Step { filter: number, priority: filter.place.priority, matching, does })
}

/// Returns the steps that overlap another one of their priority. The kernel meets the masks of one
/// priority in an order that no message shows.
fn ambiguous(steps: &[Step]) -> Vec<usize> {
    let mut priorities: BTreeMap<u16, BTreeMap<_, Vec<usize>>> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let masks = priorities.entry(step.priority).or_default();
        masks.entry(step.matching.mask).or_default().push(number);
    }
    let mut found = HashSet::new();
    for masks in priorities.values() {
        let masks: Vec<_> = masks.iter().collect();
        for (i, (mask, numbers)) in masks.iter().enumerate() {
            for (other_mask, others) in &masks[i..] {
                // Two overlap when they agree in the bits that both compare.
                let project = |number: &usize| {
                    let mut value = steps[*number].matching.value;
                    let both = mask.iter().zip(other_mask.iter()).map(|(a, b)| a & b);
                    value.iter_mut().zip(both).for_each(|(byte, both)| *byte &= both);
                    value
                };
                let mut by_value: HashMap<_, Vec<usize>> = HashMap::new();
                numbers.iter().for_each(|n| by_value.entry(project(n)).or_default().push(*n));
                for other in others.iter() {
                    let same = by_value.get(&project(other)).into_iter().flatten();
                    for number in same.filter(|number| *number != other) {
                        found.extend([*number, *other]);
                    }
                }
            }
        }
    }
    found.into_iter().collect()
}

struct Walk<'a> {
    chains: &'a BTreeMap<u32, Vec<Step>>,
    plan: Plan,
    most_rules: usize,
    masks: HashSet<[u8; crate::layout::KEY_BYTES]>,
}

impl Walk<'_> {
    /// Adds the rules of a chain for the packets that `within` matches. `way` has the filters that lead
    /// there. Returns false when there is no more room: nothing may be added after that.
    fn chain(&mut self, chain: u32, within: Match, way: &mut Vec<usize>) -> bool {
        for step in self.chains.get(&chain).into_iter().flatten() {
            let Some(matching) = within.and(&step.matching) else { continue };
            way.push(step.filter);
            let is_added = match &step.does {
                Does::Run(effect) => self.add(matching, Some(effect.clone()), way),
                Does::Stop => self.add(matching, None, way),
                Does::Goto(_) if way.len() > MAX_DEPTH => {
                    let reason = &mut self.plan.reasons[step.filter];
                    reason.get_or_insert_with(|| "the way through chains is too long".into());
                    self.add(matching, None, way)
                }
                // A packet without a filter there goes to the host.
                Does::Goto(next) => {
                    self.chain(*next, matching, way) && self.add(matching, None, way)
                }
            };
            way.pop();
            if !is_added {
                return false;
            }
        }
        true
    }

    fn add(&mut self, matching: Match, effect: Option<Effect>, way: &[usize]) -> bool {
        if !self.masks.contains(&matching.mask) {
            if self.masks.len() == MAX_TABLES {
                return false;
            }
            self.masks.insert(matching.mask);
        }
        if self.plan.rules.len() == self.most_rules {
            return false;
        }
        self.plan.rules.push(Rule { matching, effect, filters: way.to_vec() });
        true
    }
}
