// SPDX-License-Identifier: Apache-2.0
//! Everything that a run gave, as it is kept in a file.

use super::machine::Facts;
use crate::point::Point;
use serde::{Deserialize, Serialize};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What it was made on.
    pub machine: Facts,
    /// How it was made: rounds, windows, CPUs.
    pub run: Facts,
    /// Each system by its name, and how it was set.
    pub systems: Facts,
    /// In the order of measuring.
    pub points: Vec<Point>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// What stands in a comparison for nothing between generator and sink.
pub const GENERATOR: &str = "bare generator, no switch";
/// What stands for the generator by itself: its frames are counted, and end, where its device would
/// take them.
pub const SENDER: &str = "bare generator, up to its device";
/// What stands in a comparison for an OpenFlow server that keeps no rules.
pub const ANSWERER: &str = "bare OpenFlow server, no switch";

/// What a system is in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Does as little as can be done.
    Limit,
    /// Somebody else's switch.
    Peer,
    /// Slipswitch.
    Ours,
}

impl Role {
    /// Of a system's name in a report.
    pub fn of(system: &str) -> Role {
        if system.starts_with("bare ") {
            Role::Limit
        } else if system.starts_with("Slipswitch") {
            Role::Ours
        } else {
            Role::Peer
        }
    }
}

/// Whether more of a unit is better than less.
pub fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s") || unit.ends_with("pps")
}

/// The fact of a run that says which points it has, and what it says when these are all.
pub const POINTS: &str = "points";
/// See [`POINTS`].
pub const ALL_POINTS: &str = "all";

impl Results {
    /// True for a run of all points.
    pub fn is_full(&self) -> bool {
        self.run.get(POINTS).is_some_and(|points| points == ALL_POINTS)
    }

    /// True where an experiment gave anything.
    pub fn has(&self, experiment: &str) -> bool {
        self.of(experiment).next().is_some()
    }

    /// The points of an experiment.
    pub fn of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a Point> + Clone {
        self.points.iter().filter(move |p| p.experiment == experiment)
    }

    /// Adds what a reader has to know, once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
