// SPDX-License-Identifier: Apache-2.0
//! OpenFlow as `ovs-ofctl` speaks it, in every version.

use slipswitch_tests::harness::{Switch, wait_until};
use std::time::Duration;

const VERSIONS: [&str; 6] =
    ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

#[test]
fn every_version_shows_and_changes_the_same_switch() {
    let switch = Switch::dummy(2);
    for version in VERSIONS {
        let text = switch.ofctl(&format!("-O {version} show br0"));
        assert!(
            text.contains("OFPT_FEATURES_REPLY") && text.contains("dpid:fedcba9876543210"),
            "{version}: {text}"
        );
        switch.ofctl(&format!("-O {version} del-flows br0"));
        switch.ofctl(&format!(
            "-O {version} add-flow br0 priority=5,tcp,nw_dst=10.0.0.1,tp_dst=80,actions=output:2"
        ));
        assert_eq!(
            switch.dump(&format!("-O {version} --no-names br0")),
            ["priority=5,tcp,nw_dst=10.0.0.1,tp_dst=80 actions=output:2"],
            "{version}"
        );
        switch.ofctl(&format!(
            "-O {version} --strict mod-flows br0 priority=5,tcp,nw_dst=10.0.0.1,tp_dst=80,actions=output:1"
        ));
        assert_eq!(
            switch.dump("--no-names br0"),
            ["priority=5,tcp,nw_dst=10.0.0.1,tp_dst=80 actions=output:1"],
            "{version}"
        );
        let text = switch.ofctl(&format!("-O {version} dump-aggregate br0"));
        assert!(text.contains("flow_count=1"), "{version}: {text}");
        for command in [
            "dump-desc",
            "dump-tables",
            "dump-ports",
            "dump-ports-desc",
            "probe",
            "get-frags",
            "queue-stats",
        ] {
            let output = switch.sh(&format!("ovs-ofctl -O {version} {command} br0"));
            assert!(output.ok(), "{version} {command}: {}", output.text());
        }
    }
}

#[test]
fn protocols_of_a_bridge_bound_its_versions() {
    let switch = Switch::dummy(1);
    switch.vsctl("set bridge br0 protocols=OpenFlow13");
    let text = switch.fails("ovs-ofctl -O OpenFlow10 show br0");
    assert!(text.contains("version negotiation failed"), "{text}");
    switch.ofctl("-O OpenFlow13 show br0");
}

#[test]
fn dump_desc_describes_the_switch() {
    let switch = Switch::dummy(1);
    switch.vsctl("set bridge br0 other_config:dp-desc=here other_config:dp-sn=42");
    let text = switch.ofctl("dump-desc br0");
    assert!(
        text.contains("Manufacturer: ")
            && text.contains("Serial Num: 42")
            && text.contains("DP Description: here"),
        "{text}"
    );
}

#[test]
fn dump_ports_desc_names_every_port() {
    let switch = Switch::dummy(3);
    let text = switch.ofctl("dump-ports-desc br0");
    for port in ["1(p1)", "2(p2)", "3(p3)", "LOCAL(br0): addr:aa:55:aa:55:00:00"] {
        assert!(text.contains(port), "{text}");
    }
}

#[test]
fn dump_tables_counts_lookups() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    switch.receive("p1", &crate::packets::ip("10.0.0.1", "10.0.0.2"));
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "50:54:00:00:00:02"));
    switch.revalidate();
    let text = switch.ofctl("dump-tables br0");
    assert!(text.contains("active=1, lookup=2, matched=1"), "{text}");
}

#[test]
fn table_features_and_names_are_there() {
    let switch = Switch::dummy(1);
    let text = switch.ofctl("-O OpenFlow13 dump-table-features br0");
    assert!(text.contains("table 0"), "{text}");
    switch.vsctl("-- --id=@t create Flow_Table name=main -- set bridge br0 flow_tables:0=@t");
    switch.ofctl("-O OpenFlow15 add-flow br0 table=main,ip,actions=drop");
    assert!(switch.ofctl("-O OpenFlow15 --names dump-flows br0").contains("table=main"));
}

#[test]
fn a_packet_out_leaves_where_it_is_sent() {
    let switch = Switch::dummy(2);
    let frame = "505400000002505400000001080045000014000000004063669a0a0000010a000002";
    switch.ofctl(&format!("packet-out br0 in_port=controller,packet={frame},actions=output:2"));
    assert_eq!(switch.sent_hex("p2"), [frame]);
    switch.flows("br0", "in_port=1,actions=2");
    switch.ofctl(&format!("packet-out br0 in_port=1,packet={frame},actions=TABLE"));
    assert_eq!(switch.sent_hex("p2").len(), 2);
    assert_eq!(switch.counts("br0").0, 1);
}

#[test]
fn errors_carry_the_type_and_code_of_openflow() {
    let switch = Switch::dummy(2);
    for (arguments, error) in [
        ("add-flow br0 actions=group:1234 -O OpenFlow13", "OFPBAC_BAD_OUT_GROUP"),
        ("-O OpenFlow13 add-flow br0 actions=meter:99", "OFPMMFC_INVALID_METER"),
        (
            "-O OpenFlow13 mod-group br0 group_id=77,type=all,bucket=output:1",
            "OFPGMFC_UNKNOWN_GROUP",
        ),
        (
            "-O OpenFlow13 mod-meter br0 meter=7,pktps,bands=type=drop,rate=1",
            "OFPMMFC_UNKNOWN_METER",
        ),
        ("mod-port br0 77 up", "couldn't find port"),
    ] {
        let output = switch.sh(&format!("ovs-ofctl {arguments}"));
        assert!(!output.ok() && output.stderr.contains(error), "{arguments}: {}", output.text());
    }
    assert!(switch.sh("ovs-ofctl show br0").ok());
}

#[test]
fn the_same_group_twice_is_an_error() {
    let switch = Switch::dummy(2);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1");
    let text =
        switch.fails("ovs-ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1");
    assert!(text.contains("OFPGMFC_GROUP_EXISTS"), "{text}");
}

#[test]
fn snoop_shows_what_goes_over_a_bridge() {
    let switch = Switch::dummy(2);
    switch.run("ovs-testcontroller --detach --no-chdir --pidfile=controller.pid --unixctl=controller.ctl -vconsole:off punix:controller.sock");
    switch.vsctl("set-controller br0 unix:controller.sock");
    let snooping = wait_until(Duration::from_secs(5), || {
        switch.appctl("time/warp 1000");
        switch.sh("ovs-ofctl -vconsole:off snoop br0 --detach --no-chdir --pidfile=snoop.pid --unixctl=snoop.ctl >snoop.txt 2>&1").ok()
    });
    assert!(snooping, "{}", switch.sandbox().read("snoop.txt"));
    // The controller may still be at its handshake.
    let seen = wait_until(Duration::from_secs(5), || {
        switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
        switch.sandbox().read("snoop.txt").contains("PACKET_IN")
    });
    assert!(seen, "{}", switch.sandbox().read("snoop.txt"));
}

#[test]
fn bridge_dump_flows_shows_hidden_ones_too() {
    let switch = Switch::dummy(1);
    switch.vsctl("set bridge br0 fail_mode=standalone");
    switch
        .vsctl("set-controller br0 unix:nobody.sock -- set controller br0 connection_mode=in-band");
    let text = switch.appctl("bridge/dump-flows br0");
    assert!(text.contains("table_id=254"), "{text}");
    assert!(text.contains("duration="), "{text}");
}

#[test]
fn queue_config_requests_are_answered() {
    let switch = Switch::dummy(1);
    let text = switch.ofctl("queue-get-config br0 1");
    assert!(text.contains("OFPT_QUEUE_GET_CONFIG_REPLY"), "{text}");
}
