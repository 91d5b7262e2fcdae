// SPDX-License-Identifier: Apache-2.0
//! Both switches, and what of a case differs between them.

use crate::case::Case;
use crate::ground::Ground;
use crate::known;
use crate::player::{Bridges, Broken, Player, Seen};
use crate::profile::Profile;
use crate::wire::Ran;
use slipswitch_tests::harness::Kind;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Longest delay of a message of Open vSwitch to controllers.
const LATE: Duration = Duration::from_millis(500);

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both switches behave alike.
    Same,
    /// A difference, as text.
    Differs(String),
    /// Open vSwitch's own daemon crashed and was replaced: the last lines of its output.
    OracleCrashed(String),
}

/// The subject of a text of differences. Two texts with one subject count as the same difference.
pub fn subject(difference: &str) -> String {
    let first = difference.lines().next().unwrap_or_default();
    first.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// The number of the step that a text of differences starts with, if it starts with one.
pub fn step(difference: &str) -> Option<usize> {
    let number = difference.strip_prefix("step ")?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Both switches, each of which plays one case after the other.
pub struct Pair {
    /// The kind of devices under Slipswitch's ports.
    pub ground: Ground,
    real: Player,
    ours: Player,
    /// Counters that are never cleared may differ: the next case needs new bridges.
    is_uneven: bool,
    /// How often each known difference was met.
    pub known: Vec<u64>,
}

impl Pair {
    /// Starts them.
    pub fn new(ground: Ground) -> Pair {
        let real = Player::new(Kind::RealOvs, ground);
        let ours = Player::new(Kind::under_test(), ground);
        Pair { ground, real, ours, is_uneven: false, known: vec![0; known::KNOWN.len()] }
    }

    /// Where packets ran that were sent again, with the present daemon.
    pub fn ran(&self) -> Option<Ran> {
        self.ours.ran()
    }

    /// Where the time went: Open vSwitch's and Slipswitch's, of the present daemons.
    pub fn profiles(&self) -> [&Profile; 2] {
        [&self.real.profile, &self.ours.profile]
    }

    /// Plays a case on both, on kept bridges only if what they count is the same.
    pub fn play(&mut self, case: &Case, bridges: Bridges) -> Outcome {
        let bridges = if self.is_uneven { Bridges::Fresh } else { bridges };
        let outcome = self.compare(case, bridges);
        self.is_uneven = outcome != Outcome::Same;
        outcome
    }

    fn compare(&mut self, case: &Case, bridges: Bridges) -> Outcome {
        // A crash after the last case does not count for this one.
        if !self.real.is_alive() {
            eprintln!("Open vSwitch has crashed between two cases:\n{}", self.real.story());
            self.restart_real();
        }
        let Pair { real, ours, .. } = self;
        let (real, ours) = std::thread::scope(|scope| {
            let real = scope.spawn(|| real.play(case, bridges));
            (ours.play(case, bridges), real.join())
        });
        let (ours, real) = (real, ours.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let real = real.and_then(|real| match &ours {
            Ok(ours) => self.with_late(real, ours),
            Err(_) => Ok(real),
        });
        match (real, ours) {
            (Ok(real), Ok(ours)) => match self.difference(case, &real, &ours) {
                text if text.is_empty() => Outcome::Same,
                text => Outcome::Differs(text),
            },
            (real, ours) => self.broken(real.err(), ours.err()),
        }
    }

    /// The observations of Open vSwitch. Late messages are awaited as long as there are fewer than
    /// from Slipswitch.
    fn with_late(&mut self, mut real: Vec<Seen>, ours: &[Seen]) -> Result<Vec<Seen>, Broken> {
        let told = |seen: &[Seen]| -> usize {
            let told = seen.iter().filter(|s| s.of.starts_with("sent to controllers"));
            told.map(|s| s.text.lines().count()).sum()
        };
        let start = Instant::now();
        while told(&real) < told(ours) && start.elapsed() < LATE {
            std::thread::sleep(Duration::from_millis(2));
            self.real.unasked(&mut real)?;
        }
        Ok(real)
    }

    /// One of them does not answer: there is a new one.
    fn broken(&mut self, real: Option<Broken>, ours: Option<Broken>) -> Outcome {
        let mut text = String::new();
        if let Some(Broken(why)) = ours {
            let _ = write!(text, "Slipswitch does not answer: {why}\n{}", self.ours.story());
            let new = Player::new(Kind::under_test(), self.ground);
            discard(std::mem::replace(&mut self.ours, new));
        }
        let Some(Broken(why)) = real else { return Outcome::Differs(text) };
        let crashed = self.real.has_crashed();
        let story = self.real.story();
        self.restart_real();
        if crashed && text.is_empty() {
            return Outcome::OracleCrashed(format!("{why}\n{story}"));
        }
        Outcome::Differs(format!("{text}Open vSwitch does not answer: {why}\n{story}"))
    }

    fn restart_real(&mut self) {
        let new = Player::new(Kind::RealOvs, self.ground);
        discard(std::mem::replace(&mut self.real, new));
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
            let _ = writeln!(out, "megaflows: {:?}", case.megaflows);
        }
        out
    }
}

/// Ends a switch. A crash of its daemon is reported elsewhere.
fn discard(player: Player) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(player)));
}
