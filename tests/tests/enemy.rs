// SPDX-License-Identifier: Apache-2.0
//! An enemy of the switch: floods, peers that do not read, endings at the wrong moment. The tests
//! demand that nothing crashes or hangs, and that other ports and other peers continue to work.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Switch, daemon_program, wait_until, without_privilege,
};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far more than any answer needs, far less than a starved daemon takes.
const PROMPT: Duration = Duration::from_secs(2);

/// UDP packets from a host to ever new addresses and ports, until dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Flood {
    fn start(host: &Host) -> Flood {
        host.netns.sh("ip route add 11.0.0.0/8 dev eth0; ip neigh add 11.0.0.1 lladdr 02:00:00:00:00:99 dev eth0; ip route add 12.0.0.0/8 via 11.0.0.1 dev eth0 onlink");
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&stop);
        let thread = host.netns.spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                let to = Ipv4Addr::new(12, random.u8(..), random.u8(..), random.u8(..));
                sent += u64::from(socket.send_to(&[0; 18], (to, random.u16(1..))).is_ok());
            }
            sent
        });
        Flood { stop, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.take().map_or(0, |t| t.join().unwrap_or(0));
        if !std::thread::panicking() {
            assert!(sent > 1000, "the flood was none: {sent} packets");
        }
    }
}

/// Each of `lines` has to succeed, and promptly.
#[track_caller]
fn prompt(switch: &Switch, lines: &[&str]) {
    for line in lines {
        let start = Instant::now();
        switch.run(line);
        let took = start.elapsed();
        assert!(took < PROMPT, "{line} took {took:?}");
    }
}

const QUESTIONS: &[&str] = &[
    "ovs-appctl upcall/show",
    "ovs-ofctl dump-aggregate br0",
    "ovs-ofctl add-flow br0 table=9,actions=drop",
    "ovs-vsctl --timeout=10 set bridge br0 other-config:enemy=true",
];

/// A switch with two hosts that talk, `a` and `b`, and one that floods.
fn three_hosts() -> (Switch, Host, Host, Host) {
    let switch = Switch::start(Kind::under_test(), Mode::Real);
    switch.vsctl("add-br br0");
    let a = switch.host_on("br0", "p1", "10.0.0.1/24");
    let b = switch.host_on("br0", "p2", "10.0.0.2/24");
    let c = switch.host_on("br0", "p3", "10.0.0.3/24");
    assert!(a.reaches("10.0.0.2", Duration::from_secs(5)), "{}", switch.story());
    (switch, a, b, c)
}

#[test]
fn a_flood_of_misses_starves_nobody() {
    if without_privilege() {
        return;
    }
    let (switch, a, _b, c) = three_hosts();
    switch.vsctl("set open_vswitch . other_config:flow-limit=5000");
    switch.ofctl("add-flow br0 'priority=9,udp,in_port=p3,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG1[])'");
    let flood = Flood::start(&c);
    std::thread::sleep(Duration::from_millis(500));
    let answers = a.ping("10.0.0.2", 50);
    assert!(answers >= 48, "{answers} of 50 pings came back");
    prompt(&switch, QUESTIONS);
    let megaflows = switch.megaflows().len();
    assert!(megaflows <= 5100, "{megaflows} megaflows with a limit of 5000");
    drop(flood);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_flood_of_learned_flows_leaves_the_control_plane_alive() {
    if without_privilege() {
        return;
    }
    let (switch, a, _b, c) = three_hosts();
    switch.ofctl("add-flow br0 'priority=9,udp,in_port=p3,actions=learn(table=1,idle_timeout=2,eth_type=0x800,NXM_OF_IP_DST[],output:NXM_OF_IN_PORT[])'");
    let flood = Flood::start(&c);
    std::thread::sleep(Duration::from_millis(500));
    prompt(&switch, QUESTIONS);
    assert!(a.ping("10.0.0.2", 20) >= 19);
    drop(flood);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

/// Sends OpenFlow 1.3 requests for all flows, and never reads, until the socket is full.
fn deaf(path: &std::path::Path) -> UnixStream {
    const REQUEST: &[u8] = &[
        4, 18, 0, 56, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0, 4, 0, 0, 0, 0,
    ];
    let mut stream = UnixStream::connect(path).expect("the bridge listens");
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).expect("the bridge reads");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("not zero");
    while stream.write_all(REQUEST).is_ok() {}
    stream
}

#[test]
fn peers_that_never_read_cost_little_and_hold_nobody_up() {
    let switch = Switch::dummy(2);
    let flows: String = (1..3000).map(|i| format!("table=3,priority={i},actions=drop\n")).collect();
    switch.flows("br0", &flows);
    let memory = || {
        let pid = switch.sandbox().read("ovs-vswitchd.pid");
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).expect("it runs");
        let line =
            status.lines().find(|l| l.starts_with("VmRSS:")).expect("Linux has it").to_owned();
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("kilobytes")
    };
    let before = memory();
    let peers: Vec<UnixStream> = (0..8).map(|_| deaf(&switch.sandbox().file("br0.mgmt"))).collect();
    prompt(
        &switch,
        &["ovs-ofctl show br0", "ovs-ofctl dump-aggregate br0", "ovs-appctl upcall/show"],
    );
    let more = memory().saturating_sub(before);
    assert!(more < 32 * 1024, "8 deaf peers cost {more} kB");
    drop(peers);
}

#[test]
fn a_peer_that_never_reads_ends_with_its_bridge() {
    let switch = Switch::dummy(2);
    let flows: String = (1..3000).map(|i| format!("table=3,priority={i},actions=drop\n")).collect();
    switch.flows("br0", &flows);
    let peer = deaf(&switch.sandbox().file("br0.mgmt"));
    switch.vsctl("del-br br0");
    peer.set_nonblocking(true).expect("sockets can be");
    // Reading a little must not be what wakes the other side, hence only the error counts.
    let ended = wait_until(Duration::from_secs(5), || {
        (&peer).write(&[0]).is_err_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    });
    assert!(ended, "{}", switch.story());
}

#[test]
fn a_daemon_that_cannot_start_says_so_to_the_parent() {
    let switch = Switch::start(Kind::under_test(), Mode::Dummy);
    let program = daemon_program();
    // Starts a daemon with few descriptors. Returns the output of the parent, and whether the
    // daemon runs. A daemon without a descriptor for its database retries, and its parent waits.
    let start = &|files: u32| {
        let dir = switch.sandbox().file(&format!("few{files}"));
        std::fs::create_dir(&dir).expect("the place is ours");
        let (dir, program) = (dir.display(), program.display());
        let output = switch.sh(&format!(
            "ovsdb-tool create {dir}/conf.db /usr/share/openvswitch/vswitch.ovsschema; \
             ovsdb-server {dir}/conf.db --remote=punix:{dir}/db.sock --unixctl={dir}/db.ctl --pidfile={dir}/db.pid --no-chdir --detach -vconsole:off -vsyslog:off; \
             (ulimit -n {files}; OVS_RUNDIR={dir} timeout 10 {program} unix:{dir}/db.sock --pidfile --detach --enable-dummy --disable-system \
             -vconsole:off -vsyslog:off); code=$?; sleep 0.5; kill $(cat {dir}/ovs-vswitchd.pid) && echo runs; \
             [ $code != 124 ] || echo waits; kill $(cat {dir}/db.pid); exit $code"
        ));
        let says = |word| output.stdout.contains(word);
        (files, output.ok() || says("waits"), says("runs"), says("waits"), output.text())
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (6..28).map(|files| scope.spawn(move || start(files))).collect();
        threads.into_iter().map(|t| t.join().expect("it does not panic")).collect()
    });
    for (files, said, runs, _, text) in &results {
        assert_eq!(said, runs, "with {files} descriptors: {text}");
    }
    assert!(results.first().is_some_and(|r| !r.2) && results.last().is_some_and(|r| r.2 && !r.3));
}
