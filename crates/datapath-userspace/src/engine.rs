// SPDX-License-Identifier: Apache-2.0
//! Engines, which process packets: one for each packet thread, and more for packets that other
//! threads bring (`execute`, `inject`, dummy ports).

use crate::cache::Cache;
use crate::ct::CtRest;
use crate::edit::{self, Parsed};
use crate::megaflow::Flow;
use crate::miss_queue::MissedPacket;
use crate::ports::PortMap;
use crate::shared::Shared;
use crate::stats::{PmdStats, ThreadStats};
use crate::table::Table;
use crate::too_long::{self, Arrived, ReportLimit};
use crate::upcall_limiter::{ClosedPort, UpcallMeter};
use clock::Millis;
use datapath::offload::UpcallAccount;
use datapath::{Actions, DropReason, PortNo, Upcall, UpcallKind, Upcaller};
use flow::Key;
use flow::extract::{Layers, extract_layer3, extract_limited, vlan_limit};
use netdev::PacketPool;
use packet::Packet;
use std::sync::Arc;
use tunnel::Payload;

/// One packet in flight.
pub(crate) struct Work {
    pub(crate) packet: Packet,
    pub(crate) key: Key,
    pub(crate) layers: Layers,
    /// A field was changed: `key` is out of date.
    pub(crate) changed: bool,
    /// Headers were added or removed: `layers` and the header types in `key` are out of date too.
    pub(crate) moved: bool,
    /// Number of VLAN headers that extraction passes. A tag that an action pushes hides no header
    /// that was found before; a tag that it pops uncovers none.
    pub(crate) tags: usize,
    /// Maximum length in bytes at the next output, set by `trunc`.
    pub(crate) cut: Option<u32>,
    /// With the fields `ct_*` of `key`: the metadata of connection tracking.
    pub(crate) ct: CtRest,
    /// The headers before all actions; `None` where no tunnel can be too narrow for the packet, and
    /// for a packet that came from no device.
    pub(crate) arrived: Arrived,
}

impl Work {
    /// Creates the work for a packet that arrived on `port`.
    pub(crate) fn received(packet: Packet, port: PortNo) -> Work {
        let tags = vlan_limit();
        let (key, layers) = extract_limited(packet.data(), port.0, tags);
        Work {
            packet,
            key,
            layers,
            changed: false,
            moved: false,
            tags,
            cut: None,
            ct: CtRest::default(),
            arrived: None,
        }
    }

    /// Creates the work for a packet with the metadata of `key`.
    pub(crate) fn with_metadata(packet: Packet, key: &Key) -> Work {
        let mut work = Work {
            packet,
            key: *key,
            layers: Layers::default(),
            changed: true,
            moved: true,
            tags: 0,
            cut: None,
            ct: CtRest::default(),
            arrived: None,
        };
        work.refresh();
        work
    }

    /// Keeps the headers as they are, for a report to the sender.
    pub(crate) fn keep_arrived(&mut self) {
        self.arrived = too_long::arrived(&self.packet);
    }

    /// Extracts key and layers again, as of a packet that arrives in the present form.
    pub(crate) fn refresh(&mut self) {
        if !self.changed && !self.moved {
            return;
        }
        self.tags = vlan_limit();
        self.parse();
        self.changed = false;
    }

    fn parse(&mut self) {
        let in_port = self.key.in_port.get();
        let data = self.packet.data();
        let (mut key, layers) = match self.layer3() {
            None => extract_limited(data, in_port, self.tags),
            Some(ethertype) => extract_layer3(data, in_port, ethertype),
        };
        key.set_metadata(&self.key);
        self.key = key;
        self.layers = layers;
        self.moved = false;
    }

    /// Returns the packet and its up-to-date key and layers, for an edit.
    pub(crate) fn parsed(&mut self) -> (&mut Packet, Parsed<'_>) {
        if self.moved {
            self.parse();
        }
        (&mut self.packet, Parsed { key: &self.key, layers: &self.layers })
    }

    pub(crate) fn in_port(&self) -> PortNo {
        PortNo(self.key.in_port.get())
    }

    /// Returns what the packet is, by its type.
    pub(crate) fn payload(&self) -> Option<Payload> {
        Payload::from_packet_type(self.key.packet_type.get())
    }

    /// Records that the packet begins with another header than before.
    pub(crate) fn set_payload(&mut self, payload: Payload) {
        self.key.packet_type.set(payload.packet_type());
        (self.changed, self.moved) = (true, true);
    }

    /// Returns the Ethernet type of a packet without an Ethernet header.
    pub(crate) fn layer3(&self) -> Option<u16> {
        match self.payload() {
            Some(Payload::Layer3(ethertype)) => Some(ethertype),
            Some(Payload::Ethernet) | None => None,
        }
    }

    fn upcall<'a>(&'a self, kind: UpcallKind<'a>, pressed: bool) -> Upcall<'a> {
        Upcall { kind, packet: &self.packet, key: &self.key, in_port: self.in_port(), pressed }
    }
}

/// The megaflow of a packet, and the number of subtables probed for it.
struct FoundFlow {
    flow: Arc<Flow>,
    probed: u64,
}

/// Looks up packets again that missed before, all in one state of the table: either all packets of
/// a megaflow find it or none does.
fn look_up_again(shared: &Shared, some: &[Work]) -> Vec<Option<FoundFlow>> {
    let table = shared.table();
    let found = some.iter().map(|work| table.lookup(&work.key));
    found.map(|(flow, probed)| Some(FoundFlow { flow: Arc::clone(flow?), probed })).collect()
}

/// Packets grouped by the megaflow they found, in the order of each group's first packet, and the
/// packets that found none.
type Groups = (Vec<(Arc<Flow>, Vec<Work>)>, Vec<Work>);

fn group(batch: Vec<Work>, found: Vec<Option<Arc<Flow>>>) -> Groups {
    // Mostly all packets of a batch belong to one megaflow, or all miss: then no packet moves.
    if found.iter().all(Option::is_none) {
        return (Vec::new(), batch);
    }
    if let Some(Some(first)) = found.first()
        && found.iter().all(|f| f.as_ref().is_some_and(|f| Arc::ptr_eq(f, first)))
    {
        return (vec![(first.clone(), batch)], Vec::new());
    }
    let mut groups: Vec<(Arc<Flow>, Vec<Work>)> = Vec::new();
    let mut missed = Vec::new();
    for (work, flow) in batch.into_iter().zip(found) {
        let Some(flow) = flow else {
            missed.push(work);
            continue;
        };
        match groups.iter_mut().rev().find(|(f, _)| Arc::ptr_eq(f, &flow)) {
            Some((_, works)) => works.push(work),
            None => groups.push((flow, vec![work])),
        }
    }
    (groups, missed)
}

/// The state with which one thread processes packets.
pub(crate) struct Engine {
    cache: Cache,
    pub(crate) rng: fastrand::Rng,
    pub(crate) pool: PacketPool,
    stats: Arc<ThreadStats>,
    /// Counts of the present batch.
    pub(crate) counted: PmdStats,
    upcaller: Option<Box<dyn Upcaller>>,
    /// Packets to send, by port, in the order of first use.
    pub(crate) outputs: Vec<(PortNo, Vec<Packet>)>,
    /// The time of the present batch.
    pub(crate) now: Millis,
    upcall_meter: UpcallMeter,
    /// The entrance to the connection table; made by the first `ct` action.
    pub(crate) worker: Option<conntrack::Worker>,
    pub(crate) report_limit: ReportLimit,
    /// A faster tier has applied the upcall limit to the packets of the present batch.
    is_admitted: bool,
}

impl Engine {
    pub(crate) fn new(stats: Arc<ThreadStats>, cache_entries: usize, seed: u64) -> Engine {
        Engine {
            cache: Cache::new(cache_entries),
            rng: fastrand::Rng::with_seed(seed),
            pool: PacketPool::default(),
            stats,
            counted: PmdStats::default(),
            upcaller: None,
            outputs: Vec::new(),
            now: Millis(0),
            upcall_meter: UpcallMeter::default(),
            worker: None,
            report_limit: ReportLimit::default(),
            is_admitted: false,
        }
    }

    /// Processes packets that arrived on `port` to the end, and empties `packets`.
    pub(crate) fn receive(&mut self, shared: &Shared, port: PortNo, packets: &mut Vec<Packet>) {
        self.now = shared.clock.now();
        let mut batch: Vec<Work> = packets.drain(..).map(|p| Work::received(p, port)).collect();
        if shared.has_tunnels() {
            batch.iter_mut().for_each(Work::keep_arrived);
        }
        self.counted.received += batch.len() as u64;
        self.process(shared, batch, 0);
        self.finish(shared);
        self.charge_upcalls(shared);
    }

    /// Starts to measure a batch of a faster tier before it is received, because most of its
    /// packets are misses. [`Engine::charge_upcalls`] ends the measurement.
    pub(crate) fn expect_upcalls(&mut self) {
        self.upcall_meter.begin();
    }

    /// Charges ports the upcalls of the batch that has ended. Returns the ports that are closed.
    pub(crate) fn charge_upcalls(&mut self, shared: &Shared) -> Vec<ClosedPort> {
        shared.charge_upcalls(&self.upcall_meter.end())
    }

    /// Processes packets that a faster tier passed on to the end, and empties `missed`.
    pub(crate) fn receive_misses(&mut self, shared: &Shared, missed: &mut Vec<MissedPacket>) {
        self.now = shared.clock.now();
        self.counted.received += missed.len() as u64;
        self.is_admitted = true;
        let mut run: Vec<Work> = Vec::with_capacity(missed.len());
        let mut depth = 0;
        for missed in missed.drain(..) {
            let key = missed.metadata();
            // Programs of an earlier daemon do not report the number; an id means at least one.
            let own_depth = missed.origin.recirculations.max((missed.origin.recirc_id != 0).into());
            let rest = missed.origin.tracked.and_then(|tracked| tracked.rest);
            if (own_depth != depth || rest.is_some()) && !run.is_empty() {
                self.process(shared, std::mem::take(&mut run), depth);
            }
            depth = own_depth;
            let mut work = Work::with_metadata(missed.packet, &key);
            if shared.has_tunnels() {
                work.keep_arrived();
            }
            match rest {
                Some(actions) => {
                    self.upcall_meter.count(work.in_port(), UpcallAccount::Connections);
                    self.run_all(shared, vec![work], &actions, depth);
                }
                None => run.push(work),
            }
        }
        if !run.is_empty() {
            self.process(shared, run, depth);
        }
        self.finish(shared);
        self.is_admitted = false;
    }

    /// Runs `actions` on a packet to the end.
    pub(crate) fn execute(
        &mut self,
        shared: &Shared,
        packet: Packet,
        key: &Key,
        actions: &[datapath::Action],
    ) {
        self.now = shared.clock.now();
        let batch = vec![Work::with_metadata(packet, key)];
        self.run_all(shared, batch, actions, 0);
        self.finish(shared);
        self.charge_upcalls(shared);
    }

    /// Sends the gathered packets and publishes the counts.
    fn finish(&mut self, shared: &Shared) {
        let mut outputs = std::mem::take(&mut self.outputs);
        if !outputs.is_empty() {
            let ports = shared.ports();
            for (number, packets) in &mut outputs {
                if packets.is_empty() {
                    continue;
                }
                match ports.get(number).map(|port| port.sender()) {
                    Some(Some(sender)) => {
                        self.counted.sent_packets += packets.len() as u64;
                        self.counted.sent_batches += 1;
                        shared.count_sent(sender.send(packets));
                    }
                    // A packet leaves by a tunnel port only in the headers of a tunnel.
                    Some(None) => shared.drops.add(DropReason::UnknownPort, packets.len() as u64),
                    None => shared.drops.add(DropReason::OutputPortGone, packets.len() as u64),
                }
                self.pool.give_all(packets);
            }
            // The vectors of the ports used first are kept for the next batch; others are rare.
            outputs.truncate(16);
        }
        self.outputs = outputs;
        self.stats.add(&mut self.counted);
        shared.sort_table_sometimes(self.now);
    }

    /// Looks packets up and runs the actions of their megaflows.
    pub(crate) fn process(&mut self, shared: &Shared, batch: Vec<Work>, depth: u32) {
        let mut found: Vec<Option<Arc<Flow>>> = Vec::with_capacity(batch.len());
        {
            let table = shared.table();
            for work in &batch {
                let flow = self.lookup(&table, &work.key);
                found.push(flow);
            }
        }
        let (groups, mut missed) = group(batch, found);
        for (flow, works) in groups {
            if let Err(works) = self.run_flow(shared, &flow, works, depth) {
                missed.extend(works); // removed since the lookup
            }
        }
        self.misses(shared, missed, depth);
    }

    /// Returns the megaflow of one packet, from the cache or the table.
    fn lookup(&mut self, table: &Table, key: &Key) -> Option<Arc<Flow>> {
        let signature = self.cache.signature(key);
        if let Some(flow) = self.cache.lookup(signature, key) {
            self.counted.cache_hits += 1;
            return Some(flow);
        }
        let (found, probed) = table.lookup(key);
        self.counted.masks_probed += probed;
        let flow = found?;
        self.counted.megaflow_hits += 1;
        self.counted.subtable_lookups += probed;
        self.cache.insert(signature, flow);
        Some(flow.clone())
    }

    /// Counts `works` on `flow` and runs its actions. Returns them when the megaflow was removed.
    fn run_flow(
        &mut self,
        shared: &Shared,
        flow: &Flow,
        works: Vec<Work>,
        depth: u32,
    ) -> Result<(), Vec<Work>> {
        let bytes = works.iter().map(|w| w.packet.len() as u64).sum();
        let flags = works.iter().fold(0, |f, w| f | w.key.tcp_flags.get());
        match flow.count(&shared.moved, works.len() as u64, bytes, flags, self.now) {
            Some(actions) => {
                self.run_all(shared, works, &actions, depth);
                Ok(())
            }
            None => Err(works),
        }
    }

    /// Processes packets that matched no megaflow, in their order: one packet first, then twice as
    /// many each time, since the first upcall may install the megaflow of all. The packets of a
    /// step that still match none call up together and run the actions that they get.
    fn misses(&mut self, shared: &Shared, missed: Vec<Work>, depth: u32) {
        let mut left = missed.into_iter();
        for doublings in 0u32.. {
            let together = 1usize.checked_shl(doublings).unwrap_or(usize::MAX).min(left.len());
            let some = left.as_slice().get(..together).unwrap_or_default();
            if some.is_empty() {
                return;
            }
            // No upcall was made here since the lookup of the first.
            let found = if doublings == 0 { vec![None] } else { look_up_again(shared, some) };
            let answers = self.call_up_together(shared, some, &found);
            for ((work, found), answer) in left.by_ref().take(together).zip(found).zip(answers) {
                self.miss(shared, work, found, answer, depth);
            }
        }
    }

    fn miss(
        &mut self,
        shared: &Shared,
        mut work: Work,
        found: Option<FoundFlow>,
        mut answer: Option<Actions>,
        depth: u32,
    ) {
        if let Some(FoundFlow { flow, probed }) = found {
            match self.run_flow(shared, &flow, vec![work], depth) {
                Ok(()) => {
                    self.counted.masks_probed += probed;
                    self.counted.megaflow_hits += 1;
                    self.counted.subtable_lookups += probed;
                    return;
                }
                Err(mut back) => match back.pop() {
                    Some(w) => work = w,
                    None => return,
                },
            }
            answer = self.upcall(shared, UpcallKind::Miss, &work);
        }
        match answer {
            Some(actions) => {
                self.counted.misses += 1;
                self.run_all(shared, vec![work], &actions, depth);
            }
            None => {
                self.counted.lost += 1;
                shared.drops.add(DropReason::UpcallLimit, 1);
                self.pool.give(work.packet);
            }
        }
    }

    /// Makes upcalls for the packets that found no megaflow; their keys must be up to date. Returns
    /// the actions of each packet. `None`: it found a megaflow, there is no upcaller, or its port
    /// is closed.
    fn call_up_together(
        &mut self,
        shared: &Shared,
        some: &[Work],
        found: &[Option<FoundFlow>],
    ) -> Vec<Option<Actions>> {
        if self.upcaller(shared).is_none() {
            return vec![None; some.len()];
        }
        let ports = shared.ports();
        let mut may = |(work, found): (&Work, &Option<FoundFlow>)| match found {
            None => self.admit_upcall(&ports, work.in_port()),
            Some(_) => None,
        };
        let pressed: Vec<Option<bool>> = some.iter().zip(found).map(&mut may).collect();
        let kind = UpcallKind::Miss;
        let upcalls: Vec<Upcall<'_>> =
            some.iter().zip(&pressed).filter_map(|(w, p)| Some(w.upcall(kind, (*p)?))).collect();
        let mut answers = Vec::with_capacity(upcalls.len());
        if let Some(upcaller) = self.upcaller(shared) {
            upcaller.upcalls(&upcalls, &mut answers);
        }
        let mut answers = answers.into_iter();
        pressed.iter().map(|pressed| pressed.and_then(|_| answers.next())).collect()
    }

    /// Makes an upcall for `work`, whose key must be up to date. Returns `None` when there is no
    /// upcaller or the port is closed.
    pub(crate) fn upcall(
        &mut self,
        shared: &Shared,
        kind: UpcallKind<'_>,
        work: &Work,
    ) -> Option<Actions> {
        self.upcaller(shared)?;
        let pressed = self.admit_upcall(&shared.ports(), work.in_port())?;
        Some(self.upcaller(shared)?.upcall(&work.upcall(kind, pressed)))
    }

    fn upcaller(&mut self, shared: &Shared) -> Option<&mut Box<dyn Upcaller>> {
        if self.upcaller.is_none() {
            self.upcaller = shared.upcaller();
        }
        self.upcaller.as_mut()
    }

    /// Counts an upcall of a port and returns true when the port is pressed. Returns `None` when
    /// the port is closed.
    fn admit_upcall(&mut self, ports: &PortMap, in_port: PortNo) -> Option<bool> {
        // A packet of no port was created by the switch itself.
        let Some(port) = ports.get(&in_port) else { return Some(false) };
        let bucket = port.upcall_bucket(UpcallAccount::Misses);
        if !self.is_admitted && bucket.is_closed() {
            return None;
        }
        port.count_upcall();
        self.upcall_meter.count(in_port, UpcallAccount::Misses);
        Some(bucket.is_pressed())
    }

    /// Copies a packet in flight.
    pub(crate) fn copy(&mut self, work: &Work) -> Work {
        Work {
            packet: self.copy_packet(&work.packet),
            key: work.key,
            layers: work.layers,
            changed: work.changed,
            moved: work.moved,
            tags: work.tags,
            cut: work.cut,
            ct: work.ct,
            arrived: work.arrived.clone(),
        }
    }

    pub(crate) fn copy_packet(&mut self, packet: &Packet) -> Packet {
        let mut copy = self.pool.take();
        copy.assign(packet.data());
        copy.offload = packet.offload;
        copy
    }

    /// Adds a packet to those that are sent to `port` at the end of the batch.
    pub(crate) fn output(&mut self, port: PortNo, mut packet: Packet, cut: Option<u32>) {
        if let Some(len) = cut {
            edit::truncate(&mut packet, len);
        }
        match self.outputs.iter_mut().find(|(p, _)| *p == port) {
            Some((_, packets)) => packets.push(packet),
            None => self.outputs.push((port, vec![packet])),
        }
    }
}
