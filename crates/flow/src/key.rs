// SPDX-License-Identifier: Apache-2.0
//! The key of a packet: all its fields in one flat structure.
//!
//! Everything is in network byte order, also what never was in a packet (registers, port
//! numbers), so that one rule fits all: a field is a run of big-endian bits at a fixed place.
//! The structure is a whole number of 64-bit words, has no padding, and a field that a packet
//! does not have is zero. Words are ordered by stage: metadata, L2, L3, L4; a lookup that
//! fails in an early stage need not look at (nor un-wildcard) the later ones.

use crate::Tunnel;
use packet::{ethertype, ip_proto};
use std::mem::swap;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// 32-bit registers that a key holds.
pub const REGISTERS: usize = 32;
/// VLAN headers that a key holds; further ones are payload.
pub const VLANS: usize = 2;
/// MPLS label stack entries that a key holds.
pub const MPLS_LABELS: usize = 3;
/// The bit of a [`Vlan::tci`] that says "this header is there" (the CFI/DEI bit's place, as
/// in OXM's OFPVID_PRESENT).
pub const VLAN_CFI: u16 = 0x1000;
/// Namespace of [`Key::packet_type`], in its upper half, whose types are Ethernet types: the packet
/// begins with the header that the type names (OFPHTN_ETHERTYPE; OpenFlow 1.5.1, 7.2.3.11).
pub const NAMESPACE_ETHERTYPE: u32 = 1;
/// Bit of [`Key::nw_frag`]: the packet is a fragment.
pub const FRAG_ANY: u8 = 1;
/// Bit of [`Key::nw_frag`]: the packet is a fragment but the first, so has no L4 header.
pub const FRAG_LATER: u8 = 2;

/// One VLAN header. All zero when absent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Vlan {
    /// Tag protocol identifier: 0x8100 or 0x88a8.
    pub tpid: U16,
    /// Priority (3 bits), [`VLAN_CFI`], VLAN id (12 bits).
    pub tci: U16,
}

/// The Network Service Header (RFC 8300). All zero when absent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Nsh {
    /// Flags: 2 bits on the wire.
    pub flags: u8,
    /// Time to live: 6 bits on the wire.
    pub ttl: u8,
    /// Metadata type.
    pub mdtype: u8,
    /// Protocol of the payload.
    pub np: u8,
    /// Service path identifier (24 bits), service index (8 bits).
    pub path: U32,
    /// The four words of metadata type 1. Zero with other types.
    pub context: [U32; 4],
}

/// All fields of one packet; see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Key {
    // Metadata.
    /// Nicira registers reg0 to reg31.
    pub regs: [U32; REGISTERS],
    /// OpenFlow metadata.
    pub metadata: U64,
    /// Recirculation id; 0 for a packet that came from a port.
    pub recirc_id: U32,
    /// Hash computed by the datapath's `hash` action; 0 when none was.
    pub dp_hash: U32,
    /// Ingress port, in the number space of the holder: datapath port in a datapath,
    /// OpenFlow port in a bridge.
    pub in_port: U32,
    /// Output port of the action set (OpenFlow 1.5 egress and `actset_output`).
    pub actset_output: U32,
    /// Packet priority for QoS.
    pub skb_priority: U32,
    /// Packet mark.
    pub pkt_mark: U32,
    /// Conjunction id: set by the classifier only.
    pub conj_id: U32,
    /// Packet type (OpenFlow 1.5): namespace and type; 0 for Ethernet.
    pub packet_type: U32,
    // Fields of connections are zero in a packet that the `ct` action has not tracked. As in OVS the
    // tuple is with L3 and L4: a lookup that fails by the state need not read it.
    /// State that the connection tracker found: the bits of [`crate::ct_state`].
    pub ct_state: u8,
    /// IP protocol of the connection's first packet.
    pub ct_nw_proto: u8,
    /// Zone of the last `ct` action.
    pub ct_zone: U16,
    /// The connection's mark.
    pub ct_mark: U32,
    /// The connection's label.
    pub ct_label: [u8; 16],
    /// Outer headers of a packet from a tunnel, or to one.
    pub tunnel: Tunnel,

    // L2.
    /// Ethernet destination.
    pub dl_dst: [u8; 6],
    /// Ethernet source.
    pub dl_src: [u8; 6],
    /// Ethernet type after all VLAN headers; 0x05ff for 802.2 frames without SNAP type.
    pub dl_type: U16,
    /// Padding up to the next field's alignment; always zero, as keys are compared and hashed
    /// whole.
    pub pad_l2: [u8; 2],
    /// VLAN headers, outermost first.
    pub vlans: [Vlan; VLANS],
    /// MPLS label stack entries, outermost first.
    pub mpls: [U32; MPLS_LABELS],
    /// Padding up to the next field's alignment; always zero, as keys are compared and hashed
    /// whole.
    pub pad_mpls: [u8; 4],

    // L3.
    /// IPv4 source, or ARP sender address.
    pub nw_src: U32,
    /// IPv4 destination, or ARP target address.
    pub nw_dst: U32,
    /// IPv4 source of the connection's first packet.
    pub ct_nw_src: U32,
    /// IPv4 destination of the connection's first packet.
    pub ct_nw_dst: U32,
    /// IPv6 source.
    pub ipv6_src: [u8; 16],
    /// IPv6 destination.
    pub ipv6_dst: [u8; 16],
    /// IPv6 source of the connection's first packet.
    pub ct_ipv6_src: [u8; 16],
    /// IPv6 destination of the connection's first packet.
    pub ct_ipv6_dst: [u8; 16],
    /// IPv6 flow label, 20 bits.
    pub ipv6_label: U32,
    /// Fragment bits: 1 any fragment, 2 later fragment (see [`crate::extract::FRAG_ANY`] and
    /// [`crate::extract::FRAG_LATER`]).
    pub nw_frag: u8,
    /// IPv4 ToS or IPv6 traffic class.
    pub nw_tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub nw_ttl: u8,
    /// IP protocol, or the low 8 bits of the ARP opcode.
    pub nw_proto: u8,
    /// Target of an IPv6 neighbour message.
    pub nd_target: [u8; 16],
    /// ARP sender or ND source hardware address.
    pub arp_sha: [u8; 6],
    /// ARP target or ND target hardware address.
    pub arp_tha: [u8; 6],
    /// TCP flags, 12 bits. With L3 as in OVS: it has no part in ECMP hashing of ports.
    pub tcp_flags: U16,
    /// Padding up to the next field's alignment; always zero, as keys are compared and hashed
    /// whole.
    pub pad_l3: [u8; 2],
    /// Network Service Header.
    pub nsh: Nsh,

    // L4.
    /// TCP, UDP or SCTP source port, or ICMP type.
    pub tp_src: U16,
    /// TCP, UDP or SCTP destination port, or ICMP code.
    pub tp_dst: U16,
    /// Source port of the connection's first packet, or its ICMP type.
    pub ct_tp_src: U16,
    /// Destination port of the connection's first packet, or its ICMP code.
    pub ct_tp_dst: U16,
    /// IGMP group address.
    pub igmp_group: U32,
    /// Reserved word of an ND message (holds the NA flags).
    pub nd_reserved: U32,
    /// Type of the first ND option.
    pub nd_options_type: u8,
    /// Padding up to the next field's alignment; always zero, as keys are compared and hashed
    /// whole.
    pub pad_l4: [u8; 7],
}

/// 64-bit words in a [`Key`].
pub const WORDS: usize = size_of::<Key>() / 8;

/// First word of each stage after metadata, and the end: L2, L3, L4, end.
pub const STAGE_STARTS: [usize; 4] = [
    std::mem::offset_of!(Key, dl_dst) / 8,
    std::mem::offset_of!(Key, nw_src) / 8,
    std::mem::offset_of!(Key, tp_src) / 8,
    WORDS,
];

const _: () = {
    assert!(std::mem::offset_of!(Key, regs) == 0); // `Key::used_bytes` begins after them
    assert!(size_of::<Key>().is_multiple_of(8));
    assert!(std::mem::offset_of!(Key, dl_dst).is_multiple_of(8));
    assert!(std::mem::offset_of!(Key, nw_src).is_multiple_of(8));
    assert!(std::mem::offset_of!(Key, tp_src).is_multiple_of(8));
    assert!(WORDS <= 128); // a bitmap of words fits a u128
};

impl Default for Key {
    fn default() -> Self {
        Key::ZERO
    }
}

impl Key {
    /// The key with every field zero.
    pub const ZERO: Key = zerocopy::transmute!([0u64; WORDS]);

    /// Returns the Ethernet type of what follows the Ethernet header, or of a packet without one, whose
    /// packet type names it. In a match it may be required by either field.
    pub fn ethertype(&self) -> u16 {
        let packet_type = self.packet_type.get();
        match packet_type >> 16 == NAMESPACE_ETHERTYPE {
            true => packet_type as u16, // the lower half
            false => self.dl_type.get(),
        }
    }

    /// The key as words; byte order within a word is that of memory.
    pub fn words(&self) -> &[u64; WORDS] {
        zerocopy::transmute_ref!(self)
    }

    /// The key as writable words.
    pub fn words_mut(&mut self) -> &mut [u64; WORDS] {
        zerocopy::transmute_mut!(self)
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The key's bytes, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_bytes()
    }

    /// The bytes of a datapath's key in pieces. Registers are left out, as they exist in bridges only,
    /// and the tunnel where there is none: most packets have none, and it is more than half of a key.
    pub fn used_bytes(&self) -> [&[u8]; 3] {
        let (_, of_datapath) = self.bytes().split_at(std::mem::size_of_val(&self.regs));
        let tunnel_at = std::mem::offset_of!(Key, tunnel) - std::mem::size_of_val(&self.regs);
        let (before, rest) = of_datapath.split_at(tunnel_at);
        let (tunnel, after) = rest.split_at(size_of::<Tunnel>());
        [before, if self.tunnel.is_some() { tunnel } else { &[] }, after]
    }

    /// Takes the fields that the bytes of a packet do not contain from another key.
    pub fn set_metadata(&mut self, from: &Key) {
        let [metadata_end, ..] = STAGE_STARTS;
        for (word, other) in self.words_mut().iter_mut().zip(from.words()).take(metadata_end) {
            *word = *other;
        }
        // The tuple of a connection is elsewhere. It is zero in a packet that was not tracked.
        if from.ct_state != 0 {
            self.set_connection(from);
        }
    }

    /// Takes the fields of connections from another key; those of [`Key::ZERO`] are an untracked
    /// packet's.
    pub fn set_connection(&mut self, from: &Key) {
        self.ct_state = from.ct_state;
        self.ct_nw_proto = from.ct_nw_proto;
        self.ct_zone = from.ct_zone;
        self.ct_mark = from.ct_mark;
        self.ct_label = from.ct_label;
        self.ct_nw_src = from.ct_nw_src;
        self.ct_nw_dst = from.ct_nw_dst;
        self.ct_ipv6_src = from.ct_ipv6_src;
        self.ct_ipv6_dst = from.ct_ipv6_dst;
        self.ct_tp_src = from.ct_tp_src;
        self.ct_tp_dst = from.ct_tp_dst;
    }

    /// Swaps the addresses, the IP protocol and the ports with those of the connection's first
    /// packet. `dl_type` is the packet's Ethernet type: only the addresses of its family change
    /// places. The same swap fits the key of a mask.
    pub fn swap_tuple(&mut self, dl_type: u16) {
        swap(&mut self.nw_proto, &mut self.ct_nw_proto);
        if dl_type == ethertype::IPV4 {
            swap(&mut self.nw_src, &mut self.ct_nw_src);
            swap(&mut self.nw_dst, &mut self.ct_nw_dst);
        } else {
            swap(&mut self.ipv6_src, &mut self.ct_ipv6_src);
            swap(&mut self.ipv6_dst, &mut self.ct_ipv6_dst);
        }
        swap(&mut self.tp_src, &mut self.ct_tp_src);
        swap(&mut self.tp_dst, &mut self.ct_tp_dst);
    }

    /// The key with only what all fragments of one packet share, so that a hash of it sends all of
    /// them one way. A key that is no fragment's is returned as it is.
    ///
    /// First fragments have a transport header and later ones have none, and in IPv6 later ones
    /// have [`ip_proto::FRAGMENT`] as protocol: the key of a first fragment is returned as that of
    /// a later one.
    pub fn common_to_fragments(&self) -> Key {
        let mut key = *self;
        if key.nw_frag & FRAG_ANY != 0 {
            key.nw_frag = FRAG_ANY | FRAG_LATER;
            if key.dl_type.get() == ethertype::IPV6 {
                key.nw_proto = ip_proto::FRAGMENT;
            }
            // Fields of neighbour messages and TCP flags have their place in L3.
            (key.nd_target, key.arp_sha, key.arp_tha) = Default::default();
            key.tcp_flags.set(0);
            let [_, _, l4, _] = STAGE_STARTS;
            key.words_mut().iter_mut().skip(l4).for_each(|word| *word = 0);
        }
        key
    }
}
