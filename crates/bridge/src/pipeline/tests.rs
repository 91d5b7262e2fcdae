// SPDX-License-Identifier: Apache-2.0
//! Flow and group mods, expiry and eviction.

use super::{Change, EvictionConfig, Filter, Pipeline};
use crate::learned_flow::LearnedFlow;
use crate::rule::{FAIL_OPEN, IN_BAND, Rule};
use crate::snapshot::INTERNAL_TABLE;
use clock::Millis;
use flow::{Field, Match, Subfield};
use openflow::message::{
    Bucket, FlowFlags, FlowMod, FlowModCommand, FlowRemovedReason, GROUP_ALL, GroupCommand,
    GroupKind, GroupMod, GroupProperties, TABLE_ALL,
};
use openflow::{Action, OfError, PortNo};
use std::sync::Arc;
use std::time::Instant;

fn matching(fields: &[(Field, u128)]) -> Match {
    let mut m = Match::ANY;
    for (f, v) in fields {
        m.set(*f, *v);
    }
    m
}

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn add(priority: u16, m: Match, actions: &[Action]) -> FlowMod {
    FlowMod::add(priority, m, actions)
}

fn with(command: FlowModCommand, fm: FlowMod) -> FlowMod {
    FlowMod { command, ..fm }
}

struct Bench {
    p: Pipeline,
    now: Millis,
}

impl Bench {
    fn new() -> Bench {
        Bench { p: Pipeline::default(), now: Millis(1000) }
    }

    fn run(&mut self, fm: &FlowMod) -> Result<Vec<Change>, OfError> {
        self.p.flow_mod(fm, &|_| false, self.now)
    }

    fn count(&self) -> usize {
        self.p.rule_count()
    }
}

fn ip(dst: u128) -> Match {
    matching(&[(Field::EthType, 0x800), (Field::Ipv4Dst, dst)])
}

#[test]
fn adding_the_same_match_and_priority_replaces() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[output(1)])).unwrap();
    let rule = b.p.select(&Filter::default()).remove(0);
    rule.stats.credit(3, 300, b.now);
    let changes = b.run(&add(5, ip(1), &[output(2)])).unwrap();
    assert!(
        matches!(&changes[..], [Change::Modified { new, .. }] if new.actions[..] == [output(2)])
    );
    assert_eq!(b.count(), 1);
    assert_eq!(b.p.select(&Filter::default())[0].stats.counts(), (3, 300));
    b.run(&FlowMod { flags: FlowFlags::RESET_COUNTS, ..add(5, ip(1), &[output(2)]) }).unwrap();
    assert_eq!(b.p.select(&Filter::default())[0].stats.counts(), (0, 0));
}

#[test]
fn a_flow_that_is_added_again_keeps_its_idle_time() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[output(1)])).unwrap();
    let rule = b.p.select(&Filter::default()).remove(0);
    rule.stats.credit(3, 300, b.now + 5);
    b.run(&FlowMod { flags: FlowFlags::RESET_COUNTS, ..add(5, ip(1), &[output(2)]) }).unwrap();
    let new = b.p.select(&Filter::default()).remove(0);
    assert_eq!((new.stats.counts(), new.stats.used()), ((0, 0), b.now + 5));
}

#[test]
fn counters_that_a_modification_resets_are_those_of_the_new_rule() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[output(1)])).unwrap();
    let rule = b.p.select(&Filter::default()).remove(0);
    rule.stats.credit(3, 300, b.now + 5);
    let before = b.p.clone();
    let modify = with(FlowModCommand::Modify, add(5, ip(1), &[output(2)]));
    let modify = FlowMod { flags: FlowFlags::RESET_COUNTS, ..modify };
    let changes = b.run(&modify).unwrap();
    let [Change::Modified { new, .. }] = &changes[..] else { panic!("{changes:?}") };
    // Megaflows report late the packets that they counted by the old rule.
    rule.stats.credit(2, 200, b.now + 6);
    assert_eq!(new.stats.counts(), (0, 0));
    assert_eq!(new.stats.used(), b.now + 5, "its idle time goes on");
    // A bundle that fails restores the earlier state.
    b.p = before;
    assert_eq!(b.p.select(&Filter::default())[0].stats.counts(), (5, 500));
}

#[test]
fn all_groups_take_their_rules_along_at_once() {
    let mut b = Bench::new();
    let every = |command, id| group(command, id, GroupKind::All, &[output(1)]);
    for id in 1..=3 {
        b.p.group_mod(&every(GroupCommand::Add, id), b.now).unwrap();
        b.run(&add(id as u16, ip(u128::from(id)), &[Action::Group(id)])).unwrap();
    }
    let nested = Action::Clone(vec![output(1), Action::Group(2)]);
    b.run(&add(9, ip(9), &[nested])).unwrap();
    b.run(&add(10, ip(10), &[output(1)])).unwrap();
    let changes = b.p.group_mod(&every(GroupCommand::Delete, 2), b.now).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(b.count(), 3);
    let changes = b.p.group_mod(&every(GroupCommand::Delete, GROUP_ALL), b.now).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!((b.count(), b.p.groups().len()), (1, 0));
}

#[test]
fn rules_go_in_the_order_in_which_they_were_added() {
    // An order by hashes would be another one, and would differ between runs.
    let added: Vec<u128> = (0..40).map(|n| n * 7 % 40).collect();
    let filled = || {
        let mut b = Bench::new();
        for dst in &added {
            b.run(&FlowMod { hard_timeout: 5, ..add(5, ip(*dst), &[output(1)]) }).unwrap();
        }
        b
    };
    let gone = |changes: Vec<Change>| -> Vec<u128> {
        let address = |change: Change| match change {
            Change::Removed { rule, .. } => Field::Ipv4Dst.load(rule.matching.expand().key()),
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(address).collect()
    };
    for which in [Match::ANY, matching(&[(Field::EthType, 0x800)])] {
        let delete = with(FlowModCommand::Delete, add(0, which, &[]));
        assert_eq!(gone(filled().run(&delete).unwrap()), added);
    }
    assert_eq!(gone(filled().p.clear_rules()), added);
    assert_eq!(gone(filled().p.expire(Millis(9000), Millis(9000))), added);
}

#[test]
fn overlap_is_refused_when_asked() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[])).unwrap();
    let wide = matching(&[(Field::EthType, 0x800)]);
    let check = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..add(5, wide, &[]) };
    assert_eq!(b.run(&check).unwrap_err(), OfError::OFPFMFC_OVERLAP);
    // A rule may be replaced even when it overlaps others.
    b.run(&add(5, wide, &[])).unwrap();
    assert!(matches!(&b.run(&check).unwrap()[..], [Change::Modified { .. }]));
    assert!(b.run(&FlowMod { priority: 6, ..check }).is_ok());
}

#[test]
fn modify_is_loose_or_strict_and_keeps_what_it_does_not_name() {
    let mut b = Bench::new();
    for dst in 1..4 {
        b.run(&FlowMod { new_cookie: 7, idle_timeout: 9, ..add(5, ip(dst), &[output(1)]) })
            .unwrap();
    }
    let loose = FlowMod {
        new_cookie: u64::MAX,
        ..with(FlowModCommand::Modify, add(0, matching(&[(Field::EthType, 0x800)]), &[output(9)]))
    };
    assert_eq!(b.run(&loose).unwrap().len(), 3);
    for r in b.p.select(&Filter::default()) {
        assert_eq!((r.cookie, r.timeouts.idle(), &r.actions[..]), (7, 9, &[output(9)][..]));
    }
    let strict = FlowMod {
        new_cookie: u64::MAX,
        ..with(FlowModCommand::ModifyStrict, add(5, ip(2), &[output(4)]))
    };
    assert_eq!(b.run(&strict).unwrap().len(), 1);
    let nothing = FlowMod {
        new_cookie: u64::MAX,
        ..with(FlowModCommand::ModifyStrict, add(6, ip(2), &[output(4)]))
    };
    assert!(b.run(&nothing).unwrap().is_empty());
    // OpenFlow 1.0: a modification that matches no rule adds one.
    let adds = with(FlowModCommand::Modify, add(6, ip(77), &[output(4)]));
    assert!(matches!(&b.run(&adds).unwrap()[..], [Change::Added(_)]));
}

#[test]
fn delete_obeys_table_cookie_and_out_port() {
    let mut b = Bench::new();
    for (dst, cookie, port, table) in [(1, 0x10, 1, 0), (2, 0x11, 2, 0), (3, 0x20, 2, 1)] {
        b.run(&FlowMod { new_cookie: cookie, table_id: table, ..add(5, ip(dst), &[output(port)]) })
            .unwrap();
    }
    let any = with(FlowModCommand::Delete, add(0, Match::ANY, &[]));
    let by_port = FlowMod { out_port: PortNo(2), table_id: 0, ..any.clone() };
    assert_eq!(b.run(&by_port).unwrap().len(), 1);
    let by_cookie = FlowMod { cookie: 0x10, cookie_mask: 0xf0, table_id: TABLE_ALL, ..any.clone() };
    assert_eq!(b.run(&by_cookie).unwrap().len(), 1);
    assert_eq!(b.count(), 1);
    assert_eq!(b.run(&FlowMod { table_id: TABLE_ALL, ..any }).unwrap().len(), 1);
    assert_eq!(b.count(), 0);
}

#[test]
fn rules_expire_by_idle_and_by_hard_timeout() {
    let mut b = Bench::new();
    b.run(&FlowMod { idle_timeout: 2, ..add(5, ip(1), &[]) }).unwrap();
    b.run(&FlowMod { hard_timeout: 3, ..add(5, ip(2), &[]) }).unwrap();
    assert!(b.p.has_timeouts());
    assert!(b.p.expire(b.now + 1999, b.now + 1999).is_empty());
    let idle = b.p.select(&Filter { matching: ip(1), ..Filter::default() }).remove(0);
    idle.stats.credit(1, 60, b.now + 1999);
    let gone = b.p.expire(b.now + 3001, b.now + 3001);
    assert!(matches!(&gone[..], [Change::Removed { reason: FlowRemovedReason::HardTimeout, .. }]));
    let gone = b.p.expire(b.now + 4000, b.now + 4000);
    assert!(matches!(&gone[..], [Change::Removed { reason: FlowRemovedReason::IdleTimeout, .. }]));
    assert!(!b.p.has_timeouts());
}

#[test]
fn a_full_table_refuses_or_evicts_the_least_important() {
    let mut b = Bench::new();
    b.p.table_mut(0).unwrap().eviction.limit = Some(2);
    b.run(&FlowMod { idle_timeout: 50, importance: 2, ..add(5, ip(1), &[]) }).unwrap();
    b.run(&FlowMod { idle_timeout: 90, importance: 1, ..add(5, ip(2), &[]) }).unwrap();
    assert_eq!(b.run(&add(5, ip(3), &[])).unwrap_err(), OfError::OFPFMFC_TABLE_FULL);
    b.p.table_mut(0).unwrap().eviction.evict = true;
    let changes = b.run(&add(5, ip(3), &[])).unwrap();
    let [Change::Removed { rule, reason: FlowRemovedReason::Eviction }, Change::Added(_)] =
        &changes[..]
    else {
        panic!("{changes:?}")
    };
    assert_eq!(rule.importance, 1);
    b.run(&add(5, ip(4), &[])).unwrap();
    assert_eq!(
        b.run(&add(5, ip(5), &[])).unwrap_err(),
        OfError::OFPFMFC_TABLE_FULL,
        "none left that expires"
    );
}

/// Returns a bench whose table 0 is full and evicts. All rules in it expire.
fn full(count: u32) -> Bench {
    let mut b = Bench::new();
    let eviction = &mut b.p.table_mut(0).unwrap().eviction;
    (eviction.limit, eviction.evict) = (Some(count), true);
    for dst in 0..count {
        b.run(&expiring(dst)).unwrap();
    }
    b
}

fn expiring(dst: u32) -> FlowMod {
    FlowMod { idle_timeout: 100, ..add(5, ip(dst.into()), &[output(1)]) }
}

/// Returns the rule that was evicted for another one.
fn evicted(changes: &[Change]) -> Option<&Rule> {
    match changes {
        [Change::Removed { rule, reason: FlowRemovedReason::Eviction }, Change::Added(_)] => {
            Some(rule)
        }
        [Change::Added(_)] => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn to_evict_from_a_large_table_is_no_look_at_all_its_rules() {
    let time = |count: u32| {
        let (mut b, mut dst) = (full(count), count);
        let mut round = || {
            let start = Instant::now();
            for _ in 0..200 {
                assert!(evicted(&b.run(&expiring(dst)).unwrap()).is_some());
                dst += 1;
            }
            start.elapsed()
        };
        (0..5).map(|_| round()).min().unwrap()
    };
    let (small, large) = (time(500), time(50_000));
    assert!(large < small * 20, "{large:?}, and {small:?} with a hundredth of the rules");
}

#[test]
fn who_is_evicted_is_who_would_be_if_all_were_compared() {
    fn group_of(rule: &Rule) -> u128 {
        Field::Ipv4Dst.load(rule.matching.expand().key()) & 3
    }
    fn worth(rule: &Rule) -> (u16, i64, u64) {
        let ends = |since: Millis, seconds: u16| match seconds {
            0 => i64::MAX,
            _ => since.0 + i64::from(seconds) * 1000,
        };
        let idle = ends(rule.stats.used(), rule.timeouts.idle());
        let hard = ends(rule.modified.get(), rule.timeouts.hard());
        (rule.importance, idle.min(hard), rule.id)
    }
    let mut b = Bench::new();
    let groups = vec![Subfield::new(Field::Ipv4Dst, 0, 2).unwrap()];
    b.p.table_mut(0).unwrap().eviction =
        EvictionConfig { limit: Some(40), evict: true, groups, ..EvictionConfig::default() };
    let mut seed = 1u64;
    let mut random = |below: u16| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u16 % below
    };
    for dst in 0..2000u32 {
        b.now = b.now + i64::from(random(3000));
        let rules = b.p.select(&Filter::default());
        for rule in &rules {
            if random(8) == 0 {
                rule.stats.credit(1, 60, b.now);
            }
        }
        let fm = FlowMod {
            // Some rules never expire.
            idle_timeout: if dst < 5 { 0 } else { 1 + random(100) },
            hard_timeout: if dst < 5 { 0 } else { random(100) },
            importance: random(3),
            ..add(5, ip(dst.into()), &[output(1)])
        };
        let before = b.p.clone();
        if random(4) == 0 {
            b.run(&fm).unwrap();
            b.p = before; // as a bundle that fails
        }
        let changes = b.run(&fm).unwrap();
        let Some(gone) = evicted(&changes) else { continue };
        let may_go: Vec<&Arc<Rule>> = rules.iter().filter(|rule| rule.may_expire()).collect();
        let of = |group: u128| may_go.iter().filter(move |rule| group_of(rule) == group);
        let largest = (0..4).map(|group| of(group).count()).max();
        assert_eq!(Some(of(group_of(gone)).count()), largest);
        assert_eq!(of(group_of(gone)).map(|rule| worth(rule)).min(), Some(worth(gone)));
    }
    assert_eq!(b.count(), 40);
}

#[test]
fn a_rule_whose_timeout_was_lowered_is_evicted_sooner() {
    let mut b = full(3);
    b.run(&expiring(3)).unwrap(); // from here on there is an order
    let last = b.p.select(&Filter { matching: ip(3), ..Filter::default() }).remove(0);
    last.timeouts.reduce(1, 0);
    assert!(b.p.expire(b.now, b.now).is_empty());
    let changes = b.run(&expiring(4)).unwrap();
    assert_eq!(evicted(&changes).map(|rule| rule.id), Some(last.id));
}

#[test]
fn a_clone_undoes_a_bundle() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[output(1)])).unwrap();
    let before = b.p.clone();
    b.run(&add(5, ip(2), &[output(1)])).unwrap();
    b.run(&with(FlowModCommand::Delete, add(0, ip(1), &[]))).unwrap();
    b.p = before;
    let rules = b.p.select(&Filter::default());
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].matching.expand(), ip(1));
}

fn group(command: GroupCommand, id: u32, kind: GroupKind, actions: &[Action]) -> GroupMod {
    GroupMod {
        command,
        kind,
        group_id: id,
        command_bucket_id: openflow::message::group::bucket::ALL,
        buckets: vec![Bucket { weight: 1, ..Bucket::new(0, actions) }],
        properties: GroupProperties::default(),
    }
}

#[test]
fn groups_take_their_rules_with_them() {
    let mut b = Bench::new();
    assert_eq!(
        b.run(&add(5, ip(1), &[Action::Group(4)])).unwrap_err(),
        OfError::OFPBAC_BAD_OUT_GROUP
    );
    b.p.group_mod(&group(GroupCommand::Add, 4, GroupKind::All, &[output(1)]), b.now).unwrap();
    b.run(&add(5, ip(1), &[Action::Group(4)])).unwrap();
    let again = b.p.group_mod(&group(GroupCommand::Add, 4, GroupKind::All, &[]), b.now);
    assert_eq!(again.unwrap_err(), OfError::OFPGMFC_GROUP_EXISTS);
    let changes =
        b.p.group_mod(&group(GroupCommand::Delete, 4, GroupKind::All, &[]), b.now).unwrap();
    assert!(matches!(
        &changes[..],
        [Change::Removed { reason: FlowRemovedReason::GroupDelete, .. }]
    ));
    assert_eq!(b.count(), 0);
}

#[test]
fn group_chains_must_not_loop() {
    let mut b = Bench::new();
    b.p.group_mod(&group(GroupCommand::Add, 1, GroupKind::All, &[output(1)]), b.now).unwrap();
    b.p.group_mod(&group(GroupCommand::Add, 2, GroupKind::All, &[Action::Group(1)]), b.now)
        .unwrap();
    let looped =
        b.p.group_mod(&group(GroupCommand::Modify, 1, GroupKind::All, &[Action::Group(2)]), b.now);
    assert_eq!(looped.unwrap_err(), OfError::OFPGMFC_LOOP);
}

/// Returns a learned flow with a hard timeout of 10 s and no idle timeout.
fn learned() -> LearnedFlow {
    LearnedFlow {
        table: 1,
        priority: 9,
        matching: ip(1),
        actions: Arc::new([output(3)]),
        cookie: 5,
        idle_timeout: 0,
        hard_timeout: 10,
        send_flow_removed: false,
        delete_with: None,
        limit: 0,
    }
}

#[test]
fn a_learned_flow_is_refreshed_not_doubled() {
    let mut b = Bench::new();
    let flow = learned();
    assert_eq!(b.p.learn(&flow, b.now, b.now).unwrap().len(), 1);
    assert!(b.p.learn(&flow, b.now + 5000, b.now + 5000).unwrap().is_empty());
    assert_eq!(b.count(), 1);
    assert!(b.p.expire(b.now + 14_000, b.now + 14_000).is_empty(), "the hard timeout started over");
    assert!(b.p.expire(b.now + 15_000, b.now + 15_000).is_empty(), "not over it yet");
    assert_eq!(b.p.expire(b.now + 15_001, b.now + 15_001).len(), 1);
}

#[test]
fn a_learned_flow_that_is_learned_again_keeps_timeouts_that_were_lowered() {
    let mut b = Bench::new();
    let flow = learned();
    let added = b.p.learn(&flow, b.now, b.now).unwrap();
    let [Change::Added(rule)] = &added[..] else { panic!("{added:?}") };
    rule.timeouts.reduce(2, 4);
    let again = b.p.learn(&flow, b.now + 1000, b.now + 1000).unwrap();
    assert!(again.is_empty(), "{again:?}");
    let other = LearnedFlow { actions: Arc::new([output(4)]), cookie: 6, ..flow };
    let changed = b.p.learn(&other, b.now + 2000, b.now + 2000).unwrap();
    let [Change::Modified { new, .. }] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!((new.timeouts.idle(), new.timeouts.hard()), (2, 4));
    assert_eq!((new.cookie, &new.actions[..]), (6, &[output(4)][..]));
    assert_eq!((new.created, new.modified.get()), (b.now, b.now + 2000));
    assert!(b.p.expire(b.now + 2000, b.now + 2000).is_empty());
    assert_eq!(b.p.expire(b.now + 2001, b.now + 2001).len(), 1);
}

#[test]
fn at_the_limit_a_learned_flow_lives_on_and_does_not_change() {
    let mut b = Bench::new();
    let flow = LearnedFlow { limit: 1, ..learned() };
    assert_eq!(b.p.learn(&flow, b.now, b.now).unwrap().len(), 1);
    let other = LearnedFlow { actions: Arc::new([output(4)]), ..flow.clone() };
    assert!(b.p.learn(&other, b.now + 5000, b.now + 5000).unwrap().is_empty());
    assert!(b.p.learn(&flow, b.now + 5000, b.now + 5000).unwrap().is_empty());
    let rule = b.p.tables().flat_map(|(_, t)| t.rules().iter()).find(|r| r.table == 1).unwrap();
    assert_eq!((&rule.actions[..], rule.modified.get()), (&[output(3)][..], b.now + 5000));
}

/// Returns an action that learns into table 7. The learned flows are deleted with its rule.
fn learn_with_cookie(cookie: u64) -> openflow::action::Learn {
    openflow::action::Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: 1,
        cookie,
        send_flow_removed: false,
        delete_learned: true,
        table: 7,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    }
}

#[test]
fn deleting_all_rules_keeps_hidden_ones_and_takes_learned_ones_along() {
    let mut b = Bench::new();
    b.p.add_hidden(0, IN_BAND, ip(1), [output(9)].as_slice().into(), b.now).unwrap();
    for dst in 1..100 {
        b.run(&FlowMod { idle_timeout: 9, ..add(5, ip(dst), &[output(1)]) }).unwrap();
    }
    b.run(&add(6, ip(1), &[Action::Learn(Box::new(learn_with_cookie(0x33)))])).unwrap();
    b.run(&FlowMod { table_id: 7, new_cookie: 0x33, ..add(5, ip(1), &[]) }).unwrap();
    b.run(&FlowMod { table_id: 7, new_cookie: 0x34, ..add(5, ip(2), &[]) }).unwrap();
    let before = b.p.clone();
    // A deletion from one table: its 100 rules, and the learned one of table 7.
    let delete = FlowMod { table_id: 0, ..with(FlowModCommand::Delete, add(0, Match::ANY, &[])) };
    let changes = b.run(&delete).unwrap();
    let removed =
        |c: &Change| matches!(c, Change::Removed { reason: FlowRemovedReason::Delete, .. });
    assert_eq!(changes.iter().filter(|c| removed(c)).count(), 101);
    assert_eq!(b.count(), 2, "the hidden rule, and one of table 7");
    assert!(!b.p.has_timeouts());
    assert_eq!(b.p.table(0).unwrap().rules().iter().filter(|r| r.hidden).count(), 1);
    // Packets see the change, and a bundle can still undo it.
    assert_eq!(b.p.view().get(0).unwrap().rules.len(), 1);
    b.p = before;
    assert_eq!(b.count(), 103);
    let all = b.run(&FlowMod { table_id: TABLE_ALL, ..delete }).unwrap();
    assert_eq!((all.len(), b.count()), (102, 1));
    assert_eq!((b.p.clear_rules().len(), b.count()), (1, 0));
}

/// Returns a bench with a rule that has a hard timeout of 5 s, and a flow that the rule has
/// learned.
fn with_learner_and_learned() -> Bench {
    let mut b = Bench::new();
    let learner = add(6, ip(1), &[Action::Learn(Box::new(learn_with_cookie(0x33)))]);
    b.run(&FlowMod { hard_timeout: 5, ..learner }).unwrap();
    b.run(&FlowMod { table_id: 7, new_cookie: 0x33, ..add(5, ip(1), &[]) }).unwrap();
    b
}

#[test]
fn a_rule_that_is_evicted_takes_learned_ones_along() {
    let mut b = with_learner_and_learned();
    let eviction = &mut b.p.table_mut(0).unwrap().eviction;
    (eviction.limit, eviction.evict) = (Some(1), true);
    b.run(&add(5, ip(2), &[])).unwrap();
    assert_eq!(b.count(), 1);
}

#[test]
fn a_rule_that_expires_takes_learned_ones_along_which_do_not_expire() {
    let mut b = with_learner_and_learned();
    let gone = b.p.expire(b.now + 5001, b.now + 5001);
    assert_eq!((gone.len(), b.count()), (2, 0));
    assert_eq!(gone.iter().filter(|change| change.is_expiry()).count(), 1);
}

#[test]
fn a_limit_that_is_lowered_evicts_at_once() {
    let mut b = Bench::new();
    for n in 0..10u16 {
        let rule = add(5, ip(n.into()), &[]);
        b.run(&FlowMod { hard_timeout: 100, importance: n, ..rule }).unwrap();
    }
    b.run(&add(7, ip(100), &[])).unwrap(); // without a timeout: stays
    b.p.table_mut(0).unwrap().eviction.limit = Some(4);
    assert!(b.p.trim(0).is_empty(), "it does not evict");
    b.p.table_mut(0).unwrap().eviction.evict = true;
    let gone = b.p.trim(0);
    assert_eq!((gone.len(), b.count()), (7, 4));
    let evicted = |change: &Change| match change {
        Change::Removed { rule, reason } => (rule.importance, *reason),
        other => panic!("{other:?}"),
    };
    let expected: Vec<_> = (0..7).map(|n| (n, FlowRemovedReason::Eviction)).collect();
    assert_eq!(gone.iter().map(evicted).collect::<Vec<_>>(), expected);
    b.p.table_mut(0).unwrap().eviction.limit = Some(0);
    assert_eq!((b.p.trim(0).len(), b.count()), (3, 1));
}

#[test]
fn a_rule_that_expires_takes_learned_ones_along() {
    let mut b = with_learner_and_learned();
    let later = b.now + 20_000;
    let reasons: Vec<FlowRemovedReason> =
        b.p.expire(later, later)
            .iter()
            .map(|change| match change {
                Change::Removed { reason, .. } => *reason,
                other => panic!("{other:?}"),
            })
            .collect();
    assert_eq!(reasons, [FlowRemovedReason::HardTimeout, FlowRemovedReason::Delete]);
    assert_eq!(b.count(), 0);
}

#[test]
fn a_rule_that_was_replaced_is_not_removed_in_place_of_its_successor() {
    let mut b = Bench::new();
    b.run(&add(5, ip(1), &[output(1)])).unwrap();
    let old = b.p.select(&Filter::default()).remove(0);
    b.run(&add(5, ip(1), &[output(2)])).unwrap();
    assert!(!b.p.table_mut(0).unwrap().remove(&old));
    assert_eq!(b.p.select(&Filter::default())[0].actions[..], [output(2)]);
    let new = b.p.select(&Filter::default()).remove(0);
    assert!(b.p.table_mut(0).unwrap().remove(&new));
    assert_eq!(b.count(), 0);
}

#[test]
fn idle_time_counts_to_the_last_time_when_packets_were_counted() {
    let mut b = Bench::new();
    b.run(&FlowMod { idle_timeout: 2, ..add(5, ip(1), &[]) }).unwrap();
    assert!(b.p.expire(b.now + 10_000, b.now + 2000).is_empty(), "a packet may wait to be counted");
    assert_eq!(b.p.expire(b.now + 10_000, b.now + 2001).len(), 1);
}

#[test]
fn the_internal_table_is_seen_by_name_and_never_changed() {
    let mut b = Bench::new();
    b.p.add_internal(b.now).unwrap();
    b.p.add_hidden(0, FAIL_OPEN, Match::ANY, [output(9)].as_slice().into(), b.now).unwrap();
    let ranks = |b: &Bench, table: u8| -> Vec<u32> {
        let mut ranks: Vec<u32> =
            b.p.table(table)
                .unwrap()
                .rules()
                .iter()
                .map(|r| classifier::Entry::priority(&**r))
                .collect();
        ranks.sort_unstable();
        ranks
    };
    assert_eq!(ranks(&b, INTERNAL_TABLE), [0, 0, 0, 2]);
    assert_eq!(ranks(&b, 0), [15_790_320], "OVS's number for failing open");

    let of_table = |table| Filter { table, ..Filter::default() };
    assert_eq!(b.p.select(&of_table(INTERNAL_TABLE)).len(), 4);
    assert!(b.p.select(&Filter::default()).is_empty());
    let strict = |table| Filter {
        matching: matching(&[(Field::Reg0, 1)]),
        strict_priority: Some(0),
        ..of_table(table)
    };
    assert_eq!(b.p.select(&strict(INTERNAL_TABLE)).len(), 1);
    assert!(b.p.select(&strict(TABLE_ALL)).is_empty());

    for command in [
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
    ] {
        let fm = with(command, FlowMod { table_id: INTERNAL_TABLE, ..add(0, Match::ANY, &[]) });
        assert_eq!(b.run(&fm).unwrap_err(), OfError::OFPBRC_EPERM, "{command:?}");
    }
    let mut one =
        FlowMod { table_id: INTERNAL_TABLE, ..add(0, matching(&[(Field::Reg0, 1)]), &[]) };
    one = with(FlowModCommand::DeleteStrict, one);
    assert_eq!(b.run(&one).unwrap_err(), OfError::OFPBRC_EPERM);
    one.priority = 1;
    assert!(b.run(&one).unwrap().is_empty(), "there is no such rule");
    let delete =
        with(FlowModCommand::Delete, FlowMod { table_id: TABLE_ALL, ..add(0, Match::ANY, &[]) });
    assert!(b.run(&delete).unwrap().is_empty());
    let strict = FlowMod { table_id: TABLE_ALL, ..add(0, matching(&[(Field::Reg0, 1)]), &[]) };
    assert!(b.run(&with(FlowModCommand::DeleteStrict, strict)).unwrap().is_empty());
    assert_eq!(b.count(), 5);
    assert!(b.p.has_hidden(0, FAIL_OPEN, &Match::ANY));
    b.p.remove_hidden(0, FAIL_OPEN, &Match::ANY);
    assert!(!b.p.has_hidden(0, FAIL_OPEN, &Match::ANY));
    b.p.clear_rules();
    assert_eq!(ranks(&b, INTERNAL_TABLE).len(), 4);
    assert_eq!(b.count(), 4);
}
