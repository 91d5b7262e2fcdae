// SPDX-License-Identifier: Apache-2.0
//! Network Service Headers of packets (RFC 8300).

use crate::edit;
use crate::engine::{Engine, Work};
use crate::shared::Shared;
use crate::tunnel::segments;
use datapath::{DropReason, PushedNsh};
use packet::{NshHeader, Offload, ethertype};
use tunnel::Payload;

impl Engine {
    /// Puts a header on each packet. A packet with work for a device, which finds headers from the
    /// Ethernet header on, is finished before, and becomes several where it is to be segmented.
    pub(crate) fn push_nsh(&mut self, shared: &Shared, batch: &mut Vec<Work>, nsh: &PushedNsh) {
        for work in std::mem::take(batch) {
            let header = work.payload().and_then(|payload| {
                let next = match payload {
                    Payload::Ethernet => NshHeader::next_of(None),
                    Payload::Layer3(ethertype) => NshHeader::next_of(Some(ethertype)),
                };
                Some((payload, nsh.bytes(next?)?))
            });
            let works = header.and_then(|(payload, header)| {
                let mut works = finished(work, payload)?;
                for work in &mut works {
                    edit::push_nsh(&mut work.packet, &header);
                    set_payload(work, Payload::Layer3(ethertype::NSH));
                }
                Some(works)
            });
            match works {
                Some(works) => batch.extend(works),
                None => shared.drops.add(DropReason::Malformed, 1),
            }
        }
    }

    /// Takes the header off each packet.
    pub(crate) fn pop_nsh(&mut self, shared: &Shared, batch: &mut Vec<Work>) {
        self.retain(batch, |work| {
            let has_header = work.layer3() == Some(ethertype::NSH);
            let next = if has_header { edit::pop_nsh(&mut work.packet) } else { None };
            let payload = match next.and_then(NshHeader::payload_ethertype) {
                Some(None) => Payload::Ethernet,
                Some(Some(ethertype)) => Payload::Layer3(ethertype),
                None => {
                    shared.drops.add(DropReason::Malformed, 1);
                    return false;
                }
            };
            set_payload(work, payload);
            true
        });
    }
}

/// Returns the packet without work for a device, or its segments.
fn finished(work: Work, payload: Payload) -> Option<Vec<Work>> {
    if work.packet.offload == Offload::default() {
        return Some(vec![work]);
    }
    let packets = segments(&work.packet, payload)?;
    let rest = |packet| Work { cut: work.cut, ..Work::with_metadata(packet, &work.key) };
    Some(packets.into_iter().map(rest).collect())
}

/// Notes that the packet begins with another header than before.
fn set_payload(work: &mut Work, payload: Payload) {
    work.key.packet_type.set(payload.packet_type());
    (work.changed, work.moved) = (true, true);
}
