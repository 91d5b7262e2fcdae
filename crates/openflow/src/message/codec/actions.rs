// SPDX-License-Identifier: Apache-2.0
//! Actions, instructions and matches, as the other modules of this crate write them.

use super::Version;
use crate::Action;
use crate::action::check_parts;
use crate::action::codec::{self, Encoder};
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};
use flow::Match;

/// The match of `version`, with its padding.
pub(super) fn decode_match(r: &mut Reader<'_>, version: Version) -> Result<Match> {
    let (matching, len) = nxm::decode_match(version, r.peek(), Strictness::Strict)?;
    r.skip(len)?;
    Ok(matching)
}

/// As [`decode_match`], without complaint about fields that are not known.
pub(super) fn decode_match_loose(r: &mut Reader<'_>, version: Version) -> Result<Match> {
    let (matching, len) = nxm::decode_match(version, r.peek(), Strictness::Loose)?;
    r.skip(len)?;
    Ok(matching)
}

/// Nicira's match of `len` bytes, with its padding, and without cookie.
pub(super) fn decode_nx_match(
    r: &mut Reader<'_>,
    len: u16,
    strictness: Strictness,
) -> Result<Match> {
    let (found, len) = nxm::decode_nx_match(r.peek(), usize::from(len), strictness, false)?;
    r.skip(len)?;
    Ok(found.matching)
}

/// Nicira's match of `len` bytes, with its padding: match, cookie, cookie mask.
pub(super) fn decode_nx_match_cookie(r: &mut Reader<'_>, len: u16) -> Result<(Match, u64, u64)> {
    let (found, len) = nxm::decode_nx_match(r.peek(), usize::from(len), Strictness::Strict, true)?;
    r.skip(len)?;
    Ok((found.matching, found.cookie, found.cookie_mask))
}

/// A match as a list of fields (type OFPMT_OXM), also where the version has a structure for it.
pub(super) fn encode_match_list(version: Version, matching: &Match, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(1);
    out.put_u16(0);
    nxm::encode_oxm_list(version, matching, out);
    let len = out.len() - at;
    out.set_u16(at + 2, len as u16); // all fields together are some hundred bytes
    out.pad8(at);
}

/// How the actions of a flow with this match are written.
pub(super) fn encoder(version: Version, matching: &Match) -> Encoder {
    Encoder::for_match(version, matching)
}

/// Actions whose parts of fields are within them.
pub(super) fn decode_actions(r: Reader<'_>, version: Version) -> Result<Vec<Action>> {
    let actions = codec::decode_actions(r.peek(), version)?;
    check_parts(&actions)?;
    Ok(actions)
}

/// Reads actions that the receiver must [`crate::action::check`].
pub(super) fn decode_unchecked_actions(r: Reader<'_>, version: Version) -> Result<Vec<Action>> {
    codec::decode_actions(r.peek(), version)
}

pub(super) fn encode_actions(actions: &[Action], encoder: impl Into<Encoder>, out: &mut Vec<u8>) {
    codec::encode_actions(actions, encoder, out);
}

/// Reads actions of OpenFlow 1.0, or instructions of later versions, that the receiver must
/// [`crate::action::check`].
pub(super) fn decode_instructions(r: Reader<'_>, version: Version) -> Result<Vec<Action>> {
    codec::decode_instructions(r.peek(), version)
}

/// Actions of OpenFlow 1.0, instructions later.
pub(super) fn encode_instructions(
    actions: &[Action],
    encoder: impl Into<Encoder>,
    out: &mut Vec<u8>,
) {
    codec::encode_instructions(actions, encoder, out);
}
