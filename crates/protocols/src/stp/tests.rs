// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

/// Bridges, and LANs that connect their ports.
struct Network {
    bridges: Vec<Bridge>,
    /// Ports of each LAN.
    lans: Vec<Vec<(usize, PortNumber)>>,
    now: i64,
    flushes: usize,
}

impl Network {
    /// Makes bridges whose priorities are in order, with ports on these LANs: port `n + 1` of a
    /// bridge is on LAN `n`.
    fn new(lans: &[&[usize]]) -> Network {
        let last = lans.iter().flat_map(|lan| lan.iter()).max().copied().unwrap_or(0);
        let bridges = (0..=last)
            .map(|n| Bridge::new(Settings::new([2, 0, 0, 0, 0, n as u8 + 1]), Millis(0)))
            .collect();
        let lan = |(n, lan): (usize, &&[usize])| -> Vec<(usize, PortNumber)> {
            lan.iter().map(|bridge| (*bridge, n as u8 + 1)).collect()
        };
        let lans = lans.iter().enumerate().map(lan).collect();
        let mut network = Network { bridges, lans, now: 0, flushes: 0 };
        for (bridge, number) in network.lans.clone().concat() {
            network.bridges[bridge].add_port(number);
            network.bridges[bridge].enable(number, Millis(0));
        }
        network
    }

    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds * 10 {
            self.now += 100;
            for at in 0..self.bridges.len() {
                self.bridges[at].run(Millis(self.now));
            }
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        for _ in 0..1000 {
            let mut is_quiet = true;
            for at in 0..self.bridges.len() {
                for output in self.bridges[at].take_output() {
                    match output {
                        Output::Send(number, bpdu) => {
                            is_quiet = false;
                            self.send((at, number), &bpdu);
                        }
                        Output::Flush => self.flushes += 1,
                        Output::State(..) => {}
                    }
                }
            }
            if is_quiet {
                return;
            }
        }
        panic!("BPDUs without end");
    }

    fn send(&mut self, from: (usize, PortNumber), bpdu: &Bpdu) {
        let lan = self.lans.iter().find(|lan| lan.contains(&from)).cloned().unwrap_or_default();
        let bpdu = Bpdu::decode(&bpdu.encode()).expect("it is valid");
        for (at, number) in lan.into_iter().filter(|to| *to != from) {
            self.bridges[at].receive(number, &bpdu, Millis(self.now));
        }
    }

    fn roles(&self, bridge: usize) -> Vec<(PortNumber, Role, PortState)> {
        let bridge = &self.bridges[bridge];
        bridge.ports.iter().map(|(n, port)| (*n, bridge.role(*n), port.state)).collect()
    }

    /// Returns the number of separate parts, and whether there is a loop, of what forwards.
    fn parts(&self) -> (usize, bool) {
        let nodes = self.bridges.len() + self.lans.len();
        let mut part: Vec<usize> = (0..nodes).collect();
        let mut has_loop = false;
        for (n, lan) in self.lans.iter().enumerate() {
            for (bridge, number) in lan {
                if self.bridges[*bridge].ports[number].state.forwards() {
                    let (a, b) = (part[*bridge], part[self.bridges.len() + n]);
                    has_loop |= a == b;
                    part.iter_mut().filter(|p| **p == b).for_each(|p| *p = a);
                }
            }
        }
        let mut all = part.clone();
        all.sort_unstable();
        all.dedup();
        (all.len(), has_loop)
    }
}

use PortState::{Blocking, Forwarding, Learning, Listening};
use Role::{Alternate, Designated, Root};

#[test]
fn a_triangle_is_cut_once() {
    let mut network = Network::new(&[&[0, 1], &[1, 2], &[0, 2]]);
    network.run(1);
    assert_eq!(network.roles(0), [(1, Designated, Listening), (3, Designated, Listening)]);
    network.run(15);
    assert_eq!(network.roles(0), [(1, Designated, Learning), (3, Designated, Learning)]);
    network.run(20);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding), (3, Designated, Forwarding)]);
    assert_eq!(network.roles(1), [(1, Root, Forwarding), (2, Designated, Forwarding)]);
    assert_eq!(network.roles(2), [(2, Alternate, Blocking), (3, Root, Forwarding)]);
    let root = network.bridges[0].id();
    assert_eq!(network.bridges[2].root(), (root, 19));
    assert_eq!(network.bridges[2].root_port(), Some(3));
    assert_eq!(network.parts(), (1, false));
    // The link to the root fails: the other way takes its place.
    network.bridges[2].disable(3, Millis(network.now));
    network.bridges[0].disable(3, Millis(network.now));
    network.deliver();
    network.run(40);
    assert_eq!(network.bridges[2].root(), (root, 38));
    assert_eq!(network.roles(2)[0], (2, Root, Forwarding));
}

#[test]
fn a_silent_root_is_forgotten() {
    let mut network = Network::new(&[&[0, 1], &[1, 2]]);
    network.run(40);
    assert_eq!(network.bridges[2].root().0, network.bridges[0].id());
    network.lans[0].clear(); // without a change of any link
    network.run(60);
    assert_eq!(network.bridges[2].root().0, network.bridges[1].id());
    assert_eq!(network.bridges[0].root().0, network.bridges[0].id());
}

#[test]
fn a_change_reaches_the_root_and_all_others() {
    let mut network = Network::new(&[&[0, 1], &[1, 2], &[2]]);
    network.run(100);
    assert!(network.bridges.iter().all(|b| !b.is_changing && !b.is_change_detected));
    let now = Millis(network.now);
    network.bridges[2].disable(3, now);
    network.bridges[2].enable(3, now);
    let flushes = network.flushes;
    network.run(29);
    assert_eq!(network.flushes, flushes, "a port that is about to forward changes nothing");
    network.run(5);
    assert!(network.bridges.iter().all(|b| b.is_changing), "the root says so");
    assert!(network.bridges[2].notify_at.is_none(), "acknowledged");
    let during = network.flushes;
    assert!(during >= flushes + 3);
    network.run(40);
    assert!(network.bridges.iter().all(|b| !b.is_changing));
    let flushes = network.flushes;
    assert!(flushes > during, "each message of the root flushes");
    network.run(40);
    assert_eq!(network.flushes, flushes);
}

#[test]
fn a_bridge_starts_without_a_change() {
    let mut bridge = Bridge::new(Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
    bridge.add_port(1);
    assert_eq!(bridge.shown_role(1), Designated, "without a link, as Open vSwitch shows it");
    bridge.enable(1, Millis(0));
    bridge.run(Millis(0));
    let output = bridge.take_output();
    assert!(!output.contains(&Output::Flush));
    let sent = output.iter().find_map(|o| match o {
        Output::Send(1, Bpdu::Config(config)) => Some(config.is_changing),
        _ => None,
    });
    assert_eq!(sent, Some(false), "{output:?}");
}

#[test]
fn settings_choose_the_root_and_the_path() {
    let mut network = Network::new(&[&[0, 1], &[0, 1]]);
    network.run(40);
    assert_eq!(network.roles(1), [(1, Root, Forwarding), (2, Alternate, Blocking)]);
    let now = Millis(network.now);
    network.bridges[1].configure_port(1, 128, 100, now);
    network.run(40);
    assert_eq!(network.roles(1), [(1, Alternate, Blocking), (2, Root, Forwarding)]);
    let now = Millis(network.now);
    let settings = Settings { priority: 0x1000, hello_time: 1000, ..network.bridges[1].settings };
    network.bridges[1].configure(settings, now);
    network.run(40);
    assert_eq!(network.bridges[0].root().0, network.bridges[1].id());
    assert_eq!(network.bridges[0].times(), (1000, 20_000, 15_000));
    assert_eq!(network.parts(), (1, false));
}

#[test]
fn settings_have_bounds() {
    let with = |hello_time, max_age, forward_delay| {
        let settings = Settings { hello_time, max_age, forward_delay, ..Settings::new([0; 6]) };
        let Settings { hello_time, max_age, forward_delay, .. } = settings.bounded();
        (hello_time, max_age, forward_delay)
    };
    assert_eq!(with(2000, 20_000, 15_000), (2000, 20_000, 15_000));
    assert_eq!(with(0, 0, 0), (1000, 6000, 4000));
    assert_eq!(with(u32::MAX, u32::MAX, u32::MAX), (10_000, 40_000, 30_000));
    assert_eq!(with(10_000, 6000, 4000), (10_000, 22_000, 12_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The forwarding ports have no loop after a minute, and connect all that was connected.
    #[test]
    fn any_network_becomes_a_tree(lans in prop::collection::vec(prop::collection::btree_set(0usize..6, 1..4), 1..9)) {
        let lans: Vec<Vec<usize>> = lans.into_iter().map(|lan| lan.into_iter().collect()).collect();
        let lans: Vec<&[usize]> = lans.iter().map(Vec::as_slice).collect();
        let mut network = Network::new(&lans);
        network.run(60);
        let (parts, has_loop) = network.parts();
        prop_assert!(!has_loop);
        for bridge in &mut network.bridges {
            for port in bridge.ports.values_mut() {
                port.state = Forwarding;
            }
        }
        prop_assert_eq!(parts, network.parts().0);
    }

    /// Whatever is received, a port that forwards has waited, and a deadline lies ahead.
    #[test]
    fn any_messages(messages in prop::collection::vec((any::<[u8; 31]>(), 0i64..3000, 1u8..4), 0..60)) {
        let mut bridge = Bridge::new(Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
        for number in 1..4 {
            bridge.add_port(number);
            bridge.enable(number, Millis(0));
        }
        let mut now = 0;
        for (rest, wait, number) in messages {
            now += wait;
            let bytes = [&[0x42, 0x42, 3, 0, 0, 0, 0][..], &rest].concat();
            if let Ok(bpdu) = Bpdu::decode(&bytes) {
                bridge.receive(number, &bpdu, Millis(now));
            }
            bridge.run(Millis(now));
            prop_assert!(bridge.take_output().len() < 100);
            prop_assert!(bridge.root().0 <= bridge.id());
        }
    }
}
