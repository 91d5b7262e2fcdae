// SPDX-License-Identifier: Apache-2.0
//! Keys. Each step encodes some fields and takes them off the mask; what is left at the end has no
//! key in flower.

use super::{Refused, Switch, no_key};
use crate::keys::{self, FIRST_FRAGMENT, FRAGMENT, Key, Keys};
use crate::options::{put_geneve, put_group_policy};
use datapath::PortNo;
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::{Mask, Match, Tunnel, VLAN_CFI, Vlan, ct_state};
use tunnel::Tlvs;

/// Ethernet types.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// `ETH_P_ALL`
const ALL: u16 = 3;

/// IP protocols.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// The parts of a filter that come from a match.
pub struct Matched {
    pub protocol: u16,
    pub chain: u32,
    pub keys: Keys,
}

struct Encoder<'m> {
    key: &'m flow::Key,
    /// The mask of the match.
    mask: &'m Mask,
    /// The bits that no step has encoded so far.
    rest: Mask,
    keys: Keys,
}

/// Encodes a field that has one key with the same bits, and takes it off the rest.
macro_rules! field {
    ($encoder:ident, $($path:ident).+ => $key:ident) => {{
        let (value, mask) = (&$encoder.key.$($path).+, &mut $encoder.rest.0.$($path).+);
        $encoder.keys.add(Key::$key, bytes(value), bytes(mask));
        *mask = Default::default();
    }};
}

/// The bytes of a field, in network order.
trait Bytes<const N: usize> {
    fn bytes(&self) -> [u8; N];
}

impl<const N: usize> Bytes<N> for [u8; N] {
    fn bytes(&self) -> [u8; N] {
        *self
    }
}

impl Bytes<1> for u8 {
    fn bytes(&self) -> [u8; 1] {
        [*self]
    }
}

impl Bytes<2> for zerocopy::big_endian::U16 {
    fn bytes(&self) -> [u8; 2] {
        self.to_bytes()
    }
}

impl Bytes<4> for zerocopy::big_endian::U32 {
    fn bytes(&self) -> [u8; 4] {
        self.to_bytes()
    }
}

fn bytes<const N: usize>(field: &impl Bytes<N>) -> [u8; N] {
    field.bytes()
}

pub fn encode(matching: &Match, switch: &dyn Switch) -> Result<Matched, Refused> {
    let (key, mask) = (matching.key(), matching.mask());
    let mut encoder = Encoder { key, mask, rest: *mask, keys: Keys::default() };
    let chain = encoder.metadata(switch)?;
    encoder.connection(switch)?;
    encoder.tunnel(switch)?;
    let protocol = encoder.link()?;
    encoder.network(switch)?;
    if encoder.rest != Mask::WILDCARD {
        return Err(no_key("flower has no key for a field that the flow matches"));
    }
    Ok(Matched { protocol, chain, keys: encoder.keys })
}

impl Encoder<'_> {
    /// The port is the device that the filter is at. Returns the chain.
    fn metadata(&mut self, switch: &dyn Switch) -> Result<u32, Refused> {
        if self.key.packet_type.get() != 0 {
            return Err(no_key("flower's packets have an Ethernet header"));
        }
        let rest = &mut self.rest.0;
        rest.in_port = Default::default();
        rest.packet_type = Default::default();
        rest.recirc_id = Default::default();
        // A card's packets have neither mark nor priority. Those of the kernel may have both.
        let has_none = !switch.runs_in_kernel();
        if has_none && self.key.recirc_id.get() == 0 && self.key.pkt_mark.get() == 0 {
            rest.pkt_mark = Default::default();
        }
        if has_none && self.key.recirc_id.get() == 0 && self.key.skb_priority.get() == 0 {
            rest.skb_priority = Default::default();
        }
        switch
            .chain(self.key.recirc_id.get())
            .ok_or_else(|| no_key("there is no chain for this recirculation"))
    }

    fn connection(&mut self, switch: &dyn Switch) -> Result<(), Refused> {
        let (key, mask) = (self.key, &self.mask.0);
        let fields = [
            mask.ct_state != 0,
            mask.ct_zone.get() != 0,
            mask.ct_mark.get() != 0,
            mask.ct_label != [0; 16],
        ];
        if fields == [false; 4] {
            return Ok(());
        }
        if !switch.tracks_by_kernel() {
            let refusal = datapath::Refusal::CtTable;
            return Err(Refused { refusal, words: "act_ct has the kernel's table of connections" });
        }
        let (state, mut state_mask) = (key.ct_state, mask.ct_state);
        if state_mask & (ct_state::SNAT | ct_state::DNAT) != 0 {
            return Err(no_key("flower does not match snat and dnat of ct_state"));
        }
        // The kernel calls no established connection new.
        if state & ct_state::EST != 0 && state & ct_state::NEW == 0 {
            state_mask &= !ct_state::NEW;
        }
        let pairs = [
            (ct_state::NEW, keys::ct::NEW),
            (ct_state::EST, keys::ct::ESTABLISHED),
            (ct_state::REL, keys::ct::RELATED),
            (ct_state::RPL, keys::ct::REPLY),
            (ct_state::INV, keys::ct::INVALID),
            (ct_state::TRK, keys::ct::TRACKED),
        ];
        let bits = |state: u8| {
            let bits = pairs.iter().filter(|(ours, _)| state & ours != 0).map(|(_, bit)| bit);
            bits.fold(0u16, |all, bit| all | bit)
        };
        let (value, mut mask_bits) = (bits(state & state_mask), bits(state_mask));
        let tracked = if value != 0 { keys::ct::TRACKED } else { 0 };
        mask_bits |= tracked;
        self.keys.add(Key::CtState, (value | tracked).to_ne_bytes(), mask_bits.to_ne_bytes());
        let (zone, mark) = (key.ct_zone.get(), key.ct_mark.get());
        self.keys.add(Key::CtZone, zone.to_ne_bytes(), mask.ct_zone.get().to_ne_bytes());
        self.keys.add(Key::CtMark, mark.to_ne_bytes(), mask.ct_mark.get().to_ne_bytes());
        let kernel = |label: [u8; 16]| u128::from_be_bytes(label).to_le_bytes();
        self.keys.add(Key::CtLabels, kernel(key.ct_label), kernel(mask.ct_label));
        let rest = &mut self.rest.0;
        rest.ct_state = 0;
        rest.ct_zone = Default::default();
        rest.ct_mark = Default::default();
        rest.ct_label = [0; 16];
        Ok(())
    }

    /// The tunnel that the packet came by. Flower reads what the tunnel's device has made of the outer
    /// headers.
    fn tunnel(&mut self, switch: &dyn Switch) -> Result<(), Refused> {
        let (key, mask) = (&self.key.tunnel, &self.mask.0.tunnel);
        let device = switch.tunnel(PortNo(self.key.in_port.get()));
        let Some(device) = device else {
            return match *mask == Tunnel::default() {
                true => Ok(()),
                false => Err(no_key("the kernel has no device for this tunnel")),
            };
        };
        if mask.id.get() != 0 {
            let id = u32::try_from(key.id.get());
            let id = id.map_err(|_| no_key("flower's tunnel keys have 32 bits"))?;
            if mask.id.get() as u32 != u32::MAX {
                return Err(no_key("flower matches a tunnel's key whole"));
            }
            self.keys.exact(Key::EncKeyId, id.to_be_bytes());
        }
        // Packets of GRE without a key have the key 0 in the kernel, too.
        if device.udp_port == 0 && mask.flags.get() & Tunnel::KEY != 0 && key.id.get() == 0 {
            return Err(no_key("flower does not match that a packet of GRE has a key"));
        }
        if device.udp_port != 0 {
            // Drivers find the kind of tunnel by this port.
            self.keys.exact(Key::EncUdpDst, device.udp_port.to_be_bytes());
            let mask = mask.tp_dst.get();
            if key.tp_dst.get() & mask != device.udp_port & mask {
                return Err(no_key("packets of the tunnel have another UDP port"));
            }
            self.rest.0.tunnel.tp_dst = Default::default();
        }
        field!(self, tunnel.src => EncIpv4Src);
        field!(self, tunnel.dst => EncIpv4Dst);
        field!(self, tunnel.ipv6_src => EncIpv6Src);
        field!(self, tunnel.ipv6_dst => EncIpv6Dst);
        field!(self, tunnel.tos => EncIpTos);
        field!(self, tunnel.ttl => EncIpTtl);
        field!(self, tunnel.tp_src => EncUdpSrc);
        self.options()?;
        let rest = &mut self.rest.0.tunnel;
        rest.id = Default::default();
        // No table matches these. Packets that differ in them alone have the same translation.
        let without_effect = Tunnel::DONT_FRAGMENT | Tunnel::CSUM | Tunnel::KEY;
        rest.flags.set(rest.flags.get() & !without_effect);
        Ok(())
    }

    /// Options of Geneve as a datapath has them, and the policy of VXLAN.
    fn options(&mut self) -> Result<(), Refused> {
        let (key, mask) = (&self.key.tunnel, &self.mask.0.tunnel);
        let (mut value_bytes, mut mask_bytes) = (Vec::new(), Vec::new());
        if mask.options_len != 0 {
            let cut = || no_key("an option of Geneve is cut short");
            let length = usize::from(key.options_len);
            let value = key.options.get(..length).ok_or_else(cut)?;
            let mut at = 0;
            for option in Tlvs::new(value) {
                let option = option.map_err(|_| cut())?;
                if option.data.is_empty() {
                    return Err(no_key("flower matches no option without data"));
                }
                let begin = at + 4;
                at = begin + option.data.len();
                let bits = mask.options.get(begin..at).ok_or_else(cut)?;
                let data: Vec<u8> = option.data.iter().zip(bits).map(|(d, m)| d & m).collect();
                put_geneve(&mut value_bytes, option.class.to_be_bytes(), option.kind, &data);
                put_geneve(&mut mask_bytes, [0xff; 2], 0xff, bits);
            }
        } else if mask.gbp_id.get() != 0 || mask.gbp_flags != 0 {
            let (id, flags) =
                (key.gbp_id.get() & mask.gbp_id.get(), key.gbp_flags & mask.gbp_flags);
            put_group_policy(&mut value_bytes, id, flags);
            put_group_policy(&mut mask_bytes, mask.gbp_id.get(), mask.gbp_flags);
        }
        if !value_bytes.is_empty() {
            self.keys.options(value_bytes, mask_bytes);
        }
        let rest = &mut self.rest.0.tunnel;
        rest.options_len = 0;
        rest.options = [0; flow::OPTIONS_BYTES];
        rest.gbp_id = Default::default();
        rest.gbp_flags = 0;
        Ok(())
    }

    /// Ethernet, VLAN and MPLS. Returns the protocol of the filter.
    fn link(&mut self) -> Result<u16, Refused> {
        field!(self, dl_dst => EthDst);
        field!(self, dl_src => EthSrc);
        let type_mask = self.mask.0.dl_type.get();
        let ethertype = match type_mask {
            0xffff => Some(self.key.dl_type.get()),
            0 => None,
            _ => return Err(no_key("flower matches Ethernet types whole")),
        };
        if ethertype.is_some_and(|t| t < 0x0600) {
            return Err(no_key("flower does not match frames of 802.2"));
        }
        self.rest.0.dl_type = Default::default();
        let tags = self.vlans()?;
        let protocol = match (tags, ethertype) {
            // Without a type the filter would meet packets with VLAN headers, too.
            (Tags::None, Some(ethertype)) => ethertype,
            (Tags::None, None) => {
                return Err(no_key("a filter for packets without VLAN needs their Ethernet type"));
            }
            // Flower finds a type after VLAN headers only where it matches these. The filter takes
            // the packets without VLAN; the others stay on the host.
            (Tags::Any, Some(ethertype)) => ethertype,
            (Tags::Any, None) => ALL,
            (Tags::One(tpid), ethertype) => {
                if let Some(ethertype) = ethertype {
                    self.keys.exact(Key::VlanEthType, ethertype.to_be_bytes());
                }
                tpid
            }
            (Tags::Two(tpid, inner), ethertype) => {
                self.keys.exact(Key::VlanEthType, inner.to_be_bytes());
                if let Some(ethertype) = ethertype {
                    self.keys.exact(Key::CvlanEthType, ethertype.to_be_bytes());
                }
                tpid
            }
        };
        if protocol != ALL {
            self.keys.exact(Key::EthType, protocol.to_be_bytes());
        }
        if ethertype.is_some_and(|t| MPLS.contains(&t)) {
            self.mpls()?;
        }
        Ok(protocol)
    }

    /// VLAN headers; their keys, but not the Ethernet types after them.
    fn vlans(&mut self) -> Result<Tags, Refused> {
        let [outer, inner] = self.key.vlans;
        let [outer_mask, inner_mask] = self.mask.0.vlans;
        self.rest.0.vlans = Default::default();
        let none = Vlan::default();
        let outer = match tag(outer, outer_mask)? {
            Tag::Any if inner_mask != none => {
                return Err(no_key(
                    "flower matches an inner VLAN header after one that it matches",
                ));
            }
            Tag::Any => return Ok(Tags::Any),
            Tag::None => return Ok(Tags::None),
            Tag::Some(outer) => outer,
        };
        self.tag(&outer, [Key::VlanId, Key::VlanPrio]);
        match tag(inner, inner_mask)? {
            Tag::Any => Ok(Tags::One(outer.tpid)),
            // The Ethernet type after the header says so.
            Tag::None if self.mask.0.dl_type.get() != 0 => Ok(Tags::One(outer.tpid)),
            Tag::None => {
                Err(no_key("a filter for packets with one VLAN header needs their Ethernet type"))
            }
            Tag::Some(inner) => {
                self.tag(&inner, [Key::CvlanId, Key::CvlanPrio]);
                Ok(Tags::Two(outer.tpid, inner.tpid))
            }
        }
    }

    fn tag(&mut self, tag: &Exact, [id, priority]: [Key; 2]) {
        if let Some(vid) = tag.vid {
            self.keys.exact(id, vid.to_ne_bytes());
        }
        if let Some(value) = tag.priority {
            self.keys.exact(priority, [value]);
        }
    }

    /// The outermost MPLS entry.
    fn mpls(&mut self) -> Result<(), Refused> {
        let [entry, ..] = self.key.mpls;
        let [mask, ..] = self.mask.0.mpls;
        let (entry, mask) = (entry.get(), mask.get());
        // Label, traffic class, bottom of stack, TTL.
        let parts = [(12, 0xf_ffff), (9, 7), (8, 1), (0, 0xff)];
        if parts.iter().any(|(shift, bits)| ![0, *bits].contains(&(mask >> shift & bits))) {
            return Err(no_key("flower matches the parts of an MPLS entry whole"));
        }
        let part =
            |shift: u32, bits: u32| (mask >> shift & bits != 0).then_some(entry >> shift & bits);
        if let Some(label) = part(12, 0xf_ffff) {
            self.keys.exact(Key::MplsLabel, label.to_ne_bytes());
        }
        for (key, value) in
            [(Key::MplsTc, part(9, 7)), (Key::MplsBos, part(8, 1)), (Key::MplsTtl, part(0, 0xff))]
        {
            if let Some(value) = value {
                self.keys.exact(key, [value as u8]);
            }
        }
        if let Some(outermost) = self.rest.0.mpls.first_mut() {
            *outermost = Default::default();
        }
        Ok(())
    }

    /// IP and ARP, and what is behind.
    fn network(&mut self, switch: &dyn Switch) -> Result<(), Refused> {
        let in_kernel = switch.runs_in_kernel();
        if self.mask.0.dl_type.get() != 0xffff {
            return Ok(());
        }
        match self.key.dl_type.get() {
            IPV4 => {
                field!(self, nw_src => Ipv4Src);
                field!(self, nw_dst => Ipv4Dst);
                self.ip(in_kernel)
            }
            IPV6 => {
                field!(self, ipv6_src => Ipv6Src);
                field!(self, ipv6_dst => Ipv6Dst);
                self.ip(in_kernel)
            }
            ARP | RARP => {
                field!(self, nw_src => ArpSip);
                field!(self, nw_dst => ArpTip);
                field!(self, nw_proto => ArpOp);
                field!(self, arp_sha => ArpSha);
                field!(self, arp_tha => ArpTha);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ip(&mut self, in_kernel: bool) -> Result<(), Refused> {
        if in_kernel {
            self.ip_in_kernel()?;
        }
        field!(self, nw_tos => IpTos);
        field!(self, nw_ttl => IpTtl);
        self.fragment()?;
        let proto = match self.mask.0.nw_proto {
            0xff => self.key.nw_proto,
            0 => return Ok(()),
            _ => return Err(no_key("flower matches IP protocols whole")),
        };
        self.rest.0.nw_proto = 0;
        self.keys.exact(Key::IpProto, [proto]);
        match proto {
            TCP => {
                field!(self, tp_src => TcpSrc);
                field!(self, tp_dst => TcpDst);
                field!(self, tcp_flags => TcpFlags);
            }
            UDP => {
                field!(self, tp_src => UdpSrc);
                field!(self, tp_dst => UdpDst);
            }
            SCTP => {
                field!(self, tp_src => SctpSrc);
                field!(self, tp_dst => SctpDst);
            }
            ICMP if self.key.dl_type.get() == IPV4 => {
                self.icmp(Key::Icmpv4Type, Key::Icmpv4Code);
            }
            ICMPV6 if self.key.dl_type.get() == IPV6 => {
                self.icmp(Key::Icmpv6Type, Key::Icmpv6Code);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks what the kernel's dissector reads otherwise than the switch: it finds no ports in the
    /// first fragment of a packet, and the protocol of IPv6 in later fragments.
    fn ip_in_kernel(&self) -> Result<(), Refused> {
        let (value, mask) = (self.key.nw_frag, &self.mask.0);
        let is_known = mask.nw_frag & FRAG_ANY != 0;
        if self.key.dl_type.get() == IPV6 && is_known && value & FRAG_ANY != 0 {
            return Err(no_key("the kernel reads fragments of IPv6 in its own way"));
        }
        let is_whole = is_known && value & FRAG_ANY == 0;
        let is_later = mask.nw_frag & value & FRAG_LATER != 0;
        let has_ports = mask.tp_src.get() | mask.tp_dst.get() | mask.tcp_flags.get() != 0;
        if has_ports && !is_whole && !is_later {
            return Err(no_key("the kernel reads no ports in the first fragment of a packet"));
        }
        Ok(())
    }

    /// Type and code are in the low bytes of the ports.
    fn icmp(&mut self, kind: Key, code: Key) {
        let (key, mask) = (self.key, &mut self.rest.0);
        self.keys.add(kind, [key.tp_src.get() as u8], [mask.tp_src.get() as u8]);
        self.keys.add(code, [key.tp_dst.get() as u8], [mask.tp_dst.get() as u8]);
        mask.tp_src = Default::default();
        mask.tp_dst = Default::default();
    }

    /// Part of a packet, the first part, or none.
    fn fragment(&mut self) -> Result<(), Refused> {
        let (value, mask) = (self.key.nw_frag, self.mask.0.nw_frag);
        self.rest.0.nw_frag &= !(FRAG_ANY | FRAG_LATER);
        if mask & FRAG_ANY == 0 {
            return match mask & FRAG_LATER {
                0 => Ok(()),
                _ => Err(no_key("flower matches later fragments among fragments only")),
            };
        }
        let (mut flags, mut bits) = (0, FRAGMENT);
        if value & FRAG_ANY != 0 {
            flags |= FRAGMENT;
            if mask & FRAG_LATER != 0 {
                bits |= FIRST_FRAGMENT;
                flags |= if value & FRAG_LATER == 0 { FIRST_FRAGMENT } else { 0 };
            }
        }
        self.keys.add(Key::Flags, flags.to_be_bytes(), bits.to_be_bytes());
        Ok(())
    }
}

/// The VLAN headers that a match demands.
enum Tags {
    /// Any number of headers.
    Any,
    /// No header.
    None,
    /// One or more, the outermost with this tag protocol.
    One(u16),
    /// Two or more.
    Two(u16, u16),
}

/// The VLAN header that a match demands at one place.
enum Tag {
    Any,
    None,
    Some(Exact),
}

/// A VLAN header.
struct Exact {
    tpid: u16,
    vid: Option<u16>,
    priority: Option<u8>,
}

fn tag(value: Vlan, mask: Vlan) -> Result<Tag, Refused> {
    let (tci, tci_mask) = (value.tci.get(), mask.tci.get());
    let (tpid, tpid_mask) = (value.tpid.get(), mask.tpid.get());
    if tci_mask & VLAN_CFI == 0 {
        return match (tci_mask, tpid_mask) {
            (0, 0) => Ok(Tag::Any),
            _ => Err(no_key("flower matches a VLAN header that must be there or not")),
        };
    }
    if tci & VLAN_CFI == 0 {
        return Ok(Tag::None);
    }
    if tpid_mask != 0xffff {
        return Err(no_key("flower matches the protocol of a VLAN header whole"));
    }
    let vid = match tci_mask & 0xfff {
        0 => None,
        0xfff => Some(tci & 0xfff),
        _ => return Err(no_key("flower matches VLAN ids whole")),
    };
    let priority = match tci_mask >> 13 {
        0 => None,
        7 => Some((tci >> 13) as u8),
        _ => return Err(no_key("flower matches VLAN priorities whole")),
    };
    Ok(Tag::Some(Exact { tpid, vid, priority }))
}
