// SPDX-License-Identifier: Apache-2.0
//! The flow table: slots, index, masks, programs and the daemon's records of each flow.
//!
//! # Life of a slot
//!
//! 1. *Free*: nothing refers to the slot, and its statistics are zero.
//! 2. *Published*: the slot is filled and alive, and its number is in the index. Only `dead` is
//!    still written.
//! 3. *Removed*: `dead` is set and the number is taken from the index. Running programs may still
//!    count on the slot, or may be about to put its number into the cache.
//! 4. One grace period later a running program can have the number only from the cache, and each
//!    program sees that the slot is dead. The daemon takes the counts out of the exact-match caches,
//!    and the statistics are final.
//! 5. The daemon searches the signature cache and takes the number out. After one more grace period no
//!    program has the number, and the slot is free.
//!
//! A new flow that replaces another with the same match takes over its index entry in one store. So
//! each packet finds one of the two. The packets that the old slot counts until step 4 are added.
//!
//! One mutex guards the bookkeeping. It is held for a microsecond, never over a system call. Another
//! one is held while counts are read, taken out of caches, or cleared: a sweep adds the parts of a
//! count together, and the slot must have the same flow all the while.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use clock::{Clock, Millis};
use datapath::{Action, FlowStats, Megaflow, PortNo, Refusal, Ufid, Userdata};
use flow::Match;
use hashbrown::HashMap;

use crate::attachment::HookSet;
use crate::bonds;
use crate::capabilities::{self, Capabilities};
use crate::encode::{self, Effect, Encoded, Front, Traits};
use crate::grace::Grace;
use crate::hash::{self, Factors};
use crate::index::{self, Position};
use crate::keys::{self, KeyError, Matching};
use crate::layout::{
    CELLS_TOTAL, EPOCHS, FLOW_METADATA, FLOW_PACKET_TYPE, FLOW_POP, NO_PROGRAM, PORT_WORDS,
    Program, TunnelHeader, WORDS, word,
};
use crate::maps::Maps;
use crate::masks::Masks;
use crate::ports;
use crate::programs::Programs;
use crate::sets::{self, PortSets, SetNumber};
use crate::settings::{
    FEATURE_BOND, FEATURE_LAYERS, FEATURE_MPLS, FEATURE_PUSH, FEATURE_TUNNEL, Needs,
};
use crate::slot::Slot;
use crate::tunnel_headers::{self, TunnelHeaders};

mod adopt;
mod count;
mod entries;
mod limits;
mod moved;
mod reading;
mod removal;
mod stats;

pub use count::FlowCount;
use entries::SlotSet;
use moved::Reported;
use stats::Reads;

/// Flags of a slot that come from its match.
const OWN_FLAGS: u8 = FLOW_PACKET_TYPE | FLOW_METADATA;

/// Stage of a slot's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Free,
    Published,
    /// Removed or replaced; programs may still count on the slot.
    Removed,
    /// A grace period after the removal: the statistics are final.
    Settled,
}

/// The daemon's record of a slot.
#[derive(Clone, Copy, Debug)]
struct Record {
    ufid: Ufid,
    /// Statistics as of the last read.
    packets: u64,
    bytes: u64,
    used: Millis,
    position: Position,
    tcp_flags: u16,
    state: RecordState,
    /// There is an entry in `Inner::earlier`.
    has_earlier: bool,
}

/// Counts of the flows that this flow replaced.
#[derive(Clone, Debug, Default)]
struct Earlier {
    sum: FlowCount,
    /// Slots that may still be counted on.
    slots: Vec<u32>,
}

struct Inner {
    by_ufid: HashMap<Ufid, u32, foldhash::fast::RandomState>,
    /// Records by slot number, up to the highest number ever used.
    records: Vec<Record>,
    reported: Reported,
    /// Slots that are not free.
    in_use: SlotSet,
    free: Vec<u32>,
    removed: Vec<u32>,
    earlier: HashMap<u32, Earlier>,
    masks: Masks,
    programs: Programs,
    headers: TunnelHeaders,
    /// Samples that flows take, by slot, in the order of their numbers. Flows of an earlier daemon have
    /// none here.
    samples: HashMap<u32, Vec<Userdata>, foldhash::fast::RandomState>,
    /// Packets that flows took, as of the last read of each flow.
    hits: u64,
    /// Flows that have an edit of labels.
    mpls: usize,
    /// Flows that have a program.
    programmed: usize,
    /// Flows that pop a tunnel's headers.
    pops: usize,
    /// Flows whose action is one output to a bond.
    to_bonds: usize,
    /// Flows that push the headers of a tunnel before anything else.
    pushes: usize,
    /// Capabilities of XDP by ingress port; a port without an entry can run everything.
    limits: HashMap<u32, Capabilities, foldhash::fast::RandomState>,
}

/// The flow table. Any thread may call the methods.
pub struct Flows {
    maps: Arc<Maps>,
    factors: Factors,
    grace: Grace,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Lock order: after `inner`.
    sets: PortSets,
    /// One reclamation at a time.
    reclaiming: Mutex<()>,
    /// The holder reads, takes or clears counts. Room for the counts of all slots. Lock order:
    /// after `reclaiming`, before `inner`.
    counting: Mutex<Vec<FlowCount>>,
    /// The programs have the table of connections that the daemon tracks by.
    tracks: AtomicBool,
    /// Copies of packets can go up.
    samples: AtomicBool,
}

impl Flows {
    /// Returns a table over empty arrays. `devmaps` has the maps of [`sets::NAMES`] in their order;
    /// it is empty where no program uses them.
    pub fn new(
        maps: impl Into<Arc<Maps>>,
        devmaps: Vec<OwnedFd>,
        factors: Factors,
        grace: Grace,
        clock: Clock,
    ) -> Flows {
        let maps = maps.into();
        let most = maps.sizes.flows as usize;
        let inner = Inner {
            // Neither is ever moved; memory is taken when it is touched.
            by_ufid: HashMap::with_capacity_and_hasher(most, Default::default()),
            records: Vec::with_capacity(most),
            reported: Reported::new(most),
            in_use: SlotSet::new([], most),
            free: Vec::new(),
            removed: Vec::new(),
            earlier: HashMap::new(),
            masks: Masks::new(),
            programs: Programs::new(),
            headers: TunnelHeaders::new(),
            samples: HashMap::default(),
            hits: 0,
            mpls: 0,
            programmed: 0,
            pops: 0,
            to_bonds: 0,
            pushes: 0,
            limits: HashMap::default(),
        };
        Flows {
            maps,
            factors,
            grace,
            clock,
            inner: Mutex::new(inner),
            sets: PortSets::new(devmaps),
            reclaiming: Mutex::new(()),
            counting: Mutex::default(),
            tracks: AtomicBool::new(false),
            samples: AtomicBool::new(false),
        }
    }

    /// Returns the shared arrays.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Returns the same for an owner that may outlive the table.
    pub(crate) fn shared_maps(&self) -> Arc<Maps> {
        self.maps.clone()
    }

    /// A panic of a caller's closure cannot leave the tables half changed: none runs under it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn counting(&self) -> MutexGuard<'_, Vec<FlowCount>> {
        self.counting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Blocks until every program that runs now has ended.
    ///
    /// # Errors
    ///
    /// Fails when the kernel does not wait ([`Grace::wait`]).
    pub(crate) fn wait_for_programs(&self) -> io::Result<()> {
        self.grace.wait()
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.lock().by_ufid.len()
    }

    /// Returns true when there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of masks that are in use.
    pub fn masks(&self) -> usize {
        self.lock().masks.len()
    }

    /// Adds a flow at those of its possible hooks that are `allowed`, and returns these hooks.
    /// Calls `prepare` with the needs of the flow before any program can find the flow.
    ///
    /// # Errors
    ///
    /// Returns the reason why no allowed hook can run the flow, or the table that is full, or
    /// `Exists` for a flow with the same identity or match. The flows are unchanged.
    pub fn install(
        &self,
        flow: &Megaflow,
        allowed: HookSet,
        prepare: impl FnOnce(Needs),
    ) -> Result<HookSet, Refusal> {
        let mut wanted = self.wanted(flow, allowed)?;
        let done = self.install_in(&mut self.lock(), flow.ufid, &mut wanted, prepare);
        if done.is_err() {
            self.give_back(&wanted);
        }
        done.map(|()| wanted.encoded.hooks)
    }

    fn install_in(
        &self,
        inner: &mut Inner,
        ufid: Ufid,
        wanted: &mut NewFlow,
        prepare: impl FnOnce(Needs),
    ) -> Result<(), Refusal> {
        wanted.limit(inner)?;
        if inner.by_ufid.contains_key(&ufid) {
            return Err(Refusal::Exists);
        }
        self.check_ports(wanted)?;
        let mask = inner
            .masks
            .acquire(&self.maps.masks, &wanted.matching.mask)
            .ok_or(Refusal::MasksFull)?;
        let placed = self.place(inner, ufid, wanted, mask, prepare);
        if placed.is_err() {
            inner.masks.release(&self.maps.masks, mask);
        }
        placed
    }

    /// Returns a flow to be written, with a set of ports if the flow needs one. If there is no room
    /// for the set, the flow leaves out XDP.
    fn wanted(&self, flow: &Megaflow, allowed: HookSet) -> Result<NewFlow, Refusal> {
        let encoded = self.encode(flow)?;
        let mut wanted = NewFlow::new(flow, self.matching(&flow.matching)?, encoded, allowed)?;
        if wanted.encoded.traits.copies.is_none() {
            return Ok(wanted); // most flows
        }
        wanted.limit(&self.lock())?;
        if !wanted.encoded.hooks.contains(HookSet::XDP) {
            return Ok(wanted);
        }
        if ports::is_tunnel(&self.maps, wanted.in_port.0) {
            // The kernel would exclude the device of the underlay.
            wanted.leave_xdp(Refusal::UnsupportedAction)?;
            return Ok(wanted);
        }
        if let Some(outputs) = &wanted.encoded.traits.copies {
            // It may make system calls: the mutex is free.
            wanted.set = sets::members(outputs, wanted.in_port).and_then(|(ports, exclude)| {
                Some((self.sets.acquire(&self.maps, &ports)?, exclude))
            });
            if wanted.set.is_none() {
                wanted.leave_xdp(Refusal::PortSetsFull)?;
            }
        }
        Ok(wanted)
    }

    /// Returns a match in the words of the tables. A Geneve option that is new gets a place there.
    ///
    /// # Errors
    ///
    /// Returns `UnsupportedKey` when the tables lack a field, or there is no room for an option.
    fn matching(&self, matching: &Match) -> Result<Matching, Refusal> {
        loop {
            match Matching::new(matching, &self.maps.options()) {
                Ok(words) => return Ok(words),
                Err(KeyError::Field) => return Err(Refusal::UnsupportedKey),
                Err(KeyError::Option(header)) => self.add_option(header)?,
            }
        }
    }

    /// Gives an option, or fields that have their form, a place in the words.
    ///
    /// # Errors
    ///
    /// Returns `UnsupportedKey` when there is no room.
    pub(crate) fn add_option(&self, header: [u8; 4]) -> Result<(), Refusal> {
        let _inner = self.lock(); // one at a time
        let options = self.maps.options();
        if options.has(header) {
            return Ok(());
        }
        let (at, entry) = options.room_for(header).ok_or(Refusal::UnsupportedKey)?;
        self.maps.set_option(at, &entry);
        Ok(())
    }

    /// Encodes the actions of a flow.
    ///
    /// # Errors
    ///
    /// Returns the reason why no hook can run the actions.
    pub(crate) fn encode(&self, flow: &Megaflow) -> Result<Encoded, Refusal> {
        let encoded = encode::encode_from(&flow.actions, front_of(&flow.matching))?;
        if encoded.traits.tracks && !self.tracks.load(Ordering::Relaxed) {
            return Err(Refusal::CtTable);
        }
        if !encoded.samples.is_empty() && !self.samples.load(Ordering::Relaxed) {
            return Err(Refusal::NeedsUserspace);
        }
        Ok(encoded)
    }

    /// Notes that the programs have the table of connections that the daemon tracks by. Before this
    /// call no flow with a `ct` is taken.
    pub fn track_connections(&self) {
        self.tracks.store(true, Ordering::Relaxed);
    }

    /// Sets whether copies of packets can go up. Before this call no flow with a sample is taken.
    pub(crate) fn take_samples(&self, can: bool) {
        self.samples.store(can, Ordering::Relaxed);
    }

    /// Returns a sample of the flow in a slot that was installed at `installed`. `None`: the flow was
    /// removed or replaced, or is of an earlier daemon.
    pub(crate) fn sample_of(&self, slot: u32, installed: u64, number: u32) -> Option<Userdata> {
        let inner = self.lock();
        self.cells_of(slot, installed)?;
        inner.samples.get(&slot)?.get(number as usize).cloned()
    }

    /// Returns the program of the flow in a slot that was installed at `installed`. `None`: the flow
    /// was removed or replaced, or has no program. Takes no lock.
    pub(crate) fn cells_of(&self, number: u32, installed: u64) -> Option<[u64; CELLS_TOTAL]> {
        let at = usize::try_from(number).ok().filter(|at| *at < self.maps.slots.len())?;
        let is_there = |slot: &Slot| slot.dead == 0 && slot.installed == installed;
        let slot = Slot::read(&self.maps, at);
        let program = slot.program as usize;
        if !is_there(&slot) || program >= self.maps.programs.len() {
            return None;
        }
        let cells = self.maps.programs.read(program).cells;
        // A slot is dead long before another flow may have its program's place.
        fence(Ordering::Acquire);
        is_there(&Slot::read(&self.maps, at)).then_some(cells)
    }

    /// Releases the set of ports of a flow that is not written.
    fn give_back(&self, wanted: &NewFlow) {
        if let Some((set, _)) = wanted.set {
            self.sets.release(set);
        }
    }

    /// Checks a flow's actions and the room for sets of ports. The refusal is the reason why XDP
    /// lacks the flow.
    fn lacks_at_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if matches!(&*flow.actions, [] | [Action::Output(_)]) {
            return Ok(()); // most flows
        }
        let encoded = encode::encode_from(&flow.actions, front_of(&flow.matching))?;
        if !encoded.hooks.contains(HookSet::XDP) {
            return Err(Refusal::UnsupportedAction);
        }
        let Some(outputs) = &encoded.traits.copies else { return Ok(()) };
        let in_port = PortNo(flow.matching.key().in_port.get());
        if ports::is_tunnel(&self.maps, in_port.0) {
            return Err(Refusal::UnsupportedAction);
        }
        match sets::members(outputs, in_port) {
            Some((ports, _)) if self.sets.has_room(&ports) => Ok(()),
            _ => Err(Refusal::PortSetsFull),
        }
    }

    /// Updates the sets of ports after a port was attached, detached or changed.
    pub(crate) fn refresh_port(&self, port: u32) {
        self.sets.refresh(&self.maps, port);
    }

    fn place(
        &self,
        inner: &mut Inner,
        ufid: Ufid,
        wanted: &NewFlow,
        mask: u16,
        prepare: impl FnOnce(Needs),
    ) -> Result<(), Refusal> {
        let hash = hash::of_flow(&wanted.matching.words, mask.into(), &self.factors);
        let equal = |slot: u32| {
            let held = Slot::read(&self.maps, slot as usize);
            held.mask == mask && held.words == wanted.matching.words
        };
        if index::slots_with(&self.maps.index, hash).any(equal) {
            return Err(Refusal::Exists);
        }
        let position = index::find_room(&self.maps.index, hash).ok_or(Refusal::TableFull)?;
        let slot = self.fill(inner, ufid, wanted, mask, hash)?;
        prepare(wanted.needs);
        index::publish(&self.maps.index, position, hash, slot);
        inner.record(slot, Record::published(ufid, position));
        inner.by_ufid.insert(ufid, slot);
        inner.count_features(wanted.encoded.features, 1);
        Ok(())
    }

    /// Writes a flow, which is marked dead, into a free slot, with this program, and then marks it
    /// alive. Nothing refers to the slot yet.
    fn put(
        &self,
        inner: &mut Inner,
        mut slot: Slot,
        program: Option<&Program>,
    ) -> Result<u32, Refusal> {
        let number = inner.take_slot(self.maps.slots.len()).ok_or(Refusal::TableFull)?;
        inner.samples.remove(&number); // of the slot's last flow
        slot.program = match program.map(|p| inner.programs.acquire(&self.maps.programs, p)) {
            None => NO_PROGRAM,
            Some(Some(program)) => program,
            Some(None) => {
                inner.free.push(number);
                return Err(Refusal::ProgramsFull);
            }
        };
        slot.write(&self.maps, number as usize);
        Slot::set_dead(&self.maps, number, false);
        Ok(number)
    }

    /// Writes a free slot; nothing refers to it yet.
    fn fill(
        &self,
        inner: &mut Inner,
        ufid: Ufid,
        wanted: &NewFlow,
        mask: u16,
        hash: u32,
    ) -> Result<u32, Refusal> {
        let mut slot = wanted.slot();
        slot.mask = mask;
        slot.hash = hash.into();
        slot.ufid = [(ufid.0 >> 64) as u64, ufid.0 as u64];
        slot.installed = self.clock.now().0 as u64;
        let Effect::Program(cells) = &wanted.encoded.effect else {
            return self.put(inner, slot, None);
        };
        let cells = self.acquire_headers(inner, cells, &wanted.encoded.headers)?;
        let program = Program::new(&cells, &wanted.encoded.traits, wanted.set);
        match self.put(inner, slot, Some(&program)) {
            Ok(number) if !wanted.encoded.samples.is_empty() => {
                inner.samples.insert(number, wanted.encoded.samples.clone());
                Ok(number)
            }
            Ok(number) => Ok(number),
            Err(refusal) => {
                self.release_headers(inner, &cells);
                Err(refusal)
            }
        }
    }

    /// Counts one more flow at each header that its program pushes. Returns the program with their
    /// numbers.
    fn acquire_headers(
        &self,
        inner: &mut Inner,
        cells: &[u64; CELLS_TOTAL],
        headers: &[TunnelHeader],
    ) -> Result<Box<[u64; CELLS_TOTAL]>, Refusal> {
        let shared = &self.maps.tunnel_headers;
        let mut acquired = Vec::new();
        let numbered = encode::renumber_headers(cells, |place| {
            let header = headers.get(place as usize)?;
            let number = inner.headers.acquire(shared, header)?;
            acquired.push(number);
            Some(number)
        });
        numbered.ok_or_else(|| {
            acquired.iter().for_each(|number| inner.headers.release(shared, *number));
            Refusal::TunnelHeadersFull
        })
    }

    /// Counts one flow less at each header that its program pushes.
    fn release_headers(&self, inner: &mut Inner, cells: &[u64; CELLS_TOTAL]) {
        for (number, _) in encode::headers_of(cells) {
            inner.headers.release(&self.maps.tunnel_headers, number);
        }
    }

    /// Returns the function that reads the header of a tunnel by its number.
    pub(crate) fn header_of(&self) -> impl Fn(u32) -> Option<TunnelHeader> {
        |number| tunnel_headers::read(&self.maps.tunnel_headers, number)
    }

    /// Replaces a flow's actions; its statistics go on. Installs the flow when it is not there.
    /// Parameters and result are those of [`Flows::install`].
    ///
    /// # Errors
    ///
    /// As [`Flows::install`]; `Exists` stands for a flow of this identity with another match.
    pub(crate) fn replace(
        &self,
        flow: &Megaflow,
        allowed: HookSet,
        prepare: impl FnOnce(Needs),
    ) -> Result<HookSet, Refusal> {
        let mut wanted = self.wanted(flow, allowed)?;
        let done = self.replace_in(&mut self.lock(), flow.ufid, &mut wanted, prepare);
        if done != Ok(true) {
            self.give_back(&wanted);
        }
        done.map(|_| wanted.encoded.hooks)
    }

    /// Does the work of [`Flows::replace`]. Returns false when the present flow is already as
    /// wanted.
    fn replace_in(
        &self,
        inner: &mut Inner,
        ufid: Ufid,
        wanted: &mut NewFlow,
        prepare: impl FnOnce(Needs),
    ) -> Result<bool, Refusal> {
        let Some(old) = inner.by_ufid.get(&ufid).copied() else {
            return self.install_in(inner, ufid, wanted, prepare).map(|()| true);
        };
        wanted.limit(inner)?;
        self.check_ports(wanted)?;
        let held = Slot::read(&self.maps, old as usize);
        let mask = self.maps.masks.read(held.mask.into()).words;
        if held.words != wanted.matching.words || mask != wanted.matching.mask {
            return Err(Refusal::Exists);
        }
        if self.is_alike(inner, old, &held, &wanted.encoded)
            && held.hooks == wanted.encoded.hooks.bits()
        {
            return Ok(false);
        }
        let new = self.fill(inner, ufid, wanted, held.mask, held.hash as u32)?;
        prepare(wanted.needs);
        self.supersede(inner, ufid, old, new).ok_or(Refusal::TableFull)?;
        inner.count_features(wanted.encoded.features, 1);
        let before = self.features_of(&held);
        inner.count_features(before, -1);
        Ok(true)
    }

    /// Publishes `new`, which is filled, in the place of `old`, of the same match.
    fn supersede(&self, inner: &mut Inner, ufid: Ufid, old: u32, new: u32) -> Option<()> {
        let record = *inner.records.get(old as usize)?;
        let held = Slot::read(&self.maps, old as usize);
        let mask = self.maps.masks.read(held.mask.into()).words;
        inner.masks.acquire(&self.maps.masks, &mask); // the new slot's share
        index::publish(&self.maps.index, record.position, held.hash as u32, new);
        self.kill(old);
        inner.record(new, Record { has_earlier: true, ..record });
        let mut earlier = inner.earlier.remove(&old).unwrap_or_default();
        earlier.slots.push(old);
        inner.earlier.insert(new, earlier);
        if let Some(record) = inner.records.get_mut(old as usize) {
            record.state = RecordState::Removed;
            record.has_earlier = false;
        }
        inner.by_ufid.insert(ufid, new);
        inner.removed.push(old);
        Some(())
    }

    /// Marks a slot dead, for the exact-match caches too; the mutex is held.
    fn kill(&self, slot: u32) {
        Slot::set_dead(&self.maps, slot, true);
        let at = slot as usize % EPOCHS * size_of::<u32>();
        let epoch = self.maps.epochs.load_half(0, at);
        self.maps.epochs.store_half(0, at, epoch.wrapping_add(1));
    }

    /// Returns true when the present flow has the same encoding as `actions`.
    pub(crate) fn encodes_alike(&self, ufid: Ufid, actions: &[datapath::Action]) -> bool {
        let inner = self.lock();
        let Some(number) = inner.by_ufid.get(&ufid) else { return false };
        let slot = Slot::read(&self.maps, *number as usize);
        let front = if keys::is_bare(&slot.words) { Front::Bare } else { Front::Ethernet };
        let Ok(encoded) = encode::encode_from(actions, front) else { return false };
        self.is_alike(&inner, *number, &slot, &encoded)
    }

    fn is_alike(&self, inner: &Inner, slot: u32, held: &Slot, encoded: &Encoded) -> bool {
        if inner.samples.get(&slot).map_or(&[][..], Vec::as_slice) != encoded.samples {
            return false;
        }
        let is = (held.output, held.reason, held.tunnel);
        if is != encoded.effect_in_slot() || held.flags & !OWN_FLAGS != encoded.flags {
            return false;
        }
        match &encoded.effect {
            Effect::Program(cells) => {
                let numbered = encode::renumber_headers(cells, |place| {
                    inner.headers.number(encoded.headers.get(place as usize)?)
                });
                (held.program as usize) < self.maps.programs.len()
                    && numbered.is_some_and(|cells| {
                        self.maps.programs.read(held.program as usize).cells == *cells
                    })
            }
            _ => held.program == NO_PROGRAM,
        }
    }

    /// Refuses a flow that names a port which is not in the table. The flow is offered again when
    /// the port is attached.
    fn check_ports(&self, wanted: &NewFlow) -> Result<(), Refusal> {
        let there = |port: &PortNo| ports::has_device(&self.maps, port.0);
        let is_tunnel = |port: PortNo| ports::is_tunnel(&self.maps, port.0);
        let into = match wanted.encoded.effect {
            Effect::Pop(port) => is_tunnel(port),
            _ => wanted.encoded.ports.iter().all(there),
        };
        if !wanted.encoded.bonds.iter().all(|id| bonds::has(&self.maps, *id)) {
            return Err(Refusal::Bond);
        }
        let from = there(&wanted.in_port) || is_tunnel(wanted.in_port);
        if into && from { Ok(()) } else { Err(Refusal::PortNotHere) }
    }

    /// Returns the features of a present flow.
    fn features_of(&self, slot: &Slot) -> u32 {
        if slot.flags & FLOW_POP != 0 {
            return FEATURE_TUNNEL;
        }
        if slot.program as usize >= self.maps.programs.len() {
            return 0;
        }
        let cells = self.maps.programs.read(slot.program as usize).cells;
        let traits = Traits::of(&cells);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        FEATURE_LAYERS
            | flag(traits.mpls, FEATURE_MPLS)
            | flag(traits.bond != 0, FEATURE_BOND)
            | flag(traits.pushes, FEATURE_PUSH)
    }

    /// Returns the needs of the present flows from lookup programs, and the union of their masks.
    pub(crate) fn needs(&self) -> (Needs, [u64; WORDS]) {
        let inner = self.lock();
        let mut union = [0; WORDS];
        for words in inner.masks.iter() {
            union.iter_mut().zip(words).for_each(|(u, w)| *u |= w);
        }
        // The lookup programs are for packets from ports.
        union.iter_mut().skip(PORT_WORDS).for_each(|word| *word = 0);
        let words = keys::needs(&union);
        let mut features = features_of_words(words);
        if inner.programmed > 0 {
            features |= FEATURE_LAYERS;
        }
        if inner.mpls > 0 {
            features |= FEATURE_MPLS;
        }
        if inner.pops > 0 {
            features |= FEATURE_TUNNEL;
        }
        if inner.to_bonds > 0 {
            features |= FEATURE_BOND;
        }
        if inner.pushes > 0 {
            features |= FEATURE_PUSH;
        }
        (Needs { words, features }, union)
    }
}

/// Returns the header that packets of a match begin with. A match that names no packet type is one on
/// packets from ports, which are frames; the programs check others.
fn front_of(matching: &Match) -> Front {
    if matching.key().packet_type.get() == 0 { Front::Ethernet } else { Front::Bare }
}

/// Number of flows that are handled while the mutex is held once.
const CHUNK: usize = 512;

/// A flow to be written.
struct NewFlow {
    matching: Matching,
    encoded: Encoded,
    in_port: PortNo,
    needs: Needs,
    /// The set of ports that gets copies at XDP, and whether the ingress port is excluded.
    set: Option<(SetNumber, bool)>,
}

impl NewFlow {
    fn new(
        flow: &Megaflow,
        matching: Matching,
        mut encoded: Encoded,
        allowed: HookSet,
    ) -> Result<NewFlow, Refusal> {
        encoded.hooks &= allowed;
        if encoded.hooks.is_empty() {
            return Err(Refusal::UnsupportedAction);
        }
        let words = keys::needs(&matching.mask);
        let features = features_of_words(words) | encoded.features;
        let in_port = PortNo(flow.matching.key().in_port.get());
        Ok(NewFlow { matching, encoded, in_port, needs: Needs { words, features }, set: None })
    }

    /// Leaves out XDP when the user's program there cannot run the flow.
    fn limit(&mut self, inner: &Inner) -> Result<(), Refusal> {
        let Some(limit) = inner.limits.get(&self.in_port.0) else { return Ok(()) };
        if let Err(refusal) = limit.take(self.needs.words, capabilities::ops_of(&self.encoded)) {
            self.leave_xdp(refusal)?;
        }
        Ok(())
    }

    /// Leaves out XDP. The flow is refused when it runs nowhere else.
    fn leave_xdp(&mut self, why: Refusal) -> Result<(), Refusal> {
        self.encoded.hooks.remove(HookSet::XDP);
        if self.encoded.hooks.is_empty() { Err(why) } else { Ok(()) }
    }

    /// Returns the slot, marked dead, without program, mask, hash and identity.
    fn slot(&self) -> Slot {
        let (output, reason, tunnel) = self.encoded.effect_in_slot();
        let mut own = if self.matching.packet_type { FLOW_PACKET_TYPE } else { 0 };
        if keys::has_metadata(&self.matching.words) {
            own |= FLOW_METADATA;
        }
        Slot {
            words: self.matching.words,
            needs: self.needs.words,
            dead: 1,
            mask: 0,
            hooks: self.encoded.hooks.bits(),
            flags: self.encoded.flags | own,
            output,
            program: NO_PROGRAM,
            reason,
            tunnel,
            ufid: [0; 2],
            hash: 0,
            installed: 0,
            instructions: self.encoded.instructions.into(),
        }
    }
}

/// Returns the features that a mask of these words needs.
fn features_of_words(words: u64) -> u32 {
    let any = |of: &[usize]| of.iter().any(|x| words & (1 << x) != 0);
    let mut features = 0;
    if any(&[word::MPLS0, word::MPLS1]) {
        features |= FEATURE_MPLS;
    }
    features
}

impl Record {
    fn published(ufid: Ufid, position: Position) -> Record {
        Record {
            ufid,
            packets: 0,
            bytes: 0,
            used: Millis(0),
            position,
            tcp_flags: 0,
            state: RecordState::Published,
            has_earlier: false,
        }
    }

    #[inline]
    fn seen(&self) -> FlowCount {
        FlowCount { packets: self.packets, bytes: self.bytes, tcp_flags: self.tcp_flags }
    }

    fn see(&mut self, count: &FlowCount) {
        (self.packets, self.bytes, self.tcp_flags) = (count.packets, count.bytes, count.tcp_flags);
    }

    /// Records the counts of the flow, and returns the number of new packets. No recorded count
    /// ever decreases.
    #[inline]
    fn observe(&mut self, count: &FlowCount, now: Millis) -> u64 {
        let seen = self.seen();
        if *count == seen {
            return 0; // most flows; nothing is written
        }
        let count = count.at_least(&seen);
        self.see(&count);
        let new = count.packets - seen.packets; // not less
        if new != 0 {
            self.used = now;
        }
        new
    }

    /// Returns the recorded statistics in the form that a datapath reports.
    #[inline]
    fn flow_stats(&self) -> FlowStats {
        let Record { packets, bytes, used, tcp_flags, .. } = *self;
        FlowStats { packets, bytes, used, tcp_flags }
    }
}

// A sweep goes through all of them.
const _: () = assert!(size_of::<Record>() == 48);

impl Earlier {
    /// Returns the sum of the counts of all of them, where `of` returns those of a slot.
    fn count(&self, of: impl Fn(u32) -> FlowCount) -> FlowCount {
        let mut sum = self.sum;
        self.slots.iter().for_each(|slot| sum.add(&of(*slot)));
        sum
    }
}

impl Inner {
    fn take_slot(&mut self, most: usize) -> Option<u32> {
        self.free.pop().or_else(|| {
            let next = self.records.len();
            (next < most).then(|| {
                let unused = Record::published(Ufid(0), 0);
                self.records.push(Record { state: RecordState::Free, ..unused });
                next as u32
            })
        })
    }

    fn record(&mut self, slot: u32, record: Record) {
        self.reported.renew(slot);
        self.in_use.insert(slot);
        if let Some(r) = self.records.get_mut(slot as usize) {
            *r = record;
        }
    }

    fn count_features(&mut self, features: u32, by: isize) {
        if features & FEATURE_LAYERS != 0 {
            self.programmed = self.programmed.saturating_add_signed(by);
        }
        if features & FEATURE_MPLS != 0 {
            self.mpls = self.mpls.saturating_add_signed(by);
        }
        if features & FEATURE_TUNNEL != 0 {
            self.pops = self.pops.saturating_add_signed(by);
        }
        if features & FEATURE_BOND != 0 {
            self.to_bonds = self.to_bonds.saturating_add_signed(by);
        }
        if features & FEATURE_PUSH != 0 {
            self.pushes = self.pushes.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
mod header_tests;
#[cfg(test)]
mod tests;
