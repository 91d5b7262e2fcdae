// SPDX-License-Identifier: Apache-2.0
//! The structures that the BPF programs share with the agent (`bpf/xdp_flow.bpf.c`). Integers are in
//! host byte order unless they say otherwise.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most devices that one agent serves (`MAX_DEVICES`).
pub const MAX_DEVICES: usize = 64;
/// Most masks of one device (`MAX_TABLES`).
pub const MAX_TABLES: usize = 32;
/// Most rules of all devices together (`MAX_RULES`).
pub const MAX_RULES: usize = 16384;
/// Bytes of a packet's fields (`struct key`).
pub const KEY_BYTES: usize = 88;

/// The verdict on a packet (`enum verdict`).
pub mod verdict {
    /// It is left to traffic control.
    pub const STOP: u8 = 0;
    /// It is dropped.
    pub const DROP: u8 = 1;
    /// It is changed and sent by a device.
    pub const REDIRECT: u8 = 2;
}

/// Bits of [`Rule::flags`] (`enum effect_flags`).
pub mod flags {
    /// Ethernet addresses are edited.
    pub const EDIT_ETH: u8 = 1;
    /// The header of IPv4 or IPv6 is edited.
    pub const EDIT_NET: u8 = 2;
    /// Ports of TCP or UDP are edited.
    pub const EDIT_L4: u8 = 4;
    /// The checksum of IPv4 is computed.
    pub const SUM_IPV4: u8 = 8;
    /// The checksum of TCP follows the edits.
    pub const SUM_TCP: u8 = 16;
    /// That of UDP.
    pub const SUM_UDP: u8 = 32;
    /// That of ICMPv6.
    pub const SUM_ICMP: u8 = 64;
}

/// A rule (`struct rule`). Values of edits are zero outside of their masks, in network byte order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// Nanoseconds of `CLOCK_MONOTONIC` at which a packet was last left to traffic control.
    pub refreshed: u64,
    /// Place in the order of traffic control: the lowest one that matches decides.
    pub rank: u32,
    /// Index of its counter.
    pub counter: u32,
    /// The device that sends the packet.
    pub ifindex: u32,
    /// Bytes of the longest frame that is sent there by XDP.
    pub longest: u32,
    /// One of [`verdict`].
    pub verdict: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Tags that are taken off.
    pub pops: u8,
    /// Tags that are then put on.
    pub pushes: u8,
    /// Tag protocol and tag control information, network byte order.
    pub push: [[[u8; 2]; 2]; 2],
    /// Type of service: value and mask.
    pub tos: [u8; 2],
    /// TTL or hop limit: value and mask.
    pub ttl: [u8; 2],
    /// Ethernet destination and source.
    pub eth_value: [u8; 12],
    /// Their mask.
    pub eth_mask: [u8; 12],
    /// IP source; IPv4 in the first four bytes.
    pub src_value: [u8; 16],
    /// Its mask.
    pub src_mask: [u8; 16],
    /// IP destination.
    pub dst_value: [u8; 16],
    /// Its mask.
    pub dst_mask: [u8; 16],
    /// Source port: value and mask.
    pub sport: [[u8; 2]; 2],
    /// Destination port.
    pub dport: [[u8; 2]; 2],
}

/// One mask of a device (`struct table`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Table {
    /// Bits of the packet's fields that its rules compare.
    pub mask: [u8; KEY_BYTES],
    /// Distinguishes it from the tables of all devices.
    pub number: u64,
    /// Lowest rank of its rules.
    pub rank: u32,
    /// Fills the last word; zero.
    pub zero: u32,
}

/// A device (`struct device`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Device {
    /// Number of its tables.
    pub tables: u32,
    /// Index of its counters.
    pub slot: u32,
    /// The tables, in the order of their ranks.
    pub table: [Table; MAX_TABLES],
}

/// The key of a rule in its map (`struct lookup`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Lookup {
    /// The masked fields.
    pub key: [u8; KEY_BYTES],
    /// Number of the table.
    pub table: u64,
}

/// The words by which agent, guard and XDP agree (`struct control`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Control {
    /// Changes that the kernel began.
    pub begun: u64,
    /// Changes that it ended.
    pub done: u64,
    /// Sum of `begun` and `done` at which the agent read the rules; another one makes XDP pass all
    /// packets.
    pub acknowledged: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` after which XDP passes all packets.
    pub deadline: u64,
    /// Nanoseconds between packets of a rule that are left to traffic control; 0 for never.
    pub refresh: u64,
}

/// Why packets took their way (`enum outcome`), with the name that `show` prints.
pub const OUTCOMES: [(&str, &str); 11] = [
    ("ran", "run at XDP"),
    ("changing", "passed while a change was not read yet"),
    ("expired", "passed as the agent was late"),
    ("unparsed", "passed as their headers are not parsed at XDP"),
    ("missed", "passed as no rule matched"),
    ("stopped", "passed to filters that XDP does not run"),
    ("refreshed", "passed to keep a filter in use"),
    ("too-long", "passed as they are longer than the target's MTU"),
    ("wrong-length", "passed as their lengths are wrong, and checksums depend on them"),
    ("no-room", "passed as the driver left no room for a VLAN tag"),
    ("failed", "dropped as a VLAN tag could not be changed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that the C structures have.
    #[test]
    fn structures_have_no_gaps() {
        assert_eq!(size_of::<Rule>(), 136);
        assert_eq!(size_of::<Table>(), KEY_BYTES + 16);
        assert_eq!(size_of::<Device>(), 8 + MAX_TABLES * size_of::<Table>());
        assert_eq!(size_of::<Lookup>(), KEY_BYTES + 8);
    }
}
