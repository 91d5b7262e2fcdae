// SPDX-License-Identifier: Apache-2.0
//! Barriers (OpenFlow 1.5 section 7.3.8), and the flow mod that is carried out behind the answer.
//!
//! `ovs-ofctl add-flows` waits for a barrier behind each rule. While it waits its CPU falls asleep, and
//! to wake that takes several times as long as to add the rule. So one that is sure to be added is
//! only accepted at first. When its barrier has come with it, the answer leaves, and the rule is
//! added while the peer makes the next. Nobody can tell: who looks at the tables for a packet
//! waits for the rule ([`Switch::announce`]), and all that is asked of the switch comes after it.

use super::handler::Origin;
use super::{ConnectionId, Connections};
use crate::switch::Switch;
use openflow::message::FlowMod;

/// A flow mod that was accepted and is not carried out yet.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Without the message's bytes.
    origin: Origin<'static>,
    fm: Box<FlowMod>,
    /// The answer of the barrier behind it is in the output.
    is_answered: bool,
}

impl Deferred {
    pub(super) fn new(origin: Origin<'_>, fm: Box<FlowMod>) -> Deferred {
        let Origin { id, bridge, version, xid, bytes: _, now } = origin;
        let origin = Origin { id, bridge, version, xid, bytes: &[], now };
        Deferred { origin, fm, is_answered: false }
    }
}

impl Connections {
    /// True when `fm`, which was checked, cannot fail, and nothing has to be sent because of it before
    /// the barrier's answer.
    pub(super) fn may_defer(&self, origin: Origin<'_>, fm: &FlowMod, switch: &Switch) -> bool {
        self.sessions.get(&origin.id).is_some_and(|s| s.monitors.is_empty())
            && self.bridges.get(&origin.bridge).is_some_and(|b| b.vacancy.is_empty())
            && switch.surely_adds(origin.bridge, fm)
    }

    /// Has all that came before the barrier hold when its answer leaves.
    pub(super) fn barrier(&mut self, switch: &mut Switch) {
        match &mut self.deferred {
            Some(deferred) if self.bridges.values().all(|b| b.removed.is_empty()) => {
                deferred.is_answered = true;
            }
            _ => {
                self.carry_out_deferred(switch);
                switch.publish_and_wait();
                self.flush_removed(switch);
            }
        }
    }

    /// The input of connection `id` is worked on to its end: has `write` write the answers before the
    /// flow mod that was only accepted is carried out, where that can be.
    pub(super) fn answer(
        &mut self,
        id: ConnectionId,
        switch: &mut Switch,
        write: &mut dyn FnMut(&[u8]) -> usize,
    ) {
        let is_answered = self.deferred.as_ref().is_some_and(|deferred| deferred.is_answered);
        if is_answered
            && switch.announce()
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.write(write);
        }
        self.carry_out_deferred(switch);
    }

    /// Carries out the flow mod that was only accepted, if there is one.
    pub(super) fn carry_out_deferred(&mut self, switch: &mut Switch) {
        let Some(deferred) = self.deferred.take() else { return };
        let Deferred { origin, fm, is_answered } = deferred;
        if let Err(error) = self.change_flows(origin, &fm, switch) {
            tracing::error!(target: "connmgr", "a flow mod that was accepted failed ({error})");
            self.send_error(origin.id, origin.xid, error, origin.bytes);
        }
        if is_answered {
            switch.publish_and_wait();
        }
    }
}
