// SPDX-License-Identifier: Apache-2.0
//! IPv6 and its extension headers (RFC 8200).

use crate::ip_proto;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IPv6 header, 40 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (4 bits), traffic class (8), flow label (20).
    pub version_class_label: U32,
    /// Number of bytes after this header.
    pub payload_len: U16,
    /// Type of the header that follows.
    pub next: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

impl Ipv6Header {
    /// Returns the traffic class.
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> 20) as u8
    }

    /// Returns the flow label, 20 bits.
    pub fn label(&self) -> u32 {
        self.version_class_label.get() & 0xf_ffff
    }

    /// Stores the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        let v = self.version_class_label.get() & !0x0ff0_0000 | u32::from(class) << 20;
        self.version_class_label.set(v);
    }

    /// Stores the low 20 bits of `label`.
    pub fn set_label(&mut self, label: u32) {
        let v = self.version_class_label.get() & !0xf_ffff | label & 0xf_ffff;
        self.version_class_label.set(v);
    }

    /// Returns the payload bytes if `available` bytes from the header's start contain them and at
    /// most 65,535 bytes of padding follow. (Jumbograms, RFC 2675, are not supported.)
    pub fn checked_payload_len(&self, available: usize) -> Option<usize> {
        let rest = available.checked_sub(size_of::<Ipv6Header>())?;
        let len = usize::from(self.payload_len.get());
        (len <= rest && rest - len <= usize::from(u16::MAX)).then_some(len)
    }

    /// Returns the sum of the pseudo header for upper-layer protocol `proto` and `len` bytes (RFC
    /// 8200, 8.1). With a routing header the destination should be the final one; as in OVS, this
    /// function uses the header's.
    pub fn pseudo_sum(&self, proto: u8, len: u32) -> crate::checksum::Sum {
        let mut sum = crate::checksum::Sum::default();
        sum.add(&self.src);
        sum.add(&self.dst);
        sum.add_u32(proto.into());
        sum.add_u32(len);
        sum
    }
}

/// Fragment header, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ipv6FragmentHeader {
    /// Type of the header that follows.
    pub next: u8,
    /// Reserved; senders set it to zero.
    pub reserved: u8,
    /// Offset in units of 8 bytes (13 bits), two reserved bits, more-fragments.
    pub offset: U16,
    /// Identification of the packet, equal in all its fragments.
    pub id: U32,
}

/// The result of a walk over the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Extensions {
    /// The upper-layer protocol; [`ip_proto::FRAGMENT`] for later fragments, where the walk
    /// stops.
    pub proto: u8,
    /// Bytes of extension headers.
    pub len: usize,
    /// True when there is a fragment header with an offset or more-fragments.
    pub is_fragment: bool,
    /// True for a fragment other than the first.
    pub is_later_fragment: bool,
    /// Offset of the fragment header in the payload.
    pub fragment_at: Option<usize>,
    /// Offset of a routing header in the payload.
    pub routing_at: Option<usize>,
}

impl Ipv6Extensions {
    /// Walks the extension headers at the start of `payload` (cut to the payload length), of
    /// which the first has type `next`. Returns `None` when one is cut off.
    pub fn walk(next: u8, payload: &[u8]) -> Option<Ipv6Extensions> {
        let mut e = Ipv6Extensions {
            proto: next,
            len: 0,
            is_fragment: false,
            is_later_fragment: false,
            fragment_at: None,
            routing_at: None,
        };
        loop {
            if !matches!(
                e.proto,
                ip_proto::HOP_BY_HOP
                    | ip_proto::ROUTING
                    | ip_proto::DESTINATION
                    | ip_proto::AH
                    | ip_proto::FRAGMENT
            ) {
                return Some(e);
            }
            let rest = payload.get(e.len..)?;
            let (header, _) = Ipv6FragmentHeader::ref_from_prefix(rest).ok()?;
            // In every header the first byte is the next type; in all but the fragment
            // header the second is a length.
            let len = match e.proto {
                ip_proto::FRAGMENT => 8,
                ip_proto::AH => (usize::from(header.reserved) + 2) * 4,
                _ => (usize::from(header.reserved) + 1) * 8,
            };
            if len > rest.len() {
                return None;
            }
            match e.proto {
                ip_proto::FRAGMENT => e.fragment_at = Some(e.len),
                ip_proto::ROUTING => e.routing_at = Some(e.len),
                _ => {}
            }
            e.len += len;
            let is_fragment = e.proto == ip_proto::FRAGMENT && header.offset.get() != 0;
            e.proto = header.next;
            if is_fragment {
                e.is_fragment = true;
                if header.offset.get() & 0xfff8 != 0 {
                    e.is_later_fragment = true;
                    e.proto = ip_proto::FRAGMENT;
                    return Some(e);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cut_off_extension_is_refused_and_a_later_fragment_ends_the_walk() {
        // Hop-by-hop of 16 bytes, then UDP.
        let mut options = [0u8; 24];
        (options[0], options[1]) = (ip_proto::UDP, 1);
        let walk = |n: usize| Ipv6Extensions::walk(ip_proto::HOP_BY_HOP, &options[..n]);
        assert_eq!(walk(24).map(|e| (e.proto, e.len)), Some((ip_proto::UDP, 16)));
        for n in 0..16 {
            assert_eq!(walk(n), None);
        }
        let later = [ip_proto::UDP, 0, 0, 8, 0, 0, 0, 1];
        let e = Ipv6Extensions::walk(ip_proto::FRAGMENT, &later)
            .map(|e| (e.proto, e.len, e.is_later_fragment));
        assert_eq!(e, Some((ip_proto::FRAGMENT, 8, true)));
        // "Atomic" fragments (RFC 6946) are whole packets.
        let atomic = [ip_proto::UDP, 0, 0, 0, 0, 0, 0, 1];
        let e = Ipv6Extensions::walk(ip_proto::FRAGMENT, &atomic).map(|e| (e.proto, e.is_fragment));
        assert_eq!(e, Some((ip_proto::UDP, false)));
    }

    proptest! {
        #[test]
        fn the_walk_stays_inside(next: u8, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(e) = Ipv6Extensions::walk(next, &bytes) {
                prop_assert!(e.len <= bytes.len());
                prop_assert!(!e.is_later_fragment || e.is_fragment);
            }
        }

        #[test]
        fn neighbour_options_stay_inside(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let total: usize = crate::NdOptions::new(&bytes).map(|o| o.bytes.len()).sum();
            prop_assert!(total <= bytes.len());
        }
    }
}
