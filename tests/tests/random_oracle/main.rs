//! Random configurations and packets, given to Slipswitch and to Debian's `ovs-vswitchd`: all
//! that can be seen of both must be the same.
//!
//! The default run has fixed seeds. A long one, by hand, from any seed on:
//!
//! ```text
//! ORACLE_SEED=1 ORACLE_SECONDS=3600 cargo test -p slipswitch-tests --test random_oracle -- --ignored --nocapture
//! ```
//!
//! `ORACLE_TIER` is `userspace` (which is the default), `tcx` or `xdp`: where Slipswitch's ports
//! are. At a BPF tier each packet is sent twice, and the second must be forwarded there if its
//! megaflows are. `ORACLE_PACKETS` is how many packets a configuration gets.
//!
//! `ORACLE_SEED=N ORACLE_CASES=1` plays the case of one seed again. A case that differs is made
//! small and printed as a script for `tests/tests/oracle`.

mod case;
mod controller;
mod devices;
mod generate;
mod ground;
mod known;
mod pair;
mod player;
mod shown;
mod shrink;
mod wire;

use case::{Case, Step};
use datapath::Tier;
use generate::left_out::LEFT_OUT;
use ground::{BEYOND, Ground};
use pair::{Outcome, Pair, subject};
use slipswitch_tests::harness::{without_privilege, without_tool};
use std::time::{Duration, Instant};

/// Cases of the default run, as far as it gets with them.
const CASES: u64 = 100;
/// Cases of the default run at each BPF tier, likewise.
const CASES_AT_TIER: u64 = 30;
/// Packets of a case.
const PACKETS: usize = 60;
/// Tries to make a failing case smaller; fewer where each try costs a daemon.
const SHRINKS: usize = 400;
const COSTLY_SHRINKS: usize = 60;
/// Differences after which a run ends.
const ENOUGH: usize = 20;

/// What to run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    ground: Ground,
    seed: u64,
    cases: u64,
    packets: usize,
    time: Duration,
}

impl Plan {
    /// As the environment says, else from `seed` on, so many cases in that time.
    fn new(ground: Ground, seed: u64, cases: u64, time: Duration) -> Plan {
        Plan {
            ground,
            seed: number("ORACLE_SEED").unwrap_or(seed),
            cases: number("ORACLE_CASES").unwrap_or(cases),
            packets: number("ORACLE_PACKETS").map_or(PACKETS, |n| n as usize),
            time,
        }
    }

    /// True, after saying so, when that cannot be done here.
    fn is_impossible(&self) -> bool {
        let devices = ["ip", "ethtool", "nsenter"];
        without_tool(&["ovs-vswitchd", "ovsdb-server", "ovs-vsctl"])
            || self.ground != Ground::Dummies && (without_privilege() || without_tool(&devices))
    }

    /// Runs it; what differs makes the test fail.
    fn run(self) -> Figures {
        let figures = run(self);
        assert!(figures.reports.is_empty(), "{}", figures.reports.join("\n"));
        figures
    }
}

/// What a run did.
#[derive(Debug, Default)]
struct Figures {
    cases: u64,
    packets: u64,
    changes: u64,
    reports: Vec<String>,
    /// Cases by which Open vSwitch's daemon crashed.
    crashes: Vec<u64>,
    ran: Option<wire::Ran>,
}

fn run(plan: Plan) -> Figures {
    let mut pair = Pair::new(plan.ground);
    let mut figures = Figures::default();
    let mut left_out = vec![0; LEFT_OUT.len()];
    let mut beyond = vec![0; BEYOND.len()];
    let start = Instant::now();
    for seed in plan.seed.. {
        let is_over = figures.cases >= plan.cases || start.elapsed() > plan.time;
        if is_over || figures.reports.len() >= ENOUGH {
            break;
        }
        let (case, not_here) = plan.ground.fit(generate::case(seed, plan.packets));
        figures.cases += 1;
        left_out.iter_mut().zip(&case.left_out).for_each(|(all, n)| *all += n);
        beyond.iter_mut().zip(not_here).for_each(|(all, n)| *all += n);
        let count = |what: fn(&Step) -> bool| case.steps.iter().filter(|s| what(s)).count() as u64;
        figures.packets += count(|s| matches!(s, Step::Packet { .. })) * plan.ground.times() as u64;
        figures.changes += count(|s| s.message(0).is_some());
        let (difference, crash) = examine(&mut pair, &case);
        if let Some(text) = crash {
            eprintln!("seed {seed}: Open vSwitch's own daemon crashes {text}");
            figures.crashes.push(seed);
        }
        if let Some(text) = difference {
            let report = format!("seed {seed}:\n{text}");
            eprintln!("{report}");
            figures.reports.push(report);
        }
    }
    figures.ran = pair.ran();
    for (who, spent) in ["Open vSwitch", "Slipswitch"].iter().zip(pair.spent()) {
        eprintln!("time of {who}: {spent:?}");
    }
    for (known, count) in known::KNOWN.iter().zip(&pair.known) {
        eprintln!("{}: {count} times ({})", known.name, known.reason);
    }
    let kinds = LEFT_OUT.iter().map(|k| (k.name, k.reason)).zip(left_out);
    let kinds = kinds.chain(BEYOND.iter().map(|k| (k.name, k.reason)).zip(beyond));
    for ((name, reason), count) in kinds.filter(|(_, count)| *count > 0) {
        eprintln!("left out {count} times: {name} ({reason})");
    }
    eprintln!(
        "{}: {} configurations, {} changes of tables, {} packets in {:?}: {} differences; crashes of \
         Open vSwitch: {:?}; {:?}",
        plan.ground.name(),
        figures.cases,
        figures.changes,
        figures.packets,
        start.elapsed(),
        figures.reports.len(),
        figures.crashes,
        figures.ran,
    );
    figures
}

/// Plays a case, and makes it small if it shows something: what differs, and how Open vSwitch
/// crashes by it.
fn examine(pair: &mut Pair, case: &Case) -> (Option<String>, Option<String>) {
    let mut crash = None;
    let mut outcome = pair.play(case);
    if let Outcome::OracleCrashed(words) = outcome {
        crash = Some(format!("behind the cases before it:\n{words}"));
        outcome = pair.play(case);
    }
    match outcome {
        Outcome::Same => (None, crash),
        Outcome::OracleCrashed(words) => {
            let crashes = |case: &Case| matches!(pair.play(case), Outcome::OracleCrashed(_));
            let small = shrink::shrink(case, COSTLY_SHRINKS, crashes);
            (None, Some(format!("each time:\n{}\n{words}", small.script())))
        }
        Outcome::Differs(text) => (Some(made_small(pair, case, text)), crash),
    }
}

/// The smallest case found that differs in the same thing as `first` says, lest another difference
/// is found in its place.
fn made_small(pair: &mut Pair, case: &Case, first: String) -> String {
    let of = subject(&first);
    eprintln!("{of} differs; a smaller case is looked for");
    let is_the_same = |outcome: Outcome| match outcome {
        Outcome::Differs(text) => subject(&text) == of,
        _ => false,
    };
    let small = shrink::shrink(case, SHRINKS, |case| is_the_same(pair.play(case)));
    let text = match pair.play(&small) {
        Outcome::Differs(text) => text,
        _ => format!("not every time; all of it was\n{}\n{first}", case.script()),
    };
    format!("{}\n- is Open vSwitch, + is Slipswitch:\n{text}", small.script())
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
    if let Some(ran) = plan.run().ran {
        assert!(ran.in_bpf > ran.again / 8, "hardly any packet was forwarded there: {ran:?}");
    }
}

#[test]
fn fixed_seeds() {
    let plan = Plan::new(Ground::Dummies, 1, CASES, Duration::from_secs(90));
    if !plan.is_impossible() {
        plan.run();
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
    plan.run();
}

/// Every action and field that there is turns up in cases.
#[test]
fn everything_is_generated() {
    let mut kinds = [0u32; generate::actions::KINDS];
    let mut fields = std::collections::BTreeSet::new();
    for seed in 0..400 {
        for step in generate::case(seed, 0).steps {
            let Step::Flow { change, .. } = step else { continue };
            change.actions.iter().for_each(|a| kinds[generate::actions::kind(a)] += 1);
            fields.extend(flow::Field::ALL.into_iter().filter(|f| !change.matching.is_any(*f)));
        }
    }
    let missing: Vec<usize> = (0..kinds.len()).filter(|n| kinds[*n] == 0).collect();
    assert!(missing.is_empty(), "kinds of actions: {missing:?}");
    let missing: Vec<flow::Field> =
        flow::Field::ALL.into_iter().filter(|f| !fields.contains(f)).collect();
    assert!(missing.is_empty(), "fields: {missing:?}");
}
