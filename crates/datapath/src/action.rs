// SPDX-License-Identifier: Apache-2.0
//! Actions of megaflows: what OVS calls ODP actions (include/uapi/linux/openvswitch.h,
//! `enum ovs_action_attr`). Addresses and ports are network-order bytes or host integers as
//! each field says.
//!
//! # Rules for every datapath
//!
//! - An action cannot run on a packet without its header, or with impossible lengths in it
//!   ([`flow::extract`] lists the cases). The datapath drops such a packet at that action with
//!   [`DropReason::Malformed`]; earlier outputs have happened.
//! - Nested actions (`Sample`, `Clone`, both branches of `CheckPktLen`) run on a copy; the actions
//!   after them in the list see the packet unchanged.
//! - Checksums are updated incrementally (RFC 1624): a wrong one stays wrong. A UDP checksum of
//!   0 stays 0. In a packet with an unfinished checksum ([`packet::Offload::csum`]) only the
//!   pseudo header's sum is updated.
//! - An empty list drops the packet with [`DropReason::Flow`].
//! - A packet without an Ethernet header has the namespace of Ethernet types in its packet type.
//!   [`Action::Output`], [`Action::LbOutput`], and actions on Ethernet addresses and VLAN headers
//!   drop it as [`DropReason::Malformed`]; an output drops only its copy. So do actions on labels
//!   with a packet that does not begin with one, and the actions of NSH with a packet of another type
//!   than each needs.

use crate::{DropReason, PortNo};
use std::sync::Arc;

/// A list of actions, shared by flows and packets in flight. Empty is a drop.
pub type Actions = Arc<[Action]>;

/// One action. A datapath runs them in order on one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a copy of the packet as it is now.
    Output(PortNo),
    /// Send a copy of the packet as it is now to a member of the bond with this id: the one that
    /// the bond's table ([`crate::BondTable`]) has for the packet's bucket. The packet is hashed as by
    /// [`Action::Hash`], but `dp_hash` stays. Dropped with [`DropReason::InvalidBond`] without such a
    /// bond, or without a member in the bucket; only this copy is. Its bytes count on the bucket before
    /// the packet is cut.
    LbOutput(u32),
    /// Drop the packet, and count the reason. Stands alone in its list.
    Drop(DropReason),
    /// Call up with the packet as it is now.
    Userspace(Userdata),
    /// Run on from the tables: look the packet up again with this recirculation id.
    Recirc(u32),
    /// Set the packet's `dp_hash` from its 5-tuple (`symmetric`: equal for both directions)
    /// and `basis`.
    Hash {
        /// Source and destination are interchangeable.
        symmetric: bool,
        /// Mixed in.
        basis: u32,
    },
    /// The next output, to a port or a bond, or upcall sends at most this many bytes. Before a packet is cut, its
    /// unfinished checksum is finished; the cut packet loses its segmentation.
    Trunc(u32),
    /// Push an 802.1Q or 802.1ad header. `tci` has the CFI bit set, as in keys; on the wire it is
    /// clear. Later actions still find the headers that were found after the VLAN headers, even
    /// when there are now more VLAN headers than `flow::extract::vlan_limit`. The limit applies
    /// again when the packet is looked up again, goes up in an upcall, or is hashed.
    PushVlan {
        /// Tag protocol.
        tpid: u16,
        /// Priority, presence bit, VLAN id.
        tci: u16,
    },
    /// Pop the outermost VLAN header. VLAN headers beyond the limit stay payload until the limit
    /// applies again (see [`Action::PushVlan`]): they are not popped, and no header after them is
    /// found.
    PopVlan,
    /// Push an MPLS label stack entry after the VLAN headers and set the Ethernet type. A packet
    /// without an Ethernet header gets the entry in front of its first, and this type.
    PushMpls {
        /// The whole entry, host integer.
        lse: u32,
        /// 0x8847 or 0x8848.
        ethertype: u16,
    },
    /// Pop the outermost MPLS entry and set the Ethernet type. A packet without an Ethernet header gets
    /// this type; with [`tunnel::ETHERTYPE_TEB`] it is an Ethernet frame then.
    PopMpls {
        /// Ethernet type of the payload below the entry.
        ethertype: u16,
    },
    /// Put an MPLS label stack entry in front of the whole packet, whose type is then that of MPLS. A
    /// packet that is to be segmented, or has an unfinished checksum, is finished before; the actions
    /// that follow run for each segment. Dropped as [`DropReason::Malformed`] with another type.
    AddMpls {
        /// The whole entry, host integer.
        lse: u32,
        /// 0x8847 or 0x8848.
        ethertype: u16,
    },
    /// Set header fields. Checksums follow, unfinished ones too.
    Set(Set),
    /// Run `actions` on a copy of the packet with this probability (of 2^32).
    Sample {
        /// `u32::MAX` is always.
        probability: u32,
        /// The actions to run, on a copy of the packet.
        actions: Vec<Action>,
    },
    /// Run the actions on a copy of the packet.
    Clone(Vec<Action>),
    /// Drop the packet when it exceeds the rate of the meter with this id.
    Meter(u32),
    /// Branch on the packet's length in bytes, without its outermost VLAN header (ovs-actions(7),
    /// `check_pkt_larger`). A packet that is still to be segmented counts as its longest segment.
    CheckPktLen {
        /// The limit.
        len: u16,
        /// Run when the packet is longer.
        greater: Vec<Action>,
        /// Run when it is not.
        not_greater: Vec<Action>,
    },
    /// Track the packet's connection (ovs-actions(7), `ct`), and set its fields `ct_*` to what was
    /// found. A packet of another protocol than IP is invalid. A fragment waits until its packet is
    /// whole; the actions after this one then run for each fragment.
    Ct(Box<conntrack::Request>),
    /// Forget what [`Action::Ct`] found: the fields `ct_*` become zero.
    CtClear,
    /// Put outer headers in front of the packet. It is then an Ethernet frame without metadata whose
    /// ingress port is `out_port`. A packet that is to be segmented stays one where its segments
    /// can be made with these headers, else the actions that follow run for each segment. Dropped
    /// with [`DropReason::InvalidTunnelPort`] without such a tunnel port, and with
    /// [`DropReason::TunnelPush`] when the headers cannot carry it.
    ///
    /// A packet longer than [`tunnel::Header::room`], or whose segments are, does not leave whole. The
    /// outer packet is fragmented if it has no DF, else an inner IPv4 packet without DF is. Other
    /// packets are dropped with [`DropReason::OutputTooLong`], and [`tunnel::too_big`] is sent to the
    /// port that the packet came in by, for the frame as it came in.
    TunnelPush {
        /// The headers.
        header: Arc<tunnel::Header>,
        /// The tunnel port, which numbers the packets.
        tunnel_port: PortNo,
        /// The port that the outer frame goes to or comes from, for the lookup of its metadata.
        out_port: PortNo,
    },
    /// Take the outer headers off as this tunnel port does, and look the packet up again as one that
    /// came in on it. Counts as a recirculation. Dropped with [`DropReason::TunnelPop`] when the
    /// headers are not those of the port, and with [`DropReason::InvalidTunnelPort`] without such
    /// a port.
    TunnelPop(PortNo),
    /// Set the tunnel fields of the packet's metadata.
    SetTunnel(Box<flow::Tunnel>),
    /// Put an Ethernet header in front of a packet without one. Its type is the packet's.
    PushEth {
        /// Source address.
        src: [u8; 6],
        /// Destination address.
        dst: [u8; 6],
    },
    /// Take the Ethernet header off. The packet's type is then the header's Ethernet type. The
    /// packet must not have VLAN headers.
    PopEth,
    /// Put a Network Service Header in front of the packet, whose type is then that of NSH. The packet
    /// must be an Ethernet frame, IPv4, IPv6, or one of NSH: the header names which. A packet that is
    /// to be segmented, or has an unfinished checksum, is finished before; the actions that follow run
    /// for each segment.
    PushNsh(Box<crate::PushedNsh>),
    /// Take the Network Service Header off a packet whose type is that of NSH. The packet's type is
    /// then what the header names.
    PopNsh,
}

/// A value with the bits that count; the rest of the target stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Masked<T> {
    /// Zero outside the mask.
    pub value: T,
    /// Which bits are set.
    pub mask: T,
}

/// Which header fields to set. Addresses are in network byte order, numbers are host integers; a
/// field whose mask is zero stays.
///
/// All code that gives the fields a meaning (translation, texts, editors, the BPF encoder and
/// decoder) names every field of a variant: after a field is added here, the compiler lists the
/// places that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Ethernet addresses.
    Ethernet {
        /// Source address.
        src: Masked<[u8; 6]>,
        /// Destination address.
        dst: Masked<[u8; 6]>,
    },
    /// IPv4 header.
    Ipv4 {
        /// Source address.
        src: Masked<[u8; 4]>,
        /// Destination address.
        dst: Masked<[u8; 4]>,
        /// Type of service (all 8 bits).
        tos: Masked<u8>,
        /// Time to live.
        ttl: Masked<u8>,
    },
    /// IPv6 header.
    Ipv6 {
        /// Source address.
        src: Masked<[u8; 16]>,
        /// Destination address.
        dst: Masked<[u8; 16]>,
        /// Flow label, 20 bits, host integer.
        label: Masked<u32>,
        /// Traffic class.
        tclass: Masked<u8>,
        /// Hop limit.
        hlimit: Masked<u8>,
    },
    /// TCP ports (host integers).
    Tcp {
        /// Source port, host integer.
        src: Masked<u16>,
        /// Destination port, host integer.
        dst: Masked<u16>,
    },
    /// UDP ports (host integers).
    Udp {
        /// Source port, host integer.
        src: Masked<u16>,
        /// Destination port, host integer.
        dst: Masked<u16>,
    },
    /// SCTP ports (host integers).
    Sctp {
        /// Source port, host integer.
        src: Masked<u16>,
        /// Destination port, host integer.
        dst: Masked<u16>,
    },
    /// ICMP or ICMPv6 type and code.
    Icmp {
        /// ICMP type.
        kind: Masked<u8>,
        /// ICMP code.
        code: Masked<u8>,
        /// ICMPv6: its checksum covers a pseudo header.
        v6: bool,
    },
    /// ARP.
    Arp {
        /// Opcode, host integer.
        op: Masked<u16>,
        /// Sender address.
        spa: Masked<[u8; 4]>,
        /// Target address.
        tpa: Masked<[u8; 4]>,
        /// Sender hardware address.
        sha: Masked<[u8; 6]>,
        /// Target hardware address.
        tha: Masked<[u8; 6]>,
    },
    /// IPv6 neighbour solicitation or advertisement. A link-layer option that is not there is
    /// not added.
    Nd {
        /// Target address (RFC 4861, 4.3 and 4.4).
        target: Masked<[u8; 16]>,
        /// Source link-layer option.
        sll: Masked<[u8; 6]>,
        /// Target link-layer option.
        tll: Masked<[u8; 6]>,
    },
    /// The fields of a neighbour solicitation or advertisement other than its addresses.
    NdExtensions {
        /// The word before the target (RFC 4861, 4.3 and 4.4: flags and reserved bits), host
        /// integer.
        reserved: Masked<u32>,
        /// Type of the first link-layer address option; without one nothing is added.
        options_type: Masked<u8>,
    },
    /// Network Service Header (RFC 8300), after an Ethernet header or first in the packet. The flags
    /// have 2 bits, the TTL 6; higher bits are cut off.
    Nsh {
        /// 2: the packet is one of operations and management; 1 is unassigned.
        flags: Masked<u8>,
        /// Number of service functions that the packet may still pass.
        ttl: Masked<u8>,
        /// Service path identifier (24 bits) and service index (8 bits), host integer.
        path: Masked<u32>,
        /// Contexts, host integers. A header with metadata of another type than 1 has none, and only
        /// masks of zero suit it.
        context: [Masked<u32>; 4],
    },
    /// Outermost MPLS label stack entry, host integer.
    Mpls(Masked<u32>),
    /// Packet priority.
    Priority(u32),
    /// Packet mark.
    Mark(Masked<u32>),
}

/// The subject of an upcall that [`Action::Userspace`] makes; the datapath returns it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Userdata {
    /// The flow must be translated again for each packet.
    SlowPath {
        /// Why, for texts ("cfm", "bfd", "lacp", "stp", "controller", "action", …).
        reason: &'static str,
    },
    /// Send the packet to controllers.
    Controller {
        /// OFPR_* in OpenFlow 1.4's full enumeration.
        reason: u8,
        /// Bytes to send.
        max_len: u16,
        /// Which controllers.
        controller_id: u16,
        /// Frozen pipeline state: index of the state that the bridge keeps, 0 for none.
        recirc_id: u32,
        /// Cookie of the rule.
        rule_cookie: u64,
        /// Stop for NXT_RESUME.
        continuation: bool,
    },
    /// A sample for the sFlow collectors of the bridge.
    Sflow {
        /// VLAN id and priority of the packet as it leaves; the CFI bit is clear.
        vlan_tci: u16,
        /// Index of the interface by which it leaves, or the value of sFlow version 5 for packets
        /// that are dropped or leave by several.
        output: u32,
    },
    /// A sample for a collector set.
    FlowSample {
        /// Probability as in the OpenFlow action.
        probability: u16,
        /// Collector set.
        collector_set: u32,
        /// Observation domain.
        obs_domain: u32,
        /// Observation point.
        obs_point: u32,
        /// Port the sample is of.
        output_port: PortNo,
        /// Direction of the record.
        direction: SampleDirection,
        /// The sample's origin.
        origin: SampleOrigin,
    },
    /// A sample for the IPFIX collectors of a bridge.
    Ipfix {
        /// Port by which the packet leaves; [`PortNo::NONE`] where it comes in.
        output_port: PortNo,
        /// The sample's origin.
        origin: SampleOrigin,
    },
}

impl Userdata {
    /// Returns true for a sample. It takes a copy of the packet and has no effect on the flow.
    pub fn is_sample(&self) -> bool {
        match self {
            Userdata::Sflow { .. } | Userdata::FlowSample { .. } | Userdata::Ipfix { .. } => true,
            Userdata::SlowPath { .. } | Userdata::Controller { .. } => false,
        }
    }
}

/// The part of a sample for IPFIX that texts do not have, as in OVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SampleOrigin {
    /// Number of the bridge that samples; the datapath does not read it.
    pub bridge: u16,
    /// The megaflow has no output.
    pub is_dropped: bool,
}

/// Direction of a record (Open vSwitch's `sample` action).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SampleDirection {
    /// As the output port says.
    #[default]
    Default,
    /// The packet came in.
    Ingress,
    /// The packet goes out.
    Egress,
}
