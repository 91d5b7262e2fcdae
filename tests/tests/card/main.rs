// SPDX-License-Identifier: Apache-2.0
//! Flows in a card: the daemon over the card in software of `tests/card`, which `cargo xtask vm`
//! builds. There is one card, so one test runs at a time.

mod meters;
mod tools;
mod tunnels;

use slipswitch_tests::harness::wait_until;
use tools::{SOON, Site, sees};

/// The rules that the tests use: the card has one flow for each direction of each pair.
const TWO_WAY: &str = "priority=10,icmp,in_port=card0,actions=card1
                       priority=10,icmp,in_port=card1,actions=card0
                       priority=1,actions=NORMAL";

#[test]
fn packets_of_a_flow_in_the_card_never_reach_the_host() {
    let Some(site) = Site::new("") else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "offloaded:yes, dp:tc,"]);
    sees(&site, &["in_port(card1)", "icmp", "offloaded:yes, dp:tc,"]);
    let filters = site.filters("card0");
    assert!(filters.contains("skip_sw") && filters.contains("in_hw in_hw_count 1"), "{filters}");
    let (hits, before) = (site.debug("hits"), site.switch.counts("br0 icmp,in_port=card0").0);
    assert_eq!(site.a.ping("10.0.0.2", 20), 20);
    assert_eq!(site.debug("hits") - hits, 40, "both directions");
    let counted =
        wait_until(SOON, || site.switch.counts("br0 icmp,in_port=card0").0 == before + 20);
    assert!(counted, "{:?} after {before}", site.switch.counts("br0 icmp,in_port=card0"));
    let dump = |kind: &str| site.switch.appctl(&format!("dpctl/dump-flows -m type={kind}"));
    for kind in ["tc", "offloaded"] {
        assert!(dump(kind).contains("dp:tc"), "{}", dump(kind));
    }
    for kind in ["ovs", "non-offloaded"] {
        assert!(!dump(kind).contains("dp:tc,"), "{}", dump(kind));
    }
    let stats = site.switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains(", tc: "), "{stats}");
    assert!(site.switch.log().contains("card0: hw-tc-offload is on from now on"));
    assert_eq!(site.switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_refused_flow_runs_in_bpf_and_the_drivers_explanation_is_shown() {
    // The bit of FLOW_ACTION_VLAN_PUSH (include/net/flow_offload.h).
    let Some(site) = Site::new("refuse=0x100") else { return };
    site.switch.flows(
        "br0",
        "priority=10,icmp,in_port=card0,actions=mod_vlan_vid:5,card2,strip_vlan,card1
         priority=1,actions=NORMAL",
    );
    site.warm();
    sees(&site, &["in_port(card1)", "offloaded:yes, dp:tc,"]);
    sees(&site, &["in_port(card0)", "push_vlan", "offloaded:partial", "card-refused"]);
    let stats = site.switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains("swcard: the card lacks an action"), "{stats}");
    assert!(site.switch.counter("dpif_flow_offload_card_refused") >= 1);
}

#[test]
fn a_change_of_rules_reaches_the_card_under_traffic() {
    let Some(site) = Site::new("") else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    let load = site.a.pinging("10.0.0.2", 2);
    for _ in 0..5 {
        site.switch.ofctl("add-flow br0 priority=20,icmp,in_port=card0,actions=card1,card2");
        sees(&site, &["in_port(card0)", "icmp", "dp:tc,", "actions:card1,card2"]);
        site.switch.ofctl("--strict del-flows br0 priority=20,icmp,in_port=card0");
        sees(&site, &["in_port(card0)", "icmp", "dp:tc,", "actions:card1"]);
    }
    let echoes = load.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}", echoes.said);
    site.switch.ofctl("add-flow br0 priority=20,icmp,in_port=card0,actions=drop");
    assert_eq!(site.a.ping("10.0.0.2", 5), 0);
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,", "actions:drop"]);
}

#[test]
fn in_a_full_card_busy_flows_take_the_place_of_cold_ones() {
    let Some(site) = Site::new("room=4") else { return };
    // A flow for each host that is pinged, as the rule matches the address.
    site.b.netns.sh("for n in $(seq 10 19); do ip addr add 10.0.0.$n/24 dev eth0; done");
    let rules: String =
        (10..20).map(|n| format!("priority=10,icmp,nw_dst=10.0.0.{n},actions=card1\n")).collect();
    site.switch.flows("br0", &format!("{rules}priority=1,actions=NORMAL"));
    for n in 10..20 {
        assert!(site.a.reaches(&format!("10.0.0.{n}"), SOON), "{}", site.switch.story());
    }
    assert!(site.debug("rules") <= 4);
    let busy = wait_until(SOON, || {
        site.a.ping("10.0.0.19", 20);
        !site.megaflows(&["in_port(card0)", "10.0.0.19", "dp:tc,"]).is_empty()
    });
    assert!(busy, "{}", site.megaflows(&[]).join("\n"));
    assert!(site.debug("rules") <= 4);
    let in_card = site.megaflows(&["dp:tc,"]).len();
    assert!(in_card <= 4, "{}", site.megaflows(&[]).join("\n"));
}

#[test]
fn other_programs_filters_and_qdiscs_stay() {
    let Some(site) = Site::new("") else { return };
    site.switch.netns().sh("tc qdisc add dev card2 clsact
         tc filter add dev card2 ingress prio 7 protocol ip flower dst_ip 1.2.3.4 action drop
         tc filter add dev card0 ingress prio 7 protocol ip flower dst_ip 1.2.3.4 action drop");
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    site.switch.vsctl("set Open_vSwitch . other_config:hw-offload=false");
    let gone = wait_until(SOON, || !site.filters("card0").contains("skip_sw"));
    assert!(gone, "{}", site.filters("card0"));
    assert!(site.filters("card0").contains("1.2.3.4"));
    assert!(site.filters("card2").contains("1.2.3.4"));
    assert!(site.megaflows(&["dp:tc,"]).is_empty());
    sees(&site, &["in_port(card0)", "icmp"]);
    assert!(site.megaflows(&["tier-disabled"]).is_empty(), "nothing mentions the tier");
    assert_eq!(site.a.ping("10.0.0.2", 5), 5);
    site.switch.vsctl("set Open_vSwitch . other_config:hw-offload=true");
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
}

#[test]
fn a_lost_filter_and_a_port_that_goes_are_noticed() {
    let Some(site) = Site::new("") else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    // All of this switch's priorities.
    let delete = "tc filter del dev card0 ingress pref $n 2>/dev/null";
    site.switch.netns().sh(&format!("for n in $(seq 29536 29547); do {delete}; done; true"));
    let again = wait_until(SOON, || {
        site.a.ping("10.0.0.2", 5);
        let is_lost = site.switch.counter("dpif_flow_offload_lost") > 0;
        is_lost && site.filters("card0").contains("in_hw in_hw_count")
    });
    assert!(again, "{}", site.megaflows(&[]).join("\n"));
    site.switch.vsctl("del-port br0 card1");
    let gone = wait_until(SOON, || !site.filters("card0").contains("icmp"));
    assert!(gone, "{}", site.filters("card0"));
    assert_eq!(site.filters("card1"), "", "the port's own, too");
    site.switch.vsctl("add-port br0 card1");
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
}

#[test]
fn filters_of_a_killed_daemon_forward_and_the_next_one_removes_them() {
    let Some(mut site) = Site::new("") else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    site.switch.kill_daemon();
    assert_eq!(site.a.ping("10.0.0.2", 5), 5, "the card goes on");
    site.switch.vsctl("--no-wait set Open_vSwitch . other_config:hw-offload=false");
    site.switch.start_daemon();
    assert!(site.switch.log().contains("filters that an earlier daemon left for cards"));
    assert!(!site.filters("card0").contains("skip_sw"), "{}", site.filters("card0"));
    assert_eq!(site.debug("rules"), 0);
}

#[test]
fn settings_keep_ports_and_flows_out_of_the_card() {
    let Some(site) = Site::new("") else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    site.switch.vsctl("set Interface card0 other_config:hw-offload-priority=none");
    sees(&site, &["in_port(card0)", "icmp", "dp:tcx", "tier-setting"]);
    sees(&site, &["in_port(card1)", "icmp", "dp:tc,"]);
    site.switch.vsctl("remove Interface card0 other_config hw-offload-priority");
    sees(&site, &["in_port(card0)", "icmp", "dp:tc,"]);
    site.switch.vsctl("set Open_vSwitch . other_config:tc-policy=skip_hw");
    let none = wait_until(SOON, || site.debug("rules") == 0);
    assert!(none, "{}", site.megaflows(&[]).join("\n"));
    assert!(site.switch.log().contains("tc-policy=skip_hw keeps flows from cards"));
}
