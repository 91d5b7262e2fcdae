// SPDX-License-Identifier: Apache-2.0
//! Systems that are compared: what moves packets from one port to another.
//!
//! The life of a peer: [`System::start`] starts it, in a directory and a network namespace of
//! its own; devices are made in that namespace ([`crate::topology`]); [`Peer::add_ports`] gives
//! it those; [`Peer::install`] gives it rules, as often as one likes; dropping it ends it and
//! leaves nothing behind. All of this on one thread, which lives at least as long: daemons die
//! with it.

mod bare;
mod bridge;
mod hugepages;
mod ovs;
mod slipswitch;
mod vswitch;

use crate::object::Hook;
use crate::pin::Cpus;
use crate::topology::Port;
use anyhow::{Result, bail};
use slipswitch_tests::harness::{Netns, Switch};
use std::net::Ipv4Addr;

pub use ovs::DPDK;
pub use vswitch::text as rules_text;

/// Where Slipswitch is told to run flows (`other_config:tier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// At the driver's hook.
    Xdp,
    /// At the skb's hook.
    Tcx,
    /// In the daemon.
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
    /// A redirect through a devmap at XDP: the least that can be done there.
    BareXdp,
    /// The same for flows of the generator, each of which it finds and counts: the least that can
    /// be done there by who has flows.
    BareLookup,
    /// A redirect at the skb hook.
    BareTc,
    /// The bridge of the kernel.
    LinuxBridge,
    /// Open vSwitch with the datapath of the kernel's module.
    OvsKernel,
    /// Open vSwitch's userspace datapath over AF_PACKET.
    OvsAfPacket,
    /// Open vSwitch's userspace datapath over AF_XDP.
    OvsAfXdp,
    /// Open vSwitch's userspace datapath over DPDK.
    OvsDpdk,
    /// This switch, with both ports on a tier.
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

    /// Name in the report.
    pub fn name(self) -> &'static str {
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

    /// True when it forwards whatever hosts send, and not frames of the generator alone.
    pub fn serves_hosts(self) -> bool {
        self != System::BareLookup
    }

    /// As what frames leave it for a card, and where a sink costs it least: without ever being
    /// an skb, or as one.
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
    pub fn start(self, cpus: Cpus, between: Between) -> Result<Box<dyn Peer>> {
        // The harness panics where a test would end.
        crate::attempt(|| match self {
            System::BareXdp => Ok(Box::new(bare::Bare::xdp()) as Box<dyn Peer>),
            System::BareLookup => Ok(Box::new(bare::Bare::lookup())),
            System::BareTc => Ok(Box::new(bare::Bare::tc())),
            System::LinuxBridge => Ok(Box::new(bridge::Bridge::start()?)),
            System::OvsKernel => Ok(Box::new(ovs::kernel(cpus)?)),
            System::OvsAfPacket => Ok(Box::new(ovs::af_packet(cpus, between))),
            System::OvsAfXdp => Ok(Box::new(ovs::af_xdp(cpus))),
            System::OvsDpdk => Ok(Box::new(ovs::dpdk(cpus)?)),
            System::Slipswitch(tier) => Ok(Box::new(slipswitch::start(tier, cpus))),
        })
    }
}

/// What a peer is between: settings that are the best for the one are not for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Our generator and its sink.
    Frames,
    /// Hosts, which leave checksums and segments to their devices.
    Hosts,
}

/// What a peer is to forward from its first port to its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// A rule for each of the generator's flows from 0 to this number, exact in ingress port and
    /// 5-tuple.
    OneToOne(u32),
    /// A rule for each of the generator's flows from 0 to the first number, and as many kinds of
    /// megaflows with masks of their own as the second says; flows are spread over them.
    Masks(u32, u32),
    /// One rule for all of them, by a prefix of the source address.
    Prefix,
    /// Both ways, everything: what hosts need that talk to each other.
    Normal,
    /// Both ways, and the megaflows look at TCP's ports, so that each connection has its own.
    PerConnection,
    /// Like [`Rules::Normal`], and this becomes of UDP from a third port.
    Third(Third),
    /// From the first port, ARP, and a rule for each of the first so many addresses of
    /// [`DESTINATIONS`]; everything from the second.
    Destinations(u32),
}

impl Rules {
    /// Flows that are to have a megaflow each; `None` where that is not said beforehand.
    pub fn flows(self) -> Option<u32> {
        match self {
            Rules::OneToOne(flows) | Rules::Masks(flows, _) | Rules::Destinations(flows) => {
                Some(flows)
            }
            _ => None,
        }
    }

    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Rules::OneToOne(_) => "1:1",
            Rules::Masks(..) => "1:1, several masks",
            Rules::Prefix => "prefix",
            Rules::Normal => "both ways",
            Rules::PerConnection => "both ways, by connection",
            Rules::Third(third) => third.name(),
            Rules::Destinations(_) => "by destination",
        }
    }
}

/// What becomes of UDP from a third port. All of it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Third {
    /// By one megaflow.
    Dropped,
    /// By a megaflow for each addresses and ports.
    Flows,
    /// By rules of many prefixes of both addresses: megaflows have many masks.
    Masks,
}

impl Third {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Third::Dropped => "dropped by one flow",
            Third::Flows => "new flows",
            Third::Masks => "new masks",
        }
    }
}

/// Addresses that the receiver takes as its own.
pub const DESTINATIONS: &str = "10.64.0.0/12";

/// An address of [`DESTINATIONS`].
pub fn destination(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 | flow)
}

/// A system that runs.
pub trait Peer {
    /// Where its ports have to be.
    fn netns(&self) -> &Netns;

    /// Makes two devices of its namespace its ports. Once.
    ///
    /// # Errors
    /// When it does not take them.
    fn add_ports(&mut self, ports: &[Port; 2]) -> Result<()>;

    /// Makes one more device a port, the third. Once, after [`Peer::add_ports`].
    ///
    /// # Errors
    /// When it does not take it, as systems without rules do not.
    fn add_third(&mut self, port: &Port) -> Result<()> {
        bail!("{} would be a third port, and this system has two", port.name)
    }

    /// Puts in rules in place of those there are, and sees to it that there may be a megaflow for
    /// each. Where the rules that there are stay, so do their megaflows. A system without rules
    /// forwards as it does.
    ///
    /// # Errors
    /// When it refuses them.
    fn install(&mut self, rules: Rules) -> Result<()>;

    /// Like [`Peer::install`], for a system that was started again and has no rules.
    ///
    /// # Errors
    /// When it refuses them.
    fn restore(&mut self, rules: Rules) -> Result<()> {
        self.install(rules)
    }

    /// The daemon with its database, where there is one.
    fn switch(&self) -> Option<&Switch> {
        None
    }

    /// The same, to stop and start it.
    fn switch_mut(&mut self) -> Option<&mut Switch> {
        None
    }

    /// Process ids of the daemons that move packets, for their CPU time.
    fn daemons(&self) -> Vec<u32> {
        Vec::new()
    }

    /// What it was told beside ports and rules, and what it cannot do, for the report.
    fn settings(&self) -> String;

    /// Megaflows that it has; `None` for a system that has none.
    fn megaflows(&self) -> Option<u64> {
        None
    }

    /// What it says of flows that are not where they were told to be, under traffic.
    fn strays(&self) -> Option<String> {
        None
    }
}
