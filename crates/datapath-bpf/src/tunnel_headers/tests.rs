// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use tunnel::{ETHERTYPE_TEB, Erspan, HeaderParts, Options};

fn header(encapsulation: Encapsulation, fragment: u16) -> Header {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        tos: 4,
        ttl: 64,
        fragment,
    };
    Header::new(HeaderParts { eth_dst: [1; 6], eth_src: [2; 6], ip, encapsulation }).unwrap()
}

fn vxlan(vni: u32, has_checksum: bool) -> Header {
    let sources = SourcePorts { first: 40_000, last: 50_000 };
    let udp = Udp { dst: 4789, has_checksum, sources };
    header(Encapsulation::Vxlan { udp, flags: 0x800_0000, vni }, 0x4000)
}

fn gre(has_sequence: bool, protocol: u16) -> Header {
    let gre = Encapsulation::Gre { protocol, has_checksum: true, key: Some(5), has_sequence };
    header(gre, 0)
}

fn gtpu(flags: u8) -> Header {
    let udp = Udp { dst: 2152, has_checksum: true, sources: SourcePorts::default() };
    header(Encapsulation::Gtpu { udp, flags, msgtype: 255, teid: 0x1234_5678 }, 0x4000)
}

fn erspan(erspan: Erspan) -> Header {
    header(Encapsulation::Erspan { session: 0x3fe, erspan }, 0)
}

const GTPU: u16 = TUNNEL_UDP | TUNNEL_CHECKSUM | TUNNEL_WHOLE | TUNNEL_BARE | TUNNEL_GTPU;

#[test]
fn a_header_is_read_back_from_its_entry() {
    for (header, flags) in [
        (vxlan(7, true), TUNNEL_UDP | TUNNEL_CHECKSUM | TUNNEL_WHOLE),
        (vxlan(8, false), TUNNEL_UDP | TUNNEL_WHOLE),
        (vxlan(8, false).with_path_mtu(Some(1400)), TUNNEL_UDP | TUNNEL_WHOLE),
        (gre(false, ETHERTYPE_TEB), TUNNEL_CHECKSUM),
        (gre(false, 0x800), TUNNEL_CHECKSUM | TUNNEL_BARE),
        (gre(true, ETHERTYPE_TEB), TUNNEL_CHECKSUM | TUNNEL_NUMBERED),
        (gtpu(0x32), GTPU | TUNNEL_NUMBERED),
        (gtpu(0x30), GTPU),
        (erspan(Erspan::V1 { index: 0xf_fff2 }), TUNNEL_NUMBERED),
        (
            erspan(Erspan::V2 { is_egress: true, hardware_id: 0x2a }),
            TUNNEL_NUMBERED | TUNNEL_STAMPED,
        ),
    ] {
        let entry = TunnelHeader::new(&header).unwrap();
        assert_eq!((entry.flags, entry.header()), (flags, Some(header)));
    }
}

#[test]
fn segment_routes_are_read_back_with_their_rule_for_flow_labels() {
    let route = |count: u16, flow_label| {
        let segments = (0..count).map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)).collect();
        let encapsulation = Encapsulation::Srv6 { segments_left: 0, segments, flow_label };
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let ip = OuterIp::V6 { src, dst, label: 5, traffic_class: 4, hop_limit: 64 };
        Header::new(HeaderParts { eth_dst: [1; 6], eth_src: [2; 6], ip, encapsulation }).unwrap()
    };
    for (flow_label, flag) in [
        (FlowLabel::Copy, TUNNEL_LABEL_COPY),
        (FlowLabel::Zero, TUNNEL_LABEL_ZERO),
        (FlowLabel::Compute, TUNNEL_LABEL_HASH),
    ] {
        let header = route(8, flow_label);
        let entry = TunnelHeader::new(&header).unwrap();
        let flags = TUNNEL_IPV6 | TUNNEL_BARE | TUNNEL_ROUTE | flag;
        assert_eq!((entry.flags, entry.header()), (flags, Some(header)));
        assert_eq!(TunnelHeader::new(&route(9, flow_label)), None, "it is too long");
    }
}

#[test]
fn other_entries_are_none() {
    let entry = TunnelHeader::new(&vxlan(7, true)).unwrap();
    let changed = |change: &dyn Fn(&mut TunnelHeader)| {
        let mut other = entry;
        change(&mut other);
        other.header()
    };
    assert_eq!(changed(&|_| {}), Some(vxlan(7, true)));
    for change in [
        &|t: &mut TunnelHeader| t.bytes[40] ^= 1, // the UDP checksum
        &|t: &mut TunnelHeader| t.bytes[100] = 1,
        &|t: &mut TunnelHeader| t.length = 40,
        &|t: &mut TunnelHeader| t.length = 4000,
        &|t: &mut TunnelHeader| t.l4 = 54,
        &|t: &mut TunnelHeader| t.ip_sum += 1,
        &|t: &mut TunnelHeader| t.l4_sum += 1,
        &|t: &mut TunnelHeader| t.flags ^= TUNNEL_IPV6,
        &|t: &mut TunnelHeader| t.kind = 5,
        &|t: &mut TunnelHeader| t.more_pad[3] = 1,
    ] as [&dyn Fn(&mut TunnelHeader); 10]
    {
        assert_eq!(changed(change), None);
    }
}

#[test]
fn headers_that_programs_cannot_push_have_no_entry() {
    let geneve = |bytes: usize| {
        let udp = Udp { dst: 6081, has_checksum: false, sources: SourcePorts::default() };
        let options = Options::new(&vec![0; bytes]).unwrap();
        let (is_oam, is_critical) = (false, false);
        let geneve = Encapsulation::Geneve { udp, is_oam, is_critical, vni: 1, options };
        TunnelHeader::new(&header(geneve, 0x4000))
    };
    assert_eq!(geneve(140).map(|entry| entry.length), Some(190));
    assert_eq!(geneve(144), None);
}

#[test]
fn places_are_used_again() {
    let shared = Shared::private(2);
    let mut headers = TunnelHeaders::new();
    let entry = |vni| TunnelHeader::new(&vxlan(vni, true)).unwrap();
    let acquire = |headers: &mut TunnelHeaders, vni| headers.acquire(&shared, &entry(vni));
    assert_eq!(acquire(&mut headers, 1), Some(0));
    assert_eq!(acquire(&mut headers, 1), Some(0));
    assert_eq!(acquire(&mut headers, 2), Some(1));
    assert_eq!(acquire(&mut headers, 3), None);
    headers.release(&shared, 1);
    assert_eq!((acquire(&mut headers, 3), headers.number(&entry(2))), (Some(1), None));
    assert_eq!(read(&shared, 1).and_then(|held| held.header()), Some(vxlan(3, true)));
    assert_eq!(read(&shared, 2), None);
}
