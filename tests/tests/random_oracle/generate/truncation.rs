// SPDX-License-Identifier: Apache-2.0
//! Places where packets may be truncated after changes of their headers' length.

use crate::case::Step;
use flow::Field;
use openflow::{Action, PortNo};

/// How a packet of another length may get from one list of actions to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resized {
    /// To further tables, and to groups.
    tables: bool,
    /// To the other bridge.
    bridges: bool,
}

impl Resized {
    /// As far as these steps go.
    pub fn of(steps: &[Step]) -> Resized {
        let mut out = Resized::default();
        for actions in steps.iter().flat_map(lists) {
            out.follow(actions, false);
        }
        out
    }

    /// True when actions of the step may truncate such packets.
    pub fn truncated_by(self, step: &Step) -> bool {
        let is_behind = match step {
            Step::Flow { change, .. } => change.table_id > 0,
            _ => true,
        };
        let resized = self.bridges || self.tables && is_behind;
        lists(step).into_iter().any(|actions| truncates(actions, resized))
    }

    fn follow(&mut self, actions: &[Action], mut resized: bool) {
        for action in actions {
            match action {
                Action::Clone(inner) => self.follow(inner, resized),
                Action::Resubmit { .. } | Action::GotoTable(_) | Action::Group(_) => {
                    self.tables |= resized;
                }
                Action::Output { port, .. } => self.bridges |= resized && may_be_patch(*port),
                Action::Enqueue { .. } | Action::Bundle(_) | Action::OutputReg { .. } => {
                    self.bridges |= resized;
                }
                action => resized |= resizes(action),
            }
        }
    }
}

fn lists(step: &Step) -> Vec<&[Action]> {
    match step {
        Step::Flow { change, .. } => vec![&change.actions],
        Step::Group { change, .. } => change.buckets.iter().map(|b| &b.actions[..]).collect(),
        _ => Vec::new(),
    }
}

fn truncates(actions: &[Action], mut resized: bool) -> bool {
    actions.iter().any(|action| match action {
        Action::OutputTrunc { .. } => resized,
        Action::Clone(inner) => truncates(inner, resized),
        action => {
            resized |= resizes(action);
            false
        }
    })
}

/// Patch ports are 10 and 3, in the one bridge and in the other.
fn may_be_patch(port: PortNo) -> bool {
    matches!(port.0, 3 | 10) || [PortNo::NORMAL, PortNo::FLOOD, PortNo::ALL].contains(&port)
}

fn resizes(action: &Action) -> bool {
    match action {
        Action::PushVlan { .. }
        | Action::PopVlan { .. }
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::SetVlanVid { .. }
        | Action::SetVlanPcp { .. } => true,
        Action::SetField { field, .. } => may_add_header(*field),
        Action::Move { dst, .. } | Action::StackPop(dst) => may_add_header(dst.field),
        _ => false,
    }
}

/// True when a packet has a VLAN header after a set of the field.
fn may_add_header(field: Field) -> bool {
    use Field::{DlVlan, DlVlanPcp, VlanPcp, VlanTci, VlanVid};
    matches!(field, VlanTci | VlanVid | VlanPcp | DlVlan | DlVlanPcp)
}
