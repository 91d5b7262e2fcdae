// SPDX-License-Identifier: Apache-2.0
//! Packets of tunnels by `BPF_PROG_RUN` at both hooks, against the crate `tunnel`. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use datapath::{Action, Masked, PortNo, Set};
use datapath_bpf::keys;
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::slot::Slot;
use fastrand::Rng;
use flow::{Field, Key, Mask};
use packet::{Offload, Packet, checksum};
use support::*;
use testing::without_root;
use tunnel::{Checks, DecodeError, Kind, Metadata, PortConfig};

const EXACT: [u64; WORDS] = [u64::MAX; WORDS];
const TUNNEL_PORT: u32 = 9;
const OUTER: u32 = 0;
const INNER: u32 = 1;
const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];
/// A packet that is redirected, at tc and at XDP.
const REDIRECT: [u32; 2] = [7, 4];
/// One that leaves: no miss device drops it at tc, and XDP passes it on.
const LEFT: [u32; 2] = [2, 2];

/// The tunnels of programs, with the configuration of their port.
fn tunnels() -> [(TunnelKind, PortConfig); 5] {
    let with_policy = PortConfig { has_group_policy: true, ..PortConfig::new(Kind::Vxlan) };
    [
        (TunnelKind::Vxlan, PortConfig::new(Kind::Vxlan)),
        (TunnelKind::VxlanGbp, with_policy),
        (TunnelKind::Geneve, PortConfig::new(Kind::Geneve)),
        (TunnelKind::Gre, PortConfig::new(Kind::Gre)),
        (TunnelKind::Erspan, PortConfig::new(Kind::Erspan)),
    ]
}

/// Known options: class, type and words of data.
const OPTIONS: [[u8; 4]; 4] = [[1, 2, 0x80, 1], [1, 3, 1, 2], [1, 2, 5, 0], [0, 0, 0, 2]];
/// The entry of ERSPAN's fields, after them.
const ERSPAN: [u8; 4] = [0, 0, 0, 0xe2];

fn option_table() -> [TunnelOption; TUNNEL_OPTIONS] {
    let mut at = 4;
    std::array::from_fn(|n| {
        let known = OPTIONS.get(n).or_else(|| (n == OPTIONS.len()).then_some(&ERSPAN));
        let Some(header) = known else { return TunnelOption::default() };
        let bytes = (header[3] & 0x1f) * 4;
        let header = u32::from_ne_bytes(*header);
        let option = TunnelOption { header, at, bytes, in_use: 1, pad: 0 };
        at += bytes;
        option
    })
}

/// A hook with a tunnel port, and a flow for all packets of the ingress port that pops.
fn bed(hook: Hook, kind: TunnelKind) -> Bed {
    let bed = Bed::new(hook);
    let port = Port { tunnel: kind as u32, upcall_limit: 4, ..Port::default() };
    bed.maps.ports.write(TUNNEL_PORT as usize, &port);
    let config = ConfigEntry { options: option_table(), ..bed.maps.config.read(0) };
    bed.maps.config.write(0, &config);
    let mut mask = Mask::WILDCARD;
    mask.set_exact(Field::InPort);
    mask.set_exact(Field::RecircId);
    let mask = keys::to_words(&mask.0);
    let mut key = Key::ZERO;
    key.in_port.set(IN_PORT);
    let pop = Slot { flags: FLOW_POP, tunnel: TUNNEL_PORT, ..bed.flow(&key, &mask) };
    bed.put(OUTER, &pop, &mask);
    bed
}

/// The words of a packet; `None`: an option is not known, there twice, or cut off.
fn words_of(key: &Key, metadata: &Metadata) -> Option<[u64; WORDS]> {
    let mut words = keys::to_words(key);
    let mut bytes: Vec<u8> = vec![0; 32];
    for tlv in metadata.options.tlvs() {
        let tlv = tlv.ok()?;
        let [a, b] = tlv.class.to_be_bytes();
        let header = [a, b, tlv.kind, (tlv.data.len() / 4) as u8];
        let bit = OPTIONS.iter().position(|known| *known == header)?;
        if bytes[0] >> bit & 1 != 0 {
            return None;
        }
        bytes[0] |= 1 << bit;
        let at = usize::from(option_table()[bit].at);
        bytes[at..at + tlv.data.len()].copy_from_slice(tlv.data);
    }
    let tunnel = &key.tunnel;
    if tunnel.erspan_ver != 0 {
        bytes[1] = 1;
        let at = usize::from(option_table()[OPTIONS.len()].at);
        bytes[at..at + 3].copy_from_slice(&[
            tunnel.erspan_ver,
            tunnel.erspan_dir,
            tunnel.erspan_hwid,
        ]);
        bytes[at + 4..at + 8].copy_from_slice(&tunnel.erspan_idx.get().to_be_bytes());
    }
    for (n, chunk) in bytes.chunks_exact(8).enumerate() {
        words[word::OPT0 + n] = u64::from_ne_bytes(chunk.try_into().unwrap());
    }
    Some(words)
}

fn options(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..4) {
        let mut header = OPTIONS[rng.usize(..OPTIONS.len())];
        if rng.u8(..8) == 0 {
            header[rng.usize(..3)] ^= 1 << rng.u8(..8);
        }
        header[3] |= rng.u8(..8) << 5; // reserved
        bytes.extend(header);
        bytes.extend((0..(header[3] & 0x1f) * 4).map(|_| rng.u8(..)));
    }
    bytes
}

/// The header after IP, with the payload.
fn transport(rng: &mut Rng, kind: TunnelKind, inner: &[u8]) -> (u8, Vec<u8>) {
    let key: [u8; 4] = [rng.u8(..), rng.u8(..), rng.u8(..), 0];
    let header = match kind {
        TunnelKind::Geneve => {
            let options = options(rng);
            let first =
                [(options.len() / 4) as u8, 0x3f & rng.u8(..) | rng.u8(..2) << 7, 0x65, 0x58];
            [&first[..], &key[..], &options[..]].concat()
        }
        TunnelKind::VxlanGbp if rng.bool() => {
            [&[0x88, [0, 0x40, 8, 0x48][rng.usize(..4)], rng.u8(..), rng.u8(..)][..], &key[..]]
                .concat()
        }
        TunnelKind::Gre => {
            let bits = rng.u8(..8) << 4 & 0x30 | if rng.bool() { 0x80 } else { 0 };
            let mut header = vec![bits, 0, 0x65, 0x58];
            for bit in [0x80, 0x20, 0x10].into_iter().filter(|bit| bits & bit != 0) {
                header.extend(if bit == 0x80 { [0; 4] } else { [rng.u8(..); 4] });
            }
            let mut all = [header, inner.to_vec()].concat();
            if bits & 0x80 != 0 {
                let sum = checksum::internet(&all);
                all[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            return (47, all);
        }
        TunnelKind::Erspan => {
            let version = rng.u8(1..3);
            let protocol = if version == 1 { [0x88, 0xbe] } else { [0x22, 0xeb] };
            let first = [version << 4 | rng.u8(..16), rng.u8(..)];
            let rest = if version == 1 { 4 } else { 8 };
            let rest: Vec<u8> = (0..2 + rest).map(|_| rng.u8(..)).collect();
            let gre = [0x10, 0, protocol[0], protocol[1], 0, 0, 0, 7];
            let mut all = [&gre[..], &first, &rest, inner].concat();
            if rng.u8(..8) == 0 {
                all[rng.usize(..12)] ^= 1 << rng.u8(..8);
            }
            return (47, all);
        }
        _ => [&[8, 0, 0, 0][..], &key[..]].concat(),
    };
    let length = (8 + header.len() + inner.len()) as u16;
    let ports = [rng.u16(..).to_be_bytes(), 4789u16.to_be_bytes()].concat();
    (17, [&ports[..], &length.to_be_bytes()[..], &[0; 2][..], &header[..], inner].concat())
}

/// The inner frame in the headers of a tunnel, and where it is.
fn wrapped(rng: &mut Rng, kind: TunnelKind, inner: &[u8]) -> (Vec<u8>, usize) {
    let (proto, mut l4) = transport(rng, kind, inner);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let mut pseudo = checksum::Sum::default();
    let l3 = 14;
    if rng.bool() {
        frame.extend([8, 0, 0x45, rng.u8(..)]);
        frame.extend(((l4.len() + 20) as u16).to_be_bytes());
        frame.extend([rng.u8(..), rng.u8(..), 0x40, 0, rng.u8(..), proto, 0, 0]);
        frame.extend((0..8).map(|_| rng.u8(1..)));
        let sum = checksum::internet(&frame[l3..]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        pseudo.add(&frame[l3 + 12..]);
    } else {
        frame.extend([0x86, 0xdd, 0x60 | rng.u8(..16), rng.u8(..), rng.u8(..), rng.u8(..)]);
        frame.extend((l4.len() as u16).to_be_bytes());
        frame.extend([proto, rng.u8(..)]);
        frame.extend((0..32).map(|_| rng.u8(1..)));
        pseudo.add(&frame[l3 + 8..]);
    }
    if proto == 17 && rng.bool() {
        pseudo.add_u16(17);
        pseudo.add_u16(l4.len() as u16);
        pseudo.add(&l4);
        let sum = match pseudo.finish() {
            0 => 0xffff,
            sum => sum,
        };
        l4[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend(&l4);
    let base = frame.len() - inner.len();
    (frame, base)
}

/// Returns the packet in the tunnel, by the crate `tunnel`.
fn expected(frame: &[u8], config: &PortConfig) -> Result<(Vec<u8>, Key, Metadata), DecodeError> {
    let l3 = flow::extract::extract(frame, IN_PORT).1.l3.ok_or(DecodeError::NotIp)?;
    let offload = Offload::default();
    let mut checks = Checks::default();
    let decoded = tunnel::decode(frame, usize::from(l3), &offload, config, &mut checks)?;
    let mut packet = Packet::from_slice(frame);
    decoded.strip(&mut packet);
    let mut key = flow::extract::key_of(packet.data(), TUNNEL_PORT);
    decoded.metadata.write_to(&mut key);
    Ok((packet.data().to_vec(), key, decoded.metadata))
}

/// The frame as the program at tc leaves it: one tag is outside of it.
fn as_left(hook: Hook, inner: &[u8]) -> Vec<u8> {
    let is_tag = |at: usize| matches!(inner.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    if hook == Hook::Xdp || !is_tag(12) {
        return inner.to_vec();
    }
    [&inner[..12], &inner[16..]].concat()
}

/// All that the exact-match cache holds of a packet in a tunnel.
fn memorable() -> [u64; WORDS] {
    let mut mask = keys::signature();
    mask[HOT_WORDS..PORT_WORDS].fill(0);
    mask
}

/// How many packets were found in their tunnels, and how many of these ran.
#[derive(Default, Debug)]
struct Seen {
    valid: u32,
    peeked: u32,
    run: u32,
}

impl Seen {
    /// Looks up one frame, and then by a flow that matches all of its key.
    fn judge(&mut self, bed: &Bed, hook: Hook, config: &PortConfig, frame: &[u8]) {
        let at = usize::from(hook == Hook::Xdp);
        // The first time, the outer flow is found by a scan of the masks.
        if bed.repeat(frame, 1).is_err() {
            return;
        }
        let walked = bed.counters().walked;
        let outcome = bed.run(frame);
        assert_eq!((outcome.verdict, &outcome.frame[..]), (LEFT[at], frame), "{hook:?}");
        let wanted = expected(frame, config);
        self.valid += u32::from(wanted.is_ok());
        if bed.counters().walked == walked {
            return;
        }
        let context = || format!("{hook:?} {config:?}: {wanted:?}");
        let (inner, key, metadata) = match &wanted {
            Ok(wanted) => wanted,
            Err(error) => panic!("{hook:?} {config:?}: {error}"),
        };
        self.peeked += 1;
        let words = words_of(key, metadata).unwrap_or_else(|| panic!("{}", context()));
        assert_eq!(bed.state().key, words, "{}", context());
        let mask = if self.peeked.is_multiple_of(2) { EXACT } else { memorable() };
        let mut flow = bed.flow(key, &mask);
        flow.words = std::array::from_fn(|x| words[x] & mask[x]);
        (flow.output, flow.flags) = (OUT_PORT, FLOW_METADATA);
        bed.put(INNER, &flow, &mask);
        let before = bed.counts(2);
        // Found by the masks, by the signature cache, and by the exact-match cache.
        let runs = [bed.run(frame), bed.run(frame), bed.run(frame)];
        let after = bed.counts(2);
        bed.kill(INNER);
        assert!(runs.iter().all(|run| *run == runs[0]), "{}", context());
        let [outcome, ..] = runs;
        if outcome.verdict == LEFT[at] && outcome.frame == frame {
            assert_eq!(hook, Hook::Tc, "{}", context());
            assert_eq!(before, after);
            return;
        }
        self.run += 1;
        assert_eq!(outcome.verdict, REDIRECT[at], "{}", context());
        assert_eq!(outcome.frame, as_left(hook, inner), "{}", context());
        for (slot, bytes) in [(OUTER, frame.len()), (INNER, inner.len())] {
            let [before, after] = [&before, &after].map(|all| all[slot as usize]);
            let counted = (after.packets - before.packets, after.bytes - before.bytes);
            assert_eq!(counted, (3, 3 * bytes as u64), "slot {slot}: {}", context());
        }
    }
}

#[test]
fn packets_in_tunnels_have_the_keys_that_userspace_gives_them() {
    if without_root() {
        return;
    }
    for (hook, seed) in HOOKS.into_iter().zip(1..) {
        for (kind, config) in tunnels() {
            let bed = bed(hook, kind);
            let (mut rng, mut seen) = (Rng::with_seed(seed), Seen::default());
            for _ in 0..1500 {
                let inner = frames::sound(&mut rng);
                let (frame, _) = wrapped(&mut rng, kind, &inner);
                seen.judge(&bed, hook, &config, &frame);
            }
            eprintln!("{hook:?} {kind:?}: {seen:?}");
            assert!(
                seen.valid > 1000 && seen.peeked > seen.valid / 2,
                "{hook:?} {kind:?} {seen:?}"
            );
            assert!(seen.run > seen.peeked / 3, "{hook:?} {kind:?} {seen:?}");
        }
    }
}

#[test]
fn no_bytes_make_programs_take_what_userspace_refuses() {
    if without_root() {
        return;
    }
    for (hook, seed) in HOOKS.into_iter().zip(5..) {
        for (kind, config) in tunnels() {
            let bed = bed(hook, kind);
            let (mut rng, mut seen) = (Rng::with_seed(seed), Seen::default());
            for round in 0..40 {
                let inner = frames::sound(&mut rng);
                let (mut frame, base) = wrapped(&mut rng, kind, &inner);
                if round < 4 {
                    for length in 14..frame.len() {
                        seen.judge(&bed, hook, &config, &frame[..length]);
                    }
                }
                for _ in 0..40 {
                    let (at, bit) = (rng.usize(14..base), rng.u8(..8));
                    frame[at] ^= 1 << bit;
                    let wrong = frame.clone();
                    if frame[14] == 0x45 {
                        frame[24..26].fill(0);
                        let sum = checksum::internet(&frame[14..34]);
                        frame[24..26].copy_from_slice(&sum.to_be_bytes());
                    }
                    seen.judge(&bed, hook, &config, &wrong);
                    seen.judge(&bed, hook, &config, &frame);
                    if rng.bool() {
                        frame[at] ^= 1 << bit;
                    }
                }
            }
            eprintln!("{hook:?} {kind:?}: {seen:?}");
        }
    }
}

/// A packet of 60 bytes in VXLAN over IPv4 without checksum.
fn plain() -> (Vec<u8>, Vec<u8>) {
    let inner = packet::build::Frame::ethernet([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(1000, 2000)
        .payload(&[1; 18])
        .finish();
    let mut rng = Rng::with_seed(2);
    loop {
        let (frame, base) = wrapped(&mut rng, TunnelKind::Vxlan, &inner);
        if base == 50 && frame[40..42] == [0, 0] {
            return (frame, inner);
        }
    }
}

/// A bed with the flow of the packet in [`plain`].
fn with_flow(hook: Hook, actions: &[Action]) -> Bed {
    let bed = bed(hook, TunnelKind::Vxlan);
    let (_, key, metadata) = expected(&plain().0, &PortConfig::new(Kind::Vxlan)).unwrap();
    let mut flow = bed.flow(&key, &memorable());
    let mask = memorable();
    let words = words_of(&key, &metadata).unwrap();
    flow.words = std::array::from_fn(|x| words[x] & mask[x]);
    if let [Action::Output(port)] = actions {
        flow.output = port.0;
    } else {
        bed.put_program(&mut flow, actions);
    }
    flow.flags |= FLOW_METADATA;
    bed.put(INNER, &flow, &mask);
    bed
}

/// Sets the Ethernet destination to 06:06:06:06:06:06.
fn set_destination() -> Action {
    let dst = Masked { value: [6; 6], mask: [0xff; 6] };
    let src = Masked { value: [0; 6], mask: [0; 6] };
    Action::Set(Set::Ethernet { src, dst })
}

#[test]
fn a_list_of_actions_runs_on_the_packet_in_the_tunnel() {
    if without_root() {
        return;
    }
    let (frame, inner) = plain();
    for (at, hook) in HOOKS.into_iter().enumerate() {
        let bed = with_flow(hook, &[set_destination(), Action::Output(PortNo(OUT_PORT))]);
        for n in 1..4 {
            let outcome = bed.run(&frame);
            let mut wanted = inner.clone();
            wanted[..6].fill(6);
            assert_eq!((outcome.verdict, outcome.frame), (REDIRECT[at], wanted));
            let counts = bed.counts(2);
            assert_eq!((counts[0].packets, counts[0].bytes), (n, n * frame.len() as u64));
            assert_eq!((counts[1].packets, counts[1].bytes), (n, n * inner.len() as u64));
        }
    }
}

#[test]
fn xdp_restores_the_outer_headers_when_the_packet_leaves_after_all() {
    if without_root() {
        return;
    }
    let (frame, mut inner) = plain();
    let bed = with_flow(Hook::Xdp, &[set_destination(), Action::Recirc(7)]);
    inner[..6].fill(6);
    let outcome = bed.run(&frame);
    assert_eq!((outcome.verdict, outcome.frame), (LEFT[1], frame.clone()));
    assert!(bed.counts(2).iter().all(|count| count.packets == 0), "the next hook counts");
    // With a flow for the second lookup it stays, and all flows are counted.
    let key = Key { recirc_id: 7.into(), ..Key::ZERO };
    let mut mask = Mask::WILDCARD;
    mask.set_exact(Field::InPort);
    mask.set_exact(Field::RecircId);
    mask.set_exact(Field::TunId);
    let mask = keys::to_words(&mask.0);
    let mut again = bed.flow(&key, &mask);
    again.words = std::array::from_fn(|x| bed.state().key[x] & mask[x]);
    (again.output, again.flags) = (OUT_PORT, FLOW_METADATA);
    bed.put(2, &again, &mask);
    let outcome = bed.run(&frame);
    assert_eq!((outcome.verdict, outcome.frame), (REDIRECT[1], inner));
    assert!(bed.counts(3).iter().all(|count| count.packets == 1));
}

#[test]
fn a_packet_in_a_tunnel_in_a_tunnel_is_for_the_daemon() {
    if without_root() {
        return;
    }
    let (frame, _) = plain();
    for (at, hook) in HOOKS.into_iter().enumerate() {
        let bed = with_flow(hook, &[Action::Output(PortNo(OUT_PORT))]);
        let flow = Slot::read(&bed.maps, INNER as usize);
        bed.kill(INNER);
        let pop = Slot {
            dead: 0,
            output: NO_PORT,
            flags: FLOW_POP | FLOW_METADATA,
            tunnel: TUNNEL_PORT,
            ..flow
        };
        bed.put(INNER, &pop, &memorable());
        let outcome = bed.run(&frame);
        assert_eq!((outcome.verdict, &outcome.frame), (LEFT[at], &frame));
        assert!(bed.counts(2).iter().all(|count| count.packets == 0));
    }
}

#[test]
#[ignore = "a measurement"]
fn nanoseconds_of_a_packet_in_a_tunnel() {
    for hook in HOOKS {
        let bed = with_flow(hook, &[Action::Output(PortNo(OUT_PORT))]);
        let (frame, _) = plain();
        let best = (0..200).map(|_| bed.repeat(&frame, 1).unwrap().1).min();
        eprintln!("{hook:?}: {best:?} ns");
    }
}
