// SPDX-License-Identifier: Apache-2.0
//! LLDP (IEEE 802.1AB-2016) with auto-attach, as Open vSwitch has it.
//!
//! An [`Agent`] announces one port, and remembers the announcements that the port receives: its
//! neighbours. With auto-attach it asks a server for services (I-SID) in exchange for VLANs, and shows
//! what the server answers.
//!
//! # Which side it errs on
//! A neighbour beyond the limit is not remembered, and counted: announcements need no permission.

mod pdu;
#[cfg(test)]
mod tests;

pub use pdu::{
    Announcement, Assignment, DESTINATION, ETHERTYPE, Element, Id, MOST_MAPPINGS, MOST_TEXT,
    Mapping, Pdu, PduError, decode,
};

use clock::Millis;
use std::collections::BTreeMap;

/// Milliseconds between two announcements.
const INTERVAL_MS: i64 = 5_000;
/// Most neighbours of a port. One is usual; hosts behind a switch that forwards LLDP make more.
pub const MOST_NEIGHBOURS: usize = 32;
/// Longest frame that a neighbour is remembered with, to recognise it, in bytes: a data unit fits one
/// Ethernet frame. A longer one is read again each time.
const LONGEST_REMEMBERED: usize = 1600;

/// Settings of a port (`Interface:lldp`, `Bridge:auto_attach`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Announcements are sent and received.
    pub is_enabled: bool,
    /// Name of the system; an empty one is not sent.
    pub system_name: String,
    /// Description of the system.
    pub system_description: String,
    /// VLANs by the service that they are to be mapped to.
    pub mappings: BTreeMap<u32, u16>,
}

/// Counters of a port since LLDP is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Announcements sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames received that are malformed.
    pub discarded: u64,
    /// TLVs received that are not understood.
    pub unrecognized: u64,
    /// Neighbours removed since their time was over.
    pub aged: u64,
    /// Neighbours added.
    pub inserted: u64,
    /// Neighbours removed since they shut down.
    pub deleted: u64,
    /// Neighbours for which there was no room.
    pub dropped: u64,
}

/// Status of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingStatus {
    /// No server has answered.
    Pending,
    /// A server has answered with this status.
    Answered(u8),
}

/// A system that announces itself to the port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Neighbour {
    pdu: Pdu,
    /// The frame, to recognise it.
    frame: Vec<u8>,
    /// End of its time.
    ends: Millis,
}

impl Neighbour {
    fn is_same_port(&self, pdu: &Pdu) -> bool {
        (&self.pdu.chassis, &self.pdu.port) == (&pdu.chassis, &pdu.port)
    }
}

/// State of a port, for texts.
#[derive(Clone, Debug)]
pub struct Report {
    /// Counters of frames and neighbours.
    pub counts: Counts,
    /// Announcements of neighbours, newest last.
    pub neighbours: Vec<Pdu>,
    /// Mappings with their status, by service.
    pub mappings: Vec<(Mapping, MappingStatus)>,
}

/// LLDP of one port. It has no thread and no lock of its own.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    mac: [u8; 6],
    port: String,
    /// Newest last.
    neighbours: Vec<Neighbour>,
    counts: Counts,
    send_at: Millis,
}

impl Agent {
    /// Returns the agent of the port with this address and name. It sends its first announcement after
    /// the interval.
    pub fn new(mac: [u8; 6], port: &str, settings: Settings, now: Millis) -> Agent {
        Agent {
            settings,
            mac,
            port: port.to_owned(),
            neighbours: Vec::new(),
            counts: Counts::default(),
            send_at: now + INTERVAL_MS,
        }
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        if settings.is_enabled != self.settings.is_enabled {
            self.send_at = now + INTERVAL_MS;
        }
        self.settings = settings;
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes a frame of LLDP: its destination, and the data unit after its Ethernet header. A frame to
    /// another address than the nearest bridge's has no effect, as in Open vSwitch.
    pub fn receive(&mut self, destination: [u8; 6], pdu: &[u8], now: Millis) -> Option<PduError> {
        self.counts.received += 1;
        self.expire(now);
        let known = self.neighbours.iter_mut().find(|n| !n.frame.is_empty() && n.frame == pdu);
        if let Some(known) = known {
            known.ends = end(&known.pdu, now);
            return None;
        }
        if destination != DESTINATION {
            return None;
        }
        let (read, unrecognized) = decode(pdu);
        self.counts.unrecognized += unrecognized;
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.counts.discarded += 1;
                return Some(error);
            }
        };
        let old = self.neighbours.iter().position(|n| n.is_same_port(&read));
        if let Some(old) = old {
            self.neighbours.remove(old);
        }
        if read.ttl == 0 {
            self.counts.deleted += u64::from(old.is_some());
            return None;
        }
        if self.neighbours.len() >= MOST_NEIGHBOURS {
            self.counts.dropped += 1;
            return None;
        }
        self.counts.inserted += u64::from(old.is_none());
        let frame = if pdu.len() <= LONGEST_REMEMBERED { pdu.to_vec() } else { Vec::new() };
        let ends = end(&read, now);
        self.neighbours.push(Neighbour { pdu: read, frame, ends });
        None
    }

    /// Does what is due at `now`. Returns the data unit to send.
    pub fn run(&mut self, now: Millis) -> Option<Vec<u8>> {
        self.expire(now);
        if !self.settings.is_enabled || now < self.send_at {
            return None;
        }
        self.send_at = now + INTERVAL_MS;
        self.counts.sent += 1;
        let settings = &self.settings;
        let mappings =
            settings.mappings.iter().map(|(isid, vlan)| Mapping { isid: *isid, vlan: *vlan });
        let announcement = Announcement {
            mac: self.mac,
            port: &self.port,
            system_name: &settings.system_name,
            system_description: &settings.system_description,
            mappings: &mappings.collect::<Vec<_>>(),
        };
        Some(announcement.encode())
    }

    /// Returns the time of the next [`Agent::run`].
    pub fn next_due(&self) -> Option<Millis> {
        let sends = self.settings.is_enabled.then_some(self.send_at);
        self.neighbours.iter().map(|n| n.ends).chain(sends).min()
    }

    /// Returns the state for texts.
    pub fn report(&self) -> Report {
        let answer = |isid: u32| {
            let mut newest = self.neighbours.iter().flat_map(|n| &n.pdu.assignments).rev();
            let answer = newest.find(|a| a.mapping.isid == isid);
            answer.map_or(MappingStatus::Pending, |a| MappingStatus::Answered(a.status))
        };
        let mappings = self.settings.mappings.iter();
        Report {
            counts: self.counts,
            neighbours: self.neighbours.iter().map(|n| self.with_system(&n.pdu)).collect(),
            mappings: mappings
                .map(|(isid, vlan)| (Mapping { isid: *isid, vlan: *vlan }, answer(*isid)))
                .collect(),
        }
    }

    /// Returns the announcement of a port with the description of its system, which the newest
    /// announcement of any port of the system sets, as in Open vSwitch.
    fn with_system(&self, pdu: &Pdu) -> Pdu {
        let newest = self.neighbours.iter().rfind(|n| n.pdu.chassis == pdu.chassis);
        let description = newest.and_then(|n| n.pdu.description.clone());
        Pdu { description, ..pdu.clone() }
    }

    fn expire(&mut self, now: Millis) {
        let before = self.neighbours.len();
        self.neighbours.retain(|n| now < n.ends);
        self.counts.aged += (before - self.neighbours.len()) as u64;
    }
}

/// Returns the end of a neighbour's time.
fn end(pdu: &Pdu, now: Millis) -> Millis {
    now + i64::from(pdu.ttl) * 1000
}
