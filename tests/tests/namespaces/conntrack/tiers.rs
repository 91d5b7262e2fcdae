// SPDX-License-Identifier: Apache-2.0
//! One table for all tiers: hosts at XDP, at tcx and in userspace.

use super::{conns, firewall, host, leads_to, pair, part};
use crate::tools::{SOON, Stream, connect_from, megaflows, packets, sees};
use crate::xdp;
use slipswitch_tests::harness::{Capture, Host, Kind, Switch, patient, wait_until};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A tier as megaflows have it.
const IN_USERSPACE: &str = "offloaded:no";

/// A switch with 10.1.1.1 at XDP on h1, and 10.1.1.2 on h2 in userspace.
fn apart() -> Option<(Switch, Host, Host, Vec<Capture>)> {
    let (switch, a, b) = pair()?;
    if Kind::under_test() == Kind::RealOvs {
        return None;
    }
    let held = xdp::prepare(&switch, &[&a, &b], &["h1"]);
    switch.vsctl("set interface h2 other_config:tier=userspace");
    Some((switch, a, b, held))
}

/// Packets of one direction are tracked at XDP, those of the other one in userspace. It is one
/// connection, with one translation and one window.
#[test]
fn the_directions_of_a_connection_may_have_different_tiers() {
    let Some((switch, a, b, _held)) = apart() else { return };
    let commit = "zone=1,nat(src=10.1.1.240),exec(set_field:17->ct_mark)";
    switch.flows("br0", &firewall("ip", commit, "zone=1,nat"));
    leads_to(&b, "10.1.1.240", &a);
    for target in ["10.1.1.2:7000", "10.1.1.2:7001"] {
        let mut stream = Stream::new(&a, &b, target, target);
        stream.write(1_000_000);
        let port = format!("dport={})", &target[9..]);
        let line = conns(&switch, &["tcp,", &port, "mark=17", "ESTABLISHED"]);
        assert_eq!(line.len(), 1, "{:#?}", conns(&switch, &[]));
        assert_eq!(stream.finish(), 1_000_000);
    }
    sees(&switch, &["in_port(h1)", "ct_state(0x22/", "dp:xdp"]);
    sees(&switch, &["in_port(h2)", "ct_state(0x", IN_USERSPACE]);
    assert!(packets(&switch, &["in_port(h1)", "ct_state(0x22/", "dp:xdp"]) > 100);
    let ended = || conns(&switch, &["tcp,", "TIME_WAIT"]).len() == 2;
    assert!(wait_until(SOON, ended), "{:#?}", conns(&switch, &[]));
    // Of an error, too, which no tier but the daemon translates.
    assert!(super::is_refused(&a, "10.1.1.2:33434"));
}

/// A connection that began while a port was at one tier goes on at the others.
#[test]
fn a_connection_moves_with_its_port() {
    let Some((switch, a, b, _held)) = apart() else { return };
    switch.flows("br0", &firewall("ip", "zone=1,nat(src=10.1.1.240)", "zone=1,nat"));
    leads_to(&b, "10.1.1.240", &a);
    let mut stream = Stream::new(&a, &b, "10.1.1.2:7000", "10.1.1.2:7000");
    stream.write(300_000);
    let line = conns(&switch, &["tcp,", "ESTABLISHED"]);
    assert_eq!(line.len(), 1, "{line:#?}");
    let mut sent = 300_000;
    for (tier, shown) in
        [("userspace", IN_USERSPACE), ("tcx", "dp:tcx"), ("xdp", "dp:xdp"), ("tcx", "dp:tcx")]
    {
        switch.vsctl(&format!("set interface h1 other_config:tier={tier}"));
        let is_there = wait_until(SOON, || {
            stream.write(100_000);
            sent += 100_000;
            !megaflows(&switch, &["in_port(h1)", "ct_state(0x22/", shown]).is_empty()
        });
        assert!(is_there, "{tier}: {}", megaflows(&switch, &[]).join("\n"));
        assert_eq!(conns(&switch, &["tcp,"]), line, "{tier}");
    }
    assert_eq!(stream.finish(), sent as u64);
}

/// Connections of each host and protocol in the hammer.
const CONNECTIONS: u16 = 150;
/// The first of the source ports, the same for all hosts.
const FIRST: u16 = 20_000;
/// Messages of a connection.
const MESSAGES: u8 = 4;

/// Sends back what arrives, until it is dropped.
struct Answerer {
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Answerer {
    fn start(host: &Host) -> Answerer {
        let over = Arc::<AtomicBool>::default();
        let (udp, tcp) = host.netns.with(|| {
            let udp = UdpSocket::bind("10.1.1.2:7").expect("the host's address");
            (udp, TcpListener::bind("10.1.1.2:7").expect("the host's address"))
        });
        udp.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
        tcp.set_nonblocking(true).expect("it can be");
        let end = Arc::clone(&over);
        let datagrams = std::thread::spawn(move || {
            let mut data = [0; 16];
            while !end.load(Ordering::Relaxed) {
                if let Ok((length, from)) = udp.recv_from(&mut data) {
                    udp.send_to(&data[..length], from).expect("there is room");
                }
            }
        });
        let end = Arc::clone(&over);
        let streams = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = tcp.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                std::thread::spawn(move || {
                    let mut data = [0; 16];
                    stream.set_nonblocking(false).expect("it can be");
                    while let Ok(length @ 1..) = stream.read(&mut data) {
                        if stream.write_all(&data[..length]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Answerer { over, threads: vec![datagrams, streams] }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Makes connections from a host, each from a port of its own, and checks that each gets its own
/// answers. `number` is the host's.
fn ask(number: u8, cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("there is such a CPU");
    let server: SocketAddr = "10.1.1.2:7".parse().expect("an address");
    for n in 0..CONNECTIONS {
        let tag = |message: u8| [number, message, n.to_be_bytes()[0], n.to_be_bytes()[1]];
        let socket = UdpSocket::bind(("0.0.0.0", FIRST + n)).expect("a free port");
        socket.connect(server).expect("there is a route");
        socket.set_read_timeout(Some(patient(Duration::from_secs(2)))).expect("not zero");
        let mut stream = connect_from(FIRST + n, server);
        for message in 0..MESSAGES {
            let mut data = [0; 16];
            stream.write_all(&tag(message)).expect("the connection lives");
            stream.read_exact(&mut data[..4]).expect("the answer comes");
            assert_eq!(data[..4], tag(message), "TCP");
            // A datagram may be lost where a queue is full.
            let arrived = (0..5).any(|_| {
                socket.send(&tag(message)).expect("there is room");
                let Ok(length) = socket.recv(&mut data) else { return false };
                let answer = &data[..length];
                assert!(answer[0] == number && answer[2..] == tag(0)[2..], "{answer:?}");
                true
            });
            assert!(arrived, "no answer for connection {n} of host {number}");
        }
    }
}

/// Hosts at all three tiers make connections from the same ports at the same time, on two CPUs, and
/// share one address: each has to get a port that no other one has.
#[test]
fn no_tuple_has_two_owners_when_all_tiers_make_connections() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return slipswitch_tests::harness::skip("one CPU runs one tier at a time");
    }
    let Some((switch, a, b)) = pair() else { return };
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    let (c, d) = (host(&switch, "h3", "10.1.1.3/24"), host(&switch, "h4", "10.1.1.4/24"));
    let _held = xdp::prepare(&switch, &[&a, &b], &["h1"]);
    switch.vsctl("set interface h4 other_config:tier=userspace");
    let mut text = "table=0,priority=10,arp,actions=drop
         table=0,priority=5,ip,actions=ct(zone=1,nat,table=1)
         table=1,priority=20,ip,ct_state=+trk+est-inv,actions=resubmit(,2)
         table=2,ip,nw_dst=10.1.1.2,actions=h2\n"
        .to_owned();
    for client in [&a, &c, &d] {
        let (port, address, mac) = (client.name(), client.address(), client.netns.mac("eth0"));
        text += &format!(
            "table=1,priority=30,in_port={port},ip,ct_state=+trk+new,actions=ct(commit,zone=1,nat(src=10.1.1.240)),h2
             table=2,ip,nw_dst={address},actions=mod_dl_dst:{mac},{port}\n"
        );
        leads_to(client, "10.1.1.2", &b);
    }
    switch.flows("br0", &text);
    leads_to(&b, "10.1.1.240", &a);
    let answerer = Answerer::start(&b);
    let threads = (0..)
        .zip([&a, &c, &d])
        .map(|(number, client)| client.netns.spawn(move || ask(number, usize::from(number) % 2)));
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            eprintln!("{}", switch.story());
            std::panic::resume_unwind(panic);
        }
    }
    drop(answerer);
    for (port, tier) in [("h1", "dp:xdp"), ("h3", "dp:tcx"), ("h4", IN_USERSPACE)] {
        let of = [format!("in_port({port})"), "ct_state(0x22/".into(), tier.into()];
        let sent = packets(&switch, &of.each_ref().map(String::as_str));
        assert!(sent > 0, "{port}: {}", megaflows(&switch, &[]).join("\n"));
    }
    let lines = conns(&switch, &["zone=1"]);
    let expected = 2 * 3 * usize::from(CONNECTIONS);
    assert_eq!(lines.len(), expected, "of {expected}");
    let protocol = |line: &str| line.split(',').next().unwrap_or_default().to_owned();
    let owners = |side: &str| -> HashSet<String> {
        let tuple = |line: &String| {
            let behind = line.split(side).nth(1).unwrap_or_default();
            format!("{} {}", protocol(line), behind.split(')').next().unwrap_or_default())
        };
        lines.iter().map(tuple).collect()
    };
    assert_eq!((owners("orig=(").len(), owners("reply=(").len()), (expected, expected));
    // They did collide: of three with the same port, two at least had to take another one.
    let moved = |line: &&String| {
        let reply = line.split("reply=(").nth(1).unwrap_or_default();
        part(line, "sport=") != part(reply, "dport=")
    };
    assert!(lines.iter().filter(moved).count() >= expected * 2 / 3);
    let count = switch.appctl("dpctl/ct-get-nconns");
    assert_eq!(count.trim(), lines.len().to_string());
}
