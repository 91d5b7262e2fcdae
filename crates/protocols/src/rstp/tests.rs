// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::stp;
use PortState::{Discarding, Forwarding};
use Role::{Alternate, Backup, Designated, Root};
use proptest::prelude::*;

/// Bridges, and LANs that connect their ports.
struct Network {
    bridges: Vec<Bridge>,
    /// Ports of each LAN.
    lans: Vec<Vec<(usize, PortNumber)>>,
    now: i64,
    /// Flushes by bridge.
    flushes: Vec<usize>,
    /// BPDUs of RSTP and of STP.
    sent: [usize; 2],
}

impl Network {
    /// Makes bridges whose priorities are in order, with ports on these LANs: port `n + 1` of a
    /// bridge is on LAN `n`. A bridge that is named twice has a second port, `n + 101`.
    fn new(lans: &[&[usize]]) -> Network {
        let last = lans.iter().flat_map(|lan| lan.iter()).max().copied().unwrap_or(0);
        let bridges = (0..=last)
            .map(|n| Bridge::new(Settings::new([2, 0, 0, 0, 0, n as u8 + 1]), Millis(0)))
            .collect();
        let mut network =
            Network { bridges, lans: Vec::new(), now: 0, flushes: vec![0; last + 1], sent: [0; 2] };
        for (n, lan) in lans.iter().enumerate() {
            let mut ports = Vec::new();
            for bridge in *lan {
                let first = n as u16 + 1;
                let is_second = ports.contains(&(*bridge, first));
                let number = if is_second { first + 100 } else { first };
                ports.push((*bridge, number));
                let is_point_to_point = lan.len() <= 2;
                let settings = PortSettings { is_point_to_point, ..PortSettings::default() };
                network.bridges[*bridge].configure_port(number, settings);
            }
            network.lans.push(ports);
        }
        for (bridge, number) in network.lans.clone().concat() {
            network.bridges[bridge].set_link(number, true);
        }
        network.deliver();
        network
    }

    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds * 4 {
            self.now += 250;
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
                            self.sent[usize::from(!matches!(bpdu, Bpdu::Rapid(_)))] += 1;
                            self.send((at, number), &bpdu);
                        }
                        Output::Flush(_) => self.flushes[at] += 1,
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
        let bpdu = match Bpdu::decode(&bpdu.encode()) {
            Err(BpduError::Old) => return,
            bpdu => bpdu.expect("it is valid"),
        };
        for (at, number) in lan.into_iter().filter(|to| *to != from) {
            self.bridges[at].receive(number, &bpdu);
        }
    }

    fn set_lan(&mut self, lan: usize, is_up: bool) {
        for (at, number) in self.lans[lan].clone() {
            self.bridges[at].set_link(number, is_up);
        }
        self.deliver();
    }

    fn roles(&self, bridge: usize) -> Vec<(PortNumber, Role, PortState)> {
        let ports = self.bridges[bridge].ports().iter();
        ports.map(|(number, port)| (*number, port.role, port.state())).collect()
    }

    /// Returns the number of separate parts, and whether there is a loop, of the ports that forward,
    /// or of all ports with a link.
    fn parts(&self, is_part: impl Fn(&Port) -> bool) -> (usize, bool) {
        let nodes = self.bridges.len() + self.lans.len();
        let mut part: Vec<usize> = (0..nodes).collect();
        let mut has_loop = false;
        for (n, lan) in self.lans.iter().enumerate() {
            for (bridge, number) in lan {
                if is_part(&self.bridges[*bridge].ports()[number]) {
                    let (a, b) = (part[*bridge], part[self.bridges.len() + n]);
                    has_loop |= a == b;
                    part.iter_mut().filter(|p| **p == b).for_each(|p| *p = a);
                }
            }
        }
        part.sort_unstable();
        part.dedup();
        (part.len(), has_loop)
    }

    fn forwarding(&self) -> (usize, bool) {
        self.parts(|port| port.state().forwards())
    }

    fn connected(&self) -> usize {
        self.parts(|port| port.is_enabled).0
    }
}

#[test]
fn two_bridges_agree_at_once() {
    let network = Network::new(&[&[0, 1]]);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding)], "without any second");
    assert_eq!(network.roles(1), [(1, Root, Forwarding)]);
    let root = network.bridges[1].root();
    assert_eq!((root.root, root.cost), (network.bridges[0].id(), 2000));
    assert_eq!(network.bridges[1].root_port(), Some(1));
    assert_eq!(network.sent[1], 0, "no STP");
}

#[test]
fn a_triangle_is_cut_once_and_heals_at_once() {
    let mut network = Network::new(&[&[0, 1], &[1, 2], &[0, 2]]);
    assert_eq!(network.forwarding(), (1, false));
    network.run(10);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding), (3, Designated, Forwarding)]);
    assert_eq!(network.roles(1), [(1, Root, Forwarding), (2, Designated, Forwarding)]);
    assert_eq!(network.roles(2), [(2, Alternate, Discarding), (3, Root, Forwarding)]);
    let flushes = network.flushes.clone();
    network.set_lan(2, false);
    assert_eq!(network.roles(2)[0], (2, Root, Forwarding), "an alternate port is ready");
    assert_eq!(network.bridges[2].root().cost, 4000);
    network.run(3);
    assert!(network.flushes[0] > flushes[0], "the root has heard of the change");
    network.set_lan(2, true);
    network.run(1);
    assert_eq!(network.roles(2), [(2, Alternate, Discarding), (3, Root, Forwarding)]);
    assert_eq!(network.forwarding(), (1, false));
}

#[test]
fn a_silent_root_is_forgotten_after_three_messages() {
    let mut network = Network::new(&[&[0, 1], &[1, 2]]);
    network.run(5);
    network.lans[0].clear(); // without a change of any link
    network.run(3);
    assert_eq!(network.bridges[2].root().root, network.bridges[0].id());
    network.run(5);
    assert_eq!(network.bridges[2].root().root, network.bridges[1].id());
    assert_eq!(network.roles(2), [(2, Root, Forwarding)]);
}

#[test]
fn a_port_without_a_neighbour_is_an_edge() {
    let mut network = Network::new(&[&[0]]);
    assert_eq!(network.roles(0), [(1, Designated, Discarding)]);
    network.run(2);
    assert_eq!(network.roles(0), [(1, Designated, Discarding)]);
    network.run(2);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding)], "after the migrate time");
    network.set_lan(0, false);
    assert_eq!(network.roles(0), [(1, Role::Disabled, Discarding)]);

    let mut bridge = Bridge::new(Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
    let edge = PortSettings { is_admin_edge: true, ..PortSettings::default() };
    bridge.configure_port(1, edge);
    bridge.set_link(1, true);
    assert_eq!(bridge.ports()[&1].state(), Forwarding, "a port that is set as one, at once");
    let no_edge = PortSettings { is_auto_edge: false, ..PortSettings::default() };
    bridge.configure_port(2, no_edge);
    bridge.set_link(2, true);
    (1..20).for_each(|n| bridge.run(Millis(n * 1000)));
    assert_eq!(bridge.ports()[&2].state(), Discarding);
    (20..23).for_each(|n| bridge.run(Millis(n * 1000)));
    assert_eq!(bridge.ports()[&2].state(), Forwarding, "the highest age, and a hello time");
}

#[test]
fn two_ports_on_one_lan() {
    let mut network = Network::new(&[&[0, 1, 1]]);
    network.run(40);
    let roles = network.roles(1);
    assert_eq!(roles, [(1, Root, Forwarding), (101, Alternate, Discarding)]);
    let mut network = Network::new(&[&[0, 0]]);
    network.run(40);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding), (101, Backup, Discarding)]);
}

#[test]
fn settings_choose_the_root_and_the_path() {
    let mut network = Network::new(&[&[0, 1], &[0, 1]]);
    assert_eq!(network.roles(1), [(1, Root, Forwarding), (2, Alternate, Discarding)]);
    let dear = PortSettings { cost: 20_000, ..PortSettings::default() };
    network.bridges[1].configure_port(1, dear);
    network.deliver();
    network.run(1);
    assert_eq!(network.roles(1), [(1, Alternate, Discarding), (2, Root, Forwarding)]);
    let settings = Settings { priority: 0x1000, max_age: 10, ..network.bridges[1].settings };
    network.bridges[1].configure(settings);
    network.deliver();
    network.run(1);
    assert_eq!(network.bridges[0].root().root, network.bridges[1].id());
    assert_eq!(network.bridges[0].root_times().max_age, 10);
    assert_eq!(network.forwarding(), (1, false));
    // A worse priority of the root is believed, as it comes from the root itself.
    let settings = Settings { priority: 0xf000, ..settings };
    network.bridges[1].configure(settings);
    network.deliver();
    network.run(3);
    assert_eq!(network.bridges[1].root().root, network.bridges[0].id());
    assert_eq!(network.forwarding(), (1, false));
}

#[test]
fn the_hold_count_limits_bpdus() {
    let mut network = Network::new(&[&[0, 1]]);
    network.run(10);
    let before = network.sent[0];
    for n in 0..100u16 {
        let settings = Settings { priority: 0x4000 | (n & 1) << 12, ..network.bridges[0].settings };
        network.bridges[0].configure(settings);
    }
    network.deliver();
    assert!(network.sent[0] - before <= 12, "6 of each end: {}", network.sent[0] - before);
    network.run(10);
    assert_eq!(network.bridges[1].root().root, network.bridges[0].id());
}

/// A bridge of RSTP and one of STP.
#[test]
fn a_neighbour_with_stp_gets_stp() {
    let mut rapid = Bridge::new(Settings::new([2, 0, 0, 0, 0, 2]), Millis(0));
    rapid.configure_port(1, PortSettings::default());
    rapid.set_link(1, true);
    let mut plain = stp::Bridge::new(stp::Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
    plain.add_port(1);
    plain.enable(1, Millis(0));
    let mut last_rapid = 0;
    for second in 1..=40 {
        let now = Millis(second * 1000);
        plain.run(now);
        rapid.run(now);
        for output in plain.take_output() {
            if let stp::Output::Send(1, bpdu) = output {
                rapid.receive(1, &Bpdu::decode(&bpdu.encode()).expect("valid"));
            }
        }
        for output in rapid.take_output() {
            let Output::Send(1, bpdu) = output else { continue };
            if matches!(bpdu, Bpdu::Rapid(_)) {
                last_rapid = second;
            }
            match stp::Bpdu::decode(&bpdu.encode()) {
                Ok(bpdu) => plain.receive(1, &bpdu, now),
                Err(_) => assert!(matches!(bpdu, Bpdu::Rapid(_))),
            }
        }
    }
    assert_eq!(rapid.root_port(), Some(1));
    assert_eq!(rapid.ports()[&1].state(), Forwarding);
    assert_eq!(plain.ports()[&1].state, Forwarding);
    assert_eq!(plain.root().0, plain.id());
    assert!((1..10).contains(&last_rapid), "until the neighbour was heard: {last_rapid}");
}

#[test]
fn the_stp_version_sends_stp() {
    let mut network = Network::new(&[&[0, 1]]);
    for at in 0..2 {
        let settings = Settings { version: Version::Stp, ..network.bridges[at].settings };
        network.bridges[at].configure(settings);
        assert_eq!(network.bridges[at].ports()[&1].state(), Discarding, "started again");
    }
    network.sent = [0; 2];
    network.run(20);
    assert_ne!(network.roles(1)[0].2, Forwarding);
    network.run(20);
    assert_eq!(network.roles(0), [(1, Designated, Forwarding)]);
    assert_eq!(network.roles(1), [(1, Root, Forwarding)]);
    assert_eq!(network.sent[0], 0);
}

#[test]
fn a_bridge_without_ports_is_its_own_root() {
    let mut bridge = Bridge::new(Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
    assert_eq!((bridge.root().root, bridge.deadline()), (bridge.id(), None));
    bridge.configure(Settings { priority: 0x1000, ..bridge.settings });
    assert_eq!(bridge.root().root, bridge.id());
    bridge.configure_port(1, PortSettings::default());
    assert_eq!(bridge.deadline(), Some(Millis(1000)));
    bridge.remove_port(1);
    assert!(bridge.ports().is_empty());
    bridge.run(Millis(1_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The forwarding ports have no loop after a minute, and connect all that was connected; also
    /// after a LAN has failed.
    #[test]
    fn any_network_becomes_a_tree(
        lans in prop::collection::vec(prop::collection::vec(0usize..6, 1..4), 1..9),
        failed in any::<prop::sample::Index>(),
    ) {
        let lans: Vec<&[usize]> = lans.iter().map(Vec::as_slice).collect();
        // At most two ports of a bridge on a LAN.
        prop_assume!(lans.iter().all(|lan| (0..6).all(|b| lan.iter().filter(|x| **x == b).count() <= 2)));
        let mut network = Network::new(&lans);
        network.run(60);
        prop_assert_eq!(network.forwarding(), (network.connected(), false));
        network.set_lan(failed.index(lans.len()), false);
        network.run(60);
        prop_assert_eq!(network.forwarding(), (network.connected(), false));
    }

    /// Links of two ends that come and go leave a tree, too.
    #[test]
    fn links_come_and_go(
        lans in prop::collection::vec((0usize..5, 0usize..5), 1..9),
        toggles in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0i64..3), 0..12),
    ) {
        let lans: Vec<[usize; 2]> = lans.into_iter().filter(|(a, b)| a != b).map(|(a, b)| [a, b]).collect();
        prop_assume!(!lans.is_empty());
        let lans: Vec<&[usize]> = lans.iter().map(|lan| &lan[..]).collect();
        let mut network = Network::new(&lans);
        for (lan, is_up, seconds) in toggles {
            network.set_lan(lan.index(lans.len()), is_up);
            network.run(seconds);
        }
        network.run(60);
        prop_assert_eq!(network.forwarding(), (network.connected(), false));
    }

    /// Whatever is received, the machines come to rest.
    #[test]
    fn any_messages(messages in prop::collection::vec((any::<[u8; 32]>(), 0i64..3000, 1u16..4, 0u8..3), 0..60)) {
        let mut bridge = Bridge::new(Settings::new([2, 0, 0, 0, 0, 1]), Millis(0));
        for number in 1..4 {
            bridge.configure_port(number, PortSettings::default());
            bridge.set_link(number, true);
        }
        let mut now = 0;
        for (rest, wait, number, kind) in messages {
            now += wait;
            let bytes = [&[0x42, 0x42, 3, 0, 0, 2, [0, 2, 0x80][usize::from(kind)]][..], &rest].concat();
            if let Ok(bpdu) = Bpdu::decode(&bytes) {
                bridge.receive(number, &bpdu);
            }
            bridge.run(Millis(now));
            prop_assert!(bridge.take_output().len() < 100);
            prop_assert!(bridge.root().root <= bridge.id());
        }
    }
}
