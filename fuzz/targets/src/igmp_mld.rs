// SPDX-License-Identifier: Apache-2.0
//! IGMP and MLD messages, as received and with the right checksum.

use packet::checksum::Sum;
use packet::ip_proto;
use protocols::membership::{decode_igmp, decode_mld};

/// Address of the IPv6 headers.
const ADDRESS: [u8; 16] = [0xfe; 16];
/// Bytes of the smallest group record: a message has no more consequences than room for records.
const RECORD: usize = 8;

pub fn run(bytes: &[u8]) {
    let _ = decode_igmp(bytes);
    let _ = decode_mld(bytes, &ADDRESS, &ADDRESS);
    let most = 1 + bytes.len() / RECORD;
    let igmp = sealed(bytes, Sum::default());
    // An odd last byte counts as if a zero followed, so that the sum is right for any length.
    assert!(decode_igmp(&igmp).is_ok_and(|all| all.len() <= most) || bytes.len() < RECORD);
    let mut sum = Sum::default();
    sum.add(&ADDRESS);
    sum.add(&ADDRESS);
    sum.add_u32(ip_proto::ICMPV6.into());
    sum.add_u32(bytes.len() as u32);
    let mld = sealed(bytes, sum);
    assert!(decode_mld(&mld, &ADDRESS, &ADDRESS).map_or(0, |all| all.len()) <= most);
}

/// Returns the message with the right checksum over it and what `sum` has.
fn sealed(bytes: &[u8], mut sum: Sum) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if let Some(field) = out.get_mut(2..4) {
        field.fill(0);
    }
    sum.add(&out);
    let checksum = sum.finish().to_be_bytes();
    if let Some(field) = out.get_mut(2..4) {
        field.copy_from_slice(&checksum);
    }
    out
}

/// Messages of each version.
pub fn seeds() -> Vec<Vec<u8>> {
    let v4 = [224, 1, 2, 3];
    let v6 = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let head = |kind: u8, rest: &[u8]| [&[kind, 0, 0, 0], rest].concat();
    let record = |kind: u8, sources: u8, group: &[u8]| {
        let mut out = vec![kind, 0, 0, sources];
        out.extend(group);
        out.extend(vec![1; usize::from(sources) * group.len()]);
        out
    };
    let mut seeds: Vec<Vec<u8>> = [0x11, 0x12, 0x16, 0x17].map(|kind| head(kind, &v4)).to_vec();
    seeds.extend([130, 131, 132].map(|kind| head(kind, &[&[0; 4][..], &v6].concat())));
    for (kind, group) in [(0x22, &v4[..]), (143, &v6[..])] {
        let records = [&[0, 0, 0, 2][..], &record(4, 0, group), &record(1, 2, group)].concat();
        seeds.push(head(kind, &records));
    }
    seeds
}
