// SPDX-License-Identifier: Apache-2.0
//! The effects of actions on a packet, written plainly. Bytes are changed in place; then the
//! checksum that covers them is moved by the difference between the whole sums before and after.

use datapath::{Masked, Set};
use packet::{Offload, Packet};

/// The header that an action needs is not there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

type Edited = Result<(), Malformed>;

pub(crate) fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}

/// The headers of a frame, and their offsets in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    tags: usize,
    /// Ethernet type after tags and SNAP.
    pub(crate) kind: u16,
    /// Offset after the type: of the label stack, or of L3.
    after_type: usize,
    /// Offset after the labels.
    pub(crate) l3: usize,
    pub(crate) ip: Option<Ip>,
}

#[derive(Clone, Debug)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    pub(crate) l4: usize,
    /// End of the packet, without padding.
    pub(crate) end: usize,
    pub(crate) proto: u8,
    later_fragment: bool,
    /// A routing header has segments left, so that the destination is not the final one.
    routed: bool,
}

/// Finds the headers of a frame, after at most `tags` VLAN headers.
pub(crate) fn frame(data: &[u8], tags: usize) -> Option<Frame> {
    if data.len() < 14 {
        return None;
    }
    let mut f = Frame::default();
    let mut at = 12;
    while f.tags < tags && matches!(be16(data, at)?, 0x8100 | 0x88a8) && data.len() >= at + 6 {
        f.tags += 1;
        at += 4;
    }
    f.kind = be16(data, at)?;
    at += 2;
    if f.kind < 0x600 {
        if data.get(at..at + 6) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]) && data.len() >= at + 8 {
            f.kind = be16(data, at + 6)?;
            at += 8;
        } else {
            f.kind = 0x5ff;
        }
    }
    f.after_type = at;
    if matches!(f.kind, 0x8847 | 0x8848) {
        while let Some(entry) = data.get(at..at + 4) {
            at += 4;
            if entry[2] & 1 == 1 {
                break;
            }
        }
    }
    f.l3 = at;
    f.ip = match f.kind {
        0x0800 => ipv4(data, at),
        0x86dd => ipv6(data, at),
        _ => None,
    };
    Some(f)
}

fn ipv4(data: &[u8], at: usize) -> Option<Ip> {
    let there = data.len() - at;
    if there < 20 {
        return None;
    }
    let header = usize::from(data[at] & 15) * 4;
    let total = usize::from(be16(data, at + 2)?);
    if header < 20 || total < header || total > there {
        return None;
    }
    Some(Ip {
        v6: false,
        l4: at + header,
        end: at + total,
        proto: data[at + 9],
        later_fragment: be16(data, at + 6)? & 0x1fff != 0,
        routed: false,
    })
}

fn ipv6(data: &[u8], at: usize) -> Option<Ip> {
    if data.len() - at < 40 {
        return None;
    }
    let end = at + 40 + usize::from(be16(data, at + 4)?);
    if end > data.len() {
        return None;
    }
    let mut ip = Ip {
        v6: true,
        l4: at + 40,
        end,
        proto: data[at + 6],
        later_fragment: false,
        routed: false,
    };
    while matches!(ip.proto, 0 | 43 | 44 | 51 | 60) {
        if ip.l4 + 8 > end {
            return None;
        }
        let (next, len) = (data[ip.l4], usize::from(data[ip.l4 + 1]));
        let len = match ip.proto {
            44 => 8,
            51 => (len + 2) * 4,
            _ => (len + 1) * 8,
        };
        if ip.l4 + len > end {
            return None;
        }
        if ip.proto == 43 {
            ip.routed = data[ip.l4 + 3] != 0;
        }
        if ip.proto == 44 && be16(data, ip.l4 + 2)? & 0xfff8 != 0 {
            ip.later_fragment = true;
            ip.proto = 44;
            ip.l4 += len;
            return Some(ip);
        }
        ip.proto = next;
        ip.l4 += len;
    }
    Some(ip)
}

impl Ip {
    /// Bytes of the transport header, when it is `proto`'s and whole.
    fn transport(&self, proto: u8, header: usize) -> Result<usize, Malformed> {
        if self.proto != proto || self.later_fragment || self.l4 + header > self.end {
            return Err(Malformed);
        }
        Ok(self.l4)
    }

    /// Offset of the transport checksum, and whether 0 means "none".
    fn checksum_at(&self) -> Option<(usize, bool)> {
        let (header, at, optional) = match (self.proto, self.v6) {
            (6, _) => (20, 16, false),
            (17, _) => (8, 6, true),
            (1, false) | (58, true) => (8, 2, false),
            _ => return None,
        };
        (!self.later_fragment && self.l4 + header <= self.end).then_some((self.l4 + at, optional))
    }

    /// Returns the bytes outside the transport bytes that the transport checksum covers: the
    /// addresses. (Length and protocol never change.)
    fn pseudo(&self, data: &[u8], l3: usize) -> Vec<u8> {
        match (self.proto, self.v6) {
            (1, _) => Vec::new(),
            (_, false) => data[l3 + 12..l3 + 20].to_vec(),
            (_, true) if self.routed => data[l3 + 8..l3 + 24].to_vec(),
            (_, true) => data[l3 + 8..l3 + 40].to_vec(),
        }
    }
}

/// One's complement sum as a number modulo 65535.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|w| u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b)))
        .sum::<u64>()
        % 0xffff
}

/// Returns a stored sum, moved from `before` to `after`; never the zero that means "nothing was
/// summed".
pub(crate) fn moved(stored: u16, before: u64, after: u64) -> u16 {
    let value = (u64::from(stored) + after + 0xffff - before) % 0xffff;
    if value == 0 { 0xffff } else { value as u16 } // below 65536
}

pub(crate) fn store16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Makes `change`, and moves the checksums that cover the changed bytes.
pub(crate) fn change(packet: &mut Packet, f: &Frame, change: impl FnOnce(&mut [u8])) {
    let before = packet.data().to_vec();
    change(packet.data_mut());
    let unfinished = packet.offload.csum;
    let data = packet.data_mut();
    let Some(ip) = &f.ip else { return };
    if !ip.v6 {
        let header = f.l3..f.l3 + usize::from(before[f.l3] & 15) * 4;
        if before[header.clone()] != data[header.clone()] {
            let stored = be16(&before, f.l3 + 10).unwrap_or(0);
            let new = !moved(!stored, sum(&before[header.clone()]), sum(&data[header]));
            store16(data, f.l3 + 10, new);
        }
    }
    let Some((at, optional)) = ip.checksum_at() else {
        return;
    };
    let covered = |data: &[u8]| (ip.pseudo(data, f.l3), data[ip.l4..ip.end].to_vec());
    let ((old_pseudo, old_bytes), (new_pseudo, new_bytes)) = (covered(&before), covered(data));
    let stored = be16(&before, at).unwrap_or(0);
    if unfinished.is_some_and(|(start, _)| usize::from(start) == ip.l4) {
        if old_pseudo != new_pseudo {
            store16(data, at, moved(stored, sum(&old_pseudo), sum(&new_pseudo)));
        }
        return;
    }
    if (old_pseudo == new_pseudo && old_bytes == new_bytes) || (optional && stored == 0) {
        return;
    }
    let old_sum = sum(&old_pseudo) + sum(&old_bytes);
    let new_sum = sum(&new_pseudo) + sum(&new_bytes);
    let new = !moved(!stored, old_sum % 0xffff, new_sum % 0xffff);
    store16(data, at, if optional && new == 0 { 0xffff } else { new });
}

fn put(data: &mut [u8], at: usize, value: &[u8], mask: &[u8]) {
    for i in 0..value.len() {
        data[at + i] = data[at + i] & !mask[i] | value[i] & mask[i];
    }
}

fn put8(data: &mut [u8], at: usize, m: Masked<u8>) {
    put(data, at, &[m.value], &[m.mask]);
}

fn put16(data: &mut [u8], at: usize, m: Masked<u16>) {
    put(data, at, &m.value.to_be_bytes(), &m.mask.to_be_bytes());
}

fn put32(data: &mut [u8], at: usize, m: Masked<u32>) {
    put(data, at, &m.value.to_be_bytes(), &m.mask.to_be_bytes());
}

fn find(data: &[u8], tags: usize) -> Result<Frame, Malformed> {
    frame(data, tags).ok_or(Malformed)
}

pub(crate) fn set(packet: &mut Packet, tags: usize, set: &Set) -> Edited {
    let f = find(packet.data(), tags)?;
    let l3 = f.l3;
    let ip = |v6: bool| f.ip.as_ref().filter(|ip| ip.v6 == v6).ok_or(Malformed);
    let any_ip = || f.ip.as_ref().ok_or(Malformed);
    match *set {
        Set::Ethernet { src, dst } => change(packet, &f, |d| {
            put(d, 0, &dst.value, &dst.mask);
            put(d, 6, &src.value, &src.mask);
        }),
        Set::Ipv4 { src, dst, tos, ttl } => {
            ip(false)?;
            change(packet, &f, |d| {
                put8(d, l3 + 1, tos);
                put8(d, l3 + 8, ttl);
                put(d, l3 + 12, &src.value, &src.mask);
                put(d, l3 + 16, &dst.value, &dst.mask);
            });
        }
        Set::Ipv6 { src, dst, label, tclass, hlimit } => {
            ip(true)?;
            change(packet, &f, |d| {
                put32(d, l3, Masked { value: label.value & 0xf_ffff, mask: label.mask & 0xf_ffff });
                let wide = |v: u8| u32::from(v) << 20;
                put32(d, l3, Masked { value: wide(tclass.value), mask: wide(tclass.mask) });
                put8(d, l3 + 7, hlimit);
                put(d, l3 + 8, &src.value, &src.mask);
                put(d, l3 + 24, &dst.value, &dst.mask);
            });
        }
        Set::Tcp { src, dst } | Set::Udp { src, dst } => {
            let (proto, header) = if matches!(set, Set::Tcp { .. }) { (6, 20) } else { (17, 8) };
            let at = any_ip()?.transport(proto, header)?;
            change(packet, &f, |d| {
                put16(d, at, src);
                put16(d, at + 2, dst);
            });
        }
        Set::Sctp { src, dst } => {
            let ip = any_ip()?;
            let at = ip.transport(132, 12)?;
            let before = crc(&packet.data()[at..ip.end]);
            put16(packet.data_mut(), at, src);
            put16(packet.data_mut(), at + 2, dst);
            if packet.offload.csum.is_none_or(|(start, _)| usize::from(start) != at) {
                let difference = before ^ crc(&packet.data()[at..ip.end]);
                for (i, byte) in difference.to_le_bytes().into_iter().enumerate() {
                    packet.data_mut()[at + 8 + i] ^= byte;
                }
            }
        }
        Set::Icmp { kind, code, v6 } => {
            let at = ip(v6)?.transport(if v6 { 58 } else { 1 }, 8)?;
            change(packet, &f, |d| {
                put8(d, at, kind);
                put8(d, at + 1, code);
            });
        }
        Set::Arp { op, spa, tpa, sha, tha } => {
            let known = packet.data().get(l3..l3 + 6) == Some(&[0, 1, 8, 0, 6, 4]);
            if !matches!(f.kind, 0x0806 | 0x8035) || !known || packet.len() < l3 + 28 {
                return Err(Malformed);
            }
            let d = packet.data_mut();
            put16(d, l3 + 6, op);
            put(d, l3 + 8, &sha.value, &sha.mask);
            put(d, l3 + 14, &spa.value, &spa.mask);
            put(d, l3 + 18, &tha.value, &tha.mask);
            put(d, l3 + 24, &tpa.value, &tpa.mask);
        }
        Set::Nd { target, sll, tll } => {
            let ip = ip(true)?;
            let at = neighbour(packet.data(), ip)?;
            let options = [
                option(packet.data(), at + 24, ip.end, &[1]),
                option(packet.data(), at + 24, ip.end, &[2]),
            ];
            change(packet, &f, |d| {
                put(d, at + 8, &target.value, &target.mask);
                for (place, m) in options.iter().zip([sll, tll]) {
                    if let Some(place) = place {
                        put(d, *place, &m.value, &m.mask);
                    }
                }
            });
        }
        Set::NdExtensions { reserved, options_type } => {
            let ip = ip(true)?;
            let at = neighbour(packet.data(), ip)?;
            let address = option(packet.data(), at + 24, ip.end, &[1, 2]);
            change(packet, &f, |d| {
                put32(d, at + 4, reserved);
                if let Some(address) = address {
                    put8(d, address - 2, options_type);
                }
            });
        }
        Set::Nsh { flags, ttl, path, context } => {
            let at = f.l3;
            let first = be16(packet.data(), at).filter(|_| f.kind == 0x894f).ok_or(Malformed)?;
            let (d, bytes) = (packet.data_mut(), usize::from(first & 0x3f) * 4);
            let md_type = *d.get(at + 2).ok_or(Malformed)?;
            let is_possible = match md_type {
                1 => bytes == 24,
                2 => bytes >= 8,
                _ => true,
            };
            if first >> 14 != 0 || !is_possible || d.len() < at + bytes.max(8) {
                return Err(Malformed);
            }
            let has_context = context.iter().any(|word| word.mask != 0);
            if has_context && md_type != 1 {
                return Err(Malformed);
            }
            let merge = |old: u16, m: Masked<u8>| old & !u16::from(m.mask) | u16::from(m.value);
            let new_flags = merge(first >> 12 & 3, flags) & 3;
            let new_ttl = merge(first >> 6 & 63, ttl) & 63;
            let first = new_flags << 12 | new_ttl << 6 | first & 0x3f;
            d[at..at + 2].copy_from_slice(&first.to_be_bytes());
            put32(d, at + 4, path);
            if has_context {
                for (i, word) in context.into_iter().enumerate() {
                    put32(d, at + 8 + 4 * i, word);
                }
            }
        }
        Set::Mpls(lse) => {
            let at = label(packet.data(), &f)?;
            put32(packet.data_mut(), at, lse);
        }
        Set::Priority(_) | Set::Mark(_) => {}
    }
    Ok(())
}

/// Returns the offset of the ICMPv6 header of a neighbour message.
fn neighbour(data: &[u8], ip: &Ip) -> Result<usize, Malformed> {
    let at = ip.transport(58, 24)?;
    match (data[at], data[at + 1]) {
        (135 | 136, 0) => Ok(at),
        _ => Err(Malformed),
    }
}

/// Returns the offset of the address of the first link-layer option of one of the types `kinds`.
fn option(data: &[u8], start: usize, end: usize, kinds: &[u8]) -> Option<usize> {
    let mut at = start;
    while at + 2 <= end {
        let len = usize::from(data[at + 1]) * 8;
        if len == 0 || at + len > end {
            return None;
        }
        if kinds.contains(&data[at]) && len == 8 {
            return Some(at + 2);
        }
        at += len;
    }
    None
}

/// Returns the offset of the outermost label.
fn label(data: &[u8], f: &Frame) -> Result<usize, Malformed> {
    let there = matches!(f.kind, 0x8847 | 0x8848) && data.len() >= f.after_type + 4;
    if there { Ok(f.after_type) } else { Err(Malformed) }
}

/// Pushes a VLAN header. The headers that follow the VLAN headers still follow them, for any number
/// of VLAN headers.
pub(crate) fn push_vlan(packet: &mut Packet, tags: &mut usize, tpid: u16, tci: u16) -> Edited {
    find(packet.data(), *tags)?;
    *tags += 1;
    packet.insert_at(12, 4);
    store16(packet.data_mut(), 12, tpid);
    store16(packet.data_mut(), 14, tci & 0xefff);
    Ok(())
}

pub(crate) fn pop_vlan(packet: &mut Packet, tags: &mut usize) -> Edited {
    if find(packet.data(), *tags)?.tags == 0 {
        return Err(Malformed);
    }
    *tags -= 1;
    packet.remove_at(12, 4);
    Ok(())
}

pub(crate) fn push_mpls(packet: &mut Packet, tags: usize, lse: u32, ethertype: u16) -> Edited {
    let f = find(packet.data(), tags)?;
    if f.kind < 0x600 {
        return Err(Malformed);
    }
    packet.insert_at(f.after_type, 4);
    put32(packet.data_mut(), f.after_type, Masked { value: lse, mask: u32::MAX });
    store16(packet.data_mut(), f.after_type - 2, ethertype);
    Ok(())
}

pub(crate) fn pop_mpls(packet: &mut Packet, tags: usize, ethertype: u16) -> Edited {
    let f = find(packet.data(), tags)?;
    let at = label(packet.data(), &f)?;
    packet.remove_at(at, 4);
    store16(packet.data_mut(), at - 2, ethertype);
    Ok(())
}

pub(crate) fn truncate(packet: &mut Packet, len: u32) {
    if len as usize >= packet.len() {
        return;
    }
    if let (None, Some((start, offset))) = (packet.offload.gso, packet.offload.csum) {
        let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
        if at + 2 <= packet.len() {
            let total = sum(&packet.data()[start..]);
            let value = !(if total == 0 { 0xffff } else { total as u16 });
            store16(packet.data_mut(), at, if value == 0 { 0xffff } else { value });
        }
    }
    packet.offload = Offload::default();
    packet.resize(len as usize);
}

/// Returns the bytes of a packet, or of the longest of its segments.
pub(crate) fn longest(packet: &Packet) -> usize {
    match packet.offload.gso {
        Some((_, segment, header)) => packet.len().min(usize::from(segment) + usize::from(header)),
        None => packet.len(),
    }
}

/// Returns the length that `check_pkt_len` compares.
pub(crate) fn checked_len(packet: &Packet) -> usize {
    let len = longest(packet);
    let tagged = frame(packet.data(), 1).is_some_and(|f| f.tags > 0);
    if tagged { len - 4 } else { len }
}

/// CRC32c of an SCTP packet with its checksum field taken as zero, bit by bit.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for (i, byte) in bytes.iter().enumerate() {
        crc ^= u32::from(if (8..12).contains(&i) { 0 } else { *byte });
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_crc32c() {
        // "123456789" has the check value e3069283; our field at 8..12 is outside of its digits.
        let mut crc_of_nine = u32::MAX;
        for byte in b"123456789" {
            crc_of_nine ^= u32::from(*byte);
            for _ in 0..8 {
                crc_of_nine = if crc_of_nine & 1 == 1 {
                    crc_of_nine >> 1 ^ 0x82f6_3b78
                } else {
                    crc_of_nine >> 1
                };
            }
        }
        assert_eq!(!crc_of_nine, 0xe306_9283);
        assert_eq!(crc(b"12345678ABCDxyz"), crc(b"12345678\0\0\0\0xyz"));
    }

    #[test]
    fn a_moved_sum_is_the_sum_of_the_new_bytes() {
        let (old, new) = ([0x12, 0x34, 0xff, 0xff], [0, 1, 0, 0]);
        let stored = !(sum(&old) as u16);
        assert_eq!(!moved(!stored, sum(&old), sum(&new)), !1u16);
    }
}
