// SPDX-License-Identifier: Apache-2.0
//! Headers to push.

use crate::encode::{self, encode};
use crate::metadata::{Erspan, Extension, Gbp, Gtpu, Metadata, Payload, flags};
use crate::{ETHERTYPE_TEB, Kind, Options};
use packet::{Ipv4Header, UdpHeader, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most segments of a route: the length of a routing header is one octet, in units of 8.
const MOST_SEGMENTS: usize = 127;

/// The UDP source ports from which a packet's hash chooses (`tnl/egress_port_range`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourcePorts {
    /// The lowest.
    pub first: u16,
    /// The end of the range, which is chosen only when it is `first`.
    pub last: u16,
}

impl Default for SourcePorts {
    fn default() -> SourcePorts {
        SourcePorts { first: 32768, last: 61000 }
    }
}

impl SourcePorts {
    /// Returns the port of a packet with this hash.
    pub fn choose(self, hash: u32) -> u16 {
        let range = u64::from(self.last.saturating_sub(self.first));
        let offset = (u64::from(hash) * range) >> 32; // below `range`
        self.first + offset as u16
    }
}

/// The UDP header of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Udp {
    /// Destination port.
    pub dst: u16,
    /// Each packet gets a checksum.
    pub has_checksum: bool,
    /// Source ports.
    pub sources: SourcePorts,
}

/// The flow label of an outer IPv6 header (`options:srv6_flowlabel`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FlowLabel {
    /// That of the inner IPv6 header; 0 for another payload.
    #[default]
    Copy,
    /// 0.
    Zero,
    /// From the packet's hash.
    Compute,
}

/// The outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OuterIp {
    /// An IPv4 header without options.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
        /// Type of service.
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Flags and fragment offset; 0x4000 is DF.
        fragment: u16,
    },
    /// An IPv6 header without extension headers.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
        /// Flow label, 20 bits.
        label: u32,
        /// Traffic class.
        traffic_class: u8,
        /// Hop limit.
        hop_limit: u8,
    },
}

/// The headers after the outer IP header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a header is made once for a flow, and then shared")]
pub enum Encapsulation {
    /// VXLAN, with its extensions in the first word.
    Vxlan {
        /// UDP header.
        udp: Udp,
        /// The first word.
        flags: u32,
        /// Network identifier, 24 bits.
        vni: u32,
    },
    /// Geneve with its options.
    Geneve {
        /// UDP header.
        udp: Udp,
        /// A control packet.
        is_oam: bool,
        /// One of the options is critical.
        is_critical: bool,
        /// Network identifier, 24 bits.
        vni: u32,
        /// Options in the order of the header.
        options: Options,
    },
    /// GTP-U.
    Gtpu {
        /// UDP header. Each packet gets a checksum, as in Open vSwitch.
        udp: Udp,
        /// The first octet. With one of the bits E, S and PN, four octets follow, of which the first
        /// two are the packet's sequence number.
        flags: u8,
        /// Message type.
        msgtype: u8,
        /// Tunnel endpoint identifier.
        teid: u32,
    },
    /// A payload in UDP.
    Bareudp {
        /// UDP header.
        udp: Udp,
    },
    /// GRE.
    Gre {
        /// Ethernet type of the payload.
        protocol: u16,
        /// Each packet gets a checksum.
        has_checksum: bool,
        /// Key; `None` is a header without one.
        key: Option<u32>,
        /// Each packet gets a sequence number.
        has_sequence: bool,
    },
    /// ERSPAN over GRE with a sequence number.
    Erspan {
        /// Session, 10 bits.
        session: u16,
        /// Version and its fields.
        erspan: Erspan,
    },
    /// A segment routing header.
    Srv6 {
        /// Index of the next segment, counted from the last.
        segments_left: u8,
        /// Segments in the order of the route.
        segments: Vec<Ipv6Addr>,
        /// Flow label of the IPv6 header. Not in texts, where it is [`FlowLabel::Copy`].
        flow_label: FlowLabel,
    },
}

impl Encapsulation {
    /// Returns the IP protocol that announces the header.
    pub fn protocol(&self) -> u8 {
        match self {
            Encapsulation::Vxlan { .. }
            | Encapsulation::Geneve { .. }
            | Encapsulation::Gtpu { .. }
            | Encapsulation::Bareudp { .. } => ip_proto::UDP,
            Encapsulation::Gre { .. } | Encapsulation::Erspan { .. } => ip_proto::GRE,
            Encapsulation::Srv6 { .. } => ip_proto::ROUTING,
        }
    }
}

impl Encapsulation {
    /// Returns true when the packet in the tunnel begins with an Ethernet header.
    pub fn carries_ethernet(&self) -> bool {
        match self {
            Encapsulation::Vxlan { flags, .. } if flags & encode::VXLAN_GPE_PROTOCOL != 0 => {
                let [.., protocol] = flags.to_be_bytes();
                encode::payload_of_gpe(protocol) == Some(Payload::Ethernet)
            }
            Encapsulation::Vxlan { .. }
            | Encapsulation::Geneve { .. }
            | Encapsulation::Erspan { .. } => true,
            Encapsulation::Gre { protocol, .. } => *protocol == ETHERTYPE_TEB,
            Encapsulation::Gtpu { .. }
            | Encapsulation::Bareudp { .. }
            | Encapsulation::Srv6 { .. } => false,
        }
    }
}

/// The values in which headers differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderParts {
    /// Outer Ethernet destination.
    pub eth_dst: [u8; 6],
    /// Outer Ethernet source.
    pub eth_src: [u8; 6],
    /// Outer IP header.
    pub ip: OuterIp,
    /// The headers after it.
    pub encapsulation: Encapsulation,
}

/// The values from which [`Header::build`] makes a header.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Kind of tunnel. `Gre` and `Ip6Gre` are the same, as are `Erspan` and `Ip6Erspan`: the
    /// addresses decide.
    pub kind: Kind,
    /// Outer Ethernet destination.
    pub eth_dst: [u8; 6],
    /// Outer Ethernet source.
    pub eth_src: [u8; 6],
    /// Addresses, key, TOS, TTL, UDP destination port, flags, extension and options.
    pub metadata: &'a Metadata,
    /// Type of the packets to send.
    pub payload: Payload,
    /// VXLAN: the generic protocol extension.
    pub is_generic_protocol: bool,
    /// GRE and GTP-U: packets have sequence numbers.
    pub has_sequence: bool,
    /// SRv6: the route. Empty is the destination alone.
    pub segments: &'a [Ipv6Addr],
    /// SRv6: the flow label.
    pub flow_label: FlowLabel,
    /// UDP source ports.
    pub sources: SourcePorts,
}

/// Why there is no header for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BuildError {
    /// The addresses are of two families, or of one that the kind does not have.
    #[error("the addresses do not suit the kind of tunnel")]
    Addresses,
    /// An ERSPAN session has 10 bits.
    #[error("the key has more bits than the header")]
    Key,
    /// No version of ERSPAN was given.
    #[error("the version of ERSPAN is neither 1 nor 2")]
    Version,
    /// The kind cannot carry the payload.
    #[error("this kind of tunnel cannot carry the packet")]
    Payload,
    /// The route has too many segments.
    #[error("the route has no segments, or too many")]
    Segments,
    /// A GTP-U header with extension headers was asked for.
    #[error("the flags announce headers that are not there")]
    Flags,
    /// No headers of this kind of tunnel are known here.
    #[error("there are no headers for this kind of tunnel")]
    Unsupported,
}

/// Outer headers of packets: the bytes that all packets of a flow share. Immutable.
#[derive(Clone, Debug)]
pub struct Header {
    parts: HeaderParts,
    bytes: Box<[u8]>,
    /// Not in texts.
    path_mtu: Option<u16>,
}

impl PartialEq for Header {
    fn eq(&self, other: &Header) -> bool {
        self.parts == other.parts && self.path_mtu == other.path_mtu // the bytes follow from parts
    }
}

impl Eq for Header {}

impl Header {
    /// Returns the header of these parts.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when a route is impossible or needs other addresses, or when flags of GTP-U
    /// announce extension headers.
    pub fn new(parts: HeaderParts) -> Result<Header, BuildError> {
        match &parts.encapsulation {
            Encapsulation::Srv6 { segments, segments_left, .. } => {
                if matches!(parts.ip, OuterIp::V4 { .. }) {
                    return Err(BuildError::Addresses);
                }
                let is_possible = (1..=MOST_SEGMENTS).contains(&segments.len());
                if !is_possible || usize::from(*segments_left) >= segments.len() {
                    return Err(BuildError::Segments);
                }
            }
            Encapsulation::Gtpu { flags, .. } if flags & encode::GTPU_EXTENSION != 0 => {
                return Err(BuildError::Flags);
            }
            Encapsulation::Gtpu { .. }
            | Encapsulation::Vxlan { .. }
            | Encapsulation::Geneve { .. }
            | Encapsulation::Bareudp { .. }
            | Encapsulation::Gre { .. }
            | Encapsulation::Erspan { .. } => {}
        }
        let bytes = encode(&parts).into_boxed_slice();
        Ok(Header { parts, bytes, path_mtu: None })
    }

    /// Returns the header for a path whose longest IP packets have this many bytes. Texts leave that
    /// number out.
    #[must_use]
    pub fn with_path_mtu(self, path_mtu: Option<u16>) -> Header {
        Header { path_mtu, ..self }
    }

    /// Returns the bytes of the longest IP packet that the path carries; `None` when nothing limits
    /// packets.
    pub fn path_mtu(&self) -> Option<u16> {
        self.path_mtu
    }

    /// Returns the bytes of the longest packet that fits the path with this header, from the
    /// packet's own Ethernet header on if it has one; `None` when nothing limits packets.
    pub fn room(&self) -> Option<usize> {
        let outer_ip = self.bytes.len().saturating_sub(encode::L3);
        Some(usize::from(self.path_mtu?).saturating_sub(outer_ip))
    }

    /// Returns the header for a request, by Open vSwitch's rules: of keys that are too long for VNI,
    /// GRE key or TEID, the low bits are sent.
    ///
    /// # Errors
    ///
    /// [`BuildError`].
    pub fn build(request: &Request<'_>) -> Result<Header, BuildError> {
        let Request { eth_dst, eth_src, .. } = *request;
        let ip = outer_ip(request.metadata)?;
        let encapsulation = encapsulation(request)?;
        Header::new(HeaderParts { eth_dst, eth_src, ip, encapsulation })
    }

    /// Returns the parts.
    pub fn parts(&self) -> &HeaderParts {
        &self.parts
    }

    /// Returns the bytes from the Ethernet header on, with zeros where packets differ.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the kind of tunnel.
    pub fn kind(&self) -> Kind {
        let is_v6 = matches!(self.parts.ip, OuterIp::V6 { .. });
        match self.parts.encapsulation {
            Encapsulation::Vxlan { .. } => Kind::Vxlan,
            Encapsulation::Geneve { .. } => Kind::Geneve,
            Encapsulation::Gtpu { .. } => Kind::Gtpu,
            Encapsulation::Bareudp { .. } => Kind::Bareudp,
            Encapsulation::Gre { .. } if is_v6 => Kind::Ip6Gre,
            Encapsulation::Gre { .. } => Kind::Gre,
            Encapsulation::Erspan { .. } if is_v6 => Kind::Ip6Erspan,
            Encapsulation::Erspan { .. } => Kind::Erspan,
            Encapsulation::Srv6 { .. } => Kind::Srv6,
        }
    }

    /// Returns true when each packet takes a sequence number.
    pub fn has_sequence(&self) -> bool {
        self.sequence_at().is_some()
    }

    /// Returns the place of a packet's sequence number, in bytes after the outer IP header; `None`: packets take
    /// none. It has 32 bits, and 16 in GTP-U.
    pub fn sequence_at(&self) -> Option<usize> {
        match self.parts.encapsulation {
            Encapsulation::Gtpu { flags, .. } => (flags & encode::GTPU_OPTIONAL != 0)
                .then_some(size_of::<UdpHeader>() + encode::GTPU_SEQUENCE_AT),
            Encapsulation::Gre { has_sequence, has_checksum, key, .. } => {
                let fields = usize::from(has_checksum) + usize::from(key.is_some());
                has_sequence.then_some(4 + 4 * fields)
            }
            Encapsulation::Erspan { .. } => Some(4),
            Encapsulation::Vxlan { .. }
            | Encapsulation::Geneve { .. }
            | Encapsulation::Bareudp { .. }
            | Encapsulation::Srv6 { .. } => None,
        }
    }

    /// Returns true when each packet takes the time.
    pub fn has_timestamp(&self) -> bool {
        let is_v2 = |erspan: &Erspan| matches!(erspan, Erspan::V2 { .. });
        matches!(&self.parts.encapsulation, Encapsulation::Erspan { erspan, .. } if is_v2(erspan))
    }

    /// Returns true when each packet takes an IPv4 identification: it may be fragmented.
    pub fn has_identification(&self) -> bool {
        match self.parts.ip {
            OuterIp::V4 { fragment, .. } => fragment & Ipv4Header::DONT_FRAGMENT == 0,
            OuterIp::V6 { .. } => false,
        }
    }

    /// Returns true when all segments of a packet may have this header but for lengths, the IP
    /// identification and checksums.
    pub fn suits_segments(&self) -> bool {
        // The length in a GTP-U header is one more that differs.
        !self.has_sequence() && !matches!(self.parts.encapsulation, Encapsulation::Gtpu { .. })
    }

    /// The UDP header, if there is one.
    pub(crate) fn udp(&self) -> Option<&Udp> {
        match &self.parts.encapsulation {
            Encapsulation::Vxlan { udp, .. }
            | Encapsulation::Geneve { udp, .. }
            | Encapsulation::Gtpu { udp, .. }
            | Encapsulation::Bareudp { udp } => Some(udp),
            Encapsulation::Gre { .. }
            | Encapsulation::Erspan { .. }
            | Encapsulation::Srv6 { .. } => None,
        }
    }
}

fn outer_ip(metadata: &Metadata) -> Result<OuterIp, BuildError> {
    let Metadata { src, dst, tos, ttl, .. } = *metadata;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let is_whole = metadata.flags & flags::DONT_FRAGMENT != 0;
            let fragment = if is_whole { Ipv4Header::DONT_FRAGMENT } else { 0 };
            Ok(OuterIp::V4 { src, dst, tos, ttl, fragment })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Ok(OuterIp::V6 { src, dst, label: 0, traffic_class: tos, hop_limit: ttl })
        }
        _ => Err(BuildError::Addresses),
    }
}

fn encapsulation(request: &Request<'_>) -> Result<Encapsulation, BuildError> {
    let Metadata { tun_id, extension, options, .. } = *request.metadata;
    let has = |flag: u16| request.metadata.flags & flag != 0;
    let udp = Udp {
        dst: request.metadata.tp_dst,
        has_checksum: has(flags::CHECKSUM),
        sources: request.sources,
    };
    let vni = tun_id as u32 & 0xff_ffff;
    let only_ethernet = || match request.payload {
        Payload::Ethernet => Ok(()),
        Payload::Layer3(_) => Err(BuildError::Payload),
    };
    let only_layer3 = || match request.payload {
        Payload::Ethernet => Err(BuildError::Payload),
        Payload::Layer3(ethertype) => Ok(ethertype),
    };
    Ok(match request.kind {
        Kind::Vxlan => {
            let extended = match extension {
                _ if request.is_generic_protocol => {
                    let protocol =
                        encode::gpe_of_payload(request.payload).ok_or(BuildError::Payload)?;
                    encode::VXLAN_GPE_PROTOCOL | u32::from(protocol)
                }
                Extension::Gbp(Gbp { id, flags }) => {
                    let flags = u32::from(flags & encode::GBP_FLAGS) << 16;
                    encode::VXLAN_GROUP_POLICY | flags | u32::from(id)
                }
                Extension::None | Extension::Erspan(_) | Extension::Gtpu(_) => 0,
            };
            if !request.is_generic_protocol {
                only_ethernet()?;
            }
            Encapsulation::Vxlan { udp, flags: encode::VXLAN_VNI | extended, vni }
        }
        Kind::Geneve => {
            only_ethernet()?;
            let is_critical = options.has_critical();
            Encapsulation::Geneve { udp, is_oam: has(flags::OAM), is_critical, vni, options }
        }
        Kind::Gtpu => {
            only_layer3()?;
            /// Version 1, not GTP', no optional octets.
            const USUAL: Gtpu = Gtpu { flags: 0x30, msgtype: encode::GTPU_USER_DATA };
            let Gtpu { flags, msgtype } = match extension {
                Extension::Gtpu(gtpu) => gtpu,
                Extension::None | Extension::Gbp(_) | Extension::Erspan(_) => USUAL,
            };
            let flags = if flags == 0 { USUAL.flags } else { flags };
            let msgtype = if msgtype == 0 { USUAL.msgtype } else { msgtype };
            let sequence = if request.has_sequence { encode::GTPU_SEQUENCE } else { 0 };
            Encapsulation::Gtpu { udp, flags: flags | sequence, msgtype, teid: tun_id as u32 }
        }
        Kind::Bareudp => {
            only_layer3()?;
            Encapsulation::Bareudp { udp }
        }
        Kind::Gre | Kind::Ip6Gre => Encapsulation::Gre {
            protocol: encode::gre_of_payload(request.payload),
            has_checksum: has(flags::CHECKSUM),
            key: has(flags::KEY).then_some(tun_id as u32),
            has_sequence: request.has_sequence,
        },
        Kind::Erspan | Kind::Ip6Erspan => {
            only_ethernet()?;
            let Extension::Erspan(erspan) = extension else { return Err(BuildError::Version) };
            if tun_id > u64::from(encode::ERSPAN_SESSION) {
                return Err(BuildError::Key);
            }
            Encapsulation::Erspan { session: tun_id as u16, erspan }
        }
        Kind::Srv6 => {
            only_layer3()?;
            let IpAddr::V6(dst) = request.metadata.dst else { return Err(BuildError::Addresses) };
            let segments = match request.segments {
                [] => vec![dst],
                segments => segments.to_vec(),
            };
            let segments_left =
                u8::try_from(segments.len() - 1).map_err(|_| BuildError::Segments)?;
            Encapsulation::Srv6 { segments_left, segments, flow_label: request.flow_label }
        }
        Kind::Lisp | Kind::Stt => return Err(BuildError::Unsupported),
    })
}
