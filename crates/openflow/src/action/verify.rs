// SPDX-License-Identifier: Apache-2.0
//! Rules for which actions and instructions may stand in one list, and in which order.

use super::Action;
use crate::{OfError, Version};

/// OpenFlow 1.1+'s instructions, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Instruction {
    Meter,
    ApplyActions,
    ClearActions,
    WriteActions,
    WriteMetadata,
    GotoTable,
}

impl Instruction {
    /// The instruction that `action` is (part of).
    pub(crate) fn of(action: &Action, version: Version) -> Instruction {
        match action.traits().instruction {
            Instruction::Meter if version >= Version::V15 => Instruction::ApplyActions,
            instruction => instruction,
        }
    }

    /// The name in texts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Instruction::Meter => "meter",
            Instruction::ApplyActions => "apply_actions",
            Instruction::ClearActions => "clear_actions",
            Instruction::WriteActions => "write_actions",
            Instruction::WriteMetadata => "write_metadata",
            Instruction::GotoTable => "goto_table",
        }
    }
}

/// An error of a list, for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NotAllowed(Instruction),
    Duplicate(Instruction),
    Order { first: Instruction, second: Instruction },
    Conjunction { other: &'static str },
}

impl Problem {
    /// The OpenFlow error.
    pub(crate) fn error(&self) -> OfError {
        match self {
            Problem::NotAllowed(_) => OfError::OFPBIC_UNSUP_INST,
            Problem::Duplicate(_) | Problem::Order { .. } => OfError::OFPBAC_UNSUPPORTED_ORDER,
            Problem::Conjunction { .. } => OfError::NXBAC_BAD_CONJUNCTION,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::NotAllowed(i) => write!(f, "{} instruction not allowed here", i.name()),
            Problem::Duplicate(i) => write!(
                f,
                "duplicate {} instruction not allowed, for OpenFlow 1.1+ compatibility",
                i.name()
            ),
            Problem::Order { first, second } => write!(
                f,
                "invalid instruction ordering: {} must appear before {}, for OpenFlow 1.1+ compatibility",
                first.name(),
                second.name()
            ),
            Problem::Conjunction { other } => write!(
                f,
                "\"conjunction\" actions may be used along with \"note\" but not any other kind \
                 of action (such as the \"{other}\" action used here)"
            ),
        }
    }
}

/// Checks a list in which every instruction may be, when `instructions`, or none.
pub(crate) fn list(
    actions: &[Action],
    version: Version,
    instructions: bool,
) -> Result<(), Problem> {
    let mut last: Option<Instruction> = None;
    for action in actions {
        if matches!(action, Action::Conjunction { .. }) {
            return beside_conjunction(actions);
        }
        let this = Instruction::of(action, version);
        if this != Instruction::ApplyActions && !instructions {
            return Err(Problem::NotAllowed(this));
        }
        match last {
            Some(last) if this == last && this != Instruction::ApplyActions => {
                return Err(Problem::Duplicate(this));
            }
            Some(last) if this < last => {
                return Err(Problem::Order { first: this, second: last });
            }
            _ => last = Some(this),
        }
    }
    Ok(())
}

fn beside_conjunction(actions: &[Action]) -> Result<(), Problem> {
    let other = |a: &&Action| !matches!(a, Action::Conjunction { .. } | Action::Note(_));
    match actions.iter().find(other) {
        Some(other) => Err(Problem::Conjunction { other: other.keyword() }),
        None => Ok(()),
    }
}

/// [`list`] where no instruction may be.
pub(super) fn apply_only(actions: &[Action], version: Version) -> Result<(), OfError> {
    list(actions, version, false).map_err(|p| p.error())
}
