// SPDX-License-Identifier: Apache-2.0
//! A BPF table that is full.

use crate::tools::{SOON, megaflows, switch, warm};
use slipswitch_tests::harness::{Switch, wait_until};
use std::net::UdpSocket;
use std::time::Duration;

/// The least that `other_config:bpf-max-flows` may be.
const ROOM: usize = 1024;
const FLOWS: u16 = 1500;
const FIRST: u16 = 20_000;

/// Sends a packet to each of `ports` of 10.0.0.2, not too many at once.
fn send(from: &UdpSocket, ports: std::ops::Range<u16>) {
    for port in ports {
        from.send_to(&[0; 8], ("10.0.0.2", port)).expect("there is room");
        if port % 16 == 0 {
            std::thread::sleep(Duration::from_millis(4));
        }
    }
}

/// `dpctl/offload-stats-show`.
#[derive(Debug, Default)]
struct Stats {
    flows: usize,
    /// By tier, which add up to the flows.
    tiers: Vec<(String, usize)>,
    /// By reason: flows in userspace, in part, refusals.
    reasons: Vec<(String, [usize; 3])>,
}

impl Stats {
    fn of(switch: &Switch) -> Stats {
        let text = switch.appctl("dpctl/offload-stats-show");
        let mut stats = Stats::default();
        for line in text.lines().skip(1).map(str::trim) {
            let (name, rest) = line.split_once(": ").expect("a name and what there is to say");
            let numbers: Vec<usize> =
                rest.split([' ', ',', ';']).filter_map(|word| word.parse().ok()).collect();
            match (name, numbers.as_slice()) {
                ("flows", [flows, ..]) => {
                    stats.flows = *flows;
                    let pairs = rest.split(", ").filter_map(|pair| pair.split_once(": "));
                    stats.tiers = pairs
                        .map(|(tier, n)| (tier.to_owned(), n.parse().expect("a number")))
                        .collect();
                }
                ("packets", _) => {}
                (_, [userspace, part, refusals]) => {
                    stats.reasons.push((name.to_owned(), [*userspace, *part, *refusals]));
                }
                _ => panic!("{line:?} in {text}"),
            }
        }
        stats
    }

    fn tier(&self, name: &str) -> usize {
        self.tiers.iter().find(|(tier, _)| tier == name).map_or(0, |(_, n)| *n)
    }

    fn reason(&self, name: &str) -> [usize; 3] {
        self.reasons.iter().find(|(reason, _)| reason == name).map_or([0; 3], |(_, n)| *n)
    }
}

#[test]
fn a_busy_flow_takes_the_place_of_a_cold_one_and_all_of_them_are_counted() {
    let Some(mut switch) = switch() else { return };
    let sizes = format!("other_config:bpf-max-flows={ROOM} other_config:max-idle=300000");
    switch.vsctl(&format!("set open_vswitch . {sizes}"));
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    switch.start_daemon();
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let _b = switch.host_on("br0", "h2", "10.0.0.2/24");
    warm(&a, "10.0.0.2");
    // Each port is a megaflow.
    switch.appctl("upcall/disable-megaflows");
    let sender = a.netns.with(|| UdpSocket::bind("10.0.0.1:5000").expect("the host's address"));
    let all = FIRST..FIRST + FLOWS;
    send(&sender, all.clone());
    let mut stats = Stats::default();
    let settled = wait_until(SOON, || {
        stats = Stats::of(&switch);
        if stats.flows < FLOWS.into() {
            send(&sender, all.clone()); // a port that is pressed gets no flow for a single packet
        }
        let refused: usize = stats.reasons.iter().map(|(_, [flows, ..])| flows).sum();
        let counted: usize = stats.tiers.iter().map(|(_, flows)| flows).sum();
        stats.flows >= FLOWS.into()
            && counted == stats.flows
            && refused == stats.tier("userspace")
            && stats.reason("table-full")[0] > 0
            && stats.tier("tcx") > ROOM * 9 / 10
    });
    assert!(settled, "{stats:?}");
    assert!(stats.tier("tcx") <= ROOM && stats.reason("table-full")[2] >= 1, "{stats:?}");
    // The dump has the same reason for each flow.
    let waiting = megaflows(&switch, &["offloaded:no, dp:userspace, reason:table-full"]);
    assert!(waiting.len() >= usize::from(FLOWS) - ROOM - 50, "{} wait", waiting.len());
    let ports = waiting.iter().filter_map(|line| line.split("udp(src=5000,dst=").nth(1));
    let ports = ports.filter_map(|rest| rest.split(')').next()?.parse::<u16>().ok());
    // One waiting flow is busy from now on, and no other flow is. Some flow may expire and leave its
    // place without an eviction; a second waiting flow then shows the eviction.
    let evicts = |port: u16| {
        let busy = format!("udp(src=5000,dst={port})");
        let inside = wait_until(SOON, || {
            (0..20).for_each(|_| send(&sender, port..port + 1));
            !megaflows(&switch, &[&busy, "offloaded:yes, dp:tcx"]).is_empty()
        });
        let stats = Stats::of(&switch);
        assert!(
            inside && stats.tier("tcx") <= ROOM,
            "{:?}\n{stats:?}",
            megaflows(&switch, &[&busy])
        );
        stats.reason("evicted")[2] >= 1
    };
    assert!(ports.take(20).any(evicts), "{:?}", Stats::of(&switch));
}
