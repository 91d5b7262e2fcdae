// SPDX-License-Identifier: Apache-2.0
//! sFlow version 5 (sflow.org, "sFlow Version 5", July 2004; structures of tunnels: "sFlow Tunnel
//! Structures", November 2012; of OpenFlow ports: "sFlow OpenFlow Structures", November 2014).
//!
//! An [`Agent`] makes datagrams of the sampled packets and of the counters of the interfaces of a
//! bridge. Integers on the wire are in network byte order, and all parts are padded to 4 bytes.

use clock::Millis;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Port of collectors, where a target has none (IANA).
pub const DEFAULT_PORT: u16 = 6343;
/// Default of the sampling rate: one packet in 400, as in OVS.
pub const SAMPLING: u32 = 400;
/// Default of the bytes of a packet in its sample, as in OVS.
pub const HEADER_BYTES: usize = 128;
/// Default of the time between two samples of an interface's counters, in seconds, as in OVS.
pub const POLLING_SECONDS: u32 = 30;
/// Highest number of bytes of a datagram: it fits into an Ethernet frame.
pub const MAX_DATAGRAM: usize = 1400;
/// Highest number of datagrams that wait for [`Agent::take`].
pub const MAX_READY: usize = 256;
/// Highest number of bytes of a packet in its sample: a sample fits into a datagram.
pub const MAX_HEADER_BYTES: usize = 1024;

/// Output of a packet that is dropped for an unknown reason.
pub const OUTPUT_DROPPED: u32 = 0x4000_0000 | 256;
/// Output of a packet that leaves by several interfaces: added to their number.
pub const OUTPUT_MULTIPLE: u32 = 0x8000_0000;

/// Formats of samples and records (enterprise 0).
mod format {
    pub const FLOW_SAMPLE: u32 = 1;
    pub const COUNTERS_SAMPLE: u32 = 2;
    pub const RAW_HEADER: u32 = 1;
    pub const EXTENDED_SWITCH: u32 = 1001;
    pub const MPLS: u32 = 1006;
    pub const IPV4_TUNNEL_EGRESS: u32 = 1023;
    pub const IPV4_TUNNEL_INGRESS: u32 = 1024;
    pub const VNI_EGRESS: u32 = 1029;
    pub const VNI_INGRESS: u32 = 1030;
    pub const INTERFACE: u32 = 1;
    pub const ETHERNET: u32 = 2;
    pub const LACP: u32 = 7;
    pub const OPENFLOW_PORT: u32 = 1004;
    pub const PORT_NAME: u32 = 1005;
    pub const APPLICATION: u32 = 2203;
    pub const DATAPATH: u32 = 2207;
}

/// Class of the data source that stands for a whole bridge (`entPhysicalEntry`).
const SOURCE_BRIDGE: u32 = 2;
/// Index of the data source of the bridge with sub agent 0, as in OVS.
const FIRST_BRIDGE: u32 = 1000;
/// Bytes of a frame's check sequence, which has been removed.
const FCS_BYTES: u32 = 4;

/// Settings of an agent (ovs-vswitchd.conf.db(5), sFlow).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address of the agent.
    pub agent: IpAddr,
    /// Number of the bridge among those with sFlow.
    pub sub_agent: u32,
    /// One packet in this many is sampled.
    pub sampling: u32,
    /// Bytes of a packet in its sample, at most [`MAX_HEADER_BYTES`].
    pub header_bytes: usize,
    /// Seconds between two samples of an interface's counters; 0 for none.
    pub polling_seconds: u32,
}

/// Outer header of a tunnel, of a packet that came out of it or that goes into it. Integers are host integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
    /// IP protocol.
    pub proto: u8,
    /// UDP source port; 0 without one.
    pub tp_src: u16,
    /// UDP destination port; 0 without one.
    pub tp_dst: u16,
    /// Type of service.
    pub tos: u8,
    /// Key, where the header has one.
    pub vni: Option<u32>,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The frame from its Ethernet header on: all of it, or its first bytes.
    pub frame: &'a [u8],
    /// Size of the whole frame in bytes, without its check sequence.
    pub size: usize,
    /// Index of the input interface; 0 when it has none.
    pub input: u32,
    /// Index of the output interface, or one of `OUTPUT_*`.
    pub output: u32,
    /// TCI of the outer VLAN header as the packet came in; 0 for none.
    pub tci_in: u16,
    /// TCI of the outer VLAN header as the packet leaves; 0 for none.
    pub tci_out: u16,
    /// The tunnel that it came out of.
    pub tunnel: Option<Tunnel>,
    /// The tunnel that it goes into.
    pub tunnel_out: Option<Tunnel>,
    /// The stack of MPLS labels with which it leaves, outermost first: whole entries, host integers.
    pub labels_out: &'a [u32],
}

/// Counters of an interface. `None` for a counter that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index.
    pub index: u32,
    /// Name of the interface in the database.
    pub name: String,
    /// Datapath id of its bridge.
    pub datapath_id: u64,
    /// OpenFlow port.
    pub port: u32,
    /// Speed in bits per second.
    pub speed_bps: u64,
    /// True for full, false for half duplex; `None` when unknown.
    pub is_full_duplex: Option<bool>,
    /// Administratively up.
    pub admin_up: bool,
    /// Has a link.
    pub link_up: bool,
    /// Is in promiscuous mode.
    pub promiscuous: bool,
    /// Received bytes, packets, multicast packets, dropped packets, errors.
    pub received: [Option<u64>; 5],
    /// Sent bytes, packets, dropped packets, errors.
    pub sent: [Option<u64>; 4],
    /// Received frames with an alignment error, with a wrong check sequence, and too long.
    pub malformed: [Option<u64>; 3],
    /// LACP, when the interface is a member of an aggregate.
    pub lacp: Option<Lacp>,
}

/// LACP on an interface (sFlow LAG port counters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacp {
    /// System ids of this end and of the other.
    pub systems: [[u8; 6]; 2],
    /// Id of the aggregate that the port is attached to.
    pub aggregate: u32,
    /// States as IEEE 802.1AX has them: actor as configured, actor, partner as configured, partner.
    pub states: [u8; 4],
    /// Received PDUs.
    pub received: u64,
    /// Received PDUs that are malformed.
    pub illegal: u64,
    /// Sent PDUs.
    pub sent: u64,
}

/// Counters of the datapath and of the process (sFlow application structures, and Open vSwitch's
/// `ovs_dp_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// CPU time of the process in userspace, in milliseconds.
    pub user_ms: u64,
    /// CPU time of the process in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Memory of the process in bytes.
    pub memory_bytes: u64,
    /// Packets that met a megaflow.
    pub hits: u64,
    /// Packets that met none.
    pub misses: u64,
    /// Packets that were lost on their way to the switch.
    pub lost: u64,
    /// Number of megaflows at present.
    pub flows: u64,
}

/// sFlow of one bridge. For one thread at a time.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    started: Millis,
    /// Samples of the datagram that is being filled.
    samples: Vec<u8>,
    count: u32,
    /// Full datagrams without their headers, and the number of samples.
    ready: Vec<(Vec<u8>, u32)>,
    sequence: u32,
    flow_sequence: u32,
    pool: u32,
    dropped: u32,
    /// For each interface: number of counter samples, and the time of the next one.
    polls: BTreeMap<u32, (u32, Millis)>,
    /// The same of the [`Global`] counters.
    global_poll: Option<(u32, Millis)>,
}

impl Agent {
    /// Returns an agent without samples. `now` is the start of the uptime in datagrams.
    pub fn new(settings: Settings, now: Millis) -> Agent {
        Agent {
            settings,
            started: now,
            samples: Vec::new(),
            count: 0,
            ready: Vec::new(),
            sequence: 0,
            flow_sequence: 0,
            pool: 0,
            dropped: 0,
            polls: BTreeMap::new(),
            global_poll: None,
        }
    }

    /// Changes the settings. Sequence numbers continue.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a sampled packet. As in OVS the number of packets that it was chosen from is the
    /// sampling rate.
    pub fn sample(&mut self, packet: &Packet<'_>) {
        let settings = self.settings;
        self.pool = self.pool.wrapping_add(settings.sampling);
        self.flow_sequence = self.flow_sequence.wrapping_add(1);
        let mut body = Vec::with_capacity(256);
        put(&mut body, self.flow_sequence);
        put(&mut body, source_bridge(settings.sub_agent));
        put(&mut body, settings.sampling);
        put(&mut body, self.pool);
        put(&mut body, self.dropped);
        put(&mut body, packet.input);
        put(&mut body, packet.output);
        let mut switch = Vec::new();
        for tci in [packet.tci_in, packet.tci_out] {
            put(&mut switch, u32::from(tci & 0x0fff));
            put(&mut switch, u32::from(tci >> 13));
        }
        // The records have the order of Open vSwitch.
        let mut records = vec![
            (format::EXTENDED_SWITCH, switch),
            (format::RAW_HEADER, header_record(packet, settings.header_bytes)),
        ];
        if !packet.labels_out.is_empty() {
            records.push((format::MPLS, mpls_record(packet.labels_out)));
        }
        let out = (&packet.tunnel_out, format::VNI_EGRESS, format::IPV4_TUNNEL_EGRESS);
        let into = (&packet.tunnel, format::VNI_INGRESS, format::IPV4_TUNNEL_INGRESS);
        for (tunnel, with_vni, with_addresses) in [out, into] {
            let Some(tunnel) = tunnel else { continue };
            if let Some(vni) = tunnel.vni {
                records.push((with_vni, vni.to_be_bytes().to_vec()));
            }
            records.push((with_addresses, tunnel_record(tunnel)));
        }
        put(&mut body, records.len() as u32);
        for (kind, record) in &records {
            part(&mut body, *kind, record);
        }
        self.add(format::FLOW_SAMPLE, &body);
    }

    /// Adds the counters of an interface when they are due. The first ones of interfaces are spread
    /// over the interval by their index.
    pub fn poll(&mut self, interface: &Interface, now: Millis) {
        let interval = i64::from(self.settings.polling_seconds) * 1000;
        if interval == 0 || interface.index == 0 {
            return;
        }
        let first = now + 1000 + i64::from(interface.index) * 1000 % interval;
        let (sequence, due) = self.polls.entry(interface.index).or_insert((0, first));
        *due = (*due).min(now + interval + 1000); // the interval may have become shorter
        if *due > now {
            return;
        }
        *sequence += 1;
        *due = now + interval;
        let mut body = Vec::with_capacity(200);
        put(&mut body, *sequence);
        put(&mut body, interface.index & 0xff_ffff);
        put(&mut body, 4 + u32::from(interface.lacp.is_some()));
        // The records have the order of Open vSwitch.
        part(&mut body, format::ETHERNET, &ethernet_record(interface));
        let mut openflow = interface.datapath_id.to_be_bytes().to_vec();
        put(&mut openflow, interface.port);
        part(&mut body, format::OPENFLOW_PORT, &openflow);
        let mut name = Vec::new();
        opaque(&mut name, interface.name.as_bytes());
        part(&mut body, format::PORT_NAME, &name);
        if let Some(lacp) = &interface.lacp {
            part(&mut body, format::LACP, &lacp_record(lacp));
        }
        part(&mut body, format::INTERFACE, &interface_record(interface));
        self.add(format::COUNTERS_SAMPLE, &body);
    }

    /// Adds the global counters when they are due. `counters` is called then only. As in OVS the first
    /// bridge with sFlow alone has them.
    pub fn poll_global(&mut self, counters: impl FnOnce() -> Global, now: Millis) {
        let Settings { sub_agent, polling_seconds, .. } = self.settings;
        let interval = i64::from(polling_seconds) * 1000;
        if interval == 0 || sub_agent != 0 {
            return;
        }
        let (sequence, due) = self.global_poll.get_or_insert((0, now + 1000));
        *due = (*due).min(now + interval + 1000); // the interval may have become shorter
        if *due > now {
            return;
        }
        *sequence += 1;
        *due = now + interval;
        let counters = counters();
        let mut body = Vec::with_capacity(96);
        put(&mut body, *sequence);
        put(&mut body, source_bridge(sub_agent));
        put(&mut body, 2);
        part(&mut body, format::APPLICATION, &application_record(&counters));
        part(&mut body, format::DATAPATH, &datapath_record(&counters));
        self.add(format::COUNTERS_SAMPLE, &body);
    }

    /// Forgets interfaces that are not in `indices`.
    pub fn retain(&mut self, indices: impl Fn(u32) -> bool) {
        self.polls.retain(|index, _| indices(*index));
    }

    /// Returns the datagrams of all samples so far.
    pub fn take(&mut self, now: Millis) -> Vec<Vec<u8>> {
        self.close();
        let ready = std::mem::take(&mut self.ready);
        ready.into_iter().map(|(samples, count)| self.datagram(&samples, count, now)).collect()
    }

    /// Returns the number of samples that found no room. Datagrams report it, too.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    fn add(&mut self, kind: u32, body: &[u8]) {
        let mut sample = Vec::with_capacity(body.len() + 8);
        part(&mut sample, kind, body);
        if self.header_size() + self.samples.len() + sample.len() > MAX_DATAGRAM {
            self.close();
        }
        if self.ready.len() >= MAX_READY {
            self.dropped = self.dropped.wrapping_add(1);
            return;
        }
        self.samples.extend(sample);
        self.count += 1;
    }

    fn close(&mut self) {
        if self.count > 0 {
            let samples = std::mem::take(&mut self.samples);
            self.ready.push((samples, std::mem::take(&mut self.count)));
        }
    }

    fn header_size(&self) -> usize {
        if self.settings.agent.is_ipv4() { 28 } else { 40 }
    }

    fn datagram(&mut self, samples: &[u8], count: u32, now: Millis) -> Vec<u8> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut out = Vec::with_capacity(self.header_size() + samples.len());
        put(&mut out, 5);
        match self.settings.agent {
            IpAddr::V4(address) => {
                put(&mut out, 1);
                out.extend(address.octets());
            }
            IpAddr::V6(address) => {
                put(&mut out, 2);
                out.extend(address.octets());
            }
        }
        put(&mut out, self.settings.sub_agent);
        put(&mut out, self.sequence);
        put(&mut out, now.since(self.started) as u32); // wraps, as the protocol's uptime does
        put(&mut out, count);
        out.extend(samples);
        out
    }
}

/// Returns the data source of a bridge.
fn source_bridge(sub_agent: u32) -> u32 {
    SOURCE_BRIDGE << 24 | FIRST_BRIDGE.wrapping_add(sub_agent) & 0xff_ffff
}

fn put(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_be_bytes());
}

/// Appends bytes with their length, padded to 4 bytes.
fn opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u32);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends a sample or record with its format.
fn part(out: &mut Vec<u8>, format: u32, body: &[u8]) {
    put(out, format);
    opaque(out, body);
}

fn header_record(packet: &Packet<'_>, most: usize) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    let header = packet.frame.get(..most.min(MAX_HEADER_BYTES)).unwrap_or(packet.frame);
    let mut out = Vec::with_capacity(header.len() + 20);
    put(&mut out, ETHERNET);
    put(&mut out, u32::try_from(packet.size).unwrap_or(u32::MAX).saturating_add(FCS_BYTES));
    put(&mut out, FCS_BYTES);
    opaque(&mut out, header);
    out
}

fn mpls_record(labels_out: &[u32]) -> Vec<u8> {
    const IPV4: u32 = 1;
    let mut out = Vec::new();
    put(&mut out, IPV4);
    put(&mut out, 0); // the next hop is not known
    put(&mut out, 0); // no labels of the packet as it came in
    put(&mut out, labels_out.len() as u32); // at most some dozens
    labels_out.iter().for_each(|label| put(&mut out, *label));
    out
}

fn tunnel_record(tunnel: &Tunnel) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    put(&mut out, 0); // the length of the outer packet is not known
    put(&mut out, tunnel.proto.into());
    out.extend(tunnel.src);
    out.extend(tunnel.dst);
    put(&mut out, tunnel.tp_src.into());
    put(&mut out, tunnel.tp_dst.into());
    put(&mut out, 0); // no TCP flags
    put(&mut out, tunnel.tos.into());
    out
}

/// Stands for a counter that there is not.
const UNKNOWN: u32 = u32::MAX;

/// A counter of 32 bits, which wraps.
fn narrow(count: Option<u64>) -> u32 {
    count.map_or(UNKNOWN, |count| count as u32)
}

/// The counters of IEEE 802.3 (`dot3Stats`).
fn ethernet_record(interface: &Interface) -> Vec<u8> {
    let [alignment, check_sequence, too_long] = interface.malformed.map(narrow);
    let mut out = Vec::with_capacity(52);
    put(&mut out, alignment);
    put(&mut out, check_sequence);
    // Collisions, deferred frames and errors inside the adapter.
    (0..8).for_each(|_| put(&mut out, UNKNOWN));
    put(&mut out, too_long);
    (0..2).for_each(|_| put(&mut out, UNKNOWN));
    out
}

/// As in OVS the highest memory, and the numbers of files and connections, are 0.
fn application_record(counters: &Global) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    put(&mut out, counters.user_ms as u32); // wraps, as all counters of 32 bits do
    put(&mut out, counters.system_ms as u32);
    out.extend(counters.memory_bytes.to_be_bytes());
    out.resize(40, 0);
    out
}

/// Hits, misses, losses, hits of masks, megaflows and masks. As in OVS's userspace datapath, masks are not
/// counted.
fn datapath_record(counters: &Global) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    let Global { hits, misses, lost, flows, .. } = *counters;
    for count in [hits, misses, lost] {
        put(&mut out, count as u32);
    }
    put(&mut out, UNKNOWN);
    put(&mut out, flows as u32);
    put(&mut out, UNKNOWN);
    out
}

fn lacp_record(lacp: &Lacp) -> Vec<u8> {
    let mut out = Vec::with_capacity(56);
    for system in lacp.systems {
        out.extend(system);
        out.extend([0; 2]);
    }
    put(&mut out, lacp.aggregate);
    out.extend(lacp.states);
    put(&mut out, lacp.received as u32); // counters of 32 bits wrap
    (0..3).for_each(|_| put(&mut out, UNKNOWN)); // marker PDUs and answers, unknown PDUs
    put(&mut out, lacp.illegal as u32);
    put(&mut out, lacp.sent as u32);
    (0..2).for_each(|_| put(&mut out, UNKNOWN)); // marker PDUs and answers
    out
}

/// The generic counters (RFC 2233).
fn interface_record(interface: &Interface) -> Vec<u8> {
    const ETHERNET: u32 = 6;
    let wide = |n: Option<u64>| n.unwrap_or(u64::MAX).to_be_bytes();
    let mut out = Vec::with_capacity(88);
    put(&mut out, interface.index);
    put(&mut out, ETHERNET);
    out.extend(interface.speed_bps.to_be_bytes());
    put(&mut out, interface.is_full_duplex.map_or(0, |full| if full { 1 } else { 2 }));
    put(&mut out, u32::from(interface.admin_up) | u32::from(interface.link_up) << 1);
    let [bytes, packets, multicast, dropped, errors] = interface.received;
    out.extend(wide(bytes));
    for n in [narrow(packets), narrow(multicast), UNKNOWN, narrow(dropped), narrow(errors), UNKNOWN]
    {
        put(&mut out, n);
    }
    let [bytes, packets, dropped, errors] = interface.sent;
    out.extend(wide(bytes));
    for n in [narrow(packets), UNKNOWN, UNKNOWN, narrow(dropped), narrow(errors)] {
        put(&mut out, n);
    }
    put(&mut out, interface.promiscuous.into());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SETTINGS: Settings = Settings {
        agent: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)),
        sub_agent: 2,
        sampling: 64,
        header_bytes: 18,
        polling_seconds: 10,
    };

    fn words(bytes: &[u8]) -> Vec<u32> {
        assert_eq!(bytes.len() % 4, 0);
        bytes.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect()
    }

    fn packet(frame: &[u8]) -> Packet<'_> {
        let size = frame.len();
        Packet {
            frame,
            size,
            input: 7,
            output: 8,
            tci_in: 0x6005,
            tci_out: 0,
            tunnel: None,
            tunnel_out: None,
            labels_out: &[],
        }
    }

    #[test]
    fn a_packet_becomes_a_flow_sample() {
        let mut agent = Agent::new(SETTINGS, Millis(1000));
        let frame: Vec<u8> = (1..=60).collect();
        agent.sample(&packet(&frame));
        let sent = agent.take(Millis(3500));
        assert_eq!(sent.len(), 1);
        let head = [5, 1, 0x0a000009, 2, 1, 2500, 1];
        let sample = [1, 4 * (8 + 6 + 11), 1, 2 << 24 | 1002, 64, 64, 0, 7, 8, 2];
        let switch = [1001, 16, 5, 3, 0, 0];
        let header =
            [1, 36, 1, 64, 4, 18, 0x01020304, 0x05060708, 0x090a0b0c, 0x0d0e0f10, 0x11120000];
        assert_eq!(words(&sent[0]), [&head[..], &sample, &switch, &header].concat());
        assert!(agent.take(Millis(4000)).is_empty());
        agent.sample(&packet(&frame));
        let again = words(&agent.take(Millis(4000))[0]);
        assert_eq!((again[4], again[9], again[12]), (2, 2, 128), "sequence numbers and the pool");
    }

    #[test]
    fn a_tunnel_has_its_records() {
        let mut agent = Agent::new(SETTINGS, Millis(0));
        let tunnel = Tunnel {
            src: [1, 1, 1, 1],
            dst: [2, 2, 2, 2],
            proto: 17,
            tp_src: 5,
            tp_dst: 4789,
            tos: 0,
            vni: Some(99),
        };
        let tunnel_out = Some(Tunnel { src: [3; 4], proto: 47, tp_dst: 0, vni: None, ..tunnel });
        agent.sample(&Packet {
            tunnel: Some(tunnel),
            tunnel_out,
            labels_out: &[11 << 12, 12 << 12 | 256],
            ..packet(&[0; 64])
        });
        let sent = words(&agent.take(Millis(0))[0]);
        assert_eq!((sent[16], sent[17], sent[23]), (6, 1001, 1), "the packet comes first");
        let sent = &sent[34..];
        assert_eq!(sent[..8], [1006, 24, 1, 0, 0, 2, 11 << 12, 12 << 12 | 256]);
        assert_eq!(sent[8..18], [1023, 32, 0, 47, 0x03030303, 0x02020202, 5, 0, 0, 0]);
        assert_eq!(sent[18..21], [1030, 4, 99]);
        assert_eq!(sent[21..], [1024, 32, 0, 17, 0x01010101, 0x02020202, 5, 4789, 0, 0]);
    }

    #[test]
    fn counters_are_sent_once_in_an_interval() {
        let mut agent = Agent::new(SETTINGS, Millis(0));
        let interface = Interface {
            index: 13,
            name: "veth1".to_owned(),
            datapath_id: 0x0102_0304_0506_0708,
            port: 3,
            speed_bps: 10_000_000_000,
            is_full_duplex: Some(true),
            admin_up: true,
            link_up: true,
            received: [Some(1 << 33), Some(2), Some(3), Some(4), None],
            sent: [Some(5), Some(6), Some(7), Some(8)],
            malformed: [None, Some(9), Some(10)],
            lacp: Some(Lacp {
                systems: [[1; 6], [2; 6]],
                aggregate: 3333,
                states: [7, 0xbf, 0, 2],
                received: 11,
                illegal: 12,
                sent: 13,
            }),
            ..Interface::default()
        };
        let mut times = Vec::new();
        let mut last = Vec::new();
        for second in 0..40 {
            agent.poll(&interface, Millis(second * 1000));
            for datagram in agent.take(Millis(second * 1000)) {
                times.push(second);
                last = words(&datagram);
            }
        }
        assert_eq!(times, [4, 14, 24, 34]);
        assert_eq!(last[7..12], [2, last[8], 4, 13, 5]);
        let none = u32::MAX;
        assert_eq!(last[12..16], [2, 52, none, 9]);
        assert_eq!(last[16..24], [none; 8]);
        assert_eq!(last[24..27], [10, none, none]);
        assert_eq!(last[27..32], [1004, 12, 0x01020304, 0x05060708, 3]);
        assert_eq!(last[32..37], [1005, 12, 5, 0x76657468, 0x31000000]);
        assert_eq!(last[37..43], [7, 56, 0x01010101, 0x0101_0000, 0x02020202, 0x0202_0000]);
        assert_eq!(last[43..49], [3333, 0x07bf_0002, 11, none, none, none]);
        assert_eq!(last[49..53], [12, 13, none, none]);
        let last = &last[53..];
        let wide = 10_000_000_000u64;
        let status = [1, 88, 13, 6, (wide >> 32) as u32, wide as u32, 1, 3];
        assert_eq!(last[..8], status);
        assert_eq!(last[8..16], [2, 0, 2, 3, none, 4, none, none]);
        assert_eq!(last[16..], [0, 5, 6, none, none, 7, 8, 0]);
        agent.retain(|_| false);
        assert!(agent.polls.is_empty());
    }

    #[test]
    fn the_first_bridge_has_the_global_counters() {
        let counters = Global {
            user_ms: 1,
            system_ms: 2,
            memory_bytes: 3 << 32 | 4,
            hits: 5,
            misses: 6,
            lost: 7,
            flows: 8,
        };
        let mut agent = Agent::new(Settings { sub_agent: 0, ..SETTINGS }, Millis(0));
        let mut times = Vec::new();
        let mut last = Vec::new();
        for second in 0..25 {
            agent.poll_global(|| counters, Millis(second * 1000));
            for datagram in agent.take(Millis(second * 1000)) {
                times.push(second);
                last = words(&datagram);
            }
        }
        assert_eq!(times, [1, 11, 21]);
        assert_eq!(last[7..12], [2, 4 * 23, 3, 2 << 24 | 1000, 2]);
        assert_eq!(last[12..24], [2203, 40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(last[24..], [2207, 24, 5, 6, 7, UNKNOWN, 8, UNKNOWN]);
        let mut other = Agent::new(SETTINGS, Millis(0));
        (0..25).for_each(|second| other.poll_global(|| counters, Millis(second * 1000)));
        assert!(other.take(Millis(0)).is_empty());
    }

    #[test]
    fn datagrams_fit_into_frames_and_their_number_is_bounded() {
        let settings = Settings { header_bytes: MAX_HEADER_BYTES, ..SETTINGS };
        let mut agent = Agent::new(settings, Millis(0));
        let frame = vec![1; 9000];
        for _ in 0..MAX_READY + 10 {
            agent.sample(&packet(&frame));
        }
        let sent = agent.take(Millis(0));
        assert_eq!(sent.len(), MAX_READY);
        assert!(sent.iter().all(|datagram| datagram.len() <= MAX_DATAGRAM));
        assert_eq!(agent.dropped(), 10);
        agent.sample(&packet(&frame));
        assert_eq!(words(&agent.take(Millis(0))[0])[13], 10, "the collector sees the loss");
    }
}
