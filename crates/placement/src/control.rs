// SPDX-License-Identifier: Apache-2.0
//! What the control side knows of ports and settings.

use crate::eligibility::PortEligibility;
use crate::slots::Slots;
use crate::socket::SocketState;
use datapath::offload::{Attached, OffloadPort, PortSettings, Reason, TierState};
use datapath::{AdoptedPort, PortNo, Refusal, Side, Tier, TierSet};
use netdev::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// A port on one tier, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTier {
    /// The tier.
    pub tier: Tier,
    /// Attached, or why not.
    pub state: Result<(), Reason>,
    /// How the port is attached, for people; empty for the ordinary way.
    pub how: &'static str,
}

/// Nothing of a provider is attached, for this reason.
pub(crate) fn detached(tiers: TierSet, reason: &Reason) -> Attached {
    let state = |tier| TierState::refused(tier, reason.clone(), true);
    Attached {
        tiers: tiers.tiers().map(state).collect(),
        takes_receive: false,
        affects_others: false,
    }
}

/// What the control side knows of a port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The name that the device has now.
    pub(crate) device: String,
    pub(crate) kind: Kind,
    pub(crate) settings: PortSettings,
    pub(crate) policed: bool,
    /// The index of its device, while that is in the switch's namespace.
    pub(crate) ifindex: Option<u32>,
    /// Its device is in another one.
    pub(crate) is_away: bool,
    pub(crate) mtu: u32,
    pub(crate) is_up: bool,
    pub(crate) socket: SocketState,
    /// What each provider makes of it, in the order of the list.
    pub(crate) at: Vec<Attached>,
}

pub(crate) fn not_yet() -> Reason {
    Reason::new(Refusal::PortNotHere, "not attached yet")
}

impl Port {
    /// A port that is nowhere yet.
    pub(crate) fn new(name: &str, kind: Kind, settings: PortSettings, slots: &Slots) -> Port {
        let reason = |slot: &crate::slots::Slot| slot.absent().cloned().unwrap_or_else(not_yet);
        Port {
            name: name.to_owned(),
            device: name.to_owned(),
            kind,
            settings,
            policed: false,
            ifindex: None,
            is_away: false,
            mtu: 0,
            is_up: false,
            socket: SocketState::default(),
            at: slots.iter().map(|slot| detached(slot.tiers(), &reason(slot))).collect(),
        }
    }

    /// Devices that the switch made are the host's ends.
    pub(crate) fn side_of(kind: Kind) -> Side {
        match kind {
            Kind::Internal | Kind::Tap => Side::Stack,
            _ => Side::Device,
        }
    }

    /// The port as providers see it.
    pub(crate) fn offload<'a>(
        &'a self,
        number: PortNo,
        ingress: Result<(), &'a Reason>,
    ) -> OffloadPort<'a> {
        OffloadPort {
            number,
            name: &self.name,
            device: &self.device,
            kind: self.kind,
            side: Port::side_of(self.kind),
            ifindex: self.ifindex,
            mtu: self.mtu,
            is_up: self.is_up,
            settings: &self.settings,
            ingress,
        }
    }

    /// The tiers of all providers.
    pub(crate) fn states(&self) -> impl DoubleEndedIterator<Item = &TierState> {
        self.at.iter().flat_map(|attached| &attached.tiers)
    }

    pub(crate) fn eligibility(&self) -> PortEligibility {
        PortEligibility::of(self.states())
    }

    /// Tiers that take its packets, or whose flows may output to it.
    pub(crate) fn in_use(&self) -> TierSet {
        let PortEligibility { tiers, outputs, .. } = self.eligibility();
        tiers.union(outputs)
    }

    /// Why the port is to be at no tier of any provider, if so.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        if self.is_away {
            let detail = "its device is in another network namespace, and the kernel forwards \
                          between devices of one";
            return Err(Reason::new(Refusal::PortNotHere, detail));
        }
        // A dummy is no interface.
        if self.ifindex.is_none() && self.kind != Kind::Dummy {
            return Err(Reason::new(Refusal::PortNotHere, "its device is gone"));
        }
        if self.settings.tier == Some(Tier::Userspace) {
            let detail = "other_config:tier=userspace of this port";
            return Err(Reason::new(Refusal::TierSetting, detail));
        }
        if self.policed {
            let detail = "ingress_policing_rate is set; 0 turns it off";
            return Err(Reason::new(Refusal::Policing, detail));
        }
        Ok(())
    }
}

/// What keeps all ports out of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Blockers {
    /// A setting does.
    pub(crate) setting: Option<Reason>,
    /// The provider cannot be used.
    pub(crate) broken: Option<Reason>,
}

impl Blockers {
    pub(crate) fn check(&self) -> Result<(), &Reason> {
        self.broken.as_ref().or(self.setting.as_ref()).map_or(Ok(()), Err)
    }
}

/// All ports, and settings.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) ports: BTreeMap<PortNo, Port>,
    /// For each provider, in the order of the list.
    pub(crate) blockers: Vec<Blockers>,
    /// Numbers that adopted flows know by these devices.
    pub(crate) reserved: Vec<AdoptedPort>,
    /// Ports of the first configuration are still to come.
    pub(crate) adopting: bool,
}

impl Control {
    pub(crate) fn new(slots: &Slots) -> Control {
        let blocked =
            |slot: &crate::slots::Slot| Blockers { setting: None, broken: slot.absent().cloned() };
        Control {
            ports: BTreeMap::new(),
            blockers: slots.iter().map(blocked).collect(),
            reserved: Vec::new(),
            adopting: false,
        }
    }

    /// Keeps the numbers of adopted ports for the devices that had them.
    pub(crate) fn reserve(&mut self, ports: Vec<AdoptedPort>) {
        self.adopting |= !ports.is_empty();
        let is_new = |port: &AdoptedPort| self.reserved.iter().all(|r| r.number != port.number);
        let new: Vec<AdoptedPort> = ports.into_iter().filter(is_new).collect();
        self.reserved.extend(new);
    }

    /// True when a port that is there, or is reserved, has another number than adopted flows know
    /// its device by, or a number by which they know another device.
    pub(crate) fn contradicts(&self, adopted: &[AdoptedPort]) -> bool {
        let ports = self.ports.iter().map(|(number, port)| (*number, port.ifindex));
        let reserved = self.reserved.iter().map(|r| (r.number, Some(r.ifindex)));
        ports.chain(reserved).any(|(number, ifindex)| {
            adopted.iter().any(|a| (a.number == number) != (Some(a.ifindex) == ifindex))
        })
    }

    /// The number for a device: the one that it had, else the wanted one. `None`: neither is there,
    /// or free.
    pub(crate) fn number(
        &self,
        ifindex: Option<u32>,
        wanted: Option<PortNo>,
        taken: &BTreeSet<PortNo>,
    ) -> Option<PortNo> {
        let own = self.reserved.iter().find(|r| Some(r.ifindex) == ifindex).map(|r| r.number);
        let is_free = |n: &PortNo| !taken.contains(n) && !self.is_kept(*n, ifindex);
        own.filter(is_free).or(wanted.filter(is_free))
    }

    /// Adopted flows know a device by this number, and not the one with this index.
    pub(crate) fn is_kept(&self, number: PortNo, ifindex: Option<u32>) -> bool {
        self.reserved.iter().any(|r| r.number == number && Some(r.ifindex) != ifindex)
    }
}
