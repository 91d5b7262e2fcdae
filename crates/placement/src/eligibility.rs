// SPDX-License-Identifier: Apache-2.0
//! The tiers that a flow may go to, by its ports and actions.
//!
//! Every installation reads them. Each change of a port or a setting replaces them as a whole.

use datapath::offload::TierState;
use datapath::{Action, PortNo, Refusal, Tier, TierRefusals, TierSet, Verdict};
use hashbrown::HashMap;

/// The conditions that a port sets for flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortEligibility {
    /// Tiers that take the port's packets.
    pub(crate) tiers: TierSet,
    /// The reasons of other tiers, where the port is expected on them.
    pub(crate) refusals: TierRefusals,
    /// Tiers whose flows may output to the port.
    pub(crate) outputs: TierSet,
    /// The reasons for which flows of other tiers may not.
    pub(crate) output_refusals: TierRefusals,
    /// Tiers that take the headers of the tunnel off whose port this is.
    pub(crate) pops: TierSet,
}

impl PortEligibility {
    /// Returns the conditions of a port with these states at the tiers.
    pub(crate) fn of<'a>(states: impl IntoIterator<Item = &'a TierState>) -> PortEligibility {
        let mut port = PortEligibility::default();
        for state in states {
            let tier = TierSet::of(state.tier);
            match &state.ingress {
                Ok(()) => port.tiers = port.tiers.union(tier),
                Err(reason) if state.is_expected => port.refusals.set(tier, Some(reason.refusal)),
                Err(_) => {}
            }
            match &state.output {
                Ok(()) => port.outputs = port.outputs.union(tier),
                Err(reason) => port.output_refusals.set(tier, Some(reason.refusal)),
            }
        }
        port
    }

    /// Notes that these tiers pop the packets of the port of a tunnel.
    pub(crate) fn add_popping(&mut self, tiers: TierSet) {
        self.tiers = self.tiers.union(tiers);
        self.pops = self.pops.union(tiers);
    }

    /// Keeps all flows of these tiers from the port, for this reason.
    pub(crate) fn close(&mut self, tiers: TierSet, reason: Refusal) {
        self.tiers = self.tiers.minus(tiers);
        self.refusals.set(tiers, Some(reason));
        self.outputs = self.outputs.minus(tiers);
        self.output_refusals.set(tiers, Some(Refusal::PortNotHere));
    }
}

/// The conditions of all ports, meters and bonds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eligibility {
    pub(crate) ports: HashMap<PortNo, PortEligibility, foldhash::fast::RandomState>,
    /// By meter: tiers that lack it although the base has it.
    pub(crate) lacking_meters: HashMap<u32, TierSet, foldhash::fast::RandomState>,
    pub(crate) bonds: HashMap<u32, BondEligibility, foldhash::fast::RandomState>,
    /// All tiers of all providers.
    pub(crate) all: TierSet,
}

/// The conditions that a bond sets for flows that send to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BondEligibility {
    /// Every port that a packet of such a flow may leave by.
    pub(crate) members: Vec<PortNo>,
    /// Tiers that lack the bond although the base has it.
    pub(crate) lacking: TierSet,
}

impl Eligibility {
    /// Returns which tiers of the ingress port may run a flow with these actions, and the reasons
    /// of the other tiers of that port.
    pub(crate) fn decide(&self, in_port: PortNo, actions: &[Action]) -> Verdict {
        let Some(port) = self.ports.get(&in_port) else {
            return Verdict::refused(self.all, Refusal::PortNotHere);
        };
        if port.tiers.is_empty() {
            return Verdict { tiers: TierSet::NONE, refusals: port.refusals };
        }
        let mut verdict = Verdict::granted(port.tiers);
        self.narrow(actions, &mut verdict);
        verdict
    }

    fn narrow(&self, actions: &[Action], verdict: &mut Verdict) {
        for action in actions {
            match action {
                Action::Output(port) => self.narrow_output(*port, verdict),
                Action::LbOutput(id) => self.narrow_bond(*id, verdict),
                Action::Userspace(userdata) if userdata.is_sample() => {
                    let others = verdict.tiers.minus(TierSet::XDP_AND_TCX);
                    verdict.refuse(others, Refusal::NeedsUserspace);
                }
                Action::Userspace(_) => verdict.refuse(verdict.tiers, Refusal::NeedsUserspace),
                Action::TunnelPush { .. } => {
                    let pushing = TierSet::XDP_AND_TCX.union(TierSet::of(Tier::Tc));
                    verdict.refuse(verdict.tiers.minus(pushing), Refusal::UnsupportedAction);
                }
                Action::PopEth
                | Action::PushEth { .. }
                | Action::AddMpls { .. }
                | Action::PushNsh(_)
                | Action::PopNsh => {
                    let others = verdict.tiers.minus(TierSet::XDP_AND_TCX);
                    verdict.refuse(others, Refusal::UnsupportedAction);
                }
                Action::SetTunnel(_) => verdict.refuse(verdict.tiers, Refusal::UnsupportedAction),
                Action::TunnelPop(port) => {
                    let pops = self.ports.get(port).map_or(TierSet::NONE, |port| port.pops);
                    verdict.refuse(verdict.tiers.minus(pops), Refusal::UnsupportedAction);
                }
                Action::Meter(id) => {
                    if let Some(lacking) = self.lacking_meters.get(id) {
                        verdict.refuse(*lacking, Refusal::UnsupportedAction);
                    }
                }
                Action::Sample { actions, .. } | Action::Clone(actions) => {
                    self.narrow(actions, verdict);
                }
                Action::CheckPktLen { greater, not_greater, .. } => {
                    self.narrow(greater, verdict);
                    self.narrow(not_greater, verdict);
                }
                Action::Drop(_)
                | Action::Recirc(_)
                | Action::Hash { .. }
                | Action::Trunc(_)
                | Action::PushVlan { .. }
                | Action::PopVlan
                | Action::PushMpls { .. }
                | Action::PopMpls { .. }
                | Action::Set(_)
                | Action::Ct(_)
                | Action::CtClear => {}
            }
            if verdict.tiers.is_empty() {
                return;
            }
        }
    }

    fn narrow_bond(&self, id: u32, verdict: &mut Verdict) {
        let Some(bond) = self.bonds.get(&id) else {
            return verdict.refuse(verdict.tiers, Refusal::Bond);
        };
        verdict.refuse(bond.lacking, Refusal::Bond);
        for member in &bond.members {
            self.narrow_output(*member, verdict);
        }
    }

    fn narrow_output(&self, port: PortNo, verdict: &mut Verdict) {
        let Some(port) = self.ports.get(&port) else {
            return verdict.refuse(verdict.tiers, Refusal::PortNotHere);
        };
        for tier in verdict.tiers.minus(port.outputs).tiers() {
            let refusal = port.output_refusals.get(tier).unwrap_or(Refusal::PortNotHere);
            verdict.refuse(TierSet::of(tier), refusal);
        }
    }

    /// Returns the reason for which none of `tiers` takes a flow of this port that has `verdict`.
    pub(crate) fn why_not(&self, in_port: PortNo, tiers: TierSet, verdict: Verdict) -> Refusal {
        let of_port = || self.ports.get(&in_port).and_then(|p| p.refusals.of(tiers).nearest());
        verdict.refusals.of(tiers).nearest().or_else(of_port).unwrap_or(Refusal::PortNotHere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::Userdata;

    const CARD: TierSet = TierSet::of(Tier::Tc);

    /// A port at `tiers`, to which XDP may redirect, or not for this reason.
    fn port(tiers: TierSet, redirect: Result<(), Refusal>) -> PortEligibility {
        let outputs = if redirect.is_ok() { TierSet::XDP_AND_TCX } else { TierSet::TCX };
        PortEligibility {
            tiers,
            refusals: TierRefusals::by(
                TierSet::XDP_AND_TCX.minus(tiers).intersection(TierSet::TCX),
                Refusal::TierSetting,
            ),
            outputs,
            output_refusals: redirect.err().map_or(TierRefusals::NONE, |refusal| {
                TierRefusals::by(TierSet::of(Tier::Xdp), refusal)
            }),
            pops: TierSet::NONE,
        }
    }

    /// 1: at XDP and tcx; 2: at XDP, a verified target; 3: a veth at tcx; 4: in the base by its
    /// setting; 5: only in the base; 6: in a card, too.
    fn eligibility() -> Eligibility {
        let mut all = Eligibility { all: TierSet::XDP_AND_TCX, ..Eligibility::default() };
        all.ports.insert(PortNo(1), port(TierSet::XDP_AND_TCX, Ok(())));
        all.ports.insert(PortNo(2), port(TierSet::XDP_AND_TCX, Ok(())));
        all.ports.insert(PortNo(3), port(TierSet::TCX, Err(Refusal::UnverifiedPeer)));
        all.ports.insert(PortNo(4), port(TierSet::NONE, Err(Refusal::DeviceKind)));
        let mut card = port(CARD.union(TierSet::XDP_AND_TCX), Ok(()));
        card.outputs = card.outputs.union(CARD);
        all.ports.insert(PortNo(6), card);
        all.lacking_meters.insert(9, TierSet::XDP_AND_TCX);
        let bond = |members: &[u32], lacking| BondEligibility {
            members: members.iter().copied().map(PortNo).collect(),
            lacking,
        };
        all.bonds.insert(1, bond(&[1, 2], TierSet::NONE));
        all.bonds.insert(2, bond(&[2, 3], TierSet::NONE));
        all.bonds.insert(6, bond(&[6], CARD));
        all
    }

    fn decide(port: u32, actions: &[Action]) -> Result<(TierSet, Option<Refusal>), Refusal> {
        let verdict = eligibility().decide(PortNo(port), actions);
        verdict.outcome().map(|_| (verdict.tiers, verdict.refusals.nearest()))
    }

    #[test]
    fn a_flow_goes_to_the_tiers_of_its_port() {
        assert_eq!(decide(1, &[]), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(decide(1, &[Action::Output(PortNo(2))]), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(decide(3, &[Action::Output(PortNo(2))]), Ok((TierSet::TCX, None)));
    }

    #[test]
    fn each_tier_has_its_own_reason() {
        let to = |port| eligibility().decide(PortNo(6), &[Action::Output(PortNo(port))]);
        assert_eq!(to(6).tiers, CARD.union(TierSet::XDP_AND_TCX));
        assert_eq!(to(3).tiers, TierSet::TCX);
        assert_eq!(to(3).refusals.to_string(), "tc=port-not-here,xdp=unverified-peer");
        let metered = eligibility().decide(PortNo(6), &[Action::Meter(9)]);
        assert_eq!(metered.tiers, CARD);
        assert_eq!(
            metered.refusals,
            TierRefusals::by(TierSet::XDP_AND_TCX, Refusal::UnsupportedAction)
        );
    }

    #[test]
    fn an_unverified_target_keeps_a_flow_from_xdp() {
        let tcx = Ok((TierSet::TCX, Some(Refusal::UnverifiedPeer)));
        assert_eq!(decide(1, &[Action::Output(PortNo(3))]), tcx);
        assert_eq!(decide(1, &[Action::Clone(vec![Action::Output(PortNo(3))])]), tcx);
        let branch = Action::CheckPktLen {
            len: 1,
            greater: vec![],
            not_greater: vec![Action::Output(PortNo(3))],
        };
        assert_eq!(decide(1, &[Action::Output(PortNo(2)), branch]), tcx);
        // An unverified target makes no difference to a flow that is not at XDP.
        assert_eq!(decide(3, &[Action::Output(PortNo(3))]), Ok((TierSet::TCX, None)));
    }

    #[test]
    fn a_flow_to_a_bond_needs_all_of_its_members() {
        let to = |id| decide(1, &[Action::LbOutput(id)]);
        assert_eq!(to(1), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(to(2), Ok((TierSet::TCX, Some(Refusal::UnverifiedPeer))));
        assert_eq!(to(7), Err(Refusal::Bond), "there is no such bond");
        let from_card = eligibility().decide(PortNo(6), &[Action::LbOutput(6)]);
        assert_eq!(from_card.tiers, TierSet::XDP_AND_TCX);
        assert_eq!(from_card.refusals, TierRefusals::by(CARD, Refusal::Bond));
    }

    #[test]
    fn ports_and_actions_that_no_fast_tier_has() {
        assert_eq!(decide(4, &[]), Err(Refusal::TierSetting));
        assert_eq!(decide(5, &[]), Err(Refusal::PortNotHere));
        assert_eq!(decide(1, &[Action::Output(PortNo(5))]), Err(Refusal::PortNotHere));
        assert_eq!(decide(1, &[Action::Meter(9)]), Err(Refusal::UnsupportedAction));
        assert_eq!(decide(1, &[Action::Meter(8)]), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(decide(1, &[Action::TunnelPop(PortNo(2))]), Err(Refusal::UnsupportedAction));
        let header = Action::PushEth { src: [0; 6], dst: [0; 6] };
        for action in [Action::PopEth, header, Action::PopNsh] {
            let verdict = eligibility().decide(PortNo(6), std::slice::from_ref(&action));
            assert_eq!(verdict.tiers, TierSet::XDP_AND_TCX, "{action:?}");
            assert_eq!(verdict.refusals, TierRefusals::by(CARD, Refusal::UnsupportedAction));
        }
        let up = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
        let sample = Action::Sample { probability: 1, actions: vec![up] };
        assert_eq!(decide(1, &[sample]), Err(Refusal::NeedsUserspace));
    }
}
