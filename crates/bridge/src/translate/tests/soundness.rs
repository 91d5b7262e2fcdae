// SPDX-License-Identifier: Apache-2.0
//! Soundness: two packets that one megaflow matches get equal actions.
//!
//! Random pipelines over all actions, a random packet, and mutants of it; packets are such as
//! extraction can give (what a packet does not have is zero). Recirculations are followed.

use super::super::*;
use crate::effect::Effect;
use crate::group::{GroupKind, Selection};
use crate::snapshot::{BridgeIndex, PortView, PriorityTags, VlanMode};
use crate::spanning_tree::PortState;
use crate::testing::{World, make_rule, out, resubmit, set, sub, to};
use crate::tunnel::{Config, OrFlow, Tos, Ttl};
use datapath::{Action as Dp, TunnelKind};
use flow::extract::DL_TYPE_NONE;
use flow::{Field, Key, Match, Vlan};
use openflow::PortNo;
use openflow::action::EncapHeader;
use openflow::action::{
    Bundle, BundleAlgorithm, Controller, Ct, CtZone, HashFields, Learn, LearnSource, LearnSpec,
    LearnTarget, Multipath, MultipathAlgorithm, Nat,
};
use packet::Mac;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::LazyLock;

/// Parts of a packet; [`Spec::key`] leaves out the parts that its kind does not have.
#[derive(Clone, Debug)]
struct Spec {
    in_port: u32,
    macs: (u8, u8),
    vlans: [(bool, u16, u16, u16); 2],
    kind: u8,
    labels: [u32; 3],
    depth: u8,
    addresses: (u8, u8),
    tos: u8,
    ttl: u8,
    proto: u8,
    frag: u8,
    ports: (u16, u16),
    arp: (u8, u8),
    flags: u16,
    mark: u32,
    dp_hash: u32,
    connection: (u8, u8, u8),
    tunnel: Outside,
}

/// Tunnel fields of a packet from port 3, the vport.
#[derive(Clone, Copy, Debug)]
struct Outside {
    id: u8,
    addresses: (u8, u8),
    tos: u8,
    ttl: u8,
    source_port: u16,
    flags: u16,
    option: Option<u8>,
}

fn outside() -> impl Strategy<Value = Outside> {
    (0..3u8, (1..3u8, 1..3u8), 0..4u8, 1..3u8, 0..3u16, 0..16u16, proptest::option::of(0..3u8))
        .prop_map(|(id, addresses, tos, ttl, source_port, flags, option)| Outside {
            id,
            addresses,
            tos,
            ttl,
            source_port,
            flags,
            option,
        })
}

impl Outside {
    fn write_to(self, k: &mut Key) {
        let t = &mut k.tunnel;
        t.id.set(self.id.into());
        t.src.set(0x0a00_0000 | u32::from(self.addresses.0));
        t.dst.set(0x0a00_0000 | u32::from(self.addresses.1));
        (t.tos, t.ttl) = (self.tos, self.ttl);
        (t.tp_src, t.tp_dst) = (self.source_port.into(), 6081.into());
        t.flags.set(self.flags);
        if let Some(value) = self.option {
            t.set_present(0, true);
            t.set_option(0, &flow::tun_metadata::Wide::from_u128(value.into()));
        }
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let vlan = || {
        (
            any::<bool>(),
            select(&[0u16, 5, 10][..]),
            select(&[0u16, 3][..]),
            select(&[0x8100u16, 0x88a8][..]),
        )
    };
    let link =
        (1..5u32, (0..4u8, 0..6u8), [vlan(), vlan()], 0..8u8, [0..3u32, 0..3u32, 0..3u32], 0..5u8);
    let network = (
        (0..3u8, 0..3u8),
        select(&[0u8, 1, 0x20, 0xfc][..]),
        select(&[0u8, 1, 2, 64][..]),
        0..6u8,
        select(&[0u8, 1, 3][..]),
    );
    let transport = (
        (select(&[0u16, 1, 80, 135, 136][..]), select(&[0u16, 1, 80, 81][..])),
        (0..3u8, 0..3u8),
        0..4u16,
        0..2u32,
        0..5u32,
        (0..6u8, 0..3u8, 0..3u8),
        outside(),
    );
    (link, network, transport).prop_map(
        |(
            (in_port, macs, vlans, kind, labels, depth),
            (addresses, tos, ttl, proto, frag),
            (ports, arp, flags, mark, dp_hash, connection, tunnel),
        )| Spec {
            in_port,
            macs,
            vlans,
            kind,
            labels,
            depth,
            addresses,
            tos,
            ttl,
            proto,
            frag,
            ports,
            arp,
            flags,
            mark,
            dp_hash,
            connection,
            tunnel,
        },
    )
}

impl Spec {
    /// `self` with the part number `which` of `other`.
    fn with(&self, other: &Spec, which: usize) -> Spec {
        let mut s = self.clone();
        match which % 22 {
            0 => s.in_port = other.in_port,
            1 => s.macs.0 = other.macs.0,
            2 => s.macs.1 = other.macs.1,
            3 => s.vlans[0] = other.vlans[0],
            4 => s.vlans[1] = other.vlans[1],
            5 => s.kind = other.kind,
            6 => s.labels = other.labels,
            7 => s.depth = other.depth,
            8 => s.addresses.0 = other.addresses.0,
            9 => s.addresses.1 = other.addresses.1,
            10 => s.tos = other.tos,
            11 => s.ttl = other.ttl,
            12 => s.proto = other.proto,
            13 => s.frag = other.frag,
            14 => s.ports.0 = other.ports.0,
            15 => s.ports.1 = other.ports.1,
            16 => s.arp = other.arp,
            18 => s.connection = other.connection,
            17 => s.vlans[0].2 = other.vlans[0].2,
            20 => s.tunnel = other.tunnel,
            21 => {
                (s.tunnel.ttl, s.tunnel.source_port) = (other.tunnel.ttl, other.tunnel.source_port);
            }
            _ => (s.flags, s.mark) = (other.flags, other.mark),
        }
        s
    }

    fn key(&self) -> Key {
        let mut k = Key::ZERO;
        let mac = |n: u8| {
            if n == 5 {
                [0xff; 6]
            } else if n == 4 {
                [1, 0x80, 0xc2, 0, 0, 0]
            } else {
                [2, 0, 0, 0, 0, n]
            }
        };
        k.in_port.set(self.in_port);
        if self.in_port == 3 {
            self.tunnel.write_to(&mut k);
        }
        k.pkt_mark.set(self.mark);
        k.dl_src = mac(self.macs.0);
        k.dl_dst = mac(self.macs.1);
        for (v, (there, vid, pcp, tpid)) in k.vlans.iter_mut().zip(self.vlans) {
            if !there {
                break;
            }
            *v = Vlan { tpid: tpid.into(), tci: (vid | pcp << 13 | 0x1000).into() };
        }
        let dl_type = [0x1234u16, 0x800, 0x800, 0x86dd, 0x806, 0x8847, 0x8100, 0x894f]
            [usize::from(self.kind)];
        // Frames of the spanning tree have no Ethernet type.
        let dl_type = if (self.kind, self.macs.1) == (0, 4) { DL_TYPE_NONE } else { dl_type };
        k.dl_type.set(dl_type);
        match dl_type {
            0x894f => {
                (k.nsh.ttl, k.nsh.flags) = (self.ttl.min(63), self.depth & 3);
                (k.nsh.mdtype, k.nsh.np) = (1 + self.proto % 2, self.proto);
                k.nsh.path.set(u32::from(self.addresses.0) << 8 | u32::from(self.addresses.1));
                if k.nsh.mdtype == 1 {
                    k.nsh.context[0].set(self.ports.0.into());
                }
            }
            0x8847 => {
                // Up to four labels, of which three are in the key.
                for (i, (lse, n)) in k.mpls.iter_mut().zip(self.labels).enumerate() {
                    let bottom = i + 1 == usize::from(self.depth);
                    lse.set(n << 12 | u32::from(bottom) << 8 | u32::from(self.ttl));
                    if bottom {
                        break;
                    }
                }
            }
            0x806 => {
                k.nw_proto = self.arp.0;
                k.nw_src.set(self.addresses.0.into());
                k.nw_dst.set(self.addresses.1.into());
                k.arp_sha = mac(self.arp.1);
                k.arp_tha = mac(self.macs.0);
            }
            0x800 | 0x86dd => {
                let v6 = dl_type == 0x86dd;
                if v6 {
                    k.ipv6_src[15] = self.addresses.0;
                    k.ipv6_dst[15] = self.addresses.1;
                    k.ipv6_label.set(self.arp.0.into());
                } else {
                    k.nw_src.set(self.addresses.0.into());
                    k.nw_dst.set(self.addresses.1.into());
                }
                k.nw_tos = self.tos;
                k.nw_ttl = self.ttl;
                k.nw_frag = self.frag;
                k.nw_proto = match self.proto {
                    0 => 0,
                    1 | 2 => 6,
                    3 => 17,
                    4 => 132,
                    _ if v6 => 58,
                    _ => 1,
                };
                if self.frag & 2 == 0 && k.nw_proto != 0 {
                    k.tp_src.set(self.ports.0);
                    k.tp_dst.set(self.ports.1);
                    if k.nw_proto == 6 {
                        k.tcp_flags.set(self.flags);
                    }
                    if k.nw_proto == 58 && self.ports.1 == 0 && matches!(self.ports.0, 135 | 136) {
                        k.nd_target[15] = self.arp.0;
                        if self.ports.0 == 135 {
                            k.arp_sha = mac(self.arp.1);
                        } else {
                            k.arp_tha = mac(self.arp.1);
                        }
                    }
                }
            }
            _ => {}
        }
        k
    }
}

/// Gives a recirculated packet what a `ct` action may have found.
fn track(k: &mut Key, (state, zone, tuple): (u8, u8, u8)) {
    use flow::ct_state::{EST, INV, NEW, RPL, TRK};
    k.ct_state = [0, TRK, TRK | NEW, TRK | EST, TRK | EST | RPL, TRK | INV][usize::from(state)];
    if k.ct_state == 0 {
        return;
    }
    k.ct_zone.set(zone.into());
    if k.ct_state & (NEW | EST) != 0 {
        k.ct_mark.set(tuple.into());
        k.ct_label[15] = zone;
        k.ct_nw_proto = [6, 17, 6][usize::from(tuple)];
        k.ct_tp_dst.set(80 + u16::from(zone));
        match k.dl_type.get() {
            0x800 => k.ct_nw_src.set(tuple.into()),
            0x86dd => k.ct_ipv6_src[15] = tuple,
            _ => {}
        }
    }
}

/// Matches of rules.
fn matches() -> impl Strategy<Value = Match> {
    let texts = [
        "",
        "",
        "in_port=1",
        "in_port=3",
        "dl_src=02:00:00:00:00:01",
        "dl_dst=02:00:00:00:00:02",
        "dl_vlan=5",
        "dl_vlan=10,dl_vlan_pcp=3",
        "vlan_tci=0x0000/0x1fff",
        "ip",
        "ip,nw_src=0.0.0.1",
        "ip,nw_dst=0.0.0.0/31",
        "tcp",
        "tcp,tp_dst=80",
        "tcp,tp_src=0x40/0xffc0",
        "udp,tp_dst=80",
        "icmp,icmp_type=1",
        "ip,nw_ttl=64",
        "ip,nw_tos=32",
        "ip,nw_frag=no",
        "ip,nw_frag=later",
        "arp,arp_op=1",
        "arp,arp_spa=0.0.0.1",
        "ipv6,ipv6_dst=::1",
        "icmp6,icmp_type=135,icmp_code=0,nd_target=::1",
        "mpls",
        "mpls,mpls_label=1",
        "mpls,mpls_bos=0",
        "reg0=1",
        "reg31=1",
        "reg1=0x2/0x2",
        "metadata=1",
        "tcp,tcp_flags=+syn",
        "ip,nw_proto=0",
        "conj_id=7",
        "pkt_mark=1",
        "tun_id=1",
        "tun_src=10.0.0.1",
        "tun_dst=10.0.0.2",
        "tun_metadata0=1",
        "tun_flags=oam",
        "ct_state=-trk",
        "ct_state=+trk+est,ip",
        "ct_state=+trk-inv,ct_zone=1",
        "ct_mark=1/1",
        "ct_label=0x1",
        "ct_state=+trk+new,ip,ct_nw_src=0.0.0.1",
        "ct_state=+est,ipv6,ct_nw_proto=17,ct_tp_dst=81",
    ];
    select(texts.map(|t| flow::text::parse_match(t, &flow::text::no_numbers).unwrap()).to_vec()) // the texts are right
}

fn simple_action() -> impl Strategy<Value = Action> {
    let hash = || {
        select(
            &[
                HashFields::EthSrc,
                HashFields::SymmetricL4,
                HashFields::SymmetricL3L4,
                HashFields::NwDst,
                HashFields::SymmetricL3,
            ][..],
        )
    };
    let fields = select(
        &[
            (Field::EthSrc, 0x0200_0000_0003u128),
            (Field::EthDst, 0x0200_0000_0001),
            (Field::VlanVid, 0x1005),
            (Field::VlanVid, 0),
            (Field::VlanTci, 0),
            (Field::VlanTci, 0x1005),
            (Field::VlanPcp, 3),
            (Field::Ipv4Src, 1),
            (Field::Ipv4Dst, 2),
            (Field::Ipv6Dst, 1),
            (Field::IpDscpShifted, 8),
            (Field::IpEcn, 1),
            (Field::IpTtl, 2),
            (Field::TcpDst, 80),
            (Field::UdpSrc, 1),
            (Field::SctpDst, 1),
            (Field::ArpOp, 1),
            (Field::ArpSpa, 1),
            (Field::ArpTha, 0x0200_0000_0001),
            (Field::NdTarget, 1),
            (Field::NdSll, 1),
            (Field::NdTll, 1),
            (Field::MplsLabel, 1),
            (Field::MplsTc, 1),
            (Field::Reg0, 1),
            (Field::Reg31, 1),
            (Field::Reg1, 2),
            (Field::Metadata, 1),
            (Field::PktMark, 1),
            (Field::Icmpv4Type, 1),
            (Field::Icmpv6Code, 1),
            (Field::InPort, 3),
            (Field::Ipv6Label, 1),
            (Field::TunId, 2),
            (Field::TunDst, 0x0a00_0002),
        ][..],
    );
    let subs = || {
        select(
            [
                "NXM_OF_ETH_SRC[0..7]",
                "NXM_OF_ETH_DST[0..7]",
                "NXM_OF_VLAN_TCI[0..11]",
                "NXM_OF_IP_SRC[0..7]",
                "NXM_OF_IP_DST[8..15]",
                "NXM_NX_REG0[0..7]",
                "NXM_NX_REG1[0..7]",
                "NXM_OF_TCP_DST[0..7]",
                "NXM_NX_ARP_SHA[0..7]",
                "NXM_NX_IP_TTL[]",
                "NXM_OF_IN_PORT[0..7]",
                "OXM_OF_METADATA[0..7]",
                "OXM_OF_MPLS_LABEL[0..7]",
                "NXM_NX_TUN_ID[0..7]",
                "NXM_NX_TUN_IPV4_SRC[0..7]",
            ]
            .map(sub)
            .to_vec(),
        )
    };
    prop_oneof![
        6 => (1..6u32).prop_map(out),
        3 => select(&[PortNo::IN_PORT, PortNo::FLOOD, PortNo::ALL, PortNo::CONTROLLER][..]).prop_map(to),
        3 => Just(to(PortNo::NORMAL)),
        6 => fields.prop_map(|(f, v)| set(f, v)),
        3 => (subs(), subs()).prop_map(|(src, dst)| Action::Move { src, dst }),
        1 => subs().prop_map(Action::StackPush),
        1 => subs().prop_map(Action::StackPop),
        1 => subs().prop_map(|src| Action::OutputReg { src, max_len: 0 }),
        2 => Just(super::POP_VLAN),
        2 => select(&[0x8100u16, 0x88a8][..]).prop_map(|tpid| Action::PushVlan { tpid }),
        2 => any::<bool>().prop_map(|push_if_missing| Action::SetVlanVid { vid: 5, push_if_missing }),
        1 => any::<bool>().prop_map(|push_if_missing| Action::SetVlanPcp { pcp: 3, push_if_missing }),
        2 => Just(Action::PushMpls { ethertype: 0x8847 }),
        3 => select(&[0x8847u16, 0x800][..]).prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => Just(Action::DecMplsTtl),
        1 => Just(Action::DecNshTtl),
        2 => select(&[openflow::action::USE_NEXT_PROTOCOL, 0, 0x1_8847, 0x1_0800][..])
            .prop_map(|packet_type| Action::Decap { packet_type }),
        3 => select(&EncapHeader::ALL[..]).prop_map(|header| {
            let encap = openflow::action::Encap { header, header_bytes: 0, properties: vec![] };
            Action::Encap(Box::new(encap))
        }),
        2 => Just(Action::DecTtl { controllers: vec![0] }),
        1 => Just(Action::SetQueue(3)),
        1 => Just(Action::PopQueue),
        1 => Just(Action::Enqueue { port: PortNo(2), queue: 1 }),
        1 => Just(Action::OutputTrunc { port: PortNo(2), max_len: 99 }),
        1 => Just(Action::Exit),
        1 => Just(Action::Meter(1)),
        1 => Just(Action::FinTimeout { idle: 1, hard: 1 }),
        3 => (1..6u32).prop_map(Action::Group),
        1 => (hash(), subs()).prop_map(|(fields, dst)| Action::Multipath(Box::new(Multipath { fields, basis: 3, algorithm: MultipathAlgorithm::Hrw, max_link: 5, arg: 0, dst }))),
        1 => hash().prop_map(|fields| Action::Bundle(Box::new(Bundle { fields, basis: 0, algorithm: BundleAlgorithm::Hrw, members: vec![PortNo(2), PortNo(3), PortNo(4)], dst: None }))),
        1 => any::<bool>().prop_map(|pause| Action::Controller(Box::new(Controller { max_len: 9, controller_id: 1, reason: 1, userdata: vec![], pause, meter_id: u32::MAX }))),
        1 => subs().prop_map(|dst| Action::CheckPktLarger { len: 50, dst: flow::Subfield { bits: 1, ..dst } }),
        1 => subs().prop_map(|src| Action::Learn(Box::new(Learn {
            idle_timeout: 0, hard_timeout: 0, priority: 1, cookie: 0, send_flow_removed: false, delete_learned: false, table: 9,
            fin_idle_timeout: 0, fin_hard_timeout: 0, limit: 0, result_dst: None,
            specs: vec![LearnSpec { bits: src.bits, src: LearnSource::Field(src), dst: LearnTarget::Match(sub("reg0")) }],
        }))),
    ]
}

fn ct() -> impl Strategy<Value = Action> {
    let whole = |text: &str| CtZone::Field(sub(text));
    let zones = [
        CtZone::Number(0),
        CtZone::Number(1),
        whole("NXM_NX_CT_ZONE[]"),
        whole("NXM_NX_REG0[0..15]"),
        whole("NXM_NX_CT_MARK[0..15]"),
        whole("NXM_OF_IP_SRC[0..15]"),
        whole("NXM_OF_TCP_DST[]"),
    ];
    let to_mark = |src| Action::Move { src: sub(src), dst: sub("NXM_NX_CT_MARK[8..15]") };
    let nested = [
        Action::Nat(Nat::EXISTING),
        set(Field::CtMark, 2),
        set(Field::CtLabel, 1),
        to_mark("NXM_NX_CT_MARK[0..7]"),
        to_mark("NXM_OF_ETH_SRC[0..7]"),
        to_mark("NXM_NX_CT_TP_DST[0..7]"),
        to_mark("NXM_NX_CT_LABEL[0..7]"),
        to_mark("NXM_OF_IP_DST[0..7]"),
    ];
    let table = proptest::option::weighted(0.8, 1..4u8);
    let nested = proptest::collection::vec(select(nested.to_vec()), 0..4);
    (any::<bool>(), select(zones.to_vec()), table, nested).prop_map(
        |(force, zone, table, actions)| {
            Action::Ct(Box::new(Ct { commit: true, force, zone, table, alg: 0, actions }))
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => simple_action(),
        3 => (1..4u8).prop_map(resubmit),
        2 => (1..5u32, 1..4u8, any::<bool>()).prop_map(|(p, t, original_tuple)| {
            Action::Resubmit { port: Some(PortNo(p)), table: Some(t), original_tuple }
        }),
        2 => proptest::collection::vec(simple_action(), 1..3).prop_map(Action::Clone),
        2 => proptest::collection::vec(simple_action(), 1..3).prop_map(Action::WriteActions),
        3 => ct(),
        1 => Just(Action::CtClear),
        1 => Just(Action::DeleteField(Field::TunMetadata0)),
        1 => Just(Action::Move { src: sub("NXM_NX_CT_MARK[0..7]"), dst: sub("NXM_NX_REG1[0..7]") }),
        1 => Just(Action::ClearActions),
        1 => Just(Action::WriteMetadata { value: 1, mask: 1 }),
    ]
}

/// The option of `tun_metadata0`. Options are those of the whole process, so there is one table.
fn options() -> Arc<flow::TlvTable> {
    static TABLE: LazyLock<Arc<flow::TlvTable>> = LazyLock::new(|| {
        let mut table = flow::TlvTable::default();
        table.add(0, flow::TlvMapping { class: 1, kind: 2, bytes: 4 }).expect("room for one");
        Arc::new(table)
    });
    Arc::clone(&TABLE)
}

type RuleSpec = (u8, u16, Match, Vec<Action>);

fn rules() -> impl Strategy<Value = Vec<RuleSpec>> {
    let rule = (0..4u8, 0..4u16, matches(), proptest::collection::vec(action(), 0..5));
    let first =
        (Just(0u8), Just(0u16), Just(Match::ANY), proptest::collection::vec(action(), 1..6));
    (first, proptest::collection::vec(rule, 0..10)).prop_map(|(f, mut r)| {
        r.push(f);
        r
    })
}

fn world(rules: &[RuleSpec], modes: &[(u8, u8)], frag_handling: u16) -> World {
    let mut w = World::new(5);
    let br1 = w.add_bridge(3);
    w.patch((BridgeIndex(0), 5), (br1, 3));
    w.rule_on(br1, "priority=1", [to(PortNo::NORMAL)]);
    w.rule_on(br1, "priority=2,ip,nw_dst=0.0.0.1", [set(Field::Ipv4Src, 2), out(1)]);
    w.rule_on(br1, "priority=3,pkt_mark=1,udp,nw_tos=0", [out(2)]);
    w.bridge(BridgeIndex(0)).tlv_table = options();
    let vport =
        Config { in_key: Some(OrFlow::Flow), ..Config::new(TunnelKind::Geneve, OrFlow::Flow) };
    w.tunnel(BridgeIndex(0), 3, vport.clone());
    w.tunnel(
        BridgeIndex(0),
        4,
        Config {
            out_key: Some(OrFlow::Flow),
            tos: Tos::Inherit,
            ttl: Ttl::Inherit,
            local: Some(OrFlow::Flow),
            ..vport
        },
    );
    let name = |p: &mut PortView| p.name = format!("u{}", p.number.0);
    Arc::make_mut(&mut w.bridge(br1).ports).values_mut().for_each(name);
    let underlay = w.underlay(br1, 1);
    underlay.learn("br1", [10, 0, 0, 2].into(), Mac([2, 0, 0, 0, 0, 7]));
    w.br0().config.frag_handling = frag_handling;
    for (number, (mode, tags)) in (1..=4u32).zip(modes) {
        let states = [None, None, Some(PortState::Learning), Some(PortState::Blocking)];
        w.port(number, |p| p.tree_state = states[usize::from(tags / 3 % 4)]);
        w.bundle(number, |b| {
            b.mode = [
                VlanMode::Trunk,
                VlanMode::Access,
                VlanMode::NativeTagged,
                VlanMode::NativeUntagged,
                VlanMode::Dot1qTunnel,
            ][usize::from(mode % 5)];
            b.tag = if *mode % 5 == 0 { 0 } else { 5 };
            b.priority_tags = [PriorityTags::Never, PriorityTags::IfNonzero, PriorityTags::Always]
                [usize::from(tags % 3)];
        });
    }
    for n in 0..3u8 {
        w.br0().macs.learn(
            u16::from(n) * 5,
            [2, 0, 0, 0, 0, n],
            PortNo(u32::from(n) + 1),
            false,
            clock::Millis(1),
        );
    }
    let any = PortNo::NONE;
    let buckets = || {
        vec![
            (1, any, vec![set(Field::EthSrc, 0x0200_0000_0009), out(2)]),
            (1, any, vec![Action::PopMpls { ethertype: 0x800 }, out(3)]),
        ]
    };
    w.group(1, GroupKind::All, Selection::Default, buckets());
    w.group(2, GroupKind::Select, Selection::Default, buckets());
    let fields = vec![(Field::Ipv4Src, 0xff), (Field::TcpDst, 0xffff), (Field::EthSrc, 0xff)];
    w.group(3, GroupKind::Select, Selection::Hash { basis: 1, fields }, buckets());
    w.group(
        4,
        GroupKind::FastFailover,
        Selection::Default,
        vec![
            (0, PortNo(9), vec![out(2)]),
            (
                0,
                PortNo(2),
                vec![
                    Action::DecTtl { controllers: vec![] },
                    Action::Resubmit { port: None, table: Some(2), original_tuple: false },
                ],
            ),
        ],
    );
    w.group(
        5,
        GroupKind::Indirect,
        Selection::Default,
        vec![(0, any, vec![Action::PushVlan { tpid: 0x8100 }, to(PortNo::NORMAL)])],
    );
    for (table, priority, matching, actions) in rules {
        let rule = Arc::new(make_rule(*table, *priority, 0, matching, actions.clone()));
        w.br0().tables[usize::from(*table)].rules.insert(rule);
    }
    w
}

fn recirculations(actions: &[Dp], out: &mut Vec<u32>) {
    for a in actions {
        match a {
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

/// Returns texts of the effects that a text can distinguish: they are as much a part of the
/// megaflow as the actions.
fn effects(t: &Translation) -> Vec<String> {
    effect_texts(&t.effects)
}

fn effect_texts(effects: &[Effect]) -> Vec<String> {
    let text = |e: &Effect| match e {
        Effect::Rule(rule) => format!("rule {}", rule.id),
        Effect::Table { matched, .. } => format!("table {matched}"),
        Effect::Bucket { group, bucket } => format!("group {} {bucket:?}", group.id),
        Effect::AllBuckets(group) => format!("group {}", group.id),
        Effect::VirtualPort(_, direction) => format!("virtual {direction:?}"),
        Effect::Mirror(_) => "mirror".to_owned(),
        Effect::Bond(_, bucket) => format!("bucket {bucket} of a bond"),
        Effect::NetFlow { flow, output, .. } => format!("netflow {flow:?} {output:?}"),
        Effect::Learn { vlan, mac, port, gratuitous_arp, .. } => {
            format!("mac {vlan} {mac:?} {port} {gratuitous_arp}")
        }
        Effect::LearnFlow { flow, .. } => format!("{flow:?}"),
        Effect::FinTimeout { rule, .. } => format!("fin {}", rule.id),
        Effect::Encapsulated { added, effects } => {
            format!("encapsulated {added} [{}]", effect_texts(effects).join(", "))
        }
        Effect::UseNeighbour { device, address, .. } => format!("neighbour {device} {address}"),
        Effect::LearnNeighbour { address, mac, is_lasting: true, .. } => {
            format!("learn {address} {mac}")
        }
        // Only for the packet itself.
        Effect::LearnNeighbour { .. } | Effect::LearnGroups { .. } => String::new(),
        Effect::Solicit { port, packet, .. } => format!("solicit {port} {:?}", packet.data()),
        Effect::ResolveNeighbour { device, address } => format!("resolve {device} {address}"),
    };
    effects.iter().map(text).collect()
}

/// Checks one packet and its mutants, and the same packets after each recirculation.
fn check(
    w: &World,
    base: &Spec,
    mutants: &[Spec],
    recirc: u32,
    level: u32,
) -> Result<(), TestCaseError> {
    let with = |s: &Spec| {
        let mut k = s.key();
        k.recirc_id.set(recirc);
        if recirc != 0 {
            k.dp_hash.set(s.dp_hash + 1);
            track(&mut k, s.connection);
        }
        k
    };
    let key = with(base);
    let first = w.translate(&key);
    let matching = Match::new(&key, &first.mask);
    prop_assert!(first.mask.0.regs.iter().all(|r| r.get() == 0));
    prop_assert_eq!(first.mask.0.dl_type.get(), u16::MAX);
    for m in mutants {
        let other = with(m);
        if matching.matches(&other) {
            let second = w.translate(&other);
            prop_assert_eq!(
                &first.actions,
                &second.actions,
                "mask {:?}\n{:?}\n{:?}",
                matching,
                key,
                other
            );
            prop_assert_eq!(first.error, second.error);
            prop_assert_eq!(effects(&first), effects(&second));
        }
    }
    if level < 3 {
        let mut ids = Vec::new();
        recirculations(&first.actions, &mut ids);
        for id in ids {
            check(w, base, mutants, id, level + 1)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2000)))]

    #[test]
    fn packets_of_one_megaflow_get_equal_actions(
        rules in rules(),
        modes in proptest::collection::vec((0..5u8, 0..12u8), 4),
        frag_handling in select(&[0u16, 1, 3][..]),
        base in spec(),
        others in proptest::collection::vec((spec(), 0..22usize, 0..22usize), 40),
    ) {
        let w = world(&rules, &modes, frag_handling);
        let mutants: Vec<Spec> = others.iter().map(|(o, a, b)| base.with(o, *a).with(o, *b)).collect();
        check(&w, &base, &mutants, 0, 0)?;
        // Each mutant, too, against the packet.
        if let Some(m) = mutants.first() {
            check(&w, m, std::slice::from_ref(&base), 0, 0)?;
        }
    }
}
