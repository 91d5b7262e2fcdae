// SPDX-License-Identifier: Apache-2.0
//! The state of the control thread, as tasks of OpenFlow sockets see it.

use super::Services;
use bridge::connection::Connections;
use bridge::switch::Switch;
use clock::Millis;
use std::cell::RefCell;
use std::rc::Rc;

/// The owner of the bridges and their OpenFlow connections (the daemon). A task borrows it for one
/// short, synchronous step, and ends a step that changed something with
/// [`Control::publish_and_wake`].
pub trait Control {
    /// Borrows the parts that a step works on.
    fn parts(&mut self) -> Parts<'_>;

    /// Ends a step: publishes changes to packet threads, and wakes the tasks of connections that
    /// have output.
    fn publish_and_wake(&mut self);
}

/// The parts of a [`Control`] that a step of an OpenFlow task works on.
pub struct Parts<'a> {
    /// All bridges.
    pub switch: &'a mut Switch,
    /// OpenFlow connections.
    pub connections: &'a mut Connections,
    /// Tasks of OpenFlow connections.
    pub services: &'a mut Services,
    /// Time of the switch's clock.
    pub now: Millis,
}

/// A handle on the control thread's state, for tasks of that thread. No borrow is held across an
/// `await`.
pub type SharedControl = Rc<RefCell<dyn Control>>;
