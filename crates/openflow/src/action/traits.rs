// SPDX-License-Identifier: Apache-2.0
//! The properties of each kind of action that the switch needs, apart from codec and execution.
//!
//! [`Action::traits`] is the one table: a new action does not compile until it has a row.

use super::Action;
use crate::Version;

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

/// Where an action set runs an action. The order of the variants is the order in which an action
/// set runs (OpenFlow 1.5.1 section 5.6; ovs-actions(7), "Action sets").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionSetSlot {
    /// `pop_vlan`, the last one written.
    PopVlan,
    /// `pop_mpls`, the last one written.
    PopMpls,
    /// `decap`, the last one written.
    Decap,
    /// `encap`, the last one written.
    Encap,
    /// `push_mpls`, the last one written.
    PushMpls,
    /// `push_vlan`, the last one written.
    PushVlan,
    /// `dec_ttl`, the last one written.
    DecTtl,
    /// `dec_mpls_ttl`, the last one written.
    DecMplsTtl,
    /// `dec_nsh_ttl`, the last one written.
    DecNshTtl,
    /// Sets of fields and, as in OVS, of queues: all of them, in the order in which they were
    /// written.
    Set,
    /// `resubmit`: runs only in a set without an output.
    Resubmit,
    /// `output`: runs only in a set without a group.
    Output,
    /// `group`: the last one written ends the set.
    Group,
    /// `ct`: runs only in a set without an output, a group and a resubmit.
    Ct,
}

impl ActionSetSlot {
    /// The slots that hold one action each and come before the sets, in order.
    pub const BEFORE_SETS: [ActionSetSlot; 9] = [
        ActionSetSlot::PopVlan,
        ActionSetSlot::PopMpls,
        ActionSetSlot::Decap,
        ActionSetSlot::Encap,
        ActionSetSlot::PushMpls,
        ActionSetSlot::PushVlan,
        ActionSetSlot::DecTtl,
        ActionSetSlot::DecMplsTtl,
        ActionSetSlot::DecNshTtl,
    ];

    /// The slots of actions that end a set, in order of precedence. A set without any of them
    /// does nothing.
    pub const ENDS: [ActionSetSlot; 4] =
        [ActionSetSlot::Group, ActionSetSlot::Output, ActionSetSlot::Resubmit, ActionSetSlot::Ct];
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits<'a> {
    /// The instruction of OpenFlow 1.1 and later that the action is, or is part of.
    pub(super) instruction: Instruction,
    /// The place in an action set; `None` when an action set cannot hold the action.
    action_set: Option<ActionSetSlot>,
    /// Further actions can undo the action's effect on the packet.
    reversible: bool,
    /// The action may depend on headers that only a new parse of the packet finds after its last
    /// MPLS label was popped.
    needs_payload: bool,
    /// The action may report the table and cookie of its rule to a controller, or uses the table.
    uses_rule: bool,
    /// The action does nothing when it runs.
    inert: bool,
    /// The list of actions inside the action.
    nested: &'a [Action],
}

impl<'a> Traits<'a> {
    /// An action of `apply_actions` that is reversible, that no action set can hold, that may need
    /// the payload, and that has no list.
    const PLAIN: Traits<'a> = Traits {
        instruction: Instruction::ApplyActions,
        action_set: None,
        reversible: true,
        needs_payload: true,
        uses_rule: false,
        inert: false,
        nested: &[],
    };

    const fn instruction(mut self, instruction: Instruction) -> Traits<'a> {
        self.instruction = instruction;
        self
    }

    const fn in_action_set(mut self, slot: ActionSetSlot) -> Traits<'a> {
        self.action_set = Some(slot);
        self
    }

    const fn irreversible(mut self) -> Traits<'a> {
        self.reversible = false;
        self
    }

    const fn payload(mut self, needed: bool) -> Traits<'a> {
        self.needs_payload = needed;
        self
    }

    const fn uses_rule(mut self) -> Traits<'a> {
        self.uses_rule = true;
        self
    }

    const fn inert(mut self) -> Traits<'a> {
        self.inert = true;
        self
    }

    const fn nested(mut self, actions: &'a [Action]) -> Traits<'a> {
        self.nested = actions;
        self
    }
}

/// `table` of `resubmit` on the wire: the table that the action is in.
const SAME_TABLE: u8 = 255;

impl Action {
    /// The row of the action.
    pub(crate) fn traits(&self) -> Traits<'_> {
        use ActionSetSlot as Slot;
        const PLAIN: Traits<'static> = Traits::PLAIN;
        const SET: Traits<'static> = PLAIN.in_action_set(Slot::Set);
        const OUTPUT: Traits<'static> = PLAIN.payload(false).uses_rule();
        match self {
            Action::Output { .. } => OUTPUT.in_action_set(Slot::Output),
            Action::OutputReg { .. } => OUTPUT,
            Action::OutputTrunc { .. } => OUTPUT.irreversible(),
            Action::Group(_) => OUTPUT.in_action_set(Slot::Group),
            Action::Enqueue { .. } => PLAIN.payload(false),
            Action::Controller(_) => PLAIN.uses_rule(),
            Action::Bundle(_) => PLAIN,
            Action::Resubmit { table: None | Some(SAME_TABLE), .. } => {
                PLAIN.in_action_set(Slot::Resubmit).uses_rule()
            }
            Action::Resubmit { table: Some(_), .. } => PLAIN.in_action_set(Slot::Resubmit),

            Action::SetField { field, .. } => SET.payload(field.is_above_vlans()),
            Action::SetOption(_)
            | Action::SetTunnel { .. }
            | Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetQueue(_) => SET.payload(false),
            Action::Move { .. }
            | Action::SetIpv4Src(_)
            | Action::SetIpv4Dst(_)
            | Action::SetIpDscp(_)
            | Action::SetIpEcn(_)
            | Action::SetIpTtl(_)
            | Action::SetL4Src(_)
            | Action::SetL4Dst(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_) => SET,

            Action::PopVlan { .. } => PLAIN.in_action_set(Slot::PopVlan),
            Action::PushVlan { .. } => PLAIN.in_action_set(Slot::PushVlan),
            Action::PopMpls { .. } => PLAIN.in_action_set(Slot::PopMpls),
            Action::PushMpls { .. } => PLAIN.in_action_set(Slot::PushMpls),
            Action::DecTtl { .. } => PLAIN.in_action_set(Slot::DecTtl).uses_rule(),
            Action::DecMplsTtl => PLAIN.in_action_set(Slot::DecMplsTtl).uses_rule(),

            Action::Decap { .. } => PLAIN.in_action_set(Slot::Decap).irreversible(),
            Action::Encap(_) => PLAIN.in_action_set(Slot::Encap).irreversible(),
            Action::DecNshTtl => PLAIN.in_action_set(Slot::DecNshTtl).irreversible().uses_rule(),

            Action::DeleteField(_)
            | Action::StackPush(_)
            | Action::StackPop(_)
            | Action::PopQueue
            | Action::FinTimeout { .. }
            | Action::Learn(_)
            | Action::Multipath(_)
            | Action::Exit
            | Action::Sample { .. }
            | Action::CheckPktLarger { .. } => PLAIN,
            Action::Clone(actions) => PLAIN.nested(actions),
            Action::Ct(ct) => PLAIN.in_action_set(Slot::Ct).irreversible().nested(&ct.actions),
            Action::Nat(_) => PLAIN.irreversible(),
            Action::CtClear | Action::DebugSlow | Action::DebugRecirc => PLAIN,

            Action::Conjunction { .. } | Action::Note(_) => PLAIN.inert(),

            Action::Meter(_) => PLAIN.instruction(Instruction::Meter).irreversible(),
            Action::ClearActions => PLAIN.instruction(Instruction::ClearActions),
            Action::WriteActions(actions) => {
                PLAIN.instruction(Instruction::WriteActions).nested(actions)
            }
            Action::WriteMetadata { .. } => PLAIN.instruction(Instruction::WriteMetadata),
            Action::GotoTable(_) => PLAIN.instruction(Instruction::GotoTable),
        }
    }

    /// The place of the action in an action set; `None` when an action set cannot hold it.
    pub fn action_set_slot(&self) -> Option<ActionSetSlot> {
        self.traits().action_set
    }

    /// True when further actions can undo the action's effect on the packet.
    pub fn is_reversible(&self) -> bool {
        self.traits().reversible && self.nested().iter().all(Action::is_reversible)
    }

    /// True unless the action is known to concern L2 only, as in OVS: it may need headers that
    /// only a new parse of the packet finds after the last MPLS label was popped.
    ///
    /// Tables and groups count as L2: their rules and buckets are asked one by one.
    pub fn needs_payload(&self) -> bool {
        self.traits().needs_payload
    }

    /// True when the action may report the table and cookie of its rule to a controller, or
    /// resubmits to the table that it is in.
    pub fn uses_rule(&self) -> bool {
        self.traits().uses_rule
    }

    /// True when the action does nothing when it runs: `note` and `conjunction`.
    pub fn is_inert(&self) -> bool {
        self.traits().inert
    }

    /// The list of actions inside `clone`, `ct` and `write_actions`; of other actions it is empty.
    pub fn nested(&self) -> &[Action] {
        self.traits().nested
    }
}
