// SPDX-License-Identifier: Apache-2.0
//! Matches on the wire: NXM and OXM lists, and the fixed structures of OpenFlow 1.0 and 1.1.
//!
//! | form | used by | here |
//! |---|---|---|
//! | `ofp10_match`, 40 bytes | OpenFlow 1.0 | `decode_of10`, `encode_of10` |
//! | nx_match: list of NXM/OXM TLVs, length in another field, padded to 8 | Nicira messages of OpenFlow 1.0 | [`decode_nx_match`], [`encode_nx_match`] |
//! | `ofp11_match`, type 0, 88 bytes | OpenFlow 1.1 | [`decode_match`], [`encode_match`] |
//! | `ofp_match`, type 1, OXM TLVs, padded to 8 | OpenFlow 1.2 and later | [`decode_match`], [`encode_match`] |
//!
//! A TLV has a 32-bit header (class, field, has-mask, length; OpenFlow 1.5.1 section 7.2.3.2),
//! a 32-bit experimenter id when the class is 0xffff, a value, and a mask when has-mask is set.
//!
//! The checks, in this order, and their errors: the TLV is all there (OFPBMC_BAD_LEN), no value bit
//! is outside the mask (OFPBMC_BAD_WILDCARDS), a field with this number and length is known
//! (OFPBMC_BAD_FIELD), the field may have that mask (OFPBMC_BAD_MASK), the value is one of the
//! field's (OFPBMC_BAD_VALUE), the prerequisites came before it (OFPBMC_BAD_PREREQ) and the field
//! did not (OFPBMC_DUP_FIELD).
//!
//! The fields `tun_metadataN` have values of any length up to 124 bytes, as leading zeros may be left
//! out.

mod fixed;
mod header;
mod list;

pub use fixed::{fits_of10, normalize};
pub use header::{FieldHeader, decode_header_list};
pub use list::{NxMatch, Strictness, decode_nx_match, encode_nx_match};

pub(crate) use fixed::{OF10_MATCH_LEN, OF11_MATCH_LEN, decode_of10, encode_of10};
pub(crate) use header::{
    Known, decode_header, encode_header, ones, pull_entry, pull_header, put_entry, put_option,
    value_is_valid,
};
pub(crate) use list::encode_oxm_list;

use crate::wire::{Put, Reader};
use crate::{OfError, Version};
use flow::Match;

/// OFPMT_STANDARD.
const MT_STANDARD: u16 = 0;
/// OFPMT_OXM.
const MT_OXM: u16 = 1;

/// Reads the `ofp_match` of OpenFlow 1.1 and later at the start of `bytes`: the match, and how
/// many bytes it takes with its padding. For [`Version::V10`] reads the 40-byte structure.
///
/// # Errors
/// OFPBMC_BAD_LEN for a length that does not fit type or bytes; OFPBMC_BAD_TYPE for an unknown type;
/// OFPBMC_* for a field, value or mask that is not valid, as `strictness` requires.
pub fn decode_match(
    version: Version,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Match, usize), OfError> {
    if version == Version::V10 {
        return Ok((decode_of10(bytes)?, OF10_MATCH_LEN));
    }
    let mut r = Reader::new(bytes, OfError::OFPBMC_BAD_LEN);
    let (ty, len) = (r.u16()?, usize::from(r.u16()?));
    match ty {
        MT_STANDARD => {
            if len != OF11_MATCH_LEN {
                return Err(OfError::OFPBMC_BAD_LEN);
            }
            Ok((fixed::decode_of11(bytes)?, OF11_MATCH_LEN))
        }
        MT_OXM => {
            let list_len = len.checked_sub(4).ok_or(OfError::OFPBMC_BAD_LEN)?;
            let padded = len.next_multiple_of(8);
            let list = r.bytes(list_len)?;
            r.skip(padded - len)?;
            let out = list::decode(list, strictness, false)?;
            Ok((out.matching, padded))
        }
        _ => Err(OfError::OFPBMC_BAD_TYPE),
    }
}

/// Appends the `ofp_match` of `version` with its padding. Fields that the fixed structures of
/// OpenFlow 1.0 and 1.1 lack are left out (see [`fits_of10`]); OXM expresses every match.
pub fn encode_match(version: Version, matching: &Match, out: &mut Vec<u8>) {
    match version {
        Version::V10 => out.extend_from_slice(&encode_of10(matching)),
        Version::V11 => fixed::encode_of11(matching, out),
        _ => {
            let start = out.len();
            out.put_u16(MT_OXM);
            out.put_u16(0);
            encode_oxm_list(version, matching, out);
            let len = out.len() - start;
            out.set_u16(start + 2, u16::try_from(len).unwrap_or(u16::MAX));
            out.pad8(start);
        }
    }
}

#[cfg(test)]
mod tests;
