// SPDX-License-Identifier: Apache-2.0
//! BPDUs from any bytes, and bridges of STP and RSTP that receive them at any times.

use crate::input::Input;
use clock::Millis;
use protocols::{rstp, stp};

/// Most messages of an input.
const MESSAGES: usize = 64;
/// Bytes of a message: those of RSTP, with the LLC header.
const MESSAGE_LEN: usize = 39;
/// Ports of each bridge.
const PORTS: u8 = 3;

/// The input is messages, each with the time before it and its port.
pub fn run(bytes: &[u8]) {
    let _ = stp::Bpdu::decode(bytes);
    let _ = rstp::Bpdu::decode(bytes);
    let mut input = Input::new(bytes);
    let mut now = Millis(0);
    let mut plain = stp::Bridge::new(stp::Settings::new([2, 0, 0, 0, 0, 1]), now);
    let mut rapid = rstp::Bridge::new(rstp::Settings::new([2, 0, 0, 0, 0, 1]), now);
    for number in 1..=PORTS {
        plain.add_port(number);
        plain.enable(number, now);
        rapid.configure_port(number.into(), rstp::PortSettings::default());
        rapid.set_link(number.into(), true);
    }
    for _ in 0..MESSAGES {
        if input.is_empty() {
            break;
        }
        now = now + i64::from(input.short() & 0x0fff);
        let number = 1 + input.byte() % PORTS;
        let payload: Vec<u8> = (0..MESSAGE_LEN).map(|_| input.byte()).collect();
        match stp::Bpdu::decode(&payload) {
            Ok(bpdu) => {
                assert_eq!(stp::Bpdu::decode(&bpdu.encode()), Ok(bpdu));
                plain.receive(number, &bpdu, now);
            }
            Err(_) => plain.count_error(number),
        }
        match rstp::Bpdu::decode(&payload) {
            Ok(bpdu) => {
                assert_eq!(rstp::Bpdu::decode(&bpdu.encode()), Ok(bpdu));
                rapid.receive(number.into(), &bpdu);
            }
            Err(_) => rapid.count_error(number.into()),
        }
        plain.run(now);
        rapid.run(now);
        assert!(plain.take_output().len() < 100 && rapid.take_output().len() < 100);
        assert!(plain.root().0 <= plain.id() && rapid.root().root <= rapid.id());
        assert!(rapid.deadline().is_some_and(|at| at > now));
        assert!(plain.deadline().is_none_or(|at| at > now));
    }
}

/// One message of each kind, and a conversation.
pub fn seeds() -> Vec<Vec<u8>> {
    let body = [
        &[0x80, 0, 2, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 19],
        &[0x80, 0, 2, 0, 0, 0, 0, 2],
        &[0x80, 1, 1, 0, 20, 0, 2, 0, 15, 0, 0],
    ]
    .concat();
    let message = |version: u8, kind: u8, flags: u8| {
        [&[0x42, 0x42, 3, 0, 0, version, kind, flags][..], &body].concat()
    };
    let kinds = [
        message(0, 0, 0x01),
        message(0, 0, 0x80),
        message(0, 0x80, 0),
        message(2, 2, 0x0e),
        message(2, 2, 0x7c),
        message(2, 2, 0x49),
    ];
    let mut seeds: Vec<Vec<u8>> = kinds.to_vec();
    let all: Vec<Vec<u8>> = kinds.iter().map(|m| [&[3, 0xe8, 0][..], m].concat()).collect();
    seeds.push(all.concat());
    seeds
}
