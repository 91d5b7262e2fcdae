// SPDX-License-Identifier: Apache-2.0
//! Connections outlive the daemon: BPF goes on with them, and a new daemon takes them over.

use super::{conn, conns, firewall, leads_to, pair};
use crate::tools::{SOON, in_kernel, megaflows, warm};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use slipswitch_tests::harness::{Host, Kind, Switch, acquainted, patient, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time in which a daemon that takes over flows and connections answers: an emulated machine is slow.
const STARTED: Duration = Duration::from_secs(60);
/// Bytes of a message.
const MESSAGE: usize = 200;
/// Messages that each connection carries in a time in which it is observed.
const ENOUGH: u64 = 20;
/// TCP connections of a test.
const CONNECTIONS: u16 = 12;
/// Established, as megaflows have it.
const EST_TRK: &str = "ct_state(0x22/";
/// The position of the layout's version in the map `config`: after the magic, `layout.h`.
const VERSION: std::ops::Range<usize> = 8..12;

/// A TCP connection on which numbered messages go out and come back, one at a time.
struct Echo {
    is_over: Arc<AtomicBool>,
    echoes: Arc<AtomicU64>,
    client: JoinHandle<()>,
    server: JoinHandle<()>,
}

impl Echo {
    fn start(a: &Host, b: &Host, port: u16) -> Echo {
        let target = format!("{}:{port}", b.address());
        let address = target.clone();
        let listener = b.netns.with(|| TcpListener::bind(address).expect("the host's address"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("someone connects");
            let mut message = [0; MESSAGE];
            while stream.read_exact(&mut message).is_ok() {
                stream.write_all(&message).expect("the connection lives");
            }
        });
        let mut stream = a.netns.with(|| TcpStream::connect(target).expect("it connects"));
        stream.set_read_timeout(Some(patient(SOON))).expect("not zero");
        let (is_over, echoes) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let (end, count) = (is_over.clone(), echoes.clone());
        let client = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                let mut message = [number as u8; MESSAGE];
                message[..8].copy_from_slice(&number.to_be_bytes());
                stream.write_all(&message).expect("the connection lives");
                let mut back = [0; MESSAGE];
                stream.read_exact(&mut back).expect("the message comes back");
                assert_eq!(back, message);
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Echo { is_over, echoes, client, server }
    }

    /// Messages that came back so far.
    fn count(&self) -> u64 {
        self.echoes.load(Ordering::Relaxed)
    }

    fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.client.join().expect("nothing is lost");
        self.server.join().expect("nothing is lost");
    }
}

/// Waits until each of the connections has carried some messages more.
#[track_caller]
fn carry_on(echoes: &[Echo], switch: &Switch) {
    let before: Vec<u64> = echoes.iter().map(Echo::count).collect();
    let goes_on =
        || echoes.iter().zip(&before).all(|(echo, before)| echo.count() >= before + ENOUGH);
    let all = wait_until(SOON, goes_on);
    let after: Vec<u64> = echoes.iter().map(Echo::count).collect();
    assert!(all, "{before:?}, then {after:?}\n{}", switch.story());
}

/// A firewall whose connections get another address, a mark and a label.
fn rules() -> String {
    let commit = "zone=1,nat(src=10.1.1.240-10.1.1.243),\
                  exec(set_field:17->ct_mark,set_field:0x22->ct_label)";
    firewall("ip", commit, "zone=1,nat")
}

/// A switch with these rules and connections; `None` where tests cannot make one, or the daemon is
/// Open vSwitch's, whose connections end with it.
fn gateway() -> Option<(Switch, Host, Host)> {
    if Kind::under_test() == Kind::RealOvs {
        eprintln!("skipped: connections of Open vSwitch end with the daemon");
        return None;
    }
    let (switch, a, b) = pair()?;
    switch.vsctl("set bridge br0 fail_mode=secure");
    // Pings stay known for longer than a slow machine takes for a test.
    super::set_timeouts(&switch, "icmp_first=3600 icmp_reply=3600");
    switch.flows("br0", &rules());
    (240..=243).for_each(|n| leads_to(&b, &format!("10.1.1.{n}"), &a));
    // Neighbours ask each other at bad times.
    leads_to(&a, "10.1.1.2", &b);
    Some((switch, a, b))
}

fn connect(switch: &Switch, a: &Host, b: &Host) -> Vec<Echo> {
    let echoes: Vec<Echo> = (0..CONNECTIONS).map(|n| Echo::start(a, b, 7000 + n)).collect();
    carry_on(&echoes, switch);
    in_bpf(switch);
    echoes
}

/// Waits until packets of established connections are tracked in BPF, from both hosts.
#[track_caller]
fn in_bpf(switch: &Switch) {
    let is_there = |port: &str, state: &str| {
        let port = format!("in_port({port})");
        !megaflows(switch, &[&port, state, "eth_type(0x0800)", "dp:tcx"]).is_empty()
    };
    let all = wait_until(SOON, || {
        ["h1", "h2"].iter().all(|port| is_there(port, "actions:ct(") && is_there(port, EST_TRK))
    });
    assert!(all, "{}", megaflows(switch, &[]).join("\n"));
}

/// The lines of TCP's connections, with the mark and the label.
fn dump(switch: &Switch) -> Vec<String> {
    let lines = conns(switch, &["tcp,", "zone=1,mark=17,labels=0x22,", "state=ESTABLISHED"]);
    assert_eq!(lines.len(), usize::from(CONNECTIONS), "{:#?}", conns(switch, &[]));
    lines
}

/// Starts a daemon that waits for its rules, and restores them, as Open vSwitch's scripts do.
fn start(switch: &mut Switch) {
    switch.vsctl("--no-wait set open_vswitch . other_config:flow-restore-wait=true");
    switch.start_daemon();
    restore(switch);
}

/// Gives a daemon that has started its rules.
fn restore(switch: &Switch) {
    let listens = wait_until(STARTED, || switch.sh("ovs-ofctl show br0").ok());
    assert!(listens, "{}", switch.story());
    let text: String = rules().lines().map(|l| format!("{}\n", l.trim())).collect();
    switch.sandbox().write("rules.txt", text);
    switch.ofctl("add-flows br0 rules.txt");
    switch.vsctl("--no-wait remove open_vswitch . other_config flow-restore-wait");
}

fn count(switch: &Switch) -> u64 {
    switch.appctl("dpctl/ct-get-nconns").trim().parse().expect("a number")
}

fn names(switch: &Switch) -> Vec<String> {
    let pins = std::fs::read_dir(switch.sandbox().pins()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        pins.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Checks that connections go on over `end` of the daemon, without a daemon if flows stay, and with
/// the next one.
#[track_caller]
fn outlive(end: impl FnOnce(&mut Switch)) {
    let Some((mut switch, a, b)) = gateway() else { return };
    let echoes = connect(&switch, &a, &b);
    let before = dump(&switch);
    let total = count(&switch);
    end(&mut switch);
    carry_on(&echoes, &switch);
    start(&mut switch);
    carry_on(&echoes, &switch);
    assert_eq!(dump(&switch), before);
    assert_eq!(count(&switch), total);
    let told = format!("took over {total} connections");
    assert!(switch.log().contains(&told), "{}", switch.story());
    in_bpf(&switch);
    carry_on(&echoes, &switch);
    let text = switch.appctl("dpctl/dump-conntrack -s");
    for line in text.lines().filter(|line| line.contains("tcp,")) {
        let timeout = line.split("timeout=").nth(1).and_then(|rest| rest.split(',').next());
        let timeout: u32 = timeout.and_then(|n| n.parse().ok()).expect("a number");
        assert!((86_000..=86_400).contains(&timeout), "{line}");
    }
    // The new daemon moves their state.
    echoes.into_iter().for_each(Echo::finish);
    let ended = || conns(&switch, &["tcp,", "TIME_WAIT"]).len() == usize::from(CONNECTIONS);
    assert!(wait_until(SOON, ended), "{:#?}", conns(&switch, &[]));
}

#[test]
fn connections_outlive_a_killed_daemon() {
    outlive(Switch::kill_daemon);
}

#[test]
fn connections_outlive_a_plain_exit() {
    outlive(|switch| {
        switch.appctl("exit");
        assert_eq!(switch.wait_for_end(), Some(0));
    });
}

/// An upgrade: the new daemon cannot read the flows, and makes them again.
#[test]
fn connections_outlive_another_layout_of_flows() {
    outlive(|switch| {
        switch.kill_daemon();
        change_layout(switch);
    });
}

/// Makes the pinned flows those of another build.
fn change_layout(switch: &Switch) {
    let path = switch.sandbox().pins().join("config");
    let config = MapHandle::from_pinned_path(path).expect("it is pinned");
    let key = 0u32.to_ne_bytes();
    let mut value = config.lookup(&key, MapFlags::ANY).expect("an array").expect("a value");
    value[VERSION].copy_from_slice(&99u32.to_ne_bytes());
    config.update(&key, &value, MapFlags::ANY).expect("it is an array");
}

/// Flows of another layout carry packets until the new daemon has loaded its programs.
#[test]
fn traffic_goes_on_while_programs_are_loaded() {
    let Some((mut switch, a, b)) = gateway() else { return };
    let echoes = connect(&switch, &a, &b);
    switch.kill_daemon();
    change_layout(&switch);
    switch.vsctl("--no-wait set open_vswitch . other_config:flow-restore-wait=true");
    switch.launch_daemon();
    let log = |words: &str| switch.log().matches(words).count();
    assert!(wait_until(SOON, || log("are not taken over") == 1), "{}", switch.story());
    let before: Vec<u64> = echoes.iter().map(Echo::count).collect();
    let go_on = || echoes.iter().zip(&before).all(|(echo, before)| echo.count() >= before + ENOUGH);
    // The earlier daemon has logged this line, too.
    let has_loaded = || log("Datapath supports recirculation") > 1;
    wait_until(SOON, || go_on() || has_loaded());
    assert!(go_on(), "{before:?}\n{}", switch.story());
    switch.await_daemon();
    restore(&switch);
    carry_on(&echoes, &switch);
    echoes.into_iter().for_each(Echo::finish);
}

/// A daemon whose flows this build can read, and that had no connections to share with programs.
#[test]
fn flows_of_a_daemon_without_connections_are_kept() {
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, b.address());
    acquainted(&a, &b);
    in_kernel(&switch, ["h1", "h2"]);
    let ping = a.pinging(b.address(), 3);
    switch.kill_daemon();
    let pins = switch.sandbox().pins();
    let memory: Vec<String> =
        names(&switch).into_iter().filter(|name| name.starts_with("ct_")).collect();
    assert!(!memory.is_empty());
    for name in memory {
        std::fs::remove_file(pins.join(name)).expect("it is pinned");
    }
    switch.start_daemon();
    let echoes = ping.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}\n{}", echoes.said, switch.story());
    assert!(switch.log().contains("|adopted "), "{}", switch.story());
    // From now on connections are tracked, and outlive the daemon.
    switch.flows("br0", &firewall("ip", "zone=1", "zone=1"));
    let connect =
        || switch.appctl("dpctl/flush-conntrack").is_empty() && a.ping(b.address(), 1) == 1;
    assert!(wait_until(SOON, connect), "{}", switch.story());
    let line = conn(&switch, &["icmp,"]);
    switch.kill_daemon();
    switch.start_daemon();
    assert_eq!(conns(&switch, &["icmp,"]), [line]);
}

/// Several daemons, one after the other, each killed while connections come and go.
#[test]
fn connections_outlive_many_daemons() {
    let Some((mut switch, a, b)) = gateway() else { return };
    let echoes = connect(&switch, &a, &b);
    let before = dump(&switch);
    for round in 0..4 {
        let others: Vec<Echo> = (0..8).map(|n| Echo::start(&a, &b, 8000 + n)).collect();
        carry_on(&others, &switch);
        let closer = std::thread::spawn(|| others.into_iter().for_each(Echo::finish));
        std::thread::sleep(Duration::from_millis(3 * round));
        switch.kill_daemon();
        start(&mut switch);
        closer.join().expect("nothing is lost");
        carry_on(&echoes, &switch);
    }
    let same: Vec<String> =
        before.iter().filter(|line| conns(&switch, &[line]).len() == 1).cloned().collect();
    assert_eq!(same, before);
    echoes.into_iter().for_each(Echo::finish);
}

/// The new daemon ends what expires, with the timeouts of the database, and counts.
#[test]
fn a_new_daemon_ends_what_expires() {
    let Some((mut switch, a, b)) = gateway() else { return };
    switch.vsctl("del-zone-tp netdev zone=1");
    switch.vsctl("add-zone-tp netdev zone=1 udp_first=4 udp_single=4");
    let _listener = b.netns.with(|| UdpSocket::bind("10.1.1.2:9").expect("the host's address"));
    let socket = a.netns.with(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    socket.send_to(b"x", "10.1.1.2:9").expect("there is room");
    assert!(wait_until(SOON, || !conns(&switch, &["udp,"]).is_empty()), "{}", switch.story());
    let line = conn(&switch, &["udp,"]);
    switch.kill_daemon();
    start(&mut switch);
    let is_same = || conns(&switch, &["udp,"]) == [line.clone()];
    let is_gone = || conns(&switch, &["udp,"]).is_empty();
    assert!(is_same() || is_gone(), "{:#?}", conns(&switch, &[]));
    switch.appctl("dpctl/ct-set-sweep-interval 100");
    let is_swept = wait_until(SOON, || is_gone() && count(&switch) == 0);
    assert!(is_swept, "{} {:#?}", count(&switch), conns(&switch, &[]));
}

#[test]
fn an_exit_with_cleanup_leaves_no_connection() {
    let Some((mut switch, a, b)) = gateway() else { return };
    assert!(a.reaches(b.address(), SOON));
    assert_ne!(conns(&switch, &["icmp,"]), Vec::<String>::new());
    assert!(names(&switch).contains(&"ct_config".to_owned()), "{:?}", names(&switch));
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    let pins = switch.sandbox().pins();
    assert!(!pins.exists(), "{:?} are left", names(&switch));
    start(&mut switch);
    assert_eq!(conns(&switch, &[]), Vec::<String>::new());
}

#[test]
fn a_daemon_without_bpf_begins_without_connections() {
    let Some((mut switch, a, b)) = gateway() else { return };
    assert!(a.reaches(b.address(), SOON));
    switch.kill_daemon();
    switch.vsctl("--no-wait set open_vswitch . other_config:bpf-offload=false");
    start(&mut switch);
    let pins = switch.sandbox().pins();
    assert!(!pins.exists(), "{:?} are left", names(&switch));
    assert_eq!(conns(&switch, &[]), Vec::<String>::new());
    assert!(switch.log().contains("removed the flows and connections"), "{}", switch.story());
    // Its own connections outlive it from when BPF is on.
    assert!(a.reaches(b.address(), SOON));
    let lines = conns(&switch, &["icmp,"]);
    switch.vsctl("remove open_vswitch . other_config bpf-offload");
    switch.kill_daemon();
    start(&mut switch);
    assert_ne!(lines, Vec::<String>::new());
    assert_eq!(conns(&switch, &["icmp,"]), lines);
}

#[test]
fn damaged_connections_are_dropped_and_logged() {
    let Some((mut switch, a, b)) = gateway() else { return };
    assert!(a.reaches(b.address(), SOON));
    let lines = conns(&switch, &["icmp,"]);
    assert_ne!(lines, Vec::<String>::new());
    switch.kill_daemon();
    let path = switch.sandbox().pins().join("ct_config");
    let config = MapHandle::from_pinned_path(path).expect("it is pinned");
    let key = 0u32.to_ne_bytes();
    let mut value = config.lookup(&key, MapFlags::ANY).expect("an array").expect("a value");
    value[32] ^= 1; // the factors of the hash are odd
    config.update(&key, &value, MapFlags::ANY).expect("it is an array");
    start(&mut switch);
    let told: Vec<String> =
        switch.warnings().into_iter().filter(|line| line.contains("are dropped")).collect();
    let [told] = told.as_slice() else { panic!("{}", switch.story()) };
    assert!(told.contains("the configuration has impossible values"), "{told}");
    let after = conns(&switch, &[]);
    assert!(!lines.iter().any(|line| after.contains(line)), "{after:#?}");
    // The new table serves, and outlives this daemon.
    assert!(a.reaches(b.address(), SOON), "{}", switch.story());
    let lines = conns(&switch, &["icmp,"]);
    switch.kill_daemon();
    start(&mut switch);
    assert_eq!(conns(&switch, &["icmp,"]), lines);
}

/// Another daemon, or one that has not ended yet, has the directory.
#[test]
fn a_second_daemon_does_not_touch_the_connections() {
    let Some((mut switch, a, b)) = gateway() else { return };
    assert!(a.reaches(b.address(), SOON));
    let lines = conns(&switch, &["icmp,"]);
    assert_ne!(lines, Vec::<String>::new());
    switch.appctl("exit");
    assert_eq!(switch.wait_for_end(), Some(0));
    let before = names(&switch);
    let pins = std::fs::File::open(switch.sandbox().pins()).expect("pins outlive the daemon");
    rustix::fs::flock(&pins, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("nobody holds it");
    start(&mut switch);
    assert_eq!(conns(&switch, &[]), Vec::<String>::new());
    let kept_out = |line: &String| line.contains("in use by another daemon");
    assert!(switch.warnings().iter().any(kept_out), "{}", switch.story());
    switch.appctl("exit");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert_eq!(names(&switch), before);
    drop(pins);
    start(&mut switch);
    assert_eq!(conns(&switch, &["icmp,"]), lines);
}
