// SPDX-License-Identifier: Apache-2.0
//! Group membership: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810), as a snooping switch reads
//! them (RFC 4541).
//!
//! A switch needs no more than the groups that hosts join and leave, and the presence of a router.
//! Sources of IGMPv3 and MLDv2 only decide whether a record is a leave. IPv4 groups are in the
//! mapped form `::ffff:a.b.c.d`.

use packet::checksum::{self, Sum};
use packet::ip_proto;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Types of IGMP messages (RFC 3376, 4; RFC 2236, 2.1).
pub mod igmp_type {
    /// A router asks for members.
    pub const QUERY: u8 = 0x11;
    /// Version 1: a host is a member.
    pub const V1_REPORT: u8 = 0x12;
    /// Version 2: a host is a member.
    pub const V2_REPORT: u8 = 0x16;
    /// Version 2: a host is no longer a member.
    pub const LEAVE: u8 = 0x17;
    /// Version 3: the memberships of a host, by group.
    pub const V3_REPORT: u8 = 0x22;
}

/// Types of ICMPv6 messages that are MLD (RFC 2710, 3; RFC 3810, 5).
pub mod mld_type {
    /// A router asks for members.
    pub const QUERY: u8 = 130;
    /// Version 1: a host is a member.
    pub const REPORT: u8 = 131;
    /// Version 1: a host is no longer a member.
    pub const DONE: u8 = 132;
    /// Version 2: the memberships of a host, by group.
    pub const V2_REPORT: u8 = 143;
}

/// Bytes of an IGMP header, all versions.
const IGMP_HEADER: usize = 8;
/// Bytes of an MLDv1 message; a version 2 report has a header of [`IGMP_HEADER`] bytes.
const MLD_MESSAGE: usize = 24;
/// Types of group records that name the sources that are listened to (RFC 3376, 4.2.12).
const IS_INCLUDE: u8 = 1;
const TO_INCLUDE: u8 = 3;
/// Highest known type of a group record.
const BLOCK_OLD_SOURCES: u8 = 6;

/// Protocol and version of a message by which a host joins a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupProtocol {
    /// RFC 1112.
    IgmpV1,
    /// RFC 2236.
    IgmpV2,
    /// RFC 3376.
    IgmpV3,
    /// RFC 2710.
    MldV1,
    /// RFC 3810.
    MldV2,
}

impl std::fmt::Display for GroupProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            GroupProtocol::IgmpV1 => "IGMPv1",
            GroupProtocol::IgmpV2 => "IGMPv2",
            GroupProtocol::IgmpV3 => "IGMPv3",
            GroupProtocol::MldV1 => "MLDv1",
            GroupProtocol::MldV2 => "MLDv2",
        })
    }
}

/// One consequence of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// A host listens to the group, and says so by this protocol.
    Join(Ipv6Addr, GroupProtocol),
    /// A host no longer listens to the group.
    Leave(Ipv6Addr),
    /// A router asks.
    Query,
}

/// Reason why a message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Fewer bytes than the header of the message.
    #[error("the message is cut off")]
    Short,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
}

/// Decodes an IGMP message: all bytes after the IPv4 header, without padding. A message of another
/// type has no consequences.
///
/// # Errors
/// The message is cut off, or its checksum is wrong.
pub fn decode_igmp(message: &[u8]) -> Result<Vec<Membership>, MembershipError> {
    let [kind, _, _, _, rest @ ..] = message else { return Err(MembershipError::Short) };
    if message.len() < IGMP_HEADER {
        return Err(MembershipError::Short);
    }
    if checksum::internet(message) != 0 {
        return Err(MembershipError::Checksum);
    }
    let group = |bytes: &[u8]| {
        let octets: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).to_ipv6_mapped())
    };
    Ok(match *kind {
        igmp_type::QUERY => vec![Membership::Query],
        igmp_type::V1_REPORT => joined(group(rest), GroupProtocol::IgmpV1),
        igmp_type::V2_REPORT => joined(group(rest), GroupProtocol::IgmpV2),
        igmp_type::LEAVE => group(rest).map(Membership::Leave).into_iter().collect(),
        igmp_type::V3_REPORT => records(message, 4, GroupProtocol::IgmpV3, &group),
        _ => Vec::new(),
    })
}

/// Decodes an MLD message: all bytes after the IPv6 header and its extensions, without padding.
/// `source` and `destination` are those of the IPv6 header. Another ICMPv6 message has no
/// consequences.
///
/// # Errors
/// The message is cut off, or its checksum is wrong.
pub fn decode_mld(
    message: &[u8],
    source: &[u8; 16],
    destination: &[u8; 16],
) -> Result<Vec<Membership>, MembershipError> {
    let kind = *message.first().ok_or(MembershipError::Short)?;
    let least = match kind {
        mld_type::QUERY | mld_type::REPORT | mld_type::DONE => MLD_MESSAGE,
        mld_type::V2_REPORT => IGMP_HEADER,
        _ => return Ok(Vec::new()),
    };
    if message.len() < least {
        return Err(MembershipError::Short);
    }
    let mut sum = Sum::default();
    sum.add(source);
    sum.add(destination);
    sum.add_u32(ip_proto::ICMPV6.into());
    sum.add_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    sum.add(message);
    if sum.finish() != 0 {
        return Err(MembershipError::Checksum);
    }
    let group = |bytes: &[u8]| {
        let octets: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets))
    };
    let first = || message.get(IGMP_HEADER..).and_then(group);
    Ok(match kind {
        mld_type::QUERY => vec![Membership::Query],
        mld_type::REPORT => joined(first(), GroupProtocol::MldV1),
        mld_type::DONE => first().map(Membership::Leave).into_iter().collect(),
        _ => records(message, 16, GroupProtocol::MldV2, &group),
    })
}

/// Returns the consequence of a report about one group.
fn joined(group: Option<Ipv6Addr>, protocol: GroupProtocol) -> Vec<Membership> {
    group.map(|group| Membership::Join(group, protocol)).into_iter().collect()
}

/// Returns the consequences of the group records of an IGMPv3 or MLDv2 report, whose addresses have
/// `octets` bytes. The layouts differ in nothing else (RFC 3376, 4.2; RFC 3810, 5.2). Records
/// after one that is cut off or has an unknown type are ignored.
fn records(
    message: &[u8],
    octets: usize,
    protocol: GroupProtocol,
    group: &dyn Fn(&[u8]) -> Option<Ipv6Addr>,
) -> Vec<Membership> {
    let mut out = Vec::new();
    let count = match message {
        [_, _, _, _, _, _, a, b, ..] => u16::from_be_bytes([*a, *b]),
        _ => 0,
    };
    let mut rest = message.get(IGMP_HEADER..).unwrap_or_default();
    for _ in 0..count {
        let [kind, aux_words, a, b, body @ ..] = rest else { break };
        let sources = usize::from(u16::from_be_bytes([*a, *b]));
        let Some(group) = group(body) else { break };
        if !(IS_INCLUDE..=BLOCK_OLD_SOURCES).contains(kind) {
            break;
        }
        let is_leave = sources == 0 && matches!(*kind, IS_INCLUDE | TO_INCLUDE);
        out.push(match is_leave {
            true => Membership::Leave(group),
            false => Membership::Join(group, protocol),
        });
        let len = octets * (1 + sources) + usize::from(*aux_words) * 4;
        rest = body.get(len..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(last: u8) -> Ipv6Addr {
        Ipv4Addr::new(224, 1, 1, last).to_ipv6_mapped()
    }

    /// Stores the right checksum.
    fn sealed(mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let sum = checksum::internet(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    }

    fn sealed6(mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let mut sum = Sum::default();
        sum.add(&[1; 16]);
        sum.add(&[2; 16]);
        sum.add_u32(58);
        sum.add_u32(message.len() as u32);
        sum.add(&message);
        let sum = sum.finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    }

    #[test]
    fn igmp_versions_one_and_two() {
        let of = |kind| decode_igmp(&sealed(vec![kind, 0, 0, 0, 224, 1, 1, 7]));
        assert_eq!(of(0x12), Ok(vec![Membership::Join(v4(7), GroupProtocol::IgmpV1)]));
        assert_eq!(of(0x16), Ok(vec![Membership::Join(v4(7), GroupProtocol::IgmpV2)]));
        assert_eq!(of(0x17), Ok(vec![Membership::Leave(v4(7))]));
        assert_eq!(of(0x11), Ok(vec![Membership::Query]));
        assert_eq!(of(0x13), Ok(vec![]), "DVMRP");
        assert_eq!(decode_igmp(&[0x16, 0, 0, 0, 224, 1, 1, 7]), Err(MembershipError::Checksum));
        assert_eq!(decode_igmp(&[0x16, 0, 0, 0, 224]), Err(MembershipError::Short));
    }

    fn record(kind: u8, aux: u8, sources: u16, group: &[u8], rest: usize) -> Vec<u8> {
        let mut out = vec![kind, aux];
        out.extend(sources.to_be_bytes());
        out.extend(group);
        out.extend(vec![9; rest]);
        out
    }

    #[test]
    fn igmp_version_three() {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 4];
        message.extend(record(4, 0, 0, &[224, 1, 1, 1], 0));
        message.extend(record(3, 0, 0, &[224, 1, 1, 2], 0));
        message.extend(record(1, 1, 2, &[224, 1, 1, 3], 12));
        message.extend(record(2, 0, 0, &[224, 1, 1, 4], 0));
        let want = [
            Membership::Join(v4(1), GroupProtocol::IgmpV3),
            Membership::Leave(v4(2)),
            Membership::Join(v4(3), GroupProtocol::IgmpV3),
            Membership::Join(v4(4), GroupProtocol::IgmpV3),
        ];
        assert_eq!(decode_igmp(&sealed(message.clone())), Ok(want.to_vec()));
        message.truncate(message.len() - 1);
        assert_eq!(decode_igmp(&sealed(message.clone())), Ok(want[..3].to_vec()));
        message[8] = 7; // an unknown type of record
        assert_eq!(decode_igmp(&sealed(message)), Ok(vec![]));
    }

    #[test]
    fn mld() {
        let group: [u8; 16] = "ff02:4::1".parse::<Ipv6Addr>().unwrap().octets();
        let of = |message: Vec<u8>| decode_mld(&sealed6(message), &[1; 16], &[2; 16]);
        let v1 = |kind| {
            let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            message.extend(group);
            message
        };
        let group6 = Ipv6Addr::from(group);
        assert_eq!(of(v1(131)), Ok(vec![Membership::Join(group6, GroupProtocol::MldV1)]));
        assert_eq!(of(v1(132)), Ok(vec![Membership::Leave(group6)]));
        assert_eq!(of(v1(130)), Ok(vec![Membership::Query]));
        assert_eq!(of(v1(135)), Ok(vec![]), "a neighbour solicitation");
        assert_eq!(decode_mld(&v1(131), &[1; 16], &[2; 16]), Err(MembershipError::Checksum));
        assert_eq!(of(vec![131, 0, 0, 0, 1]), Err(MembershipError::Short));
        let mut v2 = vec![143, 0, 0, 0, 0, 0, 0, 2];
        v2.extend(record(4, 0, 1, &group, 16));
        v2.extend(record(3, 0, 0, &group, 0));
        let join = Membership::Join(group6, GroupProtocol::MldV2);
        assert_eq!(of(v2), Ok(vec![join, Membership::Leave(group6)]));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>, kind in prop::sample::select(vec![0x11u8, 0x22, 130, 143])) {
            let mut bytes = bytes;
            bytes.insert(0, kind);
            let _ = decode_igmp(&bytes);
            let _ = decode_mld(&bytes, &[1; 16], &[2; 16]);
            if bytes.len() >= 8 {
                let most = bytes.len() / 8;
                let sealed4 = decode_igmp(&sealed(bytes.clone())).unwrap_or_default();
                prop_assert!(sealed4.len() <= most.max(1));
                let sealed6 = decode_mld(&sealed6(bytes), &[1; 16], &[2; 16]).unwrap_or_default();
                prop_assert!(sealed6.len() <= most.max(1));
            }
        }
    }
}
