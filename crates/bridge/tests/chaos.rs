// SPDX-License-Identifier: Apache-2.0
//! A whole switch over a datapath that fails on purpose: rules are added, packets pass, counters
//! are compared.

use bridge::event::Sender;
use bridge::revalidator::Pass;
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use clock::Clock;
use datapath::{Flows, Packets, PortKind, PortNo as DpPort, PortSpec, Refusal};
use datapath_model::{Chaos, Model, Rates};
use flow::{Field, Match};
use openflow::message::FlowMod;
use openflow::{Action, PortNo};
use packet::Packet;
use packet::build::Frame;
use std::sync::Arc;

const PACKETS: u64 = 2000;

struct Bench {
    switch: Switch,
    model: Arc<Model>,
    chaos: Arc<Chaos>,
    bridge: BridgeIndex,
}

impl Bench {
    /// A bridge with ports 1 to 3.
    fn new(rates: Rates, seed: u64) -> Bench {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("dummy@ovs-dummy", clock.clone(), 1000, 1);
        let chaos = Chaos::new(model.clone(), rates, seed);
        let events = Sender::new(|_| true);
        let mut switch = Switch::new(chaos.clone(), clock, events, 1000, false).unwrap();
        let bridge = switch.add_bridge("br0", 1);
        for n in 1..=3 {
            let spec =
                PortSpec { name: format!("p{n}"), kind: PortKind::Dummy, ..PortSpec::default() };
            switch
                .add_port(bridge, &PortRequest { spec, ofport: None, peer: None, tunnel: None })
                .unwrap();
        }
        switch.publish();
        Bench { switch, model, chaos, bridge }
    }

    /// Adds a rule: packets from port 1 to 10.0.0.`to` leave by `port`.
    fn rule(&mut self, to: u8, port: u32) {
        let mut matching = Match::ANY;
        matching.set(Field::InPortOxm, 1);
        matching.set(Field::EthType, 0x800);
        matching.set(Field::Ipv4Dst, u32::from_be_bytes([10, 0, 0, to]).into());
        let actions = [Action::Output { port: PortNo(port), max_len: 0 }];
        let add = FlowMod::add(5, matching, &actions);
        self.switch.flow_mod(self.bridge, &add).unwrap();
        self.switch.publish();
    }

    fn dp_port(&self, port: u32) -> DpPort {
        self.switch.bridge(self.bridge).unwrap().ports[&PortNo(port)].dp_port.unwrap()
    }

    fn sent(&self, port: u32) -> u64 {
        self.model.take_sent(self.dp_port(port)).len() as u64
    }

    /// Returns the number of packets that all rules have counted.
    fn counted(&mut self) -> u64 {
        self.switch.collect_statistics();
        let pipeline = &self.switch.bridge(self.bridge).unwrap().pipeline;
        let rules = pipeline.select(&Default::default());
        rules.iter().map(|r| r.stats.counts().0).sum()
    }
}

fn packet(to: u8) -> Packet {
    Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, to].into(), 64)
        .udp(1, 2)
        .packet()
}

/// Sends packets to twenty addresses. Meanwhile their rules change, and their megaflows are added
/// and removed.
fn drive(rates: Rates, seed: u64) -> (Bench, u64) {
    let mut b = Bench::new(rates, seed);
    let mut wanted = [2; 20];
    (0..20).for_each(|to| b.rule(to, 2));
    let mut sent = 0;
    for n in 0..PACKETS {
        let to = (n * 7 % 20) as u8;
        let lost = b.chaos.lost();
        b.model.inject(packet(to), b.dp_port(1));
        let out = [b.sent(2), b.sent(3)];
        let is_lost = b.chaos.lost() - lost;
        let mut right = [0, 0];
        right[wanted[usize::from(to)] as usize - 2] = 1 - is_lost;
        assert_eq!(out, right, "packet {n}, seed {seed}");
        sent += 1 - is_lost;
        if n % 13 == 0 {
            let changed = (n % 20) as u8;
            let port = &mut wanted[usize::from(changed)];
            *port = 5 - *port;
            b.rule(changed, wanted[usize::from(changed)]);
            // The revalidator thread does so twice a second; here the test does.
            b.switch.slow_path().pass(Pass::Full);
        }
        if n % 101 == 0 {
            b.switch.slow_path().pass(Pass::Purge);
        }
    }
    (b, sent)
}

#[test]
fn packets_go_where_the_rules_say_whatever_fails() {
    for seed in 0..10 {
        let rates = Rates {
            install: 300,
            modify: 300,
            remove: 300,
            lost_upcall: 100,
            double_upcall: 100,
            ..Rates::default()
        };
        let (b, sent) = drive(rates, seed);
        assert_eq!(sent + b.chaos.lost(), PACKETS);
        assert!(b.chaos.lost() > 0 && b.chaos.doubled() > 0, "seed {seed}");
        let counters = &b.switch.slow_path().counters;
        assert!(counters.refusals(Refusal::Synthetic) > 0, "seed {seed}");
        // The switch's megaflows are exactly those of the datapath.
        b.switch.slow_path().pass(Pass::Purge);
        b.switch.slow_path().pass(Pass::Purge);
        b.switch.slow_path().pass(Pass::Purge);
        assert_eq!((b.model.dump().len(), b.switch.slow_path().megaflows.len()), (0, 0));
    }
}

#[test]
fn counters_are_exact_when_installs_fail_and_upcalls_are_lost_or_doubled() {
    for seed in 0..10 {
        let rates =
            Rates { install: 300, lost_upcall: 100, double_upcall: 100, ..Rates::default() };
        let mut b = Bench::new(rates, seed);
        (0..20).for_each(|to| b.rule(to, 2));
        for n in 0..PACKETS {
            b.model.inject(packet((n * 7 % 20) as u8), b.dp_port(1));
            if n % 50 == 0 {
                b.switch.slow_path().pass(Pass::Purge);
            }
        }
        // Each upcall of a packet, or its megaflow, counts the packet.
        assert_eq!(b.sent(2) + b.chaos.lost(), PACKETS);
        assert_eq!(b.counted(), PACKETS - b.chaos.lost() + b.chaos.doubled(), "seed {seed}");
    }
}
