// SPDX-License-Identifier: Apache-2.0
//! BFD control packets, and a session that receives them at any times.

use crate::input::Input;
use clock::Millis;
use protocols::bfd::{ControlPacket, PACKET_LEN, Session, Settings, State};

/// Most packets of an input.
const PACKETS: usize = 64;

/// The input is settings, and then packets with the time before each.
pub fn run(bytes: &[u8]) {
    let _ = ControlPacket::decode(bytes);
    let mut input = Input::new(bytes);
    let settings = Settings {
        min_rx: 1 + u32::from(input.byte()) * 10,
        min_tx: 1 + u32::from(input.byte()) * 10,
        multiplier: input.byte().max(1),
        is_joined_path_down: input.flag(),
        forwards_if_receiving: input.flag(),
    };
    let mut now = Millis(0);
    let mut session = Session::new(settings, 1, now);
    for count in 0..PACKETS {
        now = now + i64::from(input.short());
        let payload: Vec<u8> = (0..PACKET_LEN).map(|_| input.byte()).collect();
        if let Ok(packet) = ControlPacket::decode(&payload) {
            assert_eq!(ControlPacket::decode(&packet.encode()), Ok(packet));
            if let Some(answer) = session.receive(&packet, now) {
                assert!(ControlPacket::decode(&answer.encode()).is_ok());
            }
        }
        session.note_received(count as u64, now);
        if let Some(packet) = session.run(now, u32::from(input.byte()) << 24) {
            assert!(ControlPacket::decode(&packet.encode()).is_ok(), "{packet:?}");
        }
        let status = session.status(now);
        assert!(status.state == State::Up || status.min_tx >= 1000);
        assert!(session.deadline() > now);
    }
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
    let all: Vec<Vec<u8>> = states.iter().map(|p| [&p[..], &[0, 0, 200]].concat()).collect();
    seeds.push([&head[..], &all.concat()].concat());
    seeds
}
