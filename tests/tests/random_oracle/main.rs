//! Random configurations and packets, given to Slipswitch and to Debian's `ovs-vswitchd`: all
//! that can be seen of both must be the same.
//!
//! The default run has fixed seeds. A long one, by hand, from any seed on:
//!
//! ```text
//! ORACLE_SEED=1 ORACLE_SECONDS=3600 cargo test -p slipswitch-tests --test random_oracle -- --ignored --nocapture
//! ```
//!
//! `ORACLE_SEED=N ORACLE_CASES=1` plays the case of one seed again. A case that differs is made
//! small and printed as a script for `tests/tests/oracle`.

mod case;
mod controller;
mod generate;
mod known;
mod player;
mod shrink;
mod wire;

use case::{Case, Step};
use generate::left_out::LEFT_OUT;
use player::{Broken, Player, Seen};
use slipswitch_tests::harness::{Kind, without_tool};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Cases of the default run, as far as it gets with them.
const CASES: u64 = 100;
/// Packets of a case.
const PACKETS: usize = 60;
/// Tries to make a failing case smaller.
const SHRINKS: usize = 400;
/// Differences after which a run ends.
const ENOUGH: usize = 20;

/// Both switches.
struct Pair {
    real: Player,
    ours: Player,
    /// How often each known difference was met.
    known: Vec<u64>,
}

impl Pair {
    fn new() -> Pair {
        let (real, ours) = (Player::new(Kind::RealOvs), Player::new(Kind::under_test()));
        Pair { real, ours, known: vec![0; known::KNOWN.len()] }
    }

    /// Plays a case on both: what differs, empty when nothing does.
    ///
    /// OVS tells controllers of a flow that is gone when its threads have come to rest, which may
    /// be after all was asked for: where only that is missing, once is not enough.
    fn play(&mut self, case: &Case) -> String {
        let mut text = self.play_once(case);
        for _ in 0..2 {
            if !subject(&text).starts_with("sent to controllers") {
                break;
            }
            text = self.play_once(case);
        }
        text
    }

    fn play_once(&mut self, case: &Case) -> String {
        let Pair { real, ours, .. } = self;
        let (a, b) = std::thread::scope(|scope| {
            let a = scope.spawn(|| real.play(case));
            (ours.play(case), a.join())
        });
        let (b, a) = (a, b.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        match (a, b) {
            (Ok(a), Ok(b)) => self.difference(case, &a, &b),
            (a, b) => {
                let text = format!("{}{}", end("Open vSwitch", a), end("Slipswitch", b))
                    + &self.real.story()
                    + &self.ours.story();
                let known = std::mem::take(&mut self.known);
                let old = std::mem::replace(self, Pair { known, ..Pair::new() });
                // That a daemon has crashed is in the text.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(old)));
                text
            }
        }
    }

    fn difference(&mut self, case: &Case, real: &[Seen], ours: &[Seen]) -> String {
        let mut out = String::new();
        for (real, ours) in real.iter().zip(ours) {
            let (a, b) = known::even(real, ours, &mut self.known);
            if a != b {
                let _ = writeln!(out, "{}:\n- {}\n+ {}", real.of, a.trim_end(), b.trim_end());
            }
        }
        if real.len() != ours.len() {
            let _ = writeln!(out, "{} and {} things were seen", real.len(), ours.len());
        }
        if !out.is_empty() {
            let _ = writeln!(out, "burst: {}", case.burst);
        }
        out
    }
}

/// What differs first.
fn subject(difference: &str) -> String {
    let first = difference.lines().next().unwrap_or_default();
    first.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn end(who: &str, played: Result<Vec<Seen>, Broken>) -> String {
    match played {
        Ok(_) => String::new(),
        Err(Broken(why)) => format!("{who} does not answer: {why}\n"),
    }
}

/// What a run did.
#[derive(Debug, Default)]
struct Figures {
    cases: u64,
    packets: u64,
    changes: u64,
    reports: Vec<String>,
}

/// Cases from `seed` on, until there are `cases` of them or the time is over.
fn run(seed: u64, cases: u64, time: Duration) -> Figures {
    let mut pair = Pair::new();
    let mut figures = Figures::default();
    let mut left_out = vec![0; LEFT_OUT.len()];
    let start = Instant::now();
    for seed in seed.. {
        if figures.cases >= cases || start.elapsed() > time || figures.reports.len() >= ENOUGH {
            break;
        }
        let case = generate::case(seed, PACKETS);
        figures.cases += 1;
        left_out.iter_mut().zip(&case.left_out).for_each(|(all, n)| *all += n);
        let count = |what: fn(&Step) -> bool| case.steps.iter().filter(|s| what(s)).count() as u64;
        figures.packets += count(|s| matches!(s, Step::Packet { .. }));
        figures.changes += count(|s| s.message(0).is_some());
        let first = pair.play(&case);
        if first.is_empty() {
            continue;
        }
        // The same thing has to differ, lest another difference is found in its place.
        let of = subject(&first);
        let small = shrink::shrink(&case, SHRINKS, |case| subject(&pair.play(case)) == of);
        let text = pair.play(&small);
        let text = if text.is_empty() { format!("not every time: {first}") } else { text };
        let report = format!(
            "seed {seed}:\n{}\n- is Open vSwitch, + is Slipswitch:\n{text}",
            small.script()
        );
        eprintln!("{report}");
        figures.reports.push(report);
    }
    for (known, count) in known::KNOWN.iter().zip(&pair.known) {
        eprintln!("{}: {count} times ({})", known.name, known.reason);
    }
    for (kind, count) in LEFT_OUT.iter().zip(&left_out) {
        eprintln!("left out {count} times: {} ({})", kind.name, kind.reason);
    }
    eprintln!(
        "{} configurations, {} changes of tables, {} packets in {:?}: {} differences",
        figures.cases,
        figures.changes,
        figures.packets,
        start.elapsed(),
        figures.reports.len()
    );
    figures
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("${variable} is a number, not {text}")))
}

fn absent() -> bool {
    without_tool(&["ovs-vswitchd", "ovsdb-server", "ovs-vsctl"])
}

#[test]
fn fixed_seeds() {
    if absent() {
        return;
    }
    let seed = number("ORACLE_SEED").unwrap_or(1);
    let figures = run(seed, number("ORACLE_CASES").unwrap_or(CASES), Duration::from_secs(90));
    assert!(figures.reports.is_empty(), "{}", figures.reports.join("\n"));
}

#[test]
#[ignore = "takes as long as $ORACLE_SECONDS says"]
fn many_seeds() {
    if absent() {
        return;
    }
    let seed = number("ORACLE_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    eprintln!("from seed {seed} on");
    let time = Duration::from_secs(number("ORACLE_SECONDS").unwrap_or(900));
    let figures = run(seed, number("ORACLE_CASES").unwrap_or(u64::MAX), time);
    assert!(figures.reports.is_empty(), "{}", figures.reports.join("\n"));
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
