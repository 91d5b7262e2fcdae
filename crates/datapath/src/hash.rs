// SPDX-License-Identifier: Apache-2.0
//! The packet hash of [`crate::Action::Hash`], the same in every datapath that computes it in
//! software, so that a select group spreads flows equally wherever they run.

use flow::Key;
use flow::extract::FRAG_ANY;
use packet::{ethertype, ip_proto};

/// One multiplication and fold: both halves of the product count.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product >> 64) as u64 ^ product as u64
}

fn mix_bytes(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(seed, |hash, chunk| {
        let word = chunk.iter().fold(0u64, |w, b| w << 8 | u64::from(*b));
        mix(hash, word)
    })
}

/// The 5-tuple hash of a packet: IP addresses, protocol and, for TCP, UDP and SCTP, ports; for other
/// packets the Ethernet addresses and type. `symmetric`: equal when source and destination change
/// places. Never 0, because a `dp_hash` of 0 means "none".
///
/// All fragments of one packet have the same hash: ports of fragments do not count, and in IPv6,
/// where later fragments hide it, nor does their protocol.
pub fn five_tuple(key: &Key, symmetric: bool, basis: u32) -> u32 {
    let is_fragment = key.nw_frag & FRAG_ANY != 0;
    let ports = matches!(key.nw_proto, 6 | 17 | 132) && !is_fragment;
    let proto = match key.dl_type.get() {
        ethertype::IPV6 if is_fragment => ip_proto::FRAGMENT,
        _ => key.nw_proto,
    };
    let port = |p: u16| if ports { p.to_be_bytes() } else { [0; 2] };
    let end =
        |address: &[u8], p: u16| mix(mix_bytes(1, address), u64::from(u16::from_be_bytes(port(p))));
    let (src, dst) = match key.dl_type.get() {
        0x0800 => (
            end(&key.nw_src.get().to_be_bytes(), key.tp_src.get()),
            end(&key.nw_dst.get().to_be_bytes(), key.tp_dst.get()),
        ),
        0x86dd => (end(&key.ipv6_src, key.tp_src.get()), end(&key.ipv6_dst, key.tp_dst.get())),
        _ => (end(&key.dl_src, 0), end(&key.dl_dst, 0)),
    };
    let ends = if symmetric { mix(src.min(dst), src.max(dst)) } else { mix(mix(src, 0), dst) };
    let rest = u64::from(key.dl_type.get()) << 8 | u64::from(proto);
    let hash = mix(mix(ends, rest), u64::from(basis));
    match (hash >> 32) as u32 ^ hash as u32 {
        0 => 1,
        hash => hash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(src: [u8; 4], dst: [u8; 4], ports: (u16, u16)) -> Key {
        let mut key = Key::ZERO;
        key.dl_type.set(0x800);
        key.nw_proto = 17;
        key.nw_src.set(u32::from_be_bytes(src));
        key.nw_dst.set(u32::from_be_bytes(dst));
        key.tp_src.set(ports.0);
        key.tp_dst.set(ports.1);
        key
    }

    #[test]
    fn the_symmetric_hash_is_equal_for_both_directions() {
        let there = udp([10, 0, 0, 1], [10, 0, 0, 2], (1000, 53));
        let back = udp([10, 0, 0, 2], [10, 0, 0, 1], (53, 1000));
        assert_eq!(five_tuple(&there, true, 7), five_tuple(&back, true, 7));
        assert_ne!(five_tuple(&there, false, 7), five_tuple(&back, false, 7));
        assert_ne!(five_tuple(&there, true, 7), five_tuple(&there, true, 8));
    }

    #[test]
    fn flows_spread_over_buckets() {
        let mut buckets = [0u32; 16];
        for i in 0..16_000u32 {
            let [_, _, a, b] = i.to_be_bytes();
            let key = udp([10, 0, a, b], [10, 1, 0, 1], (1000, 53));
            buckets[five_tuple(&key, false, 0) as usize % 16] += 1;
        }
        assert!(buckets.iter().all(|n| (850..1150).contains(n)), "{buckets:?}");
    }

    #[test]
    fn fragments_of_one_packet_hash_alike_without_ports() {
        for dl_type in [ethertype::IPV4, ethertype::IPV6] {
            let mut first = udp([1; 4], [2; 4], (1, 2));
            first.dl_type.set(dl_type);
            first.nw_frag = 1;
            let later = first.common_to_fragments();
            assert_eq!((later.nw_frag, later.tp_src.get()), (3, 0));
            assert_eq!(five_tuple(&first, false, 0), five_tuple(&later, false, 0));
            assert_eq!(five_tuple(&first, true, 9), five_tuple(&later, true, 9));
        }
    }
}
