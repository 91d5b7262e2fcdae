// SPDX-License-Identifier: Apache-2.0
//! Translation of any packet by any tables: it ends, is bounded, can be installed in a datapath, and
//! is sound: another packet of the same megaflow gives the same actions.
//!
//! The input is settings of ports, rules and groups of two bridges joined by a patch, and a
//! packet.

use crate::bench::Bench;
use crate::input::Input;
use crate::seeds::action_texts;
use bridge::snapshot::{BridgeIndex, PriorityTags, VlanMode};
use bridge::translate::{MAX_ACTIONS, Request, Translation, locate, translate};
use datapath::Action as Dp;
use flow::extract::key_of;
use flow::text::no_numbers;
use flow::{Field, Key, Match, Subfield};
use openflow::action::{CheckContext, SetSpelling, check};
use openflow::message::{
    Bucket, FlowMod, GROUP_ANY, GroupCommand, GroupKind, GroupMod, GroupProperties,
};
use openflow::{Action, PortNo, Version};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Ports of each bridge; the last is the patch.
const PORTS: u32 = 4;
/// Tables that rules are in.
const TABLES: u8 = 4;
/// Rules and groups of one input.
const MAX_RULES: usize = 24;
const MAX_GROUPS: usize = 5;
/// Limit for one translation. None takes this long, even here, where every step is checked and
/// counted.
const PATIENCE: Duration = Duration::from_secs(5);
/// Recirculations that are followed.
const MAX_ROUNDS: u32 = 4;
/// Other packets that are tried against each megaflow.
const MUTANTS: usize = 12;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut bench = Bench::new();
    let bridges =
        [bench.bridge("br0", PORTS, Some("br1p4")), bench.bridge("br1", PORTS, Some("br0p4"))];
    for bridge in bridges {
        bundles(&mut bench, bridge, &mut input);
    }
    for id in 1..=input.below(MAX_GROUPS + 1) {
        group(&mut bench, bridges[0], id as u32, &mut input); // at most 5
    }
    for _ in 0..input.below(MAX_RULES + 1) {
        let bridge = bridges[usize::from(input.byte() == 1)];
        rule(&mut bench, bridge, &mut input);
    }
    bench.switch.publish();
    let port = 1 + u32::from(input.byte() & 1);
    let mutants: Vec<(usize, u64)> =
        (0..MUTANTS).map(|_| (input.below(256), input.long())).collect();
    let frame = input.rest();
    let key = key_of(frame, port);
    follow(&bench, &key, &mutants, 0);
    // All of it once more with upcalls, effects and learned flows.
    bench.inject(bridges[0], PortNo(port), frame);
    bench.tick(1000);
    bench.inject(bridges[0], PortNo(port), frame);
}

fn bundles(bench: &mut Bench, bridge: BridgeIndex, input: &mut Input<'_>) {
    let modes = [
        VlanMode::Trunk,
        VlanMode::Access,
        VlanMode::NativeTagged,
        VlanMode::NativeUntagged,
        VlanMode::Dot1qTunnel,
    ];
    let tags = [PriorityTags::Never, PriorityTags::IfNonzero, PriorityTags::Always];
    let b = bench.switch.bridge_mut(bridge).expect("it was just added");
    b.config.frag_handling = input.choose(&[0, 0, 1, 3]);
    for bundle in &mut b.bundles {
        let settings = &mut bundle.settings;
        settings.mode = input.choose(&modes);
        settings.tag = if settings.mode == VlanMode::Trunk { 0 } else { 5 };
        settings.priority_tags = input.choose(&tags);
        settings.qinq_tpid = input.choose(&[0x88a8, 0x8100]);
        settings.protected = input.byte() == 1;
    }
}

fn group(bench: &mut Bench, bridge: BridgeIndex, id: u32, input: &mut Input<'_>) {
    let kinds = [GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];
    let kind = input.choose(&kinds);
    let n = if kind == GroupKind::Indirect { 1 } else { 1 + input.below(3) };
    let buckets = (0..n).map(|bucket| Bucket {
        id: bucket as u32, // at most 3
        weight: u16::from(kind == GroupKind::Select),
        watch_port: if kind == GroupKind::FastFailover {
            PortNo(u32::from(input.byte() & 7))
        } else {
            PortNo::NONE
        },
        watch_group: GROUP_ANY,
        actions: checked(actions(input, 4, 0), &Match::ANY, None).into(),
    });
    let gm = GroupMod {
        command: GroupCommand::Add,
        kind,
        group_id: id,
        command_bucket_id: 0,
        buckets: buckets.collect(),
        properties: properties(kind, input),
    };
    let now = bench.clock.now();
    let b = bench.switch.bridge_rules_mut(bridge).expect("it was just added");
    let _ = b.pipeline.group_mod(&gm, now); // what is refused is not there
}

fn properties(kind: GroupKind, input: &mut Input<'_>) -> GroupProperties {
    let mut properties = GroupProperties::default();
    if kind == GroupKind::Select && input.flag() {
        properties.selection_method = input.choose(&["hash", "dp_hash"]).to_owned();
        properties.selection_param = u64::from(input.byte());
        if properties.selection_method == "hash" {
            let field = input.choose(&Field::ALL);
            properties.fields = vec![(field, field.all_ones())];
        }
    }
    properties
}

fn rule(bench: &mut Bench, bridge: BridgeIndex, input: &mut Input<'_>) {
    let table = input.byte() % TABLES;
    let matching = matching(input);
    let list = checked(actions(input, 6, 0), &matching, Some(table));
    if list.is_empty() && check(&[], &matching, &context(Some(table))).is_err() {
        return; // the match contradicts itself, so no actions would be sound
    }
    let fm =
        FlowMod { table_id: table, ..FlowMod::add(u16::from(input.byte() & 3), matching, &list) };
    let _ = bench.switch.flow_mod(bridge, &fm); // what is refused is not there
}

/// The actions that a bridge would take for such a flow; one after the other is left out until
/// they are sound.
fn checked(mut list: Vec<Action>, matching: &Match, table_id: Option<u8>) -> Vec<Action> {
    let context = context(table_id);
    while !list.is_empty() && check(&list, matching, &context).is_err() {
        list.pop();
    }
    list
}

fn context(table_id: Option<u8>) -> CheckContext {
    CheckContext { version: Version::V15, max_ports: PortNo::MAX, table_id, n_tables: Some(254) }
}

fn matching(input: &mut Input<'_>) -> Match {
    static BASES: OnceLock<Vec<Match>> = OnceLock::new();
    let bases = BASES.get_or_init(|| {
        let texts = [
            "",
            "in_port=1",
            "ip",
            "tcp",
            "udp",
            "ipv6",
            "tcp6",
            "udp6",
            "arp",
            "icmp",
            "icmp6",
            "mpls",
            "sctp",
            "dl_vlan=5",
            "vlan_tci=0",
            "vlan_tci=0x1000/0x1000,ip",
            "icmp6,icmp_type=135,icmp_code=0",
            "mpls,mpls_bos=0",
            "dl_type=0x88cc",
            "igmp",
        ];
        texts.iter().filter_map(|t| flow::text::parse_match(t, &no_numbers).ok()).collect()
    });
    let mut m = bases[input.below(bases.len())]; // there are some
    for _ in 0..input.below(4) {
        let field = input.choose(&Field::ALL);
        let wide = field.all_ones() > 0xffff;
        let value = u128::from(if wide { input.word() } else { input.short().into() });
        let mask =
            if field.maskable() && input.flag() { u128::from(input.word()) } else { u128::MAX };
        let mask = mask & field.all_ones();
        if field.prerequisite().holds_for_match(&m) && m.is_any(field) {
            m.set_masked(field, value & mask, mask);
        }
    }
    m.normalize();
    m
}

fn actions(input: &mut Input<'_>, most: usize, depth: usize) -> Vec<Action> {
    let n = input.below(most + 1);
    (0..n).flat_map(|_| action(input, depth)).collect()
}

fn action(input: &mut Input<'_>, depth: usize) -> Vec<Action> {
    let one = match input.below(16) {
        0..=2 => Action::Output { port: PortNo(u32::from(input.byte() % 6)), max_len: 0 },
        3 => {
            let reserved =
                [PortNo::IN_PORT, PortNo::FLOOD, PortNo::ALL, PortNo::CONTROLLER, PortNo::NORMAL];
            Action::Output { port: input.choose(&reserved), max_len: 64 }
        }
        4 | 5 => set_field(input),
        6 => match subfield(input).zip(subfield(input)) {
            Some((src, dst)) => Action::Move { src, dst: Subfield { bits: src.bits, ..dst } },
            None => return Vec::new(),
        },
        7 => Action::Resubmit {
            port: None,
            table: Some(input.byte() % TABLES),
            original_tuple: input.byte() & 1 != 0,
        },
        8 => Action::Group(1 + u32::from(input.byte() % 6)),
        9 if depth < 3 => Action::Clone(actions(input, 3, depth + 1)),
        10 if depth < 1 => Action::WriteActions(actions(input, 3, depth + 1)),
        11 => Action::PushMpls { ethertype: 0x8847 },
        12 => Action::PopMpls { ethertype: input.choose(&[0x0800, 0x8847, 0x86dd]) },
        13 => Action::PushVlan { tpid: input.choose(&[0x8100, 0x88a8]) },
        _ => return listed(input),
    };
    vec![one]
}

fn set_field(input: &mut Input<'_>) -> Action {
    let field = input.choose(&Field::ALL);
    let all = field.all_ones();
    let mask = if field.maskable() && input.flag() { u128::from(input.word()) & all } else { all };
    let mask = if mask == 0 { all } else { mask };
    let value = if all > 0xffff { input.long().into() } else { u128::from(input.short()) };
    Action::SetField { field, value: value & mask, mask, spelled: SetSpelling::SetField }
}

fn subfield(input: &mut Input<'_>) -> Option<Subfield> {
    Subfield::new(
        input.choose(&Field::ALL),
        u16::from(input.byte() & 31),
        1 + u16::from(input.byte() & 31),
    )
}

/// One of the lists of actions of the recorded texts.
fn listed(input: &mut Input<'_>) -> Vec<Action> {
    static LISTS: OnceLock<Vec<Vec<Action>>> = OnceLock::new();
    let lists = LISTS.get_or_init(|| {
        let texts = action_texts().into_iter();
        texts
            .filter_map(|t| openflow::text::parse_actions(t, Version::V15, &no_numbers).ok())
            .collect()
    });
    lists[usize::from(input.short()) % lists.len()].clone() // there are some
}

/// Translates `key`, then what comes back from recirculation.
fn follow(bench: &Bench, key: &Key, mutants: &[(usize, u64)], round: u32) {
    let Some(first) = translated(bench, key) else { return };
    bounded(&first);
    said(&first);
    let mask = &first.mask.0;
    assert_eq!((mask.dl_type.get(), mask.in_port.get()), (u16::MAX, u32::MAX));
    assert_eq!(mask.recirc_id.get(), u32::MAX);
    assert!(mask.regs.iter().all(|r| r.get() == 0) && mask.metadata.get() == 0);
    sound(bench, key, &first, mutants);
    if round < MAX_ROUNDS {
        let mut ids = Vec::new();
        recirculations(&first.actions, &mut ids);
        for id in ids {
            let mut next = *key;
            next.recirc_id.set(id);
            next.dp_hash.set(1);
            follow(bench, &next, mutants, round + 1);
        }
    }
}

fn translated(bench: &Bench, key: &Key) -> Option<Translation> {
    let slow = bench.switch.slow_path();
    let snapshot = slow.published.newest();
    let found = locate(&snapshot, key, &slow.recirc).ok()?;
    let start = Instant::now();
    let translation = translate(Request {
        frozen: found.frozen,
        ..Request::new(&snapshot, found.bridge, found.key, &slow.recirc, bench.clock.now())
    });
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    Some(translation)
}

fn bounded(t: &Translation) {
    assert!(count(&t.actions) <= MAX_ACTIONS, "{} actions", count(&t.actions));
    if t.error.is_some() {
        assert!(t.actions.iter().all(|a| matches!(a, Dp::Drop(_))), "an error drops: {t:?}");
    }
}

fn count(actions: &[Dp]) -> usize {
    let nested = |a: &Dp| match a {
        Dp::Clone(list) | Dp::Sample { actions: list, .. } => count(list),
        Dp::CheckPktLen { greater, not_greater, .. } => count(greater) + count(not_greater),
        _ => 0,
    };
    actions.iter().map(|a| 1 + nested(a)).sum()
}

/// The actions in the datapath's words are the same actions.
fn said(t: &Translation) {
    let text = datapath::text::format_plain(&t.actions);
    match datapath::text::parse(&text, &|_| None) {
        Ok(again) => assert_eq!(datapath::text::format_plain(&again), text),
        Err(e) => panic!("{text}: {e}"),
    }
}

fn recirculations(actions: &[Dp], out: &mut Vec<u32>) {
    for action in actions {
        match action {
            Dp::Recirc(id) => out.push(*id),
            Dp::Clone(inner) | Dp::Sample { actions: inner, .. } => recirculations(inner, out),
            Dp::CheckPktLen { greater, not_greater, .. } => {
                recirculations(greater, out);
                recirculations(not_greater, out);
            }
            _ => {}
        }
    }
}

/// Other packets of the megaflow get the same actions.
fn sound(bench: &Bench, key: &Key, first: &Translation, mutants: &[(usize, u64)]) {
    for (word, bits) in mutants {
        let other = mutated(key, first, *word, *bits);
        if other == *key {
            continue;
        }
        let Some(second) = translated(bench, &other) else { continue };
        assert_eq!(second.actions, first.actions, "{:?}\n{key:?}\n{other:?}", first.mask);
        assert_eq!(second.error, first.error);
    }
}

/// The key with other bits where the mask has none. The packet stays one that there can be: what
/// is changed are values of fields, not whether there are such fields.
fn mutated(key: &Key, first: &Translation, word: usize, bits: u64) -> Key {
    let mut other = *key;
    let there = flow::text::packet_mask(key);
    let word = word % flow::WORDS;
    let free = there.words()[word] & !first.mask.words()[word]; // below WORDS
    other.words_mut()[word] ^= bits & free;
    // These name headers, and a packet that has others is another packet.
    other.vlans = key.vlans;
    other.mpls = key.mpls;
    other.dl_type = key.dl_type;
    other.nw_proto = key.nw_proto;
    other.nw_frag = key.nw_frag;
    other.packet_type = key.packet_type;
    other.regs = key.regs;
    other.metadata = key.metadata;
    other.dp_hash = key.dp_hash;
    other.conj_id = key.conj_id;
    other.actset_output = key.actset_output;
    if matches!(key.dl_type.get(), 0x0800 | 0x86dd) && key.nw_proto == 58 {
        (other.tp_src, other.tp_dst) = (key.tp_src, key.tp_dst);
    }
    other
}
