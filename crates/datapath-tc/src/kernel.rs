// SPDX-License-Identifier: Apache-2.0
//! The kernel's traffic control, as the provider uses it.

use crate::filter::{Filter, Hook, Place, Shown};
use netdev::Offload;
use netlink::Error;

/// The qdisc at the ingress of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngressQdisc {
    /// There is none.
    None,
    /// `clsact`, or `ingress`, which has no egress side.
    Own,
    /// One whose filters several devices share: this block has them.
    Shared(u32),
}

/// The facts about a device that decide whether it is a port of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `hw-tc-offload`.
    pub offload: Offload,
    /// `phys_switch_id`: the card whose port the device is. Empty when the driver gives none.
    pub switch: Vec<u8>,
}

impl Facts {
    /// A device that is no port of a card.
    pub fn none() -> Facts {
        Facts { offload: Offload::Fixed, switch: Vec::new() }
    }
}

/// Whether a filter may exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It must not.
    Refuse,
    /// It is replaced at once: no packet meets neither.
    Replace,
}

/// Requests to the kernel. Each waits for the answer, which a driver may delay by milliseconds.
pub trait TrafficControl: Send {
    /// Returns the facts about a device.
    ///
    /// # Errors
    ///
    /// The kernel's error: the device is gone.
    fn facts(&mut self, ifindex: u32, device: &str) -> Result<Facts, Error>;

    /// Enables `hw-tc-offload`, and returns its state afterwards.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn enable_offload(&mut self, device: &str) -> Result<Offload, Error>;

    /// Returns the qdisc at the ingress of a device.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn ingress_qdisc(&mut self, ifindex: u32) -> Result<IngressQdisc, Error>;

    /// Adds the qdisc `clsact`.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn add_clsact(&mut self, ifindex: u32) -> Result<(), Error>;

    /// Removes the qdisc `clsact`, with all filters.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn remove_clsact(&mut self, ifindex: u32) -> Result<(), Error>;

    /// Installs a filter, and returns it as the kernel has it, with the driver's words where one declined
    /// a filter that the kernel has all the same.
    ///
    /// # Errors
    ///
    /// The kernel's error, with its or the driver's explanation.
    fn install(
        &mut self,
        filter: &Filter,
        existing: Existing,
    ) -> Result<(Shown, Option<String>), Error>;

    /// Returns a filter with the counts of this moment; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn read(&mut self, place: &Place) -> Result<Option<Shown>, Error>;

    /// Removes a filter, and returns it with its last counts; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// The kernel's error. The filter exists still.
    fn remove(&mut self, place: &Place) -> Result<Option<Shown>, Error>;

    /// Calls `each` for the flower filters of a device.
    ///
    /// # Errors
    ///
    /// The kernel's error. Some filters are missing then.
    fn filters(
        &mut self,
        ifindex: u32,
        hook: Hook,
        each: &mut dyn FnMut(Shown),
    ) -> Result<(), Error>;

    /// Returns the number of filters of any kind at a side of a device.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn count(&mut self, ifindex: u32, hook: Hook) -> Result<usize, Error>;

    /// Returns the devices that have a qdisc of their own at the ingress.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    fn devices(&mut self) -> Result<Vec<u32>, Error>;
}
