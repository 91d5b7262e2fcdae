// SPDX-License-Identifier: Apache-2.0
//! Filters against megaflows, and messages against what they were made of.

use crate::act::{self, Act, Ct, Direction, Edit, Layer, Nat, TunnelKey};
use crate::encode::{Encoded, Switch, Target, TunnelDevice, encode};
use crate::filter::{Filter, Hook, Place, Policy, Shown};
use crate::keys::{FIRST_FRAGMENT, FRAGMENT, Key, Keys};
use crate::policer::{Policer, Rate};
use datapath::{Action, Masked, Megaflow, PortNo, Set, Ufid};
use flow::extract::{FRAG_ANY, FRAG_LATER};
use flow::{Mask, Match, VLAN_CFI};
use std::sync::Arc;

mod tunnels;

/// The first of the ports of tunnels, and the UDP ports of all: VXLAN, Geneve and GRE.
const TUNNEL: u32 = 200;
const TUNNELS: [u16; 3] = [4789, 6081, 0];
/// The port that outer packets leave by.
const UNDERLAY: u32 = 99;

/// Ports are devices of the same number; from 100 on of the host.
struct Ports;

impl Switch for Ports {
    fn target(&self, port: PortNo) -> Option<Target> {
        match port.0 {
            0 => None,
            1..100 => Some(Target::Device(port.0)),
            host => Some(Target::Host(host)),
        }
    }

    fn tunnel(&self, port: PortNo) -> Option<TunnelDevice> {
        let udp_port = *TUNNELS.get(usize::try_from(port.0.checked_sub(TUNNEL)?).ok()?)?;
        Some(TunnelDevice { ifindex: port.0, udp_port })
    }

    fn is_underlay(&self, port: PortNo) -> bool {
        port.0 == UNDERLAY
    }

    fn chain(&self, recirc_id: u32) -> Option<u32> {
        Some(recirc_id)
    }

    fn policer(&self, meter: u32) -> Option<Policer> {
        Some(policer(meter))
    }

    fn tracks_by_kernel(&self) -> bool {
        false
    }
}

fn policer(index: u32) -> Policer {
    Policer { index, rate: Rate::Packets(100), burst: 15_625_000 }
}

fn encoded(matching: Match, actions: Vec<Action>) -> Result<Encoded, &'static str> {
    let flow = Megaflow { ufid: Ufid(1), matching, actions: Arc::from(actions) };
    encode(&flow, &Ports).map_err(|refused| refused.words)
}

/// A value of a key in a packet, as flower's dissector finds it: `None` when the packet has no such
/// header.
fn dissected(packet: &flow::Key, encoded: &Encoded, key: Key) -> Option<Vec<u8>> {
    let tags = packet.vlans.iter().filter(|tag| tag.tci.get() & VLAN_CFI != 0).count();
    let (is_v4, is_v6) = (packet.dl_type.get() == 0x0800, packet.dl_type.get() == 0x86dd);
    let is_arp = [0x0806, 0x8035].contains(&packet.dl_type.get());
    let is_mpls = [0x8847, 0x8848].contains(&packet.dl_type.get());
    let proto = (is_v4 || is_v6).then_some(packet.nw_proto);
    let has_ports = packet.nw_frag & FRAG_LATER == 0;
    let port = |wanted: u8, value: u16| {
        (proto == Some(wanted) && has_ports).then(|| value.to_be_bytes().to_vec())
    };
    let icmp =
        |wanted: u8, value: u16| (proto == Some(wanted) && has_ports).then(|| vec![value as u8]);
    let [outer, inner] = packet.vlans;
    let entry = packet.mpls[0].get();
    let _ = encoded;
    Some(match key {
        Key::EthDst => packet.dl_dst.to_vec(),
        Key::EthSrc => packet.dl_src.to_vec(),
        Key::EthType => match tags {
            0 => packet.dl_type.to_bytes().to_vec(),
            _ => outer.tpid.to_bytes().to_vec(),
        },
        Key::VlanId if tags > 0 => (outer.tci.get() & 0xfff).to_ne_bytes().to_vec(),
        Key::VlanPrio if tags > 0 => vec![(outer.tci.get() >> 13) as u8],
        Key::VlanEthType if tags == 1 => packet.dl_type.to_bytes().to_vec(),
        Key::VlanEthType if tags == 2 => inner.tpid.to_bytes().to_vec(),
        Key::CvlanId if tags == 2 => (inner.tci.get() & 0xfff).to_ne_bytes().to_vec(),
        Key::CvlanPrio if tags == 2 => vec![(inner.tci.get() >> 13) as u8],
        Key::CvlanEthType if tags == 2 => packet.dl_type.to_bytes().to_vec(),
        Key::IpProto => vec![proto?],
        Key::IpTos if is_v4 || is_v6 => vec![packet.nw_tos],
        Key::IpTtl if is_v4 || is_v6 => vec![packet.nw_ttl],
        Key::Ipv4Src if is_v4 => packet.nw_src.to_bytes().to_vec(),
        Key::Ipv4Dst if is_v4 => packet.nw_dst.to_bytes().to_vec(),
        Key::Ipv6Src if is_v6 => packet.ipv6_src.to_vec(),
        Key::Ipv6Dst if is_v6 => packet.ipv6_dst.to_vec(),
        Key::Flags if is_v4 || is_v6 => {
            let mut flags = 0;
            if packet.nw_frag & FRAG_ANY != 0 {
                flags |= FRAGMENT;
                flags |= if packet.nw_frag & FRAG_LATER == 0 { FIRST_FRAGMENT } else { 0 };
            }
            flags.to_be_bytes().to_vec()
        }
        Key::TcpSrc => port(6, packet.tp_src.get())?,
        Key::TcpDst => port(6, packet.tp_dst.get())?,
        Key::TcpFlags => port(6, packet.tcp_flags.get())?,
        Key::UdpSrc => port(17, packet.tp_src.get())?,
        Key::UdpDst => port(17, packet.tp_dst.get())?,
        Key::SctpSrc => port(132, packet.tp_src.get())?,
        Key::SctpDst => port(132, packet.tp_dst.get())?,
        Key::Icmpv4Type => icmp(1, packet.tp_src.get())?,
        Key::Icmpv4Code => icmp(1, packet.tp_dst.get())?,
        Key::Icmpv6Type => icmp(58, packet.tp_src.get())?,
        Key::Icmpv6Code => icmp(58, packet.tp_dst.get())?,
        Key::ArpSip if is_arp => packet.nw_src.to_bytes().to_vec(),
        Key::ArpTip if is_arp => packet.nw_dst.to_bytes().to_vec(),
        Key::ArpOp if is_arp => vec![packet.nw_proto],
        Key::ArpSha if is_arp => packet.arp_sha.to_vec(),
        Key::ArpTha if is_arp => packet.arp_tha.to_vec(),
        Key::MplsLabel if is_mpls => (entry >> 12).to_ne_bytes().to_vec(),
        Key::MplsTc if is_mpls => vec![(entry >> 9 & 7) as u8],
        Key::MplsBos if is_mpls => vec![(entry >> 8 & 1) as u8],
        Key::MplsTtl if is_mpls => vec![entry as u8],
        _ => return None,
    })
}

/// True when flower would take the packet for one of the filter's. A header that is not there has
/// zeros.
fn filter_matches(packet: &flow::Key, encoded: &Encoded) -> bool {
    let outermost = dissected(packet, encoded, Key::EthType).unwrap_or_default();
    if encoded.protocol != 3 && outermost != encoded.protocol.to_be_bytes() {
        return false;
    }
    encoded.keys.iter().all(|(key, masked)| {
        let bytes = masked.value.len();
        let found = dissected(packet, encoded, key).unwrap_or_else(|| vec![0; bytes]);
        let mask = if masked.mask.is_empty() { vec![0xff; bytes] } else { masked.mask.clone() };
        found.iter().zip(&mask).map(|(found, mask)| found & mask).eq(masked.value.iter().copied())
    })
}

/// A packet of few different values, so that two packets often agree in a field.
fn packet(rng: &mut fastrand::Rng) -> flow::Key {
    let mut key = flow::Key::default();
    let byte = |rng: &mut fastrand::Rng| rng.choice([1, 2, 3]).unwrap_or(1);
    key.dl_dst = [2, 0, 0, 0, 0, byte(rng)];
    key.dl_src = [2, 0, 0, 0, 1, byte(rng)];
    for tag in key.vlans.iter_mut().take(rng.usize(..=2)) {
        tag.tpid = rng.choice([0x8100, 0x88a8]).unwrap_or(0x8100).into();
        tag.tci = (VLAN_CFI | u16::from(byte(rng)) << 13 | u16::from(byte(rng))).into();
    }
    let types = [0x0800, 0x0800, 0x86dd, 0x0806, 0x8847, 0x1234];
    key.dl_type = rng.choice(types).unwrap_or(0x0800).into();
    key.nw_src = u32::from(byte(rng)).into();
    key.nw_dst = u32::from(byte(rng)).into();
    key.ipv6_src[15] = byte(rng);
    key.ipv6_dst[15] = byte(rng);
    key.nw_proto = rng.choice([1, 2, 6, 17, 58, 132]).unwrap_or(6);
    key.nw_tos = byte(rng);
    key.nw_ttl = byte(rng);
    key.nw_frag = rng.choice([0, 0, FRAG_ANY, FRAG_ANY | FRAG_LATER]).unwrap_or(0);
    key.tp_src = u16::from(byte(rng)).into();
    key.tp_dst = u16::from(byte(rng)).into();
    key.tcp_flags = u16::from(byte(rng)).into();
    key.arp_sha = [2, 0, 0, 0, 2, byte(rng)];
    key.arp_tha = [2, 0, 0, 0, 3, byte(rng)];
    key.mpls[0] = (0x1100 | u32::from(byte(rng)) << 12 | u32::from(byte(rng))).into();
    let frame = flow::compose(&key, &flow::PAYLOAD);
    flow::extract::key_of(frame.data(), 7)
}

/// A packet that agrees with another one in most fields.
fn like(packet: &flow::Key, other: &flow::Key, rng: &mut fastrand::Rng) -> flow::Key {
    let mut key = *packet;
    for (word, other) in key.words_mut().iter_mut().zip(other.words()) {
        if rng.u8(..8) == 0 {
            *word = *other;
        }
    }
    let frame = flow::compose(&key, &flow::PAYLOAD);
    flow::extract::key_of(frame.data(), 7)
}

/// A match on some fields of a packet, as translation makes them: a header's fields with the types
/// that say that it is there.
fn some_match(packet: &flow::Key, rng: &mut fastrand::Rng) -> Match {
    let whole = datapath::exact_mask(packet);
    let mut mask = Mask::WILDCARD;
    for field in flow::Field::ALL {
        // Fields that no header has are asked for rarely.
        let is_of_headers = !field.name().starts_with("ct_") && field != flow::Field::DpHash;
        if rng.u8(..3) == 0 && (is_of_headers || rng.u8(..40) == 0) {
            mask.set_exact(field);
        }
    }
    // Some bits of a word only.
    for word in mask.words_mut() {
        if rng.u8(..60) == 0 {
            *word &= rng.u64(..);
        }
    }
    let mut both = mask.minus(&Mask::WILDCARD);
    both.words_mut().iter_mut().zip(whole.words()).for_each(|(bits, all)| *bits &= all);
    for field in [flow::Field::InPortOxm, flow::Field::RecircId, flow::Field::PacketType] {
        both.set_exact(field);
    }
    if rng.u8(..4) != 0 {
        for field in [flow::Field::EthType, flow::Field::VlanTci, flow::Field::IpFrag] {
            both.set_exact(field);
        }
        both.0.vlans = whole.0.vlans;
        if [0x0800, 0x86dd].contains(&packet.dl_type.get()) {
            both.0.nw_proto = 0xff;
        }
    }
    Match::new(packet, &both)
}

#[test]
fn a_filter_matches_the_packets_of_its_megaflow_and_no_others() {
    let mut rng = fastrand::Rng::with_seed(39);
    let (mut filters, mut matches) = (0, 0);
    for _ in 0..20_000 {
        let of_flow = packet(&mut rng);
        let matching = some_match(&of_flow, &mut rng);
        let Ok(encoded) = encoded(matching, vec![]) else { continue };
        filters += 1;
        // Packets with VLAN headers are left out where no VLAN is matched.
        let any_vlan = matching.mask().0.vlans[0].tci.get() == 0 && encoded.protocol != 3;
        let is_left_out = |packet: &flow::Key| any_vlan && packet.vlans[0].tci.get() != 0;
        if !is_left_out(&of_flow) {
            assert!(filter_matches(&of_flow, &encoded), "{of_flow:?}\n{matching:?}\n{encoded:?}");
        }
        for _ in 0..20 {
            let other = packet(&mut rng);
            let near = like(&of_flow, &other, &mut rng);
            for packet in [other, near] {
                let expected = matching.matches(&packet) && !is_left_out(&packet);
                matches += u32::from(expected);
                assert_eq!(
                    filter_matches(&packet, &encoded),
                    expected,
                    "{packet:?}\n{matching:?}\n{encoded:?}"
                );
            }
        }
    }
    assert!(filters > 1_000 && matches > 1_000, "{filters} filters, {matches} matching packets");
}

#[test]
fn what_flower_cannot_match_is_refused_with_words() {
    let mut key = flow::Key { dl_type: 0x0800.into(), nw_proto: 6, ..flow::Key::default() };
    key.in_port = 7.into();
    let mask = |set: fn(&mut Mask)| {
        let mut mask = Mask::WILDCARD;
        mask.0.dl_type = u16::MAX.into();
        mask.0.nw_proto = 0xff;
        mask.0.vlans[0].tci = u16::MAX.into();
        set(&mut mask);
        mask
    };
    let refused = |key: &flow::Key, mask: &Mask| encoded(Match::new(key, mask), vec![]).err();
    assert_eq!(refused(&key, &mask(|_| {})), None);
    type Case = (fn(&mut Mask), &'static str);
    let cases: [Case; 7] = [
        (|m| m.0.dp_hash = 1.into(), "no key for a field"),
        (|m| m.0.ipv6_label = 1.into(), "no key for a field"),
        (|m| m.0.nw_proto = 0xf0, "protocols whole"),
        (|m| m.0.dl_type = 0xff00.into(), "types whole"),
        (|m| m.0.nw_frag = FRAG_LATER, "among fragments"),
        (|m| m.0.ct_state = 1, "kernel's table"),
        (|m| m.0.vlans[0].tci = 0xfff.into(), "be there or not"),
    ];
    for (set, words) in cases {
        let said = refused(&key, &mask(set));
        assert!(said.is_some_and(|said| said.contains(words)), "{words}: {said:?}");
    }
    key.vlans[0].tci = (VLAN_CFI | 5).into();
    key.vlans[0].tpid = 0x8100.into();
    let said = refused(
        &key,
        &mask(|m| {
            m.0.vlans[0].tpid = u16::MAX.into();
            m.0.vlans[0].tci = 0x1ff0.into();
        }),
    );
    assert!(said.is_some_and(|said| said.contains("VLAN ids whole")), "{said:?}");
}

fn tcp() -> Match {
    let mut key = flow::Key { dl_type: 0x0800.into(), nw_proto: 6, ..flow::Key::default() };
    key.in_port = 7.into();
    let mut mask = Mask::WILDCARD;
    mask.0.dl_type = u16::MAX.into();
    mask.0.nw_proto = 0xff;
    mask.0.nw_frag = FRAG_ANY | FRAG_LATER;
    mask.0.vlans[0].tci = u16::MAX.into();
    Match::new(&key, &mask)
}

fn whole<const N: usize>(value: [u8; N]) -> Masked<[u8; N]> {
    Masked { value, mask: [0xff; N] }
}

#[test]
fn edits_become_words_with_one_checksum_behind_each_run() {
    let set = |set| Action::Set(set);
    let actions = vec![
        set(Set::Ethernet { src: whole([1; 6]), dst: whole([2; 6]) }),
        set(Set::Ipv4 {
            src: whole([10, 0, 0, 1]),
            dst: Masked::default(),
            tos: Masked::default(),
            ttl: Masked { value: 63, mask: 0xff },
        }),
        set(Set::Tcp { src: Masked { value: 80, mask: 0xffff }, dst: Masked::default() }),
        Action::Output(PortNo(3)),
        set(Set::Ethernet { src: whole([3; 6]), dst: Masked::default() }),
        Action::Output(PortNo(104)),
    ];
    let acts = encoded(tcp(), actions).unwrap().acts;
    let kinds: Vec<_> = acts.iter().map(Act::kind).collect();
    assert_eq!(kinds, ["pedit", "csum", "mirred", "pedit", "skbedit", "mirred"]);
    let Act::Edit(edits) = &acts[0] else { panic!("{acts:?}") };
    let edit = |layer, offset, value, mask| Edit { layer, offset, value, mask };
    assert_eq!(
        edits[..],
        [
            edit(Layer::Ethernet, 0, [2; 4], [0xff; 4]),
            edit(Layer::Ethernet, 4, [2, 2, 1, 1], [0xff; 4]),
            edit(Layer::Ethernet, 8, [1; 4], [0xff; 4]),
            edit(Layer::Ipv4, 8, [63, 0, 0, 0], [0xff, 0, 0, 0]),
            edit(Layer::Ipv4, 12, [10, 0, 0, 1], [0xff; 4]),
            edit(Layer::Tcp, 0, [0, 80, 0, 0], [0xff, 0xff, 0, 0]),
        ]
    );
    assert_eq!(acts[1], Act::Checksum(act::checksum::IPV4 | act::checksum::TCP));
    let last = Act::Send { ifindex: 104, direction: Direction::Ingress, last: true };
    assert_eq!(acts.last(), Some(&last));
}

#[test]
fn a_checksum_that_tc_cannot_compute_is_a_refusal() {
    let rewrite = vec![Action::Set(Set::Ipv4 {
        src: whole([10, 0, 0, 1]),
        dst: Masked::default(),
        tos: Masked::default(),
        ttl: Masked::default(),
    })];
    let words = |set: fn(&mut flow::Key, &mut Mask)| {
        let (mut key, mut mask) = (*tcp().key(), *tcp().mask());
        set(&mut key, &mut mask);
        encoded(Match::new(&key, &mask), rewrite.clone()).err().unwrap_or_default()
    };
    assert_eq!(words(|_, _| {}), "");
    assert!(words(|_, mask| mask.0.nw_proto = 0).contains("the protocol"));
    assert!(words(|key, _| key.nw_proto = 132).contains("protocol's checksum"));
    assert!(words(|key, _| key.nw_frag = FRAG_ANY).contains("fragment"));
    assert!(words(|_, mask| mask.0.nw_frag = 0).contains("fragment"));
}

#[test]
fn a_list_without_an_end_drops() {
    assert_eq!(encoded(tcp(), vec![]).unwrap().acts, [Act::Drop]);
    let acts = encoded(tcp(), vec![Action::Recirc(9)]).unwrap().acts;
    assert_eq!(acts, [Act::Goto(9)]);
    let acts = encoded(tcp(), vec![Action::Meter(1), Action::PopVlan]).unwrap().acts;
    assert_eq!(acts, [Act::Police(policer(1)), Act::PopVlan, Act::Drop]);
    let too_many = vec![Action::Output(PortNo(1)); 17];
    assert!(encoded(tcp(), too_many).is_err_and(|words| words.contains("16 actions")));
}

fn acts() -> Vec<Act> {
    vec![
        Act::ReleaseTunnel,
        Act::PopVlan,
        Act::PushVlan { tpid: 0x88a8, vid: 5, priority: 3 },
        Act::PopMpls { ethertype: 0x0800 },
        Act::PushMpls { ethertype: 0x8847, entry: 0x1234_5fff },
        Act::SetMpls(0x0fff_f12a),
        Act::Edit(vec![
            Edit { layer: Layer::Ipv6, offset: 8, value: [1, 2, 3, 4], mask: [0xff; 4] },
            Edit { layer: Layer::Udp, offset: 0, value: [0, 9, 0, 0], mask: [0xff, 0xff, 0, 0] },
        ]),
        Act::Checksum(act::checksum::UDP),
        Act::SetTunnel(Box::new(TunnelKey {
            ipv4: ([10, 0, 0, 1], [10, 0, 0, 2]),
            id: Some(100),
            dst_port: 4789,
            no_csum: true,
            ttl: 64,
            has_df: true,
            ..TunnelKey::default()
        })),
        Act::Ct(Box::new(Ct {
            commit: true,
            zone: 7,
            mark: (1, 3),
            label: ([1; 16], [0xff; 16]),
            nat: Some(Nat {
                source: Some(true),
                ipv4: Some(([10, 0, 0, 1], [10, 0, 0, 9])),
                ports: Some((1000, 2000)),
                ..Nat::default()
            }),
            ..Ct::default()
        })),
        Act::ClearCt,
        Act::Police(policer(1)),
        Act::Police(Policer { index: 2, rate: Rate::Bytes(125_000), burst: 7 }),
        Act::Police(Policer { index: 3, rate: Rate::Bytes(1 << 33), burst: 7 }),
        Act::ToHost,
        Act::Send { ifindex: 3, direction: Direction::Egress, last: false },
        Act::Send { ifindex: 4, direction: Direction::Ingress, last: true },
    ]
}

fn filters() -> Vec<Filter> {
    let mut rng = fastrand::Rng::with_seed(3);
    let place = Place {
        ifindex: 5,
        hook: Hook::Ingress,
        chain: 0,
        priority: 0x7360,
        protocol: 0x0800,
        handle: 0x7360_0001,
    };
    let filter = |keys, acts, policy| Filter { place, keys, acts, cookie: [7; 16], policy };
    let mut filters = vec![
        filter(Keys::default(), acts(), Policy::Both),
        filter(Keys::default(), vec![Act::Drop], Policy::SkipSoftware),
        filter(Keys::default(), vec![Act::Goto(9)], Policy::SkipHardware),
    ];
    while filters.len() < 500 {
        let of_flow = packet(&mut rng);
        if let Ok(encoded) = encoded(some_match(&of_flow, &mut rng), vec![]) {
            filters.push(filter(encoded.keys, encoded.acts, Policy::Both));
        }
    }
    filters
}

#[test]
fn messages_are_read_back() {
    for filter in filters() {
        let shown = Shown::parse(&filter.message()).unwrap();
        assert_eq!(shown.filter, Some(filter));
        assert!(!shown.in_hw);
    }
}

#[test]
fn messages_of_any_bytes_are_read_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(4);
    for filter in filters() {
        let message = filter.message();
        for _ in 0..50 {
            let mut bytes = message.clone();
            bytes.truncate(rng.usize(..=bytes.len()));
            for _ in 0..rng.usize(..4) {
                if let Some(byte) = rng.choice(bytes.iter_mut()) {
                    *byte = rng.u8(..);
                }
            }
            Shown::parse(&bytes);
        }
    }
}
