// SPDX-License-Identifier: Apache-2.0
//! Commands and forms of results that came after Open vSwitch 3.1.

use crate::packets::tcp;
use slipswitch_tests::harness::{Kind, Mode, Switch};

/// Slipswitch with a bridge of `ports`, whatever daemon other tests have: Open vSwitch 3.1 lacks
/// these commands.
fn switch(ports: u32) -> Switch {
    let switch = Switch::start(Kind::Slipswitch, Mode::Dummy);
    switch.dummy_bridge(ports);
    switch
}

/// A controller of OpenFlow 1.3 that adds rules with registers that ovs-ofctl 3.1 lacks.
const RULES_WITH_REGISTERS: &str = r#"
import socket, struct
def register(number, value):
    return struct.pack('!HBBI', 0xffff, number << 1, 4 + len(value), 0x2320) + value
REG16, REG31, XXREG7 = 17, 32, 36
seven, nine = struct.pack('!I', 7), struct.pack('!I', 9)
def padded(text):
    return text + bytes(-len(text) % 8)
def set_field(field):
    size = 4 + len(field)
    return padded(struct.pack('!HH', 25, size + -size % 8) + field)
def apply(actions):
    return struct.pack('!HHI', 4, 8 + len(actions), 0) + actions
def rule(table, priority, fields, instructions):
    match = padded(struct.pack('!HH', 1, 4 + len(fields)) + fields)
    body = struct.pack('!QQBBHHHIIIHH', 0, 0, table, 0, 0, 0, priority, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0)
    body += match + instructions
    return struct.pack('!BBHI', 4, 14, 8 + len(body), 1) + body
s = socket.socket(socket.AF_UNIX)
s.connect('br0.mgmt')
s.sendall(struct.pack('!BBHI', 4, 0, 8, 1))
sets = set_field(register(REG16, seven)) + set_field(register(XXREG7, bytes(12) + nine))
s.sendall(rule(0, 1, b'', apply(sets) + struct.pack('!HHI', 1, 8, 1 << 24)))
s.sendall(rule(1, 5, register(REG16, seven) + register(REG31, nine), apply(struct.pack('!HHIHHI', 0, 16, 2, 0, 0, 0))))
s.sendall(rule(1, 0, b'', b''))
s.sendall(struct.pack('!BBHI', 4, 20, 8, 2))
while True:
    header = s.recv(8, socket.MSG_WAITALL)
    rest = s.recv(struct.unpack('!H', header[2:4])[0] - 8, socket.MSG_WAITALL)
    if header[1] == 1: print('error', rest.hex())
    if header[1] == 21: break
"#;

#[test]
fn rules_of_a_controller_use_all_registers() {
    let switch = switch(2);
    switch.sandbox().write("rules.py", RULES_WITH_REGISTERS);
    assert_eq!(switch.run("python3 rules.py"), "");
    let trace = switch.appctl("ofproto/trace br0 in_port=1,tcp");
    for line in [
        "    set_field:0x7->reg16\n    set_field:0x9->xxreg7\n",
        " 1. reg16=0x7,reg31=0x9, priority 5\n    output:2\n",
        "Final flow: tcp,reg16=0x7,reg31=0x9,in_port=1,",
        "Datapath actions: 2\n",
    ] {
        assert!(trace.contains(line), "{line}: {trace}");
    }
    let trace = switch.appctl("ofproto/trace br0 in_port=1,reg17=5,xreg15=6");
    assert!(trace.starts_with("Flow: reg17=0x5,reg31=0x6,in_port=1,"), "{trace}");
    let frame = tcp("10.0.0.1", "10.0.0.2", 1000, 80);
    switch.receive("p1", &frame);
    assert_eq!(switch.sent("p2").len(), 1);
    let dump = switch.appctl("dpctl/dump-flows");
    assert!(!dump.contains("reg"), "registers are the bridge's own: {dump}");
    assert!(
        switch.appctl("bridge/dump-flows br0").contains(
            "n_packets=1, n_bytes=118, priority=5,reg16=0x7,reg31=0x9,actions=output:2\n"
        )
    );
    // Tools of 3.1 skip the fields that they lack.
    assert!(switch.ofctl("-O OpenFlow13 dump-table-features br0").contains(" reg0...reg15 "));
}

/// Answers of the daemon to `requests`, which are sent over one connection, one line each.
fn call(switch: &Switch, requests: &str) -> String {
    const CLIENT: &str = "import glob,json,os,socket,sys\n\
        s=socket.socket(socket.AF_UNIX)\n\
        s.connect(glob.glob(os.environ[\"OVS_RUNDIR\"]+\"/ovs-vswitchd.*.ctl\")[0])\n\
        d=json.JSONDecoder()\n\
        for n,line in enumerate(sys.argv[1].split(\";\")):\n\
        \x20   method,*params=line.split()\n\
        \x20   s.sendall(json.dumps({\"method\":method,\"params\":params,\"id\":n}).encode())\n\
        \x20   text=\"\"\n\
        \x20   while True:\n\
        \x20       text+=s.recv(1<<20).decode()\n\
        \x20       try: reply,_=d.raw_decode(text); break\n\
        \x20       except ValueError: pass\n\
        \x20   print(json.dumps(reply[\"error\"] or reply[\"result\"],sort_keys=True))\n";
    switch.sandbox().write("client.py", CLIENT);
    switch.run(&format!("python3 client.py '{requests}'"))
}

#[test]
fn results_are_json_for_a_peer_that_has_asked_for_it() {
    let switch = switch(1);
    let text = call(
        &switch,
        "fdb/show br0;set-options --format json;version;dpif/show;fdb/add br0 p1 0 00:00:00:00:00:01;\
         fdb/show br0;fdb/show nowhere;set-options --format yaml;set-options --format=text;ofproto/list",
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10, "{text}");
    assert_eq!(lines[0], r#"" port  VLAN  MAC                Age\n""#);
    assert_eq!(lines[1], r#"{"reply": "", "reply-format": "plain"}"#);
    assert!(lines[2].starts_with(r#"{"reply": "ovs-vswitchd (Open vSwitch) "#), "{}", lines[2]);
    assert_eq!(
        lines[3],
        concat!(
            r#"[{"name": "dummy@ovs-dummy", "ofprotos": [{"name": "br0", "ports": ["#,
            r#"{"netdev_config": {}, "netdev_name": "br0", "netdev_type": "dummy-internal", "#,
            r#""odp_port": "100", "ofp_port": "65534"}, "#,
            r#"{"netdev_config": {}, "netdev_name": "p1", "netdev_type": "dummy", "#,
            r#""odp_port": "1", "ofp_port": "1"}]}], "stats": {"n_hit": "0", "n_missed": "0"}}]"#,
        )
    );
    assert_eq!(
        lines[5],
        r#"{"br0": [{"mac": "00:00:00:00:00:01", "port": 1, "static": true, "vlan": 0}]}"#
    );
    assert_eq!(lines[6], r#""no such bridge\n""#);
    assert_eq!(lines[7], r#""option format has invalid value yaml\n""#);
    assert_eq!(lines[9], r#""br0\n""#);
}

#[test]
fn addresses_of_several_bridges_are_shown() {
    let switch = switch(1);
    switch.vsctl("add-br other -- set bridge other datapath_type=dummy");
    switch.appctl("fdb/add br0 p1 0 00:00:00:00:00:01");
    switch.appctl("fdb/add br0 p1 4 00:00:00:00:00:02");
    let all = " Bridge  Port  VLAN  MAC                Age\n\
        \x20br0        1     0  00:00:00:00:00:01  static\n\
        \x20           1     4  00:00:00:00:00:02  static\n\
        \x20other\n";
    assert_eq!(switch.appctl("fdb/show"), all);
    assert_eq!(switch.appctl("fdb/show br0 other"), all);
    assert!(
        switch
            .appctl("fdb/show other br0")
            .starts_with(" Bridge  Port  VLAN  MAC                Age\n other\n br0 ")
    );
    assert_eq!(switch.appctl("fdb/show other"), " port  VLAN  MAC                Age\n");
    let output = switch.sh("ovs-appctl fdb/show br0 nowhere");
    assert!(!output.ok() && output.stdout.is_empty(), "{}", output.text());
    assert!(output.stderr.starts_with("no such bridge nowhere\n"), "{}", output.stderr);
    let text = call(&switch, "set-options --format json;fdb/show");
    assert_eq!(
        text.lines().nth(1),
        Some(
            r#"{"br0": [{"mac": "00:00:00:00:00:01", "port": 1, "static": true, "vlan": 0}, {"mac": "00:00:00:00:00:02", "port": 1, "static": true, "vlan": 4}], "other": []}"#
        )
    );
}

#[test]
fn groups_name_the_protocol_that_they_were_joined_by() {
    let switch = switch(3);
    switch.vsctl("set bridge br0 mcast_snooping_enable=true");
    switch.flows("br0", "actions=NORMAL");
    switch.appctl("time/stop");
    for (port, frame) in [
        // Version 2, version 1, a router; then MLD of version 1.
        (
            "p1",
            "01005e37373750540000000108004500001c00000000010298710a000001e03737371600d290e0373737",
        ),
        (
            "p2",
            "01005e37373850540000000208004500001c000000000102986f0a000002e03737381200d68fe0373738",
        ),
        (
            "p3",
            "01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000",
        ),
        (
            "p1",
            "33330000000750540000000186dd6000000000183a01fe800000000000000000000000000001ff0500000000000000000000000000078300801100000000ff050000000000000000000000000007",
        ),
    ] {
        switch.appctl(&format!("netdev-dummy/receive {port} {frame}"));
    }
    assert_eq!(
        switch.appctl("mdb/show br0"),
        " port  VLAN  protocol  GROUP                Age\n\
        \x20   1     0  IGMPv2    224.55.55.55           0\n\
        \x20   2     0  IGMPv1    224.55.55.56           0\n\
        \x20   1     0  MLDv1     ff05::7           0\n\
        \x20   3     0  UNKNOWN   querier               0\n"
    );
}

#[test]
fn a_longest_sleep_of_packet_threads_is_refused_with_the_reason() {
    let output = switch(1).sh("ovs-appctl dpif-netdev/pmd-sleep-show");
    let reason = "dpif-netdev/pmd-sleep-show: not supported by Slipswitch: packet threads sleep until a packet wakes them";
    assert!(!output.ok() && output.stderr.starts_with(reason), "{}", output.text());
}

#[test]
fn sampled_drops_are_actions_where_they_are_asked_for() {
    let switch = switch(2);
    switch.flows("br0", "in_port=1,actions=drop\nin_port=2,actions=output:1\n");
    switch.vsctl("set bridge br0 sflow=@s -- --id=@s create sflow targets=\\\"127.0.0.1:1\\\" agent=127.0.0.1 sampling=1 polling=0");
    let actions = |port: u32| switch.appctl(&format!("ofproto/trace br0 in_port={port},arp"));
    let is_drop = |port: u32| actions(port).trim_end().ends_with(",drop");
    assert!(!is_drop(1), "{}", actions(1));
    switch.vsctl("set Open_vSwitch . other_config:explicit-sampled-drops=true");
    assert!(is_drop(1), "{}", actions(1));
    assert!(!is_drop(2), "{}", actions(2));
    let drops = || switch.appctl("coverage/read-counter drop_action_of_pipeline");
    let before = drops();
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    assert_ne!(drops(), before);
    switch.vsctl("remove Open_vSwitch . other_config explicit-sampled-drops");
    assert!(!is_drop(1), "{}", actions(1));
}

#[test]
fn routes_are_json() {
    let switch = switch(1);
    switch.appctl("netdev-dummy/ip4addr br0 10.0.0.1/24");
    switch.appctl("ovs/route/add 10.1.0.0/16 br0 10.0.0.9 pkt_mark=3");
    let text = call(&switch, "set-options --format json;ovs/route/show;ovs/route/show table=77");
    let lines: Vec<&str> = text.lines().collect();
    let user = concat!(
        r#"{"dst": "10.1.0.0", "local": false, "mark": 3, "#,
        r#""nexthops": [{"dev": "br0", "gateway": "10.0.0.9"}], "prefix": 16, "#,
        r#""prefsrc": "10.0.0.1", "table": 254, "user": true}"#,
    );
    assert!(lines[1].contains(user), "{}", lines[1]);
    assert_eq!(lines[2], r#""Table 'table=77' not found\n""#);
}

#[test]
fn the_rules_of_a_megaflow_are_named() {
    let switch = switch(2);
    switch.run("ovs-ofctl -O OpenFlow13 add-group br0 group_id=7,type=indirect,bucket=output:2");
    switch.flows(
        "br0",
        "cookie=0x5,in_port=1,actions=resubmit(,3)\ntable=3,priority=9,tcp,actions=group:7\n",
    );
    for _ in 0..3 {
        switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    }
    let dump = switch.appctl("dpctl/dump-flows -m");
    let at = dump.find("ufid:").expect("a megaflow");
    let ufid = dump[at..].split(',').next().expect("an identity");
    let text = switch.appctl(&format!("ofproto/detrace {ufid}"));
    let without_time = text.replace("duration=0s, ", "").replace("duration=1s, ", "");
    assert_eq!(
        without_time,
        "cookie=0x5, n_packets=3, n_bytes=354, in_port=1,actions=resubmit(,3)\n\
         cookie=0x0, table_id=3, n_packets=3, n_bytes=354, priority=9,tcp,actions=group:7\n\
         group_id=7\n"
    );
    let gone = "ofproto/detrace ufid:00000000-0000-0000-0000-000000000001";
    assert_eq!(switch.appctl(&format!("{gone} pmd=-1")), "");
    for (bad, error) in [
        ("ofproto/detrace 17x", "failed to parse ufid"),
        (&format!("{gone} core=1"), "Invalid pmd argument format. Expecting 'pmd=PMD-ID'"),
    ] {
        let text = switch.fails(&format!("ovs-appctl {bad}"));
        assert!(text.contains(error), "{text}");
    }
}

#[test]
fn a_trace_names_the_rules_of_a_conjunction() {
    let switch = switch(2);
    switch.flows(
        "br0",
        "conj_id=1,ip,actions=2\n\
         priority=100,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)\n\
         priority=100,tcp,tp_dst=80,actions=conjunction(1,2/2),conjunction(2,1/2)\n\
         priority=100,in_port=1,actions=conjunction(2,2/3)\n",
    );
    let trace = switch.appctl("ofproto/trace br0 in_port=1,tcp,nw_src=10.0.0.1,tp_dst=80");
    let mut named: Vec<&str> = trace.lines().filter(|line| line.contains("conj. ")).collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "     -> conj. priority=100,ip,nw_src=10.0.0.1",
            "     -> conj. priority=100,tcp,tp_dst=80",
        ],
        "{trace}"
    );
    let without = switch.appctl("ofproto/trace br0 in_port=1,tcp,nw_src=10.0.0.1,tp_dst=81");
    assert!(!without.contains("conj. "), "{without}");
}

#[test]
fn a_bond_may_have_an_interface_of_its_name() {
    let switch = switch(2);
    let ports = || switch.appctl("dpif/show");
    switch.vsctl(
        "add-bond br0 bond0 b1 b2 -- set interface b1 type=dummy -- set interface b2 type=dummy \
         -- set port bond0 bond_fake_iface=true",
    );
    let named = ports();
    let line = named.lines().find(|line| line.trim_start().starts_with("bond0 "));
    assert!(line.is_some_and(|line| line.ends_with("(dummy-internal)")), "{named}");
    // It is no member, and packets that are flooded do not reach it.
    assert!(!switch.appctl("bond/show bond0").contains("member bond0"));
    switch.flows("br0", "actions=NORMAL");
    let trace = switch.appctl("ofproto/trace br0 in_port=1,dl_dst=ff:ff:ff:ff:ff:ff");
    let last = trace.lines().last().unwrap_or_default();
    assert_eq!(last.matches(',').count(), 2, "{trace}");
    switch.vsctl("set port bond0 bond_fake_iface=false");
    assert!(!ports().contains("bond0 "), "{}", ports());
}

#[test]
fn neighbours_are_asked_for_once_a_second() {
    let switch = switch(1);
    switch.vsctl(
        "add-br over -- set bridge over datapath_type=dummy \
         -- add-port over t -- set interface t type=gre options:remote_ip=172.31.1.2 \
         -- add-port over p9 -- set interface p9 type=dummy",
    );
    switch.appctl("netdev-dummy/ip4addr br0 172.31.1.1/24");
    switch.appctl("ovs/route/add 172.31.1.0/24 br0");
    switch.flows("br0", "in_port=LOCAL,actions=1");
    switch.flows("over", "in_port=p9,actions=t");
    let asked = || {
        let text = switch.run("ovs-ofctl dump-ports br0 1");
        let (_, sent) = text.split_once("tx pkts=").expect("counters");
        sent.split(',').next().expect("a number").to_owned()
    };
    assert_eq!(switch.appctl("tnl/neigh/retrans_time"), "1000\n");
    let send = || switch.receive("p9", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    (0..3).for_each(|_| send());
    assert_eq!(asked(), "1");
    // Packets that a megaflow drops ask when they are counted.
    let send_and_count = || {
        send();
        switch.appctl("revalidator/wait");
    };
    send_and_count();
    assert_eq!(asked(), "1");
    switch.appctl("time/warp 1000");
    send_and_count();
    assert_eq!(asked(), "2");
    assert_eq!(switch.appctl("tnl/neigh/retrans_time 0"), "OK\n");
    send_and_count();
    assert_eq!(asked(), "3");
    let text = switch.fails("ovs-appctl tnl/neigh/retrans_time 3x");
    assert!(text.contains("bad retrans_time value"), "{text}");
    let text = switch.fails("ovs-appctl tnl/neigh/retrans_time 900001");
    assert!(text.contains("retrans_time value cannot be greater than aging"), "{text}");
}
