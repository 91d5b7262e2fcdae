//! A datapath that fails on purpose.
//!
//! Every fault is one that the contract allows, so that whoever drives a datapath must live with
//! it: an install is refused ([`Refusal::Synthetic`]: no real refusal has that name, so real
//! ones cannot hide behind it), a megaflow that is to be modified or removed turns out to be
//! gone (it really is removed, with its statistics), a packet to be executed is lost, a port
//! cannot be opened. Which calls fail depends on the seed and the order of calls only.

use datapath::{
    Action, Actions, Counters, Datapath, DropReason, FlowDump, FlowStats, Flows, LookupStats,
    Megaflow, Meters, Packets, PortError, PortInfo, PortNo, PortSpec, Ports, Refusal, Ufid,
    UpcallFactory,
};
use flow::Key;
use netdev::Device;
use packet::Packet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many of a thousand calls fail, by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// [`Flows::install`] is refused.
    pub install: u16,
    /// [`Flows::modify`] finds the megaflow gone.
    pub modify: u16,
    /// [`Flows::remove`] finds the megaflow gone.
    pub remove: u16,
    /// [`Packets::execute`] loses the packet.
    pub execute: u16,
    /// [`Ports::add_port`] cannot open the device.
    pub add_port: u16,
}

/// The wrapper.
pub struct Chaos {
    inner: Arc<dyn Datapath>,
    rates: Rates,
    rng: Mutex<fastrand::Rng>,
    faults: AtomicU64,
}

/// The cause in the text of a [`PortError`] that [`Chaos`] made up.
pub const SYNTHETIC: &str = "synthetic fault";

impl Chaos {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Datapath>, rates: Rates, seed: u64) -> Arc<Chaos> {
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Chaos { inner, rates, rng, faults: AtomicU64::new(0) })
    }

    /// Faults made so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    fn fails(&self, rate: u16) -> bool {
        let fails = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u16(0..1000) < rate;
        self.faults.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }
}

impl Ports for Chaos {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        if self.fails(self.rates.add_port) {
            return Err(PortError::Open { name: spec.name.clone(), cause: SYNTHETIC.to_owned() });
        }
        self.inner.add_port(spec)
    }
    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        self.inner.remove_port(port)
    }
    fn ports(&self) -> Vec<PortInfo> {
        self.inner.ports()
    }
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.inner.device(port)
    }
    fn set_policing(&self, port: PortNo, rate_kbps: u32, burst_kb: u32) -> Result<(), PortError> {
        self.inner.set_policing(port, rate_kbps, burst_kb)
    }
}

impl Flows for Chaos {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if self.fails(self.rates.install) {
            Err(Refusal::Synthetic)
        } else {
            self.inner.install(flow)
        }
    }
    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        if self.fails(self.rates.modify) {
            self.inner.remove(ufid);
            return false;
        }
        self.inner.modify(ufid, actions)
    }
    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let stats = self.inner.remove(ufid);
        if self.fails(self.rates.remove) { None } else { stats }
    }
    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.inner.flow(ufid)
    }
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.inner.sweep(each);
    }
    fn dump(&self) -> Vec<FlowDump> {
        self.inner.dump()
    }
    fn flush(&self) {
        self.inner.flush();
    }
}

impl Packets for Chaos {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.inner.set_upcall_factory(factory);
    }
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        if !self.fails(self.rates.execute) {
            self.inner.execute(packet, key, actions);
        }
    }
    fn inject(&self, packet: Packet, port: PortNo) {
        self.inner.inject(packet, port);
    }
}

impl Counters for Chaos {
    fn lookups(&self) -> LookupStats {
        self.inner.lookups()
    }
    fn drops(&self, reason: DropReason) -> u64 {
        self.inner.drops(reason)
    }
}

impl Datapath for Chaos {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn meters(&self) -> Option<&dyn Meters> {
        self.inner.meters()
    }
    fn supports(&self, action: &Action) -> bool {
        self.inner.supports(action)
    }
    fn shutdown(&self) {
        self.inner.shutdown();
    }
}
