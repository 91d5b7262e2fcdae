// SPDX-License-Identifier: Apache-2.0
//! [`PerPacket`].

use crate::behaviour::FLOW_LIMIT;
use clock::Clock;
use datapath::{
    Action, Actions, Bonds, Connections, Counters, Datapath, DropReason, FlowDump, FlowStats,
    Flows, LookupStats, Megaflow, Meters, Offloaded, Packets, PortError, PortInfo, PortNo,
    PortSpec, Ports, Refusal, Tier, TierRefusals, Ufid, Upcall, UpcallFactory, UpcallKind,
    Upcaller, exact_mask,
};
use datapath_kernel::{KernelDatapath, Numbering};
use flow::{Field, Key, Mask, Match};
use netdev::{Device, Policing};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// The first identity of the kernel's megaflows: those of the cases are lower.
const FIRST: u128 = 1 << 100;

/// The kernel's datapath for cases whose megaflows match more than the kernel can match in one
/// megaflow. As the switch does for the packet of an upcall, it installs the megaflow with those
/// fields closed that the kernel compares always, and that its actions require. Then the packet is
/// looked up again, so that each packet that a case's megaflow matches meets a megaflow in the
/// kernel. A megaflow that the kernel refuses is run packet by packet.
pub struct PerPacket {
    kernel: Arc<KernelDatapath>,
    clock: Clock,
    own: Weak<PerPacket>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: BTreeMap<Ufid, Wanted>,
    next: u128,
    /// Lookups that are no part of a case.
    extra: u64,
}

/// A megaflow of a case.
struct Wanted {
    flow: Megaflow,
    /// The kernel's megaflows for its packets.
    closed: Vec<(Ufid, Match)>,
    /// The packets that no megaflow of the kernel ran.
    answered: FlowStats,
}

impl PerPacket {
    pub(super) fn over(kernel: Arc<KernelDatapath>, clock: Clock) -> Arc<PerPacket> {
        Arc::new_cyclic(|own| PerPacket {
            kernel,
            clock,
            own: own.clone(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a miss. `None` when no megaflow of the case matches.
    fn answer(&self, upcall: &Upcall<'_>) -> Option<Actions> {
        let mut state = self.state();
        let State { wanted, next, extra } = &mut *state;
        let wanted = wanted.values_mut().find(|w| w.flow.matching.matches(upcall.key))?;
        let closed = Match::new(upcall.key, &closed_mask(upcall.key, wanted.flow.matching.mask()));
        *extra += 1;
        let again: Actions = vec![Action::Recirc(upcall.key.recirc_id.get())].into();
        // A packet that came at the same time has installed it.
        if wanted.closed.iter().any(|(_, matching)| *matching == closed) {
            return Some(again);
        }
        let ufid = Ufid(FIRST + *next);
        *next += 1;
        let actions = wanted.flow.actions.clone();
        let flow = Megaflow { ufid, matching: closed, actions: actions.clone() };
        match self.kernel.install(&flow) {
            Ok(()) => {
                wanted.closed.push((ufid, closed));
                Some(again)
            }
            Err(Refusal::Exists) => Some(again),
            Err(_) => {
                let answered = &mut wanted.answered;
                answered.packets += 1;
                answered.bytes += upcall.packet.len() as u64;
                answered.used = self.clock.now();
                answered.tcp_flags |= upcall.key.tcp_flags.get();
                Some(actions)
            }
        }
    }

    fn stats_of(&self, wanted: &Wanted) -> FlowStats {
        let of_kernel = wanted.closed.iter().filter_map(|(ufid, _)| self.kernel.flow(*ufid));
        of_kernel.map(|dump| dump.stats).fold(wanted.answered, FlowStats::plus)
    }

    fn dump_of(&self, wanted: &Wanted) -> FlowDump {
        FlowDump {
            flow: wanted.flow.clone(),
            stats: self.stats_of(wanted),
            tier: Tier::Kernel,
            refusals: TierRefusals::NONE,
            offloaded: Offloaded::No,
        }
    }
}

/// Closes what the kernel compares always, and what it requires of packets whose headers are set.
fn closed_mask(key: &Key, mask: &Mask) -> Mask {
    let whole = exact_mask(key).0;
    let mut mask = *mask;
    mask.set_exact(Field::PacketType);
    mask.set_exact(Field::EthType);
    mask.0.nw_proto |= whole.nw_proto;
    mask.0.nw_frag |= whole.nw_frag;
    mask.0.nsh.np |= whole.nsh.np;
    Numbering::with_tags(key, &mask)
}

/// Answers what a case's megaflows do not.
struct Above {
    datapath: Weak<PerPacket>,
    inner: Box<dyn Upcaller>,
}

impl Upcaller for Above {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        let answer = self.datapath.upgrade().filter(|_| upcall.kind == UpcallKind::Miss);
        match answer.and_then(|datapath| datapath.answer(upcall)) {
            Some(actions) => actions,
            None => self.inner.upcall(upcall),
        }
    }
}

struct AboveFactory {
    datapath: Weak<PerPacket>,
    inner: Arc<dyn UpcallFactory>,
}

impl UpcallFactory for AboveFactory {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(Above { datapath: self.datapath.clone(), inner: self.inner.upcaller() })
    }
}

impl Ports for PerPacket {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        self.kernel.add_port(spec)
    }
    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        self.kernel.remove_port(port)
    }
    fn ports(&self) -> Vec<PortInfo> {
        self.kernel.ports()
    }
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.kernel.device(port)
    }
    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        self.kernel.set_policing(port, policing)
    }
}

impl Flows for PerPacket {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.wanted.contains_key(&flow.ufid) {
            return Err(Refusal::Exists);
        }
        // The kernel has no limit.
        if state.wanted.len() >= FLOW_LIMIT {
            return Err(Refusal::TableFull);
        }
        if !flow.actions.iter().all(|action| self.kernel.supports(action)) {
            return Err(Refusal::UnsupportedAction);
        }
        let wanted =
            Wanted { flow: flow.clone(), closed: Vec::new(), answered: FlowStats::default() };
        state.wanted.insert(flow.ufid, wanted);
        Ok(())
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        let mut state = self.state();
        let Some(wanted) = state.wanted.get_mut(&ufid) else { return false };
        wanted.flow.actions = actions.clone();
        wanted.closed.iter().all(|(ufid, _)| self.kernel.modify(*ufid, actions))
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let wanted = self.state().wanted.remove(&ufid)?;
        let removed =
            wanted.closed.iter().filter_map(|(ufid, _)| Flows::remove(&*self.kernel, *ufid));
        Some(removed.fold(wanted.answered, FlowStats::plus))
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.state().wanted.get(&ufid).map(|wanted| self.dump_of(wanted))
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.kernel.sweep(&mut |_, _| {});
        let all: Vec<(Ufid, FlowStats)> =
            self.state().wanted.iter().map(|(ufid, w)| (*ufid, self.stats_of(w))).collect();
        all.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }

    fn dump(&self) -> Vec<FlowDump> {
        self.state().wanted.values().map(|wanted| self.dump_of(wanted)).collect()
    }

    fn flush(&self) {
        self.state().wanted.clear();
        self.kernel.flush();
    }
}

impl Packets for PerPacket {
    fn set_upcall_factory(&self, inner: Arc<dyn UpcallFactory>) {
        let datapath = self.own.clone();
        self.kernel.set_upcall_factory(Arc::new(AboveFactory { datapath, inner }));
    }

    /// To the end, with the upcalls.
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        self.kernel.execute(packet, key, actions);
        let is_handler = thread::current().name().is_some_and(|name| name.starts_with("handler"));
        while !is_handler && !self.kernel.is_idle() {
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn inject(&self, packet: Packet, port: PortNo) {
        self.kernel.inject(packet, port);
    }
}

impl Counters for PerPacket {
    fn lookups(&self) -> LookupStats {
        let lookups = self.kernel.lookups();
        LookupStats { misses: lookups.misses - self.state().extra, ..lookups }
    }
    fn drops(&self, reason: DropReason) -> u64 {
        self.kernel.drops(reason)
    }
}

impl Datapath for PerPacket {
    fn name(&self) -> &str {
        self.kernel.name()
    }
    fn meters(&self) -> Option<&dyn Meters> {
        self.kernel.meters()
    }
    fn bonds(&self) -> Option<&dyn Bonds> {
        self.kernel.bonds()
    }
    fn connections(&self) -> Option<&dyn Connections> {
        self.kernel.connections()
    }
    fn supports(&self, action: &Action) -> bool {
        self.kernel.supports(action)
    }
    fn shutdown(&self) {
        self.kernel.shutdown();
    }
}
