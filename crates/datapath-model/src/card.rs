// SPDX-License-Identifier: Apache-2.0
//! A made-up offload provider: a card that takes, refuses and loses flows as the test sets it.
//!
//! It follows the contract of [`datapath::offload`] and is the smallest example of it. It has no
//! miss channel, since packets without a flow reach the userspace datapath by themselves. It has no
//! part in the ownership of received packets. A fixture shows it each packet first
//! ([`Card::receive`]); tests without packets count by hand ([`Card::count`]).

use clock::Clock;
use datapath::offload::{Attached, HeldFlow, OffloadPort, PortSocket, Reason, TierState};
use datapath::{
    Action, Actions, AdoptedPort, BondTable, FlowStats, LookupStats, Megaflow, OffloadProvider,
    PortNo, Refusal, Tier, TierSet, Ufid, Verdict,
};
use flow::Key;
use flow::extract::key_of;
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Run = dyn Fn(Packet, &Key, &[Action]) + Send + Sync;
type Rule = dyn Fn(&Megaflow) -> Option<Refusal> + Send + Sync;

/// A made-up offload card, controlled by tests.
pub struct Card {
    tier: Tier,
    clock: Clock,
    /// Ports that another daemon left.
    adopted: Vec<AdoptedPort>,
    state: Mutex<State>,
}

struct State {
    ports: BTreeMap<PortNo, u32>,
    flows: BTreeMap<Ufid, Entry>,
    lost: Vec<Ufid>,
    capacity: usize,
    is_slow: bool,
    is_gone: bool,
    heeds_settings: bool,
    needs_taker: bool,
    /// Tunnel ports, with their devices; `None` when the card pops no packets.
    tunnels: Option<BTreeMap<PortNo, Option<u32>>>,
    hits: u64,
    closed: Option<bool>,
    /// Names of interfaces that are not ports of the card.
    foreign: Vec<String>,
    refuse: Arc<Rule>,
    run: Arc<Run>,
}

#[derive(Clone)]
struct Entry {
    flow: Megaflow,
    stats: FlowStats,
    /// Set when the card forgot the flow.
    is_lost: bool,
}

impl Card {
    /// Returns a card for at most `capacity` flows, which is the tier `tier`.
    pub fn new(tier: Tier, clock: Clock, capacity: usize) -> Arc<Card> {
        Card::with(tier, clock, capacity, Vec::new(), BTreeMap::new())
    }

    /// Returns the card as the next daemon finds it: with the flows and ports of this card, and
    /// without the faults that tests set.
    pub fn restarted(&self) -> Arc<Card> {
        let state = self.state();
        let port =
            |(number, ifindex): (&PortNo, &u32)| AdoptedPort { number: *number, ifindex: *ifindex };
        let ports = state.ports.iter().map(port).collect();
        let is_there = |(_, entry): &(&Ufid, &Entry)| !entry.is_lost;
        let flows = state.flows.iter().filter(is_there).map(|(ufid, e)| (*ufid, e.clone()));
        Card::with(self.tier, self.clock.clone(), state.capacity, ports, flows.collect())
    }

    fn with(
        tier: Tier,
        clock: Clock,
        capacity: usize,
        adopted: Vec<AdoptedPort>,
        flows: BTreeMap<Ufid, Entry>,
    ) -> Arc<Card> {
        let state = State {
            ports: adopted.iter().map(|port| (port.number, port.ifindex)).collect(),
            flows,
            lost: Vec::new(),
            capacity,
            is_slow: false,
            is_gone: false,
            heeds_settings: true,
            needs_taker: false,
            tunnels: None,
            hits: 0,
            closed: None,
            foreign: Vec::new(),
            refuse: Arc::new(|_| None),
            run: Arc::new(|_, _, _| {}),
        };
        Arc::new(Card { tier, clock, adopted, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) -> TierSet {
        TierSet::of(self.tier)
    }

    /// Makes the card refuse the flows for which `rule` has a reason.
    pub fn refuse(&self, rule: impl Fn(&Megaflow) -> Option<Refusal> + Send + Sync + 'static) {
        self.state().refuse = Arc::new(rule);
    }

    /// Makes the card run actions by `run`.
    pub fn run_by(&self, run: impl Fn(Packet, &Key, &[Action]) + Send + Sync + 'static) {
        self.state().run = Arc::new(run);
    }

    /// Makes the card one that takes packets after the socket saw them
    /// ([`Attached::needs_taker`]).
    pub fn need_taker(&self) {
        self.state().needs_taker = true;
    }

    /// Gives the card room for this many flows.
    pub fn set_capacity(&self, capacity: usize) {
        self.state().capacity = capacity;
    }

    /// Sets whether installations take long; see [`OffloadProvider::installs_later`].
    pub fn set_slow(&self, is_slow: bool) {
        self.state().is_slow = is_slow;
    }

    /// Makes the card treat ports of this name as not its own, when they are attached next.
    pub fn exclude(&self, name: &str) {
        self.state().foreign.push(name.to_owned());
    }

    /// Sets whether the card takes no port when ports are attached next.
    pub fn set_gone(&self, is_gone: bool) {
        self.state().is_gone = is_gone;
    }

    /// Makes the card take ports regardless of their `other_config:tier`, which then concerns
    /// slower tiers only.
    pub fn ignore_settings(&self) {
        self.state().heeds_settings = false;
    }

    /// Makes the card take flows of tunnels, and of packets to them.
    pub fn pop_tunnels(&self) {
        self.state().tunnels = Some(BTreeMap::new());
    }

    /// Returns the tunnel ports of the card and the devices of the kernel for them.
    pub fn tunnels(&self) -> Vec<(PortNo, Option<u32>)> {
        self.state().tunnels.iter().flatten().map(|(port, device)| (*port, *device)).collect()
    }

    /// Makes the card forget a flow, as a card that is reset does. The next sweep notices the loss.
    pub fn lose(&self, ufid: Ufid) {
        if let Some(entry) = self.state().flows.get_mut(&ufid) {
            entry.is_lost = true;
        }
    }

    /// Counts packets of 100 bytes that meet a flow in the card.
    ///
    /// # Panics
    ///
    /// When the card does not have the flow.
    pub fn count(&self, ufid: Ufid, packets: u64) {
        let now = self.clock.now();
        let mut state = self.state();
        let entry = state.flows.get_mut(&ufid).filter(|entry| !entry.is_lost);
        let stats = &mut entry.expect("a flow of the card").stats;
        stats.packets += packets;
        stats.bytes += 100 * packets;
        stats.used = now;
    }

    /// Returns true when the card has the flow.
    pub fn has(&self, ufid: Ufid) -> bool {
        self.state().flows.get(&ufid).is_some_and(|entry| !entry.is_lost)
    }

    /// Returns the ports of the card.
    pub fn ports(&self) -> Vec<PortNo> {
        self.state().ports.keys().copied().collect()
    }

    /// Returns whether the card was closed with cleanup, when it was closed.
    pub fn closed(&self) -> Option<bool> {
        self.state().closed
    }

    /// Simulates a packet's arrival at a port. Returns the packet when no flow of the card takes
    /// it.
    pub fn receive(&self, port: PortNo, packet: Packet) -> Option<Packet> {
        // The host handles a segment that is still to be cut, and a checksum to be finished.
        if packet.offload != packet::Offload::default() {
            return Some(packet);
        }
        let key = key_of(packet.data(), port.0);
        let mut state = self.state();
        if !state.ports.contains_key(&port) {
            return Some(packet);
        }
        let mut flows = state.flows.values_mut();
        let found = flows.find(|entry| !entry.is_lost && entry.flow.matching.matches(&key));
        let Some(entry) = found else { return Some(packet) };
        entry.stats.packets += 1;
        entry.stats.bytes += packet.len() as u64;
        entry.stats.used = self.clock.now();
        entry.stats.tcp_flags |= key.tcp_flags.get();
        let actions = entry.flow.actions.clone();
        state.hits += 1;
        let run = state.run.clone();
        drop(state);
        run(packet, &key, &actions);
        None
    }

    fn why_not(&self, port: &OffloadPort<'_>) -> Result<(), Reason> {
        port.ingress.map_err(Reason::clone)?;
        let state = self.state();
        if state.is_gone || state.foreign.iter().any(|name| name == port.name) {
            return Err(Reason::new(Refusal::DeviceKind, "no port of the card"));
        }
        if state.heeds_settings && !port.settings.allow(self.tier) {
            return Err(Reason::new(Refusal::TierSetting, "other_config:tier of this port"));
        }
        Ok(())
    }
}

impl OffloadProvider for Card {
    fn tiers(&self) -> TierSet {
        self.set()
    }

    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        self.adopted.clone()
    }

    fn attach(&self, port: &OffloadPort<'_>, _socket: &mut dyn PortSocket) -> Attached {
        let state = match self.why_not(port) {
            Ok(()) => {
                self.state().ports.insert(port.number, port.ifindex.unwrap_or(0));
                let (ingress, output) = (Ok(()), Ok(()));
                TierState { tier: self.tier, ingress, output, how: "", is_expected: true }
            }
            Err(reason) => {
                self.state().ports.remove(&port.number);
                let is_own = reason.refusal != Refusal::DeviceKind;
                TierState::refused(self.tier, reason, is_own)
            }
        };
        Attached {
            tiers: vec![state],
            takes_receive: false,
            is_moving: false,
            affects_others: false,
            needs_taker: self.state().needs_taker,
        }
    }

    fn release(&self, port: &OffloadPort<'_>, _socket: &mut dyn PortSocket) {
        self.state().ports.remove(&port.number);
    }

    fn remove_port(&self, port: PortNo) {
        let mut state = self.state();
        state.ports.remove(&port);
        if let Some(tunnels) = &mut state.tunnels {
            tunnels.remove(&port);
        }
    }

    fn add_tunnel(&self, port: PortNo, _config: &tunnel::PortConfig) -> TierSet {
        let mut state = self.state();
        let Some(tunnels) = &mut state.tunnels else { return TierSet::NONE };
        tunnels.entry(port).or_default();
        self.set()
    }

    fn follow_tunnel_device(&self, port: PortNo, device: Option<u32>) {
        if let Some(tunnel) = self.state().tunnels.as_mut().and_then(|all| all.get_mut(&port)) {
            *tunnel = device;
        }
    }

    fn update_port(&self, _port: PortNo, _mtu: u32, _is_up: bool) {}

    /// The function that runs the actions chooses the member.
    fn set_bond(&self, _id: u32, _table: &BondTable) -> Result<(), Refusal> {
        Ok(())
    }

    fn installs_later(&self) -> bool {
        self.state().is_slow
    }

    fn suits(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        let refuse = self.state().refuse.clone();
        match refuse(flow) {
            Some(refusal) => Verdict::refused(allowed, refusal),
            None => Verdict::granted(allowed),
        }
    }

    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        let verdict = self.suits(flow, allowed);
        if verdict.tiers.is_empty() {
            return verdict;
        }
        let mut state = self.state();
        if state.flows.contains_key(&flow.ufid) {
            return Verdict::refused(allowed, Refusal::Exists);
        }
        if state.flows.len() >= state.capacity {
            return Verdict::refused(allowed, Refusal::TableFull);
        }
        let stats = FlowStats::default();
        state.flows.insert(flow.ufid, Entry { flow: flow.clone(), stats, is_lost: false });
        verdict
    }

    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        let verdict = self.suits(flow, allowed);
        match self.state().flows.get_mut(&flow.ufid) {
            _ if verdict.tiers.is_empty() => verdict,
            Some(entry) if !entry.is_lost => {
                entry.flow = flow.clone();
                verdict
            }
            _ => Verdict::refused(allowed, Refusal::Lost),
        }
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        for ufid in ufids {
            let removed = self.state().flows.remove(ufid);
            if let Some(entry) = removed {
                each(*ufid, entry.stats);
            }
        }
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let flows = {
            let mut state = self.state();
            let flows: Vec<(Ufid, FlowStats, bool)> =
                state.flows.iter().map(|(ufid, e)| (*ufid, e.stats, e.is_lost)).collect();
            state.lost = flows.iter().filter(|(.., lost)| *lost).map(|(ufid, ..)| *ufid).collect();
            flows
        };
        for (ufid, stats, _) in flows {
            each(ufid, stats);
        }
    }

    fn take_lost(&self) -> Vec<Ufid> {
        std::mem::take(&mut self.state().lost)
    }

    fn flow(&self, ufid: Ufid) -> Option<HeldFlow> {
        let state = self.state();
        let entry = state.flows.get(&ufid)?;
        let matching = entry.flow.matching;
        Some(HeldFlow { matching, tiers: self.set(), stats: entry.stats })
    }

    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        self.state().flows.get(&ufid).map(|entry| entry.flow.actions.clone())
    }

    fn does(&self, ufid: Ufid, actions: &Actions) -> bool {
        let state = self.state();
        let entry = state.flows.get(&ufid);
        entry.is_some_and(|entry| !entry.is_lost && entry.flow.actions == *actions)
    }

    fn len(&self) -> usize {
        self.state().flows.len()
    }

    fn lookups(&self) -> LookupStats {
        let state = self.state();
        LookupStats { hits: state.hits, flows: state.flows.len(), ..LookupStats::default() }
    }

    fn close(&self, cleanup: bool) {
        let mut state = self.state();
        state.closed = Some(cleanup);
        if cleanup {
            state.flows.clear();
            state.ports.clear();
        }
    }
}
