//! Actions at both hooks give the bytes that the model datapath gives. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use datapath::{Action, Counters, DropReason, Masked, Packets, PortNo, PortSpec, Ports, Set};
use datapath_bpf::encode::{self, Effect};
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::slot::Slot;
use datapath_model::Model;
use fastrand::Rng;
use flow::Key;
use flow::extract::key_of;
use packet::Packet;
use packet::build::Frame;
use support::*;

const EXACT: [u64; WORDS] = [u64::MAX; WORDS];
const REDIRECT: [u32; 2] = [7 /* TC_ACT_REDIRECT */, 4 /* XDP_REDIRECT */];
const DROP: [u32; 2] = [2, 1];

/// The programs of a hook.
struct Site {
    hook: Hook,
    bed: Bed,
}

impl Site {
    fn new(hook: Hook) -> Site {
        Site { hook, bed: Bed::new(hook) }
    }
}

impl std::ops::Deref for Site {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn model() -> Arc<Model> {
    let model = Model::new("model", clock::Clock::new(), 8, 1);
    for n in 1..=OUT_PORT {
        let spec = PortSpec {
            name: format!("p{n}"),
            kind: "system".into(),
            options: BTreeMap::new(),
            other_config: BTreeMap::new(),
            wanted: Some(PortNo(n)),
            mac: None,
            mtu: None,
        };
        model.add_port(&spec).unwrap();
    }
    model
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|b| format!("{b:02x}")).collect()
}

/// What became of a frame: the frame that was sent, or the reason.
type Fate = Result<Vec<u8>, DropReason>;

fn model_fate(model: &Model, frame: &[u8], actions: &[Action]) -> Fate {
    let before = REASONS.map(|r| model.drops(r));
    let key = key_of(frame, IN_PORT);
    model.execute(Packet::from_slice(frame), &key, actions);
    let mut sent = model.take_sent(PortNo(OUT_PORT));
    if let Some(packet) = sent.pop() {
        assert!(sent.is_empty());
        return Ok(packet.data().to_vec());
    }
    let after = REASONS.map(|r| model.drops(r));
    Err(REASONS.into_iter().zip(before.iter().zip(after)).find(|(_, (b, a))| *b != a).unwrap().0)
}

const REASONS: [DropReason; 4] = [
    DropReason::Malformed,
    DropReason::Meter,
    DropReason::OutputTooLong,
    DropReason::RecirculationLimit,
];

/// Installs `actions` for the key of `frame`; false where this hook does not run them.
fn install(bed: &Site, frame: &[u8], actions: &[Action]) -> bool {
    let Ok(encoded) = encode::encode(actions) else { return false };
    let bit = if bed.hook == Hook::Tc { HOOK_TC } else { HOOK_XDP };
    if encoded.hooks.bits() & bit == 0 {
        return false;
    }
    let mut flow = bed.flow(&key_of(frame, IN_PORT), &EXACT);
    match encoded.effect {
        Effect::Output(port) => flow.output = port.0,
        Effect::Drop(reason) => flow.reason = reason as u32,
        Effect::Program(cells) => {
            bed.maps.programs.write(0, &Program { cells: *cells });
            flow.program = 0;
        }
    }
    bed.install(&flow, &EXACT);
    true
}

/// `None`: not run here.
fn bpf_fate(bed: &Site, frame: &[u8], actions: &[Action]) -> Option<Fate> {
    let mut actions = actions.to_vec();
    if bed.hook == Hook::Tc {
        // The tag that is beside the frame in the end is not in what a run gives back. One more
        // puts it into the frame.
        actions.insert(actions.len() - 1, Action::PushVlan { tpid: 0x8100, tci: 1 });
    }
    if !install(bed, frame, &actions) {
        return None;
    }
    let before = bed.counters().drops;
    let Ok((outcome, _)) = bed.repeat(frame, 1) else { return None };
    if bed.stats().packets == 0 {
        return None; // not parsed
    }
    let at = usize::from(bed.hook == Hook::Xdp);
    let after = bed.counters().drops;
    if outcome.verdict == REDIRECT[at] {
        assert_eq!(before, after);
        return Some(Ok(outcome.frame));
    }
    assert_eq!(outcome.verdict, DROP[at]);
    let reason = REASONS.into_iter().find(|r| before[*r as usize] != after[*r as usize]);
    Some(Err(reason.unwrap_or_else(|| panic!("{before:?} {after:?} {actions:?} {}", hex(frame)))))
}

fn check(bed: &Site, model: &Model, frame: &[u8], actions: &[Action]) -> bool {
    let Some(got) = bpf_fate(bed, frame, actions) else { return false };
    let expected = model_fate(model, frame, actions);
    assert!(
        got == expected,
        "{:?} {actions:?}\n     of {}\n    got {:?}\nexpected {:?}",
        bed.hook,
        hex(frame),
        got.map(|f| hex(&f)),
        expected.map(|f| hex(&f))
    );
    true
}

fn masked<T: Copy, const N: usize>(rng: &mut Rng, of: fn([u8; N]) -> T) -> Masked<T> {
    let mask: [u8; N] = match rng.u8(..4) {
        0 => [0; N],
        1 => std::array::from_fn(|_| rng.u8(..)),
        _ => [0xff; N],
    };
    let zero = rng.u8(..5) == 0;
    let value = mask.map(|m| if zero { 0 } else { rng.u8(..) & m });
    Masked { value: of(value), mask: of(mask) }
}

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
    let mut ran = 0;
    for _ in 0..20_000 {
        let frame = make(&mut rng);
        let actions = list(&mut rng, &key_of(&frame, IN_PORT));
        ran += usize::from(check(&bed, &model, &frame, &actions));
    }
    assert!(ran >= at_least, "{ran}");
}

#[test]
fn random_lists_on_sound_frames() {
    if root() {
        random(Hook::Tc, 1, frames::sound, 15_000);
        random(Hook::Xdp, 2, frames::sound, 15_000);
    }
}

#[test]
fn random_lists_on_mangled_frames() {
    if root() {
        random(Hook::Tc, 3, frames::mangled, 15_000);
        random(Hook::Xdp, 4, frames::mangled, 15_000);
    }
}

#[test]
fn the_hash_and_the_key_after_edits_are_those_of_the_model() {
    if !root() {
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

/// `BPF_F_TEST_SKB_CHECKSUM_COMPLETE` (Linux 6.17): the run fails with EBADMSG when skb->csum is not
/// the sum of the packet any more.
#[test]
fn sets_keep_the_sum_that_a_card_computed() {
    if !root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let mut rng = Rng::with_seed(6);
    let flag = libbpf_sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE;
    if bed.test_run(&udp(58), 1, flag).is_err() {
        return; // an older kernel
    }
    let mut ran = 0;
    for _ in 0..20_000 {
        let frame = frames::sound(&mut rng);
        let key = key_of(&frame, IN_PORT);
        let mut actions: Vec<_> =
            (0..rng.usize(1..4)).map(|_| Action::Set(fitting(&mut rng, &key))).collect();
        // Addresses are not behind the network header.
        actions.retain(|a| !matches!(a, Action::Set(Set::Ethernet { .. })));
        actions.push(Action::Output(PortNo(OUT_PORT)));
        if !install(&bed, &frame, &actions) {
            continue;
        }
        if let Err(e) = bed.test_run(&frame, 1, flag) {
            assert_ne!(e.raw_os_error(), Some(libc::EBADMSG), "{actions:?} {}", hex(&frame));
        }
        ran += 1;
    }
    assert!(ran > 15_000, "{ran}");
}

fn udp(payload: usize) -> Vec<u8> {
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let frame = frame.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64).udp(1000, 2000);
    frame.payload(&vec![1; payload]).finish()
}

#[test]
fn lengths_are_checked_and_cut() {
    if !root() {
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
    if !root() {
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
    if !root() {
        return;
    }
    let bed = Site::new(Hook::Tc);
    let frame = udp(58);
    // The flow does not look at recirc_id, so the packet finds it each time.
    let mut mask = EXACT;
    mask[word::RECIRC] = 0;
    assert!(install(&bed, &frame, &[Action::Meter(1), Action::Recirc(1)]));
    let mut flow = Slot::read(&bed.maps, 0);
    (flow.words[word::RECIRC], flow.needs) = (0, flow.needs & !(1 << word::RECIRC));
    bed.install(&flow, &mask);
    assert_eq!(bed.run(&frame).verdict, DROP[0]);
    assert_eq!(bed.stats().packets, 7);
    assert_eq!(bed.counters().drops[DropReason::RecirculationLimit as usize], 1);
}
