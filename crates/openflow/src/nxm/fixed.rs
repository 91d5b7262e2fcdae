// SPDX-License-Identifier: Apache-2.0
//! The fixed match structures of OpenFlow 1.0 (`ofp10_match`, OpenFlow 1.0.2 section 5.2.3) and
//! OpenFlow 1.1 (`ofp11_match`, section A.2.3).
//!
//! VLANs, OpenFlow 1.0: `dl_vlan` 0xffff is "no VLAN header"; an id or a priority alone asks for
//! a header to be there. OpenFlow 1.1 adds 0xfffe, "any VLAN header".
//!
//! OpenFlow 1.0 has no notion of prerequisites that are missing: fields that mean nothing for the
//! Ethernet type or IP protocol matched are ignored, see [`normalize`].

use crate::wire::{Put, Reader};
use crate::{OfError, PortNo};
use flow::{Field, Key, Mask, Match, VLAN_CFI};
use packet::ip_proto;

/// Bytes of OpenFlow 1.0's match.
pub(crate) const OF10_MATCH_LEN: usize = 40;
/// Bytes of OpenFlow 1.1's match.
pub(crate) const OF11_MATCH_LEN: usize = 88;

// Wildcard bits of OpenFlow 1.0 (enum ofp10_flow_wildcards).
const W10_IN_PORT: u32 = 1 << 0;
const W10_DL_VLAN: u32 = 1 << 1;
const W10_DL_SRC: u32 = 1 << 2;
const W10_DL_DST: u32 = 1 << 3;
const W10_DL_TYPE: u32 = 1 << 4;
const W10_NW_PROTO: u32 = 1 << 5;
const W10_TP_SRC: u32 = 1 << 6;
const W10_TP_DST: u32 = 1 << 7;
const W10_NW_SRC_SHIFT: u32 = 8;
const W10_NW_DST_SHIFT: u32 = 14;
const W10_DL_VLAN_PCP: u32 = 1 << 20;
const W10_NW_TOS: u32 = 1 << 21;

// Wildcard bits of OpenFlow 1.1 (enum ofp11_flow_match_fields).
const W11_IN_PORT: u32 = 1 << 0;
const W11_DL_VLAN: u32 = 1 << 1;
const W11_DL_VLAN_PCP: u32 = 1 << 2;
const W11_DL_TYPE: u32 = 1 << 3;
const W11_NW_TOS: u32 = 1 << 4;
const W11_NW_PROTO: u32 = 1 << 5;
const W11_TP_SRC: u32 = 1 << 6;
const W11_TP_DST: u32 = 1 << 7;
const W11_MPLS_LABEL: u32 = 1 << 8;
const W11_MPLS_TC: u32 = 1 << 9;

const VLAN_NONE: u16 = 0xffff;
const VLAN_ANY: u16 = 0xfffe;
const VID_MASK: u16 = 0x0fff;
const PCP_MASK: u16 = 0xe000;
const PCP_SHIFT: u32 = 13;
const DSCP_MASK: u8 = 0xfc;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;

/// Removes requirements without effect: those on fields whose prerequisites the match does not
/// have, such as a TCP port without `nw_proto=6`. Open vSwitch does the same for OpenFlow 1.0 and
/// 1.1.
pub fn normalize(m: &Match) -> Match {
    let mut m = *m;
    m.normalize();
    m
}

/// Prefix mask with `wild` low bits clear.
fn prefix_mask(wild: u32) -> u32 {
    u32::MAX.checked_shl(wild).unwrap_or(0)
}

/// Reads the `ofp10_match` at the start of `bytes`, normalized.
///
/// # Errors
/// OFPBRC_BAD_LEN when there are fewer than 40 bytes.
pub(crate) fn decode_of10(bytes: &[u8]) -> Result<Match, OfError> {
    let mut r = Reader::new(bytes, OfError::OFPBRC_BAD_LEN);
    let wild = r.u32()?;
    let exact = |bit: u32| wild & bit == 0;
    let (mut k, mut m) = (Key::ZERO, Key::ZERO);
    k.in_port.set(PortNo::from_u16(r.u16()?).0);
    k.dl_src = r.mac()?;
    k.dl_dst = r.mac()?;
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    k.dl_type.set(r.u16()?);
    k.nw_tos = r.u8()? & DSCP_MASK;
    k.nw_proto = r.u8()?;
    r.skip(2)?;
    k.nw_src.set(r.u32()?);
    k.nw_dst.set(r.u32()?);
    k.tp_src.set(r.u16()?);
    k.tp_dst.set(r.u16()?);

    if exact(W10_IN_PORT) {
        m.in_port.set(u32::MAX);
    }
    if exact(W10_DL_SRC) {
        m.dl_src = [0xff; 6];
    }
    if exact(W10_DL_DST) {
        m.dl_dst = [0xff; 6];
    }
    if exact(W10_DL_TYPE) {
        m.dl_type.set(u16::MAX);
    }
    if exact(W10_NW_TOS) {
        m.nw_tos = DSCP_MASK;
    }
    if exact(W10_NW_PROTO) {
        m.nw_proto = u8::MAX;
    }
    m.nw_src.set(prefix_mask(wild >> W10_NW_SRC_SHIFT & 0x3f));
    m.nw_dst.set(prefix_mask(wild >> W10_NW_DST_SHIFT & 0x3f));
    if exact(W10_TP_SRC) {
        m.tp_src.set(u16::MAX);
    }
    if exact(W10_TP_DST) {
        m.tp_dst.set(u16::MAX);
    }
    if exact(W10_DL_VLAN) && vlan == VLAN_NONE {
        // With a priority too this contradicts itself; "no header" wins, as in Open vSwitch.
        m.vlans[0].tci.set(u16::MAX);
    } else {
        let mut tci_mask = 0;
        if exact(W10_DL_VLAN) {
            tci_mask |= VID_MASK | VLAN_CFI;
        }
        if exact(W10_DL_VLAN_PCP) {
            tci_mask |= PCP_MASK | VLAN_CFI;
        }
        let pcp = (u16::from(pcp) << PCP_SHIFT) & PCP_MASK;
        k.vlans[0].tci.set(vlan & VID_MASK | pcp | VLAN_CFI);
        m.vlans[0].tci.set(tci_mask);
    }
    Ok(normalize(&Match::new(&k, &Mask(m))))
}

/// The bits of a port's place that have a meaning: 8 for an ICMP type or code.
fn port_bits(key: &Key) -> u16 {
    match key.nw_proto {
        ip_proto::ICMP | ip_proto::ICMPV6 => 0xff,
        _ => u16::MAX,
    }
}

/// Returns the match as `ofp10_match`, which has a mask for IPv4 addresses only. As in Open
/// vSwitch, a partly matched field is written as if it were matched whole, its other bits clear;
/// see [`fits_of10`].
pub(crate) fn encode_of10(matching: &Match) -> [u8; OF10_MATCH_LEN] {
    let (k, m) = (matching.key(), &matching.mask().0);
    let mut wild = 0;
    let mut wildcard = |cond: bool, bit: u32| {
        if cond {
            wild |= bit;
        }
        !cond
    };
    let in_port = wildcard(m.in_port.get() == 0, W10_IN_PORT);
    let dl_src = wildcard(m.dl_src == [0; 6], W10_DL_SRC);
    let dl_dst = wildcard(m.dl_dst == [0; 6], W10_DL_DST);
    let dl_type = wildcard(m.dl_type.get() == 0, W10_DL_TYPE);
    let nw_tos = wildcard(m.nw_tos & DSCP_MASK == 0, W10_NW_TOS);
    let nw_proto = wildcard(m.nw_proto == 0, W10_NW_PROTO);
    let tp_src = wildcard(m.tp_src.get() == 0, W10_TP_SRC);
    let tp_dst = wildcard(m.tp_dst.get() == 0, W10_TP_DST);

    let (tci, tci_mask) = (k.vlans[0].tci.get(), m.vlans[0].tci.get());
    let (mut vlan, mut pcp) = (0, 0);
    if tci_mask & VLAN_CFI != 0 && tci & VLAN_CFI == 0 {
        vlan = VLAN_NONE;
    } else {
        if wildcard(tci_mask & VID_MASK == 0, W10_DL_VLAN) {
            vlan = tci & VID_MASK;
        }
        if wildcard(tci_mask & PCP_MASK == 0, W10_DL_VLAN_PCP) {
            pcp = (tci >> PCP_SHIFT) as u8;
        }
    }
    // A mask of another shape than a prefix gives the prefix that it ends with.
    let wild_bits = u32::trailing_zeros;
    wild |= wild_bits(m.nw_src.get()) << W10_NW_SRC_SHIFT;
    wild |= wild_bits(m.nw_dst.get()) << W10_NW_DST_SHIFT;
    let address = |v: u32, mask: u32| v & prefix_mask(wild_bits(mask));

    let mut out = Vec::with_capacity(OF10_MATCH_LEN);
    out.put_u32(wild);
    out.put_u16(if in_port { PortNo(k.in_port.get()).to_u16().unwrap_or(u16::MAX) } else { 0 });
    out.extend_from_slice(if dl_src { &k.dl_src } else { &[0; 6] });
    out.extend_from_slice(if dl_dst { &k.dl_dst } else { &[0; 6] });
    out.put_u16(vlan);
    out.put_u8(pcp);
    out.put_u8(0);
    out.put_u16(if dl_type { k.dl_type.get() } else { 0 });
    out.put_u8(if nw_tos { k.nw_tos & DSCP_MASK } else { 0 });
    out.put_u8(if nw_proto { k.nw_proto } else { 0 });
    out.put_u16(0);
    out.put_u32(address(k.nw_src.get(), m.nw_src.get()));
    out.put_u32(address(k.nw_dst.get(), m.nw_dst.get()));
    out.put_u16(if tp_src { k.tp_src.get() } else { 0 });
    out.put_u16(if tp_dst { k.tp_dst.get() } else { 0 });
    out.try_into().unwrap_or([0; OF10_MATCH_LEN]) // always 40 bytes, counted above
}

/// True when `encode_of10` loses nothing of `matching`; else an nx_match is needed.
pub fn fits_of10(matching: &Match) -> bool {
    decode_of10(&encode_of10(matching)).is_ok_and(|back| back == *matching)
}

/// Reads the 88-byte `ofp11_match` at the start of `bytes`.
///
/// # Errors
/// OFPBMC_BAD_LEN when it is too short, OFPBMC_BAD_VALUE for a port, VLAN, priority or DSCP
/// that there is not, OFPBMC_BAD_FIELD for an ICMP type or code above 255.
pub(super) fn decode_of11(bytes: &[u8]) -> Result<Match, OfError> {
    let mut r = Reader::new(bytes, OfError::OFPBMC_BAD_LEN);
    r.skip(4)?;
    let in_port = r.u32()?;
    let wild = r.u32()?;
    let exact = |bit: u32| wild & bit == 0;
    let (mut k, mut m) = (Key::ZERO, Key::ZERO);
    if exact(W11_IN_PORT) {
        if !super::value_is_valid(Field::InPortOxm, in_port.into()) {
            return Err(OfError::OFPBMC_BAD_VALUE);
        }
        k.in_port.set(in_port);
        m.in_port.set(u32::MAX);
    }
    k.dl_src = r.mac()?;
    m.dl_src = r.mac()?.map(|b| !b);
    k.dl_dst = r.mac()?;
    m.dl_dst = r.mac()?.map(|b| !b);
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    if exact(W11_DL_VLAN) {
        let (mut tci, mut tci_mask) = match vlan {
            VLAN_NONE => (0, u16::MAX),
            VLAN_ANY => (VLAN_CFI, VLAN_CFI),
            vid if vid <= VID_MASK => (VLAN_CFI | vid, VLAN_CFI | VID_MASK),
            _ => return Err(OfError::OFPBMC_BAD_VALUE),
        };
        if exact(W11_DL_VLAN_PCP) && tci & VLAN_CFI != 0 {
            if pcp > 7 {
                return Err(OfError::OFPBMC_BAD_VALUE);
            }
            tci |= u16::from(pcp) << PCP_SHIFT;
            tci_mask |= PCP_MASK;
        }
        k.vlans[0].tci.set(tci);
        m.vlans[0].tci.set(tci_mask);
    }
    let dl_type = r.u16()?;
    if exact(W11_DL_TYPE) {
        k.dl_type.set(dl_type);
        m.dl_type.set(u16::MAX);
    }
    let dl_type = k.dl_type.get();
    let ipv4 = dl_type == IPV4;
    let (nw_tos, nw_proto) = (r.u8()?, r.u8()?);
    if ipv4 && exact(W11_NW_TOS) {
        if nw_tos & !DSCP_MASK != 0 {
            return Err(OfError::OFPBMC_BAD_VALUE);
        }
        k.nw_tos = nw_tos;
        m.nw_tos = DSCP_MASK;
    }
    let (src, src_wild, dst, dst_wild) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    if ipv4 || matches!(dl_type, ARP | RARP) {
        if exact(W11_NW_PROTO) {
            k.nw_proto = nw_proto;
            m.nw_proto = u8::MAX;
        }
        k.nw_src.set(src);
        m.nw_src.set(!src_wild);
        k.nw_dst.set(dst);
        m.nw_dst.set(!dst_wild);
    }
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);
    let (port_mask, highest) = match k.nw_proto {
        6 | 17 | 132 if ipv4 => (u16::MAX, u16::MAX),
        1 if ipv4 => (0xff, 0xff),
        _ => (0, u16::MAX), // to be ignored, says OpenFlow 1.1
    };
    if exact(W11_TP_SRC) && m.nw_proto != 0 {
        if tp_src > highest {
            return Err(OfError::OFPBMC_BAD_FIELD);
        }
        k.tp_src.set(tp_src);
        m.tp_src.set(port_mask);
    }
    if exact(W11_TP_DST) && m.nw_proto != 0 {
        if tp_dst > highest {
            return Err(OfError::OFPBMC_BAD_FIELD);
        }
        k.tp_dst.set(tp_dst);
        m.tp_dst.set(port_mask);
    }
    let (label, tc) = (r.u32()?, r.u8()?);
    r.skip(3)?;
    let (metadata, metadata_wild) = (r.u64()?, r.u64()?);
    k.metadata.set(metadata);
    m.metadata.set(!metadata_wild);

    let mut out = Match::new(&k, &Mask(m));
    if matches!(dl_type, MPLS | MPLS_MULTICAST) {
        if exact(W11_MPLS_LABEL) {
            out.set(Field::MplsLabel, u128::from(label & 0xf_ffff));
        }
        if exact(W11_MPLS_TC) {
            out.set(Field::MplsTc, u128::from(tc & 7));
        }
    }
    Ok(normalize(&out))
}

/// Appends the match as `ofp11_match`. Fields that the structure lacks are left out.
pub(super) fn encode_of11(matching: &Match, out: &mut Vec<u8>) {
    let (k, m) = (matching.key(), &matching.mask().0);
    let mut wild = 0;
    let mut exact = |cond: bool, bit: u32| {
        if !cond {
            wild |= bit;
        }
        cond
    };
    let in_port = exact(m.in_port.get() == u32::MAX, W11_IN_PORT);
    let (tci, tci_mask) = (k.vlans[0].tci.get(), m.vlans[0].tci.get());
    let (mut vlan, mut pcp) = (0, 0);
    if exact(tci_mask & (VID_MASK | VLAN_CFI) != 0, W11_DL_VLAN) {
        vlan = match (tci_mask & VLAN_CFI != 0, tci & VLAN_CFI != 0) {
            (true, false) => VLAN_NONE,
            _ if tci_mask & VID_MASK == 0 => VLAN_ANY,
            _ => tci & VID_MASK,
        };
        if exact(vlan != VLAN_NONE && tci_mask & PCP_MASK != 0, W11_DL_VLAN_PCP) {
            pcp = (tci >> PCP_SHIFT) as u8;
        }
    } else {
        exact(false, W11_DL_VLAN_PCP);
    }
    let dl_type = exact(m.dl_type.get() == u16::MAX, W11_DL_TYPE);
    let nw_tos = exact(m.nw_tos & DSCP_MASK == DSCP_MASK, W11_NW_TOS);
    let nw_proto = exact(m.nw_proto == u8::MAX, W11_NW_PROTO);
    let whole = port_bits(k);
    let tp_src = exact(m.tp_src.get() & whole == whole, W11_TP_SRC);
    let tp_dst = exact(m.tp_dst.get() & whole == whole, W11_TP_DST);
    let full = |field: Field| field.load(&m.clone()) == field.all_ones();
    let mpls = matches!(k.dl_type.get(), MPLS | MPLS_MULTICAST);
    let label = exact(mpls && full(Field::MplsLabel), W11_MPLS_LABEL);
    let tc = exact(mpls && full(Field::MplsTc), W11_MPLS_TC);

    out.put_u16(0); // OFPMT_STANDARD
    out.put_u16(OF11_MATCH_LEN as u16);
    out.put_u32(if in_port { k.in_port.get() } else { 0 });
    out.put_u32(wild);
    out.extend_from_slice(&k.dl_src);
    out.extend_from_slice(&m.dl_src.map(|b| !b));
    out.extend_from_slice(&k.dl_dst);
    out.extend_from_slice(&m.dl_dst.map(|b| !b));
    out.put_u16(vlan);
    out.put_u8(pcp);
    out.put_u8(0);
    out.put_u16(if dl_type { k.dl_type.get() } else { 0 });
    out.put_u8(if nw_tos { k.nw_tos & DSCP_MASK } else { 0 });
    out.put_u8(if nw_proto { k.nw_proto } else { 0 });
    out.put_u32(k.nw_src.get());
    out.put_u32(!m.nw_src.get());
    out.put_u32(k.nw_dst.get());
    out.put_u32(!m.nw_dst.get());
    out.put_u16(if tp_src { k.tp_src.get() } else { 0 });
    out.put_u16(if tp_dst { k.tp_dst.get() } else { 0 });
    out.put_u32(if label { Field::MplsLabel.load(k) as u32 } else { 0 });
    out.put_u8(if tc { Field::MplsTc.load(k) as u8 } else { 0 });
    out.put_zeros(3);
    out.put_u64(k.metadata.get());
    out.put_u64(!m.metadata.get());
}
