// SPDX-License-Identifier: Apache-2.0
//! Tunnel ports of a switch over the model datapath: the datapath ports that they share, and
//! packets between two switches over an underlay.

mod support;

use bridge::event::Event;
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use bridge::tunnel::{Config, Extensions, OrFlow};
use datapath::{
    Counters, DropReason, Flows, Packets, PortKind, PortNo as DpPort, PortSpec, Ports, TunnelKind,
};
use datapath_model::Model;
use flow::{Field, Match, TlvMapping, TlvTable};
use openflow::action::SetSpelling;
use openflow::message::FlowMod;
use openflow::text::parse_actions;
use openflow::{Action, PortNo, Version};
use packet::build::Frame;
use packet::{Mac, Packet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use support::{Base, overlay_packet};
use underlay::{Cidr, Underlay, UserRoute};

const HOST: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

/// A switch with an overlay bridge, and an underlay bridge `phy` with its own port and the port
/// `u0`.
struct Site {
    switch: Switch,
    model: Arc<Model>,
    over: BridgeIndex,
    phy: BridgeIndex,
    underlay: Arc<Underlay>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn port(name: &str, kind: PortKind) -> PortSpec {
    PortSpec { name: name.to_owned(), kind, ..PortSpec::default() }
}

fn output(port: PortNo) -> Vec<Action> {
    vec![Action::Output { port, max_len: 0 }]
}

impl Site {
    /// A site whose host has the address `own`.
    fn new(own: [u8; 4]) -> Site {
        let Base { clock, model, events, mut switch } = Base::new();
        let underlay = Arc::new(Underlay::new(clock));
        switch.set_underlay(Arc::clone(&underlay));
        let (over, phy) = (switch.add_bridge("over", 1), switch.add_bridge("phy", 2));
        let mut add = |bridge, name: &str, ofport| {
            let spec = port(name, PortKind::Dummy);
            let request = PortRequest { spec, ofport, ..PortRequest::default() };
            let number = switch.add_port(bridge, &request).unwrap();
            let status =
                &mut switch.bridge_mut(bridge).unwrap().ports.get_mut(&number).unwrap().status;
            status.mac = Site::mac(own);
        };
        add(over, "p1", Some(PortNo(1)));
        add(phy, "phy", Some(PortNo::LOCAL));
        add(phy, "u0", Some(PortNo(1)));
        underlay.add_address("phy", Cidr::new(IpAddr::from(own), 24).unwrap());
        let mut site = Site { switch, model, over, phy, underlay, events };
        site.rule(site.phy, "in_port=LOCAL", output(PortNo(1)));
        site.rule(site.phy, "in_port=1", output(PortNo::LOCAL));
        site
    }

    /// The Ethernet address of the host with this address.
    fn mac([.., last]: [u8; 4]) -> [u8; 6] {
        [2, 0, 0, 0, 0, last]
    }

    fn rule(&mut self, bridge: BridgeIndex, text: &str, actions: Vec<Action>) {
        self.rule_at(bridge, (0, 1), text, actions);
    }

    /// Adds a rule with this table and priority.
    fn rule_at(
        &mut self,
        bridge: BridgeIndex,
        (table_id, priority): (u8, u16),
        text: &str,
        actions: Vec<Action>,
    ) {
        let ports = |name: &str| (name == "LOCAL").then_some(PortNo::LOCAL.0);
        let matching: Match = flow::text::parse_match(text, &ports).unwrap();
        let added = FlowMod { table_id, ..FlowMod::add(priority, matching, &actions) };
        self.switch.flow_mod(bridge, &added).unwrap();
        self.switch.publish();
    }

    /// Adds the port `p2` of the overlay, with the number 2.
    fn add_second_port(&mut self) {
        let spec = port("p2", PortKind::Dummy);
        let request = PortRequest { spec, ofport: Some(PortNo(2)), ..PortRequest::default() };
        self.switch.add_port(self.over, &request).unwrap();
    }

    /// Numbers of packets that left by `p1` and `p2`.
    fn sent(&self) -> [usize; 2] {
        [1, 2].map(|n| self.model.take_sent(self.datapath_port(self.over, PortNo(n))).len())
    }

    fn tunnel(&mut self, name: &str, config: Config) -> Result<PortNo, String> {
        let spec = port(name, PortKind::Tunnel(config.kind));
        let tunnel = Some(Arc::new(config));
        let request = PortRequest { spec, tunnel, ..PortRequest::default() };
        let added = self.switch.add_port(self.over, &request).map_err(|e| e.to_string());
        self.switch.publish();
        added
    }

    fn datapath_port(&self, bridge: BridgeIndex, number: PortNo) -> DpPort {
        self.switch.bridge(bridge).unwrap().ports[&number].dp_port.unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.model.ports().into_iter().map(|p| p.name).collect()
    }

    /// The frames that left by `u0`.
    fn outer_frames(&self) -> Vec<Packet> {
        self.model.take_sent(self.datapath_port(self.phy, PortNo(1)))
    }
}

fn to(remote: [u8; 4]) -> Config {
    Config::new(TunnelKind::Vxlan, OrFlow::Fixed(IpAddr::from(remote)))
}

/// The packet in Geneve with these options, from [`OTHER`] to [`HOST`].
fn geneve(options: &[u8]) -> Packet {
    let header = [&[(options.len() / 4) as u8, 0, 0x65, 0x58, 0, 0, 0, 0], options].concat();
    Frame::ethernet(Site::mac(HOST), Site::mac(OTHER))
        .ipv4(OTHER.into(), HOST.into(), 64)
        .udp(5, 6081)
        .payload(&[&header, overlay_packet().data()].concat())
        .packet()
}

/// The table that maps `tun_metadata0` to an option of class 1 and type 2.
fn options() -> Arc<TlvTable> {
    let mut table = TlvTable::default();
    table.add(0, TlvMapping { class: 1, kind: 2, bytes: 4 }).unwrap();
    Arc::new(table)
}

#[test]
fn tunnel_ports_of_one_kind_and_port_share_a_datapath_port() {
    let mut site = Site::new(HOST);
    let a = site.tunnel("a", to(OTHER)).unwrap();
    let b = site.tunnel("b", to([10, 0, 0, 3])).unwrap();
    let c = site.tunnel("c", Config { port: 4790, ..to(OTHER) }).unwrap();
    let at = |site: &Site, port| site.datapath_port(site.over, port);
    assert_eq!(at(&site, a), at(&site, b));
    assert_ne!(at(&site, a), at(&site, c));
    assert!(site.names().contains(&"vxlan_sys_4790".to_owned()));
    site.switch.remove_port(site.over, a).unwrap();
    assert!(site.names().contains(&"vxlan_sys_4789".to_owned()), "b uses it");
    site.switch.remove_port(site.over, b).unwrap();
    assert!(!site.names().contains(&"vxlan_sys_4789".to_owned()));
}

#[test]
fn a_second_port_with_one_configuration_is_refused() {
    let mut site = Site::new(HOST);
    site.tunnel("a", to(OTHER)).unwrap();
    let error = site.tunnel("b", Config { dont_fragment: false, ..to(OTHER) }).unwrap_err();
    assert!(
        error.starts_with(
            "b: attempting to add tunnel port with same config as port 'a' (::->10.0.0.2, key=0, legacy_l2, dp port="
        ),
        "{error}"
    );
    let gbp = Extensions { gbp: true, ..Extensions::default() };
    let error = site.tunnel("b", Config { extensions: gbp, ..to([10, 0, 0, 3]) }).unwrap_err();
    assert!(error.contains("VXLAN-GBP, and non-VXLAN-GBP"), "{error}");
}

#[test]
fn options_change_in_place() {
    let mut site = Site::new(HOST);
    let a = site.tunnel("a", to(OTHER)).unwrap();
    let b = site.tunnel("b", to([10, 0, 0, 3])).unwrap();
    let other = Arc::new(Config { port: 8472, ..to(OTHER) });
    site.switch.set_tunnel(site.over, a, other, None).unwrap();
    assert!(site.names().contains(&"vxlan_sys_8472".to_owned()));
    assert!(site.names().contains(&"vxlan_sys_4789".to_owned()), "b uses it");
    let same = Arc::new(Config { port: 8472, ..to(OTHER) });
    assert!(site.switch.set_tunnel(site.over, b, same, None).is_err());
    site.switch.remove_port(site.over, b).unwrap();
    assert!(!site.names().contains(&"vxlan_sys_4789".to_owned()));
}

/// Returns the packet in a VXLAN header with a group policy.
fn with_group_policy() -> Packet {
    let mut inside = vec![0x88, 0, 0, 5, 0, 0, 0, 0];
    inside.extend_from_slice(overlay_packet().data());
    Frame::ethernet(Site::mac(HOST), Site::mac(OTHER))
        .ipv4(OTHER.into(), HOST.into(), 64)
        .udp(1234, 4789)
        .payload(&inside)
        .packet()
}

#[test]
fn extensions_change_in_place() {
    let mut site = Site::new(HOST);
    let a = site.tunnel("a", to(OTHER)).unwrap();
    site.rule(site.over, "tun_gbp_id=5", output(PortNo(1)));
    let received = |site: &Site| {
        site.model.inject(with_group_policy(), site.datapath_port(site.phy, PortNo(1)));
        site.model.take_sent(site.datapath_port(site.over, PortNo(1))).len()
    };
    assert_eq!(received(&site), 0, "the datapath port knows no group policies");
    let extensions = Extensions { gbp: true, ..Extensions::default() };
    let gbp = Arc::new(Config { extensions, ..to(OTHER) });
    site.switch.set_tunnel(site.over, a, Arc::clone(&gbp), None).unwrap();
    site.switch.publish();
    assert_eq!(received(&site), 1);
    assert_eq!(site.names().iter().filter(|name| name.starts_with("vxlan_sys")).count(), 1);
    site.switch.remove_port(site.over, a).unwrap();
    assert!(!site.names().contains(&"vxlan_sys_4789".to_owned()));
}

#[test]
fn options_of_a_shared_datapath_port_do_not_change() {
    let mut site = Site::new(HOST);
    let bareudp = |last, payload_type| Config {
        port: 6635,
        payload_type: Some(payload_type),
        ..Config::new(TunnelKind::Bareudp, OrFlow::Fixed(IpAddr::from([10, 0, 0, last])))
    };
    let a = site.tunnel("a", bareudp(2, 0x8847)).unwrap();
    let b = site.tunnel("b", bareudp(3, 0x8847)).unwrap();
    let changed = Arc::new(bareudp(2, 0x0800));
    let refused = site.switch.set_tunnel(site.over, a, Arc::clone(&changed), None).unwrap_err();
    let text = "a: port 'b' uses the same dst_port with another exts or payload_type";
    assert_eq!(refused.to_string(), text);
    let error = site.tunnel("c", bareudp(4, 0x0800)).unwrap_err();
    assert!(error.starts_with("c: port '"), "{error}");
    site.switch.remove_port(site.over, b).unwrap();
    site.switch.set_tunnel(site.over, a, changed, None).unwrap();
    assert!(site.tunnel("c", bareudp(4, 0x0800)).is_ok());
}

#[test]
fn a_packet_goes_through_a_tunnel_to_another_switch() {
    let (mut a, mut b) = (Site::new(HOST), Site::new(OTHER));
    for (site, other) in [(&mut a, OTHER), (&mut b, HOST)] {
        let tunnel = site.tunnel("t", to(other)).unwrap();
        site.rule(site.over, "in_port=1", output(tunnel));
        site.rule(site.over, &format!("in_port={}", tunnel.0), output(PortNo(1)));
    }
    // The first packet asks for the neighbour.
    let from = a.datapath_port(a.over, PortNo(1));
    a.model.inject(overlay_packet(), from);
    assert!(a.outer_frames().is_empty());
    let asks = |e: &Event| matches!(e, Event::Solicit { port: PortNo::LOCAL, .. });
    assert!(a.events.lock().unwrap().iter().any(asks));
    // Once it is known, the megaflow follows.
    a.underlay.learn("phy", IpAddr::from(OTHER), Mac(Site::mac(OTHER)));
    a.switch.publish();
    a.model.inject(overlay_packet(), from);
    let outer = a.outer_frames();
    assert_eq!(outer.len(), 1);
    assert_eq!(outer[0].len(), overlay_packet().len() + 50);
    // The other switch takes the headers off, and has learned the neighbour.
    let arrives = b.datapath_port(b.phy, PortNo(1));
    b.model.inject(outer[0].clone(), arrives);
    let inner = b.model.take_sent(b.datapath_port(b.over, PortNo(1)));
    assert_eq!(inner.len(), 1);
    assert_eq!(inner[0].data(), overlay_packet().data());
    assert_eq!(b.underlay.neighbour("phy", IpAddr::from(HOST)), Some(Mac(Site::mac(HOST))));
    // Another neighbour's address is in the frames that follow.
    a.underlay.learn("phy", IpAddr::from(OTHER), Mac([2, 0, 0, 0, 0, 99]));
    a.switch.publish();
    a.model.inject(overlay_packet(), from);
    assert_eq!(a.outer_frames()[0].data()[..6], [2, 0, 0, 0, 0, 99]);
    // Statistics of the tunnel ports count inner packets, those of the underlay's rules outer ones.
    a.switch.collect_statistics();
    let stats = |site: &Site, name| {
        let bridge = site.switch.bridge(site.over).unwrap();
        bridge.port_by_name(name).unwrap().stats(site.switch.now())
    };
    assert_eq!(
        (stats(&a, "t").tx_packets, stats(&a, "t").tx_bytes),
        (3, 3 * overlay_packet().len() as u64)
    );
    b.switch.collect_statistics();
    assert_eq!(
        (stats(&b, "t").rx_packets, stats(&b, "t").rx_bytes),
        (1, overlay_packet().len() as u64)
    );
}

/// Returns an ARP reply to the site's host.
fn arp_reply() -> Packet {
    let [host, other] = [HOST, OTHER].map(Into::into);
    let frame = Frame::ethernet(Site::mac(HOST), Site::mac(OTHER));
    frame
        .arp(packet::ethertype::ARP, 2, (Site::mac(OTHER), other), (Site::mac(HOST), host))
        .packet()
}

#[test]
fn a_host_without_tunnels_has_wide_megaflows() {
    let mut site = Site::new(HOST);
    let arrives = site.datapath_port(site.phy, PortNo(1));
    let megaflow = |site: &Site| {
        site.model.flush();
        site.model.inject(arp_reply(), arrives);
        let flows = site.model.dump();
        assert_eq!(flows.len(), 1);
        *flows[0].flow.matching.mask()
    };
    let mask = megaflow(&site);
    assert_eq!((mask.0.nw_src.get(), mask.0.nw_proto, mask.0.arp_sha), (0, 0, [0; 6]));
    let tunnel = site.tunnel("t", to(OTHER)).unwrap();
    assert_eq!(megaflow(&site).0.nw_src.get(), u32::MAX, "neighbours are learned from now on");
    site.switch.remove_port(site.over, tunnel).unwrap();
    site.switch.publish();
    assert_eq!(megaflow(&site), mask);
}

#[test]
fn a_device_is_the_port_of_the_bridge_with_its_name_before_others() {
    let mut site = Site::new(HOST);
    let devices = |site: &Site| {
        let snapshot = site.switch.slow_path().published.newest();
        let at = |name| snapshot.tunnels.devices.get(name).copied();
        [at("phy"), at("u0"), at("t")]
    };
    assert_eq!(devices(&site), [None; 3], "there is no tunnel");
    site.tunnel("t", to(OTHER)).unwrap();
    let u0 = Some((site.phy, PortNo(1)));
    assert_eq!(devices(&site), [Some((site.phy, PortNo::LOCAL)), u0, None]);
    // A bridge before it has a tunnel port with the name of a device.
    site.tunnel("u0", to([10, 0, 0, 3])).unwrap();
    assert_eq!(devices(&site)[1], u0);
}

#[test]
fn the_underlay_matters_with_tunnels_alone() {
    let mut site = Site::new(HOST);
    let revalidations = |site: &Site| site.switch.counters.revalidations.reconfigured;
    site.switch.publish();
    let before = revalidations(&site);
    site.underlay.add_address("u0", Cidr::new(IpAddr::from([10, 9, 0, 1]), 24).unwrap());
    let marked = UserRoute {
        table: underlay::TABLE_MAIN,
        prefix: Cidr::new(IpAddr::from([10, 8, 0, 0]), 16).unwrap(),
        device: "phy".to_owned(),
        gateway: Some(IpAddr::from(OTHER)),
        source: None,
        mark: 5,
    };
    site.underlay.add_route(&marked).unwrap();
    site.switch.publish();
    assert_eq!(revalidations(&site), before, "no megaflow goes into a tunnel");
    // The first tunnel port finds what has changed.
    site.tunnel("t", to(OTHER)).unwrap();
    let snapshot = site.switch.slow_path().published.newest();
    assert!(snapshot.tunnels.routes_by_mark);
    assert!(snapshot.tunnels.listening.terminates("u0"));
    let before = revalidations(&site);
    site.underlay.remove_route(marked.table, marked.prefix, marked.mark);
    site.switch.publish();
    assert_eq!(revalidations(&site), before + 1);
    // Neighbours that no tunnel goes to change nothing.
    site.underlay.learn("phy", IpAddr::from([10, 0, 0, 77]), Mac([2; 6]));
    site.switch.publish();
    assert_eq!(revalidations(&site), before + 1);
}

#[test]
fn a_removed_tunnel_receives_no_more() {
    let mut site = Site::new(HOST);
    let tunnel = site.tunnel("t", to(OTHER)).unwrap();
    let listeners = |site: &Site| {
        let snapshot = site.switch.slow_path().published.newest();
        snapshot.tunnels.listening.listeners().len()
    };
    assert_eq!(listeners(&site), 1);
    site.switch.remove_port(site.over, tunnel).unwrap();
    site.switch.publish();
    assert_eq!(listeners(&site), 0);
}

#[test]
fn packets_with_other_options_share_no_megaflow() {
    const MAPPED: [u8; 8] = [0, 1, 2, 1, 0, 0, 0, 5];
    const CRITICAL: [u8; 8] = [0, 9, 0x80, 1, 0, 0, 0, 0];
    const CUT_OFF: [u8; 4] = [0, 9, 0, 1];
    // Behind empty options of class and type 0.
    let padded = [&[0; 140][..], &MAPPED].concat();
    let table = options();
    // The options, whether the rule for the option matches, and whether the packet is dropped.
    let all: [(&[u8], bool, bool); 5] = [
        (&[], false, false),
        (&MAPPED, true, false),
        (&padded, true, false),
        (&CRITICAL, false, true),
        (&CUT_OFF, false, true),
    ];
    let config = || Config::new(TunnelKind::Geneve, OrFlow::Fixed(IpAddr::from(OTHER)));
    for (has_rule, first) in [false, true].into_iter().flat_map(|r| all.map(|first| (r, first))) {
        let mut site = Site::new(HOST);
        site.switch.bridge_mut(site.over).unwrap().tlv_table = Arc::clone(&table);
        site.add_second_port();
        let tunnel = site.tunnel("t", config()).unwrap();
        site.rule(site.over, &format!("in_port={}", tunnel.0), output(PortNo(1)));
        if has_rule {
            site.rule_at(site.over, (0, 2), "tun_metadata0=5", output(PortNo(2)));
        }
        let arrives = site.datapath_port(site.phy, PortNo(1));
        for (options, matches, is_dropped) in [first].into_iter().chain(all) {
            site.model.inject(geneve(options), arrives);
            let wanted = match (is_dropped, has_rule && matches) {
                (true, _) => [0, 0],
                (false, false) => [1, 0],
                (false, true) => [0, 1],
            };
            assert_eq!(site.sent(), wanted, "{options:?} after {:?}, {has_rule}", first.0);
        }
    }
}

#[test]
fn packets_that_a_controller_sends_as_from_a_tunnel_share_no_megaflow_with_received_ones() {
    let mut site = Site::new(HOST);
    site.add_second_port();
    let config = Config::new(TunnelKind::Geneve, OrFlow::Fixed(IpAddr::from(OTHER)));
    let tunnel = site.tunnel("t", config).unwrap();
    let track = parse_actions("ct(zone=1,table=1)", Version::V15, &flow::text::no_numbers).unwrap();
    site.rule(site.over, &format!("in_port={}", tunnel.0), track.clone());
    site.rule_at(site.over, (1, 1), "", output(PortNo(2)));
    site.rule_at(site.over, (1, 2), "tun_src=10.0.0.2", output(PortNo(1)));
    site.rule_at(site.over, (1, 3), "tun_id=7", output(PortNo(1)));
    let metadata = |text| flow::text::parse_match(text, &|_| None).unwrap();
    let arrives = site.datapath_port(site.phy, PortNo(1));
    for _ in 0..2 {
        for (fields, wanted) in [
            ("", [0, 1]),
            ("tun_id=7", [1, 0]),
            ("tun_src=10.0.0.2,tun_dst=10.0.0.1", [1, 0]),
            ("tun_src=10.0.0.3,tun_dst=10.0.0.1", [0, 1]),
        ] {
            let over = site.over;
            site.switch
                .packet_out(over, overlay_packet(), &metadata(fields), tunnel, &track)
                .unwrap();
            assert_eq!(site.sent(), wanted, "{fields:?}");
        }
        site.model.inject(geneve(&[]), arrives);
        assert_eq!(site.sent(), [1, 0]);
    }
}

#[test]
fn options_that_no_header_can_carry_drop_the_packet() {
    let mut table = TlvTable::default();
    // With their headers the options of all of them have 256 bytes.
    for n in 1..=32 {
        table.add(n, TlvMapping { class: 1, kind: n as u8, bytes: 4 }).unwrap();
    }
    let table = Arc::new(table);
    for (count, frames) in [(31, 1), (32, 0)] {
        let mut site = Site::new(HOST);
        site.switch.bridge_mut(site.over).unwrap().tlv_table = Arc::clone(&table);
        let config = Config::new(TunnelKind::Geneve, OrFlow::Fixed(IpAddr::from(OTHER)));
        let tunnel = site.tunnel("t", config).unwrap();
        site.underlay.learn("phy", IpAddr::from(OTHER), Mac(Site::mac(OTHER)));
        let mut actions: Vec<Action> = (1..=count)
            .map(|n| Action::SetField {
                field: Field::of_option(n).unwrap(),
                value: 9,
                mask: 0xffff_ffff,
                spelled: SetSpelling::SetField,
            })
            .collect();
        actions.extend(output(tunnel));
        site.rule(site.over, "in_port=1", actions);
        site.model.inject(overlay_packet(), site.datapath_port(site.over, PortNo(1)));
        assert_eq!(site.outer_frames().len(), frames, "{count} options");
    }
}

#[test]
fn a_port_takes_plain_headers_next_to_those_of_the_generic_protocol_extension() {
    let mut site = Site::new(HOST);
    let extensions = Extensions { gpe: true, ..Extensions::default() };
    site.tunnel("a", to([10, 0, 0, 2])).unwrap();
    site.tunnel("b", Config { extensions, ..to([10, 0, 0, 3]) }).unwrap();
    assert_eq!(site.names().iter().filter(|name| name.starts_with("vxlan_sys")).count(), 1);
}

#[test]
fn packets_without_a_vport_are_dropped_by_one_megaflow_for_each_key() {
    let (mut a, mut b) = (Site::new(HOST), Site::new(OTHER));
    let key = |key| Some(OrFlow::Fixed(key));
    let unknown = Config { in_key: key(9), out_key: key(9), ..to(OTHER) };
    let leaves = a.tunnel("t", unknown).unwrap();
    a.rule(a.over, "in_port=1", output(leaves));
    a.underlay.learn("phy", IpAddr::from(OTHER), Mac(Site::mac(OTHER)));
    a.switch.publish();
    b.tunnel("t", Config { in_key: key(5), out_key: key(5), ..to(HOST) }).unwrap();
    b.switch.publish();
    a.model.inject(overlay_packet(), a.datapath_port(a.over, PortNo(1)));
    let outer = a.outer_frames().remove(0);
    let arrives = b.datapath_port(b.phy, PortNo(1));
    let drops = |b: &Site| b.model.drops(DropReason::InvalidTunnelPort);
    let before = b.model.lookups().flows;
    b.model.inject(outer.clone(), arrives);
    let after = b.model.lookups().flows;
    for _ in 0..3 {
        b.model.inject(outer.clone(), arrives);
    }
    assert_eq!((after - before, b.model.lookups().flows), (2, after), "one pops, one drops");
    assert_eq!(drops(&b), 4);
    // A vport for the key replaces the drop.
    let arrived = b.tunnel("u", Config { in_key: key(9), out_key: key(9), ..to(HOST) }).unwrap();
    b.rule(b.over, &format!("in_port={}", arrived.0), output(PortNo(1)));
    b.switch.publish();
    b.model.inject(outer, arrives);
    assert_eq!(b.model.take_sent(b.datapath_port(b.over, PortNo(1))).len(), 1);
    assert_eq!(drops(&b), 4);
}
