// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management: continuity checks (IEEE 802.1ag-2007, clause 20), as Open vSwitch
//! has them.
//!
//! A [`Cfm`] is one maintenance point. It sends a [`Ccm`] in each interval, and after every three and a
//! half intervals it checks which remote maintenance points have been heard. In *demand mode* other
//! received packets may stand for missing messages.
//!
//! # Which side it errs on
//! A message with another interval or of an unknown sender is no fault, since such a fault could be
//! caused by anybody, and faults move traffic.

mod ccm;
#[cfg(test)]
mod tests;

pub use ccm::{
    CCM_LEN, Ccm, CcmError, DESTINATION, ETHERTYPE, EXTENDED_DESTINATION, LEAST_CCM_LEN, MAID,
    MAID_LEN, MOST_MPID,
};

use clock::Millis;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use thiserror::Error;

/// Most remote maintenance points that are remembered. Each has a few words.
pub const MOST_REMOTES: usize = 256;
/// Fault checks from one health to the next.
const HEALTH_CHECKS: u32 = 6;
/// Messages that arrive between two healths when none is lost: 3.5 in each interval of fault checks.
const HEALTHY_COUNT: u32 = HEALTH_CHECKS * 7 / 2;
/// Shortest interval, in milliseconds, from which the interval of fault checks follows in demand mode:
/// counters of received packets are not newer.
const LEAST_DEMAND_MS: u32 = 500;
/// Intervals within which one message must arrive in demand mode.
const DEMAND_INTERVALS: i64 = 100;
/// The intervals that have a code, in milliseconds, from code 1 on (IEEE 802.1ag-2007, table 21-16).
const CODED_MS: [u32; 7] = [3, 10, 100, 1_000, 10_000, 60_000, 600_000];

/// Settings of a maintenance point (`Interface:cfm_mpid` and `other_config:cfm_*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Identifier of the maintenance point.
    pub mpid: u64,
    /// Requested interval, in milliseconds; not 0.
    pub interval_ms: u32,
    /// Open vSwitch's extension: any interval, 64-bit identifiers, the operational state.
    pub is_extended: bool,
    /// Received packets may stand for messages. Only with the extension.
    pub has_demand: bool,
    /// Operational state that is sent with the extension.
    pub is_up: bool,
}

/// A setting without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The identifier is out of range.
    #[error("cfm_mpid {0} is not from 1 to {MOST_MPID}")]
    Mpid(u64),
    /// The identifier is zero, which no mode allows.
    #[error("cfm_mpid is zero")]
    ZeroMpid,
}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Fails when the identifier is out of range.
    pub fn check(&self) -> Result<(), SettingsError> {
        match self.mpid {
            0 => Err(SettingsError::ZeroMpid),
            mpid if mpid > MOST_MPID && !self.is_extended => Err(SettingsError::Mpid(mpid)),
            _ => Ok(()),
        }
    }

    fn interval(&self) -> Interval {
        let coded = CODED_MS.iter().rposition(|ms| *ms <= self.interval_ms).unwrap_or(0);
        let ms = CODED_MS.get(coded).copied().unwrap_or_default();
        if self.is_extended && ms != self.interval_ms {
            return Interval { code: 0, ms: self.interval_ms.min(u16::MAX.into()) };
        }
        Interval { code: coded as u8 + 1, ms } // at most 7
    }
}

/// A set of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u8);

impl Faults {
    /// No fault.
    pub const NONE: Faults = Faults(0);
    /// No message arrives.
    pub const RECV: Faults = Faults(1);
    /// A remote maintenance point is missing messages.
    pub const RDI: Faults = Faults(2);
    /// A message of another maintenance association has arrived.
    pub const MAID: Faults = Faults(4);
    /// A message with the own identifier has arrived.
    pub const LOOPBACK: Faults = Faults(8);
    /// There are more than [`MOST_REMOTES`] remote maintenance points.
    pub const OVERFLOW: Faults = Faults(16);
    /// A person has set the fault.
    pub const OVERRIDE: Faults = Faults(32);
    /// Each fault with its name in texts and in the database.
    pub const NAMES: [(Faults, &'static str); 6] = [
        (Faults::RECV, "recv"),
        (Faults::RDI, "rdi"),
        (Faults::MAID, "maid"),
        (Faults::LOOPBACK, "loopback"),
        (Faults::OVERFLOW, "overflow"),
        (Faults::OVERRIDE, "override"),
    ];

    /// Returns true without any fault.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the names of the faults.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Faults::NAMES.into_iter().filter(move |(f, _)| self.0 & f.0 != 0).map(|(_, name)| name)
    }
}

impl BitOr for Faults {
    type Output = Faults;
    fn bitor(self, other: Faults) -> Faults {
        Faults(self.0 | other.0)
    }
}

impl BitOrAssign for Faults {
    fn bitor_assign(&mut self, other: Faults) {
        *self = *self | other;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

/// The interval of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    /// Code in messages; 0 for a length without a code.
    code: u8,
    ms: u32,
}

/// A remote maintenance point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    /// A message has arrived since the last fault check.
    is_heard: bool,
    is_up: bool,
    sequence: u32,
    /// Messages without a fault since the last health.
    healthy: u32,
    heard_at: Millis,
}

/// A received message that a person may want to know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Oddity {
    /// The message is none, or another one of 802.1ag.
    #[error("Received {0}")]
    NoCcm(CcmError),
    /// The message belongs to another maintenance association.
    #[error("Received unexpected remote MAID")]
    Maid,
    /// The sender has another interval.
    #[error("received a CCM with an unexpected interval ({interval}) from RMP {mpid}")]
    Interval {
        /// Code of the sender's interval.
        interval: u8,
        /// Identifier of the sender.
        mpid: u64,
    },
    /// The sender has another interval, which has no code.
    #[error(
        "received a CCM with an unexpected extended interval ({interval_ms}ms) from RMP {mpid}"
    )]
    ExtendedInterval {
        /// Milliseconds of the sender's interval.
        interval_ms: u16,
        /// Identifier of the sender.
        mpid: u64,
    },
    /// There are too many remote maintenance points.
    #[error("dropped CCM with MPID {0}")]
    Overflow(u64),
    /// The message has the own identifier.
    #[error("received CCM with local MPID {0}")]
    Loopback(u64),
    /// Messages are missing, or come out of order.
    #[error(
        "(mpid {mpid}) detected sequence numbers which indicate possible connectivity problems (previous {previous}) (current {current})"
    )]
    Sequence {
        /// Identifier of the sender.
        mpid: u64,
        /// Number of the previous message.
        previous: u32,
        /// Number of this message.
        current: u32,
    },
}

/// The result of [`Cfm::run`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Message to send.
    pub ccm: Option<Ccm>,
    /// Faults before and after, where they have changed.
    pub change: Option<(Faults, Faults)>,
    /// Remote maintenance points that were not heard, with the milliseconds since they were.
    pub silent: Vec<(u64, u64)>,
}

/// State of a maintenance point, for the database and for others that follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Faults of the last check, or those that a person has set.
    pub faults: Faults,
    /// Times at which faults came or went.
    pub flaps: u64,
    /// Percentage of messages that arrived; `None` before it is known, and with several remotes.
    pub health: Option<u8>,
    /// Operational state of the remotes; `None` without the extension.
    pub is_remote_up: Option<bool>,
    /// Remote maintenance points that the last fault check found, ascending.
    pub remotes: Vec<u64>,
}

impl Status {
    /// Returns true when the port may carry traffic.
    pub fn is_live(&self) -> bool {
        self.faults.is_empty() && self.is_remote_up != Some(false)
    }
}

/// State of a maintenance point, for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Settings in force.
    pub settings: Settings,
    /// A person has set the faults.
    pub is_overridden: bool,
    /// The state that others follow.
    pub status: Status,
    /// Operational state of the remotes, also without the extension.
    pub is_remote_up: bool,
    /// Interval of messages, in milliseconds.
    pub interval_ms: u32,
    /// Milliseconds until the next message; negative when it is late.
    pub next_ccm_ms: i64,
    /// Milliseconds until the next fault check; negative when it is late.
    pub next_check_ms: i64,
    /// Remote maintenance points: identifier, heard since the last check, operationally up.
    pub remotes: Vec<(u64, bool, bool)>,
}

/// One maintenance point. It has no thread and no lock of its own.
#[derive(Clone, Debug)]
pub struct Cfm {
    settings: Settings,
    interval: Interval,
    /// A fault check has been made.
    is_checked: bool,
    faults: Faults,
    /// Faults of messages since the last fault check.
    seen: Faults,
    /// Faults that a person has set; `None` for the real ones.
    forced: Option<bool>,
    is_remote_up: bool,
    sequence: u32,
    send_at: Millis,
    check_at: Millis,
    remotes: BTreeMap<u64, Remote>,
    /// Remotes that the last fault check found.
    found: Vec<u64>,
    health: Option<u8>,
    /// Fault checks since the last health.
    checks: u32,
    flaps: u64,
    /// Demand mode: packets that had been received at the last fault check.
    received: u64,
    /// Demand mode: end of the time in which packets may stand for messages.
    demand_ends: Millis,
}

impl Cfm {
    /// Returns a maintenance point that sends its first message at once. `received` is the number of
    /// packets that the port has received so far.
    ///
    /// # Errors
    ///
    /// Fails when the settings make no sense.
    pub fn new(settings: Settings, received: u64, now: Millis) -> Result<Cfm, SettingsError> {
        settings.check()?;
        let interval = settings.interval();
        let mut cfm = Cfm {
            interval,
            settings,
            is_checked: false,
            faults: Faults::NONE,
            seen: Faults::NONE,
            forced: None,
            is_remote_up: true,
            sequence: 0,
            send_at: now,
            check_at: now,
            remotes: BTreeMap::new(),
            found: Vec::new(),
            health: None,
            checks: 0,
            flaps: 0,
            received,
            demand_ends: Millis(i64::MIN),
        };
        cfm.check_at = now + cfm.check_interval();
        Ok(cfm)
    }

    /// Changes the settings.
    ///
    /// # Errors
    ///
    /// Fails when the settings make no sense; nothing is changed then.
    pub fn configure(
        &mut self,
        settings: Settings,
        received: u64,
        now: Millis,
    ) -> Result<(), SettingsError> {
        settings.check()?;
        let interval = settings.interval();
        let had_demand = self.has_demand();
        self.settings = settings;
        if self.has_demand() && !had_demand {
            self.received = received;
        }
        if self.interval != interval {
            self.interval = interval;
            self.send_at = now;
            self.check_at = now + self.check_interval();
        }
        Ok(())
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the faults by hand: some, none, or the real ones (`None`).
    pub fn force(&mut self, is_faulty: Option<bool>) {
        self.forced = is_faulty;
    }

    /// Returns true in demand mode, in which [`Cfm::run`] needs the number of received packets.
    pub fn has_demand(&self) -> bool {
        self.settings.is_extended && self.settings.has_demand
    }

    /// Returns the destination address of messages that are sent and received.
    pub fn destination(&self) -> [u8; 6] {
        if self.settings.is_extended { EXTENDED_DESTINATION } else { DESTINATION }
    }

    /// Takes a message, which begins after the Ethernet header. Returns what is odd about it.
    pub fn receive(&mut self, bytes: &[u8], now: Millis) -> Vec<Oddity> {
        let ccm = match Ccm::decode(bytes) {
            Ok(ccm) => ccm,
            Err(error) => return vec![Oddity::NoCcm(error)],
        };
        if ccm.maid != MAID {
            self.seen |= Faults::MAID;
            return vec![Oddity::Maid];
        }
        let is_extended = self.settings.is_extended;
        let mpid = if is_extended { ccm.extended_mpid } else { ccm.mpid.into() };
        let mut odd = Vec::new();
        if ccm.interval != self.interval.code {
            odd.push(Oddity::Interval { interval: ccm.interval, mpid });
        }
        if is_extended && ccm.interval == 0 && u32::from(ccm.extended_interval) != self.interval.ms
        {
            odd.push(Oddity::ExtendedInterval { interval_ms: ccm.extended_interval, mpid });
        }
        let mut faults = if ccm.has_defect { Faults::RDI } else { Faults::NONE };
        let known = self.remotes.get(&mpid).copied();
        if known.is_none() && self.remotes.len() >= MOST_REMOTES {
            // As in Open vSwitch this fault of the message has no effect: no remote counts it.
            odd.push(Oddity::Overflow(mpid));
            return odd;
        }
        // As in Open vSwitch a loop shows with the second message, and number 0 is followed by any.
        if known.is_some() && mpid == self.settings.mpid {
            faults |= Faults::LOOPBACK;
            odd.push(Oddity::Loopback(mpid));
        }
        let previous = known.map_or(0, |remote| remote.sequence);
        if previous != 0 && ccm.sequence != previous.wrapping_add(1) {
            odd.push(Oddity::Sequence { mpid, previous, current: ccm.sequence });
        }
        let mut healthy = known.map_or(0, |remote| remote.healthy);
        if faults.is_empty() {
            healthy = healthy.saturating_add(1);
            if self.has_demand() {
                self.demand_ends = now + DEMAND_INTERVALS * i64::from(self.interval.ms);
            }
        }
        self.seen |= faults;
        let is_up = !(is_extended && ccm.is_down);
        let remote =
            Remote { is_heard: true, is_up, sequence: ccm.sequence, healthy, heard_at: now };
        self.remotes.insert(mpid, remote);
        odd
    }

    /// Does what is due at `now`. `received` is the number of packets that the port has received, which
    /// counts in demand mode only.
    pub fn run(&mut self, now: Millis, received: u64) -> Round {
        let mut round = Round::default();
        if now >= self.send_at {
            round.ccm = Some(self.compose());
            self.send_at = now + i64::from(self.interval.ms);
        }
        if now >= self.check_at {
            self.check(now, received, &mut round);
            self.check_at = now + self.check_interval();
        }
        round
    }

    /// Returns the time of the next [`Cfm::run`].
    pub fn next_due(&self) -> Millis {
        self.send_at.min(self.check_at)
    }

    /// Returns the state.
    pub fn status(&self) -> Status {
        let faults = match self.forced {
            Some(true) => Faults::OVERRIDE,
            Some(false) => Faults::NONE,
            None => self.faults,
        };
        Status {
            faults,
            flaps: self.flaps,
            health: self.health,
            is_remote_up: self.settings.is_extended.then_some(self.is_remote_up),
            remotes: self.found.clone(),
        }
    }

    /// Returns the state for texts.
    pub fn report(&self, now: Millis) -> Report {
        let remotes = self.remotes.iter().map(|(mpid, r)| (*mpid, r.is_heard, r.is_up));
        Report {
            settings: self.settings.clone(),
            is_overridden: self.forced.is_some(),
            status: self.status(),
            is_remote_up: self.is_remote_up,
            interval_ms: self.interval.ms,
            next_ccm_ms: self.send_at.0.saturating_sub(now.0),
            next_check_ms: self.check_at.0.saturating_sub(now.0),
            remotes: remotes.collect(),
        }
    }

    /// Returns the milliseconds from one fault check to the next: three and a half intervals
    /// (IEEE 802.1ag-2007, 20.19.1).
    fn check_interval(&self) -> i64 {
        let least = if self.has_demand() { LEAST_DEMAND_MS } else { 0 };
        i64::from(self.interval.ms.max(least)) * 7 / 2
    }

    fn compose(&mut self) -> Ccm {
        self.sequence = self.sequence.wrapping_add(1);
        let Settings { mpid, is_extended, is_up, .. } = self.settings;
        let is_coded = self.interval.code != 0;
        Ccm {
            has_defect: self.is_checked && self.remotes.is_empty(),
            interval: self.interval.code,
            sequence: self.sequence,
            // No receiver reads the short identifier in extended mode.
            mpid: if is_extended { folded(mpid) } else { mpid as u16 },
            maid: MAID,
            // An interval without a code has at most 16 bits.
            extended_interval: if is_coded { 0 } else { self.interval.ms as u16 },
            extended_mpid: if is_extended { mpid } else { 0 },
            is_down: is_extended && !is_up,
        }
    }

    fn check(&mut self, now: Millis, received: u64, round: &mut Round) {
        let before = self.faults;
        self.faults = std::mem::take(&mut self.seen);
        if self.checks == HEALTH_CHECKS {
            self.health = self.new_health();
            self.checks = 0;
        }
        self.checks += 1;
        let is_demanded = self.has_demand()
            && self.remotes.len() == 1
            && received > self.received
            && now < self.demand_ends;
        self.received = received;
        self.found.clear();
        let (mut is_any_up, mut is_any_down) = (false, false);
        let found = &mut self.found;
        self.remotes.retain(|mpid, remote| {
            if !std::mem::take(&mut remote.is_heard) {
                round.silent.push((*mpid, now.since(remote.heard_at)));
                return is_demanded;
            }
            is_any_up |= remote.is_up;
            is_any_down |= !remote.is_up;
            found.push(*mpid);
            true
        });
        if is_any_up || is_any_down {
            self.is_remote_up = !is_any_down;
        }
        if self.remotes.is_empty() {
            self.faults |= Faults::RECV;
        }
        if before != self.faults {
            round.change = Some((before, self.faults));
            if before.is_empty() || self.faults.is_empty() {
                self.flaps += 1;
            }
        }
        self.is_checked = true;
    }

    /// Returns the health of the path to the only remote: the percentage of messages that arrived.
    fn new_health(&mut self) -> Option<u8> {
        let mut remotes = self.remotes.values_mut();
        match (remotes.next(), remotes.next()) {
            (None, _) => Some(0),
            (Some(remote), None) => {
                let count = std::mem::take(&mut remote.healthy);
                Some((count.min(HEALTHY_COUNT) * 100 / HEALTHY_COUNT) as u8)
            }
            _ => None,
        }
    }
}

/// Returns 16 bits that depend on all bits of an identifier.
fn folded(mpid: u64) -> u16 {
    (mpid ^ mpid >> 16 ^ mpid >> 32 ^ mpid >> 48) as u16
}
