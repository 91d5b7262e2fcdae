// SPDX-License-Identifier: Apache-2.0
//! Network address translation.

use super::{await_conn, conn, conns, firewall, is_refused, leads_to, pair, part};
use crate::tools::{SOON, Stream, connect_from};
use slipswitch_tests::harness::{Capture, Host, Kind, Switch, patient, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

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
    let mac = a.netns.mac("eth0");
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

/// A connection that ended keeps its tuple for a while. The same ports may begin again meanwhile.
#[test]
fn ports_are_used_again_in_time_wait() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &translated("src=10.1.1.240"));
    leads_to(&b, "10.1.1.240", &a);
    let listener = b.netns.with(|| TcpListener::bind("10.1.1.2:7000").expect("its address"));
    for _ in 0..3 {
        // The end that closes first keeps its ports: that is the server.
        let listener = listener.try_clone().expect("there are descriptors");
        let server = std::thread::spawn(move || {
            let (mut stream, from) = listener.accept().expect("someone connects");
            stream.write_all(b"bye").expect("the connection lives");
            from
        });
        let server_address = "10.1.1.2:7000".parse().expect("an address");
        let mut stream = a.netns.with(|| connect_from(5000, server_address));
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the server ends the connection");
        assert_eq!(text, "bye");
        let from = server.join().expect("it is served");
        assert_eq!(from.to_string(), "10.1.1.240:5000");
        drop(stream);
        let line = await_conn(&switch, &["tcp,", "TIME_WAIT"]);
        let reply = "reply=(src=10.1.1.2,dst=10.1.1.240,sport=7000,dport=5000)";
        assert!(line.contains("sport=5000,dport=7000") && line.contains(reply), "{line}");
    }
}

/// Without a free port no connection is made: that is counted and logged, the packet is not
/// translated, and rules know it by its state.
#[test]
fn exhausted_ports_are_counted_and_nothing_passes_untranslated() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows(
        "br0",
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=5,udp,actions=ct(zone=1,nat,table=1)
         table=1,priority=9,in_port=h1,udp,ct_state=+trk+new,actions=ct(commit,zone=1,nat(src=10.1.1.240:40000-40001),table=2)
         table=1,priority=8,in_port=h1,udp,ct_state=+trk+est,actions=h2
         table=1,priority=8,in_port=h2,udp,ct_state=+trk+est,actions=h1
         table=2,priority=9,udp,ct_state=+snat,actions=h2
         table=2,cookie=9,priority=8,udp,actions=drop",
    );
    leads_to(&b, "10.1.1.240", &a);
    let target = b.netns.with(|| UdpSocket::bind("10.1.1.2:9").expect("the host's address"));
    let bind = |_| a.netns.with(|| UdpSocket::bind("10.1.1.1:0").expect("a socket"));
    let sockets: Vec<UdpSocket> = (0..5).map(bind).collect();
    let arrives = |socket: &UdpSocket, wait: Duration| {
        socket.send_to(b"x", "10.1.1.2:9").expect("there is room");
        target.set_read_timeout(Some(wait)).expect("not zero");
        target.recv_from(&mut [0; 8]).ok().map(|(_, from)| from)
    };
    let is_one_of_the_range = |from: std::net::SocketAddr| {
        from.ip().to_string() == "10.1.1.240" && (40000..=40001).contains(&from.port())
    };
    let passes: Vec<_> =
        sockets.iter().take(2).map(|socket| arrives(socket, patient(SOON))).collect();
    assert!(passes.iter().flatten().filter(|from| is_one_of_the_range(**from)).count() == 2);
    assert_ne!(passes[0], passes[1]);
    let counter = || switch.counter("conntrack_nat_exhausted");
    let is_ours = Kind::under_test() == Kind::Slipswitch;
    for (n, socket) in (1..).zip(&sockets[2..]) {
        assert_eq!(arrives(socket, Duration::from_millis(300)), None);
        assert!(wait_until(SOON, || switch.counts("br0 cookie=9/-1").0 == n), "{n}");
        assert!(!is_ours || counter() == n, "{} of {n}", counter());
    }
    let log = switch.log();
    assert!(log.contains("Unable to NAT due to tuple space exhaustion"), "{}", switch.story());
    assert_eq!(conns(&switch, &["udp,"]).len(), 2);
    // A connection that ends leaves its port to others.
    switch.appctl("dpctl/flush-conntrack zone=1");
    let from = arrives(&sockets[4], patient(SOON)).expect("there is a free port");
    assert!(is_one_of_the_range(from), "{from}");
}

/// A host sends from one port to an address that is translated to a server's, and to the server.
/// `nat` translates the latter: it keeps the address, and changes the port if without that both
/// connections would have the same replies.
#[track_caller]
fn check_collision(nat: &str) {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows(
        "br0",
        &format!(
            "table=0,priority=10,arp,actions=NORMAL
             table=0,priority=5,udp,actions=ct(zone=1,nat,table=1)
             table=1,priority=9,in_port=h1,udp,nw_dst=10.1.1.64,ct_state=+trk+new,actions=ct(commit,zone=1,nat(dst=10.1.1.2)),h2
             table=1,priority=8,in_port=h1,udp,ct_state=+trk+new,actions=ct(commit,zone=1,{nat}),h2
             table=1,priority=8,in_port=h1,udp,ct_state=+trk+est,actions=h2
             table=1,priority=8,in_port=h2,udp,ct_state=+trk+est+rpl,actions=h1"
        ),
    );
    leads_to(&a, "10.1.1.64", &b);
    let server = b.netns.with(|| UdpSocket::bind("10.1.1.2:7").expect("the host's address"));
    let [first, second] = [29_999, 30_000].map(|port| {
        a.netns.with(|| UdpSocket::bind(("10.1.1.1", port)).expect("the host's address"))
    });
    for socket in [&server, &first, &second] {
        socket.set_read_timeout(Some(patient(SOON))).expect("not zero");
    }
    // Returns the source of the datagrams as the server sees it.
    let ask = |client: &UdpSocket, target: &str| {
        let mut data = [0; 8];
        let mut seen = Vec::new();
        for n in 0..6u8 {
            client.send_to(&[n], target).expect("there is room");
            let (length, from) = server.recv_from(&mut data).expect("it arrives");
            server.send_to(&data[..length], from).expect("there is room");
            let (length, back) = client.recv_from(&mut data).expect("the answer comes back");
            assert_eq!((&data[..length], back.to_string().as_str()), (&[n][..], target));
            seen.push(from);
        }
        seen.dedup();
        let [one] = seen.as_slice() else { panic!("one source was expected: {seen:?}") };
        one.to_string()
    };
    assert_eq!(ask(&first, "10.1.1.2:7"), "10.1.1.1:29999");
    assert_eq!(ask(&second, "10.1.1.64:7"), "10.1.1.1:30000");
    for _ in 0..2 {
        let source = ask(&second, "10.1.1.2:7");
        assert!(source.starts_with("10.1.1.1:") && source != "10.1.1.1:30000", "{source}");
    }
    assert_eq!(ask(&second, "10.1.1.64:7"), "10.1.1.1:30000");
    assert_eq!(conns(&switch, &["udp,", "zone=1"]).len(), 3, "{:#?}", conns(&switch, &[]));
}

#[test]
fn the_address_zero_keeps_the_source_and_resolves_collisions() {
    check_collision("nat(src=0.0.0.0)");
}

#[test]
fn translation_without_addresses_resolves_collisions() {
    if Kind::under_test() == Kind::RealOvs {
        return slipswitch_tests::harness::skip("Open vSwitch lets such packets collide");
    }
    check_collision("nat");
}

/// A host connects to itself by the address of a service: both its address and its port are translated,
/// in two zones, and the packet leaves by the port at which it came in.
#[test]
fn a_host_reaches_itself_through_a_service() {
    let Some((switch, a, _b)) = pair() else { return };
    let mac = a.netns.mac("eth0");
    switch.flows(
        "br0",
        &format!(
            "table=0,priority=9,tcp,nw_dst=10.1.1.100,tcp_dst=80,actions=ct(zone=1,nat,table=1)
             table=0,priority=9,tcp,nw_dst=10.1.1.100,tcp_src=8080,actions=ct(zone=2,nat,table=5)
             table=1,tcp,ct_state=+trk+new,actions=ct(commit,zone=1,nat(dst=10.1.1.1:8080),table=2)
             table=1,tcp,ct_state=+trk+est,actions=resubmit(,2)
             table=2,tcp,actions=ct(zone=2,nat,table=3)
             table=3,tcp,ct_state=+trk+new,actions=ct(commit,zone=2,nat(src=10.1.1.100),table=4)
             table=3,tcp,ct_state=+trk+est,actions=resubmit(,4)
             table=4,tcp,actions=mod_dl_src:02:00:00:00:00:99,mod_dl_dst:{mac},in_port
             table=5,tcp,ct_state=+trk+est+rpl,actions=ct(zone=1,nat,table=4)"
        ),
    );
    a.netns.sh("ip neigh replace 10.1.1.100 lladdr 02:00:00:00:00:99 dev eth0");
    for _ in 0..3 {
        let mut stream = Stream::new(&a, &a, "10.1.1.1:8080", "10.1.1.100:80");
        stream.write(300_000);
        let orig = "tcp,orig=(src=10.1.1.1,dst=10.1.1.100,";
        let one = conns(&switch, &[orig, "reply=(src=10.1.1.1,dst=10.1.1.1,sport=8080,", "EST"]);
        assert_eq!(one.len(), 1, "{:#?}", conns(&switch, &[]));
        let two = conns(
            &switch,
            &["tcp,orig=(src=10.1.1.1,dst=10.1.1.1,", "reply=(src=10.1.1.1,dst=10.1.1.100,", "EST"],
        );
        assert_eq!(two.len(), 1, "{:#?}", conns(&switch, &[]));
        assert_eq!(stream.finish(), 300_000);
    }
}
