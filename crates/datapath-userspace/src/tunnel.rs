// SPDX-License-Identifier: Apache-2.0
//! The actions `tnl_push` and `tnl_pop` on packets in flight.

use crate::edit;
use crate::engine::{Engine, Work};
use crate::ports::Tunnel;
use crate::shared::Shared;
use crate::too_long::longest;
use datapath::{DropReason, PortNo, RECIRCULATION_LIMIT, hash};
use flow::Key;
use netdev::finish;
use packet::Packet;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tunnel::{Checks, Decoded, Header, Payload, PerPacket, PushError};

impl Engine {
    /// Puts a header in front of each packet of the batch. Packets that cannot have it are dropped.
    pub(crate) fn tunnel_push(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        header: &Header,
        tunnel_port: PortNo,
        out_port: PortNo,
    ) {
        let ports = shared.ports();
        let Some(tunnel) = ports.get(&tunnel_port).and_then(|port| port.tunnel()) else {
            return self.give_up(shared, std::mem::take(batch), DropReason::InvalidTunnelPort);
        };
        let now = match header.has_timestamp() && !shared.clock.is_stopped() {
            true => since_boot(), // as programs, which may push the same header
            false => Duration::from_millis(self.now.0.unsigned_abs()),
        };
        for mut work in std::mem::take(batch) {
            cut(&mut work);
            work.refresh();
            let Some(payload) = work.payload() else {
                self.give_up(shared, vec![work], DropReason::TunnelPush);
                continue;
            };
            let hash = hash::five_tuple(&work.key, false, 0);
            let each = PerPacket { payload, hash, sequence: 0, id: 0, now };
            let push = Push { header, tunnel, each };
            let packets = match header.room() {
                Some(room) if longest(&work.packet) > room => {
                    self.too_long(shared, &work, &push, room)
                }
                Some(_) | None => push.all(work.packet).ok_or(DropReason::TunnelPush),
            };
            match packets {
                Ok(packets) => batch.extend(packets.into_iter().map(|p| pushed(p, out_port))),
                Err(reason) => shared.drops.add(reason, 1),
            }
        }
    }

    /// Takes the outer headers off each packet and looks it up again as one of the tunnel port.
    pub(crate) fn tunnel_pop(
        &mut self,
        shared: &Shared,
        works: Vec<Work>,
        tunnel_port: PortNo,
        depth: u32,
    ) {
        let ports = shared.ports();
        let Some(tunnel) = ports.get(&tunnel_port).and_then(|port| port.tunnel()) else {
            return self.give_up(shared, works, DropReason::InvalidTunnelPort);
        };
        if depth >= RECIRCULATION_LIMIT {
            return self.give_up(shared, works, DropReason::RecirculationLimit);
        }
        let mut again = Vec::with_capacity(works.len());
        let mut pop = Pop { tunnel, tunnel_port, checks: Checks::default() };
        for mut work in works {
            cut(&mut work);
            let whole = again.len();
            if pop.all(work, &mut again).is_none() {
                again.truncate(whole);
                shared.drops.add(DropReason::TunnelPop, 1);
            }
        }
        shared.tunnel_checks.add(pop.checks);
        drop(ports); // the removal of a port waits for their last holder
        self.counted.recirculated += again.len() as u64;
        self.process(shared, again, depth + 1);
    }

    fn give_up(&mut self, shared: &Shared, works: Vec<Work>, reason: DropReason) {
        shared.drops.add(reason, works.len() as u64);
        works.into_iter().for_each(|work| self.pool.give(work.packet));
    }
}

/// Returns the time since the host's start.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Carries out a `trunc`.
fn cut(work: &mut Work) {
    if let Some(len) = work.cut.take() {
        edit::truncate(&mut work.packet, len);
        (work.changed, work.moved) = (true, true);
    }
}

/// The work for a packet whose outer headers were pushed.
fn pushed(packet: Packet, out_port: PortNo) -> Work {
    let mut key = Key::ZERO;
    key.in_port.set(out_port.0);
    Work::with_metadata(packet, &key)
}

/// A header that is pushed onto packets of one flow.
pub(crate) struct Push<'a> {
    pub(crate) header: &'a Header,
    tunnel: &'a Tunnel,
    pub(crate) each: PerPacket,
}

impl Push<'_> {
    /// Pushes the header onto the packet, or onto each of its segments where they cannot be made
    /// later.
    fn all(&self, mut packet: Packet) -> Option<Vec<Packet>> {
        if packet.offload.gso.is_none() {
            self.one(&mut packet).ok()?;
            return Some(vec![packet]);
        }
        if self.header.suits_segments() && self.one(&mut packet).is_ok() {
            if finish::can_segment_in_tunnel(&packet) {
                return Some(vec![packet]);
            }
            packet.remove_at(0, self.header.bytes().len());
        }
        let mut segments = segments(&packet, self.each.payload)?;
        segments.iter_mut().try_for_each(|segment| self.one(segment)).ok()?;
        Some(segments)
    }

    /// Pushes the header onto a packet.
    pub(crate) fn one(&self, packet: &mut Packet) -> Result<(), PushError> {
        let sequence = if self.header.has_sequence() { self.tunnel.next_sequence() } else { 0 };
        let id = if self.header.has_identification() { self.tunnel.next_id() } else { 0 };
        self.header.push(packet, &PerPacket { sequence, id, ..self.each })
    }
}

/// The segments of a packet, finished.
pub(crate) fn segments(packet: &Packet, payload: Payload) -> Option<Vec<Packet>> {
    let Payload::Layer3(ethertype) = payload else {
        return finish::finish(packet).ok();
    };
    // Segmentation starts at an Ethernet header.
    let mut whole = packet.clone();
    edit::push_eth(&mut whole, [0; 6], [0; 6], ethertype);
    let mut segments = finish::finish(&whole).ok()?;
    for segment in &mut segments {
        edit::pop_eth(segment)?;
    }
    Some(segments)
}

/// A tunnel port that packets arrive at.
struct Pop<'a> {
    tunnel: &'a Tunnel,
    tunnel_port: PortNo,
    checks: Checks,
}

impl Pop<'_> {
    /// Adds the work for the packet in the tunnel, or for each of several that a device joined.
    fn all(&mut self, mut work: Work, to: &mut Vec<Work>) -> Option<()> {
        let (packet, parsed) = work.parsed();
        let l3 = usize::from(parsed.layers.l3?);
        let decoded = self.decode(packet, l3)?;
        if !decoded.is_segmented_outside(&packet.offload) {
            to.push(self.popped(work.packet, &decoded));
            return Some(());
        }
        for segment in finish::finish(packet).ok()? {
            let decoded = self.decode(&segment, l3)?;
            to.push(self.popped(segment, &decoded));
        }
        Some(())
    }

    fn decode(&mut self, packet: &Packet, l3: usize) -> Option<Decoded> {
        let Tunnel { config, .. } = self.tunnel;
        tunnel::decode(packet.data(), l3, &packet.offload, config, &mut self.checks).ok()
    }

    fn popped(&self, mut packet: Packet, decoded: &Decoded) -> Work {
        decoded.strip(&mut packet);
        let mut key = Key::ZERO;
        key.in_port.set(self.tunnel_port.0);
        key.packet_type.set(decoded.payload.packet_type());
        decoded.metadata.write_to(&mut key);
        Work::with_metadata(packet, &key)
    }
}
