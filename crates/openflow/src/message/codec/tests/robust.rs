// SPDX-License-Identifier: Apache-2.0
//! No bytes make the decoder panic, and each decoded message can be encoded again.

use super::vectors::{OFCTL, REPLIES, REQUESTS, lines};
use super::*;

fn samples() -> Vec<(Protocol, Vec<u8>)> {
    let all = lines(REPLIES).chain(lines(REQUESTS)).chain(lines(OFCTL));
    all.map(|line| (line.protocol, line.bytes)).collect()
}

/// Reads a message and writes it again; true when there was a message to read.
fn exercise(bytes: &[u8], protocol: &Protocol) -> bool {
    let Ok(message) = Message::decode(bytes, protocol) else {
        return false;
    };
    let Ok(written) = message.encode(protocol) else {
        return true;
    };
    for part in crate::frame::split(&written) {
        // May fail (what was lenient in one place is canonical now), but not panic.
        let _ = Message::decode(part, protocol);
    }
    true
}

#[test]
fn truncation_at_every_byte() {
    for (protocol, bytes) in samples() {
        for cut in 0..bytes.len() {
            let mut short = bytes[..cut].to_vec();
            assert!(Message::decode(&short, &protocol).is_err(), "{cut} of {bytes:02x?}");
            if cut >= 8 {
                short[2..4].copy_from_slice(&(cut as u16).to_be_bytes());
                exercise(&short, &protocol);
            }
        }
    }
}

/// A small generator (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() % n.max(1)
    }
}

#[test]
fn random_mutations() {
    let samples = samples();
    let mut random = Random(0x5eed_0f0f_1234_5678);
    let mut readable = 0;
    for _ in 0..100_000 {
        let (protocol, bytes) = &samples[random.below(samples.len())];
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(6) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                3 => bytes.truncate(at),
                4 => bytes.insert(at, random.next() as u8),
                _ => {
                    let from = random.below(bytes.len());
                    let len = random.below(16).min(bytes.len() - from);
                    let copy = bytes[from..from + len].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        // Mostly the length is right, so that more than the header is looked at.
        if bytes.len() >= 8 && random.below(8) != 0 {
            let len = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            bytes[0] = protocol.version.wire();
        }
        readable += u32::from(exercise(&bytes, protocol));
    }
    assert!(readable > 20_000, "only {readable} of the mutations went past the header");
}

#[test]
fn every_type_with_every_small_body() {
    for version in Version::ALL {
        let protocol = Protocol::new(version);
        for ty in 0..=255u8 {
            for len in 8..120u16 {
                for fill in [0, 0xff] {
                    let mut bytes = vec![fill; usize::from(len)];
                    bytes[0] = version.wire();
                    bytes[1] = ty;
                    bytes[2..4].copy_from_slice(&len.to_be_bytes());
                    exercise(&bytes, &protocol);
                }
            }
        }
    }
}
