// SPDX-License-Identifier: Apache-2.0
//! LLDP of a port: joins the agent of the crate `protocols` with the port.

use crate::protocol::{ODDITY_INTERVAL, Protocol, Round, payload};
use clock::{Millis, OncePer};
use flow::{Key, Mask};
use openflow::PortNo;
use packet::Packet;
use packet::build::Frame;
use protocols::lldp::{self, Agent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use protocols::lldp::{Element, MOST_MAPPINGS, MappingStatus, Report, Settings};

/// LLDP of one port. Any thread may use it.
#[derive(Debug)]
pub struct LldpPort {
    /// Frames of LLDP are for the port.
    is_enabled: AtomicBool,
    odd: OncePer,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    agent: Agent,
    number: PortNo,
    name: String,
    mac: [u8; 6],
}

impl LldpPort {
    pub(crate) fn new(
        settings: Settings,
        number: PortNo,
        name: &str,
        mac: [u8; 6],
        now: Millis,
    ) -> LldpPort {
        let is_enabled = AtomicBool::new(settings.is_enabled);
        let agent = Agent::new(mac, name, settings, now);
        let state = Mutex::new(State { agent, number, name: name.to_owned(), mac });
        LldpPort { is_enabled, odd: OncePer::new(ODDITY_INTERVAL), state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // no operation panics midway
    }

    /// Returns true when the settings are those in force.
    pub(crate) fn has(&self, settings: &Settings) -> bool {
        self.lock().agent.settings() == settings
    }

    /// Changes the settings. The caller publishes, since translation depends on some of them.
    pub(crate) fn configure(&self, settings: Settings, now: Millis) {
        self.is_enabled.store(settings.is_enabled, Ordering::Relaxed);
        self.lock().agent.configure(settings, now);
    }

    /// Follows a change of the port's address, from which frames are sent. The system keeps the
    /// identifier with which it has announced itself, as in Open vSwitch.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) {
        self.lock().mac = mac;
    }

    /// Returns the state for texts.
    pub fn report(&self) -> Report {
        self.lock().agent.report()
    }
}

impl Protocol for LldpPort {
    fn reason(&self) -> &'static str {
        "lldp"
    }

    fn claims(&self, key: &Key, _mask: &mut Mask) -> bool {
        key.packet_type.get() == 0
            && key.dl_type.get() == lldp::ETHERTYPE
            && self.is_enabled.load(Ordering::Relaxed)
    }

    fn receive(&self, _port: PortNo, packet: &Packet, now: Millis) -> bool {
        let frame = packet.data();
        let destination = frame.first_chunk().copied().unwrap_or_default();
        let mut state = self.lock();
        let error = state.agent.receive(destination, payload(frame), now);
        if let Some(error) = error
            && self.odd.is_due(now)
        {
            tracing::warn!(target: "lldp", "{error} received on {}", state.name);
        }
        true // the neighbour's time may end earlier than anything else
    }

    fn run(&self, now: Millis) -> Round {
        let mut state = self.lock();
        let pdu = state.agent.run(now);
        let frame = |pdu: Vec<u8>| {
            let frame = Frame::ethernet(lldp::DESTINATION, state.mac);
            (state.number, frame.ethertype(lldp::ETHERTYPE).payload(&pdu).packet())
        };
        let frames = pdu.map(frame).into_iter().collect();
        Round { frames, next: state.agent.next_due(), is_changed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_claimed_while_it_is_enabled() {
        let on = Settings { is_enabled: true, ..Settings::default() };
        let port = LldpPort::new(on.clone(), PortNo(1), "p1", [2; 6], Millis(0));
        let mut key = Key::default();
        let mut mask = Mask::default();
        assert!(!port.claims(&key, &mut mask));
        key.dl_type.set(lldp::ETHERTYPE);
        assert!(port.claims(&key, &mut mask));
        port.configure(Settings { is_enabled: false, ..on }, Millis(0));
        assert!(!port.claims(&key, &mut mask));
        assert_eq!(mask, Mask::default());
    }

    #[test]
    fn a_frame_comes_out_and_one_is_read() {
        let on = Settings { is_enabled: true, ..Settings::default() };
        let port = LldpPort::new(on, PortNo(1), "p1", [2, 0, 0, 0, 0, 1], Millis(0));
        let round = port.run(Millis(5_000));
        assert_eq!(round.next, Some(Millis(10_000)));
        let [(PortNo(1), frame)] = &round.frames[..] else { panic!("{round:?}") };
        let head = [1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc, 2, 7, 4];
        assert_eq!(frame.data()[..17], head);
        port.receive(PortNo(1), frame, Millis(5_000));
        assert_eq!(port.report().neighbours.len(), 1);
    }
}
