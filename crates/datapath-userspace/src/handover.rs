// SPDX-License-Identifier: Apache-2.0
//! Packets that a faster tier passes on to this datapath, which holds every flow.

use datapath::{Origin, PortNo};
use flow::Key;
use netdev::PacketPool;
use packet::Packet;
use std::io;
use std::os::fd::BorrowedFd;

/// A packet that a faster tier could not deal with.
pub struct Passed {
    /// The packet as it is now: changed already, if `origin.recirc_id` is not 0.
    pub packet: Packet,
    /// Where it was.
    pub origin: Origin,
}

impl Passed {
    /// The part of the key that is not in the packet.
    pub(crate) fn metadata(&self) -> Key {
        let origin = &self.origin;
        let mut key = Key::default();
        key.in_port.set(origin.in_port.0);
        key.recirc_id.set(origin.recirc_id);
        key.dp_hash.set(origin.dp_hash);
        key.skb_priority.set(origin.priority);
        key.pkt_mark.set(origin.mark);
        key
    }
}

/// Where such packets come from. One packet thread at a time calls it, not always the same.
///
/// Each turn is one [`Handover::recv`], after which all its packets are processed, each to the
/// end, and what they cause to be sent is sent, and then one [`Handover::done`]. The next turn
/// begins after that. Neither may add or remove ports or handovers. [`Handover::done`] is left out
/// when there were no packets, and when the handover was removed in between.
pub trait Handover: Send {
    /// Descriptor that is readable when [`Handover::recv`] may return packets (level triggered).
    /// Always the same one.
    fn poll_fd(&self) -> BorrowedFd<'_>;

    /// Takes at most `max` packets, in the order in which they came, appended to `out`; buffers
    /// from `pool`. Returns how many others it lost, because their parts contradict each other; they
    /// are counted ([`datapath::DropReason::Malformed`]). Never blocks.
    ///
    /// # Errors
    ///
    /// It will never deliver again, and is taken out of service and dropped. Packets appended
    /// before are processed.
    fn recv(&mut self, out: &mut Vec<Passed>, pool: &mut PacketPool, max: usize)
    -> io::Result<u64>;

    /// Before `until`, in nanoseconds of `CLOCK_MONOTONIC`, packets of `port` are not wanted: the
    /// port has spent what its misses may cost. They are to be dropped as early as can be, and
    /// counted (`DropReason::UpcallLimit`). Those that come nevertheless are processed.
    /// Called behind [`Handover::done`].
    fn hold_back(&mut self, port: PortNo, until: u64) {
        let _ = (port, until);
    }

    /// All packets of the last [`Handover::recv`] were processed and what they caused is sent
    /// (or they are lost, because processing them panicked): so many of each port, each port
    /// once.
    fn done(&mut self, processed: &[(PortNo, u64)]);
}

/// Names a handover that was added, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandoverId(pub(crate) u64);

/// How many packets came from each port.
pub(crate) fn count_by_port(passed: &[Passed]) -> Vec<(PortNo, u64)> {
    let mut counts: Vec<(PortNo, u64)> = Vec::new();
    for p in passed {
        match counts.iter_mut().find(|(port, _)| *port == p.origin.in_port) {
            Some((_, n)) => *n += 1,
            None => counts.push((p.origin.in_port, 1)),
        }
    }
    counts
}
