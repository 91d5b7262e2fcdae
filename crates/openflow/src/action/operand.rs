// SPDX-License-Identifier: Apache-2.0
//! Operands that several actions have on the wire: parts of fields, values to set, ports and
//! Ethernet types. Each function checks its operand with Open vSwitch's errors.

use super::Action;
use crate::nxm::{Known, ones, pull_entry, pull_header, value_is_valid};
use crate::wire::Reader;
use crate::{OfError, PortNo};
use flow::{Field, FieldValue, Subfield};

/// `move` of `bits` bits from one (field, offset) to another.
pub(super) fn move_action(
    bits: u16,
    src: (Field, u16),
    dst: (Field, u16),
) -> Result<Action, OfError> {
    Ok(Action::Move {
        src: subfield(src.0, src.1, bits)?,
        dst: writable(subfield(dst.0, dst.1, bits)?)?,
    })
}

/// Reads the TLV of a set-field up to the end of the action; what follows must be zero.
/// The mask is `None` when the TLV has none.
pub(super) fn set_entry(r: &mut Reader) -> Result<Setting, OfError> {
    let empty =
        r.peek().get(..4).is_some_and(|h| matches!(h, [_, _, bits, len] if len >> (bits & 1) == 0));
    // A field or length that is not known has names of its own in actions: Open vSwitch blames
    // the length, but for values of no bytes.
    let entry = pull_entry(r).map_err(|e| match e {
        OfError::OFPBMC_BAD_FIELD | OfError::OFPBMC_BAD_LEN if empty => {
            OfError::OFPBAC_BAD_SET_TYPE
        }
        OfError::OFPBMC_BAD_FIELD | OfError::OFPBMC_BAD_LEN => OfError::OFPBAC_BAD_SET_LEN,
        e => e,
    })?;
    r.zero_rest(OfError::OFPBAC_BAD_SET_ARGUMENT)?;
    match entry {
        Known::Option(entry) => {
            Ok(Setting::Option(Action::set_option(entry.field, &entry.value, entry.mask.as_ref())))
        }
        Known::Entry(entry)
            if entry.field.writable() && value_is_valid(entry.field, entry.value) =>
        {
            Ok(Setting::Field(entry.field, entry.value, entry.mask))
        }
        Known::Entry(_) => Err(OfError::OFPBAC_BAD_SET_ARGUMENT),
    }
}

/// The result of [`set_entry`].
pub(super) enum Setting {
    /// A field, a value, and a mask.
    Field(Field, FieldValue, Option<FieldValue>),
    /// The set of a field `tun_metadataN`.
    Option(Action),
}

/// Ethernet types of VLAN headers: 802.1Q, 802.1ad.
const ETHERTYPE_VLANS: [u16; 2] = [0x8100, 0x88a8];
/// Ethernet types of MPLS: unicast, multicast.
const ETHERTYPE_MPLS: [u16; 2] = [0x8847, 0x8848];

fn one_of(v: u16, allowed: &[u16]) -> Result<u16, OfError> {
    if allowed.contains(&v) { Ok(v) } else { Err(OfError::OFPBAC_BAD_ARGUMENT) }
}

/// Checks the TPID of `push_vlan`.
pub(super) fn vlan_ethertype(v: u16) -> Result<u16, OfError> {
    one_of(v, &ETHERTYPE_VLANS)
}

/// Checks the ethertype of `push_mpls`.
pub(super) fn mpls_ethertype(v: u16) -> Result<u16, OfError> {
    one_of(v, &ETHERTYPE_MPLS)
}

/// A port number of OpenFlow 1.1+: those that OpenFlow 1.0 has not are refused.
pub(super) fn port_from_u32(port: u32) -> Result<PortNo, OfError> {
    if !(PortNo::MAX.0..0xffff_ff00).contains(&port) {
        Ok(PortNo(port))
    } else {
        Err(OfError::OFPBAC_BAD_OUT_PORT)
    }
}

/// Checks that one can output to `port`.
pub(super) fn output_port(port: PortNo) -> Result<PortNo, OfError> {
    match port {
        PortNo::IN_PORT
        | PortNo::TABLE
        | PortNo::NORMAL
        | PortNo::FLOOD
        | PortNo::ALL
        | PortNo::CONTROLLER
        | PortNo::LOCAL => Ok(port),
        _ if port.0 < PortNo::MAX.0 => Ok(port),
        _ => Err(OfError::OFPBAC_BAD_OUT_PORT),
    }
}

/// Part of a field.
pub(super) fn subfield(field: Field, start: u16, bits: u16) -> Result<Subfield, OfError> {
    Subfield::new(field, start, bits).ok_or(OfError::OFPBAC_BAD_SET_LEN)
}

/// A subfield that may be written.
pub(super) fn writable(s: Subfield) -> Result<Subfield, OfError> {
    if s.field.writable() { Ok(s) } else { Err(OfError::OFPBAC_BAD_SET_ARGUMENT) }
}

/// A subfield from Nicira's 16-bit "offset and number of bits".
pub(super) fn ofs_nbits(field: Field, word: u16) -> Result<Subfield, OfError> {
    subfield(field, word >> 6, (word & 0x3f) + 1)
}

/// A field header as the older Nicira actions have it: always 32 bits, and a field that is not
/// known is a bad type to set.
pub(super) fn old_header(r: &mut Reader) -> Result<Field, OfError> {
    let word = r.bytes(4)?;
    let mut header = Reader::new(word, OfError::OFPBMC_BAD_FIELD);
    pull_header(&mut header).map_err(|_| OfError::OFPBAC_BAD_SET_TYPE)
}

/// The low `bits` bits.
pub(super) fn low_bits(value: FieldValue, bits: u16) -> FieldValue {
    value & ones(bits)
}
