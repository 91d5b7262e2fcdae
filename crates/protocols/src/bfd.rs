// SPDX-License-Identifier: Apache-2.0
//! Bidirectional forwarding detection (RFC 5880) in asynchronous mode, as Open vSwitch has it.
//!
//! # Task
//! A [`Session`] is one end. Its caller passes received control packets to [`Session::receive`] and
//! calls [`Session::run`] when [`Session::deadline`] has come, which returns the packet to send.
//! Lines for the log are kept until [`Session::take_lines`].
//!
//! # Invariants
//! - A session that is not up sends at most once a second (RFC 5880, 6.8.3), apart from answers to
//!   polls.
//! - A shorter interval for sending and a longer one for receiving take effect at once; the other
//!   end is notified of a changed interval by a poll (6.8.3).
//! - A packet never has both a poll and an answer to one (6.5).
//!
//! # Which side it errs on
//! A time that is due is due in the millisecond in which it falls, so a session ends up to one
//! millisecond early, never late.

mod decay;
mod packet;
mod text;

pub use packet::{ControlPacket, Diagnostic, Flags, PACKET_LEN, PacketError, State};
pub use text::{Level, Line};

use clock::Millis;
use decay::Decay;

/// Interval, in milliseconds, below which a session that is not up must not send (RFC 5880, 6.8.3).
const SLOW: u32 = 1000;
/// The shortest time, in milliseconds, for which received packets keep a port forwarding.
const LEAST_RECEIVING: i64 = 2000;
/// Intervals ([`Settings::min_rx`]) within which a control packet must come, or received packets no
/// longer keep a port forwarding.
const CONTROL_INTERVALS: i64 = 100;
/// The TTL of control packets (RFC 5881, 5): a packet with another one may come from afar.
pub const TTL: u8 = 255;

/// Settings of a session (`Interface:bfd`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest interval at which this end can receive, in milliseconds; not 0.
    pub min_rx: u32,
    /// Shortest interval at which this end would send while it is up, in milliseconds; not 0.
    pub min_tx: u32,
    /// Interval that takes the place of `min_rx` while the port receives hardly anything but control
    /// packets, in milliseconds; 0 for none. One below `min_rx` is refused, with a line for the log.
    pub decay_min_rx: u32,
    /// Packets that may be lost in a row before the other end takes the session down; not 0.
    pub multiplier: u8,
    /// A path that is joined to this one is down: the other end must not use this one.
    pub is_joined_path_down: bool,
    /// Received packets of any kind keep the port forwarding while control packets are missing.
    pub forwards_if_receiving: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            min_rx: 1000,
            min_tx: 100,
            decay_min_rx: 0,
            multiplier: 3,
            is_joined_path_down: false,
            forwards_if_receiving: false,
        }
    }
}

/// State of the other end, from its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// State of its session.
    pub state: State,
    /// Reason for its last change.
    pub diagnostic: Diagnostic,
    /// Flags of the packet.
    pub flags: Flags,
    /// Its discriminator; 0 while it is unknown.
    pub discriminator: u32,
    /// Shortest interval at which it would send, in milliseconds; 0 while it is unknown.
    pub min_tx: u32,
    /// Shortest interval at which it can receive, in milliseconds.
    pub min_rx: u32,
    /// Its multiplier; it outlives the session.
    pub multiplier: u8,
}

/// Nothing is known of the other end (RFC 5880, 6.8.1).
const UNKNOWN: Remote = Remote {
    state: State::Down,
    diagnostic: Diagnostic::NONE,
    flags: Flags(0),
    discriminator: 0,
    min_tx: 0,
    min_rx: 1,
    multiplier: 0,
};

/// A time, and how many packets of any kind the port had received by then. The count matters only
/// where [`Session::counts_received`] returns true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Millis,
    /// Packets since the port was opened.
    pub received: u64,
}

/// Results of a session, for `Interface:bfd_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the port may carry traffic.
    pub is_forwarding: bool,
    /// The local session's state.
    pub state: State,
    /// Reason for its last change.
    pub diagnostic: Diagnostic,
    /// State of the other end's session.
    pub remote_state: State,
    /// Reason for its last change.
    pub remote_diagnostic: Diagnostic,
    /// Changes of the forwarding state since the start.
    pub flaps: u64,
}

/// One end of a session. A plain value: the caller decides which thread may use it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Name of the port, for the log.
    name: String,
    settings: Settings,
    /// Overrides the result of [`Session::is_forwarding`] (`bfd/set-forwarding`).
    forced: Option<bool>,
    state: State,
    diagnostic: Diagnostic,
    /// Flags of the next packet: a poll, or the answer to one.
    flags: Flags,
    discriminator: u32,
    /// Intervals in force, in milliseconds.
    min_tx: u32,
    min_rx: u32,
    /// Intervals (`min_tx`, `min_rx`) that the present poll announces.
    polled: (u32, u32),
    remote: Remote,
    /// When the session ends without a packet.
    detect: Millis,
    /// When the next packet is due; 0 for at once.
    next_tx: Millis,
    last_tx: Millis,
    /// Packets that were received keep the port forwarding until then.
    receiving_until: Millis,
    /// They do so only until then, unless a control packet comes.
    control_until: Millis,
    decay: Decay,
    was_forwarding: bool,
    flaps: u64,
    /// [`Session::status`] may have changed since the last [`Session::take_changed`].
    is_changed: bool,
    /// Lines of [`Level::Debug`] are wanted.
    is_debugged: bool,
    lines: Vec<Line>,
    /// Spreads the packets.
    random: fastrand::Rng,
}

impl Session {
    /// Returns a session that is down, for the port called `name`. `discriminator`, not 0, is unique
    /// among the sessions of this system and hard to guess (RFC 5880, 6.8.1).
    pub fn new(name: &str, settings: &Settings, discriminator: u32, at: Moment) -> Session {
        let mut session = Session {
            name: name.to_owned(),
            // Not in force yet: `configure` compares with them.
            settings: Settings { min_rx: 0, min_tx: 0, ..Settings::default() },
            forced: None,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            flags: Flags(0),
            discriminator: discriminator.max(1),
            min_tx: SLOW,
            min_rx: 0,
            polled: (0, 0),
            remote: UNKNOWN,
            detect: Millis(0),
            next_tx: Millis(0),
            last_tx: Millis(0),
            receiving_until: Millis(0),
            control_until: Millis(0),
            decay: Decay::default(),
            was_forwarding: false,
            flaps: 0,
            is_changed: true,
            is_debugged: false,
            lines: Vec::new(),
            random: fastrand::Rng::with_seed(discriminator.into()),
        };
        session.configure(settings, at);
        session
    }

    /// Puts settings into force. A session that is not down notifies the other end by a poll.
    pub fn configure(&mut self, settings: &Settings, at: Moment) {
        let old = std::mem::replace(&mut self.settings, settings.clone());
        if old == *settings {
            return;
        }
        let is_free = self.state != State::Up;
        let is_polling = self.is_polling();
        let mut is_news = false;
        if old.min_tx != settings.min_tx {
            if is_free || !is_polling && settings.min_tx < self.min_tx {
                self.min_tx = settings.min_tx;
            }
            is_news = true;
        }
        if old.min_rx != settings.min_rx {
            if is_free || !is_polling && settings.min_rx > self.min_rx {
                self.min_rx = settings.min_rx;
            }
            is_news = true;
        }
        if (old.min_rx, old.decay_min_rx) != (settings.min_rx, settings.decay_min_rx) {
            if (1..settings.min_rx).contains(&settings.decay_min_rx) {
                let least = settings.min_rx;
                self.warn(format!("decay_min_rx cannot be less than {least} ms"));
                self.settings.decay_min_rx = 0;
            }
            self.decay.is_on = false;
            self.decay.restart(settings.decay_min_rx, at);
            is_news = true;
        }
        if old.is_joined_path_down != settings.is_joined_path_down {
            self.enter(self.state, Diagnostic::NONE, at);
            is_news = true;
        }
        if old.forwards_if_receiving != settings.forwards_if_receiving {
            self.receiving_until = Millis(0);
        }
        let is_other = (old.forwards_if_receiving, old.multiplier)
            != (settings.forwards_if_receiving, settings.multiplier);
        if is_other && settings.forwards_if_receiving && self.state == State::Up {
            self.extend_receiving(at.now);
        }
        if is_news {
            self.poll();
        }
    }

    /// Overrides the forwarding state; `None` ends that (`bfd/set-forwarding`).
    pub fn force_forwarding(&mut self, forced: Option<bool>) {
        self.forced = forced;
        self.is_changed = true;
    }

    /// Has lines of [`Level::Debug`] kept, too.
    pub fn set_debugged(&mut self, is_debugged: bool) {
        self.is_debugged = is_debugged;
    }

    /// Returns true where a [`Moment`] must have the number of received packets.
    pub fn counts_received(&self) -> bool {
        self.settings.decay_min_rx > 0
    }

    /// Takes a UDP payload that was received in a packet with this TTL. [`Session::run`] is due
    /// afterwards: a poll is answered at once.
    pub fn receive(&mut self, payload: &[u8], ttl: u8, at: Moment) {
        self.decay.control_packets = self.decay.control_packets.saturating_add(1);
        self.is_forwarding(at.now);
        if ttl == TTL {
            self.take(payload, at);
        }
        self.is_forwarding(at.now);
    }

    /// RFC 5880, 6.8.6.
    fn take(&mut self, payload: &[u8], at: Moment) {
        let Some(packet) = ControlPacket::parse(payload) else {
            let line = format!(
                "Received too-short BFD control message (only {} bytes long, at least {PACKET_LEN} \
                 required).",
                payload.len()
            );
            self.info(line);
            return;
        };
        if self.is_debugged {
            self.packet_line(Level::Debug, &packet, "Received BFD control message", at.now);
        }
        let is_for_another = ![0, self.discriminator].contains(&packet.your_discriminator);
        let receiver = if is_for_another { Err(PacketError::Receiver) } else { Ok(()) };
        let checked = packet.check().and(receiver);
        if usize::from(packet.len) > PACKET_LEN && checked.is_ok() {
            // It is taken all the same: a later version may have more fields.
            self.packet_line(Level::Warn, &packet, "Unexpected length", at.now);
        }
        if let Err(error) = checked {
            self.packet_line(Level::Warn, &packet, &error.to_string(), at.now);
            return;
        }
        self.is_changed |= self.remote.state != packet.state;
        self.remote.discriminator = packet.own_discriminator;
        self.remote.state = packet.state;
        self.remote.flags = packet.flags;
        self.remote.diagnostic = packet.diagnostic;
        if packet.flags.contains(Flags::FINAL) && self.is_polling() {
            (self.min_tx, self.min_rx) = self.polled;
            self.flags.0 &= !Flags::POLL;
            self.packet_line(Level::Info, &packet, "Poll sequence terminated", at.now);
        }
        if packet.flags.contains(Flags::POLL) {
            // A poll of this end has to wait: no packet has both flags.
            self.flags = Flags(self.flags.0 & !Flags::POLL | Flags::FINAL);
        }
        if self.remote.multiplier != packet.multiplier {
            let (name, old) = (&self.name, self.remote.multiplier);
            let text = format!(
                "Interface {name} remote mult value {old} changed to {}",
                packet.multiplier
            );
            self.lines.push(Line { level: Level::Info, text });
            self.remote.multiplier = packet.multiplier;
        }
        let min_rx = (packet.required_rx_us / 1000).max(1);
        if self.remote.min_rx != min_rx {
            self.remote.min_rx = min_rx;
            if self.next_tx != Millis(0) {
                self.schedule();
            }
            self.packet_line(Level::Info, &packet, "New remote min_rx", at.now);
        }
        self.remote.min_tx = (packet.desired_tx_us / 1000).max(1);
        let wait = i64::from(self.rx_interval()) * i64::from(self.remote.multiplier);
        self.detect = at.now + wait;
        let was_up = self.state == State::Up;
        self.follow_remote(packet.state, at);
        if was_up && self.state != State::Up && packet.state != State::AdminDown {
            self.packet_line(Level::Info, &packet, "Remote signaled STATE_DOWN", at.now);
        }
        if self.settings.forwards_if_receiving {
            self.control_until = at.now + CONTROL_INTERVALS * i64::from(self.settings.min_rx);
        }
    }

    /// The state machine of RFC 5880, 6.2, for a packet with the state `remote`. As in Open vSwitch
    /// a session that comes up keeps the reason for which it was down.
    fn follow_remote(&mut self, remote: State, at: Moment) {
        let next = match (self.state, remote) {
            (State::Down, State::Down) => State::Init,
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => State::Up,
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => State::Down,
            (state, _) => state,
        };
        if next == State::Down && self.state != State::Down {
            self.enter(next, Diagnostic::NEIGHBOUR_DOWN, at);
        } else if next != self.state {
            self.enter(next, self.diagnostic, at);
        }
    }

    /// Notes that the port has received packets of any kind: with
    /// [`Settings::forwards_if_receiving`] they keep it forwarding for a while.
    pub fn note_received(&mut self, now: Millis) {
        if self.settings.forwards_if_receiving {
            self.is_forwarding(now);
            self.extend_receiving(now);
            self.is_forwarding(now);
        }
    }

    fn extend_receiving(&mut self, now: Millis) {
        let several = i64::from(self.rx_interval()) * i64::from(self.settings.multiplier);
        self.receiving_until = now + several.max(LEAST_RECEIVING);
    }

    /// Does what is due. Returns the packet to send.
    pub fn run(&mut self, at: Moment) -> Option<ControlPacket> {
        let is_due = self.flags.contains(Flags::FINAL) || at.now >= self.next_tx;
        let packet = is_due.then(|| self.send(at.now));
        if self.state > State::Down && at.now >= self.detect {
            self.enter(State::Down, Diagnostic::EXPIRED, at);
        }
        self.is_forwarding(at.now);
        let was_decayed = self.decay.is_on;
        let settings = &self.settings;
        if self.state == State::Up && settings.decay_min_rx > 0 && at.now >= self.decay.next {
            self.decay.decide(settings.decay_min_rx, at);
        }
        let has_rx = [settings.min_rx, settings.decay_min_rx].contains(&self.min_rx);
        if self.min_tx != settings.min_tx || !has_rx || self.decay.is_on != was_decayed {
            self.poll();
        }
        packet
    }

    fn send(&mut self, now: Millis) -> ControlPacket {
        let interval = self.tx_interval();
        let delay = now.since(self.next_tx);
        if self.next_tx != Millis(0) && delay > u64::from(interval) * 3 / 2 {
            self.info(format!(
                "long delay of {delay}ms (expected {interval}ms) sending BFD control message"
            ));
        }
        let packet = self.packet();
        self.flags.0 &= !Flags::FINAL;
        if self.is_debugged {
            self.packet_line(Level::Debug, &packet, "Sending BFD Message", now);
        }
        self.last_tx = now;
        self.schedule();
        packet
    }

    /// Returns the time of the next call of [`Session::run`].
    pub fn deadline(&self) -> Millis {
        if self.flags.contains(Flags::FINAL) {
            return Millis(0);
        }
        let mut next = self.next_tx;
        if self.state > State::Down {
            next = next.min(self.detect);
        } else if self.was_forwarding && self.forced.is_none() {
            // Received packets keep it so.
            next = next.min(self.receiving_until).min(self.control_until);
        }
        next
    }

    /// Returns true when the port may carry traffic. A change since the last call counts as a flap.
    pub fn is_forwarding(&mut self, now: Millis) -> bool {
        if let Some(forced) = self.forced {
            return forced;
        }
        let broken = [
            Diagnostic::PATH_DOWN,
            Diagnostic::CONCATENATED_PATH_DOWN,
            Diagnostic::REVERSE_PATH_DOWN,
        ];
        let is_receiving = self.settings.forwards_if_receiving
            && now < self.receiving_until
            && now < self.control_until;
        let is_forwarding =
            (self.state == State::Up || is_receiving) && !broken.contains(&self.remote.diagnostic);
        if std::mem::replace(&mut self.was_forwarding, is_forwarding) != is_forwarding {
            self.flaps += 1;
            self.is_changed = true;
        }
        is_forwarding
    }

    /// Returns the results of the session.
    pub fn status(&mut self, now: Millis) -> Status {
        Status {
            is_forwarding: self.is_forwarding(now),
            state: self.state,
            diagnostic: self.diagnostic,
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
            flaps: self.flaps,
        }
    }

    /// Returns true when [`Session::take_changed`] would.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Returns true when [`Session::status`] may have changed since the previous call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns the lines for the log since the previous call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    fn is_polling(&self) -> bool {
        self.flags.contains(Flags::POLL)
    }

    /// Announces the configured intervals, unless an earlier poll is not answered yet: a later call
    /// begins then.
    fn poll(&mut self) {
        if self.state > State::Down && !self.flags.intersects(Flags::POLL | Flags::FINAL) {
            let settings = &self.settings;
            let min_rx = if self.decay.is_on { settings.decay_min_rx } else { settings.min_rx };
            self.polled = (settings.min_tx, min_rx);
            self.flags.0 |= Flags::POLL;
            self.next_tx = Millis(0);
            self.info("Initiating poll sequence".to_owned());
        }
    }

    /// The shortest interval at which this end would send, in milliseconds.
    fn present_min_tx(&self) -> u32 {
        if self.state == State::Up { self.min_tx } else { self.min_tx.max(SLOW) }
    }

    /// The interval at which this end sends, without jitter, in milliseconds.
    fn tx_interval(&self) -> u32 {
        self.present_min_tx().max(self.remote.min_rx)
    }

    /// The interval at which the other end sends, in milliseconds.
    fn rx_interval(&self) -> u32 {
        self.min_rx.max(self.remote.min_tx)
    }

    /// Sets the time of the next packet: after an interval that is shortened by up to a quarter; with
    /// a multiplier of 1 by a tenth to a quarter (RFC 5880, 6.8.7).
    fn schedule(&mut self) {
        let least = if self.settings.multiplier == 1 { 10 } else { 0 };
        let interval = i64::from(self.tx_interval());
        self.next_tx = self.last_tx + (interval - interval * self.random.i64(least..=25) / 100);
    }

    /// Changes the state and its reason. While a joined path is down, that is the reason.
    fn enter(&mut self, state: State, diagnostic: Diagnostic, at: Moment) {
        let diagnostic = match self.settings.is_joined_path_down {
            true => Diagnostic::CONCATENATED_PATH_DOWN,
            false => diagnostic,
        };
        if (self.state, self.diagnostic) == (state, diagnostic) {
            return;
        }
        self.state_line(state, diagnostic, at.now);
        (self.state, self.diagnostic) = (state, diagnostic);
        if state <= State::Down {
            self.remote = Remote { multiplier: self.remote.multiplier, ..UNKNOWN };
            if std::mem::take(&mut self.decay.is_on) {
                self.min_rx = self.settings.min_rx;
            }
        }
        if state == State::Up && self.settings.decay_min_rx > 0 {
            self.decay.restart(self.settings.decay_min_rx, at);
        }
        self.is_changed = true;
    }

    /// Returns the next packet. A poll announces the intervals that are to come.
    fn packet(&self) -> ControlPacket {
        let (min_tx, min_rx) = match self.is_polling() {
            true => self.polled,
            false => (self.present_min_tx(), self.min_rx),
        };
        ControlPacket {
            version: packet::VERSION,
            diagnostic: self.diagnostic,
            state: self.state,
            flags: self.flags,
            multiplier: self.settings.multiplier.max(1),
            len: PACKET_LEN as u8,
            own_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_tx_us: min_tx.saturating_mul(1000),
            required_rx_us: min_rx.saturating_mul(1000),
            required_echo_us: 0,
        }
    }
}

#[cfg(test)]
mod tests;
