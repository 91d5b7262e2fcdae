// SPDX-License-Identifier: Apache-2.0
//! One connection: handshake, settings, input and output.

use super::bundle::Bundle;
use super::monitor::Monitors;
use super::origin::Kind;
use super::output::Output;
use super::packet_queue::{PacketQueue, PacketQueueStats, RateLimit};
use super::reply::Job;
use super::table_features::PartialRequest;
use crate::snapshot::BridgeIndex;
use clock::Millis;
use hashbrown::HashMap;
use openflow::Version;
use openflow::frame::{self, Frames, Negotiation};
use openflow::message::{
    AsyncConfig, AsyncKind, Body, Message, PacketInReason, Protocol, Role, SetAsync, Versions,
};
use std::ops::AddAssign;

/// Initial number of bytes of each packet that a controller receives (OFP_DEFAULT_MISS_SEND_LEN).
const MISS_SEND_LEN: u16 = 128;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Purpose of the connection.
    pub kind: Kind,
    /// Name in logs: the controller's target, or the peer.
    pub name: String,
    /// Versions that may be negotiated (`Bridge:protocols`).
    pub versions: Versions,
    /// Milliseconds without input after which the peer is probed with an echo request. After the
    /// same time again the connection is closed. 0 disables the probe.
    pub inactivity_probe_ms: u64,
    /// Rate limit on packet-ins; `None` for no limit.
    pub packet_in_limit: Option<RateLimit>,
    /// Number of packet-ins that may wait for a peer that does not read (`controller_queue_size`).
    pub waiting_packets: u32,
    /// `Controller:enable_async_messages`: whether the peer may receive asynchronous messages.
    pub async_messages: bool,
    /// Logs errors of this peer at DEBUG only, after enough of them were logged above that level.
    pub quiet: bool,
}

impl Options {
    /// Returns the settings of a connection with `versions`, without probe, without rate limit, and
    /// with Open vSwitch's number of waiting packets.
    pub fn new(kind: Kind, name: &str, versions: Versions) -> Options {
        Options {
            kind,
            name: name.to_owned(),
            versions,
            inactivity_probe_ms: 0,
            packet_in_limit: None,
            waiting_packets: super::output::PACKETS,
            async_messages: true,
            quiet: false,
        }
    }
}

/// Cause for which this side closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The configuration changed, or a command asked for it.
    Requested,
    /// The peer sent no hello, or did not answer a probe, in time.
    Silent,
    /// The peer supports no version that is allowed here, or its bytes are not messages.
    Protocol,
}

/// Message counters of one or several connections. The parts of a multipart reply are messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Messages received.
    pub received: u64,
    /// Messages written to the output.
    pub sent: u64,
    /// Error messages among the messages sent.
    pub errors_sent: u64,
    /// Asynchronous messages dropped because the peer does not read.
    pub dropped: u64,
    /// Messages that the version of the connection cannot express.
    pub unsent: u64,
}

impl AddAssign for ConnectionCounters {
    fn add_assign(&mut self, other: ConnectionCounters) {
        self.received += other.received;
        self.sent += other.sent;
        self.errors_sent += other.errors_sent;
        self.dropped += other.dropped;
        self.unsent += other.unsent;
    }
}

/// Status of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// Bridge of the connection.
    pub bridge: BridgeIndex,
    /// Purpose of the connection.
    pub kind: Kind,
    /// The controller's target, or the peer.
    pub name: String,
    /// Negotiated version; `None` before the handshake is complete.
    pub version: Option<Version>,
    /// Role that the controller has requested.
    pub role: Role,
    /// Time at which the handshake was completed; `None` before.
    pub connected_at: Option<Millis>,
    /// An echo request has no answer yet (`state=IDLE`).
    pub idle: bool,
    /// Counters of messages since the connection was accepted.
    pub counters: ConnectionCounters,
    /// Rate limiter counters of packet-ins without a matching rule, when there is a limit.
    pub misses: PacketQueueStats,
    /// Rate limiter counters of packet-ins sent by actions.
    pub actions: PacketQueueStats,
}

impl ConnectionStatus {
    /// Returns the role as the database spells it (`Controller:role`).
    pub fn role_name(&self) -> &'static str {
        match self.role {
            Role::Primary => "master",
            Role::Secondary => "slave",
            Role::Equal | Role::NoChange => "other",
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) bridge: BridgeIndex,
    options: Options,
    pub(super) frames: Frames,
    pub(super) output: Output,
    /// Version and formats; `None` before the handshake is complete.
    protocol: Option<Protocol>,
    pub(super) closing: Option<(CloseCause, String)>,
    pub(super) role: Role,
    pub(super) async_config: AsyncConfig,
    pub(super) miss_send_len: u16,
    pub(super) controller_id: u16,
    pub(super) monitors: Monitors,
    pub(super) bundles: HashMap<u32, Bundle>,
    /// A multipart request that is not complete.
    pub(super) partial: Option<PartialRequest>,
    /// A reply that is not completely written.
    pub(super) job: Option<Job>,
    /// Packet-ins by actions, then packet-ins on misses.
    queues: [PacketQueue; 2],
    pub(super) counters: ConnectionCounters,
    pub(super) connected_at: Option<Millis>,
    /// The peer has admitted the switch; see [`super::admission`].
    pub(super) is_admitted: bool,
    /// Time of the last input.
    pub(super) heard: Millis,
    /// Time at which the unanswered echo request was sent.
    probed: Option<Millis>,
    /// Output was taken since the last probe, so all output before it was written.
    pub(super) progressed: bool,
    /// The session has done a step of a removal of connections. Others have their turn before it
    /// goes on.
    pub(super) rests: bool,
}

impl Session {
    pub(super) fn new(bridge: BridgeIndex, options: Options, now: Millis) -> Session {
        let mut output = Output::default();
        output.buffer().extend_from_slice(&frame::hello(options.versions, 1));
        let limit = options.packet_in_limit;
        Session {
            bridge,
            frames: Frames::new(),
            output,
            protocol: None,
            closing: None,
            role: Role::Equal,
            async_config: AsyncConfig::initial(Version::V10),
            miss_send_len: if options.kind == Kind::Primary { MISS_SEND_LEN } else { 0 },
            controller_id: 0,
            monitors: Monitors::default(),
            bundles: HashMap::new(),
            partial: None,
            job: None,
            queues: [PacketQueue::new(limit, now), PacketQueue::new(limit, now)],
            counters: ConnectionCounters { sent: 1, ..ConnectionCounters::default() },
            connected_at: None,
            is_admitted: false,
            heard: now,
            probed: None,
            progressed: false,
            rests: false,
            options,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.options.kind
    }

    /// Logs an error of the peer: at DEBUG when [`Options::quiet`] is set.
    pub(super) fn complain(&self, wrong: &str) {
        let name = &self.options.name;
        if self.options.quiet {
            tracing::debug!(target: "vconn", "{name}: {wrong}");
        } else {
            tracing::warn!(target: "vconn", "{name}: {wrong}");
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.protocol.is_some() && self.closing.is_none()
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.protocol.map(|p| p.version)
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Changes formats. Does nothing before the handshake.
    pub(super) fn set_protocol(&mut self, change: impl FnOnce(&mut Protocol)) {
        if let Some(protocol) = &mut self.protocol {
            change(protocol);
        }
    }

    pub(super) fn close(&mut self, cause: CloseCause, reason: String) {
        self.closing.get_or_insert((cause, reason));
        self.job.take_if(|job| !matches!(job, Job::Flush(_)));
    }

    pub(super) fn push_input(&mut self, bytes: &[u8], now: Millis) {
        if self.closing.is_some() || bytes.is_empty() {
            return;
        }
        self.heard = now;
        self.probed = None;
        self.frames.push(bytes);
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        let bytes = self.output.take();
        self.progressed |= !bytes.is_empty();
        bytes
    }

    pub(super) fn wants_input(&self) -> bool {
        self.closing.is_none()
            && self.job.is_none()
            && !self.rests
            && !self.monitors.is_behind()
            && !self.output.is_full_for_requests()
    }

    /// Returns true while connections are being removed from the connection tracker for this peer,
    /// and until the turn after the last step.
    pub(super) fn is_flushing(&self) -> bool {
        self.rests || matches!(self.job, Some(Job::Flush(_)))
    }

    /// Negotiates the version from the first message.
    pub(super) fn negotiate(&mut self, first: &[u8], now: Millis) {
        self.counters.received += 1;
        match frame::negotiate(self.options.versions, first) {
            Negotiation::Agreed(version) => {
                self.protocol = Some(Protocol::new(version));
                self.async_config = AsyncConfig::initial(version);
                if !self.options.async_messages {
                    self.async_config = AsyncConfig { primary: [0; 6], secondary: [0; 6] };
                }
                self.connected_at = Some(now);
            }
            Negotiation::Failed { reply, reason } => {
                self.output.buffer().extend_from_slice(&reply);
                self.counters.sent += 1;
                let reason = format!("version negotiation failed ({reason})");
                self.complain(&reason);
                self.close(CloseCause::Protocol, reason);
            }
            Negotiation::NoHello { reason } => {
                self.complain(&reason);
                self.close(CloseCause::Protocol, reason);
            }
        }
    }

    /// Appends a message to the output. A message that the version cannot express is counted and
    /// left out.
    pub(super) fn send(&mut self, message: &Message) -> bool {
        self.protocol.is_some_and(|protocol| self.send_in(message, &protocol))
    }

    /// Does the same as [`Session::send`], in the version of `protocol`.
    pub(super) fn send_in(&mut self, message: &Message, protocol: &Protocol) -> bool {
        if self.closing.is_some() {
            return false;
        }
        let start = self.output.len();
        match message.encode_to(protocol, self.output.buffer()) {
            Ok(()) => {
                self.counters.sent += frame::split(self.output.since(start)).count() as u64;
                self.counters.errors_sent += u64::from(matches!(message.body, Body::Error(_)));
                true
            }
            Err(e) => {
                self.counters.unsent += 1;
                tracing::debug!(target: "connmgr", "{}: a message was not sent ({e})", self.options.name);
                false
            }
        }
    }

    /// Returns true when the output has room for an asynchronous message other than a packet-in.
    /// Otherwise counts the message as dropped.
    pub(super) fn has_async_room(&mut self) -> bool {
        let full = self.output.is_full_for_async();
        self.has_room_unless(full)
    }

    fn has_room_unless(&mut self, full: bool) -> bool {
        self.counters.dropped += u64::from(full);
        !full
    }

    /// Appends a copy of another connection's bytes, for snoopers.
    pub(super) fn send_copy(&mut self, bytes: &[u8]) {
        let full = self.output.is_full_for_copies();
        if self.has_room_unless(full) {
            self.output.buffer().extend_from_slice(bytes);
            self.counters.sent += frame::split(bytes).count() as u64;
        }
    }

    /// Sends a packet-in when the rate limit allows it now. Returns the bytes that were written.
    pub(super) fn offer_packet(
        &mut self,
        message: &Message,
        port: openflow::PortNo,
        miss: bool,
        now: Millis,
    ) -> Option<Vec<u8>> {
        let protocol = self.protocol?;
        let bytes = match message.encode(&protocol) {
            Ok(bytes) => bytes,
            Err(e) => {
                self.counters.unsent += 1;
                tracing::debug!(target: "connmgr", "{}: a packet-in was not sent ({e})", self.options.name);
                return None;
            }
        };
        let [actions, misses] = &mut self.queues;
        let queue = if miss { misses } else { actions };
        let bytes = queue.offer(port, bytes, now)?;
        self.write_packet(&bytes).then_some(bytes)
    }

    fn write_packet(&mut self, bytes: &[u8]) -> bool {
        let full = self.output.is_full_for_packets(self.options.waiting_packets);
        let room = self.has_room_unless(full);
        if room {
            self.output.push_packet(bytes);
            self.counters.sent += 1;
        }
        room
    }

    /// Sends the queued packet-ins that the rate limit allows now, and returns their bytes.
    pub(super) fn send_ready_packets(&mut self, now: Millis) -> Vec<u8> {
        let mut sent = Vec::new();
        let ready: Vec<Vec<u8>> = self.queues.iter_mut().flat_map(|q| q.ready(now)).collect();
        for bytes in ready {
            if self.write_packet(&bytes) {
                sent.extend_from_slice(&bytes);
            }
        }
        sent
    }

    /// Sets the packet-in rate limit (`Controller:controller_rate_limit` and its burst) and the number
    /// of packet-ins that may wait.
    pub(super) fn set_packet_in_limits(&mut self, limit: Option<RateLimit>, waiting: u32) {
        self.options.waiting_packets = waiting;
        self.options.packet_in_limit = limit;
        for queue in &mut self.queues {
            queue.set_limit(limit);
        }
    }

    pub(super) fn set_inactivity_probe(&mut self, ms: u64) {
        self.options.inactivity_probe_ms = ms;
    }

    /// Returns true when the connection receives asynchronous messages at all.
    fn listens(&self) -> bool {
        self.is_connected()
            && match self.kind() {
                Kind::Primary => true,
                Kind::Service => self.miss_send_len != 0,
                Kind::Snoop => false,
            }
    }

    /// Selects asynchronous messages. A service connection that got none gets them from now on.
    pub(super) fn set_async(&mut self, set: &SetAsync) {
        self.async_config.apply(set);
        if self.kind() == Kind::Service && self.miss_send_len == 0 {
            self.miss_send_len = MISS_SEND_LEN;
        }
    }

    /// Returns true when the connection receives asynchronous messages of this kind and reason.
    pub(super) fn wants(&self, kind: AsyncKind, reason: u8) -> bool {
        self.listens() && self.async_config.wants(kind, self.role, reason)
    }

    /// Returns true when the connection receives packet-ins for this reason.
    pub(super) fn wants_packet_in(&self, reason: PacketInReason) -> bool {
        self.version().is_some_and(|v| {
            // A version of OpenFlow may have one number for several kinds of miss. The number
            // selects.
            let told = PacketInReason::from_number(reason.wire(v)).unwrap_or(reason);
            self.listens() && self.async_config.wants_packet_in(told, self.role, v)
        })
    }

    /// Sends an echo request to a silent peer, and closes the connection when the peer stays
    /// silent. A peer whose input this side does not read does not count as silent.
    pub(super) fn probe(&mut self, now: Millis) {
        let interval = self.options.inactivity_probe_ms;
        if interval == 0 || self.closing.is_some() {
            return;
        }
        if std::mem::take(&mut self.progressed) && !self.wants_input() {
            // This side does not read, but the peer reads, so the peer is alive.
            self.heard = now;
            self.probed = None;
        }
        match self.probed {
            Some(at) if now.since(at) >= interval => {
                let seconds = interval as f64 / 1000.0;
                tracing::error!(
                    target: "rconn",
                    "{}: no response to inactivity probe after {seconds} seconds, disconnecting",
                    self.options.name
                );
                self.close(CloseCause::Silent, "no response to inactivity probe".to_owned());
            }
            Some(_) => {}
            None if now.since(self.heard) >= interval => {
                if self.protocol.is_none() {
                    self.complain("no hello, disconnecting");
                    self.close(CloseCause::Silent, "no hello".to_owned());
                } else if self.wants_input() {
                    self.send(&Message::new(0, Body::EchoRequest(Vec::new())));
                    self.probed = Some(now);
                } else {
                    // The peer's requests wait until it reads. It gets another interval to read.
                    self.probed = Some(now);
                }
            }
            None => {}
        }
    }

    pub(super) fn deadline(&self, bundle_timeout: u64) -> Option<Millis> {
        if self.closing.is_some() {
            return None;
        }
        let ms = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let interval = self.options.inactivity_probe_ms;
        let probe = (interval != 0).then(|| self.probed.unwrap_or(self.heard) + ms(interval));
        let bundles = self.bundles.values().map(|b| b.touched + ms(bundle_timeout)).min();
        let packets = self.queues.iter().filter_map(PacketQueue::deadline).min();
        let partial = self.partial.as_ref().map(PartialRequest::deadline);
        [probe, bundles, partial, packets].into_iter().flatten().min()
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        let [actions, misses] = &self.queues;
        ConnectionStatus {
            bridge: self.bridge,
            kind: self.kind(),
            name: self.options.name.clone(),
            version: self.version(),
            role: self.role,
            connected_at: self.connected_at,
            idle: self.probed.is_some(),
            counters: self.counters,
            misses: misses.stats(),
            actions: actions.stats(),
        }
    }
}
