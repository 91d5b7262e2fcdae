// SPDX-License-Identifier: Apache-2.0
//! Which tiers a flow may go to, by its ports and actions.
//!
//! Read on every install; replaced as a whole when a port or a setting changes.

use crate::TierSet;
use datapath::{Action, PortNo, Refusal, Tier};
use hashbrown::{HashMap, HashSet};

/// A port, as flows see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    /// Tiers that take its packets.
    pub(crate) tiers: TierSet,
    /// Why there is none, when there is none.
    pub(crate) closed: Refusal,
    /// Why its packets do not meet XDP, when its setting asks for that.
    pub(crate) denied: Option<Refusal>,
    /// Flows in fast tiers may output to it.
    pub(crate) is_target: bool,
    /// Flows at XDP may; else why not.
    pub(crate) redirect: Result<(), Refusal>,
}

/// Where a flow may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Tiers of its ingress port that may have it.
    pub(crate) tiers: TierSet,
    /// Why these are not all tiers of its ingress port.
    pub(crate) lacks: Option<Refusal>,
    /// All tiers of its ingress port.
    pub(crate) wanted: TierSet,
}

/// All ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    pub(crate) ports: HashMap<PortNo, Gate, foldhash::fast::RandomState>,
    /// Meters that the fast path does not have.
    pub(crate) foreign_meters: HashSet<u32, foldhash::fast::RandomState>,
}

impl Gates {
    /// Where a flow with this ingress port and these actions may run.
    pub(crate) fn decide(&self, in_port: PortNo, actions: &[Action]) -> Result<Allowed, Refusal> {
        let gate = self.ports.get(&in_port).ok_or(Refusal::PortNotHere)?;
        if gate.tiers.is_empty() {
            return Err(gate.closed);
        }
        let mut allowed = Allowed { tiers: gate.tiers, lacks: None, wanted: gate.tiers };
        self.narrow(actions, &mut allowed)?;
        Ok(allowed)
    }

    fn narrow(&self, actions: &[Action], allowed: &mut Allowed) -> Result<(), Refusal> {
        for action in actions {
            match action {
                Action::Output(port) => self.narrow_output(*port, allowed)?,
                Action::Userspace(_) => return Err(Refusal::NeedsUserspace),
                Action::Meter(id) if self.foreign_meters.contains(id) => {
                    return Err(Refusal::UnsupportedAction);
                }
                Action::Sample { actions, .. } | Action::Clone(actions) => {
                    self.narrow(actions, allowed)?;
                }
                Action::CheckPktLen { greater, not_greater, .. } => {
                    self.narrow(greater, allowed)?;
                    self.narrow(not_greater, allowed)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn narrow_output(&self, port: PortNo, allowed: &mut Allowed) -> Result<(), Refusal> {
        let gate = self.ports.get(&port).filter(|g| g.is_target).ok_or(Refusal::PortNotHere)?;
        if let Err(refusal) = gate.redirect
            && allowed.tiers.has(Tier::Xdp)
        {
            allowed.tiers = allowed.tiers.without(Tier::Xdp);
            allowed.lacks = Some(refusal);
            if allowed.tiers.is_empty() {
                return Err(refusal);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::Userdata;

    fn gate(tiers: TierSet, redirect: Result<(), Refusal>) -> Gate {
        Gate { tiers, closed: Refusal::TierSetting, denied: None, is_target: true, redirect }
    }

    /// 1: at XDP and tcx; 2: at XDP, a verified target; 3: a veth at tcx; 4: in the base by its
    /// setting; 5: only in the base.
    fn gates() -> Gates {
        let mut gates = Gates::default();
        gates.ports.insert(PortNo(1), gate(TierSet::XDP_AND_TCX, Ok(())));
        gates.ports.insert(PortNo(2), gate(TierSet::XDP_AND_TCX, Ok(())));
        gates.ports.insert(PortNo(3), gate(TierSet::TCX, Err(Refusal::UnverifiedPeer)));
        gates.ports.insert(PortNo(4), gate(TierSet::NONE, Err(Refusal::DeviceKind)));
        gates.foreign_meters.insert(9);
        gates
    }

    fn decide(port: u32, actions: &[Action]) -> Result<(TierSet, Option<Refusal>), Refusal> {
        gates().decide(PortNo(port), actions).map(|a| (a.tiers, a.lacks))
    }

    #[test]
    fn a_flow_goes_to_the_tiers_of_its_port() {
        assert_eq!(decide(1, &[]), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(decide(1, &[Action::Output(PortNo(2))]), Ok((TierSet::XDP_AND_TCX, None)));
        assert_eq!(decide(3, &[Action::Output(PortNo(2))]), Ok((TierSet::TCX, None)));
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
        // An unverified target is no matter for who is not at XDP.
        assert_eq!(decide(3, &[Action::Output(PortNo(3))]), Ok((TierSet::TCX, None)));
    }

    #[test]
    fn ports_and_actions_that_no_fast_tier_has() {
        assert_eq!(decide(4, &[]), Err(Refusal::TierSetting));
        assert_eq!(decide(5, &[]), Err(Refusal::PortNotHere));
        assert_eq!(decide(1, &[Action::Output(PortNo(5))]), Err(Refusal::PortNotHere));
        assert_eq!(decide(1, &[Action::Meter(9)]), Err(Refusal::UnsupportedAction));
        assert_eq!(decide(1, &[Action::Meter(8)]), Ok((TierSet::XDP_AND_TCX, None)));
        let up = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
        let sample = Action::Sample { probability: 1, actions: vec![up] };
        assert_eq!(decide(1, &[sample]), Err(Refusal::NeedsUserspace));
    }
}
