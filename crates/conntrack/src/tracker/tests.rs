// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::creation::tests::table;
use crate::extract::extract;
use crate::memory::Sizes;
use crate::nat::{NatRange, Selection};
use crate::sweeper::Sweeper;
use crate::ticks;
use packet::build::Frame;
use packet::tcp_flags::{ACK, FIN, PSH, RST, SYN};
use packet::{TcpHeader, ip_proto};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const SIZES: Sizes =
    Sizes { buckets: 256, max_buckets: 256, chunk_conns: 1024, chunks: 4, ring_slots: 256 };
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const PUBLIC: u8 = 240;

pub(crate) fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 1, last)
}

pub(crate) fn frame(src: u8, dst: u8) -> Frame {
    Frame::ethernet([0; 6], [0; 6]).ipv4(host(src), host(dst), 64)
}

/// A segment with numbers and data.
pub(crate) struct Tcp<'a> {
    pub hosts: (u8, u8),
    pub ports: (u16, u16),
    pub flags: u16,
    pub numbers: (u32, u32),
    /// Data; options in a SYN.
    pub data: &'a [u8],
}

impl Tcp<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let words = if self.flags & SYN != 0 { 5 + self.data.len() / 4 } else { 5 };
        let header = TcpHeader {
            src: self.ports.0.into(),
            dst: self.ports.1.into(),
            seq: self.numbers.0.into(),
            ack: self.numbers.1.into(),
            offset_flags: ((words as u16) << 12 | self.flags).into(),
            window: 10_000.into(),
            checksum: 0.into(),
            urgent: 0.into(),
        };
        let frame = frame(self.hosts.0, self.hosts.1).tcp_header(header).payload(self.data);
        frame.finish().split_off(14)
    }
}

pub(crate) struct Bed {
    pub tracker: Tracker,
    pub sweeper: Sweeper,
    pub now: Ticks,
}

impl Bed {
    pub fn new() -> Bed {
        let (table, sweeper) = table(SIZES);
        Bed { tracker: Tracker::new(table), sweeper, now: Ticks(1000) }
    }

    fn step(&self, bytes: &mut Vec<u8>, meta: &mut Metadata, request: &Request) -> Done {
        let mut worker = self.tracker.table().worker();
        let mut packet = IpPacket {
            bytes,
            family: Family::V4,
            verify: Checksums::ALL,
            checksum: ChecksumState::Finished,
        };
        self.tracker.process(&worker.pin(), &mut packet, meta, request, self.now)
    }

    /// Runs one `ct` on a packet without metadata. Returns the packet afterwards.
    pub fn ct(&self, mut bytes: Vec<u8>, request: &Request) -> (Vec<u8>, Metadata) {
        let mut meta = Metadata::default();
        let done = self.step(&mut bytes, &mut meta, request);
        if let Some(edit) = done.edit {
            bytes = edit.apply(&bytes, Family::V4, 20).unwrap();
        }
        if meta.state & INV == 0 {
            assert!(extract(&bytes, Family::V4, 0, Checksums::ALL).is_ok(), "bad checksums");
        }
        (bytes, meta)
    }

    pub fn state(&self, bytes: Vec<u8>, request: &Request) -> u8 {
        self.ct(bytes, request).1.state
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(ticks::timeout(Duration::from_secs(seconds)));
        self.sweeper.pass(self.now);
    }

    fn handshake(&self, request: &Request, ports: (u16, u16), server: u8) {
        let hosts = (CLIENT, server);
        let tcp = |hosts, ports, flags, numbers| Tcp { hosts, ports, flags, numbers, data: b"" };
        let (syn, meta) = self.ct(tcp(hosts, ports, SYN, (99, 0)).bytes(), request);
        assert_eq!(meta.state & (NEW | INV), NEW);
        let to = tuple(&syn);
        let back = reply_to(&syn, SYN | ACK, (499, 100), b"");
        assert_eq!(self.state(back, request) & (EST | RPL), EST | RPL, "{to:?}");
        let ack = tcp(hosts, ports, ACK, (100, 500)).bytes();
        assert_eq!(self.state(ack, request) & (EST | RPL), EST);
    }
}

fn tuple(bytes: &[u8]) -> Tuple {
    extract(bytes, Family::V4, 0, Checksums::ALL).unwrap().tuple
}

fn ports(tuple: &Tuple) -> (u16, u16) {
    let Ports::Pair { src, dst } = tuple.ports else { unreachable!() };
    (src, dst)
}

fn last(address: IpAddr) -> u8 {
    let IpAddr::V4(address) = address else { unreachable!() };
    address.octets()[3]
}

/// A segment that answers the packet `bytes`.
fn reply_to(bytes: &[u8], flags: u16, numbers: (u32, u32), data: &[u8]) -> Vec<u8> {
    let tuple = tuple(bytes);
    let (src, dst) = ports(&tuple);
    let hosts = (last(tuple.dst), last(tuple.src));
    Tcp { hosts, ports: (dst, src), flags, numbers, data }.bytes()
}

pub(crate) fn udp(src: u8, dst: u8, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    frame(src, dst).udp(ports.0, ports.1).payload(data).finish().split_off(14)
}

pub(crate) fn zone(zone: u16) -> Request {
    Request { zone, ..Request::default() }
}

pub(crate) fn commit(zone: u16) -> Request {
    Request { zone, commit: Commit::Yes, ..Request::default() }
}

fn nat(manip: Manip, address: u8) -> Nat {
    let address = IpAddr::V4(host(address));
    Nat::Range(NatRange {
        manip,
        addresses: Some((address, address)),
        ports: None,
        selection: Selection::Hash,
        persistent: false,
    })
}

#[test]
fn new_until_committed_and_established_by_a_reply() {
    let bed = Bed::new();
    let there = || udp(CLIENT, SERVER, (1, 2), b"x");
    let back = || udp(SERVER, CLIENT, (2, 1), b"x");
    assert_eq!(bed.state(there(), &zone(1)), NEW | TRK);
    assert_eq!(bed.state(back(), &zone(1)), NEW | TRK);
    assert_eq!(bed.state(there(), &commit(1)), NEW | TRK);
    assert_eq!(bed.state(there(), &zone(1)), NEW | TRK);
    assert_eq!(bed.state(there(), &zone(2)), NEW | TRK);
    assert_eq!(bed.state(back(), &zone(1)), EST | RPL | TRK);
    assert_eq!(bed.state(there(), &zone(1)), EST | TRK);
    assert_eq!(bed.tracker.table().counts().zone(1), 1);
}

#[test]
fn metadata_has_mark_label_and_the_original_tuple() {
    let bed = Bed::new();
    let request =
        Request { mark: Some((0x11, 0xff)), label: Some((7 << 64, u128::MAX)), ..commit(3) };
    let (_, meta) = bed.ct(udp(CLIENT, SERVER, (1, 2), b""), &request);
    assert_eq!((meta.mark, meta.label, meta.zone), (0x11, 7 << 64, 3));
    let (_, meta) = bed.ct(udp(SERVER, CLIENT, (2, 1), b""), &zone(3));
    assert_eq!((meta.mark, meta.label), (0x11, 7 << 64));
    let original = meta.original.unwrap();
    assert_eq!((last(original.src), original.port_fields()), (CLIENT, (1, 2)));
    // The mask leaves other bits alone.
    let more = Request { mark: Some((0x2200, 0xff00)), ..commit(3) };
    assert_eq!(bed.ct(udp(CLIENT, SERVER, (1, 2), b""), &more).1.mark, 0x2211);
    let unknown = bed.ct(udp(CLIENT, SERVER, (9, 9), b""), &zone(3)).1;
    assert_eq!((unknown.mark, unknown.original.unwrap().port_fields()), (0, (9, 9)));
}

#[test]
fn a_second_ct_in_the_zone_does_not_move_the_state() {
    let bed = Bed::new();
    let mut bytes = udp(CLIENT, SERVER, (1, 2), b"");
    let mut meta = Metadata::default();
    bed.step(&mut bytes, &mut meta, &commit(1));
    assert!(meta.cached.is_some());
    bed.step(&mut bytes, &mut meta, &Request { mark: Some((5, u32::MAX)), ..commit(1) });
    assert_eq!((meta.state, meta.mark), (NEW | TRK, 5));
    let pinned = bed.tracker.table().slots().find_map(|slot| {
        let conn = bed.tracker.table().slot(slot)?;
        (conn.head().phase() == crate::head::Phase::Live).then_some(conn)
    });
    assert!(!pinned.unwrap().head().has(flags::MULTIPLE));
    // Another zone begins again.
    bed.step(&mut bytes, &mut meta, &zone(2));
    assert_eq!((meta.state, meta.zone, meta.mark), (NEW | TRK, 2, 0));
}

#[test]
fn tcp_goes_its_way() {
    let mut bed = Bed::new();
    let request = commit(1);
    let client = |flags, numbers| {
        Tcp { hosts: (CLIENT, SERVER), ports: (10, 20), flags, numbers, data: b"" }.bytes()
    };
    // A resent SYN without an answer is new again.
    assert_eq!(bed.state(client(SYN, (99, 0)), &request), NEW | TRK);
    assert_eq!(bed.state(client(SYN, (99, 0)), &request), NEW | TRK);
    bed.handshake(&request, (10, 20), SERVER);
    let (hosts, ports) = ((CLIENT, SERVER), (10, 20));
    let out = Tcp { hosts, ports, flags: ACK | PSH, numbers: (900_000, 500), data: b"x" }.bytes();
    assert_eq!(bed.state(out.clone(), &request), INV | TRK);
    let counters = bed.tracker.counters();
    assert_eq!(counters.get(Counter::SequenceCheckFailed), 1);
    bed.tracker.table().set_sequence_check(false);
    assert_eq!(bed.state(out, &zone(1)), EST | TRK);
    bed.tracker.table().set_sequence_check(true);
    assert_eq!(bed.state(client(SYN | FIN, (1, 0)), &zone(1)), INV | TRK);
    assert_eq!(bed.tracker.counters().get(Counter::InvalidTcpFlags), 1);
    let reset =
        Tcp { hosts: (SERVER, CLIENT), ports: (20, 10), flags: RST, numbers: (500, 0), data: b"" };
    assert_eq!(bed.state(reset.bytes(), &zone(1)), EST | RPL | TRK);
    // After a reset the tuple may begin again at once.
    assert_eq!(bed.state(client(SYN, (5, 0)), &request), NEW | TRK);
    assert_eq!(bed.tracker.table().counts().conns(), 1);
    bed.wait(31);
    assert_eq!(bed.tracker.table().counts().conns(), 0);
    let syn_ack = client(SYN | ACK, (5, 5));
    assert_eq!(bed.state(syn_ack, &request), INV | TRK);
    assert_eq!(bed.state(client(FIN | ACK, (5, 5)), &request), NEW | TRK);
}

#[test]
fn errors_are_related_and_begin_nothing() {
    let bed = Bed::new();
    let sent = udp(CLIENT, SERVER, (1, 2), b"some data");
    let error = || frame(9, CLIENT).icmp(3, 1, 0).payload(&sent).finish().split_off(14);
    assert_eq!(bed.state(error(), &commit(1)), INV | TRK);
    bed.ct(sent.clone(), &commit(1));
    let (_, meta) = bed.ct(error(), &zone(1));
    assert_eq!(meta.state, REL | RPL | TRK);
    assert_eq!(meta.original.unwrap().port_fields(), (1, 2));
}

#[test]
fn force_ends_a_connection_of_the_other_direction() {
    let bed = Bed::new();
    bed.ct(udp(CLIENT, SERVER, (1, 2), b""), &commit(1));
    let back = udp(SERVER, CLIENT, (2, 1), b"");
    let force = Request { commit: Commit::Force, ..commit(1) };
    let (_, meta) = bed.ct(back, &force);
    assert_eq!(meta.state, NEW | TRK);
    assert_eq!(last(meta.original.unwrap().src), SERVER);
    assert_eq!(bed.tracker.table().counts().conns(), 1);
}

#[test]
fn source_nat_is_applied_and_reversed() {
    let bed = Bed::new();
    let request = Request { nat: Some(nat(Manip::Src, PUBLIC)), ..commit(1) };
    let (there, meta) = bed.ct(udp(CLIENT, SERVER, (1, 2), b"x"), &request);
    assert_eq!(meta.state, NEW | TRK | SNAT);
    assert_eq!((last(tuple(&there).src), meta.cached), (PUBLIC, None));
    let apply = Request { nat: Some(Nat::Existing), ..zone(1) };
    let (back, meta) = bed.ct(udp(SERVER, PUBLIC, (2, 1), b"y"), &apply);
    assert_eq!(meta.state, EST | RPL | TRK | DNAT);
    assert_eq!(last(tuple(&back).dst), CLIENT);
    // Without `nat` the packet stays as it is.
    let (back, meta) = bed.ct(udp(SERVER, PUBLIC, (2, 1), b"y"), &zone(1));
    assert_eq!((meta.state, last(tuple(&back).dst)), (EST | RPL | TRK, PUBLIC));
    // An error about the translated packet comes to the client with its own packet inside.
    let error = frame(9, PUBLIC).icmp(3, 1, 0).payload(&there).finish().split_off(14);
    let (error, meta) = bed.ct(error, &apply);
    assert_eq!(meta.state, REL | RPL | TRK | DNAT);
    let extracted = extract(&error, Family::V4, 0, Checksums::ALL).unwrap();
    assert_eq!(last(extracted.inner.unwrap().tuple.src), CLIENT);
}

#[test]
fn a_translated_packet_is_found_again_in_its_zone() {
    let bed = Bed::new();
    let request = Request { nat: Some(nat(Manip::Dst, SERVER)), ..commit(1) };
    let mut bytes = udp(CLIENT, PUBLIC, (1, 2), b"x");
    let mut meta = Metadata::default();
    bed.step(&mut bytes, &mut meta, &request);
    assert_eq!((meta.state, last(tuple(&bytes).dst)), (NEW | TRK | DNAT, SERVER));
    bed.step(&mut bytes, &mut meta, &zone(1));
    assert_eq!(meta.state, NEW | TRK | DNAT);
    assert_eq!(last(meta.original.unwrap().dst), PUBLIC);
    assert_eq!(bed.tracker.table().counts().conns(), 1);
}

#[test]
fn exhausted_nat_lets_the_packet_on_as_new() {
    let bed = Bed::new();
    let address = IpAddr::V4(host(PUBLIC));
    let range = NatRange {
        manip: Manip::Src,
        addresses: Some((address, address)),
        ports: Some((7, 7)),
        selection: Selection::Hash,
        persistent: false,
    };
    let request = Request { nat: Some(Nat::Range(range)), ..commit(1) };
    assert_eq!(bed.state(udp(CLIENT, SERVER, (1, 2), b""), &request), NEW | TRK | SNAT);
    let (bytes, meta) = bed.ct(udp(3, SERVER, (1, 2), b""), &request);
    assert_eq!((meta.state, last(tuple(&bytes).src)), (NEW | TRK, 3));
    assert_eq!(bed.tracker.counters().get(Counter::NatExhausted), 1);
}

#[test]
fn limits_of_zones_hold() {
    let bed = Bed::new();
    bed.tracker.table().counts().set_default_limit(4);
    bed.tracker.table().counts().set_limit(2, Some(0));
    for port in 1..10 {
        bed.ct(udp(CLIENT, SERVER, (port, 2), b""), &commit(1));
        bed.ct(udp(SERVER, CLIENT, (2, port), b""), &commit(1));
    }
    bed.ct(udp(CLIENT, SERVER, (1, 2), b""), &commit(2));
    let counts = bed.tracker.table().counts();
    assert_eq!((counts.zone(1), counts.zone(2)), (4, 0));
    assert!(bed.tracker.counters().get(Counter::ZoneFull) > 5);
}

fn ftp(bed: &Bed, nat: Option<Nat>) -> Request {
    let request = Request { helper: Some(Helper::Ftp), nat, ..commit(1) };
    bed.handshake(&request, (1000, 21), SERVER);
    request
}

/// A client's command in a control connection. The data has 19 bytes.
const PORT_COMMAND: Tcp<'static> = Tcp {
    hosts: (CLIENT, SERVER),
    ports: (1000, 21),
    flags: ACK | PSH,
    numbers: (100, 500),
    data: b"PORT 10,1,1,1,4,1\r\n",
};

#[test]
fn active_ftp_expects_the_server() {
    let bed = Bed::new();
    let request = ftp(&bed, None);
    let command = PORT_COMMAND;
    assert_eq!(bed.state(command.bytes(), &zone(1)), EST | TRK);
    let data = |port| {
        let hosts = (SERVER, CLIENT);
        Tcp { hosts, ports: (20, port), flags: SYN, numbers: (1, 0), data: b"" }.bytes()
    };
    assert_eq!(bed.state(data(1026), &zone(1)), NEW | TRK);
    let (_, meta) = bed.ct(data(1025), &request);
    assert_eq!(meta.state, NEW | REL | TRK);
    assert_eq!(meta.original.unwrap().port_fields(), (1000, 21)); // the parent's
    assert_eq!(
        bed.state(reply_to(&data(1025), SYN | ACK, (7, 2), b""), &zone(1)),
        EST | REL | RPL | TRK
    );
    // The address of a third host.
    let bounce = Tcp { data: b"PORT 10,1,1,9,4,1\r\n", numbers: (119, 500), ..command };
    assert_eq!(bed.state(bounce.bytes(), &zone(1)), INV | TRK);
    assert_eq!(bed.tracker.counters().get(Counter::InvalidFtp), 1);
}

#[test]
fn ftp_through_source_nat_has_address_numbers_and_data_translated() {
    let bed = Bed::new();
    let request = ftp(&bed, Some(nat(Manip::Src, PUBLIC)));
    let command = PORT_COMMAND;
    let (bytes, meta) = bed.ct(command.bytes(), &request);
    assert_eq!(meta.state, EST | TRK | SNAT);
    assert!(bytes.ends_with(b"PORT 10,1,1,240,4,1\r\n"));
    // The server acknowledges 21 bytes; the client learns of 19.
    let answer = reply_to(&bytes, ACK, (500, 121), b"200 ok\r\n");
    let (answer, meta) = bed.ct(answer, &request);
    assert_eq!(meta.state, EST | RPL | TRK | DNAT);
    let segment = extract(&answer, Family::V4, 0, Checksums::ALL).unwrap().segment.unwrap();
    assert_eq!((segment.seq, segment.ack), (500, 119));
    let next = Tcp { numbers: (119, 508), data: b"RETR x\r\n", ..command };
    let (next, _) = bed.ct(next.bytes(), &request);
    let segment = extract(&next, Family::V4, 0, Checksums::ALL).unwrap().segment.unwrap();
    assert_eq!((segment.seq, segment.ack), (121, 508));
    // The server connects to the public address and reaches the client.
    let hosts = (SERVER, PUBLIC);
    let data = Tcp { hosts, ports: (20, 1025), flags: SYN, numbers: (1, 0), data: b"" };
    let (data, meta) = bed.ct(data.bytes(), &request);
    assert_eq!(meta.state, NEW | REL | TRK | DNAT);
    assert_eq!(last(tuple(&data).dst), CLIENT);
    assert_eq!(bed.tracker.expectations().len(), 1);
}

/// A pipeline may track a packet first and translate it by a second `ct`, and track it once more.
#[test]
fn the_numbers_of_ftp_are_changed_by_the_action_that_translates() {
    let bed = Bed::new();
    let request = ftp(&bed, Some(nat(Manip::Src, PUBLIC)));
    let apply = Request { nat: Some(Nat::Existing), ..zone(1) };
    let through = |mut bytes: Vec<u8>| {
        let mut meta = Metadata::default();
        for request in [zone(1), apply, zone(1)] {
            let done = bed.step(&mut bytes, &mut meta, &request);
            if let Some(edit) = done.edit {
                bytes = edit.apply(&bytes, Family::V4, 20).unwrap();
            }
            assert_eq!(meta.state & (EST | INV), EST, "{meta:?}");
        }
        let segment = extract(&bytes, Family::V4, 0, Checksums::ALL).unwrap().segment.unwrap();
        (bytes, (segment.seq, segment.ack))
    };
    let command = PORT_COMMAND;
    let (sent, numbers) = through(command.bytes());
    assert!(sent.ends_with(b"PORT 10,1,1,240,4,1\r\n"));
    assert_eq!(numbers, (100, 500));
    let answer = reply_to(&sent, ACK, (500, 121), b"200 ok\r\n");
    assert_eq!(through(answer).1, (500, 119));
    let next = Tcp { numbers: (119, 508), data: b"RETR x\r\n", ..command };
    assert_eq!(through(next.bytes()).1, (121, 508));
    assert_eq!(request.zone, 1);
}

#[test]
fn passive_ftp_through_destination_nat_reaches_the_real_server() {
    let bed = Bed::new();
    let request =
        Request { helper: Some(Helper::Ftp), nat: Some(nat(Manip::Dst, SERVER)), ..commit(1) };
    bed.handshake(&request, (1000, 21), PUBLIC);
    let text = b"227 Entering Passive Mode (10,1,1,2,4,1).\r\n";
    let reply = Tcp {
        hosts: (SERVER, CLIENT),
        ports: (21, 1000),
        flags: ACK | PSH,
        numbers: (500, 100),
        data: text,
    };
    let (reply, _) = bed.ct(reply.bytes(), &request);
    assert!(reply.ends_with(b"(10,1,1,240,4,1).\r\n"));
    let hosts = (CLIENT, PUBLIC);
    let data = Tcp { hosts, ports: (3000, 1025), flags: SYN, numbers: (1, 0), data: b"" };
    let (data, meta) = bed.ct(data.bytes(), &request);
    assert_eq!(meta.state, NEW | REL | TRK | DNAT);
    assert_eq!(last(tuple(&data).dst), SERVER);
}

#[test]
fn tftp_expects_an_answer_from_any_port() {
    let mut bed = Bed::new();
    let request =
        Request { helper: Some(Helper::Tftp), nat: Some(nat(Manip::Src, PUBLIC)), ..commit(1) };
    let (there, _) = bed.ct(udp(CLIENT, SERVER, (1000, 69), b"\0\x01file\0octet\0"), &request);
    assert_eq!(last(tuple(&there).src), PUBLIC);
    let answer = || udp(SERVER, PUBLIC, (4711, 1000), b"\0\x03\0\x01data");
    let (back, meta) = bed.ct(answer(), &request);
    assert_eq!(meta.state, NEW | REL | TRK | DNAT);
    assert_eq!((last(tuple(&back).dst), ports(&tuple(&back)).1), (CLIENT, 1000));
    // The expectation ends with its parent.
    bed.wait(70);
    assert_eq!(bed.state(answer(), &zone(1)), NEW | TRK);
    bed.tracker.expectations().expire(bed.tracker.table(), bed.now);
    assert_eq!(bed.tracker.expectations().len(), 0);
    assert!(!bed.tracker.table().counts().has_expectations(1));
}

#[test]
fn untrackable_packets_are_invalid() {
    let bed = Bed::new();
    let mut bytes = udp(CLIENT, SERVER, (1, 2), b"x");
    bytes[26] ^= 1;
    let (_, meta) = bed.ct(bytes, &Request { mark: Some((1, 1)), ..commit(4) });
    assert_eq!(meta, Metadata { state: INV | TRK, zone: 4, ..Metadata::default() });
    assert_eq!(bed.tracker.counters().get(Counter::TransportChecksumError), 1);
    let protocol = frame(CLIENT, SERVER).protocol(ip_proto::TCP).finish().split_off(14);
    assert_eq!(bed.state(protocol, &commit(4)), INV | TRK);
}

/// A packet of few hosts and ports, also of FTP, of pings and of errors about earlier packets.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(b"".to_vec()),
        Just(b"PORT 10,1,1,1,4,1\r\n".to_vec()),
        Just(b"227 ok (10,1,1,2,4,1)\r\n".to_vec()),
        Just(b"\0\x01file\0octet\0".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let hosts = (prop_oneof![1u8..4, Just(PUBLIC)], prop_oneof![1u8..4, Just(PUBLIC)]);
    let ports = prop_oneof![Just(20u16), Just(21), Just(69), Just(1025), 1u16..4];
    (hosts, ports.clone(), ports, 0u8..6, any::<u16>(), (0u32..300, 0u32..300), data).prop_map(
        |(hosts, a, b, kind, flags, numbers, data)| {
            let whole = |kind| match kind {
                0 | 1 => {
                    let flags = if kind == 0 { flags & 0x3f } else { ACK | PSH };
                    let data = if flags & SYN == 0 { &data[..] } else { b"" };
                    Tcp { hosts, ports: (a, b), flags, numbers, data }.bytes()
                }
                2 => udp(hosts.0, hosts.1, (a, b), &data),
                3 => {
                    let kind = if flags % 2 == 0 { 8 } else { 0 };
                    let ping = frame(hosts.0, hosts.1).icmp(kind, 0, u32::from(a) << 16);
                    ping.payload(&data).finish().split_off(14)
                }
                _ => frame(hosts.0, hosts.1).sctp(a, b).payload(&data).finish().split_off(14),
            };
            if kind < 5 {
                return whole(kind);
            }
            let inner = whole((flags % 5) as u8);
            let quoted = &inner[..inner.len().min(28 + usize::from(flags % 20))];
            frame(9, hosts.0).icmp(3, 1, 0).payload(quoted).finish().split_off(14)
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let nat = prop_oneof![
        Just(None),
        Just(Some(Nat::Existing)),
        Just(Some(nat(Manip::Src, PUBLIC))),
        Just(Some(nat(Manip::Dst, SERVER))),
        Just(Some(nat(Manip::Src, 0).zeroed())),
    ];
    let helper =
        prop_oneof![3 => Just(None), 1 => Just(Some(Helper::Ftp)), 1 => Just(Some(Helper::Tftp))];
    let commit = prop_oneof![Just(Commit::No), Just(Commit::Yes), Just(Commit::Force)];
    (0u16..2, commit, proptest::option::of((any::<u32>(), any::<u32>())), nat, helper).prop_map(
        |(zone, commit, mark, nat, helper)| Request {
            zone,
            commit,
            mark,
            label: None,
            nat,
            helper,
            policy: 0,
        },
    )
}

impl Nat {
    /// The range with the address 0.0.0.0.
    fn zeroed(self) -> Nat {
        let zero = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        match self {
            Nat::Range(range) => Nat::Range(NatRange { addresses: Some((zero, zero)), ..range }),
            Nat::Existing => self,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// Any packets in any order: states are possible ones, checksums stay right, a translated packet
    /// is of a connection, and all slots come home.
    #[test]
    fn any_packets(
        steps in proptest::collection::vec(
            (any_packet(), proptest::collection::vec(any_request(), 1..3), 0u64..20), 1..25),
    ) {
        let mut bed = Bed::new();
        let free = bed.sweeper.free_slots();
        for (mut bytes, requests, seconds) in steps {
            let mut meta = Metadata::default();
            for (round, request) in requests.into_iter().enumerate() {
                let good = extract(&bytes, Family::V4, 0, Checksums::ALL).is_ok();
                let done = bed.step(&mut bytes, &mut meta, &request);
                if let Some(edit) = done.edit {
                    bytes = edit.apply(&bytes, Family::V4, 20).unwrap();
                }
                prop_assert_eq!(extract(&bytes, Family::V4, 0, Checksums::ALL).is_ok(), good);
                prop_assert_eq!((meta.state & TRK, meta.zone), (TRK, request.zone));
                let state = meta.state;
                prop_assert!(round > 0 || state & (NEW | EST) != NEW | EST, "{state:#x}");
                prop_assert!(state & (SNAT | DNAT) != SNAT | DNAT, "{state:#x}");
                // The bits of several `ct` in one zone accumulate.
                let is_alone = state & (NEW | EST | REL) == 0;
                prop_assert!(state & INV == 0 || round > 0 || is_alone, "{state:#x}");
                if !good {
                    prop_assert_eq!(state, INV | TRK);
                }
            }
            bed.wait(seconds);
        }
        bed.wait(100_000);
        bed.tracker.expectations().expire(bed.tracker.table(), bed.now);
        prop_assert_eq!(bed.tracker.table().counts().conns(), 0);
        prop_assert_eq!(bed.tracker.table().counts().half_open(), 0);
        prop_assert_eq!(bed.tracker.expectations().len(), 0);
        prop_assert_eq!(bed.sweeper.free_slots(), free);
    }
}
