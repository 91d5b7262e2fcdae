// SPDX-License-Identifier: Apache-2.0
//! Export of traffic: NetFlow's accounts of packets, and samples of packets for sFlow.

use super::context::Context;
use crate::effect::Effect;
use crate::export::{mask_netflow, netflow_of};
use crate::snapshot::BridgeView;
use ::export::sflow::{OUTPUT_DROPPED, OUTPUT_MULTIPLE};
use datapath::{Action as DpAction, Userdata};
use flow::{Key, VLAN_CFI};
use openflow::PortNo;
use packet::ethertype;
use std::sync::Arc;

/// The sFlow sample of a translation, whose contents depend on where the packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SflowSample {
    /// Index of its action in the list of actions.
    at: usize,
    probability: u32,
}

/// Outputs of a packet to datapath ports, for sFlow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outputs {
    count: u32,
    /// Index of the interface of the last one; 0 when it has none.
    ifindex: u32,
}

impl Outputs {
    /// Counts an output to the interface with this index.
    pub(super) fn add(&mut self, ifindex: u32) {
        self.count += 1;
        self.ifindex = ifindex;
    }

    /// Returns the output of a sample (sFlow version 5, "Input/output port information").
    fn number(self) -> u32 {
        match self.count {
            0 => OUTPUT_DROPPED,
            1 if self.ifindex != 0 => self.ifindex,
            count => OUTPUT_MULTIPLE | count,
        }
    }
}

impl Context<'_> {
    /// Adds the sFlow sample of a packet that has just been received. It is first in the list, so that
    /// it has the packet as it came in; [`Context::finish_sflow`] completes it.
    pub(super) fn begin_sflow(&mut self) {
        let Some(sflow) = &self.bridge.exports.sflow else { return };
        if self.in_port() == PortNo::NONE || self.sflow.is_some() {
            return;
        }
        self.sflow = Some(SflowSample { at: self.out.len(), probability: sflow.probability });
        self.emit(sflow_action(sflow.probability, 0, 0));
    }

    /// Completes the sFlow sample with the packet's way and the VLAN that it leaves in, which becomes
    /// exact. (OVS leaves it open, and reports the VLAN of the megaflow's first packet.)
    pub(super) fn finish_sflow(&mut self) {
        let Some(SflowSample { at, probability }) = self.sflow else { return };
        let [outer, _] = &mut self.mask.0.vlans;
        outer.tci.set(u16::MAX);
        let [outer, _] = self.base.vlans;
        let action = sflow_action(probability, outer.tci.get() & !VLAN_CFI, self.outputs.number());
        if let Some(place) = self.out.get_mut(at) {
            *place = action;
        }
    }

    /// Accounts the packet to its NetFlow record, if it is one of IPv4. `bridge` received it with the
    /// key `original`. As in OVS a packet is accounted where it comes in, not after a recirculation,
    /// and without the bits of its ECN.
    pub(super) fn account_netflow(&mut self, bridge: &BridgeView, original: &Key) {
        let Some(netflow) = &bridge.exports.netflow else { return };
        if original.dl_type.get() != ethertype::IPV4 {
            return;
        }
        mask_netflow(original, &mut self.mask);
        let output = match self.error {
            Some(_) => Default::default(),
            None => self.netflow_output,
        };
        self.effect(|| Effect::NetFlow {
            netflow: Arc::clone(netflow),
            flow: netflow_of(original),
            output,
        });
    }
}

/// Returns the action of a sample. As in OVS one that is always taken is no `sample`.
fn sflow_action(probability: u32, vlan_tci: u16, output: u32) -> DpAction {
    let send = DpAction::Userspace(Userdata::Sflow { vlan_tci, output });
    match probability {
        u32::MAX => send,
        _ => DpAction::Sample { probability, actions: vec![send] },
    }
}
