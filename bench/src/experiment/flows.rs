// SPDX-License-Identifier: Apache-2.0
//! Rate and CPU by the number of flows.

use super::Experiment;
use super::frames::{self, Case, FRAMES, Layout};
use crate::point::parameters;
use crate::rules::Rules;

/// The experiment.
pub const FLOWS: Experiment = Experiment {
    name: "flows",
    title: "Rate and CPU by the number of flows",
    about: "The smallest frames, measured as above. CPU is that of everything that moves packets, \
            in percent of one CPU, including the generator, which is never idle here.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), packets a second and %CPU \
              against 1 to 10 K flows",
    shown: &["rate", "rate per core", "CPU"],
    long: false,
    across: Some("flows"),
    more: "7 numbers of flows, also with one rule for all of them",
    why: FRAMES,
    seconds: [1, 1],
    frames: layouts,
    run: frames::run,
};

const ALL: [u32; 7] = [1, 10, 100, 300, 1000, 3000, 10_000];
const SOME: [u32; 3] = [1, 100, 10_000];

/// A rule for each flow; a full run also has one rule for all flows.
fn layouts(full: bool) -> Vec<Layout> {
    let case = |flows: u32, rules: Rules| Case {
        parameters: parameters([("rules", rules.name().into()), ("flows", flows.into())]),
        ..Case::new(flows, rules)
    };
    let numbers: &[u32] = if full { &ALL } else { &SOME };
    let exact = numbers.iter().map(|n| case(*n, Rules::OneToOne(*n)));
    let prefix = numbers.iter().filter(|_| full).map(|n| case(*n, Rules::Prefix));
    vec![Layout::between_cards(exact.chain(prefix).collect())]
}
