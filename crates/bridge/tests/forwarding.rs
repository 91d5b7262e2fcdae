// SPDX-License-Identifier: Apache-2.0
//! A whole switch over the model datapath: rules are added, packets pass, counters are compared.

use bridge::event::{Event, Sender};
use bridge::pipeline::Filter;
use bridge::revalidator::Pass;
use bridge::snapshot::{BridgeIndex, BundleView, VlanMode};
use bridge::switch::{PortRequest, Switch};
use clock::{Clock, Millis};
use datapath::{BondTable, Datapath, Packets, PortKind, PortSpec};
use datapath_model::Model;
use flow::{Field, Match};
use openflow::message::{FlowMod, FlowModCommand, PortConfig};
use openflow::text::parse_actions;
use openflow::{Action, PortNo, Version};
use packet::Packet;
use packet::build::Frame;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Bench {
    switch: Switch,
    model: Arc<Model>,
    bridge: BridgeIndex,
    clock: Clock,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new(ports: u32) -> Bench {
        Bench::with(ports, false)
    }

    /// Does the same; with `threads` the caller is not the only thread with packets.
    fn with(ports: u32, threads: bool) -> Bench {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("dummy@ovs-dummy", clock.clone(), 1000, 1);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = Arc::clone(&events);
        let sender = Sender::with_patience(Duration::from_secs(60), move |e| {
            sink.lock().unwrap().push(e);
            true
        });
        let datapath: Arc<dyn Datapath> = model.clone();
        let mut switch = Switch::new(datapath, clock.clone(), sender, 1000, threads).unwrap();
        let bridge = switch.add_bridge("br0", 1);
        for n in 1..=ports {
            let spec =
                PortSpec { name: format!("p{n}"), kind: PortKind::Dummy, ..PortSpec::default() };
            let port = switch
                .add_port(bridge, &PortRequest { spec, ofport: None, peer: None, tunnel: None })
                .unwrap();
            assert_eq!(port, PortNo(n));
            let bundle =
                bridge::port::Bundle { interfaces: vec![format!("p{n}")], ..Default::default() };
            switch.bridge_mut(bridge).unwrap().bundles.push(bundle);
        }
        let mut b = Bench { switch, model, bridge, clock, events };
        b.switch.publish();
        b
    }

    fn flow(
        &mut self,
        command: FlowModCommand,
        priority: u16,
        fields: &[(Field, u128)],
        actions: &[Action],
    ) {
        let mut matching = Match::ANY;
        for (f, v) in fields {
            matching.set(*f, *v);
        }
        let fm = FlowMod { command, ..FlowMod::add(priority, matching, actions) };
        self.switch.flow_mod(self.bridge, &fm).unwrap();
        self.switch.publish();
    }

    fn add(&mut self, priority: u16, fields: &[(Field, u128)], actions: &[Action]) {
        self.flow(FlowModCommand::Add, priority, fields, actions);
    }

    fn receive(&self, port: u32, packet: &Packet) {
        self.model.inject(packet.clone(), self.dp_port(port));
    }

    fn dp_port(&self, port: u32) -> datapath::PortNo {
        self.switch.bridge(self.bridge).unwrap().ports[&PortNo(port)].dp_port.unwrap()
    }

    /// Returns the ports by which packets left since the last call.
    fn sent(&self) -> Vec<u32> {
        let bridge = self.switch.bridge(self.bridge).unwrap();
        bridge
            .ports
            .values()
            .flat_map(|p| self.model.take_sent(p.dp_port.unwrap()).into_iter().map(|_| p.number.0))
            .collect()
    }

    /// Returns the numbers of packets that the rules have counted, by priority.
    fn counts(&mut self) -> Vec<(u32, u64)> {
        self.switch.collect_statistics();
        let rules = self.switch.bridge(self.bridge).unwrap().pipeline.select(&Default::default());
        let mut out: Vec<_> = rules.iter().map(|r| (r.priority, r.stats.counts().0)).collect();
        out.sort_unstable();
        out
    }
}

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn udp(src: u8, dst: u8) -> Packet {
    Frame::ethernet([2, 0, 0, 0, 0, dst], [2, 0, 0, 0, 0, src])
        .ipv4([10, 0, 0, src].into(), [10, 0, 0, dst].into(), 64)
        .udp(1000, 2000)
        .payload(&[0; 20])
        .packet()
}

#[test]
fn rules_forward_and_count_what_megaflows_carry() {
    let mut b = Bench::new(3);
    b.add(5, &[(Field::InPortOxm, 1)], &[output(2)]);
    for _ in 0..4 {
        b.receive(1, &udp(1, 2));
    }
    assert_eq!(b.sent(), [2, 2, 2, 2]);
    assert_eq!(b.switch.slow_path().megaflows.len(), 1);
    assert_eq!(b.counts(), [(5, 4)]);
    b.receive(3, &udp(3, 2));
    assert!(b.sent().is_empty(), "no rule, no packet");
}

#[test]
fn a_changed_rule_changes_megaflows_at_once() {
    let mut b = Bench::new(3);
    b.add(5, &[(Field::InPortOxm, 1)], &[output(2)]);
    b.receive(1, &udp(1, 2));
    b.add(5, &[(Field::InPortOxm, 1)], &[output(3)]);
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(), [2, 3]);
    b.flow(FlowModCommand::Delete, 0, &[], &[]);
    b.receive(1, &udp(1, 2));
    assert!(b.sent().is_empty());
}

/// Adds a rule for packets from port 1, which learns that packets back to their source go to port
/// 1. It learns into table 1, in which all packets from port 2 are looked up.
fn add_reflexive_rules(b: &mut Bench) {
    const ACTIONS: &str = "learn(table=1,priority=5,hard_timeout=10,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2";
    let actions = parse_actions(ACTIONS, Version::V13, &|_| None).unwrap();
    b.add(5, &[(Field::InPortOxm, 1)], &actions);
    b.add(5, &[(Field::InPortOxm, 2)], &[Action::GotoTable(1)]);
}

/// Adds the flows that packets have learned, and returns their number.
fn learn_all(b: &mut Bench) -> usize {
    let events = std::mem::take(&mut *b.events.lock().unwrap());
    let learned = events.iter().filter(|event| {
        let Event::LearnFlow { bridge, flow, used } = event else { return false };
        b.switch.learn(*bridge, flow, *used).unwrap();
        true
    });
    let count = learned.count();
    b.switch.publish();
    count
}

#[test]
fn a_packet_leaves_when_the_flow_that_it_made_is_there() {
    let mut b = Bench::with(2, true);
    add_reflexive_rules(&mut b);
    let (model, from) = (b.model.clone(), b.dp_port(1));
    let packet_thread = std::thread::spawn(move || model.inject(udp(1, 2), from));
    let begin = Instant::now();
    while b.events.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing is to be learned");
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(b.sent().is_empty(), "an answer would find no flow");
    assert_eq!(learn_all(&mut b), 1);
    packet_thread.join().unwrap();
    assert_eq!(b.sent(), [2]);
    b.receive(2, &udp(2, 1));
    assert_eq!(b.sent(), [1]);
    // The next packet makes the same flow, and does not wait.
    b.receive(1, &udp(1, 2));
    let (model, from) = (b.model.clone(), b.dp_port(1));
    std::thread::spawn(move || model.inject(udp(1, 2), from)).join().unwrap();
    assert_eq!(b.sent(), [2, 2]);
}

#[test]
fn a_flow_that_is_learned_again_is_nothing_new_for_packets() {
    let mut b = Bench::new(2);
    add_reflexive_rules(&mut b);
    let version = |b: &Bench| b.switch.slow_path().published.version();
    b.receive(1, &udp(1, 2));
    assert_eq!(learn_all(&mut b), 1);
    let before = version(&b);
    b.clock.advance(1_000);
    for _ in 0..3 {
        b.receive(1, &udp(1, 2));
        b.switch.collect_statistics();
        assert!(learn_all(&mut b) > 0, "its hard timeout starts again");
    }
    assert_eq!(version(&b), before);
}

#[test]
fn a_pass_refreshes_learned_flows_that_are_there_by_itself() {
    let mut b = Bench::with(2, true);
    add_reflexive_rules(&mut b);
    for _ in 0..2 {
        b.receive(1, &udp(1, 2));
        b.switch.slow_path().pass(Pass::Full);
        learn_all(&mut b);
    }
    b.clock.advance(1_000);
    b.receive(1, &udp(1, 2));
    b.switch.slow_path().pass(Pass::Statistics);
    assert_eq!(learn_all(&mut b), 0, "nothing is left to do");
    let table = Filter { table: 1, ..Filter::default() };
    let rules = b.switch.bridge(b.bridge).unwrap().pipeline.select(&table);
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].modified.get(), b.clock.now(), "its hard timeout starts again");
}

#[test]
fn normal_floods_learns_and_forwards() {
    let mut b = Bench::new(3);
    b.add(0, &[], &[output(PortNo::NORMAL.0)]);
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(), [2, 3], "unknown destination: flooded");
    b.receive(2, &udp(2, 1));
    assert_eq!(b.sent(), [1], "learned");
    let relearn =
        b.events.lock().unwrap().drain(..).any(|e| matches!(e, Event::MacTableChanged(_)));
    assert!(relearn);
    b.switch.need_revalidation();
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(), [2], "the flooding megaflow was revalidated");
}

/// Returns a switch with port 1 and a bond of ports 2 and 3, not published yet. All packets are
/// forwarded by NORMAL.
fn bonded(primary: Option<&str>) -> Bench {
    let mut b = Bench::new(3);
    b.add(0, &[], &[output(PortNo::NORMAL.0)]);
    let bundles = &mut b.switch.bridge_mut(b.bridge).unwrap().bundles;
    bundles.truncate(1);
    let settings = BundleView { name: "bond0".to_string(), ..BundleView::default() };
    let interfaces = vec!["p2".to_string(), "p3".to_string()];
    let primary = primary.map(str::to_string);
    let bond = bridge::bond::Settings { primary, ..Default::default() };
    bundles.push(bridge::port::Bundle { settings, interfaces, bond, ..Default::default() });
    b
}

/// Sets a port down, or up again, and sends the announcements to the other ends of bonds.
fn set_down(b: &mut Bench, port: u32, is_down: bool) {
    let ports = &mut b.switch.bridge_mut(b.bridge).unwrap().ports;
    ports.get_mut(&PortNo(port)).unwrap().config.set(PortConfig::PORT_DOWN, is_down);
    b.switch.publish();
    b.switch.announce_bonds();
}

/// Returns the ports by which a packet from port 1 leaves after another port was set down or up.
fn sent_when(b: &mut Bench, port: u32, is_down: bool) -> Vec<u32> {
    set_down(b, port, is_down);
    b.sent();
    b.receive(1, &udp(1, 2));
    b.sent()
}

#[test]
fn a_bond_keeps_its_active_member_as_long_as_that_is_up() {
    let mut b = bonded(None);
    assert_eq!(sent_when(&mut b, 2, false), [2]);
    assert_eq!(sent_when(&mut b, 2, true), [3]);
    assert_eq!(sent_when(&mut b, 2, false), [3], "the first is not better than another");
    assert_eq!(sent_when(&mut b, 3, true), [2]);
}

#[test]
fn a_bonds_primary_member_is_active_whenever_it_is_up() {
    let mut b = bonded(Some("p3"));
    assert_eq!(sent_when(&mut b, 2, false), [3]);
    assert_eq!(sent_when(&mut b, 3, true), [2]);
    assert_eq!(sent_when(&mut b, 3, false), [3], "back to it");
    assert_eq!(sent_when(&mut b, 2, true), [3]);
    // A primary that is no member of the bond has no effect.
    let mut b = bonded(Some("p1"));
    assert_eq!(sent_when(&mut b, 2, false), [2]);
}

#[test]
fn a_bond_recalls_the_member_that_was_active_before_it_was_made() {
    let recalling = |mac: [u8; 6]| {
        let mut b = bonded(None);
        let bridge = b.switch.bridge_mut(b.bridge).unwrap();
        for (number, port) in &mut bridge.ports {
            port.status.mac = [2, 0, 0, 0, 1, number.0 as u8];
        }
        bridge.recall_active_member("bond0", mac);
        b
    };
    let mut b = recalling([2, 0, 0, 0, 1, 3]);
    assert_eq!(sent_when(&mut b, 2, false), [3]);
    // From then on the bond behaves as any other, and the recalled member has no effect.
    assert_eq!(sent_when(&mut b, 3, true), [2]);
    b.switch.bridge_mut(b.bridge).unwrap().recall_active_member("bond0", [2, 0, 0, 0, 1, 3]);
    assert_eq!(sent_when(&mut b, 3, false), [2]);
    // A member that is down, or an address that no member has, is not recalled.
    let mut b = recalling([2, 0, 0, 0, 1, 3]);
    assert_eq!(sent_when(&mut b, 3, true), [2]);
    let mut b = recalling([2, 0, 0, 0, 1, 1]);
    assert_eq!(sent_when(&mut b, 3, false), [2]);
}

/// Returns the reverse ARP request that shows a host's location, with this VLAN header or none.
fn reverse_arp(host: u8, header: &[u8]) -> Vec<u8> {
    let mac = [2, 0, 0, 0, 0, host];
    let request = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    [&[0xffu8; 6][..], &mac, header, &request, &mac, &[0; 4], &mac, &[0; 4]].concat()
}

#[test]
fn the_other_end_of_a_bond_is_told_where_hosts_are_when_another_member_takes_over() {
    let mut b = bonded(None);
    set_down(&mut b, 2, false);
    assert!(b.sent().is_empty(), "nothing is learned yet");
    let tagged = Frame::ethernet([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 3])
        .vlan(0x8100, 7)
        .ipv4([10, 0, 0, 3].into(), [10, 0, 0, 9].into(), 64)
        .udp(1000, 2000)
        .packet();
    b.receive(1, &udp(1, 9));
    b.receive(1, &tagged);
    b.receive(2, &udp(2, 9)); // behind the bond itself
    b.sent();
    b.switch.announce_bonds();
    assert!(b.sent().is_empty(), "the member is the same");

    let taken = |b: &Bench, port: u32| -> Vec<Vec<u8>> {
        b.model.take_sent(b.dp_port(port)).iter().map(|p| p.data().to_vec()).collect()
    };
    set_down(&mut b, 2, true);
    assert_eq!(taken(&b, 3), [reverse_arp(1, &[]), reverse_arp(3, &[0x81, 0, 0, 7])]);
    assert!(b.sent().is_empty(), "no other port sends a frame");
    // An access port has one VLAN, without a header.
    let settings = &mut b.switch.bridge_mut(b.bridge).unwrap().bundles[1].settings;
    (settings.mode, settings.tag) = (VlanMode::Access, 7);
    set_down(&mut b, 2, false);
    set_down(&mut b, 3, true);
    assert_eq!(taken(&b, 2), [reverse_arp(3, &[])]);
    // With all members down no announcement is sent. The first member that is up again sends them.
    set_down(&mut b, 2, true);
    assert!(b.sent().is_empty());
    set_down(&mut b, 3, false);
    assert_eq!(taken(&b, 3), [reverse_arp(3, &[])]);
}

#[test]
fn a_bond_announces_addresses_with_the_headers_that_its_mode_has() {
    for (mode, header) in [
        (VlanMode::NativeUntagged, vec![]),
        (VlanMode::Dot1qTunnel, vec![]),
        (VlanMode::NativeTagged, vec![0x81, 0, 0, 7]),
    ] {
        let mut b = bonded(None);
        let settings = &mut b.switch.bridge_mut(b.bridge).unwrap().bundles[1].settings;
        (settings.mode, settings.tag) = (mode, 7);
        set_down(&mut b, 2, false);
        // The bond does not carry the VLAN of the second one.
        let macs = &b.switch.bridge(b.bridge).unwrap().macs;
        macs.learn(7, [2, 0, 0, 0, 0, 1], PortNo(1), false, Millis(0));
        macs.learn(0, [2, 0, 0, 0, 0, 3], PortNo(1), false, Millis(0));
        set_down(&mut b, 2, true);
        let sent = b.model.take_sent(b.dp_port(3));
        let frames: Vec<Vec<u8>> = sent.iter().map(|p| p.data().to_vec()).collect();
        assert_eq!(frames, [reverse_arp(1, &header)], "{mode:?}");
    }
}

#[test]
fn a_bond_announces_the_addresses_seen_last_when_there_are_many() {
    let mut b = bonded(None);
    set_down(&mut b, 2, false);
    let macs = &b.switch.bridge(b.bridge).unwrap().macs;
    macs.configure(10_000, 300, Vec::new());
    let mac = |n: u16| {
        let [high, low] = n.to_be_bytes();
        [2, 0, 0, 1, high, low]
    };
    for n in 0..8200 {
        macs.learn(0, mac(n), PortNo(1), false, Millis(i64::from(n)));
    }
    set_down(&mut b, 2, true);
    let sent = b.model.take_sent(b.dp_port(3));
    let sources = [sent.first(), sent.last()].map(|p| p.unwrap().data()[6..12].to_vec());
    assert_eq!(sent.len(), 8192);
    assert_eq!(sources, [8, 8199].map(|n| mac(n).to_vec()));
}

#[test]
fn an_address_is_not_learned_again_on_a_port_that_is_gone() {
    let mut b = Bench::new(3);
    b.add(0, &[], &[output(PortNo::NORMAL.0)]);
    b.receive(2, &udp(2, 1));
    b.receive(2, &udp(2, 1));
    b.sent();
    // The megaflow's counts are collected after the port was removed.
    b.switch.remove_port(b.bridge, PortNo(2)).unwrap();
    b.switch.publish();
    b.switch.slow_path().pass(Pass::Full);
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(), [3], "nobody knows where 2 is");
}

#[test]
fn few_megaflows_serve_strangers_to_a_thousand_host_rules() {
    let mut b = Bench::new(2);
    for i in 0..1000 {
        b.add(5, &[(Field::EthType, 0x800), (Field::Ipv4Dst, 0x0a00_0000 + i)], &[output(2)]);
    }
    for i in 0..200u8 {
        let packet = Frame::ethernet([2; 6], [4; 6])
            .ipv4([172, 16, 0, i].into(), [192, 168, i, i].into(), 64)
            .udp(u16::from(i), 53)
            .payload(&[0; 20])
            .packet();
        b.receive(1, &packet);
    }
    assert!(b.switch.slow_path().megaflows.len() <= 2, "{}", b.switch.slow_path().megaflows.len());
}

#[test]
fn idle_megaflows_go_and_their_counts_stay() {
    let mut b = Bench::new(2);
    b.add(5, &[], &[output(2)]);
    b.receive(1, &udp(1, 2));
    b.receive(1, &udp(1, 2));
    b.clock.advance(9_000);
    b.switch.slow_path().pass(Pass::Full);
    assert_eq!(b.switch.slow_path().megaflows.len(), 1);
    b.clock.advance(2_000);
    b.switch.slow_path().pass(Pass::Full);
    assert_eq!(b.switch.slow_path().megaflows.len(), 0);
    assert_eq!(b.counts(), [(5, 2)]);
}

#[test]
fn over_the_flow_limit_packets_still_go_through() {
    let mut b = Bench::new(2);
    b.switch.slow_path().set_flow_limit(3);
    b.add(5, &[(Field::EthType, 0x800), (Field::Ipv4Src, 0x0a00_0001)], &[output(2)]);
    for dst in 0..10u8 {
        b.add(
            6,
            &[
                (Field::EthType, 0x800),
                (Field::Ipv4Dst, u128::from(0x0a00_0000u32 + u32::from(dst))),
            ],
            &[output(2)],
        );
    }
    for dst in 0..10 {
        b.receive(1, &udp(9, dst));
    }
    assert_eq!(b.sent().len(), 10);
    assert_eq!(b.switch.slow_path().megaflows.len(), 3);
    assert_eq!(b.counts().iter().map(|(_, n)| n).sum::<u64>(), 10);
}

#[test]
fn packet_out_runs_actions_and_tables() {
    let mut b = Bench::new(2);
    b.add(5, &[(Field::InPortOxm, 1)], &[output(2)]);
    let bridge = b.bridge;
    b.switch.packet_out(bridge, udp(1, 2), &Match::ANY, PortNo::CONTROLLER, &[output(1)]).unwrap();
    assert_eq!(b.sent(), [1]);
    b.switch
        .packet_out(bridge, udp(1, 2), &Match::ANY, PortNo(1), &[output(PortNo::TABLE.0)])
        .unwrap();
    assert_eq!(b.sent(), [2]);
    // A packet from a port that does not exist is accepted, as in OVS.
    b.switch.packet_out(bridge, udp(1, 2), &Match::ANY, PortNo(77), &[output(1)]).unwrap();
    assert_eq!(b.sent(), [1]);
}

#[test]
fn a_bond_of_an_earlier_daemon_that_nothing_claims_is_removed() {
    let mut b = Bench::new(3);
    let model = Arc::clone(&b.model);
    let bonds = model.bonds().unwrap();
    bonds.set(2, &BondTable::new(0, [], |_| None)).unwrap();
    b.clock.advance(29_000);
    b.switch.run();
    assert_eq!(bonds.ids(), [2], "its megaflows may still be there");
    assert!(b.switch.deadline().is_some_and(|at| at <= b.clock.now() + 1_000));
    b.clock.advance(1_000);
    b.switch.run();
    assert!(bonds.ids().is_empty());
}
