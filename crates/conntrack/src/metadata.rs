// SPDX-License-Identifier: Apache-2.0
//! The metadata of connection tracking in the fields `ct_*` of a key.

use crate::tracker::Metadata;
use crate::tuple::{Icmp, IcmpClass, Ports, Tuple};
use flow::Key;
use packet::{ethertype, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Metadata {
    /// Returns the metadata in the fields of a key. They lack the identifier of an ICMP request,
    /// which is `icmp_id`, and the cached connection.
    pub fn of_key(key: &Key, icmp_id: u16) -> Metadata {
        if key.ct_state == 0 {
            return Metadata::default();
        }
        Metadata {
            state: key.ct_state,
            zone: key.ct_zone.get(),
            mark: key.ct_mark.get(),
            label: u128::from_be_bytes(key.ct_label),
            original: original(key, icmp_id),
            cached: None,
        }
    }

    /// Stores the metadata in the fields of a key.
    pub fn write_to(&self, key: &mut Key) {
        key.ct_state = self.state;
        key.ct_zone.set(self.zone);
        key.ct_mark.set(self.mark);
        key.ct_label = self.label.to_be_bytes();
        key.ct_nw_proto = self.original.map_or(0, |tuple| tuple.proto);
        let (src_port, dst_port) = self.original.map_or((0, 0), |tuple| tuple.port_fields());
        key.ct_tp_src.set(src_port);
        key.ct_tp_dst.set(dst_port);
        let v4 = |address| if let IpAddr::V4(address) = address { address.to_bits() } else { 0 };
        let v6 =
            |address| if let IpAddr::V6(address) = address { address.octets() } else { [0; 16] };
        key.ct_nw_src.set(self.original.map_or(0, |tuple| v4(tuple.src)));
        key.ct_nw_dst.set(self.original.map_or(0, |tuple| v4(tuple.dst)));
        key.ct_ipv6_src = self.original.map_or([0; 16], |tuple| v6(tuple.src));
        key.ct_ipv6_dst = self.original.map_or([0; 16], |tuple| v6(tuple.dst));
    }
}

fn original(key: &Key, icmp_id: u16) -> Option<Tuple> {
    let proto = key.ct_nw_proto;
    let (src, dst): (IpAddr, IpAddr) = match key.dl_type.get() {
        ethertype::IPV4 => (
            Ipv4Addr::from_bits(key.ct_nw_src.get()).into(),
            Ipv4Addr::from_bits(key.ct_nw_dst.get()).into(),
        ),
        ethertype::IPV6 => {
            (Ipv6Addr::from(key.ct_ipv6_src).into(), Ipv6Addr::from(key.ct_ipv6_dst).into())
        }
        _ => return None,
    };
    if proto == 0 {
        return None;
    }
    let (src_port, dst_port) = (key.ct_tp_src.get(), key.ct_tp_dst.get());
    let icmp = match (proto, src.is_ipv4()) {
        (ip_proto::ICMP, true) => Some(IcmpClass::of_icmp(u8::try_from(src_port).ok()?)?),
        (ip_proto::ICMPV6, false) => Some(IcmpClass::of_icmpv6(u8::try_from(src_port).ok()?)?),
        _ => None,
    };
    let ports = match icmp {
        Some((class, request)) => {
            Ports::Icmp(Icmp { class, request, code: dst_port as u8, id: icmp_id })
        }
        None => Ports::Pair { src: src_port, dst: dst_port },
    };
    Some(Tuple { src, dst, ports, proto, zone: key.ct_zone.get() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::tests::any_tuple;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_holds_the_metadata(tuple in any_tuple(), mark in any::<u32>(), label in any::<u128>()) {
            let mut key = Key::ZERO;
            let kind = if tuple.src.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
            key.dl_type.set(kind);
            let id = if let Ports::Icmp(icmp) = tuple.ports { icmp.id } else { 0 };
            let original = Some(tuple);
            let meta = Metadata { state: 0x22, zone: tuple.zone, mark, label, original, cached: None };
            meta.write_to(&mut key);
            prop_assert_eq!(Metadata::of_key(&key, id), meta);
            Metadata::default().write_to(&mut key);
            let mut empty = Key::ZERO;
            empty.dl_type.set(kind);
            prop_assert_eq!(key, empty);
        }
    }
}
