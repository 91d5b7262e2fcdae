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
use anyhow::{Result, bail};
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
    LinuxBridge,
    /// Open vSwitch with the datapath of the kernel's module.
    OvsKernel,
    /// Open vSwitch's userspace datapath over AF_PACKET.
    OvsAfPacket,
    /// Open vSwitch's userspace datapath over AF_XDP.
    OvsAfXdp,
    /// Open vSwitch's userspace datapath over DPDK.
    OvsDpdk,
    /// Slipswitch, with both ports on a tier.
    Slipswitch(Tier),
}

impl System {
    /// All of them, limits first.
    pub const ALL: [System; 11] = [
        System::BareXdp,
        System::BareLookup,
        System::BareTc,
        System::LinuxBridge,
        System::OvsKernel,
        System::OvsAfPacket,
        System::OvsAfXdp,
        System::OvsDpdk,
        System::Slipswitch(Tier::Xdp),
        System::Slipswitch(Tier::Tcx),
        System::Slipswitch(Tier::Userspace),
    ];

    /// Name on the page.
    pub const fn name(self) -> &'static str {
        match self {
            System::BareXdp => "bare XDP redirect",
            System::BareLookup => "bare XDP lookup",
            System::BareTc => "bare tc redirect",
            System::LinuxBridge => "Linux bridge",
            System::OvsKernel => "OVS kernel",
            System::OvsAfPacket => "OVS AF_PACKET",
            System::OvsAfXdp => "OVS AF_XDP",
            System::OvsDpdk => "OVS-DPDK",
            System::Slipswitch(Tier::Xdp) => "Slipswitch xdp",
            System::Slipswitch(Tier::Tcx) => "Slipswitch tcx",
            System::Slipswitch(Tier::Userspace) => "Slipswitch userspace",
        }
    }

    /// True when it takes OpenFlow rules.
    pub fn has_rules(self) -> bool {
        !matches!(self, System::BareXdp | System::BareLookup | System::BareTc | System::LinuxBridge)
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
            System::LinuxBridge => Ok(Box::new(bridge::Bridge::start()?)),
            System::OvsKernel => Ok(Box::new(recipes::ovs_kernel(cpus)?)),
            System::OvsAfPacket => Ok(Box::new(recipes::ovs_af_packet(cpus, between))),
            System::OvsAfXdp => Ok(Box::new(recipes::ovs_af_xdp(cpus))),
            System::OvsDpdk => Ok(Box::new(recipes::ovs_dpdk(cpus)?)),
            System::Slipswitch(tier) => Ok(Box::new(recipes::slipswitch(tier, cpus))),
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

    /// Makes two devices of its namespace its ports. Called once.
    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()>;

    /// Makes one more device the third port. Called once, after [`Instance::add_ports`].
    ///
    /// # Errors
    /// In systems without rules, which have two ports.
    fn add_third(&mut self, port: &Port) -> Result<()> {
        bail!("{} would be a third port, and this system has two", port.name)
    }

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
