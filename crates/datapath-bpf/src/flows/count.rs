// SPDX-License-Identifier: Apache-2.0
//! Counts of packets.

/// Counts of one or more flows, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets, as frames without the frame check sequence.
    pub bytes: u64,
    /// TCP flags of these packets, ORed; 12 bits, a host integer.
    pub tcp_flags: u16,
}

impl FlowCount {
    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &FlowCount) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.tcp_flags |= other.tcp_flags;
    }

    /// Returns these counts, each raised to that of `other` where it is lower.
    pub fn at_least(&self, other: &FlowCount) -> FlowCount {
        FlowCount {
            packets: self.packets.max(other.packets),
            bytes: self.bytes.max(other.bytes),
            tcp_flags: self.tcp_flags | other.tcp_flags,
        }
    }
}
