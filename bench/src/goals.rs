// SPDX-License-Identifier: Apache-2.0
//! The goals of Slipswitch, against limits and other switches, and the generator's own.

use crate::report::goals::{Bound, Figure, Goal};
use crate::report::results::{ANSWERER, SENDER};
use crate::system::{System, Tier};
use Bound::{AtLeast, AtMost};
use Figure::{Against, Median, Paired, Worst};

const XDP: &str = System::Slipswitch(Tier::Xdp).name();
const TCX: &str = System::Slipswitch(Tier::Tcx).name();
const BARE: &str = System::BareXdp.name();
/// The limit where there are many flows.
const LOOKUP: &str = System::BareLookup.name();
const LINUX_BRIDGE: &str = System::LinuxBridge.name();
const BARE_TC: &str = System::BareTc.name();
/// The limit for containers.
const BARE_PEER: &str = System::BareTcPeer.name();
const USERSPACE: &str = System::Slipswitch(Tier::Userspace).name();
const OUR_AF_XDP: &str = System::SlipswitchAfXdp.name();
const AF_PACKET: &str = System::OvsAfPacket.name();
const AF_XDP: &str = System::OvsAfXdp.name();
const DPDK: &str = System::OvsDpdk.name();

type Parameters = &'static [(&'static str, &'static str)];

const ONE: Parameters = &[("size", "64"), ("flows", "1")];
const MANY: Parameters = &[("size", "64"), ("flows", "65536")];
const MOST: Parameters = &[("size", "64"), ("flows", "262144")];
const RULES: Parameters = &[("rules", "262144")];
const TO_CONTAINER: Parameters = &[("way", "NIC to veth")];
const BEHIND_FIREWALL: Parameters = &[("rules", "firewall")];
const ONE_TRACKED: Parameters = &[("rules", "one zone"), ("connections", "1")];
const MANY_TRACKED: Parameters = &[("rules", "one zone"), ("connections", "65536")];
const PIPELINE: Parameters = &[("rules", "three zones, four lookups more"), ("connections", "1")];
const VXLAN_WHOLE: Parameters = &[("tunnel", "VXLAN"), ("underlay", "keeps large segments")];
const VXLAN_CUT: Parameters = &[("tunnel", "VXLAN"), ("underlay", "1,500 B on the wire")];
const GENEVE_WHOLE: Parameters =
    &[("tunnel", "Geneve, csum=true"), ("underlay", "keeps large segments")];
const INTO: Parameters = &[("way", "in"), ("tunnel", "VXLAN")];
const INTO_AND_OUT: Parameters = &[("way", "in and out"), ("tunnel", "VXLAN")];
const IDLE: Parameters = &[("traffic", "none"), ("megaflows", "262144")];

/// A goal whose bound the following calls set.
const fn goal(words: &'static str, experiment: &'static str, metric: &'static str) -> Goal {
    Goal {
        words,
        experiment,
        metric,
        parameters: &[],
        system: "",
        figure: Median,
        bound: AtMost(0.0),
        limit: None,
    }
}

/// Slipswitch at XDP in one case of the grid.
const fn grid(words: &'static str, metric: &'static str, parameters: Parameters) -> Goal {
    Goal { system: XDP, limit: Some(LOOKUP), ..goal(words, "grid", metric).at(parameters) }
}

/// Slipswitch at tcx at both ends of a tunnel.
const fn overlay(words: &'static str, parameters: Parameters) -> Goal {
    let goal = goal(words, "overlay", "throughput per CPU second").at(parameters);
    Goal { system: TCX, ..goal }
}

/// The price of a tunnel's headers at XDP, at most this many nanoseconds.
const fn headers(words: &'static str, parameters: Parameters, most: f64) -> Goal {
    goal(words, "headers", "time of a frame over a bare redirect")
        .at(parameters)
        .median(XDP, AtMost(most))
}

impl Goal {
    const fn at(self, parameters: Parameters) -> Goal {
        Goal { parameters, ..self }
    }

    const fn of(self, system: &'static str, figure: Figure, bound: Bound) -> Goal {
        Goal { system, figure, bound, ..self }
    }

    const fn median(self, system: &'static str, bound: Bound) -> Goal {
        self.of(system, Median, bound)
    }

    const fn against(self, other: &'static str, bound: Bound) -> Goal {
        Goal { figure: Against(other), bound, ..self }
    }

    const fn limit(self, limit: &'static str) -> Goal {
        Goal { limit: Some(limit), ..self }
    }
}

/// All goals, in the order of the page.
pub const ALL: [Goal; 43] = [
    goal("64 B frames that the generator sends on one core", "one-flow", "rate per core")
        .median(SENDER, AtLeast(8.0)),
    grid("64 B, 1 flow, rate against bare XDP", "rate", ONE).against(BARE, AtLeast(0.85)),
    grid("64 B, 64 K flows, rate against bare XDP", "rate", MANY).against(BARE, AtLeast(0.80)),
    grid("64 B, 256 K flows, rate against bare XDP", "rate", MOST).against(BARE, AtLeast(0.80)),
    grid("64 B, 64 K flows, rate per core against OVS AF_XDP", "rate per core", MANY)
        .against(AF_XDP, AtLeast(8.0)),
    grid("64 B, 64 K flows, rate per core against OVS-DPDK", "rate per core", MANY)
        .against(DPDK, AtLeast(20.0)),
    grid("latency p50 of one flow against bare XDP", "latency p50", ONE).against(BARE, AtMost(1.1)),
    goal("64 B, 1 flow, rate of userspace against OVS AF_PACKET", "grid", "rate").at(ONE).of(
        USERSPACE,
        Against(AF_PACKET),
        AtLeast(2.0),
    ),
    goal("64 B, 1 flow, rate per core, AF_XDP against OVS AF_XDP", "grid", "rate per core")
        .at(ONE)
        .of(OUR_AF_XDP, Against(AF_XDP), AtLeast(1.0)),
    goal("64 B, card to container, against a bare tc redirect", "one-flow", "rate per core")
        .at(TO_CONTAINER)
        .of(TCX, Against(BARE_TC), AtLeast(1.4))
        .limit(BARE_PEER),
    goal("latency p50 at half of OVS-DPDK's rate, against OVS-DPDK", "half", "latency p50")
        .of(XDP, Against(DPDK), AtMost(0.4))
        .limit(BARE),
    goal("TCP throughput against a bare tc redirect", "tcp", "throughput")
        .of(TCX, Against(BARE_TC), AtLeast(0.95))
        .limit(BARE_TC),
    goal("TCP throughput on one CPU against a bare tc redirect", "one-cpu", "throughput")
        .of(TCX, Against(BARE_TC), AtLeast(1.0))
        .limit(BARE_PEER),
    goal("TCP requests on one CPU against a bare tc redirect", "one-cpu", "requests")
        .of(TCX, Against(BARE_TC), AtLeast(1.03))
        .limit(BARE_PEER),
    goal("TCP through a stateful firewall against the same without", "firewall", "throughput")
        .at(BEHIND_FIREWALL)
        .of(TCX, Paired, AtLeast(0.95)),
    goal("new connections through it against OVS AF_PACKET", "firewall", "connections")
        .at(BEHIND_FIREWALL)
        .of(TCX, Against(AF_PACKET), AtLeast(5.0)),
    goal("new connections through it against a bridge with nftables", "firewall", "connections")
        .at(BEHIND_FIREWALL)
        .of(TCX, Against(LINUX_BRIDGE), AtLeast(1.0)),
    goal("64 B of one connection against the same without tracking", "tracked", "rate")
        .at(ONE_TRACKED)
        .of(XDP, Paired, AtLeast(0.85)),
    goal("64 B of 64 K connections against the same without tracking", "tracked", "rate")
        .at(MANY_TRACKED)
        .of(XDP, Paired, AtLeast(0.85)),
    goal("64 B through three zones and four more lookups against one", "tracked", "rate")
        .at(PIPELINE)
        .of(XDP, Paired, AtLeast(0.75)),
    goal(
        "a control request while a million connections are swept",
        "million",
        "longest request, sweeping",
    )
    .of(XDP, Worst, AtMost(10.0)),
    goal("a packet of userspace while a million are swept", "million", "delay p99.9, sweeping").of(
        USERSPACE,
        Worst,
        AtMost(1.0),
    ),
    overlay("TCP over VXLAN per CPU second against the kernel's device", VXLAN_WHOLE)
        .against(LINUX_BRIDGE, AtLeast(1.2)),
    overlay("the same where the wire has 1,500 bytes", VXLAN_CUT)
        .against(LINUX_BRIDGE, AtLeast(0.98)),
    goal("TCP over VXLAN against OVS AF_PACKET", "overlay", "throughput").at(VXLAN_WHOLE).of(
        TCX,
        Against(AF_PACKET),
        AtLeast(15.0),
    ),
    goal("TCP over Geneve against OVS AF_PACKET", "overlay", "throughput").at(GENEVE_WHOLE).of(
        TCX,
        Against(AF_PACKET),
        AtLeast(15.0),
    ),
    headers("64 B into a VXLAN tunnel over a bare redirect", INTO, 45.0),
    headers("the same and out of it again", INTO_AND_OUT, 100.0),
    // Against TCP during a flood of packets that one megaflow drops.
    goal("TCP during a flood of new flows", "flood", "throughput")
        .at(&[("flood", "new flows")])
        .of(TCX, Paired, AtLeast(0.9)),
    goal("TCP during a flood of new masks", "flood", "throughput")
        .at(&[("flood", "new masks")])
        .of(TCX, Paired, AtLeast(0.9)),
    goal("new flows a second against OVS AF_PACKET", "setup", "new flows")
        // The limit begins two to five times as many.
        .of(TCX, Against(AF_PACKET), AtLeast(1.7))
        .limit(BARE_TC),
    goal("time to add 256 K rules one by one against OVS", "rules", "time to add")
        .at(RULES)
        .of(TCX, Against(AF_PACKET), AtMost(0.8))
        .limit(ANSWERER),
    goal("time to add 256 K rules in a bundle against OVS", "rules", "time to add in a bundle")
        .at(RULES)
        .of(TCX, Against(AF_PACKET), AtMost(0.3))
        .limit(ANSWERER),
    goal("memory of 256 K rules against OVS", "rules", "memory of a rule").at(RULES).of(
        TCX,
        Against(AF_PACKET),
        AtMost(0.5),
    ),
    goal("a pass over 256 K idle megaflows", "sweep", "a pass over all megaflows")
        .at(IDLE)
        .median(TCX, AtMost(10.0)),
    goal("CPU of the daemon at 10 K flows, tcx", "cpu", "CPU, 10K flows").median(TCX, AtMost(0.3)),
    goal("CPU of the daemon at 10 K flows, xdp", "cpu", "CPU, 10K flows").median(XDP, AtMost(0.3)),
    // The largest CPU in percent that is shown as 0.0.
    goal("CPU of the daemon, idle (0, rounded to tenths)", "cpu", "CPU, idle")
        .median(TCX, AtMost(0.05)),
    goal("time to add a port, 200 at once", "ports", "time to add a port").median(TCX, AtMost(3.0)),
    goal("time to delete a port, 200 at once", "ports", "time to delete a port")
        .median(TCX, AtMost(3.0)),
    goal("packets lost over a restart, at worst", "restart", "packets lost").of(
        TCX,
        Worst,
        AtMost(0.0),
    ),
    goal(
        "translated TCP connections lost when the daemon is killed",
        "outlive",
        "connections lost",
    )
    .at(&[("end", "killed")])
    .of(TCX, Worst, AtMost(0.0)),
    goal("the same when it is upgraded to another layout of flows", "outlive", "connections lost")
        .at(&[("end", "upgraded")])
        .of(TCX, Worst, AtMost(0.0)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    #[test]
    fn goals_name_experiments_that_there_are() {
        for Goal { words, experiment, .. } in ALL {
            assert!(experiment::ALL.iter().any(|e| e.name == experiment), "{words}: {experiment}");
        }
    }
}
