// SPDX-License-Identifier: Apache-2.0
//! No room on the disk: for the log, and for the database.

use crate::tools::{BACKOFF, SOON, started_by, without_namespaces};
use slipswitch_tests::harness::{Mode, Output, Switch, wait_until};

const FRAME: &str = "50540000000250540000000188cc0000";

/// A bridge of dummies whose clock runs.
fn bridge(switch: &Switch) {
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    for port in ["p1", "p2"] {
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy options:tx_pcap={port}-tx.pcap"
        ));
    }
    switch.flows("br0", "in_port=1,actions=output:2");
}

#[track_caller]
fn forwards(switch: &Switch) {
    let before = switch.sent("p2").len();
    switch.receive("p1", FRAME);
    assert_eq!(switch.sent("p2").len(), before + 1, "{}", switch.story());
}

/// Runs a line of shell where the process of a pidfile has its mounts.
fn beside(switch: &Switch, pidfile: &str, line: &str) -> Output {
    let pid = switch.sandbox().read(pidfile);
    let pid = pid.trim();
    switch.sh(&format!("nsenter --mount=/proc/{pid}/ns/mnt --wdns=\"$OVS_RUNDIR\" sh -c '{line}'"))
}

#[test]
fn a_full_disk_for_the_log_stops_nothing_and_what_is_lost_is_counted() {
    if without_namespaces() {
        return;
    }
    let script = "mount --make-rprivate / && mkdir -p \"$OVS_RUNDIR/log\" \
                  && mount -t tmpfs -o size=64k none \"$OVS_RUNDIR/log\" && exec \"$@\"";
    let mut options =
        started_by(Mode::Dummy, &["unshare", "--mount", "sh", "-e", "-c", script, "sh"]);
    options.arguments.push("--log-file=log/daemon.log".to_owned());
    let switch = Switch::with(options);
    bridge(&switch);
    let log = |line: &str| beside(&switch, "ovs-vswitchd.pid", line);
    let text = log("cat log/daemon.log").stdout;
    assert!(text.contains("added interface p2"), "{text}");
    log("dd if=/dev/zero of=log/filler bs=1k 2>/dev/null");
    // Far more than a page holds, at INFO.
    for round in 0..20 {
        switch.vsctl(&format!("add-port br0 q{round} -- set interface q{round} type=dummy"));
        switch.vsctl(&format!("del-port q{round}"));
        forwards(&switch);
    }
    assert!(switch.ofctl("show br0").contains("(p1)"));
    let full = log("cat log/daemon.log").stdout;
    assert!(!full.contains("added interface q19"), "the disk was not full");
    log("rm log/filler");
    switch.vsctl("add-port br0 last -- set interface last type=dummy");
    let mut text = String::new();
    let said = wait_until(SOON, || {
        text = log("cat log/daemon.log").stdout;
        text.contains("added interface last")
    });
    assert!(said, "{text}");
    let lost = text.lines().filter(|l| l.contains("log messages lost")).count();
    assert_eq!(lost, 1, "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    forwards(&switch);
}

#[test]
fn a_full_disk_for_the_database_stops_no_packet_and_is_logged_once() {
    if without_namespaces() {
        return;
    }
    let mut switch = Switch::with(started_by(Mode::Dummy, &[]));
    bridge(&switch);
    switch.kill_database();
    switch.run(
        "rm -f db.sock && mkdir db && unshare --mount sh -e -c 'mount --make-rprivate / && \
         mount -t tmpfs -o size=256k none db && cp conf.db db/ && exec ovsdb-server db/conf.db \
         --remote=punix:db.sock --pidfile --no-chdir --detach --log-file -vconsole:off -vsyslog:off'",
    );
    let written = |value: &str| {
        switch.sh(&format!("ovs-vsctl --timeout=5 set bridge br0 external_ids:x={value}")).ok()
    };
    assert!(wait_until(BACKOFF, || written("before")), "{}", switch.story());
    switch.vsctl("set open_vswitch . other_config:stats-update-interval=5000");
    let database = |line: &str| beside(&switch, "ovsdb-server.pid", line);
    database("dd if=/dev/zero of=db/filler bs=1k 2>/dev/null");
    let filler = "y".repeat(8000);
    assert!(!written(&filler), "the disk is not full");
    // The states of a port change, statistics are due; nothing of it can be written.
    let lines = switch.log().lines().count();
    for round in 0..14 {
        let state = if round % 2 == 0 { "down" } else { "up" };
        switch.appctl(&format!("netdev-dummy/set-admin-state p1 {state}"));
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    switch.appctl("netdev-dummy/set-admin-state p1 up");
    forwards(&switch);
    switch.ofctl("add-flow br0 table=7,actions=drop");
    let log = switch.log();
    let said: Vec<&str> = log.lines().skip(lines).filter(|l| l.contains("WARN")).collect();
    eprintln!("while it was full: {said:#?}");
    assert!(said.len() <= 1, "{said:#?}");
    database("rm db/filler");
    assert!(wait_until(BACKOFF, || written("after")), "{}", switch.story());
    switch.vsctl("add-port br0 p9 -- set interface p9 type=dummy");
    let state = || switch.vsctl("get interface p1 admin_state");
    assert!(wait_until(SOON, || state() == "up\n"), "{} {}", state(), switch.story());
    assert!(switch.ofctl("dump-flows br0 table=7").contains("drop"));
    forwards(&switch);
}
