// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices of the kernel, passed on to the providers.

use crate::placed::PlacedDatapath;
use datapath::offload::{Reason, TunnelHelper, TunnelHelperCounts};
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
        let _one_at_a_time = self.control();
        let mut result = Err(Reason::new(Refusal::TierUnavailable, "flows run in userspace"));
        for (_, provider) in self.slots.present() {
            result = provider.set_tunnel_helper(port, helper);
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
