// SPDX-License-Identifier: Apache-2.0
//! Random actions. [`KINDS`] has an entry for each action that there is; [`kind`] makes the
//! compiler ask for the entry of a new one.

use super::matches::{fitted, is_of_later_versions};
use super::{Gen, packets};
use flow::{Field, Subfield};
use openflow::PortNo;
use openflow::action::*;

/// Number of entries of [`Action`].
pub const KINDS: usize = 52;

/// The entry's number.
pub fn kind(action: &Action) -> usize {
    match action {
        Action::Output { .. } => 0,
        Action::OutputReg { .. } => 1,
        Action::OutputTrunc { .. } => 2,
        Action::Controller(_) => 3,
        Action::Enqueue { .. } => 4,
        Action::Bundle(_) => 5,
        Action::Group(_) => 6,
        Action::SetField { .. } => 7,
        Action::Move { .. } => 8,
        Action::StackPush(_) => 9,
        Action::StackPop(_) => 10,
        Action::SetVlanVid { .. } => 11,
        Action::SetVlanPcp { .. } => 12,
        Action::PopVlan { .. } => 13,
        Action::PushVlan { .. } => 14,
        Action::SetEthSrc(_) => 15,
        Action::SetEthDst(_) => 16,
        Action::SetIpv4Src(_) => 17,
        Action::SetIpv4Dst(_) => 18,
        Action::SetIpDscp(_) => 19,
        Action::SetIpEcn(_) => 20,
        Action::SetIpTtl(_) => 21,
        Action::SetL4Src(_) => 22,
        Action::SetL4Dst(_) => 23,
        Action::PushMpls { .. } => 24,
        Action::PopMpls { .. } => 25,
        Action::SetMplsLabel(_) => 26,
        Action::SetMplsTc(_) => 27,
        Action::SetMplsTtl(_) => 28,
        Action::DecMplsTtl => 29,
        Action::DecTtl { .. } => 30,
        Action::SetQueue(_) => 31,
        Action::PopQueue => 32,
        Action::FinTimeout { .. } => 33,
        Action::Resubmit { .. } => 34,
        Action::Learn(_) => 35,
        Action::Conjunction { .. } => 36,
        Action::Multipath(_) => 37,
        Action::Note(_) => 38,
        Action::Exit => 39,
        Action::Sample { .. } => 40,
        Action::Clone(_) => 41,
        Action::CheckPktLarger { .. } => 42,
        Action::Meter(_) => 43,
        Action::ClearActions => 44,
        Action::WriteActions(_) => 45,
        Action::WriteMetadata { .. } => 46,
        Action::GotoTable(_) => 47,
        Action::Ct(_) => 48,
        Action::Nat(_) => 49,
        Action::CtClear => 50,
        Action::SetTunnel { .. } => 51,
        // Not made at random: Open vSwitch aborts at some lists of them (in its push_eth()). The
        // scenarios of `oracle` have them.
        Action::Encap(_) | Action::Decap { .. } | Action::DecNshTtl => 29,
        // Left out: only dummy mode has them.
        Action::DebugSlow | Action::DebugRecirc => 0,
        // A bridge without mappings of options refuses it, as it does sets of shorter options.
        Action::SetOption(_) | Action::DeleteField(_) => 7,
    }
}

/// Kinds that stand after all others, in this order: OpenFlow's instructions.
const INSTRUCTIONS: [usize; 4] = [44, 45, 46, 47];
/// Kinds that a good list has rarely: they stand alone, or end it.
const RARE: [usize; 4] = [36, 39, 43, 3];

/// The kinds that are about connections. Flows that track them have those.
const OF_CONNECTIONS: std::ops::RangeInclusive<usize> = 48..=50;

/// A list for a flow in `table`. `any`: nothing is done for it to be valid.
pub fn list(g: &mut Gen, table: u8, any: bool) -> Vec<Action> {
    if !any && g.one_in(40) {
        let clauses = 2 + g.below(2) as u8;
        let id = 1 + g.small(2);
        return vec![Action::Conjunction { id, clause: g.below(clauses.into()) as u8, clauses }];
    }
    let mut out = applied(g, table, 0, any);
    if any && g.one_in(3) {
        let number = g.below(KINDS);
        out.push(one(g, number, table, 0));
    }
    if g.one_in(3) {
        for kind in INSTRUCTIONS {
            if g.one_in(3) && (kind != 47 || table < 3) {
                out.push(one(g, kind, table, 0));
            }
        }
    }
    out
}

/// Actions without instructions.
pub fn applied(g: &mut Gen, table: u8, depth: usize, any: bool) -> Vec<Action> {
    let mut out = Vec::new();
    for _ in 0..g.below(5) {
        let kind = g.below(KINDS);
        if !any && (INSTRUCTIONS.contains(&kind) || RARE.contains(&kind) && !g.one_in(8)) {
            continue;
        }
        if !any && (kind == 36 || OF_CONNECTIONS.contains(&kind)) {
            continue;
        }
        if depth > 1 && matches!(kind, 41 | 45) {
            continue;
        }
        out.push(one(g, kind, table, depth));
    }
    if g.below(4) != 0 {
        out.push(output(g));
    }
    out
}

fn output(g: &mut Gen) -> Action {
    let port = g.of_port();
    Action::Output {
        port,
        max_len: if port == PortNo::CONTROLLER { g.pick(&[0, 64, 0xffff]) } else { 0 },
    }
}

/// Fields that messages have a number for, but those of options: a bridge has no mappings of them, and
/// but the number of a recirculation, which each switch chooses.
fn written() -> Vec<Field> {
    let numbered = |f: &Field| {
        f.oxm(0).is_some()
            && !matches!(f, Field::ActsetOutput | Field::RecircId)
            && f.option().is_none()
            && !is_of_later_versions(*f)
    };
    Field::ALL.into_iter().filter(numbered).collect()
}

fn part(g: &mut Gen, fields: &[Field]) -> Subfield {
    let field = g.pick(fields);
    let bits = field.bits();
    let start = if g.bool() { 0 } else { g.below(bits.into()) as u16 };
    let len = if g.bool() { bits - start } else { 1 + g.below((bits - start).into()) as u16 };
    Subfield { field, start, bits: len }
}

const REGISTERS: [Field; 6] =
    [Field::Reg0, Field::Reg1, Field::Reg15, Field::Xreg3, Field::Xxreg1, Field::Metadata];

fn register(g: &mut Gen, bits: u16) -> Subfield {
    let field = g.pick(&REGISTERS);
    Subfield { field, start: 0, bits: bits.min(field.bits()) }
}

fn any_part(g: &mut Gen) -> Subfield {
    if g.bool() { part(g, &REGISTERS) } else { part(g, &written()) }
}

/// An action of this kind.
fn one(g: &mut Gen, kind: usize, table: u8, depth: usize) -> Action {
    match kind {
        0 => output(g),
        1 => {
            let src = if g.bool() { register(g, 16) } else { any_part(g) };
            Action::OutputReg { src, max_len: 0 }
        }
        2 => Action::OutputTrunc {
            port: truncated_to(g),
            max_len: g.pick(&[14, 20, 34, 60, 100, 13, 9000]),
        },
        3 => Action::Controller(Box::new(Controller {
            max_len: g.pick(&[0, 20, 0xffff]),
            controller_id: g.pick(&[0, 0, 5]),
            reason: g.pick(&[1, 0, 2, 3]),
            userdata: Vec::new(),
            pause: false,
            meter_id: u32::MAX,
        })),
        4 => Action::Enqueue { port: g.of_port(), queue: g.small(3) },
        5 => bundle(g),
        6 => Action::Group(g.group()),
        7 => set_field(g),
        8 => {
            let src = any_part(g);
            let mut dst = any_part(g);
            dst.start = dst.start.min(dst.field.bits().saturating_sub(src.bits));
            dst.bits = src.bits;
            Action::Move { src, dst }
        }
        9 => Action::StackPush(any_part(g)),
        10 => Action::StackPop(any_part(g)),
        11 => Action::SetVlanVid { vid: g.pick(&super::VLANS), push_if_missing: g.bool() },
        12 => Action::SetVlanPcp { pcp: g.small(8) as u8, push_if_missing: g.bool() },
        13 => {
            let spelled = if g.bool() { PopSpelling::PopVlan } else { PopSpelling::StripVlan };
            Action::PopVlan { spelled }
        }
        14 => Action::PushVlan { tpid: g.pick(&[0x8100, 0x8100, 0x88a8, 0x9100]) },
        15 => Action::SetEthSrc(packets::mac(g)),
        16 => Action::SetEthDst(packets::mac(g)),
        17 => Action::SetIpv4Src(packets::v4(g).to_bits()),
        18 => Action::SetIpv4Dst(packets::v4(g).to_bits()),
        19 => Action::SetIpDscp(g.pick(&[0, 32, 0xb8, 0xfc, 1])),
        20 => Action::SetIpEcn(g.small(5) as u8),
        21 => Action::SetIpTtl(g.ttl()),
        22 => Action::SetL4Src(g.l4_port()),
        23 => Action::SetL4Dst(g.l4_port()),
        24 => Action::PushMpls { ethertype: g.pick(&[0x8847, 0x8847, 0x8848, 0x0800]) },
        25 => Action::PopMpls {
            ethertype: g.pick(&[0x0800, 0x0800, 0x86dd, 0x8847, 0x8848, 0x0806, 0x1234]),
        },
        26 => Action::SetMplsLabel(g.pick(&[0, 3, 100, 0xfffff])),
        27 => Action::SetMplsTc(g.small(8) as u8),
        28 => Action::SetMplsTtl(g.ttl()),
        29 => Action::DecMplsTtl,
        30 => Action::DecTtl { controllers: if g.one_in(4) { vec![1, 2] } else { vec![0] } },
        31 => Action::SetQueue(g.small(3)),
        32 => Action::PopQueue,
        33 => Action::FinTimeout { idle: g.small(5) as u16, hard: g.small(5) as u16 },
        34 => resubmit(g, table),
        35 => learn(g),
        36 => Action::Conjunction {
            id: g.small(3),
            clause: g.small(3) as u8,
            clauses: g.small(4) as u8,
        },
        37 => multipath(g),
        38 => {
            let len = 6 + 8 * g.below(2);
            Action::Note(g.bytes(len))
        }
        39 => Action::Exit,
        40 => Action::Sample {
            probability: g.pick(&[1, 0x8000, 0xffff]),
            collector_set: 1,
            obs_domain: ObservationId::Number(2),
            obs_point: ObservationId::Number(3),
            sampling_port: PortNo::NONE,
            direction: SampleDirection::Default,
        },
        41 => Action::Clone(applied(g, table, depth + 1, false)),
        42 => {
            let mut dst = if g.below(4) != 0 { register(g, 1) } else { any_part(g) };
            dst.bits = 1;
            Action::CheckPktLarger { len: g.pick(&[0, 60, 64, 100, 1500]), dst }
        }
        43 => Action::Meter(g.pick(&[1, 99])),
        44 => Action::ClearActions,
        45 => {
            let mut set = applied(g, table, depth + 1, false);
            if !g.one_in(8) {
                set.retain(|a| !matches!(kind_of_set(a), Held::Not));
            }
            Action::WriteActions(set)
        }
        46 => {
            let mask = g.pick(&[u64::MAX, 0xff, 0xff00]);
            Action::WriteMetadata { value: g.pick(&[0u64, 1, 2, 0x1234]) & mask, mask }
        }
        48 => {
            let is_v6 = g.bool();
            super::connections::ct(g, table, is_v6)
        }
        49 => Action::Nat(Nat::EXISTING),
        50 => Action::CtClear,
        51 => {
            let spelled = g.pick(&[TunnelSpelling::SetTunnel, TunnelSpelling::SetTunnel64]);
            Action::SetTunnel { id: u64::from(g.small(9)) << g.pick(&[0, 32]), spelled }
        }
        // Not 255, which is no table; OVS takes it, and runs on in a table that is not there.
        _ => Action::GotoTable(if g.one_in(20) {
            g.pick(&[table, 254])
        } else {
            table.saturating_add(1 + g.small(2) as u8).min(254)
        }),
    }
}

enum Held {
    InSet,
    Not,
}

/// Whether an action set can hold the action.
fn kind_of_set(action: &Action) -> Held {
    match kind(action) {
        0 | 6..=8 | 11..=31 | 34 | 51 => Held::InSet,
        _ => Held::Not,
    }
}

fn set_field(g: &mut Gen) -> Action {
    let field = if g.one_in(4) { g.pick(&REGISTERS) } else { g.pick(&written()) };
    // OVS accepts it in OpenFlow 1.0, and then reports it in 1.5 in a form that 1.5 does not allow.
    let field = if field == Field::InPortOxm { Field::InPort } else { field };
    let value = g.value(field);
    let all = field.all_ones();
    // OpenFlow 1.5 has no words for a part of a VLAN's number.
    if field != Field::VlanVid && g.one_in(3) {
        let p = part(g, &[field]);
        let ones = if p.bits >= 128 { u128::MAX } else { (1 << p.bits) - 1 };
        let mask = ones << p.start;
        return Action::SetField { field, value: value & mask, mask, spelled: SetSpelling::Load };
    }
    let mask = if field.maskable() && g.one_in(3) { g.mask(field) } else { all };
    let mask = if field == Field::VlanVid { all } else { mask };
    Action::SetField {
        field,
        value: fitted(field, value) & mask,
        mask,
        spelled: SetSpelling::SetField,
    }
}

fn resubmit(g: &mut Gen, table: u8) -> Action {
    // Mostly ahead: what goes back makes trees of many thousand lookups.
    let next = if g.one_in(16) { g.small(4) as u8 } else { table.saturating_add(1) };
    match g.below(8) {
        0 => Action::Resubmit { port: Some(g.of_port()), table: Some(next), original_tuple: false },
        1 => Action::Resubmit {
            port: None,
            table: Some(g.pick(&[next, 254])),
            original_tuple: false,
        },
        _ => Action::Resubmit { port: None, table: Some(next), original_tuple: false },
    }
}

/// Without a choice: hash functions are each switch's own.
fn bundle(g: &mut Gen) -> Action {
    let members = (0..1 + g.below(3)).map(|_| g.of_port()).collect();
    let dst = g.bool().then(|| register(g, 16));
    Action::Bundle(Box::new(Bundle {
        fields: HashFields::EthSrc,
        basis: 0,
        algorithm: BundleAlgorithm::ActiveBackup,
        members,
        dst,
    }))
}

/// As [`bundle`]: one link to choose from.
fn multipath(g: &mut Gen) -> Action {
    use HashFields::*;
    use MultipathAlgorithm::*;
    Action::Multipath(Box::new(Multipath {
        fields: g.pick(&[
            EthSrc,
            SymmetricL4,
            SymmetricL3L4,
            SymmetricL3L4Udp,
            NwSrc,
            NwDst,
            SymmetricL3,
        ]),
        basis: g.small(3) as u16,
        algorithm: g.pick(&[ModuloN, HashThreshold, Hrw]),
        max_link: 0,
        arg: 0,
        dst: if g.below(4) != 0 { register(g, 16) } else { any_part(g) },
    }))
}

fn learn(g: &mut Gen) -> Action {
    let mut specs = Vec::new();
    let whole = |field: Field| Subfield { field, start: 0, bits: field.bits() };
    for _ in 0..1 + g.below(4) {
        // OVS shows flags that there are not in what is learned of ct_state.
        let field = Some(g.pick(&written())).filter(|f| *f != Field::CtState);
        let field = field.unwrap_or(Field::CtMark);
        let spec = match g.below(6) {
            0 => LearnSpec {
                bits: 48,
                src: LearnSource::Field(whole(Field::EthSrc)),
                dst: LearnTarget::Match(whole(Field::EthDst)),
            },
            1 => LearnSpec {
                bits: 16,
                src: LearnSource::Field(whole(Field::InPort)),
                dst: LearnTarget::Output,
            },
            2 => LearnSpec {
                bits: field.bits(),
                src: LearnSource::Field(whole(field)),
                dst: LearnTarget::Match(whole(field)),
            },
            3 => LearnSpec {
                bits: field.bits(),
                src: LearnSource::Value(fitted(field, g.value(field))),
                dst: LearnTarget::Match(whole(field)),
            },
            4 => {
                let value = LearnSource::Value(fitted(field, g.value(field)));
                LearnSpec { bits: field.bits(), src: value, dst: LearnTarget::Load(whole(field)) }
            }
            _ => LearnSpec {
                bits: 16,
                src: LearnSource::Field(whole(Field::InPort)),
                dst: LearnTarget::Load(Subfield { field: Field::Reg0, start: 0, bits: 16 }),
            },
        };
        specs.push(spec);
    }
    Action::Learn(Box::new(Learn {
        idle_timeout: g.pick(&[0, 5, 60]),
        hard_timeout: g.pick(&[0, 10]),
        priority: g.priority(),
        cookie: g.pick(&[0, 9]),
        send_flow_removed: g.one_in(8),
        delete_learned: g.one_in(8),
        table: if g.one_in(20) { g.pick(&[254, 255]) } else { 1 + g.small(3) as u8 },
        fin_idle_timeout: g.pick(&[0, 0, 2]),
        fin_hard_timeout: 0,
        limit: g.pick(&[0, 0, 0, 2]),
        result_dst: g.one_in(6).then(|| {
            let mut dst = part(g, &REGISTERS);
            dst.bits = 1;
            dst
        }),
        specs,
    }))
}

/// Not IN_PORT: ovs-actions(7) allows it, but OVS 3.1 takes it for a patch port and does nothing.
/// Nor 0xff00, which OVS accepts here and nowhere else, nor none, which it accepts in groups and
/// then reports in a reply that no controller can read.
fn truncated_to(g: &mut Gen) -> PortNo {
    loop {
        let port = g.of_port();
        if ![PortNo::IN_PORT, PortNo::MAX, PortNo::NONE].contains(&port) {
            return port;
        }
    }
}
