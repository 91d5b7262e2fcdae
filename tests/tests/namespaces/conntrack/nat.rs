// SPDX-License-Identifier: Apache-2.0
//! Network address translation.

use super::{await_conn, conn, conns, firewall, is_refused, leads_to, pair, part};
use crate::tools::{SOON, Stream};
use slipswitch_tests::harness::{Capture, Host, Switch, wait_until};
use std::net::UdpSocket;

/// Flows that translate in both directions: for new connections from h1 as `nat` says.
fn translated(nat: &str) -> String {
    firewall("ip", &format!("zone=1,nat({nat})"), "zone=1,nat")
}

/// Checks that a capture has packets of `expected`.
#[track_caller]
fn shows(capture: &Capture, expected: &str) -> String {
    assert!(wait_until(SOON, || capture.text().contains(expected)), "{}", capture.text());
    capture.text()
}

/// Has hosts finish their checksums, which then are whole in captures, also in quoted packets.
fn finish_checksums(hosts: &[&Host]) {
    hosts.iter().for_each(|host| drop(host.netns.sh("ethtool -K eth0 tx off")));
}

/// Checks that a capture has packets of `expected`, and no wrong checksum.
#[track_caller]
fn shows_whole(capture: &Capture, expected: &str) {
    let text = shows(capture, expected);
    for wrong in ["(incorrect", "bad udp cksum", "wrong icmp cksum", "bad cksum"] {
        assert!(!text.contains(wrong), "{text}");
    }
}

#[test]
fn source_addresses_are_translated() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &translated("src=10.1.1.240-10.1.1.255:34567-34568"));
    for n in 240..=255 {
        leads_to(&b, &format!("10.1.1.{n}"), &a);
    }
    let capture = b.capture(switch.sandbox(), "eth0", "ip");
    let mut stream = Stream::new(&a, &b, "10.1.1.2:7000", "10.1.1.2:7000");
    stream.write(500_000);
    let line = conn(&switch, &["tcp,", "ESTABLISHED"]);
    let sport = part(&line, "sport=");
    let (address, port) =
        (part(&line, "reply=(src=10.1.1.2,dst="), part(&line, ",sport=7000,dport="));
    let last: u8 = part(address, "10.1.1.").parse().expect("a number");
    assert!((240..=255).contains(&last) && ["34567", "34568"].contains(&port), "{line}");
    assert_eq!(
        line,
        format!(
            "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport={sport},dport=7000),\
             reply=(src=10.1.1.2,dst={address},sport=7000,dport={port}),zone=1,\
             protoinfo=(state=ESTABLISHED)"
        )
    );
    assert_eq!(stream.finish(), 500_000);
    let text = shows(&capture, &format!("{address}.{port} > 10.1.1.2.7000"));
    assert!(!text.contains("10.1.1.1."), "{text}");
}

#[test]
fn pings_and_errors_are_translated() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &translated("src=10.1.1.240"));
    leads_to(&b, "10.1.1.240", &a);
    finish_checksums(&[&a, &b]);
    assert!(a.reaches("10.1.1.2", SOON));
    let line = conn(&switch, &["icmp,"]);
    let id = part(&line, "id=");
    let expected = |code: &str| {
        format!(
            "icmp,orig=(src=10.1.1.1,dst=10.1.1.2,id={id},type=8,code=0),\
             reply=(src=10.1.1.2,dst=10.1.1.240,id={id},type=0,code=0),zone=1{code}"
        )
    };
    assert_eq!(line, expected(""));
    assert_eq!(a.ping("10.1.1.2", 10), 10);
    // The error quotes the packet as it was at h2. Its inner and outer addresses are translated.
    let inside = a.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-unreach");
    let outside = b.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-unreach");
    assert!(is_refused(&a, "10.1.1.2:33434"));
    let line = await_conn(&switch, &["udp,"]);
    let sport = part(&line, "sport=");
    assert_eq!(
        line,
        format!(
            "udp,orig=(src=10.1.1.1,dst=10.1.1.2,sport={sport},dport=33434),\
             reply=(src=10.1.1.2,dst=10.1.1.240,sport=33434,dport={sport}),zone=1"
        )
    );
    shows_whole(&outside, "10.1.1.2 > 10.1.1.240: ICMP 10.1.1.2 udp port 33434 unreachable");
    shows_whole(&outside, &format!("10.1.1.240.{sport} > 10.1.1.2.33434"));
    shows_whole(&inside, "10.1.1.2 > 10.1.1.1: ICMP 10.1.1.2 udp port 33434 unreachable");
    shows_whole(&inside, &format!("10.1.1.1.{sport} > 10.1.1.2.33434"));
}

#[test]
fn destination_addresses_are_translated() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &translated("dst=10.1.1.2"));
    leads_to(&a, "10.1.1.64", &b);
    finish_checksums(&[&a, &b]);
    assert!(a.reaches("10.1.1.64", SOON));
    assert_eq!(a.ping("10.1.1.64", 10), 10);
    let pings = conns(&switch, &["icmp,orig=(src=10.1.1.1,dst=10.1.1.64,"]);
    let replies = conns(&switch, &["icmp,", "reply=(src=10.1.1.2,dst=10.1.1.1,"]);
    assert!(pings.len() == 2 && pings == replies, "{pings:#?}");
    // The error comes from the address that the datagram was for, also in what it quotes.
    let inside = a.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-unreach");
    assert!(is_refused(&a, "10.1.1.64:33434"));
    let line = await_conn(&switch, &["udp,"]);
    let sport = part(&line, "sport=");
    shows_whole(&inside, "10.1.1.64 > 10.1.1.1: ICMP 10.1.1.64 udp port 33434 unreachable");
    shows_whole(&inside, &format!("10.1.1.1.{sport} > 10.1.1.64.33434"));
}

#[test]
fn destination_ports_are_translated() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &translated("dst=10.1.1.2:8080"));
    leads_to(&a, "10.1.1.64", &b);
    let mut stream = Stream::new(&a, &b, "10.1.1.2:8080", "10.1.1.64:80");
    stream.write(500_000);
    let line = conn(&switch, &["tcp,"]);
    let sport = part(&line, "sport=");
    assert_eq!(
        line,
        format!(
            "tcp,orig=(src=10.1.1.1,dst=10.1.1.64,sport={sport},dport=80),\
             reply=(src=10.1.1.2,dst=10.1.1.1,sport=8080,dport={sport}),zone=1,\
             protoinfo=(state=ESTABLISHED)"
        )
    );
    assert_eq!(stream.finish(), 500_000);
}

/// Two hosts with equal source ports share one address: one of them gets another port.
#[test]
fn two_sources_share_an_address() {
    let Some((switch, a, b)) = pair() else { return };
    let c = super::host(&switch, "h3", "10.1.1.3/24");
    let flows = translated("src=10.1.1.240");
    // Replies go to the host that the translated address is.
    let flows = flows.replace(
        "table=1,priority=20,in_port=h2,ct_state=+trk+est-inv,actions=h1",
        "table=1,priority=25,in_port=h2,ip,nw_dst=10.1.1.1,ct_state=+trk+est-inv,actions=h1
         table=1,priority=25,in_port=h2,ip,nw_dst=10.1.1.3,ct_state=+trk+est-inv,actions=h3
         table=1,priority=30,in_port=h3,ip,ct_state=+trk+new-rel,actions=ct(commit,zone=1,nat(src=10.1.1.240)),h2
         table=1,priority=20,in_port=h3,ct_state=+trk+est-inv,actions=h2",
    );
    switch.flows("br0", &flows);
    leads_to(&b, "10.1.1.240", &a);
    // Frames for the shared address have the Ethernet address of h1.
    c.netns.sh("ip link set eth0 promisc on");
    let mac = super::mac(&a);
    c.netns.sh(&format!("ip link set eth0 down; ip link set eth0 address {mac}; ip link set eth0 up; ip addr replace 10.1.1.3/24 dev eth0"));
    leads_to(&a, "10.1.1.2", &b);
    leads_to(&c, "10.1.1.2", &b);
    let echo = b.netns.with(|| UdpSocket::bind("10.1.1.2:7").expect("the host's address"));
    echo.set_read_timeout(Some(SOON)).expect("not zero");
    let ask = |host: &Host| {
        let socket = host.netns.with(|| UdpSocket::bind("0.0.0.0:5000").expect("a socket"));
        socket.set_read_timeout(Some(SOON)).expect("not zero");
        socket.connect("10.1.1.2:7").expect("a route");
        let mut seen = Vec::new();
        for n in 0..5u8 {
            socket.send(&[n]).expect("there is room");
            let mut data = [0; 8];
            let (length, from) = echo.recv_from(&mut data).expect("it arrives");
            seen.push(from);
            echo.send_to(&data[..length], from).expect("there is room");
            assert_eq!(socket.recv(&mut data).expect("the answer comes back"), 1);
            assert_eq!(data[0], n);
        }
        seen.dedup();
        let [one] = seen.as_slice() else { panic!("one source was expected: {seen:?}") };
        *one
    };
    let (first, second) = (ask(&a), ask(&c));
    assert_eq!(first.ip().to_string(), "10.1.1.240");
    assert_eq!(second.ip().to_string(), "10.1.1.240");
    assert_ne!(first.port(), second.port());
    assert_eq!(first.port(), 5000, "the first one keeps its port");
    for (source, port) in [("10.1.1.1", first.port()), ("10.1.1.3", second.port())] {
        let orig = format!("orig=(src={source},dst=10.1.1.2,sport=5000,dport=7)");
        let line = conn(&switch, &[&orig]);
        assert!(
            line.contains(&format!("reply=(src=10.1.1.2,dst=10.1.1.240,sport=7,dport={port})")),
            "{line}"
        );
    }
    check_flush(&switch);
}

/// A connection is flushed by its tuple, whichever direction it is given in.
#[track_caller]
fn check_flush(switch: &Switch) {
    let count = |source: &str| conns(switch, &[&format!("orig=(src={source},")]).len();
    assert_eq!((count("10.1.1.1"), count("10.1.1.3")), (1, 1));
    switch.appctl("dpctl/flush-conntrack zone=1 'ct_nw_src=10.1.1.3,ct_nw_dst=10.1.1.2,ct_nw_proto=17,ct_tp_src=5000,ct_tp_dst=7'");
    assert_eq!((count("10.1.1.1"), count("10.1.1.3")), (1, 0));
    switch.appctl("dpctl/flush-conntrack zone=1");
    assert_eq!((count("10.1.1.1"), count("10.1.1.3")), (0, 0));
}
