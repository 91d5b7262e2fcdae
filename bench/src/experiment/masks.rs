// SPDX-License-Identifier: Apache-2.0
//! Rate by the number of megaflow masks.

use super::Experiment;
use super::frames::{self, Case, FRAMES, Layout};
use crate::point::parameters;
use crate::rules::Rules;

/// The experiment.
pub const MASKS: Experiment = Experiment {
    name: "masks",
    title: "Rate by the number of masks",
    about: "The smallest frames of 16,384 flows, measured as above. Their megaflows have this \
            many different masks; each flow has a megaflow of its own. There are more flows than \
            Open vSwitch's exact-match cache holds. Its signature match cache is enabled, so that \
            most packets do not search all masks. The exact-match cache of Slipswitch's BPF \
            datapath holds all flows.",
    repeats: "none of the papers' tables; *Faster OVS Datapath with XDP* has a hash table for \
              each mask",
    shown: &["rate", "rate per core"],
    long: false,
    across: Some("masks"),
    more: "9 numbers of masks",
    why: FRAMES,
    seconds: [1, 1],
    frames: layouts,
    run: frames::run,
};

/// Flows that are spread over the masks: more than Open vSwitch's exact-match cache holds.
const FLOWS: u32 = 1 << 14;
const ALL: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SOME: [u32; 3] = [1, 16, 256];

fn layouts(full: bool) -> Vec<Layout> {
    let numbers: &[u32] = if full { &ALL } else { &SOME };
    let case = |masks: &u32| Case {
        parameters: parameters([("masks", (*masks).into())]),
        ..Case::new(FLOWS, Rules::Masks(FLOWS, *masks))
    };
    vec![Layout::between_cards(numbers.iter().map(case).collect())]
}
