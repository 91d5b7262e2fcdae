// SPDX-License-Identifier: Apache-2.0
//! NetFlow version 5 (Cisco, "NetFlow Export Datagram Format", version 5 header and record).
//!
//! An [`Exporter`] keeps one record for each IPv4 flow of a bridge. The packets of a megaflow are
//! added with [`Exporter::update`]. [`Exporter::run`] sends a record when it has been active for the
//! active timeout, and forgets it when it had no packets in that time; [`Exporter::end`] sends it when
//! the flow ends. Integers on the wire are in
//! network byte order.

use crate::WallTime;
use clock::Millis;
use hashbrown::HashMap;
use std::time::Duration;

/// Default of the active timeout: 600 s, as in OVS.
pub const ACTIVE_TIMEOUT: Duration = Duration::from_secs(600);
/// Highest number of records in a datagram.
pub const MAX_RECORDS: usize = 30;
/// Highest number of datagrams that wait for [`Exporter::run`].
pub const MAX_READY: usize = 4_096;
/// Highest number of flows that an exporter keeps. A record takes about 100 bytes.
pub const MAX_FLOWS: usize = 65_536;
/// Time between two searches for records that are due.
pub const SCAN_INTERVAL_MS: i64 = 1_000;

/// Size of the header in bytes.
const HEADER_BYTES: usize = 24;
/// Size of a record in bytes.
const RECORD_BYTES: usize = 48;
/// Byte count above which one record with the highest counts stands for all: 10 Gbit/s for 600 s is
/// below.
const MAX_BYTES: u64 = 176 << 32;

/// Settings of an exporter (ovs-vswitchd.conf.db(5), NetFlow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `engine_type`.
    pub engine_type: u8,
    /// `engine_id`.
    pub engine_id: u8,
    /// `add_id_to_interface`: interface numbers have the low 7 bits of the engine id on top and 9
    /// bits of the port number below.
    pub add_id_to_interface: bool,
    /// Time after which an active flow is sent; `None` for never.
    pub active_timeout: Option<Duration>,
}

/// Output interface in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Output {
    /// The packets are dropped.
    #[default]
    Drop,
    /// The packets leave by one port (OpenFlow number).
    Port(u16),
    /// The packets leave by several ports.
    Multiple,
    /// The packets are flooded.
    Flood,
}

impl Output {
    /// Returns the output of a packet that goes to `self` and then to `next`.
    #[must_use]
    pub fn and(self, next: Output) -> Output {
        match (self, next) {
            (Output::Flood, _) | (_, Output::Flood) => Output::Flood,
            (before, Output::Drop) => before,
            (Output::Drop, next) => next,
            _ => Output::Multiple,
        }
    }

    /// Returns the number on the wire.
    fn number(self) -> u16 {
        match self {
            Output::Drop => 0,
            Output::Port(number) => number,
            Output::Multiple => u16::MAX - 1,
            Output::Flood => u16::MAX,
        }
    }
}

/// Identity of an IPv4 flow. Ports are host integers; those of ICMP are its type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// OpenFlow port of the input.
    pub in_port: u16,
    /// Source address.
    pub nw_src: [u8; 4],
    /// Destination address.
    pub nw_dst: [u8; 4],
    /// IP protocol.
    pub nw_proto: u8,
    /// Type of service.
    pub nw_tos: u8,
    /// Source port.
    pub tp_src: u16,
    /// Destination port.
    pub tp_dst: u16,
}

/// Packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, Ethernet headers included.
    pub bytes: u64,
    /// TCP flags that were seen.
    pub tcp_flags: u8,
    /// Time of the last packet.
    pub used: Millis,
}

/// Counts of a flow since its last record.
#[derive(Clone, Copy, Debug)]
struct Record {
    output: Output,
    created: Option<Millis>,
    used: Millis,
    last_expired: Millis,
    packets: u64,
    bytes: u64,
    tcp_flags: u8,
}

/// NetFlow of one bridge. For one thread at a time.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    started: Millis,
    flows: HashMap<Flow, Record>,
    /// The datagram that is being filled; empty for none.
    datagram: Vec<u8>,
    /// Time at which its first record was made.
    begun: Millis,
    /// Full datagrams, with the times of their first records.
    ready: Vec<(Vec<u8>, Millis)>,
    /// Number of records in earlier datagrams.
    sequence: u32,
    next_scan: Millis,
    without_room: u64,
}

impl Exporter {
    /// Returns an exporter without flows. `now` is the start of the uptime in datagrams.
    pub fn new(settings: Settings, now: Millis) -> Exporter {
        Exporter {
            settings,
            started: now,
            flows: HashMap::new(),
            datagram: Vec::new(),
            begun: now,
            ready: Vec::new(),
            sequence: 0,
            next_scan: now,
            without_room: 0,
        }
    }

    /// Changes the settings. Flows keep their counts.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        if self.settings.active_timeout != settings.active_timeout {
            self.next_scan = now;
        }
        self.settings = settings;
    }

    /// Adds packets to a flow. `output` is the present output of its packets: a flow with another
    /// output begins a new record.
    pub fn update(&mut self, flow: Flow, output: Output, traffic: &Traffic, now: Millis) {
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&flow) {
            self.without_room += 1;
            return;
        }
        let record = self.flows.entry(flow).or_insert(Record {
            output,
            created: None,
            used: traffic.used,
            last_expired: now,
            packets: 0,
            bytes: 0,
            tcp_flags: 0,
        });
        let mut before = None;
        if record.output != output {
            before = (record.packets > 0).then_some(*record);
            *record = Record {
                output,
                created: Some(traffic.used),
                last_expired: now,
                packets: 0,
                bytes: 0,
                tcp_flags: 0,
                ..*record
            };
        }
        record.packets += traffic.packets;
        record.bytes += traffic.bytes;
        record.tcp_flags |= traffic.tcp_flags;
        record.used = record.used.max(traffic.used);
        record.created = Some(record.created.map_or(traffic.used, |at| at.min(traffic.used)));
        if let Some(before) = before {
            self.export(&flow, before, now);
        }
    }

    /// Sends the counts of a flow whose packets are no longer accounted, and forgets it.
    pub fn end(&mut self, flow: &Flow, now: Millis) {
        if let Some(record) = self.flows.remove(flow).filter(|record| record.packets > 0) {
            self.export(flow, record, now);
        }
    }

    /// Ends a round at time `now`: takes the datagrams with records that were due in earlier rounds,
    /// and makes records of the flows that are due now, once a second. As in OVS these leave in the
    /// next round, unless they fill a datagram.
    pub fn run(&mut self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.take(now, wall, &mut out);
        if now < self.next_scan {
            return out;
        }
        self.next_scan = now + SCAN_INTERVAL_MS;
        let Some(timeout) = self.settings.active_timeout else { return out };
        let timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let mut due = Vec::new();
        self.flows.retain(|flow, record| {
            if now <= record.last_expired + timeout {
                return true;
            }
            let is_idle = record.used < record.last_expired;
            if record.packets > 0 {
                due.push((*flow, *record));
            }
            (record.packets, record.bytes, record.tcp_flags) = (0, 0, 0);
            record.last_expired = now;
            !is_idle
        });
        for (flow, record) in due {
            self.export(&flow, record, now);
        }
        self.take_full(now, wall, &mut out);
        out
    }

    /// Returns the time at which [`Exporter::run`] is to be called again.
    pub fn deadline(&self) -> Millis {
        match self.datagram.is_empty() && self.ready.is_empty() {
            true => self.next_scan,
            false => Millis(i64::MIN),
        }
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of updates that found no room for their flow, and of datagrams that found
    /// none.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Takes all datagrams, the one that is not full, too.
    fn take(&mut self, now: Millis, wall: WallTime, out: &mut Vec<Vec<u8>>) {
        self.close();
        self.take_full(now, wall, out);
    }

    fn take_full(&mut self, now: Millis, wall: WallTime, out: &mut Vec<Vec<u8>>) {
        for (mut datagram, begun) in std::mem::take(&mut self.ready) {
            let wall = wall.before(now.since(begun));
            let count = (datagram.len() - HEADER_BYTES) / RECORD_BYTES;
            let mut header = Vec::with_capacity(HEADER_BYTES);
            header.extend(5u16.to_be_bytes());
            header.extend((count as u16).to_be_bytes()); // at most MAX_RECORDS
            header.extend(self.uptime(begun).to_be_bytes());
            header.extend(wall.seconds.to_be_bytes());
            header.extend(wall.nanoseconds.to_be_bytes());
            header.extend(self.sequence.to_be_bytes());
            header.extend([self.settings.engine_type, self.settings.engine_id, 0, 0]);
            datagram.splice(..HEADER_BYTES, header);
            self.sequence = self.sequence.wrapping_add(count as u32);
            out.push(datagram);
        }
    }

    fn close(&mut self) {
        let datagram = std::mem::take(&mut self.datagram);
        if datagram.is_empty() {
            return;
        }
        if self.ready.len() < MAX_READY {
            self.ready.push((datagram, self.begun));
        } else {
            self.without_room += 1;
        }
    }

    /// Makes records of the counts. Counts of a record have 32 bits: more are spread over several
    /// records with about the same bytes per packet.
    fn export(&mut self, flow: &Flow, record: Record, now: Millis) {
        let (mut packets, mut bytes) = (record.packets, record.bytes);
        if bytes >= MAX_BYTES {
            self.put(flow, &record, u32::MAX, u32::MAX, now);
            return;
        }
        loop {
            let parts = bytes.div_ceil(u64::from(u32::MAX)).max(1);
            let (p, b) = (packets / parts, bytes / parts);
            self.put(flow, &record, u32::try_from(p).unwrap_or(u32::MAX), b as u32, now);
            packets -= p;
            bytes -= b;
            if bytes == 0 {
                return;
            }
        }
    }

    fn put(&mut self, flow: &Flow, record: &Record, packets: u32, bytes: u32, now: Millis) {
        let interface = |number: u16| match self.settings.add_id_to_interface {
            true => u16::from(self.settings.engine_id & 0x7f) << 9 | number & 0x1ff,
            false => number,
        };
        let created = record.created.unwrap_or(record.used);
        let (input, output) = (interface(flow.in_port), interface(record.output.number()));
        let (first, last) = (self.uptime(created), self.uptime(created.max(record.used)));
        // Type and code of ICMP stand where the destination port stands.
        const ICMP: u8 = 1;
        let (src, dst) = match flow.nw_proto {
            ICMP => (0, flow.tp_src << 8 | flow.tp_dst & 0xff),
            _ => (flow.tp_src, flow.tp_dst),
        };
        if self.datagram.is_empty() {
            self.begun = now;
            self.datagram.resize(HEADER_BYTES, 0); // filled in when it leaves
        }
        let out = &mut self.datagram;
        out.extend(flow.nw_src);
        out.extend(flow.nw_dst);
        out.extend([0; 4]); // the next hop is not known
        out.extend(input.to_be_bytes());
        out.extend(output.to_be_bytes());
        out.extend(packets.to_be_bytes());
        out.extend(bytes.to_be_bytes());
        out.extend(first.to_be_bytes());
        out.extend(last.to_be_bytes());
        out.extend(src.to_be_bytes());
        out.extend(dst.to_be_bytes());
        out.extend([0, record.tcp_flags, flow.nw_proto, flow.nw_tos]);
        out.extend([0; 8]); // autonomous systems and prefix lengths are not known
        if out.len() >= HEADER_BYTES + MAX_RECORDS * RECORD_BYTES {
            self.close();
        }
    }

    /// Returns a time in milliseconds since the exporter's start; it wraps after 49 days, as the
    /// protocol's uptime does.
    fn uptime(&self, at: Millis) -> u32 {
        at.since(self.started) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        engine_type: 1,
        engine_id: 2,
        add_id_to_interface: false,
        active_timeout: Some(Duration::from_secs(10)),
    };
    const FLOW: Flow = Flow {
        in_port: 1,
        nw_src: [10, 0, 0, 1],
        nw_dst: [10, 0, 0, 2],
        nw_proto: 6,
        nw_tos: 4,
        tp_src: 1000,
        tp_dst: 80,
    };
    const WALL: WallTime = WallTime { seconds: 0x01020304, nanoseconds: 5 };

    fn traffic(packets: u64, bytes: u64, used: i64) -> Traffic {
        Traffic { packets, bytes, tcp_flags: 0x12, used: Millis(used) }
    }

    fn field(datagram: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn an_active_flow_is_sent_after_its_timeout_and_forgotten_when_idle() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        e.update(FLOW, Output::Port(2), &traffic(3, 180, 500), Millis(500));
        assert!(e.run(Millis(10_400), WALL).is_empty());
        assert!(e.run(Millis(11_400), WALL).is_empty(), "made, and sent in the next round");
        let sent = e.run(Millis(13_400), WALL);
        let mut expected = vec![0, 5, 0, 1];
        expected.extend(11_400u32.to_be_bytes());
        expected.extend([1, 2, 3, 2, 0, 0, 0, 5, 0, 0, 0, 0, 1, 2, 0, 0]);
        expected.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 2]);
        expected.extend([0, 0, 0, 3, 0, 0, 0, 180, 0, 0, 1, 244, 0, 0, 1, 244]);
        expected.extend([3, 232, 0, 80, 0, 0x12, 6, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sent, [expected]);
        assert_eq!(e.flows(), 1);
        assert!(e.run(Millis(21_500), WALL).is_empty());
        assert_eq!(e.flows(), 0, "no packet since the last record");
        e.update(FLOW, Output::Port(2), &traffic(1, 60, 30_000), Millis(30_000));
        e.run(Millis(41_000), WALL);
        let sent = e.run(Millis(41_001), WALL);
        assert_eq!(field(&sent[0], 16), 1, "records before this datagram");
    }

    #[test]
    fn a_flow_that_ends_is_sent_at_once_and_once() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        e.update(FLOW, Output::Port(2), &traffic(3, 180, 500), Millis(500));
        e.end(&FLOW, Millis(600));
        assert_eq!(e.flows(), 0);
        let sent = e.run(Millis(700), WALL);
        assert_eq!(field(&sent[0], 24 + 20), 180);
        e.end(&FLOW, Millis(800));
        assert!(e.run(Millis(900), WALL).is_empty());
    }

    #[test]
    fn another_output_begins_a_new_record() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        e.update(FLOW, Output::Port(2), &traffic(1, 60, 100), Millis(100));
        e.update(FLOW, Output::Flood, &traffic(1, 61, 200), Millis(200));
        let sent = e.run(Millis(300), WALL);
        assert_eq!(sent.len(), 1);
        assert_eq!(field(&sent[0], 24 + 12) & 0xffff, 2);
        assert_eq!(field(&sent[0], 24 + 20), 60);
        e.run(Millis(11_000), WALL);
        let sent = e.run(Millis(11_001), WALL);
        assert_eq!(field(&sent[0], 24 + 12) & 0xffff, 0xffff);
        assert_eq!(field(&sent[0], 24 + 24), 200, "when the output changed");
    }

    #[test]
    fn interfaces_may_have_the_engine_id_and_icmp_has_type_and_code_as_a_port() {
        let settings = Settings { add_id_to_interface: true, ..SETTINGS };
        let mut e = Exporter::new(settings, Millis(0));
        let ping = Flow { nw_proto: 1, tp_src: 8, tp_dst: 3, in_port: 0x3fe, ..FLOW };
        e.update(ping, Output::Multiple, &traffic(1, 60, 1), Millis(1));
        e.run(Millis(20_000), WALL);
        let sent = e.run(Millis(20_001), WALL);
        assert_eq!(field(&sent[0], 24 + 12), (2 << 9 | 0x1fe) << 16 | 2 << 9 | 0x1fe);
        assert_eq!(field(&sent[0], 24 + 32), 0x0803);
    }

    #[test]
    fn a_datagram_has_at_most_thirty_records() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        for tp_src in 0..65 {
            e.update(Flow { tp_src, ..FLOW }, Output::Drop, &traffic(1, 60, 1), Millis(1));
        }
        let mut sent = e.run(Millis(20_000), WALL);
        sent.extend(e.run(Millis(20_100), WALL));
        let counts: Vec<u32> = sent.iter().map(|d| field(d, 0) & 0xffff).collect();
        let sequence: Vec<u32> = sent.iter().map(|d| field(d, 16)).collect();
        assert_eq!((counts, sequence), (vec![30, 30, 5], vec![0, 30, 60]));
        assert!(sent.iter().all(|d| d.len() == 24 + 48 * (field(d, 0) & 0xffff) as usize));
    }

    #[test]
    fn large_counts_are_spread_over_records() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        let bytes = 10 * u64::from(u32::MAX) + 7;
        e.update(FLOW, Output::Drop, &traffic(1_000_003, bytes, 1), Millis(1));
        e.run(Millis(20_000), WALL);
        let sent = e.run(Millis(20_001), WALL);
        let sum = |at: usize| -> u64 {
            sent[0][24..].chunks(48).map(|record| u64::from(field(record, at))).sum()
        };
        assert_eq!((sum(16), sum(20)), (1_000_003, bytes));
        assert_eq!(sent[0].len(), 24 + 11 * 48);
    }

    #[test]
    fn the_number_of_flows_is_bounded() {
        let mut e = Exporter::new(SETTINGS, Millis(0));
        for n in 0..MAX_FLOWS as u32 + 5 {
            let flow = Flow { nw_src: n.to_be_bytes(), ..FLOW };
            e.update(flow, Output::Drop, &traffic(1, 60, 1), Millis(1));
        }
        assert_eq!((e.flows(), e.without_room()), (MAX_FLOWS, 5));
        e.update(FLOW, Output::Drop, &traffic(1, 60, 1), Millis(1));
        assert_eq!(e.without_room(), 6);
        let known = Flow { nw_src: [0; 4], ..FLOW };
        e.update(known, Output::Drop, &traffic(1, 60, 1), Millis(1));
        assert_eq!(e.without_room(), 6);
    }

    #[test]
    fn outputs_join() {
        let (a, b) = (Output::Port(1), Output::Port(2));
        assert_eq!(Output::Drop.and(a), a);
        assert_eq!(a.and(Output::Drop), a);
        assert_eq!(a.and(b), Output::Multiple);
        assert_eq!(Output::Multiple.and(b), Output::Multiple);
        assert_eq!(a.and(Output::Flood), Output::Flood);
        assert_eq!(Output::Flood.and(a), Output::Flood);
    }
}
