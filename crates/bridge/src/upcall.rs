// SPDX-License-Identifier: Apache-2.0
//! Upcalls: a packet without a megaflow is translated, forwarded, and its megaflow installed.
//!
//! Runs on packet threads. An upcall reads the newest snapshot and installs through the datapath's
//! `Flows`. It waits for the control thread only where a packet has made a flow (`learn`), which
//! must be there before the packet leaves, and for a short time (`Sender::await_learned`). When
//! the table is at its limit, or the datapath refuses, packets are still forwarded, each by its own
//! translation.

mod seen_filter;

use crate::effect::{self, Effect};
use crate::event::Event;
use crate::export::{self, Egress, is_single_output};
use crate::intern::RecentInterner;
use crate::megaflows::Entry;
use crate::recirc::RecircRef;
use crate::schedule::Tick;
use crate::slow_path::SlowPath;
use crate::snapshot::Snapshot;
use crate::translate::{self, Translation};
use classifier::MiniMatch;
use clock::Millis;
use datapath::{
    Action, Actions, Datapath, DropReason, FlowStats, Megaflow, PortNo, Refusal, Upcall,
    UpcallFactory, UpcallKind, Upcaller, Userdata, exact_mask, is_exact,
};
use flow::Key;
use openflow::PortNo as OfPort;
use rcu::Reader;
use seen_filter::SeenOnce;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of megaflows that a port may have for each one that there is still room for. One port
/// alone gets eight ninths of the limit.
const PORT_TO_ROOM: usize = 8;

impl SlowPath {
    /// Joins the slow path with the datapath that it serves: from now on upcalls are answered.
    /// Called once.
    pub(crate) fn attach(self: &Arc<Self>, datapath: Arc<dyn Datapath>) {
        if self.attached.set(&datapath) {
            datapath.set_upcall_factory(Arc::new(Factory(Arc::clone(self))));
        }
    }

    /// Counts a megaflow that was made narrower, and logs it at a limited rate.
    fn count_narrowed(&self, now: Millis) {
        self.counters.narrowed.fetch_add(1, Ordering::Relaxed);
        if self.narrowed_warning.is_due(now) {
            tracing::warn!(
                target: "ofproto",
                "the datapath has as many masks as it may have: new megaflows match every field \
                 (counter upcall_narrowed); ovs-appctl dpctl/dump-flows shows whose they are",
            );
        }
    }

    /// Returns true when `port` may have one more megaflow: it may have [`PORT_TO_ROOM`] for each
    /// that there is still room for. So one port leaves room for others, however many flows it has.
    fn has_share(&self, port: PortNo) -> bool {
        let limit = self.flow_limit.load(Ordering::Relaxed);
        let room = limit.saturating_sub(self.megaflows.len());
        self.megaflows.of_port(port) < room.saturating_mul(PORT_TO_ROOM)
    }
}

struct Factory(Arc<SlowPath>);

impl UpcallFactory for Factory {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(Handler {
            learns: false,
            snapshot: self.0.published.reader(),
            slow: Arc::clone(&self.0),
            seen: SeenOnce::default(),
            interner: RecentInterner::default(),
        })
    }
}

struct Handler {
    /// Whether a packet of this batch has made a flow.
    learns: bool,
    slow: Arc<SlowPath>,
    snapshot: Reader<Snapshot>,
    seen: SeenOnce,
    interner: RecentInterner,
}

/// A megaflow to be installed.
struct New<'a> {
    /// Key of the packet for which the megaflow was made.
    key: &'a Key,
    megaflow: Megaflow,
    effects: Vec<Effect>,
    recirc: Vec<RecircRef>,
    /// Version of the snapshot on which it was translated.
    version: u64,
    now: Millis,
}

impl Upcaller for Handler {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        let (actions, new) = self.answer(upcall);
        self.await_learned();
        if let Some(new) = new {
            self.install_all(vec![new]);
        }
        actions
    }

    fn upcalls(&mut self, upcalls: &[Upcall<'_>], answers: &mut Vec<Actions>) {
        let mut all = Vec::with_capacity(upcalls.len());
        if upcalls.len() > 1 {
            self.prefetch(upcalls);
        }
        for upcall in upcalls {
            let (actions, new) = self.answer(upcall);
            answers.push(actions);
            all.extend(new);
        }
        self.await_learned();
        self.install_all(all);
    }
}

impl Handler {
    /// Prefetches the rules of table 0 that packets from ports match.
    fn prefetch(&mut self, upcalls: &[Upcall<'_>]) {
        let snapshot = self.snapshot.read();
        let locate = |upcall: &Upcall<'_>| {
            let located = translate::locate(snapshot, upcall.key, &self.slow.recirc).ok()?;
            located.frozen.is_none().then_some(located)
        };
        let located: Vec<_> = upcalls.iter().filter_map(locate).collect();
        for same in located.chunk_by(|a, b| a.bridge == b.bridge) {
            let bridge = same.first().and_then(|located| snapshot.bridge(located.bridge));
            if let Some(table) = bridge.and_then(|bridge| bridge.tables.get(0)) {
                let keys: Vec<&Key> = same.iter().map(|located| &located.key).collect();
                table.rules.prefetch(&keys);
            }
        }
    }

    /// Returns the actions for the packet, and the megaflow to be made for packets that follow.
    fn answer<'a>(&mut self, upcall: &Upcall<'a>) -> (Actions, Option<New<'a>>) {
        match upcall.kind {
            UpcallKind::Miss => self.miss(upcall),
            UpcallKind::Action(Userdata::SlowPath { .. }) => (self.slow_path(upcall), None),
            UpcallKind::Action(userdata @ Userdata::Controller { .. }) => {
                self.controller(upcall, userdata);
                (Arc::new([]), None)
            }
            UpcallKind::Action(Userdata::Sflow { vlan_tci, output }) => {
                self.sflow(upcall, *vlan_tci, *output);
                (Arc::new([]), None)
            }
            UpcallKind::Action(
                userdata @ (Userdata::Ipfix { .. } | Userdata::FlowSample { .. }),
            ) => {
                self.ipfix(upcall, userdata);
                (Arc::new([]), None)
            }
        }
    }

    fn miss<'a>(&mut self, upcall: &Upcall<'a>) -> (Actions, Option<New<'a>>) {
        let slow = &self.slow;
        let snapshot = self.snapshot.read();
        let now = slow.clock.now();
        slow.counters.misses.fetch_add(1, Ordering::Relaxed);
        let Some(translation) = slow.translate(snapshot, upcall.key, Some(upcall.packet), now)
        else {
            return (Arc::new([Action::Drop(DropReason::UnknownPort)]), None);
        };
        if translation.error.is_some() {
            slow.counters.errors.fetch_add(1, Ordering::Relaxed);
            slow.warn_failed(snapshot, upcall.key, upcall.packet, now);
        }
        let actions = translation.installed_actions();
        let needs_slow_path = translation.needs_slow_path();
        let Translation { mask, mut effects, recirc_ids: recirc, .. } = translation;
        if needs_slow_path {
            effect::keep_lasting(&mut effects); // the upcall of the slow path has the others
        }
        let bytes = upcall.packet.len() as u64;
        let seen =
            FlowStats { packets: 1, bytes, used: now, tcp_flags: upcall.key.tcp_flags.get() };
        effect::apply(&effects, &seen, &slow.events);
        self.learns |= effects.iter().any(|effect| learns_new_flow(effect, snapshot));
        let actions = self.interner.share(actions);
        let megaflow = slow.megaflow_of(upcall.key, &mask, Arc::clone(&actions));
        let version = self.snapshot.version();
        effect::keep_lasting(&mut effects);
        let is_wanted = !self.is_first(upcall, &megaflow, now);
        let key = upcall.key;
        let new = New { key, megaflow, effects, recirc, version, now };
        (actions, is_wanted.then_some(new))
    }

    /// Serves one packet of a megaflow that needs an upcall for each packet: hands it to the control
    /// protocols that take it, or translates it by itself. The megaflow, whose packets the datapath
    /// counts, has the counters among the effects.
    fn slow_path(&mut self, upcall: &Upcall<'_>) -> Actions {
        let slow = &self.slow;
        let snapshot = self.snapshot.read();
        let now = slow.clock.now();
        let translation = slow.translate(snapshot, upcall.key, Some(upcall.packet), now);
        let Some(translation) = translation else {
            return Arc::new([Action::Drop(DropReason::UnknownPort)]);
        };
        if !translation.needs_slow_path() {
            return translation.installed_actions().into(); // its reason is gone meanwhile
        }
        slow.deliver(&translation.claims, upcall.packet, now);
        let Translation { actions, effects, .. } = translation;
        effect::apply_uncounted(&effects, upcall.key.tcp_flags.get(), now, &slow.events);
        self.learns |= effects.iter().any(|effect| learns_new_flow(effect, snapshot));
        actions.into()
    }

    /// Blocks until the flows that packets of a batch made are in the tables, as in OVS: replies to
    /// these packets may need the flows. Called before the packets leave.
    fn await_learned(&mut self) {
        let learns = std::mem::take(&mut self.learns);
        if learns && self.slow.has_learner_elsewhere() {
            self.slow.events.await_learned();
        }
    }

    /// Returns true, and counts, when the port is under upcall pressure and has not asked for this
    /// megaflow lately. Most packets of a flood of new flows are the only ones of their flow:
    /// megaflows for them would cost more than the packets, and take the room of others. The
    /// requested pass finds out whether the port uses its megaflows, which ends the pressure.
    fn is_first(&mut self, upcall: &Upcall<'_>, megaflow: &Megaflow, now: Millis) -> bool {
        if !upcall.pressed {
            return false;
        }
        if self.slow.revalidator.pressed.is_due(now) {
            self.slow.wakeup.request_pass();
        }
        let is_first = !self.seen.again(megaflow.ufid);
        if is_first {
            self.slow.counters.seen_once.fetch_add(1, Ordering::Relaxed);
        }
        is_first
    }

    fn install_all(&mut self, all: Vec<New<'_>>) {
        let Some(datapath) = self.slow.datapath() else { return };
        if all.len() > 1 {
            let flows: Vec<&Megaflow> = all.iter().map(|new| &new.megaflow).collect();
            self.slow.megaflows.prefetch(&flows);
            datapath.prefetch(&flows);
        }
        all.into_iter().for_each(|new| self.install(&*datapath, new));
    }

    fn install(&mut self, datapath: &dyn Datapath, new: New<'_>) {
        let New { key, megaflow, effects, recirc, version, now } = new;
        let slow = &self.slow;
        if slow.published.version() != version {
            return; // the check at the end would remove the megaflow again
        }
        if slow.megaflows.len() >= slow.flow_limit.load(Ordering::Relaxed) {
            slow.counters.over_limit.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let in_port = PortNo(megaflow.matching.key().in_port.get());
        if !slow.has_share(in_port) {
            slow.counters.over_share.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let entry = Entry {
            in_port,
            matching: self.interner.compress(&megaflow.matching),
            actions: Arc::clone(&megaflow.actions),
            effects,
            recirc,
            credited: FlowStats::default(),
            created: now,
            version,
            seen: 0, // not yet
            look: Tick::NEVER,
        };
        let mut ufid = megaflow.ufid;
        if let Some((refused, refusal)) = self.put(datapath, &megaflow, entry) {
            let mask = if refusal == Refusal::TagsOpen {
                datapath.closed_mask(key, megaflow.matching.mask())
            } else {
                // No room for one more mask, except for masks that match every field.
                slow.count_narrowed(now);
                exact_mask(key)
            };
            let narrow = slow.megaflow_under(key, &mask, Arc::clone(&megaflow.actions));
            let matching = MiniMatch::new(&narrow.matching);
            self.put(datapath, &narrow, Entry { matching, ..refused });
            ufid = narrow.ufid;
        }
        // The pass that follows a publication may have ended between this translation and this
        // installation. A later publication has its pass after this check.
        if slow.published.version() != version {
            slow.remove(ufid);
        }
    }

    /// Installs one megaflow, unless another thread does. Returns its entry and the reason when the
    /// datapath does not take its mask, but may take a narrower one.
    fn put(
        &self,
        datapath: &dyn Datapath,
        megaflow: &Megaflow,
        entry: Entry,
    ) -> Option<(Entry, Refusal)> {
        let slow = &self.slow;
        if !slow.megaflows.insert(megaflow.ufid, entry, &slow.revalidator.passes) {
            return None;
        }
        let Err(refusal) = datapath.install(megaflow) else {
            slow.counters.installed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let may_narrow = match refusal {
            Refusal::MasksFull => !is_exact(&megaflow.matching),
            Refusal::TagsOpen => true,
            _ => false,
        };
        slow.counters.count_refusal(refusal);
        let entry = slow.megaflows.remove(megaflow.ufid)?;
        may_narrow.then_some((entry, refusal))
    }

    /// Samples a packet for sFlow, unless its bridge no longer has sFlow.
    fn sflow(&mut self, upcall: &Upcall<'_>, tci_out: u16, output: u32) {
        let snapshot = self.snapshot.read();
        let Ok(place) = translate::locate(snapshot, upcall.key, &self.slow.recirc) else { return };
        let Some(bridge) = snapshot.bridge(place.bridge) else { return };
        let Some(sflow) = &bridge.exports.sflow else { return };
        let in_port = OfPort(place.key.in_port.get());
        let input = bridge.ports.get(&in_port).map_or(0, |port| port.ifindex);
        // Only a packet that leaves once has headers to report.
        let egress = match is_single_output(output) {
            true => {
                let actions = actions_of(&self.slow, snapshot, upcall);
                Egress::of(&actions, upcall.key, |port| snapshot.tunnel_kind(port))
            }
            false => Egress::default(),
        };
        sflow.agent.sample(&place.key, upcall.packet, input, (tci_out, output), &egress);
    }

    /// Samples a packet for IPFIX.
    fn ipfix(&mut self, upcall: &Upcall<'_>, userdata: &Userdata) {
        let snapshot = self.snapshot.read();
        let Ok(place) = translate::locate(snapshot, upcall.key, &self.slow.recirc) else { return };
        let now = self.slow.clock.now();
        let sent = || export::tunnel_after(&actions_of(&self.slow, snapshot, upcall), userdata);
        export::sample_ipfix(snapshot, &place, upcall.packet, userdata, now, sent);
    }

    fn controller(&mut self, upcall: &Upcall<'_>, userdata: &Userdata) {
        let recirc = &self.slow.recirc;
        let key = translate::of_packet_in(self.snapshot.read(), upcall.key, userdata, recirc);
        if let Some(packet_in) =
            translate::controller_packet_in(&key, userdata, upcall.packet, recirc)
        {
            self.slow.events.send(Event::PacketIn(Box::new(packet_in)));
        }
    }
}

/// Returns the actions of a sampled packet; none where it has no translation.
fn actions_of(slow: &SlowPath, snapshot: &Snapshot, upcall: &Upcall<'_>) -> Vec<Action> {
    let now = slow.clock.now();
    let translation = slow.translate(snapshot, upcall.key, Some(upcall.packet), now);
    translation.map_or(Vec::new(), |translation| translation.actions)
}

/// Returns true when a packet makes a flow that is not in `snapshot`.
fn learns_new_flow(effect: &Effect, snapshot: &Snapshot) -> bool {
    let Effect::LearnFlow { bridge, flow } = effect else { return false };
    snapshot.bridge(*bridge).is_some_and(|bridge| !flow.is_in(bridge))
}
