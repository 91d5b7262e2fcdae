// SPDX-License-Identifier: Apache-2.0
//! DHCP replies for the bridge's own port.

use super::context::Context;
use crate::in_band::{DHCP_CLIENT, DHCP_SERVER};
use crate::trace::Kind;
use datapath::Action as DpAction;
use flow::{Field, Key};
use openflow::PortNo;
use packet::{ethertype, ip_proto};

/// Returns the highest bit in which the two differ, as a mask; zero if they are equal.
fn highest_difference(a: u16, b: u16) -> u16 {
    (a ^ b).checked_ilog2().map_or(0, |bit| 1 << bit)
}

impl Context<'_> {
    /// With in-band control a DHCP reply reaches the bridge's own port, whatever the tables say: the
    /// host may get the address by DHCP that it needs to reach its controller.
    ///
    /// The mask gets the bits that distinguish the packet from a DHCP reply: of a port that differs, the
    /// highest bit that does. (Open vSwitch leaves them out: a megaflow of other UDP packets may
    /// take a DHCP reply there.)
    pub(super) fn output_dhcp_reply(&mut self, received: &Key) {
        if !self.bridge.config.in_band || !self.is_dhcp_reply(received) {
            return;
        }
        let local = self.port(PortNo::LOCAL).and_then(|port| port.dp_port);
        let is_sent = local.is_some_and(|local| self.out.contains(&DpAction::Output(local)));
        if !is_sent {
            self.report(Kind::Detail, || {
                "outputting DHCP packet to local port for in-band control".to_string()
            });
            self.output_port(PortNo::LOCAL, None);
        }
    }

    fn is_dhcp_reply(&mut self, received: &Key) -> bool {
        self.mask.set_exact(Field::EthType);
        if received.dl_type.get() != ethertype::IPV4 {
            return false;
        }
        self.mask.0.nw_proto = u8::MAX;
        if received.nw_proto != ip_proto::UDP {
            return false;
        }
        for (port, mask, wanted) in [
            (received.tp_src.get(), &mut self.mask.0.tp_src, DHCP_SERVER),
            (received.tp_dst.get(), &mut self.mask.0.tp_dst, DHCP_CLIENT),
        ] {
            if port != wanted {
                mask.set(mask.get() | highest_difference(port, wanted));
                return false;
            }
            mask.set(u16::MAX);
        }
        true
    }
}
