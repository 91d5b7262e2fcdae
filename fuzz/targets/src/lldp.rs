// SPDX-License-Identifier: Apache-2.0
//! LLDP data units from any bytes, and an agent that receives them.

use crate::input::Input;
use clock::Millis;
use protocols::lldp::{
    Agent, Announcement, DESTINATION, MOST_MAPPINGS, MOST_NEIGHBOURS, Mapping, Settings, decode,
};

/// The input is a byte of settings, and then frames: a byte (steps of time, destination), two bytes with
/// the length, and the bytes of a data unit.
pub fn run(bytes: &[u8]) {
    let _ = decode(bytes);
    let mut input = Input::new(bytes);
    let mappings = (0..u16::from(input.byte())).map(|n| (u32::from(n), n)).collect();
    let settings = Settings { is_enabled: true, mappings, ..Settings::default() };
    let mut now = Millis(0);
    let mut agent = Agent::new([2; 6], "p1", settings, now);
    while !input.is_empty() {
        let step = input.byte();
        now = now + i64::from(step >> 1) * 100;
        let destination = if step & 1 == 0 { DESTINATION } else { [3; 6] };
        let len = usize::from(input.short());
        let rest = input.take(len);
        let (read, _) = decode(rest);
        if let Ok(pdu) = &read {
            assert!(!pdu.chassis.value.is_empty() && !pdu.port.value.is_empty());
            assert!(pdu.assignments.iter().all(|a| a.mapping.vlan < 4096 && a.status < 16));
        }
        let error = agent.receive(destination, rest, now);
        assert!(error.is_none() || error == read.err());
        if let Some(sent) = agent.run(now) {
            let pdu = decode(&sent).0.expect("what is sent can be read");
            assert!(pdu.assignments.len() <= MOST_MAPPINGS);
        }
        assert!(agent.next_due().is_some_and(|next| next > now), "{agent:?}");
        let report = agent.report();
        assert!(report.neighbours.len() <= MOST_NEIGHBOURS);
        let counts = report.counts;
        assert!(counts.inserted >= counts.aged + counts.deleted + report.neighbours.len() as u64);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mappings: Vec<Mapping> = (1..100).map(|n| Mapping { isid: n.into(), vlan: n }).collect();
    let mut seed = vec![9];
    for (port, name) in [("p1", "sw"), ("p2", ""), ("p1", "other")] {
        let announcement = Announcement {
            mac: [2, 0, 0, 0, 0, 7],
            port,
            system_name: name,
            system_description: "a switch",
            mappings: &mappings,
        };
        let pdu = announcement.encode();
        seed.push(60);
        seed.extend((pdu.len() as u16).to_be_bytes());
        seed.extend(pdu);
    }
    let plain = [2, 2, 4, 1, 4, 2, 5, 2, 6, 2, 0, 1, 16, 6, 5, 1, 10, 0, 0, 1, 0, 0];
    let short = [&[0, 2, 0, plain.len() as u8][..], &plain, &[254, 0, 1, 9]].concat();
    vec![seed, plain.to_vec(), short]
}
