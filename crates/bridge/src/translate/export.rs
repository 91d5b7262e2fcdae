// SPDX-License-Identifier: Apache-2.0
//! Export of traffic: the parts of a megaflow that collectors get to see.

use super::context::Context;
use crate::effect::Effect;
use crate::export::{mask_netflow, netflow_of};
use crate::snapshot::BridgeView;
use flow::Key;
use packet::ethertype;
use std::sync::Arc;

impl Context<'_> {
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
