// SPDX-License-Identifier: Apache-2.0
//! Queues of egress ports.

/// How the `skb_priority` of a packet names a queue of its egress port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueNumbering {
    /// By the number of the queue, as in Open vSwitch's userspace datapath, which queues nothing.
    #[default]
    Plain,
    /// By the handle of the kernel's class; see [`netdev::queue_priority`].
    Classes,
}

impl QueueNumbering {
    /// Returns the `skb_priority` of packets in a queue; `None`: there is no such queue.
    pub fn priority(self, queue: u32) -> Option<u32> {
        match self {
            QueueNumbering::Plain => Some(queue),
            QueueNumbering::Classes => netdev::queue_priority(queue),
        }
    }
}

/// The part of the switch, or of the kernel, that carries out the QoS of an egress port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EgressQos {
    /// The port has none.
    #[default]
    None,
    /// A queueing discipline of the kernel, which a packet meets when it is sent through the device
    /// (`dev_queue_xmit`).
    Discipline,
    /// The switch's own sender.
    Sender,
}

impl EgressQos {
    /// Returns true when there is QoS that a tier must not bypass.
    pub fn is_on(self) -> bool {
        self != EgressQos::None
    }
}
