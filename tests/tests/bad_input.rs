// SPDX-License-Identifier: Apache-2.0
//! Bad input: a clear error, and nothing is lost.

use slipswitch_tests::harness::{Switch, wait_until};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// A switch with a flow that has to be there, and work, after whatever a test does.
fn switch() -> Switch {
    let switch = Switch::dummy(2);
    switch.flows("br0", "cookie=0x77,in_port=1,actions=2");
    switch
}

#[track_caller]
fn unharmed(switch: &Switch) {
    assert_eq!(
        switch.dump("--no-names br0 cookie=0x77/-1"),
        ["cookie=0x77, in_port=1 actions=output:2"]
    );
    let before = switch.sent("p2").len();
    switch.receive("p1", "50540000000250540000000188cc0000");
    assert_eq!(switch.sent("p2").len(), before + 1);
}

#[test]
fn a_port_without_a_device_gets_an_error_and_harms_no_other() {
    let switch = switch();
    let output = switch.sh("ovs-vsctl add-port br0 nodevice -- set interface nodevice type=system");
    assert!(output.stderr.is_empty() || output.stderr.contains("nodevice"), "{}", output.text());
    let error = switch.vsctl("get interface nodevice error");
    assert!(error.contains("nodevice"), "{error}");
    assert_eq!(switch.vsctl("get interface nodevice ofport"), "-1\n");
    unharmed(&switch);
    switch.vsctl("del-port nodevice");
    unharmed(&switch);
}

#[test]
fn an_unknown_interface_type_is_named_in_the_error() {
    let switch = switch();
    let output = switch.sh("ovs-vsctl add-port br0 odd -- set interface odd type=nonsense");
    let error = switch.vsctl("get interface odd error");
    assert!(error.contains("nonsense") || error.contains("odd"), "{error} {}", output.text());
    unharmed(&switch);
}

#[test]
fn odd_values_in_the_database_do_no_harm() {
    let switch = switch();
    for change in [
        "set bridge br0 other_config:mac-table-size=nonsense",
        "set bridge br0 other_config:mac-aging-time=-5",
        "set bridge br0 other_config:datapath-id=xyz",
        "set bridge br0 other_config:hwaddr=nonsense",
        "set interface p1 options:tx_pcap=/nonexistent/x",
        "set open_vswitch . other_config:flow-limit=nonsense",
        "set open_vswitch . other_config:max-idle=-1",
        "set open_vswitch . other_config:pmd-cpu-mask=zz",
        "set interface p1 ingress_policing_rate=10",
        "set open_vswitch . other_config:stats-update-interval=x",
        "set bridge br0 datapath_type=nonsense",
        "set bridge br0 datapath_type=dummy",
        "set-manager ptcp:0:nonsense",
        "set port p2 bond_mode=balance-tcp",
        "set port p2 lacp=active",
    ] {
        // Some of these are errors of their own.
        switch.sh(&format!("ovs-vsctl --timeout=5 {change}"));
        assert!(switch.sh("ovs-appctl version").ok(), "{change}");
    }
    switch.vsctl("set interface p2 options:tx_pcap=p2-tx.pcap");
    switch.vsctl("clear bridge br0 other_config");
    let there = wait_until(SOON, || switch.sh("ovs-ofctl show br0").ok());
    assert!(there, "{}", switch.story());
}

#[test]
fn settings_that_are_none_are_named_in_the_log() {
    let switch = switch();
    for (key, value, what) in [
        ("bpf-max-flows", "many", "not a number"),
        ("bpf-max-flows", "-5", "not a number"),
        ("bpf-max-masks", "1e6", "not a number"),
        ("bpf-max-masks", "18446744073709551616", "not a number"),
        ("flow-restore-deadline", "soon", "not a number"),
        ("bpf-offload", "no", "neither true nor false, true is taken"),
        ("flow-restore-wait", "yes", "neither true nor false, false is taken"),
    ] {
        switch.vsctl(&format!("set open_vswitch . other_config:{key}={value}"));
        let told = |line: &String| {
            [&format!("other_config:{key} \"{value}\""), what].iter().all(|p| line.contains(*p))
        };
        assert!(switch.warnings().iter().any(told), "{key}={value}: {}", switch.story());
        switch.vsctl(&format!("remove open_vswitch . other_config {key}"));
    }
    unharmed(&switch);
}

#[test]
fn malformed_flow_text_to_trace_says_what_is_wrong() {
    let switch = switch();
    for (text, wrong) in [
        ("in_port=1,nonsense=5", "nonsense"),
        ("in_port=1,ip,nw_src=nonsense", "nonsense"),
        ("in_port=1,tcp,tp_dst=70000", "70000"),
        ("'in_port(1),eth(src=zz)'", ""),
        ("in_port=1,tp_dst=80", "prerequisites"),
    ] {
        let error = switch.fails(&format!("ovs-appctl ofproto/trace br0 {text}"));
        assert!(error.contains(wrong), "{text}: {error}");
    }
    unharmed(&switch);
}

#[test]
fn a_malformed_packet_is_refused_or_dropped() {
    let switch = switch();
    for packet in
        ["zz", "5054", "'eth(src=1)'", "'in_port(1),eth()'", "505400000002505400000001080045"]
    {
        switch.sh(&format!("ovs-appctl netdev-dummy/receive p1 {packet}"));
    }
    unharmed(&switch);
}

/// A connection to the bridge that has said hello in `version`.
fn connect(switch: &Switch, version: u8) -> UnixStream {
    let mut stream =
        UnixStream::connect(switch.sandbox().file("br0.mgmt")).expect("the bridge listens");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).expect("the bridge reads");
    let hello = message(&mut stream).expect("the bridge says hello");
    assert_eq!(hello.get(1), Some(&0));
    stream
}

/// The next message; `None` at the connection's end.
fn message(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).ok()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut message = header.to_vec();
    message.resize(length.max(8), 0);
    stream.read_exact(message.get_mut(8..)?).ok()?;
    Some(message)
}

/// Type and code of an error message.
fn error(message: &[u8]) -> Option<(u16, u16)> {
    let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    (message.get(1) == Some(&1)).then_some((word(8)?, word(10)?))
}

#[test]
fn an_unknown_openflow_message_gets_an_error_and_the_connection_stays() {
    let switch = switch();
    let mut stream = connect(&switch, 4);
    // A type that there is not, with transaction id 9.
    stream.write_all(&[4, 99, 0, 8, 0, 0, 0, 9]).expect("the bridge reads");
    let answer = message(&mut stream).expect("an error");
    assert_eq!(error(&answer), Some((1, 1)), "OFPET_BAD_REQUEST, OFPBRC_BAD_TYPE");
    assert_eq!(answer.get(4..8), Some([0, 0, 0, 9].as_slice()));
    // Echo, on the same connection.
    stream.write_all(&[4, 2, 0, 12, 0, 0, 0, 10, 1, 2, 3, 4]).expect("the bridge reads");
    assert_eq!(message(&mut stream), Some(vec![4, 3, 0, 12, 0, 0, 0, 10, 1, 2, 3, 4]));
    unharmed(&switch);
}

#[test]
fn a_truncated_openflow_body_gets_bad_len() {
    let switch = switch();
    let mut stream = connect(&switch, 4);
    // A flow mod of 16 bytes.
    stream
        .write_all(&[4, 14, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0])
        .expect("the bridge reads");
    let answer = message(&mut stream).expect("an error");
    assert_eq!(error(&answer), Some((1, 6)), "OFPET_BAD_REQUEST, OFPBRC_BAD_LEN");
    unharmed(&switch);
}

#[test]
fn a_length_below_the_header_ends_the_connection_and_no_other() {
    let switch = switch();
    let mut stream = connect(&switch, 4);
    let mut other = connect(&switch, 4);
    stream.write_all(&[4, 2, 0, 3, 0, 0, 0, 9]).expect("the bridge reads");
    while message(&mut stream).is_some() {}
    other.write_all(&[4, 2, 0, 8, 0, 0, 0, 10]).expect("the bridge reads");
    assert_eq!(message(&mut other), Some(vec![4, 3, 0, 8, 0, 0, 0, 10]));
    unharmed(&switch);
}

#[test]
fn random_bytes_on_the_openflow_socket_do_no_harm() {
    let switch = switch();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let version = [1, 4, 5, 6][round % 4];
        let mut stream = connect(&switch, version);
        for _ in 0..20 {
            let length = random.u16(8..200);
            let mut bytes = vec![version, random.u8(0..40)];
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0, 5]);
            bytes.extend((8..length).map(|_| if random.bool() { 0 } else { random.u8(..) }));
            // Multipart requests, flow mods and the like with plausible beginnings.
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
    }
    assert!(switch.sh("ovs-ofctl show br0").ok(), "{}", switch.story());
    // Random flow mods may by chance have changed flows; the switch works on.
    switch.flows("br0", "cookie=0x77,in_port=1,actions=2");
    unharmed(&switch);
}

#[test]
fn random_lines_on_the_control_socket_do_no_harm() {
    let switch = switch();
    let pid = switch.sandbox().read("ovs-vswitchd.pid");
    let path = switch.sandbox().file(&format!("ovs-vswitchd.{}.ctl", pid.trim()));
    for text in [
        "",
        "{",
        "nonsense",
        "[]",
        "{\"method\":1}",
        "{\"method\":\"version\",\"params\":[1],\"id\":0}",
        "\u{0}\u{1}",
        "{\"method\":\"version\",\"params\":{},\"id\":null}",
    ] {
        let mut stream = UnixStream::connect(&path).expect("the daemon listens");
        let _ = stream.write_all(text.as_bytes());
    }
    unharmed(&switch);
}

#[test]
fn a_database_that_goes_away_takes_nothing_with_it() {
    let mut switch = switch();
    switch.kill_database();
    unharmed(&switch);
    switch.ofctl("add-flow br0 arp,actions=1");
    assert_eq!(switch.ofctl("dump-flows --no-stats br0").matches("actions=").count(), 2);
    switch.start_database();
    // The clock stands, and the daemon tries again by it.
    let back = wait_until(SOON, || {
        switch.appctl("time/warp 1000");
        switch.sh("ovs-vsctl --timeout=1 add-port br0 p8 -- set interface p8 type=dummy").ok()
    });
    assert!(back, "{}", switch.story());
    unharmed(&switch);
    assert_eq!(switch.dump("br0").len(), 2);
}

#[test]
fn a_database_of_another_schema_is_refused_in_words() {
    let mut switch = switch();
    switch.kill_database();
    switch.kill_daemon();
    let text =
        r#"{"name":"Other","version":"1.0.0","tables":{"T":{"columns":{"c":{"type":"string"}}}}}"#;
    switch.sandbox().write("other.schema", text);
    switch.run("rm -f conf.db .conf.db.~lock~ && ovsdb-tool create conf.db other.schema && ovsdb-server conf.db --remote=punix:db.sock --pidfile --no-chdir --detach -vconsole:off");
    switch.start_daemon();
    let said = wait_until(SOON, || switch.log().contains("Open_vSwitch"));
    assert!(said, "{}", switch.story());
    assert!(switch.sh("ovs-appctl version").ok());
}

#[test]
fn a_full_table_says_so() {
    let switch = switch();
    switch.vsctl("-- --id=@t create Flow_Table flow_limit=1 -- set bridge br0 flow_tables:0=@t");
    let text = switch.fails("ovs-ofctl add-flow br0 arp,actions=1");
    assert!(text.contains("OFPFMFC_TABLE_FULL"), "{text}");
    unharmed(&switch);
}

#[test]
fn more_groups_and_meters_than_there_may_be_are_refused() {
    let switch = switch();
    for (command, error) in [
        ("mod-group br0 group_id=77,type=all,bucket=output:1", "OFPGMFC_UNKNOWN_GROUP"),
        ("add-meter br0 meter=4294901761,kbps,bands=type=drop,rate=1", ""),
        ("add-flow br0 actions=meter:77,2", "OFPMMFC_INVALID_METER"),
    ] {
        let output = switch.sh(&format!("ovs-ofctl -O OpenFlow13 {command}"));
        assert!(!output.ok() && output.stderr.contains(error), "{command}: {}", output.text());
    }
    unharmed(&switch);
}
