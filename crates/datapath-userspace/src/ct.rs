// SPDX-License-Identifier: Apache-2.0
//! The actions `ct` and `ct_clear` on packets in flight.

use crate::engine::{Engine, Work};
use crate::shared::Shared;
use crate::tracking::Tracking;
use clock::Millis;
use conntrack::{
    Cached, ChecksumState, Checksums, Commit, Done, Edit, Family, Held, IpPacket, Metadata, Pinned,
    Ports, Reassembled, Request, Submitted, ct_state,
};
use datapath::{Action, DropReason};
use flow::extract::FRAG_ANY;
use packet::{FromBytes, Ipv4Header, Ipv6Header, Packet, ethertype, ip_proto};
use std::sync::Arc;

/// The part of a packet's metadata that the fields `ct_*` of its key do not hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CtRest {
    /// The connection that the last `ct` found. A change of addresses or ports clears it.
    pub(crate) cached: Option<Cached>,
    /// The identifier in the connection's first packet, an ICMP request. `None`: the packet's own.
    icmp_id: Option<u16>,
}

/// A fragment that waits for the other fragments of its packet.
pub(crate) struct Waiting {
    work: Work,
    /// The actions after the `ct` action.
    actions: Arc<[Action]>,
    depth: u32,
    /// The zone of the `ct` action.
    zone: u16,
}

/// Packets that left reassembly, and the actions with which they go on.
pub(crate) struct Resumed {
    pub(crate) works: Vec<Work>,
    pub(crate) actions: Arc<[Action]>,
    pub(crate) depth: u32,
}

impl Work {
    /// Forgets the packet's connection (`ct_clear`).
    pub(crate) fn clear_ct(&mut self) {
        if self.key.ct_state != 0 {
            Metadata::default().write_to(&mut self.key);
        }
        self.ct = CtRest::default();
    }

    fn metadata(&mut self) -> Metadata {
        if self.key.ct_state == 0 {
            return Metadata::default();
        }
        let id = self.ct.icmp_id.unwrap_or_else(|| self.icmp_id());
        Metadata { cached: self.ct.cached, ..Metadata::of_key(&self.key, id) }
    }

    fn set_metadata(&mut self, meta: &Metadata) {
        meta.write_to(&mut self.key);
        let icmp_id = meta.original.and_then(|tuple| match tuple.ports {
            Ports::Icmp(icmp) => Some(icmp.id),
            Ports::Pair { .. } => None,
        });
        self.ct = CtRest { cached: meta.cached, icmp_id };
    }

    /// Returns the identifier in the packet's ICMP header.
    fn icmp_id(&mut self) -> u16 {
        let (packet, parsed) = self.parsed();
        let at = parsed.layers.l4.map_or(usize::MAX, usize::from);
        let field = at.checked_add(4).and_then(|at| packet.data().get(at..)?.first_chunk::<2>());
        field.map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    /// Returns the family and the offset of the IP header.
    fn ip(&mut self) -> Option<(Family, usize)> {
        let (_, parsed) = self.parsed();
        let family = match parsed.key.dl_type.get() {
            ethertype::IPV4 => Family::V4,
            ethertype::IPV6 => Family::V6,
            _ => return None,
        };
        Some((family, usize::from(parsed.layers.l3?)))
    }

    /// The packet cannot be tracked.
    fn set_untrackable(&mut self, tracking: &Tracking, zone: u16) {
        let mut meta = Metadata::default();
        tracking.tracker.process_untrackable(&mut meta, zone);
        self.set_metadata(&meta);
    }
}

/// One `ct` action on one batch.
struct Ct<'a> {
    tracking: &'a Tracking,
    request: &'a Request,
    pinned: &'a Pinned<'a>,
    now: Millis,
    /// The number of connections that may have been made, and of fragments that wait.
    made: usize,
}

impl Engine {
    /// Carries out `ct` on a batch. The packets that remain in it go on with `tail`, the actions
    /// after the `ct` action. Returns the fragments that go on.
    pub(crate) fn ct(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        request: &Request,
        tail: &[Action],
        depth: u32,
    ) -> Vec<Resumed> {
        let tracking = shared.tracking();
        // The thread holds the epoch while it is in this function only: an upcall may take long.
        let mut worker = self.worker.take().unwrap_or_else(|| tracking.tracker.table().worker());
        let pinned = worker.pin();
        let mut ct = Ct { tracking, request, pinned: &pinned, now: self.now, made: 0 };
        let mut resumed = Vec::new();
        let mut actions: Option<Arc<[Action]>> = None;
        let mut kept = Vec::with_capacity(batch.len());
        for mut work in batch.drain(..) {
            let Some((family, l3)) = work.ip() else {
                work.set_untrackable(tracking, request.zone);
                kept.push(work);
                continue;
            };
            if work.key.nw_frag & FRAG_ANY == 0 {
                match ct.track(work, family, l3) {
                    Ok(work) => kept.push(work),
                    Err((reason, packet)) => {
                        shared.drops.add(reason, 1);
                        self.pool.give(packet);
                    }
                }
                continue;
            }
            let actions = actions.get_or_insert_with(|| tail.into());
            let zone = request.zone;
            let waiting = Waiting { work, actions: actions.clone(), depth, zone };
            match ct.submit(waiting, family, l3) {
                Ok(Some(work)) => kept.push(work),
                Ok(None) => {}
                Err(Completed::Fragments(held)) => resume(&mut resumed, held),
                Err(Completed::Dropped(reason, held)) => {
                    shared.drops.add(reason, held.len() as u64);
                    self.pool_waiting(held);
                }
            }
        }
        *batch = kept;
        if !tracking.fragments.is_empty() {
            let held = tracking.fragments.expire(tracking.time(self.now));
            let expired = held.into_iter().map(|mut held| {
                held.token.work.set_untrackable(tracking, held.token.zone);
                held.token
            });
            resume(&mut resumed, expired.collect());
        }
        let made = ct.made;
        drop(pinned);
        self.worker = Some(worker);
        if made > 0 {
            tracking.note_made(made);
        }
        resumed
    }

    fn pool_waiting(&mut self, held: Vec<Waiting>) {
        held.into_iter().for_each(|waiting| self.pool.give(waiting.work.packet));
    }
}

/// The end of the wait of a packet's fragments.
enum Completed {
    /// They go on.
    Fragments(Vec<Waiting>),
    /// They do not.
    Dropped(DropReason, Vec<Waiting>),
}

/// Appends fragments to those that go on, in groups with the same actions.
fn resume(resumed: &mut Vec<Resumed>, fragments: Vec<Waiting>) {
    for Waiting { work, actions, depth, .. } in fragments {
        match resumed.last_mut() {
            Some(last) if Arc::ptr_eq(&last.actions, &actions) && last.depth == depth => {
                last.works.push(work);
            }
            _ => resumed.push(Resumed { works: vec![work], actions, depth }),
        }
    }
}

impl Ct<'_> {
    /// Tracks a packet that is no fragment.
    fn track(
        &mut self,
        mut work: Work,
        family: Family,
        l3: usize,
    ) -> Result<Work, (DropReason, Packet)> {
        let mut meta = work.metadata();
        let offload = work.packet.offload;
        let l4 = work.layers.l4;
        let is_unfinished = offload.csum.is_some();
        let is_own = offload.csum.is_some_and(|(start, _)| l4 == Some(start));
        let verify = Checksums {
            ip: true,
            transport: !offload.csum_valid && !is_unfinished && offload.gso.is_none(),
        };
        let checksum = if is_own { ChecksumState::Unfinished } else { ChecksumState::Finished };
        let bytes = work.packet.data_mut().get_mut(l3..).unwrap_or_default();
        let done = self.process(IpPacket { bytes, family, verify, checksum }, &mut meta);
        work.set_metadata(&meta);
        work.changed |= done.changed;
        if done.finished_checksum && is_own {
            work.packet.offload.csum = None;
        }
        if let Some(edit) = &done.edit
            && apply(&mut work, edit, family, l3).is_none()
        {
            return Err((DropReason::Malformed, work.packet));
        }
        Ok(work)
    }

    fn process(&mut self, mut packet: IpPacket<'_>, meta: &mut Metadata) -> Done {
        let now = self.tracking.ticks(self.now);
        let done = self.tracking.tracker.process(self.pinned, &mut packet, meta, self.request, now);
        if self.request.commit != Commit::No && meta.state & ct_state::NEW != 0 {
            self.made += 1;
        }
        if let Some(failure) = done.failure {
            self.tracking.log_failure(failure, self.now);
        }
        done
    }

    /// Hands a fragment over to reassembly. Returns it when it goes on at once.
    fn submit(
        &mut self,
        waiting: Waiting,
        family: Family,
        l3: usize,
    ) -> Result<Option<Work>, Completed> {
        let bytes = waiting.work.packet.data().get(l3..).unwrap_or_default().to_vec();
        let context = (self.request.zone, waiting.work.key.recirc_id.get());
        let verify = Checksums { ip: true, transport: false };
        let now = self.tracking.time(self.now);
        match self.tracking.fragments.submit(family, bytes, context, verify, now, waiting) {
            Submitted::Held => {
                self.made += 1;
                Ok(None)
            }
            // Reassembly is off, or the fragment is the whole packet.
            Submitted::Whole(_, Waiting { work, .. }) => match self.track(work, family, l3) {
                Ok(work) => Ok(Some(work)),
                Err((reason, _)) => Err(Completed::Dropped(reason, Vec::new())),
            },
            Submitted::Bad(_, _, Waiting { mut work, .. })
            | Submitted::Full(_, Waiting { mut work, .. }) => {
                work.set_untrackable(self.tracking, self.request.zone);
                Ok(Some(work))
            }
            Submitted::TooBig(held) => {
                self.tracking.log_too_long(self.now);
                let held = held.into_iter().map(|held| held.token).collect();
                Err(Completed::Dropped(DropReason::FragmentsTooLong, held))
            }
            Submitted::Complete(whole) => Err(self.track_whole(whole, family)),
        }
    }

    /// Tracks a reassembled packet. Its fragments go on with the result.
    fn track_whole(&mut self, mut whole: Reassembled<Waiting>, family: Family) -> Completed {
        let key = whole.first().map(|first| first.work.key).unwrap_or(flow::Key::ZERO);
        // A fragmented ICMP message has its identifier in the first fragment, which is in `bytes`.
        let mut meta = Metadata::of_key(&key, 0);
        let packet = IpPacket {
            bytes: &mut whole.bytes,
            family,
            verify: Checksums::ALL,
            checksum: ChecksumState::Finished,
        };
        let done = self.process(packet, &mut meta);
        meta.cached = None; // it stands for the whole packet
        let mut fragments = Vec::new();
        for held in whole.into_fragments() {
            let Held { bytes, token: mut waiting, .. } = held;
            let work = &mut waiting.work;
            if done.changed
                && let Some((_, l3)) = work.ip()
                && let Some(data) = work.packet.data_mut().get_mut(l3..l3 + bytes.len())
            {
                data.copy_from_slice(&bytes);
                work.changed = true;
            }
            work.set_metadata(&meta);
            fragments.push(waiting);
        }
        match done.edit {
            // The data of a helper's connection would get another length, which fragments cannot
            // have.
            Some(_) => Completed::Dropped(DropReason::UnsupportedAction, fragments),
            None => Completed::Fragments(fragments),
        }
    }
}

/// Replaces data of a TCP segment. `None`: the result is no packet.
fn apply(work: &mut Work, edit: &Edit, family: Family, l3: usize) -> Option<()> {
    let l4 = usize::from(work.layers.l4?);
    let end = work.packet.len().checked_sub(work.layers.l2_pad.into())?;
    let new = edit.apply(work.packet.data().get(l3..end)?, family, l4.checked_sub(l3)?)?;
    work.packet.resize(l3);
    work.packet.extend(&new);
    work.packet.offload.csum_valid = false;
    work.changed = true;
    work.moved = true;
    if let Some((start, at)) = work.packet.offload.csum {
        // The field has the sum of the pseudo header again.
        let data = work.packet.data();
        let ip = data.get(l3..)?;
        let len = u32::try_from(data.len().checked_sub(start.into())?).ok()?;
        let sum = match family {
            Family::V4 => Ipv4Header::ref_from_prefix(ip).ok()?.0.pseudo_sum(len),
            Family::V6 => Ipv6Header::ref_from_prefix(ip).ok()?.0.pseudo_sum(ip_proto::TCP, len),
        };
        let at = usize::from(start) + usize::from(at);
        let field = work.packet.data_mut().get_mut(at..at + 2)?;
        field.copy_from_slice(&sum.folded().to_be_bytes());
    }
    Some(())
}
