// SPDX-License-Identifier: Apache-2.0
//! A datapath that fails on purpose.
//!
//! The contract allows every fault, so each user of a datapath must cope with it:
//!
//! * An install or a meter is refused ([`Refusal::Synthetic`]: no real refusal has that name, so
//!   the faults cannot mask real ones).
//! * A megaflow that is to be modified or removed turns out to be gone (it really is removed, with
//!   its statistics).
//! * A sweep leaves a megaflow out.
//! * A packet to be executed is lost.
//! * An upcall is lost with its packet, or made twice.
//! * A port cannot be opened or closed.
//! * Housekeeping takes long.
//! * Another thread acts in between.
//!
//! The choice of the calls that fail depends only on the seed and the order of calls.

use datapath::{
    Action, Actions, Counters, Datapath, DropReason, FlowDump, FlowStats, Flows, LookupStats,
    Megaflow, MeterConfig, MeterStats, Meters, Packets, PortError, PortInfo, PortNo, PortSpec,
    Ports, Refusal, SequenceNumbers, Ufid, Upcall, UpcallFactory, Upcaller,
};
use flow::Key;
use netdev::{Device, Policing};
use packet::Packet;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures per thousand calls, by operation.
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
    /// [`Flows::sweep`] leaves out a megaflow, as if it were just coming or going.
    pub sweep: u16,
    /// [`Ports::add_port`] cannot open the device.
    pub add_port: u16,
    /// [`Ports::remove_port`] leaves the port.
    pub remove_port: u16,
    /// [`Meters::set`] is refused, [`Meters::remove`] finds the meter gone.
    pub meter: u16,
    /// An upcall is not made; its packet is lost.
    pub lost_upcall: u16,
    /// An upcall is made twice; the second answer counts.
    pub double_upcall: u16,
}

impl Rates {
    /// Every operation fails at this rate, but upcalls.
    pub fn calls(rate: u16) -> Rates {
        Rates {
            install: rate,
            modify: rate,
            remove: rate,
            execute: rate,
            sweep: rate,
            add_port: rate,
            remove_port: rate,
            meter: rate,
            ..Rates::default()
        }
    }
}

/// A wrapper around a datapath that makes a share of its operations fail.
pub struct Chaos {
    inner: Arc<dyn Datapath>,
    rates: Rates,
    dice: Arc<Dice>,
    lost: Arc<AtomicU64>,
    doubled: Arc<AtomicU64>,
    /// Set while housekeeping must not end; housekeeping waits until it is clear.
    held_up: AtomicBool,
    waits: AtomicBool,
    /// The action of another thread; see [`Chaos::interrupt`].
    other: Mutex<Option<Act>>,
    /// Moved megaflows that the last sweep has left out.
    left_out: Mutex<BTreeSet<Ufid>>,
}

type Act = Box<dyn FnOnce() + Send>;

/// Decides whether a call fails, and counts the fault.
struct Dice {
    rng: Mutex<fastrand::Rng>,
    faults: AtomicU64,
}

impl Dice {
    fn fails(&self, rate: u16) -> bool {
        let fails = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u16(0..1000) < rate;
        self.faults.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }
}

/// Longest time that housekeeping is held up, so that a failing test ends.
const MOST_HELD_UP: Duration = Duration::from_secs(30);

/// The cause in the text of a [`PortError`] that [`Chaos`] made up.
pub const SYNTHETIC: &str = "synthetic fault";

impl Chaos {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Datapath>, rates: Rates, seed: u64) -> Arc<Chaos> {
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        let dice = Arc::new(Dice { rng, faults: AtomicU64::new(0) });
        Arc::new(Chaos {
            inner,
            rates,
            dice,
            lost: Arc::default(),
            doubled: Arc::default(),
            held_up: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            other: Mutex::default(),
            left_out: Mutex::default(),
        })
    }

    /// Returns the number of faults made so far.
    pub fn faults(&self) -> u64 {
        self.dice.faults.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that were lost so far: by [`Packets::execute`], or with their
    /// upcall.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// With `held_up`, holds up housekeeping that begins from now on, until a call without it or
    /// until half a minute is over. This simulates that loading programs takes long.
    pub fn hold_up_housekeeping(&self, held_up: bool) {
        self.held_up.store(held_up, Ordering::Release);
    }

    /// Returns whether housekeeping is under way and held up.
    pub fn housekeeping_waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Runs `act`, as another thread might, after the next sweep or removal of a megaflow and
    /// before its caller has the result.
    pub fn interrupt(&self, act: impl FnOnce() + Send + 'static) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
    }

    /// Runs the action of the other thread, once, at a point where the caller may be interrupted.
    fn let_others(&self) {
        let act = self.other.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = act {
            act();
        }
    }

    /// Returns the number of upcalls that were made twice so far.
    pub fn doubled(&self) -> u64 {
        self.doubled.load(Ordering::Relaxed)
    }

    fn fails(&self, rate: u16) -> bool {
        self.dice.fails(rate)
    }

    /// Does [`Packets::execute`] and returns false when the packet was lost.
    pub fn try_execute(&self, packet: Packet, key: &Key, actions: &[Action]) -> bool {
        if self.fails(self.rates.execute) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.inner.execute(packet, key, actions);
        true
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
        if self.fails(self.rates.remove_port) {
            let name = format!("port {port}");
            return Err(PortError::Option { name, problem: SYNTHETIC.to_owned() });
        }
        self.inner.remove_port(port)
    }
    fn ports(&self) -> Vec<PortInfo> {
        self.inner.ports()
    }
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.inner.device(port)
    }
    fn upcalls(&self, port: PortNo) -> Option<u64> {
        self.inner.upcalls(port)
    }
    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        self.inner.share_sequence(port, numbers);
    }
    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        self.inner.set_policing(port, policing)
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
        self.let_others();
        if self.fails(self.rates.remove) { None } else { stats }
    }
    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.inner.flow(ufid)
    }
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.inner.sweep(&mut |ufid, stats| {
            if !self.fails(self.rates.sweep) {
                each(ufid, stats);
            }
        });
        self.let_others();
    }
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let lock = || self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *lock());
        self.inner.sweep_moved(&mut |ufid, stats| {
            before.remove(&ufid);
            if self.fails(self.rates.sweep) {
                lock().insert(ufid);
            } else {
                each(ufid, stats);
            }
        });
        self.inner.stats_of(&before.into_iter().collect::<Vec<_>>(), each);
        self.let_others();
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
        self.inner.set_upcall_factory(Arc::new(Faulty {
            factory,
            rates: self.rates,
            dice: Arc::clone(&self.dice),
            lost: Arc::clone(&self.lost),
            doubled: Arc::clone(&self.doubled),
        }));
    }
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        self.try_execute(packet, key, actions);
    }
    fn inject(&self, packet: Packet, port: PortNo) {
        self.inner.inject(packet, port);
    }
    fn megaflows_used(&self, port: PortNo, n: u64) {
        self.inner.megaflows_used(port, n);
    }
}

impl Counters for Chaos {
    fn lookups(&self) -> LookupStats {
        self.inner.lookups()
    }
    fn drops(&self, reason: DropReason) -> u64 {
        self.inner.drops(reason)
    }

    fn tunnel_checks(&self) -> tunnel::Checks {
        self.inner.tunnel_checks()
    }
}

/// Only for a datapath that has them; see [`Datapath::meters`].
impl Meters for Chaos {
    fn limits(&self) -> (u32, u8) {
        self.inner.meters().map_or((0, 0), |m| m.limits())
    }
    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        if self.fails(self.rates.meter) {
            return Err(Refusal::Synthetic);
        }
        self.inner.meters().map_or(Err(Refusal::UnsupportedAction), |m| m.set(id, config))
    }
    fn remove(&self, id: u32) -> Option<MeterStats> {
        let stats = self.inner.meters().and_then(|m| m.remove(id));
        if self.fails(self.rates.meter) { None } else { stats }
    }
    fn stats(&self, id: u32) -> Option<MeterStats> {
        self.inner.meters()?.stats(id)
    }
}

/// Makes upcallers that do not always call.
struct Faulty {
    factory: Arc<dyn UpcallFactory>,
    rates: Rates,
    dice: Arc<Dice>,
    lost: Arc<AtomicU64>,
    doubled: Arc<AtomicU64>,
}

impl UpcallFactory for Faulty {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(FaultyUpcaller {
            inner: self.factory.upcaller(),
            rates: self.rates,
            dice: Arc::clone(&self.dice),
            lost: Arc::clone(&self.lost),
            doubled: Arc::clone(&self.doubled),
        })
    }
}

struct FaultyUpcaller {
    inner: Box<dyn Upcaller>,
    rates: Rates,
    dice: Arc<Dice>,
    lost: Arc<AtomicU64>,
    doubled: Arc<AtomicU64>,
}

impl Upcaller for FaultyUpcaller {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        if self.dice.fails(self.rates.lost_upcall) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Arc::new([Action::Drop(DropReason::UpcallLimit)]);
        }
        if self.dice.fails(self.rates.double_upcall) {
            self.doubled.fetch_add(1, Ordering::Relaxed);
            self.inner.upcall(upcall);
        }
        self.inner.upcall(upcall)
    }
}

impl Datapath for Chaos {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn meters(&self) -> Option<&dyn Meters> {
        self.inner.meters().map(|_| self as &dyn Meters)
    }
    fn bonds(&self) -> Option<&dyn datapath::Bonds> {
        self.inner.bonds()
    }
    fn connections(&self) -> Option<&dyn datapath::Connections> {
        self.inner.connections()
    }

    fn supports(&self, action: &Action) -> bool {
        self.inner.supports(action)
    }
    fn maintain(&self) {
        let begin = Instant::now();
        while self.held_up.load(Ordering::Acquire) && begin.elapsed() < MOST_HELD_UP {
            self.waits.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.waits.store(false, Ordering::Release);
        self.inner.maintain();
    }
    fn shutdown(&self) {
        self.inner.shutdown();
    }
}
