// SPDX-License-Identifier: Apache-2.0
//! Construction of frames header by header; the end fills in lengths and checksums.
//!
//! For tests, tools and composed packets. The outermost header comes first:
//!
//! ```
//! use packet::build::Frame;
//! let frame = Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
//!     .vlan(0x8100, 5)
//!     .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
//!     .udp(1000, 53)
//!     .payload(b"hello")
//!     .finish();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
//! ```
//!
//! Any sequence of headers is possible, including those that no host sends. The type field of an
//! outer header is set to the inner header where there is a number for it.

use crate::checksum::{self, Sum};
use crate::{
    ArpHeader, EthernetHeader, IcmpHeader, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, MplsEntry,
    NdHeader, Packet, SctpHeader, TcpHeader, UdpHeader, VlanHeader, ethertype, ip_proto,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

/// The pending work for the header at an offset.
#[derive(Clone, Copy, Debug)]
enum Fixup {
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
}

/// The field that stores the next header's type.
#[derive(Clone, Copy, Debug)]
enum TypeAt {
    EtherType(usize),
    Protocol(usize),
    Nowhere,
}

/// A frame under construction.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    fixups: Vec<(usize, Fixup)>,
    type_at: TypeAt,
    /// Offset of the IP header from which the transport header's pseudo header is taken.
    ip_at: Option<usize>,
}

impl Frame {
    /// Starts with an Ethernet header of type 0.
    pub fn ethernet(dst: [u8; 6], src: [u8; 6]) -> Frame {
        let mut f = Frame {
            bytes: Vec::with_capacity(128),
            fixups: Vec::new(),
            type_at: TypeAt::Nowhere,
            ip_at: None,
        };
        f.push(&EthernetHeader { dst, src, ethertype: U16::ZERO });
        f.type_at = TypeAt::EtherType(12);
        f
    }

    fn push<T: IntoBytes + zerocopy::Immutable>(&mut self, header: &T) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(header.as_bytes());
        at
    }

    /// Stores the type of the next header in the previous one.
    fn name(&mut self, ethertype: u16, proto: Option<u8>) {
        match self.type_at {
            TypeAt::EtherType(at) => {
                if let Some(place) = self.bytes.get_mut(at..at + 2) {
                    place.copy_from_slice(&ethertype.to_be_bytes());
                }
            }
            TypeAt::Protocol(at) => {
                if let (Some(place), Some(proto)) = (self.bytes.get_mut(at), proto) {
                    *place = proto;
                }
            }
            TypeAt::Nowhere => {}
        }
        self.type_at = TypeAt::Nowhere;
    }

    /// Sets the Ethernet type of the bytes that follow, for payloads without a method here.
    pub fn ethertype(mut self, ethertype: u16) -> Frame {
        self.name(ethertype, None);
        self
    }

    /// Adds a VLAN tag.
    pub fn vlan(mut self, tpid: u16, tci: u16) -> Frame {
        self.name(tpid, None);
        // The type stored just before is the tag's TPID: TCI and inner type follow.
        let at = self.push(&VlanHeader { tpid: U16::new(tci), tci: U16::ZERO });
        self.type_at = TypeAt::EtherType(at + 2);
        self
    }

    /// Adds an MPLS label stack entry. `ethertype` is used for the first entry of a stack.
    pub fn mpls(mut self, ethertype: u16, entry: MplsEntry) -> Frame {
        self.name(ethertype, None);
        self.push(&entry);
        self
    }

    /// Adds an ARP header, or a RARP header with that `ethertype`.
    pub fn arp(
        mut self,
        ethertype: u16,
        op: u16,
        sender: ([u8; 6], Ipv4Addr),
        target: ([u8; 6], Ipv4Addr),
    ) -> Frame {
        self.name(ethertype, None);
        self.push(&ArpHeader {
            hardware: U16::new(1),
            protocol: U16::new(ethertype::IPV4),
            hardware_len: 6,
            protocol_len: 4,
            op: U16::new(op),
            sha: sender.0,
            spa: U32::new(sender.1.to_bits()),
            tha: target.0,
            tpa: U32::new(target.1.to_bits()),
        });
        self
    }

    /// Adds an IPv4 header without options; the protocol is 0 until a transport header follows.
    pub fn ipv4(self, src: Ipv4Addr, dst: Ipv4Addr, ttl: u8) -> Frame {
        self.ipv4_header(Ipv4Header {
            version_ihl: 0x45,
            tos: 0,
            total_len: U16::ZERO,
            id: U16::ZERO,
            fragment: U16::ZERO,
            ttl,
            proto: 0,
            checksum: U16::ZERO,
            src: U32::new(src.to_bits()),
            dst: U32::new(dst.to_bits()),
        })
    }

    /// Adds an IPv4 header with these fields; total length and checksum are filled in.
    pub fn ipv4_header(mut self, header: Ipv4Header) -> Frame {
        self.name(ethertype::IPV4, Some(4));
        let at = self.push(&header);
        self.ip_at = Some(at);
        self.type_at = TypeAt::Protocol(at + 9);
        self.fixups.push((at, Fixup::Ipv4));
        self
    }

    /// Adds an IPv6 header; the next header is 0 until one follows.
    pub fn ipv6(self, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8) -> Frame {
        self.ipv6_header(Ipv6Header {
            version_class_label: U32::new(6 << 28),
            payload_len: U16::ZERO,
            next: 0,
            hop_limit,
            src: src.octets(),
            dst: dst.octets(),
        })
    }

    /// Adds an IPv6 header with these fields; the payload length is filled in.
    pub fn ipv6_header(mut self, header: Ipv6Header) -> Frame {
        self.name(ethertype::IPV6, Some(41));
        let at = self.push(&header);
        self.ip_at = Some(at);
        self.type_at = TypeAt::Protocol(at + 6);
        self.fixups.push((at, Fixup::Ipv6));
        self
    }

    /// Adds an IPv6 fragment header with this word of offset and flags. `next` stays if no header
    /// with a method here follows.
    pub fn ipv6_fragment(mut self, offset_flags: u16, next: u8, id: u32) -> Frame {
        self.name(0, Some(ip_proto::FRAGMENT));
        let at = self.push(&Ipv6FragmentHeader {
            next,
            reserved: 0,
            offset: U16::new(offset_flags),
            id: U32::new(id),
        });
        self.type_at = TypeAt::Protocol(at);
        self
    }

    /// Adds an IPv6 extension header of this type with `body` after its first two bytes, padded
    /// with zeros to a multiple of 8 bytes.
    pub fn ipv6_extension(mut self, kind: u8, body: &[u8]) -> Frame {
        self.name(0, Some(kind));
        let at = self.bytes.len();
        let units = (2 + body.len()).div_ceil(8).clamp(1, 256);
        self.bytes.extend_from_slice(&[0, (units - 1) as u8]);
        self.bytes.extend_from_slice(body);
        self.bytes.resize(at + units * 8, 0);
        self.type_at = TypeAt::Protocol(at);
        self
    }

    /// Sets the protocol number of the bytes that follow, for protocols without a method here.
    pub fn protocol(mut self, proto: u8) -> Frame {
        self.name(0, Some(proto));
        self
    }

    /// Adds a TCP header without options.
    pub fn tcp(self, src: u16, dst: u16, flags: u16) -> Frame {
        self.tcp_header(TcpHeader {
            src: U16::new(src),
            dst: U16::new(dst),
            seq: U32::ZERO,
            ack: U32::ZERO,
            offset_flags: U16::new(5 << 12 | flags & 0xfff),
            window: U16::ZERO,
            checksum: U16::ZERO,
            urgent: U16::ZERO,
        })
    }

    /// Adds a TCP header with these fields; the checksum is filled in.
    pub fn tcp_header(mut self, header: TcpHeader) -> Frame {
        self.name(0, Some(ip_proto::TCP));
        let at = self.push(&header);
        self.fixups.push((at, Fixup::Tcp));
        self
    }

    /// Adds a UDP header.
    pub fn udp(mut self, src: u16, dst: u16) -> Frame {
        self.name(0, Some(ip_proto::UDP));
        let at = self.push(&UdpHeader {
            src: U16::new(src),
            dst: U16::new(dst),
            len: U16::ZERO,
            checksum: U16::ZERO,
        });
        self.fixups.push((at, Fixup::Udp));
        self
    }

    /// Adds an SCTP common header.
    pub fn sctp(mut self, src: u16, dst: u16) -> Frame {
        self.name(0, Some(ip_proto::SCTP));
        let at = self.push(&SctpHeader {
            src: U16::new(src),
            dst: U16::new(dst),
            tag: U32::ZERO,
            checksum: [0; 4],
        });
        self.fixups.push((at, Fixup::Sctp));
        self
    }

    /// Adds an ICMP header.
    pub fn icmp(mut self, kind: u8, code: u8, rest: u32) -> Frame {
        self.name(0, Some(ip_proto::ICMP));
        let at = self.push(&IcmpHeader { kind, code, checksum: U16::ZERO, rest: U32::new(rest) });
        self.fixups.push((at, Fixup::Icmp));
        self
    }

    /// Adds an IGMP header, which has ICMP's layout with the group after the checksum.
    pub fn igmp(mut self, kind: u8, code: u8, group: Ipv4Addr) -> Frame {
        self.name(0, Some(ip_proto::IGMP));
        let rest = U32::new(group.to_bits());
        let at = self.push(&IcmpHeader { kind, code, checksum: U16::ZERO, rest });
        self.fixups.push((at, Fixup::Icmp));
        self
    }

    /// Adds an ICMPv6 header.
    pub fn icmpv6(mut self, kind: u8, code: u8, rest: u32) -> Frame {
        self.name(0, Some(ip_proto::ICMPV6));
        let at = self.push(&IcmpHeader { kind, code, checksum: U16::ZERO, rest: U32::new(rest) });
        self.fixups.push((at, Fixup::Icmpv6));
        self
    }

    /// Adds a neighbour solicitation (135) or advertisement (136) with the given link-layer address
    /// options (type, address).
    pub fn nd(mut self, kind: u8, rest: u32, target: Ipv6Addr, options: &[(u8, [u8; 6])]) -> Frame {
        self.name(0, Some(ip_proto::ICMPV6));
        let icmp = IcmpHeader { kind, code: 0, checksum: U16::ZERO, rest: U32::new(rest) };
        let at = self.push(&NdHeader { icmp, target: target.octets() });
        for (kind, address) in options {
            self.bytes.extend_from_slice(&[*kind, 1]);
            self.bytes.extend_from_slice(address);
        }
        self.fixups.push((at, Fixup::Icmpv6));
        self
    }

    /// Adds bytes unchanged.
    pub fn payload(mut self, bytes: &[u8]) -> Frame {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Fills in lengths and checksums, innermost first, and returns the frame's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, fixup) in std::mem::take(&mut self.fixups).into_iter().rev() {
            self.fix(at, fixup);
        }
        self.bytes
    }

    /// Returns the result of [`Frame::finish`] as a packet.
    pub fn packet(self) -> Packet {
        Packet::from_slice(&self.finish())
    }

    /// Returns the sum of the pseudo header for `proto`; zero without an IP header.
    fn pseudo_sum(&self, proto: u8, len: usize) -> Sum {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(ip) = self.ip_at.and_then(|at| self.bytes.get(at..)) else {
            return Sum::default();
        };
        match ip.first().map(|b| b >> 4) {
            Some(4) => Ipv4Header::ref_from_prefix(ip).map(|(h, _)| h.pseudo_sum(len)),
            _ => {
                return Ipv6Header::ref_from_prefix(ip)
                    .map(|(h, _)| h.pseudo_sum(proto, len))
                    .unwrap_or_default();
            }
        }
        .unwrap_or_default()
    }

    fn fix(&mut self, at: usize, fixup: Fixup) {
        let len = self.bytes.len().saturating_sub(at);
        let len16 = u16::try_from(len).unwrap_or(u16::MAX);
        let proto = match fixup {
            Fixup::Tcp => ip_proto::TCP,
            Fixup::Udp => ip_proto::UDP,
            _ => ip_proto::ICMPV6,
        };
        let mut sum = self.pseudo_sum(proto, len);
        let Some(bytes) = self.bytes.get_mut(at..) else {
            return;
        };
        match fixup {
            Fixup::Ipv4 => {
                let Ok((h, _)) = Ipv4Header::mut_from_prefix(bytes) else {
                    return;
                };
                h.total_len.set(len16);
                h.checksum.set(0);
                let csum = checksum::internet(h.as_bytes());
                h.checksum.set(csum);
            }
            Fixup::Ipv6 => {
                let Ok((h, _)) = Ipv6Header::mut_from_prefix(bytes) else {
                    return;
                };
                h.payload_len.set(len16.saturating_sub(40));
            }
            Fixup::Tcp => {
                sum.add(bytes);
                if let Ok((h, _)) = TcpHeader::mut_from_prefix(bytes) {
                    h.checksum.set(sum.finish());
                }
            }
            Fixup::Udp => {
                if let Ok((h, _)) = UdpHeader::mut_from_prefix(bytes) {
                    h.len.set(len16);
                }
                sum.add(bytes);
                if let Ok((h, _)) = UdpHeader::mut_from_prefix(bytes) {
                    h.checksum.set(match sum.finish() {
                        0 => 0xffff, // 0 means no checksum
                        c => c,
                    });
                }
            }
            Fixup::Sctp => {
                let crc = checksum::sctp(bytes).unwrap_or_default();
                if let Ok((h, _)) = SctpHeader::mut_from_prefix(bytes) {
                    h.checksum = crc;
                }
            }
            Fixup::Icmp => {
                let csum = checksum::internet(bytes);
                if let Ok((h, _)) = IcmpHeader::mut_from_prefix(bytes) {
                    h.checksum.set(csum);
                }
            }
            Fixup::Icmpv6 => {
                sum.add(bytes);
                if let Ok((h, _)) = IcmpHeader::mut_from_prefix(bytes) {
                    h.checksum.set(sum.finish());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_verify() {
        let f = Frame::ethernet([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
            .tcp(1, 2, 0)
            .payload(&[1, 2, 3])
            .finish();
        assert_eq!(checksum::internet(&f[14..34]), 0);
        let (ip, _) = Ipv4Header::ref_from_prefix(&f[14..]).unwrap();
        assert_eq!(ip.checked_lengths(f.len() - 14), Some((20, 43)));
        let mut sum = ip.pseudo_sum(23);
        sum.add(&f[34..]);
        assert_eq!(sum.finish(), 0);
    }

    #[test]
    fn types_name_the_inner_headers() {
        let f = Frame::ethernet([2; 6], [4; 6])
            .vlan(0x88a8, 7)
            .vlan(0x8100, 9)
            .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 3)
            .ipv6_extension(ip_proto::HOP_BY_HOP, &[])
            .ipv6_fragment(1, 0, 2)
            .udp(5, 6)
            .finish();
        assert_eq!(f[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 0x86, 0xdd]);
        let (ip, rest) = Ipv6Header::ref_from_prefix(&f[22..]).unwrap();
        assert_eq!(ip.checked_payload_len(f.len() - 22), Some(24));
        let e = crate::Ipv6Extensions::walk(ip.next, rest).unwrap();
        assert_eq!((e.proto, e.len, e.is_fragment, e.is_later_fragment), (17, 16, true, false));
        assert_eq!(e.fragment_at, Some(8));
        let mut sum = ip.pseudo_sum(17, 8);
        sum.add(&rest[16..]);
        assert_eq!(sum.finish(), 0);
    }
}
