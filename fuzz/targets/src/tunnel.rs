// SPDX-License-Identifier: Apache-2.0
//! Outer headers of tunnels: decoding by every kind of port, options, and headers that are built,
//! pushed and decoded again.
//!
//! The first two bytes choose the kind and the settings. The rest is a frame, or what a header is
//! made of.

use crate::input::Input;
use packet::{Offload, Packet, checksum, ethertype};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tunnel::{
    BuildError, Checks, DecodeError, Erspan, Extension, FlowLabel, Gbp, Gtpu, Header, Kind,
    Metadata, Options, Payload, PerPacket, PortConfig, PushError, Request, SourcePorts, Tlvs,
    decode, flags,
};

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.choose(&Kind::ALL);
    let settings = input.byte();
    let port = PortConfig {
        has_group_policy: settings & 1 != 0,
        payload_type: if settings & 2 != 0 { ethertype::MPLS } else { ethertype::IPV4 },
        ..PortConfig::new(kind)
    };
    if settings & 4 != 0 {
        built(input, &port);
    } else {
        received(input, &port, settings);
    }
}

/// Any frame decodes to something inside of it, or not at all.
fn received(mut input: Input<'_>, port: &PortConfig, settings: u8) {
    let csum = (settings & 8 != 0).then(|| (input.byte().into(), input.byte().into()));
    let offload = Offload { csum, csum_valid: settings & 16 != 0, ..Offload::default() };
    let mut packet = Packet::from_slice(input.rest());
    packet.offload = offload;
    if settings & 32 != 0 {
        right_ip_checksum(packet.data_mut());
    }
    tlvs(packet.data());
    let mut checks = Checks::default();
    let Ok(decoded) = decode(packet.data(), 14, &offload, port, &mut checks) else { return };
    assert!(decoded.payload_at < decoded.payload_end && decoded.payload_end <= packet.len());
    assert_eq!((checks.wrong_ip, checks.wrong_transport), (0, 0));
    tlvs(decoded.metadata.options.as_bytes());
    let payload = packet.data()[decoded.payload_at..].to_vec();
    assert!(!decoded.is_segmented_outside(&offload));
    decoded.strip(&mut packet);
    assert_eq!(packet.data(), payload);
}

/// Most random frames would fail by this sum.
fn right_ip_checksum(frame: &mut [u8]) {
    let Some(ip) = frame.get_mut(14..34) else { return };
    ip[10..12].fill(0);
    let sum = checksum::internet(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Options are inside of their bytes, and well-formed ones can be written again.
fn tlvs(bytes: &[u8]) {
    let all: Vec<_> = Tlvs::new(bytes).collect();
    if all.iter().all(Result::is_ok) {
        let mut again = Vec::new();
        all.iter().flatten().for_each(|tlv| tlv.write_to(&mut again));
        assert_eq!(again, bytes);
    }
}

/// A header that can be built decodes to what it was built from.
fn built(mut input: Input<'_>, port: &PortConfig) {
    let is_v6 = input.flag();
    let mut address = || match is_v6 {
        true => IpAddr::from(Ipv6Addr::from(input.array::<16>())),
        false => IpAddr::from(Ipv4Addr::from(input.array::<4>())),
    };
    let (src, dst) = (address(), address());
    let extension = match input.below(5) {
        0 => Extension::Gbp(Gbp { id: input.short(), flags: input.byte() & 0x48 }),
        1 => Extension::Erspan(Erspan::V1 { index: input.word() & 0xf_ffff }),
        2 => Extension::Erspan(Erspan::V2 {
            is_egress: input.flag(),
            hardware_id: input.byte() & 0x3f,
        }),
        3 => Extension::Gtpu(Gtpu { flags: input.byte(), msgtype: input.byte() }),
        _ => Extension::None,
    };
    let metadata = Metadata {
        tun_id: input.long(),
        src,
        dst,
        tos: input.byte(),
        ttl: input.byte(),
        tp_src: 0,
        tp_dst: input.short(),
        flags: input.short() & (flags::OAM | flags::DONT_FRAGMENT | flags::CHECKSUM | flags::KEY),
        extension,
        options: Options::new(input.take(4 * 8)).unwrap_or_default(),
    };
    let payload = match input.below(3) {
        0 => Payload::Ethernet,
        1 => Payload::Layer3(ethertype::IPV4),
        _ => Payload::Layer3(ethertype::IPV6),
    };
    let request = Request {
        kind: port.kind,
        eth_dst: input.array(),
        eth_src: input.array(),
        metadata: &metadata,
        payload,
        is_generic_protocol: input.flag(),
        has_sequence: input.flag(),
        segments: &[],
        flow_label: input.choose(&[FlowLabel::Copy, FlowLabel::Zero, FlowLabel::Compute]),
        sources: SourcePorts::default(),
    };
    let header = match Header::build(&request) {
        Ok(header) => header,
        Err(BuildError::Unsupported) => {
            return assert!(matches!(port.kind, Kind::Lisp | Kind::Stt));
        }
        Err(_) => return,
    };
    let each =
        PerPacket { payload, hash: input.word(), sequence: input.word(), ..PerPacket::default() };
    let mut inner = input.rest().to_vec();
    inner.resize(inner.len().max(20), 0);
    if let Payload::Layer3(kind) = payload {
        inner[0] = if kind == ethertype::IPV6 { 0x60 } else { 0x45 };
    }
    let mut packet = Packet::from_slice(&inner);
    match header.push(&mut packet, &each) {
        Ok(()) => {}
        Err(PushError::TooLong | PushError::Payload) => return,
    }
    assert_eq!(packet.len(), header.bytes().len() + inner.len());
    round_trip(port, &metadata, payload, &packet, &inner);
}

fn round_trip(port: &PortConfig, sent: &Metadata, payload: Payload, packet: &Packet, inner: &[u8]) {
    let decoded = decode(packet.data(), 14, &Offload::default(), port, &mut Checks::default());
    let decoded = match decoded {
        Ok(decoded) => decoded,
        // The port expects other extensions than were sent, or GTP-U has other flags than it knows.
        Err(DecodeError::Version | DecodeError::Flags | DecodeError::Reserved) => {
            return assert!(matches!(port.kind, Kind::Vxlan | Kind::Gtpu));
        }
        Err(e) => panic!("{port:?}: {e} after {sent:?}"),
    };
    let is_message =
        matches!(decoded.metadata.extension, Extension::Gtpu(gtpu) if gtpu.msgtype != 255);
    if is_message {
        return;
    }
    assert_eq!(&packet.data()[decoded.payload_at..decoded.payload_end], inner);
    if port.payload_type == ethertype::IPV4 || port.kind != Kind::Bareudp {
        assert_eq!(decoded.payload, payload);
    }
    let got = decoded.metadata;
    assert_eq!((got.src, got.dst, got.tos, got.ttl), (sent.src, sent.dst, sent.tos, sent.ttl));
    let key = match port.kind {
        Kind::Vxlan | Kind::Geneve => sent.tun_id & 0xff_ffff,
        Kind::Gre | Kind::Ip6Gre if sent.flags & flags::KEY == 0 => 0,
        Kind::Gre | Kind::Ip6Gre | Kind::Gtpu => sent.tun_id & 0xffff_ffff,
        Kind::Erspan | Kind::Ip6Erspan => sent.tun_id,
        Kind::Bareudp | Kind::Srv6 | Kind::Lisp | Kind::Stt => 0,
    };
    assert_eq!(got.tun_id, key);
    if port.kind == Kind::Geneve {
        assert_eq!(got.options, sent.options);
    }
}
