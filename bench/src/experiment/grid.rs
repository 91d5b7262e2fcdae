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
    about: "The generator's frames arrive on one port and leave by another, as fast as the \
            generator can send, with an OpenFlow rule for each flow (port and 5-tuple). Flows \
            take turns in random order. Ports stand for network cards. Frames are counted at the \
            sink. The rate is per second of time; the rate per core is per second of CPU time of \
            everything that moves packets, including the generator. The generator and the \
            kernel's part of receiving frames share one CPU; daemons have the other. In turn with \
            every system, the bare generator sends the same frames into the sink without a \
            switch: no system can be faster. The bare XDP lookup is the limit of a switch with \
            flows: it finds 16 bytes of a flow by the flow's number and counts in them, so with \
            many flows it waits for memory as every switch does. Rules are added in one bundle. \
            Nothing is measured before each flow has its megaflow; a note says where some are \
            missing. Latency is measured with 100,000 frames a second at an even pace, from the \
            generator to the sink. With one flow it is measured in turns of 50 ms with the bare \
            XDP redirect, and its ratio is to that: a shared machine may be twice as fast a \
            second later. Bytes include Ethernet's checksum.",
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
