// SPDX-License-Identifier: Apache-2.0
//! A fixture whose datapath fails on purpose, and a driver that is not put off by that.

use super::{Fixture, Ran};
use clock::Clock;
use datapath::{
    Action, Actions, Counters, Datapath, DropReason, FlowDump, FlowStats, Flows, LookupStats,
    Megaflow, MeterConfig, MeterStats, Meters, Packets, PortError, PortInfo, PortNo, PortSpec,
    Ports, Refusal, Ufid, UpcallFactory,
};
use datapath_model::chaos::SYNTHETIC;
use datapath_model::{Chaos, Rates};
use flow::Key;
use netdev::{Device, Policing};
use packet::Packet;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many of a thousand calls fail.
const RATE: u16 = 300;

/// Any fixture, with faults between it and the cases.
pub struct Chaotic<F> {
    inner: F,
    datapath: Arc<dyn Datapath>,
    chaos: Arc<Chaos>,
}

impl<F: Fixture> Chaotic<F> {
    /// Wraps a fixture; the seed decides what fails.
    pub fn new(inner: F, seed: u64) -> Chaotic<F> {
        let chaos = Chaos::new(inner.datapath().clone(), Rates::calls(RATE), seed);
        let datapath = Arc::new(Driver { chaos: chaos.clone(), counted: Mutex::default() });
        Chaotic { inner, datapath, chaos }
    }

    /// Returns the source of faults, so that a test can read the number of faults later.
    pub fn chaos(&self) -> Arc<Chaos> {
        self.chaos.clone()
    }
}

impl<F: Fixture> Fixture for Chaotic<F> {
    fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.datapath
    }
    fn clock(&self) -> &Clock {
        self.inner.clock()
    }
    fn pass(&self, millis: u64) {
        self.inner.pass(millis);
    }
    fn maintain(&self) {
        self.inner.maintain();
    }
    fn ran(&self) -> Option<Ran> {
        self.inner.ran()
    }
    fn inject(&self, port: PortNo, packet: Packet) {
        self.inner.inject(port, packet);
    }
    fn carries(&self, frame: &[u8]) -> bool {
        self.inner.carries(frame)
    }
    fn send(&self, port: PortNo, packets: Vec<Packet>) {
        self.inner.send(port, packets);
    }
    fn inject_all(&self, port: PortNo, packets: Vec<Packet>) {
        self.inner.inject_all(port, packets);
    }
    fn collect(&self, port: PortNo) -> Vec<Vec<u8>> {
        self.inner.collect(port)
    }
}

/// Does again what failed, and remembers what a megaflow counted before a fault took it. Real
/// refusals and errors go through.
struct Driver {
    chaos: Arc<Chaos>,
    /// Statistics of megaflows that were removed and installed again since.
    counted: Mutex<HashMap<Ufid, FlowStats>>,
}

impl Driver {
    fn counted(&self) -> MutexGuard<'_, HashMap<Ufid, FlowStats>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With what the megaflow counted in earlier lives.
    fn whole(&self, ufid: Ufid, now: FlowStats) -> FlowStats {
        let Some(before) = self.counted().get(&ufid).copied() else { return now };
        FlowStats {
            packets: before.packets + now.packets,
            bytes: before.bytes + now.bytes,
            used: before.used.max(now.used),
            tcp_flags: before.tcp_flags | now.tcp_flags,
        }
    }
}

/// Calls until it is no made-up error.
fn insist<T>(call: impl Fn() -> Result<T, PortError>) -> Result<T, PortError> {
    loop {
        match call() {
            Err(PortError::Open { cause, .. }) if cause == SYNTHETIC => {}
            Err(PortError::Option { problem, .. }) if problem == SYNTHETIC => {}
            result => return result,
        }
    }
}

impl Ports for Driver {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        insist(|| self.chaos.add_port(spec))
    }
    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        insist(|| self.chaos.remove_port(port))
    }
    fn ports(&self) -> Vec<PortInfo> {
        self.chaos.ports()
    }
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.chaos.device(port)
    }
    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        self.chaos.set_policing(port, policing)
    }
}

impl Flows for Driver {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        loop {
            match self.chaos.install(flow) {
                Err(Refusal::Synthetic) => {}
                result => return result,
            }
        }
    }
    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        let Some(before) = self.flow(ufid) else { return self.chaos.modify(ufid, actions) };
        if self.chaos.modify(ufid, actions) {
            return true;
        }
        assert!(self.chaos.flow(ufid).is_none(), "false means that it is not there");
        self.counted().insert(ufid, before.stats);
        let flow = Megaflow { actions: actions.clone(), ..before.flow };
        self.install(&flow).is_ok()
    }
    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let before = self.flow(ufid).map(|f| f.stats);
        let last = Flows::remove(&*self.chaos, ufid).map(|stats| self.whole(ufid, stats));
        assert!(self.chaos.flow(ufid).is_none(), "after a removal nothing is there");
        self.counted().remove(&ufid);
        last.or(before)
    }
    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        let mut dump = self.chaos.flow(ufid)?;
        dump.stats = self.whole(ufid, dump.stats);
        Some(dump)
    }
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut left: HashSet<Ufid> = self.chaos.dump().iter().map(|f| f.flow.ufid).collect();
        while !left.is_empty() {
            self.chaos.sweep(&mut |ufid, stats| {
                if left.remove(&ufid) {
                    each(ufid, self.whole(ufid, stats));
                }
            });
            left.retain(|ufid| self.chaos.flow(*ufid).is_some());
        }
    }
    fn dump(&self) -> Vec<FlowDump> {
        let mut flows = self.chaos.dump();
        flows.iter_mut().for_each(|f| f.stats = self.whole(f.flow.ufid, f.stats));
        flows
    }
    fn flush(&self) {
        self.chaos.flush();
        self.counted().clear();
    }
}

impl Packets for Driver {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.chaos.set_upcall_factory(factory);
    }
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        while !self.chaos.try_execute(packet.clone(), key, actions) {}
    }
    fn inject(&self, packet: Packet, port: PortNo) {
        self.chaos.inject(packet, port);
    }
}

impl Meters for Driver {
    fn limits(&self) -> (u32, u8) {
        self.chaos.limits()
    }
    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        loop {
            match Meters::set(&*self.chaos, id, config) {
                Err(Refusal::Synthetic) => {}
                result => return result,
            }
        }
    }
    fn remove(&self, id: u32) -> Option<MeterStats> {
        let before = self.chaos.stats(id);
        Meters::remove(&*self.chaos, id).or(before)
    }
    fn stats(&self, id: u32) -> Option<MeterStats> {
        self.chaos.stats(id)
    }
}

impl Counters for Driver {
    fn lookups(&self) -> LookupStats {
        self.chaos.lookups()
    }
    fn drops(&self, reason: DropReason) -> u64 {
        self.chaos.drops(reason)
    }
    fn tunnel_checks(&self) -> tunnel::Checks {
        self.chaos.tunnel_checks()
    }
}

impl Datapath for Driver {
    fn name(&self) -> &str {
        self.chaos.name()
    }
    fn meters(&self) -> Option<&dyn Meters> {
        self.chaos.meters().map(|_| self as &dyn Meters)
    }
    fn bonds(&self) -> Option<&dyn datapath::Bonds> {
        self.chaos.bonds()
    }
    fn connections(&self) -> Option<&dyn datapath::Connections> {
        self.chaos.connections()
    }

    fn supports(&self, action: &Action) -> bool {
        self.chaos.supports(action)
    }
    fn maintain(&self) {
        self.chaos.maintain();
    }
    fn shutdown(&self) {
        self.chaos.shutdown();
    }
}
