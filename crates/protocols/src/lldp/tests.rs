// SPDX-License-Identifier: Apache-2.0

use super::*;

fn settings(mappings: &[(u32, u16)]) -> Settings {
    Settings {
        is_enabled: true,
        system_name: "sw".to_owned(),
        system_description: "a switch".to_owned(),
        mappings: mappings.iter().copied().collect(),
    }
}

fn agent(mappings: &[(u32, u16)]) -> Agent {
    Agent::new([2, 0, 0, 0, 0, 9], "p1", settings(mappings), Millis(0))
}

/// The TLVs of a data unit of another system, up to the optional ones.
fn head(port: u8, ttl: u8) -> Vec<u8> {
    vec![2, 3, 4, 0xab, 0xcd, 4, 2, 5, port, 6, 2, 0, ttl]
}

fn pdu(port: u8, ttl: u8) -> Vec<u8> {
    [&head(port, ttl)[..], &[0, 0]].concat()
}

#[test]
fn announcements_are_sent_in_the_interval() {
    let mut agent = agent(&[]);
    assert_eq!((agent.run(Millis(4_999)), agent.next_due()), (None, Some(Millis(5_000))));
    let sent = agent.run(Millis(5_000)).expect("it is due");
    assert_eq!(decode(&sent).0.map(|pdu| pdu.port.value), Ok(b"p1".to_vec()));
    assert_eq!((agent.run(Millis(9_999)), agent.report().counts.sent), (None, 1));
    agent.configure(Settings { is_enabled: false, ..settings(&[]) }, Millis(9_999));
    assert_eq!((agent.run(Millis(20_000)), agent.next_due()), (None, None));
    agent.configure(settings(&[]), Millis(20_000));
    assert_eq!(agent.next_due(), Some(Millis(25_000)));
}

#[test]
fn neighbours_come_and_go() {
    let mut agent = agent(&[]);
    for now in [1, 2] {
        assert_eq!(agent.receive(DESTINATION, &pdu(7, 10), Millis(now)), None);
    }
    let other = [&head(7, 10)[..], &[12, 1, b'x', 0, 0]].concat();
    agent.receive(DESTINATION, &other, Millis(3));
    assert_eq!(agent.report().neighbours[0].description.as_deref(), Some("x"));
    agent.receive(DESTINATION, &pdu(8, 1), Millis(3));
    agent.receive([1, 0x80, 0xc2, 0, 0, 3], &pdu(9, 10), Millis(3));
    let report = agent.report();
    let ports: Vec<u8> = report.neighbours.iter().map(|n| n.port.value[0]).collect();
    assert_eq!(ports, [7, 8]);
    assert_eq!(report.neighbours[0].description, None, "the system has no description any more");
    assert_eq!((report.counts.received, report.counts.inserted), (5, 2));
    assert_eq!(agent.next_due(), Some(Millis(1_003)));
    agent.run(Millis(1_003));
    assert_eq!((agent.report().counts.aged, agent.report().neighbours.len()), (1, 1));
    agent.receive(DESTINATION, &pdu(7, 0), Millis(1_004));
    assert_eq!((agent.report().counts.deleted, agent.report().neighbours.len()), (1, 0));
}

#[test]
fn malformed_frames_are_counted() {
    let mut agent = agent(&[]);
    assert_eq!(agent.receive(DESTINATION, &head(1, 10), Millis(1)), Some(PduError::Missing));
    let reserved = [&head(1, 10)[..], &[254, 4, 0, 0x12, 0xbb, 1, 18, 0]].concat();
    assert_eq!(agent.receive(DESTINATION, &reserved, Millis(1)), Some(PduError::Unknown(9)));
    let counts = agent.report().counts;
    assert_eq!((counts.received, counts.discarded, counts.unrecognized), (2, 2, 2));
}

#[test]
fn neighbours_have_a_limit() {
    let mut agent = agent(&[]);
    for port in 0..MOST_NEIGHBOURS as u8 + 3 {
        agent.receive(DESTINATION, &pdu(port, 10), Millis(1));
    }
    let report = agent.report();
    assert_eq!((report.neighbours.len(), report.counts.dropped), (MOST_NEIGHBOURS, 3));
    agent.receive(DESTINATION, &[&head(0, 10)[..], &[12, 1, b'x', 0, 0]].concat(), Millis(2));
    assert_eq!(agent.report().counts.dropped, 3, "a known one may change");
}

#[test]
fn a_server_answers_mappings() {
    let mut agent = agent(&[(100, 10), (200, 20)]);
    let answer = [&[254, 41, 0, 4, 13, 12][..], &[0; 32], &[0x20, 10, 0, 0, 100]].concat();
    let bytes = [&head(1, 10)[..], &answer, &[0, 0]].concat();
    assert_eq!(agent.receive(DESTINATION, &bytes, Millis(1)), None);
    let status: Vec<_> = agent.report().mappings;
    assert_eq!(
        status,
        [
            (Mapping { isid: 100, vlan: 10 }, MappingStatus::Answered(2)),
            (Mapping { isid: 200, vlan: 20 }, MappingStatus::Pending),
        ]
    );
}
