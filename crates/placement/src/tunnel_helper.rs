// SPDX-License-Identifier: Apache-2.0
//! Devices of the kernel that help tunnels, passed on to the providers.

use crate::placed::PlacedDatapath;
use datapath::offload::{OffloadProvider, Reason, Segmenter, TunnelHelper, TunnelHelperCounts};
use datapath::{PortNo, Refusal};

impl PlacedDatapath {
    /// Sets or removes the tunnel device of the tunnel port `port`, at the first provider that takes it.
    ///
    /// # Errors
    ///
    /// The reason of the last provider that did not take it.
    pub fn set_tunnel_helper(
        &self,
        port: PortNo,
        helper: Option<&TunnelHelper>,
    ) -> Result<(), Reason> {
        let device = helper.map(|helper| helper.device);
        if device.is_none() {
            self.follow_tunnel_device(port, None);
        }
        self.at_first_provider(|provider| provider.set_tunnel_helper(port, helper))?;
        if device.is_some() {
            self.follow_tunnel_device(port, device);
        }
        Ok(())
    }

    /// Has all providers follow another tunnel device of a port, past the program that takes its packets.
    fn follow_tunnel_device(&self, port: PortNo, device: Option<u32>) {
        let mut control = self.control();
        let Some(tunnel) = control.tunnels.get_mut(&port) else { return };
        if std::mem::replace(&mut tunnel.device, device) == device {
            return;
        }
        self.slots.present().for_each(|(_, provider)| provider.follow_tunnel_device(port, device));
        drop(control);
        // Flows of the tunnel, and flows that send by it, may go to other tiers now.
        self.requeue(|reason| reason == Some(Refusal::PortNotHere));
    }

    /// Sets or removes the devices that segment packets, at the first provider that takes them.
    ///
    /// # Errors
    ///
    /// The reason of the last provider that did not take them.
    pub fn set_segmenter(&self, segmenter: Option<&Segmenter>) -> Result<(), Reason> {
        self.at_first_provider(|provider| provider.set_segmenter(segmenter))
    }

    fn at_first_provider(
        &self,
        set: impl Fn(&dyn OffloadProvider) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let _one_at_a_time = self.control();
        let mut result = Err(Reason::new(Refusal::TierUnavailable, "flows run in userspace"));
        for (_, provider) in self.slots.present() {
            result = set(&**provider);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Returns the counts of the tunnel device of `port`; `None` without one.
    pub fn tunnel_helper_counts(&self, port: PortNo) -> Option<TunnelHelperCounts> {
        self.slots.present().find_map(|(_, provider)| provider.tunnel_helper_counts(port))
    }
}
