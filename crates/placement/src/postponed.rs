// SPDX-License-Identifier: Apache-2.0
//! Work on ports that is done later, in parts, so that the control thread answers meanwhile.
//!
//! To attach a program to a device, or to take one off, costs a grace period of the kernel: some
//! 10 ms, which several devices cannot share. So only the first new ports of a transaction are
//! attached at once. The others begin in userspace, which forwards their packets from the start, and
//! move to their tiers one by one. A port that an earlier daemon left attached costs no grace
//! period. It is attached at once, because its programs forward already.

use crate::control::{Control, Port};
use crate::placed::PlacedDatapath;
use datapath::PortNo;
use datapath::offload::PortSocket;
use netdev::Reception;

/// Highest number of ports whose moves are completed together. Until then, the port's socket notes
/// each packet for the programs: if the daemon ends meanwhile, nobody does.
const COMPLETED_TOGETHER: usize = 16;

/// The next part of a port's attachment. The parts follow one another in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Postponed {
    /// The port is to be attached to the providers.
    Attachment,
    /// Packets move from the socket to a provider, which is to complete that.
    Completion,
    /// The socket, which gets no packet any more, is to be stopped.
    SocketStop,
}

impl PlacedDatapath {
    /// Makes the next `count` new ports be attached to providers when they are added. The attachment
    /// of later ones is left to [`PlacedDatapath::work_off`]. Without this call no attachment is
    /// postponed.
    pub fn attach_at_once(&self, count: usize) {
        self.control().immediate = count;
    }

    /// Attaches a port that was just added, or postpones that.
    pub(crate) fn place_new_port(&self, control: &mut Control, number: PortNo) {
        let adopted = control.reserved.iter().find(|r| r.number == number).map(|r| r.ifindex);
        let may_postpone = control.immediate == 0;
        let mut is_fresh = false;
        self.change_port(control, number, |port, blockers| {
            let all = self.slots.tiers();
            self.examine(number, port, all);
            let mut blocked = self.slots.iter().zip(blockers);
            is_fresh = (adopted.is_none() || adopted != port.ifindex)
                && port.check().is_ok()
                && blocked.any(|(slot, b)| slot.provider().is_some() && b.check().is_ok());
            if is_fresh && may_postpone {
                self.postpone(number, port);
            } else {
                self.place_port(number, port, blockers, all);
            }
        });
        control.immediate = control.immediate.saturating_sub(usize::from(is_fresh));
    }

    /// Leaves the attachment of a new port for later. Its packets go to the base.
    fn postpone(&self, number: PortNo, port: &mut Port) {
        self.set_reception(number, port, Reception::Briefly);
        port.postponed = Some(Postponed::Attachment);
        self.note_eligibility(number, port);
    }

    fn set_reception(&self, number: PortNo, port: &mut Port, reception: Reception) {
        let mut socket = port.socket;
        self.socket(number, port, &mut socket).set_receive(reception);
        port.socket = socket;
    }

    /// Carries out one part of the postponed work, which takes some milliseconds. Returns false when
    /// there was none.
    pub fn work_off(&self) -> bool {
        let mut control = self.control();
        let is_part = |port: &&Port| port.postponed == Some(Postponed::Completion);
        let moving = control.ports.values().filter(is_part).count();
        if moving < COMPLETED_TOGETHER
            && let Some(number) = next(&control, Postponed::Attachment)
        {
            self.change_port(&mut control, number, |port, blockers| {
                self.examine(number, port, self.slots.tiers());
                self.place_port(number, port, blockers, self.slots.tiers());
            });
            return true;
        }
        if moving > 0 {
            self.complete_moves();
            let parts = control.ports.values_mut().filter_map(|port| port.postponed.as_mut());
            for part in parts.filter(|part| **part == Postponed::Completion) {
                *part = Postponed::SocketStop;
            }
            return true;
        }
        if let Some(number) = next(&control, Postponed::SocketStop) {
            if let Some(port) = control.ports.get_mut(&number) {
                port.postponed = None;
                self.set_reception(number, port, Reception::Off);
            }
            return true;
        }
        self.slots.present().any(|(_, provider)| provider.finish_removal())
    }

    /// Completes the moves of packets from sockets to providers.
    pub(crate) fn complete_moves(&self) {
        self.slots.present().for_each(|(_, provider)| provider.complete_moves());
    }
}

/// Returns the first port whose next part is `part`.
fn next(control: &Control, part: Postponed) -> Option<PortNo> {
    let mut ports = control.ports.iter();
    ports.find(|(_, port)| port.postponed == Some(part)).map(|(number, _)| *number)
}
