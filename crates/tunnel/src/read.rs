// SPDX-License-Identifier: Apache-2.0
//! Headers from their bytes.

use crate::encode::{self, L3};
use crate::header::{Encapsulation, FlowLabel, Header, HeaderParts, OuterIp, SourcePorts, Udp};
use crate::metadata::Erspan;
use crate::{Kind, Options};
use packet::{Ipv4Header, Ipv6Header, UdpHeader, ethertype};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The values that the bytes of a [`Header`] do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Choice {
    /// UDP: each packet gets a checksum.
    pub has_checksum: bool,
    /// UDP: source ports.
    pub sources: SourcePorts,
    /// SRv6: the flow label.
    pub flow_label: FlowLabel,
}

/// Bytes by their offsets.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn octet(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn short(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn long(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Returns the outer IP header and the offset after it.
    fn ip(&self) -> Option<(OuterIp, usize)> {
        match self.short(12)? {
            ethertype::IPV4 => {
                let ip = OuterIp::V4 {
                    src: Ipv4Addr::from(self.array::<4>(L3 + 12)?),
                    dst: Ipv4Addr::from(self.array::<4>(L3 + 16)?),
                    tos: self.octet(L3 + 1)?,
                    ttl: self.octet(L3 + 8)?,
                    fragment: self.short(L3 + 6)?,
                };
                Some((ip, L3 + size_of::<Ipv4Header>()))
            }
            ethertype::IPV6 => {
                let first = self.long(L3)?;
                let ip = OuterIp::V6 {
                    src: Ipv6Addr::from(self.array::<16>(L3 + 8)?),
                    dst: Ipv6Addr::from(self.array::<16>(L3 + 24)?),
                    label: first & 0xf_ffff,
                    traffic_class: (first >> 20) as u8, // the version is above
                    hop_limit: self.octet(L3 + 7)?,
                };
                Some((ip, L3 + size_of::<Ipv6Header>()))
            }
            _ => None,
        }
    }

    fn udp(&self, l4: usize, choice: Choice) -> Option<Udp> {
        let Choice { has_checksum, sources, .. } = choice;
        Some(Udp { dst: self.short(l4 + 2)?, has_checksum, sources })
    }

    /// Returns the headers from `l4` on.
    fn encapsulation(&self, kind: Kind, l4: usize, choice: Choice) -> Option<Encapsulation> {
        let tunnel = l4 + size_of::<UdpHeader>();
        Some(match kind {
            Kind::Vxlan => Encapsulation::Vxlan {
                udp: self.udp(l4, choice)?,
                flags: self.long(tunnel)?,
                vni: self.long(tunnel + 4)? >> 8,
            },
            Kind::Geneve => {
                let bits = self.octet(tunnel + 1)?;
                Encapsulation::Geneve {
                    udp: self.udp(l4, choice)?,
                    is_oam: bits & encode::GENEVE_OAM != 0,
                    is_critical: bits & encode::GENEVE_CRITICAL != 0,
                    vni: self.long(tunnel + 4)? >> 8,
                    options: Options::new(self.0.get(tunnel + 8..)?)?,
                }
            }
            Kind::Gre | Kind::Ip6Gre => {
                let bits = self.short(l4)?;
                let has_checksum = bits & encode::GRE_CHECKSUM != 0;
                let key_at = l4 + 4 + if has_checksum { 4 } else { 0 };
                let key = if bits & encode::GRE_KEY != 0 { Some(self.long(key_at)?) } else { None };
                Encapsulation::Gre {
                    protocol: self.short(l4 + 2)?,
                    has_checksum,
                    key,
                    has_sequence: bits & encode::GRE_SEQUENCE != 0,
                }
            }
            Kind::Bareudp => Encapsulation::Bareudp { udp: self.udp(l4, choice)? },
            Kind::Gtpu => Encapsulation::Gtpu {
                udp: self.udp(l4, choice)?,
                flags: self.octet(tunnel)?,
                msgtype: self.octet(tunnel + 1)?,
                teid: self.long(tunnel + 4)?,
            },
            Kind::Erspan | Kind::Ip6Erspan => {
                let first = self.long(l4 + 8)?;
                let erspan = match first >> 28 {
                    1 => Erspan::V1 { index: self.long(l4 + 12)? & encode::ERSPAN_INDEX },
                    _ => Erspan::v2_of(self.short(l4 + 18)?),
                };
                Encapsulation::Erspan { session: (first & encode::ERSPAN_SESSION) as u16, erspan }
            }
            Kind::Srv6 => {
                let route = self.0.get(l4 + 8..)?.chunks_exact(16).rev();
                let segment = |bytes: &[u8]| bytes.first_chunk::<16>().copied().map(Ipv6Addr::from);
                Encapsulation::Srv6 {
                    segments_left: self.octet(l4 + 3)?,
                    segments: route.filter_map(segment).collect(),
                    flow_label: choice.flow_label,
                }
            }
            Kind::Lisp | Kind::Stt => return None,
        })
    }
}

impl Header {
    /// Returns the header that has these bytes ([`Header::bytes`]). `None`: no header of this kind has them.
    /// Total.
    pub fn from_bytes(kind: Kind, bytes: &[u8], choice: Choice) -> Option<Header> {
        let reader = Reader(bytes);
        let (ip, l4) = reader.ip()?;
        let encapsulation = reader.encapsulation(kind, l4, choice)?;
        let (eth_dst, eth_src) = (reader.array(0)?, reader.array(6)?);
        let header = Header::new(HeaderParts { eth_dst, eth_src, ip, encapsulation }).ok()?;
        (header.bytes() == bytes && header.kind() == kind).then_some(header)
    }
}
