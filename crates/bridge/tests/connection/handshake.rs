// SPDX-License-Identifier: Apache-2.0
//! Hello, echo, features, configuration; messages of unknown types.

use super::*;
use bridge::connection::Kind;
use openflow::message::{FragmentHandling, Hello, PacketInFormat, Role, RoleRequest, SwitchConfig};

#[test]
fn no_common_version_gets_an_error_and_closes() {
    let mut b = Bench::new(0);
    let options = Options::new(Kind::Service, "test", Versions::NONE.with(Version::V13));
    let id = b.connections.accept(b.bridge, options, b.clock.now());
    let hello = frame::hello(Versions::NONE.with(Version::V10), 1);
    b.connections.receive(id, &hello, &mut b.switch, b.clock.now());
    assert!(b.connections.closing(id).unwrap().contains("version negotiation failed"));
    assert!(!b.connections.wants_input(id));
    let bytes = b.connections.take_output(id);
    let last = frame::split(&bytes).last().unwrap();
    let Ok(Message { body: Body::Error(e), .. }) =
        Message::decode(last, &Protocol::new(Version::V10))
    else {
        panic!()
    };
    assert_eq!(known(&e.error), OfError::OFPHFC_INCOMPATIBLE);
    b.connections.closed(id);
    assert!(b.connections.status(id).is_none());
}

#[test]
fn every_version_shakes_hands_byte_by_byte() {
    for version in Version::ALL {
        let mut b = Bench::new(1);
        let options = Options::new(Kind::Service, "test", Versions::KNOWN);
        let id = b.connections.accept(b.bridge, options, b.clock.now());
        let mut bytes = frame::hello(Versions::NONE.with(version), 1);
        let echo = Message::new(4, Body::EchoRequest(vec![1, 2, 3]));
        bytes.extend(echo.encode(&Protocol::new(version)).unwrap());
        for byte in bytes {
            b.connections.receive(id, &[byte], &mut b.switch, b.clock.now());
        }
        let peer = Peer { id, protocol: Protocol::new(version) };
        let got = b.output(peer);
        assert_eq!(got[1], Message::new(4, Body::EchoReply(vec![1, 2, 3])));
        let Body::FeaturesReply(features) = b.one(peer, Body::FeaturesRequest) else { panic!() };
        assert_eq!((features.datapath_id, features.n_tables), (0x1234, 254));
        assert_eq!(b.one(peer, Body::BarrierRequest), Body::BarrierReply);
    }
}

#[test]
fn configuration_is_kept_per_connection_and_fragments_per_bridge() {
    let mut b = Bench::new(1);
    let (p, q) = (b.connect(Kind::Service, Version::V10), b.connect(Kind::Service, Version::V12));
    let config = SwitchConfig {
        fragments: FragmentHandling::NxMatch,
        invalid_ttl_to_controller: Some(true),
        miss_send_len: 300,
    };
    b.send(q, 1, Body::SetConfig(config));
    let Body::GetConfigReply(mine) = b.one(q, Body::GetConfigRequest) else { panic!() };
    assert_eq!(mine, config);
    let Body::GetConfigReply(other) = b.one(p, Body::GetConfigRequest) else { panic!() };
    assert_eq!((other.fragments, other.miss_send_len), (FragmentHandling::NxMatch, 0));
    let settings = &b.switch.bridge(b.bridge).unwrap().config;
    assert!(settings.invalid_ttl_to_controller && settings.miss_to_controller);
    assert_eq!((settings.frag_handling, settings.miss_send_len), (3, 300));
    // The settings of a closed connection no longer count.
    b.connections.closed(q.id);
    b.tick(1);
    let settings = &b.switch.bridge(b.bridge).unwrap().config;
    assert!(!settings.invalid_ttl_to_controller && !settings.miss_to_controller);
}

#[test]
fn what_is_not_understood_gets_an_error_and_the_connection_lives() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    // Type 99; an experimenter message of an unknown vendor; a version that was not negotiated.
    for (bytes, error) in [
        (vec![4, 99, 0, 8, 0, 0, 0, 7], OfError::OFPBRC_BAD_TYPE),
        (
            vec![4, 4, 0, 16, 0, 0, 0, 7, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1],
            OfError::OFPBRC_BAD_VENDOR,
        ),
        (vec![2, 5, 0, 8, 0, 0, 0, 7], OfError::OFPBRC_BAD_VERSION),
        (vec![4, 13, 0, 9, 0, 0, 0, 7, 0], OfError::OFPBRC_BAD_LEN),
    ] {
        b.bytes(p, &bytes);
        let got = b.output(p);
        let [Message { xid: 7, body: Body::Error(e) }] = &got[..] else { panic!("{got:?}") };
        assert_eq!(known(&e.error), error);
        assert_eq!(e.data, bytes);
    }
    assert_eq!(b.error(p, Body::BarrierReply), OfError::OFPBRC_BAD_TYPE);
    assert_eq!(b.one(p, Body::BarrierRequest), Body::BarrierReply);
    // Only bytes that are not messages end the connection.
    b.bytes(p, &[4, 0, 0, 3, 0, 0, 0, 0]);
    assert!(b.connections.closing(p.id).is_some());
}

#[test]
fn silent_peers_are_probed_then_given_up() {
    let mut b = Bench::new(0);
    let options = Options {
        inactivity_probe_ms: 5000,
        ..Options::new(Kind::Primary, "tcp:c", Versions::KNOWN)
    };
    let p = b.connect_with(options, Version::V13);
    b.tick(4999);
    assert!(b.output(p).is_empty());
    assert_eq!(b.connections.deadline(), Some(b.clock.now() + 1));
    b.tick(1);
    assert!(matches!(b.output(p)[..], [Message { body: Body::EchoRequest(_), .. }]));
    assert!(b.connections.status(p.id).unwrap().idle);
    b.send(p, 0, Body::EchoReply(Vec::new()));
    assert!(!b.connections.status(p.id).unwrap().idle);
    b.tick(5000);
    assert_eq!(b.output(p).len(), 1);
    b.tick(5000);
    assert!(b.connections.closing(p.id).unwrap().contains("inactivity probe"));
}

#[test]
fn a_controller_admits_the_switch_by_what_it_sends() {
    let looks = [
        Body::Hello(Hello { versions: Versions::KNOWN }),
        Body::EchoRequest(Vec::new()),
        Body::EchoReply(Vec::new()),
        Body::FeaturesRequest,
        Body::GetConfigRequest,
        Body::SetConfig(SwitchConfig {
            fragments: FragmentHandling::Normal,
            invalid_ttl_to_controller: None,
            miss_send_len: 128,
        }),
        Body::GetAsyncRequest,
        Body::MultipartRequest(MultipartRequest::GroupDesc(0)),
        Body::MultipartRequest(MultipartRequest::TableFeatures(Default::default())),
    ];
    let controls = [
        Body::BarrierRequest,
        Body::MultipartRequest(MultipartRequest::PortDesc(PortNo::NONE)),
        Body::FlowMod(Box::new(flow(1, Match::ANY, &[]))),
        Body::RoleRequest(RoleRequest {
            role: Role::Secondary,
            generation_id: Some(1),
            nicira: false,
        }),
    ];
    for last in controls {
        let mut b = Bench::new(0);
        let p = b.connect(Kind::Primary, Version::V13);
        let service = b.connect(Kind::Service, Version::V13);
        b.ask(service, 1, last.clone());
        for body in &looks {
            b.ask(p, 1, body.clone());
            assert!(!b.connections.is_admitted(b.bridge), "{body:?}");
        }
        assert_eq!(b.connections.last_admitted(b.bridge, b.clock.now()), None);
        b.ask(p, 1, last.clone());
        assert!(b.connections.is_admitted(b.bridge), "{last:?}");
        b.ask(p, 1, Body::EchoReply(Vec::new()));
        assert!(b.connections.is_admitted(b.bridge), "it stays admitted");
        b.connections.closed(p.id);
        assert!(!b.connections.is_admitted(b.bridge));
        // Admission ends with the connection.
        b.connect(Kind::Primary, Version::V13);
        assert!(!b.connections.is_admitted(b.bridge));
    }
}

#[test]
fn a_controller_that_stays_for_thirty_seconds_admits_the_switch_by_any_message() {
    let mut b = Bench::new(0);
    let p = b.connect(Kind::Primary, Version::V13);
    b.tick(29_999);
    b.send(p, 1, Body::EchoReply(Vec::new()));
    assert!(!b.connections.is_admitted(b.bridge));
    b.tick(1);
    assert!(!b.connections.is_admitted(b.bridge), "time alone does not");
    b.send(p, 1, Body::EchoReply(Vec::new()));
    assert!(b.connections.is_admitted(b.bridge));
}

#[test]
fn the_time_without_a_controller_counts_from_its_last_message() {
    for inactivity_probe_ms in [5000, 0] {
        let mut b = Bench::new(0);
        let options =
            Options { inactivity_probe_ms, ..Options::new(Kind::Primary, "c", Versions::KNOWN) };
        let p = b.connect_with(options, Version::V13);
        let start = b.clock.now();
        b.tick(1000);
        b.ask(p, 1, Body::BarrierRequest);
        b.tick(8000);
        let now = b.clock.now();
        assert_eq!(b.connections.last_admitted(b.bridge, now), Some(now));
        b.connections.closed(p.id);
        assert_eq!(b.connections.last_admitted(b.bridge, now + 700), Some(start + 1000));
    }
}

#[test]
fn a_probe_for_admission_is_a_packet_in_to_controllers() {
    let mut b = Bench::new(1);
    for version in [Version::V10, Version::V13, Version::V15] {
        let p = b.connect(Kind::Primary, version);
        b.connections.probe_admission(b.bridge, &b.switch, b.clock.now());
        let got = b.output(p);
        let [Message { body: Body::PacketIn(packet_in), .. }] = &got[..] else { panic!("{got:?}") };
        assert_eq!(packet_in.in_port(), PortNo::LOCAL);
        assert_eq!(packet_in.data.len(), 60);
    }
}

#[test]
fn nicira_settings_are_taken() {
    let mut b = Bench::new(0);
    let p = b.connect(Kind::Service, Version::V10);
    for body in [
        Body::SetControllerId(4),
        Body::SetPacketInFormat(PacketInFormat::Nxt2),
        Body::FlowModTableId(true),
        Body::FlowAge,
    ] {
        assert!(b.ask(p, 1, body).is_empty());
    }
}

#[test]
fn snoopers_hear_both_sides_of_controllers_only() {
    let mut b = Bench::new(1);
    let snooper = b.connect(Kind::Snoop, Version::V13);
    let (c, m) = (b.connect(Kind::Primary, Version::V13), b.connect(Kind::Service, Version::V13));
    assert!(b.output(snooper).is_empty(), "hellos precede the first copy");
    b.send(m, 1, Body::BarrierRequest);
    assert!(b.output(snooper).is_empty());
    b.send(c, 2, Body::BarrierRequest);
    let heard = b.output(snooper);
    assert_eq!(heard, [Message::new(2, Body::BarrierRequest), Message::new(2, Body::BarrierReply)]);
    b.send(snooper, 3, Body::FlowMod(Box::new(delete_all())));
    assert!(b.output(snooper).is_empty());
}

#[test]
fn who_reads_a_long_reply_is_not_silent() {
    let mut b = Bench::new(1);
    let options = Options {
        inactivity_probe_ms: 1000,
        ..Options::new(Kind::Primary, "tcp:c", Versions::KNOWN)
    };
    let p = b.connect_with(options, Version::V13);
    for n in 0..50_000 {
        b.switch.flow_mod(b.bridge, &flow(1, ip(n), &[])).unwrap();
    }
    b.send(p, 8, Body::MultipartRequest(MultipartRequest::Flow(Box::new(FlowStatsRequest::all()))));
    for _ in 0..10 {
        assert!(!b.connections.wants_input(p.id));
        assert!(!b.connections.take_output(p.id).is_empty());
        b.tick(900);
        assert_eq!(b.connections.closing(p.id), None);
    }
    // The peer stops reading.
    b.tick(1000);
    b.tick(1000);
    b.tick(1000);
    assert!(b.connections.closing(p.id).is_some());
}
