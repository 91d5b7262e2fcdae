// SPDX-License-Identifier: Apache-2.0
//! Output bytes for one peer, in the order in which they leave.
//!
//! Producers stop at the limits below, so that a peer that does not read costs a bounded amount of
//! memory.

/// Number of waiting bytes above which no more messages of the peer are carried out.
const REQUEST_LIMIT: usize = 256 * 1024;
/// Number of waiting bytes above which flow monitors pause.
const MONITOR_LIMIT: usize = 512 * 1024;
/// Number of waiting bytes above which copies for snoopers are dropped, and packet-ins for a peer that
/// was not seen to be slow.
const PACKET_LIMIT: usize = 512 * 1024;
/// Number of packet-ins that may wait for a peer that does not read, unless the database says
/// otherwise.
pub(super) const PACKETS: u32 = 100;
/// Number of waiting bytes above which every asynchronous message is dropped.
const ASYNC_LIMIT: usize = 4 * 1024 * 1024;

/// Bytes for one peer.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// Packet-ins among the bytes.
    packets: u32,
    /// The bytes that were taken last may not have left yet: they have when [`Output::take`] is called
    /// again.
    is_leaving: bool,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all bytes and returns them. The caller writes all of them before it calls again.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.is_leaving = !self.bytes.is_empty();
        self.packets = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Appends a packet-in.
    pub(super) fn push_packet(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.packets = self.packets.saturating_add(1);
    }

    /// Returns the buffer to which messages are encoded.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the bytes that were added after the first `start` bytes.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or_default()
    }

    pub(super) fn is_full_for_requests(&self) -> bool {
        self.len() > REQUEST_LIMIT
    }

    pub(super) fn is_full_for_monitors(&self) -> bool {
        self.len() > MONITOR_LIMIT
    }

    /// Returns true when a packet-in has to be dropped: bytes wait for the peer to read, and `most`
    /// packet-ins wait after them. Before anything waits, the packets of one turn may be more.
    pub(super) fn is_full_for_packets(&self, most: u32) -> bool {
        match self.is_leaving {
            true => self.packets >= most || self.is_full_for_async(),
            false => self.len() > PACKET_LIMIT,
        }
    }

    pub(super) fn is_full_for_copies(&self) -> bool {
        self.len() > PACKET_LIMIT
    }

    pub(super) fn is_full_for_async(&self) -> bool {
        self.len() > ASYNC_LIMIT
    }
}
