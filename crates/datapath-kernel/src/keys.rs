// SPDX-License-Identifier: Apache-2.0
//! Keys (`OVS_KEY_ATTR_*`): those of packets in upcalls, and the two of a megaflow, the second of which
//! is the mask.
//!
//! The kernel refuses a megaflow whose mask has an attribute of a layer that the mask of the layer below
//! does not make certain: addresses of IPv4 need the Ethernet type, ports need the protocol. It compares
//! VLAN headers always: without an attribute, a packet must have none. So the kernel's megaflow may
//! match fewer packets than ours, and never more.

use crate::{Refused, nsh};
use datapath::Refusal;
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::{Field, Key, Mask, Match, NAMESPACE_ETHERTYPE, Nsh, Tunnel, VLAN_CFI};
use netlink::attribute::{array, nest, put, read};
use packet::NshHeader;

/// Kinds of attributes.
mod attr {
    pub const ENCAP: u16 = 1;
    pub const PRIORITY: u16 = 2;
    pub const IN_PORT: u16 = 3;
    pub const ETHERNET: u16 = 4;
    pub const VLAN: u16 = 5;
    pub const ETHERTYPE: u16 = 6;
    pub const IPV4: u16 = 7;
    pub const IPV6: u16 = 8;
    pub const TCP: u16 = 9;
    pub const UDP: u16 = 10;
    pub const ICMP: u16 = 11;
    pub const ICMPV6: u16 = 12;
    pub const ARP: u16 = 13;
    pub const ND: u16 = 14;
    pub const SKB_MARK: u16 = 15;
    pub const TUNNEL: u16 = 16;
    pub const SCTP: u16 = 17;
    pub const TCP_FLAGS: u16 = 18;
    pub const DP_HASH: u16 = 19;
    pub const RECIRC_ID: u16 = 20;
    pub const MPLS: u16 = 21;
    pub const CT_STATE: u16 = 22;
    pub const CT_ZONE: u16 = 23;
    pub const CT_MARK: u16 = 24;
    pub const CT_LABELS: u16 = 25;
    pub const CT_TUPLE_IPV4: u16 = 26;
    pub const CT_TUPLE_IPV6: u16 = 27;
    pub const NSH: u16 = 28;
    pub const PACKET_TYPE: u16 = 29;
    /// The kinds of extension headers of IPv6. Since Linux 5.17, in each key of IPv6.
    pub const IPV6_EXTENSIONS: u16 = 32;
}

/// Kinds of attributes of [`attr::TUNNEL`].
mod tunnel {
    pub const ID: u16 = 0;
    pub const IPV4_SRC: u16 = 1;
    pub const IPV4_DST: u16 = 2;
    pub const TOS: u16 = 3;
    pub const TTL: u16 = 4;
    pub const DONT_FRAGMENT: u16 = 5;
    pub const CSUM: u16 = 6;
    pub const OAM: u16 = 7;
    pub const GENEVE_OPTS: u16 = 8;
    pub const TP_SRC: u16 = 9;
    pub const TP_DST: u16 = 10;
    pub const VXLAN_OPTS: u16 = 11;
    pub const IPV6_SRC: u16 = 12;
    pub const IPV6_DST: u16 = 13;
    /// `OVS_VXLAN_EXT_GBP`
    pub const GBP: u16 = 1;
}

/// Ethernet types.
mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const RARP: u16 = 0x8035;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: [u16; 2] = [0x8847, 0x8848];
    pub const NSH: u16 = 0x894f;
    pub const VLAN: [u16; 2] = [0x8100, 0x88a8];
    /// Below are lengths: the kernel has no attribute for frames of 802.2 without a type.
    pub const FIRST: u16 = 0x0600;
    /// Of such frames in our keys.
    pub const NONE: u16 = 0x05ff;
}

/// IP protocols.
mod proto {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
    pub const SCTP: u8 = 132;
}

/// `enum ovs_frag_type`
const FRAGMENT_FIRST: u8 = 1;
const FRAGMENT_LATER: u8 = 2;
/// Types of ICMPv6 whose messages have an address.
const NEIGHBOUR: [u16; 2] = [135, 136];

/// The attribute of the ingress port in [`encode_metadata`].
pub(crate) const IN_PORT: u16 = attr::IN_PORT;

/// Encodes the metadata of a packet on which actions run, without its ingress port. The kernel
/// extracts the rest from the packet.
pub fn encode_metadata(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut word = |kind, word: u32| {
        if word != 0 {
            put(&mut bytes, kind, &word.to_ne_bytes());
        }
    };
    word(attr::PRIORITY, key.skb_priority.get());
    word(attr::SKB_MARK, key.pkt_mark.get());
    word(attr::DP_HASH, key.dp_hash.get());
    word(attr::RECIRC_ID, key.recirc_id.get());
    if key.ct_state != 0 {
        word(attr::CT_STATE, key.ct_state.into());
        word(attr::CT_MARK, key.ct_mark.get());
        if key.ct_zone.get() != 0 {
            put(&mut bytes, attr::CT_ZONE, &key.ct_zone.get().to_ne_bytes());
        }
        if key.ct_label != [0; 16] {
            put(&mut bytes, attr::CT_LABELS, &label(key.ct_label));
        }
        match key.dl_type.get() {
            ethertype::IPV4 => put(&mut bytes, attr::CT_TUPLE_IPV4, &tuple_ipv4(key)),
            ethertype::IPV6 => put(&mut bytes, attr::CT_TUPLE_IPV6, &tuple_ipv6(key)),
            _ => {}
        }
    }
    // A packet of this type begins without an Ethernet header.
    if let Some(ethertype) = type_of_layer3(key) {
        put(&mut bytes, attr::ETHERTYPE, &ethertype.to_be_bytes());
    }
    if key.tunnel.is_some() {
        let (fields, is_v4) = (key.tunnel, key.tunnel.dst.get() != 0);
        nest(&mut bytes, attr::TUNNEL, |to| put_tunnel(to, &fields, is_v4, &fields));
    }
    bytes
}

/// Returns the Ethernet type of a packet without an Ethernet header; `None` of a frame.
fn type_of_layer3(key: &Key) -> Option<u16> {
    let packet_type = key.packet_type.get();
    (packet_type >> 16 == NAMESPACE_ETHERTYPE).then_some(packet_type as u16) // the lower half
}

/// Labels of the kernel are one integer.
fn label(label: [u8; 16]) -> [u8; 16] {
    u128::from_be_bytes(label).to_le_bytes()
}

/// The attributes of a megaflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Contents of `OVS_FLOW_ATTR_KEY`.
    pub key: Vec<u8>,
    /// Contents of `OVS_FLOW_ATTR_MASK`.
    pub mask: Vec<u8>,
}

/// Encodes the fields of a tunnel that a packet gets: the contents of `OVS_KEY_ATTR_TUNNEL`.
///
/// # Errors
/// When the fields are of a header that is not encoded.
pub fn encode_tunnel(fields: &Tunnel) -> Result<Vec<u8>, Refused> {
    check_headers(fields)?;
    let mut bytes = Vec::new();
    put_tunnel(&mut bytes, fields, fields.dst.get() != 0, fields);
    Ok(bytes)
}

/// Decodes the contents of `OVS_KEY_ATTR_TUNNEL`. `None` when [`encode_tunnel`] does not make them.
pub fn decode_tunnel(bytes: &[u8]) -> Option<Tunnel> {
    let mut reader = Reader { key: Key::default(), fitness: Fitness::Perfect, is_mask: false };
    reader.tunnel(bytes)?;
    (reader.fitness == Fitness::Perfect).then_some(reader.key.tunnel)
}

/// Returns an error for fields, or a mask, of headers that are not encoded.
fn check_headers(fields: &Tunnel) -> Result<(), Refused> {
    match (fields.erspan_ver, fields.gtpu_flags, fields.gtpu_msgtype) {
        (0, 0, 0) => Ok(()),
        _ => Err(Refused::key("headers of ERSPAN and GTP-U are not encoded")),
    }
}

/// Encodes what a megaflow matches.
///
/// # Errors
/// When the kernel cannot match a field, or not in part.
pub fn encode(matching: &Match) -> Result<Encoded, Refused> {
    let (mut key, mut mask) = (*matching.key(), *matching.mask());
    // A packet that begins without Ethernet has the Ethernet type of its packet type, which is exact.
    if let Some(ethertype) = type_of_layer3(&key) {
        key.dl_type = ethertype.into();
        mask.set_exact(Field::EthType);
    } else if key.packet_type.get() != 0 {
        return Err(Refused::key("the packet type is neither Ethernet nor an Ethernet type"));
    }
    let out = Encoded { key: vec![], mask: vec![] };
    let mut writer = Writer { key: &key, mask: &mask, rest: mask, out };
    writer.metadata()?;
    writer.link()?;
    if writer.rest != Mask::WILDCARD {
        return Err(Refused::key("the kernel does not parse a field that the flow matches"));
    }
    Ok(writer.out)
}

struct Writer<'m> {
    key: &'m Key,
    mask: &'m Mask,
    /// The bits that no attribute has so far.
    rest: Mask,
    out: Encoded,
}

impl Writer<'_> {
    /// An attribute of both.
    fn put<const N: usize>(&mut self, kind: u16, key: [u8; N], mask: [u8; N]) {
        put(&mut self.out.key, kind, &key);
        put(&mut self.out.mask, kind, &mask);
    }

    /// An attribute that is left out when the flow does not match on it.
    fn put_matched<const N: usize>(&mut self, kind: u16, key: [u8; N], mask: [u8; N]) {
        if mask != [0; N] {
            self.put(kind, key, mask);
        }
    }

    fn metadata(&mut self) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        let word = |word: u32| word.to_ne_bytes();
        self.put_matched(
            attr::PRIORITY,
            word(key.skb_priority.get()),
            word(mask.skb_priority.get()),
        );
        self.put(attr::IN_PORT, word(key.in_port.get()), word(u32::MAX));
        self.put_matched(attr::SKB_MARK, word(key.pkt_mark.get()), word(mask.pkt_mark.get()));
        self.put_matched(attr::DP_HASH, word(key.dp_hash.get()), word(mask.dp_hash.get()));
        self.put(attr::RECIRC_ID, word(key.recirc_id.get()), word(u32::MAX));
        self.connection();
        self.tunnel()?;
        let rest = &mut self.rest.0;
        for field in [
            &mut rest.skb_priority,
            &mut rest.in_port,
            &mut rest.pkt_mark,
            &mut rest.dp_hash,
            &mut rest.recirc_id,
            &mut rest.packet_type,
        ] {
            *field = Default::default();
        }
        Ok(())
    }

    fn connection(&mut self) {
        let (key, mask) = (self.key, &self.mask.0);
        let (state, state_mask) = (u32::from(key.ct_state), u32::from(mask.ct_state));
        self.put_matched(attr::CT_STATE, state.to_ne_bytes(), state_mask.to_ne_bytes());
        let (zone, zone_mask) = (key.ct_zone.get(), mask.ct_zone.get());
        self.put_matched(attr::CT_ZONE, zone.to_ne_bytes(), zone_mask.to_ne_bytes());
        let (mark, mark_mask) = (key.ct_mark.get(), mask.ct_mark.get());
        self.put_matched(attr::CT_MARK, mark.to_ne_bytes(), mark_mask.to_ne_bytes());
        self.put_matched(attr::CT_LABELS, label(key.ct_label), label(mask.ct_label));
        // The kernel takes a tuple with the Ethernet type that it is of.
        let ethertype = (mask.dl_type.get() == u16::MAX).then(|| key.dl_type.get());
        match ethertype {
            Some(ethertype::IPV4) => {
                let tuple = |key: &Key| tuple_ipv4(key);
                self.put_matched(attr::CT_TUPLE_IPV4, tuple(key), tuple(mask));
                let rest = &mut self.rest.0;
                rest.ct_nw_src = Default::default();
                rest.ct_nw_dst = Default::default();
            }
            Some(ethertype::IPV6) => {
                self.put_matched(attr::CT_TUPLE_IPV6, tuple_ipv6(key), tuple_ipv6(mask));
                let rest = &mut self.rest.0;
                rest.ct_ipv6_src = [0; 16];
                rest.ct_ipv6_dst = [0; 16];
            }
            _ => {}
        }
        let rest = &mut self.rest.0;
        if matches!(ethertype, Some(ethertype::IPV4 | ethertype::IPV6)) {
            rest.ct_tp_src = Default::default();
            rest.ct_tp_dst = Default::default();
            rest.ct_nw_proto = 0;
        }
        rest.ct_state = 0;
        rest.ct_zone = Default::default();
        rest.ct_mark = Default::default();
        rest.ct_label = [0; 16];
    }

    fn tunnel(&mut self) -> Result<(), Refused> {
        let mask = self.mask.0.tunnel;
        if mask == Tunnel::default() {
            return Ok(());
        }
        if !self.key.tunnel.is_some() {
            return Err(Refused::key(
                "the kernel cannot match that a packet has no tunnel in part",
            ));
        }
        check_headers(&mask)?;
        let is_v4 = self.key.tunnel.dst.get() != 0;
        let key = self.key.tunnel;
        nest(&mut self.out.key, attr::TUNNEL, |to| put_tunnel(to, &key, is_v4, &key));
        nest(&mut self.out.mask, attr::TUNNEL, |to| put_tunnel(to, &mask, is_v4, &key));
        self.rest.0.tunnel = Tunnel::default();
        Ok(())
    }

    /// Ethernet and VLAN headers, and what is behind.
    fn link(&mut self) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        if type_of_layer3(key).is_some() {
            return self.layer3();
        }
        let addresses = |key: &Key| {
            let mut bytes = [0; 12];
            bytes[..6].copy_from_slice(&key.dl_src);
            bytes[6..].copy_from_slice(&key.dl_dst);
            bytes
        };
        self.put(attr::ETHERNET, addresses(key), addresses(mask));
        self.rest.0.dl_src = [0; 6];
        self.rest.0.dl_dst = [0; 6];
        let tags = self.tags()?;
        let outer = std::mem::replace(&mut self.out, Encoded { key: vec![], mask: vec![] });
        self.network()?;
        for tag in (0..tags).rev() {
            let inner = std::mem::replace(&mut self.out, Encoded { key: vec![], mask: vec![] });
            let (Some(vlan), Some(bits)) = (key.vlans.get(tag), mask.vlans.get(tag)) else { break };
            self.put(attr::ETHERTYPE, vlan.tpid.to_bytes(), [0xff; 2]);
            // The bit that says that there is a header is exact.
            let present = (bits.tci.get() | VLAN_CFI).to_be_bytes();
            self.put(attr::VLAN, vlan.tci.to_bytes(), present);
            put_nest(&mut self.out.key, attr::ENCAP, &inner.key);
            put_nest(&mut self.out.mask, attr::ENCAP, &inner.mask);
        }
        let inner = std::mem::replace(&mut self.out, outer);
        self.out.key.extend(inner.key);
        self.out.mask.extend(inner.mask);
        Ok(())
    }

    /// The headers of a packet that begins without Ethernet. The kernel takes the absence of addresses
    /// for that, and compares the Ethernet type always.
    fn layer3(&mut self) -> Result<(), Refused> {
        let rest = &mut self.rest.0;
        // Such a packet has neither addresses nor VLAN headers, so all of these match.
        rest.dl_src = [0; 6];
        rest.dl_dst = [0; 6];
        rest.vlans = Default::default();
        self.network()
    }

    /// Returns the number of VLAN headers that the flow requires. The kernel compares which there
    /// are, so the flow must match it too: else the kernel's would match fewer packets.
    fn tags(&mut self) -> Result<usize, Refused> {
        const OPEN: Refused = Refused {
            refusal: Refusal::TagsOpen,
            words: "the kernel matches which VLAN headers there are",
        };
        let mut tags = 0;
        for (vlan, bits) in self.key.vlans.iter().zip(self.mask.0.vlans) {
            if bits.tci.get() & VLAN_CFI == 0 {
                return Err(OPEN);
            }
            if vlan.tci.get() & VLAN_CFI == 0 {
                break;
            }
            if bits.tpid.get() != u16::MAX {
                return Err(OPEN);
            }
            tags += 1;
        }
        self.rest.0.vlans = Default::default();
        Ok(tags)
    }

    fn network(&mut self) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        match mask.dl_type.get() {
            // The key has no type. It is then one of 802.2, which does not count.
            0 => {
                put(&mut self.out.mask, attr::ETHERTYPE, &[0; 2]);
                return Ok(());
            }
            u16::MAX => self.rest.0.dl_type = Default::default(),
            _ => return Err(Refused::key("the kernel matches Ethernet types whole")),
        }
        let ethertype = key.dl_type.get();
        if ethertype::VLAN.contains(&ethertype) {
            return Err(Refused::key("the kernel parses VLAN headers beyond vlan-limit"));
        }
        put(&mut self.out.mask, attr::ETHERTYPE, &[0xff; 2]);
        if ethertype < ethertype::FIRST {
            return Ok(());
        }
        put(&mut self.out.key, attr::ETHERTYPE, &key.dl_type.to_bytes());
        match ethertype {
            ethertype::IPV4 => {
                self.put(attr::IPV4, ipv4(key, false), ipv4(mask, true));
                let rest = &mut self.rest.0;
                rest.nw_src = Default::default();
                rest.nw_dst = Default::default();
                self.transport()
            }
            ethertype::IPV6 => {
                self.put(attr::IPV6, ipv6(key, false), ipv6(mask, true));
                let rest = &mut self.rest.0;
                rest.ipv6_src = [0; 16];
                rest.ipv6_dst = [0; 16];
                rest.ipv6_label = Default::default();
                self.transport()
            }
            ethertype::ARP | ethertype::RARP => {
                self.put(attr::ARP, arp(key), arp(mask));
                let rest = &mut self.rest.0;
                rest.nw_src = Default::default();
                rest.nw_dst = Default::default();
                rest.nw_proto = 0;
                rest.arp_sha = [0; 6];
                rest.arp_tha = [0; 6];
                Ok(())
            }
            _ if ethertype::MPLS.contains(&ethertype) => {
                self.mpls();
                Ok(())
            }
            ethertype::NSH => {
                self.nsh();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Entries up to the bottom of the stack, and no further than the flow matches.
    fn mpls(&mut self) {
        const BOTTOM: u32 = 0x100;
        let (mut labels, mut masks) = (Vec::new(), Vec::new());
        let last = self.mask.0.mpls.iter().rposition(|bits| bits.get() != 0).unwrap_or(0);
        for (label, bits) in self.key.mpls.iter().zip(&self.mask.0.mpls).take(last + 1) {
            labels.extend(label.to_bytes());
            masks.extend(bits.to_bytes());
            if label.get() & bits.get() & BOTTOM != 0 {
                break;
            }
        }
        put(&mut self.out.key, attr::MPLS, &labels);
        put(&mut self.out.mask, attr::MPLS, &masks);
        self.rest.0.mpls = Default::default();
    }

    fn nsh(&mut self) {
        let (key, mask) = (&self.key.nsh, &self.mask.0.nsh);
        for (to, fields) in [(&mut self.out.key, key), (&mut self.out.mask, mask)] {
            nest(to, attr::NSH, |to| {
                put(to, nsh::BASE, &nsh::base(fields));
                if key.mdtype == NshHeader::MD_TYPE_1 {
                    put(to, nsh::MD1, &nsh::context(fields));
                }
            });
        }
        // Packets with another type of metadata have no context. Where the type is open, the kernel has
        // no attribute for it.
        let is_open = key.mdtype != NshHeader::MD_TYPE_1 && mask.mdtype != u8::MAX;
        let context = if is_open { mask.context } else { Default::default() };
        self.rest.0.nsh = Nsh { context, ..Nsh::default() };
    }

    fn transport(&mut self) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        let rest = &mut self.rest.0;
        rest.nw_tos = 0;
        rest.nw_ttl = 0;
        rest.nw_frag &= !(FRAG_ANY | FRAG_LATER);
        match mask.nw_proto {
            0 => return Ok(()),
            0xff => rest.nw_proto = 0,
            _ => return Err(Refused::key("the kernel matches IP protocols whole")),
        }
        if key.nw_frag & FRAG_LATER != 0 {
            return Ok(());
        }
        let ports = |key: &Key| {
            let [s0, s1] = key.tp_src.to_bytes();
            let [d0, d1] = key.tp_dst.to_bytes();
            [s0, s1, d0, d1]
        };
        let types = |key: &Key| [key.tp_src.get() as u8, key.tp_dst.get() as u8];
        let is_v4 = key.dl_type.get() == ethertype::IPV4;
        match key.nw_proto {
            proto::TCP => {
                self.put(attr::TCP, ports(key), ports(mask));
                self.put(attr::TCP_FLAGS, key.tcp_flags.to_bytes(), mask.tcp_flags.to_bytes());
                self.rest.0.tcp_flags = Default::default();
            }
            proto::UDP => self.put(attr::UDP, ports(key), ports(mask)),
            proto::SCTP => self.put(attr::SCTP, ports(key), ports(mask)),
            proto::ICMP if is_v4 => self.put(attr::ICMP, types(key), types(mask)),
            proto::ICMPV6 if !is_v4 => {
                self.put(attr::ICMPV6, types(key), types(mask));
                self.neighbour()?;
            }
            _ => return Ok(()),
        }
        self.rest.0.tp_src = Default::default();
        self.rest.0.tp_dst = Default::default();
        Ok(())
    }

    fn neighbour(&mut self) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        if !NEIGHBOUR.contains(&key.tp_src.get()) {
            return Ok(());
        }
        if tuple_ipv6(mask) != [0; 40] {
            return Err(Refused::key(
                "the kernel has one place for a connection's tuple and a neighbour message",
            ));
        }
        if mask.tp_src.get() as u8 != 0xff {
            // The key must have the attribute, and the mask must not.
            put(&mut self.out.key, attr::ND, &nd(key));
            return Ok(());
        }
        self.put(attr::ND, nd(key), nd(mask));
        let rest = &mut self.rest.0;
        rest.nd_target = [0; 16];
        rest.arp_sha = [0; 6];
        rest.arp_tha = [0; 6];
        Ok(())
    }
}

fn put_nest(bytes: &mut Vec<u8>, kind: u16, inner: &[u8]) {
    nest(bytes, kind, |to| to.extend_from_slice(inner));
}

/// The attributes of a tunnel. `key` decides which flags and options there are.
fn put_tunnel(to: &mut Vec<u8>, fields: &Tunnel, is_v4: bool, key: &Tunnel) {
    let is_mask = fields != key;
    if key.flags.get() & Tunnel::KEY != 0 || fields.id.get() != 0 {
        put(to, tunnel::ID, &fields.id.to_bytes());
    }
    if is_v4 {
        put(to, tunnel::IPV4_SRC, &fields.src.to_bytes());
        put(to, tunnel::IPV4_DST, &fields.dst.to_bytes());
    } else {
        put(to, tunnel::IPV6_SRC, &fields.ipv6_src);
        put(to, tunnel::IPV6_DST, &fields.ipv6_dst);
    }
    put(to, tunnel::TOS, &[fields.tos]);
    put(to, tunnel::TTL, &[fields.ttl]);
    for (bit, kind) in [
        (Tunnel::DONT_FRAGMENT, tunnel::DONT_FRAGMENT),
        (Tunnel::CSUM, tunnel::CSUM),
        (Tunnel::OAM, tunnel::OAM),
    ] {
        if fields.flags.get() & bit != 0 {
            put(to, kind, &[]);
        }
    }
    put(to, tunnel::TP_SRC, &fields.tp_src.to_bytes());
    put(to, tunnel::TP_DST, &fields.tp_dst.to_bytes());
    let length = usize::from(key.options_len);
    // An empty mask says that packets with options do not match.
    if length != 0 || is_mask && fields.options_len != 0 {
        put(to, tunnel::GENEVE_OPTS, fields.options.get(..length).unwrap_or_default());
    } else if key.gbp_id.get() != 0 || key.gbp_flags != 0 || is_mask && fields.gbp_id.get() != 0 {
        let word = u32::from(fields.gbp_flags) << 16 | u32::from(fields.gbp_id.get());
        nest(to, tunnel::VXLAN_OPTS, |to| put(to, tunnel::GBP, &word.to_ne_bytes()));
    }
}

/// `struct ovs_key_ct_tuple_ipv4`
fn tuple_ipv4(key: &Key) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&key.ct_nw_src.to_bytes());
    bytes[4..8].copy_from_slice(&key.ct_nw_dst.to_bytes());
    bytes[8..10].copy_from_slice(&key.ct_tp_src.to_bytes());
    bytes[10..12].copy_from_slice(&key.ct_tp_dst.to_bytes());
    bytes[12] = key.ct_nw_proto;
    bytes
}

/// `struct ovs_key_ct_tuple_ipv6`
fn tuple_ipv6(key: &Key) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&key.ct_ipv6_src);
    bytes[16..32].copy_from_slice(&key.ct_ipv6_dst);
    bytes[32..34].copy_from_slice(&key.ct_tp_src.to_bytes());
    bytes[34..36].copy_from_slice(&key.ct_tp_dst.to_bytes());
    bytes[36] = key.ct_nw_proto;
    bytes
}

/// The byte of fragments. Those of a mask are exact or none.
fn fragment(key: &Key, is_mask: bool) -> u8 {
    match (key.nw_frag, is_mask) {
        (0, _) => 0,
        (_, true) => 0xff,
        (bits, false) if bits & FRAG_LATER != 0 => FRAGMENT_LATER,
        _ => FRAGMENT_FIRST,
    }
}

/// `struct ovs_key_ipv4`
fn ipv4(key: &Key, is_mask: bool) -> [u8; 12] {
    let [s0, s1, s2, s3] = key.nw_src.to_bytes();
    let [d0, d1, d2, d3] = key.nw_dst.to_bytes();
    let fragment = fragment(key, is_mask);
    [s0, s1, s2, s3, d0, d1, d2, d3, key.nw_proto, key.nw_tos, key.nw_ttl, fragment]
}

/// `struct ovs_key_ipv6`
fn ipv6(key: &Key, is_mask: bool) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&key.ipv6_src);
    bytes[16..32].copy_from_slice(&key.ipv6_dst);
    bytes[32..36].copy_from_slice(&key.ipv6_label.to_bytes());
    bytes[36..].copy_from_slice(&[key.nw_proto, key.nw_tos, key.nw_ttl, fragment(key, is_mask)]);
    bytes
}

/// `struct ovs_key_arp`
fn arp(key: &Key) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&key.nw_src.to_bytes());
    bytes[4..8].copy_from_slice(&key.nw_dst.to_bytes());
    bytes[9] = key.nw_proto;
    bytes[10..16].copy_from_slice(&key.arp_sha);
    bytes[16..22].copy_from_slice(&key.arp_tha);
    bytes
}

/// `struct ovs_key_nd`
fn nd(key: &Key) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..16].copy_from_slice(&key.nd_target);
    bytes[16..22].copy_from_slice(&key.arp_sha);
    bytes[22..].copy_from_slice(&key.arp_tha);
    bytes
}

/// How well a packet's key is known after decoding, as Open vSwitch's `enum odp_key_fitness`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// Each attribute is of a field that there is.
    Perfect,
    /// The kernel parses more than this crate: flows for such packets must not be installed.
    TooMuch,
}

/// Decodes the key of a packet.
///
/// `None` when an attribute has a wrong length or a nest is cut short.
pub fn decode(bytes: &[u8]) -> Option<(Key, Fitness)> {
    let mut reader = Reader { key: Key::default(), fitness: Fitness::Perfect, is_mask: false };
    reader.layer(bytes, 0)?;
    Some((reader.key, reader.fitness))
}

/// Decodes what a megaflow of the kernel matches. `None` when it is no megaflow of ours.
pub fn decode_match(key: &[u8], mask: &[u8]) -> Option<Match> {
    let (key, fitness) = decode(key)?;
    let mut reader = Reader { key: Key::default(), fitness, is_mask: true };
    reader.layer(mask, 0)?;
    let mut mask = Mask(reader.key);
    let ethertype = key.dl_type.get();
    if mask.0.dl_type.get() != 0 && ethertype < ethertype::FIRST && ethertype != ethertype::NONE {
        return None; // no packet has such a type
    }
    // The kernel compares these without an attribute.
    mask.0.in_port = u32::MAX.into();
    mask.0.packet_type = u32::MAX.into();
    mask.0.recirc_id = u32::MAX.into();
    for (vlan, bits) in key.vlans.iter().zip(mask.0.vlans.iter_mut()) {
        if vlan.tci.get() & VLAN_CFI == 0 {
            bits.tci = VLAN_CFI.into(); // all others are then clear
            break;
        }
        bits.tpid = u16::MAX.into();
    }
    (reader.fitness == Fitness::Perfect).then(|| Match::new(&key, &mask))
}

struct Reader {
    key: Key,
    fitness: Fitness,
    is_mask: bool,
}

impl Reader {
    /// Reads the attributes of a packet, or of what is behind `tags` VLAN headers.
    fn layer(&mut self, bytes: &[u8], tags: usize) -> Option<()> {
        let (mut ethertype, mut tci, mut encapsulated) = (None, None, None);
        let mut has_addresses = tags != 0;
        for (kind, value) in read(bytes) {
            has_addresses |= kind == attr::ETHERNET;
            match kind {
                attr::ETHERTYPE => ethertype = Some(u16::from_be_bytes(whole(value)?)),
                attr::VLAN => tci = Some(u16::from_be_bytes(whole(value)?)),
                attr::ENCAP => encapsulated = Some(value),
                _ => self.attribute(kind, value)?,
            }
        }
        if let (Some(tci), Some(inner)) = (tci, encapsulated) {
            let Some(vlan) = self.key.vlans.get_mut(tags) else {
                self.fitness = Fitness::TooMuch;
                return Some(());
            };
            vlan.tpid = ethertype?.into();
            vlan.tci = tci.into();
            return self.layer(inner, tags + 1);
        }
        if let (false, false, Some(ethertype)) = (self.is_mask, has_addresses, ethertype) {
            self.key.packet_type = (NAMESPACE_ETHERTYPE << 16 | u32::from(ethertype)).into();
        }
        let none = if self.is_mask { 0 } else { ethertype::NONE };
        self.key.dl_type = ethertype.unwrap_or(none).into();
        Some(())
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        let is_mask = self.is_mask;
        let key = &mut self.key;
        let word = || Some(u32::from_ne_bytes(whole(value)?));
        match kind {
            attr::PRIORITY => key.skb_priority = word()?.into(),
            attr::IN_PORT => key.in_port = word()?.into(),
            attr::SKB_MARK => key.pkt_mark = word()?.into(),
            attr::DP_HASH => key.dp_hash = word()?.into(),
            attr::RECIRC_ID => key.recirc_id = word()?.into(),
            attr::CT_STATE => key.ct_state = word()? as u8,
            attr::CT_ZONE => key.ct_zone = u16::from_ne_bytes(whole(value)?).into(),
            attr::CT_MARK => key.ct_mark = word()?.into(),
            attr::CT_LABELS => {
                key.ct_label = u128::from_le_bytes(whole(value)?).to_be_bytes();
            }
            attr::CT_TUPLE_IPV4 => {
                key.ct_nw_src = u32::from_be_bytes(array(value)?).into();
                key.ct_nw_dst = u32::from_be_bytes(array(value.get(4..)?)?).into();
                key.ct_tp_src = u16::from_be_bytes(array(value.get(8..)?)?).into();
                key.ct_tp_dst = u16::from_be_bytes(array(value.get(10..)?)?).into();
                key.ct_nw_proto = *value.get(12)?;
            }
            attr::CT_TUPLE_IPV6 => {
                key.ct_ipv6_src = array(value)?;
                key.ct_ipv6_dst = array(value.get(16..)?)?;
                key.ct_tp_src = u16::from_be_bytes(array(value.get(32..)?)?).into();
                key.ct_tp_dst = u16::from_be_bytes(array(value.get(34..)?)?).into();
                key.ct_nw_proto = *value.get(36)?;
            }
            attr::TUNNEL => self.tunnel(value)?,
            attr::ETHERNET => {
                key.dl_src = array(value)?;
                key.dl_dst = array(value.get(6..)?)?;
            }
            attr::IPV4 => {
                key.nw_src = u32::from_be_bytes(array(value)?).into();
                key.nw_dst = u32::from_be_bytes(array(value.get(4..)?)?).into();
                ip_fields(key, array(value.get(8..)?)?, is_mask);
            }
            attr::IPV6 => {
                key.ipv6_src = array(value)?;
                key.ipv6_dst = array(value.get(16..)?)?;
                key.ipv6_label = u32::from_be_bytes(array(value.get(32..)?)?).into();
                ip_fields(key, array(value.get(36..)?)?, is_mask);
            }
            attr::TCP | attr::UDP | attr::SCTP => {
                key.tp_src = u16::from_be_bytes(array(value)?).into();
                key.tp_dst = u16::from_be_bytes(array(value.get(2..)?)?).into();
            }
            attr::TCP_FLAGS => key.tcp_flags = u16::from_be_bytes(whole(value)?).into(),
            attr::ICMP | attr::ICMPV6 => {
                let [kind, code] = whole(value)?;
                key.tp_src = u16::from(kind).into();
                key.tp_dst = u16::from(code).into();
            }
            attr::ARP => {
                key.nw_src = u32::from_be_bytes(array(value)?).into();
                key.nw_dst = u32::from_be_bytes(array(value.get(4..)?)?).into();
                let op = u16::from_be_bytes(array(value.get(8..)?)?);
                key.nw_proto = u8::try_from(op).unwrap_or_default();
                key.arp_sha = array(value.get(10..)?)?;
                key.arp_tha = array(value.get(16..)?)?;
            }
            attr::ND => {
                key.nd_target = array(value)?;
                key.arp_sha = array(value.get(16..)?)?;
                key.arp_tha = array(value.get(22..)?)?;
            }
            attr::MPLS => {
                let (labels, _) = value.as_chunks::<4>();
                for (to, label) in key.mpls.iter_mut().zip(labels) {
                    *to = u32::from_be_bytes(*label).into();
                }
            }
            attr::NSH => key.nsh = nsh::decode(value)?,
            attr::PACKET_TYPE => key.packet_type = u32::from_be_bytes(whole(value)?).into(),
            attr::IPV6_EXTENSIONS if !is_mask => {}
            _ if is_mask && value.iter().all(|byte| *byte == 0) => {}
            _ => self.fitness = Fitness::TooMuch,
        }
        Some(())
    }

    fn tunnel(&mut self, bytes: &[u8]) -> Option<()> {
        let fields = &mut self.key.tunnel;
        let mut flags = 0;
        for (kind, value) in read(bytes) {
            match kind {
                tunnel::ID => {
                    fields.id = u64::from_be_bytes(whole(value)?).into();
                    flags |= Tunnel::KEY;
                }
                tunnel::IPV4_SRC => fields.src = u32::from_be_bytes(whole(value)?).into(),
                tunnel::IPV4_DST => fields.dst = u32::from_be_bytes(whole(value)?).into(),
                tunnel::IPV6_SRC => fields.ipv6_src = whole(value)?,
                tunnel::IPV6_DST => fields.ipv6_dst = whole(value)?,
                tunnel::TOS => [fields.tos] = whole(value)?,
                tunnel::TTL => [fields.ttl] = whole(value)?,
                tunnel::DONT_FRAGMENT => flags |= Tunnel::DONT_FRAGMENT,
                tunnel::CSUM => flags |= Tunnel::CSUM,
                tunnel::OAM => flags |= Tunnel::OAM,
                tunnel::TP_SRC => fields.tp_src = u16::from_be_bytes(whole(value)?).into(),
                tunnel::TP_DST => fields.tp_dst = u16::from_be_bytes(whole(value)?).into(),
                tunnel::GENEVE_OPTS => {
                    fields.set_raw_options(value).then_some(())?;
                    if self.is_mask {
                        fields.options_len = u8::MAX;
                    }
                }
                tunnel::VXLAN_OPTS => {
                    let (_, gbp) = read(value).find(|(kind, _)| *kind == tunnel::GBP)?;
                    let word = u32::from_ne_bytes(whole(gbp)?);
                    fields.gbp_id = (word as u16).into();
                    fields.gbp_flags = (word >> 16) as u8;
                }
                _ => self.fitness = Fitness::TooMuch,
            }
        }
        fields.flags = flags.into();
        Some(())
    }
}

/// Protocol, type of service, time to live, and the byte of fragments.
fn ip_fields(key: &mut Key, [proto, tos, ttl, fragment]: [u8; 4], is_mask: bool) {
    key.nw_proto = proto;
    key.nw_tos = tos;
    key.nw_ttl = ttl;
    key.nw_frag = match (fragment, is_mask) {
        (0, _) => 0,
        (FRAGMENT_FIRST, false) => FRAG_ANY,
        _ => FRAG_ANY | FRAG_LATER,
    };
}

/// A value that has exactly these bytes.
fn whole<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}
