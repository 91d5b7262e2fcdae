// SPDX-License-Identifier: Apache-2.0
//! [`PlacedDatapath`]: what it is made of, its beginning and its end.

use crate::control::Control;
use crate::gates::Gates;
use crate::miss::{self, MissQueue};
use crate::queue::{Giver, Queue};
use crate::table::{Place, Table};
use crate::{Base, FastPath, Prober, Reason};
use datapath::scratch::Scratch;
use datapath::shards::Groups;
use datapath::{Action, Datapath, FlowStats, Meters, Packets, PortNo, Refusal, UpcallFactory};
use datapath_userspace::UserspaceDatapath;
use flow::Key;
use packet::Packet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// A datapath that puts each flow into the fastest place that can run it; see the crate's text.
pub struct PlacedDatapath {
    pub(crate) base: Arc<dyn Base>,
    /// Set once, by [`PlacedDatapath::begin`].
    fast: OnceLock<Result<Arc<dyn FastPath>, Reason>>,
    pub(crate) prober: Box<dyn Prober>,
    pub(crate) table: Table,
    pub(crate) queue: Queue,
    gates: RwLock<Arc<Gates>>,
    control: Mutex<Control>,
    /// Held while flows leave the fast path; taken before any shard's lock.
    pub(crate) leaving: Mutex<()>,
    /// What a sweep finds in the fast path and in the base.
    pub(crate) swept: Scratch<(Groups<FlowStats>, Groups<FlowStats>)>,
    /// Ports or settings changed: what was refused may now be taken.
    pub(crate) changed: AtomicBool,
    /// The miss device failed: nobody takes what the fast path passes up any more.
    pub(crate) lost_misses: AtomicBool,
    givers: AtomicU32,
}

impl PlacedDatapath {
    /// A datapath over `base`, which does everything until [`PlacedDatapath::begin`].
    pub fn new(base: Arc<dyn Base>, prober: Box<dyn Prober>) -> Arc<PlacedDatapath> {
        Arc::new(PlacedDatapath {
            base,
            fast: OnceLock::new(),
            prober,
            table: Table::default(),
            queue: Queue::default(),
            gates: RwLock::default(),
            control: Mutex::new(Control::new()),
            leaving: Mutex::new(()),
            swept: Scratch::default(),
            changed: AtomicBool::new(false),
            lost_misses: AtomicBool::new(false),
            givers: AtomicU32::new(1),
        })
    }

    /// Puts `fast`, or the reason why there is none, over the base. Flows that `fast` holds are
    /// adopted. Called once; best before the first port is added, so that devices keep the
    /// numbers that adopted flows know. No port uses it before
    /// [`PlacedDatapath::serve_misses`].
    pub fn begin(&self, fast: Result<Arc<dyn FastPath>, Reason>) {
        let mut control = self.control();
        if self.is_begun() {
            return;
        }
        match &fast {
            Err(reason) => control.give_up(reason.clone()),
            Ok(fast) => self.adopt_all(&**fast, &mut control),
        }
        let is_there = fast.is_ok();
        let _ = self.fast.set(fast); // not set before, as was seen under the lock
        drop(control);
        if is_there {
            self.enlist_flows_of_base();
        }
    }

    /// Takes over the flows and port numbers of `fast`.
    fn adopt_all(&self, fast: &dyn FastPath, control: &mut Control) {
        let ports = fast.adopted_ports();
        if control.contradicts(&ports) {
            // Its flows would be about other devices.
            let mut all = Vec::with_capacity(fast.len());
            fast.sweep(&mut |ufid, _| all.push(ufid));
            fast.remove_many(&all, &mut |_, _| {});
            ports.iter().for_each(|port| fast.detach(port.number));
            return;
        }
        fast.sweep(&mut |ufid, _| {
            if let Some(held) = fast.flow(ufid) {
                self.table.shard(ufid).put(ufid, Place::Adopted(held.tiers));
            }
        });
        control.reserve(ports);
    }

    /// Flows that were there before the fast path.
    fn enlist_flows_of_base(&self) {
        self.base.sweep(&mut |ufid, _| {
            let mut shard = self.table.shard(ufid);
            if shard.get(ufid).is_none() && self.base.flow(ufid).is_some() {
                shard.put(ufid, Place::Base(Refusal::TierDisabled));
            }
        });
        self.changed.store(true, Ordering::Release);
    }

    /// True after [`PlacedDatapath::begin`].
    pub fn is_begun(&self) -> bool {
        self.fast.get().is_some()
    }

    /// Makes the miss device, in the calling thread's network namespace, has a packet thread of
    /// `base` serve it, and attaches the ports that are there. Called once, after
    /// [`PlacedDatapath::begin`].
    ///
    /// # Errors
    ///
    /// The system's words. Ports then stay in the base: nobody would take what the fast path
    /// passes up.
    pub fn serve_misses(self: &Arc<Self>, base: &UserspaceDatapath) -> io::Result<()> {
        let Some(fast) = self.fast_path() else { return Ok(()) };
        match self.make_miss_device(fast, base) {
            Ok(()) => {
                self.open();
                Ok(())
            }
            Err(e) => {
                self.give_up(&e);
                Err(e)
            }
        }
    }

    /// Attaches ports from now on, and those that are there.
    pub(crate) fn open(&self) {
        self.control().open();
        self.place_ports();
    }

    /// Ports stay in the base from now on: there is no device for packets that the fast path
    /// passes up.
    pub fn give_up(&self, error: &io::Error) {
        let detail = format!("the device for packets without a flow: {error}");
        self.control().give_up(Reason::new(Refusal::TierUnavailable, detail));
        self.place_ports();
    }

    /// The miss device failed, most likely since somebody deleted it: all flows and ports go on in
    /// the base.
    pub(crate) fn leave_fast_path(&self, fast: &dyn FastPath) {
        tracing::error!(
            target: "dpif",
            "the device for packets that BPF passes up is gone: everything goes on in userspace \
             until the switch is started again, which makes a new one",
        );
        fast.set_miss_device(0);
        let detail = "the device for packets without a flow is gone; a restart makes a new one";
        let mut control = self.control();
        control.give_up(Reason::new(Refusal::TierUnavailable, detail));
        self.close_gates(Refusal::TierUnavailable);
        drop(control);
        self.place_ports();
    }

    fn make_miss_device(
        self: &Arc<Self>,
        fast: &Arc<dyn FastPath>,
        base: &UserspaceDatapath,
    ) -> io::Result<()> {
        let tap = miss::open().map_err(|e| io::Error::other(e.to_string()))?;
        let ifindex = tap.ifindex();
        let handover = MissQueue::new(tap, fast.clone(), Arc::downgrade(self), self.new_giver());
        base.add_miss_source(Box::new(handover))?;
        fast.set_miss_device(ifindex);
        Ok(())
    }

    /// A number for who hands batches over.
    pub(crate) fn new_giver(&self) -> Giver {
        self.givers.fetch_add(1, Ordering::Relaxed)
    }

    /// The fast path, when there is one.
    pub fn fast_path(&self) -> Option<&Arc<dyn FastPath>> {
        self.fast.get()?.as_ref().ok()
    }

    /// Why there is no fast path, when there is none.
    pub fn unavailable(&self) -> Option<Reason> {
        match self.fast.get() {
            None => Some(Control::not_begun()),
            Some(fast) => fast.as_ref().err().cloned(),
        }
    }

    pub(crate) fn gates(&self) -> Arc<Gates> {
        self.gates.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what flows may do from now on.
    pub(crate) fn change_gates(&self, change: impl FnOnce(&mut Gates)) {
        let mut gates = self.gates.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut gates));
        self.changed.store(true, Ordering::Release);
    }

    /// The ports' state; taken before every other lock of this crate.
    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner) // repaired by the next change
    }

    /// Removes everything that would go on forwarding without the daemon.
    pub fn cleanup(&self) {
        self.end(true);
    }

    fn end(&self, cleanup: bool) {
        if let Some(fast) = self.fast_path() {
            fast.set_miss_device(0);
            fast.close(cleanup);
        }
        if cleanup { self.base.cleanup() } else { self.base.shutdown() }
    }

    /// The reason that every flow has when there is no fast path.
    pub(crate) fn no_fast_path(&self) -> Option<Refusal> {
        self.unavailable().map(|reason| reason.refusal)
    }
}

impl Datapath for PlacedDatapath {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn meters(&self) -> Option<&dyn Meters> {
        self.base.meters().map(|_| self as &dyn Meters)
    }

    fn supports(&self, action: &Action) -> bool {
        self.base.supports(action)
    }

    fn maintain(&self) {
        self.base.maintain();
        PlacedDatapath::maintain(self);
    }

    /// Stops; what the fast path holds goes on forwarding.
    fn shutdown(&self) {
        self.end(false);
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
