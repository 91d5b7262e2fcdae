// SPDX-License-Identifier: Apache-2.0
//! What placement needs of the base beyond the contract.

use datapath::{Datapath, PortNo};
use datapath_userspace::UserspaceDatapath;
use netdev::Reception;
use std::io;
use std::os::fd::BorrowedFd;

/// The datapath that holds every port and every flow.
pub trait Base: Datapath {
    /// Whether packets that come in by the port's device reach the base by its own socket. A
    /// port that a fast path serves does not: the fast path hands over what it cannot do.
    ///
    /// # Errors
    ///
    /// What the system said; `Unsupported` for devices that cannot.
    fn set_receiving(&self, port: PortNo, reception: Reception) -> io::Result<()>;

    /// What the port receives by its own socket, from the next [`Base::set_receiving`] on, is what
    /// `filter`, a BPF program for sockets, lets in.
    ///
    /// # Errors
    ///
    /// As above.
    fn set_filter(&self, port: PortNo, filter: BorrowedFd<'_>) -> io::Result<()>;

    /// The number that [`datapath::Ports::add_port`] would give, of those that `is_kept` does not
    /// name. `None`: there is none.
    fn free_number(&self, is_kept: &dyn Fn(PortNo) -> bool) -> Option<PortNo>;

    /// Whether new ports receive nothing until [`Base::set_receiving`].
    fn opens_muted(&self) -> bool {
        false
    }

    /// Stops, and deletes what would outlive the daemon.
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

    fn cleanup(&self) {
        UserspaceDatapath::cleanup(self);
    }
}
