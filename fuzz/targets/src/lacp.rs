// SPDX-License-Identifier: Apache-2.0
//! LACP: PDUs from any bytes, and machines that receive them.
//!
//! The input is a byte of settings, and then messages: a byte (member, steps of time), a byte with
//! the length, and the bytes of a PDU.

use crate::input::Input;
use clock::Millis;
use protocols::lacp::{Lacp, MemberSettings, Received, Settings, decode};

/// Most PDUs that one run may send for each member: it answers, and never by itself without end.
const MOST_SENT: usize = 1;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choices = input.byte();
    let settings = Settings {
        is_active: choices & 1 != 0,
        is_fast: choices & 2 != 0,
        system_id: [2, 0, 0, 0, 0, 1],
        system_priority: 65534,
        falls_back: choices & 4 != 0,
    };
    let member = |number: u16| MemberSettings {
        number: number.into(),
        port_id: number,
        port_priority: 65535,
        ..MemberSettings::default()
    };
    let members = [member(1), member(2)];
    let mut lacp = Lacp::default();
    let mut now = Millis(1);
    lacp.configure(&settings, &members, now);
    for member in &members {
        lacp.set_carrier(member.number, true, false, now);
    }
    while !input.is_empty() {
        let step = input.byte();
        now = now + i64::from(step >> 2) * 100;
        let len = usize::from(input.byte());
        let rest = input.take(len);
        if let Ok(Received::Lacp(pdu)) = decode(rest) {
            assert_eq!(decode(&pdu.encode()), Ok(Received::Lacp(pdu)));
        }
        lacp.receive(u32::from(step & 3), rest, now);
        let sent = lacp.run(now);
        for member in &members {
            let of_member = sent.iter().filter(|(number, _)| *number == member.number);
            assert!(of_member.count() <= MOST_SENT);
        }
        for (_, pdu) in &sent {
            assert!(matches!(decode(pdu), Ok(Received::Lacp(_))));
        }
        assert!(lacp.next_due().is_none_or(|next| next > now), "{lacp:?}");
        for member in lacp.members() {
            assert!(!member.may_enable || member.is_attached, "{member:?}");
            assert!(member.partner.system_id != settings.system_id || !member.is_attached);
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // The PDUs of a second machine for the first.
    let mut peer = Lacp::default();
    let settings =
        Settings { is_active: true, system_id: [2, 0, 0, 0, 0, 2], ..Settings::default() };
    let member = MemberSettings { number: 1, port_id: 1, ..MemberSettings::default() };
    peer.configure(&settings, &[member], Millis(1));
    peer.set_carrier(1, true, false, Millis(1));
    let mut seed = vec![3];
    for at in [1, 40_000, 80_000] {
        for (_, pdu) in peer.run(Millis(at)) {
            seed.extend([1 | 4, pdu.len() as u8]);
            seed.extend(pdu);
        }
    }
    vec![seed, vec![4, 1, 3, 2, 0, 0]]
}
