// SPDX-License-Identifier: Apache-2.0
//! The classifier against a list that is searched from end to end.

use crate::{Classifier, Conjunction, Entry, MiniMatch};
use flow::{Field, Key, Mask, Match, WORDS};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Debug)]
struct Rule {
    matching: MiniMatch,
    priority: u32,
    conjunctions: Vec<Conjunction>,
}

impl Entry for Rule {
    fn matching(&self) -> &MiniMatch {
        &self.matching
    }
    fn priority(&self) -> u32 {
        self.priority
    }
    fn is_conjunctive(&self) -> bool {
        !self.conjunctions.is_empty()
    }
    fn conjunctions(&self) -> impl Iterator<Item = Conjunction> {
        self.conjunctions.iter().copied()
    }
}

fn rule(priority: u32, fields: &[(Field, u128, u128)]) -> Arc<Rule> {
    let mut m = Match::ANY;
    for (field, value, mask) in fields {
        m.set_masked(*field, *value, *mask);
    }
    Arc::new(Rule { matching: MiniMatch::new(&m), priority, conjunctions: Vec::new() })
}

fn conjunctive(
    priority: u32,
    fields: &[(Field, u128, u128)],
    id: u32,
    clause: u8,
    clauses: u8,
) -> Arc<Rule> {
    let plain = rule(priority, fields);
    Arc::new(Rule {
        matching: plain.matching.clone(),
        priority,
        conjunctions: vec![Conjunction { id, clause, clauses }],
    })
}

fn key(fields: &[(Field, u128)]) -> Key {
    let mut k = Key::ZERO;
    for (field, value) in fields {
        field.store(&mut k, *value);
    }
    k
}

const IP: (Field, u128) = (Field::EthType, 0x0800);
const IP_M: (Field, u128, u128) = (Field::EthType, 0x0800, 0xffff);
const TCP_M: (Field, u128, u128) = (Field::IpProto, 6, 0xff);

#[test]
fn the_highest_priority_wins_across_masks() {
    let mut c = Classifier::new();
    c.insert(rule(1, &[]));
    c.insert(rule(10, &[IP_M]));
    c.insert(rule(5, &[IP_M, (Field::Ipv4Dst, 0x0a000001, 0xffff_ffff)]));
    let mut wc = Mask::WILDCARD;
    let found = c.lookup(&mut key(&[IP, (Field::Ipv4Dst, 0x0a000001)]), &mut wc).unwrap();
    assert_eq!(found.priority, 10);
    assert_eq!(Field::Ipv4Dst.load(&wc.0), 0, "a rule that cannot win is not looked at");
    let found = c.lookup(&mut key(&[(Field::EthType, 0x0806)]), &mut wc).unwrap();
    assert_eq!(found.priority, 1);
}

#[test]
fn a_packet_of_another_type_is_not_asked_for_its_addresses() {
    let mut c = Classifier::new();
    c.insert(rule(5, &[IP_M, (Field::Ipv4Dst, 0x0a000000, 0xff00_0000)]));
    let mut wc = Mask::WILDCARD;
    assert!(
        c.lookup(&mut key(&[(Field::EthType, 0x0806), (Field::Ipv4Dst, 0x0a000001)]), &mut wc)
            .is_none()
    );
    let mut expected = Mask::WILDCARD;
    expected.set_exact(Field::PacketType);
    expected.set_exact(Field::EthType);
    assert_eq!(wc, expected);
}

#[test]
fn a_thousand_hosts_cost_a_stranger_few_bits() {
    let mut c = Classifier::new();
    for i in 0..1000u128 {
        c.insert(rule(5, &[IP_M, (Field::Ipv4Dst, 0x0a000000 + i, 0xffff_ffff)]));
    }
    let mut wc = Mask::WILDCARD;
    assert!(c.lookup(&mut key(&[IP, (Field::Ipv4Dst, 0xc0a80001)]), &mut wc).is_none());
    assert_eq!(Field::Ipv4Dst.load(&wc.0), 0x8000_0000, "one bit separates 192.* from 10.*");
    let mut wc = Mask::WILDCARD;
    assert!(c.lookup(&mut key(&[IP, (Field::Ipv4Dst, 0x0a000007)]), &mut wc).is_some());
    assert_eq!(Field::Ipv4Dst.load(&wc.0), 0xffff_ffff);
}

#[test]
fn a_packet_pays_for_the_stages_that_some_rule_has() {
    let mut c = Classifier::new();
    for i in 0..100u128 {
        c.insert(rule(
            5,
            &[
                (Field::InPortOxm, i % 10, 0xffff_ffff),
                IP_M,
                (Field::Ipv4Dst, 0x0a00_0000 + i, 0xffff_ffff),
                TCP_M,
                (Field::TcpDst, i, 0xffff),
            ],
        ));
    }
    let price = |fields: &[(Field, u128)]| {
        let mut wc = Mask::WILDCARD;
        assert!(c.lookup(&mut key(fields), &mut wc).is_none());
        wc
    };
    let mut expected = Mask::WILDCARD;
    expected.set_exact(Field::PacketType);
    expected.set_exact(Field::InPortOxm);
    assert_eq!(price(&[(Field::InPortOxm, 10), IP]), expected);
    expected.set_exact(Field::EthType);
    assert_eq!(price(&[(Field::InPortOxm, 9), (Field::EthType, 0x0806)]), expected);
    let to = (Field::Ipv4Dst, 0x0a00_0009);
    expected.set_exact(Field::Ipv4Dst);
    expected.set_exact(Field::IpProto);
    assert_eq!(price(&[(Field::InPortOxm, 9), IP, to, (Field::IpProto, 17)]), expected);
}

#[test]
fn ports_of_rules_with_other_masks_cost_nothing() {
    let to = (Field::Ipv4Dst, 0x0a00_0035, 0xffff_ffff);
    let mut c = Classifier::new();
    c.insert(rule(9, &[IP_M, TCP_M, (Field::TcpDst, 0x8001, 0xffff)]));
    c.insert(rule(8, &[IP_M, (Field::IpProto, 17, 0xff), to, (Field::UdpDst, 53, 0xffff)]));
    let mut wc = Mask::WILDCARD;
    let packet = [IP, (Field::IpProto, 17), (Field::Ipv4Dst, to.1), (Field::UdpDst, 0x8000)];
    assert!(c.lookup(&mut key(&packet), &mut wc).is_none());
    assert_eq!(Field::UdpDst.load(&wc.0), 0x8000, "the first bit separates it from 53");
}

#[test]
fn a_short_prefix_is_ruled_out_by_as_many_bits() {
    let mut c = Classifier::new();
    c.insert(rule(9, &[IP_M, (Field::Ipv4Dst, 0x0b00_0000, 0xff00_0000)]));
    c.insert(rule(
        8,
        &[IP_M, (Field::EthSrc, 1, 0xff), (Field::Ipv4Dst, 0x0a01_0203, 0xffff_ffff)],
    ));
    let mut wc = Mask::WILDCARD;
    assert!(c.lookup(&mut key(&[IP, (Field::Ipv4Dst, 0x0a01_0202)]), &mut wc).is_none());
    assert_eq!(Field::Ipv4Dst.load(&wc.0), 0xff00_0000);
}

#[test]
fn of_rules_with_one_prefix_each_counts() {
    let to = |priority: u32, first: u128| {
        rule(priority, &[IP_M, (Field::Ipv4Dst, first << 24, 0xff00_0000)])
    };
    // As many between the two as put the first into the trie, or do not.
    for (between, removed) in (0..10).flat_map(|between| [(between, 5), (between, 6)]) {
        let mut c = Classifier::new();
        c.insert(to(5, 10));
        for other in 0..between {
            c.insert(to(4, 20 + other));
        }
        c.insert(to(6, 10));
        assert!(c.remove(&to(removed, 10).matching, removed).is_some());
        let mut wc = Mask::WILDCARD;
        assert!(c.lookup(&mut key(&[IP, (Field::Ipv4Dst, 11 << 24)]), &mut wc).is_none());
        assert_eq!(
            Field::Ipv4Dst.load(&wc.0),
            0xff00_0000,
            "the eighth bit separates 11.* from 10.*"
        );
    }
}

#[test]
fn port_prefixes_narrow_port_masks() {
    let mut c = Classifier::new();
    c.insert(rule(5, &[IP_M, TCP_M, (Field::TcpDst, 0x0400, 0xfc00)]));
    let mut wc = Mask::WILDCARD;
    let k = [IP, (Field::IpProto, 6), (Field::TcpDst, 0x8001)];
    assert!(c.lookup(&mut key(&k), &mut wc).is_none());
    assert_eq!(Field::TcpDst.load(&wc.0), 0x8000);
}

#[test]
fn conjunctions_need_every_clause_at_one_priority() {
    let mut c = Classifier::new();
    c.insert(conjunctive(10, &[IP_M, (Field::Ipv4Src, 1, 0xffff_ffff)], 7, 0, 2));
    c.insert(conjunctive(10, &[IP_M, (Field::Ipv4Dst, 2, 0xffff_ffff)], 7, 1, 2));
    c.insert(conjunctive(9, &[IP_M, (Field::Ipv4Dst, 3, 0xffff_ffff)], 7, 1, 2));
    c.insert(rule(10, &[(Field::ConjId, 7, 0xffff_ffff)]));
    c.insert(rule(1, &[]));
    let look = |src: u128, dst: u128| {
        let mut k = key(&[IP, (Field::Ipv4Src, src), (Field::Ipv4Dst, dst)]);
        let found = c.lookup(&mut k, &mut Mask::WILDCARD.clone()).unwrap().priority;
        (found, k.conj_id.get())
    };
    assert_eq!(look(1, 2), (10, 7));
    assert_eq!(look(1, 9), (1, 0));
    assert_eq!(look(1, 3), (1, 0), "clauses of different priorities do not add up");
    c.insert(conjunctive(10, &[IP_M], 8, 1, 2));
    let mut members = Vec::new();
    let mut k = key(&[IP, (Field::Ipv4Src, 1), (Field::Ipv4Dst, 2)]);
    c.lookup_with(&mut k, &mut Mask::WILDCARD.clone(), |r| members.push(r.conjunctions[0].clause));
    members.sort_unstable();
    assert_eq!(members, [0, 1], "rules of other conjunctions are no members");
}

#[test]
fn a_clone_is_a_snapshot() {
    let mut c = Classifier::new();
    c.insert(rule(5, &[IP_M]));
    let snapshot = c.clone();
    let m = rule(5, &[IP_M]);
    assert!(c.remove(&m.matching, 5).is_some());
    assert!(c.is_empty() && c.masks() == 0);
    assert_eq!(snapshot.len(), 1);
    assert!(snapshot.find(&m.matching, 5).is_some());
}

#[test]
fn loose_matching_and_overlap() {
    let mut c = Classifier::new();
    c.insert(rule(5, &[IP_M, (Field::Ipv4Dst, 0x0a000001, 0xffff_ffff)]));
    c.insert(rule(5, &[(Field::EthType, 0x0806, 0xffff)]));
    let mut ip = Match::ANY;
    ip.set(Field::EthType, 0x0800);
    assert_eq!(c.iter_within(&ip).count(), 1);
    assert_eq!(c.iter_within(&Match::ANY).count(), 2);
    assert!(c.overlaps(&ip, 5));
    assert!(!c.overlaps(&ip, 6));
}

/// Fields and values small enough that rules and packets meet often.
fn field_match() -> impl Strategy<Value = Vec<(Field, u128, u128)>> {
    let v4 = (0u128..4, 0u32..=32).prop_map(|(v, len)| {
        let mask =
            if len == 0 { 0 } else { 0xffff_ffffu128 & (u128::from(u32::MAX) << (32 - len)) };
        let value = (v << 30 | v << 14 | v) & mask;
        (value, mask)
    });
    (
        prop::option::of(0u128..3),
        prop::option::of(prop::sample::select(vec![0x0800u128, 0x0806])),
        prop::option::of(v4.clone()),
        prop::option::of(v4),
        prop::option::of((
            0u128..4,
            prop::sample::select(vec![0xffffu128, 0xfffe, 0x8001, 0xff00]),
        )),
    )
        .prop_map(|(port, ty, src, dst, tp)| {
            let mut out = Vec::new();
            out.extend(port.map(|p| (Field::InPortOxm, p, 0xffff_ffff)));
            out.extend(ty.map(|t| (Field::EthType, t, 0xffff)));
            // Addresses and ports only with their prerequisites, as OpenFlow demands.
            if ty == Some(0x0800) {
                out.extend(src.map(|(v, m)| (Field::Ipv4Src, v, m)));
                out.extend(dst.map(|(v, m)| (Field::Ipv4Dst, v, m)));
                if let Some((v, m)) = tp {
                    out.push((Field::IpProto, 6, 0xff));
                    out.push((Field::TcpDst, v & m, m));
                }
            }
            out
        })
}

fn packet_key() -> impl Strategy<Value = Key> {
    let v4 = (0u128..4, 0u128..4, 0u128..4).prop_map(|(a, b, c)| a << 30 | b << 14 | c);
    (
        0u128..3,
        prop::sample::select(vec![0x0800u128, 0x0806]),
        v4.clone(),
        v4,
        0u128..4,
        prop::bool::ANY,
    )
        .prop_map(|(port, ty, src, dst, tp, tcp)| {
            let mut f = vec![(Field::InPortOxm, port), (Field::EthType, ty)];
            if ty == 0x0800 {
                f.extend([(Field::Ipv4Src, src), (Field::Ipv4Dst, dst)]);
                if tcp {
                    f.extend([(Field::IpProto, 6), (Field::TcpDst, tp)]);
                }
            }
            key(&f)
        })
}

type RuleSpec = (u32, Vec<(Field, u128, u128)>, Option<(u32, u8)>);

fn rules() -> impl Strategy<Value = Vec<RuleSpec>> {
    prop::collection::vec(
        (0u32..6, field_match(), prop::option::weighted(0.3, (1u32..3, 0u8..2))),
        0..40,
    )
}

fn build(specs: &[RuleSpec]) -> Vec<Arc<Rule>> {
    let mut all: Vec<Arc<Rule>> = Vec::new();
    for (priority, fields, conj) in specs {
        let r = match conj {
            Some((id, clause)) => conjunctive(*priority, fields, *id, *clause, 2),
            None => rule(*priority, fields),
        };
        all.retain(|old| old.priority != r.priority || old.matching != r.matching);
        all.push(r);
    }
    for id in 1..3u128 {
        all.push(rule(100, &[(Field::ConjId, id, 0xffff_ffff)]));
    }
    all
}

/// The meaning of a lookup, written as plainly as can be.
fn slow_lookup(all: &[Arc<Rule>], key: &Key) -> Option<u32> {
    let matching = |conj_id: u128, soft: bool| {
        let mut k = *key;
        Field::ConjId.store(&mut k, conj_id);
        all.iter().filter(move |r| r.conjunctions.is_empty() != soft && r.matching.matches(&k))
    };
    let hard = matching(0, false).map(|r| r.priority).max();
    let mut found: Vec<(u32, u32)> = Vec::new();
    for a in matching(0, true) {
        for b in matching(0, true) {
            let (ca, cb) = (a.conjunctions[0], b.conjunctions[0]);
            if a.priority == b.priority && ca.id == cb.id && ca.clause == 0 && cb.clause == 1 {
                found.push((a.priority, ca.id));
            }
        }
    }
    found.sort_by_key(|(p, id)| (std::cmp::Reverse(*p), *id));
    for (priority, id) in found {
        if hard.is_none_or(|h| priority > h)
            && let Some(p) = matching(u128::from(id), false).map(|r| r.priority).max()
        {
            return Some(p);
        }
    }
    hard
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lookup_finds_what_a_search_of_the_whole_list_finds(
        specs in rules(), keys in prop::collection::vec(packet_key(), 10), removed in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut all = build(&specs);
        let mut c = Classifier::new();
        for r in &all {
            prop_assert!(c.insert(Arc::clone(r)).is_none());
        }
        for index in removed {
            if all.is_empty() { break; }
            let r = all.swap_remove(index.index(all.len()));
            prop_assert!(c.remove(&r.matching, r.priority).is_some());
            prop_assert!(c.find(&r.matching, r.priority).is_none());
        }
        prop_assert_eq!(c.len(), all.len());
        for key in keys {
            let found = c.lookup(&mut key.clone(), &mut Mask::WILDCARD.clone()).map(|r| r.priority);
            prop_assert_eq!(found, slow_lookup(&all, &key));
        }
    }

    /// A change does not affect the structure that is shared with a clone.
    #[test]
    fn a_clone_finds_what_a_search_of_the_list_of_then_finds(
        specs in rules(), keys in prop::collection::vec(packet_key(), 3),
        removed in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 40),
    ) {
        let mut all: Vec<Arc<Rule>> = Vec::new();
        let mut c = Classifier::new();
        let mut kept = Vec::new();
        for (r, removed) in build(&specs).into_iter().zip(removed) {
            prop_assert!(c.insert(Arc::clone(&r)).is_none());
            all.push(r);
            kept.push((c.clone(), all.clone()));
            if let Some(index) = removed {
                let r = all.swap_remove(index.index(all.len()));
                prop_assert!(c.remove(&r.matching, r.priority).is_some());
                kept.push((c.clone(), all.clone()));
            }
        }
        for (c, all) in &kept {
            prop_assert_eq!(c.len(), all.len());
            prop_assert!(all.iter().all(|r| c.find(&r.matching, r.priority).is_some()));
            for key in &keys {
                let mut copy = *key;
                let found = c.lookup(&mut copy, &mut Mask::WILDCARD.clone()).map(|r| r.priority);
                prop_assert_eq!(found, slow_lookup(all, key));
            }
        }
    }

    /// Whatever differs only where the mask is clear finds the same rule.
    #[test]
    fn the_mask_holds_every_bit_the_answer_depends_on(
        specs in rules(), keys in prop::collection::vec(packet_key(), 6), noise in prop::collection::vec(any::<u64>(), WORDS),
        others in prop::collection::vec(packet_key(), 6),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut all = build(&specs);
        let mut c = Classifier::new();
        for r in &all {
            c.insert(Arc::clone(r));
        }
        // The state that removed rules leave must be the state that the other rules need, no less.
        for index in removed {
            if all.is_empty() { break; }
            let r = all.swap_remove(index.index(all.len()));
            prop_assert!(c.remove(&r.matching, r.priority).is_some());
        }
        for key in keys {
            let mut wc = Mask::WILDCARD;
            let found = c.lookup(&mut key.clone(), &mut wc).map(|r| (r.priority, r.matching.clone()));
            let mix = |source: &[u64]| {
                let mut k = key;
                for ((w, s), m) in k.words_mut().iter_mut().zip(source).zip(wc.words()) {
                    *w = *w & m | s & !m;
                }
                Field::ConjId.store(&mut k, 0); // not a packet's
                k
            };
            for other in others.iter().map(|o| mix(o.words())).chain([mix(&noise)]) {
                let again = c.lookup(&mut other.clone(), &mut Mask::WILDCARD.clone()).map(|r| (r.priority, r.matching.clone()));
                prop_assert_eq!(again.as_ref().map(|r| r.0), found.as_ref().map(|r| r.0));
            }
        }
    }
}

#[test]
fn compressed_matches_share_the_mask_of_their_subtable() {
    let tcp_port = |port: u16| {
        let mut m = Match::ANY;
        m.set(Field::EthType, 0x800);
        m.set(Field::IpProto, 6);
        m.set(Field::TcpDst, port.into());
        m
    };
    let mut c: Classifier<Rule> = Classifier::new();
    assert_eq!(c.compress(&tcp_port(80)), MiniMatch::new(&tcp_port(80)), "nothing to share yet");
    c.insert(Arc::new(Rule {
        matching: MiniMatch::new(&tcp_port(80)),
        priority: 1,
        conjunctions: Vec::new(),
    }));
    let held = c.iter().next().unwrap().matching.clone();
    let shared = c.compress(&tcp_port(443));
    assert!(std::ptr::eq(shared.mini_mask(), held.mini_mask()));
    assert_eq!(shared.expand(), tcp_port(443));
    let other = c.compress(&Match::ANY);
    assert!(!std::ptr::eq(other.mini_mask(), held.mini_mask()));
    assert_eq!(other.expand(), Match::ANY);
}

#[test]
fn many_priorities_of_one_match_fall() {
    let mut classifier = Classifier::new();
    for priority in (0..3000).map(|n| n * 7 % 3000) {
        assert!(classifier.insert(rule(priority, &[(Field::Ipv4Dst, 7, u128::MAX)])).is_none());
    }
    let best = |classifier: &Classifier<Rule>| {
        let mut key = key(&[(Field::Ipv4Dst, 7)]);
        classifier.lookup(&mut key, &mut Mask::WILDCARD.clone()).map(|r| r.priority)
    };
    let matching = rule(0, &[(Field::Ipv4Dst, 7, u128::MAX)]).matching.clone();
    for priority in (0..3000).rev() {
        assert_eq!(best(&classifier), Some(priority));
        assert_eq!(classifier.remove(&matching, priority).map(|r| r.priority), Some(priority));
        assert!(classifier.remove(&matching, priority).is_none());
    }
    assert_eq!((best(&classifier), classifier.masks()), (None, 0));
}

#[test]
fn who_asks_for_ethernet_gets_what_says_so_by_its_fields() {
    let mut c: Classifier<Rule> = Classifier::new();
    for rule in [
        rule(1, &[(Field::EthDst, 1, 0xff)]),
        rule(2, &[(Field::EthType, 0x800, 0xffff)]),
        rule(3, &[(Field::InPort, 1, 0xffff)]),
        rule(4, &[(Field::PacketType, 0, u128::MAX)]),
        rule(5, &[(Field::PacketType, 0x1_0800, u128::MAX)]),
        rule(6, &[(Field::InPort, 1, 0xffff), (Field::EthDst, 1, 0xff)]),
        rule(7, &[(Field::PacketType, 0x1_0800, u128::MAX), (Field::IpTtl, 7, 0xff)]),
    ] {
        c.insert(rule);
    }
    let within = |fields: &[(Field, u128)]| {
        let mut m = Match::ANY;
        fields.iter().for_each(|(field, value)| m.set(*field, *value));
        let mut found: Vec<u32> = c.iter_within(&m).map(|r| r.priority).collect();
        found.sort_unstable();
        assert!(c.iter().all(|r| r.matching.is_within(&m) == found.contains(&r.priority)));
        found
    };
    assert_eq!(within(&[(Field::PacketType, 0)]), [1, 2, 4, 6]);
    assert_eq!(within(&[(Field::PacketType, 0), (Field::InPort, 1)]), [6]);
    assert_eq!(within(&[(Field::PacketType, 0x1_0800)]), [5, 7]);
    assert_eq!(within(&[]), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn fields_of_ethernet_packets_match_no_other_packets() {
    let mut c: Classifier<Rule> = Classifier::new();
    for rule in [
        rule(1, &[]),
        rule(2, &[(Field::PacketType, 0x1_0800, u128::MAX), (Field::IpTtl, 7, 0xff)]),
        rule(3, &[(Field::EthType, 0x800, 0xffff), (Field::IpTtl, 7, 0xff)]),
        rule(4, &[(Field::EthDst, 0, u128::MAX)]),
        rule(5, &[(Field::PacketType, 0, u128::MAX), (Field::InPort, 9, 0xffff)]),
    ] {
        c.insert(rule);
    }
    let mut key = Key::ZERO;
    key.dl_type.set(0x800);
    key.nw_ttl = 7;
    key.dl_dst = [1; 6];
    let best = |key: &Key| {
        let (mut key, mut wc) = (*key, Mask::WILDCARD);
        let found = c.lookup(&mut key, &mut wc).map(|r| r.priority);
        assert_eq!(wc.0.packet_type.get(), u32::MAX);
        found
    };
    assert_eq!(best(&key), Some(3));
    key.packet_type.set(0x1_0800);
    key.dl_dst = [0; 6];
    assert_eq!(best(&key), Some(2));
    key.nw_ttl = 8;
    assert_eq!(best(&key), Some(1));
}
