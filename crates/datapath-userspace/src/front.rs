// SPDX-License-Identifier: Apache-2.0
//! Headers in front of whole packets: Network Service Headers (RFC 8300) and labels (RFC 3032).

use crate::edit;
use crate::engine::{Engine, Work};
use crate::shared::Shared;
use crate::tunnel::segments;
use datapath::{DropReason, PushedNsh};
use packet::{NshHeader, Offload, ethertype};
use tunnel::Payload;

impl Engine {
    /// Puts a header on each packet.
    pub(crate) fn push_nsh(&mut self, shared: &Shared, batch: &mut Vec<Work>, nsh: &PushedNsh) {
        self.push_front(shared, batch, ethertype::NSH, |payload| {
            let next = match payload {
                Payload::Ethernet => NshHeader::next_of(None),
                Payload::Layer3(ethertype) => NshHeader::next_of(Some(ethertype)),
            };
            nsh.bytes(next?)
        });
    }

    /// Puts a label stack entry in front of each packet.
    pub(crate) fn add_mpls(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        lse: u32,
        ethertype: u16,
    ) {
        let entry = ethertype::is_mpls(ethertype).then(|| lse.to_be_bytes().to_vec());
        self.push_front(shared, batch, ethertype, |_| entry.clone());
    }

    /// Puts a header of an Ethernet type in front of each packet; `header` returns its bytes for the
    /// type of the packet, or `None` when it has none for that type. A packet with work for a device,
    /// which finds headers from the Ethernet header on, is finished before, and becomes several where it
    /// is to be segmented.
    fn push_front(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        ethertype: u16,
        header: impl Fn(Payload) -> Option<Vec<u8>>,
    ) {
        for work in std::mem::take(batch) {
            let works = work.payload().and_then(|payload| {
                let header = header(payload)?;
                let mut works = finished(work, payload)?;
                for work in &mut works {
                    edit::push_front(&mut work.packet, &header);
                    work.set_payload(Payload::Layer3(ethertype));
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
            work.set_payload(payload);
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
