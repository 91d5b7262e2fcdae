// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management of a port: joins the machine of the crate `protocols` with the port.

use crate::protocol::{ODDITY_INTERVAL, Protocol, Round, payload};
use crate::received::Received;
use clock::{Millis, OncePer};
use flow::{Field, Key, Mask};
use openflow::PortNo;
use packet::build::Frame;
use packet::{Mac, Packet, ethertype};
use protocols::cfm::{self, Cfm, Oddity};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use protocols::cfm::{Faults, Report, Settings, SettingsError, Status};

/// The VLAN tag of sent messages (`cfm_ccm_vlan`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// Another VLAN for each message, so that all paths of a network are taken.
    Random,
    /// This VLAN; 0 for none.
    #[default]
    None,
    /// This VLAN, 1 to 4095.
    Id(u16),
}

/// Settings of a port, as the database has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Settings of the machine.
    pub machine: Settings,
    /// VLAN of sent messages.
    pub vlan: Vlan,
    /// Priority of sent messages, 3 bits. One other than 0 adds a tag.
    pub priority: u8,
}

/// The port, as the machine sees it.
pub(crate) struct Link {
    pub number: PortNo,
    pub name: String,
    pub mac: [u8; 6],
    pub received: Received,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.name)
    }
}

/// The maintenance point of one port. Any thread may use it.
#[derive(Debug)]
pub struct CfmPort {
    /// Messages go to the address of extended mode.
    is_extended: AtomicBool,
    /// Only messages without a tunnel key are for the port: the key is part of the flow.
    checks_key: AtomicBool,
    odd: OncePer,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cfm: Cfm,
    settings: PortSettings,
    link: Link,
    /// The state that the control thread has been notified of.
    known: Option<Status>,
}

impl CfmPort {
    pub(crate) fn new(
        settings: PortSettings,
        link: Link,
        checks_key: bool,
        now: Millis,
    ) -> Result<CfmPort, SettingsError> {
        let cfm = Cfm::new(settings.machine.clone(), link.received.packets(), now)?;
        Ok(CfmPort {
            is_extended: AtomicBool::new(settings.machine.is_extended),
            checks_key: AtomicBool::new(checks_key),
            odd: OncePer::new(ODDITY_INTERVAL),
            state: Mutex::new(State { cfm, settings, link, known: None }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // no operation panics midway
    }

    /// Returns true when the settings are those in force.
    pub(crate) fn has(&self, settings: &PortSettings, checks_key: bool) -> bool {
        self.checks_key.load(Ordering::Relaxed) == checks_key && self.lock().settings == *settings
    }

    /// Changes the settings. The caller publishes, since translation depends on some of them.
    pub(crate) fn configure(
        &self,
        settings: PortSettings,
        checks_key: bool,
        now: Millis,
    ) -> Result<(), SettingsError> {
        let mut state = self.lock();
        let received = state.link.received.packets();
        state.cfm.configure(settings.machine.clone(), received, now)?;
        self.is_extended.store(settings.machine.is_extended, Ordering::Relaxed);
        self.checks_key.store(checks_key, Ordering::Relaxed);
        state.settings = settings;
        Ok(())
    }

    /// Follows a change of the port's address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) {
        self.lock().link.mac = mac;
    }

    /// Sets the faults by hand: some, none, or the real ones (`None`).
    pub(crate) fn force(&self, is_faulty: Option<bool>) {
        self.lock().cfm.force(is_faulty);
    }

    /// Returns the state for the database.
    pub fn status(&self) -> Status {
        self.lock().cfm.status()
    }

    /// Returns the state for texts.
    pub fn report(&self, now: Millis) -> Report {
        self.lock().cfm.report(now)
    }
}

impl State {
    fn frame(&self, ccm: &cfm::Ccm) -> Packet {
        let id = match self.settings.vlan {
            Vlan::None => 0,
            Vlan::Id(id) => id & 0xfff,
            Vlan::Random => fastrand::u16(..) & 0xfff,
        };
        let tci = u16::from(self.settings.priority & 7) << 13 | id;
        let mut frame = Frame::ethernet(self.cfm.destination(), self.link.mac);
        if tci != 0 {
            frame = frame.vlan(ethertype::VLAN, tci);
        }
        frame.ethertype(cfm::ETHERTYPE).payload(&ccm.encode()).packet()
    }
}

impl Protocol for CfmPort {
    fn reason(&self) -> &'static str {
        "cfm"
    }

    fn watches_path(&self) -> bool {
        true
    }

    fn claims(&self, key: &Key, mask: &mut Mask) -> bool {
        if key.packet_type.get() != 0 || key.dl_type.get() != cfm::ETHERTYPE {
            return false;
        }
        let wanted = match self.is_extended.load(Ordering::Relaxed) {
            true => cfm::EXTENDED_DESTINATION,
            false => cfm::DESTINATION,
        };
        mask.set_exact(Field::EthDst);
        if key.dl_dst != wanted {
            return false;
        }
        if !self.checks_key.load(Ordering::Relaxed) {
            return true;
        }
        mask.set_exact(Field::TunId);
        key.tunnel.id.get() == 0
    }

    fn receive(&self, _port: PortNo, packet: &Packet, now: Millis) -> bool {
        let frame = packet.data();
        let mut state = self.lock();
        let odd = state.cfm.receive(payload(frame), now);
        if let Some(odd) = odd.first()
            && self.odd.is_due(now)
        {
            let name = &state.link.name;
            let source = frame.get(6..12).and_then(|mac| mac.try_into().ok()).unwrap_or_default();
            match odd {
                Oddity::NoCcm(_) => tracing::info!(target: "cfm", "{name}: {odd}"),
                Oddity::Maid | Oddity::Overflow(_) => {
                    tracing::warn!(target: "cfm", "{name}: {odd} from MAC {}", Mac(source));
                }
                _ => tracing::warn!(target: "cfm", "{name}: {odd}"),
            }
        }
        false // faults wait for the next check
    }

    fn run(&self, now: Millis) -> Round {
        let demanding = {
            let state = self.lock();
            (now >= state.cfm.next_due() && state.cfm.has_demand())
                .then(|| state.link.received.clone())
        };
        let received = demanding.map_or(0, |received| received.packets()); // without the lock
        let mut state = self.lock();
        let round = state.cfm.run(now, received);
        let name = &state.link.name;
        for (mpid, silence) in round.silent {
            tracing::info!(target: "cfm", "{name}: Received no CCM from RMP {mpid} in the last {silence}ms");
        }
        if let Some((before, after)) = round.change {
            tracing::info!(target: "cfm", "{name}: CFM faults changed from [{before}] to [{after}].");
        }
        let frames = round.ccm.map(|ccm| (state.link.number, state.frame(&ccm)));
        let status = state.cfm.status();
        let is_changed = state.known.as_ref() != Some(&status);
        state.known = Some(status);
        let next = Some(state.cfm.next_due());
        Round { frames: frames.into_iter().collect(), next, is_changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn link() -> Link {
        Link {
            number: PortNo(3),
            name: "p3".to_owned(),
            mac: [2, 0, 0, 0, 0, 3],
            received: Received::Virtual(Arc::default()),
        }
    }

    fn settings() -> PortSettings {
        let machine = Settings {
            mpid: 7,
            interval_ms: 1000,
            is_extended: false,
            has_demand: false,
            is_up: true,
        };
        PortSettings { machine, vlan: Vlan::None, priority: 0 }
    }

    fn port(settings: PortSettings) -> CfmPort {
        CfmPort::new(settings, link(), false, Millis(10)).expect("the settings are good")
    }

    #[test]
    fn a_frame_and_its_tag_come_out() {
        let round = port(settings()).run(Millis(10));
        assert_eq!((round.is_changed, round.next), (true, Some(Millis(1010))));
        let [(PortNo(3), frame)] = &round.frames[..] else { panic!("{round:?}") };
        assert_eq!(frame.data()[..14], [1, 0x80, 0xc2, 0, 0, 0x30, 2, 0, 0, 0, 0, 3, 0x89, 2]);
        assert_eq!(frame.len(), 14 + cfm::CCM_LEN);
        for (vlan, priority, tci) in [(Vlan::Id(5), 0, [0, 5]), (Vlan::None, 3, [0x60, 0])] {
            let port = port(PortSettings { vlan, priority, ..settings() });
            let round = port.run(Millis(10));
            let frame = round.frames[0].1.data();
            assert_eq!(frame[12..18], [0x81, 0, tci[0], tci[1], 0x89, 2]);
        }
    }

    #[test]
    fn packets_to_its_address_are_claimed() {
        let port = port(settings());
        let mut key = Key::default();
        let mut mask = Mask::default();
        assert!(!port.claims(&key, &mut mask));
        assert_eq!(mask, Mask::default());
        key.dl_type.set(cfm::ETHERTYPE);
        key.dl_dst = cfm::DESTINATION;
        key.tunnel.id.set(5);
        assert!(port.claims(&key, &mut mask));
        assert_eq!((mask.0.dl_dst, mask.0.tunnel.id.get()), ([0xff; 6], 0));
        let mut mask = Mask::default();
        port.configure(settings(), true, Millis(10)).expect("the settings are good");
        assert!(!port.claims(&key, &mut mask));
        assert_eq!((mask.0.dl_dst, mask.0.tunnel.id.get()), ([0xff; 6], u64::MAX));
        key.tunnel.id.set(0);
        assert!(port.claims(&key, &mut mask));
        key.dl_dst = cfm::EXTENDED_DESTINATION;
        assert!(!port.claims(&key, &mut mask));
    }

    #[test]
    fn faults_of_a_person_are_a_change() {
        let port = port(settings());
        assert!(port.run(Millis(10)).is_changed && !port.run(Millis(10)).is_changed);
        port.force(Some(true));
        assert!(port.run(Millis(10)).is_changed);
        assert!(!port.status().is_live());
    }
}
