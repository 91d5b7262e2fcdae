// SPDX-License-Identifier: Apache-2.0
//! Flows into and out of tunnels.

use super::*;
use ::tunnel::{Encapsulation, Header, HeaderParts, Options, OuterIp, SourcePorts, Udp};
use flow::Tunnel;

const VXLAN: PortNo = PortNo(TUNNEL);
const GENEVE: PortNo = PortNo(TUNNEL + 1);
const GRE: PortNo = PortNo(TUNNEL + 2);
/// A port of a tunnel without a device.
const OTHER: PortNo = PortNo(TUNNEL + 3);
const DF: u16 = 0x4000;

fn udp(dst: u16) -> Udp {
    Udp { dst, has_checksum: false, sources: SourcePorts::default() }
}

fn header(encapsulation: Encapsulation) -> Arc<Header> {
    let ip = OuterIp::V4 {
        src: [10, 1, 0, 1].into(),
        dst: [10, 1, 0, 2].into(),
        tos: 4,
        ttl: 64,
        fragment: DF,
    };
    let parts = HeaderParts { eth_dst: [2; 6], eth_src: [4; 6], ip, encapsulation };
    Arc::new(Header::new(parts).unwrap())
}

fn vxlan(flags: u32) -> Encapsulation {
    Encapsulation::Vxlan { udp: udp(4789), flags, vni: 7 }
}

fn geneve(options: &[u8], is_oam: bool) -> Encapsulation {
    let options = Options::new(options).unwrap();
    Encapsulation::Geneve { udp: udp(6081), is_oam, is_critical: false, vni: 7, options }
}

fn push(header: &Arc<Header>, tunnel_port: PortNo) -> Vec<Action> {
    let out_port = PortNo(UNDERLAY);
    let push = Action::TunnelPush { header: header.clone(), tunnel_port, out_port };
    vec![push, Action::Output(out_port)]
}

/// The headers that a card is asked to push.
fn pushed(encapsulation: Encapsulation, port: PortNo) -> Result<TunnelKey, &'static str> {
    let acts = encoded(tcp(), push(&header(encapsulation), port))?.acts;
    let [Act::SetTunnel(key), send] = &acts[..] else { panic!("{acts:?}") };
    let ifindex = port.0;
    assert_eq!(*send, Act::Send { ifindex, direction: Direction::Egress, last: true });
    let filter = Filter { acts: acts.clone(), ..filters().remove(0) };
    assert_eq!(Shown::parse(&filter.message()).unwrap().filter, Some(filter));
    Ok((**key).clone())
}

#[test]
fn headers_become_the_key_of_a_tunnel() {
    let expected = TunnelKey {
        ipv4: ([10, 1, 0, 1], [10, 1, 0, 2]),
        id: Some(7),
        dst_port: 4789,
        no_csum: true,
        tos: 4,
        ttl: 64,
        has_df: true,
        ..TunnelKey::default()
    };
    assert_eq!(pushed(vxlan(0x0800_0000), VXLAN), Ok(expected.clone()));
    let mut options = Vec::new();
    crate::options::put_group_policy(&mut options, 0x1234, 0x08);
    let key = TunnelKey { options, ..expected.clone() };
    assert_eq!(pushed(vxlan(0x8808_1234), VXLAN), Ok(key));

    let mut options = Vec::new();
    crate::options::put_geneve(&mut options, [1, 2], 0x80, &[9; 4]);
    crate::options::put_geneve(&mut options, [1, 2], 0x03, &[8; 8]);
    let bytes = [1, 2, 0x80, 1, 9, 9, 9, 9, 1, 2, 3, 2, 8, 8, 8, 8, 8, 8, 8, 8];
    let key = TunnelKey { dst_port: 6081, options, ..expected.clone() };
    assert_eq!(pushed(geneve(&bytes, false), GENEVE), Ok(key));

    let gre =
        |key| Encapsulation::Gre { protocol: 0x6558, has_checksum: true, key, has_sequence: false };
    for id in [None, Some(9)] {
        let id64 = id.map(u64::from);
        let key = TunnelKey { dst_port: 0, no_csum: false, id: id64, ..expected.clone() };
        assert_eq!(pushed(gre(id), GRE), Ok(key));
    }
}

#[test]
fn headers_that_a_card_would_make_otherwise_are_refused() {
    let refused = |encapsulation, port, words: &str| {
        let result = pushed(encapsulation, port);
        assert!(result.is_err_and(|said| said.contains(words)), "{words}");
    };
    refused(vxlan(0x0c00_0001), VXLAN, "no extension of VXLAN");
    refused(vxlan(0x0800_0000), OTHER, "no device for this tunnel");
    refused(geneve(&[], true), GENEVE, "control packets");
    refused(geneve(&[1, 2, 3, 0], false), GENEVE, "without data");
    let gre = |protocol, has_sequence| Encapsulation::Gre {
        protocol,
        has_checksum: false,
        key: None,
        has_sequence,
    };
    refused(gre(0x0800, false), GRE, "have Ethernet");
    refused(gre(0x6558, true), GRE, "sequence numbers");
}

#[test]
fn the_outer_packet_leaves_by_a_device_of_the_host() {
    let header = header(vxlan(0x0800_0000));
    let mut by_bridge = push(&header, VXLAN);
    by_bridge[1] = Action::Output(PortNo(3));
    assert!(encoded(tcp(), by_bridge).is_err_and(|words| words.contains("device of the host")));
    // Alone, a port of the host takes no packets.
    let alone = vec![push(&header, VXLAN).remove(0)];
    assert!(encoded(tcp(), alone).is_err_and(|words| words.contains("at once")));
}

#[test]
fn copies_go_by_a_tunnel_and_to_ports() {
    let copy = Action::Clone(push(&header(vxlan(0x0800_0000)), VXLAN));
    let acts = encoded(tcp(), vec![copy, Action::Output(PortNo(3))]).unwrap().acts;
    let [Act::SetTunnel(_), by_tunnel, to_port] = &acts[..] else { panic!("{acts:?}") };
    let send = |ifindex, last| Act::Send { ifindex, direction: Direction::Egress, last };
    assert_eq!((by_tunnel, to_port), (&send(VXLAN.0, false), &send(3, true)));
}

/// A flow of packets from a tunnel, as translation makes it.
fn received(port: PortNo, change: impl FnOnce(&mut Tunnel, &mut Tunnel)) -> Match {
    let (mut key, mut mask) = (*tcp().key(), *tcp().mask());
    key.in_port = port.0.into();
    mask.0.in_port = u32::MAX.into();
    let (tunnel, bits) = (&mut key.tunnel, &mut mask.0.tunnel);
    tunnel.id = 7.into();
    tunnel.src = 0x0a01_0002.into();
    tunnel.dst = 0x0a01_0001.into();
    tunnel.flags = Tunnel::KEY.into();
    bits.id = u64::MAX.into();
    bits.src = u32::MAX.into();
    bits.dst = u32::MAX.into();
    bits.flags = (Tunnel::KEY | Tunnel::CSUM | Tunnel::DONT_FRAGMENT).into();
    bits.tos = u8::MAX;
    change(tunnel, bits);
    Match::new(&key, &mask)
}

#[test]
fn packets_of_a_tunnel_are_matched_by_their_outer_headers() {
    let encoded = encoded(received(VXLAN, |_, _| {}), vec![Action::Output(PortNo(3))]).unwrap();
    let value = |key| encoded.keys.get(key).map(|masked| masked.value.clone());
    assert_eq!(value(Key::EncKeyId), Some(vec![0, 0, 0, 7]));
    assert_eq!(value(Key::EncIpv4Src), Some(vec![10, 1, 0, 2]));
    assert_eq!(value(Key::EncIpv4Dst), Some(vec![10, 1, 0, 1]));
    assert_eq!(value(Key::EncUdpDst), Some(4789u16.to_be_bytes().to_vec()));
    assert_eq!(value(Key::EncIpTos), Some(vec![0]));
    assert_eq!(value(Key::EncIpTtl), None);
    let send = Act::Send { ifindex: 3, direction: Direction::Egress, last: true };
    assert_eq!(encoded.acts, [Act::ReleaseTunnel, send]);
}

#[test]
fn options_of_tunnels_are_matched_in_the_bits_that_count() {
    let bytes = [1, 2, 0x80, 1, 9, 9, 9, 9, 1, 2, 3, 1, 8, 8, 8, 8];
    let with_options = received(GENEVE, |tunnel, mask| {
        (tunnel.options_len, mask.options_len) = (16, 0xff);
        tunnel.options[..16].copy_from_slice(&bytes);
        mask.options[..16].fill(0xff);
        mask.options[12..16].copy_from_slice(&[0, 0, 0, 0xff]);
    });
    let found = encoded(with_options, vec![]).unwrap();
    let mut value = Vec::new();
    crate::options::put_geneve(&mut value, [1, 2], 0x80, &[9; 4]);
    crate::options::put_geneve(&mut value, [1, 2], 3, &[0, 0, 0, 8]);
    let mut mask = Vec::new();
    crate::options::put_geneve(&mut mask, [0xff; 2], 0xff, &[0xff; 4]);
    crate::options::put_geneve(&mut mask, [0xff; 2], 0xff, &[0, 0, 0, 0xff]);
    assert_eq!(found.keys.get(Key::EncOpts), Some(&crate::keys::Masked { value, mask }));

    let with_policy = received(VXLAN, |tunnel, mask| {
        (tunnel.gbp_id, tunnel.gbp_flags) = (0x1234.into(), 0x08);
        (mask.gbp_id, mask.gbp_flags) = (u16::MAX.into(), u8::MAX);
    });
    let found = encoded(with_policy, vec![]).unwrap();
    let (mut value, mut mask) = (Vec::new(), Vec::new());
    crate::options::put_group_policy(&mut value, 0x1234, 0x08);
    crate::options::put_group_policy(&mut mask, u16::MAX, u8::MAX);
    assert_eq!(found.keys.get(Key::EncOpts), Some(&crate::keys::Masked { value, mask }));
    let filter = Filter { keys: found.keys, ..filters().remove(0) };
    assert_eq!(Shown::parse(&filter.message()).unwrap().filter, Some(filter));
}

#[test]
fn what_flower_does_not_see_of_a_tunnel_is_refused() {
    type Case = (PortNo, fn(&mut Tunnel, &mut Tunnel), &'static str);
    let cases: [Case; 6] = [
        (OTHER, |_, _| {}, "no device for this tunnel"),
        (VXLAN, |tunnel, _| tunnel.id = (1 << 32).into(), "32 bits"),
        (VXLAN, |_, mask| mask.flags = Tunnel::OAM.into(), "no key for a field"),
        (VXLAN, |_, mask| mask.tp_dst = u16::MAX.into(), "another UDP port"),
        (GRE, |tunnel, _| tunnel.id = 0.into(), "packet of GRE has a key"),
        (GENEVE, |_, mask| mask.erspan_ver = 1, "no key for a field"),
    ];
    for (port, change, words) in cases {
        let said = encoded(received(port, change), vec![]).err();
        assert!(said.is_some_and(|said| said.contains(words)), "{words}: {said:?}");
    }
}
