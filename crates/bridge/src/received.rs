// SPDX-License-Identifier: Apache-2.0
//! The counter of packets that a port has received.

use crate::group::Count;
use netdev::Device;
use std::sync::Arc;

/// The counter of packets that a port has received.
#[derive(Clone)]
pub(crate) enum Received {
    /// A patch or tunnel port: rx, tx.
    Virtual(Arc<[Count; 2]>),
    /// A port with a device.
    Device(Arc<dyn Device>),
}

impl Received {
    /// Returns the number of received packets, 0 if it is unknown.
    pub(crate) fn packets(&self) -> u64 {
        match self {
            Received::Virtual(counts) => {
                let [rx, _] = &**counts;
                rx.counts().0
            }
            Received::Device(device) => {
                device.stats().ok().and_then(|stats| stats.rx_packets).unwrap_or(0)
            }
        }
    }
}
