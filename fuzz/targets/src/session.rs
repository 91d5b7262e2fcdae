// SPDX-License-Identifier: Apache-2.0
//! A controller's connection to a live bridge: hello, then anything.
//!
//! The input is the version and a list of steps. A step is a message (whose length is made
//! true), raw bytes, a packet, or time.

use crate::bench::Bench;
use crate::input::{Input, with_true_length};
use bridge::connection::{ConnectionId, Kind, Options, format_flows};
use bridge::snapshot::BridgeIndex;
use openflow::message::{
    Body, BundleControlKind, FlowStatsRequest, GROUP_ALL, Message, MultipartReply,
    MultipartRequest, Protocol, Versions,
};
use openflow::{PortNo, Version, frame};

/// Steps that one input may make.
const MAX_STEPS: usize = 48;
/// Bytes that one request may be answered with.
const MAX_ANSWER: usize = 32 << 20;
/// Transaction id of questions of our own.
const XID: u32 = 0xfeed_0001;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let version = input.version();
    let mut peer = Peer::new(version);
    match input.below(8) {
        0 => return peer.handshake(input.rest()),
        1 => peer.connect(Kind::Service),
        _ => peer.connect(Kind::Primary),
    }
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        peer.step(&mut input);
    }
    peer.consistent();
}

struct Peer {
    bench: Bench,
    bridge: BridgeIndex,
    id: ConnectionId,
    version: Version,
}

impl Peer {
    fn new(version: Version) -> Peer {
        let mut bench = Bench::new();
        let bridge = bench.bridge("br0", 3, None);
        let options = Options::new(Kind::Primary, "fuzz", Versions::KNOWN);
        let id = bench.connections.accept(bridge, options, bench.clock.now());
        Peer { bench, bridge, id, version }
    }

    /// Any bytes in place of a hello: the connection goes on or says why it does not.
    fn handshake(&mut self, bytes: &[u8]) {
        self.receive(bytes);
        let output = self.bench.connections.take_output(self.id);
        let whole: usize = frame::split(&output).map(<[u8]>::len).sum();
        assert_eq!(whole, output.len(), "whole messages only");
        let closing = self.bench.connections.closing(self.id).is_some();
        let version = self.bench.connections.status(self.id).and_then(|s| s.version);
        assert!(!closing || version.is_none() || bytes.len() >= 8);
    }

    fn connect(&mut self, kind: Kind) {
        let now = self.bench.clock.now();
        self.bench.connections.closed(self.id);
        let options = Options::new(kind, "fuzz", Versions::KNOWN);
        self.id = self.bench.connections.accept(self.bridge, options, now);
        self.receive(&frame::hello(Versions::NONE.with(self.version), 1));
        let status = self.bench.connections.status(self.id).expect("it was just accepted");
        assert_eq!(status.version, Some(self.version));
        self.read();
    }

    fn receive(&mut self, bytes: &[u8]) {
        let now = self.bench.clock.now();
        self.bench.connections.receive(self.id, bytes, &mut self.bench.switch, now);
    }

    /// Reads all that is there for the peer.
    fn read(&mut self) -> Vec<Message> {
        let protocol = Protocol::new(self.version);
        let (mut messages, mut total) = (Vec::new(), 0);
        loop {
            let bytes = self.bench.connections.take_output(self.id);
            if bytes.is_empty() {
                return messages;
            }
            total += bytes.len();
            assert!(total <= MAX_ANSWER, "more than {total} bytes in answer to one step");
            let mut whole = 0;
            for message in frame::split(&bytes) {
                whole += message.len();
                match Message::decode(message, &protocol) {
                    Ok(message) => messages.push(message),
                    // Sent, as OVS does, where no byte of a packet is asked for; and refused, as
                    // OVS does, where it comes back.
                    Err(_) if is_packet_in2(message) => {}
                    Err(e) => panic!("what the switch sends is not to be read: {e} {message:02x?}"),
                }
            }
            assert_eq!(whole, bytes.len(), "whole messages only");
            let now = self.bench.clock.now();
            self.bench.connections.run(&mut self.bench.switch, now);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let port = PortNo(u32::from(input.byte() & 3));
                let frame = input.counted();
                self.bench.inject(self.bridge, port, frame);
            }
            1 => self.bench.tick(u64::from(input.short()) * 8),
            2 => {
                self.bench.connections.closed(self.id);
                self.connect(Kind::Primary);
            }
            n => {
                let mut message = with_true_length(input.counted());
                if n != 3 {
                    message[0] = self.version.wire(); // 8 bytes at least
                }
                self.message(&message);
            }
        }
        self.read();
        let closing = self.bench.connections.closing(self.id);
        assert_eq!(closing, None, "no whole message ends a connection");
    }

    fn message(&mut self, bytes: &[u8]) {
        let commits = match Message::decode(bytes, &Protocol::new(self.version)) {
            Ok(Message { body: Body::BundleControl(c), .. }) => {
                c.kind == BundleControlKind::CommitRequest
            }
            _ => false,
        };
        if !commits {
            return self.receive(bytes);
        }
        let before = self.state();
        self.receive(bytes);
        let failed = self.read().iter().any(|m| matches!(m.body, Body::Error(_)));
        if failed {
            assert_eq!(self.state(), before, "a bundle that fails changes nothing");
        }
    }

    /// Tables, groups and port settings, as texts.
    fn state(&self) -> [String; 3] {
        let bridge = self.bench.switch.bridge(self.bridge).expect("it stays");
        let mut groups: Vec<String> = bridge
            .pipeline
            .groups()
            .values()
            .map(|g| format!("{} {:?} {:?} {:?}", g.id, g.kind, g.selection, g.buckets))
            .collect();
        groups.sort();
        let ports: Vec<String> =
            bridge.ports.values().map(|p| format!("{} {:?}", p.number, p.config)).collect();
        [format_flows(bridge, self.bench.clock.now()), groups.join("\n"), ports.join("\n")]
    }

    /// Asks a question of our own: the answers with its transaction id.
    fn ask(&mut self, body: Body) -> Vec<Body> {
        let bytes = Message::new(XID, body)
            .encode(&Protocol::new(self.version))
            .expect("every version has these requests");
        self.receive(&bytes);
        let answers = self.read().into_iter().filter(|m| m.xid == XID);
        answers.map(|m| m.body).collect()
    }

    fn multipart(&mut self, request: MultipartRequest) -> Vec<MultipartReply> {
        let bodies = self.ask(Body::MultipartRequest(request));
        let replies = bodies.into_iter().map(|body| match body {
            Body::MultipartReply { reply, .. } => reply,
            other => panic!("{other:?} in answer to a dump"),
        });
        replies.collect()
    }

    /// Checks that the bridge answers after any messages, and that its answers agree.
    fn consistent(&mut self) {
        self.read();
        let echo = self.ask(Body::EchoRequest(vec![1, 2, 3]));
        assert_eq!(echo, [Body::EchoReply(vec![1, 2, 3])]);
        assert_eq!(self.ask(Body::BarrierRequest), [Body::BarrierReply]);
        let flows = self.multipart(MultipartRequest::Flow(Box::new(FlowStatsRequest::all())));
        let listed: usize = flows
            .iter()
            .map(|reply| match reply {
                MultipartReply::Flow { flows, .. } => flows.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        let aggregate =
            self.multipart(MultipartRequest::Aggregate(Box::new(FlowStatsRequest::all())));
        let [MultipartReply::Aggregate { stats, .. }] = &aggregate[..] else {
            panic!("{aggregate:?}")
        };
        assert_eq!(stats.flow_count as usize, listed);
        let bridge = self.bench.switch.bridge(self.bridge).expect("it stays");
        let visible =
            |table: &bridge::pipeline::Table| table.rules().iter().filter(|r| !r.hidden).count();
        let counted: usize = bridge.pipeline.tables().map(|(_, t)| visible(t)).sum();
        assert_eq!(listed, counted);
        let groups = bridge.pipeline.groups().len();
        if self.version >= Version::V11 {
            self.groups(groups);
        }
    }

    fn groups(&mut self, expected: usize) {
        let listed: usize = self
            .multipart(MultipartRequest::Group(GROUP_ALL))
            .iter()
            .map(|reply| match reply {
                MultipartReply::Group(groups) => groups.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(listed, expected);
    }
}

/// NXT_PACKET_IN2 (include/openflow/nicira-ext.h).
fn is_packet_in2(message: &[u8]) -> bool {
    message.get(8..16) == Some(&[0, 0, 0x23, 0x20, 0, 0, 0, 30])
}
