// SPDX-License-Identifier: Apache-2.0
//! What is to be written to one peer.
//!
//! Bytes in the order in which they leave. The limits say when the producers of bytes stop, so
//! that a peer that does not read costs a bounded amount of memory.

/// Above so many bytes nothing more of the peer's messages is carried out.
const REQUEST_LIMIT: usize = 256 * 1024;
/// Above so many bytes flow monitors pause.
const MONITOR_LIMIT: usize = 512 * 1024;
/// Above so many bytes packet-ins, and copies for snoopers, are dropped.
const PACKET_LIMIT: usize = 512 * 1024;
/// Above so many bytes every asynchronous message is dropped.
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

    /// Everything, which then is the caller's.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Where messages are encoded to.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was added since there were `start` bytes.
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
