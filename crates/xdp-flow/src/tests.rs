// SPDX-License-Identifier: Apache-2.0
//! Plans against a plain model of traffic control.

use crate::effect::Targets;
use crate::layout::{KEY_BYTES, verdict};
use crate::matching::{Match, field};
use crate::plan::Plan;
use crate::reader::{Body, Place, TcFilter};
use datapath_tc::act::{Act, Direction, Edit, Layer, checksum};
use datapath_tc::keys::{Key, Keys};

#[path = "../tests/support/object.rs"]
pub(crate) mod object;

struct All;

impl Targets for All {
    fn longest(&self, ifindex: u32) -> Result<u32, String> {
        if ifindex == 9 { Err("it is not ready".into()) } else { Ok(1518) }
    }
}

const OTHER: Body = Body::Other { in_hw: false };

fn send(ifindex: u32) -> Act {
    Act::Send { ifindex, direction: Direction::Egress, last: true }
}

fn flower(chain: u32, priority: u16, handle: u32, keys: Keys, acts: Vec<Act>) -> TcFilter {
    TcFilter {
        place: Place { chain, priority, handle },
        protocol: 0x0800,
        kind: "flower".into(),
        body: Body::Flower { keys, unknown: None, acts: Some(acts), in_hw: false },
        packets: 0,
        bytes: 0,
    }
}

/// IPv4 with an address of which only some bits count.
fn to(address: u8, mask: u8) -> Keys {
    let mut keys = Keys::default();
    keys.exact(Key::EthType, [0x08, 0x00]);
    keys.add(Key::Ipv4Dst, [10, 0, 0, address], [0, 0, 0, mask]);
    keys
}

fn packet(address: u8) -> [u8; KEY_BYTES] {
    let key = Match::ALL.exact(field::PROTOCOL, &[0x08, 0x00]);
    let key = key.exact(field::ETHERTYPE, &[0x08, 0x00]);
    key.exact(field::DST, &[10, 0, 0, address]).value
}

/// The device of the first rule that matches: 0 for a drop, `None` when traffic control decides.
fn at_xdp(plan: &Plan, packet: &[u8; KEY_BYTES]) -> Option<u32> {
    let rule = plan.rules.iter().find(|rule| rule.matching.matches(packet))?;
    rule.effect.as_ref().map(|effect| effect.0.ifindex)
}

/// All fates that a packet may have in traffic control from this chain on: the order of filters within
/// a priority is not known.
fn in_tc(filters: &[TcFilter], chain: u32, address: u8, depth: u32) -> Vec<Option<u32>> {
    let matches = |filter: &&TcFilter| {
        let Body::Flower { keys, .. } = &filter.body else { return filter.body == OTHER };
        keys.get(Key::Ipv4Dst).is_none_or(|m| address & m.mask[3] == m.value[3])
    };
    let mut found: Vec<&TcFilter> =
        filters.iter().filter(|f| f.place.chain == chain).filter(matches).collect();
    found.sort_by_key(|filter| filter.place.priority);
    let Some(first) = found.first() else { return vec![None] };
    let mut fates = Vec::new();
    for filter in found.iter().filter(|f| f.place.priority == first.place.priority) {
        let Body::Flower { acts: Some(acts), .. } = &filter.body else {
            fates.push(None);
            continue;
        };
        match acts.as_slice() {
            [Act::Drop] => fates.push(Some(0)),
            [Act::Send { ifindex, .. }] => fates.push(Some(*ifindex)),
            [Act::Goto(next)] if depth < 8 => {
                fates.extend(in_tc(filters, *next, address, depth + 1));
            }
            _ => fates.push(None),
        }
    }
    fates
}

#[test]
fn a_packet_has_the_fate_that_it_has_in_traffic_control() {
    let mut random = fastrand::Rng::with_seed(39);
    let (mut ran, mut sent) = (0, 0);
    for _ in 0..3000 {
        let filters: Vec<TcFilter> = (1..=random.u32(1..12))
            .map(|handle| {
                let mask = *random.choice(&[0xff, 0xf0, 0x0f, 0x3c, 0]).unwrap();
                let act = match random.u32(0..8) {
                    0 => Act::Drop,
                    1 => Act::Goto(random.u32(1..4)),
                    2 => Act::ToHost,
                    3 => send(9),
                    _ => send(random.u32(1..5)),
                };
                let keys = to(random.u8(..) & mask, mask);
                let mut filter =
                    flower(random.u32(0..3), random.u16(1..6), handle, keys, vec![act]);
                if random.u32(0..20) == 0 {
                    (filter.kind, filter.body) = ("u32".into(), OTHER);
                }
                filter
            })
            .collect();
        let plan = Plan::new(&filters, &All, 1000);
        for address in 0..=255 {
            sent += 1;
            let Some(fate) = at_xdp(&plan, &packet(address)) else { continue };
            ran += 1;
            let fates = in_tc(&filters, 0, address, 0);
            assert!(
                fates.iter().all(|f| *f == Some(fate)),
                "{address}: {fate} {fates:?} {filters:#?}"
            );
        }
    }
    // The test is about rules that run.
    assert!(ran > sent / 10, "{ran} of {sent}");
}

#[test]
fn with_little_room_the_rules_in_front_run_and_none_after_them() {
    let mut filters: Vec<TcFilter> =
        (1..=20).map(|n| flower(0, n, 1, to(n as u8, 0xff), vec![send(1)])).collect();
    filters.push(flower(0, 0, 1, to(0, 0x80), vec![Act::ToHost]));
    let plan = Plan::new(&filters, &All, 5);
    assert_eq!(plan.rules.len(), 5);
    assert_eq!(at_xdp(&plan, &packet(200)), None);
    assert!(plan.reasons[19].as_ref().unwrap().contains("room"));
}

#[test]
fn masks_beyond_the_room_are_left_to_traffic_control() {
    let filters: Vec<TcFilter> = (1..=40)
        .map(|n| {
            let mut keys = to(1, 0xff);
            keys.add(Key::EthDst, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, n as u8]);
            flower(0, n, 1, keys, vec![send(1)])
        })
        .collect();
    let plan = Plan::new(&filters, &All, 1000);
    assert_eq!(plan.rules.len(), crate::layout::MAX_TABLES);
    assert!(plan.reasons[0].is_none() && plan.reasons[39].is_some());
}

#[test]
fn what_is_not_understood_stops_its_packets() {
    let mut tunnel = to(1, 0xff);
    tunnel.exact(Key::EncKeyId, [0, 0, 0, 5]);
    let filters = [
        flower(0, 1, 1, tunnel, vec![send(2)]),
        flower(0, 2, 1, to(1, 0xff), vec![send(3)]),
        flower(0, 3, 1, to(2, 0xff), vec![send(9)]),
        flower(
            0,
            4,
            1,
            to(3, 0xff),
            vec![Act::Send { ifindex: 1, direction: Direction::Egress, last: false }, send(2)],
        ),
        flower(0, 5, 1, to(4, 0xff), vec![Act::Ct(Box::default()), send(2)]),
        flower(0, 6, 1, to(5, 0xff), vec![send(7)]),
    ];
    let plan = Plan::new(&filters, &All, 1000);
    for address in 1..5 {
        assert_eq!(at_xdp(&plan, &packet(address)), None, "{address}");
    }
    assert_eq!(at_xdp(&plan, &packet(5)), Some(7));
    let reason = |n: usize| plan.reasons[n].clone().unwrap_or_default();
    assert!(reason(0).contains("EncKeyId"));
    assert_eq!(reason(2), "it is not ready");
    assert_eq!(reason(3), "XDP makes no copies");
    assert!(reason(4).contains("action ct"));
}

/// A packet that a card sent through a part of its filters is not the one that arrived.
#[test]
fn with_a_card_that_hands_packets_over_no_rule_runs() {
    let in_card = |acts: Option<Vec<Act>>| {
        let mut filter = flower(0, 1, 1, to(1, 0xff), vec![]);
        let keys = to(1, 0xff);
        filter.body = Body::Flower { keys, unknown: None, acts, in_hw: true };
        filter
    };
    let plan = |first: TcFilter| {
        let second = flower(0, 2, 1, to(2, 0xff), vec![send(3)]);
        Plan::new(&[first, second], &All, 1000)
    };
    assert_eq!(at_xdp(&plan(in_card(Some(vec![send(2)]))), &packet(2)), Some(3));
    let mut only = flower(0, 1, 1, to(1, 0xff), vec![]);
    only.body = Body::CardOnly(Some(vec![Act::Goto(5)]));
    let mut other = flower(0, 1, 1, to(1, 0xff), vec![]);
    (other.kind, other.body) = ("matchall".into(), Body::Other { in_hw: true });
    other.protocol = 0x0806;
    let ct = in_card(Some(vec![Act::Ct(Box::default()), Act::Goto(5)]));
    for first in [in_card(Some(vec![Act::Goto(5)])), in_card(None), ct, only, other] {
        let words = format!("{first:?}");
        let plan = plan(first);
        assert_eq!(at_xdp(&plan, &packet(2)), None, "{words}");
        assert!(plan.reasons[1].as_ref().is_some_and(|reason| reason.contains("a card may hand")));
    }
    // Without a card, software goes to chains from the first filter on.
    let software = flower(0, 1, 1, to(1, 0xff), vec![Act::Goto(5)]);
    assert_eq!(at_xdp(&plan(software), &packet(2)), Some(3));
}

#[test]
fn edits_become_fields_and_others_stop() {
    let edit = |layer, offset, value, mask| Edit { layer, offset, value, mask };
    let effect = |acts: &[Act]| {
        let matching =
            Match::ALL.exact(field::ETHERTYPE, &[0x08, 0x00]).exact(field::IP_PROTO, &[6]);
        crate::effect::compile(acts, &matching, &All)
    };
    let acts = [
        Act::Edit(vec![
            edit(Layer::Ethernet, 4, [1, 2, 3, 4], [0xff; 4]),
            edit(Layer::Ipv4, 8, [63, 0, 0, 0], [0xff, 0, 0, 0]),
            edit(Layer::Ipv4, 16, [10, 0, 0, 9], [0xff; 4]),
            edit(Layer::Tcp, 0, [0, 0, 0, 80], [0, 0, 0xff, 0xff]),
        ]),
        Act::Checksum(checksum::IPV4 | checksum::TCP),
        Act::PopVlan,
        Act::PushVlan { tpid: 0x8100, vid: 5, priority: 3 },
        send(4),
    ];
    let Ok(crate::effect::Verdict::Ends(ends)) = effect(&acts) else {
        panic!("{:?}", effect(&acts))
    };
    let rule = ends.0;
    assert_eq!((rule.verdict, rule.ifindex, rule.longest), (verdict::REDIRECT, 4, 1514));
    assert_eq!((&rule.eth_value[4..8], &rule.eth_mask[4..8]), (&[1, 2, 3, 4][..], &[0xff; 4][..]));
    assert_eq!((rule.ttl, &rule.dst_value[..4]), ([63, 0xff], &[10, 0, 0, 9][..]));
    assert_eq!((rule.sport, rule.dport), ([[0; 2]; 2], [[0, 80], [0xff, 0xff]]));
    assert_eq!((rule.pops, rule.pushes, rule.push[0]), (1, 1, [[0x81, 0], [0x60, 5]]));
    let fails = |acts: &[Act], words: &str| {
        let error = effect(acts).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    // The total length, the protocol, a header of another protocol, and an inversion.
    fails(&[Act::Edit(vec![edit(Layer::Ipv4, 0, [0; 4], [0, 0, 0xff, 0xff])]), send(4)], "byte 0");
    fails(&[Act::Edit(vec![edit(Layer::Ipv4, 8, [0; 4], [0, 0xff, 0, 0])]), send(4)], "byte 8");
    fails(&[Act::Edit(vec![edit(Layer::Udp, 0, [0; 4], [0xff; 4])]), send(4)], "may have none");
    fails(&[Act::Edit(vec![edit(Layer::Ipv4, 16, [1; 4], [0; 4])]), send(4)], "inverts");
    let again = [acts[1].clone(), acts[0].clone(), send(4)];
    fails(&again, "after their checksums");
    fails(&[Act::PopVlan, acts[0].clone(), send(4)], "after VLAN tags");
    fails(&[Act::PopVlan], "passes packets to the host");
}

#[test]
fn keys_of_tags_are_compared_where_the_kernel_compares_them() {
    use crate::matching::{Compiled, compile};
    let mut keys = Keys::default();
    keys.exact(Key::VlanId, 0x105u16.to_ne_bytes());
    keys.exact(Key::VlanPrio, [3]);
    let tagged = Match::ALL.exact(field::PROTOCOL, &[0x81, 0x00]).exact(field::VLAN, &[0x61, 0x05]);
    let Compiled::Exact(found) = compile(0x8100, &keys) else { panic!() };
    assert!(found.matches(&tagged.value));
    assert!(!found.matches(&tagged.with(field::VLAN, &[0], &[0x0f]).value));
    assert_eq!(found.mask[field::VLAN..][..2], [0xef, 0xff]);
    assert!(matches!(compile(0x0800, &keys), Compiled::Wider(..)));
    // The kernel may compare a tag protocol here, and does not show it.
    let mut address = Keys::default();
    address.exact(Key::EthDst, [2, 0, 0, 0, 0, 1]);
    for protocol in [3, 0x0800] {
        let Compiled::Wider(found, _) = compile(protocol, &address) else { panic!("{protocol}") };
        assert_eq!(found.mask[..6], [0xff; 6]);
    }
    assert!(matches!(compile(0x8100, &address), Compiled::Exact(_)));
    address.exact(Key::EthType, [0x08, 0x00]);
    assert!(matches!(compile(3, &address), Compiled::Exact(_)));
    let mut fragments = to(1, 0xff);
    fragments.add(Key::Flags, 1u32.to_be_bytes(), 1u32.to_be_bytes());
    assert_eq!(compile(0x0800, &fragments), Compiled::Never);
    let mut whole = to(1, 0xff);
    whole.add(Key::Flags, [0; 4], 1u32.to_be_bytes());
    assert_eq!(compile(0x0800, &whole), compile(0x0800, &to(1, 0xff)));
}
