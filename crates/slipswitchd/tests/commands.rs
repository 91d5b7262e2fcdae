// SPDX-License-Identifier: Apache-2.0
//! Answers of the built daemon to `ovs-appctl` in dummy mode. The texts were recorded from
//! ovs-vswitchd 3.1 in the same state.

mod text_support;

use text_support::Rig;

const UDP: &str = "recirc_id(0),in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
    ipv4(src=192.168.0.1,dst=192.168.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=9)";
const PACKET: &str = "505400000007505400000005080045000014000000004006f97ac0a80001c0a80002";

fn switch() -> Option<Rig> {
    let rig = Rig::start(env!("CARGO_BIN_EXE_slipswitchd"))?;
    rig.add_flow("priority=10,in_port=1,tcp,actions=2");
    rig.add_flow("priority=5,in_port=1,udp,actions=NORMAL");
    Some(rig)
}

#[test]
fn packets_make_megaflows_that_are_dumped_traced_and_removed() {
    let Some(rig) = switch() else { return };
    assert_eq!(rig.appctl(&["dpctl/dump-flows"]), "");
    for _ in 0..3 {
        assert_eq!(rig.appctl(&["netdev-dummy/receive", "p1", PACKET]), "");
    }
    assert_eq!(rig.appctl(&["time/warp", "1100"]), "warped\n");
    assert_eq!(rig.appctl(&["revalidator/wait"]), "");
    let key = "packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=6,frag=no)";
    let stats = "packets:2, bytes:68, used:1.100s";
    assert_eq!(
        rig.appctl(&["dpctl/dump-flows"]),
        format!(
            "flow-dump from the main thread:\nrecirc_id(0),in_port(1),{key}, {stats}, actions:2\n"
        )
    );
    assert_eq!(
        rig.appctl(&["dpif/dump-flows", "--names", "br0"]),
        format!("recirc_id(0),in_port(p1),{key}, {stats}, actions:p2\n")
    );
    let verbose = rig.appctl(&["dpctl/dump-flows", "-m", "filter=in_port(p1),tcp"]);
    assert!(verbose.contains("actions:p2, offloaded:no, dp:userspace\n"), "{verbose}");
    assert_eq!(rig.appctl(&["dpctl/dump-flows", "filter=udp"]), "");
    assert_eq!(
        rig.appctl(&["bridge/dump-flows", "--offload-stats", "br0"]).lines().next(),
        Some(
            "duration=1s, n_packets=3, n_bytes=102, n_offload_packets=0, n_offload_bytes=0, \
             priority=10,tcp,in_port=1,actions=output:2"
        )
    );
    let ufid = verbose.split("ufid:").nth(1).and_then(|t| t.split(',').next()).unwrap();
    assert!(rig.appctl(&["dpctl/get-flow", &format!("ufid:{ufid}")]).contains(stats));
    assert_eq!(rig.appctl(&["dpctl/del-flows"]), "");
    assert_eq!(rig.appctl(&["dpctl/dump-flows"]), "");
    assert_eq!(
        rig.appctl(&["dpctl/get-flow", &format!("ufid:{ufid}")]),
        "error: ovs-vswitchd: getting flow (No such file or directory)\n"
    );
}

#[test]
fn flows_of_the_datapath_by_hand() {
    let Some(rig) = switch() else { return };
    let flow = "in_port(1),eth(),eth_type(0x1234)";
    assert_eq!(rig.appctl(&["dpctl/add-flow", flow, "2"]), "");
    assert_eq!(
        rig.appctl(&["dpctl/add-flow", flow, "2"]),
        "error: ovs-vswitchd: updating flow table (File exists)\n"
    );
    assert_eq!(
        rig.appctl(&["dpctl/mod-flow", "-s", flow, "p1"]),
        "packets:0, bytes:0, used:never\n"
    );
    assert!(
        rig.appctl(&["dpctl/dump-flows"])
            .ends_with("eth_type(0x1234), packets:0, bytes:0, used:never, actions:1\n")
    );
    assert_eq!(
        rig.appctl(&["dpctl/mod-flow", "in_port(1),eth(),eth_type(0x1235)", "1"]),
        "error: ovs-vswitchd: updating flow table (No such file or directory)\n"
    );
    assert_eq!(rig.appctl(&["dpctl/del-flow", flow]), "");
    assert_eq!(
        rig.appctl(&["dpctl/del-flow", flow]),
        "error: ovs-vswitchd: deleting flow (No such file or directory)\n\
         error: Perhaps you need to specify a UFID?\n"
    );
    assert_eq!(
        rig.appctl(&["dpctl/add-flow", "foo", "bar"]),
        "error: ovs-vswitchd: parsing flow key (syntax error at foo) (Invalid argument)\n"
    );
}

#[test]
fn a_trace_with_a_packet_learns_and_one_without_does_not() {
    let Some(rig) = switch() else { return };
    let flow = "in_port=1,udp,dl_src=00:00:00:00:00:06,dl_dst=00:00:00:00:00:05";
    let text = rig.appctl(&["ofproto/trace", "br0", flow]);
    assert!(
        text.starts_with(
            "Flow: udp,in_port=1,vlan_tci=0x0000,dl_src=00:00:00:00:00:06,dl_dst=00:00:00:00:00:05,nw_src=0.0.0.0,\
             nw_dst=0.0.0.0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no,tp_src=0,tp_dst=0\n\
             \n\
             bridge(\"br0\")\n\
             -------------\n\
             \x200. udp,in_port=1, priority 5\n\
             \x20   NORMAL\n\
             \x20    -> no learned MAC for destination, flooding\n\
             \n\
             Final flow: unchanged\n\
             Megaflow: recirc_id=0,eth,udp,in_port=1,dl_src=00:00:00:00:00:06,dl_dst=00:00:00:00:00:05,nw_frag=no\n\
             Datapath actions: "
        ),
        "{text}"
    );
    let header = " port  VLAN  MAC                Age\n";
    assert_eq!(rig.appctl(&["fdb/show", "br0"]), header);
    rig.appctl(&["ofproto/trace", "br0", flow, "-generate"]);
    assert_eq!(
        rig.appctl(&["fdb/show", "br0"]),
        format!("{header}    1     0  00:00:00:00:00:06    0\n")
    );
    assert_eq!(
        rig.appctl(&["ofproto/trace", "nope", "in_port=1"]),
        "error: nope: unknown bridge\n"
    );
    assert_eq!(
        rig.appctl(&["ofproto/trace", "br0", "foo"]),
        "error: Bad openflow flow syntax: foo: unknown field foo\n"
    );
}

#[test]
fn addresses_are_added_flushed_and_aged() {
    let Some(rig) = switch() else { return };
    assert_eq!(rig.appctl(&["fdb/add", "br0", "p2", "0", "00:00:00:00:00:01"]), "");
    rig.appctl(&["netdev-dummy/receive", "p1", UDP]);
    rig.appctl(&["time/warp", "2000"]);
    let table = " port  VLAN  MAC                Age\n    2     0  00:00:00:00:00:01  static\n";
    assert_eq!(
        rig.appctl(&["fdb/show", "br0"]),
        format!("{table}    1     0  50:54:00:00:00:05    2\n")
    );
    assert_eq!(rig.appctl(&["fdb/flush", "br0"]), "table successfully flushed\n");
    assert_eq!(rig.appctl(&["fdb/show", "br0"]), table);
    assert_eq!(
        rig.appctl(&["fdb/stats-show", "br0"]),
        "Statistics for bridge \"br0\":\n\
         \x20 Current/maximum MAC entries in the table: 1/8192\n\
         \x20 Current static MAC entries in the table : 1\n\
         \x20 Total number of learned MAC entries     : 1\n\
         \x20 Total number of expired MAC entries     : 0\n\
         \x20 Total number of evicted MAC entries     : 0\n\
         \x20 Total number of port moved MAC entries  : 0\n"
    );
    assert_eq!(rig.appctl(&["fdb/del", "br0", "0", "00:00:00:00:00:01"]), "");
    assert_eq!(
        rig.appctl(&["fdb/del", "br0", "0", "00:00:00:00:00:01"]),
        "error: could not find static mac entry\n"
    );
}

#[test]
fn a_traced_packet_shows_its_own_address_and_is_not_counted() {
    let Some(rig) = switch() else { return };
    let flow = "in_port=p1,udp,dl_src=00:00:00:00:00:07,dl_dst=00:00:00:00:00:07";
    let text = rig.appctl(&["ofproto/trace", "--names", "br0", flow, "-generate"]);
    for line in [
        "Flow: udp,in_port=p1,vlan_tci=0x0000,",
        " 0. udp,in_port=p1, priority 5\n    NORMAL\n     -> learned that 00:00:00:00:00:07 is on port p1 in VLAN 0\n\
         \x20    -> learned port is input port, dropping\n",
        "Megaflow: recirc_id=0,eth,udp,in_port=p1,dl_src=",
        "Datapath actions: drop\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(rig.appctl(&["fdb/show", "br0"]).contains("    1     0  00:00:00:00:00:07    0\n"));
    assert!(!rig.appctl(&["bridge/dump-flows", "br0"]).contains("n_packets=1"));
    let text = rig.appctl(&["ofproto/trace", "br0", "in_port=1,tcp", "--names"]);
    assert!(text.contains(" 0. tcp,in_port=p1, priority 10\n    output:p2\n"), "{text}");
    assert!(text.ends_with("Datapath actions: p2\n"), "{text}");
}

#[test]
fn a_learn_action_of_a_traced_packet_adds_its_flow() {
    let Some(rig) = switch() else { return };
    rig.add_flow("in_port=1,icmp,actions=learn(table=5,NXM_OF_IN_PORT[],output:NXM_OF_IN_PORT[])");
    let without = rig.appctl(&["ofproto/trace", "br0", "in_port=1,icmp"]);
    assert!(
        without.contains(" >> suppressing side effects, so learn action ignored\n"),
        "{without}"
    );
    assert!(!rig.appctl(&["bridge/dump-flows", "br0"]).contains("table_id=5"));
    rig.appctl(&["ofproto/trace", "br0", "in_port=1,icmp", "-generate"]);
    let flows = rig.appctl(&["bridge/dump-flows", "br0"]);
    assert!(
        flows.contains("table_id=5, ") && flows.contains("in_port=1,actions=output:1"),
        "{flows}"
    );
}

#[test]
fn a_paused_revalidator_leaves_megaflows_alone_and_catches_up() {
    let Some(rig) = switch() else { return };
    rig.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    assert_eq!(rig.appctl(&["revalidator/pause"]), "");
    rig.add_flow("priority=20,in_port=1,tcp,actions=LOCAL");
    rig.appctl(&["time/warp", "30000", "1000"]);
    let flows = rig.appctl(&["dpctl/dump-flows"]);
    assert!(
        flows.contains("actions:2\n") || flows.contains("actions:1\n"),
        "still as it was: {flows}"
    );
    assert_eq!(rig.appctl(&["revalidator/resume"]), "");
    assert_eq!(rig.appctl(&["dpctl/dump-flows"]), "", "idle for 30 s");
}

#[test]
fn features_are_listed_and_logged_from_one_table() {
    let Some(rig) = switch() else { return };
    let shown = rig.appctl(&["dpif/show-dp-features", "br0"]);
    let value = |name: &str| {
        let line = shown.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name}: {shown}")).to_owned()
    };
    let log = rig.log();
    let said = |line: &str| log.contains(&format!("|ofproto_dpif|INFO|dummy@ovs-dummy: {line}\n"));
    assert!(said("Datapath supports recirculation"), "{log}");
    assert!(
        said(&format!("VLAN header stack length probed as {}", value("Max VLAN headers"))),
        "{log}"
    );
    assert!(
        said(&format!("MPLS label stack length probed as {}", value("Max MPLS depth"))),
        "{log}"
    );
    assert!(
        said(&format!("Max sample nesting level probed as {}", value("Sample nesting"))),
        "{log}"
    );
    for (name, text) in
        [("Clone action", "clone action"), ("CT state", "ct_state"), ("Ufid", "unique flow ids")]
    {
        let verb = if value(name) == "Yes" { "supports" } else { "does not support" };
        assert!(said(&format!("Datapath {verb} {text}")), "{name}: {log}");
    }
    let start = log
        .find("|vswitchd|INFO|ovs-vswitchd (Open vSwitch) 3.1.0, Slipswitch ")
        .expect("the start line");
    assert!(start < log.find("|ofproto_dpif|").unwrap());
    // Once for the datapath, not for each bridge.
    rig.run("ovs-vsctl", &["--timeout=10", "add-br", "br1"]);
    assert_eq!(rig.log().matches("Datapath supports recirculation").count(), 1);
    assert_eq!(rig.appctl(&["dpctl/dump-dps"]), "dummy@ovs-dummy\n");
}

#[test]
fn with_dummies_for_system_devices_the_datapath_is_the_system_one() {
    let Some(rig) = Rig::launch(env!("CARGO_BIN_EXE_slipswitchd"), &["--enable-dummy=system"])
    else {
        return;
    };
    rig.run("ovs-vsctl", &["--timeout=10", "add-br", "br0"]);
    assert_eq!(rig.appctl(&["dpctl/dump-dps"]), "system@ovs-system\n");
}

/// Output of `list-commands` of ovs-vswitchd 3.1 in dummy mode, with the usage of `ovs/route/` of 3.7
/// and of `fdb/show` of 4.0.
const COMMANDS: &str = include_str!("text_support/commands.txt");

#[test]
fn every_command_of_ovs_is_there_with_its_usage() {
    let Some(rig) = switch() else { return };
    let listed = rig.appctl(&["list-commands"]);
    for line in COMMANDS.lines() {
        assert!(listed.lines().any(|l| l == line), "missing or with another usage: {line}");
    }
}

#[test]
fn with_threads_and_without_bridges() {
    let Some(mut rig) = Rig::launch(env!("CARGO_BIN_EXE_slipswitchd"), &[]) else { return };
    // The pass is made on another thread, and answered when it is over.
    assert_eq!(rig.appctl(&["revalidator/wait"]), "");
    for command in [
        "upcall/show",
        "dpif/show",
        "dpctl/show",
        "dpctl/dump-dps",
        "ofproto/list",
        "fdb/stats-clear",
    ] {
        let text = rig.appctl(&[command]);
        assert!(text.is_empty() || command == "fdb/stats-clear", "{command}: {text}");
    }
    assert_eq!(
        rig.appctl(&["dpctl/dump-flows"]),
        "error: ovs-vswitchd: datapath not found (Invalid argument)\n"
    );
    assert!(rig.appctl(&["time/stop"]).contains("is not a valid command"), "dummy mode only");
    assert_eq!(rig.appctl(&["exit"]), "");
    assert!(rig.has_ended());
}

#[test]
fn bonds_are_listed() {
    let Some(rig) = switch() else { return };
    rig.run(
        "ovs-vsctl",
        &["--timeout=10", "add-bond", "br0", "bond0", "b1", "b2", "bond_mode=active-backup"],
    );
    assert_eq!(
        rig.appctl(&["bond/list"]),
        "bond\ttype\trecircID\tmembers\nbond0\tactive-backup\t0\tb1, b2\n"
    );
    let text = rig.appctl(&["bond/show", "bond0"]);
    assert!(text.starts_with("---- bond0 ----\nbond_mode: active-backup\n"), "{text}");
    assert!(
        text.ends_with(
            "(b1)\n\nmember b1: enabled\n  active member\n  may_enable: true\n\n\
             member b2: enabled\n  may_enable: true\n\n"
        ),
        "{text}"
    );
    assert_eq!(rig.appctl(&["bond/show", "p1"]), "error: no such bond\n");
}

#[test]
fn a_bonds_primary_member_is_shown_and_active_whenever_it_is_up() {
    let Some(rig) = switch() else { return };
    rig.run("ovs-vsctl", &["--timeout=10", "add-bond", "br0", "bond0", "b1", "b2"]);
    let primary_is = |name: &str| {
        let setting = format!("other_config:bond-primary={name}");
        rig.run("ovs-vsctl", &["--timeout=10", "set", "port", "bond0", &setting]);
    };
    let shown = |primary: &str, active: &str| {
        let text = rig.appctl(&["bond/show", "bond0"]);
        assert!(text.contains(&format!("\nactive-backup primary: {primary}\nactive")), "{text}");
        assert!(text.contains(&format!("({active})\n\n")), "{text}");
        assert!(text.contains(&format!("member {active}: enabled\n  active member\n")), "{text}");
    };
    let set_state = |member: &str, state: &str| {
        assert_eq!(rig.appctl(&["netdev-dummy/set-admin-state", member, state]), "OK\n");
    };
    shown("<none>", "b1");
    primary_is("b2");
    shown("b2", "b2");
    set_state("b2", "down");
    shown("b2", "b1");
    set_state("b2", "up");
    shown("b2", "b2");
    // Without it the one that is active stays so.
    primary_is("b9");
    shown("b9 (no such member)", "b2");
    assert!(rig.log().contains("bond bond0: active member is now b2"), "{}", rig.log());
}

#[test]
fn counters_are_shown_and_read() {
    let Some(rig) = switch() else { return };
    rig.appctl(&["netdev-dummy/receive", "p1", UDP]);
    let text = rig.appctl(&["coverage/show"]);
    assert!(text.starts_with(
        "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash="
    ));
    assert!(text.trim_end().ends_with("events never hit"), "{text}");
    assert_eq!(rig.appctl(&["coverage/read-counter", "upcall_translated"]), "1\n");
    assert_eq!(rig.appctl(&["coverage/read-counter", "nope"]), "error: No such counter\n");
    for counter in ["bridge_reconfigure", "txn_success"] {
        let count = rig.appctl(&["coverage/read-counter", counter]);
        assert!(count.trim().parse::<u64>().is_ok_and(|n| n > 0), "{counter}: {count}");
    }
    for counter in
        ["dpif_flow_put_refused", "dpif_flow_put_table_full", "dpif_flow_put_port_not_here"]
    {
        assert_eq!(rig.appctl(&["coverage/read-counter", counter]), "0\n", "{counter}");
    }
    let memory = rig.appctl(&["memory/show"]);
    assert!(memory.starts_with("handlers:1 idl-cells-Open_vSwitch:"), "{memory}");
    assert!(memory.contains("ports:3") && memory.contains("udpif keys:1"), "{memory}");
    rig.add_flow("priority=9,in_port=1,udp,actions=ct(commit),2");
    rig.appctl(&["netdev-dummy/receive", "p1", UDP]);
    for (counter, count) in [
        ("conntrack_l4csum_checked", "1"),
        ("conntrack_full", "0"),
        ("ipf_stuck_frag_list_purged", "0"),
    ] {
        let read = rig.appctl(&["coverage/read-counter", counter]);
        assert_eq!(read.trim_end(), count, "{counter}");
    }
}

/// Does `event`, and waits until each counter is higher than before.
#[track_caller]
fn moves(rig: &Rig, counters: &[&str], event: impl Fn()) {
    let read = |counter: &&str| {
        let text = rig.appctl(&["coverage/read-counter", counter]);
        text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{counter}: {text}"))
    };
    let before: Vec<u64> = counters.iter().map(read).collect();
    event();
    let start = std::time::Instant::now();
    while counters.iter().map(read).zip(&before).any(|(now, before)| now <= *before) {
        assert!(start.elapsed().as_secs() < 20, "one of {counters:?} is as before: {before:?}");
        // Threads of Open vSwitch report their counts once a second of the stopped clock.
        rig.appctl(&["time/warp", "1000"]);
    }
}

/// The counters of events that both switches count move in both.
#[test]
fn counters_with_names_of_open_vswitch_move_with_its_events() {
    for daemon in [env!("CARGO_BIN_EXE_slipswitchd"), "ovs-vswitchd"] {
        let Some(rig) = Rig::start(daemon) else { return };
        let vsctl = |line: &str| {
            let args: Vec<&str> = ["--timeout=10"].into_iter().chain(line.split(' ')).collect();
            rig.run("ovs-vsctl", &args);
        };
        let appctl = |line: &str| {
            rig.appctl(&line.split(' ').collect::<Vec<_>>());
        };
        moves(
            &rig,
            &["rev_flow_table", "ofproto_recv_openflow", "vconn_received", "vconn_sent"],
            || rig.add_flow("priority=5,actions=NORMAL"),
        );
        moves(
            &rig,
            &["rev_reconfigure", "ofproto_update_port", "dpif_port_add", "bridge_reconfigure"],
            || vsctl("add-port br0 p3"),
        );
        moves(&rig, &["dpif_port_del", "ofproto_update_port"], || vsctl("del-port br0 p3"));
        moves(&rig, &["xlate_actions"], || appctl(&format!("netdev-dummy/receive p1 {PACKET}")));
        moves(&rig, &["rev_mac_learning"], || appctl(&format!("netdev-dummy/receive p2 {PACKET}")));
        moves(&rig, &["ofproto_packet_out", "xlate_actions"], || {
            rig.run(
                "ovs-ofctl",
                &["packet-out", "br0", &format!("in_port=1,packet={PACKET},actions=2")],
            );
        });
        moves(&rig, &["ofproto_queue_req"], || rig.run("ovs-ofctl", &["queue-stats", "br0"]));
        moves(&rig, &["ofproto_dpif_expired"], || {
            rig.add_flow("priority=6,in_port=1,hard_timeout=1,actions=drop");
        });
        moves(&rig, &["rev_port_toggled"], || appctl("netdev-dummy/set-admin-state p1 down"));
        vsctl("add-bond br0 bond0 b1 b2 bond_mode=active-backup");
        moves(&rig, &["rev_bond"], || {
            appctl("netdev-dummy/set-admin-state b1 down");
            appctl("netdev-dummy/set-admin-state b1 up");
            appctl("netdev-dummy/set-admin-state b2 down");
        });
        moves(&rig, &["ofproto_flush"], || vsctl("set bridge br0 fail_mode=standalone"));
        moves(&rig, &["vconn_open"], || vsctl("set-controller br0 unix:nobody"));
    }
}

#[test]
fn headers_are_extracted_once_for_each_packet() {
    let Some(rig) = switch() else { return };
    for n in 0..3 {
        assert_eq!(rig.appctl(&["coverage/read-counter", "flow_extract"]), format!("{n}\n"));
        rig.appctl(&["netdev-dummy/receive", "p1", PACKET]);
    }
}

#[test]
fn addresses_of_dummies_make_routes() {
    let Some(rig) = switch() else { return };
    let show = |arguments: &[&str]| rig.appctl(&[&["ovs/route/show"], arguments].concat());
    assert_eq!(show(&[]), "Route Table:\n");
    assert_eq!(rig.appctl(&["netdev-dummy/ip4addr", "br0", "1.1.2.88/24"]), "OK\n");
    assert_eq!(rig.appctl(&["netdev-dummy/ip6addr", "br0", "2001:cafe::88/64"]), "OK\n");
    assert_eq!(
        rig.appctl(&[
            "ovs/route/add",
            "10.0.0.0/8",
            "br0",
            "1.1.2.1",
            "src=1.1.2.88",
            "pkt_mark=7"
        ]),
        "OK\n"
    );
    let cached = "Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88 local\n\
                  Cached: 2001:cafe::/64 dev br0 SRC 2001:cafe::88 local\n";
    let user = "User: 10.0.0.0/8 MARK 7 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n";
    assert_eq!(show(&[]), format!("Route Table:\n{cached}{user}"));
    assert_eq!(show(&["table=255"]), format!("Route Table:\n{cached}"));
    assert_eq!(
        rig.appctl(&["ovs/route/lookup", "1.1.2.92"]),
        "src 1.1.2.88\ngateway ::\ndev br0\n"
    );
    assert_eq!(
        rig.appctl(&["ovs/route/lookup", "10.1.1.1", "pkt_mark=7", "src=1.1.2.88"]),
        "src 1.1.2.88\ngateway 1.1.2.1\ndev br0\n"
    );
    let error = |arguments: &[&str]| {
        let text = rig.appctl(arguments);
        text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
    };
    let add = |last: &str| error(&["ovs/route/add", "10.0.0.0/8", "br0", "1.1.2.1", last]);
    assert_eq!(add("src=1.1.2.89"), "Error while inserting route.");
    assert_eq!(add("nonsense"), "Invalid pkt_mark, IP gateway or src_ip");
    assert_eq!(add("src=::1"), "Invalid pkt_mark, IP gateway or src_ip");
    assert_eq!(add("table=nonsense"), "Invalid table format");
    assert_eq!(error(&["ovs/route/add", "nonsense", "br0"]), "Invalid 'ip/plen' parameter");
    assert_eq!(error(&["ovs/route/lookup", "10.1.1.1", "src=x"]), "Invalid pkt_mark or src");
    assert_eq!(error(&["ovs/route/lookup", "10.1.1.1", "src=9.9.9.9"]), "Not found");
}

#[test]
fn tables_and_rules_of_routes() {
    let Some(rig) = switch() else { return };
    let ok = |arguments: &[&str]| assert_eq!(rig.appctl(arguments), "OK\n", "{arguments:?}");
    let error = |arguments: &[&str], expected: &str| {
        let expected = format!("error: {expected}\n");
        assert_eq!(rig.appctl(arguments), expected, "{arguments:?}");
    };
    ok(&["netdev-dummy/ip4addr", "br0", "1.1.2.88/24"]);
    ok(&["ovs/route/add", "10.0.0.0/8", "br0", "1.1.2.1"]);
    ok(&["ovs/route/add", "10.0.0.0/8", "br0", "1.1.2.2", "table=100"]);
    assert_eq!(
        rig.appctl(&["ovs/route/show", "table=100"]),
        "Route Table #100:\nUser: 10.0.0.0/8 dev br0 GW 1.1.2.2 SRC 1.1.2.88\n"
    );
    assert_eq!(
        rig.appctl(&["ovs/route/show", "table=all"]),
        "User: 10.0.0.0/8 dev br0 GW 1.1.2.2 SRC 1.1.2.88 table 100\n\
         User: 10.0.0.0/8 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n\
         Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88 local\n"
    );
    error(&["ovs/route/show", "table=7"], "Table 'table=7' not found");
    error(&["ovs/route/show", "nonsense"], "Invalid table format");
    let standard = "Cached: 0: from all lookup local\n";
    let rest = "Cached: 32766: from all lookup main\n";
    let default = "Cached: 32767: from all lookup default\n";
    let rules = || rig.appctl(&["ovs/route/rule/show"]);
    assert_eq!(rules(), format!("{standard}{rest}{default}"));
    assert_eq!(rig.appctl(&["ovs/route/rule/show", "-6"]), format!("{standard}{rest}"));
    let gateway = |source: &[&str]| {
        let text = rig.appctl(&[&["ovs/route/lookup", "10.1.1.1"], source].concat());
        text.lines().find_map(|l| l.strip_prefix("gateway ")).map(str::to_owned)
    };
    ok(&["ovs/route/rule/add", "from=1.1.2.0/24", "table=100"]);
    ok(&["ovs/route/rule/add", "not", "from=all", "prio=5", "table=main"]);
    let added = "User: 32765: from 1.1.2.0/24  lookup 100\n";
    let not = "User: 5: not from all lookup main\n";
    assert_eq!(rules(), format!("{standard}{not}{added}{rest}{default}"));
    assert_eq!(gateway(&[]).as_deref(), Some("1.1.2.1"));
    assert_eq!(gateway(&["src=1.1.2.88"]).as_deref(), Some("1.1.2.2"));
    ok(&["ovs/route/rule/del", "from=1.1.2.0/24", "table=100"]);
    assert_eq!(gateway(&["src=1.1.2.88"]).as_deref(), Some("1.1.2.1"));
    error(
        &["ovs/route/rule/del", "from=1.1.2.0/24", "table=100"],
        "Failed to delete router rule: -2 (Unknown error -2)",
    );
    error(
        &["ovs/route/rule/del", "from=all", "table=main"],
        "Failed to delete router rule: -2 (Unknown error -2)",
    );
    error(&["ovs/route/del", "10.0.0.0/8", "table=7"], "Table table=7 not found");
    ok(&["ovs/route/del", "10.0.0.0/8", "table=100"]);
    error(&["ovs/route/show", "table=100"], "Table 'table=100' not found");
}
