// SPDX-License-Identifier: Apache-2.0
//! Actions that do not change headers.

use crate::behaviour::frames::{A, B, has_right_checksums, ipv4, ipv6, tcp, udp, v4};
use crate::behaviour::{World, on};
use datapath::{
    Action, DropReason, MeterBand, MeterConfig, PortNo, PortSpec, RECIRCULATION_LIMIT, hash,
};
use flow::extract::{FRAG_ANY, FRAG_LATER, key_of};
use flow::{Field, Key, Match};
use packet::build::Frame;
use packet::{Ipv4Header, Packet};

/// Packets of port `port` that come again with recirculation id `id`.
fn again(port: u32, id: u32) -> Match {
    let mut m = on(port);
    m.set(Field::RecircId, id.into());
    m
}

pub fn output_to_several_ports(w: &World) {
    w.install(1, on(1), "2,3,set(ipv4(ttl=1)),4,2,1");
    w.inject(1, &udp(9));
    let changed = {
        let out = w.out(4);
        assert_eq!(out.len(), 1);
        assert_eq!(key_of(&out[0], 0).nw_ttl, 1);
        out[0].clone()
    };
    assert_eq!(w.out(2), [udp(9), changed.clone()]);
    assert_eq!(w.out(3), [udp(9)]);
    assert_eq!(w.out(1), [changed], "back to the ingress port when the action says so");
}

pub fn copies_are_equal(w: &World) {
    w.install(1, on(1), "set(ipv4(ttl=9)),push_vlan(vid=3,pcp=0),2,clone(3,4)");
    w.install(2, on(2), "1,3,4");
    w.install(3, on(3), "3,4");
    for _ in 0..3 {
        w.inject(1, &udp(9));
    }
    let first = w.out(2);
    assert_eq!((first.len(), first[0].len()), (3, udp(9).len() + 4));
    assert_eq!(key_of(&first[0], 0).nw_ttl, 9);
    assert_eq!((w.out(3), w.out(4), w.out(1).len()), (first.clone(), first, 0));
    w.inject(2, &udp(8));
    assert_eq!((w.out(1), w.out(3), w.out(4)), (vec![udp(8)], vec![udp(8)], vec![udp(8)]));
    assert!(w.out(2).is_empty());
    w.inject(3, &udp(7));
    assert_eq!((w.out(3), w.out(4)), (vec![udp(7)], vec![udp(7)]), "back to the ingress port");
    assert_eq!([1, 2, 3].map(|id| w.stats(id).packets), [3, 1, 1]);
    assert_eq!(w.stats(1).bytes, 3 * udp(9).len() as u64);
}

pub fn copies_that_some_port_does_not_take(w: &World) {
    // Port 1 takes longer frames than the others.
    w.install(1, on(1), "1,2,3");
    let long = udp(w.fixture().large_mtu() as usize / 2);
    w.inject(1, &long);
    assert_eq!((w.out(1), w.out(2).len(), w.out(3).len()), (vec![long], 0, 0));
    assert_eq!(w.drops(DropReason::OutputTooLong), 2);
    w.inject(1, &udp(9));
    assert_eq!((w.out(1).len(), w.out(2).len(), w.out(3).len()), (1, 1, 1));
    // As long as can be, with and without the tag that is free.
    for (payload, tagged, copies) in [(1472, false, 1), (1473, false, 0), (1472, true, 1)] {
        let mut frame = udp(payload);
        if tagged {
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        w.inject(1, &frame);
        let counts = (w.out(1).len(), w.out(2).len(), w.out(3).len());
        assert_eq!(counts, (1, copies, copies), "{payload} {tagged}");
    }
    assert_eq!(w.drops(DropReason::OutputTooLong), 4);
    let third = w.dp().ports().into_iter().find(|p| p.number == PortNo(3)).expect("it is there");
    w.dp().remove_port(PortNo(3)).expect("it is there");
    w.inject(1, &udp(9));
    assert_eq!((w.out(1).len(), w.out(2).len()), (1, 1));
    assert_eq!(w.drops(DropReason::OutputPortGone), 1);
    assert_eq!(w.stats(1).packets, 6);
    let spec = PortSpec {
        name: third.name.clone(),
        kind: third.kind,
        wanted: Some(PortNo(3)),
        ..PortSpec::default()
    };
    assert_eq!(w.dp().add_port(&spec).expect("the device was closed"), PortNo(3));
    w.inject(1, &udp(9));
    assert_eq!((w.out(1).len(), w.out(2).len()), (1, 1));
    assert_eq!(w.drops(DropReason::OutputPortGone), 1, "the third takes its copy again");
}

pub fn trunc_cuts_the_next_output_only(w: &World) {
    w.install(1, on(1), "trunc(60),2,3");
    w.inject(1, &udp(200));
    assert_eq!(w.out(2), [udp(200)[..60].to_vec()]);
    assert_eq!(w.out(3), [udp(200)]);
    w.dp().flush();
    w.install(2, on(1), "trunc(60),clone(2),3,4");
    w.inject(1, &udp(200));
    assert_eq!((w.out(2)[0].len(), w.out(3)[0].len(), w.out(4)[0].len()), (60, 60, udp(200).len()));
    w.dp().flush();
    w.install(3, on(1), "trunc(1000),2");
    w.inject(1, &udp(200));
    assert_eq!(w.out(2), [udp(200)]);
    w.dp().flush();
    w.install(4, on(1), "trunc(40),userspace(pid=0,slow_path(action)),2");
    w.inject(1, &udp(200));
    assert_eq!(w.upcalls()[0].frame.len(), 40);
    assert_eq!(w.out(2), [udp(200)]);
}

pub fn clone_is_isolated(w: &World) {
    w.install(
        1,
        on(1),
        "clone(set(ipv4(dst=9.9.9.9)),push_vlan(vid=3,pcp=0),2,pop_vlan,pop_vlan,4),3",
    );
    w.inject(1, &udp(9));
    assert_eq!(w.out(2)[0].len(), udp(9).len() + 4);
    assert!(w.out(4).is_empty(), "the copy ended where it became malformed");
    assert_eq!(w.drops(DropReason::Malformed), 1);
    assert_eq!(w.out(3), [udp(9)]);
}

pub fn sample_always_and_never(w: &World) {
    w.install(
        1,
        on(1),
        "sample(sample=100%,actions(set(ipv4(ttl=1)),2)),sample(sample=0%,actions(4)),3",
    );
    for _ in 0..20 {
        w.inject(1, &udp(9));
    }
    assert_eq!((w.out(2).len(), w.out(4).len()), (20, 0));
    assert_eq!(w.out(3), vec![udp(9); 20]);
}

pub fn sample_takes_its_share(w: &World) {
    w.install(1, on(1), "sample(sample=25%,actions(2)),3");
    let packets = (0..400).map(|_| Packet::from_slice(&udp(1))).collect();
    w.fixture().inject_all(PortNo(1), packets);
    let share = w.out(2).len();
    assert!((50..160).contains(&share), "{share} of 400");
    assert_eq!(w.out(3).len(), 400);
}

pub fn a_nested_list_may_end_a_list(w: &World) {
    w.install(1, on(1), "2,clone(set(ipv4(ttl=9)),push_vlan(vid=3,pcp=0),3,clone(pop_vlan,4))");
    w.inject(1, &udp(9));
    assert_eq!(w.out(2), [udp(9)]);
    let (tagged, plain) = (w.out(3), w.out(4));
    assert_eq!((key_of(&tagged[0], 0).nw_ttl, tagged[0].len()), (9, udp(9).len() + 4));
    assert_eq!((key_of(&plain[0], 0).nw_ttl, plain[0].len()), (9, udp(9).len()));
}

pub fn a_sample_may_end_a_list(w: &World) {
    for (text, share) in [("100%", 400..=400), ("0%", 0..=0), ("25%", 50..=160)] {
        w.dp().flush();
        w.install(1, on(1), &format!("3,sample(sample={text},actions(set(ipv4(ttl=9)),2))"));
        let packets = (0..400).map(|_| Packet::from_slice(&udp(1))).collect();
        w.fixture().inject_all(PortNo(1), packets);
        let seen = w.out(2);
        assert!(share.contains(&seen.len()), "{text}: {} of 400", seen.len());
        assert!(seen.iter().all(|f| key_of(f, 0).nw_ttl == 9));
        assert_eq!(w.out(3), vec![udp(1); 400]);
    }
}

pub fn a_branch_may_end_a_list(w: &World) {
    w.install(1, on(1), "check_pkt_len(size=142,gt(set(ipv4(ttl=1)),2),le(set(ipv4(ttl=2)),3))");
    for (len, port, ttl) in [(99, 3, 2), (100, 3, 2), (101, 2, 1)] {
        let frame = udp(len); // 42 bytes of headers
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        for frame in [frame, tagged] {
            w.inject(1, &frame);
            let out = w.out(port);
            assert_eq!(out.len(), 1, "{len}");
            assert_eq!((key_of(&out[0], 0).nw_ttl, out[0].len()), (ttl, frame.len()), "{len}");
            assert!(w.out(5 - port).is_empty(), "{len}");
        }
    }
}

pub fn a_recirculation_may_end_a_list(w: &World) {
    w.install(1, on(1), "2,pop_vlan,set(skb_mark(0x7)),recirc(0x1)");
    let mut second = again(1, 1);
    second.set(Field::EthType, 0x800);
    second.set(Field::PktMark, 7);
    second.set(Field::Ipv4Dst, crate::behaviour::frames::v4(2).to_bits().into());
    w.install(2, second, "set(ipv4(ttl=7)),3");
    let mut tagged = udp(9);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    for _ in 0..2 {
        w.inject(1, &tagged);
    }
    assert_eq!(w.out(2), vec![tagged.clone(); 2]);
    let out = w.out(3);
    assert_eq!((out.len(), key_of(&out[0], 0).nw_ttl, out[0].len()), (2, 7, udp(9).len()));
    assert_eq!((w.stats(1).packets, w.stats(2).packets), (2, 2));
    assert_eq!((w.stats(1).bytes, w.stats(2).bytes), {
        (2 * tagged.len() as u64, 2 * udp(9).len() as u64)
    });
}

pub fn a_cut_output_may_end_a_list(w: &World) {
    w.install(1, on(1), "set(ipv4(ttl=9)),trunc(60),2");
    w.inject(1, &udp(200));
    w.inject(1, &udp(10));
    let out = w.out(2);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [60, 52]);
    assert!(out.iter().all(|f| f[22] == 9), "TTL");
}

pub fn a_meter_drops_what_exceeds_it(w: &World) {
    let clock = w.fixture().clock();
    clock.stop();
    let meters = w.dp().meters().expect("these datapaths have meters");
    let config = MeterConfig { packets: true, bands: vec![MeterBand { rate: 2, burst: 3 }] };
    meters.set(0, &config).expect("room");
    let set_at = clock.now();
    w.install(1, on(1), "meter(0),3");
    for _ in 0..5 {
        w.inject(1, &udp(76));
    }
    assert_eq!(w.out(3).len(), 3);
    w.fixture().pass(600);
    w.inject(1, &udp(76));
    w.inject(1, &udp(76));
    assert_eq!(w.out(3).len(), 1);
    let stats = meters.stats(0).expect("it is there");
    assert_eq!((stats.packets, stats.bytes), (7, 7 * 118));
    assert_eq!(stats.bands, [(3, 3 * 118)]);
    assert_eq!(stats.since, set_at);
    assert_eq!(w.drops(DropReason::Meter), 3);
    assert_eq!(w.stats(1).packets, 7, "the megaflow counts what its meter drops");

    // Kilobits: 8 kbit are 1,000 bytes, of which one packet of 118 bytes takes 944 bits.
    meters
        .set(1, &MeterConfig { packets: false, bands: vec![MeterBand { rate: 1, burst: 2 }] })
        .expect("room");
    w.install(2, on(2), "meter(1),3");
    for _ in 0..5 {
        w.inject(2, &udp(76));
    }
    assert_eq!(w.out(3).len(), 2);
    w.fixture().pass(1000);
    w.inject(2, &udp(76));
    w.inject(2, &udp(76));
    assert_eq!(w.out(3).len(), 1);
}

pub fn a_removed_meter_passes(w: &World) {
    let meters = w.dp().meters().expect("these datapaths have meters");
    let config = MeterConfig { packets: true, bands: vec![MeterBand { rate: 1, burst: 1 }] };
    meters.set(5, &config).expect("room");
    w.fixture().clock().stop();
    w.install(1, on(1), "meter(5),3");
    w.inject(1, &udp(1));
    w.inject(1, &udp(1));
    assert_eq!(w.out(3).len(), 1);
    assert_eq!(meters.remove(5).expect("it is there").packets, 2);
    assert_eq!((meters.remove(5), meters.stats(5)), (None, None));
    w.inject(1, &udp(1));
    assert_eq!(w.out(3).len(), 1);
    let (count, bands) = meters.limits();
    assert!(meters.set(count, &config).is_err());
    let too_many = vec![MeterBand { rate: 1, burst: 1 }; usize::from(bands) + 1];
    assert!(meters.set(0, &MeterConfig { packets: true, bands: too_many }).is_err());
}

pub fn recirculation_looks_up_again(w: &World) {
    w.install(1, on(1), "pop_vlan,recirc(0x1),2");
    let mut second = again(1, 1);
    second.set(Field::EthType, 0x800);
    second.set(Field::Ipv4Dst, crate::behaviour::frames::v4(2).to_bits().into());
    w.install(2, second, "set(ipv4(ttl=7)),3");
    let mut tagged = udp(9);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    w.inject(1, &tagged);
    assert_eq!(w.out(2), [udp(9)], "what follows recirc has its own packet");
    assert_eq!(key_of(&w.out(3)[0], 0).nw_ttl, 7);
    assert_eq!((w.stats(1).packets, w.stats(2).packets), (1, 1));
    assert_eq!(w.stats(2).bytes, udp(9).len() as u64);
    assert_eq!(w.dp().lookups().hits, 2);
}

/// The first pass has edits that must not be done twice, in any part of the datapath.
pub fn edits_before_a_lookup_that_misses_are_done_once(w: &World) {
    let actions = "set(ipv4(src=10.0.0.9,ttl=63)),push_vlan(vid=3,pcp=0),hash(l4(1)),recirc(0x1)";
    w.install(1, on(1), actions);
    w.answer(|_| World::actions("2"));
    let sent = ipv4().tcp(1000, 2000, 0x12).payload(&[7; 99]).finish();
    for n in 1..4 {
        w.inject(1, &sent);
        let upcalls = w.upcalls();
        assert_eq!(upcalls.len(), 1);
        assert_eq!(upcalls[0].key.recirc_id.get(), 1);
        assert_ne!(upcalls[0].key.dp_hash.get(), 0);
        let out = w.out(2);
        assert_eq!((out.len(), &out[0]), (1, &upcalls[0].frame));
        let key = key_of(&out[0], 0);
        assert_eq!((key.nw_ttl, out[0].len()), (63, sent.len() + 4));
        assert!(has_right_checksums(&out[0]));
        assert_eq!((w.stats(1).packets, w.stats(1).bytes), (n, n * sent.len() as u64));
    }
    assert_eq!(w.stats(1).tcp_flags, 0x12);
}

/// The first pass runs in one place; the second and the third may have to run in another.
pub fn a_packet_stays_or_goes_in_any_pass(w: &World) {
    w.install(1, on(1), "pop_vlan,recirc(0x1)");
    let last = |passes: usize, list: &str| {
        for id in 2..5 {
            w.dp().remove(datapath::Ufid(id));
        }
        for pass in 2..=passes as u32 {
            let actions = match pass == passes as u32 {
                true => list.to_owned(),
                false => {
                    format!("push_vlan(vid={pass},pcp=0),set(ipv4(ttl={pass})),recirc({pass})")
                }
            };
            w.install(pass.into(), again(1, pass - 1), &actions);
        }
    };
    let mut tagged = udp(9);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let tags = |frame: &[u8]| (frame.len() - udp(9).len()) / 4;
    for (passes, list, tags_out) in [
        (2, "2", 0),
        (3, "2", 1),
        (4, "2,3", 2),
        (3, "2,pop_vlan,3", 1),
        (4, "set(skb_mark(0x7)),2", 2),
        (4, "pop_vlan,pop_vlan,2,3,4", 0),
    ] {
        last(passes, list);
        let before: Vec<u64> = (1..=passes as u128).map(|id| w.stats(id).packets).collect();
        for _ in 0..2 {
            w.inject(1, &tagged);
        }
        let out = w.out(2);
        assert_eq!(out.len(), 2, "{list}");
        assert!(out.iter().all(|f| tags(f) == tags_out && has_right_checksums(f)), "{list}");
        let (third, fourth) = (w.out(3).len(), w.out(4).len());
        let expected = |port: &str| if list.contains(port) { 2 } else { 0 };
        assert_eq!((third, fourth), (expected(",3"), expected(",4")), "{list}");
        for (id, before) in (1..).zip(before) {
            assert_eq!(w.stats(id).packets, before + 2, "{list}, pass {id}");
        }
    }
    assert!(DropReason::ALL.iter().all(|reason| w.drops(*reason) == 0));
}

pub fn all_fragments_of_a_packet_have_one_hash(w: &World) {
    let in_v4 = |fragment: u16| {
        let header = Ipv4Header {
            version_ihl: 0x45,
            tos: 0,
            total_len: 0.into(),
            id: 7.into(),
            fragment: fragment.into(),
            ttl: 64,
            proto: 17,
            checksum: 0.into(),
            src: v4(1).to_bits().into(),
            dst: v4(2).to_bits().into(),
        };
        Frame::ethernet(B, A).ipv4_header(header)
    };
    let in_v6 = |fragment: u16| ipv6().ipv6_fragment(fragment, 17, 7);
    let first = |frame: Frame| frame.udp(1000, 2000).payload(&[1; 24]).finish();
    let later = |frame: Frame| frame.payload(&[2; 32]).finish();
    let pairs = [(first(in_v4(0x2000)), later(in_v4(4))), (first(in_v6(1)), later(in_v6(32)))];
    w.install(1, on(1), "hash(l4(5)),recirc(0x9)");
    w.install(2, on(2), "hash(sym_l4(0)),recirc(0x9)");
    for port in 1..=2 {
        for (first, later) in &pairs {
            assert_eq!(key_of(first, port).nw_frag, FRAG_ANY);
            assert_eq!(key_of(first, port).tp_src.get(), 1000);
            assert_eq!(key_of(later, port).nw_frag, FRAG_ANY | FRAG_LATER);
            w.inject(port, first);
            w.inject(port, later);
            let hashes: Vec<u32> = w.upcalls().iter().map(|u| u.key.dp_hash.get()).collect();
            assert_eq!(hashes.len(), 2);
            assert_ne!(hashes[0], 0);
            assert_eq!(hashes[0], hashes[1], "port {port}");
        }
    }
}

pub fn hash_is_seen_after_recirculation(w: &World) {
    w.install(1, on(1), "hash(l4(5)),recirc(0x9)");
    w.install(2, on(2), "set(ipv4(dst=10.0.0.77)),hash(sym_l4(0)),recirc(0x9)");
    w.inject(1, &udp(9));
    w.inject(2, &udp(9));
    let upcalls = w.upcalls();
    let key = key_of(&udp(9), 1);
    assert_eq!(upcalls[0].key.dp_hash.get(), hash::five_tuple(&key, false, 5));
    assert_eq!(upcalls[0].key.recirc_id.get(), 9);
    assert_eq!(upcalls[1].key.dp_hash.get(), hash::five_tuple(&upcalls[1].key, true, 0));
    assert_ne!(
        upcalls[1].key.dp_hash.get(),
        hash::five_tuple(&key, true, 0),
        "the changed address counts"
    );
}

pub fn metadata_survives_recirculation(w: &World) {
    w.install(
        1,
        on(1),
        "set(skb_priority(0x3)),set(skb_mark(0xab)),set(skb_mark(0x1/0xf)),recirc(0x2)",
    );
    w.inject(1, &tcp(2, 0));
    let key = w.upcalls()[0].key;
    assert_eq!((key.skb_priority.get(), key.pkt_mark.get()), (3, 0xa1));
    assert_eq!((key.in_port.get(), key.recirc_id.get(), key.tp_src.get()), (1, 2, 1000));
    let mut marked = again(1, 2);
    marked.set(Field::PktMark, 0xa1);
    w.install(2, marked, "2");
    w.inject(1, &tcp(2, 0));
    assert_eq!(w.out(2).len(), 1);
}

pub fn recirculation_is_limited(w: &World) {
    w.install(1, on(1), "recirc(0x1)");
    w.install(2, again(1, 1), "2,recirc(0x1)");
    w.inject(1, &udp(1));
    assert_eq!(w.out(2).len() as u32, RECIRCULATION_LIMIT);
    assert_eq!(w.drops(DropReason::RecirculationLimit), 1);
    assert_eq!(w.stats(2).packets as u32, RECIRCULATION_LIMIT);
}

pub fn recirculations_by_flows_count_when_an_answer_continues(w: &World) {
    w.install(1, on(1), "recirc(0x1)");
    w.install(2, again(1, 1), "recirc(0x2)");
    w.answer(|_| World::actions("2,recirc(0x3)"));
    w.inject(1, &udp(1));
    // Flows recirculated the packet twice before the miss.
    assert_eq!(w.out(2).len() as u32, RECIRCULATION_LIMIT - 1);
    assert_eq!(w.drops(DropReason::RecirculationLimit), 1);
}

pub fn long_lists_run_whole_in_every_pass(w: &World) {
    let list = |next: &str| format!("{}{next}", "2,3,".repeat(4));
    w.install(1, on(1), &list("recirc(0x1)"));
    w.install(2, again(1, 1), &list("recirc(0x2)"));
    w.install(3, again(1, 2), &list("recirc(0x3)"));
    w.install(4, again(1, 3), &list("4"));
    w.inject(1, &udp(1));
    assert_eq!((w.out(2).len(), w.out(3).len(), w.out(4).len()), (16, 16, 1));
    assert!((1..=4).all(|id| w.stats(id).packets == 1));
    assert!(DropReason::ALL.iter().all(|reason| w.drops(*reason) == 0));
}

pub fn check_pkt_len_branches(w: &World) {
    w.install(1, on(1), "check_pkt_len(size=142,gt(set(ipv4(ttl=1)),2),le(3)),4");
    for (len, port) in [(99, 3), (100, 3), (101, 2)] {
        let frame = udp(len); // 42 bytes of headers
        w.inject(1, &frame);
        assert_eq!(
            (w.out(2).len(), w.out(3).len()),
            if port == 2 { (1, 0) } else { (0, 1) },
            "{len}"
        );
        assert_eq!(w.out(4), std::slice::from_ref(&frame));
        let mut tagged = frame;
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        w.inject(1, &tagged);
        assert_eq!(
            (w.out(2).len(), w.out(3).len()),
            if port == 2 { (1, 0) } else { (0, 1) },
            "{len} tagged"
        );
        assert_eq!(w.out(4), [tagged]);
    }
}

pub fn execute_runs_to_the_end(w: &World) {
    w.answer(|_| World::actions("4"));
    let mut key = Key::ZERO;
    key.in_port.set(PortNo::NONE.0);
    key.pkt_mark.set(6);
    let actions = World::actions("2,set(ipv4(ttl=1)),3,recirc(0x4)");
    w.dp().execute(Packet::from_slice(&udp(1)), &key, &actions);
    assert_eq!(w.out(2), [udp(1)]);
    assert_eq!(key_of(&w.out(3)[0], 0).nw_ttl, 1);
    assert_eq!(w.out(4).len(), 1);
    let seen = &w.upcalls()[0];
    assert_eq!(
        (seen.in_port, seen.key.recirc_id.get(), seen.key.pkt_mark.get()),
        (PortNo::NONE, 4, 6)
    );
    assert_eq!(seen.key.nw_ttl, 1);
    w.dp().execute(Packet::from_slice(&udp(1)), &key, &[]);
    assert_eq!(w.drops(DropReason::Flow), 1);
    let deep = (0..100).fold(Action::PopVlan, |inner, _| Action::Clone(vec![inner]));
    w.dp().execute(Packet::from_slice(&udp(1)), &key, &[deep]);
    assert_eq!(w.drops(DropReason::UnsupportedAction), 1);
}

pub fn drops_have_reasons(w: &World) {
    w.install(1, on(1), "drop");
    w.inject(1, &udp(1));
    assert_eq!(w.drops(DropReason::Flow), 1);
    let actions = vec![Action::Drop(DropReason::TranslationError)].into();
    assert!(w.dp().modify(datapath::Ufid(1), &actions));
    w.inject(1, &udp(1));
    w.inject(1, &ipv4().icmp(8, 0, 1).finish());
    assert_eq!(w.drops(DropReason::TranslationError), 2);
    assert_eq!(w.drops(DropReason::Flow), 1);
    w.answer(|_| Vec::new());
    w.inject(2, &udp(1));
    assert_eq!(w.drops(DropReason::Flow), 2, "an answer without actions is a drop too");
    for reason in DropReason::ALL {
        if !matches!(reason, DropReason::Flow | DropReason::TranslationError) {
            assert_eq!(w.drops(reason), 0, "{}", reason.name());
        }
    }
}
