// SPDX-License-Identifier: Apache-2.0
//! The bits of [`crate::Key::ct_state`] (ovs-fields(7), "Connection Tracking State Field").

/// The packet could begin a connection, which is not committed.
pub const NEW: u8 = 0x01;
/// Part of a committed connection that had packets in both directions.
pub const EST: u8 = 0x02;
/// Related to a committed connection.
pub const REL: u8 = 0x04;
/// In the direction against the connection's first packet.
pub const RPL: u8 = 0x08;
/// The packet fits no connection and cannot begin one.
pub const INV: u8 = 0x10;
/// A `ct` action has tracked the packet. Without it no other bit is set.
pub const TRK: u8 = 0x20;
/// A `ct` action has changed the source.
pub const SNAT: u8 = 0x40;
/// A `ct` action has changed the destination.
pub const DNAT: u8 = 0x80;

/// Bits that a packet has only if it belongs to a connection.
pub(crate) const OF_VALID: u8 = NEW | EST | REL | RPL | SNAT | DNAT;

/// Names of the bits, from bit 0.
pub(crate) const NAMES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Returns the names of the bits of `state`, from bit 0.
pub fn names(state: u8) -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().zip(0..).filter(move |(_, bit)| state & 1 << bit != 0).map(|(name, _)| name)
}

/// Returns the bit with this name.
pub fn from_name(name: &str) -> Option<u8> {
    NAMES.iter().position(|n| *n == name).map(|bit| 1 << bit)
}
