// SPDX-License-Identifier: Apache-2.0
//! Many cases, on several pairs of switches in parallel.

use crate::case::{Case, Step};
use crate::generate::{self, left_out::LEFT_OUT};
use crate::ground::{BEYOND, Ground};
use crate::known;
use crate::pair::{Outcome, Pair, step, subject};
use crate::player::Bridges;
use crate::profile::Profile;
use crate::setting::Setting;
use crate::shrink::{shrink, up_to};
use crate::wire::Ran;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tries to make a failing case smaller; fewer where each try costs a daemon.
const SHRINKS: usize = 400;
const COSTLY_SHRINKS: usize = 60;
/// Reported differences of one kind; further ones are counted.
const OF_A_KIND: usize = 3;
/// Differences in the same thing that are made small, which takes longer than a hundred cases;
/// further ones are counted.
const IN_A_THING: usize = 12;
/// One in this many cases has new bridges, so that making bridges stays under test.
const FRESH: u64 = 50;
/// A run reports its progress after this many cases.
const PROGRESS: u64 = 500;

/// The plan of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kind of the ports.
    pub ground: Ground,
    /// The seed of the first case.
    pub seed: u64,
    /// The maximum number of cases.
    pub cases: u64,
    /// Packets of a case.
    pub packets: usize,
    /// The number of pairs of switches that play cases in parallel.
    pub pairs: usize,
    /// No case begins later.
    pub time: Duration,
    /// Differences after which the run ends.
    pub enough: usize,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Figures {
    cases: u64,
    packets: u64,
    changes: u64,
    /// Differences that occur again on new bridges.
    pub reports: Vec<String>,
    /// Differences that did not occur again: the behaviour of one switch depends on timing, mostly
    /// on when Open vSwitch's threads are idle.
    pub once: Vec<String>,
    /// Seeds by what their small cases are made of.
    kinds: BTreeMap<String, Vec<u64>>,
    /// How often each thing differed.
    things: BTreeMap<String, usize>,
    /// Cases by which Open vSwitch's daemon crashed.
    crashes: Vec<u64>,
    /// Where packets ran that were sent again.
    pub ran: Option<Ran>,
    left_out: Vec<u64>,
    beyond: Vec<u64>,
    known: Vec<u64>,
    profiles: [Profile; 2],
}

/// Plays cases as the plan says, and reports the results.
pub fn run(plan: Plan) -> Figures {
    let start = Instant::now();
    let (next, figures) = (AtomicU64::new(plan.seed), Mutex::new(Figures::default()));
    std::thread::scope(|scope| {
        for _ in 0..plan.pairs.max(1) {
            scope.spawn(|| work(plan, start, &next, &figures));
        }
    });
    let figures = figures.into_inner().unwrap_or_else(PoisonError::into_inner);
    figures.tell(plan, start.elapsed());
    figures
}

/// Plays the cases whose turn it is, until there are no more.
fn work(plan: Plan, start: Instant, next: &AtomicU64, figures: &Mutex<Figures>) {
    let figures = || figures.lock().unwrap_or_else(PoisonError::into_inner);
    // Each shape has a pair of switches, so that bridges can be kept.
    let mut pairs: BTreeMap<Vec<String>, Pair> = BTreeMap::new();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let is_last = seed - plan.seed >= plan.cases || start.elapsed() > plan.time;
        if is_last || figures().reports.len() >= plan.enough {
            break;
        }
        let (case, not_here) = plan.ground.fit(generate::case(seed, plan.packets));
        let pair = pairs.entry(shape(&case)).or_insert_with(|| Pair::new(plan.ground));
        let bridges = if seed.is_multiple_of(FRESH) { Bridges::Fresh } else { Bridges::Kept };
        let is_new = |of: &str| {
            let mut figures = figures();
            let count = figures.things.entry(of.to_owned()).or_default();
            *count += 1;
            *count <= IN_A_THING
        };
        let found = examine(pair, &case, bridges, is_new);
        let mut figures = figures();
        figures.count(plan, &case, &not_here);
        figures.record(seed, found);
        if figures.cases.is_multiple_of(PROGRESS) {
            eprintln!("{} configurations in {:?}", figures.cases, start.elapsed());
        }
    }
    pairs.values().for_each(|pair| figures().add(pair));
}

fn shape(case: &Case) -> Vec<String> {
    let settings = case.steps.iter().filter_map(Step::making);
    Setting::parse(&settings.collect::<Vec<_>>().join(" -- ")).shape
}

/// A difference in a case.
#[derive(Debug)]
struct Difference {
    /// The small case, and what differs.
    text: String,
    /// The kinds of steps and actions of the small case.
    kind: String,
    /// It differs each time.
    comes_again: bool,
}

/// The result of a case.
#[derive(Debug, Default)]
struct Found {
    difference: Option<Difference>,
    /// How Open vSwitch crashes.
    crash: Option<String>,
}

/// Plays a case, and makes it small if it shows something.
fn examine(pair: &mut Pair, case: &Case, bridges: Bridges, is_new: impl Fn(&str) -> bool) -> Found {
    let mut crash = None;
    let mut outcome = pair.play(case, bridges);
    if let Outcome::OracleCrashed(words) = outcome {
        crash = Some(format!("after the earlier cases:\n{words}"));
        outcome = pair.play(case, Bridges::Fresh);
    }
    match outcome {
        Outcome::Same => Found { difference: None, crash },
        Outcome::OracleCrashed(words) => {
            let crashes =
                |case: &Case| matches!(pair.play(case, Bridges::Fresh), Outcome::OracleCrashed(_));
            let small = shrink(case, COSTLY_SHRINKS, crashes);
            let crash = Some(format!("each time:\n{}\n{words}", small.script()));
            Found { difference: None, crash }
        }
        Outcome::Differs(text) => {
            let difference = match is_new(&subject(&text)) {
                true => made_small(pair, case, &text),
                false => {
                    let kind = format!("{} not made small", subject(&text));
                    Difference { text, kind, comes_again: true }
                }
            };
            Found { difference: Some(difference), crash }
        }
    }
}

/// The smallest case found that differs in the same thing as `first` says, lest another difference
/// is found in its place; and of what kind it is. It is looked for on kept bridges, and has to
/// differ on new ones; else it is looked for on those.
fn made_small(pair: &mut Pair, case: &Case, first: &str) -> Difference {
    let of = subject(first);
    eprintln!("{of} differs; a smaller case is looked for");
    let is_the_same = |outcome: &Outcome| match outcome {
        Outcome::Differs(text) => subject(text) == of,
        _ => false,
    };
    let case = &step(first).map_or_else(|| case.clone(), |n| up_to(case, n));
    for bridges in [Bridges::Kept, Bridges::Fresh] {
        let differs =
            |case: &Case| pair.ground.bears(&case.steps) && is_the_same(&pair.play(case, bridges));
        let small = shrink(case, SHRINKS, differs);
        let outcome = pair.play(&small, Bridges::Fresh);
        if let Outcome::Differs(text) = &outcome
            && is_the_same(&outcome)
        {
            let text = format!("{}\n- is Open vSwitch, + is Slipswitch:\n{text}", small.script());
            return Difference { text, kind: kind(&of, &small), comes_again: true };
        }
    }
    let text =
        format!("not on new bridges, or not every time; all of it was\n{}\n{first}", case.script());
    Difference { text, kind: format!("{of} not every time"), comes_again: false }
}

/// The differences by the actions of their cases.
fn kind(of: &str, case: &Case) -> String {
    let mut names = std::collections::BTreeSet::new();
    for step in &case.steps {
        let lists: Vec<&[openflow::Action]> = match step {
            Step::Flow { change, .. } => vec![&change.actions],
            Step::Group { change, .. } => change.buckets.iter().map(|b| &b.actions[..]).collect(),
            _ => Vec::new(),
        };
        names.insert(step.name().to_owned());
        names.extend(lists.concat().iter().map(|action| {
            let text = format!("{action:?}");
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
        }));
    }
    format!("{of} {}", names.into_iter().collect::<Vec<_>>().join(" "))
}

fn add(all: &mut Vec<u64>, more: &[u64]) {
    all.resize(all.len().max(more.len()), 0);
    all.iter_mut().zip(more).for_each(|(all, n)| *all += n);
}

impl Figures {
    /// True when more cases differed without repetition than timing can explain.
    pub fn is_unsteady(&self) -> bool {
        self.once.len() as u64 > 1 + self.cases / 100
    }

    fn count(&mut self, plan: Plan, case: &Case, not_here: &[u64]) {
        let count = |what: fn(&Step) -> bool| case.steps.iter().filter(|s| what(s)).count() as u64;
        self.cases += 1;
        self.packets += count(|s| matches!(s, Step::Packet { .. })) * plan.ground.times() as u64;
        self.changes += count(|s| s.message(0).is_some());
        add(&mut self.left_out, &case.left_out);
        add(&mut self.beyond, not_here);
    }

    fn record(&mut self, seed: u64, found: Found) {
        if let Some(text) = found.crash {
            eprintln!("seed {seed}: Open vSwitch's own daemon crashes {text}");
            self.crashes.push(seed);
        }
        let Some(Difference { text, kind, comes_again }) = found.difference else { return };
        eprintln!("seed {seed} differs: {kind}");
        let seeds = self.kinds.entry(kind).or_default();
        seeds.push(seed);
        let report = format!("seed {seed}:\n{text}");
        let is_told = seeds.len() <= OF_A_KIND;
        if is_told {
            eprintln!("{report}");
        }
        match comes_again {
            true if is_told => self.reports.push(report),
            true => {}
            false => self.once.push(report),
        }
    }

    fn add(&mut self, pair: &Pair) {
        add(&mut self.known, &pair.known);
        for (all, more) in self.profiles.iter_mut().zip(pair.profiles()) {
            all.merge(more);
        }
        if let Some(more) = pair.ran() {
            let all = self.ran.get_or_insert_default();
            all.again += more.again;
            all.in_bpf += more.in_bpf;
            all.offloaded += more.offloaded;
        }
    }

    fn tell(&self, plan: Plan, took: Duration) {
        for (name, profile) in ["Open vSwitch", "Slipswitch"].iter().zip(&self.profiles) {
            eprintln!("time of {name}: {profile}");
        }
        for (known, count) in known::KNOWN.iter().zip(&self.known) {
            eprintln!("{}: {count} times ({})", known.name, known.reason);
        }
        let kinds = LEFT_OUT.iter().map(|k| (k.name, k.reason)).zip(&self.left_out);
        let kinds = kinds.chain(BEYOND.iter().map(|k| (k.name, k.reason)).zip(&self.beyond));
        for ((name, reason), count) in kinds.filter(|(_, count)| **count > 0) {
            eprintln!("left out {count} times: {name} ({reason})");
        }
        for (kind, seeds) in &self.kinds {
            eprintln!("differs in {} cases: {kind} {seeds:?}", seeds.len());
        }
        eprintln!(
            "{}, {} pairs: {} configurations, {} changes of tables, {} packets in {took:?}: {} \
             differences of {} kinds; crashes of Open vSwitch: {:?}; {:?}",
            plan.ground.name(),
            plan.pairs,
            self.cases,
            self.changes,
            self.packets,
            self.kinds.values().map(Vec::len).sum::<usize>(),
            self.kinds.len(),
            self.crashes,
            self.ran,
        );
    }
}
