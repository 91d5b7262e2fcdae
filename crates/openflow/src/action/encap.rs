// SPDX-License-Identifier: Apache-2.0
//! `encap` and `decap`: values, and their bytes after the subtype (ovs-actions(7), "Encapsulation,
//! Decapsulation"; OpenFlow extensions EXT-382).

use crate::OfError;
use crate::wire::{Put, Reader};
use flow::NAMESPACE_ETHERTYPE;
use packet::ethertype;

/// The packet type of `decap()`: the header that is taken off names the one that follows.
pub const USE_NEXT_PROTOCOL: u32 = 0xfffe;

/// OFPPPC_NSH: the class of the properties of NSH.
const CLASS_NSH: u16 = 4;
/// Type of [`EncapProperty::MetadataType`] in that class.
const METADATA_TYPE: u8 = 1;
/// Type of [`EncapProperty::Tlv`] in that class.
const TLV: u8 = 2;
/// Bytes of a property without the value of a [`EncapProperty::Tlv`].
const PROPERTY_BYTES: usize = 8;

/// The header that [`Encap`] puts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncapHeader {
    /// `ethernet`, on a packet without an Ethernet header.
    Ethernet,
    /// `nsh`.
    Nsh,
    /// `mpls`: in front of the Ethernet header.
    Mpls,
    /// `mpls_mc`: as `mpls`, with the Ethernet type of multicast.
    MplsMulticast,
}

impl EncapHeader {
    /// All of them.
    pub const ALL: [EncapHeader; 4] =
        [EncapHeader::Ethernet, EncapHeader::Nsh, EncapHeader::Mpls, EncapHeader::MplsMulticast];

    /// Returns the name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            EncapHeader::Ethernet => "ethernet",
            EncapHeader::Nsh => "nsh",
            EncapHeader::Mpls => "mpls",
            EncapHeader::MplsMulticast => "mpls_mc",
        }
    }

    /// Returns the type of a packet with this header: namespace in the upper half, type in the lower.
    pub const fn packet_type(self) -> u32 {
        match self.ethertype() {
            None => 0,
            Some(ethertype) => NAMESPACE_ETHERTYPE << 16 | ethertype as u32,
        }
    }

    /// Returns the Ethernet type that names the header; `None` for the Ethernet header.
    pub const fn ethertype(self) -> Option<u16> {
        match self {
            EncapHeader::Ethernet => None,
            EncapHeader::Nsh => Some(ethertype::NSH),
            EncapHeader::Mpls => Some(ethertype::MPLS),
            EncapHeader::MplsMulticast => Some(ethertype::MPLS_MULTICAST),
        }
    }
}

/// `encap(HEADER(PROPERTIES))`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encap {
    /// The header.
    pub header: EncapHeader,
    /// Its size in bytes as the controller gave it; 0 is none. It has no effect.
    pub header_bytes: u16,
    /// Properties of the header.
    pub properties: Vec<EncapProperty>,
}

/// A property of [`Encap`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EncapProperty {
    /// `md_type=TYPE` of NSH.
    MetadataType(u8),
    /// `tlv(CLASS,TYPE,0xVALUE)` of NSH.
    Tlv {
        /// Class of the metadata.
        class: u16,
        /// Type of the metadata.
        kind: u8,
        /// The metadata, at most 255 bytes.
        value: Vec<u8>,
    },
}

/// Reads an `encap`, from the size of the header on.
pub(super) fn decode(r: &mut Reader) -> Result<Encap, OfError> {
    let (header_bytes, packet_type) = (r.u16()?, r.u32()?);
    let header = EncapHeader::ALL.into_iter().find(|h| h.packet_type() == packet_type);
    let header = header.ok_or(OfError::NXBAC_BAD_HEADER_TYPE)?;
    let mut properties = Vec::new();
    while !r.is_empty() {
        properties.push(property(r)?);
    }
    Ok(Encap { header, header_bytes, properties })
}

fn property(r: &mut Reader) -> Result<EncapProperty, OfError> {
    let (class, kind, len) = (r.u16()?, r.u8()?, usize::from(r.u8()?));
    let padded = len.next_multiple_of(8).checked_sub(4).filter(|_| len >= 4);
    let value = r.bytes(padded.ok_or(OfError::OFPBAC_BAD_LEN)?)?;
    let mut value = Reader::new(value, OfError::NXBAC_BAD_ED_PROP);
    match (class, kind) {
        (CLASS_NSH, METADATA_TYPE) if len <= PROPERTY_BYTES => {
            Ok(EncapProperty::MetadataType(value.u8()?))
        }
        (CLASS_NSH, TLV) => {
            let (class, kind, bytes) = (value.u16()?, value.u8()?, usize::from(value.u8()?));
            if len != PROPERTY_BYTES + bytes.next_multiple_of(8) {
                return Err(OfError::NXBAC_BAD_ED_PROP);
            }
            Ok(EncapProperty::Tlv { class, kind, value: value.bytes(bytes)?.to_vec() })
        }
        (CLASS_NSH, METADATA_TYPE) => Err(OfError::NXBAC_BAD_ED_PROP),
        _ => Err(OfError::NXBAC_UNKNOWN_ED_PROP),
    }
}

/// Writes an `encap`, from the size of the header on.
pub(super) fn encode(encap: &Encap, out: &mut Vec<u8>) {
    out.put_u16(encap.header_bytes);
    out.put_u32(encap.header.packet_type());
    for property in &encap.properties {
        out.put_u16(CLASS_NSH);
        match property {
            EncapProperty::MetadataType(md_type) => {
                out.put_u8(METADATA_TYPE);
                out.put_u8(5); // without padding
                out.put_u8(*md_type);
                out.put_zeros(3);
            }
            EncapProperty::Tlv { class, kind, value } => {
                let padded = value.len().next_multiple_of(8);
                out.put_u8(TLV);
                // A value of more than 240 bytes has no length here; no text and no message has one.
                out.put_u8(u8::try_from(PROPERTY_BYTES + padded).unwrap_or(u8::MAX));
                out.put_u16(*class);
                out.put_u8(*kind);
                out.put_u8(u8::try_from(value.len()).unwrap_or(u8::MAX));
                out.extend_from_slice(value);
                out.put_zeros(padded - value.len());
            }
        }
    }
}

/// Reads the packet type of a `decap`, after the subtype.
pub(super) fn decode_decap(r: &mut Reader) -> Result<u32, OfError> {
    r.skip(2)?;
    let packet_type = r.u32()?;
    if r.is_empty() { Ok(packet_type) } else { Err(OfError::NXBAC_UNKNOWN_ED_PROP) }
}
