// SPDX-License-Identifier: Apache-2.0
//! Changes of headers: the effect of `set`, `push` and `pop` actions on one packet.
//!
//! Every function finds its header by the result of [`flow::extract`] ([`Parsed`]), so an action
//! never changes bytes that the key was not extracted from. It returns [`DropReason::Malformed`]
//! when the header is missing. Checksums are updated incrementally (RFC 1624): a wrong one stays
//! wrong.

use crate::too_long::longest;
use datapath::{DropReason, Masked, Set};
use flow::Key;
use flow::extract::{FRAG_LATER, Layers, extract};
use packet::checksum;
use packet::{
    ArpHeader, EthernetHeader, FromBytes, IcmpHeader, Ipv4Header, Ipv6Extensions, Ipv6Header,
    MplsEntry, NdHeader, NdOption, NdOptions, NshHeader, Packet, SctpHeader, TcpHeader, UdpHeader,
    ethertype, ip_proto,
};

/// The key and layers of a packet, for edits.
pub(crate) struct Parsed<'a> {
    pub(crate) key: &'a Key,
    pub(crate) layers: &'a Layers,
}

/// The result of an edit: an error when the packet does not have the header.
type Edited = Result<(), DropReason>;

const MALFORMED: DropReason = DropReason::Malformed;

/// Offset in bytes after destination and source address.
const TYPE_AT: usize = 12;
const TAG: usize = 4;

/// Puts an Ethernet header in front of the packet.
pub(crate) fn push_eth(packet: &mut Packet, src: [u8; 6], dst: [u8; 6], ethertype: u16) {
    let header = EthernetHeader { dst, src, ethertype: ethertype.into() };
    packet.insert_at(0, size_of::<EthernetHeader>());
    if let Ok((place, _)) = EthernetHeader::mut_from_prefix(packet.data_mut()) {
        *place = header;
    }
}

/// Takes the Ethernet header off and returns its Ethernet type. Returns `None` when there is none, or
/// when a VLAN header follows.
pub(crate) fn pop_eth(packet: &mut Packet) -> Option<u16> {
    let (header, _) = EthernetHeader::ref_from_prefix(packet.data()).ok()?;
    let kind = header.ethertype.get();
    if kind < ethertype::MIN || ethertype::is_vlan(kind) {
        return None;
    }
    packet.remove_at(0, size_of::<EthernetHeader>());
    Some(kind)
}

/// Puts a header in front of the packet.
pub(crate) fn push_front(packet: &mut Packet, header: &[u8]) {
    packet.insert_at(0, header.len());
    if let Some(place) = packet.data_mut().get_mut(..header.len()) {
        place.copy_from_slice(header);
    }
}

/// Takes the Network Service Header off that the packet begins with, and returns the protocol that it
/// names. Returns `None` when the header is not there or not possible.
pub(crate) fn pop_nsh(packet: &mut Packet) -> Option<u8> {
    let (header, _) = NshHeader::ref_from_prefix(packet.data()).ok()?;
    let len = header.checked_len(packet.len()).filter(|len| *len >= size_of::<NshHeader>())?;
    let next = header.next;
    packet.remove_at(0, len);
    Some(next)
}

/// Sets fields of the Network Service Header.
fn set_nsh(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    [flags, ttl]: [&Masked<u8>; 2],
    path: &Masked<u32>,
    context: &[Masked<u32>; 4],
) -> Edited {
    let bytes = l3(packet, parsed)?;
    let available = bytes.len();
    let (header, contexts) = NshHeader::mut_from_prefix(bytes).map_err(|_| MALFORMED)?;
    if parsed.key.dl_type.get() != ethertype::NSH || header.checked_len(available).is_none() {
        return Err(MALFORMED);
    }
    header.set_flags(merge8(header.flags(), flags));
    header.set_ttl(merge8(header.ttl(), ttl));
    header.path.set(merge32(header.path.get(), path));
    if context.iter().all(|context| context.mask == 0) {
        return Ok(());
    }
    if header.md_type != NshHeader::MD_TYPE_1 {
        return Err(MALFORMED);
    }
    let (places, _) = contexts.as_chunks_mut::<4>();
    for (place, context) in places.iter_mut().zip(context) {
        *place = merge32(u32::from_be_bytes(*place), context).to_be_bytes();
    }
    Ok(())
}

/// Inserts a VLAN tag after the Ethernet addresses.
pub(crate) fn push_vlan(packet: &mut Packet, tpid: u16, tci: u16) -> Edited {
    if packet.len() < TYPE_AT + 2 {
        return Err(MALFORMED);
    }
    packet.insert_at(TYPE_AT, TAG);
    let place = packet.data_mut().get_mut(TYPE_AT..TYPE_AT + TAG).ok_or(MALFORMED)?;
    let (first, second) = place.split_at_mut(2);
    first.copy_from_slice(&tpid.to_be_bytes());
    second.copy_from_slice(&(tci & !flow::VLAN_CFI).to_be_bytes());
    Ok(())
}

/// Removes the outermost VLAN tag.
pub(crate) fn pop_vlan(packet: &mut Packet, parsed: &Parsed<'_>) -> Edited {
    let [outer, _] = parsed.key.vlans;
    if outer.tci.get() & flow::VLAN_CFI == 0 {
        return Err(MALFORMED);
    }
    packet.remove_at(TYPE_AT, TAG);
    Ok(())
}

/// Returns the offset at which the label stack is or would be; the Ethernet type is in the two
/// bytes before it.
fn label_place(packet: &Packet, parsed: &Parsed<'_>) -> Result<usize, DropReason> {
    let at = usize::from(parsed.layers.l2_5.or(parsed.layers.l3).ok_or(MALFORMED)?);
    // In an 802.3 frame without SNAP these bytes are a length, not a type.
    if at < TYPE_AT + 2 || at > packet.len() || parsed.key.dl_type.get() < ethertype::MIN {
        return Err(MALFORMED);
    }
    Ok(at)
}

fn set_ethertype(packet: &mut Packet, end: usize, kind: u16) -> Edited {
    let place = packet.data_mut().get_mut(end - 2..end).ok_or(MALFORMED)?;
    place.copy_from_slice(&kind.to_be_bytes());
    Ok(())
}

/// Inserts a label stack entry in front of L3 or of the present stack.
pub(crate) fn push_mpls(packet: &mut Packet, parsed: &Parsed<'_>, lse: u32, kind: u16) -> Edited {
    let at = label_place(packet, parsed)?;
    packet.insert_at(at, TAG);
    packet.data_mut().get_mut(at..at + TAG).ok_or(MALFORMED)?.copy_from_slice(&lse.to_be_bytes());
    set_ethertype(packet, at, kind)
}

/// Returns the offset of the outermost label stack entry.
fn label(packet: &Packet, parsed: &Parsed<'_>) -> Result<usize, DropReason> {
    let at = usize::from(parsed.layers.l2_5.ok_or(MALFORMED)?);
    if at + TAG > packet.len() { Err(MALFORMED) } else { Ok(at) }
}

/// Removes the outermost label stack entry.
pub(crate) fn pop_mpls(packet: &mut Packet, parsed: &Parsed<'_>, kind: u16) -> Edited {
    label_place(packet, parsed)?;
    let at = label(packet, parsed)?;
    packet.remove_at(at, TAG);
    set_ethertype(packet, at, kind)
}

/// Returns `old` with the masked bits replaced.
fn merge_bytes<const N: usize>(old: [u8; N], m: &Masked<[u8; N]>) -> [u8; N] {
    let mut new = old;
    for ((n, v), k) in new.iter_mut().zip(m.value).zip(m.mask) {
        *n = *n & !k | v & k;
    }
    new
}

fn merge8(old: u8, m: &Masked<u8>) -> u8 {
    old & !m.mask | m.value & m.mask
}

fn merge16(old: u16, m: &Masked<u16>) -> u16 {
    old & !m.mask | m.value & m.mask
}

fn merge32(old: u32, m: &Masked<u32>) -> u32 {
    old & !m.mask | m.value & m.mask
}

/// Runs a `set` of packet fields. The caller sets metadata.
pub(crate) fn set(packet: &mut Packet, parsed: &Parsed<'_>, set: &Set) -> Edited {
    match set {
        Set::Ethernet { src, dst } => {
            let (addresses, _) =
                packet.data_mut().split_first_chunk_mut::<12>().ok_or(MALFORMED)?;
            let (old_dst, rest) = addresses.split_first_chunk_mut::<6>().ok_or(MALFORMED)?;
            let (old_src, _) = rest.split_first_chunk_mut::<6>().ok_or(MALFORMED)?;
            *old_dst = merge_bytes(*old_dst, dst);
            *old_src = merge_bytes(*old_src, src);
            Ok(())
        }
        Set::Nsh { flags, ttl, path, context } => {
            set_nsh(packet, parsed, [flags, ttl], path, context)
        }
        Set::Ipv4 { src, dst, tos, ttl } => set_ipv4(packet, parsed, src, dst, tos, ttl),
        Set::Ipv6 { src, dst, label, tclass, hlimit } => {
            set_ipv6(packet, parsed, [src, dst])?;
            let (ip, _) =
                Ipv6Header::mut_from_prefix(l3(packet, parsed)?).map_err(|_| MALFORMED)?;
            ip.set_label(merge32(ip.label(), label));
            ip.set_traffic_class(merge8(ip.traffic_class(), tclass));
            ip.hop_limit = merge8(ip.hop_limit, hlimit);
            Ok(())
        }
        Set::Tcp { src, dst } => {
            let unfinished = is_unfinished(packet, parsed);
            let (tcp, _) = TcpHeader::mut_from_prefix(l4(packet, parsed, ip_proto::TCP)?)
                .map_err(|_| MALFORMED)?;
            let (new_src, new_dst) = (merge16(tcp.src.get(), src), merge16(tcp.dst.get(), dst));
            if !unfinished {
                let sum = change16(tcp.checksum.get(), tcp.src.get(), new_src);
                tcp.checksum.set(change16(sum, tcp.dst.get(), new_dst));
            }
            tcp.src.set(new_src);
            tcp.dst.set(new_dst);
            Ok(())
        }
        Set::Udp { src, dst } => {
            let unfinished = is_unfinished(packet, parsed);
            let (udp, _) = UdpHeader::mut_from_prefix(l4(packet, parsed, ip_proto::UDP)?)
                .map_err(|_| MALFORMED)?;
            let (new_src, new_dst) = (merge16(udp.src.get(), src), merge16(udp.dst.get(), dst));
            if !unfinished && udp.checksum.get() != 0 {
                let sum = change16(udp.checksum.get(), udp.src.get(), new_src);
                let sum = change16(sum, udp.dst.get(), new_dst);
                udp.checksum.set(if sum == 0 { 0xffff } else { sum });
            }
            udp.src.set(new_src);
            udp.dst.set(new_dst);
            Ok(())
        }
        Set::Sctp { src, dst } => set_sctp(packet, parsed, src, dst),
        Set::Icmp { kind, code, v6 } => {
            let unfinished = is_unfinished(packet, parsed);
            let (proto, kind_of_ip) = if *v6 {
                (ip_proto::ICMPV6, ethertype::IPV6)
            } else {
                (ip_proto::ICMP, ethertype::IPV4)
            };
            if parsed.key.dl_type.get() != kind_of_ip {
                return Err(MALFORMED);
            }
            let (icmp, _) =
                IcmpHeader::mut_from_prefix(l4(packet, parsed, proto)?).map_err(|_| MALFORMED)?;
            let (new_kind, new_code) = (merge8(icmp.kind, kind), merge8(icmp.code, code));
            if !unfinished {
                let word = |kind, code| u16::from_be_bytes([kind, code]);
                let sum = change16(
                    icmp.checksum.get(),
                    word(icmp.kind, icmp.code),
                    word(new_kind, new_code),
                );
                icmp.checksum.set(sum);
            }
            icmp.kind = new_kind;
            icmp.code = new_code;
            Ok(())
        }
        Set::Arp { op, spa, tpa, sha, tha } => {
            if !matches!(parsed.key.dl_type.get(), ethertype::ARP | ethertype::RARP) {
                return Err(MALFORMED);
            }
            let (arp, _) =
                ArpHeader::mut_from_prefix(l3(packet, parsed)?).map_err(|_| MALFORMED)?;
            if !arp.is_ethernet_ipv4() {
                return Err(MALFORMED);
            }
            arp.op.set(merge16(arp.op.get(), op));
            arp.spa.set(u32::from_be_bytes(merge_bytes(arp.spa.get().to_be_bytes(), spa)));
            arp.tpa.set(u32::from_be_bytes(merge_bytes(arp.tpa.get().to_be_bytes(), tpa)));
            arp.sha = merge_bytes(arp.sha, sha);
            arp.tha = merge_bytes(arp.tha, tha);
            Ok(())
        }
        Set::Nd { target, sll, tll } => set_nd(packet, parsed, target, sll, tll),
        Set::NdExtensions { reserved, options_type } => {
            set_nd_extensions(packet, parsed, reserved, options_type)
        }
        Set::Mpls(lse) => {
            let at = label(packet, parsed)?;
            let bytes = packet.data_mut().get_mut(at..).ok_or(MALFORMED)?;
            let (entry, _) = MplsEntry::mut_from_prefix(bytes).map_err(|_| MALFORMED)?;
            entry.0.set(merge32(entry.0.get(), lse));
            Ok(())
        }
        Set::Priority(_) | Set::Mark(_) => Ok(()),
    }
}

/// Returns `sum` after the change of a covered word; the same sum if the word did not change.
fn change16(sum: u16, old: u16, new: u16) -> u16 {
    if old == new { sum } else { checksum::update_u16(sum, old, new) }
}

/// Returns the bytes from L3 on.
fn l3<'a>(packet: &'a mut Packet, parsed: &Parsed<'_>) -> Result<&'a mut [u8], DropReason> {
    let at = usize::from(parsed.layers.l3.ok_or(MALFORMED)?);
    packet.data_mut().get_mut(at..).ok_or(MALFORMED)
}

/// Returns the bytes of the transport header and its payload, without padding, if the protocol is
/// `proto`.
fn l4<'a>(
    packet: &'a mut Packet,
    parsed: &Parsed<'_>,
    proto: u8,
) -> Result<&'a mut [u8], DropReason> {
    let key = parsed.key;
    let is_ip = matches!(key.dl_type.get(), ethertype::IPV4 | ethertype::IPV6);
    if !is_ip || key.nw_proto != proto || key.nw_frag & FRAG_LATER != 0 {
        return Err(MALFORMED);
    }
    let at = usize::from(parsed.layers.l4.ok_or(MALFORMED)?);
    let end = packet.len().saturating_sub(usize::from(parsed.layers.l2_pad));
    packet.data_mut().get_mut(at..end).ok_or(MALFORMED)
}

/// Returns true when the transport checksum is unfinished.
fn is_unfinished(packet: &Packet, parsed: &Parsed<'_>) -> bool {
    packet.offload.csum.is_some_and(|(start, _)| parsed.layers.l4 == Some(start))
}

/// Updates the transport checksum for a change of what its pseudo header covers.
fn pseudo_changed(packet: &mut Packet, parsed: &Parsed<'_>, old: &[u8], new: &[u8]) {
    if old == new {
        return;
    }
    let unfinished = is_unfinished(packet, parsed);
    let update = |sum: u16| {
        if unfinished {
            checksum::update_unfinished(sum, old, new)
        } else {
            checksum::update(sum, old, new)
        }
    };
    let is_v6 = parsed.key.dl_type.get() == ethertype::IPV6;
    let proto = parsed.key.nw_proto;
    // Without a whole transport header there is no checksum to update.
    let Ok(bytes) = l4(packet, parsed, proto) else {
        return;
    };
    match proto {
        ip_proto::TCP => {
            if let Ok((tcp, _)) = TcpHeader::mut_from_prefix(bytes) {
                tcp.checksum.set(update(tcp.checksum.get()));
            }
        }
        ip_proto::UDP => {
            if let Ok((udp, _)) = UdpHeader::mut_from_prefix(bytes)
                && (unfinished || udp.checksum.get() != 0)
            {
                let sum = update(udp.checksum.get());
                udp.checksum.set(if sum == 0 && !unfinished { 0xffff } else { sum });
            }
        }
        ip_proto::ICMPV6 if is_v6 => {
            if let Ok((icmp, _)) = IcmpHeader::mut_from_prefix(bytes) {
                icmp.checksum.set(update(icmp.checksum.get()));
            }
        }
        _ => {}
    }
}

fn set_ipv4(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    src: &Masked<[u8; 4]>,
    dst: &Masked<[u8; 4]>,
    tos: &Masked<u8>,
    ttl: &Masked<u8>,
) -> Edited {
    if parsed.key.dl_type.get() != ethertype::IPV4 || parsed.layers.l4.is_none() {
        return Err(MALFORMED);
    }
    let (ip, _) = Ipv4Header::mut_from_prefix(l3(packet, parsed)?).map_err(|_| MALFORMED)?;
    let old = [ip.src.get().to_be_bytes(), ip.dst.get().to_be_bytes()];
    let [old_src, old_dst] = old;
    let new = [merge_bytes(old_src, src), merge_bytes(old_dst, dst)];
    let [new_src, new_dst] = new;
    let (new_tos, new_ttl) = (merge8(ip.tos, tos), merge8(ip.ttl, ttl));
    let mut sum = ip.checksum.get();
    if old != new {
        sum = checksum::update(sum, old.as_flattened(), new.as_flattened());
    }
    sum = change16(sum, u16::from(ip.tos), u16::from(new_tos));
    sum = change16(sum, u16::from(ip.ttl) << 8, u16::from(new_ttl) << 8);
    ip.checksum.set(sum);
    ip.src.set(u32::from_be_bytes(new_src));
    ip.dst.set(u32::from_be_bytes(new_dst));
    ip.tos = new_tos;
    ip.ttl = new_ttl;
    pseudo_changed(packet, parsed, old.as_flattened(), new.as_flattened());
    Ok(())
}

/// Sets the addresses.
fn set_ipv6(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    [src, dst]: [&Masked<[u8; 16]>; 2],
) -> Edited {
    if parsed.key.dl_type.get() != ethertype::IPV6 || parsed.layers.l4.is_none() {
        return Err(MALFORMED);
    }
    let (ip, payload) = Ipv6Header::mut_from_prefix(l3(packet, parsed)?).map_err(|_| MALFORMED)?;
    let old = [ip.src, ip.dst];
    let [old_src, old_dst] = old;
    let new = [merge_bytes(old_src, src), merge_bytes(old_dst, dst)];
    let [new_src, new_dst] = new;
    ip.src = new_src;
    ip.dst = new_dst;
    if is_routed(ip, payload) {
        // The pseudo header contains the final destination, which is in the routing header
        // (RFC 8200, 8.1).
        pseudo_changed(packet, parsed, &old_src, &new_src);
    } else {
        pseudo_changed(packet, parsed, old.as_flattened(), new.as_flattened());
    }
    Ok(())
}

/// Returns true when a routing header has segments left.
fn is_routed(ip: &Ipv6Header, payload: &[u8]) -> bool {
    let len = usize::from(ip.payload_len.get());
    let payload = payload.get(..len).unwrap_or(payload);
    Ipv6Extensions::walk(ip.next, payload)
        .and_then(|e| e.routing_at)
        .and_then(|at| payload.get(at + 3))
        .is_some_and(|left| *left != 0)
}

fn set_sctp(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    src: &Masked<u16>,
    dst: &Masked<u16>,
) -> Edited {
    let unfinished = is_unfinished(packet, parsed);
    let bytes = l4(packet, parsed, ip_proto::SCTP)?;
    let before = checksum::sctp(bytes).ok_or(MALFORMED)?;
    let (sctp, _) = SctpHeader::mut_from_prefix(bytes).map_err(|_| MALFORMED)?;
    sctp.src.set(merge16(sctp.src.get(), src));
    sctp.dst.set(merge16(sctp.dst.get(), dst));
    if unfinished {
        return Ok(());
    }
    let after = checksum::sctp(bytes).ok_or(MALFORMED)?;
    let (sctp, _) = SctpHeader::mut_from_prefix(bytes).map_err(|_| MALFORMED)?;
    // A difference between the stored and the right checksum stays.
    for ((c, b), a) in sctp.checksum.iter_mut().zip(before).zip(after) {
        *c ^= b ^ a;
    }
    Ok(())
}

/// Returns the packet's neighbour solicitation or advertisement and its options.
fn neighbour<'a>(
    packet: &'a mut Packet,
    parsed: &Parsed<'_>,
) -> Result<(&'a mut NdHeader, &'a mut [u8]), DropReason> {
    let key = parsed.key;
    let is_nd = matches!(key.tp_src.get(), 135 | 136) && key.tp_dst.get() == 0;
    if key.dl_type.get() != ethertype::IPV6 || !is_nd {
        return Err(MALFORMED);
    }
    let bytes = l4(packet, parsed, ip_proto::ICMPV6)?;
    let (nd, options) = NdHeader::mut_from_prefix(bytes).map_err(|_| MALFORMED)?;
    let is_nd =
        matches!(nd.icmp.kind, IcmpHeader::NEIGHBOUR_SOLICIT | IcmpHeader::NEIGHBOUR_ADVERT);
    if is_nd && nd.icmp.code == 0 { Ok((nd, options)) } else { Err(MALFORMED) }
}

fn set_nd_extensions(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    reserved: &Masked<u32>,
    options_type: &Masked<u8>,
) -> Edited {
    let unfinished = is_unfinished(packet, parsed);
    let (nd, options) = neighbour(packet, parsed)?;
    let mut sum = nd.icmp.checksum.get();
    let mut change = |old: &[u8], new: &[u8]| {
        if !unfinished && old != new {
            sum = checksum::update(sum, old, new);
        }
    };
    let old = nd.icmp.rest.get();
    let new = merge32(old, reserved);
    change(&old.to_be_bytes(), &new.to_be_bytes());
    nd.icmp.rest.set(new);
    // The option from which the key's nd_options_type is extracted.
    let found = NdOptions::new(options)
        .find(|o| {
            matches!(o.kind, NdOption::SOURCE | NdOption::TARGET) && o.ethernet_address().is_some()
        })
        .map(|o| o.at);
    if let Some([kind, length]) = found
        .and_then(|at| options.get_mut(at..at + 2))
        .and_then(|bytes| bytes.first_chunk_mut::<2>())
    {
        let new = merge8(*kind, options_type);
        change(&[*kind, *length], &[new, *length]);
        *kind = new;
    }
    nd.icmp.checksum.set(sum);
    Ok(())
}

fn set_nd(
    packet: &mut Packet,
    parsed: &Parsed<'_>,
    target: &Masked<[u8; 16]>,
    sll: &Masked<[u8; 6]>,
    tll: &Masked<[u8; 6]>,
) -> Edited {
    let unfinished = is_unfinished(packet, parsed);
    let (nd, options) = neighbour(packet, parsed)?;
    let mut sum = nd.icmp.checksum.get();
    let mut change = |old: &[u8], new: &[u8]| {
        if !unfinished && old != new {
            sum = checksum::update(sum, old, new);
        }
    };
    let new_target = merge_bytes(nd.target, target);
    change(&nd.target, &new_target);
    nd.target = new_target;
    for (kind, m) in [(NdOption::SOURCE, sll), (NdOption::TARGET, tll)] {
        let found = NdOptions::new(options)
            .find(|o| o.kind == kind && o.ethernet_address().is_some())
            .map(|o| o.at);
        let Some(address) = found
            .and_then(|at| options.get_mut(at + 2..at + 8))
            .and_then(|bytes| bytes.first_chunk_mut::<6>())
        else {
            continue;
        };
        let new = merge_bytes(*address, m);
        change(address, &new);
        *address = new;
    }
    nd.icmp.checksum.set(sum);
    Ok(())
}

/// Cuts the packet to `len` bytes, the effect of `trunc`.
pub(crate) fn truncate(packet: &mut Packet, len: u32) {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len >= packet.len() {
        return;
    }
    if packet.offload.gso.is_none() && packet.offload.csum.is_some() {
        // An unfinishable checksum belongs to a malformed packet, which is cut like any other.
        let _ = netdev::finish::finish_checksum(packet);
    }
    packet.offload = packet::Offload::default();
    packet.resize(len);
}

/// Returns the length that `check_pkt_len` compares: without the outermost VLAN header of a packet
/// that has an Ethernet header.
pub(crate) fn checked_len(packet: &Packet, has_ethernet: bool) -> usize {
    let len = longest(packet);
    let (key, _) = extract(packet.data().get(..18).unwrap_or(packet.data()), 0);
    let [outer, _] = key.vlans;
    if !has_ethernet || outer.tci.get() & flow::VLAN_CFI == 0 { len } else { len - TAG.min(len) }
}
