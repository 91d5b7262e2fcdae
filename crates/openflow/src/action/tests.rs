// SPDX-License-Identifier: Apache-2.0
//! Actions back and forth, bad bytes, and the consistency check. Open vSwitch's answers to the same
//! bytes are in `tests/vectors.rs`.

use super::codec::*;
use super::*;
use crate::hex::unhex;
use crate::{OfError, PortNo, Version};
use flow::Match;
use flow::tun_metadata::Wide;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

fn port() -> impl Strategy<Value = PortNo> {
    prop_oneof![
        (1u32..0xff00).prop_map(PortNo),
        Just(PortNo::LOCAL),
        Just(PortNo::NORMAL),
        Just(PortNo::CONTROLLER)
    ]
}

/// Any part of any field that has an NXM number.
fn part(writable: bool) -> impl Strategy<Value = Subfield> {
    (any::<prop::sample::Index>(), any::<u16>(), any::<u16>()).prop_map(move |(i, start, bits)| {
        let fields: Vec<Field> = Field::ALL
            .into_iter()
            .filter(|f| {
                f.oxm(0).is_some_and(|n| n.experimenter.is_none())
                    && (!writable || f.writable() && !f.is_set_by_ct())
            })
            .collect();
        let field = *i.get(&fields);
        let start = start % field.width();
        let bits = 1 + bits % (field.width() - start).min(64);
        Subfield { field, start, bits }
    })
}

fn load() -> impl Strategy<Value = Action> {
    // OpenFlow 1.5 has no action for a write that set-field may not do.
    // A load of an option is sent as a set-field.
    let may = |dst: &Subfield| {
        !matches!(dst.field, Field::VlanVid | Field::InPortOxm) && dst.field.option().is_none()
    };
    (part(true).prop_filter("no set-field", may), any::<u128>()).prop_map(|(dst, value)| {
        let mask = crate::nxm::ones(dst.bits) << dst.start;
        let held = if dst.field == Field::ArpOp { 0xff } else { u128::MAX };
        let flags = if dst.field == Field::TunFlags { 1 } else { u128::MAX };
        Action::SetField {
            field: dst.field,
            value: value & mask & held & flags,
            mask,
            spelled: SetSpelling::Load,
        }
    })
}

/// Actions that are Nicira's in every version, or the same in all that have them.
fn leaf() -> impl Strategy<Value = Action> {
    prop_oneof![
        (port(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        (part(false), any::<u16>()).prop_map(|(src, max_len)| Action::OutputReg { src, max_len }),
        (port(), 14u32..).prop_map(|(port, max_len)| Action::OutputTrunc { port, max_len }),
        (any::<(u16, u16, u8, bool, u32)>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
            |((max_len, controller_id, reason, pause, meter_id), userdata)| Action::Controller(
                Box::new(Controller { max_len, controller_id, reason, userdata, pause, meter_id })
            )
        ),
        any::<u32>().prop_map(Action::Group),
        any::<u32>().prop_map(Action::SetQueue),
        part(false).prop_map(Action::StackPush),
        part(true).prop_map(Action::StackPop),
        any::<u16>().prop_map(|ethertype| Action::PopMpls { ethertype }),
        any::<u8>().prop_map(Action::SetMplsTtl),
        prop::collection::vec(any::<u16>(), 0..5)
            .prop_map(|controllers| Action::DecTtl { controllers }),
        any::<(u16, u16)>().prop_map(|(idle, hard)| Action::FinTimeout { idle, hard }),
        (prop::option::of(1u32..0xff00), prop::option::of(0u8..255), any::<bool>()).prop_map(
            |(port, table, original_tuple)| Action::Resubmit {
                port: port.map(PortNo),
                table,
                original_tuple,
            }
        ),
        (0usize..4, any::<u8>()).prop_map(|(n, b)| Action::Note(vec![b; 6 + 8 * n])),
        Just(Action::Exit),
        Just(Action::PopQueue),
        (1u16.., (any::<u32>(), observation_id(), observation_id()), port(), 0usize..3).prop_map(
            |(probability, (collector_set, obs_domain, obs_point), sampling_port, d)| {
                let direction =
                    [SampleDirection::Default, SampleDirection::Ingress, SampleDirection::Egress]
                        [d];
                Action::Sample {
                    probability,
                    collector_set,
                    obs_domain,
                    obs_point,
                    sampling_port,
                    direction,
                }
            }
        ),
        (any::<u16>(), part(true)).prop_map(|(len, dst)| Action::CheckPktLarger {
            len,
            dst: Subfield { bits: 1, ..dst }
        }),
        learn(),
    ]
}

fn observation_id() -> impl Strategy<Value = ObservationId> {
    let short =
        part(false).prop_map(|src| Subfield { bits: src.bits.min(ObservationId::MAX_BITS), ..src });
    prop_oneof![any::<u32>().prop_map(ObservationId::Number), short.prop_map(ObservationId::Field)]
}

fn learn() -> impl Strategy<Value = Action> {
    let spec = (part(true), any::<u128>(), 0u8..5).prop_map(|(dst, value, how)| {
        let value = LearnSource::Value(value & crate::nxm::ones(dst.bits));
        let (src, target) = match how {
            0 => (LearnSource::Field(dst), LearnTarget::Match(dst)),
            1 => (value, LearnTarget::Match(dst)),
            2 => (LearnSource::Field(dst), LearnTarget::Load(dst)),
            3 => (value, LearnTarget::Load(dst)),
            _ => (LearnSource::Field(dst), LearnTarget::Output),
        };
        LearnSpec { bits: dst.bits, src, dst: target }
    });
    (
        any::<(u16, u16, u16, u64, bool, bool, u16, u16, u32)>(),
        0u8..255,
        prop::option::of(part(true)),
        prop::collection::vec(spec, 0..5),
    )
        .prop_map(|(n, table, dst, specs)| {
            Action::Learn(Box::new(Learn {
                idle_timeout: n.0,
                hard_timeout: n.1,
                priority: n.2,
                cookie: n.3,
                send_flow_removed: n.4,
                delete_learned: n.5,
                table,
                fin_idle_timeout: n.6,
                fin_hard_timeout: n.7,
                limit: n.8,
                result_dst: dst.map(|d| Subfield { bits: 1, ..d }),
                specs,
            }))
        })
}

fn action() -> impl Strategy<Value = Action> {
    leaf().prop_recursive(3, 16, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Action::Clone)
    })
}

/// Actions whose form differs in some version.
fn legacy() -> impl Strategy<Value = Action> {
    prop_oneof![
        load(),
        (part(false), part(true)).prop_map(|(src, dst)| {
            let bits = src.bits.min(dst.bits);
            Action::Move { src: Subfield { bits, ..src }, dst: Subfield { bits, ..dst } }
        }),
        (0u16..4096, any::<bool>())
            .prop_map(|(vid, push_if_missing)| Action::SetVlanVid { vid, push_if_missing }),
        (0u8..8, any::<bool>())
            .prop_map(|(pcp, push_if_missing)| Action::SetVlanPcp { pcp, push_if_missing }),
        Just(Action::PopVlan { spelled: PopSpelling::PopVlan }),
        Just(Action::PushVlan { tpid: 0x8100 }),
        any::<[u8; 6]>().prop_map(Action::SetEthSrc),
        any::<u32>().prop_map(Action::SetIpv4Dst),
        any::<u8>().prop_map(|v| Action::SetIpDscp(v & 0xfc)),
        any::<u8>().prop_map(|v| Action::SetIpEcn(v & 3)),
        any::<u8>().prop_map(Action::SetIpTtl),
        any::<u16>().prop_map(Action::SetL4Src),
        (0u32..1 << 20).prop_map(Action::SetMplsLabel),
        (0u8..8).prop_map(Action::SetMplsTc),
        (1u32..0xff00, any::<u32>())
            .prop_map(|(p, queue)| Action::Enqueue { port: PortNo(p), queue }),
        any::<(u64, u64)>().prop_map(|(value, mask)| Action::WriteMetadata { value, mask }),
        any::<u32>().prop_map(Action::Meter),
        Just(Action::ClearActions),
        (0u8..255).prop_map(Action::GotoTable),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn actions_come_back(actions in prop::collection::vec(action(), 0..6), v in 0usize..6) {
        let version = Version::ALL[v];
        let mut out = Vec::new();
        encode_actions(&actions, version, &mut out);
        prop_assert!(out.len().is_multiple_of(8));
        prop_assert_eq!(&decode_actions(&out, version), &Ok(actions.clone()));
        let mut again = Vec::new();
        encode_actions(&actions, version, &mut again);
        prop_assert_eq!(&again, &out);
        for cut in 1..out.len() {
            if let Ok(prefix) = decode_actions(&out[..cut], version) {
                prop_assert!(actions.starts_with(&prefix));
            }
        }
    }

    /// A form that changes with the version stays what it became.
    #[test]
    fn legacy_forms_are_stable(actions in prop::collection::vec(legacy(), 0..5), v in 0usize..6) {
        let version = Version::ALL[v];
        for action in &actions {
            let mut bytes = Vec::new();
            encode_instructions(std::slice::from_ref(action), version, &mut bytes);
            let Ok(first) = decode_instructions(&bytes, version) else {
                // meter 0 is encodable and refused
                prop_assert!(matches!(action, Action::Meter(_)), "{:?} {}", action, version);
                continue;
            };
            let mut again = Vec::new();
            encode_instructions(&first, version, &mut again);
            let second = decode_instructions(&again, version);
            prop_assert_eq!(second.as_ref(), Ok(&first), "{:?} {}", action, version);
        }
    }
}

/// Declares `examples`: one action or more for each variant, with the versions whose codec gives
/// the action back. In other versions it becomes another action, or has no form.
macro_rules! examples {
    ($($variant:pat => $(($versions:expr, $example:expr)),+;)*) => {
        fn examples() -> Vec<(RangeInclusive<Version>, Action)> {
            // Without `_`: a new variant needs a row.
            let _ = |action: Action| match action {
                $($variant => {})*
            };
            crate::action::allow_debug_actions();
            let mut all = Vec::new();
            $($(
                assert!(matches!($example, $variant));
                all.push(($versions, $example));
            )+)*
            all
        }
    };
}

const V10: RangeInclusive<Version> = Version::V10..=Version::V10;
const V11: RangeInclusive<Version> = Version::V11..=Version::V11;
const ALL: RangeInclusive<Version> = Version::V10..=Version::V15;
const TO_11: RangeInclusive<Version> = Version::V10..=Version::V11;
const TO_14: RangeInclusive<Version> = Version::V10..=Version::V14;
const FROM_11: RangeInclusive<Version> = Version::V11..=Version::V15;
const FROM_12: RangeInclusive<Version> = Version::V12..=Version::V15;

const FROM_13: RangeInclusive<Version> = Version::V13..=Version::V15;

const NONE: RangeInclusive<Version> = Version::V15..=Version::V10;

fn tunnel(id: u64, spelled: TunnelSpelling) -> Action {
    Action::SetTunnel { id, spelled }
}

fn set_option() -> Action {
    let (value, mask) = (Wide::from_u128(5), Wide::ones(4));
    Action::SetOption(Box::new(SetOption { field: Field::TunMetadata0, value, mask }))
}

/// Four bits of a register.
const PART: Subfield = Subfield { field: Field::Reg1, start: 4, bits: 4 };
const BIT: Subfield = Subfield { bits: 1, ..PART };
const HALF: Subfield = Subfield { field: Field::Reg2, start: 8, bits: 16 };

fn controller(userdata: &[u8]) -> Action {
    let (max_len, controller_id, reason) = (100, 5, 1);
    let userdata = userdata.to_vec();
    let meter_id = u32::MAX;
    let pause = false;
    Action::Controller(Box::new(Controller {
        max_len,
        controller_id,
        reason,
        userdata,
        pause,
        meter_id,
    }))
}

fn bundle(dst: Option<Subfield>) -> Action {
    Action::Bundle(Box::new(Bundle {
        fields: HashFields::SymmetricL4,
        basis: 7,
        algorithm: BundleAlgorithm::Hrw,
        members: vec![PortNo(1), PortNo(2)],
        dst,
    }))
}

const NAT: Nat = Nat {
    side: Some(NatSide::Source),
    addresses: NatAddresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 9)),
    ports: Some((1000, 2000)),
    persistent: true,
    hash: false,
    random: true,
};

fn ct(zone: CtZone, actions: Vec<Action>) -> Action {
    let (commit, force, table, alg) = (true, true, Some(3), 21);
    Action::Ct(Box::new(Ct { commit, force, zone, table, alg, actions }))
}

fn set(field: Field, value: FieldValue, mask: FieldValue, spelled: SetSpelling) -> Action {
    Action::SetField { field, value, mask, spelled }
}

fn learning(limit: u32) -> Action {
    let port = Subfield { field: Field::InPort, start: 0, bits: 16 };
    let mac = |field| Subfield { field, start: 0, bits: 48 };
    let spec = |src: Subfield, dst| LearnSpec { bits: src.bits, src: LearnSource::Field(src), dst };
    Action::Learn(Box::new(Learn {
        idle_timeout: 10,
        hard_timeout: 20,
        priority: 30,
        cookie: 40,
        send_flow_removed: true,
        delete_learned: true,
        table: 1,
        fin_idle_timeout: 5,
        fin_hard_timeout: 6,
        limit,
        result_dst: None,
        specs: vec![
            spec(mac(Field::EthSrc), LearnTarget::Match(mac(Field::EthDst))),
            spec(PART, LearnTarget::Load(Subfield { field: Field::Reg3, ..PART })),
            spec(port, LearnTarget::Output),
        ],
    }))
}

fn encap(header: EncapHeader, properties: Vec<EncapProperty>) -> Action {
    Action::Encap(Box::new(Encap { header, header_bytes: 0, properties }))
}

fn sampling(sampling_port: PortNo, direction: SampleDirection) -> Action {
    let (probability, collector_set) = (1, 2);
    let (obs_domain, obs_point) = (ObservationId::Number(3), ObservationId::Number(4));
    Action::Sample { probability, collector_set, obs_domain, obs_point, sampling_port, direction }
}

examples! {
    Action::Output { .. } => (ALL, Action::Output { port: PortNo(2), max_len: 0 });
    Action::OutputReg { .. } => (ALL, Action::OutputReg { src: HALF, max_len: u16::MAX });
    Action::OutputTrunc { .. } => (ALL, Action::OutputTrunc { port: PortNo(2), max_len: 64 });
    Action::Controller(_) => (ALL, controller(&[])), (ALL, controller(&[1, 2, 3]));
    Action::Enqueue { .. } => (V10, Action::Enqueue { port: PortNo(2), queue: 3 });
    Action::Bundle(_) => (ALL, bundle(None)), (ALL, bundle(Some(HALF)));
    Action::Group(_) => (ALL, Action::Group(5));
    Action::SetField { .. } =>
        (FROM_12, set(Field::Reg1, 5, 0xffff_ffff, SetSpelling::SetField)),
        (TO_14, set(Field::Reg1, 5, 0xf, SetSpelling::Load));
    Action::Move { .. } => (ALL, Action::Move { src: PART, dst: Subfield { start: 8, ..PART } });
    Action::StackPush(_) => (ALL, Action::StackPush(PART));
    Action::StackPop(_) => (ALL, Action::StackPop(PART));
    Action::SetVlanVid { .. } =>
        (V10, Action::SetVlanVid { vid: 5, push_if_missing: true }),
        (V11, Action::SetVlanVid { vid: 5, push_if_missing: false });
    Action::SetVlanPcp { .. } =>
        (V10, Action::SetVlanPcp { pcp: 5, push_if_missing: true }),
        (V11, Action::SetVlanPcp { pcp: 5, push_if_missing: false });
    Action::PopVlan { .. } =>
        (V10, Action::PopVlan { spelled: PopSpelling::StripVlan }),
        (FROM_11, Action::PopVlan { spelled: PopSpelling::PopVlan });
    Action::PushVlan { .. } => (FROM_11, Action::PushVlan { tpid: 0x88a8 });
    Action::SetEthSrc(_) => (TO_11, Action::SetEthSrc([2, 0, 0, 0, 0, 1]));
    Action::SetEthDst(_) => (TO_11, Action::SetEthDst([2, 0, 0, 0, 0, 1]));
    Action::SetIpv4Src(_) => (TO_11, Action::SetIpv4Src(0x0a00_0001));
    Action::SetIpv4Dst(_) => (TO_11, Action::SetIpv4Dst(0x0a00_0001));
    Action::SetIpDscp(_) => (TO_11, Action::SetIpDscp(8));
    Action::SetIpEcn(_) => (V11, Action::SetIpEcn(2));
    Action::SetIpTtl(_) => (FROM_11, Action::SetIpTtl(9));
    Action::SetL4Src(_) => (ALL, Action::SetL4Src(80));
    Action::SetL4Dst(_) => (ALL, Action::SetL4Dst(80));
    Action::PushMpls { .. } => (ALL, Action::PushMpls { ethertype: 0x8848 });
    Action::PopMpls { .. } => (ALL, Action::PopMpls { ethertype: 0x0800 });
    Action::SetMplsLabel(_) => (TO_11, Action::SetMplsLabel(5));
    Action::SetMplsTc(_) => (TO_11, Action::SetMplsTc(5));
    Action::SetMplsTtl(_) => (ALL, Action::SetMplsTtl(5));
    Action::DecMplsTtl => (ALL, Action::DecMplsTtl);
    Action::DecTtl { .. } =>
        (ALL, Action::DecTtl { controllers: vec![0] }),
        (ALL, Action::DecTtl { controllers: vec![1, 2] });
    Action::SetQueue(_) => (ALL, Action::SetQueue(5));
    Action::SetTunnel { .. } => (TO_11, tunnel(5, TunnelSpelling::SetTunnel)),
        (TO_11, tunnel(5, TunnelSpelling::SetTunnel64)), (TO_11, tunnel(1 << 32, TunnelSpelling::SetTunnel64));
    // Read back as a set of the low bits, which are all that a field has that no bridge maps.
    Action::SetOption(_) => (NONE, set_option());
    Action::DeleteField(_) => (ALL, Action::DeleteField(Field::TunMetadata7));
    Action::PopQueue => (ALL, Action::PopQueue);
    Action::FinTimeout { .. } => (ALL, Action::FinTimeout { idle: 5, hard: 6 });
    Action::Resubmit { .. } =>
        (ALL, Action::Resubmit { port: Some(PortNo(2)), table: None, original_tuple: false }),
        (ALL, Action::Resubmit { port: None, table: Some(3), original_tuple: false }),
        (ALL, Action::Resubmit { port: Some(PortNo(2)), table: Some(3), original_tuple: true });
    Action::Learn(_) => (ALL, learning(0)), (ALL, learning(9));
    Action::Conjunction { .. } => (ALL, Action::Conjunction { id: 5, clause: 1, clauses: 3 });
    Action::Multipath(_) => (ALL, Action::Multipath(Box::new(Multipath {
        fields: HashFields::NwSrc,
        basis: 50,
        algorithm: MultipathAlgorithm::Hrw,
        max_link: 11,
        arg: 3,
        dst: PART,
    })));
    Action::Note(_) => (ALL, Action::Note(vec![1, 2, 3, 4, 5, 6]));
    Action::Exit => (ALL, Action::Exit);
    Action::Sample { .. } =>
        (ALL, sampling(PortNo::NONE, SampleDirection::Default)),
        (ALL, sampling(PortNo(2), SampleDirection::Default)),
        (ALL, sampling(PortNo(2), SampleDirection::Egress)),
        (ALL, Action::Sample {
            probability: 1,
            collector_set: 2,
            obs_domain: ObservationId::Field(HALF),
            obs_point: ObservationId::Number(4),
            sampling_port: PortNo::NONE,
            direction: SampleDirection::Default,
        });
    Action::Clone(_) => (ALL, Action::Clone(vec![Action::Output { port: PortNo(2), max_len: 0 }]));
    Action::Ct(_) => (ALL, ct(CtZone::Number(5), vec![])), (TO_14, ct(CtZone::Field(HALF), vec![
        Action::Nat(NAT),
        set(Field::CtMark, 5, 0xf, SetSpelling::Load),
    ]));
    Action::Nat(_) => (Version::V11..=Version::V10, Action::Nat(NAT));
    Action::DebugSlow => (ALL, Action::DebugSlow);
        Action::DebugRecirc => (ALL, Action::DebugRecirc);
        Action::CtClear => (ALL, Action::CtClear);
    Action::Encap(_) =>
        (FROM_13, encap(EncapHeader::Nsh, vec![
            EncapProperty::MetadataType(2),
            EncapProperty::Tlv { class: 0x1000, kind: 10, value: vec![0x12; 9] },
        ])),
        (FROM_13, encap(EncapHeader::Ethernet, vec![])),
        (FROM_13, encap(EncapHeader::Mpls, vec![])),
        (FROM_13, encap(EncapHeader::MplsMulticast, vec![]));
    Action::Decap { .. } => (FROM_13, Action::Decap { packet_type: USE_NEXT_PROTOCOL }),
        (FROM_13, Action::Decap { packet_type: 0x1_0800 });
    Action::DecNshTtl => (FROM_13, Action::DecNshTtl);
    Action::CheckPktLarger { .. } => (ALL, Action::CheckPktLarger { len: 1000, dst: BIT });
    Action::Meter(_) => (Version::V13..=Version::V15, Action::Meter(5));
    Action::ClearActions => (FROM_11, Action::ClearActions);
    Action::WriteActions(_) => (FROM_11, Action::WriteActions(vec![Action::Group(5)]));
    Action::WriteMetadata { .. } => (ALL, Action::WriteMetadata { value: 5, mask: 0xff });
    Action::GotoTable(_) => (FROM_11, Action::GotoTable(5));
}

/// A wrong number passes here: bytes of Open vSwitch are in `tests/vectors.rs`.
#[test]
fn every_action_comes_back_in_its_versions() {
    for (versions, action) in examples() {
        for version in Version::ALL {
            let mut bytes = Vec::new();
            encode_instructions(std::slice::from_ref(&action), version, &mut bytes);
            let read = decode_instructions(&bytes, version);
            let is_same = read.as_deref() == Ok(std::slice::from_ref(&action));
            assert_eq!(is_same, versions.contains(&version), "{version} {action:?} {read:?}");
        }
    }
}

#[test]
fn the_text_of_every_action_reads_back() {
    for (versions, action) in examples() {
        for version in Version::ALL.into_iter().filter(|v| versions.contains(v)) {
            let text = crate::text::format_action(&action, &flow::text::no_names);
            let read = crate::text::parse_actions(&text, version, &flow::text::no_numbers);
            assert_eq!(read.as_deref(), Ok(std::slice::from_ref(&action)), "{version} {text}");
        }
    }
}

const VECTORS: &str = include_str!("../../tests/vectors/actions.txt");

fn vectors() -> Vec<(Version, Vec<u8>)> {
    VECTORS
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|line| {
            let mut columns = line.split(" | ");
            let version = Version::from_wire(columns.next()?.parse().ok()?)?;
            let hex = columns.nth(2)?.trim();
            let bytes = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16))
                .collect::<Result<_, _>>()
                .ok()?;
            Some((version, bytes))
        })
        .collect()
}

#[test]
fn openflow_15_has_actions_of_its_own_for_loads_and_moves() {
    for subtype in [6u8, 7, 33] {
        let mut bytes = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, subtype];
        bytes.resize(24, 0);
        let unknown = Err(OfError::OFPBAC_BAD_VENDOR_TYPE);
        assert_eq!(decode_actions(&bytes, Version::V15), unknown, "{subtype}");
        assert_ne!(decode_actions(&bytes, Version::V14), unknown, "{subtype}");
    }
    // As OVS writes it, which nobody reads.
    let load =
        Action::SetField { field: Field::VlanVid, value: 0, mask: 0xf, spelled: SetSpelling::Load };
    let mut out = Vec::new();
    encode_actions(&[load], Version::V15, &mut out);
    assert_eq!(out, [0, 25, 0, 16, 0x80, 0, 0x0d, 4, 0, 0, 0, 15, 0, 0, 0, 0]);
    assert_eq!(decode_actions(&out, Version::V15), Err(OfError::OFPBAC_BAD_SET_ARGUMENT));
}

#[test]
fn a_mask_of_openflow_15_keeps_bits_beside_the_field() {
    // load:0->NXM_OF_IP_TOS[0..2]: two of the three bits are ECN's.
    let message = [0, 25, 0, 16, 0, 0, 0x0b, 2, 0, 7, 0, 0, 0, 0, 0, 0];
    let set = Action::SetField {
        field: Field::IpDscp,
        value: 0,
        mask: 7,
        spelled: SetSpelling::SetField,
    };
    assert_eq!(decode_actions(&message, Version::V15), Ok(vec![set.clone()]));
    let mut out = Vec::new();
    encode_actions(&[set], Version::V15, &mut out);
    assert_eq!(out, message);
}

#[test]
fn truncation_at_every_byte() {
    for (version, bytes) in vectors() {
        let whole = decode_instructions(&bytes, version);
        for cut in 0..bytes.len() {
            if let Ok(part) = decode_instructions(&bytes[..cut], version) {
                assert_ne!(Ok(&part), whole.as_ref().map_err(|e| *e), "{version} {bytes:x?} {cut}");
            }
        }
    }
}

/// A small generator, so that each run mutates alike.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }
}

#[test]
fn mutations_never_panic_and_stay_stable() {
    let vectors = vectors();
    assert!(vectors.len() > 500);
    let mut random = Random(1);
    let mut accepted = 0;
    for _ in 0..100_000 {
        let (version, bytes) = &vectors[random.next() % vectors.len()];
        let mut bytes = bytes.clone();
        for _ in 0..1 + random.next() % 4 {
            if bytes.is_empty() {
                break;
            }
            let at = random.next() % bytes.len();
            match random.next() % 4 {
                0 => bytes[at] ^= 1 << (random.next() % 8),
                1 => bytes[at] = random.next() as u8,
                2 => bytes[at] = 0xff,
                _ => bytes.truncate(at / 8 * 8),
            }
        }
        let version = if random.next().is_multiple_of(8) {
            Version::ALL[random.next() % 6]
        } else {
            *version
        };
        let _ = decode_actions(&bytes, version);
        let _ = crate::nxm::decode_match(version, &bytes, crate::nxm::Strictness::Loose);
        let Ok(actions) = decode_instructions(&bytes, version) else { continue };
        accepted += 1;
        let mut out = Vec::new();
        encode_instructions(&actions, version, &mut out);
        let back = decode_instructions(&out, version);
        let mut again = Vec::new();
        match back {
            Ok(back) => encode_instructions(&back, version, &mut again),
            Err(e) => panic!("{version} {bytes:02x?}: {actions:?} became {out:02x?}: {e}"),
        }
        assert_eq!(again, out, "{version} {bytes:02x?} {actions:?}");
        let text = crate::text::format_actions(&actions, &flow::text::no_names);
        let _ = crate::text::parse_actions(&text, version, &flow::text::no_numbers);
    }
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn clones_nest_only_so_deep() {
    let mut action = Action::Exit;
    for _ in 0..MAX_CLONE_DEPTH {
        action = Action::Clone(vec![action]);
    }
    let mut out = Vec::new();
    encode_actions(std::slice::from_ref(&action), Version::V13, &mut out);
    assert_eq!(decode_actions(&out, Version::V13), Ok(vec![action.clone()]));
    let deeper = Action::Clone(vec![action]);
    out.clear();
    encode_actions(&[deeper], Version::V13, &mut out);
    assert_eq!(decode_actions(&out, Version::V13), Err(OfError::OFPBAC_TOO_MANY));
}

fn checked(version: Version, text: &str) -> Result<(), OfError> {
    let flow = crate::text::parse_flow(text, version, &flow::text::no_numbers).expect(text);
    let context = CheckContext {
        version,
        max_ports: PortNo::MAX,
        table_id: Some(flow.table.unwrap_or(0)),
        n_tables: Some(254),
    };
    check(&flow.actions.unwrap_or_default(), &flow.matching, &context)
}

#[test]
fn consistency() {
    let inconsistent = Err(OfError::OFPBAC_MATCH_INCONSISTENT);
    let cases = [
        ("actions=set_field:4102->vlan_vid", inconsistent),
        ("actions=set_field:1->vlan_pcp", inconsistent),
        ("actions=resubmit(,1)", Ok(())),
        ("actions=resubmit(,1,ct)", inconsistent),
        ("ip,actions=resubmit(,1,ct)", inconsistent),
        ("ip,ct_state=+trk,actions=resubmit(,1,ct)", inconsistent),
        ("ip,ct_state=+trk+inv,actions=resubmit(,1,ct)", inconsistent),
        ("ip,ct_state=+trk-inv,actions=resubmit(,1,ct)", Ok(())),
        ("ct_state=+rel,actions=resubmit(,1,ct)", Ok(())),
        ("ip,ct_state=+trk,actions=clone(resubmit(2,,ct))", inconsistent),
        ("actions=set_field:0x1005->vlan_tci,set_field:1->vlan_pcp", Ok(())),
        ("packet_type=(1,0x800),actions=push_vlan:0x8100,set_field:1->vlan_pcp", inconsistent),
        ("actions=push_vlan:0x8100,push_vlan:0x8100", Ok(())),
        (
            "actions=push_vlan:0x8100,push_vlan:0x8100,push_vlan:0x8100",
            Err(OfError::OFPBAC_BAD_TAG),
        ),
        (
            "actions=push_mpls:0x8847,set_field:5->mpls_label,pop_mpls:0x0800,set_field:1.2.3.4->ip_src",
            Ok(()),
        ),
        ("tcp,actions=push_mpls:0x8847,set_field:80->tcp_dst", inconsistent),
        ("tcp,actions=push_mpls:0x8847,pop_mpls:0x0800,set_field:80->tcp_dst", inconsistent),
        ("tcp,actions=write_actions(dec_mpls_ttl)", Ok(())),
        ("actions=write_actions(set_field:80->tcp_dst)", inconsistent),
        ("actions=clone(set_field:80->tcp_dst)", inconsistent),
        ("actions=move:NXM_OF_IP_SRC[]->reg0[]", inconsistent),
        ("ip,actions=move:NXM_OF_IP_SRC[]->reg0[]", Ok(())),
        ("actions=output:NXM_OF_IP_SRC[]", inconsistent),
        ("actions=push:NXM_OF_IP_SRC[]", inconsistent),
        ("actions=multipath(eth_src,0,modulo_n,1,0,NXM_OF_IP_SRC[])", inconsistent),
        ("actions=fin_timeout(idle_timeout=1)", inconsistent),
        ("dl_vlan=1,actions=pop_vlan,set_field:1->vlan_pcp", inconsistent),
        ("actions=mod_vlan_vid:5,set_field:1->vlan_pcp", Ok(())),
        ("actions=check_pkt_larger(5)->NXM_OF_IP_SRC[0]", Ok(())),
        ("actions=learn(table=1,NXM_OF_IP_SRC[])", inconsistent),
        ("ip,actions=learn(table=1,NXM_OF_IP_SRC[])", inconsistent),
        ("ip,actions=learn(table=1,eth_type=0x800,NXM_OF_IP_SRC[])", Ok(())),
        ("ip,actions=learn(table=1,eth_type=0x800,load:5->NXM_OF_TCP_SRC[])", inconsistent),
        ("table=3,actions=goto_table:3", Err(OfError::OFPBIC_BAD_TABLE_ID)),
        ("table=3,actions=goto_table:4", Ok(())),
        ("table=3,actions=goto_table:254", Err(OfError::OFPBIC_BAD_TABLE_ID)),
        ("dl_vlan=1,actions=set_field:4102->vlan_vid", Ok(())),
        ("actions=output:65280", Err(OfError::OFPBAC_BAD_OUT_PORT)),
        ("actions=enqueue:65280:1", Err(OfError::OFPBAC_BAD_OUT_PORT)),
        ("actions=meter:0", Err(OfError::OFPMMFC_INVALID_METER)),
        ("actions=dec_ttl", inconsistent),
        ("actions=pop_vlan", inconsistent),
        ("actions=mod_nw_src:1.2.3.4", inconsistent),
        ("udp6,actions=mod_tp_dst:5", Ok(())),
        ("icmp,actions=mod_tp_dst:5", inconsistent),
        // Packets without an Ethernet header.
        ("packet_type=(0,2),actions=push_mpls:0x8847", inconsistent),
        ("packet_type=(1,0x800),actions=push_mpls:0x8847", inconsistent),
        ("packet_type=(1,0x8847),actions=pop_mpls:0x800", inconsistent),
        ("packet_type=(1,0x8847),actions=dec_mpls_ttl", Ok(())),
        ("packet_type=(1,0x800),actions=dec_ttl", Ok(())),
        ("packet_type=(0,0x800),actions=dec_ttl", inconsistent),
        ("packet_type=(1,0x800),actions=write_actions(push_mpls:0x8847)", Ok(())),
        ("packet_type=(1,0x800),actions=push_vlan:0x8100,pop_vlan", Ok(())),
    ];
    for (text, want) in cases {
        assert_eq!(checked(Version::V13, text), want, "{text}");
    }
    // OpenFlow 1.0 lets its own set actions be.
    for text in ["actions=mod_nw_src:1.2.3.4", "actions=pop_vlan", "actions=mod_tp_dst:5"] {
        assert_eq!(checked(Version::V10, text), Ok(()), "{text}");
    }
    assert_eq!(checked(Version::V10, "actions=set_field:80->tcp_dst"), inconsistent);
    let text = "packet_type=(0,2),actions=push_mpls:0x8847";
    assert_eq!(checked(Version::V10, text), Ok(()));
    let text = "packet_type=(0,2),actions=push_mpls:0x8847,set_field:5->mpls_label";
    assert_eq!(checked(Version::V10, text), inconsistent);
}

#[test]
fn check_knows_the_highest_port() {
    let context = CheckContext {
        version: Version::V13,
        max_ports: PortNo(10),
        table_id: None,
        n_tables: None,
    };
    let to = |n| check(&[Action::Output { port: PortNo(n), max_len: 0 }], &Match::ANY, &context);
    assert_eq!(to(9), Ok(()));
    assert_eq!(to(10), Err(OfError::OFPBAC_BAD_OUT_PORT));
    assert_eq!(to(PortNo::LOCAL.0), Ok(()));
    assert_eq!(to(PortNo::NONE.0), Err(OfError::OFPBAC_BAD_OUT_PORT));
}

/// An action of Nicira's, from its subtype on, as OpenFlow 1.3 has it.
fn nicira(rest: &str) -> Vec<u8> {
    let rest = unhex(rest);
    let len = 8 + rest.len();
    [&[0xff, 0xff, 0, len as u8, 0, 0, 0x23, 0x20], rest.as_slice()].concat()
}

/// The layout has not been compared with Open vSwitch 3.4, which is not at hand.
#[test]
fn ids_of_samples_are_numbers_or_fields() {
    let of = |text: &str| {
        let actions = crate::text::parse_actions(text, Version::V13, &|_| None).expect("actions");
        let mut out = Vec::new();
        encode_actions(&actions, Version::V13, &mut out);
        out
    };
    let sample = |ids: &str| format!("sample(probability=1,collector_set_id=2,{ids})");
    assert_eq!(
        of(&sample("obs_domain_id=reg0[],obs_point_id=5")),
        nicira("003300010000000200010004001f00000000000000000005ffff000000000000")
    );
    assert_eq!(
        of(&sample("obs_domain_id=4,obs_point_id=5")),
        nicira("001d0001000000020000000400000005")
    );
    let read = |ids: &str| {
        let bytes = nicira(&format!("0033000100000002{ids}ffff000000000000"));
        decode_actions(&bytes, Version::V13).map(|list| list.len())
    };
    assert_eq!(read("00000000000000040001d808001f0000"), Err(OfError::OFPBMC_BAD_FIELD));
    assert_eq!(read("0000000000000004000100040fdf0000"), Err(OfError::OFPBAC_BAD_SET_LEN));
    let metadata = "8000040800200000"; // 33 bits
    assert_eq!(read(&format!("0000000000000004{metadata}")), Err(OfError::OFPBAC_BAD_ARGUMENT));
    let text = sample("obs_point_id=metadata[0..32]");
    let error = crate::text::parse_actions(&text, Version::V13, &|_| None).unwrap_err();
    assert_eq!(error.to_string(), "size of obs_point_id field (33) exceeds maximum (32)");
    let of_udp = "udp,actions=sample(probability=1,obs_domain_id=udp_src)";
    assert_eq!(checked(Version::V13, of_udp), Ok(()));
    let of_any = "actions=sample(probability=1,obs_domain_id=udp_src)";
    assert_eq!(checked(Version::V13, of_any), Err(OfError::OFPBAC_MATCH_INCONSISTENT));
}

#[test]
fn bundle_load_by_what_is_not_there() {
    let load = |algorithm: &str, fields: &str, count: &str, kind: &str| {
        let rest =
            format!("000d{algorithm}{fields}0000{kind}{count}000f00010004000000000002000a00040000");
        decode_actions(&nicira(&rest), Version::V13).map(|list| list.len())
    };
    assert_eq!(load("0001", "0006", "0003", "00000002"), Ok(1));
    let bad = Err(OfError::OFPBAC_BAD_ARGUMENT);
    assert_eq!(load("0001", "0007", "0003", "00000002"), bad);
    assert_eq!(load("0002", "0006", "0003", "00000002"), bad);
    assert_eq!(load("0001", "0006", "0801", "00000002"), bad);
    assert_eq!(load("0001", "0006", "0003", "00000004"), bad);
}

#[test]
fn learn2_has_a_place_for_a_result_or_none() {
    let learn = |flags: &str, start: &str| {
        let fixed = ["003c0000ea61", "0000000000000000", flags, "010000000000", "00000000"];
        let rest = ["002d", &fixed.concat(), start, "0000"].concat();
        let rest = rest + if flags == "0004" { "000100040000000000" } else { "" };
        let rest = rest.clone() + &"0".repeat(rest.len().next_multiple_of(16) - rest.len());
        decode_actions(&nicira(&rest), Version::V13).map(|list| list.len())
    };
    assert_eq!(learn("0000", "0000"), Ok(1));
    assert_eq!(learn("0000", "0003"), Err(OfError::OFPBAC_BAD_ARGUMENT));
    assert_eq!(learn("0004", "0003"), Ok(1));
}

#[test]
fn a_port_that_there_is_not_is_told_behind_what_cannot_be_read() {
    let to_a_wrong_port = nicira("0027ff0000000022");
    let unknown = [&[0xff, 0xff, 0, 16, 0, 0, 0x70, 0x20][..], &[0; 8]].concat();
    let list = [to_a_wrong_port.clone(), unknown].concat();
    assert_eq!(decode_actions(&list, Version::V13), Err(OfError::OFPBAC_BAD_VENDOR));
    let list = decode_actions(&to_a_wrong_port, Version::V13).unwrap();
    let context = CheckContext {
        version: Version::V13,
        max_ports: PortNo::MAX,
        table_id: None,
        n_tables: None,
    };
    assert_eq!(check(&list, &Match::ANY, &context), Err(OfError::OFPBAC_BAD_OUT_PORT));
}

#[test]
fn parts_beyond_what_is_learned_are_told_in_order() {
    let context = CheckContext {
        version: Version::V13,
        max_ports: PortNo::MAX,
        table_id: Some(0),
        n_tables: Some(254),
    };
    // Bits 125 on of ICMP's type, from ICMP's type.
    let fixed = ["00000000", "0001", "0000000000000000", "0000", "0200", "00000000"].concat();
    let rest = ["0010", &fixed, "0008", "00001a010000", "00001a01007d", "0000"].concat();
    let list = decode_actions(&nicira(&rest), Version::V13).unwrap();
    let check_for = |matching: &str| {
        let flow = crate::text::parse_flow(matching, Version::V13, &flow::text::no_numbers);
        check(&list, &flow.unwrap().matching, &context)
    };
    assert_eq!(check_for("actions=drop"), Err(OfError::OFPBAC_MATCH_INCONSISTENT));
    assert_eq!(check_for("icmp,actions=drop"), Err(OfError::OFPBAC_BAD_SET_LEN));
    assert_eq!(check_parts(&list), Err(OfError::OFPBAC_BAD_SET_LEN));
    assert_eq!(check_parts(&[Action::Clone(list)]), Err(OfError::OFPBAC_BAD_SET_LEN));
}

#[test]
fn niciras_write_metadata_ends_the_actions_to_apply() {
    let metadata = nicira("0016000000000000000000000000000500000000000000ff");
    let v10 = unhex("0000000800020000");
    let output = unhex("00000010000000020000000000000000");
    let apply = |lists: &[&[u8]]| {
        let body = lists.concat();
        [&[0, 4, 0, 8 + body.len() as u8, 0, 0, 0, 0], body.as_slice()].concat()
    };
    let instruction = unhex("0002001800000000000000000000000700000000000000ff");
    let goto = unhex("0001000805000000");
    let write = Action::WriteMetadata { value: 5, mask: 0xff };
    let order = Err(OfError::OFPBAC_UNSUPPORTED_ORDER);
    let read = |bytes: &[u8], version| decode_instructions(bytes, version);
    for version in [Version::V11, Version::V13, Version::V15] {
        assert_eq!(read(&apply(&[&metadata]), version), Ok(vec![write.clone()]));
        let behind = read(&apply(&[&output, &metadata]), version).map(|list| list.len());
        assert_eq!(behind, Ok(2));
        assert_eq!(read(&apply(&[&metadata, &output]), version), order);
        assert_eq!(read(&apply(&[&metadata, &metadata]), version), order);
        assert_eq!(read(&[apply(&[&metadata]), instruction.clone()].concat(), version), order);
        let and_go = read(&[apply(&[&metadata]), goto.clone()].concat(), version);
        assert_eq!(and_go, Ok(vec![write.clone(), Action::GotoTable(5)]));
        let alone = decode_actions(&metadata, version);
        assert_eq!(alone, Err(OfError::OFPBIC_UNSUP_INST), "not in packet-outs and buckets");
        assert_eq!(decode_action_set(&metadata, version), Err(OfError::OFPBAC_BAD_TYPE));
    }
    assert_eq!(read(&metadata, Version::V10), Ok(vec![write]));
    assert_eq!(read(&[&*v10, &*metadata].concat(), Version::V10).map(|list| list.len()), Ok(2));
    assert_eq!(read(&[&*metadata, &*v10].concat(), Version::V10), order);
}

#[test]
fn ten_bits_of_what_is_learned_say_how_wide_it_is() {
    let fixed = ["00000000", "0001", "0000000000000000", "0000", "0200", "00000000"].concat();
    let load = |head: &str| {
        let rest = ["0010", &fixed, head, "0005", "000100040000", "000000000000"].concat();
        decode_actions(&nicira(&rest), Version::V13)
    };
    assert_eq!(load("2810").map(|list| list.len()), Ok(1));
    assert_eq!(load("2c10"), load("2810"));
    assert_eq!(load("ec10"), load("2810"));
}

#[test]
fn what_is_not_zero_is_told_before_parts_of_fields() {
    let decode = |rest: &str| decode_actions(&nicira(rest), Version::V13).map(|list| list.len());
    // output_reg: no such field, and nonzero bytes after it.
    assert_eq!(decode("000f001f80010e370000000000000000"), Err(OfError::OFPBAC_BAD_SET_TYPE));
    assert_eq!(decode("000f001f80010e370000000000780000"), Err(OfError::OFPBAC_BAD_ARGUMENT));
    // push, and check_pkt_larger: bits that a register has not.
    assert_eq!(decode("001b00200001000400010000000000ff"), Err(OfError::NXBRC_MUST_BE_ZERO));
    assert_eq!(decode("001b0020000100040001000000000000"), Err(OfError::OFPBAC_BAD_SET_LEN));
    assert_eq!(decode("0031006400200001000400000000ff00"), Err(OfError::NXBRC_MUST_BE_ZERO));
}

#[test]
fn instructions_out_of_place_are_told_in_order() {
    let conjunction = Action::Conjunction { id: 0, clause: 0, clauses: 2 };
    let write = Action::WriteMetadata { value: 0, mask: u64::MAX };
    let error = |list: &[Action]| verify::list(list, Version::V13, false).map_err(|p| p.error());
    let out_of_place = Err(OfError::OFPBIC_UNSUP_INST);
    assert_eq!(error(&[write.clone(), conjunction.clone()]), out_of_place);
    assert_eq!(error(&[conjunction.clone(), write]), Err(OfError::NXBAC_BAD_CONJUNCTION));
    assert_eq!(error(&[Action::Note(vec![]), conjunction]), Ok(()));
}

#[test]
fn bad_properties_of_encap_are_refused() {
    let read = |hex: &str| {
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        decode_actions(&bytes, Version::V13).unwrap_err()
    };
    let encap = |len: &str, rest: &str| read(&format!("ffff00{len}00002320002e0000{rest}"));
    assert_eq!(encap("10", "00010806"), OfError::NXBAC_BAD_HEADER_TYPE);
    assert_eq!(encap("18", "0001894f0004030501000000"), OfError::NXBAC_UNKNOWN_ED_PROP);
    assert_eq!(encap("18", "0001894f0003010501000000"), OfError::NXBAC_UNKNOWN_ED_PROP);
    assert_eq!(encap("18", "0001894f0004010301000000"), OfError::OFPBAC_BAD_LEN);
    assert_eq!(encap("18", "0001894f0004010901000000"), OfError::OFPBAC_BAD_LEN);
    assert_eq!(encap("20", "0001894f00040109010000000000000000000000"), OfError::NXBAC_BAD_ED_PROP);
    assert_eq!(encap("20", "0001894f0004021010000a090000000000000000"), OfError::NXBAC_BAD_ED_PROP);
    assert_eq!(
        read("ffff001800002320002f00000000fffe0000000000000000"),
        OfError::NXBAC_UNKNOWN_ED_PROP
    );
}

#[test]
fn texts_of_encap_and_decap_are_checked_as_in_ovs_ofctl() {
    for (text, error) in [
        ("encap()", "Missing encap hdr: "),
        ("encap(gre)", "Encap hdr not supported: "),
        ("encap(ethernet(md_type=1))", "Invalid property: md_type"),
        ("encap(nsh(what=1))", "Invalid property: what"),
        ("encap(nsh(md_type=3))", "invalid md_type"),
        ("encap(nsh(tlv(10,1,0x00)))", "Invalid NSH TLV header: 10,1,0x00"),
        ("decap(what)", "Invalid decap argument: what"),
        ("decap(packet_type(type=0))", "Missing packet_type attribute ns"),
        ("decap(packet_type(ns=5,type=0))", "Unsupported ns value: 5"),
        ("decap(packet_type(ns=0))", "Missing packet_type attribute type"),
    ] {
        let read = crate::text::parse_actions(text, Version::V13, &flow::text::no_numbers);
        assert_eq!(read.unwrap_err().to_string(), error, "{text}");
    }
}
