// SPDX-License-Identifier: Apache-2.0
//! Which points an experiment has.

use crate::generator::{SIZES, Stream};
use crate::peer::{Rules, System};
use crate::point::{Parameters, Value};
use crate::topology::Far;

/// Frame sizes of the grid.
const GRID_SIZES: [u32; 8] = [SIZES[0], 128, 256, 512, 768, 1024, 1280, SIZES[1]];
/// Numbers of flows of the grid.
const GRID_FLOWS: [u32; 7] = [1, 16, 256, 1 << 10, 1 << 14, 1 << 16, 1 << 18];
/// The grid's choice of flows when there is little time; the first also with the largest frames.
const GRID_CHOICE: [u32; 3] = [1, 1 << 16, 1 << 18];
/// Numbers of flows of the comparison by flows, all and a choice.
const FLOWS: [u32; 7] = [1, 10, 100, 300, 1000, 3000, 10_000];
const FLOWS_CHOICE: [u32; 3] = [1, 100, 10_000];

/// Flows that are spread over masks: more than Open vSwitch's exact-match cache holds.
const MASKED: u32 = 1 << 14;
/// Numbers of masks, all and a choice.
const MASKS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MASKS_CHOICE: [u32; 3] = [1, 16, 256];

/// A way to put a system between, and what is measured there.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Only systems that take rules.
    pub by_rules: bool,
    /// What is behind the second port.
    pub receiver: Far,
    /// Cases of the same rules stand together.
    pub cases: Vec<Case>,
}

/// One choice of parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The system's rules.
    pub rules: Rules,
    /// Flows that take turns.
    pub flows: u32,
    /// Bytes of each frame.
    pub size: u32,
    /// Latency is measured, too.
    pub delays: bool,
    /// For the report.
    pub parameters: Parameters,
}

impl Layout {
    /// True when a system is to be measured so.
    pub fn suits(&self, system: System) -> bool {
        !self.by_rules || system.has_rules()
    }
}

impl Case {
    /// True when what is measured for it is all that `other` asks for.
    pub fn stands_for(&self, other: &Case) -> bool {
        let traffic = |case: &Case| (case.rules, case.flows, case.size);
        traffic(self) == traffic(other) && (self.delays || !other.delays)
    }

    /// Its frames as fast as possible.
    pub fn flood(&self) -> Stream {
        Stream { size: self.size, ..Stream::flood(self.flows) }
    }

    /// What matters to the generator alone.
    pub fn choice(&self) -> (u32, u32) {
        (self.flows, self.size)
    }

    fn by_size(flows: u32, size: u32, full: bool) -> Case {
        let parameters = [("size", u64::from(size).into()), ("flows", u64::from(flows).into())];
        let rules = Rules::OneToOne(flows);
        let delays = full || size == SIZES[0];
        Case { rules, flows, size, delays, parameters: named(parameters) }
    }

    fn by_rules(flows: u32, rules: Rules) -> Case {
        let parameters = [("rules", rules.name().into()), ("flows", u64::from(flows).into())];
        Case { rules, flows, size: SIZES[0], delays: false, parameters: named(parameters) }
    }

    fn by_masks(masks: u32) -> Case {
        let parameters = named([("masks", u64::from(masks).into())]);
        let rules = Rules::Masks(MASKED, masks);
        Case { rules, flows: MASKED, size: SIZES[0], delays: false, parameters }
    }

    fn by_way(receiver: Far) -> Case {
        let way = format!("{} to {}", Far::Card.name(), receiver.name());
        let parameters = named([("way", way.as_str().into())]);
        let rules = Rules::OneToOne(1);
        Case { rules, flows: 1, size: SIZES[0], delays: true, parameters }
    }
}

fn named<const N: usize>(parameters: [(&str, Value); N]) -> Parameters {
    parameters.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Between cards.
fn between_cards(cases: Vec<Case>) -> Vec<Layout> {
    vec![Layout { by_rules: false, receiver: Far::Card, cases }]
}

/// The cases of an experiment, by its name; none when it has no such cases.
pub fn of(experiment: &str, full: bool) -> Vec<Layout> {
    match experiment {
        "grid" => grid(full),
        "flows" => flows(full),
        "masks" => masks(full),
        "one-flow" => one_flow(),
        _ => Vec::new(),
    }
}

/// In an order in which rules and megaflows that are there can stay: more and more flows with a
/// rule each, then the rest.
pub fn in_order(mut cases: Vec<Case>) -> Vec<Case> {
    cases.sort_by_key(|case| match case.rules {
        Rules::OneToOne(flows) => flows,
        _ => u32::MAX,
    });
    cases
}

/// All of the grid, or a choice.
pub fn grid(full: bool) -> Vec<Layout> {
    let flows: &[u32] = if full { &GRID_FLOWS } else { &GRID_CHOICE };
    let sizes = |number: u32| -> &[u32] {
        match (full, flows.first() == Some(&number)) {
            (true, _) => &GRID_SIZES,
            (false, true) => &SIZES,
            (false, false) => &SIZES[..1],
        }
    };
    let row = |flows: &u32| -> Vec<Case> {
        sizes(*flows).iter().map(|size| Case::by_size(*flows, *size, full)).collect()
    };
    between_cards(flows.iter().flat_map(row).collect())
}

/// Numbers of flows with a rule each; in full also with one rule for all.
pub fn flows(full: bool) -> Vec<Layout> {
    let flows: &[u32] = if full { &FLOWS } else { &FLOWS_CHOICE };
    let exact = flows.iter().map(|n| Case::by_rules(*n, Rules::OneToOne(*n)));
    let prefix = flows.iter().filter(|_| full).map(|n| Case::by_rules(*n, Rules::Prefix));
    between_cards(exact.chain(prefix).collect())
}

/// Numbers of masks.
pub fn masks(full: bool) -> Vec<Layout> {
    let masks: &[u32] = if full { &MASKS } else { &MASKS_CHOICE };
    let layouts = between_cards(masks.iter().copied().map(Case::by_masks).collect());
    layouts.into_iter().map(|layout| Layout { by_rules: true, ..layout }).collect()
}

/// One flow between cards.
pub fn half() -> Layout {
    let rules = Rules::OneToOne(1);
    let parameters = Parameters::new();
    let case = Case { rules, flows: 1, size: SIZES[0], delays: true, parameters };
    Layout { by_rules: false, receiver: Far::Card, cases: vec![case] }
}

/// To a card and to a container.
pub fn one_flow() -> Vec<Layout> {
    let layout =
        |receiver| Layout { by_rules: false, receiver, cases: vec![Case::by_way(receiver)] };
    [Far::Card, Far::Container].map(layout).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_has_56_points_and_a_choice_is_part_of_it() {
        let cells = |full| -> Vec<_> {
            grid(full).iter().flat_map(|l| l.cases.iter().map(|c| (c.flows, c.size))).collect()
        };
        let (all, choice) = (cells(true), cells(false));
        assert_eq!(all.len(), 56);
        assert!(choice.iter().all(|cell| all.contains(cell)));
        // Goals are about these.
        for flows in [1, 1 << 16, 1 << 18] {
            assert!(choice.contains(&(flows, 64)));
        }
    }

    #[test]
    fn rules_that_are_there_can_stay() {
        let all: Vec<Case> = ["masks", "grid", "flows"]
            .into_iter()
            .flat_map(|name| of(name, true))
            .flat_map(|layout| layout.cases)
            .collect();
        let count = all.len();
        let ordered = in_order(all);
        assert_eq!(ordered.len(), count);
        let exact = ordered.iter().take_while(|c| matches!(c.rules, Rules::OneToOne(_)));
        let flows: Vec<u32> = exact.map(|c| c.flows).collect();
        assert!(flows.is_sorted() && flows.len() > 50, "{flows:?}");
        let rest = ordered.iter().skip(flows.len());
        assert!(rest.clone().count() > 0);
        assert!(rest.into_iter().all(|c| !matches!(c.rules, Rules::OneToOne(_))));
    }
}
