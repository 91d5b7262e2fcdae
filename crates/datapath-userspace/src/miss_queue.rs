// SPDX-License-Identifier: Apache-2.0
//! Packets that a faster tier passes to this datapath, which holds every flow.

use datapath::offload::UpcallAccount;
use datapath::{MissOrigin, PortNo};
use flow::Key;
use netdev::PacketPool;
use packet::Packet;
use std::io;
use std::os::fd::BorrowedFd;

/// A packet that a faster tier passed on because it could not process it.
pub struct MissedPacket {
    /// The packet in its present form. It has been changed already if `origin.recirc_id` is not 0.
    pub packet: Packet,
    /// The port it arrived on and the metadata of its key.
    pub origin: MissOrigin,
}

impl MissedPacket {
    /// Returns a key with the metadata, which the packet's bytes do not contain.
    pub(crate) fn metadata(&self) -> Key {
        let origin = &self.origin;
        let mut key = origin.tracked.as_ref().map_or(Key::ZERO, |tracked| tracked.fields);
        key.in_port.set(origin.in_port.0);
        key.recirc_id.set(origin.recirc_id);
        key.dp_hash.set(origin.dp_hash);
        key.skb_priority.set(origin.priority);
        key.pkt_mark.set(origin.mark);
        key
    }
}

/// The source of a faster tier's misses. One packet thread at a time calls it, not always the same.
///
/// Each turn is one [`MissSource::recv`], then the processing of all its packets, each to the end
/// with everything it causes to be sent, then one [`MissSource::done`]. The next turn begins after
/// that. None of the methods may add or remove ports or miss sources. [`MissSource::done`] is not
/// called when there were no packets, nor when the source was removed during the turn.
pub trait MissSource: Send {
    /// Returns a descriptor that is readable when [`MissSource::recv`] may return packets (level
    /// triggered). Must return the same descriptor every time.
    fn poll_fd(&self) -> BorrowedFd<'_>;

    /// Takes at most `max` packets in the order of their arrival and appends them to `out`, in
    /// buffers from `pool`. Returns the number of other packets that it dropped because their parts
    /// contradict each other; the caller counts them ([`datapath::DropReason::Malformed`]). Never
    /// blocks.
    ///
    /// # Errors
    ///
    /// The source will never deliver again. The thread takes it out of service and drops it, after
    /// it has processed the packets that were appended before.
    fn recv(
        &mut self,
        out: &mut Vec<MissedPacket>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<u64>;

    /// Asks the tier to drop packets of `port` that this account pays for until `until_ns`,
    /// nanoseconds of `CLOCK_MONOTONIC`: the port has used up the CPU time of the account. The tier drops them as early as it can and
    /// counts them (`DropReason::UpcallLimit`). Packets that arrive nevertheless are processed.
    /// Called after [`MissSource::done`].
    fn close_port(&mut self, port: PortNo, account: UpcallAccount, until_ns: u64) {
        let _ = (port, account, until_ns);
    }

    /// Reports that all packets of the last [`MissSource::recv`] were processed and everything they
    /// caused was sent, or that they were lost in a panic. `processed` is the number of packets of
    /// each port, each port once.
    fn done(&mut self, processed: &[(PortNo, u64)]);
}

/// Identifies a miss source that was added, for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissSourceId(pub(crate) u64);

/// Returns the number of packets of each port.
pub(crate) fn count_by_port(packets: &[MissedPacket]) -> Vec<(PortNo, u64)> {
    let mut counts: Vec<(PortNo, u64)> = Vec::new();
    for p in packets {
        match counts.iter_mut().find(|(port, _)| *port == p.origin.in_port) {
            Some((_, n)) => *n += 1,
            None => counts.push((p.origin.in_port, 1)),
        }
    }
    counts
}
