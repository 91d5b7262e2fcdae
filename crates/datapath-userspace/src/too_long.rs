// SPDX-License-Identifier: Apache-2.0
//! Packets that are too long for the path of a tunnel.
//!
//! An outer packet that may be fragmented is fragmented. Otherwise an inner IPv4 packet that may be
//! fragmented is. All others are dropped. A report to the sender has the length that fits, and leaves
//! by the port that the packet came in by.

use crate::engine::{Engine, Work};
use crate::shared::Shared;
use crate::tunnel::{Push, segments};
use clock::Millis;
use datapath::DropReason;
use packet::{FromBytes, Ipv4Header, Packet, ethertype, fragment};

/// Bytes of a frame that are kept as they arrived: all headers that actions can change.
const KEPT: usize = 128;
/// Frames from this length on are kept, in bytes: the least path MTU of IPv4 (552), less the longest
/// headers of a tunnel.
const LEAST_KEPT: usize = 200;
/// Offset of the IP header of an outer frame, in bytes.
const OUTER_IP: usize = size_of::<packet::EthernetHeader>();

/// Reports to senders in a second, for the flows of one slot.
const REPORTS_PER_SECOND: u8 = 10;
/// Slots of the limit, by which one flow leaves reports to others.
const SLOTS: usize = 256;

/// The first bytes of a frame as it arrived, before actions.
pub(crate) type Arrived = Option<Box<[u8; KEPT]>>;

/// Keeps the headers of a frame that may be too long for a tunnel.
pub(crate) fn arrived(packet: &Packet) -> Arrived {
    let data = packet.data();
    data.first_chunk().filter(|_| data.len() >= LEAST_KEPT).map(|kept| Box::new(*kept))
}

/// The limit on reports to senders.
#[derive(Debug)]
pub(crate) struct ReportLimit {
    /// Second and number of reports.
    slots: Box<[(i64, u8)]>,
}

impl Default for ReportLimit {
    fn default() -> ReportLimit {
        ReportLimit { slots: vec![(-1, 0); SLOTS].into() }
    }
}

impl ReportLimit {
    /// Returns true when one more report may be made for the flows with this hash.
    fn admits(&mut self, hash: u32, now: Millis) -> bool {
        let second = now.0.div_euclid(1000);
        let Some((last, count)) = self.slots.get_mut(hash as usize % SLOTS) else { return false };
        if *last != second {
            (*last, *count) = (second, 0);
        }
        *count = count.saturating_add(1);
        *count <= REPORTS_PER_SECOND
    }
}

/// Returns the bytes of a packet, or of the longest of its segments.
pub(crate) fn longest(packet: &Packet) -> usize {
    match packet.offload.gso {
        Some((_, segment, header)) => {
            (usize::from(segment) + usize::from(header)).min(packet.len())
        }
        None => packet.len(),
    }
}

impl Engine {
    /// Returns the packets to send in place of one that has more than `room` bytes, with the header.
    ///
    /// # Errors
    ///
    /// The packet is dropped. Its sender may have got a report.
    pub(crate) fn too_long(
        &mut self,
        shared: &Shared,
        work: &Work,
        push: &Push<'_>,
        room: usize,
    ) -> Result<Vec<Packet>, DropReason> {
        if push.header.has_identification() {
            return push.fragments(&work.packet).ok_or(DropReason::TunnelPush);
        }
        let l3 = work.layers.l3.map(usize::from).ok_or(DropReason::OutputTooLong)?;
        let mtu = room.saturating_sub(l3);
        if may_be_fragmented(work, l3) {
            return inner_fragments(work, push, l3, mtu).ok_or(DropReason::OutputTooLong);
        }
        self.report(shared, work, l3, mtu, push.each.hash);
        Err(DropReason::OutputTooLong)
    }

    /// Reports to the sender of a packet, whose IP header is at `l3` now, that IP packets may have
    /// `mtu` bytes.
    fn report(&mut self, shared: &Shared, work: &Work, l3: usize, mtu: usize, hash: u32) {
        let port = work.in_port();
        let has_device = shared.ports().get(&port).is_some_and(|p| p.device().is_some());
        if !has_device || !self.report_limit.admits(hash ^ port.0, self.now) {
            return;
        }
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let report = as_arrived(work, l3).and_then(|frame| tunnel::too_big(&frame, mtu));
        if let Some(report) = report {
            self.output(port, Packet::from_slice(&report), None);
        }
    }
}

/// Returns the frame with the headers that its sender gave it; `None` when they are not known.
fn as_arrived(work: &Work, l3: usize) -> Option<Vec<u8>> {
    let now = work.packet.data();
    let Some(kept) = work.arrived.as_deref().map(<[u8; KEPT]>::as_slice) else {
        return work.layer3().is_none().then(|| now.to_vec());
    };
    // Actions change no lengths from the IP header on.
    let rest = now.get(l3 + kept.len() - ip_at(kept)?..).unwrap_or_default();
    Some([kept, rest].concat())
}

/// Returns the offset of the IP header of a frame.
fn ip_at(frame: &[u8]) -> Option<usize> {
    let (_, layers) = flow::extract::extract(frame, 0);
    layers.l3.map(usize::from).filter(|l3| *l3 <= frame.len())
}

fn may_be_fragmented(work: &Work, l3: usize) -> bool {
    let ip = work.packet.data().get(l3..).unwrap_or_default();
    work.key.dl_type.get() == ethertype::IPV4
        && Ipv4Header::ref_from_prefix(ip)
            .is_ok_and(|(ip, _)| ip.fragment.get() & Ipv4Header::DONT_FRAGMENT == 0)
}

/// Returns the fragments of a packet, each with the header.
fn inner_fragments(work: &Work, push: &Push<'_>, l3: usize, mtu: usize) -> Option<Vec<Packet>> {
    let mut all = Vec::new();
    for segment in segments(&work.packet, push.each.payload)? {
        for mut fragment in fragment::ipv4(segment.data(), l3, mtu)? {
            push.one(&mut fragment).ok()?;
            all.push(fragment);
        }
    }
    Some(all)
}

impl Push<'_> {
    /// Returns the packet, or its segments, with the header, in fragments of the outer packet.
    fn fragments(&self, packet: &Packet) -> Option<Vec<Packet>> {
        let mtu = self.header.path_mtu().map_or(usize::from(u16::MAX), usize::from);
        let mut all = Vec::new();
        for mut segment in segments(packet, self.each.payload)? {
            self.one(&mut segment).ok()?;
            all.extend(fragment::ipv4(segment.data(), OUTER_IP, mtu)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests;
