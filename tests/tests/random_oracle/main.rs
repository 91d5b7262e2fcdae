// SPDX-License-Identifier: Apache-2.0
//! Random configurations and packets, given to Slipswitch and to Debian's `ovs-vswitchd`.
//! Everything that can be observed must be the same.
//!
//! The default run has fixed seeds. A long one, by hand, from any seed on:
//!
//! ```text
//! ORACLE_SEED=1 ORACLE_SECONDS=3600 cargo test -p slipswitch-tests --test random_oracle -- --ignored --nocapture
//! ```
//!
//! `ORACLE_TIER` is the tier of Slipswitch's ports: `userspace` (the default), `tcx` or `xdp`. At a
//! BPF tier each packet is sent twice, and the second must be forwarded at that tier if its
//! megaflows are there. `ORACLE_PACKETS` is the number of packets of a configuration,
//! `ORACLE_PAIRS` the number of pairs of daemons that play cases in parallel (by default, the
//! number of CPUs).
//!
//! Where only columns differ, the next case gets the same bridges, emptied. A case after one that
//! differed, and some others, get new bridges. `ORACLE_SEED=N ORACLE_CASES=1` plays the case of one
//! seed again, on new bridges. A case that differs is made small and printed as a script for
//! `tests/tests/oracle`.

mod case;
mod controller;
mod database;
mod devices;
mod generate;
mod ground;
mod known;
mod outer;
mod pair;
mod player;
mod profile;
mod run;
mod setting;
mod shown;
mod shrink;
mod wire;

use case::Step;
use datapath::Tier;
use ground::Ground;
use run::{Figures, Plan};
use slipswitch_tests::harness::{without_privilege, without_tool};
use std::time::Duration;

/// Cases of the default run, as far as it gets with them.
const CASES: u64 = 100;
/// Cases of the default run at each BPF tier, likewise.
const CASES_AT_TIER: u64 = 30;
/// Packets of a case.
const PACKETS: usize = 60;
/// Reported differences, at most three of a kind, after which a run ends.
const ENOUGH: usize = 20;

impl Plan {
    /// The plan from the environment, else `cases` cases from `seed` on, within that time.
    fn new(ground: Ground, seed: u64, cases: u64, time: Duration) -> Plan {
        Plan {
            ground,
            seed: number("ORACLE_SEED").unwrap_or(seed),
            cases: number("ORACLE_CASES").unwrap_or(cases),
            packets: number("ORACLE_PACKETS").map_or(PACKETS, |n| n as usize),
            pairs: number("ORACLE_PAIRS").map_or_else(cpus, |n| n as usize),
            time,
            enough: number("ORACLE_ENOUGH").map_or(ENOUGH, |n| n as usize),
        }
    }

    /// True, after saying so, when that cannot be done here.
    fn is_impossible(&self) -> bool {
        let devices = ["ip", "ethtool", "nsenter"];
        without_tool(&["ovs-vswitchd", "ovsdb-server", "ovs-vsctl"])
            || self.ground != Ground::Dummies && (without_privilege() || without_tool(&devices))
    }

    /// Runs it; what differs makes the test fail, but for a little that does so once only.
    fn check(self) -> Figures {
        let figures = run::run(self);
        assert!(figures.reports.is_empty(), "{}", figures.reports.join("\n"));
        assert!(!figures.is_unsteady(), "too often, not each time:\n{}", figures.once.join("\n"));
        figures
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("${variable} is a number, not {text}")))
}

fn at_a_tier(tier: Tier) {
    let time = Duration::from_secs(25);
    let plan = Plan::new(Ground::Devices(tier), 1, CASES_AT_TIER, time);
    if plan.is_impossible() {
        return;
    }
    if let Some(ran) = plan.check().ran {
        assert!(ran.in_bpf > ran.again / 8, "hardly any packet was forwarded there: {ran:?}");
    }
}

#[test]
fn fixed_seeds() {
    let plan = Plan::new(Ground::Dummies, 1, CASES, Duration::from_secs(90));
    if !plan.is_impossible() {
        plan.check();
    }
}

#[test]
fn fixed_seeds_at_tcx() {
    at_a_tier(Tier::Tcx);
}

#[test]
fn fixed_seeds_at_xdp() {
    at_a_tier(Tier::Xdp);
}

#[test]
#[ignore = "takes as long as $ORACLE_SECONDS says"]
fn many_seeds() {
    let name = std::env::var("ORACLE_TIER").unwrap_or_else(|_| "userspace".to_owned());
    let ground = Ground::parse(&name)
        .unwrap_or_else(|| panic!("$ORACLE_TIER is userspace, tcx or xdp, not {name}"));
    let time = Duration::from_secs(number("ORACLE_SECONDS").unwrap_or(900));
    let plan = Plan::new(ground, fastrand::u64(..1 << 40), u64::MAX, time);
    if plan.is_impossible() {
        return;
    }
    eprintln!("from seed {} on", plan.seed);
    plan.check();
}

/// Every action and field that there is turns up in cases.
#[test]
fn everything_is_generated() {
    let mut kinds = [0u32; generate::actions::KINDS];
    let mut fields = std::collections::BTreeSet::new();
    for seed in 0..600 {
        for step in generate::case(seed, 0).steps {
            let Step::Flow { change, .. } = step else { continue };
            change.actions.iter().for_each(|a| kinds[generate::actions::kind(a)] += 1);
            fields.extend(flow::Field::ALL.into_iter().filter(|f| !change.matching.is_any(*f)));
        }
    }
    let missing: Vec<usize> = (0..kinds.len()).filter(|n| kinds[*n] == 0).collect();
    assert!(missing.is_empty(), "kinds of actions: {missing:?}");
    let missing: Vec<flow::Field> = flow::Field::ALL
        .into_iter()
        .filter(|f| !generate::matches::is_left_out(*f) && !fields.contains(f))
        .collect();
    assert!(missing.is_empty(), "fields: {missing:?}");
}
