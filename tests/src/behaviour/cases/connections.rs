// SPDX-License-Identifier: Apache-2.0
//! The actions `ct` and `ct_clear`.

use crate::behaviour::frames::{A, B, has_right_checksums, pattern, unfinished, v4, v6};
use crate::behaviour::world::Seen;
use crate::behaviour::{World, on};
use datapath::DropReason;
use flow::ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};
use flow::{Field, Key};
use packet::build::Frame;
use packet::tcp_flags::{ACK, FIN, RST, SYN};
use packet::{Ipv4Header, Packet, TcpHeader, ip_proto};
use std::time::Duration;
use testing::wait_until;

/// Longest wait for work of another thread.
const WAIT: Duration = Duration::from_secs(20);

/// Replaces all megaflows by one that runs `actions`, and then looks the packet up again. Returns
/// the key of that lookup, and the frame.
fn tracked(w: &World, actions: &str, packet: Packet) -> (Key, Vec<u8>) {
    w.dp().flush();
    w.upcalls();
    w.install(1, on(1), &format!("{actions},recirc(0x1)"));
    w.fixture().inject(datapath::PortNo(1), packet);
    let mut seen = w.upcalls();
    let last = seen.pop().unwrap_or_else(|| panic!("{actions}: no lookup"));
    (last.key, last.frame)
}

fn key(w: &World, actions: &str, frame: &[u8]) -> Key {
    tracked(w, actions, Packet::from_slice(frame)).0
}

fn state(w: &World, actions: &str, frame: &[u8]) -> u8 {
    key(w, actions, frame).ct_state
}

fn tcp(hosts: (u8, u8), ports: (u16, u16), flags: u16, numbers: (u32, u32)) -> Vec<u8> {
    tcp_with(hosts, ports, flags, numbers, b"")
}

fn tcp_with(
    hosts: (u8, u8),
    ports: (u16, u16),
    flags: u16,
    numbers: (u32, u32),
    data: &[u8],
) -> Vec<u8> {
    let header = TcpHeader {
        src: ports.0.into(),
        dst: ports.1.into(),
        seq: numbers.0.into(),
        ack: numbers.1.into(),
        offset_flags: (5 << 12 | flags).into(),
        window: 10_000.into(),
        checksum: 0.into(),
        urgent: 0.into(),
    };
    Frame::ethernet(B, A)
        .ipv4(v4(hosts.0), v4(hosts.1), 64)
        .tcp_header(header)
        .payload(data)
        .finish()
}

fn udp(hosts: (u8, u8), ports: (u16, u16)) -> Vec<u8> {
    let frame = Frame::ethernet(B, A).ipv4(v4(hosts.0), v4(hosts.1), 64);
    frame.udp(ports.0, ports.1).payload(b"data").finish()
}

fn echo(hosts: (u8, u8), kind: u8, id: u16) -> Vec<u8> {
    let frame = Frame::ethernet(B, A).ipv4(v4(hosts.0), v4(hosts.1), 64);
    frame.icmp(kind, 0, u32::from(id) << 16 | 1).payload(b"data").finish()
}

/// A "port unreachable" from a host about `frame`, to its sender.
fn error(from: u8, frame: &[u8]) -> Vec<u8> {
    let [.., last] = frame[26..30] else { unreachable!("four bytes") };
    let quoted = &frame[14..frame.len().min(14 + 28)];
    Frame::ethernet(B, A).ipv4(v4(from), v4(last), 64).icmp(3, 3, 0).payload(quoted).finish()
}

fn addresses(frame: &[u8]) -> (u8, u8) {
    (frame[29], frame[33])
}

pub fn a_connection_is_new_then_established(w: &World) {
    let syn = tcp((1, 2), (1000, 80), SYN, (99, 0));
    let syn_ack = tcp((2, 1), (80, 1000), SYN | ACK, (499, 100));
    let ack = tcp((1, 2), (1000, 80), ACK, (100, 500));
    // Without a commit nothing is remembered.
    assert_eq!(state(w, "ct", &syn), NEW | TRK);
    assert_eq!(state(w, "ct", &syn_ack), INV | TRK);
    assert_eq!(state(w, "ct(commit)", &syn), NEW | TRK);
    assert_eq!(state(w, "ct", &syn), NEW | TRK, "a SYN that is sent again");
    assert_eq!(state(w, "ct", &syn_ack), EST | RPL | TRK);
    let k = key(w, "ct", &ack);
    assert_eq!(k.ct_state, EST | TRK);
    let original = (k.ct_nw_src.get(), k.ct_nw_dst.get(), k.ct_tp_src.get(), k.ct_tp_dst.get());
    assert_eq!(original, (v4(1).to_bits(), v4(2).to_bits(), 1000, 80));
    assert_eq!((k.ct_nw_proto, k.ct_zone.get()), (6, 0));
    let k = key(w, "ct", &tcp((2, 1), (80, 1000), ACK, (500, 100)));
    assert_eq!((k.ct_state, k.ct_tp_src.get()), (EST | RPL | TRK, 1000));
    // Outside the window, and with flags that no stack sends.
    assert_eq!(state(w, "ct", &tcp((1, 2), (1000, 80), RST, (9_999_999, 0))), INV | TRK);
    assert_eq!(state(w, "ct", &tcp((1, 2), (1000, 80), SYN | FIN, (100, 0))), INV | TRK);
    // A connection that was reset begins again.
    assert_eq!(state(w, "ct", &tcp((1, 2), (1000, 80), RST | ACK, (100, 500))), EST | TRK);
    assert_eq!(state(w, "ct", &syn), NEW | TRK);
    assert_eq!(state(w, "ct", &ack), NEW | TRK, "picked up: nothing is committed any more");
}

/// Flows for packets of port 1 and answers of port 2: tracked in zone 5, then looked up by the state.
fn install_firewall(w: &World, nat: &str) {
    for (port, to) in [(1, 2), (2, 1)] {
        let by_state = |state: u8| {
            let mut again = on(port);
            again.set(Field::RecircId, u128::from(port));
            again.set_masked(Field::CtState, state.into(), (NEW | EST).into());
            again.set_masked(Field::CtMark, 0, 0xf0);
            again
        };
        let ufid = u128::from(port) * 10;
        w.install(ufid, on(port), &format!("ct(zone=5,nat),recirc({port:#x})"));
        w.install(ufid + 1, by_state(EST), &to.to_string());
        if port == 1 {
            let begin = format!("ct(commit,zone=5,mark=0x1/0xf{nat}),2");
            w.install(ufid + 2, by_state(NEW), &begin);
        }
    }
}

pub fn established_packets_stay_with_their_flows(w: &World) {
    install_firewall(w, ",nat(src=10.0.0.9)");
    let send = |port: u32, frame: &[u8]| {
        w.fixture().inject(datapath::PortNo(port), Packet::from_slice(frame));
        w.out(3 - port)
    };
    let (forth, back) = (udp((1, 2), (1500, 53)), udp((2, 9), (53, 1500)));
    assert_eq!(send(2, &back), [[0; 0]; 0], "nobody asked");
    for round in 0..5 {
        for (port, frame, hosts) in [(1, &forth, (9, 2)), (2, &back, (2, 1))] {
            let out = send(port, frame);
            assert_eq!(out.len(), 1, "round {round}, port {port}");
            assert_eq!(addresses(&out[0]), hosts, "round {round}, port {port}");
            assert!(has_right_checksums(&out[0]));
        }
    }
    // Packets that are still to be segmented or lack their checksum, and TCP.
    let syn = tcp((1, 2), (1000, 80), SYN, (99, 0));
    let syn_ack = tcp((2, 9), (80, 1000), SYN | ACK, (499, 100));
    assert_eq!(send(1, &syn).len(), 1);
    assert_eq!(send(2, &syn_ack).len(), 1);
    for n in 0..5u32 {
        let data = tcp_with((1, 2), (1000, 80), ACK, (100 + 4 * n, 500 + 4 * n), b"data");
        w.fixture().inject(datapath::PortNo(1), unfinished(&data));
        let out = w.out(2);
        assert_eq!((out.len(), addresses(&out[0])), (1, (9, 2)));
        assert!(has_right_checksums(&out[0]));
        let data = tcp_with((2, 9), (80, 1000), ACK, (500 + 4 * n, 104 + 4 * n), b"data");
        let out = send(2, &data);
        assert_eq!((out.len(), addresses(&out[0])), (1, (2, 1)));
        assert!(has_right_checksums(&out[0]));
    }
    let stray = tcp_with((2, 9), (80, 1000), ACK, (1 << 30, 104), b"data");
    assert_eq!(send(2, &stray), [[0; 0]; 0], "outside the window");
    let reset = tcp((1, 2), (1000, 80), RST, (120, 0));
    assert_eq!(send(1, &reset).len(), 1);
}

pub fn other_protocols_are_tracked(w: &World) {
    let out = |n: &World, frame: &[u8]| state(n, "ct(commit)", frame);
    assert_eq!(out(w, &udp((1, 2), (5, 6))), NEW | TRK);
    assert_eq!(out(w, &udp((1, 2), (5, 6))), NEW | TRK);
    assert_eq!(out(w, &udp((2, 1), (6, 5))), EST | RPL | TRK);
    assert_eq!(out(w, &udp((1, 2), (5, 6))), EST | TRK);
    assert_eq!(out(w, &echo((1, 2), 0, 7)), INV | TRK, "a reply begins nothing");
    assert_eq!(out(w, &echo((1, 2), 8, 7)), NEW | TRK);
    let k = key(w, "ct", &echo((2, 1), 0, 7));
    assert_eq!((k.ct_state, k.ct_tp_src.get(), k.ct_tp_dst.get()), (EST | RPL | TRK, 8, 0));
    assert_eq!(out(w, &echo((1, 2), 8, 8)), NEW | TRK, "another identifier");
    let gre = |hosts: (u8, u8)| {
        let frame = Frame::ethernet(B, A).ipv4(v4(hosts.0), v4(hosts.1), 64);
        frame.protocol(47).payload(&[0; 8]).finish()
    };
    assert_eq!(out(w, &gre((1, 2))), NEW | TRK);
    assert_eq!(out(w, &gre((2, 1))), EST | RPL | TRK);
    let six = |a, b| {
        let frame = Frame::ethernet(B, A).ipv6(v6(a), v6(b), 64);
        frame.udp(if a == 1 { 5 } else { 6 }, if a == 1 { 6 } else { 5 }).finish()
    };
    assert_eq!(out(w, &six(1, 2)), NEW | TRK);
    let k = key(w, "ct", &six(2, 1));
    assert_eq!(
        (k.ct_state, k.ct_ipv6_src, k.ct_nw_src.get()),
        (EST | RPL | TRK, v6(1).octets(), 0)
    );
    let errors = [error(9, &udp((1, 2), (5, 6))), error(9, &udp((2, 1), (6, 5)))];
    assert_eq!(state(w, "ct", &errors[0]), REL | RPL | TRK);
    assert_eq!(state(w, "ct", &errors[1]), REL | TRK);
    assert_eq!(state(w, "ct", &error(9, &udp((1, 3), (5, 6)))), INV | TRK);
}

pub fn what_cannot_be_tracked_is_invalid(w: &World) {
    let arp = Frame::ethernet(B, A).arp(0x806, 1, (A, v4(1)), ([0; 6], v4(2))).finish();
    let k = key(w, "ct(commit,zone=3,mark=0x5/0x5)", &arp);
    assert_eq!((k.ct_state, k.ct_zone.get(), k.ct_mark.get()), (INV | TRK, 3, 0));
    let good = udp((1, 2), (5, 6));
    let mut bad = good.clone();
    bad[24] ^= 1;
    assert_eq!(state(w, "ct", &bad), INV | TRK, "a bad checksum of IP");
    let mut bad = good.clone();
    bad[41] ^= 1;
    assert_eq!(state(w, "ct", &bad), INV | TRK, "a bad checksum of UDP");
    assert_eq!(state(w, "ct", &udp((1, 2), (0, 6))), INV | TRK, "port 0");
    assert_eq!(state(w, "ct", &echo((1, 2), 9, 1)), INV | TRK, "neither request nor error");
    // A device completes or has verified the checksum of this one.
    let packet = unfinished(&good);
    assert_eq!(tracked(w, "ct", packet).0.ct_state, NEW | TRK);
}

pub fn force_turns_a_connection(w: &World) {
    let (forth, back) = (udp((1, 2), (5, 6)), udp((2, 1), (6, 5)));
    state(w, "ct(commit)", &forth);
    assert_eq!(state(w, "ct(commit)", &back), EST | RPL | TRK);
    assert_eq!(state(w, "ct(force_commit)", &forth), EST | TRK);
    assert_eq!(state(w, "ct(force_commit)", &back), NEW | TRK);
    assert_eq!(state(w, "ct", &forth), EST | RPL | TRK);
}

pub fn zones_are_apart(w: &World) {
    let (forth, back) = (udp((1, 2), (5, 6)), udp((2, 1), (6, 5)));
    state(w, "ct(commit,zone=1)", &forth);
    assert_eq!(state(w, "ct(zone=2)", &back), NEW | TRK);
    let k = key(w, "ct(zone=1)", &back);
    assert_eq!((k.ct_state, k.ct_zone.get()), (EST | RPL | TRK, 1));
    // Bits accumulate in a zone, and not across zones.
    assert_eq!(state(w, "ct(zone=1),ct(zone=2)", &back), NEW | TRK);
    // A second pass through a zone does not move the state a second time.
    assert_eq!(state(w, "ct(commit,zone=5),ct(zone=5),ct(zone=5)", &forth), NEW | TRK);
}

pub fn mark_and_label_stay_with_the_connection(w: &World) {
    let (forth, back) = (udp((1, 2), (5, 6)), udp((2, 1), (6, 5)));
    let k = key(w, "ct(commit,mark=0x12/0xff,label=0x34/0xff)", &forth);
    assert_eq!((k.ct_mark.get(), u128::from_be_bytes(k.ct_label)), (0x12, 0x34));
    let k = key(w, "ct", &back);
    assert_eq!((k.ct_mark.get(), u128::from_be_bytes(k.ct_label)), (0x12, 0x34));
    let k = key(w, "ct(commit,mark=0x500/0xf00,label=0x7/0xf)", &back);
    assert_eq!((k.ct_mark.get(), u128::from_be_bytes(k.ct_label)), (0x512, 0x37));
    let k = key(w, "ct(zone=1)", &forth);
    assert_eq!((k.ct_mark.get(), u128::from_be_bytes(k.ct_label)), (0, 0));
}

pub fn source_nat_translates_both_ways(w: &World) {
    let ct = "ct(commit,nat(src=10.0.0.9))";
    let forth = udp((1, 2), (1500, 53));
    let (k, out) = tracked(w, ct, Packet::from_slice(&forth));
    assert_eq!((k.ct_state, addresses(&out)), (NEW | TRK | SNAT, (9, 2)));
    assert_eq!((k.nw_src.get(), k.ct_nw_src.get()), (v4(9).to_bits(), v4(1).to_bits()));
    assert!(has_right_checksums(&out));
    let (k, back) = tracked(w, "ct(nat)", Packet::from_slice(&udp((2, 9), (53, 1500))));
    assert_eq!((k.ct_state, addresses(&back)), (EST | RPL | TRK | DNAT, (2, 1)));
    assert!(has_right_checksums(&back));
    // Without nat the packet stays as it is.
    let (k, back) = tracked(w, "ct", Packet::from_slice(&udp((2, 9), (53, 1500))));
    assert_eq!((k.ct_state, addresses(&back)), (EST | RPL | TRK, (2, 9)));
    // Another client with the same port gets another port.
    let (k, out) = tracked(w, ct, Packet::from_slice(&udp((3, 2), (1500, 53))));
    assert_eq!((k.ct_state, addresses(&out)), (NEW | TRK | SNAT, (9, 2)));
    assert_ne!(k.tp_src.get(), 1500);
    assert!(has_right_checksums(&out));
    // With an unfinished checksum, which the port's device finishes.
    let (_, out) = tracked(w, "ct(nat)", unfinished(&forth));
    assert_eq!(addresses(&out), (9, 2));
    assert!(has_right_checksums(&out));
}

pub fn destination_nat_translates_both_ways(w: &World) {
    let ct = "ct(commit,nat(dst=10.0.0.7:8080))";
    let syn = tcp((1, 2), (1000, 80), SYN, (99, 0));
    let (k, out) = tracked(w, ct, Packet::from_slice(&syn));
    assert_eq!((k.ct_state, addresses(&out), k.tp_dst.get()), (NEW | TRK | DNAT, (1, 7), 8080));
    assert!(has_right_checksums(&out));
    let reply = tcp((7, 1), (8080, 1000), SYN | ACK, (499, 100));
    let (k, out) = tracked(w, "ct(nat)", Packet::from_slice(&reply));
    assert_eq!((k.ct_state, addresses(&out), k.tp_src.get()), (EST | RPL | TRK | SNAT, (2, 1), 80));
    assert!(has_right_checksums(&out));
    // Two passes through one zone translate once.
    let ack = tcp((1, 2), (1000, 80), ACK, (100, 500));
    let (k, out) = tracked(w, "ct(nat),ct(nat)", Packet::from_slice(&ack));
    assert_eq!((k.ct_state, addresses(&out)), (EST | TRK | DNAT, (1, 7)));
}

pub fn errors_are_translated_with_what_they_quote(w: &World) {
    let (_, out) =
        tracked(w, "ct(commit,nat(src=10.0.0.9))", Packet::from_slice(&udp((1, 2), (1500, 53))));
    let (k, back) = tracked(w, "ct(nat)", Packet::from_slice(&error(4, &out)));
    assert_eq!(k.ct_state, REL | RPL | TRK | DNAT);
    assert_eq!(addresses(&back), (4, 1));
    // The quoted packet is the one that host 1 has sent, with its checksums.
    assert_eq!(back[42..70], udp((1, 2), (1500, 53))[14..42]);
    assert_eq!(packet::checksum::internet(&back[34..]), 0);
    assert_eq!(packet::checksum::internet(&back[14..34]), 0);
}

pub fn clear_forgets(w: &World) {
    let frame = udp((1, 2), (5, 6));
    let k = key(w, "ct(commit,zone=4,mark=0x1/0x1,label=0x1/0x1),ct_clear", &frame);
    assert_eq!((k.ct_state, k.ct_zone.get(), k.ct_mark.get(), k.ct_label), (0, 0, 0, [0; 16]));
    assert_eq!((k.ct_nw_proto, k.ct_nw_src.get(), k.ct_tp_dst.get()), (0, 0, 0));
    // The connection itself stays.
    assert_eq!(state(w, "ct(zone=4)", &udp((2, 1), (6, 5))), EST | RPL | TRK);
}

pub fn a_changed_packet_is_looked_up_again(w: &World) {
    let frame = udp((1, 2), (5, 6));
    assert_eq!(state(w, "ct(commit),set(udp(dst=7)),ct", &frame), NEW | TRK);
    // The second one has not committed.
    assert_eq!(state(w, "ct", &udp((2, 1), (7, 5))), NEW | TRK);
    assert_eq!(state(w, "ct", &udp((2, 1), (6, 5))), EST | RPL | TRK);
}

pub fn tracking_in_a_copy_stays_there(w: &World) {
    let k = key(w, "clone(ct(commit)),set(ipv4(ttl=9))", &udp((1, 2), (5, 6)));
    assert_eq!((k.ct_state, k.nw_ttl), (0, 9));
    assert_eq!(state(w, "ct", &udp((2, 1), (6, 5))), EST | RPL | TRK);
}

pub fn execution_goes_on_with_the_key_s_connection(w: &World) {
    let frame = udp((1, 2), (5, 6));
    let mut tracked = key(w, "ct(commit,zone=4,mark=0x7/0x7)", &frame);
    tracked.recirc_id.set(0);
    w.upcalls();
    w.dp().execute(Packet::from_slice(&frame), &tracked, &World::actions("recirc(0x2)"));
    let seen = w.upcalls();
    let k = &seen.last().expect("a lookup").key;
    assert_eq!((k.ct_state, k.ct_zone.get(), k.ct_mark.get()), (NEW | TRK, 4, 7));
    assert_eq!((k.ct_nw_src, k.ct_tp_src), (tracked.ct_nw_src, tracked.ct_tp_src));
}

pub fn connections_end_by_the_clock(w: &World) {
    w.fixture().clock().stop();
    let (forth, back) = (udp((1, 2), (5, 6)), udp((2, 1), (6, 5)));
    state(w, "ct(commit)", &forth);
    w.fixture().pass(59_000);
    assert_eq!(state(w, "ct", &back), EST | RPL | TRK);
    w.fixture().pass(29_000);
    assert_eq!(state(w, "ct", &back), EST | RPL | TRK);
    w.fixture().pass(31_000);
    assert_eq!(state(w, "ct", &back), NEW | TRK);
    let syn = tcp((1, 2), (1000, 80), SYN, (99, 0));
    state(w, "ct(commit)", &syn);
    state(w, "ct", &tcp((2, 1), (80, 1000), SYN | ACK, (499, 100)));
    let ack = tcp((1, 2), (1000, 80), ACK, (100, 500));
    assert_eq!(state(w, "ct", &ack), EST | TRK);
    w.fixture().pass(86_390_000);
    assert_eq!(state(w, "ct", &ack), EST | TRK);
    w.fixture().pass(86_410_000);
    assert_eq!(state(w, "ct(commit)", &syn), NEW | TRK);
}

pub fn limits_and_flushes(w: &World) {
    let Some(connections) = w.dp().connections() else {
        return testing::skip("this datapath has no table of connections");
    };
    let table = connections.tracker().table().clone();
    table.counts().set_limit(3, Some(1));
    state(w, "ct(commit,zone=3)", &udp((1, 2), (5, 6)));
    // The zone is full: the packet goes on as that of a new connection, which is not made.
    assert_eq!(state(w, "ct(commit,zone=3)", &udp((1, 2), (7, 6))), NEW | TRK);
    assert_eq!(state(w, "ct(zone=3)", &udp((2, 1), (6, 7))), NEW | TRK);
    assert_eq!(state(w, "ct(zone=3)", &udp((2, 1), (6, 5))), EST | RPL | TRK);
    assert_eq!(connections.tracker().counters().get(conntrack::Counter::ZoneFull), 1);
    state(w, "ct(commit)", &udp((1, 2), (5, 6)));
    assert_eq!(table.counts().conns(), 2);
    let mut worker = table.worker();
    let flush = conntrack::Flush { zone: Some(3), ..Default::default() };
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let flushed = connections.tracker().flush(&worker.pin(), &flush, at, connections.now());
        cursor = flushed.expect("no whole tuple was given");
    }
    assert_eq!(table.counts().conns(), 1);
    assert_eq!(state(w, "ct(zone=3)", &udp((2, 1), (6, 5))), NEW | TRK);
    assert_eq!(state(w, "ct", &udp((2, 1), (6, 5))), EST | RPL | TRK);
}

pub fn ended_connections_are_removed(w: &World) {
    let Some(connections) = w.dp().connections() else {
        return testing::skip("this datapath has no table of connections");
    };
    w.fixture().clock().stop();
    state(w, "ct(commit)", &udp((1, 2), (5, 6)));
    let counts = || connections.tracker().table().counts().conns();
    assert_eq!(counts(), 1);
    w.fixture().pass(61_000);
    let swept = wait_until(WAIT, || counts() == 0);
    assert!(swept, "the connection is still counted");
}

pub fn a_helper_translates_what_it_reads(w: &World) {
    if w.dp().connections().is_none() {
        return testing::skip("this datapath has no helpers");
    }
    const COMMIT: &str = "ct(commit,helper=ftp,nat(src=10.0.0.240))";
    tracked(w, COMMIT, Packet::from_slice(&tcp((1, 2), (1500, 21), SYN, (99, 0))));
    state(w, "ct(nat)", &tcp((2, 240), (21, 1500), SYN | ACK, (499, 100)));
    state(w, "ct(nat)", &tcp((1, 2), (1500, 21), ACK, (100, 500)));
    // The second command is one that the sender's device would complete.
    for (n, seq) in [(1u8, 100), (2, 119)] {
        let command = format!("PORT 10,0,0,1,4,{n}\r\n");
        let frame = tcp_with((1, 2), (1500, 21), ACK, (seq, 500), command.as_bytes());
        let packet = if n == 1 { Packet::from_slice(&frame) } else { unfinished(&frame) };
        let (k, out) = tracked(w, "ct(nat)", packet);
        assert_eq!((k.ct_state, addresses(&out)), (EST | TRK | SNAT, (240, 2)));
        assert_eq!(out[54..], *format!("PORT 10,0,0,240,4,{n}\r\n").as_bytes());
        assert!(has_right_checksums(&out), "{n}");
        // The data connection is expected, and is translated back.
        let data = tcp((2, 240), (20, 1024 + u16::from(n)), SYN, (7, 0));
        let (k, out) = tracked(w, "ct(commit,nat)", Packet::from_slice(&data));
        assert_eq!((k.ct_state, addresses(&out)), (NEW | REL | TRK | DNAT, (2, 1)));
        assert_eq!((k.ct_nw_src.get(), k.ct_tp_dst.get()), (v4(1).to_bits(), 21), "the parent's");
    }
}

/// An IPv4 fragment of a datagram from host 1, with `data` at `offset`.
fn fragment(hosts: (u8, u8), offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let header = Ipv4Header {
        version_ihl: 0x45,
        tos: 0,
        total_len: 0.into(),
        id: 77.into(),
        fragment: ((offset / 8) as u16 | if more { 0x2000 } else { 0 }).into(),
        ttl: 64,
        proto: ip_proto::UDP,
        checksum: 0.into(),
        src: v4(hosts.0).to_bits().into(),
        dst: v4(hosts.1).to_bits().into(),
    };
    Frame::ethernet(B, A).ipv4_header(header).payload(data).finish()
}

/// The fragments of a datagram of 3,000 bytes.
fn fragments(hosts: (u8, u8)) -> [Vec<u8>; 3] {
    let frame = Frame::ethernet(B, A).ipv4(v4(hosts.0), v4(hosts.1), 64);
    let whole = frame.udp(1500, 53).payload(&pattern(2992)).finish();
    let data = &whole[34..];
    [
        fragment(hosts, 0, true, &data[..1400]),
        fragment(hosts, 1400, true, &data[1400..2800]),
        fragment(hosts, 2800, false, &data[2800..]),
    ]
}

pub fn fragments_wait_for_each_other(w: &World) {
    if w.dp().connections().is_none() {
        return testing::skip("this datapath reassembles nothing");
    }
    let [first, middle, last] = fragments((1, 2));
    w.dp().flush();
    w.answer(|_| World::actions("2"));
    w.install(1, on(1), "ct(commit,nat(src=10.0.0.9)),recirc(0x1)");
    // The first one comes last. The others are met by other actions then.
    w.inject(1, &last);
    w.inject(1, &middle);
    assert_eq!((w.out(2).len(), w.upcalls().len()), (0, 0));
    w.dp().flush();
    w.install(1, on(1), "ct(commit,nat(src=10.0.0.9)),3");
    w.inject(1, &first);
    let [a, b] = [w.out(2), w.out(3)];
    assert_eq!((a.len(), b.len()), (2, 1), "each goes on with the actions of its list");
    for frame in a.iter().chain(&b) {
        assert_eq!(addresses(frame), (9, 2));
        assert_eq!(packet::checksum::internet(&frame[14..34]), 0);
    }
    assert!(w.upcalls().iter().all(|seen| seen.key.ct_state == NEW | TRK | SNAT));
    // The datagram is right as a whole.
    let mut datagram = b[0][34..].to_vec();
    let mut parts = a.clone();
    parts.sort_by_key(|frame| (frame[20] & 0x1f, frame[21]));
    parts.iter().for_each(|frame| datagram.extend_from_slice(&frame[34..]));
    let mut sum = packet::checksum::Sum::default();
    sum.add(&b[0][26..34]);
    sum.add_u32(17 + datagram.len() as u32);
    sum.add(&datagram);
    assert_eq!(sum.finish(), 0);
}

pub fn fragments_without_their_packet_go_on_as_invalid(w: &World) {
    if w.dp().connections().is_none() {
        return testing::skip("this datapath reassembles nothing");
    }
    w.fixture().clock().stop();
    let [first, middle, _] = fragments((1, 2));
    w.dp().flush();
    w.answer(|_| World::actions("2"));
    w.install(1, on(1), "ct(commit,zone=7),recirc(0x1)");
    w.inject(1, &first);
    w.inject(1, &middle);
    assert_eq!(w.out(2).len(), 0);
    w.fixture().pass(16_000);
    // The next packet at ct releases them. They have the zone of their own.
    w.dp().flush();
    w.install(1, on(1), "ct(commit,zone=9),recirc(0x1)");
    w.inject(1, &udp((3, 4), (5, 6)));
    assert_eq!(w.out(2).len(), 3);
    let seen = |upcall: &Seen| (upcall.key.ct_state, upcall.key.ct_zone.get());
    let states: Vec<(u8, u16)> = w.upcalls().iter().map(seen).collect();
    assert_eq!(states, [(NEW | TRK, 9), (INV | TRK, 7), (INV | TRK, 7)]);
    // Without a next packet they are removed in the end, with a reason.
    w.dp().flush();
    w.install(1, on(1), "ct(commit),recirc(0x1)");
    w.inject(1, &first);
    w.fixture().pass(90_000);
    let purged = wait_until(WAIT, || w.drops(DropReason::FragmentsPurged) == 1);
    assert!(purged, "the fragment still waits");
    // A fragment that cannot be of a packet goes on at once.
    assert_eq!(state(w, "ct", &fragment((1, 2), 0, true, &pattern(64))), INV | TRK);
}
