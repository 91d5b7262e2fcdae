// SPDX-License-Identifier: Apache-2.0
//! Packets of a port go over from the base's socket to the fast path, and back.
//!
//! The kernel shows a packet to the socket first and to the skb hook then, and other packets are
//! between the two at any time. What is taken by both goes out twice, what is taken by neither is
//! lost. So the fast path's filter is on the socket: it decides for both, packet by packet, and what
//! it is told counts from one packet to the next ([`Taker`]). Where there is no such filter a socket
//! is muted before, and packets of some milliseconds are lost.
//!
//! At XDP the question does not arise: what XDP takes the socket never sees. But a driver may throw
//! away what waits in its rings when a program is attached or detached; a veth does so.

use crate::control::Port;
use crate::placed::PlacedDatapath;
use crate::{FastPath, Reason};
use datapath::{PortNo, Refusal};
use datapath_bpf::Taker;
use netdev::{Kind, Reception};

/// `ENODEV`: there is no such device (any more).
const ENODEV: i32 = 19;

impl PlacedDatapath {
    /// Gives the port's socket the fast path's filter, when it has none.
    pub(crate) fn equip(&self, fast: &dyn FastPath, number: PortNo, port: &mut Port) {
        if port.kind != Kind::System || port.has_filter {
            return;
        }
        let Some(filter) = fast.filter() else { return };
        let again = || match port.reception {
            Reception::On => self.base.set_receiving(number, Reception::On),
            Reception::Muted | Reception::Off => Ok(()),
        };
        match self.base.set_filter(number, filter).and_then(|()| again()) {
            Ok(()) => port.has_filter = true,
            Err(e) => tracing::debug!(
                target: "dpif",
                "{}: some packets are lost when it changes tiers: no filter ({e})",
                port.name,
            ),
        }
    }

    /// Has the fast path take what arrives at a port from the instant when it is attached to the
    /// skb hook, by `attach`, or a moment later, and the base no more.
    pub(crate) fn take_over(
        &self,
        fast: &dyn FastPath,
        number: PortNo,
        port: &mut Port,
        ifindex: u32,
        attach: impl FnOnce() -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let taker = |taker| fast.set_taker(number, ifindex, taker);
        if port.kind != Kind::System || port.reception != Reception::On {
            attach()?;
            return taker(Taker::ProgramsAlone); // an earlier daemon may have died in between
        }
        taker(Taker::Socket)?;
        attach()?;
        if !port.has_filter && !self.hear(number, port, Reception::Muted) {
            // Each packet would be seen twice.
            let detail = "its socket cannot be told to stop receiving";
            return Err(Reason::new(Refusal::TierUnavailable, detail));
        }
        taker(Taker::Programs)?;
        fast.wait_for_packets();
        taker(Taker::ProgramsAlone)
    }

    /// Has the base take what arrives at a port; tiers have no part in it when this returns.
    pub(crate) fn give_back(&self, fast: &dyn FastPath, number: PortNo, port: &mut Port) {
        let Some(ifindex) = port.ifindex.filter(|ifindex| fast.takes(number, *ifindex)) else {
            self.hear(number, port, Reception::On);
            return;
        };
        let is_filtered = port.kind == Kind::System && port.has_filter;
        if is_filtered {
            self.hear(number, port, Reception::On);
            fast.wait_for_packets(); // the filter has seen what comes to the hook from now on
        } else {
            self.hear(number, port, Reception::Muted);
        }
        // It has a place in the table of interfaces, so there is room.
        let _ = fast.set_taker(number, ifindex, Taker::Socket);
        self.hear(number, port, Reception::On);
        if is_filtered {
            fast.wait_for_packets();
        }
    }

    /// What a fast tier takes the base must not receive too, and the other way round. False when
    /// the device's socket does not do as it is told.
    pub(crate) fn hear(&self, number: PortNo, port: &mut Port, reception: Reception) -> bool {
        if port.kind != Kind::System || port.reception == reception {
            return true;
        }
        // A device that is gone sends nothing; that it is gone others say.
        if port.ifindex.is_none() {
            return false;
        }
        let told = self.base.set_receiving(number, reception);
        let was_deaf = std::mem::replace(&mut port.is_deaf, told.is_err());
        match told {
            Ok(()) => port.reception = reception,
            Err(e) if e.raw_os_error() == Some(ENODEV) || was_deaf => {}
            Err(e) => tracing::warn!(
                target: "dpif",
                "{}: its socket cannot be told what to receive ({e}): take the port out and add it \
                 again",
                port.name,
            ),
        }
        !port.is_deaf
    }
}
