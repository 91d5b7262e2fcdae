// SPDX-License-Identifier: Apache-2.0
//! Attributes against what they were made of.

use crate::actions::{self, Upcalls};
use crate::keys::{self, Fitness};
use conntrack::{Commit, Helper, Manip, Nat, NatRange, Request, Selection};
use datapath::{Action, Masked, PortNo, Set, Userdata};
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::{Field, Key, Mask, Match, VLAN_CFI};

/// A packet of few different values.
fn packet(rng: &mut fastrand::Rng) -> Key {
    let mut key = Key::default();
    let byte = |rng: &mut fastrand::Rng| rng.choice([1, 2, 3]).unwrap_or(1);
    key.dl_dst = [2, 0, 0, 0, 0, byte(rng)];
    key.dl_src = [2, 0, 0, 0, 1, byte(rng)];
    for tag in key.vlans.iter_mut().take(rng.usize(..=2)) {
        tag.tpid = rng.choice([0x8100, 0x88a8]).unwrap_or(0x8100).into();
        tag.tci = (VLAN_CFI | u16::from(byte(rng)) << 13 | u16::from(byte(rng))).into();
    }
    let types = [0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8847, 0x1234];
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
    let frame = flow::compose(&key, &flow::PAYLOAD);
    let mut key = flow::extract::key_of(frame.data(), 7);
    key.recirc_id = rng.u32(..2).into();
    key.ct_state = rng.choice([0, 0x21]).unwrap_or(0);
    key.ct_zone = rng.u16(..2).into();
    key.skb_priority = rng.u32(..2).into();
    key
}

/// A match on some fields of a packet.
fn some_match(packet: &Key, rng: &mut fastrand::Rng) -> Match {
    let whole = datapath::exact_mask(packet);
    let mut mask = Mask::WILDCARD;
    for field in Field::ALL {
        if rng.u8(..2) == 0 {
            mask.set_exact(field);
        }
    }
    mask.words_mut().iter_mut().zip(whole.words()).for_each(|(bits, all)| *bits &= all);
    for field in [Field::InPortOxm, Field::RecircId, Field::PacketType, Field::EthType] {
        mask.set_exact(field);
    }
    if rng.bool() {
        mask.0.vlans = whole.0.vlans;
    }
    Match::new(packet, &mask)
}

/// What the kernel's megaflow matches is within ours, and the packet is in it.
#[test]
fn the_kernel_matches_no_more_than_the_megaflow() {
    let mut rng = fastrand::Rng::with_seed(39);
    let (mut flows, mut others) = (0, 0);
    for _ in 0..20_000 {
        let of_flow = packet(&mut rng);
        let matching = some_match(&of_flow, &mut rng);
        let Ok(encoded) = keys::encode(&matching) else { continue };
        flows += 1;
        let kernel = keys::decode_match(&encoded.key, &encoded.mask).unwrap();
        let has_tag = |key: &Key| key.vlans.iter().any(|tag| tag.tci.get() != 0);
        let asks_for_tag = has_tag(&matching.mask().0);
        assert!(
            kernel.matches(&of_flow) || has_tag(&of_flow) && !asks_for_tag,
            "{of_flow:?}\n{matching:?}\n{kernel:?}"
        );
        for _ in 0..20 {
            let mut other = of_flow;
            let bits = packet(&mut rng);
            for (word, other) in other.words_mut().iter_mut().zip(bits.words()) {
                if rng.u8(..8) == 0 {
                    *word = *other;
                }
            }
            others += u32::from(kernel.matches(&other));
            assert!(
                !kernel.matches(&other) || matching.matches(&other),
                "{matching:?}\n{kernel:?}"
            );
        }
    }
    assert!(flows > 2_000 && others > 1_000, "{flows} flows, {others} other packets");
}

#[test]
fn keys_of_packets_are_read_back() {
    let mut rng = fastrand::Rng::with_seed(40);
    for _ in 0..5_000 {
        let packet = packet(&mut rng);
        let exact = Match::new(&packet, &datapath::exact_mask(&packet));
        let Ok(encoded) = keys::encode(&exact) else { continue };
        assert_eq!(keys::decode(&encoded.key), Some((*exact.key(), Fitness::Perfect)));
    }
}

#[test]
fn attributes_that_nobody_knows_make_a_key_unfit() {
    let mut bytes = Vec::new();
    netlink::attribute::put(&mut bytes, 3, &7u32.to_ne_bytes());
    netlink::attribute::put(&mut bytes, 40, &[1; 8]);
    let (key, fitness) = keys::decode(&bytes).unwrap();
    assert_eq!((key.in_port.get(), fitness), (7, Fitness::TooMuch));
    assert_eq!(keys::decode(&bytes[..6]).map(|(key, _)| key.in_port.get()), Some(0));
}

struct Numbers;

impl Upcalls for Numbers {
    fn pid(&self) -> u32 {
        99
    }

    fn cookie(&self, _: &Userdata) -> Vec<u8> {
        vec![1; 48]
    }

    fn userdata(&self, cookie: &[u8]) -> Option<Userdata> {
        (cookie == [1; 48]).then_some(Userdata::SlowPath { reason: "controller" })
    }
}

fn actions() -> Vec<Action> {
    fn masked<T>(value: T, mask: T) -> Masked<T> {
        Masked { value, mask }
    }
    let request = Request {
        zone: 7,
        commit: Commit::Force,
        mark: Some((1, 3)),
        label: Some((1 << 100, u128::MAX)),
        nat: Some(Nat::Range(NatRange {
            manip: Manip::Src,
            addresses: Some(([10, 0, 0, 1].into(), [10, 0, 0, 9].into())),
            ports: Some((1000, 2000)),
            selection: Selection::Random,
            persistent: true,
        })),
        helper: Some(Helper::Ftp),
        policy: 0,
    };
    vec![
        Action::Output(PortNo(3)),
        Action::Userspace(Userdata::SlowPath { reason: "controller" }),
        Action::Recirc(5),
        Action::Hash { symmetric: false, basis: 9 },
        Action::Trunc(100),
        Action::PushVlan { tpid: 0x88a8, tci: 0x3005 },
        Action::PopVlan,
        Action::PushMpls { lse: 0x1234_5140, ethertype: 0x8847 },
        Action::PopMpls { ethertype: 0x0800 },
        Action::Set(Set::Ethernet { src: masked([1; 6], [0xff; 6]), dst: Masked::default() }),
        Action::Set(Set::Ipv4 {
            src: masked([10, 0, 0, 1], [0xff; 4]),
            dst: Masked::default(),
            tos: masked(4, 0xfc),
            ttl: masked(63, 0xff),
        }),
        Action::Set(Set::Ipv6 {
            src: Masked::default(),
            dst: masked([3; 16], [0xff; 16]),
            label: masked(5, 0xf_ffff),
            tclass: masked(4, 0xfc),
            hlimit: masked(63, 0xff),
        }),
        Action::Set(Set::Udp { src: masked(53, 0xffff), dst: Masked::default() }),
        Action::Set(Set::Mpls(masked(0x100, 0xfff))),
        Action::Set(Set::Priority(4)),
        Action::Set(Set::Mark(masked(1, 3))),
        Action::Sample { probability: 1 << 31, actions: vec![Action::Output(PortNo(1))] },
        Action::Clone(vec![Action::PopVlan, Action::Output(PortNo(1))]),
        Action::Meter(1),
        Action::CheckPktLen {
            len: 1500,
            greater: vec![Action::Trunc(64), Action::Output(PortNo(2))],
            not_greater: vec![],
        },
        Action::Ct(Box::new(request)),
        Action::Ct(Box::new(Request { nat: Some(Nat::Existing), ..Request::default() })),
        Action::CtClear,
    ]
}

#[test]
fn actions_are_read_back() {
    let actions = actions();
    let bytes = actions::encode(&actions, &Numbers).unwrap();
    assert_eq!(actions::decode(&bytes, &Numbers), Some(actions));
}

#[test]
fn attributes_of_any_bytes_are_read_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(41);
    let actions = actions::encode(&actions(), &Numbers).unwrap();
    for _ in 0..20_000 {
        let packet = packet(&mut rng);
        let matching = some_match(&packet, &mut rng);
        let Ok(encoded) = keys::encode(&matching) else { continue };
        let mut parts = [encoded.key, encoded.mask, actions.clone()];
        for bytes in &mut parts {
            bytes.truncate(rng.usize(..=bytes.len()));
            for _ in 0..rng.usize(..4) {
                if let Some(byte) = rng.choice(bytes.iter_mut()) {
                    *byte = rng.u8(..);
                }
            }
        }
        let [key, mask, actions] = parts;
        keys::decode_match(&key, &mask);
        actions::decode(&actions, &Numbers);
    }
}
