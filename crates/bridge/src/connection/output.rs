// SPDX-License-Identifier: Apache-2.0
//! Output bytes for one peer, in the order in which they leave.
//!
//! Producers stop at the limits below, so that a peer that does not read costs a bounded amount of
//! memory.

/// Number of waiting bytes above which no more messages of the peer are carried out.
const REQUEST_LIMIT: usize = 256 * 1024;
/// Number of waiting bytes above which flow monitors pause.
const MONITOR_LIMIT: usize = 512 * 1024;
/// Number of waiting bytes above which packet-ins and copies for snoopers are dropped.
const PACKET_LIMIT: usize = 512 * 1024;
/// Number of waiting bytes above which every asynchronous message is dropped.
const ASYNC_LIMIT: usize = 4 * 1024 * 1024;

/// Bytes for one peer.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all bytes and returns them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
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

    pub(super) fn is_full_for_packets(&self) -> bool {
        self.len() > PACKET_LIMIT
    }

    pub(super) fn is_full_for_async(&self) -> bool {
        self.len() > ASYNC_LIMIT
    }
}
