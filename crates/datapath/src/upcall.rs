// SPDX-License-Identifier: Apache-2.0
//! Upcalls: a packet for which the datapath has no answer.

use crate::{Actions, PortNo, Userdata};
use flow::Key;
use packet::Packet;

/// Why the datapath calls up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallKind<'a> {
    /// No megaflow matched.
    Miss,
    /// A megaflow's [`crate::Action::Userspace`].
    Action(&'a Userdata),
}

/// One upcall. The packet stays the datapath's.
#[derive(Debug)]
pub struct Upcall<'a> {
    /// The reason for the upcall.
    pub kind: UpcallKind<'a>,
    /// The packet as it is now.
    pub packet: &'a Packet,
    /// Its key; `in_port` and `recirc_id` are the datapath's.
    pub key: &'a Key,
    /// Where it came in.
    pub in_port: PortNo,
    /// The port has many misses, and its budget for them is almost used up: the handler makes
    /// megaflows only for packets of which more are likely to come.
    pub pressed: bool,
}

/// Answers upcalls on one packet thread.
///
/// For a miss it may install a megaflow (through [`crate::Flows::install`]) before it
/// returns, and returns the actions that the datapath then runs on this packet; a datapath
/// must run them even when the install was refused. For an action upcall the returned
/// actions are run on the copy that was sent up, and are mostly empty.
pub trait Upcaller: Send {
    /// Must not block on the control plane; takes microseconds.
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions;

    /// Answers several upcalls, as [`Upcaller::upcall`] would one after the other; `answers` gets
    /// one more for each. All megaflows may be installed after the last of the answers.
    fn upcalls(&mut self, upcalls: &[Upcall<'_>], answers: &mut Vec<Actions>) {
        answers.extend(upcalls.iter().map(|upcall| self.upcall(upcall)));
    }
}

/// Makes an [`Upcaller`] for each packet thread.
pub trait UpcallFactory: Send + Sync {
    /// Called by each packet thread before its first upcall, and for [`crate::Packets::execute`]
    /// and [`crate::Packets::inject`] as often as such calls nest or run at one time.
    fn upcaller(&self) -> Box<dyn Upcaller>;
}
