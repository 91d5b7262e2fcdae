// SPDX-License-Identifier: Apache-2.0
//! Tunnels. Bridge 0 is the overlay, bridge 1 the underlay with the address 10.0.0.1 at port 1.

use super::*;
use crate::testing::BACKING;
use crate::tunnel::{Config, Extensions, OrFlow, Output, PacketTypeMode, Tos, Ttl};
use datapath::{Action as Dp, DropReason, TunnelKind};
use flow::{Key, Mask, TlvMapping, TlvTable, Tunnel};
use packet::Mac;
use std::net::IpAddr;
use underlay::Underlay;

const UNDERLAY: BridgeIndex = BridgeIndex(1);
const HOST: [u8; 4] = [10, 0, 0, 1];
const REMOTE: [u8; 4] = [10, 0, 0, 2];
const NEIGHBOUR: Mac = Mac([0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6]);
const INNER: &str = "in_port=1,tcp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=1.1.1.1,nw_dst=1.1.1.2,nw_ecn=1,nw_ttl=9,tp_src=5,tp_dst=80";

fn vxlan() -> Config {
    let remote = OrFlow::Fixed(IpAddr::from(REMOTE));
    Config {
        in_key: Some(OrFlow::Fixed(7)),
        out_key: Some(OrFlow::Fixed(7)),
        ..Config::new(TunnelKind::Vxlan, remote)
    }
}

/// An overlay with the vport 3, and an underlay whose tables send from port 1 to port 2.
fn world(config: Config) -> (World, Arc<Underlay>) {
    let mut w = World::new(4);
    w.add_bridge(3);
    w.tunnel(BridgeIndex(0), 3, config);
    // A route names a device. Ports of the bridges of a test share names.
    Arc::make_mut(&mut w.bridge(UNDERLAY).ports).values_mut().for_each(|p| {
        p.name = format!("u{}", p.number.0);
    });
    let underlay = w.underlay(UNDERLAY, 1);
    underlay.learn("br1", IpAddr::from(REMOTE), NEIGHBOUR);
    w.rule_on(UNDERLAY, "in_port=1", [out(2)]);
    w.rule("in_port=1", [out(3)]);
    (w, underlay)
}

/// The key of a packet that came out of the tunnel.
fn received(config: &Config) -> Key {
    let mut key = key(INNER);
    key.in_port.set(BACKING.0);
    let t = &mut key.tunnel;
    t.id.set(config.in_key.and_then(OrFlow::fixed).unwrap_or(0));
    (t.src, t.dst) = (u32::from_be_bytes(REMOTE).into(), u32::from_be_bytes(HOST).into());
    t.flags.set(Tunnel::KEY);
    (t.ttl, t.tp_src, t.tp_dst) = (64, 1234.into(), 4789.into());
    key
}

fn text(t: &Translation) -> String {
    match t.actions.is_empty() {
        true => "drop".to_owned(),
        false => datapath::text::format_plain(&t.actions),
    }
}

fn recirculation(t: &Translation) -> u32 {
    let id = t.actions.iter().find_map(|a| match a {
        Dp::Recirc(id) => Some(*id),
        _ => None,
    });
    id.expect("a recirculation")
}

const PUSH: &str = "tnl_push(tnl_port(9000),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=02:00:00:00:00:01,dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0x1,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7)),out_port(101))";

#[test]
fn output_pushes_headers_and_goes_on_in_the_underlay() {
    let (mut w, _) = world(vxlan());
    assert_eq!(w.dp(INNER), format!("{PUSH},102"));
    assert_eq!(w.mega(INNER), "recirc_id=0,eth,ip,in_port=1,nw_ecn=1,nw_frag=no");
    // Later actions get the packet without the headers.
    w.clear_rules();
    w.rule("in_port=1", [out(3), out(2)]);
    assert_eq!(w.dp(INNER), format!("clone({PUSH},102),2"));
    // The underlay's tables see the outer frame.
    w.rule_on(UNDERLAY, "priority=40000,udp,tp_dst=4789,nw_dst=10.0.0.2,nw_tos=0", [out(3)]);
    assert_eq!(w.dp(INNER), format!("clone({PUSH},103),2"));
    // An outer frame that goes nowhere is not made.
    w.rule_on(UNDERLAY, "priority=40001,udp", []);
    assert_eq!(w.dp(INNER), "2");
}

#[test]
fn ipfix_samples_have_the_tunnel_that_the_packet_goes_into() {
    let (mut w, _underlay) = world(vxlan());
    super::export::ipfix(&mut w, u32::MAX);
    let t = w.translate(&key(INNER));
    let pushed = format!("userspace(pid=0,ipfix(output_port=9000)),{PUSH},102");
    assert!(text(&t).contains(&pushed), "{}", text(&t));
    let sample = t.actions.iter().find_map(|action| match action {
        datapath::Action::Userspace(data @ datapath::Userdata::Ipfix { output_port, .. })
            if *output_port != datapath::PortNo::NONE =>
        {
            Some(data)
        }
        _ => None,
    });
    let tunnel =
        crate::export::tunnel_after(&t.actions, sample.expect("a sample")).expect("a tunnel");
    assert_eq!((tunnel.dst.get(), tunnel.tp_dst.get(), tunnel.id.get()), (0x0a00_0002, 4789, 7));
    let view = w.br0().exports.ipfix.as_mut().expect("IPFIX");
    Arc::make_mut(view).bridge.as_mut().expect("a sampler").has_tunnels = false;
    let t = w.translate(&key(INNER));
    assert!(!text(&t).contains("ipfix(output_port=9000)"), "enable-tunnel-sampling is false");
}

#[test]
fn the_outer_frame_makes_no_bit_of_the_packet_exact_but_its_mark() {
    let (mut w, _) = world(vxlan());
    w.rule_on(UNDERLAY, "priority=40000,udp,tp_src=1,nw_ttl=3,dl_src=02:00:00:00:00:09", [out(3)]);
    assert_eq!(w.mega(INNER), "recirc_id=0,eth,ip,in_port=1,nw_ecn=1,nw_frag=no");
    w.rule_on(UNDERLAY, "priority=40001,pkt_mark=5", [out(3)]);
    assert_eq!(w.mega(INNER), "pkt_mark=0,recirc_id=0,eth,ip,in_port=1,nw_ecn=1,nw_frag=no");
}

#[test]
fn marks_decide_where_routes_name_them() {
    let (mut w, _) = world(vxlan());
    let flow = INNER.replace("in_port=1", "in_port=1,pkt_mark=5");
    assert!(w.dp(&flow).starts_with("tnl_push("));
    assert!(!w.mega(&flow).contains("pkt_mark"));
    Arc::make_mut(&mut w.snapshot.tunnels).routes_by_mark = true;
    assert_eq!(w.dp(&flow), "drop");
    assert!(w.mega(&flow).contains("pkt_mark=0x5"));
}

#[test]
fn an_unknown_neighbour_is_asked_for() {
    let (w, underlay) = world(vxlan());
    underlay.flush_neighbours();
    let t = w.translate(&key(INNER));
    assert!(t.actions.is_empty());
    let solicited = |e: &Effect| match e {
        Effect::Solicit { bridge, port, packet, .. } => Some((*bridge, *port, packet.len())),
        _ => None,
    };
    assert_eq!(t.effects.iter().find_map(solicited), Some((UNDERLAY, PortNo(1), 42)));
}

#[test]
fn the_header_has_the_mtu_of_its_path() {
    let (w, underlay) = world(vxlan());
    let mtu = || {
        let actions = w.translate(&key(INNER)).actions;
        let of = |action: &Dp| match action {
            Dp::TunnelPush { header, .. } => Some(header.path_mtu()),
            _ => None,
        };
        actions.iter().find_map(of).expect("a push")
    };
    assert_eq!(mtu(), None, "a device whose MTU is not known");
    underlay.record_path_mtu(IpAddr::from(REMOTE), 1400);
    underlay.record_path_mtu(IpAddr::from(HOST), 1300);
    assert_eq!(mtu(), Some(1400));
}

#[test]
fn a_packet_without_a_route_is_dropped() {
    let elsewhere = OrFlow::Fixed(IpAddr::from([192, 0, 2, 1]));
    let (w, _) = world(Config { remote: elsewhere, ..vxlan() });
    assert_eq!(w.dp(INNER), "drop");
    assert!(w.trace(INNER).contains(">> native tunnel routing failed"));
}

#[test]
fn tos_and_ttl_are_inherited() {
    let config = Config { tos: Tos::Inherit, ttl: Ttl::Inherit, ..vxlan() };
    let (w, _) = world(config);
    // A congestion mark goes out as "capable of marks".
    let flow = INNER.replace("nw_ecn=1", "nw_tos=36,nw_ecn=3");
    assert!(w.dp(&flow).contains(",tos=0x26,ttl=9,"), "{}", w.dp(&flow));
    assert_eq!(
        w.mega(&flow),
        "recirc_id=0,eth,ip,in_port=1,nw_tos=36,nw_ecn=3,nw_ttl=9,nw_frag=no"
    );
    // Packets that are not IP have none.
    let other = w.dp("in_port=1,dl_type=0x1234");
    assert!(other.contains(",tos=0,ttl=64,"), "{other}");
}

#[test]
fn received_packets_match_key_and_addresses_and_no_port_or_ttl() {
    let (mut w, _) = world(vxlan());
    w.rule("in_port=3", [out(2)]);
    let t = w.translate_dp(&received(&vxlan())).unwrap();
    assert_eq!(text(&t), "2");
    let m = &t.mask.0.tunnel;
    assert_eq!((m.id.get(), m.src.get(), m.dst.get()), (u64::MAX, u32::MAX, u32::MAX));
    assert_eq!((m.tos, m.ttl, m.tp_src.get(), m.tp_dst.get()), (u8::MAX, 0, 0, 0));
    assert_eq!(m.flags.get(), Tunnel::DONT_FRAGMENT | Tunnel::CSUM | Tunnel::KEY);
    let credited = |e: &&Effect| matches!(e, Effect::VirtualPort(_, crate::effect::Direction::Rx));
    assert_eq!(t.effects.iter().filter(credited).count(), 1);
    // Another key is no vport's.
    let mut other = received(&vxlan());
    other.tunnel.id.set(8);
    assert_eq!(locate(&w.snapshot, &other, &w.recirc).err(), Some(LocateError::NoTunnelPort));
}

#[test]
fn congestion_is_passed_on_to_packets_that_can_have_it() {
    let (mut w, _) = world(vxlan());
    w.rule("in_port=3", [out(2)]);
    let run = |inner: u8, outer: u8| {
        let mut key = received(&vxlan());
        (key.nw_tos, key.tunnel.tos) = (inner, outer);
        let t = w.translate_dp(&key).unwrap();
        (text(&t), t.mask.0.nw_tos)
    };
    assert_eq!(run(1, 3), ("set(ipv4(tos=0x3/0x3)),2".to_owned(), 3));
    assert_eq!(run(3, 3), ("2".to_owned(), 3));
    assert_eq!(run(0, 3), ("drop".to_owned(), 3));
    assert_eq!(run(0, 1), ("2".to_owned(), 0));
    // Any IP packet has the octet.
    let mut key = received(&vxlan());
    (key.nw_tos, key.tunnel.tos) = (1, 3);
    assert_eq!(w.translate_dp(&key).unwrap().mask.0.nw_proto, 0);
}

#[test]
fn a_packet_does_not_go_back_to_the_host_that_it_came_to() {
    let own = OrFlow::Fixed(IpAddr::from(HOST));
    let (mut w, _) = world(vxlan());
    w.tunnel(BridgeIndex(0), 4, Config { remote: own, ..vxlan() });
    w.rule("in_port=3", [out(4)]);
    assert_eq!(text(&w.translate_dp(&received(&vxlan())).unwrap()), "drop");
}

#[test]
fn fields_set_by_actions_go_out() {
    let config = Config { remote: OrFlow::Flow, out_key: Some(OrFlow::Flow), ..vxlan() };
    let (mut w, _) = world(config);
    w.clear_rules();
    let there = u128::from(u32::from_be_bytes(REMOTE));
    w.rule("in_port=1", [set(Field::TunId, 99), set(Field::TunDst, there), out(3), out(2)]);
    assert!(w.dp(INNER).contains("vni=0x63"), "{}", w.dp(INNER));
    Arc::make_mut(&mut w.snapshot.tunnels).output = Output::Set;
    assert_eq!(
        w.dp(INNER),
        "set(tunnel(tun_id=0x63,dst=10.0.0.2,tos=0x1,ttl=64,tp_dst=4789,flags(df|key))),9000,2"
    );
}

#[test]
fn packets_to_the_host_come_out_of_a_tunnel() {
    let (mut w, _) = world(vxlan());
    w.rule_on(UNDERLAY, "priority=40000,in_port=2", [out(1)]);
    let frame = |flow: &str| {
        let mut key = key(flow);
        key.in_port.set(102);
        key
    };
    let vxlan = "udp,dl_src=f8:bc:12:44:34:01,dl_dst=02:00:00:00:00:01,nw_src=10.0.0.9,nw_dst=10.0.0.1,tp_src=9,tp_dst=4789";
    let t = w.translate_dp(&frame(vxlan)).unwrap();
    assert_eq!(text(&t), "tnl_pop(9000)");
    assert_eq!(t.mask.0.tp_src.get(), 0);
    let learns = |e: &Effect| match e {
        Effect::LearnNeighbour { address, mac, .. } => Some((address.to_string(), mac.0[5])),
        _ => None,
    };
    assert_eq!(t.effects.iter().find_map(learns), Some(("10.0.0.9".to_owned(), 1)));
    for other in [
        vxlan.replace("tp_dst=4789", "tp_dst=4790"),
        vxlan.replace("nw_dst=10.0.0.1", "nw_dst=10.0.0.7"),
        vxlan.replace("dl_dst=02:00:00:00:00:01", "dl_dst=02:00:00:00:00:0a"),
    ] {
        assert_eq!(text(&w.translate_dp(&frame(&other)).unwrap()), "101", "{other}");
    }
    // A device without an address takes no packet out.
    w.rule_on(UNDERLAY, "priority=40001,in_port=2", [out(3)]);
    let t = w.translate_dp(&frame(vxlan)).unwrap();
    assert_eq!(text(&t), "103");
    assert_eq!(t.mask.0.dl_dst, [0; 6]);
}

#[test]
fn neighbours_are_learned_from_replies_to_the_host() {
    let (mut w, _) = world(vxlan());
    w.rule_on(UNDERLAY, "priority=40000,in_port=2", [out(1)]);
    let learned = |flow: &str| {
        let mut key = key(flow);
        key.in_port.set(102);
        let t = w.translate_dp(&key).unwrap();
        t.effects.iter().find_map(|e| match e {
            Effect::LearnNeighbour { address, mac, .. } => Some((address.to_string(), mac.0[5])),
            _ => None,
        })
    };
    let reply = "arp,arp_op=2,arp_spa=10.0.0.9,arp_tpa=10.0.0.1,arp_sha=f8:bc:12:44:34:01";
    assert_eq!(learned(reply), Some(("10.0.0.9".to_owned(), 1)));
    assert_eq!(learned(&reply.replace("arp_tpa=10.0.0.1", "arp_tpa=10.0.0.4")), None);
    // The replies of its megaflow are seen by their count alone.
    let mut key = key(reply);
    key.in_port.set(102);
    let mut effects = w.translate_dp(&key).unwrap().effects;
    crate::effect::keep_lasting(&mut effects);
    assert!(effects.iter().any(|e| matches!(e, Effect::LearnNeighbour { .. })), "{effects:?}");
}

#[test]
fn tunnels_that_lead_back_end() {
    let (mut w, _) = world(vxlan());
    w.add_port(UNDERLAY, 9);
    w.patch((BridgeIndex(0), 4), (UNDERLAY, 9));
    w.rule_on(UNDERLAY, "priority=40000,in_port=1", [out(9)]);
    w.rule("in_port=4", [out(3)]);
    assert_eq!(text(&w.translate(&key(INNER))), "drop");
}

#[test]
fn tunnel_fields_survive_a_recirculation() {
    let config = Config { remote: OrFlow::Flow, out_key: Some(OrFlow::Flow), ..vxlan() };
    let (mut w, _) = world(config);
    w.clear_rules();
    let there = u128::from(u32::from_be_bytes(REMOTE));
    let group = vec![(1, PortNo::NONE, vec![out(3)]), (1, PortNo::NONE, vec![out(3)])];
    w.group(1, GroupKind::Select, Selection::Default, group);
    w.rule("in_port=1", [set(Field::TunId, 99), set(Field::TunDst, there), Action::Group(1)]);
    let first = w.translate(&key(INNER));
    let mut again = key(INNER);
    again.recirc_id.set(recirculation(&first));
    again.dp_hash.set(1);
    let second = text(&w.translate(&again));
    assert!(second.contains("vni=0x63"), "{second}");
}

#[test]
fn a_pipeline_that_froze_without_a_change_continues_with_the_packets_own_fields() {
    let (mut w, _) = world(vxlan());
    let group = vec![(1, PortNo::NONE, vec![resubmit(1)]), (1, PortNo::NONE, vec![resubmit(1)])];
    w.group(1, GroupKind::Select, Selection::Default, group);
    w.rule("in_port=3", [Action::Group(1)]);
    w.rule("table=1,tun_src=10.0.0.2", [out(2)]);
    let packet = received(&vxlan());
    let first = w.translate_dp(&packet).unwrap();
    let mut again = packet;
    again.recirc_id.set(recirculation(&first));
    again.dp_hash.set(1);
    let t = w.translate_dp(&again).unwrap();
    assert_eq!(text(&t), "2");
    assert_eq!(t.mask.0.tunnel.src.get(), u32::MAX);
}

#[test]
fn a_ttl_that_an_own_address_has_left_decides_nothing_of_a_frozen_pipeline() {
    let own = OrFlow::Fixed(IpAddr::from(HOST));
    let (mut w, _) = world(vxlan());
    // This vport writes the fields that the packet has already, but for the TTL.
    let config = Config { remote: own, local: Some(OrFlow::Flow), ..vxlan() };
    w.tunnel(BridgeIndex(0), 4, config);
    let group = vec![(1, PortNo::NONE, vec![out(2)]), (1, PortNo::NONE, vec![out(2)])];
    w.group(1, GroupKind::Select, Selection::Default, group);
    w.rule("in_port=3", [out(4), Action::Group(1)]);
    let mut packet = received(&vxlan());
    packet.tunnel.flags.set(Tunnel::KEY | Tunnel::DONT_FRAGMENT);
    packet.tunnel.tos = 1;
    packet.tunnel.tp_src.set(0);
    let first = w.translate_dp(&packet).unwrap();
    assert_eq!(packet.tunnel.ttl, 64, "the TTL of the vport");
    packet.tunnel.ttl = 63;
    assert_eq!(first.mask.0.tunnel.ttl, 0);
    assert_eq!(w.translate_dp(&packet).unwrap().actions, first.actions);
}

#[test]
fn packets_of_other_ports_have_no_tunnel_fields_in_their_megaflows() {
    let (mut w, _) = world(vxlan());
    w.rule("priority=40000,tun_id=5", [out(2)]);
    let t = w.translate(&key(INNER));
    assert_eq!(t.mask.0.tunnel, Mask::WILDCARD.0.tunnel);
}

#[test]
fn a_group_policy_leaves_only_by_ports_with_the_extension() {
    let run = |extensions, output| {
        let (mut w, _) = world(Config { extensions, ..vxlan() });
        Arc::make_mut(&mut w.snapshot.tunnels).output = output;
        w.clear_rules();
        w.rule("in_port=1", [set(Field::TunGbpId, 5), out(3)]);
        w.dp(INNER)
    };
    let gbp = Extensions { gbp: true, ..Extensions::default() };
    assert!(run(Extensions::default(), Output::Push).contains("vxlan(flags=0x8000000,vni=0x7)"));
    assert!(run(gbp, Output::Push).contains("vxlan(flags=0x88000005,vni=0x7)"));
    assert!(!run(Extensions::default(), Output::Set).contains("gbp"));
    assert!(run(gbp, Output::Set).contains("gbp(id=5"));
}

#[test]
fn tags_that_leave_with_the_ethernet_header_are_matched() {
    let (mut w, _) = world(Config { mode: PacketTypeMode::LegacyL3, ..vxlan() });
    Arc::make_mut(&mut w.snapshot.tunnels).output = Output::Set;
    let tagged = |tags: usize| {
        let mut key = key(INNER);
        for vlan in key.vlans.iter_mut().take(tags) {
            *vlan = flow::Vlan { tpid: 0x8100.into(), tci: 0x1005.into() };
        }
        key
    };
    for tags in 0..=2 {
        let t = w.translate(&tagged(tags));
        let pops = t.actions.iter().filter(|a| matches!(a, Dp::PopVlan)).count();
        assert_eq!(pops, tags);
        let matching = flow::Match::new(&tagged(tags), &t.mask);
        let covered: Vec<usize> = (0..=2).filter(|n| matching.matches(&tagged(*n))).collect();
        assert_eq!(covered, [tags]);
    }
}

#[test]
fn addresses_that_come_back_with_the_ethernet_header_are_matched() {
    let (mut w, _) = world(Config { mode: PacketTypeMode::LegacyL3, ..vxlan() });
    Arc::make_mut(&mut w.snapshot.tunnels).output = Output::Set;
    w.clear_rules();
    w.rule("in_port=1", [out(3), out(2)]);
    let t = w.translate(&key(INNER));
    let is_pushed = |actions: &[Dp]| actions.iter().any(|a| matches!(a, Dp::PushEth { .. }));
    assert!(is_pushed(&t.actions), "{}", text(&t));
    let mut other = key(INNER);
    other.dl_dst = [2, 0, 0, 0, 0, 9];
    assert_ne!(t.actions, w.translate(&other).actions);
    assert!(!flow::Match::new(&key(INNER), &t.mask).matches(&other));
}

#[test]
fn options_are_judged_by_the_bridge_of_the_vport_alone() {
    // Class 1, type 0x82, of four bytes.
    const CRITICAL: [u8; 8] = [0, 1, 0x82, 1, 0, 0, 0, 5];
    let config = Config { kind: TunnelKind::Geneve, ..vxlan() };
    let (mut w, _) = world(config.clone());
    let mut table = TlvTable::default();
    table.add(60, TlvMapping { class: 1, kind: 0x82, bytes: 4 }).unwrap();
    w.br0().tlv_table = Arc::new(table);
    w.patch((BridgeIndex(0), 4), (UNDERLAY, 3));
    w.rule("in_port=3", [out(4)]);
    w.rule_on(UNDERLAY, "in_port=3", actions("ct(zone=1,table=1)"));
    w.rule_on(UNDERLAY, "table=1", [out(2)]);
    let mut packet = received(&config);
    assert!(packet.tunnel.set_raw_options(&CRITICAL));
    let first = w.translate_dp(&packet).unwrap();
    let mut again = packet;
    again.recirc_id.set(recirculation(&first));
    again.ct_state = flow::ct_state::TRK;
    let second = w.translate_dp(&again).unwrap();
    assert_eq!((text(&second), second.error), ("102".to_owned(), None));
    // A packet that the vport's bridge does not know goes nowhere.
    packet.tunnel.set_raw_options(&[0, 1, 0x83, 0]);
    let unknown = w.translate_dp(&packet).unwrap();
    assert_eq!(unknown.error, Some(TranslationError::InvalidTunnelMetadata));
}

#[test]
fn a_pipeline_behind_a_patch_port_never_gets_the_received_fields() {
    let (mut w, _) = world(vxlan());
    w.patch((BridgeIndex(0), 4), (UNDERLAY, 3));
    w.rule("in_port=3", [out(4)]);
    // By chance, the fields are set to the received values.
    let sets = "set_field:7->tun_id,set_field:10.0.0.2->tun_src,set_field:10.0.0.1->tun_dst";
    w.rule_on(UNDERLAY, "in_port=3", actions(&format!("{sets},ct(zone=1,table=1)")));
    w.rule_on(UNDERLAY, "table=1", [out(2)]);
    w.rule_on(UNDERLAY, "priority=40000,table=1,tun_gbp_id=9", []);
    let mut packet = received(&vxlan());
    packet.tunnel.flags.set(0);
    (packet.tunnel.ttl, packet.tunnel.tp_src, packet.tunnel.tp_dst) = (0, 0.into(), 0.into());
    let first = w.translate_dp(&packet).unwrap();
    let mut again = packet;
    again.tunnel.gbp_id.set(9);
    assert!(flow::Match::new(&packet, &first.mask).matches(&again));
    again.recirc_id.set(recirculation(&first));
    again.ct_state = flow::ct_state::TRK;
    assert_eq!(text(&w.translate_dp(&again).unwrap()), "102");
}

/// An overlay whose vport is of Geneve, with fields 56 to 58 for options of 20, 20 and 0 bytes.
fn geneve() -> World {
    let (mut w, _) = world(Config { kind: TunnelKind::Geneve, ..vxlan() });
    Arc::make_mut(&mut w.snapshot.tunnels).output = Output::Set;
    w.clear_rules();
    let mut table = TlvTable::default();
    for (n, bytes) in [(56, 20), (57, 20), (58, 0)] {
        table.add(n, TlvMapping { class: 1, kind: n as u8, bytes }).unwrap();
    }
    w.br0().tlv_table = Arc::new(table);
    w
}

#[test]
fn options_of_any_length_go_over_the_stack() {
    const VALUE: &str = "0x102030405060708090a0b0c0d0e0f1011121314";
    let mut w = geneve();
    let push = "push:NXM_NX_TUN_METADATA56[],pop:NXM_NX_TUN_METADATA57[]";
    let part = "push:NXM_NX_TUN_METADATA56[8..151],pop:NXM_NX_TUN_METADATA57[]";
    for (stack, moved) in [(push, VALUE), (part, "0x2030405060708090a0b0c0d0e0f10111213")] {
        w.clear_rules();
        let all = actions(&format!("set_field:{VALUE}->tun_metadata56,{stack},output:3"));
        w.rule("in_port=1", all);
        let got = w.dp(INNER);
        let wanted = format!("{{class=0x1,type=0x39,len=20,{moved}}}");
        assert!(got.contains(&wanted), "{got}");
    }
}

#[test]
fn a_deleted_option_is_not_sent_and_its_value_decides_nothing() {
    let mut w = geneve();
    let sets = "set_field:5->tun_metadata56,set_field:6->tun_metadata57";
    w.rule("in_port=1", actions(&format!("{sets},delete_field:tun_metadata56,output:3")));
    let got = w.dp(INNER);
    assert!(!got.contains("type=0x38") && got.contains("type=0x39"), "{got}");
    w.rule("in_port=3", actions("delete_field:tun_metadata56,output:2"));
    let config = Config { kind: TunnelKind::Geneve, ..vxlan() };
    let t = w.translate_dp(&received(&config)).unwrap();
    assert_eq!(text(&t), "2");
    assert!(t.mask.0.tunnel.option(56).is_empty());
    // A packet that lacks the option, and one that has it, are not the same to a frozen pipeline.
    w.rule("priority=40000,in_port=3", actions("delete_field:tun_metadata56,ct(zone=1,table=1)"));
    let t = w.translate_dp(&received(&config)).unwrap();
    assert!(t.mask.0.tunnel.has_option(56));
}

#[test]
fn an_option_without_a_value_is_matched_and_set() {
    let mut w = geneve();
    w.rule("in_port=1", actions("set_field:0->tun_metadata58,output:3"));
    assert!(w.dp(INNER).contains("{class=0x1,type=0x3a,len=0}"), "{}", w.dp(INNER));
    w.rule("in_port=3,tun_metadata58", [out(2)]);
    let config = Config { kind: TunnelKind::Geneve, ..vxlan() };
    let mut packet = received(&config);
    assert_eq!(text(&w.translate_dp(&packet).unwrap()), "drop");
    assert!(packet.tunnel.set_raw_options(&[0, 1, 0x3a, 0]));
    assert_eq!(text(&w.translate_dp(&packet).unwrap()), "2");
}

#[test]
fn a_drop_for_want_of_a_vport_matches_no_packet_of_one() {
    let (w, _) = world(vxlan());
    let known = received(&vxlan());
    let mut of_other_key = known;
    of_other_key.tunnel.id.set(8);
    let mut from_elsewhere = known;
    from_elsewhere.tunnel.src.set(u32::from_be_bytes([10, 0, 0, 9]));
    let dropped = |key: &Key| {
        let t = crate::translate::without_vport(&w.snapshot, key);
        assert_eq!(t.actions, [Dp::Drop(DropReason::InvalidTunnelPort)]);
        flow::Match::new(key, &t.mask)
    };
    // Without a vport for the key, the sender does not matter.
    let mut both = of_other_key;
    both.tunnel.src = from_elsewhere.tunnel.src;
    assert!(dropped(&of_other_key).matches(&both));
    assert!(!dropped(&from_elsewhere).matches(&both));
    for matching in [dropped(&of_other_key), dropped(&from_elsewhere)] {
        assert!(!matching.matches(&known));
        // Revalidation has only the bits under the mask, which still name a tunnel.
        assert!(matching.key().tunnel.is_some());
        assert_eq!(*matching.mask(), *dropped(matching.key()).mask());
    }
}
