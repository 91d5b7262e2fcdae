// SPDX-License-Identifier: Apache-2.0
//! The tuple of a connection's direction, and its canonical form in five words.

use crate::layout::{KEY_WORDS, key_kind};
use packet::ip_proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The messages of ICMP (RFC 792) and ICMPv6 (RFC 4443) that come as request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum IcmpClass {
    /// Echo request and reply.
    Echo = 1,
    /// Timestamp and timestamp reply; ICMP only.
    Timestamp = 2,
    /// Information request and reply; ICMP only.
    Information = 3,
}

impl IcmpClass {
    /// Returns the class of an ICMP `kind` (the type field), and true for a request. `None`: not a
    /// request or reply.
    pub fn of_icmp(kind: u8) -> Option<(IcmpClass, bool)> {
        Some(match kind {
            8 => (IcmpClass::Echo, true),
            0 => (IcmpClass::Echo, false),
            13 => (IcmpClass::Timestamp, true),
            14 => (IcmpClass::Timestamp, false),
            15 => (IcmpClass::Information, true),
            16 => (IcmpClass::Information, false),
            _ => return None,
        })
    }

    /// As [`IcmpClass::of_icmp`], of ICMPv6.
    pub fn of_icmpv6(kind: u8) -> Option<(IcmpClass, bool)> {
        match kind {
            128 => Some((IcmpClass::Echo, true)),
            129 => Some((IcmpClass::Echo, false)),
            _ => None,
        }
    }

    fn from_bits(bits: u8) -> Option<IcmpClass> {
        [IcmpClass::Echo, IcmpClass::Timestamp, IcmpClass::Information]
            .into_iter()
            .find(|class| *class as u8 == bits)
    }
}

/// Type, code and identifier of an ICMP request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Icmp {
    /// The messages that the type belongs to.
    pub class: IcmpClass,
    /// True for the request, false for the reply.
    pub request: bool,
    /// The code field.
    pub code: u8,
    /// The identifier, in host order.
    pub id: u16,
}

impl Icmp {
    /// Returns the type field, of ICMPv6 when `proto` is that.
    pub fn kind(&self, proto: u8) -> u8 {
        match (proto == ip_proto::ICMPV6, self.class, self.request) {
            (true, _, true) => 128,
            (true, _, false) => 129,
            (false, IcmpClass::Echo, true) => 8,
            (false, IcmpClass::Echo, false) => 0,
            (false, IcmpClass::Timestamp, true) => 13,
            (false, IcmpClass::Timestamp, false) => 14,
            (false, IcmpClass::Information, true) => 15,
            (false, IcmpClass::Information, false) => 16,
        }
    }
}

/// The part of a tuple that the transport header gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// Ports in host order. Both are zero for protocols without ports.
    Pair {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// Of ICMP and ICMPv6.
    Icmp(Icmp),
}

/// Addresses, ports, protocol and zone of the packets of one direction of a connection.
///
/// Both addresses are of one family; [`Tuple::canonical`] says `None` otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Ports, or the identity of an ICMP request.
    pub ports: Ports,
    /// Protocol of the payload (`packet::ip_proto`).
    pub proto: u8,
    /// Zone of connection tracking.
    pub zone: u16,
}

/// A tuple in the words of the connection table: the endpoints in order, so that both directions of
/// a connection have equal words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Canonical {
    /// Ports, zone, protocol and kind, then the addresses as `layout.rs` sets out.
    pub words: [u64; KEY_WORDS],
    /// True when the tuple's source is the higher endpoint.
    pub high: bool,
}

impl Tuple {
    /// Returns the tuple of the opposite direction.
    pub fn reversed(&self) -> Tuple {
        let ports = match self.ports {
            Ports::Pair { src, dst } => Ports::Pair { src: dst, dst: src },
            Ports::Icmp(icmp) => Ports::Icmp(Icmp { request: !icmp.request, ..icmp }),
        };
        Tuple { src: self.dst, dst: self.src, ports, ..*self }
    }

    /// Returns source and destination port, or type and code of ICMP: the values of the fields
    /// `ct_tp_src` and `ct_tp_dst`.
    pub fn port_fields(&self) -> (u16, u16) {
        match self.ports {
            Ports::Pair { src, dst } => (src, dst),
            Ports::Icmp(icmp) => (icmp.kind(self.proto).into(), icmp.code.into()),
        }
    }

    /// Returns the words of this tuple. `None`: the addresses are of different families.
    pub fn canonical(&self) -> Option<Canonical> {
        let (src, dst, v6) = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                (u128::from(src.to_bits()), u128::from(dst.to_bits()), false)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => (src.to_bits(), dst.to_bits(), true),
            _ => return None,
        };
        let mut kind = if v6 { key_kind::V6 } else { 0 };
        let (high, port_low, port_high) = match self.ports {
            Ports::Pair { src: sport, dst: dport } => {
                let high = (src, sport) > (dst, dport);
                if high { (high, dport, sport) } else { (high, sport, dport) }
            }
            Ports::Icmp(icmp) => {
                kind |= (icmp.class as u8) << key_kind::CLASS_SHIFT;
                // Between equal addresses the requester counts as the lower endpoint.
                let high = if src == dst { !icmp.request } else { src > dst };
                if high == icmp.request {
                    kind |= key_kind::HIGH_ASKS;
                }
                (high, icmp.id, icmp.code.into())
            }
        };
        let (low, top) = if high { (dst, src) } else { (src, dst) };
        let meta = u64::from(port_low) << 48
            | u64::from(port_high) << 32
            | u64::from(self.zone) << 16
            | u64::from(self.proto) << 8
            | u64::from(kind);
        let words = if v6 {
            [meta, (low >> 64) as u64, low as u64, (top >> 64) as u64, top as u64]
        } else {
            [meta, (low as u64) << 32 | top as u64, 0, 0, 0]
        };
        Some(Canonical { words, high })
    }
}

impl Canonical {
    /// Returns the tuple. `None`: the words are not those of a tuple (memory that others damaged).
    pub fn tuple(&self) -> Option<Tuple> {
        let [meta, a, b, c, d] = self.words;
        let kind = meta as u8;
        let (low, top) = if kind & key_kind::V6 != 0 {
            let address = |high: u64, low: u64| {
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
            };
            (address(a, b), address(c, d))
        } else {
            let address = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
            (address(a >> 32), address(a))
        };
        let (src, dst) = if self.high { (top, low) } else { (low, top) };
        let (port_low, port_high) = ((meta >> 48) as u16, (meta >> 32) as u16);
        let proto = (meta >> 8) as u8;
        let ports = match kind >> key_kind::CLASS_SHIFT & key_kind::CLASS_MASK {
            0 if self.high => Ports::Pair { src: port_high, dst: port_low },
            0 => Ports::Pair { src: port_low, dst: port_high },
            bits => Ports::Icmp(Icmp {
                class: IcmpClass::from_bits(bits)?,
                request: self.high == (kind & key_kind::HIGH_ASKS != 0),
                code: port_high as u8,
                id: port_low,
            }),
        };
        Some(Tuple { src, dst, ports, proto, zone: (meta >> 16) as u16 })
    }

    /// Returns the zone.
    pub fn zone(&self) -> u16 {
        (self.words[0] >> 16) as u16
    }

    /// Returns the same words for the opposite direction.
    pub fn reversed(&self) -> Canonical {
        Canonical { high: !self.high, ..*self }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_tuple() -> impl Strategy<Value = Tuple> {
        let addresses = prop_oneof![
            // Few addresses, so that equal ones are common.
            (0u32..3, 0u32..3).prop_map(|(a, b)| (
                IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + (a << 24))),
                IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + (b << 24)))
            )),
            (any::<u128>(), any::<u128>()).prop_map(|(a, b)| (
                IpAddr::V6(Ipv6Addr::from_bits(a)),
                IpAddr::V6(Ipv6Addr::from_bits(b))
            )),
        ];
        (addresses, 0u8..7, 0u16..3, 0u16..3, any::<bool>(), any::<u16>()).prop_map(
            |((src, dst), kind, a, b, request, zone)| {
                let v6 = src.is_ipv6();
                let icmp = |class| Ports::Icmp(Icmp { class, request, code: b as u8, id: a });
                let (proto, ports) = match kind {
                    0 => (ip_proto::TCP, Ports::Pair { src: a, dst: b }),
                    1 => (ip_proto::UDP, Ports::Pair { src: a, dst: b }),
                    2 => (ip_proto::SCTP, Ports::Pair { src: a, dst: b }),
                    3 => (47, Ports::Pair { src: 0, dst: 0 }),
                    _ if v6 => (ip_proto::ICMPV6, icmp(IcmpClass::Echo)),
                    4 => (ip_proto::ICMP, icmp(IcmpClass::Echo)),
                    5 => (ip_proto::ICMP, icmp(IcmpClass::Timestamp)),
                    _ => (ip_proto::ICMP, icmp(IcmpClass::Information)),
                };
                Tuple { src, dst, ports, proto, zone }
            },
        )
    }

    proptest! {
        #[test]
        fn canonical_form_is_exact(tuple in any_tuple()) {
            let key = tuple.canonical().unwrap();
            // A tuple that is its own reverse has one orientation only.
            prop_assert_eq!(key.tuple().unwrap(), tuple);
            let back = tuple.reversed().canonical().unwrap();
            prop_assert_eq!(back.words, key.words);
            if tuple.reversed() != tuple {
                prop_assert_eq!(back, key.reversed());
            }
            prop_assert_eq!(tuple.reversed().reversed(), tuple);
            prop_assert_eq!(key.zone(), tuple.zone);
        }

        #[test]
        fn different_connections_have_different_words(a in any_tuple(), b in any_tuple()) {
            let same = a == b || a == b.reversed();
            prop_assert_eq!(a.canonical().unwrap().words == b.canonical().unwrap().words, same);
        }

        #[test]
        fn any_words_decode(words in any::<[u64; 5]>(), high in any::<bool>()) {
            let _ = Canonical { words, high }.tuple();
        }
    }

    #[test]
    fn icmp_types_map_to_each_other() {
        for (kind, other) in [(8, 0), (13, 14), (15, 16)] {
            let (class, request) = IcmpClass::of_icmp(kind).unwrap();
            let icmp = Icmp { class, request, code: 0, id: 1 };
            assert_eq!(icmp.kind(ip_proto::ICMP), kind);
            assert_eq!(Icmp { request: false, ..icmp }.kind(ip_proto::ICMP), other);
        }
        assert_eq!(IcmpClass::of_icmp(3), None);
        assert_eq!(IcmpClass::of_icmpv6(135), None);
        let (class, request) = IcmpClass::of_icmpv6(129).unwrap();
        assert_eq!(Icmp { class, request, code: 0, id: 1 }.kind(ip_proto::ICMPV6), 129);
    }

    #[test]
    fn families_do_not_mix() {
        let tuple = Tuple {
            src: IpAddr::V4(Ipv4Addr::LOCALHOST),
            dst: IpAddr::V6(Ipv6Addr::LOCALHOST),
            ports: Ports::Pair { src: 1, dst: 2 },
            proto: ip_proto::TCP,
            zone: 0,
        };
        assert_eq!(tuple.canonical(), None);
    }
}
