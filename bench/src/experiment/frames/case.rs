// SPDX-License-Identifier: Apache-2.0
//! The cases of experiments with frames.

use crate::generator::{SIZES, Stream};
use crate::point::Parameters;
use crate::rules::Rules;
use crate::system::System;
use crate::topology::Remote;

/// The remote end of the second port, and the cases that are measured with it. Frames come from a
/// card.
#[derive(Clone, Debug)]
pub struct Layout {
    pub receiver: Remote,
    pub cases: Vec<Case>,
}

/// One choice of traffic and rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub rules: Rules,
    /// Flows that take turns.
    pub flows: u32,
    /// Bytes of each frame, with Ethernet's checksum.
    pub size: u32,
    /// Latency is measured in addition to the rate.
    pub latency: bool,
    /// For the page.
    pub parameters: Parameters,
}

impl Layout {
    pub fn between_cards(cases: Vec<Case>) -> Layout {
        Layout { receiver: Remote::Card, cases }
    }
}

impl Case {
    /// The rate of the smallest frames.
    pub fn new(flows: u32, rules: Rules) -> Case {
        Case { rules, flows, size: SIZES[0], latency: false, parameters: Parameters::new() }
    }

    /// True when its figures include those of `other`.
    pub fn stands_for(&self, other: &Case) -> bool {
        self.is_like(other) && (self.latency || !other.latency)
    }

    fn is_like(&self, other: &Case) -> bool {
        self.rules == other.rules && self.traffic() == other.traffic()
    }

    /// True when a system is measured in it: masks come from rules.
    pub fn suits(&self, system: System) -> bool {
        !matches!(self.rules, Rules::Masks(..)) || system.has_rules()
    }

    /// Its frames as fast as possible.
    pub fn flood(&self) -> Stream {
        Stream { size: self.size, ..Stream::flood(self.flows) }
    }

    /// Returns the generator's traffic: the number of flows and the frame size.
    pub fn traffic(&self) -> (u32, u32) {
        (self.flows, self.size)
    }
}

/// One layout for each remote end, with each case once.
pub fn union(layouts: Vec<Layout>) -> Vec<Layout> {
    let mut all: Vec<Layout> = Vec::new();
    for layout in layouts {
        let Some(same) = all.iter_mut().find(|l| l.receiver == layout.receiver) else {
            all.push(layout);
            continue;
        };
        for case in layout.cases {
            match same.cases.iter_mut().find(|c| c.is_like(&case)) {
                Some(known) => known.latency |= case.latency,
                None => same.cases.push(case),
            }
        }
    }
    all.iter_mut().for_each(|layout| order(&mut layout.cases));
    all
}

/// Orders cases so that installed rules and megaflows can stay: more and more flows with a rule
/// each, then the rest.
fn order(cases: &mut [Case]) {
    cases.sort_by_key(|case| match case.rules {
        Rules::OneToOne(flows) => flows,
        _ => u32::MAX,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ALL;

    #[test]
    fn installed_rules_can_stay() {
        let layouts: Vec<Layout> = ALL.iter().flat_map(|e| (e.frames)(true)).collect();
        let count = layouts.iter().map(|layout| layout.cases.len()).sum::<usize>();
        let all = union(layouts);
        assert_eq!(
            all.iter().map(|l| l.receiver).collect::<Vec<_>>(),
            [Remote::Card, Remote::Container]
        );
        // One flow is in three experiments.
        assert_eq!(all.iter().map(|layout| layout.cases.len()).sum::<usize>(), count - 2);
        let ordered = &all[0].cases;
        let exact = ordered.iter().take_while(|c| matches!(c.rules, Rules::OneToOne(_)));
        let flows: Vec<u32> = exact.map(|c| c.flows).collect();
        assert!(flows.is_sorted() && flows.len() > 50, "{flows:?}");
        let mut rest = ordered.iter().skip(flows.len()).peekable();
        assert!(rest.peek().is_some());
        assert!(rest.all(|c| !matches!(c.rules, Rules::OneToOne(_))));
    }
}
