// SPDX-License-Identifier: Apache-2.0
//! The methods that placement needs from the datapath beneath all providers, beyond the contract.

use datapath::{Datapath, PortNo};
use datapath_userspace::UserspaceDatapath;
use netdev::Reception;
use std::io;
use std::os::fd::BorrowedFd;

/// The datapath that holds every port and every flow.
pub trait Base: Datapath {
    /// Sets whether packets that arrive at the port's device reach the base through its own socket.
    /// They do not where a provider takes all packets of a port: the provider then hands over the
    /// packets that match none of its flows.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` for devices whose reception cannot be switched.
    fn set_receiving(&self, port: PortNo, reception: Reception) -> io::Result<()>;

    /// Puts `filter`, a BPF program for sockets, on the port's own socket, from the next
    /// [`Base::set_receiving`] on.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` for devices without such a socket.
    fn set_filter(&self, port: PortNo, filter: BorrowedFd<'_>) -> io::Result<()>;

    /// Returns the number that [`datapath::Ports::add_port`] would give to a new port if the
    /// numbers for which `is_kept` is true were taken; `None` when no number is free.
    fn free_number(&self, is_kept: &dyn Fn(PortNo) -> bool) -> Option<PortNo>;

    /// True when new ports receive nothing until [`Base::set_receiving`].
    fn opens_muted(&self) -> bool {
        false
    }

    /// Returns the index of the interface called `name`, before it is opened as a port.
    fn ifindex(&self, name: &str) -> Option<u32>;

    /// Stops, and deletes every object that would outlive the daemon.
    fn cleanup(&self);
}

impl Base for UserspaceDatapath {
    fn set_receiving(&self, port: PortNo, reception: Reception) -> io::Result<()> {
        UserspaceDatapath::set_receiving(self, port, reception)
    }

    fn set_filter(&self, port: PortNo, filter: BorrowedFd<'_>) -> io::Result<()> {
        UserspaceDatapath::set_filter(self, port, filter)
    }

    fn free_number(&self, is_kept: &dyn Fn(PortNo) -> bool) -> Option<PortNo> {
        UserspaceDatapath::free_number(self, is_kept)
    }

    fn opens_muted(&self) -> bool {
        UserspaceDatapath::opens_muted(self)
    }

    fn ifindex(&self, name: &str) -> Option<u32> {
        netdev::link::find(name).ok().map(|link| link.index)
    }

    fn cleanup(&self) {
        UserspaceDatapath::cleanup(self);
    }
}
