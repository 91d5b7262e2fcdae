// SPDX-License-Identifier: Apache-2.0
//! Records: the bytes that identify a flow, its counts, and their place in a data set.

use super::template::{Network, Template, Transport, set};
use flow::Key;
use packet::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};
use packet::{ethertype, ip_proto};

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u8 = 14;
/// Bytes of an Ethernet header with a VLAN header.
const VLAN_ETHERNET_BYTES: u8 = 18;
/// Highest number of bytes of an interface's name in a record, as in OVS.
const MAX_NAME_BYTES: usize = 64;

/// Interface in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface<'a> {
    /// The kernel's index; 0 when it has none.
    pub index: u32,
    /// Name of the interface in the database.
    pub name: &'a str,
}

/// Type of a tunnel (element tunnelType of VMware). Its protocol and the length of its key follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelType {
    /// VXLAN, with a key of 24 bits.
    Vxlan = 1,
    /// GRE, with a key of 32 bits.
    Gre = 2,
    /// LISP, with a key of 24 bits.
    Lisp = 3,
    /// STT, with a key of 64 bits.
    Stt = 4,
    /// Geneve, with a key of 24 bits.
    Geneve = 7,
}

impl TunnelType {
    fn protocol(self) -> u8 {
        match self {
            TunnelType::Vxlan | TunnelType::Lisp | TunnelType::Geneve => ip_proto::UDP,
            TunnelType::Stt => ip_proto::TCP,
            TunnelType::Gre => ip_proto::GRE,
        }
    }

    fn key_bytes(self) -> usize {
        match self {
            TunnelType::Vxlan | TunnelType::Lisp | TunnelType::Geneve => 3,
            TunnelType::Stt => 8,
            TunnelType::Gre => 4,
        }
    }
}

/// Direction of a record (element flowDirection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet came in.
    Ingress = 0,
    /// The packet goes out.
    Egress = 1,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its fields.
    pub key: &'a Key,
    /// Bytes of the frame, without its check sequence.
    pub size: u64,
    /// The number of packets that it stands for.
    pub packets: u64,
    /// Interface by which it came in.
    pub input: Interface<'a>,
    /// Interface by which it goes out; records of the direction `Ingress` leave it out.
    pub output: Interface<'a>,
    /// Direction of the record.
    pub direction: Direction,
    /// Outer header, and the type of its tunnel.
    pub tunnel: Option<(TunnelType, &'a flow::Tunnel)>,
    /// Observation domain.
    pub obs_domain: u32,
    /// Observation point.
    pub obs_point: u32,
    /// The packets are dropped.
    pub is_dropped: bool,
}

/// Identity of a flow: a record has these bytes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub domain: u32,
    pub template: Template,
    bytes: Vec<u8>,
}

impl Identity {
    pub(super) fn of(packet: &Packet<'_>) -> Identity {
        let key = packet.key;
        let template = template_of(packet);
        let [outer, _] = &key.vlans;
        let mut out = Vec::with_capacity(128);
        out.extend(packet.obs_point.to_be_bytes());
        out.push(packet.direction as u8);
        out.extend(key.dl_src);
        out.extend(key.dl_dst);
        out.extend(key.dl_type.get().to_be_bytes());
        out.push(header_bytes(template));
        put_interface(&mut out, packet.input);
        if template.is_egress {
            put_interface(&mut out, packet.output);
        }
        if template.has_vlan {
            let vid = (outer.tci.get() & 0x0fff).to_be_bytes();
            out.extend(vid);
            out.extend(vid);
            out.push((outer.tci.get() >> 13) as u8); // 3 bits
        }
        if template.network != Network::Other {
            let version = if template.network == Network::V4 { 4 } else { 6 };
            let tos = key.nw_tos;
            out.extend([version, key.nw_ttl, key.nw_proto, tos >> 2, tos >> 5, tos]);
        }
        match template.network {
            Network::Other => {}
            Network::V4 => {
                out.extend(key.nw_src.get().to_be_bytes());
                out.extend(key.nw_dst.get().to_be_bytes());
            }
            Network::V6 => {
                out.extend(key.ipv6_src);
                out.extend(key.ipv6_dst);
                out.extend(key.ipv6_label.get().to_be_bytes());
            }
        }
        match template.transport {
            Transport::Other => {}
            Transport::Tcp | Transport::Udp | Transport::Sctp => {
                out.extend(key.tp_src.get().to_be_bytes());
                out.extend(key.tp_dst.get().to_be_bytes());
            }
            Transport::Icmp => out.extend([key.tp_src.get() as u8, key.tp_dst.get() as u8]),
        }
        if let Some((kind, tunnel)) = packet.tunnel {
            put_tunnel(&mut out, kind, tunnel);
        }
        Identity { domain: packet.obs_domain, template, bytes: out }
    }
}

fn template_of(packet: &Packet<'_>) -> Template {
    let key = packet.key;
    let network = match key.dl_type.get() {
        ethertype::IPV4 => Network::V4,
        ethertype::IPV6 => Network::V6,
        _ => Network::Other,
    };
    let transport = match (network, key.nw_proto) {
        (Network::Other, _) => Transport::Other,
        (_, ip_proto::TCP) => Transport::Tcp,
        (_, ip_proto::UDP) => Transport::Udp,
        (_, ip_proto::SCTP) => Transport::Sctp,
        (Network::V4, ip_proto::ICMP) | (Network::V6, ip_proto::ICMPV6) => Transport::Icmp,
        _ => Transport::Other,
    };
    let [outer, _] = &key.vlans;
    Template {
        has_vlan: outer.tci.get() != 0,
        network,
        transport,
        has_tunnel: packet.tunnel.is_some(),
        is_egress: packet.direction == Direction::Egress,
    }
}

fn header_bytes(template: Template) -> u8 {
    if template.has_vlan { VLAN_ETHERNET_BYTES } else { ETHERNET_BYTES }
}

/// Appends index, type, name and description. As in OVS the last ones of Linux's devices are unknown.
fn put_interface(out: &mut Vec<u8>, interface: Interface<'_>) {
    out.extend(interface.index.to_be_bytes());
    out.extend([0; 4]);
    let name = interface.name.as_bytes();
    put_variable(out, name.get(..MAX_NAME_BYTES).unwrap_or(name));
    put_variable(out, &[]);
}

/// Appends bytes with their length (RFC 7011, 7: fewer than 255).
fn put_variable(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

fn put_tunnel(out: &mut Vec<u8>, kind: TunnelType, tunnel: &flow::Tunnel) {
    out.extend(tunnel.src.get().to_be_bytes());
    out.extend(tunnel.dst.get().to_be_bytes());
    out.push(kind.protocol());
    out.extend(tunnel.tp_src.get().to_be_bytes());
    out.extend(tunnel.tp_dst.get().to_be_bytes());
    out.push(kind as u8);
    let key = tunnel.id.get().to_be_bytes();
    put_variable(out, key.get(key.len() - kind.key_bytes()..).unwrap_or(&key));
}

/// Counts of all packets of an exporter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    dropped_packets: u64,
    dropped_bytes: u64,
    packets: u64,
    bytes: u64,
    bytes_squared: u64,
    layer2_bytes: u64,
    /// ACK, FIN, PSH, RST, SYN, URG.
    tcp: [u64; 6],
    egress_multicast: u64,
    egress_multicast_bytes: u64,
    /// Packets that came in: unicast, multicast, broadcast.
    ingress: [u64; 3],
    /// Packets that go out: unicast, broadcast.
    egress: [u64; 2],
}

/// Counts of a flow since its last record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    dropped_packets: u64,
    dropped_bytes: u64,
    packets: u64,
    bytes: u64,
    bytes_squared: u64,
    layer2_bytes: u64,
    egress_multicast: u64,
    egress_multicast_bytes: u64,
    /// Lengths of IP packets; 0 before the first.
    shortest: u64,
    longest: u64,
    /// The exporter's counts after the flow's last packet.
    totals: Totals,
}

/// Flags of TCP in the order of their counts.
const TCP_FLAGS: [u16; 6] = [ACK, FIN, PSH, RST, SYN, URG];

impl Counts {
    /// Adds a packet of the flow. As in OVS all packets that a sample stands for have its size.
    pub(super) fn add(&mut self, identity: &Identity, packet: &Packet<'_>, totals: &mut Totals) {
        let n = packet.packets;
        let template = identity.template;
        let key = packet.key;
        let is_broadcast = key.dl_dst == [0xff; 6];
        let is_multicast = !is_broadcast && key.dl_dst.first().is_some_and(|byte| byte & 1 != 0);
        let dropped = if packet.is_dropped { n } else { 0 };
        let layer2 = n.wrapping_mul(packet.size);
        let add = |a: &mut u64, b: &mut u64, more: u64| {
            *a = a.wrapping_add(more);
            *b = b.wrapping_add(more);
        };
        add(&mut self.packets, &mut totals.packets, n);
        add(&mut self.dropped_packets, &mut totals.dropped_packets, dropped);
        add(&mut self.layer2_bytes, &mut totals.layer2_bytes, layer2);
        let [in_unicast, in_multicast, in_broadcast] = &mut totals.ingress;
        let [out_unicast, out_broadcast] = &mut totals.egress;
        let counter = match (template.is_egress, is_broadcast, is_multicast) {
            (false, true, _) => in_broadcast,
            (false, _, true) => in_multicast,
            (false, false, false) => in_unicast,
            (true, true, _) => out_broadcast,
            (true, _, true) => {
                self.egress_multicast = self.egress_multicast.wrapping_add(n);
                &mut totals.egress_multicast
            }
            (true, false, false) => out_unicast,
        };
        *counter = counter.wrapping_add(n);
        if template.network != Network::Other {
            let length = packet.size.saturating_sub(header_bytes(template).into());
            let bytes = n.wrapping_mul(length);
            let squared = bytes.wrapping_mul(length);
            add(&mut self.bytes, &mut totals.bytes, bytes);
            add(&mut self.bytes_squared, &mut totals.bytes_squared, squared);
            let dropped = if packet.is_dropped { bytes } else { 0 };
            add(&mut self.dropped_bytes, &mut totals.dropped_bytes, dropped);
            if is_multicast && template.is_egress {
                let total = &mut totals.egress_multicast_bytes;
                add(&mut self.egress_multicast_bytes, total, bytes);
            }
            self.shortest = if self.shortest == 0 { length } else { self.shortest.min(length) };
            self.longest = self.longest.max(length);
        }
        if template.transport == Transport::Tcp {
            for (count, flag) in totals.tcp.iter_mut().zip(TCP_FLAGS) {
                if key.tcp_flags.get() & flag != 0 {
                    *count = count.wrapping_add(n);
                }
            }
        }
        self.totals = *totals;
    }

    /// Returns the data set of a flow's record. The times are in microseconds before the message.
    pub(super) fn data_set(
        &self,
        identity: &Identity,
        virtual_obs_id: Option<&str>,
        start: u32,
        end: u32,
        reason: EndReason,
    ) -> Vec<u8> {
        let template = identity.template;
        let totals = &self.totals;
        let mut out = identity.bytes.clone();
        if let Some(id) = virtual_obs_id {
            put_variable(&mut out, id.as_bytes());
        }
        out.extend(start.to_be_bytes());
        out.extend(end.to_be_bytes());
        let [in_unicast, in_multicast, in_broadcast] = totals.ingress;
        let [out_unicast, out_broadcast] = totals.egress;
        let counts = [
            self.dropped_packets,
            totals.dropped_packets,
            self.packets,
            totals.packets,
            in_unicast,
            in_multicast,
            in_broadcast,
            out_unicast,
            out_broadcast,
            self.egress_multicast,
            totals.egress_multicast,
            self.layer2_bytes,
            totals.layer2_bytes,
        ];
        out.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        out.push(reason as u8);
        if template.network != Network::Other {
            let counts = [
                self.dropped_bytes,
                totals.dropped_bytes,
                self.bytes,
                totals.bytes,
                self.bytes_squared,
                totals.bytes_squared,
                self.shortest,
                self.longest,
                self.egress_multicast_bytes,
                totals.egress_multicast_bytes,
            ];
            out.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        }
        if template.transport == Transport::Tcp {
            out.extend(totals.tcp.iter().flat_map(|count| count.to_be_bytes()));
        }
        set(template.id(), &out)
    }
}

/// The reason for a record (element flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The active timeout passed.
    ActiveTimeout = 2,
    /// The exporter ends.
    Forced = 4,
    /// The cache is full.
    LackOfResources = 5,
}
