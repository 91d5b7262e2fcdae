// SPDX-License-Identifier: Apache-2.0
//! Outer headers in the form that programs push (`bpf/tunnel_push.h`).
//!
//! A header is interned by its bytes: flows to one tunnel endpoint share a number. Its place is used
//! again when no packet can run such a flow any more, as those of slots are.

use packet::checksum::Sum;
use tunnel::{Choice, Encapsulation, FlowLabel, Header, Kind, OuterIp, SourcePorts, Udp};

use crate::interned::Interned;
use crate::layout::{
    TUNNEL_BARE, TUNNEL_BYTES, TUNNEL_CHECKSUM, TUNNEL_GTPU, TUNNEL_IPV6, TUNNEL_LABEL_COPY,
    TUNNEL_LABEL_HASH, TUNNEL_LABEL_ZERO, TUNNEL_NUMBERED, TUNNEL_ROUTE, TUNNEL_STAMPED,
    TUNNEL_UDP, TUNNEL_WHOLE, TunnelHeader,
};
use crate::shared::Shared;

/// The headers that flows push.
pub(crate) type TunnelHeaders = Interned<TunnelHeader>;

/// Offset of the outer IP header.
const L3: usize = 14;
/// Bytes of an IPv4 header, and of an IPv6 header.
const IPV4: usize = 20;
const IPV6: usize = 40;

/// Returns the sum of words in memory order.
fn sum(parts: &[&[u8]]) -> u32 {
    let mut sum = Sum::default();
    parts.iter().for_each(|part| sum.add(part)); // each begins at an even offset
    u16::from_ne_bytes(sum.folded().to_be_bytes()).into()
}

/// Returns the choices that the bytes of a header do not show, and the flags of what follows IP; `None`
/// for headers that programs do not push.
fn choices(encapsulation: &Encapsulation) -> Option<(Choice, u16)> {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let bare = flag(!encapsulation.carries_ethernet(), TUNNEL_BARE);
    let over_udp = |udp: &Udp, has_checksum| {
        let choice = Choice { has_checksum, sources: udp.sources, ..Choice::default() };
        Some((choice, bare | TUNNEL_UDP | flag(has_checksum, TUNNEL_CHECKSUM)))
    };
    match encapsulation {
        Encapsulation::Vxlan { udp, .. }
        | Encapsulation::Geneve { udp, .. }
        | Encapsulation::Bareudp { udp } => over_udp(udp, udp.has_checksum),
        Encapsulation::Gtpu { udp, .. } => {
            over_udp(udp, true).map(|(choice, flags)| (choice, flags | TUNNEL_GTPU))
        }
        Encapsulation::Gre { has_checksum, .. } => {
            Some((Choice::default(), bare | flag(*has_checksum, TUNNEL_CHECKSUM)))
        }
        Encapsulation::Erspan { .. } => Some((Choice::default(), 0)),
        Encapsulation::Srv6 { flow_label, .. } => {
            let choice = Choice { flow_label: *flow_label, ..Choice::default() };
            Some((choice, bare | TUNNEL_ROUTE | label_rule(*flow_label)))
        }
    }
}

/// Returns the flag of a rule for flow labels.
fn label_rule(rule: FlowLabel) -> u16 {
    match rule {
        FlowLabel::Copy => TUNNEL_LABEL_COPY,
        FlowLabel::Zero => TUNNEL_LABEL_ZERO,
        FlowLabel::Compute => TUNNEL_LABEL_HASH,
    }
}

impl TunnelHeader {
    /// Returns the header in the form that programs push. `None`: they cannot push it.
    pub fn new(header: &Header) -> Option<TunnelHeader> {
        let parts = header.parts();
        let (choice, mut flags) = choices(&parts.encapsulation)?;
        let number_at = header.sequence_at();
        if number_at.is_some() {
            flags |= TUNNEL_NUMBERED;
        }
        if header.has_timestamp() {
            flags |= TUNNEL_STAMPED;
        }
        let sent = header.bytes();
        let mut bytes = [0; TUNNEL_BYTES];
        bytes.get_mut(..sent.len())?.copy_from_slice(sent);
        let (l4, addresses) = match parts.ip {
            OuterIp::V4 { .. } => (L3 + IPV4, sent.get(L3 + 12..L3 + 20)?),
            OuterIp::V6 { .. } => (L3 + IPV6, sent.get(L3 + 8..L3 + 40)?),
        };
        let mut ip_sum = 0;
        match parts.ip {
            OuterIp::V4 { .. } => {
                let (ahead, after) = (sent.get(L3..L3 + 10)?, sent.get(L3 + 12..L3 + 20)?);
                ip_sum = sum(&[ahead, after]);
                if !header.has_identification() {
                    flags |= TUNNEL_WHOLE;
                }
            }
            OuterIp::V6 { .. } => flags |= TUNNEL_IPV6,
        }
        let rest = sent.get(l4..)?;
        let protocol = [0, parts.encapsulation.protocol()];
        let l4_sum = match flags & TUNNEL_UDP != 0 {
            true => sum(&[addresses, &protocol, rest]),
            false => sum(&[rest]),
        };
        let is_udp = flags & TUNNEL_UDP != 0;
        let SourcePorts { first, last } = choice.sources;
        Some(TunnelHeader {
            bytes,
            ip_sum,
            l4_sum,
            length: sent.len() as u16, // at most TUNNEL_BYTES
            l4: l4 as u16,             // 34 or 54
            flags,
            kind: u16::try_from(header.kind().number()).ok()?,
            first_port: if is_udp { first } else { 0 },
            last_port: if is_udp { last } else { 0 },
            path_mtu: header.path_mtu().unwrap_or(0),
            number_at: number_at.map_or(0, |at| at as u16), // at most 16
            more_pad: [0; 10],
        })
    }

    /// Returns the header. `None`: [`TunnelHeader::new`] did not make it. Total.
    pub fn header(&self) -> Option<Header> {
        let kind = Kind::from_number(self.kind.into())?;
        let choice = Choice {
            has_checksum: self.flags & TUNNEL_CHECKSUM != 0,
            sources: SourcePorts { first: self.first_port, last: self.last_port },
            flow_label: [FlowLabel::Zero, FlowLabel::Compute]
                .into_iter()
                .find(|rule| self.flags & label_rule(*rule) != 0)
                .unwrap_or_default(),
        };
        let bytes = self.bytes.get(..usize::from(self.length))?;
        let path_mtu = Some(self.path_mtu).filter(|mtu| *mtu != 0);
        let header = Header::from_bytes(kind, bytes, choice)?.with_path_mtu(path_mtu);
        (TunnelHeader::new(&header)? == *self).then_some(header)
    }
}

/// Returns the header with this number, as an earlier daemon may have left it.
pub(crate) fn read(shared: &Shared<TunnelHeader>, number: u32) -> Option<TunnelHeader> {
    let at = usize::try_from(number).ok().filter(|at| *at < shared.len())?;
    Some(shared.read(at))
}

#[cfg(test)]
mod tests;
