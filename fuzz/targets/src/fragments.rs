// SPDX-License-Identifier: Apache-2.0
//! Reassembly of fragments: any sequence of packets, among them the fragments of whole ones in any
//! order.
//!
//! The input is settings and then steps: a fragment of one of three packets, any bytes, or time that
//! passes.

use crate::input::Input;
use conntrack::{
    Checksums, Family, Fragments, Reassembly, StatusDetail, Submitted, Untrackable, extract,
};
use packet::Ipv4Header;
use packet::build::Frame;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Most steps of an input.
const STEPS: usize = 64;
/// Bytes of the Ethernet header that frames begin with.
const ETHERNET: usize = 14;

/// The number of a submission.
type Token = usize;

/// A packet that is cut into fragments.
struct Whole {
    family: Family,
    id: u16,
    data: Vec<u8>,
}

impl Whole {
    fn new(input: &mut Input<'_>, id: u16) -> Whole {
        let family = if input.flag() { Family::V6 } else { Family::V4 };
        // A UDP datagram, whose length is not checked before it is whole.
        let len = 8 + usize::from(input.short() % 6000);
        let data = (0..len).map(|n| (n as u8) ^ (n >> 8) as u8 ^ id as u8).collect();
        Whole { family, id, data }
    }

    /// Returns the bytes from the eighth `from` on, as a fragment.
    fn fragment(&self, from: usize, eighths: usize) -> Vec<u8> {
        let start = (from * 8).min(self.data.len() - 1) / 8 * 8;
        let end = (start + eighths.max(1) * 8).min(self.data.len());
        let more = end < self.data.len();
        let data = &self.data[start..end];
        let frame = match self.family {
            Family::V4 => {
                let flag = if more { Ipv4Header::MORE_FRAGMENTS } else { 0 };
                let mut frame = Frame::ethernet([0; 6], [0; 6])
                    .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 64)
                    .protocol(17)
                    .payload(data)
                    .finish();
                let header = &mut frame[ETHERNET..ETHERNET + 20];
                header[4..6].copy_from_slice(&self.id.to_be_bytes());
                header[6..8].copy_from_slice(&((start / 8) as u16 | flag).to_be_bytes());
                header[10..12].fill(0);
                let sum = packet::checksum::internet(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame
            }
            Family::V6 => {
                let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
                Frame::ethernet([0; 6], [0; 6])
                    .ipv6(address(1), address(2), 64)
                    .ipv6_fragment(start as u16 | u16::from(more), 17, self.id.into())
                    .payload(data)
                    .finish()
            }
        };
        frame[ETHERNET..].to_vec()
    }
}

/// A packet that was submitted.
struct Packet {
    bytes: Vec<u8>,
    /// The whole packet of which it is a fragment.
    whole: Option<usize>,
    /// It came out.
    is_back: bool,
}

/// Notes that a packet came out.
fn give_back(submitted: &mut [Packet], token: Token, bytes: &[u8]) {
    let packet = &mut submitted[token];
    assert!(!packet.is_back, "{token} comes out twice");
    packet.is_back = true;
    assert_eq!(bytes, packet.bytes, "{token} comes out changed");
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let fragments: Fragments<Token> = Fragments::default();
    let most = u32::from(input.byte() & 31) + 1;
    fragments.set_max_fragments(most).expect("few");
    for family in [Family::V4, Family::V6] {
        fragments.set_min_size(family, 400).expect("the least");
    }
    if input.below(16) == 0 {
        fragments.disable(Family::V6);
    }
    let wholes: Vec<Whole> = (0..3).map(|id| Whole::new(&mut input, id)).collect();
    let mut submitted: Vec<Packet> = Vec::new();
    let mut now = Duration::from_secs(100);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let (family, bytes, whole) = match input.below(8) {
            kind @ 0..6 => {
                let number = kind % wholes.len();
                let (from, eighths) = (usize::from(input.short() % 1024), 50 + input.below(256));
                let whole = &wholes[number];
                (whole.family, whole.fragment(from, eighths), Some(number))
            }
            6 => {
                let family = if input.flag() { Family::V6 } else { Family::V4 };
                (family, input.counted().to_vec(), None)
            }
            _ => {
                now += Duration::from_millis(u64::from(input.short()));
                let expired = fragments.expire(now);
                expired.iter().for_each(|h| give_back(&mut submitted, h.token, &h.bytes));
                continue;
            }
        };
        let token = submitted.len();
        submitted.push(Packet { bytes: bytes.clone(), whole, is_back: false });
        let verify = if input.flag() { Checksums::ALL } else { Checksums::NONE };
        match fragments.submit(family, bytes, (7, 0), verify, now, token) {
            Submitted::Held => {}
            Submitted::Whole(bytes, token)
            | Submitted::Bad(_, bytes, token)
            | Submitted::Full(bytes, token) => give_back(&mut submitted, token, &bytes),
            Submitted::TooBig(all) => {
                all.iter().for_each(|held| give_back(&mut submitted, held.token, &held.bytes));
            }
            Submitted::Complete(packet) => {
                // Any bytes may have another fragment header inside.
                let found = extract(&packet.bytes, family, 7, Checksums::NONE);
                let bytes = packet.bytes.clone();
                let all = packet.into_fragments();
                if let Some(whole) = whole
                    && all.iter().all(|held| submitted[held.token].whole == Some(whole))
                {
                    assert_ne!(found, Err(Untrackable::Fragment), "it is whole");
                    assert!(bytes.ends_with(&wholes[whole].data), "the data is another one");
                }
                all.iter().for_each(|held| give_back(&mut submitted, held.token, &held.bytes));
            }
        }
        let text = fragments.status_text(StatusDetail::Lists);
        assert!(text.contains("Fragmentation Module Status"));
    }
    // Everything that still waits comes out when its time is over, or was counted as removed.
    now += Duration::from_secs(15);
    while !fragments.is_empty() {
        let expired = fragments.expire(now);
        assert!(!expired.is_empty(), "fragments stay");
        expired.iter().for_each(|held| give_back(&mut submitted, held.token, &held.bytes));
    }
    let purged: u64 =
        [Family::V4, Family::V6].map(|family| fragments.counters(family).purged).iter().sum();
    let missing = submitted.iter().filter(|packet| !packet.is_back).count();
    assert_eq!(missing as u64, purged, "fragments are lost");
}
