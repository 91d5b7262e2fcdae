// SPDX-License-Identifier: Apache-2.0
//! In dummy mode: rows, columns, rules, connections.

use crate::rig::{OURS, PATIENCE, REAL, Rig, text, told, until, words};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SETUP: &str = "add-br br0 -- set bridge br0 fail_mode=secure \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 tag=5 -- set interface p2 ofport_request=2 \
    -- add-port br0 i3 -- set interface i3 type=internal ofport_request=3 \
    -- add-port br0 v4 -- set interface v4 type=vxlan options:remote_ip=192.0.2.1 ofport_request=4 \
    -- add-port br0 q5 -- set interface q5 type=patch options:peer=q6 ofport_request=5 \
    -- add-br br1 -- add-port br1 q6 -- set interface q6 type=patch options:peer=q5 ofport_request=6 \
    -- add-port br1 q7 -- set interface q7 type=patch \
    -- add-port br1 q8 -- set interface q8 type=patch options:peer=q8 \
    -- add-port br1 q9 -- set interface q9 type=patch options:peer=nobody ofport_request=9 \
    -- add-bond br1 bond0 b1 b2 -- set interface b1 ofport_request=11 -- set interface b2 ofport_request=12";

/// Returns the columns and rules that a switch shows, in a fixed order.
fn picture(rig: &Rig) -> String {
    let mut out = String::new();
    let show = rig.vsctl_ok(&["show"]);
    let lines: BTreeSet<&str> = show.lines().skip(1).collect();
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    let columns = "name,type,ofport,error,admin_state,link_state,link_speed,link_resets,duplex,mtu,ifindex,status";
    let mut names: Vec<String> = rig
        .vsctl_ok(&["--bare", "--columns=name", "list", "interface"])
        .lines()
        .filter(|l| !l.is_empty())
        .map(str::to_owned)
        .collect();
    names.sort();
    for name in names {
        let _ = writeln!(
            out,
            "{}",
            rig.vsctl_ok(&[&format!("--columns={columns}"), "list", "interface", &name])
        );
    }
    for bridge in ["br0", "br1"] {
        let _ = writeln!(out, "{:?}", rig.rules(bridge));
        let _ = writeln!(out, "{}", rig.vsctl_ok(&["get", "bridge", bridge, "datapath_version"]));
    }
    let columns = "--columns=datapath_types,dpdk_initialized,dpdk_version,cur_cfg,next_cfg";
    let _ = writeln!(out, "{}", rig.vsctl_ok(&[columns, "list", "open_vswitch"]));
    out
}

#[test]
fn columns_are_those_of_open_vswitch() {
    let pictures = [OURS, REAL].map(|program| {
        let rig = Rig::new(program);
        let _ = rig.vsctl(&words(SETUP)); // fails: some interfaces have errors
        picture(&rig)
    });
    let [ours, real] = pictures;
    assert!(ours.contains("q7: patch type requires valid 'peer' argument"), "{ours}");
    for (a, b) in ours.lines().zip(real.lines()) {
        assert_eq!(a, b, "ours:\n{ours}\nreal:\n{real}");
    }
    assert_eq!(ours.lines().count(), real.lines().count());
}

#[test]
fn a_bridge_takes_its_address_and_id_as_open_vswitch_does() {
    let rig = Rig::ours();
    rig.vsctl_ok(&["add-br", "br0"]);
    let uuid = rig.vsctl_ok(&["get", "bridge", "br0", "_uuid"]);
    let hex: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal");
    let mac =
        [byte(3) & !1 | 2, byte(2), byte(1), byte(0), byte(7), byte(6)].map(|b| format!("{b:02x}"));
    assert_eq!(rig.interface("br0", "mac_in_use"), format!("\"{}\"", mac.join(":")));
    assert_eq!(
        rig.vsctl_ok(&["get", "bridge", "br0", "datapath_id"]),
        format!("\"0000{}\"", mac.concat())
    );

    rig.vsctl_ok(&["set", "bridge", "br0", "other_config:hwaddr=02:11:22:33:44:55"]);
    assert_eq!(rig.interface("br0", "mac_in_use"), "\"02:11:22:33:44:55\"");
    assert_eq!(rig.vsctl_ok(&["get", "bridge", "br0", "datapath_id"]), "\"0000021122334455\"");
    rig.vsctl_ok(&[
        "set",
        "bridge",
        "br0",
        "other_config:datapath-id=00000000000000ab",
        "other_config:dp-desc=hello",
    ]);
    assert_eq!(rig.vsctl_ok(&["get", "bridge", "br0", "datapath_id"]), "\"00000000000000ab\"");
    let desc = text(rig.ofctl(&["dump-desc", "br0"]), &["dump-desc"]);
    assert!(desc.contains("DP Description: hello"), "{desc}");
    let release = slipswitchd::args::VERSION_LINE.rsplit(' ').next().expect("a version");
    for line in ["Manufacturer: Nicira, Inc.", "Hardware: Open vSwitch", "Serial Num: None"] {
        assert!(desc.contains(line), "{desc}");
    }
    assert!(desc.contains(&format!("Software: {release}\n")), "{desc}");
    // An invalid value is ignored, and the log reports it.
    rig.vsctl_ok(&[
        "set",
        "bridge",
        "br0",
        "other_config:datapath-id=xyz",
        "other_config:hwaddr=nonsense",
    ]);
    assert_eq!(
        rig.vsctl_ok(&["get", "bridge", "br0", "datapath_id"]),
        format!("\"0000{}\"", mac.concat())
    );
    // Scripts for Open vSwitch set ids that it ignores without a word: no warning.
    let note = "|INFO|bridge br0: other_config:datapath-id \"xyz\" is not";
    assert!(rig.log().contains(note), "{}", rig.log());
}

#[test]
fn rows_without_sense_get_an_error_and_harm_nothing() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words("add-br br0 -- add-port br0 p1"));
    let failed =
        rig.vsctl(&words("add-port br0 bad -- set interface bad type=nonsense -- add-port br0 p2"));
    assert!(told(&failed).contains("Error detected while setting up 'bad'"), "{}", told(&failed));
    assert_eq!(rig.interface("bad", "ofport"), "-1");
    assert!(rig.interface("bad", "error").contains("could not open network device bad ("));
    assert_eq!(rig.interface("bad", "mtu"), "[]");
    assert_eq!(rig.interface("p2", "ofport"), "2");
    // A bridge that cannot be made does not keep others from being made.
    let failed =
        rig.vsctl(&words("add-br br2 -- set bridge br2 datapath_type=foo -- add-port br0 p3"));
    assert!(told(&failed).contains("Error detected while setting up 'br2'"), "{}", told(&failed));
    assert_eq!(rig.interface("p3", "ofport"), "3");
    assert!(rig.log().contains("unknown datapath type foo"));
    assert!(!rig.path("br2.mgmt").exists());
    rig.vsctl_ok(&["set", "bridge", "br2", "datapath_type=netdev"]);
    assert!(rig.path("br2.mgmt").exists());
    assert_eq!(rig.interface("br2", "ofport"), "65534");
    let _ = rig.vsctl(&["set", "bridge", "br2", "datapath_type=foo"]);
    assert_eq!(rig.interface("br2", "ofport"), "[]");
    rig.vsctl_ok(&["del-br", "br2"]);
    // Repaired, the interface works, and the others were not touched.
    rig.vsctl_ok(&words("set interface bad type=dummy"));
    assert_eq!(rig.interface("bad", "error"), "[]");
    assert_ne!(rig.interface("bad", "ofport"), "-1");
    // Broken again, it is closed.
    rig.vsctl_ok(&words("set interface bad type=nonsense"));
    assert_eq!(rig.interface("bad", "ofport"), "-1");
    let log = rig.log();
    for port in ["p1", "p2", "p3"] {
        assert_eq!(log.matches(&format!("added interface {port} on")).count(), 1, "{log}");
        assert!(!log.contains(&format!("deleted interface {port} ")), "{log}");
    }
    // A remark about a row is logged once.
    assert_eq!(log.matches("could not open network device bad (").count(), 2, "{log}");
}

#[test]
fn vsctl_returns_at_once() {
    let rig = Rig::ours();
    rig.vsctl_ok(&["add-br", "br0"]);
    let before = Instant::now();
    for i in 1..=10 {
        rig.vsctl_ok(&["add-port", "br0", &format!("p{i}")]);
        assert_eq!(rig.interface(&format!("p{i}"), "ofport"), i.to_string());
    }
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    let cfg = rig.vsctl_ok(&["get", "open_vswitch", ".", "cur_cfg"]);
    assert_eq!(cfg, rig.vsctl_ok(&["get", "open_vswitch", ".", "next_cfg"]));
}

#[test]
fn numbers_stay_over_restarts_and_follow_requests() {
    let mut rig = Rig::ours();
    rig.vsctl_ok(&words("add-br br0 -- add-port br0 a -- add-port br0 b -- add-port br0 c"));
    rig.vsctl_ok(&["del-port", "a"]);
    rig.vsctl_ok(&["add-port", "br0", "d"]);
    assert_eq!(rig.interface("d", "ofport"), "4", "numbers are reused late");
    let numbers = |rig: &Rig| ["b", "c", "d"].map(|p| rig.interface(p, "ofport"));
    let before = numbers(&rig);
    rig.daemon = None;
    assert!(!rig.path("br0.mgmt").exists(), "the socket outlives the daemon");
    rig.start_daemon();
    until("the bridge is there", || rig.path("br0.mgmt").exists());
    assert_eq!(numbers(&rig), before);
    rig.vsctl_ok(&["set", "interface", "d", "ofport_request=40"]);
    assert_eq!(rig.interface("d", "ofport"), "40");
    // A number that another port has is not given.
    rig.vsctl_ok(&["set", "interface", "c", "ofport_request=40"]);
    assert_eq!(rig.interface("c", "ofport"), before[1]);
    rig.vsctl_ok(&["del-port", "d"]);
    assert_eq!(rig.interface("c", "ofport"), "40");
}

#[test]
fn a_bonds_active_member_is_written_and_stays_over_restarts() {
    let mut rig = Rig::ours();
    let appctl = |rig: &Rig, args: &[&str]| {
        let output = rig.command("ovs-appctl").arg("--timeout=20").args(args).output();
        text(output.expect("ovs-appctl runs"), args)
    };
    let written = |rig: &Rig| rig.vsctl_ok(&["get", "port", "bond0", "bond_active_slave"]);
    let is_active = |rig: &Rig, member: &str| written(rig) == rig.interface(member, "mac_in_use");
    rig.vsctl_ok(&words("add-br br0 -- add-bond br0 bond0 b1 b2 -- add-port br0 p1"));
    assert!(is_active(&rig, "b1"), "{}", written(&rig));
    assert_eq!(rig.vsctl_ok(&["get", "port", "p1", "bond_active_slave"]), "[]", "no bond");
    appctl(&rig, &["netdev-dummy/set-admin-state", "b1", "down"]);
    until("another member is written", || is_active(&rig, "b2"));
    appctl(&rig, &["netdev-dummy/set-admin-state", "b2", "down"]);
    until("none is written", || written(&rig) == "\"00:00:00:00:00:00\"");
    appctl(&rig, &["netdev-dummy/set-admin-state", "b2", "up"]);
    until("it is written again", || is_active(&rig, "b2"));
    appctl(&rig, &["netdev-dummy/set-admin-state", "b1", "up"]);

    rig.daemon = None;
    rig.start_daemon();
    until("the bridge is there", || rig.path("br0.mgmt").exists());
    let shown = appctl(&rig, &["bond/show", "bond0"]);
    assert!(shown.contains("member b2: enabled\n  active member\n"), "{shown}");
    assert!(is_active(&rig, "b2"), "{}", written(&rig));
}

#[test]
fn interfaces_move_between_bridges_in_one_step() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words("add-br br0 -- add-br br1 -- add-port br1 p"));
    rig.vsctl_ok(&words("del-port br1 p -- add-port br0 p"));
    assert_eq!(rig.interface("p", "error"), "[]");
    rig.vsctl_ok(&words("del-port br0 p -- add-port br1 p"));
    assert_eq!(rig.interface("p", "error"), "[]");
    assert_eq!(rig.vsctl_ok(&["port-to-br", "p"]), "br1");
}

#[test]
fn fail_modes_without_controllers() {
    let rig = Rig::ours();
    let normal = ["priority=0 actions=NORMAL"];
    rig.vsctl_ok(&["add-br", "br0"]);
    assert_eq!(rig.rules("br0"), normal);
    text(rig.ofctl(&["del-flows", "br0"]), &["del-flows"]);
    assert!(rig.rules("br0").is_empty(), "the first rule is a rule like others");
    text(rig.ofctl(&["add-flow", "br0", "priority=7,actions=drop"]), &["add-flow"]);
    // A change that does not concern the fail mode leaves rules alone.
    rig.vsctl_ok(&["add-port", "br0", "p1"]);
    assert_eq!(rig.rules("br0"), ["priority=7 actions=drop"]);
    rig.vsctl_ok(&["set-fail-mode", "br0", "secure"]);
    assert!(rig.rules("br0").is_empty());
    rig.vsctl_ok(&["set-fail-mode", "br0", "standalone"]);
    assert_eq!(rig.rules("br0"), normal);
    // A passive controller is no controller for the fail mode; an active one is.
    rig.vsctl_ok(&["set-controller", "br0", "punix:br0.extra"]);
    assert_eq!(rig.rules("br0"), normal);
    until("the passive controller listens", || rig.path("br0.extra").exists());
    rig.vsctl_ok(&["set-controller", "br0", "unix:nobody.sock"]);
    assert!(rig.rules("br0").is_empty());
    assert!(!rig.path("br0.extra").exists());
    rig.vsctl_ok(&["del-controller", "br0"]);
    assert_eq!(rig.rules("br0"), normal);
    // A controller that the daemon may not connect to does not count.
    rig.vsctl_ok(&["set-controller", "br0", "unix:/nowhere/else.sock"]);
    assert_eq!(rig.rules("br0"), normal);
    assert!(rig.log().contains("not connecting to \"unix:/nowhere/else.sock\""), "{}", rig.log());
    rig.vsctl_ok(&words("add-br br1 -- set-fail-mode br1 secure"));
    assert!(rig.rules("br1").is_empty());
}

#[test]
fn protocols_are_the_ones_that_are_allowed() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words("add-br br0 -- set bridge br0 protocols=OpenFlow13,OpenFlow15"));
    assert!(!rig.ofctl(&["-O", "OpenFlow10", "dump-flows", "br0"]).status.success());
    assert!(rig.ofctl(&["-O", "OpenFlow13", "dump-flows", "br0"]).status.success());
    rig.vsctl_ok(&words("clear bridge br0 protocols"));
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        assert!(rig.ofctl(&["-O", version, "dump-flows", "br0"]).status.success(), "{version}");
    }
}

#[test]
fn flow_tables_have_names_and_limits() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words(
        "add-br br0 -- set-fail-mode br0 secure \
         -- --id=@t create flow_table name=first flow_limit=1 overflow_policy=refuse -- set bridge br0 flow_tables:0=@t",
    ));
    assert!(rig.ofctl(&["add-flow", "br0", "ip,actions=drop"]).status.success());
    let refused = rig.ofctl(&["add-flow", "br0", "arp,actions=drop"]);
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(err.contains("ALL_TABLES_FULL") || err.contains("TABLE_FULL"), "{err}");
    rig.vsctl_ok(&words("clear bridge br0 flow_tables"));
    assert!(rig.ofctl(&["add-flow", "br0", "arp,actions=drop"]).status.success());
}

#[test]
fn patch_ports_find_their_peers() {
    let rig = Rig::ours();
    let _ = rig.vsctl(&words(
        "add-br br0 -- add-br br1 -- add-port br0 a -- set interface a type=patch options:peer=b",
    ));
    assert!(rig.interface("a", "error").contains("No usable peer 'b'"));
    rig.vsctl_ok(&words("add-port br1 b -- set interface b type=patch options:peer=a"));
    assert_eq!(rig.interface("b", "error"), "[]");
    assert_eq!(rig.interface("a", "error"), "[]");
    rig.vsctl_ok(&["del-port", "b"]);
    assert!(rig.interface("a", "error").contains("No usable peer 'b'"));
}

#[test]
fn addresses_and_mtu_follow_their_rows() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words(
        "add-br br0 -- add-port br0 i -- set interface i type=internal mac=\"02:00:00:00:00:77\"",
    ));
    assert_eq!(rig.interface("i", "mac_in_use"), "\"02:00:00:00:00:77\"");
    rig.vsctl_ok(&["set", "interface", "i", "mtu_request=1400", "mac=\"02:00:00:00:00:78\""]);
    assert_eq!(rig.interface("i", "mtu"), "1400");
    assert_eq!(rig.interface("i", "mac_in_use"), "\"02:00:00:00:00:78\"");
    // An address that no interface can have harms neither this port nor one that is new.
    let bad = "mac=\"03:00:00:00:00:79\"";
    rig.vsctl_ok(&["set", "interface", "i", bad]);
    assert_eq!(rig.interface("i", "mac_in_use"), "\"02:00:00:00:00:78\"");
    rig.vsctl_ok(&["add-port", "br0", "j", "--", "set", "interface", "j", "type=internal", bad]);
    assert_eq!(rig.interface("j", "error"), "[]");
    assert!(rig.log().contains("interface j: mac \"03:00:00:00:00:79\" is not"), "{}", rig.log());
    // Internal ports follow the lowest MTU of the others, unless their row asks for another.
    rig.vsctl_ok(&words("add-port br0 p -- set interface p mtu_request=1300"));
    assert_eq!(rig.interface("p", "mtu"), "1300");
    assert_eq!(rig.interface("br0", "mtu"), "1300");
    assert_eq!(rig.interface("i", "mtu"), "1400");
}

/// Reads one OpenFlow message's header and skips its body. Returns the message's type.
fn message(stream: &mut impl Read) -> u8 {
    let mut header = [0u8; 8];
    stream.read_exact(&mut header).expect("an OpenFlow header");
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut body = vec![0; length.saturating_sub(8)];
    stream.read_exact(&mut body).expect("an OpenFlow body");
    header[1]
}

#[test]
fn controllers_show_how_they_do() {
    let rig = Rig::ours();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    rig.vsctl_ok(&[
        "add-br",
        "br0",
        "--",
        "set-controller",
        "br0",
        &format!("tcp:127.0.0.1:{port}"),
    ]);
    let get = |column: &str| {
        rig.vsctl_ok(&["--bare", &format!("--columns={column}"), "list", "controller"])
    };
    let (mut stream, _) = listener.accept().expect("the switch connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(message(&mut stream), 0, "a hello");
    stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 1]).expect("our hello");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!rig.log().contains("no longer in fail-open mode"), "a hello admits nobody");
    stream.write_all(&[1, 18, 0, 8, 0, 0, 0, 2]).expect("a barrier request");
    until("is_connected", || get("is_connected") == "true");
    assert_eq!(get("role"), "other");
    let status = get("status");
    assert!(status.contains("state=ACTIVE") && status.contains("sec_since_connect="), "{status}");
    drop(stream);
    until("disconnected", || get("is_connected") == "false");
    assert_eq!(get("role"), "");
    assert!(get("status").contains("sec_since_disconnect="), "{}", get("status"));
    // An invalid target is reported once and harms nothing.
    let _ = rig.vsctl(&["set-controller", "br0", "foo:bar", &format!("tcp:127.0.0.1:{port}")]);
    rig.vsctl_ok(&["add-port", "br0", "p1"]);
    listener.accept().expect("the other controller is kept up");
    let log = rig.log();
    assert_eq!(log.matches("\"foo:bar\" is no connection method").count(), 1, "{log}");
}

#[test]
fn a_standalone_bridge_fails_open_until_its_controller_is_back() {
    let rig = Rig::ours();
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    rig.vsctl_ok(&[
        "add-br",
        "br0",
        "--",
        "set-controller",
        "br0",
        &format!("tcp:127.0.0.1:{port}"),
    ]);
    rig.vsctl_ok(&["set", "controller", "br0", "inactivity_probe=1000", "max_backoff=1000"]);
    assert!(rig.rules("br0").is_empty());
    until("the bridge fails open", || rig.log().contains("failing open"));
    assert!(rig.rules("br0").is_empty(), "the rule that does it is not shown");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port again");
    let (mut stream, _) = listener.accept().expect("the switch connects");
    assert_eq!(message(&mut stream), 0, "a hello");
    stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 1]).expect("our hello");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!rig.log().contains("no longer in fail-open mode"), "a hello admits nobody");
    stream.write_all(&[1, 18, 0, 8, 0, 0, 0, 2]).expect("a barrier request");
    until("the controller is in charge", || rig.log().contains("no longer in fail-open mode"));
}

#[test]
fn controllers_wait_for_restored_flows() {
    let mut rig = Rig::ours();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let wait = words("--no-wait set open_vswitch . other_config:flow-restore-wait=true");
    rig.daemon = None;
    rig.vsctl_ok(&wait);
    rig.start_daemon();
    rig.vsctl_ok(&[
        "add-br",
        "br0",
        "--",
        "set-controller",
        "br0",
        &format!("tcp:127.0.0.1:{port}"),
    ]);
    text(rig.ofctl(&["add-flow", "br0", "priority=7,actions=drop"]), &["add-flow"]);
    listener.set_nonblocking(true).expect("no blocking");
    std::thread::sleep(Duration::from_millis(300));
    assert!(listener.accept().is_err(), "connected too early");
    rig.vsctl_ok(&["remove", "open_vswitch", ".", "other_config", "flow-restore-wait"]);
    let mut connection = None;
    until("the switch connects", || {
        connection = listener.accept().ok();
        connection.is_some()
    });
    assert_eq!(rig.rules("br0"), ["priority=7 actions=drop"]);
    // Once the setting was false, it only concerns the next start.
    rig.vsctl_ok(&wait[1..]);
    assert_eq!(rig.rules("br0"), ["priority=7 actions=drop"]);
    let log = rig.log();
    assert!(!log.contains("removed primary controller"), "{log}");
    drop(connection);
}

#[test]
fn settings_that_are_ignored_are_said() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words(
        "add-br br0 -- set-controller br0 unix:nobody.sock -- add-port br0 p1 \
         -- set port p1 lacp=active",
    ));
    rig.vsctl_ok(&["set", "controller", "br0", "local_ip=192.0.2.1"]);
    let log = rig.log();
    let line = "bridge br0: controller unix:nobody.sock: column local_ip is ignored: this version does not \
                support it";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn forwarding_outlives_the_database() {
    let mut rig = Rig::ours();
    rig.vsctl_ok(&words("add-br br0 -- set-fail-mode br0 secure -- add-port br0 p1"));
    text(rig.ofctl(&["add-flow", "br0", "priority=7,actions=output:1"]), &["add-flow"]);
    rig.server = None;
    let _ = std::fs::remove_file(rig.path("db.sock"));
    assert_eq!(rig.rules("br0"), ["priority=7 actions=output:1"]);
    rig.start_server();
    rig.vsctl_ok(&["add-port", "br0", "p2"]);
    assert_eq!(rig.interface("p2", "ofport"), "2");
    assert_eq!(rig.rules("br0"), ["priority=7 actions=output:1"]);
    assert_eq!(rig.log().matches("added interface p1 on").count(), 1);
}

#[test]
fn only_the_holder_of_the_lock_serves_the_database() {
    let mut rig = Rig::ours();
    rig.daemon = None;
    let remote = format!("unix:{}", rig.path("db.sock").display());
    let other = rig.spawn("ovsdb-client", &["lock", &remote, "ovs_vswitchd"]);
    std::thread::sleep(Duration::from_millis(300));
    rig.start_daemon();
    rig.vsctl_ok(&["--no-wait", "add-br", "br0"]);
    until("it is said", || rig.log().contains("another ovs-vswitchd process is running"));
    assert!(!rig.path("br0.mgmt").exists());
    drop(other);
    until("it takes over", || rig.path("br0.mgmt").exists());
    assert_eq!(rig.log().matches("another ovs-vswitchd process").count(), 1);
}

#[test]
fn bridges_come_and_go() {
    let rig = Rig::ours();
    let sockets = |rig: &Rig| ["br0.mgmt", "br0.snoop"].map(|s| rig.path(s).exists());
    for _ in 0..3 {
        rig.vsctl_ok(&words("add-br br0 -- add-port br0 p1 -- add-port br0 p2"));
        assert_eq!(sockets(&rig), [true, true]);
        assert_eq!(rig.interface("br0", "ofport"), "65534");
        rig.vsctl_ok(&["del-br", "br0"]);
        assert_eq!(sockets(&rig), [false, false]);
    }
}

#[test]
fn settings_of_spanning_trees_that_do_not_fit_are_logged() {
    let rig = Rig::ours();
    rig.vsctl_ok(&words(
        "add-br br0 -- add-port br0 p1 -- add-port br0 p2 -- add-port br0 p3 \
         -- add-bond br0 bond0 b1 b2 \
         -- set bridge br0 stp_enable=true other_config:stp-priority=many \
         -- set port p1 other_config:stp-port-num=1 \
         -- set port p2 other_config:stp-port-num=1 \
         -- set port p3 other_config:stp-port-num=256",
    ));
    let status = || rig.vsctl_ok(&["get", "bridge", "br0", "status:stp_bridge_id"]);
    assert!(status().starts_with("\"8000."), "{}", status());
    rig.vsctl_ok(&words("remove port p2 other_config stp-port-num"));
    assert_eq!(rig.vsctl_ok(&["get", "bridge", "br0", "status"]).trim(), "{}");
    rig.vsctl_ok(&words("set bridge br0 rstp_enable=true"));
    let log = rig.log();
    for line in [
        "bridge br0: other_config:stp-priority \"many\" is not a number from 0 to 65535, ignored",
        "port bond0: cannot enable STP on bonds, disabling",
        "port p2: duplicate stp-port-num 1, disabling",
        "port p3: invalid stp-port-num",
        "bridge br0: must manually configure all STP port IDs or none, disabling",
        "br0: RSTP and STP are mutually exclusive but both are configured; enabling RSTP",
        "port bond0: cannot enable RSTP on bonds, disabling",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
}
