// SPDX-License-Identifier: Apache-2.0
//! Lists of TLVs.

use super::header::{Pulled, ones, pull, put_cookie, put_entry, put_option, value_is_valid};
use crate::wire::{Put, Reader};
use crate::{OfError, Version};
use flow::field::Prerequisite;
use flow::{Field, FieldValue, Match, Tunnel};

/// Handling of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// OFPBMC_BAD_FIELD: the sender relies on them.
    Strict,
    /// Skip them: the sender only reports the fields that it knows.
    Loose,
}

/// An nx_match: the match, and the NXM_NX_COOKIE pseudo-field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NxMatch {
    /// The fields.
    pub matching: Match,
    /// Cookie to match; 0 outside the mask.
    pub cookie: u64,
    /// Bits of the cookie that count; 0 when none is matched.
    pub cookie_mask: u64,
}

/// Reads the nx_match of `match_len` bytes at the start of `bytes`, and skips its padding: the
/// match, and how many bytes it took. NXM_NX_COOKIE is refused unless `with_cookie`.
///
/// # Errors
/// See the parent module; OFPBRC_BAD_LEN-like trouble with `match_len` is OFPBMC_BAD_LEN.
pub fn decode_nx_match(
    bytes: &[u8],
    match_len: usize,
    strictness: Strictness,
    with_cookie: bool,
) -> Result<(NxMatch, usize), OfError> {
    let padded = match_len.next_multiple_of(8);
    let list = bytes.get(..match_len).ok_or(OfError::OFPBMC_BAD_LEN)?;
    if bytes.len() < padded {
        return Err(OfError::OFPBMC_BAD_LEN);
    }
    Ok((decode(list, strictness, with_cookie)?, padded))
}

/// Reads a list of TLVs to its end.
pub(super) fn decode(
    bytes: &[u8],
    strictness: Strictness,
    with_cookie: bool,
) -> Result<NxMatch, OfError> {
    let mut r = Reader::new(bytes, OfError::OFPBMC_BAD_LEN);
    let mut out = NxMatch::default();
    // Whether a field of Ethernet packets was there, and whether one was with a mask that is not 0.
    let (mut ethernet, mut says_ethernet) = (false, false);
    while !r.is_empty() {
        let entry = match pull(&mut r, with_cookie)? {
            Pulled::Entry(entry) => entry,
            Pulled::Option(entry) => {
                if !out.matching.is_any(entry.field) {
                    return Err(OfError::OFPBMC_DUP_FIELD);
                }
                let mask = entry.mask.unwrap_or_else(|| entry.field.all_ones_wide());
                out.matching.set_wide(entry.field, &entry.value, &mask);
                continue;
            }
            Pulled::Unknown if strictness == Strictness::Loose => continue,
            Pulled::Unknown => return Err(OfError::OFPBMC_BAD_FIELD),
            Pulled::Cookie(cookie, mask) => {
                if out.cookie_mask != 0 {
                    return Err(OfError::OFPBMC_DUP_FIELD);
                }
                (out.cookie, out.cookie_mask) = (cookie, mask);
                continue;
            }
        };
        let field = entry.field;
        let all = payload_ones(field);
        let mask = entry.mask.unwrap_or(all);
        if !field.maskable() && mask != 0 && mask != all {
            return Err(OfError::OFPBMC_BAD_MASK);
        }
        if !value_is_valid(field, entry.value) {
            return Err(OfError::OFPBMC_BAD_VALUE);
        }
        if !field.prerequisite().holds_for_match(&out.matching) {
            return Err(OfError::OFPBMC_BAD_PREREQ);
        }
        // A field of Ethernet packets implies that the packet type is Ethernet, unless the packet
        // type names the header.
        let said = field == Field::PacketType && ethernet;
        if said || field.load(&out.matching.mask().0) != 0 {
            return Err(OfError::OFPBMC_DUP_FIELD);
        }
        let is_bare = out.matching.key().packet_type.get() != 0;
        if field.prerequisite().is_of_ethernet() && !is_bare {
            ethernet = true;
            says_ethernet |= mask & field.all_ones() != 0;
        }
        require(&mut out.matching, field, entry.value, mask);
    }
    if ethernet {
        // The packet type is implied: flows with and without it are the same.
        out.matching.clear(Field::PacketType);
        if !says_ethernet {
            // All fields had masks of zero. As in OVS, their prerequisite remains.
            out.matching.set(Field::PacketType, 0);
        }
    }
    Ok(out)
}

/// Every bit of the TLV's value.
fn payload_ones(field: Field) -> FieldValue {
    ones(u16::from(field.oxm_bytes()) * 8)
}

/// Sets `field` in `m`; with a zero mask nothing.
fn require(m: &mut Match, field: Field, value: FieldValue, mask: FieldValue) {
    let all = field.all_ones();
    let is_of_erspan =
        matches!(field, Field::TunErspanVer | Field::TunErspanDir | Field::TunErspanHwid);
    // ovs-ofctl sends the value of these as their mask, and the bits of both as their value. The
    // bits that are one in both are the ones that its user asked for.
    let mask = if is_of_erspan && mask & all != all { mask & value } else { mask };
    match field {
        _ if mask & all == 0 => {}
        Field::InPort => m.set(field, value),
        _ if mask & all == all => m.set(field, value),
        _ => m.set_masked(field, value, mask & all),
    }
}

/// Appends `matching` and the cookie (when its mask is not 0) as an nx_match with padding.
/// Returns the length without padding, as `match_len` fields have it.
pub fn encode_nx_match(
    matching: &Match,
    cookie: u64,
    cookie_mask: u64,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    put_match(matching, 0, out);
    if cookie_mask != 0 {
        put_cookie(cookie & cookie_mask, cookie_mask, out);
    }
    let len = out.len() - start;
    out.pad8(start);
    len
}

/// Appends the TLVs of `matching` as OXM of `version`, without padding.
pub(crate) fn encode_oxm_list(version: Version, matching: &Match, out: &mut Vec<u8>) {
    put_match(matching, version.wire(), out);
}

/// Writes a match; `version` 0 is NXM. Fields come after their prerequisites.
fn put_match(m: &Match, version: u8, out: &mut Vec<u8>) {
    let has_tunnel = m.mask().0.tunnel != Tunnel::NONE;
    for field in Field::SENT.iter().copied().filter(|field| is_spoken(*field, version)) {
        if field.is_of_tunnel() && !has_tunnel {
            continue;
        }
        // Without an Ethernet header nothing of Ethernet is in a match.
        let need = field.prerequisite();
        let has_field = matches!(need, Prerequisite::None | Prerequisite::Ethernet);
        match field {
            Field::VlanVid if is_of_priority_alone(m) => {
                // OXM cannot express it; only the requirement of an Ethernet header remains.
                put_entry(Field::PacketType, 0, None, version, out);
            }
            Field::VlanPcp if is_of_priority_alone(m) => {}
            _ if has_field || need.holds_for_match(m) => put_field(m, field, version, out),
            _ => {}
        }
    }
}

/// True for the one of several fields that say the same in matches of `version`, and for all that
/// are alone; 0 is NXM.
fn is_spoken(field: Field, version: u8) -> bool {
    let is_oxm = version != 0;
    match field {
        Field::InPort | Field::VlanTci | Field::IpDscp => !is_oxm,
        Field::InPortOxm | Field::VlanVid | Field::VlanPcp | Field::IpDscpShifted => is_oxm,
        // OpenFlow 1.5 has registers only in pairs.
        register if register.is_register() => match register.bits() {
            32 => version < Version::V15.wire(),
            64 => version >= Version::V15.wire(),
            _ => false,
        },
        _ => true,
    }
}

/// Writes one field unless it is a wildcard.
fn put_field(m: &Match, field: Field, version: u8, out: &mut Vec<u8>) {
    if field.option().is_some() {
        return put_option_field(m, field, version, out);
    }
    let mask = field.load(&m.mask().0);
    if mask == 0 {
        return;
    }
    let value = field.load(m.key());
    // A field that cannot be masked is exact as soon as some bit is. Open vSwitch sends ct_state and
    // tun_flags with a mask always, as their upper bits have no meaning.
    let has_mask = matches!(field, Field::CtState | Field::TunFlags);
    let exact = mask == field.all_ones() && !has_mask || !field.maskable();
    put_entry(field, value, (!exact).then_some(mask), version, out);
}

/// Writes one field `tun_metadataN` unless it is a wildcard.
fn put_option_field(m: &Match, field: Field, version: u8, out: &mut Vec<u8>) {
    if m.is_any(field) {
        return;
    }
    let (value, mask) = (field.load_wide(m.key()), field.load_wide(&m.mask().0));
    // As in OVS, an option without a value has a mask, of no bits.
    let is_whole = m.is_exact(field) && field.value_bytes() > 0;
    let mask = (!is_whole).then_some(&mask);
    put_option(field, &value, mask, field.value_bytes(), version, out);
}

/// True for a match that looks at nothing of Ethernet but at a VLAN header's priority, there or not.
fn is_of_priority_alone(m: &Match) -> bool {
    let others = [Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanVid, Field::PacketType];
    let is_any = |field: Field| field.load(&m.mask().0) == 0;
    !is_any(Field::VlanTci) && others.into_iter().all(is_any)
}
