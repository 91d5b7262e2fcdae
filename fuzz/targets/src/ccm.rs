// SPDX-License-Identifier: Apache-2.0
//! Continuity check messages, and a maintenance point that receives them at any times.

use crate::input::Input;
use clock::Millis;
use protocols::cfm::{CCM_LEN, Ccm, Cfm, MAID, MOST_REMOTES, Settings};

/// The input is a byte of settings, and then messages: a byte (steps of time), a byte with the length,
/// and the bytes of a message. A length of [`CCM_LEN`] gets the right association.
pub fn run(bytes: &[u8]) {
    let _ = Ccm::decode(bytes);
    let mut input = Input::new(bytes);
    let choices = input.byte();
    let settings = Settings {
        mpid: 1 + u64::from(choices >> 4),
        interval_ms: 1 + u32::from(input.byte()) * 10,
        is_extended: choices & 1 != 0,
        has_demand: choices & 2 != 0,
        is_up: choices & 4 != 0,
    };
    let mut now = Millis(1);
    let mut received = 0;
    let mut cfm = Cfm::new(settings, received, now).expect("the identifier is in the range");
    while !input.is_empty() {
        now = now + i64::from(input.byte()) * 20;
        let len = usize::from(input.byte());
        let mut message = input.take(len).to_vec();
        if len == CCM_LEN && message.len() == len {
            message[1] = 1;
            message[10..58].copy_from_slice(&MAID);
        }
        if let Ok(ccm) = Ccm::decode(&message) {
            assert_eq!(Ccm::decode(&ccm.encode()), Ok(ccm));
        }
        for odd in cfm.receive(&message, now) {
            assert!(!odd.to_string().is_empty());
        }
        received += u64::from(input.byte() & 1);
        let round = cfm.run(now, received);
        if let Some(ccm) = round.ccm {
            assert_eq!(Ccm::decode(&ccm.encode()), Ok(ccm));
        }
        assert!(cfm.next_due() > now, "{cfm:?}");
        let (status, report) = (cfm.status(), cfm.report(now));
        assert!(report.remotes.len() <= MOST_REMOTES && status.remotes.len() <= MOST_REMOTES);
        assert!(status.health.is_none_or(|health| health <= 100), "{status:?}");
        assert!(round.change.is_none_or(|(before, after)| before != after));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    // The messages of another end.
    let settings =
        Settings { mpid: 7, interval_ms: 300, is_extended: true, has_demand: false, is_up: true };
    let mut peer = Cfm::new(settings, 0, Millis(0)).expect("the identifier is in the range");
    let mut seed = vec![5, 29];
    for at in (0..4_000).step_by(300) {
        if let Some(ccm) = peer.run(Millis(at), 0).ccm {
            seed.extend([15, CCM_LEN as u8]);
            seed.extend(ccm.encode());
            seed.push(1);
        }
    }
    let plain = [&[0, 9, 1, CCM_LEN as u8][..], &[1; CCM_LEN], &[0]].concat();
    vec![seed, plain, vec![3, 1, 200, 0, 1, 200, 0, 1, 250, 3, 1, 1, 1]]
}
