// SPDX-License-Identifier: Apache-2.0
//! Connection tracking, with the programs that people use it for.
//!
//! `SLIPSWITCH_TEST_ORACLE=1` runs the tests on `ovs-vswitchd`. Its tracker takes a checksum that is
//! left to the device for a wrong one, so there the hosts finish theirs.

mod balancer;
mod firewall;
mod fragments;
mod ftp;
mod ipv6;
mod nat;
mod restart;
mod tftp;
mod tiers;
mod zones;

use crate::tools::{SOON, switch};
use slipswitch_tests::harness::{Host, Output, Process, Switch, patient, wait_until, without_tool};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

/// A switch without flows, with two hosts: 10.1.1.1 on port h1, the inside, and 10.1.1.2 on port h2,
/// the outside.
fn pair() -> Option<(Switch, Host, Host)> {
    pair_of("10.1.1.1/24", "10.1.1.2/24")
}

/// The same with other addresses.
fn pair_of(inside: &str, outside: &str) -> Option<(Switch, Host, Host)> {
    if without_tool(&["ethtool"]) {
        return None;
    }
    let switch = switch()?;
    let (a, b) = (host(&switch, "h1", inside), host(&switch, "h2", outside));
    Some((switch, a, b))
}

/// A further host on the bridge.
fn host(switch: &Switch, name: &str, address: &str) -> Host {
    let host = switch.host_on("br0", name, address);
    host.finish_checksums();
    host
}

/// A stateful firewall: whatever `may_start` matches may start connections from h1 to h2, related
/// packets pass in both directions. Neighbours find each other.
fn firewall(may_start: &str, commit: &str, look: &str) -> String {
    format!(
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=10,icmp6,icmp_type=135,actions=NORMAL
         table=0,priority=10,icmp6,icmp_type=136,actions=NORMAL
         table=0,priority=5,ip,actions=ct({look},table=1)
         table=0,priority=5,ipv6,actions=ct({look},table=1)
         table=1,priority=30,in_port=h1,{may_start},ct_state=+trk+new-rel,actions=ct(commit,{commit}),h2
         table=1,priority=20,in_port=h1,ct_state=+trk+est-inv,actions=h2
         table=1,priority=20,in_port=h2,ct_state=+trk+est-inv,actions=h1
         table=1,priority=20,in_port=h1,ct_state=+trk+rel-new-inv,actions=h2
         table=1,priority=20,in_port=h2,ct_state=+trk+rel-new-inv,actions=h1
         table=1,cookie=9,priority=9,in_port=h2,ct_state=+trk+new,actions=drop
         table=1,priority=8,ct_state=+trk+inv,actions=drop"
    )
}

/// The connections whose lines hold all of `parts`, sorted.
fn conns(switch: &Switch, parts: &[&str]) -> Vec<String> {
    let text = switch.appctl("dpctl/dump-conntrack");
    let mut lines: Vec<String> =
        text.lines().filter(|l| parts.iter().all(|p| l.contains(p))).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The only connection whose line holds all of `parts`.
#[track_caller]
fn conn(switch: &Switch, parts: &[&str]) -> String {
    let lines = conns(switch, parts);
    let [line] = lines.as_slice() else {
        panic!("one with {parts:?} was expected: {:#?}", conns(switch, &[]))
    };
    line.clone()
}

/// Waits until there is one connection whose line holds all of `parts`.
#[track_caller]
fn await_conn(switch: &Switch, parts: &[&str]) -> String {
    wait_until(SOON, || conns(switch, parts).len() == 1);
    conn(switch, parts)
}

/// The text between `before` and the next comma or parenthesis in `line`.
#[track_caller]
fn part<'a>(line: &'a str, before: &str) -> &'a str {
    let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("no {before} in {line}"));
    rest.split([',', ')']).next().unwrap_or_default()
}

/// Gives connections of zone 1 other timeouts.
fn set_timeouts(switch: &Switch, timeouts: &str) {
    switch.vsctl(
        "-- --id=@m create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@m",
    );
    switch.vsctl(&format!("add-zone-tp netdev zone=1 {timeouts}"));
}

/// Has `host` send packets for `address` to the device of `target`.
fn leads_to(host: &Host, address: &str, target: &Host) {
    let mac = target.netns.mac("eth0");
    host.netns.sh(&format!("ip neigh replace {address} lladdr {mac} dev eth0"));
}

/// True when an ICMP error answers a datagram from `host` to a port where nobody listens. The
/// kernel gives an error to the socket only if the packet it quotes is the socket's.
fn is_refused(host: &Host, target: &str) -> bool {
    let target = target.to_owned();
    let any = if target.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    host.netns.with(|| {
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.connect(target.as_str()).expect("there is a route");
        socket.set_read_timeout(Some(patient(Duration::from_secs(3)))).expect("not zero");
        socket.send(b"anybody there?").expect("the first datagram is sent");
        let answer = socket.recv(&mut [0; 64]);
        matches!(answer, Err(e) if e.kind() == ErrorKind::ConnectionRefused)
    })
}

/// True when a TCP connection from `host` gets no answer at all.
fn is_ignored(host: &Host, target: &str) -> bool {
    let target = target.parse().expect("an address");
    host.netns.with(|| {
        let wait = Duration::from_millis(500);
        let answer = std::net::TcpStream::connect_timeout(&target, wait);
        matches!(answer, Err(e) if e.kind() == ErrorKind::TimedOut)
    })
}

/// The daemon does nothing meanwhile.
struct Stopped<'a>(&'a Switch);

impl<'a> Stopped<'a> {
    fn new(switch: &'a Switch) -> Stopped<'a> {
        let stopped = Stopped(switch);
        stopped.signal("STOP");
        stopped
    }

    fn signal(&self, name: &str) {
        self.0.daemon().expect("it was started").signal(name);
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

/// Starts a server in the namespace of `host`, and waits until `/proc/net` lists its socket: `list`
/// is `tcp` or `udp`.
fn server(switch: &Switch, host: &Host, list: &str, port: u16, command: &[&str]) -> Process {
    let (program, arguments) = command.split_first().expect("a program");
    let name = format!("{}-{program}", host.name());
    let process = Process::start(switch.sandbox(), Some(&host.netns), &name, program, arguments);
    let listens = format!(":{port:04X} 00000000");
    let ready = wait_until(SOON, || {
        let text = host.netns.run(&format!("cat /proc/net/{list} /proc/net/{list}6")).stdout;
        text.contains(&listens)
    });
    let said = switch.sandbox().read(&format!("{name}.err"));
    assert!(
        ready,
        "{program} does not listen: {said}{}",
        switch.sandbox().read(&format!("{name}.out"))
    );
    process
}

/// Runs a line of shell in the namespace of a host, in the switch's directory; it is killed if it
/// takes very long.
fn client(switch: &Switch, host: &Host, line: &str) -> Output {
    let dir = switch.sandbox().dir().display();
    let limit = patient(Duration::from_secs(30)).as_secs();
    host.netns.run(&format!("cd {dir} && timeout {limit} {line}"))
}

/// The same for a line that has to succeed; its standard output.
#[track_caller]
fn succeeds(switch: &Switch, host: &Host, line: &str) -> String {
    let output = client(switch, host, line);
    assert!(
        output.ok(),
        "{line}: {:?} {}\n{:#?}\n{}",
        output.code,
        output.text(),
        conns(switch, &[]),
        switch.ofctl("dump-flows br0")
    );
    output.stdout
}

/// Writes a file of `length` bytes in which a lost or moved byte shows; its name.
fn file(switch: &Switch, name: &str, length: usize) {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
    switch.sandbox().write(name, bytes);
}

/// Checks that two files are equal.
#[track_caller]
fn equal(switch: &Switch, one: &str, other: &str) {
    let read = |name| std::fs::read(switch.sandbox().file(name)).unwrap_or_default();
    let (one, other) = (read(one), read(other));
    assert!(!one.is_empty() && one == other, "{} and {} bytes", one.len(), other.len());
}
