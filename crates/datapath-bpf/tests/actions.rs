// SPDX-License-Identifier: Apache-2.0
//! Actions at both hooks give the bytes that the model datapath gives. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use datapath::{Action, DropReason, Masked, PortNo, Set};
use datapath_bpf::encode::{self, Effect};
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::slot::Slot;
use fastrand::Rng;
use flow::Key;
use flow::extract::key_of;
use packet::build::Frame;
use support::fates::*;
use support::*;
use testing::without_root;

fn label(rng: &mut Rng) -> Masked<u32> {
    let Masked { value, mask } = masked(rng, u32::from_be_bytes);
    Masked { value: value & 0xf_ffff, mask: mask & 0xf_ffff }
}

fn set(rng: &mut Rng) -> Set {
    let byte = |[b]: [u8; 1]| b;
    let same = |b| b;
    match rng.u8(..12) {
        0 => Set::Ethernet { src: masked(rng, same), dst: masked(rng, same) },
        1 | 2 => Set::Ipv4 {
            src: masked(rng, |b| b),
            dst: masked(rng, |b| b),
            tos: masked(rng, byte),
            ttl: masked(rng, byte),
        },
        3 | 4 => Set::Ipv6 {
            src: masked(rng, |b| b),
            dst: masked(rng, |b| b),
            label: label(rng),
            tclass: masked(rng, byte),
            hlimit: masked(rng, byte),
        },
        5 => {
            Set::Tcp { src: masked(rng, u16::from_be_bytes), dst: masked(rng, u16::from_be_bytes) }
        }
        6 => {
            Set::Udp { src: masked(rng, u16::from_be_bytes), dst: masked(rng, u16::from_be_bytes) }
        }
        7 => {
            Set::Sctp { src: masked(rng, u16::from_be_bytes), dst: masked(rng, u16::from_be_bytes) }
        }
        8 => Set::Icmp { kind: masked(rng, byte), code: masked(rng, byte), v6: rng.bool() },
        9 => Set::Arp {
            op: masked(rng, u16::from_be_bytes),
            spa: masked(rng, |b| b),
            tpa: masked(rng, |b| b),
            sha: masked(rng, |b| b),
            tha: masked(rng, |b| b),
        },
        10 => {
            Set::Nd { target: masked(rng, |b| b), sll: masked(rng, |b| b), tll: masked(rng, |b| b) }
        }
        _ => Set::NdExtensions {
            reserved: masked(rng, u32::from_be_bytes),
            options_type: masked(rng, byte),
        },
    }
}

/// A set that the packet has the header for.
fn fitting(rng: &mut Rng, key: &Key) -> Set {
    loop {
        let set = set(rng);
        let kind = key.dl_type.get();
        let fits = match set {
            Set::Ethernet { .. } => true,
            Set::Ipv4 { .. } => kind == 0x800,
            Set::Ipv6 { .. } => kind == 0x86dd,
            Set::Tcp { .. } => key.nw_proto == 6,
            Set::Udp { .. } => key.nw_proto == 17,
            Set::Sctp { .. } => key.nw_proto == 132,
            Set::Icmp { v6, .. } => key.nw_proto == if v6 { 58 } else { 1 },
            Set::Arp { .. } => matches!(kind, 0x806 | 0x8035),
            _ => key.nw_proto == 58,
        };
        if fits || rng.u8(..16) == 0 {
            return set;
        }
    }
}

/// The same list with a copy to one more port.
fn with_copy(mut actions: Vec<Action>) -> Vec<Action> {
    actions.push(Action::Output(PortNo(OTHER_PORT)));
    actions
}

fn list(rng: &mut Rng, key: &Key) -> Vec<Action> {
    let mut actions = Vec::new();
    for _ in 0..rng.usize(1..5) {
        let mpls = if rng.bool() { 0x8847 } else { 0x8848 };
        actions.push(match rng.u8(..14) {
            0 | 1 => {
                let tpid = if rng.bool() { 0x8100 } else { 0x88a8 };
                Action::PushVlan { tpid, tci: rng.u16(..) | 0x1000 }
            }
            2 | 3 => Action::PopVlan,
            4 => Action::PushMpls { lse: rng.u32(..), ethertype: mpls },
            5 => Action::Set(Set::Mpls(masked(rng, u32::from_be_bytes))),
            6 => {
                let ethertype = if rng.bool() { 0x800 } else { mpls };
                actions.push(Action::PopMpls { ethertype });
                break;
            }
            _ => Action::Set(fitting(rng, key)),
        });
    }
    actions.push(Action::Output(PortNo(OUT_PORT)));
    actions
}

fn random(hook: Hook, seed: u64, make: fn(&mut Rng) -> Vec<u8>, at_least: usize) {
    let (bed, model) = (Site::new(hook), model());
    let mut rng = Rng::with_seed(seed);
    let (mut ran, mut copied) = (0, 0);
    for _ in 0..20_000 {
        let frame = make(&mut rng);
        let mut actions = list(&mut rng, &key_of(&frame, IN_PORT));
        // At tc a copy is sent at once, by a device.
        let copies = hook == Hook::Xdp && rng.u8(..4) == 0;
        if copies {
            actions = with_copy(actions);
        }
        let done = check(&bed, &model, &frame, &actions);
        ran += usize::from(done);
        copied += usize::from(done && copies);
    }
    assert!(ran >= at_least, "{ran}");
    assert!(hook == Hook::Tc || copied > at_least / 8, "{copied}");
}

#[test]
fn lists_are_read_back_from_programs() {
    let mut rng = Rng::with_seed(9);
    let mut read = 0;
    for _ in 0..5_000 {
        let frame = frames::sound(&mut rng);
        let actions = list(&mut rng, &key_of(&frame, IN_PORT));
        let Ok(encoded) = encode::encode(&actions) else { continue };
        if let Effect::Program(cells) = encoded.effect {
            assert_eq!(datapath_bpf::decode::actions(&cells, &|_| None), actions);
            read += 1;
        }
    }
    assert!(read > 3_000, "{read}");
}

#[test]
fn random_lists_on_sound_frames() {
    if !without_root() {
        random(Hook::Tc, 1, frames::sound, 15_000);
        random(Hook::Xdp, 2, frames::sound, 15_000);
    }
}

#[test]
fn random_lists_on_mangled_frames() {
    if !without_root() {
        random(Hook::Tc, 3, frames::mangled, 15_000);
        random(Hook::Xdp, 4, frames::mangled, 15_000);
    }
}

/// Pushes headers after edits, and edits the outer frame.
fn pushes(hook: Hook, seed: u64, make: fn(&mut Rng) -> Vec<u8>, has_checksum: bool) {
    let bed = Site::new(hook);
    let model = bed.model();
    let mut rng = Rng::with_seed(seed);
    let mut ran = 0;
    for _ in 0..6_000 {
        let frame = make(&mut rng);
        let mut actions = match rng.u8(..3) {
            0 => list(&mut rng, &key_of(&frame, IN_PORT)),
            1 => {
                vec![Action::PushVlan { tpid: 0x8100, tci: rng.u16(..) | 0x1000 }, Action::PopVlan]
            }
            _ => vec![Action::PopVlan],
        };
        actions.pop();
        actions.push(tunnels::push(tunnels::header(&mut rng, has_checksum)));
        if rng.bool() {
            let port = masked(&mut rng, u16::from_be_bytes);
            actions.push(match rng.u8(..3) {
                0 => Action::PushVlan { tpid: 0x8100, tci: 0x1005 },
                1 => Action::Set(Set::Udp { src: port, dst: Masked::default() }),
                _ => Action::Set(Set::Ipv4 {
                    src: masked(&mut rng, |b| b),
                    dst: Masked::default(),
                    tos: masked(&mut rng, |[b]| b),
                    ttl: Masked::default(),
                }),
            });
        }
        actions.push(Action::Output(PortNo(OUT_PORT)));
        let Some(got) = bpf_fate(&bed, &frame, &actions) else { continue };
        let mut expected = model_fate(&model, &frame, &actions);
        if let (Ok(expected), Ok(got)) = (&mut expected, &got) {
            let tag = if expected[12..14] == [0x81, 0] { 4 } else { 0 };
            assert_eq!(got.get(..12 + tag), expected.get(..12 + tag));
            tunnels::take_identification(&mut expected[tag..], &got[tag..]);
        }
        assert_same(&bed, &frame, &actions, (got, expected));
        ran += 1;
    }
    assert!(ran >= 3_500, "{ran}");
}

#[test]
fn headers_of_tunnels_are_pushed_as_the_model_pushes_them() {
    if !without_root() {
        pushes(Hook::Tc, 11, frames::sound, false);
        pushes(Hook::Xdp, 12, frames::sound, false);
        pushes(Hook::Tc, 13, frames::mangled, false);
        pushes(Hook::Xdp, 14, frames::mangled, false);
    }
}

#[test]
fn packets_of_a_tunnel_are_numbered() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        tunnels::put_port(&bed.maps, 0xffff_fffe);
        let actions = [tunnels::push(tunnels::numbered_gre()), Action::Output(PortNo(OUT_PORT))];
        let frame = udp(60);
        assert!(install(&bed, &frame, &actions));
        for number in [0xffff_fffe, 0xffff_ffff, 0, 1u32] {
            let outcome = bed.run(&frame);
            assert_eq!(outcome.verdict, REDIRECT[usize::from(hook == Hook::Xdp)]);
            assert_eq!(outcome.frame[38..42], number.to_be_bytes());
        }
        // The daemon judges packets of a tunnel that is not there.
        bed.maps.ports.zero(tunnels::TUNNEL_PORT as usize);
        let outcome = bed.run(&frame);
        assert_eq!(outcome.verdict, if hook == Hook::Xdp { PASS } else { DROP[0] });
        assert_eq!(outcome.frame, frame);
    }
}

/// Pushes headers without an Ethernet header inside.
fn bare_pushes(hook: Hook, seed: u64, make: fn(&mut Rng) -> Vec<u8>, with_checksum: bool) {
    let bed = Site::new(hook);
    let model = bed.model();
    let (mut rng, mut ran) = (Rng::with_seed(seed), 0);
    for _ in 0..6_000 {
        let frame = make(&mut rng);
        let has_checksum = with_checksum && rng.bool();
        let mut actions = Vec::new();
        if rng.bool() {
            actions.push(Action::PopVlan);
        }
        actions.push(Action::PopEth);
        actions.push(tunnels::push(tunnels::bare_header(&mut rng, has_checksum)));
        actions.push(Action::Output(PortNo(OUT_PORT)));
        let of_model = actions.clone();
        if hook == Hook::Tc {
            // As in bpf_fate().
            actions.insert(actions.len() - 1, Action::PushVlan { tpid: 0x8100, tci: 1 });
        }
        assert!(install(&bed, &frame, &actions));
        let Ok((outcome, _)) = bed.repeat(&frame, 1) else { continue };
        let mut expected = model_fate(&model, &frame, &of_model);
        if outcome.verdict != REDIRECT[usize::from(hook == Hook::Xdp)] {
            // The packet is for the next hook or the daemon.
            assert!(hook == Hook::Tc || outcome.frame == frame || expected.is_err());
            continue;
        }
        let expected = expected.as_mut().unwrap();
        tunnels::take_identification(expected, &outcome.frame);
        assert_eq!(hex(&outcome.frame), hex(expected), "{hook:?} {actions:?} {}", hex(&frame));
        ran += 1;
    }
    assert!(ran >= 400, "{ran}");
}

#[test]
fn packets_lose_their_ethernet_header_before_those_of_layer_3_tunnels() {
    if !without_root() {
        bare_pushes(Hook::Tc, 31, frames::sound, true);
        bare_pushes(Hook::Xdp, 32, frames::sound, true);
        bare_pushes(Hook::Tc, 33, frames::mangled, false);
        bare_pushes(Hook::Xdp, 34, frames::mangled, false);
    }
}

#[test]
fn outer_checksums_are_those_of_all_bytes() {
    if !without_root() {
        pushes(Hook::Tc, 15, frames::sound, true);
        pushes(Hook::Xdp, 16, frames::sound, true);
    }
}

/// Bits of the fields by which the exact-match cache knows packets.
fn memorable() -> [u64; WORDS] {
    let mut mask = EXACT;
    mask[word::RECIRC..].fill(0);
    mask
}

#[test]
fn a_packet_that_the_cache_knows_gets_the_same_headers() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        let model = bed.model();
        let (mut rng, mask) = (Rng::with_seed(21), memorable());
        for round in 0..400 {
            let mut frame = udp(rng.usize(..200));
            if rng.bool() {
                frame[40..42].fill(0); // no checksum: the outer one is a sum of all bytes
            }
            let has_checksum = rng.bool();
            let header = tunnels::header(&mut rng, has_checksum);
            let mut actions = vec![tunnels::push(header), Action::Output(PortNo(OUT_PORT))];
            if rng.bool() {
                actions.insert(1, Action::PushVlan { tpid: 0x8100, tci: 0x1005 });
            }
            let of_model = actions.clone();
            if hook == Hook::Tc {
                // As in bpf_fate().
                actions.insert(actions.len() - 1, Action::PushVlan { tpid: 0x8100, tci: 1 });
            }
            let key = key_of(&frame, IN_PORT);
            let mut flow = bed.flow(&key, &mask);
            bed.put_program(&mut flow, &actions);
            bed.install(&flow, &mask);
            // The first run puts the flow into the cache. The others pass over the interpreter.
            let mut calls = Vec::new();
            for packets in 1..=3 {
                let outcome = bed.run(&frame);
                assert_eq!(outcome.verdict, REDIRECT[usize::from(hook == Hook::Xdp)], "{round}");
                let mut expected = model_fate(&model, &frame, &of_model).unwrap();
                let tag = if expected[12..14] == [0x81, 0] { 4 } else { 0 };
                tunnels::take_identification(&mut expected[tag..], &outcome.frame[tag..]);
                assert_eq!(hex(&outcome.frame), hex(&expected), "{hook:?} {round} {actions:?}");
                assert_eq!(bed.stats().packets, packets);
                assert_eq!(bed.stats().bytes, packets * frame.len() as u64);
                calls.push(bed.state().calls);
            }
            assert_eq!(calls, [calls[0], calls[0] - 1, calls[0] - 1]);
        }
    }
}

#[test]
fn the_hash_and_the_key_after_edits_are_those_of_the_model() {
    if without_root() {
        return;
    }
    let (bed, model) = (Site::new(Hook::Tc), model());
    let mut rng = Rng::with_seed(5);
    let mut hashed = 0;
    for _ in 0..10_000 {
        let frame = if rng.bool() { frames::sound(&mut rng) } else { frames::mangled(&mut rng) };
        let (symmetric, basis) = (rng.bool(), rng.u32(..));
        let mut actions = list(&mut rng, &key_of(&frame, IN_PORT));
        let Ok(sent) = model_fate(&model, &frame, &actions) else { continue };
        if actions.iter().any(|a| matches!(a, Action::PopMpls { .. })) {
            continue;
        }
        actions.pop();
        actions.extend([Action::Hash { symmetric, basis }, Action::Recirc(7)]);
        if !install(&bed, &frame, &actions) {
            continue;
        }
        let before = bed.counters().walked;
        if bed.repeat(&frame, 1).is_err() {
            continue;
        }
        // Once for each lookup; the others were not parsed.
        if bed.counters().walked != before + 2 {
            continue;
        }
        let mut expected = key_of(&sent, IN_PORT);
        let hash = datapath::hash::five_tuple(&expected, symmetric, basis);
        expected.recirc_id.set(7);
        expected.dp_hash.set(hash);
        assert_eq!(bed.last_key(), expected, "{actions:?} {}", hex(&frame));
        hashed += 1;
    }
    assert!(hashed > 3_000, "{hashed}");
}

#[test]
fn sets_keep_the_sum_that_a_card_computed() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let mut rng = Rng::with_seed(6);
    if !has_sums(&bed) {
        return; // an older kernel
    }
    let mut ran = 0;
    for _ in 0..20_000 {
        let frame = frames::sound(&mut rng);
        let key = key_of(&frame, IN_PORT);
        let mut actions: Vec<_> =
            (0..rng.usize(1..4)).map(|_| Action::Set(fitting(&mut rng, &key))).collect();
        // Addresses of the Ethernet header come before the network header.
        actions.retain(|a| !matches!(a, Action::Set(Set::Ethernet { .. })));
        actions.push(Action::Output(PortNo(OUT_PORT)));
        if !install(&bed, &frame, &actions) {
            continue;
        }
        assert_sum_is_kept(&bed, &frame, &actions);
        ran += 1;
    }
    assert!(ran > 15_000, "{ran}");
}

/// The room for headers, and they, become part of the sum.
#[test]
fn pushes_keep_the_sum_that_a_card_computed() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let mut rng = Rng::with_seed(17);
    if !has_sums(&bed) {
        return; // an older kernel
    }
    let mut ran = 0;
    for _ in 0..4_000 {
        let frame = frames::sound(&mut rng);
        let mut actions = vec![];
        // The sum after the kernel has taken a tag out of the frame is not examined here.
        let is_tagged = matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
        if rng.bool() && !is_tagged {
            actions.push(Action::PushVlan { tpid: 0x8100, tci: rng.u16(..) | 0x1000 });
        }
        let has_checksum = rng.bool();
        actions.push(tunnels::push(tunnels::header(&mut rng, has_checksum)));
        actions.push(Action::Output(PortNo(OUT_PORT)));
        if !install(&bed, &frame, &actions) {
            continue;
        }
        ran += usize::from(assert_sum_is_kept(&bed, &frame, &actions));
    }
    assert!(ran > 2_500, "{ran}");
}

/// A packet that is to be segmented, of no kind that the kernel segments, is left as it was.
#[test]
fn a_packet_that_the_kernel_cannot_segment_goes_up_at_the_push() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let frame = udp(1000);
    let header = tunnels::header(&mut Rng::with_seed(1), false);
    let set = Set::Priority(7);
    let actions = [Action::Set(set), tunnels::push(header), Action::Output(PortNo(OUT_PORT))];
    assert!(install(&bed, &frame, &actions));
    let outcome = bed.run_gso(&frame, 100);
    assert_eq!(outcome.verdict, DROP[0], "there is no miss device");
    assert_eq!(outcome.frame, frame);
    assert_eq!(bed.counters().drops[DropReason::UpcallLimit as usize], 1);
    assert_eq!(bed.state().pc, 1, "the place of the push");
}

#[test]
fn a_packet_too_long_for_its_path_is_left_as_it_was() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        let header = tunnels::header(&mut Rng::with_seed(2), false);
        let outer = (header.bytes().len() - 14) as u16;
        let header = header.with_path_mtu(Some(outer + 200));
        let keep = Masked { value: [0; 6], mask: [0; 6] };
        let address = Masked { value: [9; 6], mask: [0xff; 6] };
        let set = || Action::Set(Set::Ethernet { src: address, dst: keep });
        let tag = || Action::PushVlan { tpid: 0x8100, tci: 0x1005 };
        for (before, added, len) in [
            (vec![], 0, 200),
            (vec![], 0, 201),
            (vec![set()], 0, 200),
            (vec![set()], 0, 201),
            (vec![set(), tag()], 4, 196),
            (vec![set(), tag()], 4, 197),
        ] {
            let frame = udp(len - 42);
            let push = tunnels::push(header.clone());
            let actions = [before, vec![push, Action::Output(PortNo(OUT_PORT))]].concat();
            assert!(install(&bed, &frame, &actions));
            let before = bed.counters();
            let outcome = bed.run(&frame);
            let after = bed.counters();
            let at = usize::from(hook == Hook::Xdp);
            if len + added == 200 {
                assert_eq!(outcome.verdict, REDIRECT[at]);
                assert_eq!(outcome.frame.len(), usize::from(outer) + 14 + 200);
                assert!(outcome.frame.ends_with(&frame[14..]));
                continue;
            }
            assert_eq!(bed.state().pc, 0, "the first instruction");
            assert_eq!(outcome.frame, frame);
            let up = DropReason::UpcallLimit as usize; // there is no miss device
            let left = match hook {
                Hook::Tc => (DROP[0], after.drops[up] - before.drops[up]),
                Hook::Xdp => (PASS, after.passed - before.passed),
            };
            assert_eq!((outcome.verdict, left.1), (left.0, 1));
        }
    }
}

fn udp(payload: usize) -> Vec<u8> {
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let frame = frame.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64).udp(1000, 2000);
    frame.payload(&vec![1; payload]).finish()
}

#[test]
fn lengths_are_checked_and_cut() {
    if without_root() {
        return;
    }
    let model = model();
    let out = Action::Output(PortNo(OUT_PORT));
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        for (len, tagged) in [(99, false), (100, false), (101, false), (100, true), (101, true)] {
            let mut frame = udp(len - 42);
            if tagged {
                frame.splice(12..12, [0x81, 0, 0, 5]);
            }
            let mark = |b| Set::Ethernet {
                src: Masked { value: [b; 6], mask: [0xff; 6] },
                dst: Masked::default(),
            };
            let branches = [Action::CheckPktLen {
                len: 100,
                greater: vec![Action::Set(mark(1)), out.clone()],
                not_greater: vec![Action::Set(mark(2)), out.clone()],
            }];
            assert!(install(&bed, &frame, &branches));
            let expected = model_fate(&model, &frame, &branches).unwrap();
            assert_eq!(bed.run(&frame).frame, expected, "{hook:?} {len} {tagged}");
        }
        if hook == Hook::Xdp {
            for cut in [0, 13, 14, 60, 100, 5000] {
                let frame = udp(58);
                assert!(check(&bed, &model, &frame, &[Action::Trunc(cut), out.clone()]));
            }
        }
    }
}

#[test]
fn a_meter_lets_its_burst_pass_and_counts_the_highest_exceeded_band() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        let hour = 3_600_000_000_000;
        // One packet an hour with bursts of 3; two an hour with bursts of 5.
        let mut meter: Meter = zerocopy::FromZeros::new_zeroed();
        (meter.in_use, meter.per_packet) = (1, 1);
        (meter.bands[0].cost, meter.bands[0].depth) = (hour * 1000, 3 * hour);
        (meter.bands[1].cost, meter.bands[1].depth) = (hour * 500, 5 * hour / 2);
        bed.maps.meters.write(9, &meter);
        let frame = udp(58);
        let metered = [Action::Meter(9), Action::Output(PortNo(OUT_PORT))];
        assert!(install(&bed, &frame, &metered));
        let at = usize::from(hook == Hook::Xdp);
        let passed = (0..8).filter(|_| bed.run(&frame).verdict == REDIRECT[at]).count();
        assert_eq!(passed, 3);
        let meter: Meter = bed.maps.meters.read(9);
        assert_eq!((meter.packets, meter.bytes), (8, 800));
        assert_eq!((meter.bands[0].packets, meter.bands[0].bytes), (2, 200));
        assert_eq!((meter.bands[1].packets, meter.bands[1].bytes), (3, 300));
        assert_eq!(bed.counters().drops[DropReason::Meter as usize], 5);
        // One that is not there passes.
        let absent = [Action::Meter(10), Action::Output(PortNo(OUT_PORT))];
        assert!(install(&bed, &frame, &absent));
        assert_eq!(bed.run(&frame).verdict, REDIRECT[at]);
    }
}

#[test]
fn a_packet_is_looked_up_again_no_more_than_six_times() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Site::new(hook);
        let frame = udp(58);
        // The flow does not match recirc_id, so the packet finds it each time.
        let mut mask = EXACT;
        mask[word::RECIRC] = 0;
        assert!(install(&bed, &frame, &[Action::Recirc(1)]));
        let mut flow = Slot::read(&bed.maps, 0);
        (flow.words[word::RECIRC], flow.needs) = (0, flow.needs & !(1 << word::RECIRC));
        bed.install(&flow, &mask);
        for times in 1..4 {
            assert_eq!(bed.run(&frame).verdict, DROP[usize::from(hook == Hook::Xdp)]);
            assert_eq!(bed.stats().packets, times * 7, "{hook:?}");
            assert_eq!(bed.counters().drops[DropReason::RecirculationLimit as usize], times);
        }
    }
}

/// A packet that finds no flow when it is looked up again goes on as it came, and is not counted:
/// the next hook does all of it.
#[test]
fn what_xdp_leaves_after_edits_is_as_it_came() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Xdp);
    let mut rng = Rng::with_seed(7);
    let (mut left, mut edited) = (0, 0);
    for _ in 0..20_000 {
        let frame = if rng.bool() { frames::sound(&mut rng) } else { frames::mangled(&mut rng) };
        let mut actions = list(&mut rng, &key_of(&frame, IN_PORT));
        actions.pop();
        actions.push(Action::Recirc(7));
        if !install(&bed, &frame, &actions) {
            continue;
        }
        let before = bed.counters();
        let Ok((outcome, _)) = bed.repeat(&frame, 1) else { continue };
        if outcome.verdict == DROP[1] {
            assert_eq!(bed.stats().packets, 1, "{actions:?} {}", hex(&frame));
            continue;
        }
        assert_eq!((outcome.verdict, bed.stats().packets), (PASS, 0));
        assert_eq!(hex(&outcome.frame), hex(&frame), "{actions:?}");
        let after = bed.counters();
        assert_eq!((after.passed, after.drops), (before.passed + 1, before.drops));
        left += 1;
        edited += usize::from(after.walked == before.walked + 2);
    }
    assert!(left > 5_000 && edited > 5_000, "{left} {edited}");
}

/// Headers beyond the kept part of the frame: the packet goes on before it is changed.
#[test]
fn what_could_not_be_undone_is_left_first() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Xdp);
    let port = Masked { value: 9, mask: 0xffff };
    let ports = Set::Udp { src: port, dst: port };
    let actions = [Action::Set(ports), Action::Recirc(7)];
    for (options, walks) in [(40, 2), (112, 2), (120, 1), (400, 1)] {
        let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6(1.into(), 2.into(), 64)
            .ipv6_extension(60, &vec![0; options - 2])
            .udp(1, 2)
            .payload(&[1; 300])
            .finish();
        assert!(install(&bed, &frame, &actions));
        let before = bed.counters();
        let outcome = bed.run(&frame);
        assert_eq!((outcome.verdict, hex(&outcome.frame)), (PASS, hex(&frame)));
        assert_eq!(bed.counters().walked - before.walked, walks, "{options}");
        assert_eq!(bed.stats().packets, 0);
    }
}

#[test]
fn copies_are_left_to_tc_when_a_port_does_not_take_them() {
    if without_root() {
        return;
    }
    let bed = Site::new(Hook::Xdp);
    let push = Action::PushVlan { tpid: 0x8100, tci: 0x1005 };
    let run = |frame: &[u8], port: u32| {
        let outputs = [OUT_PORT, port].map(|p| Action::Output(PortNo(p)));
        let actions: Vec<Action> = [push.clone()].into_iter().chain(outputs).collect();
        assert!(install(&bed, frame, &actions));
        let before = bed.counters();
        let outcome = bed.run(frame);
        let after = bed.counters();
        assert_eq!(after.drops, before.drops);
        let passed = after.passed - before.passed;
        assert_eq!(bed.stats().packets + passed, 1);
        if passed == 1 {
            assert_eq!((outcome.verdict, hex(&outcome.frame)), (PASS, hex(frame)));
        } else {
            assert_eq!((outcome.verdict, outcome.frame.len()), (REDIRECT[1], frame.len() + 4));
        }
        passed == 0
    };
    assert!(run(&udp(58), OTHER_PORT));
    assert!(!run(&udp(58), DOWN_PORT));
    assert!(!run(&udp(58), STACK_PORT));
    assert!(!run(&udp(58), NO_SUCH_PORT));
    // With the tag no longer than the port's MTU of 100 allows.
    assert!(run(&udp(68), SMALL_PORT));
    assert!(!run(&udp(69), SMALL_PORT));
    // The ingress port may be down: it is left out.
    let excluded = |port: u32| {
        let set = bed.put_set(&[OTHER_PORT as u16, port as u16]);
        let mut program = bed.maps.programs.read(0);
        (program.set, program.exclude) = (set.0 + 1, 1);
        bed.maps.programs.write(0, &program);
        bed.maps.port_sets.read(usize::from(set.0)).blocked_port
    };
    run(&udp(58), OTHER_PORT);
    assert_eq!(excluded(DOWN_PORT), DOWN_PORT);
    assert_eq!(bed.run(&udp(58)).verdict, PASS, "another port than that of the packet");
    let in_port = bed.maps.ports.read(IN_PORT as usize);
    bed.maps.ports.write(IN_PORT as usize, &Port { flags: 0, ..in_port });
    assert_eq!(excluded(IN_PORT), IN_PORT);
    assert_eq!(bed.run(&udp(58)).verdict, REDIRECT[1]);
}

/// Frames in several buffers: a page does not hold them.
#[test]
fn frames_in_several_buffers_are_edited_and_left_as_others() {
    if without_root() {
        return;
    }
    if !datapath_bpf::load::have_frags() {
        testing::skip("before Linux 6.3 XDP does not redirect frames in several buffers");
        return;
    }
    let (bed, model) = (Site::new(Hook::Xdp), model_with_mtu(9000));
    for port in [IN_PORT, OUT_PORT, OTHER_PORT] {
        let entry = bed.maps.ports.read(port as usize);
        bed.maps.ports.write(port as usize, &Port { mtu: 9000, ..entry });
    }
    let mut rng = Rng::with_seed(8);
    let mut split = 0;
    let is_left = |frame: &[u8], actions: &[Action]| {
        if install(&bed, frame, actions) {
            let outcome = bed.run(frame);
            assert_eq!((outcome.verdict, bed.stats().packets), (PASS, 0));
            assert!(outcome.frame == frame);
        }
    };
    for round in 0..2_000 {
        let mut frame = udp(rng.usize(3_000..8_900));
        if rng.bool() {
            frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(1.into(), 2.into(), 64)
                .tcp(1, 2, 0x10)
                .payload(&vec![round as u8; rng.usize(3_000..8_900)])
                .finish();
        }
        if rng.bool() {
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        let is_split = frame.len() > 3_600;
        split += usize::from(is_split);
        let mut actions = list(&mut rng, &key_of(&frame, IN_PORT));
        match rng.u8(..4) {
            0 => {
                let out = actions.pop().unwrap();
                actions.extend([Action::Trunc(rng.u32(14..9_000)), out]);
                // Such are not cut here.
                if is_split {
                    is_left(&frame, &actions);
                    continue;
                }
            }
            // Copies have one buffer.
            1 if is_split => {
                is_left(&frame, &with_copy(actions));
                continue;
            }
            2 => {
                actions.pop();
                actions.push(Action::Recirc(7));
                if install(&bed, &frame, &actions) {
                    let outcome = bed.run(&frame);
                    assert!(outcome.verdict == DROP[1] || outcome.frame == frame, "{actions:?}");
                }
                continue;
            }
            _ => {}
        }
        check(&bed, &model, &frame, &actions);
    }
    assert!(split > 1_000, "{split}");
}
