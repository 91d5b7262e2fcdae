// SPDX-License-Identifier: Apache-2.0
//! The keys of a flower filter (include/uapi/linux/pkt_cls.h, `TCA_FLOWER_KEY_*`).

use crate::options;
use netlink::attribute;
use std::collections::BTreeMap;

/// How many bytes a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Bytes(usize),
    /// Nested attributes.
    Nested,
}

/// Declares the keys: name, attribute of the value, attribute of the mask or 0, and width.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $mask:literal, $width:expr;)+) => {
        /// A key of flower.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key { $($(#[$doc])* $name,)+ }

        impl Key {
            /// All of them.
            pub const ALL: &[Key] = &[$(Key::$name,)+];

            /// Attributes of value and mask, and the width. A mask of 0: the key has none, and is
            /// compared whole.
            const fn row(self) -> (u16, u16, Width) {
                use Width::{Bytes, Nested};
                let _ = (Bytes(0), Nested);
                match self { $(Key::$name => ($value, $mask, $width),)+ }
            }
        }
    };
}

keys! {
    /// Ethernet destination.
    EthDst = 4, 5, Bytes(6);
    /// Ethernet source.
    EthSrc = 6, 7, Bytes(6);
    /// Ethernet type after the VLAN headers that the filter matches; of the frame without.
    EthType = 8, 0, Bytes(2);
    /// IP protocol.
    IpProto = 9, 0, Bytes(1);
    /// IPv4 source.
    Ipv4Src = 10, 11, Bytes(4);
    /// IPv4 destination.
    Ipv4Dst = 12, 13, Bytes(4);
    /// IPv6 source.
    Ipv6Src = 14, 15, Bytes(16);
    /// IPv6 destination.
    Ipv6Dst = 16, 17, Bytes(16);
    /// TCP source port.
    TcpSrc = 18, 35, Bytes(2);
    /// TCP destination port.
    TcpDst = 19, 36, Bytes(2);
    /// UDP source port.
    UdpSrc = 20, 37, Bytes(2);
    /// UDP destination port.
    UdpDst = 21, 38, Bytes(2);
    /// VLAN id of the outer header, 12 bits.
    VlanId = 23, 0, Bytes(2);
    /// Its priority, 3 bits.
    VlanPrio = 24, 0, Bytes(1);
    /// Ethernet type after it.
    VlanEthType = 25, 0, Bytes(2);
    /// Tunnel key.
    EncKeyId = 26, 0, Bytes(4);
    /// Outer IPv4 source.
    EncIpv4Src = 27, 28, Bytes(4);
    /// Outer IPv4 destination.
    EncIpv4Dst = 29, 30, Bytes(4);
    /// Outer IPv6 source.
    EncIpv6Src = 31, 32, Bytes(16);
    /// Outer IPv6 destination.
    EncIpv6Dst = 33, 34, Bytes(16);
    /// SCTP source port.
    SctpSrc = 41, 39, Bytes(2);
    /// SCTP destination port.
    SctpDst = 42, 40, Bytes(2);
    /// Outer UDP source port.
    EncUdpSrc = 43, 44, Bytes(2);
    /// Outer UDP destination port.
    EncUdpDst = 45, 46, Bytes(2);
    /// [`FRAGMENT`] and [`FIRST_FRAGMENT`].
    Flags = 47, 48, Bytes(4);
    /// ICMP code.
    Icmpv4Code = 49, 50, Bytes(1);
    /// ICMP type.
    Icmpv4Type = 51, 52, Bytes(1);
    /// ICMPv6 code.
    Icmpv6Code = 53, 54, Bytes(1);
    /// ICMPv6 type.
    Icmpv6Type = 55, 56, Bytes(1);
    /// ARP sender address.
    ArpSip = 57, 58, Bytes(4);
    /// ARP target address.
    ArpTip = 59, 60, Bytes(4);
    /// ARP opcode.
    ArpOp = 61, 62, Bytes(1);
    /// ARP sender hardware address.
    ArpSha = 63, 64, Bytes(6);
    /// ARP target hardware address.
    ArpTha = 65, 66, Bytes(6);
    /// TTL of the outermost MPLS entry.
    MplsTtl = 67, 0, Bytes(1);
    /// Its bottom of stack.
    MplsBos = 68, 0, Bytes(1);
    /// Its traffic class.
    MplsTc = 69, 0, Bytes(1);
    /// Its label, 20 bits, a host integer.
    MplsLabel = 70, 0, Bytes(4);
    /// TCP flags, 12 bits.
    TcpFlags = 71, 72, Bytes(2);
    /// Type of service or traffic class.
    IpTos = 73, 74, Bytes(1);
    /// TTL or hop limit.
    IpTtl = 75, 76, Bytes(1);
    /// VLAN id of the inner header.
    CvlanId = 77, 0, Bytes(2);
    /// Its priority.
    CvlanPrio = 78, 0, Bytes(1);
    /// Ethernet type after it.
    CvlanEthType = 79, 0, Bytes(2);
    /// Outer type of service.
    EncIpTos = 80, 81, Bytes(1);
    /// Outer TTL.
    EncIpTtl = 82, 83, Bytes(1);
    /// Options of Geneve or VXLAN.
    EncOpts = 84, 85, Nested;
    /// Connection state, host integer: bits of [`ct`].
    CtState = 91, 92, Bytes(2);
    /// Connection zone, host integer.
    CtZone = 93, 94, Bytes(2);
    /// Connection mark, host integer.
    CtMark = 95, 96, Bytes(4);
    /// Connection label, as the kernel stores it.
    CtLabels = 97, 98, Bytes(16);
    /// Flags of the tunnel (Linux 6.11).
    EncFlags = 110, 111, Bytes(4);
}

/// Bit of [`Key::Flags`]: part of a packet.
pub const FRAGMENT: u32 = 1;
/// Bit of [`Key::Flags`]: the first part.
pub const FIRST_FRAGMENT: u32 = 2;

/// Bits of [`Key::CtState`] (`TCA_FLOWER_KEY_CT_FLAGS_*`).
pub mod ct {
    /// Begins a connection.
    pub const NEW: u16 = 1;
    /// Of a connection that had a reply.
    pub const ESTABLISHED: u16 = 2;
    /// Of a connection that another one expects.
    pub const RELATED: u16 = 4;
    /// The connection tracker has seen the packet.
    pub const TRACKED: u16 = 8;
    /// Of no connection that there may be.
    pub const INVALID: u16 = 16;
    /// In the direction of replies.
    pub const REPLY: u16 = 32;
}

/// The value of a key, and the bits of it that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked {
    /// In network byte order, unless the key says otherwise.
    pub value: Vec<u8>,
    /// Empty where all bits count and the key has no mask.
    pub mask: Vec<u8>,
}

/// The keys that a filter compares.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Keys(BTreeMap<Key, Masked>);

impl Keys {
    /// Adds a key with a mask. A mask of zeros adds nothing. For a key without a mask the value counts
    /// whole.
    pub fn add<const N: usize>(&mut self, key: Key, value: [u8; N], mask: [u8; N]) {
        debug_assert!(key.row().2 == Width::Bytes(N), "{key:?} has other bytes");
        if mask == [0; N] {
            return;
        }
        let mut value = value;
        value.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        let mask = if key.row().1 == 0 { Vec::new() } else { mask.to_vec() };
        self.0.insert(key, Masked { value: value.to_vec(), mask });
    }

    /// Adds a key that is compared whole.
    pub fn exact<const N: usize>(&mut self, key: Key, value: [u8; N]) {
        self.add(key, value, [0xff; N]);
    }

    /// Adds nested options with their masks, as [`crate::options`] writes them.
    pub fn options(&mut self, value: Vec<u8>, mask: Vec<u8>) {
        self.0.insert(Key::EncOpts, Masked { value, mask });
    }

    /// The value of a key.
    pub fn get(&self, key: Key) -> Option<&Masked> {
        self.0.get(&key)
    }

    /// All keys, in the order of [`Key::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Masked)> {
        self.0.iter().map(|(key, masked)| (*key, masked))
    }

    /// Appends the attributes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        for (key, masked) in self.iter() {
            let (value, mask, _) = key.row();
            attribute::put(bytes, value, &masked.value);
            if mask != 0 {
                attribute::put(bytes, mask, &masked.mask);
            }
        }
    }

    /// Reads one attribute of a filter's options. False when it is of no key. One whose length is
    /// wrong is as one that is missing.
    pub fn read(&mut self, kind: u16, bytes: &[u8]) -> bool {
        for key in Key::ALL.iter().copied() {
            let (value, mask, width) = key.row();
            if kind != value && (mask == 0 || kind != mask) {
                continue;
            }
            if let Width::Bytes(n) = width
                && bytes.len() != n
            {
                return true;
            }
            let settled = || match width {
                Width::Bytes(_) => bytes.to_vec(),
                Width::Nested => options::settled(bytes),
            };
            let entry = self.0.entry(key);
            let empty = Masked { value: Vec::new(), mask: Vec::new() };
            let masked = entry.or_insert(empty);
            if kind == value {
                masked.value = settled();
            } else {
                masked.mask = settled();
            }
            return true;
        }
        false
    }

    /// After all attributes: the kernel leaves masks of zeros out where a key has none, and repeats
    /// keys without a value for others. Drops keys that compare nothing.
    pub fn settle(&mut self) {
        self.0.retain(|key, masked| {
            let has_mask = key.row().1 != 0;
            let compares = !has_mask || masked.mask.iter().any(|byte| *byte != 0);
            if compares && masked.value.len() != masked.mask.len() && has_mask {
                masked.value.resize(masked.mask.len(), 0);
            }
            compares && !masked.value.is_empty()
        });
    }
}
