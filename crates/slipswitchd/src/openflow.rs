// SPDX-License-Identifier: Apache-2.0
//! OpenFlow over sockets: listeners (`BRIDGE.mgmt`, `BRIDGE.snoop`, passive controllers) and
//! connectors (active controllers).
//!
//! This module moves bytes; [`bridge::connection`] gives messages their meaning. Each socket has
//! one task on the control thread. A peer that does not read makes only its own task wait: its
//! replies do not pile up, because its requests are not read meanwhile.

mod connect;
mod control;
mod end;
mod listen;
mod peer;
mod spin;
mod stream;

pub use connect::{Connector, ConnectorStatus, Target};
pub use control::{Control, Parts, SharedControl};
pub use listen::{Endpoint, ListenError, Listener, OPENFLOW_PORT};

use bridge::connection::{ConnectionId, Connections};
use hashbrown::HashMap;
use std::rc::Rc;
use tokio::sync::Notify;

/// All OpenFlow sockets of the daemon.
#[derive(Default)]
pub struct Services {
    /// Attempts to connect to controllers since the start.
    pub(crate) attempts: u64,
    wakers: HashMap<ConnectionId, Rc<Notify>>,
}

impl Services {
    /// Registers the task of a connection.
    pub(crate) fn register(&mut self, id: ConnectionId) -> Rc<Notify> {
        Rc::clone(self.wakers.entry(id).or_default())
    }

    /// Forgets a connection.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.wakers.remove(&id);
    }

    /// Wakes the tasks of connections that have something to send or were closed.
    pub fn wake(&self, connections: &Connections) {
        for (id, waker) in &self.wakers {
            if connections.has_output(*id) || connections.closing(*id).is_some() {
                waker.notify_one();
            }
        }
    }

    /// Closes a connection from this side.
    pub fn kick(&self, id: ConnectionId) {
        if let Some(waker) = self.wakers.get(&id) {
            waker.notify_one();
        }
    }
}
