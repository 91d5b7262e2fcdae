// SPDX-License-Identifier: Apache-2.0
//! A packet as it comes to the tables of a datapath.

use flow::Key;
use flow::extract::key_of;

/// The bytes of a packet, and the datapath's metadata for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The frame.
    pub frame: Vec<u8>,
    /// Datapath port.
    pub in_port: u32,
    /// Not 0 when it was recirculated.
    pub recirc_id: u32,
    /// Not 0 when it was hashed.
    pub dp_hash: u32,
    /// `skb_priority`.
    pub priority: u32,
    /// `pkt_mark`.
    pub mark: u32,
    /// A key whose fields `ct_*` are the packet's.
    pub connection: Key,
}

impl Arrival {
    /// A frame that comes in on a port.
    pub fn new(frame: Vec<u8>, in_port: u32) -> Arrival {
        Arrival {
            frame,
            in_port,
            recirc_id: 0,
            dp_hash: 0,
            priority: 0,
            mark: 0,
            connection: Key::ZERO,
        }
    }

    /// Returns the arrival of a packet that an upcall reported.
    pub fn again(frame: &[u8], key: &Key) -> Arrival {
        Arrival {
            frame: frame.to_vec(),
            in_port: key.in_port.get(),
            recirc_id: key.recirc_id.get(),
            dp_hash: key.dp_hash.get(),
            priority: key.skb_priority.get(),
            mark: key.pkt_mark.get(),
            connection: *key,
        }
    }

    /// The key by which it is looked up.
    pub fn key(&self) -> Key {
        let mut key = key_of(&self.frame, self.in_port);
        key.recirc_id.set(self.recirc_id);
        key.dp_hash.set(self.dp_hash);
        key.skb_priority.set(self.priority);
        key.pkt_mark.set(self.mark);
        key.set_connection(&self.connection);
        key
    }
}
