// SPDX-License-Identifier: Apache-2.0
//! Random packets, for the unit tests and for the tests with the kernel.

use flow::extract::{FRAG_ANY, FRAG_LATER, extract_layer3};
use flow::{Key, VLAN_CFI};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// A packet of few different values, with at most `most_tags` VLAN headers.
pub fn random_packet(rng: &mut fastrand::Rng, most_tags: usize, in_port: u32) -> Key {
    let mut key = Key::default();
    let byte = |rng: &mut fastrand::Rng| rng.choice([1, 2, 3]).unwrap_or(1);
    key.dl_dst = [2, 0, 0, 0, 0, byte(rng)];
    key.dl_src = [2, 0, 0, 0, 1, byte(rng)];
    for tag in key.vlans.iter_mut().take(rng.usize(..=most_tags)) {
        tag.tpid = rng.choice([0x8100, 0x88a8]).unwrap_or(0x8100).into();
        tag.tci = (VLAN_CFI | u16::from(byte(rng)) << 13 | u16::from(byte(rng))).into();
    }
    let types = [0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8847, 0x894f, 0x1234];
    key.dl_type = rng.choice(types).unwrap_or(0x0800).into();
    key.nw_src = u32::from(byte(rng)).into();
    key.nw_dst = u32::from(byte(rng)).into();
    key.ipv6_src[15] = byte(rng);
    key.ipv6_dst[15] = byte(rng);
    key.nw_proto = rng.choice([1, 6, 17, 58, 132]).unwrap_or(6);
    key.nw_tos = byte(rng);
    key.nw_ttl = byte(rng);
    key.nw_frag = rng.choice([0, 0, FRAG_ANY, FRAG_ANY | FRAG_LATER]).unwrap_or(0);
    key.tp_src = rng.choice([1, 2, 135, 136]).unwrap_or(1u16).into();
    key.tp_dst = u16::from(byte(rng)).into();
    key.tcp_flags = u16::from(byte(rng)).into();
    key.arp_sha = [2, 0, 0, 0, 2, byte(rng)];
    key.arp_tha = [2, 0, 0, 0, 3, byte(rng)];
    key.nd_target[15] = byte(rng);
    key.mpls[0] = (0x1100 | u32::from(byte(rng)) << 12).into();
    (key.nsh.flags, key.nsh.ttl) = (byte(rng), byte(rng));
    (key.nsh.mdtype, key.nsh.np) = (1 + byte(rng) % 2, byte(rng));
    key.nsh.path = u32::from(byte(rng)).into();
    key.nsh.context = [0; 4].map(|_: u32| u32::from(byte(rng)).into());
    let frame = flow::compose(&key, &flow::PAYLOAD);
    let is_tagged = key.vlans[0].tci.get() != 0;
    let mut key = match frame.data().get(HEADER..) {
        // Without its Ethernet header.
        Some(packet) if !is_tagged && rng.u8(..8) == 0 => {
            extract_layer3(packet, in_port, key.dl_type.get()).0
        }
        _ => flow::extract::key_of(frame.data(), in_port),
    };
    key.recirc_id = rng.u32(..2).into();
    key
}

/// Returns the bytes of a packet with this key.
#[allow(dead_code, reason = "the tests with the kernel have no need of it")]
pub fn bytes_of(key: &Key) -> Vec<u8> {
    let frame = flow::compose(key, &flow::PAYLOAD);
    let start = if key.packet_type.get() == 0 { 0 } else { HEADER };
    frame.data().get(start..).unwrap_or_default().to_vec()
}
