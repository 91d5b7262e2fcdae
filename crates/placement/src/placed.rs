// SPDX-License-Identifier: Apache-2.0
//! [`PlacedDatapath`]: its parts, its beginning and its end.

use crate::Base;
use crate::control::Control;
use crate::eligibility::Eligibility;
use crate::miss::{self, MissListener, MissQueue};
use crate::queue::{BatchSource, Queue};
use crate::slots::{Slot, Slots};
use crate::table::{FlowPlacement, PlacementState, Table, in_port};
use datapath::offload::{OffloadProvider, ProviderSlot, Reason};
use datapath::scratch::{Recycle, Scratch};
use datapath::shards::Groups;
use datapath::{
    Action, BondTable, Bonds, Datapath, FlowStats, Megaflow, MeterConfig, Meters, Packets,
    PortInfo, PortKind, PortNo, QueueNumbering, Refusal, Tier, TierRefusals, TierSet,
    UpcallFactory, Verdict,
};
use datapath_userspace::UserspaceDatapath;
use flow::Key;
use packet::Packet;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The counts that a sweep finds, by provider.
#[derive(Default)]
pub(crate) struct InProviders(pub(crate) Vec<Groups<FlowStats>>);

impl Recycle for InProviders {
    fn recycle(&mut self) {
        self.0.iter_mut().for_each(Recycle::recycle);
    }
}

/// A datapath that puts each flow into the fastest places that can run it; see the crate's text.
/// Any thread may use it.
pub struct PlacedDatapath {
    pub(crate) base: Arc<dyn Base>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) table: Table,
    pub(crate) queue: Queue,
    eligibility: RwLock<Arc<Eligibility>>,
    control: Mutex<Control>,
    /// The configurations of all meters of the base, for providers that begin later.
    pub(crate) meters: Mutex<BTreeMap<u32, MeterConfig>>,
    /// The tables of all bonds of the base, for the same.
    pub(crate) bonds: Mutex<BTreeMap<u32, BondTable>>,
    /// Held while flows leave a provider; taken before any shard's lock.
    pub(crate) leaving: Mutex<()>,
    /// The lists of a sweep: its counts in each provider, and in the base.
    pub(crate) swept: Scratch<(InProviders, Groups<FlowStats>)>,
    /// Ports or settings changed, so a tier may now take a flow that it refused.
    pub(crate) changed: AtomicBool,
    /// The number of the next miss device.
    sources: AtomicU32,
}

impl PlacedDatapath {
    /// Returns a datapath over `base`, which does everything until [`PlacedDatapath::begin`] fills
    /// a place of `list`. The list is in the order of its tiers, fastest first.
    ///
    /// # Panics
    ///
    /// When the list is in another order, or has a tier twice.
    pub fn new(base: Arc<dyn Base>, list: Vec<ProviderSlot>) -> Arc<PlacedDatapath> {
        let slots = Arc::new(Slots::new(list));
        let eligibility = Eligibility { all: slots.tiers(), ..Eligibility::default() };
        Arc::new(PlacedDatapath {
            base,
            table: Table::new(slots.iter().map(Slot::tiers).collect()),
            queue: Queue::default(),
            eligibility: RwLock::new(Arc::new(eligibility)),
            control: Mutex::new(Control::new(&slots)),
            meters: Mutex::default(),
            bonds: Mutex::default(),
            leaving: Mutex::new(()),
            swept: Scratch::default(),
            changed: AtomicBool::new(false),
            sources: AtomicU32::new(1),
            slots,
        })
    }

    /// Fills the place of exactly these tiers with a provider, or with the reason for which there
    /// is none. Flows that the provider holds are adopted, and it gets the meters that are there.
    /// Call it once for each place, if possible before the first port is added: then devices keep
    /// the numbers that adopted flows use. No port uses the provider before
    /// [`PlacedDatapath::serve`].
    pub fn begin(&self, tiers: TierSet, provider: Result<Arc<dyn OffloadProvider>, Reason>) {
        let Some(slot) = self.slots.of(tiers) else { return };
        let mut control = self.control();
        if slot.is_begun() {
            return;
        }
        // Each fills an empty place: the lock is held since `is_begun`.
        match provider {
            Err(reason) => {
                self.block(&mut control, tiers, reason.clone());
                slot.set(Err(reason));
                drop(control);
                self.place_ports(tiers);
            }
            Ok(provider) => {
                self.adopt_all(&*provider, &mut control);
                provider.set_tunnel_endpoints(&control.endpoints);
                let fill = || {
                    slot.set(Ok(provider.clone()));
                };
                self.mirror_bonds(tiers, &*provider, || {
                    self.mirror_meters(tiers, &*provider, fill);
                });
                drop(control);
                self.enlist_flows_of_base(slot);
            }
        }
    }

    /// Takes over the flows and port numbers that an earlier daemon left in a provider.
    fn adopt_all(&self, provider: &dyn OffloadProvider, control: &mut Control) {
        let (ports, tunnels) = (provider.adopted_ports(), provider.adopted_tunnels());
        let is_tunnel = |port: PortInfo| matches!(port.kind, PortKind::Tunnel(_));
        let has_other_tunnels = !tunnels.is_empty()
            && (self.base.ports().into_iter().any(is_tunnel)
                || tunnels.iter().any(|(number, _)| control.is_taken(*number)));
        if control.contradicts(&ports) || has_other_tunnels {
            // The numbers in its flows stand for other ports now.
            let mut all = Vec::with_capacity(provider.len());
            provider.sweep(&mut |ufid, _| all.push(ufid));
            provider.remove_many(&all, &mut |_, _| {});
            let numbers = ports.iter().map(|port| port.number);
            numbers.chain(tunnels.iter().map(|(number, _)| *number)).for_each(|number| {
                provider.remove_port(number);
            });
            return;
        }
        provider.sweep(&mut |ufid, _| {
            let Some(held) = provider.flow(ufid) else { return };
            let mut shard = self.table.shard(ufid);
            let place = match shard.get(ufid) {
                None => FlowPlacement::adopted(held.tiers),
                Some(place) => FlowPlacement { tiers: place.tiers.union(held.tiers), ..place },
            };
            shard.put(ufid, place);
        });
        control.reserve(ports, tunnels);
    }

    /// Records for the flows that the base has already that a new provider does not hold them, and
    /// has them offered to it.
    fn enlist_flows_of_base(&self, slot: &Slot) {
        self.base.sweep(&mut |ufid, _| {
            let mut shard = self.table.shard(ufid);
            let place = shard.get(ufid).unwrap_or(FlowPlacement {
                state: PlacementState::Stable,
                tiers: TierSet::NONE,
                refusals: TierRefusals::NONE,
            });
            if !place.tiers.meets(slot.tiers()) && self.base.flow(ufid).is_some() {
                let mut place = place;
                place.refusals.set(slot.tiers(), Some(Refusal::TierDisabled));
                shard.put(ufid, place);
            }
        });
        self.changed.store(true, Ordering::Release);
    }

    /// Returns true after [`PlacedDatapath::begin`] of these tiers.
    pub fn is_begun(&self, tiers: TierSet) -> bool {
        self.slots.of(tiers).is_some_and(Slot::is_begun)
    }

    /// Returns true when the provider of exactly these tiers is there. It is not when
    /// [`PlacedDatapath::begin`] got a reason in its place.
    pub fn has_provider(&self, tiers: TierSet) -> bool {
        self.slots.of(tiers).is_some_and(|slot| slot.provider().is_some())
    }

    /// Attaches ports, present and later ones, to the provider of these tiers. If the provider
    /// sends misses up, this first creates a miss device in the calling thread's network namespace,
    /// and a packet thread of `base` serves it. Call it once for each provider, after
    /// [`PlacedDatapath::begin`]. Does nothing when the provider is not there.
    ///
    /// # Errors
    ///
    /// The miss device cannot be created. Ports then stay out of the provider, because no thread
    /// would take the packets that it sends up.
    pub fn serve(self: &Arc<Self>, tiers: TierSet, base: &UserspaceDatapath) -> io::Result<()> {
        let Some(provider) = self.slots.of(tiers).and_then(Slot::provider) else { return Ok(()) };
        if provider.misses().is_some()
            && let Err(e) = self.make_miss_device(provider, base)
        {
            self.give_up(tiers, &e);
            return Err(e);
        }
        self.open(tiers);
        Ok(())
    }

    /// Attaches the present ports to a provider, and ports that are added later.
    pub(crate) fn open(&self, tiers: TierSet) {
        self.for_blockers(&mut self.control(), tiers, |blockers| blockers.broken = None);
        self.place_ports(tiers);
    }

    /// Keeps ports out of a provider from now on, because it has no miss device.
    fn give_up(&self, tiers: TierSet, error: &io::Error) {
        let detail = format!("the device for packets without a flow: {error}");
        let reason = Reason::new(Refusal::TierUnavailable, detail);
        self.block(&mut self.control(), tiers, reason);
        self.place_ports(tiers);
    }

    /// Takes all flows and ports out of a provider whose miss device failed, most likely because it
    /// was deleted.
    pub(crate) fn leave_provider(&self, slot: &Slot) {
        let names: Vec<&str> = slot.tiers().tiers().map(Tier::name).collect();
        tracing::error!(
            target: "dpif",
            "the device for packets without a flow is gone or down: flows no longer run at {}, but \
             at slower tiers or in userspace; restart the switch, which makes a new device",
            names.join(" and "),
        );
        if let Some(channel) = slot.provider().and_then(|provider| provider.misses()) {
            channel.set_miss_device(0);
        }
        let detail =
            "the device for packets without a flow is gone or down; a restart makes a new one";
        let mut control = self.control();
        self.block(&mut control, slot.tiers(), Reason::new(Refusal::TierUnavailable, detail));
        self.close_ports(slot.tiers(), Refusal::TierUnavailable);
        drop(control);
        self.place_ports(slot.tiers());
    }

    /// Keeps all ports out of the provider of these tiers, for this reason. Attached ports stay
    /// until they are placed again.
    fn block(&self, control: &mut Control, tiers: TierSet, reason: Reason) {
        self.for_blockers(control, tiers, |blockers| blockers.broken = Some(reason));
    }

    /// Changes the blockers of the provider of these tiers. `None` when no place has these tiers.
    pub(crate) fn for_blockers<T>(
        &self,
        control: &mut Control,
        tiers: TierSet,
        change: impl FnOnce(&mut crate::control::Blockers) -> T,
    ) -> Option<T> {
        let place = self.slots.iter().position(|slot| slot.tiers() == tiers)?;
        control.blockers.get_mut(place).map(change)
    }

    fn make_miss_device(
        self: &Arc<Self>,
        provider: &Arc<dyn OffloadProvider>,
        base: &UserspaceDatapath,
    ) -> io::Result<()> {
        let tap = miss::open().map_err(|e| io::Error::other(e.to_string()))?;
        let ifindex = tap.ifindex();
        let this: Arc<dyn MissListener> = self.clone();
        let source = self.sources.fetch_add(1, Ordering::Relaxed);
        let queue = MissQueue::new(tap, provider.clone(), Arc::downgrade(&this), source);
        base.add_miss_source(Box::new(queue))?;
        if let Some(channel) = provider.misses() {
            channel.set_miss_device(ifindex);
        }
        Ok(())
    }

    pub(crate) fn eligibility(&self) -> Arc<Eligibility> {
        self.eligibility.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the tiers at which a flow may run, by its ports and actions.
    pub(crate) fn decide(&self, flow: &Megaflow) -> Verdict {
        let eligibility = self.eligibility.read().unwrap_or_else(PoisonError::into_inner);
        eligibility.decide(in_port(flow), &flow.actions)
    }

    /// Changes the conditions for flows, from now on.
    pub(crate) fn change_eligibility(&self, change: impl FnOnce(&mut Eligibility)) {
        let mut eligibility = self.eligibility.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut eligibility));
        self.changed.store(true, Ordering::Release);
    }

    /// Locks the ports' state. This lock is taken before every other lock of this crate.
    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner) // repaired by the next change
    }

    /// Removes every object that would continue to forward without the daemon.
    pub fn cleanup(&self) {
        for (_, provider) in self.slots.present() {
            close(&**provider, true);
        }
        self.base.cleanup();
    }

    /// Returns the reasons for which providers are not there.
    pub(crate) fn absent_refusals(&self) -> TierRefusals {
        let mut refusals = TierRefusals::NONE;
        for slot in self.slots.iter() {
            refusals.set(slot.tiers(), slot.shown_absence().map(|reason| reason.refusal));
        }
        refusals
    }
}

fn close(provider: &dyn OffloadProvider, cleanup: bool) {
    if let Some(channel) = provider.misses() {
        channel.set_miss_device(0);
    }
    provider.close(cleanup);
}

impl MissListener for PlacedDatapath {
    fn batch_done(&self, source: BatchSource) {
        self.offer_batch(source);
    }

    fn device_lost(&self, tiers: TierSet) {
        if let Some(slot) = self.slots.of(tiers) {
            slot.lost_misses.store(true, Ordering::Release);
        }
    }
}

impl Datapath for PlacedDatapath {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn queue_numbering(&self) -> QueueNumbering {
        QueueNumbering::Classes
    }

    fn meters(&self) -> Option<&dyn Meters> {
        self.base.meters().map(|_| self as &dyn Meters)
    }

    fn bonds(&self) -> Option<&dyn Bonds> {
        self.base.bonds().map(|_| self as &dyn Bonds)
    }

    fn connections(&self) -> Option<&dyn datapath::Connections> {
        self.base.connections()
    }

    fn supports(&self, action: &Action) -> bool {
        self.base.supports(action)
    }

    fn maintain(&self) {
        self.base.maintain();
        PlacedDatapath::maintain(self);
    }

    /// Stops. Flows in providers continue to run where they can without the daemon.
    fn shutdown(&self) {
        self.complete_moves();
        for (_, provider) in self.slots.present() {
            close(&**provider, false);
        }
        self.base.shutdown();
    }
}

impl Packets for PlacedDatapath {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.base.set_upcall_factory(factory);
    }

    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        self.base.execute(packet, key, actions);
    }

    fn inject(&self, packet: Packet, port: PortNo) {
        self.base.inject(packet, port);
    }

    fn megaflows_used(&self, port: PortNo, n: u64) {
        self.base.megaflows_used(port, n);
    }
}
