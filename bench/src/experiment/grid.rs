// SPDX-License-Identifier: Apache-2.0
//! Frame sizes by numbers of flows.

use super::Experiment;
use super::frames::{self, Case, FRAMES, Layout};
use crate::generator::SIZES;
use crate::point::parameters;
use crate::rules::Rules;

/// The experiment.
pub const GRID: Experiment = Experiment {
    name: "grid",
    title: "UDP by frame size and number of flows",
    about: "Frames of the generator arrive on one port and leave by another, as fast as the \
            generator can, with an OpenFlow rule for each flow (port and 5-tuple); flows take turns \
            in random order. Ports stand for network cards. Counted is what arrives; the rate is \
            per second of time, the rate per core per second of CPU time of all that moves \
            packets, the generator included. The generator and what the kernel does for arriving \
            frames share one CPU; daemons have the other. The bare generator sends the same frames \
            into the sink without a switch, in turn with every system: that is the limit of all. The \
            limit of whoever has flows is the bare XDP lookup, which finds a flow's 16 bytes by \
            its number and counts: with many flows it waits for memory, as every switch then does. \
            Rules are put in by one bundle, and nothing is measured before each flow has its megaflow; where \
            some are missing, a note says so. Latency is of 100,000 frames a second at an even pace, from the generator to the \
            sink; of one flow it is taken in turn with the bare XDP redirect, which its ratio is to, in turns \
            of 50 ms, because a machine that others use, too, may be twice as fast a second later. \
            Bytes are with Ethernet's checksum.",
    repeats: "*Virtual Switch Acceleration with OVS-TC*, 8 frame sizes by 7 numbers of flows up to \
              256 K, rules 1:1",
    shown: &[
        "rate",
        "throughput",
        "rate per core",
        "loss",
        "latency p50",
        "latency p99",
        "latency p99.9",
    ],
    long: false,
    across: Some("flows"),
    more: "all 8 frame sizes by 7 numbers of flows, and the latency of each",
    why: FRAMES,
    seconds: [420, 3600],
    frames: layouts,
    run: frames::run,
};

const ALL_SIZES: [u32; 8] = [SIZES[0], 128, 256, 512, 768, 1024, 1280, SIZES[1]];
const ALL_FLOWS: [u32; 7] = [1, 16, 256, 1 << 10, 1 << 14, 1 << 16, 1 << 18];
/// Numbers of flows of a short run; it has the first also with the largest frames.
const SOME_FLOWS: [u32; 3] = [1, 1 << 16, 1 << 18];

fn layouts(full: bool) -> Vec<Layout> {
    let flows: &[u32] = if full { &ALL_FLOWS } else { &SOME_FLOWS };
    let sizes = |flows: u32| -> &[u32] {
        match (full, flows) {
            (true, _) => &ALL_SIZES,
            (false, 1) => &SIZES,
            (false, _) => &SIZES[..1],
        }
    };
    let case = |flows: u32, size: u32| Case {
        size,
        latency: full || size == SIZES[0],
        parameters: parameters([("size", size.into()), ("flows", flows.into())]),
        ..Case::new(flows, Rules::OneToOne(flows))
    };
    let row = |flows: &u32| sizes(*flows).iter().map(|size| case(*flows, *size)).collect();
    vec![Layout::between_cards(flows.iter().flat_map::<Vec<Case>, _>(row).collect())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_has_56_points_and_a_short_run_some_of_them() {
        let cells = |full| -> Vec<_> {
            layouts(full).iter().flat_map(|l| l.cases.iter().map(|c| (c.flows, c.size))).collect()
        };
        let (all, some) = (cells(true), cells(false));
        assert_eq!(all.len(), 56);
        assert!(some.iter().all(|cell| all.contains(cell)));
        // Goals are about these.
        for flows in [1, 1 << 16, 1 << 18] {
            assert!(some.contains(&(flows, 64)));
        }
    }
}
