// SPDX-License-Identifier: Apache-2.0
//! Bidirectional forwarding detection (RFC 5880) in asynchronous mode, as Open vSwitch has it.
//!
//! # Task
//! A [`Session`] is one end. Its caller passes received control packets to [`Session::receive`] and
//! calls [`Session::run`] when [`Session::deadline`] has come. Both return what there is to send.
//!
//! # Invariants
//! - A session that is not up sends at most once a second (RFC 5880, 6.8.3).
//! - A shorter interval takes effect at once; while the session is up, the other end learns of a
//!   changed one by a poll (6.8.3).
//!
//! # Which side it errs on
//! A time that is due is due in the millisecond in which it falls, so a session ends up to one
//! millisecond early, never late.

mod packet;

pub use packet::{ControlPacket, Diagnostic, Flags, PACKET_LEN, PacketError, State};

use clock::Millis;

/// Interval, in milliseconds, below which a session that is not up must not send (RFC 5880, 6.8.3).
const SLOW: u32 = 1000;

/// Settings of a session (`Interface:bfd`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest interval at which this end can receive, in milliseconds.
    pub min_rx: u32,
    /// Shortest interval at which this end would send while it is up, in milliseconds.
    pub min_tx: u32,
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
    /// Shortest interval at which it would send, in milliseconds.
    pub min_tx: u32,
    /// Shortest interval at which it can receive, in milliseconds.
    pub min_rx: u32,
    /// Its multiplier.
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

/// One end of a session. A plain value: the caller decides which thread may use it.
#[derive(Clone, Debug)]
pub struct Session {
    settings: Settings,
    /// Overrides the result of [`Session::is_forwarding`] (`bfd/set-forwarding`).
    forced: Option<bool>,
    state: State,
    diagnostic: Diagnostic,
    /// Flags of the next packet.
    flags: Flags,
    discriminator: u32,
    /// Intervals in force, in milliseconds.
    min_tx: u32,
    min_rx: u32,
    /// Intervals that follow when the other end has answered a poll.
    polled: Option<(u32, u32)>,
    remote: Remote,
    /// When the session ends without a packet.
    detect: Millis,
    next_tx: Millis,
    last_tx: Millis,
    /// Data that is received keeps the port forwarding until then.
    receiving_until: Option<Millis>,
    /// Packets of any kind that the port had received at the last look.
    received: Option<u64>,
    was_forwarding: bool,
    flaps: u64,
}

/// Everything that `bfd/show` shows, apart from the settings.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether the port may carry traffic.
    pub is_forwarding: bool,
    /// The local session's state.
    pub state: State,
    /// Reason for its last change.
    pub diagnostic: Diagnostic,
    /// Flags of the last packet that was sent.
    pub flags: Flags,
    /// The local discriminator.
    pub discriminator: u32,
    /// Shortest interval at which this end would send now, in milliseconds.
    pub min_tx: u32,
    /// Shortest interval at which this end can receive now, in milliseconds.
    pub min_rx: u32,
    /// Interval at which this end sends, without jitter, in milliseconds.
    pub tx_interval: u32,
    /// Interval at which the other end sends, in milliseconds.
    pub rx_interval: u32,
    /// The other end.
    pub remote: Remote,
    /// When the session ends without a packet.
    pub detect: Millis,
    /// When the next packet is sent.
    pub next_tx: Millis,
    /// When the last one was.
    pub last_tx: Millis,
    /// Changes of the forwarding state since the start.
    pub flaps: u64,
}

impl Session {
    /// Returns a session that is down. `discriminator`, not 0, is unique among the sessions of this
    /// system (RFC 5880, 6.3).
    pub fn new(settings: Settings, discriminator: u32, now: Millis) -> Session {
        let min_tx = settings.min_tx.max(SLOW);
        let min_rx = settings.min_rx;
        let mut session = Session {
            settings,
            forced: None,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            flags: Flags(0),
            discriminator: discriminator.max(1),
            min_tx,
            min_rx,
            polled: None,
            remote: UNKNOWN,
            detect: now,
            next_tx: now,
            last_tx: now,
            receiving_until: None,
            received: None,
            was_forwarding: false,
            flaps: 0,
        };
        session.announce_joined_path();
        session
    }

    /// Puts settings into force. A session that is up notifies the other end by a poll.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        if self.settings == settings {
            return;
        }
        let was_receiving = self.settings.forwards_if_receiving;
        self.settings = settings;
        if !self.settings.forwards_if_receiving || !was_receiving {
            (self.receiving_until, self.received) = (None, None);
        }
        self.follow_settings();
        self.announce_joined_path();
        self.next_tx = self.next_tx.min(now + i64::from(self.tx_interval()));
        self.count_flaps(now);
    }

    /// Overrides the forwarding state; `None` ends that (`bfd/set-forwarding`).
    pub fn force_forwarding(&mut self, forced: Option<bool>, now: Millis) {
        self.forced = forced;
        self.count_flaps(now);
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes a control packet that was received. Returns the packet with which a poll is to be
    /// answered at once.
    pub fn receive(&mut self, packet: &ControlPacket, now: Millis) -> Option<ControlPacket> {
        if packet.your_discriminator != 0 && packet.your_discriminator != self.discriminator {
            return None; // for another session (RFC 5880, 6.8.6)
        }
        self.remote = Remote {
            state: packet.state,
            diagnostic: packet.diagnostic,
            flags: packet.flags,
            discriminator: packet.own_discriminator,
            min_tx: packet.desired_tx_us / 1000,
            // An end that can receive is not taken for one that cannot.
            min_rx: packet.required_rx_us.div_ceil(1000),
            multiplier: packet.multiplier,
        };
        if packet.flags.contains(Flags::FINAL) && self.flags.contains(Flags::POLL) {
            self.flags.0 &= !Flags::POLL;
            if let Some((min_tx, min_rx)) = self.polled.take() {
                (self.min_tx, self.min_rx) = (min_tx, min_rx);
            }
        }
        let wait = u64::from(packet.multiplier) * u64::from(self.rx_interval());
        self.detect = now + i64::try_from(wait).unwrap_or(i64::MAX);
        self.follow_remote(packet.state);
        // The other end may have asked for another interval.
        self.next_tx = self.next_tx.min(now + i64::from(self.tx_interval()));
        self.count_flaps(now);
        packet.flags.contains(Flags::POLL).then(|| {
            self.last_tx = now;
            let flags = Flags(self.flags.0 & !Flags::POLL | Flags::FINAL);
            self.packet(flags)
        })
    }

    /// The state machine of RFC 5880, 6.2, for a packet with the state `remote`.
    fn follow_remote(&mut self, remote: State) {
        if self.state == State::AdminDown {
            return;
        }
        if remote == State::AdminDown {
            if self.state != State::Down {
                self.enter(State::Down, Diagnostic::NEIGHBOUR_DOWN);
            }
            return;
        }
        match (self.state, remote) {
            (State::Down, State::Down) => self.enter(State::Init, self.diagnostic),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.enter(State::Up, Diagnostic::NONE);
            }
            (State::Up, State::Down) => self.enter(State::Down, Diagnostic::NEIGHBOUR_DOWN),
            _ => {}
        }
    }

    /// Notes how many packets of any kind the port has received since its start. With
    /// [`Settings::forwards_if_receiving`] a growing number keeps the port forwarding, for three
    /// intervals.
    pub fn note_received(&mut self, packets: u64, now: Millis) {
        if !self.settings.forwards_if_receiving {
            return;
        }
        if self.received.is_some_and(|before| packets > before) {
            let last = i64::from(self.settings.multiplier) * i64::from(self.rx_interval());
            self.receiving_until = Some(now + last);
        }
        self.received = Some(packets);
        self.count_flaps(now);
    }

    /// Does what is due. `random` spreads the packets: 0 is the shortest interval, `u32::MAX` the
    /// longest. Returns the packet to send.
    pub fn run(&mut self, now: Millis, random: u32) -> Option<ControlPacket> {
        if matches!(self.state, State::Up | State::Init) && now >= self.detect {
            self.enter(State::Down, Diagnostic::EXPIRED);
        }
        self.count_flaps(now);
        // The other end does not want packets (RFC 5880, 6.8.7).
        if now < self.next_tx || self.remote.min_rx == 0 {
            return None;
        }
        self.last_tx = now;
        self.next_tx = now + i64::from(self.jittered(random));
        Some(self.packet(self.flags))
    }

    /// Returns the time of the next call of [`Session::run`].
    pub fn deadline(&self) -> Millis {
        let tx = if self.remote.min_rx == 0 { Millis(i64::MAX) } else { self.next_tx };
        let detects = matches!(self.state, State::Up | State::Init);
        if detects { tx.min(self.detect) } else { tx }
    }

    /// Returns true when the port may carry traffic.
    pub fn is_forwarding(&self, now: Millis) -> bool {
        if let Some(forced) = self.forced {
            return forced;
        }
        let broken = [
            Diagnostic::PATH_DOWN,
            Diagnostic::CONCATENATED_PATH_DOWN,
            Diagnostic::REVERSE_PATH_DOWN,
        ];
        let is_receiving = self.receiving_until.is_some_and(|until| now < until);
        (self.state == State::Up || is_receiving) && !broken.contains(&self.remote.diagnostic)
    }

    /// Returns the state of the session.
    pub fn status(&self, now: Millis) -> Status {
        Status {
            is_forwarding: self.is_forwarding(now),
            state: self.state,
            diagnostic: self.diagnostic,
            flags: self.flags,
            discriminator: self.discriminator,
            min_tx: self.min_tx,
            min_rx: self.min_rx,
            tx_interval: self.tx_interval(),
            rx_interval: self.rx_interval(),
            remote: self.remote,
            detect: self.detect,
            next_tx: self.next_tx,
            last_tx: self.last_tx,
            flaps: self.flaps,
        }
    }

    fn tx_interval(&self) -> u32 {
        self.min_tx.max(self.remote.min_rx)
    }

    fn rx_interval(&self) -> u32 {
        self.min_rx.max(self.remote.min_tx)
    }

    /// Returns the interval shortened by up to a quarter; with a multiplier of 1 by a tenth to a
    /// quarter (RFC 5880, 6.8.7).
    fn jittered(&self, random: u32) -> u32 {
        let interval = u64::from(self.tx_interval());
        let longest = if self.settings.multiplier == 1 { interval * 9 / 10 } else { interval };
        let shortest = interval * 3 / 4;
        let more = (longest.saturating_sub(shortest) * u64::from(random)) >> 32;
        u32::try_from(shortest + more).unwrap_or(u32::MAX).max(1)
    }

    fn enter(&mut self, state: State, diagnostic: Diagnostic) {
        if self.state == state {
            return;
        }
        self.state = state;
        self.diagnostic = diagnostic;
        if state == State::Down {
            self.flags = Flags(0);
            self.polled = None;
            self.remote = Remote { diagnostic: self.remote.diagnostic, ..UNKNOWN };
        }
        self.announce_joined_path();
        self.follow_settings();
    }

    /// A path that is joined to this one is down: the other end must know (RFC 5880, 6.8.17).
    fn announce_joined_path(&mut self) {
        let told = self.diagnostic == Diagnostic::CONCATENATED_PATH_DOWN;
        if self.settings.is_joined_path_down {
            self.diagnostic = Diagnostic::CONCATENATED_PATH_DOWN;
        } else if told {
            self.diagnostic = Diagnostic::NONE;
        }
    }

    /// Puts the configured intervals into force. While the session is up a poll precedes a change
    /// that the other end must know first: a longer interval for sending, a shorter one for
    /// receiving (RFC 5880, 6.8.3).
    fn follow_settings(&mut self) {
        let tx = match self.state {
            State::Up => self.settings.min_tx,
            _ => self.settings.min_tx.max(SLOW),
        };
        let wanted = (tx, self.settings.min_rx);
        if (self.min_tx, self.min_rx) == wanted {
            return;
        }
        if self.state == State::Up {
            self.flags.0 |= Flags::POLL;
            self.min_tx = self.min_tx.min(wanted.0);
            self.min_rx = self.min_rx.max(wanted.1);
            self.polled = Some(wanted);
        } else {
            (self.min_tx, self.min_rx) = wanted;
        }
    }

    fn count_flaps(&mut self, now: Millis) {
        if self.forced.is_some() {
            return;
        }
        let is_forwarding = self.is_forwarding(now);
        if std::mem::replace(&mut self.was_forwarding, is_forwarding) != is_forwarding {
            self.flaps += 1;
        }
    }

    /// Returns the next packet. A poll announces the intervals that are to come.
    fn packet(&self, flags: Flags) -> ControlPacket {
        let (min_tx, min_rx) = self.polled.unwrap_or((self.min_tx, self.min_rx));
        ControlPacket {
            diagnostic: self.diagnostic,
            state: self.state,
            flags,
            multiplier: self.settings.multiplier.max(1),
            own_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_tx_us: min_tx.saturating_mul(1000),
            required_rx_us: min_rx.saturating_mul(1000),
        }
    }
}

#[cfg(test)]
mod tests;
