// SPDX-License-Identifier: Apache-2.0
//! BFD control packets, and a session that receives them at any times.

use crate::input::Input;
use clock::Millis;
use protocols::bfd::{ControlPacket, Flags, Moment, PACKET_LEN, Session, Settings, TTL};

/// Most packets of an input.
const PACKETS: usize = 64;

/// The input is settings, and then packets with the time before each.
pub fn run(bytes: &[u8]) {
    if let Some(packet) = ControlPacket::parse(bytes) {
        assert_eq!(&packet.encode()[..], &bytes[..PACKET_LEN]);
    }
    let mut input = Input::new(bytes);
    let settings = Settings {
        min_rx: 1 + u32::from(input.byte()) * 10,
        min_tx: 1 + u32::from(input.byte()) * 10,
        multiplier: input.byte().max(1),
        is_joined_path_down: input.flag(),
        forwards_if_receiving: input.flag(),
        decay_min_rx: 3000,
    };
    let mut at = Moment::default();
    let mut session = Session::new("p", &settings, 1, at);
    for count in 0..PACKETS {
        at.now = at.now + i64::from(input.short());
        at.received += count as u64;
        let payload: Vec<u8> = (0..PACKET_LEN).map(|_| input.byte()).collect();
        session.receive(&payload, TTL, at);
        session.note_received(at.now);
        // The answer to a poll, then a packet that is due, then the poll that it begins.
        for _ in 0..3 {
            if let Some(packet) = session.run(at) {
                assert_eq!(packet.check(), Ok(()), "{packet:?}");
                assert!(!packet.flags.contains(Flags::POLL | Flags::FINAL));
            }
        }
        assert!(session.deadline() > at.now);
        session.status(at.now);
        session.take_lines();
        if input.flag() {
            let decay_min_rx = u32::from(input.byte()) * 100;
            session.configure(&Settings { decay_min_rx, ..settings.clone() }, at);
        }
    }
    assert!(session.deadline() >= Millis(0));
}

/// A packet in each state.
pub fn seeds() -> Vec<Vec<u8>> {
    let head = [10, 10, 3, 0, 0, 0, 100];
    let packet = |state: u8, poll: u8| {
        let flags = state << 6 | poll;
        let (tx, rx) = ([0, 1, 0x86, 0xa0], [0, 15, 0x42, 0x40]);
        [&[0x20, flags, 3, 24, 0, 0, 0, 9, 0, 0, 0, 1][..], &tx, &rx, &[0; 4]].concat()
    };
    let states = [packet(1, 0), packet(2, 0), packet(3, 0x20), packet(3, 0x10), packet(0, 0)];
    let mut seeds: Vec<Vec<u8>> = states.to_vec();
    let all: Vec<Vec<u8>> = states.iter().map(|p| [&p[..], &[0, 0, 0, 200]].concat()).collect();
    seeds.push([&head[..], &all.concat()].concat());
    seeds
}
