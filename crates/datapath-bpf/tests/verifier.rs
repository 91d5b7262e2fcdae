// SPDX-License-Identifier: Apache-2.0
//! Measures the cost of the programs in this kernel's verifier. Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use datapath_bpf::layout::{HOT_WORDS, NEEDS_L3, word};
use datapath_bpf::load::{self, Hook};
use datapath_bpf::maps::Sizes;
use datapath_bpf::settings::VariantSettings;
use datapath_bpf::{Config, hash, sys};

/// The verifier gives up after a million; what a program costs differs between kernels, so a
/// program that is near the limit on one is beyond it on another.
const MOST: u64 = 500_000;

/// Returns the number of instructions that the verifier has processed, which Linux reports since
/// 5.16.
fn verified(program: &OwnedFd) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().find_map(|l| l.strip_prefix("verified_insns:")?.trim().parse().ok())
}

#[test]
fn loads_every_program_far_below_the_verifiers_limit() {
    if testing::without_root() {
        return;
    }
    let config = Config { max_flows: 1024, ..Config::default() };
    let sizes = Sizes::new(&config, sys::possible_cpus().unwrap());
    let full = VariantSettings::full(&sizes, &hash::factors(), 1, load::have_frags());
    for (hook, shards_atomic) in [(Hook::Tc, 0), (Hook::Xdp, 0), (Hook::Tc, 1), (Hook::Xdp, 1)] {
        let settings = VariantSettings { shards_atomic, ..full };
        for name in hook.programs() {
            let start = Instant::now();
            let loaded = load::load(hook, Some(name), &settings, &sizes, &HashMap::new())
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let took = start.elapsed();
            let count = verified(&loaded.program(name).unwrap());
            eprintln!(
                "{name}, {shards_atomic}: {count:?} instructions verified, loaded in {took:?}"
            );
            assert!(count.is_none_or(|n| n < MOST), "{name}: {count:?}");
        }
        let start = Instant::now();
        load::load(hook, None, &settings, &sizes, &HashMap::new()).unwrap();
        eprintln!("{hook:?}: all loaded in {:?}", start.elapsed());
    }
}

/// Programs of flows without NSH do not have its parser.
#[test]
fn lookups_without_nsh_do_not_parse_it() {
    if testing::without_root() {
        return;
    }
    let config = Config { max_flows: 1024, ..Config::default() };
    let sizes = Sizes::new(&config, sys::possible_cpus().unwrap());
    let hot = ((1 << HOT_WORDS) - 1) | NEEDS_L3;
    let ipv6 = hot | 1 << word::SRC0 | 1 << word::SRC1 | 1 << word::DST0 | 1 << word::DST1;
    for hook in [Hook::Tc, Hook::Xdp] {
        let [plain, with_ipv6, with_nsh] =
            [hot, ipv6, hot | 1 << word::ND0].map(|needs| lookup_bytes(hook, needs, &sizes));
        eprintln!("{hook:?}: {plain} bytes, with IPv6 {with_ipv6}, with NSH {with_nsh}");
        assert!(plain < with_ipv6 && plain < with_nsh);
    }
}

/// Returns the bytes of the lookup program for flows that need these words.
fn lookup_bytes(hook: Hook, needs: u64, sizes: &Sizes) -> u32 {
    let mut settings = VariantSettings::full(sizes, &hash::factors(), 1, load::have_frags());
    (settings.needs, settings.features) = (needs, 0);
    let name = if hook == Hook::Tc { "lookup_tc" } else { "lookup_xdp" };
    let loaded = load::load(hook, Some(name), &settings, sizes, &HashMap::new()).unwrap();
    sys::program_bytes(loaded.program(name).unwrap().as_fd()).unwrap()
}
