// SPDX-License-Identifier: Apache-2.0
//! Outer IP and UDP headers of received frames.

use crate::checksum::sum_as_finished;
use crate::decode::DecodeError;
use packet::{
    FromBytes, Ipv4Header, Ipv6Extensions, Ipv6Header, Offload, UdpHeader, checksum, ip_proto,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Counts of checksums that decoding verified, as Open vSwitch's coverage counters
/// `native_tnl_l3csum_checked`, `native_tnl_l3csum_err`, `native_tnl_l4csum_checked` and
/// `native_tnl_l4csum_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Checks {
    /// Checksums of IPv4 headers that were verified.
    pub ip: u64,
    /// Those that were wrong.
    pub wrong_ip: u64,
    /// Checksums of UDP that were verified.
    pub transport: u64,
    /// Those that were wrong.
    pub wrong_transport: u64,
}

/// An outer IP packet.
pub(crate) struct Outer<'a> {
    frame: &'a [u8],
    offload: &'a Offload,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// The protocol after extension headers.
    pub(crate) proto: u8,
    /// Offset of the header of `proto`.
    pub(crate) l4: usize,
    /// The end of the IP packet; bytes after it are padding.
    pub(crate) end: usize,
    /// IPv6: offset of a routing header.
    pub(crate) routing_at: Option<usize>,
}

/// A UDP header.
pub(crate) struct OuterUdp {
    pub(crate) src: u16,
    pub(crate) dst: u16,
    pub(crate) has_checksum: bool,
    /// Offset of the data.
    pub(crate) data_at: usize,
    /// The end of the datagram.
    pub(crate) end: usize,
}

impl<'a> Outer<'a> {
    /// Reads the IP header at `l3`.
    pub(crate) fn parse(
        frame: &'a [u8],
        l3: usize,
        offload: &'a Offload,
        checks: &mut Checks,
    ) -> Result<Outer<'a>, DecodeError> {
        let packet = frame.get(l3..).ok_or(DecodeError::Length)?;
        match packet.first().map(|first| first >> 4) {
            Some(4) => Outer::parse_ipv4(frame, l3, offload, checks),
            Some(6) => Outer::parse_ipv6(frame, l3, offload),
            Some(_) => Err(DecodeError::NotIp),
            None => Err(DecodeError::Length),
        }
    }

    fn parse_ipv4(
        frame: &'a [u8],
        l3: usize,
        offload: &'a Offload,
        checks: &mut Checks,
    ) -> Result<Outer<'a>, DecodeError> {
        let packet = frame.get(l3..).unwrap_or_default();
        let (ip, _) = Ipv4Header::ref_from_prefix(packet).map_err(|_| DecodeError::Length)?;
        let header = packet.get(..ip.header_len()).ok_or(DecodeError::Length)?;
        checks.ip += 1;
        if checksum::internet(header) != 0 {
            checks.wrong_ip += 1;
            return Err(DecodeError::IpChecksum);
        }
        let (header, total) = ip.checked_lengths(packet.len()).ok_or(DecodeError::Length)?;
        if header > size_of::<Ipv4Header>() {
            return Err(DecodeError::IpOptions);
        }
        if ip.is_fragment() {
            return Err(DecodeError::Fragment);
        }
        Ok(Outer {
            frame,
            offload,
            src: Ipv4Addr::from_bits(ip.src.get()).into(),
            dst: Ipv4Addr::from_bits(ip.dst.get()).into(),
            tos: ip.tos,
            ttl: ip.ttl,
            proto: ip.proto,
            l4: l3 + header,
            end: l3 + total,
            routing_at: None,
        })
    }

    fn parse_ipv6(
        frame: &'a [u8],
        l3: usize,
        offload: &'a Offload,
    ) -> Result<Outer<'a>, DecodeError> {
        let packet = frame.get(l3..).unwrap_or_default();
        let (ip, rest) = Ipv6Header::ref_from_prefix(packet).map_err(|_| DecodeError::Length)?;
        let len = ip.checked_payload_len(packet.len()).ok_or(DecodeError::Length)?;
        let payload = rest.get(..len).ok_or(DecodeError::Length)?;
        let extensions = Ipv6Extensions::walk(ip.next, payload).ok_or(DecodeError::Length)?;
        if extensions.is_fragment {
            return Err(DecodeError::Fragment);
        }
        let payload_at = l3 + size_of::<Ipv6Header>();
        Ok(Outer {
            frame,
            offload,
            src: Ipv6Addr::from(ip.src).into(),
            dst: Ipv6Addr::from(ip.dst).into(),
            tos: ip.traffic_class(),
            ttl: ip.hop_limit,
            proto: extensions.proto,
            l4: payload_at + extensions.len,
            end: payload_at + len,
            routing_at: extensions.routing_at.map(|at| payload_at + at),
        })
    }

    /// Returns `N` bytes at `at`, which must be in the IP packet.
    pub(crate) fn bytes<const N: usize>(&self, at: usize) -> Result<&'a [u8; N], DecodeError> {
        let packet = self.frame.get(..self.end).unwrap_or_default();
        packet.get(at..).and_then(|rest| rest.first_chunk()).ok_or(DecodeError::Length)
    }

    /// Returns the bytes from `at` to `end`.
    pub(crate) fn range(&self, at: usize, end: usize) -> Result<&'a [u8], DecodeError> {
        self.frame.get(at..end.min(self.end)).ok_or(DecodeError::Length)
    }

    /// Returns an error when the protocol is another one.
    pub(crate) fn expect(&self, proto: u8) -> Result<(), DecodeError> {
        if self.proto == proto { Ok(()) } else { Err(DecodeError::Protocol) }
    }

    /// Returns true when the bytes from `at` to `end` and `pseudo` have a right checksum.
    fn adds_up(&self, at: usize, end: usize, pseudo: u16) -> bool {
        let mut sum = sum_as_finished(self.frame, at, end, self.offload);
        sum.add_u16(pseudo);
        sum.finish() == 0
    }

    /// Returns true when the checksum of the header at `l4` is not to be verified: a device did, or
    /// its sender has not finished it, or each segment will get its own.
    fn is_trusted(&self) -> bool {
        let is_unfinished = |(start, _): (u16, u16)| usize::from(start) == self.l4;
        self.offload.csum_valid
            || self.offload.gso.is_some()
            || self.offload.csum.is_some_and(is_unfinished)
    }

    /// Reads a UDP header and verifies its checksum.
    pub(crate) fn udp(&self, checks: &mut Checks) -> Result<OuterUdp, DecodeError> {
        self.expect(ip_proto::UDP)?;
        let segment = self.range(self.l4, self.end)?;
        let (udp, _) = UdpHeader::ref_from_prefix(segment).map_err(|_| DecodeError::Length)?;
        let len = usize::from(udp.len.get());
        if !(size_of::<UdpHeader>()..=segment.len()).contains(&len) {
            return Err(DecodeError::Length);
        }
        let end = self.l4 + len;
        let has_checksum = udp.checksum.get() != 0;
        if has_checksum && !self.is_trusted() {
            checks.transport += 1;
            if !self.adds_up(self.l4, end, self.pseudo_sum(udp.len.get())) {
                checks.wrong_transport += 1;
                return Err(DecodeError::Checksum);
            }
        }
        Ok(OuterUdp {
            src: udp.src.get(),
            dst: udp.dst.get(),
            has_checksum,
            data_at: self.l4 + size_of::<UdpHeader>(),
            end,
        })
    }

    fn pseudo_sum(&self, len: u16) -> u16 {
        let mut sum = checksum::Sum::default();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                sum.add(&src.octets());
                sum.add(&dst.octets());
            }
            (src, dst) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                sum.add(&octets(src));
                sum.add(&octets(dst));
            }
        }
        sum.add_u16(self.proto.into());
        sum.add_u16(len);
        sum.folded()
    }

    /// Verifies the checksum of a GRE header (RFC 2784, 2.1), which has no pseudo header.
    pub(crate) fn verify_gre(&self) -> Result<(), DecodeError> {
        if self.is_trusted() || self.adds_up(self.l4, self.end, 0) {
            Ok(())
        } else {
            Err(DecodeError::Checksum)
        }
    }
}
