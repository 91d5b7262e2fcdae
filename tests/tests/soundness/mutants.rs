// SPDX-License-Identifier: Apache-2.0
//! Packets that resemble a given one: the same bytes but for a few bits, more or fewer of them, and
//! frames that agree with the megaflow but are otherwise like another.

use crate::arrival::Arrival;
use flow::ct_state::TRK;
use flow::{Key, Match};
use packet::ethertype;

/// Bytes appended by the mutants that are longer.
const PADDING: [usize; 9] = [1, 2, 4, 7, 46, 255, 256, 300, 1400];

/// Calls `each` for every mutant of `origin`. `others` are frames to be like; `rounds` is how many
/// mutants of each random kind there are.
pub fn of(
    origin: &Arrival,
    matching: &Match,
    others: &[Vec<u8>],
    rounds: usize,
    rng: &mut fastrand::Rng,
    each: &mut dyn FnMut(&Arrival),
) {
    let free = single_bits(origin, matching, each);
    let mut mutant = origin.clone();
    for _ in 0..rounds {
        mutant.frame.clone_from(&origin.frame);
        some_bits(&mut mutant.frame, &free, rng);
        each(&mutant);
        words(&mut mutant.frame, rng);
        each(&mutant);
    }
    for len in 0..=origin.frame.len() {
        mutant.frame.clone_from(&origin.frame);
        mutant.frame.truncate(len);
        each(&mutant);
    }
    for more in PADDING {
        mutant.frame.clone_from(&origin.frame);
        mutant.frame.extend((0..more).map(|_| rng.u8(..)));
        each(&mutant);
        some_bits(&mut mutant.frame, &free, rng);
        each(&mutant);
    }
    for other in others {
        transplants(origin, matching, other, rng, each);
    }
    metadata(origin, rng, each);
    if origin.connection.ct_state & TRK != 0 {
        connection(origin, rng, each);
    }
}

/// Every bit by itself. Returns those with which the megaflow still matches.
fn single_bits(origin: &Arrival, matching: &Match, each: &mut dyn FnMut(&Arrival)) -> Vec<usize> {
    let mut mutant = origin.clone();
    let mut free = Vec::new();
    for bit in 0..origin.frame.len() * 8 {
        flip(&mut mutant.frame, bit);
        each(&mutant);
        if matching.matches(&mutant.key()) {
            free.push(bit);
        }
        flip(&mut mutant.frame, bit);
    }
    free
}

fn flip(frame: &mut [u8], bit: usize) {
    if let Some(byte) = frame.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Two to forty of the bits in `free`.
fn some_bits(frame: &mut [u8], free: &[usize], rng: &mut fastrand::Rng) {
    for _ in 0..if free.is_empty() { 0 } else { rng.usize(2..=40) } {
        flip(frame, free[rng.usize(..free.len())]);
    }
}

/// One or two bytes or words get values that mean something to a parser.
fn words(frame: &mut [u8], rng: &mut fastrand::Rng) {
    const SHORT: [u16; 12] =
        [0, 0x800, 0x806, 0x86dd, 0x8100, 0x88a8, 0x8847, 0x2000, 1, 20, 0xffff, 0x1234];
    const BYTE: [u8; 14] = [0, 1, 2, 6, 17, 43, 44, 58, 59, 132, 135, 136, 0x45, 0xff];
    for _ in 0..rng.usize(1..=2) {
        let at = rng.usize(..=frame.len());
        match (rng.bool(), frame.get_mut(at..at + 2), rng.usize(..SHORT.len())) {
            (true, Some(place), which) => place.copy_from_slice(&SHORT[which].to_be_bytes()),
            (false, Some([place, _]), _) => *place = BYTE[rng.usize(..BYTE.len())],
            _ => {}
        }
    }
}

/// Frames that have what the megaflow matches, and all or some of the rest from `other`.
fn transplants(
    origin: &Arrival,
    matching: &Match,
    other: &[u8],
    rng: &mut fastrand::Rng,
    each: &mut dyn FnMut(&Arrival),
) {
    let mut mutant = origin.clone();
    mutant.frame = other.to_vec();
    each(&mutant);
    let (own, strange) = (origin.key(), mutant.key());
    for whole in [true, false] {
        let mut key = Key::ZERO;
        let masks = matching.mask().words();
        for (i, word) in key.words_mut().iter_mut().enumerate() {
            let taken = if whole { u64::MAX } else { rng.u64(..) };
            let theirs = !masks[i] & taken;
            *word = own.words()[i] & !theirs | strange.words()[i] & theirs;
        }
        let composed = flow::compose(&key, &[0; 20]);
        mutant.frame = composed.data().to_vec();
        each(&mutant);
    }
}

/// Changes the fields `ct_*` of a tracked packet: each bit by itself, and all at once. It stays tracked,
/// and its connection has no addresses of the other family.
fn connection(origin: &Arrival, rng: &mut fastrand::Rng, each: &mut dyn FnMut(&Arrival)) {
    const ROUNDS: usize = 60;
    let is_ipv6 = origin.key().dl_type.get() == ethertype::IPV6;
    let mut mutant = origin.clone();
    let mut change = |change: &mut dyn FnMut(&mut Key)| {
        mutant.connection = origin.connection;
        change(&mut mutant.connection);
        mutant.connection.ct_state |= TRK;
        each(&mutant);
    };
    for bit in 0..8 {
        change(&mut |k| k.ct_state ^= 1 << bit);
        change(&mut |k| k.ct_nw_proto ^= 1 << bit);
    }
    for bit in 0..16 {
        let bit = 1u16 << bit;
        change(&mut |k| k.ct_zone.set(k.ct_zone.get() ^ bit));
        change(&mut |k| k.ct_tp_src.set(k.ct_tp_src.get() ^ bit));
        change(&mut |k| k.ct_tp_dst.set(k.ct_tp_dst.get() ^ bit));
    }
    for bit in 0..32 {
        let bit = 1u32 << bit;
        change(&mut |k| k.ct_mark.set(k.ct_mark.get() ^ bit));
        if !is_ipv6 {
            change(&mut |k| k.ct_nw_src.set(k.ct_nw_src.get() ^ bit));
            change(&mut |k| k.ct_nw_dst.set(k.ct_nw_dst.get() ^ bit));
        }
    }
    for bit in 0..128 {
        change(&mut |k| flip(&mut k.ct_label, bit));
        if is_ipv6 {
            change(&mut |k| flip(&mut k.ct_ipv6_src, bit));
            change(&mut |k| flip(&mut k.ct_ipv6_dst, bit));
        }
    }
    for _ in 0..ROUNDS {
        // Few values, so that megaflows match some of them.
        let (state, zone, mark) = (rng.u8(..), rng.u16(..8), rng.u32(..4));
        let (label, proto, port) = (rng.u128(..4), [6, 17, 1][rng.usize(..3)], rng.u16(78..82));
        change(&mut |k| {
            k.ct_state = state;
            k.ct_zone.set(zone);
            k.ct_mark.set(mark);
            k.ct_label = label.to_be_bytes();
            k.ct_nw_proto = proto;
            k.ct_tp_dst.set(port);
        });
    }
}

/// Changes the datapath's metadata of a packet.
fn metadata(origin: &Arrival, rng: &mut fastrand::Rng, each: &mut dyn FnMut(&Arrival)) {
    for bit in 0..32 {
        let bit = 1u32 << bit;
        let (mark, priority) = (origin.mark ^ bit, origin.priority ^ bit);
        each(&Arrival { mark, ..origin.clone() });
        each(&Arrival { priority, ..origin.clone() });
        // A hash that was computed is never 0.
        let dp_hash = origin.dp_hash ^ bit;
        if origin.dp_hash != 0 && dp_hash != 0 {
            each(&Arrival { dp_hash, mark: rng.u32(..), ..origin.clone() });
        }
    }
}
