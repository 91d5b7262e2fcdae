// SPDX-License-Identifier: Apache-2.0
//! Network Service Headers: from bytes to a key, and from the key to a frame that has it.

use flow::extract::{extract_layer3, key_of};
use flow::{Nsh, compose};
use packet::build::Frame;
use packet::ethertype;

pub fn run(bytes: &[u8]) {
    let frame = Frame::ethernet([2; 6], [4; 6]).ethertype(ethertype::NSH).payload(bytes).finish();
    let key = key_of(&frame, 1);
    // The header is the same where it comes first in the packet.
    let (bare, _) = extract_layer3(bytes, 1, ethertype::NSH);
    assert_eq!(bare.nsh, key.nsh);
    assert_eq!(bare.ethertype(), ethertype::NSH);
    if key.nsh == Nsh::default() {
        return; // no header, or an empty one
    }
    let again = key_of(compose(&key, &[]).data(), 1);
    assert_eq!(again, key);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let first = [0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 0xff];
    let one = [&first[..], &[0x11, 0x22, 0x33, 0x44], &[0; 12], &[2; 14]].concat();
    let two =
        [&[0x0f, 0xc4, 2, 1, 0, 0, 1, 2, 0x10, 0, 10, 4][..], &[0x12; 4], &[0x45; 20]].concat();
    vec![one, two, vec![0x0f, 0xc2, 2, 4, 0, 0, 1, 2], vec![0x4f, 0xc2, 2, 4, 0, 0, 1, 2]]
}
