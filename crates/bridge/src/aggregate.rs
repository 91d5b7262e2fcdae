// SPDX-License-Identifier: Apache-2.0
//! LACP on a bundle: joins the machine of the crate `protocols` with ports.

use crate::bond::LacpStatus;
use crate::protocol::{Protocol, Round, payload};
use clock::Millis;
use flow::{Key, Mask};
use openflow::PortNo;
use packet::Packet;
use packet::build::Frame;
use protocols::lacp::{self, Lacp, MemberReport, MemberSettings};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use protocols::lacp::{Counts, Freshness, Info, Settings, state};

/// Settings of LACP on a bundle, as the database has them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AggregateSettings {
    /// PDUs are sent also without a partner.
    pub is_active: bool,
    /// The partner is asked for a PDU each second.
    pub is_fast: bool,
    /// Address of this system; `None` for the bridge's.
    pub system_id: Option<[u8; 6]>,
    /// Priority of this system; `None` for the lowest, or the second lowest for a bond.
    pub system_priority: Option<u16>,
    /// Members without a partner may be enabled.
    pub falls_back: bool,
}

/// Settings of LACP on an interface, as the database has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PortSettings {
    /// Port number in PDUs; `None` for the OpenFlow number.
    pub port_id: Option<u16>,
    /// Port priority in PDUs; `None` for the lowest.
    pub port_priority: Option<u16>,
    /// Key in PDUs; 0 for the port number of the first member.
    pub key: u16,
}

/// A port of a bundle with LACP.
#[derive(Clone, Debug)]
pub(crate) struct AggregatePort {
    pub settings: MemberSettings,
    pub mac: [u8; 6],
    pub has_carrier: bool,
    /// Number of changes of the carrier so far.
    pub carrier_changes: u64,
}

/// State of LACP on a bundle, for texts.
#[derive(Clone, Debug)]
pub struct Report {
    /// Settings of the machine.
    pub settings: Settings,
    /// There is a partner.
    pub is_negotiated: bool,
    /// Key of the aggregate; `None` without members.
    pub key: Option<u16>,
    /// The members, by name.
    pub members: Vec<MemberReport>,
}

/// The machine of one bundle. Any thread may use it.
#[derive(Debug, Default)]
pub struct Aggregate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lacp: Lacp,
    ports: Vec<AggregatePort>,
    /// The state that the control thread has been notified of.
    known: Option<Outcome>,
}

/// The part of the state that others follow.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    is_negotiated: bool,
    /// For each member: whether it may be enabled, and whether its partner is known.
    members: Vec<(u32, bool, bool)>,
}

impl Aggregate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // no operation panics midway
    }

    /// Sets the settings and the ports. Returns true when [`Protocol::run`] is due.
    pub(crate) fn configure(
        &self,
        settings: &Settings,
        ports: Vec<AggregatePort>,
        now: Millis,
    ) -> bool {
        let mut state = self.lock();
        let members: Vec<MemberSettings> = ports.iter().map(|p| p.settings.clone()).collect();
        let mut is_due = state.lacp.configure(settings, &members, now);
        for port in &ports {
            let number = port.settings.number;
            let old = state.ports.iter().find(|old| old.settings.number == number);
            let is_same = old.is_none_or(|old| {
                (old.has_carrier, old.carrier_changes) == (port.has_carrier, port.carrier_changes)
            });
            state.lacp.set_carrier(number, port.has_carrier, !is_same, now);
            is_due |= !is_same;
        }
        state.ports = ports;
        is_due
    }

    /// Returns whether the bundle has a partner.
    pub fn status(&self) -> LacpStatus {
        match self.lock().lacp.is_negotiated() {
            true => LacpStatus::Negotiated,
            false => LacpStatus::Configured,
        }
    }

    /// Returns true when LACP lets the port carry traffic.
    pub fn may_enable(&self, port: PortNo) -> bool {
        self.lock().lacp.may_enable(port.0)
    }

    /// Returns true when the port's partner is known.
    pub fn is_current(&self, port: PortNo) -> bool {
        self.lock().lacp.is_current(port.0)
    }

    /// Returns the state for texts.
    pub fn report(&self) -> Report {
        let state = self.lock();
        let lacp = &state.lacp;
        let mut members: Vec<MemberReport> = lacp.members().collect();
        members.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        Report {
            settings: lacp.settings().clone(),
            is_negotiated: lacp.is_negotiated(),
            key: lacp.key(),
            members,
        }
    }
}

impl State {
    fn outcome(&self) -> Outcome {
        let member = |p: &AggregatePort| {
            let number = p.settings.number;
            (number, self.lacp.may_enable(number), self.lacp.is_current(number))
        };
        Outcome {
            is_negotiated: self.lacp.is_negotiated(),
            members: self.ports.iter().map(member).collect(),
        }
    }
}

impl Protocol for Aggregate {
    fn reason(&self) -> &'static str {
        "lacp"
    }

    fn claims(&self, key: &Key, _mask: &mut Mask) -> bool {
        key.packet_type.get() == 0 && key.dl_type.get() == lacp::ETHERTYPE
    }

    fn receive(&self, port: PortNo, packet: &Packet, now: Millis) -> bool {
        self.lock().lacp.receive(port.0, payload(packet.data()), now)
    }

    fn run(&self, now: Millis) -> Round {
        let mut state = self.lock();
        let pdus = state.lacp.run(now);
        let frame = |(number, pdu): (u32, [u8; lacp::PDU_LEN])| {
            let port = state.ports.iter().find(|p| p.settings.number == number)?;
            let frame = Frame::ethernet(lacp::DESTINATION, port.mac);
            Some((PortNo(number), frame.ethertype(lacp::ETHERTYPE).payload(&pdu).packet()))
        };
        let frames = pdus.into_iter().filter_map(frame).collect();
        let outcome = state.outcome();
        let is_changed = state.known.as_ref() != Some(&outcome);
        state.known = Some(outcome);
        Round { frames, next: state.lacp.next_due(), is_changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_and_its_change_come_out() {
        let aggregate = Aggregate::default();
        let settings = MemberSettings { number: 3, port_id: 3, ..MemberSettings::default() };
        let port = AggregatePort {
            settings,
            mac: [2, 0, 0, 0, 0, 3],
            has_carrier: true,
            carrier_changes: 0,
        };
        let of_system =
            Settings { is_active: true, system_id: [2, 0, 0, 0, 0, 9], ..Settings::default() };
        assert!(aggregate.configure(&of_system, vec![port], Millis(10)));
        let round = aggregate.run(Millis(10));
        assert!(round.is_changed && round.next.is_some());
        let [(PortNo(3), frame)] = &round.frames[..] else { panic!("{round:?}") };
        assert_eq!(frame.data()[..14], [1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 3, 0x88, 9]);
        assert_eq!(frame.len(), 14 + 110);
        assert!(!aggregate.run(Millis(10)).is_changed);
        assert_eq!(aggregate.status(), LacpStatus::Negotiated, "expired, and attached, as in OVS");
        assert!(!aggregate.may_enable(PortNo(3)));
    }
}
