// SPDX-License-Identifier: Apache-2.0
//! What the control side knows of ports and settings.

use crate::TierSet;
use crate::fast_path::Reason;
use crate::fit::{Wish, XdpFacts};
use crate::gates::Gate;
use datapath::{AdoptedPort, PortNo, Refusal, Side, Tier};
use datapath_bpf::XdpMode;
use netdev::{Kind, Reception};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A port on one tier, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierState {
    /// The tier.
    pub tier: Tier,
    /// Attached, or why not.
    pub state: Result<(), Reason>,
    /// What there is to say of how it is attached; empty for the ordinary way.
    pub how: &'static str,
}

/// What the control side knows of a port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) wish: Wish,
    /// `other_config:xdp-mode`.
    pub(crate) mode: XdpMode,
    /// `options:bpf-object`: the user's program for XDP.
    pub(crate) object: Option<PathBuf>,
    pub(crate) policed: bool,
    /// The index of its device, while that is in the switch's namespace.
    pub(crate) ifindex: Option<u32>,
    /// Its device is in another one.
    pub(crate) is_away: bool,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    pub(crate) facts: XdpFacts,
    pub(crate) attached: TierSet,
    /// The fast path knows it.
    pub(crate) is_target: bool,
    /// XDP may redirect to it.
    pub(crate) redirect: Result<(), Reason>,
    pub(crate) tcx: Result<(), Reason>,
    pub(crate) xdp: Result<(), Reason>,
    /// What the base receives from the device by itself.
    pub(crate) reception: Reception,
    /// What it receives goes through the fast path's filter.
    pub(crate) has_filter: bool,
    /// The base could not be told last time; the log says so.
    pub(crate) is_deaf: bool,
}

pub(crate) fn not_yet() -> Reason {
    Reason::new(Refusal::PortNotHere, "not attached yet")
}

impl Port {
    /// A port that is nowhere yet.
    pub(crate) fn new(name: &str, kind: Kind, wish: Wish) -> Port {
        Port {
            name: name.to_owned(),
            kind,
            wish,
            mode: XdpMode::Driver,
            object: None,
            policed: false,
            ifindex: None,
            is_away: false,
            mtu: 0,
            up: false,
            facts: XdpFacts::default(),
            attached: TierSet::NONE,
            is_target: false,
            redirect: Err(not_yet()),
            tcx: Err(not_yet()),
            xdp: Err(not_yet()),
            reception: Reception::On,
            has_filter: false,
            is_deaf: false,
        }
    }

    pub(crate) fn side(&self) -> Side {
        Port::side_of(self.kind)
    }

    /// Devices that the switch made are the host's ends.
    pub(crate) fn side_of(kind: Kind) -> Side {
        match kind {
            Kind::Internal | Kind::Tap => Side::Stack,
            _ => Side::Device,
        }
    }

    /// What is wanted of XDP: who gives a program of their own wants it to run.
    pub(crate) fn xdp_wish(&self) -> Wish {
        self.wish.with_object(self.object.is_some())
    }

    /// True when what a veth's other end does makes a difference: this end is to be at XDP, or
    /// XDP, where some port is (`at_xdp`), may redirect to it. For cards, when their own settings
    /// do (VLAN tags that they take off).
    pub(crate) fn heeds_peer(&self, at_xdp: bool) -> bool {
        let wants_xdp = match self.facts.link_kind.as_deref() {
            None => matches!(self.wish, Wish::Auto | Wish::Xdp),
            Some("veth") => self.xdp_wish() == Wish::Xdp || at_xdp,
            Some(_) => false,
        };
        self.kind == Kind::System && wants_xdp
    }

    pub(crate) fn gate(&self) -> Gate {
        let closed = self.tcx.as_ref().err().map_or(Refusal::PortNotHere, |r| r.refusal);
        let redirect = self.redirect.as_ref().copied().map_err(|r| r.refusal);
        let denied = self.xdp.as_ref().err().filter(|_| self.xdp_wish() == Wish::Xdp);
        Gate {
            tiers: self.attached,
            closed,
            denied: denied.map(|reason| reason.refusal),
            is_target: self.is_target,
            redirect,
        }
    }
}

/// What keeps all ports in the base.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bars {
    /// `other_config:bpf-offload` is false.
    pub(crate) is_disabled: bool,
    /// The fast path cannot be used.
    pub(crate) broken: Option<Reason>,
}

impl Bars {
    pub(crate) fn check(&self) -> Result<(), Reason> {
        match &self.broken {
            Some(reason) => Err(reason.clone()),
            None if self.is_disabled => {
                Err(Reason::new(Refusal::TierDisabled, "other_config:bpf-offload=false"))
            }
            None => Ok(()),
        }
    }
}

/// All ports, and settings.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) ports: BTreeMap<PortNo, Port>,
    pub(crate) bars: Bars,
    /// Numbers that adopted flows know by these devices.
    pub(crate) reserved: Vec<AdoptedPort>,
    /// Ports of the first configuration are still to come.
    pub(crate) adopting: bool,
}

impl Control {
    pub(crate) fn new() -> Control {
        Control {
            ports: BTreeMap::new(),
            bars: Bars { is_disabled: false, broken: Some(Control::not_begun()) },
            reserved: Vec::new(),
            adopting: false,
        }
    }

    /// Some port is at XDP.
    pub(crate) fn is_at_xdp(&self) -> bool {
        self.ports.values().any(|port| port.attached.has(Tier::Xdp))
    }

    /// Why there is no fast path before there may be one.
    pub(crate) fn not_begun() -> Reason {
        Reason::new(Refusal::TierDisabled, "other_config:bpf-offload=false")
    }

    /// Ports may be attached.
    pub(crate) fn open(&mut self) {
        self.bars.broken = None;
    }

    /// Ports stay in the base, for this reason.
    pub(crate) fn give_up(&mut self, reason: Reason) {
        self.bars.broken = Some(reason);
    }

    /// Keeps the numbers of adopted ports for the devices that had them.
    pub(crate) fn reserve(&mut self, ports: Vec<AdoptedPort>) {
        self.adopting = !ports.is_empty();
        self.reserved = ports;
    }

    /// True when a port that is there has another number than adopted flows know its device by,
    /// or a number by which they know another device.
    pub(crate) fn contradicts(&self, adopted: &[AdoptedPort]) -> bool {
        self.ports.iter().any(|(number, port)| {
            adopted.iter().any(|a| (a.number == *number) != (Some(a.ifindex) == port.ifindex))
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
