// SPDX-License-Identifier: Apache-2.0
//! Datapath syntax, in.

use crate::extract::DL_TYPE_NONE;
use crate::field::Prerequisite;
use crate::field::flags::Flags;
use crate::field::value::{ethernet, integer};
use crate::{Field, Key, Mask, Match, NAMESPACE_ETHERTYPE, VLAN_CFI, VLANS};
use packet::{MplsEntry, ethertype};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};

/// Most bytes of a netlink attribute without its header: the length, with the header, has 16 bits.
const MOST_ATTRIBUTE: usize = 0xffff - 4;

/// Why a datapath flow text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OdpError {
    /// The text from the attribute that could not be read, as OVS names it.
    #[error("syntax error at {0}")]
    Syntax(String),
    /// More fields in `tunnel()` than a netlink attribute holds.
    #[error("syntax error at {0}")]
    TooLong(String),
    /// An attribute, or one of its fields, is given twice.
    #[error("duplicate attribute {0}")]
    Duplicate(String),
    /// `in_port()` with a name that no port has.
    #[error("no port with name {0}")]
    UnknownPort(String),
    /// More `encap()` than a key holds VLAN tags, or one without a tag, or `vlan()` without a
    /// tag's `eth_type()`.
    #[error("{0}")]
    Vlan(&'static str),
    /// A header without the one that announces it.
    #[error("{attribute}() does not go with the eth_type() and protocol given")]
    Inconsistent {
        /// The attribute.
        attribute: String,
    },
}

/// Value and mask of a number: `5`, `0x5/0xff`.
pub(super) fn masked(text: &str, all: u128) -> Option<(u128, u128)> {
    let (value, mask) = match text.split_once('/') {
        Some((v, m)) => (integer(v)?, integer(m)?),
        None => (integer(text)?, all),
    };
    (value & !all == 0 && mask & !all == 0).then_some((value, mask))
}

/// Value and mask of something else than a number.
pub(super) fn masked_with<T>(
    text: &str,
    read: impl Fn(&str) -> Option<T>,
    all: T,
) -> Option<(T, T)> {
    match text.split_once('/') {
        Some((v, m)) => Some((read(v)?, read(m)?)),
        None => Some((read(text)?, all)),
    }
}

struct Parser<'a> {
    key: Key,
    mask: Mask,
    seen: Vec<&'a str>,
    vlans: usize,
    ports: &'a dyn Fn(&str) -> Option<u32>,
}

/// Reads a flow: the key, without bits outside the mask, and the mask. See the module's text
/// for what is meant by what is not mentioned. `ports` finds datapath ports by name.
///
/// # Errors
/// See [`OdpError`]: text that cannot be read, anything given twice, an unknown port, VLAN headers
/// out of place, or a header without the field that announces it.
pub fn parse(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Result<(Key, Mask), OdpError> {
    let (key, mask) = parse_whole(text, ports, Purpose::Megaflow)?;
    Ok((key.masked(&mask), mask))
}

/// Parses a packet in datapath syntax: of a flow with masks, the values also where the mask leaves
/// them open.
///
/// # Errors
/// The same as those of [`parse`].
pub fn parse_packet(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Result<Key, OdpError> {
    Ok(parse_whole(text, ports, Purpose::Packet)?.0)
}

/// Does the same as [`parse_packet`], and ignores headers that do not go with the `eth_type()` and
/// protocol: the packet does not have them.
///
/// # Errors
/// The same as those of [`parse`], except for such headers.
pub fn parse_frame(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Result<Key, OdpError> {
    Ok(parse_whole(text, ports, Purpose::Frame)?.0)
}

/// The use that a text is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Megaflow,
    /// A packet. As in OVS `ipv4()` and `ipv6()` stand for their Ethernet type where none is given.
    Packet,
    /// Likewise. Headers that no type announces are ignored.
    Frame,
}

fn parse_whole(
    text: &str,
    ports: &dyn Fn(&str) -> Option<u32>,
    purpose: Purpose,
) -> Result<(Key, Mask), OdpError> {
    let mut p = Parser { key: Key::ZERO, mask: Mask::WILDCARD, seen: Vec::new(), vlans: 0, ports };
    p.mask.0.recirc_id.set(u32::MAX);
    p.attributes(text.trim())?;
    p.finish(purpose)?;
    Ok((p.key, p.mask))
}

/// Splits one attribute `NAME(BODY)` off `text`.
fn split_attribute(text: &str) -> Option<(&str, &str, &str)> {
    let open = text.find('(')?;
    let name = text.get(..open)?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let mut depth = 0usize;
    for (i, b) in text.bytes().enumerate().skip(open) {
        match b {
            b'(' => depth += 1,
            b')' => depth -= 1, // the first byte here is a '('
            _ => {}
        }
        if depth == 0 {
            return Some((name, text.get(open + 1..i)?, text.get(i + 1..)?));
        }
    }
    None
}

/// A field that an attribute's body names more than once.
fn given_twice(body: &str) -> Option<&str> {
    let mut given: Vec<&str> = Vec::new();
    for (name, _) in body.split(',').filter_map(|item| item.split_once('=')) {
        if given.contains(&name) {
            return Some(name);
        }
        given.push(name);
    }
    None
}

impl<'a> Parser<'a> {
    fn attributes(&mut self, mut rest: &'a str) -> Result<(), OdpError> {
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
            if rest.is_empty() {
                return Ok(());
            }
            let syntax = || OdpError::Syntax(rest.to_string());
            let (name, body, tail) = split_attribute(rest).ok_or_else(syntax)?;
            match name {
                "encap" => {
                    if self.vlans == 0 || !self.seen.contains(&"vlan") {
                        return Err(OdpError::Vlan("encap() without eth_type() and vlan() before"));
                    }
                    // `eth_type` and `vlan` may occur again inside the encapsulation.
                    self.seen.retain(|s| !matches!(*s, "eth_type" | "vlan"));
                    self.key.dl_type.set(0);
                    self.mask.0.dl_type.set(0);
                    self.attributes(body)?;
                }
                _ => {
                    if self.seen.contains(&name) {
                        return Err(OdpError::Duplicate(name.to_string()));
                    }
                    self.seen.push(name);
                    if name == "tunnel" && super::tunnel::attribute_bytes(body) > MOST_ATTRIBUTE {
                        return Err(OdpError::TooLong(rest.to_string()));
                    }
                    match self.attribute(name, body) {
                        Ok(true) => {}
                        Ok(false) => return Err(syntax()),
                        Err(e) => return Err(e),
                    }
                }
            }
            rest = tail;
        }
    }

    /// `Ok(false)` for what cannot be read.
    fn attribute(&mut self, name: &str, body: &str) -> Result<bool, OdpError> {
        let done = match name {
            "skb_priority" => self.word(Field::SkbPriority, body),
            "skb_mark" => self.word(Field::PktMark, body),
            "recirc_id" => self.word(Field::RecircId, body),
            "dp_hash" => self.word(Field::DpHash, body),
            "in_port" => {
                if body.starts_with(|c: char| c.is_ascii_digit()) {
                    self.word(Field::InPortOxm, body)
                } else {
                    let port = (self.ports)(body)
                        .ok_or_else(|| OdpError::UnknownPort(body.to_string()))?;
                    self.set(Field::InPortOxm, port.into(), u32::MAX.into());
                    Some(())
                }
            }
            "ct_state" => Flags::CT_STATE.parse(body).ok().map(|(value, mask)| {
                self.set(Field::CtState, value.into(), mask.into());
            }),
            "ct_zone" => self.word(Field::CtZone, body),
            "ct_mark" => self.word(Field::CtMark, body),
            "ct_label" => self.word(Field::CtLabel, body),
            "tunnel" => super::parse_tunnel(body).map(|(key, mask)| {
                self.key.tunnel = key;
                self.mask.0.tunnel = mask;
            }),
            "eth_type" => self.eth_type(body),
            "tcp_flags" => Flags::TCP.parse(body).ok().map(|(value, mask)| {
                self.set(Field::TcpFlags, value.into(), mask.into());
            }),
            "mpls" => self.mpls(body),
            _ => {
                if let Some(field) = given_twice(body) {
                    return Err(OdpError::Duplicate(format!("{field} in {name}()")));
                }
                if name == "vlan" {
                    return self.vlan(body);
                }
                self.fields(name, body)
            }
        };
        Ok(done.is_some())
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        field.store(&mut self.key, value);
        field.store(&mut self.mask.0, mask);
    }

    /// An attribute that is one number.
    fn word(&mut self, field: Field, body: &str) -> Option<()> {
        let (v, m) = masked(body, field.all_ones())?;
        self.set(field, v, m);
        Some(())
    }

    fn eth_type(&mut self, body: &str) -> Option<()> {
        let (v, m) = masked(body, 0xffff)?;
        // `0/0xffff` is how a frame without Ethernet type is written.
        let v = if v == 0 && m == 0xffff && body.contains('/') { DL_TYPE_NONE.into() } else { v };
        self.set(Field::EthType, v, m);
        Some(())
    }

    fn vlan(&mut self, body: &str) -> Result<bool, OdpError> {
        let tpid = self.key.dl_type.get();
        if !ethertype::is_vlan(tpid) {
            return Err(OdpError::Vlan("vlan() needs eth_type(0x8100) or eth_type(0x88a8) before"));
        }
        let (mut tci, mut mask) = (VLAN_CFI, VLAN_CFI);
        for item in body.split(',').filter(|i| !i.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                return Ok(false);
            };
            let (shift, all) = match name {
                "vid" => (0, 0x0fff),
                "pcp" => (13, 7),
                "cfi" => (12, 1),
                _ => return Ok(false),
            };
            let Some((v, m)) = masked(value, all) else {
                return Ok(false);
            };
            let all = (all as u16) << shift;
            tci = tci & !all | (v as u16) << shift;
            mask = mask & !all | (m as u16) << shift;
        }
        tci &= mask;
        if tci == 0 {
            // A frame whose header is cut off has the type, but no tag.
            let is_cut_off = mask & VLAN_CFI != 0;
            let error =
                OdpError::Vlan("vlan(vid=0,cfi=0) is a header that is cut off, cfi=0/0 is none");
            return is_cut_off.then_some(true).ok_or(error);
        }
        if tci & VLAN_CFI == 0 {
            return Err(OdpError::Vlan("vlan() with a vid or a pcp is a tag, and a tag has cfi=1"));
        }
        let Some((place, mask_place)) =
            self.key.vlans.get_mut(self.vlans).zip(self.mask.0.vlans.get_mut(self.vlans))
        else {
            return Err(OdpError::Vlan("more VLAN headers than can be matched"));
        };
        place.tpid = U16::new(tpid);
        place.tci = U16::new(tci);
        mask_place.tpid = U16::new(0xffff);
        mask_place.tci = U16::new(mask);
        self.vlans += 1;
        debug_assert!(self.vlans <= VLANS);
        Ok(true)
    }

    /// Attributes with named fields.
    fn fields(&mut self, attribute: &str, body: &str) -> Option<()> {
        for item in body.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let (name, value) = item.split_once('=')?;
            let value = value.trim_start();
            let field = match (attribute, name) {
                ("eth", "src") => Field::EthSrc,
                ("eth", "dst") => Field::EthDst,
                ("ipv4", "src") => Field::Ipv4Src,
                ("ipv4", "dst") => Field::Ipv4Dst,
                ("ipv4" | "ipv6", "proto") => Field::IpProto,
                ("ipv4", "ttl") | ("ipv6", "hlimit") => Field::IpTtl,
                ("ipv6", "src") => Field::Ipv6Src,
                ("ipv6", "dst") => Field::Ipv6Dst,
                ("ipv6", "label") => Field::Ipv6Label,
                ("arp", "sip") => Field::ArpSpa,
                ("arp", "tip") => Field::ArpTpa,
                ("arp", "sha") => Field::ArpSha,
                ("arp", "tha") => Field::ArpTha,
                ("arp", "op") => Field::ArpOp,
                ("tcp" | "udp" | "sctp", "src") => Field::TcpSrc,
                ("tcp" | "udp" | "sctp", "dst") => Field::TcpDst,
                ("icmp" | "icmpv6", "type") => Field::Icmpv4Type,
                ("icmp" | "icmpv6", "code") => Field::Icmpv4Code,
                ("ct_tuple4", "src") => Field::CtNwSrc,
                ("ct_tuple4", "dst") => Field::CtNwDst,
                ("ct_tuple6", "src") => Field::CtIpv6Src,
                ("ct_tuple6", "dst") => Field::CtIpv6Dst,
                ("ct_tuple4" | "ct_tuple6", "proto") => Field::CtNwProto,
                ("ct_tuple4", "tp_src") | ("ct_tuple6", "src_port") => Field::CtTpSrc,
                ("ct_tuple4", "tp_dst") | ("ct_tuple6", "dst_port") => Field::CtTpDst,
                ("nd", "target") => Field::NdTarget,
                ("nd", "sll") => Field::NdSll,
                ("nd", "tll") => Field::NdTll,
                ("nd_ext", "nd_reserved") => Field::NdReserved,
                ("nd_ext", "nd_options_type") => Field::NdOptionsType,
                ("nsh", "flags") => Field::NshFlags,
                ("nsh", "ttl") => Field::NshTtl,
                ("nsh", "mdtype") => Field::NshMdtype,
                ("nsh", "np") => Field::NshNp,
                ("nsh", "spi") => Field::NshSpi,
                ("nsh", "si") => Field::NshSi,
                ("nsh", "c1") => Field::NshC1,
                ("nsh", "c2") => Field::NshC2,
                ("nsh", "c3") => Field::NshC3,
                ("nsh", "c4") => Field::NshC4,
                ("ipv4", "tos") | ("ipv6", "tclass") => {
                    let (v, m) = masked(value, 0xff)?;
                    // both values fit a byte
                    (self.key.nw_tos, self.mask.0.nw_tos) = (v as u8, m as u8);
                    continue;
                }
                ("ipv4" | "ipv6", "frag") => {
                    let v = match value {
                        "no" => 0,
                        "first" => 1,
                        "later" => 3,
                        _ => return None,
                    };
                    self.set(Field::IpFrag, v, 3);
                    continue;
                }
                ("packet_type", "ns" | "id") => {
                    let (v, m) = masked(value, 0xffff)?;
                    let shift = if name == "ns" { 16 } else { 0 };
                    let (key, mask) = (&mut self.key.packet_type, &mut self.mask.0.packet_type);
                    key.set(key.get() | (v as u32) << shift); // both fit 16 bits
                    mask.set(mask.get() | (m as u32) << shift);
                    continue;
                }
                _ => return None,
            };
            let (v, m) = match field.def().format {
                crate::field::Format::Ethernet => {
                    let read = |t: &str| ethernet(t).map(crate::field::value::ethernet_value);
                    masked_with(value, read, field.all_ones())?
                }
                crate::field::Format::Ipv4 => masked_with(
                    value,
                    |t| t.parse::<Ipv4Addr>().ok().map(|a| a.to_bits().into()),
                    field.all_ones(),
                )?,
                crate::field::Format::Ipv6 => masked_with(
                    value,
                    |t| t.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
                    field.all_ones(),
                )?,
                _ => masked(value, field.all_ones())?,
            };
            self.set(field, v, m);
        }
        matches!(
            attribute,
            "eth"
                | "ct_tuple4"
                | "ct_tuple6"
                | "ipv4"
                | "ipv6"
                | "arp"
                | "tcp"
                | "udp"
                | "sctp"
                | "icmp"
                | "icmpv6"
                | "nd"
                | "nd_ext"
                | "nsh"
                | "packet_type"
        )
        .then_some(())
    }

    /// Parses label stack entries, one after the other, up to the bottom: the next entry begins
    /// where a field is repeated.
    fn mpls(&mut self, body: &str) -> Option<()> {
        let mut given: Vec<&str> = Vec::new();
        let mut entries = self.key.mpls.iter_mut().zip(&mut self.mask.0.mpls);
        let (mut key, mut mask) = entries.next()?;
        for item in body.split(',').filter(|i| !i.is_empty()) {
            let (name, value) = item.split_once('=')?;
            let (shift, all) = match name {
                "label" => (12, 0xf_ffff),
                "tc" => (9, 7),
                "bos" => (8, 1),
                "ttl" => (0, 0xff),
                _ => return None,
            };
            if given.contains(&name) {
                if MplsEntry(U32::new(key.get() & mask.get())).is_bottom() {
                    return None; // nothing follows it
                }
                (key, mask) = entries.next()?;
                given.clear();
            }
            given.push(name);
            let (v, m) = masked(value, all)?;
            key.set(key.get() | (v as u32) << shift); // both fit `all`
            mask.set(mask.get() | (m as u32) << shift);
        }
        Some(())
    }

    /// The type of frames without one, and whether the headers go together.
    fn finish(&mut self, purpose: Purpose) -> Result<(), OdpError> {
        if let Some(ethertype) = self.type_of_bare_packet() {
            // Headers that do not go with the type are left out, as in OVS.
            // Only the type of an Ethernet packet is a field to `normalize`.
            let packet_type = self.key.packet_type;
            self.key.packet_type.set(0);
            self.set(Field::EthType, ethertype.into(), 0xffff);
            let mut matching = Match::new(&self.key, &self.mask);
            matching.normalize();
            (self.key, self.mask) = (*matching.key(), *matching.mask());
            self.key.packet_type = packet_type;
            return Ok(());
        }
        if !self.seen.contains(&"eth_type") {
            let is_packet = purpose != Purpose::Megaflow;
            let implied = if is_packet && self.seen.contains(&"ipv4") {
                ethertype::IPV4
            } else if is_packet && self.seen.contains(&"ipv6") {
                ethertype::IPV6
            } else {
                DL_TYPE_NONE
            };
            self.set(Field::EthType, implied.into(), 0xffff);
        }
        if purpose == Purpose::Frame {
            return Ok(());
        }
        // Of a protocol that is not asked for, or in part, no header's fields are known.
        let known = self.key.masked(&self.mask);
        for name in &self.seen {
            let needed = match *name {
                "ipv4" => Prerequisite::Ipv4,
                "ipv6" => Prerequisite::Ipv6,
                "arp" => Prerequisite::Arp,
                "mpls" => Prerequisite::Mpls,
                "nsh" => Prerequisite::Nsh,
                "tcp" | "tcp_flags" => Prerequisite::Tcp,
                "udp" => Prerequisite::Udp,
                "sctp" => Prerequisite::Sctp,
                "icmp" => Prerequisite::Icmpv4,
                "icmpv6" => Prerequisite::Icmpv6,
                "nd" | "nd_ext" => Prerequisite::Nd,
                _ => Prerequisite::None,
            };
            // Without all of type and code any ICMPv6 message may be meant.
            let (kind, code) = (self.mask.0.tp_src.get(), self.mask.0.tp_dst.get());
            let is_known = needed != Prerequisite::Nd || kind & code & 0xff == 0xff;
            let fits = needed.holds(&self.key) && is_known;
            if !fits || self.matches_transport() && !needed.holds(&known) {
                return Err(OdpError::Inconsistent { attribute: (*name).to_string() });
            }
        }
        Ok(())
    }

    /// Returns the Ethernet type that the packet type of a packet without an Ethernet header names;
    /// `None` when the flow names none, or an `eth_type()`.
    fn type_of_bare_packet(&self) -> Option<u16> {
        let (value, mask) = (self.key.packet_type.get(), self.mask.0.packet_type.get());
        let is_named = value >> 16 == NAMESPACE_ETHERTYPE && mask == u32::MAX;
        (is_named && !self.seen.contains(&"eth_type")).then_some(value as u16) // the lower half
    }

    /// Returns true when the flow matches a field after the network header.
    fn matches_transport(&self) -> bool {
        let m = &self.mask.0;
        let ports = m.tp_src.get() | m.tp_dst.get() | m.tcp_flags.get();
        let neighbour =
            m.nd_reserved.get() != 0 || m.nd_options_type != 0 || m.nd_target != [0; 16];
        ports != 0 || neighbour
    }
}
