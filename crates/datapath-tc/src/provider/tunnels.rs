// SPDX-License-Identifier: Apache-2.0
//! Ports of tunnels. Packets that a card takes out of a tunnel are those of a device of the kernel, at
//! which the filters are.

use super::ports::prepare;
use super::{CARD, CardProvider, discard, remove_unused_qdisc};
use datapath::{PortNo, TierSet};
use tunnel::{Kind, PortConfig};

/// A tunnel port whose packets a card may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelPort {
    /// The UDP port of received packets; 0 for GRE.
    pub udp_port: u16,
    /// The device of the kernel, if there is one.
    pub device: Option<Device>,
}

/// The device of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub ifindex: u32,
    /// Filters may be there.
    pub takes_filters: bool,
    /// This provider has made the qdisc.
    pub has_made_qdisc: bool,
}

impl CardProvider {
    /// Notes a tunnel port. Returns the tier if the kernel has devices for tunnels of its kind.
    pub(super) fn join_tunnel(&self, number: PortNo, config: &PortConfig) -> TierSet {
        if !matches!(config.kind, Kind::Vxlan | Kind::Geneve | Kind::Gre) {
            return TierSet::NONE;
        }
        let mut state = self.state();
        let port = TunnelPort { udp_port: config.udp_port, device: None };
        state.tunnels.entry(number).or_insert(port).udp_port = config.udp_port;
        CARD
    }

    /// Takes another device for a tunnel port, or none. The filters at the former one are removed, and
    /// their flows are lost.
    pub(super) fn set_tunnel_device(&self, number: PortNo, ifindex: Option<u32>) {
        let mut kernel = self.kernel();
        let Some(before) = self.state().tunnels.get(&number).map(|port| port.device) else {
            return;
        };
        if before.map(|device| device.ifindex) == ifindex {
            return;
        }
        if let Some(device) = before {
            let result =
                discard(&mut **kernel, device.ifindex).and_then(|_| match device.has_made_qdisc {
                    true => remove_unused_qdisc(&mut **kernel, device.ifindex),
                    false => Ok(()),
                });
            if let Err(error) = result {
                tracing::warn!(
                    target: "dpif",
                    "tunnel device {}: filters stay until it is gone ({error})",
                    device.ifindex,
                );
            }
            self.state().lose_all_at(device.ifindex);
        }
        let device = ifindex.map(|ifindex| {
            let prepared = prepare(&mut **kernel, ifindex);
            if let Err(reason) = &prepared {
                tracing::info!(target: "dpif", "tunnel device {ifindex}: no filters: {reason}");
            }
            let (takes_filters, has_made_qdisc) = (prepared.is_ok(), prepared == Ok(true));
            Device { ifindex, takes_filters, has_made_qdisc }
        });
        if let Some(port) = self.state().tunnels.get_mut(&number) {
            port.device = device;
        }
    }

    /// Forgets a tunnel port.
    pub(super) fn leave_tunnel(&self, number: PortNo) {
        self.set_tunnel_device(number, None);
        self.state().tunnels.remove(&number);
    }
}
