// SPDX-License-Identifier: Apache-2.0
//! Tunnel ports of the switch.
//!
//! A *vport* is a tunnel port of a bridge: an OpenFlow port with a [`Config`]. All vports of one
//! kind and UDP port share one port of the datapath, as in Open vSwitch; [`backing_name`] is that
//! port's name. A packet from such a datapath port belongs to the vport that [`Vports::receive`]
//! finds by the outer header.
//!
//! # Overview
//! | module | contents |
//! |---|---|
//! | `backings` | the datapath ports that stand for tunnels |
//! | `config` | options of a vport, and their texts |
//! | `hosts` | devices of the host that are ports of no bridge |
//! | `listening` | from a packet to an address of the host to the tunnel that it comes out of |
//! | `vports` | from the outer header of a packet to the vport |

mod backings;
mod config;
mod hosts;
mod listening;
mod vports;

pub(crate) use backings::Backings;
pub use config::{Config, Erspan, Extensions, OrFlow, PacketTypeMode, Tos, Ttl};
pub(crate) use hosts::HostPorts;
pub use hosts::{HostDevice, Hosts};
pub use listening::{AddressedDevice, Listener, Listening};
pub use vports::{Outer, Vport, VportMatch, Vports};

use crate::snapshot::BridgeIndex;
use ::tunnel::SourcePorts;
use datapath::TunnelKind;
use hashbrown::HashMap;
use openflow::PortNo;
use std::sync::Arc;
use underlay::Underlay;

/// Actions by which packets go into tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// The switch pushes the outer headers, and translates the outer frame further.
    #[default]
    Push,
    /// A datapath that knows tunnels gets the tunnel's fields with the packet: `openvswitch.ko`, or
    /// any after `ofproto/tnl-push-pop off`.
    Set,
}

/// All about tunnels that translation reads.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    /// From a packet that has come out of a tunnel to its vport.
    pub vports: Vports,
    /// Addresses of the host to which packets of tunnels come.
    pub listening: Listening,
    /// The ports of devices, by the names of the devices: a port of the bridge with this name, or else
    /// that of the first bridge. Empty without tunnels.
    pub devices: HashMap<String, (BridgeIndex, PortNo)>,
    /// Devices of the host that are ports of no bridge.
    pub hosts: Hosts,
    /// Routes and neighbours.
    pub underlay: Option<Arc<Underlay>>,
    /// A route or a rule names a mark of packets.
    pub routes_by_mark: bool,
    /// Actions by which packets go into tunnels.
    pub output: Output,
    /// UDP source ports of outer headers.
    pub source_ports: SourcePorts,
}

impl Tunnels {
    /// Returns the actions by which packets go into a tunnel with these options.
    pub fn output_of(&self, config: &Config) -> Output {
        if config.is_kernel { Output::Set } else { self.output }
    }

    /// Returns false when no packet of this datapath port has tunnel options: the port stands for
    /// tunnels of another kind than Geneve.
    pub(crate) fn may_have_options(&self, backing: datapath::PortNo) -> bool {
        let listener = self.listening.listeners().iter().find(|l| l.number == backing);
        listener.is_none_or(|l| l.kind == TunnelKind::Geneve)
    }
}

/// TTL of outer headers where no option says otherwise.
pub const DEFAULT_TTL: u8 = 64;

/// Returns the UDP (STT: TCP) port of a kind where no option says otherwise; `None` for a kind
/// without ports. Bareudp has ports, but no default.
pub const fn default_port(kind: TunnelKind) -> Option<u16> {
    match kind {
        TunnelKind::Geneve => Some(6081),
        TunnelKind::Vxlan => Some(4789),
        TunnelKind::Gtpu => Some(2152),
        TunnelKind::Lisp => Some(4341),
        TunnelKind::Stt => Some(7471),
        TunnelKind::Bareudp => Some(0),
        TunnelKind::Erspan
        | TunnelKind::Gre
        | TunnelKind::Ip6Erspan
        | TunnelKind::Ip6Gre
        | TunnelKind::Srv6 => None,
    }
}

/// Returns the name of the datapath port that carries all vports of `kind` with this UDP port.
pub fn backing_name(kind: TunnelKind, port: u16) -> String {
    let stem = match kind {
        TunnelKind::Bareudp => "udp_sys",
        TunnelKind::Erspan => "erspan_sys",
        TunnelKind::Geneve => "genev_sys",
        TunnelKind::Gre => "gre_sys",
        TunnelKind::Gtpu => "gtpu_sys",
        TunnelKind::Ip6Erspan => "ip6erspan_sys",
        TunnelKind::Ip6Gre => "ip6gre_sys",
        TunnelKind::Lisp => "lisp_sys",
        TunnelKind::Srv6 => "srv6_sys",
        TunnelKind::Stt => "stt_sys",
        TunnelKind::Vxlan => "vxlan_sys",
    };
    match default_port(kind) {
        Some(_) => format!("{stem}_{port}"),
        None => stem.to_owned(),
    }
}
