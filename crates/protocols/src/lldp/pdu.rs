// SPDX-License-Identifier: Apache-2.0
//! LLDP data units (IEEE 802.1AB-2016, clause 8) with the auto-attach elements of Avaya
//! (draft-unbehagen-lldp-spb-02).

use thiserror::Error;

/// Ethernet type of LLDP (IEEE 802.1AB-2016, 7.3).
pub const ETHERTYPE: u16 = 0x88cc;
/// Destination: the nearest bridge (IEEE 802.1AB-2016, table 7-1).
pub const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];

/// Longest text of a name, a description or an identifier, in bytes (IEEE 802.1AB-2016, 8.5).
pub const MOST_TEXT: usize = 255;
/// Longest value of a TLV, in bytes: its length has 9 bits.
const MOST_VALUE: usize = 511;
/// Most mappings in a data unit, so that it fits an Ethernet frame: two TLVs are full.
pub const MOST_MAPPINGS: usize = 2 * MAPPINGS_IN_TLV;

/// Types of TLVs (IEEE 802.1AB-2016, table 8-1).
mod tlv {
    pub(super) const END: u8 = 0;
    pub(super) const CHASSIS_ID: u8 = 1;
    pub(super) const PORT_ID: u8 = 2;
    pub(super) const TTL: u8 = 3;
    pub(super) const PORT_DESCRIPTION: u8 = 4;
    pub(super) const SYSTEM_NAME: u8 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u8 = 6;
    pub(super) const CAPABILITIES: u8 = 7;
    pub(super) const MANAGEMENT: u8 = 8;
    pub(super) const ORGANISATION: u8 = 127;
}

/// Identifier of the organisation that defined auto-attach, and its subtypes.
const AVAYA: [u8; 3] = [0x00, 0x04, 0x0d];
const ELEMENT: u8 = 11;
const ASSIGNMENTS: u8 = 12;
/// Bytes of the message authentication code in both TLVs. It is zero: no key is configured.
const DIGEST_LEN: usize = 32;
/// Bytes before the mappings: organisation, subtype, digest.
const MAPPINGS_AT: usize = 4 + DIGEST_LEN;
/// Bytes of a mapping.
const MAPPING_LEN: usize = 5;
const MAPPINGS_IN_TLV: usize = (MOST_VALUE - MAPPINGS_AT) / MAPPING_LEN;
/// Element type of a virtual switch that is a client.
const VIRTUAL_SWITCH: u16 = 14;

/// Subtypes of identifiers that are sent: a MAC address, an interface name (IEEE 802.1AB-2016,
/// tables 8-2 and 8-3).
const CHASSIS_MAC: u8 = 4;
const PORT_NAME: u8 = 5;
/// The capability "MAC bridge" (IEEE 802.1AB-2016, table 8-4).
const BRIDGE: u16 = 1 << 2;
/// Seconds for which the other end keeps what it has received.
const TTL_S: u16 = 120;

/// Longest management address with its family, in bytes (IEEE 802.1AB-2016, 8.5.9.2).
const MOST_ADDRESS: usize = 32;
/// Families of management addresses that are read, and the longest address of these, in bytes.
const FAMILIES: [u8; 2] = [1, 2];
const MOST_IP_ADDRESS: usize = 16;

/// A service instance and the VLAN that is mapped to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// Identifier of the service instance, 24 bits.
    pub isid: u32,
    /// VLAN, 12 bits.
    pub vlan: u16,
}

/// The system and port that a data unit announces.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Address of the system.
    pub mac: [u8; 6],
    /// Name of the port.
    pub port: &'a str,
    /// Name of the system; an empty one is not sent.
    pub system_name: &'a str,
    /// Description of the system; an empty one is not sent.
    pub system_description: &'a str,
    /// Mappings, of which the first [`MOST_MAPPINGS`] are sent.
    pub mappings: &'a [Mapping],
}

fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(len <= MOST_VALUE);
    out.extend((u16::from(kind) << 9 | len as u16 & 0x1ff).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Returns the beginning of a text that fits a TLV.
fn text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(MOST_TEXT)]
}

impl Announcement<'_> {
    /// Returns the data unit, without an Ethernet header.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        put(&mut out, tlv::CHASSIS_ID, &[&[CHASSIS_MAC], &self.mac]);
        put(&mut out, tlv::PORT_ID, &[&[PORT_NAME], text(self.port)]);
        put(&mut out, tlv::TTL, &[&TTL_S.to_be_bytes()]);
        for (kind, value) in [
            (tlv::SYSTEM_NAME, self.system_name),
            (tlv::SYSTEM_DESCRIPTION, self.system_description),
        ] {
            if !value.is_empty() {
                put(&mut out, kind, &[text(value)]);
            }
        }
        let bridge = BRIDGE.to_be_bytes();
        put(&mut out, tlv::CAPABILITIES, &[&bridge, &bridge]);
        let digest = [0; DIGEST_LEN];
        let element = (VIRTUAL_SWITCH << 10).to_be_bytes();
        // No state, no management VLAN, one connection.
        let rest: [&[u8]; 4] = [&element, &[0; 2], &self.mac, &[0; 4]];
        let head: [&[u8]; 3] = [&AVAYA, &[ELEMENT], &digest];
        put(&mut out, tlv::ORGANISATION, &[&head[..], &rest].concat());
        let sent = self.mappings.get(..MOST_MAPPINGS).unwrap_or(self.mappings);
        for mappings in sent.chunks(MAPPINGS_IN_TLV) {
            let bytes = |m: &Mapping| {
                let [v0, v1] = (m.vlan & 0xfff).to_be_bytes();
                let [_, i0, i1, i2] = m.isid.to_be_bytes();
                [v0, v1, i0, i1, i2]
            };
            let bytes: Vec<u8> = mappings.iter().flat_map(bytes).collect();
            put(&mut out, tlv::ORGANISATION, &[&AVAYA, &[ASSIGNMENTS], &digest, &bytes]);
        }
        put(&mut out, tlv::END, &[]);
        out
    }
}

/// An identifier of a system or of a port.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Id {
    /// Subtype: 1 to 7.
    pub subtype: u8,
    /// Value, at least one byte.
    pub value: Vec<u8>,
}

/// The element of auto-attach that the other end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Element {
    /// Kind of the element, 6 bits.
    pub kind: u8,
    /// VLAN of the management, 12 bits.
    pub management_vlan: u16,
    /// Address of the system.
    pub mac: [u8; 6],
    /// Kind of the connection, 3 bits.
    pub connection: u16,
    /// Reserved bits that follow it: 10 bits, and two bytes.
    pub reserved: (u16, [u8; 2]),
}

/// A mapping that the other end has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The mapping that was asked for.
    pub mapping: Mapping,
    /// Status, 4 bits.
    pub status: u8,
}

/// A received data unit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pdu {
    /// Identifier of the system.
    pub chassis: Id,
    /// Identifier of the port.
    pub port: Id,
    /// Seconds for which the data unit holds; 0 when the other end shuts down.
    pub ttl: u16,
    /// Description of the system.
    pub description: Option<String>,
    /// Element of auto-attach.
    pub element: Option<Element>,
    /// Mappings of auto-attach.
    pub assignments: Vec<Assignment>,
}

/// The reason why bytes are no data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PduError {
    /// The bytes end within a TLV.
    #[error("frame too short for tlv")]
    Short,
    /// A mandatory TLV is not in its place, or is there twice.
    #[error("mandatory tlv {0} is not in its place")]
    Order(u8),
    /// The value of a TLV has a wrong length, or makes no sense.
    #[error("malformed tlv {0}")]
    Value(u8),
    /// The value of a TLV of auto-attach, with this name, has a wrong length.
    #[error("{0} TLV too short")]
    AutoAttach(&'static str),
    /// A TLV of a reserved type.
    #[error("unknown tlv ({0})")]
    Unknown(u8),
    /// A mandatory TLV or the end is missing.
    #[error("some mandatory tlv are missing")]
    Missing,
}

/// Reads a data unit, which begins after the Ethernet header. Returns it with the number of TLVs that
/// are not understood, which an error does not make less.
pub fn decode(bytes: &[u8]) -> (Result<Pdu, PduError>, u64) {
    let mut unrecognized = 0;
    (read(bytes, &mut unrecognized), unrecognized)
}

fn read(mut bytes: &[u8], unrecognized: &mut u64) -> Result<Pdu, PduError> {
    let mut pdu = Pdu::default();
    let mut count = 0;
    let mut has_ttl = false;
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let head = u16::from_be_bytes(*head);
        let (kind, len) = ((head >> 9) as u8, usize::from(head & 0x1ff));
        let (value, rest) = rest.split_at_checked(len).ok_or(PduError::Short)?;
        bytes = rest;
        count += 1;
        let place = matches!(kind, tlv::CHASSIS_ID | tlv::PORT_ID | tlv::TTL).then_some(kind);
        if place.is_some_and(|place| count != usize::from(place)) {
            return Err(PduError::Order(kind));
        }
        let malformed = PduError::Value(kind);
        match kind {
            tlv::END if !value.is_empty() => return Err(malformed),
            tlv::END => {
                let is_whole = !pdu.chassis.value.is_empty() && !pdu.port.value.is_empty();
                return if is_whole && has_ttl { Ok(pdu) } else { Err(PduError::Missing) };
            }
            tlv::CHASSIS_ID => pdu.chassis = id(value).ok_or(malformed)?,
            tlv::PORT_ID => pdu.port = id(value).ok_or(malformed)?,
            tlv::TTL => {
                pdu.ttl = u16::from_be_bytes(*value.first_chunk().ok_or(malformed)?);
                has_ttl = true;
            }
            tlv::SYSTEM_DESCRIPTION if !value.is_empty() => pdu.description = Some(readable(value)),
            tlv::PORT_DESCRIPTION | tlv::SYSTEM_NAME | tlv::SYSTEM_DESCRIPTION => {}
            tlv::CAPABILITIES if value.len() < 4 => return Err(malformed),
            tlv::CAPABILITIES => {}
            tlv::MANAGEMENT => management(value).ok_or(malformed)?,
            tlv::ORGANISATION => {
                let (head, value) = value.split_first_chunk::<4>().ok_or(malformed)?;
                let (organisation, subtype) = ([head[0], head[1], head[2]], head[3]);
                match (organisation, subtype) {
                    (AVAYA, ELEMENT) => {
                        let error = PduError::AutoAttach("ELEMENT");
                        pdu.element = Some(element(value).ok_or(error)?);
                    }
                    (AVAYA, ASSIGNMENTS) => {
                        let error = PduError::AutoAttach("ISID_VLAN_ASGNS");
                        pdu.assignments.extend(assignments(value).ok_or(error)?);
                    }
                    _ => *unrecognized += 1,
                }
            }
            _ => {
                *unrecognized += 1;
                return Err(PduError::Unknown(kind));
            }
        }
    }
    Err(if bytes.is_empty() { PduError::Missing } else { PduError::Short })
}

fn id(value: &[u8]) -> Option<Id> {
    let (subtype, value) = value.split_first()?;
    let is_good = (1..=7).contains(subtype) && (1..=MOST_TEXT).contains(&value.len());
    is_good.then(|| Id { subtype: *subtype, value: value.to_vec() })
}

/// Returns a text up to its first zero byte. Bytes that would act on a terminal are replaced.
fn readable(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let text = String::from_utf8_lossy(&value[..end]);
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.chars().map(|c| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Checks a management address, which is not used.
fn management(value: &[u8]) -> Option<()> {
    let (len, rest) = value.split_first()?;
    let len = usize::from(*len);
    let (address, interface) = rest.split_at_checked(len)?;
    let is_ip = address.first().is_some_and(|family| FAMILIES.contains(family));
    let is_good = len <= MOST_ADDRESS
        && interface.len() >= 5 // subtype and number of an interface
        && !(is_ip && len > 1 + MOST_IP_ADDRESS);
    is_good.then_some(())
}

fn element(value: &[u8]) -> Option<Element> {
    let (_, value) = value.split_at_checked(DIGEST_LEN)?;
    let [w0, w1, w2, _, m0, m1, m2, m3, m4, m5, c0, c1, r0, r1] = *value.first_chunk::<14>()?;
    let connection = u16::from_be_bytes([c0, c1]);
    Some(Element {
        kind: w0 >> 2,
        management_vlan: u16::from_be_bytes([w1 & 0x0f, w2]),
        mac: [m0, m1, m2, m3, m4, m5],
        connection: connection >> 13,
        reserved: (connection & 0x3ff, [r0, r1]),
    })
}

fn assignments(value: &[u8]) -> Option<impl Iterator<Item = Assignment>> {
    let (_, mappings) = value.split_at_checked(DIGEST_LEN)?;
    let (mappings, []) = mappings.as_chunks::<MAPPING_LEN>() else { return None };
    Some(mappings.iter().map(|[v0, v1, i0, i1, i2]| {
        let word = u16::from_be_bytes([*v0, *v1]);
        let isid = u32::from_be_bytes([0, *i0, *i1, *i2]);
        Assignment {
            mapping: Mapping { isid, vlan: word & 0xfff },
            status: (word >> 12) as u8, // 4 bits
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(mappings: &[Mapping]) -> Vec<u8> {
        Announcement {
            mac: [2, 0, 0, 0, 0, 9],
            port: "p1",
            system_name: "sw",
            system_description: "a switch",
            mappings,
        }
        .encode()
    }

    const MAPPING: Mapping = Mapping { isid: 0x0a_0b0c, vlan: 0x123 };

    #[test]
    fn tlvs_have_their_places() {
        let bytes = announcement(&[MAPPING]);
        let (fixed, rest) = bytes.split_at(19);
        assert_eq!(fixed, [2, 7, 4, 2, 0, 0, 0, 0, 9, 4, 3, 5, b'p', b'1', 6, 2, 0, 120, 10]);
        let (texts, rest) = rest.split_at(19);
        assert_eq!(texts, [&[2][..], b"sw", &[12, 8], b"a switch", &[14, 4, 0, 4, 0, 4]].concat());
        let (element, rest) = rest.split_at(52);
        assert_eq!(element[..6], [254, 50, 0, 4, 13, 11]);
        assert_eq!(element[6..38], [0; 32]);
        assert_eq!(element[38..], [0x38, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0]);
        assert_eq!(rest[..6], [254, 41, 0, 4, 13, 12]);
        assert_eq!(rest[38..], [1, 0x23, 0x0a, 0x0b, 0x0c, 0, 0]);
    }

    #[test]
    fn an_announcement_is_read() {
        let (pdu, unrecognized) = decode(&announcement(&[MAPPING]));
        let pdu = pdu.expect("it is well-formed");
        assert_eq!(unrecognized, 0);
        assert_eq!((pdu.chassis.subtype, &*pdu.chassis.value), (4, &[2, 0, 0, 0, 0, 9][..]));
        assert_eq!((pdu.port.subtype, &*pdu.port.value, pdu.ttl), (5, &b"p1"[..], 120));
        assert_eq!(pdu.description.as_deref(), Some("a switch"));
        let element = pdu.element.expect("it has one");
        assert_eq!((element.kind, element.mac), (14, [2, 0, 0, 0, 0, 9]));
        assert_eq!(pdu.assignments, [Assignment { mapping: MAPPING, status: 0 }]);
    }

    #[test]
    fn a_cut_one_is_none() {
        let bytes = announcement(&[MAPPING]);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).0.is_err(), "{len}");
        }
        assert!(decode(&[&bytes[..], &[0; 20]].concat()).0.is_ok(), "padding");
    }

    #[test]
    fn many_mappings_have_several_tlvs() {
        let all: Vec<Mapping> = (1..=250).map(|n| Mapping { isid: n.into(), vlan: n }).collect();
        let bytes = announcement(&all);
        assert!(bytes.len() <= 1500);
        let read = decode(&bytes).0.expect("it is well-formed").assignments;
        assert_eq!(read.len(), MOST_MAPPINGS);
        assert!(read.iter().map(|read| read.mapping).eq(all.into_iter().take(MOST_MAPPINGS)));
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "ä".repeat(200);
        let bytes = Announcement {
            mac: [2; 6],
            port: &long,
            system_name: "",
            system_description: &long,
            mappings: &[],
        }
        .encode();
        let pdu = decode(&bytes).0.expect("it is well-formed");
        assert_eq!((pdu.port.value.len(), pdu.description), (254, Some("ä".repeat(127))));
    }

    #[test]
    fn order_and_values_are_checked() {
        let chassis: &[u8] = &[2, 2, 4, 1];
        let port: &[u8] = &[4, 2, 5, b'p'];
        let ttl: &[u8] = &[6, 2, 0, 120];
        let of = |tlvs: &[&[u8]]| decode(&tlvs.concat());
        let end: &[u8] = &[0, 0];
        assert!(of(&[chassis, port, ttl, end]).0.is_ok());
        for (tlvs, error) in [
            (&[port, chassis, ttl, end][..], PduError::Order(2)),
            (&[chassis, port, end], PduError::Missing),
            (&[chassis, port, ttl], PduError::Missing),
            (&[chassis, port, ttl, &[0]], PduError::Short),
            (&[chassis, port, ttl, ttl, end], PduError::Order(3)),
            (&[&[2, 1, 4], port, ttl, end], PduError::Value(1)),
            (&[&[2, 2, 8, 1], port, ttl, end], PduError::Value(1)),
            (&[chassis, port, ttl, &[14, 1, 0], end], PduError::Value(7)),
            (&[chassis, port, ttl, &[16, 2, 33, 0], end], PduError::Value(8)),
            (&[chassis, port, ttl, &[254, 3, 0, 4, 13], end], PduError::Value(127)),
            (&[chassis, port, ttl, &[254, 4, 0, 4, 13, 11], end], PduError::AutoAttach("ELEMENT")),
            (
                &[chassis, port, ttl, &[254, 37, 0, 4, 13, 12], &[0; 33], end],
                PduError::AutoAttach("ISID_VLAN_ASGNS"),
            ),
            (&[chassis, port, ttl, &[0, 1, 0]], PduError::Value(0)),
        ] {
            assert_eq!(of(tlvs), (Err(error), 0), "{tlvs:?}");
        }
        let (pdu, unrecognized) = of(&[chassis, port, ttl, &[254, 4, 0, 0x12, 0x0f, 1], end]);
        assert_eq!((pdu.is_ok(), unrecognized), (true, 1));
        let reserved = of(&[chassis, port, ttl, &[18, 0], end]);
        assert_eq!(reserved, (Err(PduError::Unknown(9)), 1));
    }

    #[test]
    fn texts_of_others_do_not_act_on_a_terminal() {
        assert_eq!(readable(b"a\x1b[2Jb\nc\0d"), "a\u{fffd}[2Jb\nc");
    }
}
