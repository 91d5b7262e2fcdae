// SPDX-License-Identifier: Apache-2.0
//! The base's own socket at a port, while a provider attaches or releases the port.

use crate::Base;
use datapath::PortNo;
use datapath::offload::PortSocket;
use netdev::{Kind, Reception};
use std::os::fd::BorrowedFd;

/// `ENODEV`: there is no such device.
const ENODEV: i32 = 19;

/// The recorded state of a port's socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketState {
    /// The packets that the socket receives now.
    pub(crate) reception: Reception,
    /// A provider's filter is on the socket.
    pub(crate) has_filter: bool,
    /// The base refused the last change, which was logged.
    pub(crate) is_refused: bool,
}

/// The socket of a port. Only devices of the kind `system` have one that can be muted.
pub(crate) struct Socket<'a> {
    pub(crate) base: &'a dyn Base,
    pub(crate) number: PortNo,
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    /// The host's stack shares the device: the socket has a filter of its own.
    pub(crate) is_shared: bool,
    /// The device is in the switch's network namespace.
    pub(crate) is_here: bool,
    pub(crate) state: &'a mut SocketState,
}

impl PortSocket for Socket<'_> {
    fn reception(&self) -> Reception {
        self.state.reception
    }

    fn has_filter(&self) -> bool {
        self.state.has_filter
    }

    fn set_receive(&mut self, reception: Reception) -> bool {
        if self.kind != Kind::System || self.state.reception == reception {
            return true;
        }
        // No packet arrives at a device that is gone, and link monitoring reports that it is gone.
        if !self.is_here {
            return false;
        }
        let done = self.base.set_receiving(self.number, reception);
        let was_refused = std::mem::replace(&mut self.state.is_refused, done.is_err());
        match done {
            Ok(()) => self.state.reception = reception,
            Err(e) if e.raw_os_error() == Some(ENODEV) || was_refused => {}
            Err(e) => tracing::warn!(
                target: "dpif",
                "{}: its socket refuses to change its reception ({e}): remove the port and add it \
                 again",
                self.name,
            ),
        }
        !self.state.is_refused
    }

    fn install_filter(&mut self, filter: BorrowedFd<'_>) {
        if self.kind != Kind::System || self.is_shared || self.state.has_filter {
            return;
        }
        let again = || match self.state.reception {
            on @ (Reception::On | Reception::Briefly) => self.base.set_receiving(self.number, on),
            Reception::Muted | Reception::Off => Ok(()),
        };
        match self.base.set_filter(self.number, filter).and_then(|()| again()) {
            Ok(()) => self.state.has_filter = true,
            Err(e) => tracing::debug!(
                target: "dpif",
                "{}: the socket has no filter, so changes of the tier lose some packets ({e})",
                self.name,
            ),
        }
    }
}
