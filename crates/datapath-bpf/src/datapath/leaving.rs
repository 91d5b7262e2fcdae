// SPDX-License-Identifier: Apache-2.0
//! Programs at the skb hook of devices that are no ports any more.
//!
//! To detach one takes a grace period of the kernel, in which it holds the lock of all network
//! devices. The tables come first: without its device there, a program passes every packet on. The
//! programs themselves are detached later, one by one, or serve the device again when it comes back.

use super::{BpfDatapath, lock};
use crate::attach::Attached;
use crate::layout::MAX_PORTS;
use crate::load::Hook;
use crate::pins::Pins;
use crate::sys;
use datapath::{AdoptedPort, PortNo, Side};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// A program that is to be detached.
pub(super) struct Leaving {
    port: u32,
    ifindex: u32,
    /// The side of the device that the program serves; `None` for a program of an earlier daemon,
    /// which must not serve again.
    side: Option<Side>,
    attached: Attached,
}

impl Leaving {
    /// Returns the program whose link an earlier daemon left at `pin`; `None`: there is no link.
    fn of_earlier_daemon(port: u32, pin: PathBuf) -> Option<Leaving> {
        let link = sys::open_pin(&pin).ok()?;
        let ifindex = sys::link_ifindex(link.as_fd()).unwrap_or(0); // its device may be gone
        Some(Leaving {
            port,
            ifindex,
            side: None,
            attached: Attached::Link { link, pin: Some(pin) },
        })
    }
}

/// Returns the programs that an earlier daemon attached for ports that its tables do not have.
pub(super) fn without_port(pins: &Pins, ports: &[AdoptedPort]) -> Vec<Leaving> {
    let is_there = |port: u32| ports.iter().any(|p| p.number == PortNo(port));
    pins.links()
        .filter(|(port, _)| !is_there(*port))
        .filter_map(|(port, pin)| Leaving::of_earlier_daemon(port, pin))
        .collect()
}

impl BpfDatapath {
    /// Removes a port, as [`BpfDatapath::detach`] does, but leaves the program at the skb hook to
    /// [`BpfDatapath::finish_detaching`]. The port may be one of an earlier daemon.
    pub fn detach_later(&self, port: PortNo) {
        if port.0 >= MAX_PORTS {
            return;
        }
        let mut held = lock(&self.ports);
        let Some(entry) = held.get_mut(&port.0) else {
            if !self.is_leaving(port.0) {
                let pin = self.pins.as_ref().map(|pins| pins.link(port.0, Hook::Tc));
                let left = pin.and_then(|pin| Leaving::of_earlier_daemon(port.0, pin));
                lock(&self.leaving).extend(left);
            }
            return self.forget(&mut held, port.0);
        };
        let (ifindex, side) = (entry.attachment.ifindex, entry.attachment.side);
        match entry.programs.remove(&Hook::Tc) {
            Some(attached @ Attached::Link { .. }) => {
                let leaving = Leaving { port: port.0, ifindex, side: Some(side), attached };
                lock(&self.leaving).push(leaving);
            }
            // A filter goes at once.
            Some(filter) => {
                entry.programs.insert(Hook::Tc, filter);
            }
            None => {}
        }
        self.forget(&mut held, port.0);
    }

    /// Detaches one program that [`BpfDatapath::detach_later`] left. Returns false when there is
    /// none.
    pub fn finish_detaching(&self) -> bool {
        let _one_at_a_time = lock(&self.ports);
        let next = lock(&self.leaving).pop();
        let is_there = next.is_some();
        if let Some(leaving) = next {
            self.detach_left(leaving);
        }
        is_there
    }

    fn detach_left(&self, leaving: Leaving) {
        if let Some(any) = self.program(Hook::Tc.lookup()) {
            leaving.attached.detach(any);
        }
    }

    /// Returns true when the program of a port at the skb hook is to be detached later.
    pub(super) fn is_leaving(&self, port: u32) -> bool {
        lock(&self.leaving).iter().any(|l| l.port == port)
    }

    /// Returns the program that is still attached for this port at this device. Detaches what is in
    /// the way: other programs at the device, and those that are pinned under the port's number.
    pub(super) fn take_back(&self, port: u32, ifindex: u32, side: Side) -> Option<Attached> {
        let concerned = |l: &mut Leaving| l.port == port || l.ifindex == ifindex;
        let found: Vec<Leaving> = lock(&self.leaving).extract_if(.., concerned).collect();
        let mut own = None;
        for leaving in found {
            // A link to a device that was deleted meanwhile is no program at another one with its
            // index.
            let is_alive = match &leaving.attached {
                Attached::Link { link, .. } => {
                    sys::link_ifindex(link.as_fd()).ok() == Some(ifindex)
                }
                _ => true,
            };
            let place = (leaving.port, leaving.ifindex, leaving.side);
            if is_alive && place == (port, ifindex, Some(side)) {
                own = Some(leaving.attached);
            } else {
                self.detach_left(leaving);
            }
        }
        own
    }

    /// Unpins all programs that are to be detached. The kernel detaches them by itself then.
    pub(super) fn leave_all(&self) {
        for leaving in lock(&self.leaving).drain(..) {
            leaving.attached.unpin();
        }
    }
}
