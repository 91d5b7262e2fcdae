// SPDX-License-Identifier: Apache-2.0
//! Two switches of one kind that a tunnel joins, with a host at each.
//!
//! ```text
//!  host 1     switch 1                        switch 2     host 2
//!  eth0 ─── p1 [ br0 ] t1 · · · tunnel · · · t1 [ br0 ] p2 ─── eth0
//!              [ phy ] u0 ───── underlay ──── u0 [ phy ]
//! ```
//!
//! A Linux bridge has the kernel's tunnel device as a port, and the underlay's address is at `u0`.

use crate::attempt::attempt;
use crate::endpoints::{Endpoints, FIRST_TIMEOUT};
use crate::netns::run;
use crate::pin::Cpus;
use crate::system::vswitch::BRIDGE;
use crate::system::{Between, Instance, System};
use crate::topology::{Remote, Wire};
use anyhow::{Context, Result, ensure};

/// The MTU of hosts: their frames fit the underlay with any of the headers.
const MTU: u32 = 1400;
/// Makes a device of the underlay one of cards: it receives by NAPI, and sends whole frames with
/// finished checksums. Otherwise the other end would not take frames at XDP.
const AS_CARD: &str = "ethtool -K u0 gro on tx off tso off txvlan off tx-vlan-stag-hw-insert off";
/// The tunnel's port in OpenFlow.
const TUNNEL_PORT: u32 = 9;

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    Vxlan,
    /// With checksums of the outer UDP header, as OVN has it.
    Geneve,
}

impl Tunnel {
    pub const ALL: [Tunnel; 2] = [Tunnel::Vxlan, Tunnel::Geneve];

    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Tunnel::Vxlan => "VXLAN",
            Tunnel::Geneve => "Geneve, csum=true",
        }
    }

    /// A tunnel port for `ovs-vsctl set interface`.
    fn interface(self) -> &'static str {
        match self {
            Tunnel::Vxlan => "type=vxlan options:key=100",
            Tunnel::Geneve => "type=geneve options:key=100 options:csum=true",
        }
    }

    /// A tunnel device for `ip link add`.
    fn device(self, local: &str, remote: &str) -> String {
        match self {
            Tunnel::Vxlan => {
                format!("vxlan id 100 local {local} remote {remote} dstport 4789 nolearning")
            }
            Tunnel::Geneve => format!("geneve id 100 remote {remote} dstport 6081 udpcsum"),
        }
    }
}

/// The treatment of packets that are still to be segmented by the underlay's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underlay {
    /// They stay whole until a device of the receiver cuts them.
    Whole,
    /// They are cut to 1,500 bytes at the sender; GRO joins them at the receiver.
    Cut,
}

impl Underlay {
    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Underlay::Whole => "keeps large segments",
            Underlay::Cut => "1,500 B on the wire",
        }
    }
}

/// A switch and its host.
pub struct Site {
    pub instance: Box<dyn Instance>,
    /// The host at port 1.
    pub wire: Wire,
}

/// Two sites. The calling thread has to live as long as this value.
pub struct Overlay {
    pub system: System,
    pub sites: [Site; 2],
    /// Settings that had to be changed by hand, for the page.
    pub note: Option<String>,
    pub cpus: Cpus,
}

/// The address of a site, 1 or 2, in the underlay.
fn outer(site: u32) -> String {
    format!("192.0.2.{site}")
}

impl Overlay {
    /// Starts two switches, and joins them.
    pub fn new(system: System, cpus: Cpus, tunnel: Tunnel, remote: Remote) -> Result<Overlay> {
        let overlay = Overlay::apart(system, cpus, remote)?;
        for (number, site) in (1..).zip(&overlay.sites) {
            site.join(system, number, tunnel)?;
        }
        Ok(overlay)
    }

    /// Starts two switches without ports. The devices are there.
    pub fn apart(system: System, cpus: Cpus, remote: Remote) -> Result<Overlay> {
        let one = Site::new(system, cpus, 1, remote)?;
        let two = Site::new(system, cpus, 2, remote)?;
        let there = two.instance.netns().path();
        let pair = format!("u0 type veth peer name u0 netns {}", there.display());
        run(one.instance.netns(), &format!("ip link add {pair}"))?;
        for site in [&one, &two] {
            run(site.instance.netns(), "ip link set u0 up")?;
            if remote == Remote::Card {
                run(site.instance.netns(), AS_CARD)?;
            }
        }
        Ok(Overlay { system, sites: [one, two], note: None, cpus })
    }

    /// The hosts, which reach each other by TCP. Transmit checksum offload of the hosts is switched
    /// off if the system does not finish checksums, and that is noted.
    pub fn with_tcp(mut self) -> Result<Overlay> {
        let [one, two] = &self.sites;
        let there = two.wire.host.address();
        ensure!(one.wire.host.reaches(there, FIRST_TIMEOUT), "the hosts do not reach each other");
        self.note = self.endpoints()?.let_tcp_pass()?;
        Ok(self)
    }

    /// The client at the first site, the server at the second.
    pub fn endpoints(&self) -> Result<Endpoints> {
        let [one, two] = &self.sites;
        Ok(Endpoints {
            client: one.wire.host.netns.clone(),
            server: two.wire.host.netns.clone(),
            address: two.wire.host.address().parse()?,
            cpus: self.cpus,
        })
    }

    /// Sets the devices of the underlay.
    pub fn set(&self, underlay: Underlay) -> Result<()> {
        let on = if underlay == Underlay::Whole { "on" } else { "off" };
        for site in &self.sites {
            run(
                site.instance.netns(),
                &format!(
                    "ethtool -K u0 tso {on} tx-udp_tnl-segmentation {on} \
                     tx-udp_tnl-csum-segmentation {on} gro on"
                ),
            )?;
        }
        Ok(())
    }

    /// A report of megaflows that are not on the requested tier, under traffic.
    pub fn misplaced(&self) -> Option<String> {
        self.sites.iter().find_map(|site| site.instance.misplaced())
    }
}

impl Site {
    /// A switch with a host at port 1 of its bridge.
    fn new(system: System, cpus: Cpus, number: u32, remote: Remote) -> Result<Site> {
        // Open vSwitch 3.1 does not segment what it encapsulates, so it is not given large segments.
        let instance = system.start(cpus, Between::Frames).context("starting")?;
        let name = format!("p{number}");
        let wire = Wire::new(instance.netns(), &name, &format!("10.0.0.{number}/24"), remote)?;
        run(&wire.host.netns, &format!("ip link set eth0 mtu {MTU}"))?;
        Ok(Site { instance, wire })
    }

    /// Joins it to the other site, whose device `u0` is there.
    fn join(&self, system: System, number: u32, tunnel: Tunnel) -> Result<()> {
        let netns = self.instance.netns();
        let (local, other) = (outer(number), outer(3 - number));
        let port = &self.wire.port.name;
        let Some(switch) = self.instance.switch() else {
            ensure!(system == System::LinuxBridge, "this system has no tunnels");
            let device = tunnel.device(&local, &other);
            let made = run(
                netns,
                &format!(
                    "ip addr add {local}/24 dev u0 && ip link add t1 type {device} && \
                     ip link set t1 mtu {MTU} master br0 up && ip link set {port} master br0"
                ),
            );
            return made.map(drop).context("the kernel's tunnel device");
        };
        let on_tier = |port: &str| match system {
            System::Slipswitch(tier) => {
                format!("-- set interface {port} other_config:tier={}", tier.name())
            }
            _ => String::new(),
        };
        attempt(|| {
            switch.vsctl(&format!(
                "add-port {BRIDGE} {port} -- set interface {port} ofport_request=1 \
                 -- add-br phy -- set bridge phy datapath_type=netdev -- add-port phy u0 {} {}",
                on_tier(port),
                on_tier("u0")
            ));
            switch.netns().sh(&format!("ip addr add {local}/24 dev phy; ip link set phy up"));
            switch.vsctl(&format!(
                "add-port {BRIDGE} t1 -- set interface t1 ofport_request={TUNNEL_PORT} {} \
                 options:remote_ip={other}",
                tunnel.interface()
            ));
            let failed = switch.vsctl("--bare --columns=name,error find interface 'error!=[]'");
            ensure!(failed.trim().is_empty(), "no ports: {}", failed.trim());
            switch.flows(
                BRIDGE,
                &format!(
                    "in_port=1 actions=output:{TUNNEL_PORT}\n\
                     in_port={TUNNEL_PORT} actions=output:1\n"
                ),
            );
            Ok(())
        })
    }
}
