// SPDX-License-Identifier: Apache-2.0
//! The results of a run, as they are kept in a file.

use super::machine::Facts;
use crate::point::Point;
use serde::{Deserialize, Serialize};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The machine and the versions of software.
    pub machine: Facts,
    /// How the run was made: rounds, windows, CPUs.
    pub run: Facts,
    /// The settings of each system, by its name.
    pub systems: Facts,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// In the order of measuring.
    pub points: Vec<Point>,
}

/// The name of nothing between generator and sink.
pub const GENERATOR: &str = "bare generator, no switch";
/// The name of the generator alone, whose frames are counted at its device, and end there.
pub const SENDER: &str = "bare generator, up to its device";
/// The name of an OpenFlow server that keeps no rules.
pub const ANSWERER: &str = "bare OpenFlow server, no switch";

/// Role of a system in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Does the least work that is possible.
    Limit,
    /// Another switch.
    Peer,
    /// The system is Slipswitch.
    Ours,
}

impl Role {
    /// By a system's name.
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

/// The fact of a run that says which points it has, and its value for all points.
pub const POINTS: &str = "points";
pub const ALL_POINTS: &str = "all";

impl Results {
    /// True for a run of all points.
    pub fn is_full(&self) -> bool {
        self.run.get(POINTS).is_some_and(|points| points == ALL_POINTS)
    }

    /// True where an experiment has points.
    pub fn has(&self, experiment: &str) -> bool {
        self.of(experiment).next().is_some()
    }

    /// The points of an experiment.
    pub fn of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a Point> + Clone {
        self.points.iter().filter(move |p| p.experiment == experiment)
    }

    /// Adds a note for readers, once.
    pub fn add_note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// JSON with a line for each point. The first and the last line are braces.
    pub fn json(&self) -> serde_json::Result<String> {
        let rest = Results { points: Vec::new(), ..self.clone() };
        let rest = serde_json::to_string_pretty(&rest)?;
        let points =
            self.points.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        Ok(rest.replace("\"points\": []", &format!("\"points\": [\n{}\n]", points.join(",\n")))
            + "\n")
    }
}
