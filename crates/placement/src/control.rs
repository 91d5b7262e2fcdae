// SPDX-License-Identifier: Apache-2.0
//! The control side's records of ports and settings.

use crate::eligibility::PortEligibility;
use crate::postponed::Postponed;
use crate::slots::{Slot, Slots};
use crate::socket::SocketState;
use datapath::offload::{Attached, OffloadPort, PortSettings, Reason, TierState};
use datapath::{
    AdoptedPort, EgressQos, OffloadProvider, PortKind, PortNo, Refusal, Side, Tier, TierSet,
    TunnelEndpoint,
};
use netdev::{Kind, Policing};
use std::collections::{BTreeMap, BTreeSet};
use tunnel::PortConfig;

/// The state of a port on one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTier {
    /// The tier.
    pub tier: Tier,
    /// `Ok` when the tier takes the port's packets, else the reason.
    pub state: Result<(), Reason>,
    /// A few words on the way in which the port is attached; empty for the ordinary way.
    pub how: &'static str,
}

/// Returns the state of a port that is on no tier of a provider, for this reason. An optional
/// provider that is off has no state: nothing mentions it.
/// A port whose setting names a tier of it does.
pub(crate) fn detached(slot: &Slot, reason: &Reason, settings: &PortSettings) -> Attached {
    let is_asked_for = settings.tier.is_some_and(|tier| slot.tiers().has(tier));
    let is_off = slot.spec.is_optional && reason.refusal == Refusal::TierDisabled && !is_asked_for;
    let tiers = if is_off { TierSet::NONE } else { slot.tiers() };
    let state = |tier| TierState::refused(tier, reason.clone(), true);
    Attached {
        tiers: tiers.tiers().map(state).collect(),
        takes_receive: false,
        is_moving: false,
        affects_others: false,
        needs_taker: false,
    }
}

/// The control side's record of a port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// The name that the database gives it.
    pub(crate) name: String,
    /// The name that the device has now.
    pub(crate) device: String,
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    pub(crate) settings: PortSettings,
    /// Ingress policing.
    pub(crate) policing: Policing,
    /// The QoS that packets to the port must meet.
    pub(crate) egress: EgressQos,
    /// The interface index of its device; `None` while the device is gone or in another network
    /// namespace.
    pub(crate) ifindex: Option<u32>,
    /// Its device is in another network namespace.
    pub(crate) is_away: bool,
    /// Bytes after the Ethernet header.
    pub(crate) mtu: u32,
    pub(crate) is_up: bool,
    pub(crate) socket: SocketState,
    /// The next part of its attachment, which [`crate::PlacedDatapath::work_off`] carries out.
    pub(crate) postponed: Option<Postponed>,
    /// Its state at each provider, in the order of the list.
    pub(crate) at: Vec<Attached>,
    /// At the last attachment, a provider's filters were to see its packets before slower providers.
    pub(crate) is_after_filters: bool,
}

/// True when filters of a provider see the packets of a port with this state there.
pub(crate) fn filters(attached: &Attached) -> bool {
    attached.needs_taker && attached.tiers.iter().any(|state| state.ingress.is_ok())
}

/// The reason of a port that no provider has seen yet.
pub(crate) fn not_yet() -> Reason {
    Reason::new(Refusal::PortNotHere, "not attached yet")
}

impl Port {
    /// Returns the record of a port that is attached to no provider yet.
    pub(crate) fn new(
        name: &str,
        kind: Kind,
        side: Side,
        settings: PortSettings,
        slots: &Slots,
    ) -> Port {
        let reason = |slot: &Slot| slot.absent().cloned().unwrap_or_else(not_yet);
        let at = slots.iter().map(|slot| detached(slot, &reason(slot), &settings)).collect();
        Port {
            name: name.to_owned(),
            device: name.to_owned(),
            kind,
            side,
            settings,
            policing: Policing::default(),
            egress: EgressQos::None,
            ifindex: None,
            is_away: false,
            mtu: 0,
            is_up: false,
            socket: SocketState::default(),
            postponed: None,
            at,
            is_after_filters: false,
        }
    }

    /// Returns the side of the device on which the switch is: the host's stack uses the devices
    /// that the switch creates, and those of the underlay.
    pub(crate) fn side_of(spec: PortKind, kind: Kind) -> Side {
        match kind {
            _ if spec == PortKind::Underlay => Side::Underlay,
            Kind::Internal | Kind::Tap => Side::Stack,
            _ => Side::Device,
        }
    }

    /// Returns the port in the form in which providers get it.
    pub(crate) fn offload<'a>(
        &'a self,
        number: PortNo,
        ingress: Result<(), &'a Reason>,
        is_after_filters: bool,
    ) -> OffloadPort<'a> {
        OffloadPort {
            number,
            name: &self.name,
            device: &self.device,
            kind: self.kind,
            side: self.side,
            ifindex: self.ifindex,
            mtu: self.mtu,
            is_up: self.is_up,
            egress: self.egress,
            policing: self.policing,
            settings: &self.settings,
            ingress,
            is_after_filters,
        }
    }

    /// True when what one provider does at the port depends on what others do there.
    pub(crate) fn couples_providers(&self) -> bool {
        self.is_after_filters || self.at.iter().any(|attached| attached.needs_taker)
    }

    /// Returns the port's state at the tiers of all providers, fastest first.
    pub(crate) fn states(&self) -> impl DoubleEndedIterator<Item = &TierState> {
        self.at.iter().flat_map(|attached| &attached.tiers)
    }

    pub(crate) fn eligibility(&self) -> PortEligibility {
        PortEligibility::of(self.states())
    }

    /// Returns the tiers that take its packets, or whose flows may output to it.
    pub(crate) fn in_use(&self) -> TierSet {
        let PortEligibility { tiers, outputs, .. } = self.eligibility();
        tiers.union(outputs)
    }

    /// Checks whether any provider may take the port's packets; the error is the reason against it.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        if self.is_away {
            let detail = "its device is in another network namespace, and the kernel forwards \
                          between devices of one";
            return Err(Reason::new(Refusal::PortNotHere, detail));
        }
        // A dummy has no interface.
        if self.ifindex.is_none() && self.kind != Kind::Dummy {
            return Err(Reason::new(Refusal::PortNotHere, "its device is gone"));
        }
        if self.settings.tier == Some(Tier::Userspace) {
            let detail = "other_config:tier=userspace of this port";
            return Err(Reason::new(Refusal::TierSetting, detail));
        }
        if self.egress == EgressQos::Discipline && self.side == Side::Stack {
            let detail = "its QoS shapes the packets of the host, which BPF would take before that";
            return Err(Reason::new(Refusal::Qos, detail));
        }
        Ok(())
    }

    /// Checks whether the limits of the port's packets keep it from a provider.
    pub(crate) fn check_policing(&self, provider: &dyn OffloadProvider) -> Result<(), Reason> {
        if !self.policing.is_on() || provider.keeps_policing() {
            return Ok(());
        }
        let detail = "ingress_policing_rate or ingress_policing_kpkts_rate is set; 0 turns it off";
        Err(Reason::new(Refusal::Policing, detail))
    }
}

/// The reasons that keep all ports out of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Blockers {
    /// A setting of the switch forbids the provider.
    pub(crate) setting: Option<Reason>,
    /// The provider is not there, is not served yet, or has failed.
    pub(crate) broken: Option<Reason>,
}

impl Blockers {
    pub(crate) fn check(&self) -> Result<(), &Reason> {
        self.broken.as_ref().or(self.setting.as_ref()).map_or(Ok(()), Err)
    }
}

/// The port of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub(crate) config: PortConfig,
    /// Index of the device of the kernel whose packets are those of the port.
    pub(crate) device: Option<u32>,
}

/// All ports, and the settings of the switch.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) ports: BTreeMap<PortNo, Port>,
    /// One for each provider, in the order of the list.
    pub(crate) blockers: Vec<Blockers>,
    /// Port numbers in adopted flows, each with the device that the number stands for.
    pub(crate) reserved: Vec<AdoptedPort>,
    /// The same of tunnel ports, with their configurations.
    pub(crate) reserved_tunnels: Vec<(PortNo, PortConfig)>,
    /// Flows were adopted, and the first configuration has not added all its ports yet.
    pub(crate) adopting: bool,
    /// The addresses to which packets of tunnels come.
    pub(crate) endpoints: Vec<TunnelEndpoint>,
    /// The ports of tunnels.
    pub(crate) tunnels: BTreeMap<PortNo, Tunnel>,
    /// Number of new ports that are attached to providers as soon as they are added. The attachment
    /// of further ones is postponed.
    pub(crate) immediate: usize,
}

impl Control {
    pub(crate) fn new(slots: &Slots) -> Control {
        let blocked = |slot: &Slot| Blockers { setting: None, broken: slot.absent().cloned() };
        Control {
            ports: BTreeMap::new(),
            blockers: slots.iter().map(blocked).collect(),
            reserved: Vec::new(),
            reserved_tunnels: Vec::new(),
            adopting: false,
            endpoints: Vec::new(),
            tunnels: BTreeMap::new(),
            immediate: usize::MAX,
        }
    }

    /// Reserves the numbers of adopted ports for the devices and the tunnels that had them.
    pub(crate) fn reserve(&mut self, ports: Vec<AdoptedPort>, tunnels: Vec<(PortNo, PortConfig)>) {
        self.adopting |= !ports.is_empty() || !tunnels.is_empty();
        let is_new = |tunnel: &(PortNo, PortConfig)| !self.reserved_tunnels.contains(tunnel);
        let new: Vec<(PortNo, PortConfig)> = tunnels.into_iter().filter(is_new).collect();
        self.reserved_tunnels.extend(new);
        let is_new = |port: &AdoptedPort| self.reserved.iter().all(|r| r.number != port.number);
        let new: Vec<AdoptedPort> = ports.into_iter().filter(is_new).collect();
        self.reserved.extend(new);
    }

    /// Returns true when a present or reserved port disagrees with `adopted`: its device has
    /// another number there, or its number stands for another device.
    pub(crate) fn contradicts(&self, adopted: &[AdoptedPort]) -> bool {
        let ports = self.ports.iter().map(|(number, port)| (*number, port.ifindex));
        let reserved = self.reserved.iter().map(|r| (r.number, Some(r.ifindex)));
        ports.chain(reserved).any(|(number, ifindex)| {
            adopted.iter().any(|a| (a.number == number) != (Some(a.ifindex) == ifindex))
        })
    }

    /// Returns the number for a device: the reserved one, else the wanted one, if it is free.
    /// `None` when neither exists or is free.
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

    /// Returns true when a present port with a device has the number, or when it is reserved for one.
    pub(crate) fn is_taken(&self, number: PortNo) -> bool {
        self.ports.contains_key(&number) || self.reserved.iter().any(|r| r.number == number)
    }

    /// Returns the number that is reserved for a tunnel port.
    pub(crate) fn tunnel_number(&self, config: &PortConfig) -> Option<PortNo> {
        let same = |(_, held): &&(PortNo, PortConfig)| held == config;
        self.reserved_tunnels.iter().find(same).map(|(number, _)| *number)
    }

    /// Returns true when the number is reserved for a device other than the one with this index, or for a
    /// tunnel port.
    pub(crate) fn is_kept(&self, number: PortNo, ifindex: Option<u32>) -> bool {
        self.reserved.iter().any(|r| r.number == number && Some(r.ifindex) != ifindex)
            || self.reserved_tunnels.iter().any(|(reserved, _)| *reserved == number)
    }
}
