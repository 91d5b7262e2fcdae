// SPDX-License-Identifier: Apache-2.0
//! Attributes against what they were made of.

use crate::family::Body;
use crate::flow_message::{decode_ufid, encode_ufid};
use crate::keys::{self, Fitness};
use crate::{Numbering, actions, cookie, flow_message, instance, meter, packet_message};
use conntrack::{Commit, Helper, Manip, Nat, NatRange, Request, Selection};
use datapath::{
    Action, Masked, PortNo, PushedNsh, Refusal, SampleDirection, SampleOrigin, Set, Ufid, Userdata,
};
use flow::{Field, Key, Mask, Match};
use random::{bytes_of, random_packet};

#[path = "../tests/support/packet.rs"]
mod random;

/// A packet of few different values, perhaps a tracked one.
fn packet(rng: &mut fastrand::Rng) -> Key {
    let mut key = random_packet(rng, 2, 7);
    key.ct_state = rng.choice([0, 0x21]).unwrap_or(0);
    key.ct_zone = rng.u16(..2).into();
    key.skb_priority = rng.u32(..2).into();
    key
}

/// False for a key that no packet has: contexts of NSH without their metadata type, or headers in front
/// of a packet that begins without Ethernet.
fn is_possible(key: &Key) -> bool {
    let has_context = key.nsh.context != flow::Nsh::default().context;
    let is_frame = key.packet_type.get() == 0;
    let link = (key.dl_src, key.dl_dst, key.vlans) == Default::default()
        && key.packet_type.get() as u16 == key.dl_type.get();
    (is_frame || link) && (key.nsh.mdtype == 1 || !has_context)
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
    if rng.u8(..4) != 0 {
        mask = Numbering::with_tags(packet, &mask);
    }
    Match::new(packet, &mask)
}

/// The kernel's megaflow matches packets of ours alone, and among them the one that it was made for.
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
        assert!(kernel.matches(&of_flow), "{of_flow:?}\n{matching:?}\n{kernel:?}");
        for _ in 0..20 {
            let mut other = of_flow;
            let bits = packet(&mut rng);
            for (word, other) in other.words_mut().iter_mut().zip(bits.words()) {
                if rng.u8(..8) == 0 {
                    *word = *other;
                }
            }
            if !is_possible(&other) {
                continue;
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
        let mut expected = *exact.key();
        if expected.packet_type.get() != 0 {
            expected.dl_type = packet.dl_type; // which the packet type has
        }
        assert_eq!(keys::decode(&encoded.key), Some((expected, Fitness::Perfect)));
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

/// The kernel's port 0 is the switch's port 1,000.
const NUMBERING: Numbering = Numbering { first: 1000 };

#[test]
fn a_megaflow_with_open_tags_is_refused_and_its_closed_mask_is_taken() {
    let mut rng = fastrand::Rng::with_seed(42);
    for _ in 0..2_000 {
        let packet = packet(&mut rng);
        if [0x8100, 0x88a8].contains(&packet.dl_type.get()) {
            continue; // more headers than vlan-limit
        }
        if packet.packet_type.get() != 0 {
            continue; // none at all
        }
        let mut mask = Mask::WILDCARD;
        for field in [Field::InPortOxm, Field::RecircId, Field::PacketType, Field::EthType] {
            mask.set_exact(field);
        }
        let refused = keys::encode(&Match::new(&packet, &mask)).unwrap_err();
        assert_eq!(refused.refusal, Refusal::TagsOpen);
        let closed = Numbering::with_tags(&packet, &mask);
        keys::encode(&Match::new(&packet, &closed)).unwrap();
    }
}

#[test]
fn ports_of_another_datapath_have_no_number() {
    assert_eq!(NUMBERING.to_kernel(PortNo(1003)), Some(3));
    assert_eq!(NUMBERING.to_switch(3), PortNo(1003));
    assert_eq!(NUMBERING.to_kernel(PortNo(3)), None);
    assert_eq!(NUMBERING.to_kernel(PortNo::NONE), None);
    let refused = actions::encode(&[Action::Output(PortNo(3))], NUMBERING).unwrap_err();
    assert_eq!(refused.refusal, Refusal::PortNotHere);
}

#[test]
fn identities_are_words_in_host_order() {
    let ufid = Ufid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let bytes = encode_ufid(ufid);
    assert_eq!(bytes[..4], 0x0011_2233u32.to_ne_bytes());
    assert_eq!(decode_ufid(&bytes), Some(ufid));
    assert_eq!(decode_ufid(&bytes[..8]), None);
}

#[test]
fn cookies_are_read_back() {
    let all = [
        Userdata::SlowPath { reason: "lacp" },
        Userdata::Sflow { vlan_tci: 0x6005, output: 0x8000_0002 },
        Userdata::FlowSample {
            probability: 7,
            collector_set: 1 << 20,
            obs_domain: 2,
            obs_point: 3,
            output_port: PortNo(4),
            direction: SampleDirection::Egress,
            origin: SampleOrigin { bridge: 5, is_dropped: true },
        },
        Userdata::Ipfix {
            output_port: PortNo::NONE,
            origin: SampleOrigin { bridge: 6, is_dropped: true },
        },
        Userdata::Controller {
            reason: 1,
            max_len: 0xffff,
            controller_id: 3,
            recirc_id: 1 << 17,
            rule_cookie: 1 << 60,
            continuation: true,
        },
    ];
    for userdata in all {
        let bytes = cookie::encode(&userdata);
        assert_eq!(cookie::decode(&bytes), Some(userdata));
        assert_eq!(cookie::decode(&bytes[..47]), None);
    }
}

/// An upcall as the kernel sends it.
fn upcall(key: &Key, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0, 9, 0, 0, 0];
    let mut metadata = keys::encode_metadata(key);
    netlink::attribute::put(&mut metadata, 3, &key.in_port.get().to_ne_bytes());
    if key.packet_type.get() == 0 {
        netlink::attribute::put(&mut metadata, 4, &[0; 12]);
    }
    netlink::attribute::put(&mut bytes, 2, &metadata);
    netlink::attribute::put(&mut bytes, 1, frame);
    netlink::attribute::put(&mut bytes, 9, &1400u16.to_ne_bytes());
    bytes
}

#[test]
fn an_upcall_has_the_metadata_of_the_kernel_and_the_headers_of_the_packet() {
    let mut rng = fastrand::Rng::with_seed(43);
    for _ in 0..1_000 {
        let mut of_packet = packet(&mut rng);
        if of_packet.ct_state == 0 {
            of_packet.ct_zone = 0.into(); // as of every packet that was not tracked
        }
        let frame = bytes_of(&of_packet);
        let received = packet_message::decode(&upcall(&of_packet, &frame), NUMBERING);
        let received = received.unwrap();
        let packet_type = of_packet.packet_type.get();
        let mut expected = flow::extract::key_of_type(&frame, 1007, packet_type);
        expected.set_metadata(&of_packet);
        expected.in_port = 1007.into();
        assert_eq!(received.key, expected);
        assert_eq!(received.remainder.longest_fragment, Some(1400));
        assert_eq!(received.packet.data(), frame);
    }
}

#[test]
fn a_packet_of_the_switch_s_own_calls_up_from_no_port() {
    let mut rng = fastrand::Rng::with_seed(45);
    let of_packet = packet(&mut rng);
    let mut bytes = vec![1, 1, 0, 0, 9, 0, 0, 0];
    netlink::attribute::put(&mut bytes, 2, &keys::encode_metadata(&of_packet));
    netlink::attribute::put(&mut bytes, 1, &bytes_of(&of_packet));
    let received = packet_message::decode(&bytes, NUMBERING).unwrap();
    assert_eq!(received.key.in_port.get(), PortNo::NONE.0);
}

#[test]
fn lists_that_are_nested_too_deeply_are_refused() {
    let nested = |n: usize| {
        let output = Action::Output(PortNo(1001));
        [(0..n).fold(output, |inner, _| Action::Clone(vec![inner]))]
    };
    let limit = datapath::ACTION_DEPTH_LIMIT;
    assert!(actions::encode(&nested(limit), NUMBERING).is_ok());
    let refused = actions::encode(&nested(limit + 1), NUMBERING).unwrap_err();
    assert_eq!(refused.refusal, Refusal::UnsupportedAction);
}

#[test]
fn messages_of_any_bytes_are_read_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(44);
    for _ in 0..20_000 {
        let of_packet = packet(&mut rng);
        let mut bytes = upcall(&of_packet, &bytes_of(&of_packet));
        bytes.truncate(rng.usize(..=bytes.len()));
        for _ in 0..rng.usize(..4) {
            if let Some(byte) = rng.choice(bytes.iter_mut()) {
                *byte = rng.u8(..);
            }
        }
        packet_message::decode(&bytes, NUMBERING);
        if let Some(body) = Body::decode(&bytes) {
            flow_message::decode(&body, NUMBERING);
            flow_message::decode_stats(&body);
            instance::decode_stats(&body);
            meter::decode(&body);
            crate::zone_limits::decode(&body);
            crate::vport::Vport::decode(&body);
        }
    }
}

/// A Geneve tunnel with an option.
fn tunnel() -> flow::Tunnel {
    let mut fields = flow::Tunnel::NONE;
    fields.id = 0x12_3456.into();
    fields.set_source(Some([10, 0, 0, 1].into()));
    fields.set_destination([10, 0, 0, 2].into());
    (fields.tos, fields.ttl) = (4, 64);
    fields.tp_dst = 6081.into();
    fields.flags = (flow::Tunnel::KEY | flow::Tunnel::CSUM | flow::Tunnel::DONT_FRAGMENT).into();
    assert!(fields.set_raw_options(&[0x01, 0x02, 0x80, 0x01, 1, 2, 3, 4]));
    fields
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
        Action::Output(PortNo(1003)),
        Action::Userspace(Userdata::SlowPath { reason: "action" }),
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
        Action::Sample { probability: 1 << 31, actions: vec![Action::Output(PortNo(1001))] },
        Action::Clone(vec![Action::PopVlan, Action::Output(PortNo(1001))]),
        Action::Meter(1),
        Action::CheckPktLen {
            len: 1500,
            greater: vec![Action::Trunc(64), Action::Output(PortNo(1002))],
            not_greater: vec![],
        },
        Action::SetTunnel(Box::new(tunnel())),
        Action::Ct(Box::new(request)),
        Action::Ct(Box::new(Request { nat: Some(Nat::Existing), ..Request::default() })),
        Action::CtClear,
        Action::PopEth,
        Action::PushNsh(pushed_nsh(1, vec![])),
        Action::PopNsh,
        Action::AddMpls { lse: 0x1234_5140, ethertype: 0x8848 },
        Action::PushEth { src: [1; 6], dst: [2; 6] },
    ]
}

fn pushed_nsh(mdtype: u8, metadata: Vec<u8>) -> Box<PushedNsh> {
    let context = if mdtype == 1 { [1, 2, 3, 4] } else { [0; 4] }.map(Into::into);
    let fields = flow::Nsh { flags: 2, ttl: 63, mdtype, np: 3, path: 0x1234_56ff.into(), context };
    Box::new(PushedNsh { fields, metadata })
}

#[test]
fn headers_that_the_kernel_does_not_push_are_refused() {
    let set = Set::Nsh {
        flags: Masked::default(),
        ttl: Masked { value: 1, mask: 63 },
        path: Masked::default(),
        context: [Masked::default(); 4],
    };
    for action in [
        Action::PushNsh(pushed_nsh(2, vec![])),
        Action::PushNsh(pushed_nsh(2, vec![1, 2, 3, 4, 5, 6, 7, 8])),
        Action::PushNsh(pushed_nsh(3, vec![])),
        Action::Set(set),
    ] {
        let refused = actions::encode(&[action], NUMBERING).unwrap_err();
        assert_eq!(refused.refusal, Refusal::UnsupportedAction);
    }
}

#[test]
fn actions_are_read_back() {
    let actions = actions();
    let bytes = actions::encode(&actions, NUMBERING).unwrap();
    assert_eq!(actions::decode(&bytes, NUMBERING), Some(actions));
}

#[test]
fn attributes_of_any_bytes_are_read_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(41);
    let actions = actions::encode(&actions(), NUMBERING).unwrap();
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
        actions::decode(&actions, NUMBERING);
    }
}
