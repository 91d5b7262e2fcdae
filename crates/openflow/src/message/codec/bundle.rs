// SPDX-License-Identifier: Apache-2.0
//! Bundles, and other controllers' requests.

use super::header::{Encoded, Later, begin_later, finish, nxt};
use super::*;
use crate::wire::{Put, Reader, Result};

/// Flags that are not known are ignored, as OVS does.
fn decode_flags(bits: u16) -> BundleFlags {
    BundleFlags::from_bits_truncate(bits)
}

pub(super) fn decode_control(mut r: Reader<'_>) -> Result<BundleControl> {
    let bundle_id = r.u32()?;
    let kind = match r.u16()? {
        0 => BundleControlKind::OpenRequest,
        1 => BundleControlKind::OpenReply,
        2 => BundleControlKind::CloseRequest,
        3 => BundleControlKind::CloseReply,
        4 => BundleControlKind::CommitRequest,
        5 => BundleControlKind::CommitReply,
        6 => BundleControlKind::DiscardRequest,
        7 => BundleControlKind::DiscardReply,
        _ => return Err(OfError::OFPBFC_BAD_TYPE),
    };
    let flags = decode_flags(r.u16()?);
    Ok(BundleControl { bundle_id, kind, flags })
}

pub(super) fn encode_control(
    c: &BundleControl,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::BundleControl, xid)?;
    out.put_u32(c.bundle_id);
    out.put_u16(c.kind as u16);
    out.put_u16(c.flags.bits());
    finish(out, at, "OFPT_BUNDLE_CONTROL")
}

/// Takes the message inside a bundle or request forward: its bytes.
fn inner<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let bytes = r.peek();
    let mut head = Reader::message(bytes);
    let length = head.skip(2).and_then(|()| head.u16()).map_err(|_| OfError::OFPBFC_MSG_BAD_LEN)?;
    if length < 8 {
        return Err(OfError::OFPBFC_MSG_BAD_LEN);
    }
    r.bytes(usize::from(length)).map_err(|_| OfError::OFPBFC_MSG_BAD_LEN)
}

/// True for the messages that may stand in a bundle.
fn is_bundlable(body: &Body) -> bool {
    matches!(body, Body::FlowMod(_) | Body::GroupMod(_) | Body::PortMod(_) | Body::PacketOut(_))
}

pub(super) fn decode_add(mut r: Reader<'_>, xid: u32, p: &Protocol) -> Result<BundleAdd> {
    let bundle_id = r.u32()?;
    r.skip(2)?;
    let flags = decode_flags(r.u16()?);
    if r.len() < 8 {
        return Err(OfError::OFPBFC_MSG_BAD_LEN);
    }
    if r.peek().first() != Some(&p.version.wire()) {
        return Err(OfError::OFPBFC_BAD_VERSION);
    }
    let bytes = inner(&mut r)?;
    let mut head = Reader::message(bytes);
    head.skip(1)?;
    let ty = head.u8()?;
    head.skip(2)?;
    if head.u32()? != xid {
        return Err(OfError::OFPBFC_MSG_BAD_XID);
    }
    if !may_be_bundled(bytes, ty, p.version) {
        return Err(OfError::OFPBFC_MSG_UNSUP);
    }
    let message = Message::decode(bytes, p).map_err(|e| e.error)?;
    if !is_bundlable(&message.body) {
        return Err(OfError::OFPBFC_MSG_UNSUP);
    }
    let raw = bytes.get(..64).unwrap_or(bytes).to_vec();
    Ok(BundleAdd { bundle_id, flags, message, raw })
}

/// Whether a header is that of a bundlable message, so that a bundle is not a way to nest
/// bundles in each other without end. Unknown messages pass, to get their own error.
fn may_be_bundled(bytes: &[u8], ty: u8, version: Version) -> bool {
    if ty == header::ofpt::VENDOR {
        // NXT_FLOW_MOD is the only one; unknown vendors and subtypes get their own error.
        return vendor_ids(bytes).is_none_or(|(vendor, subtype)| {
            !super::is_known_vendor_message(vendor, subtype) || subtype == nxt::FLOW_MOD
        });
    }
    match Later::from_number(ty, version) {
        Some(message) => matches!(message, Later::GroupMod | Later::PortMod),
        None => {
            ty > header::ofpt::FLOW_MOD
                || matches!(ty, header::ofpt::FLOW_MOD | header::ofpt::PACKET_OUT)
        }
    }
}

pub(super) fn encode_add(b: &BundleAdd, p: &Protocol, xid: u32, out: &mut Vec<u8>) -> Encoded {
    let version = p.version;
    let at = begin_later(out, version, Later::BundleAdd, xid)?;
    out.put_u32(b.bundle_id);
    out.put_zeros(2);
    out.put_u16(b.flags.bits());
    if !is_bundlable(&b.message.body) {
        return Err(EncodeError::Unsupported { what: "a bundle with such a message", version });
    }
    out.put_bytes(&b.message.encode(p)?);
    finish(out, at, "OFPT_BUNDLE_ADD_MESSAGE")
}

/// Returns the vendor and the subtype of a vendor's message; `None` for one that is cut short.
fn vendor_ids(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut r = Reader::message(bytes);
    r.skip(8).ok()?;
    Some((r.u32().ok()?, r.u32().ok()?))
}

pub(super) fn decode_request_forward(mut r: Reader<'_>, p: &Protocol) -> Result<RequestForward> {
    let bytes = inner(&mut r)?;
    let ty = bytes.get(1).copied().unwrap_or_default();
    // No message that can contain messages, so that they are not nested without end.
    match Later::from_number(ty, p.version) {
        Some(Later::GroupMod | Later::MeterMod) => {}
        _ if p.version == Version::V10
            && ty == header::ofpt::VENDOR
            && vendor_ids(bytes) == Some((NX_VENDOR, nxt::GROUP_MOD)) => {}
        _ => return Err(OfError::OFPBFC_MSG_UNSUP),
    }
    let message = Message::decode(bytes, p).map_err(|e| e.error)?;
    let change = match message.body {
        Body::GroupMod(m) => ForwardedChange::Group(m),
        Body::MeterMod(m) => ForwardedChange::Meter(m),
        _ => return Err(OfError::OFPBFC_MSG_UNSUP),
    };
    Ok(RequestForward { xid: message.xid, change })
}

pub(super) fn encode_request_forward(
    f: &RequestForward,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::RequestForward, xid)?;
    match &f.change {
        ForwardedChange::Group(m) => super::group::encode_group_mod(m, version, f.xid, out)?,
        ForwardedChange::Meter(m) => super::meter::encode_meter_mod(m, version, f.xid, out)?,
    }
    finish(out, at, "OFPT_REQUESTFORWARD")
}
