// SPDX-License-Identifier: Apache-2.0
//! Packets that met a `ct`, a `tnl_push` or a sample in the programs, and go on in the daemon.

use std::sync::Arc;

use flow::{Key, Tunnel};

use datapath::{Action, Actions, DropReason, Megaflow, Refusal, Tracked};

use super::BpfDatapath;
use crate::encode::Encoded;
use crate::miss::{ListPlace, TrackedMiss};
use crate::{decode, keys, options};

impl BpfDatapath {
    /// Encodes the actions of a flow.
    ///
    /// # Errors
    ///
    /// Returns the reason why no hook can run the actions.
    pub(crate) fn encode(&self, flow: &Megaflow) -> Result<Encoded, Refusal> {
        self.flows.encode(flow)
    }

    /// Returns the state of a packet that came with this header. When its flow is gone, the packet
    /// is left one action, the drop that counts it.
    pub(crate) fn tracked(&self, miss: &TrackedMiss) -> Tracked {
        let gone = || Arc::from([Action::Drop(DropReason::CtStale)]);
        Tracked {
            fields: self.fields_of(miss),
            rest: miss.place.map(|place| self.list_from(place).unwrap_or_else(gone)),
        }
    }

    /// Returns a key with the metadata of a packet that came with this header.
    fn fields_of(&self, miss: &TrackedMiss) -> Key {
        let (mut fields, mut mask) = (keys::from_words(&miss.words), Tunnel::NONE);
        // A packet has all that its words say.
        let words = options::of_words(&miss.words);
        let all = [u64::MAX; _];
        self.maps().options().store((&words, &all), &mut fields.tunnel, &mut mask);
        fields.packet_type.set(miss.packet_type);
        fields
    }

    /// Returns the actions of a flow from a place on. `None`: the flow was removed or replaced.
    fn list_from(&self, place: ListPlace) -> Option<Actions> {
        let cells = self.flows.cells_of(place.flow, place.installed)?;
        if let Some(number) = decode::sample_at(&cells, place.cell) {
            let userdata = self.flows.sample_of(place.flow, place.installed, number)?;
            return Some(Arc::from([Action::Userspace(userdata)]));
        }
        decode::actions_from(&cells, place.cell, &self.flows.header_of()).map(Actions::from)
    }
}
