// SPDX-License-Identifier: Apache-2.0
//! The owner of the packets that arrive at an interface: the programs, or the daemon's socket at
//! the same interface.

use std::io;
use std::os::fd::BorrowedFd;

use datapath::PortNo;
use netdev::Policing;

use super::{BpfDatapath, lock};
use crate::attachment::{AttachError, RxOwner};
use crate::layout::MAX_PORTS;
use crate::load::Hook;
use crate::ports;

impl BpfDatapath {
    /// Returns the filter for packet sockets on interfaces where ports are or may be attached: see
    /// [`RxOwner`]. The filter accepts every packet of an interface where no port is attached.
    pub fn filter(&self) -> Option<BorrowedFd<'_>> {
        self.program(Hook::Tc.filter()?)
    }

    /// Sets the owner of the packets that arrive at `ifindex`, from this instant. `ifindex` belongs
    /// to `port`, or is about to. Without this call the programs alone own the packets from
    /// [`BpfDatapath::attach`] on.
    ///
    /// # Errors
    ///
    /// Fails when the port number is too large, or the table of interfaces has no room for
    /// `ifindex`.
    pub fn set_rx_owner(
        &self,
        port: PortNo,
        ifindex: u32,
        owner: RxOwner,
    ) -> Result<(), AttachError> {
        if port.0 >= MAX_PORTS {
            return Err(AttachError::PortNumber(port));
        }
        let _one_at_a_time = lock(&self.ports);
        ports::set_rx_owner(self.maps(), ifindex, port.0, owner)
    }

    /// Limits the packets that arrive at `ifindex` for `port`. The programs count those that they drop
    /// ([`BpfDatapath::port_counts`]).
    pub fn set_policing(&self, port: PortNo, ifindex: u32, policing: Policing) {
        if port.0 < MAX_PORTS {
            let _one_at_a_time = lock(&self.ports);
            ports::set_policing(self.maps(), ifindex, port.0, policing);
        }
    }

    /// Returns true when the programs own the packets that arrive at `ifindex`, as packets of
    /// `port`.
    pub fn owns_rx(&self, port: PortNo, ifindex: u32) -> bool {
        ports::owns_rx(self.maps(), ifindex, port.0)
    }

    /// Blocks until the packets that were between the hooks of their device have gone through.
    /// Takes milliseconds.
    ///
    /// # Errors
    ///
    /// Fails when the kernel does not wait for its programs.
    pub fn wait_for_packets(&self) -> io::Result<()> {
        self.flows.wait_for_programs()
    }
}
