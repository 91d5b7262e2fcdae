// SPDX-License-Identifier: Apache-2.0
//! Outer headers that actions push and take off.

use crate::behaviour::frames::{A, B, has_right_checksums, ipv4, pattern, tcp, udp, unfinished};
use crate::behaviour::{MTU, World, on};
use datapath::{
    DropReason, PortError, PortKind, PortNo, PortSpec, RECIRCULATION_LIMIT, TunnelKind,
};
use datapath_model::chaos::SYNTHETIC;
use flow::extract::extract;
use flow::{Field, Match};
use packet::{Gso, Packet, checksum};
use std::net::Ipv4Addr;
use tunnel::{Checks, Metadata, Options, flags};

/// Bytes of the outer Ethernet and IPv4 headers.
const OUTER_IP: usize = 34;
/// Bytes of the outer headers of VXLAN.
const VXLAN: usize = 50;
/// The number of the tunnel port.
const TUNNEL: u32 = 1000;

fn add_tunnel(w: &World, kind: TunnelKind) {
    let spec = PortSpec {
        name: format!("{kind}_sys"),
        kind: PortKind::Tunnel(kind),
        wanted: Some(PortNo(TUNNEL)),
        ..PortSpec::default()
    };
    let is_synthetic = |e: &PortError| e.to_string().contains(SYNTHETIC);
    while let Err(e) = w.dp().add_port(&spec) {
        assert!(is_synthetic(&e), "{e}");
    }
    assert!(w.dp().ports().iter().any(|port| port.number == PortNo(TUNNEL)));
    assert!(w.dp().device(PortNo(TUNNEL)).is_none());
}

/// `tnl_push(...)` from 10.9.0.1 to 10.9.0.2 with this many bytes of headers.
fn push(kind: u32, size: usize, proto: u8, rest: &str) -> String {
    format!(
        "tnl_push(tnl_port({TUNNEL}),header(size={size},type={kind},eth(dst=02:00:00:00:00:0b,\
         src=02:00:00:00:00:0a,dl_type=0x0800),ipv4(src=10.9.0.1,dst=10.9.0.2,proto={proto},\
         tos=0,ttl=64,frag=0x4000),{rest}),out_port(2))"
    )
}

fn push_vxlan(csum: &str) -> String {
    let rest = format!("udp(src=0,dst=4789,csum={csum}),vxlan(flags=0x8000000,vni=0x7b)");
    push(4, VXLAN, 17, &rest)
}

/// Packets of the tunnel port.
fn in_tunnel() -> Match {
    on(TUNNEL)
}

pub fn pushed_headers_come_off_again(w: &World) {
    let options = "options({class=0x102,type=0x80,len=4,0xa})";
    for (kind, header) in [
        (TunnelKind::Vxlan, push_vxlan("0x0")),
        (
            TunnelKind::Geneve,
            push(
                5,
                58,
                17,
                &format!("udp(src=0,dst=6081,csum=0xffff),geneve(crit,vni=0x7b,{options})"),
            ),
        ),
        (
            TunnelKind::Gre,
            push(3, 50, 47, "gre((flags=0xb000,proto=0x6558),csum=0x0,key=0x7b,seq=0x0)"),
        ),
        (TunnelKind::Erspan, push(107, 50, 47, "erspan(ver=1,sid=0x7b,idx=0x3)")),
    ] {
        add_tunnel(w, kind);
        let frame = udp(101);
        let out = w.through(&format!("{header},2"), Packet::from_slice(&frame));
        assert_eq!(out.len(), 1, "{kind}");
        let (key, _) = extract(&out[0], 0);
        assert_eq!(key.nw_src.get(), Ipv4Addr::new(10, 9, 0, 1).to_bits());
        assert_eq!((key.dl_src, key.dl_dst), (A, B));
        assert_eq!(checksum::internet(&out[0][14..OUTER_IP]), 0);
        w.dp().flush();
        w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
        w.install(2, in_tunnel(), "2");
        w.inject(1, &out[0]);
        assert_eq!(w.out(2), std::slice::from_ref(&frame), "{kind}");
        assert_eq!((w.stats(1).packets, w.stats(1).bytes), (1, out[0].len() as u64));
        assert_eq!((w.stats(2).packets, w.stats(2).bytes), (1, frame.len() as u64));
        w.dp().flush();
        while w.dp().remove_port(PortNo(TUNNEL)).is_err() {}
    }
    assert!(DropReason::ALL.iter().all(|reason| w.drops(*reason) == 0));
}

pub fn a_packet_from_a_tunnel_has_its_fields(w: &World) {
    add_tunnel(w, TunnelKind::Geneve);
    let rest = "udp(src=0,dst=6081,csum=0xffff),\
                geneve(oam,vni=0x7b,options({class=0x102,type=0x3,len=4,0xa}))";
    let out = w.through(&format!("{},2", push(5, 58, 17, rest)), Packet::from_slice(&udp(9)));
    w.dp().flush();
    w.install(1, on(1), &format!("set(skb_mark(0x5)),tnl_pop({TUNNEL}),2"));
    w.upcalls();
    w.inject(1, &out[0]);
    assert_eq!(w.out(2), out, "the list goes on with the outer packet");
    let seen = w.upcalls();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].in_port, &seen[0].frame), (PortNo(TUNNEL), &udp(9)));
    assert_eq!((seen[0].key.pkt_mark.get(), seen[0].key.recirc_id.get()), (0, 0));
    let expected = Metadata {
        tun_id: 0x7b,
        src: Ipv4Addr::new(10, 9, 0, 1).into(),
        dst: Ipv4Addr::new(10, 9, 0, 2).into(),
        ttl: 64,
        tp_src: u16::from_be_bytes([out[0][34], out[0][35]]),
        tp_dst: 6081,
        flags: flags::OAM | flags::CHECKSUM | flags::KEY,
        options: Options::new(&[1, 2, 3, 1, 0, 0, 0, 0xa]).expect("8 bytes"),
        ..Metadata::default()
    };
    assert_eq!(Metadata::of_key(&seen[0].key), expected);
    assert!((32768..61000).contains(&expected.tp_src));
}

pub fn fields_of_a_tunnel_can_be_set(w: &World) {
    let set = "set(tunnel(tun_id=0x7b,dst=10.9.0.2,tos=0x4,ttl=9,flags(df|key)))";
    w.install(1, on(1), &format!("{set},recirc(0x1)"));
    w.inject(1, &udp(1));
    let seen = w.upcalls();
    let metadata = Metadata {
        tun_id: 0x7b,
        dst: Ipv4Addr::new(10, 9, 0, 2).into(),
        tos: 4,
        ttl: 9,
        flags: flags::DONT_FRAGMENT | flags::KEY,
        ..Metadata::default()
    };
    assert_eq!(Metadata::of_key(&seen[0].key), metadata);
}

/// Each frame has right outer and inner checksums; the inner payloads make up that of `whole`.
fn segments_are_right(out: &[Vec<u8>], outer: usize, whole: &[u8]) {
    let mut payload = Vec::new();
    for frame in out {
        let inner = &frame[outer..];
        assert!(has_right_checksums(inner));
        let (_, layers) = extract(inner, 0);
        payload.extend_from_slice(&inner[usize::from(layers.l4.expect("TCP")) + 20..]);
        let total = u16::from_be_bytes([frame[16], frame[17]]);
        assert_eq!(usize::from(total) + 14, frame.len());
        assert_eq!(checksum::internet(&frame[14..OUTER_IP]), 0);
    }
    assert_eq!(payload, whole);
}

pub fn outer_checksums_follow_the_inner_ones(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    // Even and odd lengths, finished and not, a padded frame, and segments.
    for len in [0, 1, 333, 1000] {
        for mut packet in [Packet::from_slice(&tcp(0x10, len)), unfinished(&tcp(0x10, len))] {
            packet.extend(&[0; 3]);
            let out = w.through(&format!("{},2", push_vxlan("0xffff")), packet);
            assert_eq!(out.len(), 1);
            assert!(has_right_checksums(&out[0]), "{len}");
            assert!(has_right_checksums(&out[0][VXLAN..]), "{len}");
        }
    }
    let mut packet = unfinished(&tcp(0x10, 4000));
    packet.offload.gso = Some((Gso::TcpV4, 1000, 54));
    let out = w.through(&format!("{},2", push_vxlan("0xffff")), packet.clone());
    assert_eq!(out.len(), 4);
    assert!(out.iter().all(|frame| has_right_checksums(frame)));
    segments_are_right(&out, VXLAN, &pattern(4000));
    let ports: Vec<_> = out.iter().map(|frame| &frame[34..36]).collect();
    assert!(ports.iter().all(|port| *port == ports[0]), "one flow has one source port");
}

pub fn segments_have_numbers_of_their_own(w: &World) {
    add_tunnel(w, TunnelKind::Gre);
    let gre = push(3, 46, 47, "gre((flags=0x9000,proto=0x6558),csum=0x0,seq=0x0)");
    let mut packet = unfinished(&tcp(0x10, 4000));
    packet.offload.gso = Some((Gso::TcpV4, 1000, 54));
    let out = w.through(&format!("{gre},2"), packet);
    assert_eq!(out.len(), 4);
    segments_are_right(&out, 46, &pattern(4000));
    for (number, frame) in out.iter().enumerate() {
        assert_eq!(frame[42..46], (number as u32).to_be_bytes());
        assert_eq!(checksum::internet(&frame[OUTER_IP..]), 0);
    }
}

pub fn headers_that_are_not_the_tunnel_s_drop(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    let good = w.through(&format!("{},2", push_vxlan("0xffff")), Packet::from_slice(&udp(9)));
    let good = &good[0];
    w.dp().flush();
    w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
    w.install(2, in_tunnel(), "2");
    let changed = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 1;
        w.inject(1, &frame);
    };
    let mut drops = 0;
    // The inner source address, which the outer checksum covers; the VXLAN flags; the time to live.
    for at in [VXLAN + 29, OUTER_IP + 8, 14 + 8] {
        changed(at);
        drops += 1;
        assert_eq!(w.drops(DropReason::TunnelPop), drops, "byte {at}");
    }
    w.inject(1, &udp(3)); // no VXLAN
    assert_eq!(w.drops(DropReason::TunnelPop), drops + 1);
    let checks = Checks { ip: 4, wrong_ip: 1, transport: 3, wrong_transport: 2 };
    assert_eq!(w.dp().tunnel_checks(), checks);
    w.inject(1, good);
    assert_eq!(w.out(2), [udp(9)]);
}

/// A match on packets of the tunnel port with a key and options, under another lookup's number.
fn with_options(recirc_id: u32, options: &[u8], data: u8) -> Match {
    let matching = in_tunnel();
    let (mut key, mut mask) = (*matching.key(), *matching.mask());
    key.recirc_id.set(recirc_id);
    mask.0.recirc_id.set(u32::MAX);
    key.tunnel.id.set(0x7b);
    mask.0.tunnel.id.set(u64::MAX);
    key.tunnel.set_raw_options(options);
    // As translation does: their form is exact.
    mask.0.tunnel.options_len = u8::MAX;
    if !options.is_empty() {
        mask.0.tunnel.options[..8].copy_from_slice(&[0xff, 0xff, 0xff, 0x1f, 0, 0, 0, data]);
    }
    Match::new(&key, &mask)
}

pub fn flows_match_the_fields_of_a_tunnel(w: &World) {
    add_tunnel(w, TunnelKind::Geneve);
    let option = [1, 2, 0x80, 1, 0, 0, 0, 0xa];
    let frame = udp(100);
    let outer = |rest: &str, size| {
        w.dp().flush();
        let header = format!("udp(src=0,dst=6081,csum=0xffff),geneve({rest})");
        w.through(&format!("{},2", push(5, size, 17, &header)), Packet::from_slice(&frame))
    };
    let with = outer("crit,vni=0x7b,options({class=0x102,type=0x80,len=4,0xa})", 58);
    let without = outer("vni=0x7b", 50);
    w.dp().flush();
    w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
    w.install(2, with_options(0, &option, 0xff), "set(eth(src=02:00:00:00:00:07)),recirc(0x5)");
    w.install(3, with_options(5, &option, 0x0f), "2");
    w.install(4, with_options(0, &[], 0), "3");
    let mut edited = frame.clone();
    edited[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    for n in 1..4 {
        w.inject(1, &with[0]);
        assert_eq!(w.out(2), std::slice::from_ref(&edited));
        w.inject(1, &without[0]);
        assert_eq!(w.out(3), std::slice::from_ref(&frame));
        assert_eq!((w.stats(1).packets, w.stats(2).packets), (2 * n, n));
        assert_eq!((w.stats(3).packets, w.stats(4).packets), (n, n));
        assert_eq!(w.stats(4).bytes, n * frame.len() as u64);
    }
}

/// A match on packets of the tunnel port with fields of ERSPAN, under another lookup's number.
fn with_erspan(recirc_id: u32, fields: &[(Field, u128)]) -> Match {
    let matching = in_tunnel();
    let (mut key, mut mask) = (*matching.key(), *matching.mask());
    key.recirc_id.set(recirc_id);
    mask.0.recirc_id.set(u32::MAX);
    for (field, value) in fields {
        field.store(&mut key, *value);
        mask.set_exact(*field);
    }
    Match::new(&key, &mask)
}

pub fn flows_match_the_fields_of_erspan(w: &World) {
    add_tunnel(w, TunnelKind::Erspan);
    let frame = udp(100);
    let outer = |rest: &str, size| {
        w.dp().flush();
        let rest = format!("erspan({rest})");
        let out =
            w.through(&format!("{},2", push(107, size, 47, &rest)), Packet::from_slice(&frame));
        out[0].clone()
    };
    let first = outer("ver=1,sid=0x7b,idx=0xabcde", 50);
    let second = outer("ver=2,sid=0x7b,dir=1,hwid=0x2a", 54);
    let third = outer("ver=2,sid=0x7b,dir=0,hwid=0x2a", 54);
    w.dp().flush();
    w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
    let (version, index) = (Field::TunErspanVer, Field::TunErspanIdx);
    let (direction, hardware) = (Field::TunErspanDir, Field::TunErspanHwid);
    let again = "set(eth(src=02:00:00:00:00:07)),recirc(0x5)";
    w.install(2, with_erspan(0, &[(version, 1), (index, 0xa_bcde)]), again);
    w.install(3, with_erspan(5, &[(index, 0xa_bcde)]), "2");
    w.install(4, with_erspan(0, &[(version, 2), (direction, 1), (hardware, 0x2a)]), "3");
    w.upcalls();
    let mut edited = frame.clone();
    edited[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    for n in 1..4 {
        w.inject(1, &first);
        assert_eq!(w.out(2), std::slice::from_ref(&edited));
        w.inject(1, &second);
        assert_eq!(w.out(3), std::slice::from_ref(&frame));
        w.inject(1, &third);
        let seen = w.upcalls();
        assert_eq!(seen.len(), 1, "no flow has this direction");
        let tunnel = &seen[0].key.tunnel;
        assert_eq!((tunnel.erspan_ver, tunnel.erspan_dir, tunnel.erspan_hwid), (2, 0, 0x2a));
        assert_eq!(tunnel.id.get(), 0x7b);
        assert_eq!((w.stats(1).packets, w.stats(2).packets), (3 * n, n));
        assert_eq!((w.stats(3).packets, w.stats(4).packets), (n, n));
    }
}

/// The number in a frame's GRE header without other fields.
fn sequence_number(frame: &[u8]) -> u32 {
    frame[38..42].try_into().map(u32::from_be_bytes).expect("four bytes")
}

pub fn packets_of_a_tunnel_are_numbered(w: &World) {
    add_tunnel(w, TunnelKind::Gre);
    let header = push(3, 42, 47, "gre((flags=0x1000,proto=0x6558),seq=0x0)");
    let mut numbers = Vec::new();
    let mut send = |port, actions: &str| {
        w.dp().flush();
        w.install(1, on(port), actions);
        for _ in 0..3 {
            w.inject(port, &udp(9));
            numbers.extend(w.out(2).iter().map(|frame| sequence_number(frame)));
        }
    };
    send(1, &format!("{header},2"));
    // Another flow, and one that the fastest tier may leave to another.
    send(3, &format!("{header},2"));
    send(1, &format!("set(skb_mark(0x5)),{header},2"));
    assert_eq!(numbers.len(), 9);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

pub fn tunnel_ports_that_are_gone_drop(w: &World) {
    w.install(1, on(1), &format!("tnl_pop({TUNNEL}),{},2", push_vxlan("0x0")));
    w.inject(1, &udp(9));
    assert!(w.out(2).is_empty());
    assert_eq!(w.drops(DropReason::InvalidTunnelPort), 2);
    // An ordinary port is no tunnel.
    w.install(2, on(2), "tnl_pop(3)");
    w.inject(2, &udp(9));
    assert_eq!(w.drops(DropReason::InvalidTunnelPort), 3);
    // A packet leaves by a tunnel port only in headers.
    add_tunnel(w, TunnelKind::Vxlan);
    w.install(3, on(3), &TUNNEL.to_string());
    w.inject(3, &udp(9));
    assert_eq!(w.drops(DropReason::UnknownPort), 1);
}

pub fn tunnels_in_tunnels_end(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    let deep = format!("{},", push_vxlan("0x0")).repeat(RECIRCULATION_LIMIT as usize + 1) + "2";
    let out = w.through(&deep, Packet::from_slice(&udp(9)));
    w.dp().flush();
    w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
    w.install(2, in_tunnel(), &format!("tnl_pop({TUNNEL})"));
    w.inject(1, &out[0]);
    assert_eq!(w.stats(2).packets as u32, RECIRCULATION_LIMIT);
    assert_eq!(w.drops(DropReason::RecirculationLimit), 1);
}

pub fn packets_without_an_ethernet_header(w: &World) {
    add_tunnel(w, TunnelKind::Gre);
    let gre = push(3, 38, 47, "gre((flags=0x0,proto=0x800))");
    let frame = udp(33);
    let out = w.through(&format!("pop_eth,{gre},2"), Packet::from_slice(&frame));
    assert_eq!(out[0][38..], frame[14..]);
    let mut bare = in_tunnel();
    bare.set(Field::PacketType, 0x1_0800);
    bare.set(Field::Ipv4Dst, Ipv4Addr::new(10, 0, 0, 2).to_bits().into());
    w.dp().flush();
    w.install(1, on(1), &format!("tnl_pop({TUNNEL})"));
    w.install(
        2,
        bare,
        "set(ipv4(ttl=9)),2,push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),2,3,\
         push_vlan(vid=5,pcp=0),4",
    );
    w.inject(1, &out[0]);
    let expected = ipv4_with_ttl(9);
    assert_eq!(w.out(2), std::slice::from_ref(&expected));
    assert_eq!(w.out(3), [expected]);
    assert_eq!(w.out(4).len(), 1);
    assert_eq!(w.drops(DropReason::Malformed), 1, "the output before the header was pushed");
    for (n, bad) in
        ["pop_eth,push_vlan(vid=5,pcp=0),2", "pop_eth,set(eth(src=02:00:00:00:00:01)),2"]
            .into_iter()
            .chain(["pop_eth,pop_eth,2", "push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),2"])
            .enumerate()
    {
        assert!(w.through(bad, Packet::from_slice(&frame)).is_empty(), "{bad}");
        assert_eq!(w.drops(DropReason::Malformed), n as u64 + 2, "{bad}");
    }
    let tagged = packet::build::Frame::ethernet(B, A).vlan(0x8100, 5).payload(&[0; 46]).finish();
    assert!(w.through("pop_eth,2", Packet::from_slice(&tagged)).is_empty());
    let back = "pop_eth,push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),2";
    assert_eq!(w.through(back, Packet::from_slice(&frame)), [frame]);
}

fn ipv4_with_ttl(ttl: u8) -> Vec<u8> {
    let frame = ipv4().udp(1000, 2000).payload(&pattern(33)).finish();
    let mut frame = frame;
    frame[22] = ttl;
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Sets the field with DF and the fragment offset of an IPv4 frame.
fn with_flags(mut frame: Vec<u8>, flags: u16) -> Vec<u8> {
    frame[20..22].copy_from_slice(&flags.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..OUTER_IP]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Bytes of the longest outer IP packet on a path, and of the longest IP packet in VXLAN.
const PATH: u16 = 700;
const FITS: u16 = PATH - 50;

/// Returns what leaves by ports 1 and 2 when a frame comes in by port 1, is changed, and goes into a
/// tunnel.
fn over_path(w: &World, edits: &str, push: &str, frame: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    w.dp().flush();
    w.install_for_path(1, on(1), &format!("{edits}{push},2"), PATH);
    w.inject(1, frame);
    (w.out(1), w.out(2))
}

/// An IPv4 packet of this length in a frame.
fn of_length(len: u16, flags: u16) -> Vec<u8> {
    with_flags(udp(usize::from(len) - 28), flags)
}

pub fn a_report_quotes_the_packet_as_it_came(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    let edits = "set(eth(src=02:00:00:00:00:08,dst=02:00:00:00:00:07)),push_vlan(vid=5,pcp=0),\
                 set(ipv4(src=10.7.0.1,dst=10.7.0.2)),";
    let long = of_length(FITS + 1, 0x4000);
    let report = tunnel::too_big(&long, FITS - 4).expect("it has DF");
    assert_eq!(over_path(w, edits, &push_vxlan("0x0"), &long), (vec![report], vec![]));
    assert_eq!(w.drops(DropReason::OutputTooLong), 1);
}

pub fn packets_too_long_for_the_path_do_not_vanish(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    let push = push_vxlan("0x0");
    let through = |push: &str, frame: &[u8]| over_path(w, "", push, frame);
    let (back, out) = through(&push, &of_length(FITS, 0x4000));
    assert_eq!((back.len(), out.len(), out[0].len()), (0, 1, 14 + usize::from(PATH)));
    // The sender of a packet with DF gets a report by the port that the packet came in by.
    let long = of_length(FITS + 1, 0x4000);
    let report = tunnel::too_big(&long, FITS).expect("it has DF");
    assert_eq!(through(&push, &long), (vec![report], vec![]));
    assert_eq!(w.drops(DropReason::OutputTooLong), 1);
    // Without DF, the inner packet is cut, or the outer one where it has no DF.
    let long = of_length(1400, 0);
    let parts = packet::fragment::ipv4(&long, 14, usize::from(FITS)).expect("it has no DF");
    let (back, out) = through(&push, &long);
    assert_eq!(back.len(), 0);
    let inner: Vec<&[u8]> = out.iter().map(|outer| &outer[VXLAN..]).collect();
    assert_eq!(inner, parts.iter().map(Packet::data).collect::<Vec<_>>());
    let long = of_length(1400, 0x4000);
    let (back, out) = through(&push.replace("frag=0x4000", "frag=0x0000"), &long);
    assert_eq!((back.len(), out.len()), (0, 3));
    assert!(out.iter().all(|outer| outer.len() <= 14 + usize::from(PATH)));
    let parts: Vec<&[u8]> = out.iter().map(|outer| &outer[OUTER_IP..]).collect();
    assert_eq!(parts.concat()[VXLAN - OUTER_IP..], long);
    assert_eq!(w.drops(DropReason::OutputTooLong), 1);
    // There are reports for IPv4 and IPv6 alone.
    let other = packet::build::Frame::ethernet(B, A).ethertype(0x88b5).payload(&[1; 700]).finish();
    assert_eq!(through(&push, &other), (vec![], vec![]));
    assert_eq!(w.drops(DropReason::OutputTooLong), 2);
}

pub fn lengths_and_cuts_with_outer_headers(w: &World) {
    add_tunnel(w, TunnelKind::Vxlan);
    let list = format!("trunc(60),{},2", push_vxlan("0x0"));
    let out = w.through(&list, Packet::from_slice(&udp(500)));
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [60 + VXLAN]);
    assert_eq!(out[0][VXLAN..], udp(500)[..60]);
    // A packet that fits the port does not fit with headers.
    let longest = MTU as usize - 28;
    let list = format!("clone({},2),2", push_vxlan("0x0"));
    let out = w.through(&list, Packet::from_slice(&udp(longest)));
    assert_eq!(out, [udp(longest)]);
    assert_eq!(w.drops(DropReason::OutputTooLong), 1);
}
