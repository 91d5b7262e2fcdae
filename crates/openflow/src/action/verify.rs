// SPDX-License-Identifier: Apache-2.0
//! Rules for which actions and instructions may stand in one list, and in which order.

use super::Action;
use super::traits::Instruction;
use crate::{OfError, Version};

/// An error of a list, for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NotAllowed(Instruction),
    Duplicate(Instruction),
    Order {
        first: Instruction,
        second: Instruction,
    },
    Conjunction {
        other: &'static str,
    },
    /// A set of a connection's field outside of `ct`.
    OfConnection,
    /// `nat` outside of `ct`.
    Nat,
}

impl Problem {
    /// The OpenFlow error.
    pub(crate) fn error(&self) -> OfError {
        match self {
            Problem::NotAllowed(_) => OfError::OFPBIC_UNSUP_INST,
            Problem::Duplicate(_) | Problem::Order { .. } => OfError::OFPBAC_UNSUPPORTED_ORDER,
            Problem::Conjunction { .. } => OfError::NXBAC_BAD_CONJUNCTION,
            Problem::OfConnection | Problem::Nat => OfError::OFPBAC_BAD_SET_ARGUMENT,
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
            Problem::OfConnection => f.write_str("cannot set CT fields outside of ct action"),
            Problem::Nat => f.write_str("Cannot have NAT action outside of \"ct\" action"),
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
        outside_of_ct(action)?;
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

/// Checks that an action is not one that only a `ct` may hold.
fn outside_of_ct(action: &Action) -> Result<(), Problem> {
    match action {
        Action::SetField { field, .. } if field.is_set_by_ct() => Err(Problem::OfConnection),
        Action::Move { dst, .. } if dst.field.is_set_by_ct() => Err(Problem::OfConnection),
        Action::Nat(_) => Err(Problem::Nat),
        _ => Ok(()),
    }
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
