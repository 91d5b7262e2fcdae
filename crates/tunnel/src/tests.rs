// SPDX-License-Identifier: Apache-2.0

use super::*;
use packet::build::Frame;
use packet::{Gso, Offload, Packet, checksum, ethertype};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const L3: usize = 14;
const V4: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

fn request<'a>(kind: Kind, metadata: &'a Metadata, payload: Payload) -> Request<'a> {
    Request {
        kind,
        eth_dst: [2, 0, 0, 0, 0, 2],
        eth_src: [2, 0, 0, 0, 0, 1],
        metadata,
        payload,
        is_generic_protocol: false,
        has_sequence: false,
        segments: &[],
        flow_label: FlowLabel::Copy,
        sources: SourcePorts::default(),
    }
}

fn over_v4(tun_id: u64, tp_dst: u16, flags: u16) -> Metadata {
    let (src, dst) = V4;
    Metadata { tun_id, src, dst, ttl: 64, tp_dst, flags, ..Metadata::default() }
}

fn inner(len: usize) -> Vec<u8> {
    Frame::ethernet([4; 6], [6; 6])
        .ipv4(Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(2, 2, 2, 2), 9)
        .udp(7, 8)
        .payload(&vec![0xa5; len])
        .finish()
}

fn decode_whole(packet: &Packet, port: &PortConfig) -> Result<Decoded, DecodeError> {
    decode(packet.data(), L3, &packet.offload, port, &mut Checks::default())
}

fn pushed(header: &Header, payload: &[u8], each: &PerPacket) -> Packet {
    let mut packet = Packet::from_slice(payload);
    header.push(&mut packet, each).expect("it fits");
    packet
}

#[test]
fn bytes_of_the_headers() {
    let bytes = |request: &Request<'_>| {
        let header = Header::build(request).expect("it is possible");
        header.bytes()[L3 + 20..].to_vec()
    };
    let mut metadata = over_v4(0x123456, 4789, flags::KEY);
    let plain = request(Kind::Vxlan, &metadata, Payload::Ethernet);
    let udp = [0, 0, 0x12, 0xb5, 0, 0, 0, 0];
    assert_eq!(bytes(&plain), [&udp[..], &[8, 0, 0, 0, 0x12, 0x34, 0x56, 0]].concat());
    let gpe =
        Request { is_generic_protocol: true, payload: Payload::Layer3(ethertype::IPV6), ..plain };
    assert_eq!(bytes(&gpe)[8..], [0x0c, 0, 0, 2, 0x12, 0x34, 0x56, 0]);
    let mut policy = metadata;
    policy.extension = Extension::Gbp(Gbp { id: 0x1234, flags: 0x48 });
    let policy = request(Kind::Vxlan, &policy, Payload::Ethernet);
    assert_eq!(bytes(&policy)[8..], [0x88, 0x48, 0x12, 0x34, 0x12, 0x34, 0x56, 0]);

    metadata.options = Options::new(&[0xff, 0xff, 0x80, 1, 0, 0, 0, 0xa]).expect("8 bytes");
    metadata.flags |= flags::OAM;
    let geneve = request(Kind::Geneve, &metadata, Payload::Ethernet);
    let expected = [2, 0xc0, 0x65, 0x58, 0x12, 0x34, 0x56, 0, 0xff, 0xff, 0x80, 1, 0, 0, 0, 0xa];
    assert_eq!(bytes(&geneve)[8..], expected);

    let metadata = over_v4(0x1c8, 0, flags::KEY | flags::CHECKSUM);
    let gre = Request { has_sequence: true, ..request(Kind::Gre, &metadata, Payload::Ethernet) };
    assert_eq!(bytes(&gre), [0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 1, 0xc8, 0, 0, 0, 0]);

    let mut metadata = over_v4(0x237, 0, flags::KEY);
    metadata.extension = Extension::Erspan(Erspan::V1 { index: 3 });
    let expected = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 0, 0x10, 0, 2, 0x37, 0, 0, 0, 3];
    assert_eq!(bytes(&request(Kind::Erspan, &metadata, Payload::Ethernet)), expected);
    metadata.extension = Extension::Erspan(Erspan::V2 { is_egress: true, hardware_id: 7 });
    let expected = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 0, 0x20, 0, 2, 0x37, 0, 0, 0, 0, 0, 0, 0, 0x78];
    assert_eq!(bytes(&request(Kind::Erspan, &metadata, Payload::Ethernet)), expected);

    let metadata = over_v4(0x7b, 2152, flags::KEY);
    let gtpu = request(Kind::Gtpu, &metadata, Payload::Layer3(ethertype::IPV4));
    assert_eq!(bytes(&gtpu)[8..], [0x30, 255, 0, 0, 0, 0, 0, 0x7b]);
}

#[test]
fn a_segment_route_is_stored_backwards() {
    let metadata =
        Metadata { src: v6(1).into(), dst: v6(2).into(), ttl: 64, ..Metadata::default() };
    let (segments, payload) = ([v6(2), v6(3)], Payload::Layer3(ethertype::IPV4));
    let route = Request { segments: &segments, ..request(Kind::Srv6, &metadata, payload) };
    let header = Header::build(&route).expect("it is possible");
    let routing = &header.bytes()[L3 + 40..];
    assert_eq!(routing[..8], [0, 4, 4, 1, 1, 0, 0, 0]);
    assert_eq!(routing[8..24], v6(3).octets());
    assert_eq!(routing[24..40], v6(2).octets());
    let packet = pushed(&header, &inner(4)[14..], &PerPacket { payload, ..PerPacket::default() });
    assert_eq!(packet.data()[L3 + 40], 4, "the next header is that of the payload");
    let port = PortConfig::new(Kind::Srv6);
    assert_eq!(decode_whole(&packet, &port), Err(DecodeError::SegmentsLeft));
    let ethernet = PerPacket::default();
    let refused = header.push(&mut Packet::from_slice(&inner(4)), &ethernet);
    assert_eq!(refused, Err(PushError::Payload));
    let v4 = over_v4(0, 0, 0);
    let build = |request: &Request<'_>| Header::build(request).map(|_| ());
    assert_eq!(build(&request(Kind::Srv6, &v4, payload)), Err(BuildError::Addresses));
    let many = [v6(1); 128];
    assert_eq!(build(&Request { segments: &many, ..route }), Err(BuildError::Segments));
}

#[test]
fn flow_labels_are_copied_zero_or_computed() {
    let metadata =
        Metadata { src: v6(1).into(), dst: v6(2).into(), ttl: 64, ..Metadata::default() };
    let payload = Payload::Layer3(ethertype::IPV6);
    let mut packet =
        Frame::ethernet([4; 6], [6; 6]).ipv6(v6(8), v6(9), 3).udp(1, 2).finish().split_off(14);
    packet[1..4].copy_from_slice(&[0x01, 0x23, 0x45]); // label 0x12345
    for (flow_label, expected) in
        [(FlowLabel::Copy, 0x12345), (FlowLabel::Zero, 0), (FlowLabel::Compute, 0xbcdef)]
    {
        let request = Request { flow_label, ..request(Kind::Srv6, &metadata, payload) };
        let header = Header::build(&request).expect("it is possible");
        let each = PerPacket { payload, hash: 0xffab_cdef, ..PerPacket::default() };
        let out = pushed(&header, &packet, &each);
        let label = u32::from_be_bytes(out.data()[L3..L3 + 4].try_into().unwrap()) & 0xf_ffff;
        assert_eq!(label, expected, "{flow_label:?}");
    }
}

#[test]
fn what_cannot_be_built_has_a_reason() {
    let build = |request: &Request<'_>| Header::build(request).map(|_| ()).unwrap_err();
    let metadata = over_v4(0x400, 0, flags::KEY);
    let layer3 = Payload::Layer3(ethertype::IPV4);
    assert_eq!(build(&request(Kind::Erspan, &metadata, Payload::Ethernet)), BuildError::Version);
    let mut erspan = metadata;
    erspan.extension = Extension::Erspan(Erspan::V1 { index: 0 });
    assert_eq!(build(&request(Kind::Erspan, &erspan, Payload::Ethernet)), BuildError::Key);
    for kind in [Kind::Vxlan, Kind::Geneve, Kind::Ip6Erspan] {
        assert_eq!(build(&request(kind, &erspan, layer3)), BuildError::Payload, "{kind}");
    }
    for kind in [Kind::Gtpu, Kind::Bareudp, Kind::Srv6] {
        assert_eq!(build(&request(kind, &metadata, Payload::Ethernet)), BuildError::Payload);
    }
    let mut gtpu = metadata;
    gtpu.extension = Extension::Gtpu(Gtpu { flags: 0x34, msgtype: 255 });
    assert_eq!(build(&request(Kind::Gtpu, &gtpu, layer3)), BuildError::Flags);
    for kind in [Kind::Lisp, Kind::Stt] {
        assert_eq!(build(&request(kind, &metadata, layer3)), BuildError::Unsupported);
    }
    let mixed = Metadata { dst: v6(1).into(), ..metadata };
    assert_eq!(build(&request(Kind::Gre, &mixed, Payload::Ethernet)), BuildError::Addresses);
}

/// One valid frame of each kind and form, with its port.
fn samples() -> Vec<(PortConfig, Packet)> {
    let mut all = Vec::new();
    for (src, dst) in [V4, (v6(1).into(), v6(2).into())] {
        for sum in [0, flags::CHECKSUM] {
            for mut wanted in wanted_headers() {
                (wanted.metadata.src, wanted.metadata.dst) = (src, dst);
                wanted.metadata.flags |= sum;
                if let Ok(header) = wanted.build() {
                    all.push((wanted.port, pushed(&header, &wanted.inner(), &wanted.each())));
                }
            }
        }
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// A header that is to be built, and what is sent with it.
#[derive(Clone, Debug)]
struct Wanted {
    port: PortConfig,
    metadata: Metadata,
    payload: Payload,
    is_generic_protocol: bool,
    has_sequence: bool,
}

impl Wanted {
    fn of(kind: Kind, payload: Payload) -> Wanted {
        let port = PortConfig::new(kind);
        let has_key = !matches!(kind, Kind::Gtpu | Kind::Bareudp | Kind::Srv6);
        let key = if has_key { flags::KEY } else { 0 };
        let tun_id = if matches!(kind, Kind::Bareudp | Kind::Srv6) { 0 } else { 0x123 };
        let metadata = over_v4(tun_id, port.udp_port, key);
        Wanted { port, metadata, payload, is_generic_protocol: false, has_sequence: false }
    }

    fn build(&self) -> Result<Header, BuildError> {
        Header::build(&Request {
            is_generic_protocol: self.is_generic_protocol,
            has_sequence: self.has_sequence,
            ..request(self.port.kind, &self.metadata, self.payload)
        })
    }

    fn inner(&self) -> Vec<u8> {
        match self.payload {
            Payload::Ethernet => inner(31),
            Payload::Layer3(ethertype::IPV6) => {
                Frame::ethernet([0; 6], [0; 6]).ipv6(v6(5), v6(6), 1).udp(1, 2).finish()[14..]
                    .to_vec()
            }
            Payload::Layer3(_) => inner(30)[14..].to_vec(),
        }
    }

    fn each(&self) -> PerPacket {
        let now = Duration::from_secs(100);
        PerPacket { payload: self.payload, hash: 0x8000_0000, sequence: 9, id: 77, now }
    }
}

fn wanted_headers() -> Vec<Wanted> {
    let (v4, v6) = (Payload::Layer3(ethertype::IPV4), Payload::Layer3(ethertype::IPV6));
    let mut all = vec![
        Wanted::of(Kind::Vxlan, Payload::Ethernet),
        Wanted::of(Kind::Geneve, Payload::Ethernet),
        Wanted::of(Kind::Gre, Payload::Ethernet),
        Wanted::of(Kind::Gre, v4),
        Wanted::of(Kind::Gtpu, v4),
        Wanted::of(Kind::Gtpu, v6),
        Wanted::of(Kind::Bareudp, v6),
        Wanted::of(Kind::Srv6, v4),
        Wanted::of(Kind::Srv6, v6),
    ];
    for payload in [Payload::Ethernet, v4, v6, Payload::Layer3(ethertype::NSH)] {
        all.push(Wanted { is_generic_protocol: true, ..Wanted::of(Kind::Vxlan, payload) });
    }
    let mut policy = Wanted::of(Kind::Vxlan, Payload::Ethernet);
    policy.port.has_group_policy = true;
    policy.metadata.extension = Extension::Gbp(Gbp { id: 5, flags: 0x08 });
    all.push(policy);
    let mut options = Wanted::of(Kind::Geneve, Payload::Ethernet);
    options.metadata.options = Options::new(&[1, 2, 3, 0, 4, 5, 6, 1, 0, 0, 0, 1]).unwrap();
    options.metadata.flags |= flags::OAM;
    all.push(options);
    let mut keyless = Wanted::of(Kind::Gre, Payload::Ethernet);
    (keyless.metadata.flags, keyless.metadata.tun_id, keyless.has_sequence) = (0, 0, true);
    all.push(keyless);
    all.push(Wanted { has_sequence: true, ..Wanted::of(Kind::Gre, v6) });
    all.push(Wanted { has_sequence: true, ..Wanted::of(Kind::Gtpu, v4) });
    let versions =
        [Erspan::V1 { index: 0xfedcb }, Erspan::V2 { is_egress: true, hardware_id: 0x3f }];
    for erspan in versions {
        let mut wanted = Wanted::of(Kind::Erspan, Payload::Ethernet);
        wanted.metadata.extension = Extension::Erspan(erspan);
        all.push(wanted);
    }
    all
}

#[test]
fn headers_are_read_back_from_their_bytes() {
    let mut read = 0;
    for (src, dst) in [V4, (v6(1).into(), v6(2).into())] {
        for flag in [0, flags::CHECKSUM, flags::DONT_FRAGMENT] {
            for mut wanted in wanted_headers() {
                (wanted.metadata.src, wanted.metadata.dst) = (src, dst);
                wanted.metadata.flags |= flag;
                let Ok(header) = wanted.build() else { continue };
                let flow_label = match header.parts().encapsulation {
                    Encapsulation::Srv6 { flow_label, .. } => flow_label,
                    _ => FlowLabel::default(),
                };
                let has_checksum = flag == flags::CHECKSUM;
                let choice = Choice { has_checksum, flow_label, ..Choice::default() };
                let back = Header::from_bytes(header.kind(), header.bytes(), choice);
                assert_eq!(back.as_ref(), Some(&header));
                read += 1;
            }
        }
    }
    assert!(read >= 60, "{read}");
}

#[test]
fn bytes_that_no_header_has_are_none() {
    let header = Wanted::of(Kind::Vxlan, Payload::Ethernet).build().unwrap();
    let read = |kind, bytes: &[u8]| Header::from_bytes(kind, bytes, Choice::default());
    assert!(read(Kind::Vxlan, header.bytes()).is_some());
    assert_eq!(read(Kind::Gre, header.bytes()), None);
    assert_eq!(read(Kind::Stt, header.bytes()), None);
    for len in 0..header.bytes().len() {
        assert_eq!(read(Kind::Vxlan, &header.bytes()[..len]), None);
    }
    // Lengths, checksums and reserved bits are those of `Header::bytes`.
    for at in [14, 16, 18, 23, 24, 34, 38, 40, 49] {
        let mut bytes = header.bytes().to_vec();
        bytes[at] ^= 1;
        assert_eq!(read(Kind::Vxlan, &bytes), None, "{at}");
    }
}

/// The metadata that a receiver gets of what is sent with `sent`.
fn as_received(wanted: &Wanted, packet: &Packet) -> Metadata {
    let mut metadata = wanted.metadata;
    metadata.flags &= !flags::DONT_FRAGMENT;
    match wanted.port.kind {
        Kind::Gtpu => {
            metadata.flags |= flags::CHECKSUM; // always
            let optional = if wanted.has_sequence { 2 } else { 0 };
            metadata.extension = Extension::Gtpu(Gtpu { flags: 0x30 | optional, msgtype: 255 });
        }
        Kind::Erspan | Kind::Srv6 => metadata.flags &= !flags::CHECKSUM, // none of their own
        _ => {}
    }
    if metadata.tp_dst != 0 {
        let at = if metadata.dst.is_ipv4() { L3 + 20 } else { L3 + 40 };
        let ports = &packet.data()[at..at + 2];
        metadata.tp_src = u16::from_be_bytes([ports[0], ports[1]]);
        assert_eq!(metadata.tp_src, 32768 + (61000 - 32768) / 2, "half of the range");
    }
    metadata
}

#[test]
fn what_is_pushed_decodes_to_the_same() {
    let mut built = 0;
    for (src, dst) in [V4, (v6(1).into(), v6(2).into())] {
        for flag in [0, flags::CHECKSUM, flags::DONT_FRAGMENT] {
            for mut wanted in wanted_headers() {
                (wanted.metadata.src, wanted.metadata.dst) = (src, dst);
                wanted.metadata.flags |= flag;
                wanted.metadata.tos = 0xb9;
                let header = match wanted.build() {
                    Err(BuildError::Addresses) if wanted.port.kind == Kind::Srv6 => continue,
                    built => built.expect("it is possible"),
                };
                let inner = wanted.inner();
                let mut packet = pushed(&header, &inner, &wanted.each());
                assert_eq!(packet.len(), header.bytes().len() + inner.len());
                let decoded = decode_whole(&packet, &wanted.port)
                    .unwrap_or_else(|e| panic!("{wanted:?}: {e}"));
                assert_eq!(decoded.metadata, as_received(&wanted, &packet), "{wanted:?}");
                assert_eq!(decoded.payload, wanted.payload);
                packet.extend(&[0; 6]); // a trailer
                let again = decode_whole(&packet, &wanted.port).expect("a trailer is no payload");
                assert_eq!(again, decoded);
                again.strip(&mut packet);
                assert_eq!(packet.data(), [inner.as_slice(), &[0; 6]].concat());
                built += 1;
            }
        }
    }
    assert!(built > 100, "{built}");
}

#[test]
fn a_frame_that_is_cut_anywhere_is_refused() {
    for (port, packet) in samples() {
        for len in 0..packet.len() {
            let cut = Packet::from_slice(&packet.data()[..len]);
            let refused = decode_whole(&cut, &port);
            assert!(refused.is_err(), "{port:?} cut to {len}: {refused:?}");
        }
    }
}

#[test]
fn a_datagram_whose_own_length_cuts_the_header_is_refused() {
    for (port, packet) in samples() {
        let Some((udp, data)) = udp_of(&packet) else { continue };
        let decoded = decode_whole(&packet, &port).expect("it is whole");
        for len in 0..decoded.payload_at - udp {
            let mut short = packet.clone();
            let place = short.data_mut();
            place[udp + 4..udp + 6].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            place[udp + 6..udp + 8].fill(0);
            assert_eq!(decode_whole(&short, &port), Err(DecodeError::Length), "{port:?} {len}");
        }
        assert!(data > udp);
    }
}

/// The offsets of UDP header and data.
fn udp_of(packet: &Packet) -> Option<(usize, usize)> {
    let (at, proto) = match packet.data()[L3] >> 4 {
        4 => (L3 + 20, packet.data()[L3 + 9]),
        _ => (L3 + 40, packet.data()[L3 + 6]),
    };
    (proto == 17).then_some((at, at + 8))
}

/// Changes the bytes of the first sample of `kind` over IPv4 without checksum, and returns how it
/// decodes.
fn changed(kind: Kind, change: impl Fn(&mut [u8])) -> Result<Decoded, DecodeError> {
    let mut samples = samples().into_iter().filter(|(port, _)| port.kind == kind);
    let (port, mut packet) = samples.next().expect("there is one");
    change(packet.data_mut());
    decode_whole(&packet, &port)
}

/// Makes the IPv4 checksum right again.
fn fix_ip(frame: &mut [u8]) {
    frame[L3 + 10..L3 + 12].fill(0);
    let sum = checksum::internet(&frame[L3..L3 + usize::from(frame[L3] & 15) * 4]);
    frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn what_no_receiver_may_accept_is_refused_with_its_reason() {
    let tunnel = L3 + 28; // after IPv4 and UDP
    let gre = L3 + 20;
    type Change = fn(&mut [u8]);
    let cases: &[(Kind, DecodeError, Change)] = &[
        (Kind::Vxlan, DecodeError::NotIp, |f| f[L3] = 0x55),
        (Kind::Vxlan, DecodeError::IpChecksum, |f| f[L3 + 8] ^= 1),
        (Kind::Vxlan, DecodeError::IpOptions, |f| {
            f[L3] = 0x46;
            fix_ip(f);
        }),
        (Kind::Vxlan, DecodeError::Fragment, |f| {
            f[L3 + 6] = 0x20;
            fix_ip(f);
        }),
        (Kind::Vxlan, DecodeError::Protocol, |f| {
            f[L3 + 9] = 6;
            fix_ip(f);
        }),
        (Kind::Gre, DecodeError::Protocol, |f| {
            f[L3 + 9] = 17;
            fix_ip(f);
        }),
    ];
    for (kind, reason, change) in cases {
        assert_eq!(changed(*kind, change), Err(*reason), "{kind}");
    }
    let set = |kind: Kind, at: usize, bytes: &'static [u8]| {
        changed(kind, |f| f[at..at + bytes.len()].copy_from_slice(bytes))
    };
    // VXLAN: no VNI bit; other bits; the last octet; policy where none is expected.
    assert_eq!(set(Kind::Vxlan, tunnel, &[0]), Err(DecodeError::Flags));
    assert_eq!(set(Kind::Vxlan, tunnel, &[0x0a]), Err(DecodeError::Reserved));
    assert_eq!(set(Kind::Vxlan, tunnel + 1, &[1]), Err(DecodeError::Reserved));
    assert_eq!(set(Kind::Vxlan, tunnel + 7, &[1]), Err(DecodeError::Reserved));
    assert_eq!(set(Kind::Vxlan, tunnel, &[0x88]), Err(DecodeError::Reserved));
    // VXLAN-GPE: control packet, version, next protocol.
    assert_eq!(set(Kind::Vxlan, tunnel, &[0x0d, 0, 0, 3]), Err(DecodeError::Flags));
    assert_eq!(set(Kind::Vxlan, tunnel, &[0x1c, 0, 0, 3]), Err(DecodeError::Version));
    assert_eq!(set(Kind::Vxlan, tunnel, &[0x0c, 0, 0, 9]), Err(DecodeError::PayloadType));
    assert!(set(Kind::Vxlan, tunnel, &[0x0c, 0, 0, 3]).is_ok());
    // Geneve: version, protocol, options that are longer than the packet.
    assert_eq!(set(Kind::Geneve, tunnel, &[0x40]), Err(DecodeError::Version));
    assert_eq!(set(Kind::Geneve, tunnel + 2, &[8, 0]), Err(DecodeError::PayloadType));
    assert_eq!(set(Kind::Geneve, tunnel, &[0x3f]), Err(DecodeError::Length));
    // GRE: routing, recursion, version 1, and a protocol that is a length.
    for bits in [[0x60, 0], [0x21, 0], [0x20, 1]] {
        assert_eq!(
            changed(Kind::Gre, |f| f[gre..gre + 2].copy_from_slice(&bits)),
            Err(DecodeError::Flags)
        );
    }
    assert_eq!(set(Kind::Gre, gre + 2, &[5, 0xff]), Err(DecodeError::PayloadType));
    // ERSPAN: a key, no sequence number, another protocol, another version.
    assert_eq!(set(Kind::Erspan, gre, &[0x30]), Err(DecodeError::Flags));
    assert_eq!(set(Kind::Erspan, gre, &[0]), Err(DecodeError::Flags));
    assert_eq!(set(Kind::Erspan, gre + 2, &[0x65, 0x58]), Err(DecodeError::PayloadType));
    assert_eq!(set(Kind::Erspan, gre + 8, &[0x20]), Err(DecodeError::Version));
    // GTP-U (its datagrams always have a checksum, so it is taken out).
    let gtpu = |at: usize, byte: u8| {
        changed(Kind::Gtpu, |f| {
            f[tunnel - 2..tunnel].fill(0);
            f[tunnel + at] = byte;
        })
    };
    assert_eq!(gtpu(0, 0x50), Err(DecodeError::Version));
    assert_eq!(gtpu(0, 0x20), Err(DecodeError::Flags));
    assert_eq!(gtpu(2, 0xff), Err(DecodeError::Length));
    assert_eq!(gtpu(8, 0x00), Err(DecodeError::PayloadType));
    // A type of routing header that is no segment route.
    assert_eq!(set(Kind::Srv6, L3 + 42, &[0]), Err(DecodeError::Version));
    assert_eq!(set(Kind::Srv6, L3 + 43, &[1]), Err(DecodeError::SegmentsLeft));
    assert_eq!(set(Kind::Srv6, L3 + 40, &[59]), Err(DecodeError::PayloadType));
    for kind in [Kind::Lisp, Kind::Stt] {
        let (_, packet) = samples().swap_remove(0);
        assert_eq!(decode_whole(&packet, &PortConfig::new(kind)), Err(DecodeError::Unsupported));
    }
}

#[test]
fn extension_headers_of_gtpu_are_passed() {
    let mut wanted = Wanted::of(Kind::Gtpu, Payload::Layer3(ethertype::IPV4));
    wanted.has_sequence = true;
    let header = wanted.build().expect("it is possible");
    let inner = wanted.inner();
    // A PDU session container of 8 octets (3GPP TS 38.415) before the payload.
    let extended = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat();
    let mut packet = pushed(&header, &extended, &wanted.each());
    let gtpu = L3 + 28;
    packet.data_mut()[gtpu - 2..gtpu].fill(0);
    packet.data_mut()[gtpu] |= 4;
    packet.data_mut()[gtpu + 11] = 0x85;
    let decoded = decode_whole(&packet, &wanted.port).expect("it is well-formed");
    assert_eq!(packet.data()[decoded.payload_at..], inner);
    for len in [0, 200] {
        let mut bad = packet.clone();
        bad.data_mut()[gtpu + 12] = len;
        assert_eq!(decode_whole(&bad, &wanted.port), Err(DecodeError::Length));
    }
}

#[test]
fn messages_of_gtpu_without_user_data_stay_whole() {
    let (port, mut packet) =
        samples().into_iter().find(|(port, _)| port.kind == Kind::Gtpu).expect("there is one");
    let gtpu = L3 + 28;
    packet.data_mut()[gtpu - 2..gtpu].fill(0);
    packet.data_mut()[gtpu + 1] = 1; // echo request
    let decoded = decode_whole(&packet, &port).expect("it is well-formed");
    let before = packet.clone();
    decoded.strip(&mut packet);
    assert_eq!(packet.data(), before.data());
    assert_eq!(decoded.payload, Payload::Ethernet);
    let extension = Extension::Gtpu(Gtpu { flags: 0x30, msgtype: 1 });
    assert_eq!(decoded.metadata.extension, extension);
}

#[test]
fn wrong_checksums_are_found_and_counted() {
    for (port, packet) in samples() {
        let decoded = decode_whole(&packet, &port).expect("it is right");
        if decoded.metadata.flags & flags::CHECKSUM == 0 {
            continue;
        }
        let mut wrong = packet.clone();
        let last = wrong.len() - 1;
        wrong.data_mut()[last] ^= 1;
        assert_eq!(decode_whole(&wrong, &port), Err(DecodeError::Checksum), "{port:?}");
        // A device has verified it.
        wrong.offload.csum_valid = true;
        assert!(decode_whole(&wrong, &port).is_ok());
    }
    let (port, packet) = samples()
        .into_iter()
        .find(|(port, p)| port.kind == Kind::Vxlan && p.data()[L3 + 26] != 0)
        .expect("there is one");
    let mut checks = Checks::default();
    let mut count = |frame: &[u8]| {
        let _ = decode(frame, L3, &Offload::default(), &port, &mut checks);
        checks
    };
    assert_eq!(count(packet.data()), Checks { ip: 1, transport: 1, ..Checks::default() });
    let mut wrong = packet.clone();
    wrong.data_mut()[60] ^= 1;
    let expected = Checks { ip: 2, transport: 2, wrong_transport: 1, wrong_ip: 0 };
    assert_eq!(count(wrong.data()), expected);
    wrong.data_mut()[L3 + 8] ^= 1;
    assert_eq!(count(wrong.data()), Checks { ip: 3, wrong_ip: 1, ..expected });
}

#[test]
fn an_unfinished_outer_checksum_is_not_verified_and_goes_with_its_header() {
    let (port, mut packet) = samples()
        .into_iter()
        .find(|(port, p)| port.kind == Kind::Vxlan && p.data()[L3 + 26] != 0)
        .expect("there is one");
    packet.data_mut()[L3 + 26] ^= 1;
    assert_eq!(decode_whole(&packet, &port), Err(DecodeError::Checksum));
    packet.offload.csum = Some((L3 as u16 + 20, 6));
    let decoded = decode_whole(&packet, &port).expect("it is its sender's to finish");
    decoded.strip(&mut packet);
    assert_eq!(packet.offload, Offload::default());
}

#[test]
fn inner_segmentation_stays_and_outer_segmentation_shows() {
    let metadata = over_v4(5, 4789, flags::KEY);
    let header = Header::build(&request(Kind::Vxlan, &metadata, Payload::Ethernet)).unwrap();
    let mut packet = Packet::from_slice(&inner(3000));
    packet.offload.csum = Some((34, 6));
    packet.offload.gso = Some((Gso::UdpL4, 1000, 42));
    let before = packet.clone();
    header.push(&mut packet, &PerPacket::default()).expect("it fits");
    assert_eq!(packet.offload.csum, Some((34 + 50, 6)));
    assert_eq!(packet.offload.gso, Some((Gso::UdpL4, 1000, 42 + 50)));
    let decoded = decode_whole(&packet, &PortConfig::new(Kind::Vxlan)).expect("it is right");
    assert!(!decoded.is_segmented_outside(&packet.offload));
    let outside = Offload { csum: Some((34, 6)), ..packet.offload };
    assert!(decoded.is_segmented_outside(&outside));
    decoded.strip(&mut packet);
    assert_eq!(packet, before);
}

#[test]
fn a_packet_that_is_too_long_stays_as_it_is() {
    let metadata = over_v4(5, 4789, flags::KEY);
    let header = Header::build(&request(Kind::Vxlan, &metadata, Payload::Ethernet)).unwrap();
    let most = 65535 - 36; // IPv4, UDP, VXLAN
    let mut packet = Packet::from_slice(&vec![1; most + 1]);
    let before = packet.clone();
    let each = PerPacket::default();
    assert_eq!(header.push(&mut packet, &each), Err(PushError::TooLong));
    assert_eq!(packet, before);
    packet.resize(most);
    assert_eq!(header.push(&mut packet, &each), Ok(()));
    assert_eq!(packet.data()[L3 + 2..L3 + 4], [0xff, 0xff]);
}

#[test]
fn the_path_leaves_room_for_a_packet() {
    let metadata = over_v4(5, 4789, flags::KEY);
    let header = Header::build(&request(Kind::Vxlan, &metadata, Payload::Ethernet)).unwrap();
    assert_eq!((header.path_mtu(), header.room()), (None, None));
    let narrow = header.clone().with_path_mtu(Some(1500));
    assert_ne!(header, narrow, "a flow with another MTU has other actions");
    let room = narrow.room().expect("there is a limit");
    let longest = pushed(&narrow, &vec![0; room], &PerPacket::default());
    assert_eq!(longest.len(), L3 + 1500);
    assert_eq!(header.with_path_mtu(Some(20)).room(), Some(0));
}

#[test]
fn only_packets_that_may_be_fragmented_have_an_identification() {
    for (flag, id) in [(0, 0x1234u16), (flags::DONT_FRAGMENT, 0)] {
        let metadata = over_v4(5, 4789, flag);
        let header = Header::build(&request(Kind::Vxlan, &metadata, Payload::Ethernet)).unwrap();
        let each = PerPacket { id: 0x1234, ..PerPacket::default() };
        let packet = pushed(&header, &inner(9), &each);
        assert_eq!(packet.data()[L3 + 4..L3 + 6], id.to_be_bytes());
        assert_eq!(checksum::internet(&packet.data()[L3..L3 + 20]), 0);
    }
}

#[test]
fn source_ports_stay_in_their_range() {
    let usual = SourcePorts::default();
    assert_eq!((usual.choose(0), usual.choose(u32::MAX)), (32768, 60999));
    let one = SourcePorts { first: 35190, last: 35190 };
    assert_eq!((one.choose(0), one.choose(u32::MAX)), (35190, 35190));
}

#[test]
fn options_are_read_one_by_one() {
    let mut bytes = Vec::new();
    let long = [7; 124];
    let all = [
        Tlv { class: 0xffff, kind: 0x80, reserved: 0, data: &[1, 2, 3, 4] },
        Tlv { class: 0x102, kind: 0, reserved: 5, data: &[] },
        Tlv { class: 1, kind: 0x7f, reserved: 0, data: &long[..112] },
    ];
    all.iter().for_each(|tlv| tlv.write_to(&mut bytes));
    let options = Options::new(&bytes).expect("it fits");
    let read: Vec<_> = options.tlvs().collect();
    assert_eq!(read, all.map(Ok));
    assert!(options.has_critical());
    assert!(!Options::new(&bytes[8..]).expect("it is shorter").has_critical());
    let cut = Options::new(&bytes[..12]).expect("three words");
    assert_eq!(cut.tlvs().collect::<Vec<_>>(), [Ok(all[0]), Ok(all[1])]);
    let cut = Options::new(&bytes[..4]).expect("one word");
    assert_eq!(cut.tlvs().collect::<Vec<_>>(), [Err(TlvError)]);
    assert_eq!(Options::new(&[0; 256]), None);
    assert_eq!(Options::new(&[0; 6]), None);
}

#[test]
fn options_of_a_row_make_the_port() {
    let row = |kind, options: &'static [(&'static str, &'static str)]| {
        PortConfig::from_options(kind, |name| {
            options.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
        })
    };
    let name = |kind, options| row(kind, options).map(|port| port.name());
    assert_eq!(name(Kind::Vxlan, &[]).as_deref(), Ok("vxlan_sys_4789"));
    assert_eq!(name(Kind::Geneve, &[("dst_port", "1")]).as_deref(), Ok("genev_sys_1"));
    assert_eq!(name(Kind::Gre, &[("dst_port", "1")]).as_deref(), Ok("gre_sys"));
    assert!(row(Kind::Vxlan, &[("exts", "gbp")]).is_ok_and(|port| port.has_group_policy));
    assert!(row(Kind::Vxlan, &[("exts", "gpe")]).is_ok_and(|port| !port.has_group_policy));
    for bad in ["0", "65536", "x", ""] {
        let refused = PortConfig::from_options(Kind::Vxlan, |_| Some(bad));
        assert!(refused.is_err_and(|text| text.contains("dst_port")), "{bad}");
    }
    for (text, kind) in [("mpls", 0x8847), ("ip", 0x800), ("0x86dd", 0x86dd), ("34887", 0x8847)] {
        let port = PortConfig::from_options(Kind::Bareudp, |name| {
            (name == "payload_type").then_some(text)
        });
        assert_eq!(port.map(|port| port.payload_type), Ok(kind));
    }
    assert!(row(Kind::Bareudp, &[("payload_type", "5")]).is_err());
}

#[test]
fn numbers_and_packet_types_are_reversible() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_number(kind.number()), Some(kind));
    }
    for payload in [Payload::Ethernet, Payload::Layer3(0x800), Payload::Layer3(0xffff)] {
        assert_eq!(Payload::from_packet_type(payload.packet_type()), Some(payload));
    }
    assert_eq!(Payload::Layer3(0x800).packet_type(), 0x1_0800);
    assert_eq!(Payload::from_packet_type(7), None);
    assert_eq!(Payload::from_packet_type(2 << 16), None);
}

/// Finishes the unfinished checksum by the bytes.
fn finished(packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    let (start, offset) = packet.offload.csum.take().expect("it is unfinished");
    let sum = checksum::internet(&packet.data()[usize::from(start)..]);
    let at = usize::from(start + offset);
    packet.data_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// An inner packet with an unfinished checksum, of an odd or even length, with padding.
fn unfinished(v6_inner: bool, len: usize, padding: usize, fill: u8) -> Packet {
    let frame = Frame::ethernet([4; 6], [6; 6]);
    let frame = if v6_inner {
        frame.ipv6(v6(3), v6(4), 9).tcp(7, 8, 0)
    } else {
        frame.ipv4(Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(2, 2, 2, 2), 9).tcp(7, 8, 0)
    };
    let mut packet = Packet::from_slice(&frame.payload(&vec![fill; len]).finish());
    let l4 = if v6_inner { 54 } else { 34 };
    let segment = (packet.len() - l4) as u32;
    let mut pseudo = checksum::Sum::default();
    let addresses = if v6_inner { 22..54 } else { 26..34 };
    pseudo.add(&packet.data()[addresses]);
    pseudo.add_u32(6 + segment);
    packet.data_mut()[l4 + 16..l4 + 18].copy_from_slice(&pseudo.folded().to_be_bytes());
    packet.offload.csum = Some((l4 as u16, 16));
    packet.resize(packet.len() + padding);
    packet
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), l3 in 0usize..40, kind in 0usize..11, policy: bool, csum in proptest::option::of((0u16..250, 0u16..40))) {
        let port = PortConfig { has_group_policy: policy, ..PortConfig::new(Kind::ALL[kind]) };
        let offload = Offload { csum, ..Offload::default() };
        if let Ok(decoded) = decode(&bytes, l3, &offload, &port, &mut Checks::default()) {
            prop_assert!(decoded.payload_at < decoded.payload_end && decoded.payload_end <= bytes.len());
        }
    }

    #[test]
    fn changed_samples_are_survived(number in 0usize..40, at in 12usize..120, byte: u8, cut in 0usize..40) {
        let (port, mut packet) = samples().swap_remove(number);
        if let Some(place) = packet.data_mut().get_mut(at) {
            *place = byte;
        }
        if packet.data()[L3] == 0x45 {
            fix_ip(packet.data_mut());
        }
        packet.resize(packet.len() - cut);
        if let Ok(decoded) = decode_whole(&packet, &port) {
            prop_assert!(decoded.payload_end <= packet.len());
            decoded.strip(&mut packet);
            prop_assert!(!packet.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..150), kind in 0usize..11, v6: bool) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        }
        let read = Header::from_bytes(Kind::ALL[kind], &bytes, Choice::default());
        prop_assert!(read.is_none_or(|header| header.bytes() == bytes));
    }

    #[test]
    fn options_of_any_bytes_are_inside(bytes in proptest::collection::vec(any::<u8>(), 0..260)) {
        let read: Vec<_> = Tlvs::new(&bytes).collect();
        let total: usize = read.iter().filter_map(|tlv| tlv.ok()).map(|tlv| 4 + tlv.data.len()).sum();
        prop_assert!(total <= bytes.len());
        if read.iter().all(Result::is_ok) {
            let mut again = Vec::new();
            read.iter().flatten().for_each(|tlv| tlv.write_to(&mut again));
            prop_assert_eq!(again, bytes);
        }
    }

    /// The outer sum of a packet with an unfinished checksum equals that of the finished packet,
    /// and both are right by all bytes.
    #[test]
    fn outer_checksums_are_right_once_the_inner_one_is_finished(
        v6_inner: bool, v6_outer: bool, kind in 0usize..4, len in 0usize..60, padding in 0usize..9,
        fill: u8, hash: u32,
    ) {
        let kind = [Kind::Vxlan, Kind::Geneve, Kind::Gre, Kind::Gtpu][kind];
        let mut metadata = over_v4(5, PortConfig::new(kind).udp_port, flags::KEY | flags::CHECKSUM);
        if v6_outer {
            (metadata.src, metadata.dst) = (v6(1).into(), v6(2).into());
        }
        let mut inner = unfinished(v6_inner, len, padding, fill);
        let payload = match kind {
            Kind::Gtpu => {
                inner.remove_at(0, 14);
                Payload::Layer3(if v6_inner { ethertype::IPV6 } else { ethertype::IPV4 })
            }
            _ => Payload::Ethernet,
        };
        let header = Header::build(&request(kind, &metadata, payload)).unwrap();
        let each = PerPacket { payload, hash, ..PerPacket::default() };
        let mut whole = finished(&inner);
        header.push(&mut whole, &each).unwrap();
        let mut packet = inner;
        header.push(&mut packet, &each).unwrap();
        prop_assert_eq!(decode_whole(&packet, &PortConfig::new(kind)).map(|d| d.metadata.flags & flags::CHECKSUM), Ok(flags::CHECKSUM));
        let packet = finished(&packet);
        prop_assert_eq!(packet.data(), whole.data());

        // By all bytes, without the code under test.
        let l4 = L3 + if v6_outer { 40 } else { 20 };
        let mut sum = checksum::Sum::default();
        if kind != Kind::Gre {
            let addresses = if v6_outer { L3 + 8..L3 + 40 } else { L3 + 12..L3 + 20 };
            sum.add(&whole.data()[addresses]);
            sum.add_u32(17 + (whole.len() - l4) as u32);
        }
        sum.add(&whole.data()[l4..]);
        prop_assert_eq!(sum.finish(), 0);
    }
}
