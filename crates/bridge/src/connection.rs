// SPDX-License-Identifier: Apache-2.0
//! OpenFlow connections of controllers, `ovs-ofctl` and snoopers to the bridges of one switch.
//! (OVS: connmgr, and the message handling of ofproto.)
//!
//! # Input and output
//!
//! This module does no I/O. The daemon owns the sockets and moves the bytes:
//!
//! ```text
//! id = accept(bridge, options)             a transport was connected or accepted
//! receive(id, bytes, switch, now)          bytes came; only while wants_input(id)
//! take_output(id)                          bytes to write, all of them, before the next call
//! closing(id)                              Some(reason): write what is left, then close
//! closed(id)                               the transport is gone
//! run(switch, now)                         after output was written, and when deadline() is due
//! ```
//!
//! The daemon passes events of the switch to [`Connections::packet_in`],
//! [`Connections::rules_changed`] and [`Connections::port_status`].
//!
//! # Invariants
//! - Messages of one connection are carried out in the order of their arrival, and replies leave in
//!   that order. A long reply (a flow dump) is written in pieces as the peer reads. Later messages
//!   wait until the reply is complete.
//! - Memory is bounded for every behaviour of a peer. While a peer does not read, its messages are
//!   not carried out ([`Connections::wants_input`] is false), its flow monitors pause, and
//!   asynchronous messages to it are dropped and counted. Bundles, monitors and buffered packets
//!   have limits.
//! - Messages end a connection in two cases only: the peer shares no version of OpenFlow, or the
//!   bytes cannot be split into messages.
//! - A barrier (OpenFlow 1.3 section 7.3.8) and a bundle commit are answered only after the changes
//!   before them are carried out and published ([`Switch::publish`]), and after the
//!   OFPT_FLOW_REMOVED messages that follow from them. Packets see other changes once the caller
//!   publishes.
//! - Counters in replies and in OFPT_FLOW_REMOVED are exact as of the message
//!   ([`Switch::collect_statistics`]).
//!
//! # Direction of errors
//!
//! A slow peer loses asynchronous messages rather than slowing the switch; replies are never lost.
//! A resumed flow monitor may report a flow that was deleted and added again as modified.
//!
//! Single-threaded: the control thread owns it, next to [`Switch`].

mod admission;
mod asynchronous;
mod bundle;
mod change;
mod flow_text;
mod flush;
mod handler;
mod monitor;
mod options;
mod origin;
mod output;
mod packet_queue;
mod reply;
mod role;
mod session;
mod statistics;
mod table_features;

pub use asynchronous::PortEvent;
pub use flow_text::{format_contributors, format_flows};
pub use origin::Kind;
pub use packet_queue::{PacketQueueStats, RateLimit};
pub use session::{CloseCause, ConnectionCounters, ConnectionStatus, Options};

use crate::snapshot::BridgeIndex;
use crate::switch::Switch;
use clock::Millis;
use flush::Flushing;
use hashbrown::HashMap;
use openflow::Version;
use openflow::message::{AsyncKind, PacketInReason, TableStatusReason};
use reply::Job;
use session::Session;
use std::collections::BTreeMap;

/// Identifies one connection. An id is not used again while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// State that all connections of one bridge share.
#[derive(Debug, Default)]
struct BridgeState {
    /// Highest generation id of a role request.
    generation_id: Option<u64>,
    /// Time of the last input of connections that had admitted the switch and were lost.
    last_admitted: Option<Millis>,
    /// For each table with vacancy events: the event that comes next.
    vacancy: HashMap<u8, TableStatusReason>,
    /// Removed rules. Controllers are notified once the final counters are collected.
    removed: Vec<asynchronous::Removed>,
}

/// All OpenFlow connections of a switch.
#[derive(Debug, Default)]
pub struct Connections {
    sessions: BTreeMap<ConnectionId, Session>,
    bridges: HashMap<BridgeIndex, BridgeState>,
    last_id: u64,
    /// Sums of the counters of connections that have ended.
    ended: ConnectionCounters,
    /// Milliseconds without use after which a bundle is discarded; `None` means 10,000.
    bundle_idle_timeout_ms: Option<u64>,
    /// Bytes that the bundles of all connections may hold together; `None` means a gigabyte.
    bundle_memory: Option<usize>,
    /// Removals of connections whose peers are gone.
    orphans: Vec<Flushing>,
}

impl Connections {
    /// Returns a set without connections.
    pub fn new() -> Connections {
        Connections::default()
    }

    /// Returns a set without connections. The bundles of all later connections may hold `bytes`
    /// together, in place of a gigabyte.
    pub fn with_bundle_memory(bytes: usize) -> Connections {
        Connections { bundle_memory: Some(bytes), ..Connections::default() }
    }

    /// Sets `other_config:bundle-idle-timeout`, in milliseconds; `None` selects the default.
    pub fn set_bundle_idle_timeout(&mut self, ms: Option<u64>) {
        self.bundle_idle_timeout_ms = ms;
    }

    /// Registers a connection to `bridge` whose transport has just been established. The hello is
    /// in the output when this returns.
    pub fn accept(&mut self, bridge: BridgeIndex, options: Options, now: Millis) -> ConnectionId {
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        self.sessions.insert(id, Session::new(bridge, options, now));
        self.bridges.entry(bridge).or_default();
        id
    }

    /// Takes bytes from the peer and carries out the complete messages in them, as far as the peer
    /// reads the replies. Does nothing for a connection that is gone or closing.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], switch: &mut Switch, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.push_input(bytes, now);
        self.work(id, switch, now);
        self.flush_and_apply_settings(switch);
    }

    /// Returns true while bytes of the peer may be given to [`Connections::receive`]. While it is
    /// false, the daemon does not read from the transport, so that flow control slows the peer.
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.sessions.get(&id).is_some_and(Session::wants_input)
    }

    /// Returns true while a request of the peer needs more time than one step may take. The daemon
    /// calls [`Connections::receive`] without bytes then, after other tasks had their turn.
    pub fn has_unfinished_request(&self, id: ConnectionId) -> bool {
        self.sessions.get(&id).is_some_and(Session::is_flushing)
    }

    /// Returns true when [`Connections::take_output`] has bytes to return.
    pub fn has_output(&self, id: ConnectionId) -> bool {
        self.sessions.get(&id).is_some_and(|s| !s.output.is_empty())
    }

    /// Returns all bytes that are to be written to the peer. The caller writes all of them before
    /// the next call, because bytes held by the caller do not count against the peer's limits.
    pub fn take_output(&mut self, id: ConnectionId) -> Vec<u8> {
        self.sessions.get_mut(&id).map(Session::take_output).unwrap_or_default()
    }

    /// Returns the reason for which the transport has to be closed once all output is written;
    /// `None` when it need not be closed. Returns `Some` for an unknown connection, too.
    pub fn closing(&self, id: ConnectionId) -> Option<&str> {
        match self.sessions.get(&id) {
            Some(session) => session.closing.as_ref().map(|(_, reason)| &**reason),
            None => Some("no such connection"),
        }
    }

    /// Returns the kind of reason that [`Connections::closing`] gives.
    pub fn close_cause(&self, id: ConnectionId) -> Option<CloseCause> {
        match self.sessions.get(&id) {
            Some(session) => session.closing.as_ref().map(|(cause, _)| *cause),
            None => Some(CloseCause::Requested),
        }
    }

    /// Removes a connection whose transport is gone.
    pub fn closed(&mut self, id: ConnectionId) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        self.ended += session.counters;
        if let Some(Job::Flush(rest)) = session.job.take() {
            self.orphans.push(rest);
        }
        if session.is_admitted()
            && let Some(state) = self.bridges.get_mut(&session.bridge)
        {
            state.last_admitted = state.last_admitted.max(Some(session.heard));
        }
    }

    /// Removes the state of a bridge, and starts to close its connections.
    pub fn bridge_removed(&mut self, bridge: BridgeIndex) {
        self.bridges.remove(&bridge);
        for session in self.sessions.values_mut().filter(|s| s.bridge == bridge) {
            session.close(CloseCause::Requested, "bridge removed".to_owned());
        }
    }

    /// Starts to close one connection.
    pub fn close(&mut self, id: ConnectionId, reason: &str) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.close(CloseCause::Requested, reason.to_owned());
        }
    }

    /// Starts to close all connections to `bridge` (`bridge/reconnect`, or a changed set of
    /// protocols).
    pub fn close_all(&mut self, bridge: BridgeIndex, reason: &str) {
        for session in self.sessions.values_mut().filter(|s| s.bridge == bridge) {
            session.close(CloseCause::Requested, reason.to_owned());
        }
    }

    /// Continues work that had to wait until peers read, and does the work that is due by the
    /// clock: echo probes, bundle timeouts, rate-limited packets. Cheap when nothing is due.
    pub fn run(&mut self, switch: &mut Switch, now: Millis) {
        let ids: Vec<ConnectionId> = self.sessions.keys().copied().collect();
        for id in ids {
            self.expire_bundles(id, now);
            self.expire_partial_request(id, now);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.probe(now);
                self.send_queued_packets(id, now);
            }
            self.work(id, switch, now);
        }
        if let Some(rest) = self.orphans.pop().and_then(|flushing| flushing.step(switch)) {
            self.orphans.push(rest);
        }
        self.flush_and_apply_settings(switch);
    }

    /// Returns the latest time at which [`Connections::run`] must be called; `None` when only other
    /// calls can give it work.
    pub fn deadline(&self) -> Option<Millis> {
        if !self.orphans.is_empty() {
            return Some(Millis(0));
        }
        let timeout = self.bundle_timeout();
        self.sessions.values().filter_map(|s| s.deadline(timeout)).min()
    }

    /// Changes the limits of packet-ins and the inactivity probe of a connection to those of `options`,
    /// after a change to its row of the database.
    pub fn reconfigure(&mut self, id: ConnectionId, options: &Options) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.set_packet_in_limits(options.packet_in_limit, options.waiting_packets);
            session.set_inactivity_probe(options.inactivity_probe_ms);
        }
    }

    /// Returns the status of a connection, for the database and for commands.
    pub fn status(&self, id: ConnectionId) -> Option<ConnectionStatus> {
        self.sessions.get(&id).map(Session::status)
    }

    /// Returns the sums of the counters of all connections, also of those that have ended.
    pub fn counters(&self) -> ConnectionCounters {
        let mut sum = self.ended;
        self.sessions.values().for_each(|session| sum += session.counters);
        sum
    }

    /// Returns the connections of a bridge, oldest first.
    pub fn of_bridge(&self, bridge: BridgeIndex) -> impl Iterator<Item = ConnectionId> {
        self.sessions.iter().filter(move |(_, s)| s.bridge == bridge).map(|(id, _)| *id)
    }

    /// Returns true when packets without a matching rule are to be sent up: when some connection of
    /// OpenFlow 1.0 to 1.2 would receive them. [`Connections::receive`] and [`Connections::run`]
    /// write the result into the bridge's configuration.
    pub(crate) fn wants_packet_in_on_miss(&self, bridge: BridgeIndex) -> bool {
        self.sessions.values().any(|s| {
            s.bridge == bridge
                && s.controller_id == 0
                && s.version().is_some_and(|v| v < Version::V13)
                && s.wants(AsyncKind::PacketIn, PacketInReason::NoMatch as u8)
        })
    }

    /// Returns true when some connection receives packets with an expired TTL.
    pub(crate) fn wants_invalid_ttl(&self, bridge: BridgeIndex) -> bool {
        self.sessions.values().any(|s| {
            s.bridge == bridge && s.wants(AsyncKind::PacketIn, PacketInReason::InvalidTtl as u8)
        })
    }

    /// Sends the notifications that are due to controllers. Then applies the settings that depend
    /// on the set of connections to the bridges.
    fn flush_and_apply_settings(&mut self, switch: &mut Switch) {
        self.flush_removed(switch);
        self.apply_settings(switch);
    }

    fn apply_settings(&mut self, switch: &mut Switch) {
        let bridges: Vec<BridgeIndex> = self.bridges.keys().copied().collect();
        for index in bridges {
            let miss_send_len = self
                .sessions
                .values()
                .filter(|s| s.bridge == index && s.is_connected())
                .map(|s| s.miss_send_len)
                .max()
                .unwrap_or(0);
            let (miss, ttl) = (self.wants_packet_in_on_miss(index), self.wants_invalid_ttl(index));
            let len = miss_send_len;
            // Mutable access marks a bridge for publication, so it is taken only for a real change.
            let differs = switch.bridge(index).is_some_and(|b| {
                let c = &b.config;
                (c.miss_to_controller, c.invalid_ttl_to_controller, c.miss_send_len)
                    != (miss, ttl, len)
            });
            if differs && let Some(bridge) = switch.bridge_mut(index) {
                bridge.config.miss_to_controller = miss;
                bridge.config.invalid_ttl_to_controller = ttl;
                bridge.config.miss_send_len = len;
            }
        }
    }

    fn bundle_timeout(&self) -> u64 {
        self.bundle_idle_timeout_ms.unwrap_or(bundle::IDLE_TIMEOUT_MS)
    }

    /// Sends `message` to one connection; see [`Session::send`]. Snoopers of its bridge get a copy.
    fn send(&mut self, id: ConnectionId, message: &openflow::message::Message) -> bool {
        let protocol = self.sessions.get(&id).and_then(Session::protocol);
        protocol.is_some_and(|protocol| self.send_in(id, message, &protocol))
    }

    /// Does the same as [`Connections::send`], in the version of `protocol`.
    fn send_in(
        &mut self,
        id: ConnectionId,
        message: &openflow::message::Message,
        protocol: &openflow::message::Protocol,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let (bridge, at) = (session.bridge, session.output.len());
        let is_sent = session.send_in(message, protocol);
        if session.kind() == Kind::Primary {
            let copy = session.output.since(at).to_vec();
            self.snoop(bridge, &copy);
        }
        is_sent
    }

    /// Copies bytes that a controller sent or received to the snoopers of `bridge`.
    fn snoop(&mut self, bridge: BridgeIndex, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        for session in self.sessions.values_mut() {
            if session.bridge == bridge && session.kind() == Kind::Snoop && session.is_connected() {
                session.send_copy(bytes);
            }
        }
    }
}
