// SPDX-License-Identifier: Apache-2.0
//! Pushing a header onto a packet.

use crate::checksum::sum_as_finished;
use crate::encode::{self, L3};
use crate::header::{Encapsulation, FlowLabel, Header, OuterIp};
use crate::metadata::{Erspan, Payload};
use packet::{FromBytes, Ipv4Header, Ipv6Header, Packet, UdpHeader, checksum, ethertype, ip_proto};
use std::time::Duration;

/// The properties of a packet that its header depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PerPacket {
    /// Type of the packet.
    pub payload: Payload,
    /// Hash of the packet's flow: the UDP source port, or the flow label, is made of it.
    pub hash: u32,
    /// Number of the packet, for headers with [`Header::has_sequence`].
    pub sequence: u32,
    /// IPv4 identification, for headers without DF (RFC 6864, 4).
    pub id: u16,
    /// The time now, for ERSPAN version 2.
    pub now: Duration,
}

/// Why a header was not pushed. The packet is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PushError {
    /// The outer packet would be longer than its length fields can say.
    #[error("the packet is too long for the outer length")]
    TooLong,
    /// The header has no number for the packet's type.
    #[error("the header cannot carry the packet's type")]
    Payload,
}

impl Header {
    /// Puts the header in front of `packet` and fills in what differs between packets.
    ///
    /// Work that is left to a device stays for the inner packet. The outer checksum is right once
    /// an unfinished inner checksum is finished. In a packet that is to be segmented it is only a
    /// sign that segments need one: the code that segments computes it for each.
    ///
    /// # Errors
    ///
    /// [`PushError`].
    pub fn push(&self, packet: &mut Packet, each: &PerPacket) -> Result<(), PushError> {
        let header = self.bytes();
        let payload_len = packet.len();
        let ip_len = header.len() - L3 + payload_len;
        let ip_header = match self.parts().ip {
            OuterIp::V4 { .. } => size_of::<Ipv4Header>(),
            OuterIp::V6 { .. } => size_of::<Ipv6Header>(),
        };
        let counted = match self.parts().ip {
            OuterIp::V4 { .. } => ip_len,
            OuterIp::V6 { .. } => ip_len - ip_header,
        };
        let counted = u16::try_from(counted).map_err(|_| PushError::TooLong)?;
        let next = self.routed_next(each.payload)?;
        let label = self.flow_label(packet, each);

        packet.insert_at(0, header.len());
        let data = packet.data_mut();
        if let Some(place) = data.get_mut(..header.len()) {
            place.copy_from_slice(header);
        }
        let ip = data.get_mut(L3..).unwrap_or_default();
        match self.parts().ip {
            OuterIp::V4 { fragment, .. } => finish_ipv4(ip, counted, fragment, each.id),
            OuterIp::V6 { .. } => finish_ipv6(ip, counted, label),
        }
        let l4 = L3 + ip_header;
        if let Some(next) = next
            && let Some(place) = data.get_mut(l4)
        {
            *place = next;
        }
        self.finish_tunnel(data.get_mut(l4..).unwrap_or_default(), payload_len, each);
        self.finish_checksum(packet, l4);
        Ok(())
    }

    /// The next header of a segment routing header.
    fn routed_next(&self, payload: Payload) -> Result<Option<u8>, PushError> {
        if !matches!(self.parts().encapsulation, Encapsulation::Srv6 { .. }) {
            return Ok(None);
        }
        match payload {
            Payload::Layer3(ethertype::IPV4) => Ok(Some(ip_proto::IPV4)),
            Payload::Layer3(ethertype::IPV6) => Ok(Some(ip_proto::IPV6)),
            Payload::Layer3(_) | Payload::Ethernet => Err(PushError::Payload),
        }
    }

    /// The flow label of a packet; `None` is that of the header.
    fn flow_label(&self, packet: &Packet, each: &PerPacket) -> Option<u32> {
        let Encapsulation::Srv6 { flow_label, .. } = self.parts().encapsulation else {
            return None;
        };
        match flow_label {
            FlowLabel::Zero => Some(0),
            FlowLabel::Compute => Some(each.hash),
            FlowLabel::Copy if each.payload == Payload::Layer3(ethertype::IPV6) => {
                let (inner, _) = Ipv6Header::ref_from_prefix(packet.data()).ok()?;
                Some(inner.label())
            }
            FlowLabel::Copy => None,
        }
    }

    /// Fills in the header at the start of `data`, whose payload is the last `payload_len` bytes.
    fn finish_tunnel(&self, data: &mut [u8], payload_len: usize, each: &PerPacket) {
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = data.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        /// Bytes of a UDP header; the tunnel's header follows.
        const UDP: usize = size_of::<UdpHeader>();
        let sequence = each.sequence.to_be_bytes();
        let mut number = &sequence[..];
        match &self.parts().encapsulation {
            Encapsulation::Gtpu { flags, .. } => {
                let optional = if flags & encode::GTPU_OPTIONAL != 0 { 4 } else { 0 };
                // The IP length is larger, and fits.
                let len = u16::try_from(payload_len + optional).unwrap_or(u16::MAX);
                put(UDP + 2, &len.to_be_bytes());
                number = &sequence[2..]; // the low 16 bits
            }
            Encapsulation::Erspan { erspan: Erspan::V2 { .. }, .. } => {
                // Units of 100 microseconds, of which the low 32 bits are sent.
                let timestamp = (each.now.as_micros() / 100) as u32;
                put(encode::ERSPAN_TIMESTAMP_AT, &timestamp.to_be_bytes());
            }
            Encapsulation::Erspan { .. }
            | Encapsulation::Gre { .. }
            | Encapsulation::Vxlan { .. }
            | Encapsulation::Geneve { .. }
            | Encapsulation::Bareudp { .. }
            | Encapsulation::Srv6 { .. } => {}
        }
        if let Some(at) = self.sequence_at() {
            put(at, number);
        }
        if let Some(udp) = self.udp() {
            let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
            if let Ok((header, _)) = UdpHeader::mut_from_prefix(data) {
                header.src.set(udp.sources.choose(each.hash));
                header.len.set(len);
            }
        }
    }

    /// Computes the checksum of the header at `l4`, if it has one.
    fn finish_checksum(&self, packet: &mut Packet, l4: usize) {
        let is_gtpu = matches!(self.parts().encapsulation, Encapsulation::Gtpu { .. });
        let place = match self.parts().encapsulation {
            Encapsulation::Gre { has_checksum: true, .. } => l4 + 4,
            _ if is_gtpu || self.udp().is_some_and(|udp| udp.has_checksum) => l4 + 6,
            _ => return,
        };
        let data = packet.data();
        let sum = if packet.offload.gso.is_some() {
            0xffff
        } else {
            let mut sum = sum_as_finished(data, l4, data.len(), &packet.offload);
            if self.udp().is_some() {
                let len = u32::try_from(data.len() - l4).unwrap_or(u32::MAX);
                sum.add_u16(pseudo_sum(data, len));
            }
            match sum.finish() {
                0 if self.udp().is_some() => 0xffff, // 0 means no checksum
                sum => sum,
            }
        };
        if let Some(place) = packet.data_mut().get_mut(place..place + 2) {
            place.copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// The sum of the pseudo header of a UDP datagram of `len` bytes in a frame without VLAN tags.
fn pseudo_sum(frame: &[u8], len: u32) -> u16 {
    let ip = frame.get(L3..).unwrap_or_default();
    match ip.first().map(|first| first >> 4) {
        Some(4) => Ipv4Header::ref_from_prefix(ip).map_or(0, |(ip, _)| ip.pseudo_sum(len).folded()),
        _ => Ipv6Header::ref_from_prefix(ip)
            .map_or(0, |(ip, _)| ip.pseudo_sum(ip_proto::UDP, len).folded()),
    }
}

fn finish_ipv4(ip: &mut [u8], total: u16, fragment: u16, id: u16) {
    let Ok((ip, _)) = Ipv4Header::mut_from_prefix(ip) else { return };
    let id = if fragment & Ipv4Header::DONT_FRAGMENT != 0 { 0 } else { id };
    let sum = checksum::update_u16(ip.checksum.get(), 0, total);
    ip.checksum.set(checksum::update_u16(sum, 0, id));
    ip.total_len.set(total);
    ip.id.set(id);
}

fn finish_ipv6(ip: &mut [u8], payload: u16, label: Option<u32>) {
    let Ok((ip, _)) = Ipv6Header::mut_from_prefix(ip) else { return };
    ip.payload_len.set(payload);
    if let Some(label) = label {
        ip.set_label(label);
    }
}
