// SPDX-License-Identifier: Apache-2.0
//! The options of tunnels that actions name.

use super::{Action, CtZone, Learn, LearnSource, LearnTarget, ObservationId};
use flow::{Field, Subfield};

fn of_field(field: Field) -> u64 {
    field.option().map_or(0, |n| 1 << n)
}

fn of_part(part: &Subfield) -> u64 {
    of_field(part.field)
}

/// Bit N: an action names the field `tun_metadataN`, also inside of other actions.
pub fn options(actions: &[Action]) -> u64 {
    actions.iter().fold(0, |bits, action| bits | of_action(action))
}

fn of_observation_id(id: &ObservationId) -> u64 {
    match id {
        ObservationId::Field(part) => of_part(part),
        ObservationId::Number(_) => 0,
    }
}

fn of_action(action: &Action) -> u64 {
    match action {
        Action::OutputReg { src, .. } | Action::StackPush(src) => of_part(src),
        Action::SetField { field, .. } | Action::DeleteField(field) => of_field(*field),
        Action::SetOption(set) => of_field(set.field),
        Action::Move { src, dst } => of_part(src) | of_part(dst),
        Action::StackPop(dst) | Action::CheckPktLarger { dst, .. } => of_part(dst),
        Action::Multipath(multipath) => of_part(&multipath.dst),
        Action::Bundle(bundle) => bundle.dst.as_ref().map_or(0, of_part),
        Action::Learn(learn) => of_learn(learn),
        Action::Ct(ct) => {
            let zone = match &ct.zone {
                CtZone::Field(part) => of_part(part),
                CtZone::Number(_) => 0,
            };
            zone | options(&ct.actions)
        }
        Action::Sample { obs_domain, obs_point, .. } => {
            of_observation_id(obs_domain) | of_observation_id(obs_point)
        }
        Action::Clone(actions) | Action::WriteActions(actions) => options(actions),
        Action::Output { .. }
        | Action::OutputTrunc { .. }
        | Action::Controller(_)
        | Action::Enqueue { .. }
        | Action::Group(_)
        | Action::SetVlanVid { .. }
        | Action::SetVlanPcp { .. }
        | Action::PopVlan { .. }
        | Action::PushVlan { .. }
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetIpDscp(_)
        | Action::SetIpEcn(_)
        | Action::SetIpTtl(_)
        | Action::SetL4Src(_)
        | Action::SetL4Dst(_)
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::DecTtl { .. }
        | Action::SetQueue(_)
        | Action::SetTunnel { .. }
        | Action::PopQueue
        | Action::FinTimeout { .. }
        | Action::Resubmit { .. }
        | Action::Conjunction { .. }
        | Action::Note(_)
        | Action::Exit
        | Action::Nat(_)
        | Action::CtClear
        | Action::Encap(_)
        | Action::Decap { .. }
        | Action::DecNshTtl
        | Action::DebugSlow
        | Action::DebugRecirc
        | Action::Meter(_)
        | Action::ClearActions
        | Action::WriteMetadata { .. }
        | Action::GotoTable(_) => 0,
    }
}

fn of_learn(learn: &Learn) -> u64 {
    let specs = learn.specs.iter().map(|spec| {
        let src = match &spec.src {
            LearnSource::Field(part) => of_part(part),
            LearnSource::Value(_) => 0,
        };
        let dst = match &spec.dst {
            LearnTarget::Match(part) | LearnTarget::Load(part) => of_part(part),
            LearnTarget::Output => 0,
        };
        src | dst
    });
    specs.fold(learn.result_dst.as_ref().map_or(0, of_part), |bits, more| bits | more)
}
