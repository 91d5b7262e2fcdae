// SPDX-License-Identifier: Apache-2.0
//! Systems that are compared: they forward packets from one port to another.
//!
//! The life of an instance: [`System::start`] starts it, in a directory and a network namespace of
//! its own; devices are made in that namespace ([`crate::topology`]); [`Instance::add_ports`]
//! gives it those; [`Instance::install`] gives it rules, any number of times; dropping it ends it
//! and removes everything. All of this happens on one thread, which lives at least as long:
//! daemons die with it.

mod bare;
mod bridge;
mod hugepages;
mod recipes;
pub mod vswitch;

use crate::attempt::attempt;
use crate::pin::Cpus;
use crate::programs::Hook;
use crate::rules::Rules;
use crate::topology::Port;
use anyhow::Result;
use slipswitch_tests::harness::{Netns, Switch};

pub use recipes::DPDK;

/// Slipswitch's `other_config:tier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    Xdp,
    Tcx,
    Userspace,
}

impl Tier {
    /// As the database has it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Xdp => "xdp",
            Tier::Tcx => "tcx",
            Tier::Userspace => "userspace",
        }
    }
}

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A redirect through a devmap at XDP: the least work at that hook.
    BareXdp,
    /// The same, and one memory access for each packet: the least work for a switch that has
    /// flows.
    BareLookup,
    /// A redirect at the skb hook.
    BareTc,
    /// The same into the other end of a veth pair, which is in another namespace: the least work
    /// for containers.
    BareTcPeer,
    LinuxBridge,
    /// Open vSwitch with the datapath of the kernel's module.
    OvsKernel,
    /// Open vSwitch's userspace datapath over AF_PACKET.
    OvsAfPacket,
    /// Open vSwitch's userspace datapath over AF_XDP.
    OvsAfXdp,
    /// Open vSwitch's userspace datapath over DPDK.
    OvsDpdk,
    /// Slipswitch, with all ports on a tier.
    Slipswitch(Tier),
    /// Slipswitch's userspace datapath over AF_XDP.
    SlipswitchAfXdp,
}

impl System {
    /// All of them, limits first.
    pub const ALL: [System; 13] = [
        System::BareXdp,
        System::BareLookup,
        System::BareTc,
        System::BareTcPeer,
        System::LinuxBridge,
        System::OvsKernel,
        System::OvsAfPacket,
        System::OvsAfXdp,
        System::OvsDpdk,
        System::Slipswitch(Tier::Xdp),
        System::Slipswitch(Tier::Tcx),
        System::Slipswitch(Tier::Userspace),
        System::SlipswitchAfXdp,
    ];

    /// Name on the page.
    pub const fn name(self) -> &'static str {
        match self {
            System::BareXdp => "bare XDP redirect",
            System::BareLookup => "bare XDP lookup",
            System::BareTc => "bare tc redirect",
            System::BareTcPeer => "bare tc redirect_peer",
            System::LinuxBridge => "Linux bridge",
            System::OvsKernel => "OVS kernel",
            System::OvsAfPacket => "OVS AF_PACKET",
            System::OvsAfXdp => "OVS AF_XDP",
            System::OvsDpdk => "OVS-DPDK",
            System::Slipswitch(Tier::Xdp) => "Slipswitch xdp",
            System::Slipswitch(Tier::Tcx) => "Slipswitch tcx",
            System::Slipswitch(Tier::Userspace) => "Slipswitch userspace",
            System::SlipswitchAfXdp => "Slipswitch AF_XDP",
        }
    }

    /// True when it takes OpenFlow rules.
    pub fn has_rules(self) -> bool {
        use System::{BareLookup, BareTc, BareTcPeer, BareXdp, LinuxBridge};
        !matches!(self, BareXdp | BareLookup | BareTc | BareTcPeer | LinuxBridge)
    }

    /// The hook at which a sink costs least: frames leave for a card as skbs or without ever being
    /// one.
    pub fn leaves_by(self) -> Hook {
        match self {
            System::BareXdp | System::BareLookup | System::Slipswitch(Tier::Xdp) => Hook::Xdp,
            _ => Hook::Tc,
        }
    }

    /// Starts it, without ports.
    ///
    /// # Errors
    /// When this machine cannot run it, with the reason.
    pub fn start(self, cpus: Cpus, between: Between) -> Result<Box<dyn Instance>> {
        attempt(|| match self {
            System::BareXdp => Ok(Box::new(bare::Bare::xdp()) as Box<dyn Instance>),
            System::BareLookup => Ok(Box::new(bare::Bare::lookup())),
            System::BareTc => Ok(Box::new(bare::Bare::tc())),
            System::BareTcPeer => Ok(Box::new(bare::Bare::tc_peer())),
            System::LinuxBridge => Ok(Box::new(bridge::Bridge::start()?)),
            System::OvsKernel => Ok(Box::new(recipes::ovs_kernel(cpus)?)),
            System::OvsAfPacket => Ok(Box::new(recipes::ovs_af_packet(cpus, between))),
            System::OvsAfXdp => Ok(Box::new(recipes::ovs_af_xdp(cpus))),
            System::OvsDpdk => Ok(Box::new(recipes::ovs_dpdk(cpus)?)),
            System::Slipswitch(tier) => Ok(Box::new(recipes::slipswitch(tier, cpus))),
            System::SlipswitchAfXdp => Ok(Box::new(recipes::slipswitch_af_xdp(cpus))),
        })
    }
}

/// The two ends that an instance connects: the best settings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// The generator and its sink.
    Frames,
    /// Hosts, which leave checksums and segmentation to their devices.
    Hosts,
}

/// A running system.
pub trait Instance {
    /// The namespace of its ports.
    fn netns(&self) -> &Netns;

    /// Makes devices of its namespace its ports `first` and following.
    ///
    /// # Errors
    /// In systems without rules for other ports than the first two, which are added at once.
    fn add_ports(&mut self, first: u32, ports: &[Port]) -> Result<()>;

    /// Replaces the rules, and allows a megaflow for each. Where installed rules stay, so do their
    /// megaflows. Systems without rules forward as they always do.
    fn install(&mut self, _: Rules) -> Result<()> {
        Ok(())
    }

    /// Like [`Instance::install`], for a system that was restarted and has no rules.
    fn restore(&mut self, rules: Rules) -> Result<()> {
        self.install(rules)
    }

    /// The daemon with its database, if there is one.
    fn switch(&self) -> Option<&Switch> {
        None
    }

    fn switch_mut(&mut self) -> Option<&mut Switch> {
        None
    }

    /// Process ids of the daemons that move packets, for their CPU time.
    fn daemons(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Its settings apart from ports and rules, and what it cannot do, for the page.
    fn settings(&self) -> String;

    /// The number of its megaflows; `None` for a system that has none.
    fn megaflows(&self) -> Option<u64> {
        None
    }

    /// A report of megaflows that are not on the requested tier, under traffic.
    fn misplaced(&self) -> Option<String> {
        None
    }
}
