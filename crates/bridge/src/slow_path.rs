// SPDX-License-Identifier: Apache-2.0
//! The state that upcalls, the revalidator and the control thread share about one datapath.
//!
//! [`SlowPath`] holds the published snapshot, the record of the megaflows, the frozen pipelines and
//! the channel to the control thread. This module has the operations that several of these threads
//! need: translation of a datapath's key, megaflows from translations, removal with credit of the
//! last counts. Upcalls are in `upcall.rs`, passes in [`crate::revalidator`].

use crate::effect::{self, Effect};
use crate::event::Sender;
use crate::megaflows::{Entry, Megaflows};
use crate::protocol::Protocols;
use crate::recirc::RecircTable;
use crate::revalidator_state::RevalidatorState;
use crate::snapshot::Snapshot;
use crate::trace::Tracer;
use crate::translate::{self, EffectsMode, LocateError, Request, Translation};
use crate::unknown_flows::UnknownFlows;
use crate::wakeup::Wakeup;
use clock::{Clock, Millis, OncePer};
use datapath::scratch::Scratch;
use datapath::shards::Groups;
use datapath::{Actions, Datapath, FlowStats, Megaflow, PortNo, Refusal, Ufid, exact_mask};
use flow::{Field, Key, Mask, Match};
use hashbrown::HashSet;
use packet::Packet;
use rcu::Publisher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;

/// Time between two warnings about narrowed megaflows.
const NARROWED_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two warnings about packets out of tunnels that are no vport's.
const NO_TUNNEL_PORT_WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// Five traces of failed translations a minute: each has as many lines as the pipeline has steps.
static FAILURES: vlog::RateLimit = vlog::RateLimit::new(5, 5);

/// A counter for each of [`Refusal::ALL`].
#[derive(Debug)]
pub struct RefusalCounters([AtomicU64; Refusal::ALL.len()]);

impl Default for RefusalCounters {
    fn default() -> RefusalCounters {
        RefusalCounters([const { AtomicU64::new(0) }; Refusal::ALL.len()])
    }
}

/// Counters of upcalls and the revalidator (`upcall/show`, `coverage/show`).
#[derive(Debug, Default)]
pub struct UpcallCounters {
    /// Translated misses.
    pub misses: AtomicU64,
    /// Installed megaflows.
    pub installed: AtomicU64,
    /// Megaflows that the datapath refused, by reason.
    pub refused: RefusalCounters,
    /// Megaflows not installed because of the flow limit.
    pub over_limit: AtomicU64,
    /// Megaflows that match every field, because the datapath had no room for their masks.
    pub narrowed: AtomicU64,
    /// Megaflows not installed because the port had its full share of the flow limit.
    pub over_share: AtomicU64,
    /// Megaflows not installed because the port is under upcall pressure and no earlier packet
    /// had asked for the megaflow.
    pub seen_once: AtomicU64,
    /// Failed translations.
    pub errors: AtomicU64,
    /// Megaflows that passes looked at.
    pub looks: AtomicU64,
    /// All translations: of packets, of megaflows in passes, of traces.
    pub translations: AtomicU64,
}

impl UpcallCounters {
    /// Returns the number of megaflows that the datapath refused for this reason.
    pub fn refusals(&self, reason: Refusal) -> u64 {
        self.refusal(reason).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Counts a megaflow that the datapath refused for this reason.
    pub(crate) fn count_refusal(&self, reason: Refusal) {
        if let Some(n) = self.refusal(reason) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn refusal(&self, reason: Refusal) -> Option<&AtomicU64> {
        Refusal::ALL.iter().position(|r| *r == reason).and_then(|at| self.refused.0.get(at))
    }
}

/// State that upcalls, the revalidator and the control thread share about one datapath.
#[derive(Debug)]
pub struct SlowPath {
    /// Newest state of all bridges.
    pub published: Publisher<Snapshot>,
    /// Megaflows that were installed.
    pub megaflows: Megaflows,
    /// Frozen pipelines.
    pub recirc: RecircTable,
    /// Sender of events to the control thread.
    pub events: Sender,
    /// The switch's clock.
    pub clock: Clock,
    /// Highest number of megaflows; the revalidator adapts it.
    pub flow_limit: AtomicUsize,
    /// `upcall/disable-megaflows` clears it: every megaflow then matches one microflow.
    pub megaflows_enabled: AtomicBool,
    /// Counters of upcalls and the revalidator.
    pub counters: UpcallCounters,
    /// Control protocols on ports.
    pub protocols: Protocols,
    /// Settings and measurements of the revalidator.
    pub revalidator: RevalidatorState,
    /// Megaflows that the switch has no record of are left alone; see
    /// [`SlowPath::hold_revalidation`].
    pub(crate) is_revalidation_held: AtomicBool,
    /// Whether the datapath may have megaflows that the switch has no record of.
    pub(crate) unknown_flows: UnknownFlows,
    /// Held during a pass.
    pub(crate) passing: Mutex<()>,
    /// Buffer for the megaflows that a pass finds in the datapath.
    pub(crate) swept: Scratch<Groups<FlowStats>>,
    /// Megaflows whose counts the next pass has to read, whether they move or not.
    pub(crate) unsure: Mutex<HashSet<Ufid>>,
    /// Wakes the revalidator's thread.
    pub(crate) wakeup: Arc<Wakeup>,
    /// Limits the rate of the warning about narrowed megaflows.
    pub(crate) narrowed_warning: OncePer,
    /// Limits the rate of the warning about packets out of tunnels that are no vport's.
    no_tunnel_port_warning: OncePer,
    /// Thread that learns flows, where the packets are on other threads.
    learner: OnceLock<ThreadId>,
    pub(crate) attached: Attached,
}

/// The datapath, once it is attached. The datapath owns the slow path, by its upcall factory; a
/// strong reference from here would keep both alive for ever.
#[derive(Default)]
pub(crate) struct Attached(OnceLock<Weak<dyn Datapath>>);

impl Attached {
    /// Attaches `datapath`. Returns false when another datapath is attached already.
    pub(crate) fn set(&self, datapath: &Arc<dyn Datapath>) -> bool {
        self.0.set(Arc::downgrade(datapath)).is_ok()
    }

    fn get(&self) -> Option<Arc<dyn Datapath>> {
        self.0.get()?.upgrade()
    }
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get().as_ref().map_or("no datapath", |d| d.name()))
    }
}

impl SlowPath {
    /// Returns a slow path without a datapath. It publishes with `published` and sends to `events`.
    pub(crate) fn new(
        published: Publisher<Snapshot>,
        events: Sender,
        clock: Clock,
        flow_limit: usize,
    ) -> Arc<SlowPath> {
        let wakeup = Arc::<Wakeup>::default();
        let slow = SlowPath {
            published,
            megaflows: Megaflows::new(Arc::clone(&wakeup)),
            recirc: RecircTable::default(),
            events,
            clock,
            flow_limit: AtomicUsize::new(flow_limit),
            megaflows_enabled: AtomicBool::new(true),
            counters: UpcallCounters::default(),
            protocols: Protocols::default(),
            revalidator: RevalidatorState::default(),
            is_revalidation_held: AtomicBool::new(false),
            unknown_flows: UnknownFlows::default(),
            passing: Mutex::new(()),
            swept: Scratch::default(),
            unsure: Mutex::default(),
            wakeup,
            narrowed_warning: OncePer::new(NARROWED_WARNING_INTERVAL),
            no_tunnel_port_warning: OncePer::new(NO_TUNNEL_PORT_WARNING_INTERVAL),
            learner: OnceLock::new(),
            attached: Attached::default(),
        };
        slow.set_flow_limit(flow_limit);
        Arc::new(slow)
    }

    /// Marks the calling thread as the thread that learns flows: other threads wait for it. Without
    /// such a thread no thread waits.
    pub(crate) fn learns_here(&self) {
        let _ = self.learner.set(std::thread::current().id()); // the first stays
    }

    /// Returns true when a thread was marked as the learner: it receives learned flows by a queue.
    fn has_learner(&self) -> bool {
        self.learner.get().is_some()
    }

    /// Returns true when another thread than the calling one is the learner.
    pub(crate) fn has_learner_elsewhere(&self) -> bool {
        let here = std::thread::current().id();
        self.learner.get().is_some_and(|learner| *learner != here)
    }

    /// Returns the datapath; `None` before it is attached, and when its owner has dropped it.
    pub fn datapath(&self) -> Option<Arc<dyn Datapath>> {
        self.attached.get()
    }

    /// Returns the match and actions that a datapath needs to treat packets like `key` (a
    /// datapath's key) as `translation` does.
    pub fn megaflow(&self, key: &Key, translation: &Translation) -> Megaflow {
        self.megaflow_of(key, &translation.mask, translation.installed_actions().into())
    }

    /// Does the same as [`SlowPath::megaflow`] for a translation's mask and the datapath's actions.
    pub(crate) fn megaflow_of(&self, key: &Key, mask: &Mask, actions: Actions) -> Megaflow {
        let mut mask = *mask;
        for field in [Field::InPortOxm, Field::RecircId, Field::PacketType] {
            mask.set_exact(field);
        }
        if !self.megaflows_enabled.load(Ordering::Relaxed) {
            mask = exact_mask(key);
        }
        self.megaflow_under(key, &mask, actions)
    }

    /// Returns the megaflow with exactly this mask.
    pub(crate) fn megaflow_under(&self, key: &Key, mask: &Mask, actions: Actions) -> Megaflow {
        let matching = Match::new(key, mask);
        Megaflow { ufid: self.megaflows.ufid(&matching), matching, actions }
    }

    /// Sets `flow-limit`: passes may lower it for a while, and never raise it above this.
    pub fn set_flow_limit(&self, limit: usize) {
        self.revalidator.configured_limit.store(limit as u64, Ordering::Relaxed);
        self.flow_limit.store(limit, Ordering::Relaxed);
    }

    /// Returns true when some megaflow may disagree with the newest snapshot, so that a pass would
    /// find work. An upcall checks the version after it has installed a megaflow, and removes the
    /// megaflow when the version is not the one that it translated on. So a megaflow that this call
    /// does not see is not stale, or is removed.
    pub(crate) fn may_be_stale(&self) -> bool {
        // Between our store to the version and our load of the number of megaflows; its
        // counterpart is in `Megaflows::insert`.
        fence(Ordering::SeqCst);
        // In this order: a pass that has met the unknown flows has made entries for them before.
        self.unknown_flows.may_be_there() || !self.megaflows.is_empty()
    }

    /// Notes that the datapath may have received megaflows that the switch has no record of: a pass
    /// will look for them.
    pub fn expect_unknown_flows(&self) {
        self.unknown_flows.expect();
        self.wakeup.nudge();
    }

    /// Removes a megaflow and credits its last counts. Where several threads do so at once the
    /// datapath gives its last counts to one of them. Only that thread removes the entry: so the
    /// counts are credited, and no thread removes the entry of a megaflow that was installed since.
    pub fn remove(&self, ufid: Ufid) {
        if let Some(last) = self.datapath().and_then(|datapath| datapath.remove(ufid)) {
            self.removed(ufid, last);
        }
    }

    /// Does the same as [`SlowPath::remove`] for many megaflows, which may be much faster.
    pub(crate) fn remove_many(&self, ufids: &[Ufid]) {
        if let Some(datapath) = self.datapath().filter(|_| !ufids.is_empty()) {
            datapath.remove_many(ufids, &mut |ufid, last| self.removed(ufid, last));
        }
    }

    fn removed(&self, ufid: Ufid, last: FlowStats) {
        if let Some(mut entry) = self.megaflows.remove(ufid) {
            self.credit(&mut entry, last);
            effect::end(&entry.effects, self.clock.now());
        }
    }

    /// Holds revalidation, or ends the hold (`flow-restore-wait`: the tables are not filled yet).
    /// While it is held, passes only credit: no megaflow is revalidated, expired, or removed
    /// because no rule explains it. The first pass afterwards does all of this.
    pub fn hold_revalidation(&self, held: bool) {
        self.expect_unknown_flows(); // or there would be nothing to wait for
        self.is_revalidation_held.store(held, Ordering::Release);
    }

    /// Credits the difference between `stats` and the counts that were credited already.
    pub(crate) fn credit(&self, entry: &mut Entry, stats: FlowStats) {
        let packets = stats.packets.saturating_sub(entry.credited.packets);
        let bytes = stats.bytes.saturating_sub(entry.credited.bytes);
        let flags = stats.tcp_flags & !entry.credited.tcp_flags;
        if packets > 0 || flags != 0 {
            let (effects, seen) = (&entry.effects, FlowStats { packets, bytes, ..stats });
            if packets > 0 && self.refresh_learned(effects, stats.used) {
                effect::apply_but_learning(effects, &seen, &self.events);
            } else {
                effect::apply(effects, &seen, &self.events);
            }
        }
        entry.credited = stats;
    }

    /// Refreshes learned flows that are there already. Otherwise each pass would have an event for
    /// each megaflow that learns, and there may be more of these than the control thread's queue
    /// holds.
    fn refresh_learned(&self, effects: &[Effect], used: Millis) -> bool {
        self.has_learner()
            && effects.iter().any(effect::learns)
            && effect::refresh_learned(effects, used, &self.published.newest())
    }

    /// Translates, and counts the translation.
    pub fn translate_counted(&self, request: Request<'_>) -> Translation {
        self.counters.translations.fetch_add(1, Ordering::Relaxed);
        translate::translate(request)
    }

    /// Translates a packet (or any packet, when `None`) with a datapath's key. Returns `None` when
    /// its port or its recirculation id belongs to no bridge, and the port is no device of the host.
    /// A packet out of a tunnel that is no vport's gets a drop.
    pub(crate) fn translate(
        &self,
        snapshot: &Snapshot,
        key: &Key,
        packet: Option<&Packet>,
        now: Millis,
    ) -> Option<Translation> {
        if let Some(translation) = translate::from_host(snapshot, key) {
            return Some(translation);
        }
        let place = match translate::locate(snapshot, key, &self.recirc) {
            Ok(place) => place,
            Err(LocateError::NoTunnelPort) => {
                if packet.is_some() {
                    self.warn_no_tunnel_port(key, now);
                }
                return Some(translate::without_vport(snapshot, key));
            }
            Err(_) => return None,
        };
        let invalid_options = place.invalid_options;
        let mut translation = self.translate_counted(Request {
            packet,
            frozen: place.frozen,
            invalid_options,
            ..Request::new(snapshot, place.bridge, place.key, &self.recirc, now)
        });
        if key.tunnel.is_some() {
            let mask = &mut translation.mask.0.tunnel;
            match snapshot.bridge(place.bridge) {
                Some(bridge) if !invalid_options => {
                    *mask = bridge.tlv_table.encode_mask(mask, &key.tunnel);
                }
                // All of them decide.
                _ => {
                    let exact = Mask::EXACT.0.tunnel;
                    (mask.options, mask.options_len) = (exact.options, exact.options_len);
                    mask.present.set(0);
                }
            }
            if !snapshot.tunnels.may_have_options(PortNo(key.in_port.get())) {
                mask.options_len = 0;
            }
        }
        Some(translation)
    }

    /// Logs a packet that came out of a tunnel and is no vport's, at a limited rate.
    pub fn warn_no_tunnel_port(&self, key: &Key, now: Millis) {
        if self.no_tunnel_port_warning.is_due(now) {
            let flow = flow::text::format_key(key, &|_| None);
            tracing::warn!(target: "tunnel", "receive tunnel port not found ({flow})");
        }
    }

    /// Logs why the translation of a packet has failed, with its trace, a few times a minute.
    pub(crate) fn warn_failed(&self, snapshot: &Snapshot, key: &Key, packet: &Packet, now: Millis) {
        vlog::warn_rl!(
            FAILURES,
            target: "ofproto_dpif_upcall",
            "a packet cannot be translated, as its trace shows:\n{}",
            self.trace_of(snapshot, key, packet, now)
        );
    }

    fn trace_of(&self, snapshot: &Snapshot, key: &Key, packet: &Packet, now: Millis) -> String {
        let Ok(place) = translate::locate(snapshot, key, &self.recirc) else {
            return String::new();
        };
        let mut tracer = Tracer::new();
        let translation = self.translate_counted(Request {
            packet: Some(packet),
            frozen: place.frozen,
            invalid_options: place.invalid_options,
            effects: EffectsMode::Suppress,
            tracer: Some(&mut tracer),
            ..Request::new(snapshot, place.bridge, place.key, &self.recirc, now)
        });
        let rest = tracer.render(&place.key, &translation, snapshot, place.bridge);
        format!("Flow: {}\n{rest}", flow::text::format_key(&place.key, &|_| None))
    }
}
