// SPDX-License-Identifier: Apache-2.0
//! From a frame to its [`Key`].
//!
//! # Protocols
//!
//! Ethernet, up to two VLAN tags (0x8100, 0x88a8), LLC/SNAP, up to three MPLS labels, ARP and RARP,
//! NSH, IPv4, IPv6 with its extension headers, TCP, UDP, SCTP, ICMP, IGMP, ICMPv6 and neighbour
//! messages. The parser reads the same headers as OVS, by the same rules, so that a flow means the
//! same packets here.
//!
//! The number of VLAN tags that count is a setting of the process ([`set_vlan_limit`], OVS's
//! `other_config:vlan-limit`). The next tag's TPID is then the `dl_type`, and the bytes that follow
//! it are payload.
//!
//! # Invariant
//!
//! The parse is total, and a function of the frame (and that limit) alone: any bytes give a key. A
//! field is nonzero only when its whole header is there and the values in the header about the
//! header itself are possible; matches on the fields of malformed packets see zeros. So:
//!
//! | the frame | zero in the key |
//! |---|---|
//! | shorter than 14 bytes | everything but `in_port` |
//! | a VLAN tag with less than 6 bytes left | this tag (its TPID is then the `dl_type`) |
//! | 802.3 without LLC/SNAP Ethernet type | `dl_type` is 0x05ff, L3 and L4 zero |
//! | IPv4 with IHL below 5 or beyond the frame, or total length beyond the frame or below the header | L3 and L4 |
//! | IPv6 with payload length beyond the frame | L3 and L4 |
//! | IPv6 with a cut-off extension header | L3 but the addresses, L4 |
//! | NSH of another version than 0, longer than the frame, or of a length that its metadata type does not have | L3 |
//! | ARP not of IPv4 over Ethernet, or cut off | L3 |
//! | ARP opcode above 255 | `nw_proto` |
//! | later fragment | L4 |
//! | cut-off transport header (by frame or by IP length) | L4, and `tcp_flags` |
//! | TCP data offset below 5 or beyond the packet | L4, and `tcp_flags` |
//! | neighbour message with a link-layer address option twice | target and addresses |
//!
//! Padding after the IP total length never counts as packet (at most 65,535 bytes of it;
//! CVE-2020-35498 was a limit of 255). A megaflow for a packet with invalid lengths must have the
//! same mask as for a valid one: translation sees only the key, so that holds by construction.

pub use crate::key::{FRAG_ANY, FRAG_LATER};

use crate::{Key, MPLS_LABELS, NAMESPACE_ETHERTYPE, VLAN_CFI, VLANS, Vlan};
use packet::{
    ArpHeader, EthernetHeader, FromBytes, IcmpHeader, IgmpHeader, Ipv4Header, Ipv6Extensions,
    Ipv6Header, LlcSnapHeader, MplsEntry, NdOption, NdOptions, NshHeader, SctpHeader, TcpHeader,
    UdpHeader, VlanHeader, ethertype, ip_proto,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use zerocopy::network_endian::{U16, U32};

/// [`Key::dl_type`] of frames that have no Ethernet type (`OFP_DL_TYPE_NOT_ETH_TYPE`).
pub const DL_TYPE_NONE: u16 = 0x05ff;

/// Where the layers of a frame start, in bytes from its start. `None` when a layer is not
/// there or was not understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Offset of the first MPLS label stack entry.
    pub l2_5: Option<u16>,
    /// Offset of the header that the Ethernet type (after VLAN tags and MPLS labels) announces.
    pub l3: Option<u16>,
    /// Offset of the transport header, after a sane IP header and its options or extension headers.
    /// Also set for later fragments, whose payload starts there.
    pub l4: Option<u16>,
    /// Bytes of padding after the IP packet.
    pub l2_pad: u16,
}

static VLAN_LIMIT: AtomicUsize = AtomicUsize::new(VLANS);

/// Sets how many VLAN tags are parsed from now on, in all threads; 0 and what is more than
/// [`VLANS`] mean [`VLANS`]. OVS's default, for controllers that know of one tag, is 1; this
/// process starts with [`VLANS`]. Keys from before and after do not compare: flush flows.
pub fn set_vlan_limit(limit: usize) {
    VLAN_LIMIT.store(if limit == 0 { VLANS } else { limit.min(VLANS) }, Ordering::Relaxed);
}

/// How many VLAN tags are parsed, 1 to [`VLANS`].
pub fn vlan_limit() -> usize {
    VLAN_LIMIT.load(Ordering::Relaxed)
}

/// The key of the frame `data` that came in on `in_port`.
#[inline]
pub fn key_of(data: &[u8], in_port: u32) -> Key {
    let mut key = Key::ZERO;
    parse(&mut key, data, in_port, vlan_limit());
    key
}

/// The key of a frame and where its layers are.
#[inline]
pub fn extract(data: &[u8], in_port: u32) -> (Key, Layers) {
    extract_limited(data, in_port, vlan_limit())
}

/// As [`extract`], parsing at most `vlan_limit` VLAN tags, of which the key holds the first
/// [`VLANS`].
pub fn extract_limited(data: &[u8], in_port: u32, vlan_limit: usize) -> (Key, Layers) {
    let mut key = Key::ZERO;
    let layers = parse(&mut key, data, in_port, vlan_limit);
    (key, layers)
}

/// The key and layers of a packet without an Ethernet header, of this Ethernet type: its
/// [`Key::packet_type`] has the namespace of Ethernet types (OpenFlow 1.5.1, 7.2.3.11).
pub fn extract_layer3(data: &[u8], in_port: u32, ethertype: u16) -> (Key, Layers) {
    let mut key = Key::ZERO;
    key.in_port.set(in_port);
    key.packet_type.set(NAMESPACE_ETHERTYPE << 16 | u32::from(ethertype));
    let layers = parse_after_type(&mut key, data, data, ethertype);
    (key, layers)
}

/// The key of a packet of this [`Key::packet_type`]: of the namespace of Ethernet types, it begins with
/// the header that the type names, else it is a frame.
pub fn key_of_type(data: &[u8], in_port: u32, packet_type: u32) -> Key {
    match packet_type >> 16 {
        NAMESPACE_ETHERTYPE => extract_layer3(data, in_port, packet_type as u16).0, // the lower half
        _ => key_of(data, in_port),
    }
}

/// Fills in `key`, which is zero.
fn parse(key: &mut Key, data: &[u8], in_port: u32, vlan_limit: usize) -> Layers {
    key.in_port.set(in_port);
    let Ok((eth, mut rest)) = EthernetHeader::ref_from_prefix(data) else {
        return Layers::default();
    };
    key.dl_dst = eth.dst;
    key.dl_src = eth.src;

    // `kind` is the type read last, `rest` the bytes after it.
    let mut kind = eth.ethertype.get();
    for slot in 0..vlan_limit {
        if !ethertype::is_vlan(kind) {
            break;
        }
        // TCI and the next type: a VLAN header's layout shifted by one field.
        let Ok((tag, inner)) = VlanHeader::ref_from_prefix(rest) else {
            break;
        };
        if let Some(vlan) = key.vlans.get_mut(slot) {
            *vlan = Vlan { tpid: U16::new(kind), tci: U16::new(tag.tpid.get() | VLAN_CFI) };
        }
        kind = tag.tci.get();
        rest = inner;
    }
    if kind < ethertype::MIN {
        kind = match LlcSnapHeader::ref_from_prefix(rest) {
            Ok((llc, inner)) if llc.is_ethernet() => {
                rest = inner;
                llc.ethertype.get()
            }
            _ => DL_TYPE_NONE,
        };
    }
    parse_after_type(key, data, rest, kind)
}

/// Fills in what follows the Ethernet type: `rest` is the end of `data` after it.
#[inline(always)]
fn parse_after_type(key: &mut Key, data: &[u8], mut rest: &[u8], kind: u16) -> Layers {
    let mut layers = Layers::default();
    key.dl_type.set(kind);

    let offset = |rest: &[u8]| u16::try_from(data.len() - rest.len()).ok();
    if ethertype::is_mpls(kind) {
        layers.l2_5 = offset(rest);
        let mut labels = key.mpls.iter_mut();
        while let Ok((entry, inner)) = MplsEntry::ref_from_prefix(rest) {
            if let Some(place) = labels.next() {
                *place = entry.0;
            }
            rest = inner;
            if entry.is_bottom() {
                break;
            }
        }
    }
    layers.l3 = offset(rest);

    let payload = match kind {
        ethertype::IPV4 => ipv4(key, rest, &mut layers),
        ethertype::IPV6 => ipv6(key, rest, &mut layers),
        ethertype::ARP | ethertype::RARP => {
            arp(key, rest);
            None
        }
        ethertype::NSH => {
            nsh(key, rest);
            None
        }
        _ => None,
    };
    if let Some((header_len, payload)) = payload {
        layers.l4 = layers.l3.and_then(|l3| l3.checked_add(u16::try_from(header_len).ok()?));
        if key.nw_frag & FRAG_LATER == 0 {
            transport(key, payload);
        }
    }
    layers
}

/// Labels a frame may have before they are payload.
const _: () = assert!(MPLS_LABELS == 3 && VLANS == 2);

/// Returns the header's bytes and the payload within the total length.
#[inline(always)]
fn ipv4<'a>(key: &mut Key, bytes: &'a [u8], layers: &mut Layers) -> Option<(usize, &'a [u8])> {
    let (ip, _) = Ipv4Header::ref_from_prefix(bytes).ok()?;
    let (header, total) = ip.checked_lengths(bytes.len())?;
    layers.l2_pad = u16::try_from(bytes.len() - total).ok()?;
    key.nw_src = ip.src;
    key.nw_dst = ip.dst;
    key.nw_tos = ip.tos;
    key.nw_ttl = ip.ttl;
    key.nw_proto = ip.proto;
    if ip.is_fragment() {
        key.nw_frag = if ip.is_later_fragment() { FRAG_ANY | FRAG_LATER } else { FRAG_ANY };
    }
    Some((header, bytes.get(header..total)?))
}

#[inline(always)]
fn ipv6<'a>(key: &mut Key, bytes: &'a [u8], layers: &mut Layers) -> Option<(usize, &'a [u8])> {
    let (ip, rest) = Ipv6Header::ref_from_prefix(bytes).ok()?;
    let len = ip.checked_payload_len(bytes.len())?;
    let payload = rest.get(..len)?;
    layers.l2_pad = u16::try_from(rest.len() - len).ok()?;
    key.ipv6_src = ip.src;
    key.ipv6_dst = ip.dst;
    let extensions = Ipv6Extensions::walk(ip.next, payload)?;
    key.ipv6_label.set(ip.label());
    key.nw_tos = ip.traffic_class();
    key.nw_ttl = ip.hop_limit;
    key.nw_proto = extensions.proto;
    if extensions.is_fragment {
        key.nw_frag = if extensions.is_later_fragment { FRAG_ANY | FRAG_LATER } else { FRAG_ANY };
    }
    Some((size_of::<Ipv6Header>() + extensions.len, payload.get(extensions.len..)?))
}

fn arp(key: &mut Key, bytes: &[u8]) {
    let Ok((arp, _)) = ArpHeader::ref_from_prefix(bytes) else {
        return;
    };
    if !arp.is_ethernet_ipv4() {
        return;
    }
    key.nw_src = arp.spa;
    key.nw_dst = arp.tpa;
    key.nw_proto = u8::try_from(arp.op.get()).unwrap_or(0);
    key.arp_sha = arp.sha;
    key.arp_tha = arp.tha;
}

/// The payload of NSH is not looked at: it has a key of its own once the header is off.
fn nsh(key: &mut Key, bytes: &[u8]) {
    let Ok((header, contexts)) = NshHeader::ref_from_prefix(bytes) else {
        return;
    };
    if header.checked_len(bytes.len()).is_none() {
        return;
    }
    key.nsh.flags = header.flags();
    key.nsh.ttl = header.ttl();
    key.nsh.mdtype = header.md_type;
    key.nsh.np = header.next;
    key.nsh.path = header.path;
    if header.md_type == NshHeader::MD_TYPE_1
        && let Ok((context, _)) = <[U32; 4]>::read_from_prefix(contexts)
    {
        key.nsh.context = context;
    }
}

/// By protocol number alone, as in OVS: ICMP in IPv6 has its type and code in the key, too,
/// where no field's prerequisites lead to them.
#[inline(always)]
fn transport(key: &mut Key, bytes: &[u8]) {
    match key.nw_proto {
        ip_proto::TCP => {
            let Ok((tcp, _)) = TcpHeader::ref_from_prefix(bytes) else {
                return;
            };
            if !(size_of::<TcpHeader>()..=bytes.len()).contains(&tcp.header_len()) {
                return;
            }
            key.tp_src = tcp.src;
            key.tp_dst = tcp.dst;
            key.tcp_flags.set(tcp.flags());
        }
        ip_proto::UDP => {
            let Ok((udp, _)) = UdpHeader::ref_from_prefix(bytes) else {
                return;
            };
            key.tp_src = udp.src;
            key.tp_dst = udp.dst;
        }
        ip_proto::SCTP => {
            let Ok((sctp, _)) = SctpHeader::ref_from_prefix(bytes) else {
                return;
            };
            key.tp_src = sctp.src;
            key.tp_dst = sctp.dst;
        }
        ip_proto::ICMP => {
            let Ok((icmp, _)) = IcmpHeader::ref_from_prefix(bytes) else {
                return;
            };
            key.tp_src.set(icmp.kind.into());
            key.tp_dst.set(icmp.code.into());
        }
        ip_proto::IGMP => {
            let Ok((igmp, _)) = IgmpHeader::ref_from_prefix(bytes) else {
                return;
            };
            key.tp_src.set(igmp.kind.into());
            key.tp_dst.set(igmp.code.into());
            key.igmp_group = igmp.group;
        }
        ip_proto::ICMPV6 => {
            let Ok((icmp, rest)) = IcmpHeader::ref_from_prefix(bytes) else {
                return;
            };
            key.tp_src.set(icmp.kind.into());
            key.tp_dst.set(icmp.code.into());
            if icmp.code == 0
                && matches!(icmp.kind, IcmpHeader::NEIGHBOUR_SOLICIT | IcmpHeader::NEIGHBOUR_ADVERT)
            {
                neighbour(key, icmp, rest);
            }
        }
        _ => {}
    }
}

fn neighbour(key: &mut Key, icmp: &IcmpHeader, bytes: &[u8]) {
    key.nd_reserved = icmp.rest;
    let Some((target, options)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    let (mut source, mut hardware_target) = ([0; 6], [0; 6]);
    for option in NdOptions::new(options) {
        let place = match option.kind {
            NdOption::SOURCE => &mut source,
            NdOption::TARGET => &mut hardware_target,
            _ => continue,
        };
        let Some(address) = option.ethernet_address() else {
            continue;
        };
        if *place != [0; 6] {
            return; // twice: neither target nor addresses are to be believed
        }
        *place = address;
        if key.nd_options_type == 0 {
            key.nd_options_type = option.kind;
        }
    }
    key.nd_target = *target;
    key.arp_sha = source;
    key.arp_tha = hardware_target;
}

#[cfg(test)]
mod tests;
