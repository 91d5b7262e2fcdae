// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices of the kernel that take packets which programs cannot pop.
//!
//! The device's program takes everything that comes out of the device, so that nothing of it reaches the
//! host's stack. It is attached before the device comes up, and stays until the device is deleted.

use super::{BpfDatapath, lock};
use crate::attach::{AttachPoint, Attached};
use crate::attachment::AttachError;
use crate::layout::{HELPER_PASS, MAX_PORTS};
use crate::{ports, sys};
use datapath::offload::{TunnelHelper, TunnelHelperCounts};
use datapath::{PortNo, Side};
use std::os::fd::AsFd;

/// Name of the program at the device.
const PROGRAM: &str = "entry_tc_helper";

/// A tunnel device, and its program.
pub(super) struct Helper {
    /// Index of the device.
    device: u32,
    /// The program stays attached while this exists.
    _attached: Attached,
    /// The device gets packets.
    is_open: bool,
    /// Counts when the helper was set.
    before: TunnelHelperCounts,
}

impl BpfDatapath {
    /// Has packets that come out of the tunnel device `helper` taken as packets of the tunnel port `port`,
    /// and gives the device the packets of the tunnel that programs cannot pop. `None` ends the giving.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the program, or a table has no room.
    pub fn set_tunnel_helper(
        &self,
        port: PortNo,
        helper: Option<&TunnelHelper>,
    ) -> Result<(), AttachError> {
        if port.0 >= MAX_PORTS {
            return Err(AttachError::PortNumber(port));
        }
        let mut helpers = lock(&self.helpers);
        let Some(helper) = helper else {
            ports::set_tunnel_helper(self.maps(), port.0, 0);
            if let Some(helper) = helpers.get_mut(&port.0) {
                helper.is_open = false;
                ports::remove_interface(self.maps(), helper.device, port.0);
                if let Some(pins) = &self.pins {
                    crate::pins::unpin(&pins.helper(port.0)); // the descriptor keeps the program there
                }
            }
            return Ok(());
        };
        let is_there = |held: &Helper| held.is_open && held.device == helper.device;
        if !helpers.get(&port.0).is_some_and(is_there) {
            self.unpin_dead_helpers();
            let ifindex = helper.device;
            let program = self.program(PROGRAM).ok_or_else(|| super::missing(ifindex, "tc"))?;
            let pin = self.pins.as_ref().map(|pins| pins.helper(port.0));
            let _attached = AttachPoint { program, ifindex, pin }.tc(Side::Device)?;
            ports::add_interface(self.maps(), ifindex, port.0)?;
            let before = ports::helper_counts(self.maps(), port.0);
            helpers.insert(port.0, Helper { device: ifindex, _attached, is_open: true, before });
        }
        let entrance = helper.entrance.unwrap_or(HELPER_PASS);
        ports::set_tunnel_helper(self.maps(), port.0, entrance);
        Ok(())
    }

    /// Removes pins of programs whose device was deleted.
    fn unpin_dead_helpers(&self) {
        for path in self.pins.iter().flat_map(|pins| pins.helpers()) {
            let index = sys::open_pin(&path).and_then(|link| sys::link_ifindex(link.as_fd()));
            if index.is_ok_and(|index| index == 0) {
                crate::pins::unpin(&path);
            }
        }
    }

    /// Returns the counts of the tunnel device of `port` since it was set; `None` without one.
    pub fn tunnel_helper_counts(&self, port: PortNo) -> Option<TunnelHelperCounts> {
        let helpers = lock(&self.helpers);
        let Helper { before, .. } = helpers.get(&port.0).filter(|helper| helper.is_open)?;
        let now = ports::helper_counts(self.maps(), port.0);
        Some(TunnelHelperCounts {
            given: now.given.wrapping_sub(before.given),
            returned: now.returned.wrapping_sub(before.returned),
        })
    }
}
