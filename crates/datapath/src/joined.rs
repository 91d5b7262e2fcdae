// SPDX-License-Identifier: Apache-2.0
//! The messages between joined datapaths: a faster one that holds some flows, and the one below it
//! that holds all.

use crate::{Actions, PortNo};
use flow::Key;

/// Which side of a device is the switch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Packets come in from the device (a NIC, a veth end); outputs are transmitted by it.
    Device,
    /// Packets come in from the host's stack (devices that the switch made); outputs are
    /// received by the host.
    Stack,
    /// As [`Side::Device`], but the host's stack has the device, too: only packets of tunnels come in
    /// ([`crate::PortKind::Underlay`]).
    Underlay,
}

/// A port found in tables that an earlier daemon left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedPort {
    /// Its number.
    pub number: PortNo,
    /// Its interface, when the tables were left.
    pub ifindex: u32,
}

/// Packets and bytes at a port whose device does not count them ([`Side::Stack`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PortCounts {
    /// Packets from the port.
    pub rx_packets: u64,
    /// Bytes from the port.
    pub rx_bytes: u64,
    /// Packets to the port.
    pub tx_packets: u64,
    /// Bytes to the port.
    pub tx_bytes: u64,
    /// Packets from any port, also one whose device counts, that the limits of its rate dropped.
    pub rx_policed: u64,
}

/// The state of a packet when a datapath passes it on to the one below: the parts of its key that
/// are not in the packet itself. Host integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissOrigin {
    /// The port that it came in on.
    pub in_port: PortNo,
    /// Not 0: it is to be looked up again, as by [`crate::Action::Recirc`].
    pub recirc_id: u32,
    /// The hash that [`crate::Action::Hash`] computed; 0 when none ran.
    pub dp_hash: u32,
    /// `skb_priority` of the key.
    pub priority: u32,
    /// `pkt_mark` of the key.
    pub mark: u32,
    /// How often it was looked up again so far.
    pub recirculations: u32,
    /// Set when the packet met [`crate::Action::Ct`].
    pub tracked: Option<Box<Tracked>>,
}

/// The state of a packet that met [`crate::Action::Ct`] in the datapath that passes it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// A key with the fields `ct_*`.
    pub fields: Key,
    /// The actions that are left for the packet, of the flow that it met. `None`: it met no flow.
    pub rest: Option<Actions>,
}

impl MissOrigin {
    /// A packet as it came in on a port.
    pub fn port(in_port: PortNo) -> MissOrigin {
        MissOrigin {
            in_port,
            recirc_id: 0,
            dp_hash: 0,
            priority: 0,
            mark: 0,
            recirculations: 0,
            tracked: None,
        }
    }
}
