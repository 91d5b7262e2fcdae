// SPDX-License-Identifier: Apache-2.0
//! Frames of every kind that extraction distinguishes: sound ones, and ones whose lengths, headers
//! or options are not what they say.

use packet::build::Frame;
use packet::{Ipv4Header, Ipv6Header, MplsEntry};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Station `n`; 5 is broadcast, 4 is where STP goes.
pub fn station(n: u8) -> [u8; 6] {
    match n {
        5 => [0xff; 6],
        4 => [1, 0x80, 0xc2, 0, 0, 0],
        n => [2, 0, 0, 0, 0, n],
    }
}

/// Host `n` of two networks that share 15 bits.
pub fn v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, n / 4, 0, n % 4)
}

/// The same in IPv6.
pub fn v6(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, u16::from(n / 4), 0, 0, 0, u16::from(n % 4))
}

/// A frame, layer by layer.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Destination and source, for [`station`].
    stations: (u8, u8),
    /// 802.1ad or 802.1Q, and the TCI.
    tags: Vec<(bool, u16)>,
    /// An LLC/SNAP header stands between.
    snap: bool,
    network: Network,
    payload: usize,
    damage: Vec<Damage>,
}

#[derive(Clone, Debug)]
enum Network {
    Ipv4 {
        ip: Ip,
        options: u8,
        fragment: u16,
        transport: Transport,
    },
    Ipv6 {
        ip: Ip,
        label: u32,
        chain: Vec<Extension>,
        transport: Transport,
    },
    Arp {
        rarp: bool,
        op: u16,
        hosts: (u8, u8),
        stations: (u8, u8),
    },
    Mpls {
        multicast: bool,
        labels: Vec<(u32, bool, u8)>,
        ip: Option<(Ip, Transport)>,
    },
    Nsh {
        flags: u8,
        ttl: u8,
        md_type: u8,
        next: u8,
        spi: u32,
        si: u8,
        words: u8,
    },
    /// An Ethernet type without a parser, or an 802.3 length.
    Other(u16),
}

#[derive(Clone, Debug)]
struct Ip {
    hosts: (u8, u8),
    tos: u8,
    ttl: u8,
}

#[derive(Clone, Debug)]
enum Extension {
    Options { kind: u8, body: u8 },
    Fragment { offset_flags: u16 },
    NoNext,
}

#[derive(Clone, Debug)]
enum Transport {
    Tcp {
        ports: (u16, u16),
        flags: u16,
        offset: u8,
    },
    Udp(u16, u16),
    Sctp(u16, u16),
    Icmp(u8, u8),
    Igmp(u8),
    Icmpv6(u8, u8),
    Neighbour {
        kind: u8,
        code: u8,
        target: u8,
        options: Vec<(u8, u8, u8)>,
    },
    /// A protocol without a parser (0 is one), and nothing of it.
    Bare(u8),
}

/// A defect of a frame. Offsets are from the network header.
#[derive(Clone, Debug)]
enum Damage {
    /// The IP length field gets what is there, and this more or less.
    Length(i16),
    /// The IP length field gets this.
    LengthIs(u16),
    /// IP version and header length.
    VersionIhl(u8),
    /// Bytes after the packet.
    Pad(usize),
    /// This many bytes are missing at the end.
    Cut(Index),
    /// A byte of the headers is another.
    Byte(Index, u8),
}

fn ports() -> impl Strategy<Value = (u16, u16)> {
    (select(&[0u16, 1, 80, 1000][..]), select(&[0u16, 1, 80, 81, 1023, 4096][..]))
}

fn transport() -> impl Strategy<Value = Transport> {
    let option = (select(&[1u8, 1, 2, 2, 5][..]), select(&[1u8, 1, 1, 0, 2][..]), 0..4u8);
    prop_oneof![
        5 => (ports(), select(&[2u16, 0x10, 0x11, 4][..]), prop_oneof![8 => Just(5u8), 1 => 0..16u8])
            .prop_map(|(ports, flags, offset)| Transport::Tcp { ports, flags, offset }),
        4 => ports().prop_map(|(a, b)| Transport::Udp(a, b)),
        1 => ports().prop_map(|(a, b)| Transport::Sctp(a, b)),
        2 => (select(&[0u8, 1, 8][..]), 0..2u8).prop_map(|(t, c)| Transport::Icmp(t, c)),
        1 => (0..3u8).prop_map(Transport::Igmp),
        1 => (select(&[128u8, 135, 136][..]), 0..2u8).prop_map(|(t, c)| Transport::Icmpv6(t, c)),
        3 => (select(&[135u8, 136][..]), select(&[0u8, 0, 0, 1][..]), 0..4u8, vec(option, 0..3))
            .prop_map(|(kind, code, target, options)| Transport::Neighbour { kind, code, target, options }),
        2 => select(&[0u8, 4, 47, 50, 59, 99][..]).prop_map(Transport::Bare),
    ]
}

fn ip() -> impl Strategy<Value = Ip> {
    let tos = select(&[0u8, 1, 0x20, 0xfc][..]);
    ((0..6u8, 0..6u8), tos, select(&[0u8, 1, 2, 64][..])).prop_map(|(hosts, tos, ttl)| Ip {
        hosts,
        tos,
        ttl,
    })
}

fn network() -> impl Strategy<Value = Network> {
    let fragment = select(&[0u16, 0, 0, 0x4000, 0x2000, 0x2001, 1, 0x8000][..]);
    let options = prop_oneof![4 => Just(0u8), 1 => 1..3u8];
    let extension = prop_oneof![
        3 => (select(&[0u8, 43, 60, 51][..]), select(&[0u8, 4, 12][..]))
            .prop_map(|(kind, body)| Extension::Options { kind, body }),
        2 => select(&[0u16, 1, 8, 9][..]).prop_map(|offset_flags| Extension::Fragment { offset_flags }),
        1 => Just(Extension::NoNext),
    ];
    let label = (0..3u32, prop::bool::weighted(0.5), select(&[0u8, 1, 64][..]));
    prop_oneof![
        8 => (ip(), options, fragment, transport())
            .prop_map(|(ip, options, fragment, transport)| Network::Ipv4 { ip, options, fragment, transport }),
        6 => (ip(), 0..3u32, prop_oneof![2 => Just(Vec::new()), 1 => vec(extension, 1..4)], transport())
            .prop_map(|(ip, label, chain, transport)| Network::Ipv6 { ip, label, chain, transport }),
        2 => (any::<bool>(), select(&[1u16, 2, 0, 255, 256, 257][..]), (0..6u8, 0..6u8), (0..4u8, 0..4u8))
            .prop_map(|(rarp, op, hosts, stations)| Network::Arp { rarp, op, hosts, stations }),
        2 => (any::<bool>(), vec(label, 0..6), prop::option::of((ip(), transport())))
            .prop_map(|(multicast, labels, ip)| Network::Mpls { multicast, labels, ip }),
        2 => ((0..4u8, select(&[0u8, 1, 2, 63][..])), 0..4u8, 0..6u8, (0..3u32, 0..3u8), 0..9u8)
            .prop_map(|((flags, ttl), md_type, next, (spi, si), words)| {
                Network::Nsh { flags, ttl, md_type, next, spi, si, words }
            }),
        1 => select(&[0x1234u16, 0x88cc, 40, 0x05ff, 0x0600, 0x8100, 0x9100][..]).prop_map(Network::Other),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => (-40..40i16).prop_map(Damage::Length),
        1 => select(&[0u16, 19, 20, 0xffff][..]).prop_map(Damage::LengthIs),
        2 => select(&[0x40u8, 0x44, 0x46, 0x4f, 0x65, 0x05][..]).prop_map(Damage::VersionIhl),
        2 => select(&[1usize, 6, 46, 255, 256, 300][..]).prop_map(Damage::Pad),
        3 => any::<Index>().prop_map(Damage::Cut),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Byte(at, value)),
    ]
}

/// Returns a strategy for frames.
pub fn spec() -> impl Strategy<Value = Spec> {
    let tag =
        (prop::bool::weighted(0.2), select(&[0u16, 5, 5, 10, 0x6005, 0x1005, 0xe00a, 0x6000][..]));
    let tags = prop_oneof![3 => Just(Vec::new()), 3 => vec(tag, 1..4)];
    let damaged = prop_oneof![3 => Just(Vec::new()), 2 => vec(damage(), 1..3)];
    (
        (0..6u8, 0..4u8),
        tags,
        prop::bool::weighted(0.05),
        network(),
        select(&[0usize, 6, 30][..]),
        damaged,
    )
        .prop_map(|(stations, tags, snap, network, payload, damage)| Spec {
            stations,
            tags,
            snap,
            network,
            payload,
            damage,
        })
}

impl Spec {
    /// The bytes.
    pub fn frame(&self) -> Vec<u8> {
        let mut f = Frame::ethernet(station(self.stations.0), station(self.stations.1));
        for (service, tci) in &self.tags {
            f = f.vlan(if *service { 0x88a8 } else { 0x8100 }, *tci);
        }
        let payload: Vec<u8> = (0..self.payload).map(|i| i as u8).collect();
        let (mut bytes, labels) = match &self.network {
            Network::Ipv4 { ip, options, fragment, transport } => {
                let f = f.ipv4_header(ipv4(ip, *fragment));
                (transport.on(f.payload(&vec![1; usize::from(*options) * 4]), &payload), 0)
            }
            Network::Ipv6 { ip, label, chain, transport } => {
                let f = chain.iter().fold(f.ipv6_header(ipv6(ip, *label)), |f, e| e.on(f));
                (transport.on(f, &payload), 0)
            }
            Network::Arp { rarp, op, hosts, stations } => {
                let kind = if *rarp { 0x8035 } else { 0x806 };
                let sender = (station(stations.0), v4(hosts.0));
                (f.arp(kind, *op, sender, (station(stations.1), v4(hosts.1))).finish(), 0)
            }
            Network::Mpls { multicast, labels, ip } => {
                let kind = if *multicast { 0x8848 } else { 0x8847 };
                f = f.ethertype(kind);
                for (label, bottom, ttl) in labels {
                    f = f.mpls(kind, MplsEntry::new(*label, 0, *bottom, *ttl));
                }
                let bytes = match ip {
                    Some((ip, transport)) => transport.on(f.ipv4_header(ipv4(ip, 0)), &payload),
                    None => f.payload(&payload).finish(),
                };
                (bytes, labels.len())
            }
            Network::Nsh { flags, ttl, md_type, next, spi, si, words } => {
                let words = if *md_type == 1 && *words < 6 { 6 } else { *words };
                let first = u16::from(*flags) << 12 | u16::from(*ttl) << 6 | u16::from(words);
                let mut header = first.to_be_bytes().to_vec();
                header.extend([*md_type, *next]);
                header.extend((spi << 8 | u32::from(*si)).to_be_bytes());
                header.resize(usize::from(words).max(2) * 4, *si);
                let inner = match next {
                    3 => Frame::ethernet(station(1), station(2)).ethertype(0x1234),
                    _ => f.clone(),
                };
                header.extend(inner.payload(&payload).finish());
                (f.ethertype(0x894f).payload(&header).finish(), 0)
            }
            Network::Other(kind) => (f.ethertype(*kind).payload(&payload).finish(), 0),
        };
        let mut l3 = 14 + 4 * (self.tags.len() + labels);
        if let Network::Ipv4 { options: options @ 1.., .. } = &self.network {
            bytes[l3] = 0x45 + options;
        }
        if self.snap {
            let at = 12 + 4 * self.tags.len();
            let kind = [bytes[at], bytes[at + 1]];
            let header = [0, 60, 0xaa, 0xaa, 3, 0, 0, 0, kind[0], kind[1]];
            bytes.splice(at..at + 2, header);
            l3 += 8;
        }
        let at = if matches!(self.network, Network::Ipv6 { .. }) { l3 + 4 } else { l3 + 2 };
        for damage in &self.damage {
            damage.to(&mut bytes, l3, at);
        }
        bytes
    }
}

fn ipv4(ip: &Ip, fragment: u16) -> Ipv4Header {
    Ipv4Header {
        version_ihl: 0x45,
        tos: ip.tos,
        total_len: 0.into(),
        id: 0.into(),
        fragment: fragment.into(),
        ttl: ip.ttl,
        proto: 0,
        checksum: 0.into(),
        src: v4(ip.hosts.0).to_bits().into(),
        dst: v4(ip.hosts.1).to_bits().into(),
    }
}

fn ipv6(ip: &Ip, label: u32) -> Ipv6Header {
    Ipv6Header {
        version_class_label: (6 << 28 | u32::from(ip.tos) << 20 | label).into(),
        payload_len: 0.into(),
        next: 0,
        hop_limit: ip.ttl,
        src: v6(ip.hosts.0).octets(),
        dst: v6(ip.hosts.1).octets(),
    }
}

impl Extension {
    fn on(&self, f: Frame) -> Frame {
        match self {
            Extension::Options { kind, body } => {
                f.ipv6_extension(*kind, &vec![1; usize::from(*body)])
            }
            Extension::Fragment { offset_flags } => f.ipv6_fragment(*offset_flags, 0, 7),
            Extension::NoNext => f.protocol(59),
        }
    }
}

impl Transport {
    fn on(&self, f: Frame, payload: &[u8]) -> Vec<u8> {
        let f = match self {
            Transport::Tcp { ports, flags, offset } => f.tcp_header(packet::TcpHeader {
                src: ports.0.into(),
                dst: ports.1.into(),
                seq: 0.into(),
                ack: 0.into(),
                offset_flags: (u16::from(*offset) << 12 | flags).into(),
                window: 0.into(),
                checksum: 0.into(),
                urgent: 0.into(),
            }),
            Transport::Udp(src, dst) => f.udp(*src, *dst),
            Transport::Sctp(src, dst) => f.sctp(*src, *dst),
            Transport::Icmp(kind, code) => f.icmp(*kind, *code, 0),
            Transport::Igmp(group) => f.igmp(0x16, 0, Ipv4Addr::new(239, 0, 0, *group)),
            Transport::Icmpv6(kind, code) => f.icmpv6(*kind, *code, 0),
            Transport::Neighbour { kind, code, target, options } => {
                let mut body = v6(*target).octets().to_vec();
                for (kind, units, n) in options {
                    body.extend_from_slice(&[*kind, *units]);
                    body.extend_from_slice(&station(*n));
                }
                return f.icmpv6(*kind, *code, 0).payload(&body).finish();
            }
            Transport::Bare(proto) => f.protocol(*proto),
        };
        f.payload(payload).finish()
    }
}

impl Damage {
    /// `l3` is where the network header starts, `length` where IP has its length.
    fn to(&self, bytes: &mut Vec<u8>, l3: usize, length: usize) {
        let behind = bytes.len().saturating_sub(if length == l3 + 4 { l3 + 40 } else { l3 });
        let mut store = |value: u16| {
            if let Some(place) = bytes.get_mut(length..length + 2) {
                place.copy_from_slice(&value.to_be_bytes());
            }
        };
        match self {
            Damage::Length(more) => store((behind as u16).wrapping_add_signed(*more)),
            Damage::LengthIs(value) => store(*value),
            Damage::VersionIhl(value) => {
                if let Some(first) = bytes.get_mut(l3) {
                    *first = *value;
                }
            }
            Damage::Pad(n) => bytes.resize(bytes.len() + n, 0),
            Damage::Cut(at) => {
                if !bytes.is_empty() {
                    bytes.truncate(at.index(bytes.len()));
                }
            }
            Damage::Byte(at, value) => {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *value;
                }
            }
        }
    }
}
