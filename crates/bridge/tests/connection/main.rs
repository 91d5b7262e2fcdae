// SPDX-License-Identifier: Apache-2.0
//! OpenFlow connections, driven by bytes, over a switch with the model datapath.

mod asynchronous;
mod barriers;
mod bundles;
mod flows;
mod flush;
mod fuzz;
mod handshake;
mod monitors;
mod options;
mod roles;
#[path = "../support/mod.rs"]
mod support;

use bridge::connection::{ConnectionId, Connections, Kind, Options};
use bridge::event::{Event, Sender};
use bridge::snapshot::BridgeIndex;
use bridge::snapshot::INTERNAL_TABLE;
use bridge::switch::{PortRequest, Switch};
use clock::Clock;
use datapath::{Datapath, Packets, PortKind, PortSpec};
use datapath_model::Model;
use flow::{Field, Match};
use openflow::message::{
    Body, ErrorCode, FlowFlags, FlowMod, FlowModCommand, FlowStats, FlowStatsRequest, GROUP_ANY,
    Message, MultipartReply, MultipartRequest, Protocol, TABLE_ALL, Versions,
};
use openflow::{Action, OfError, PortNo, Version, frame};
use packet::Packet;
use packet::build::Frame;
use std::sync::{Arc, Mutex};
use support::Base;

/// A switch with one bridge and what controls it.
struct Bench {
    clock: Clock,
    model: Arc<Model>,
    events: Arc<Mutex<Vec<Event>>>,
    switch: Switch,
    connections: Connections,
    bridge: BridgeIndex,
}

/// The other end of a connection.
#[derive(Clone, Copy)]
struct Peer {
    id: ConnectionId,
    protocol: Protocol,
}

impl Bench {
    fn new(ports: u32) -> Bench {
        let Base { clock, model, events, mut switch } = Base::new();
        let bridge = switch.add_bridge("br0", 0x1234);
        for n in 1..=ports {
            let spec =
                PortSpec { name: format!("p{n}"), kind: PortKind::Dummy, ..PortSpec::default() };
            switch
                .add_port(bridge, &PortRequest { spec, ofport: None, peer: None, tunnel: None })
                .unwrap();
            let bundle =
                bridge::port::Bundle { interfaces: vec![format!("p{n}")], ..Default::default() };
            switch.bridge_mut(bridge).unwrap().bundles.push(bundle);
        }
        switch.publish();
        Bench { clock, model, events, switch, connections: Connections::new(), bridge }
    }

    /// A connection whose handshake is done.
    fn connect(&mut self, kind: Kind, version: Version) -> Peer {
        self.connect_with(Options::new(kind, "test", Versions::KNOWN), version)
    }

    fn connect_with(&mut self, options: Options, version: Version) -> Peer {
        let id = self.connections.accept(self.bridge, options, self.clock.now());
        let hello = frame::hello(Versions::NONE.with(version), 1);
        self.connections.receive(id, &hello, &mut self.switch, self.clock.now());
        assert_eq!(self.connections.closing(id), None);
        assert_eq!(self.connections.status(id).unwrap().version, Some(version));
        let peer = Peer { id, protocol: Protocol::new(version) };
        assert!(matches!(self.output(peer)[..], [Message { body: Body::Hello(_), .. }]));
        peer
    }

    fn bytes(&mut self, peer: Peer, bytes: &[u8]) {
        self.connections.receive(peer.id, bytes, &mut self.switch, self.clock.now());
    }

    fn send(&mut self, peer: Peer, xid: u32, body: Body) {
        let bytes = Message { xid, body }.encode(&peer.protocol).unwrap();
        self.bytes(peer, &bytes);
    }

    /// Everything that was written to the peer since the last call.
    fn output(&mut self, peer: Peer) -> Vec<Message> {
        let mut out = Vec::new();
        loop {
            let bytes = self.connections.take_output(peer.id);
            if bytes.is_empty() {
                return out;
            }
            let mut whole = 0;
            for message in frame::split(&bytes) {
                whole += message.len();
                out.push(
                    Message::decode(message, &peer.protocol).expect("what we send can be decoded"),
                );
            }
            assert_eq!(whole, bytes.len(), "whole messages only");
            let now = self.clock.now();
            self.connections.run(&mut self.switch, now);
        }
    }

    /// Sends a request and returns what came back.
    fn ask(&mut self, peer: Peer, xid: u32, body: Body) -> Vec<Message> {
        self.send(peer, xid, body);
        self.output(peer)
    }

    /// Sends a request that is answered by one message with its transaction id.
    fn one(&mut self, peer: Peer, body: Body) -> Body {
        let mut got = self.ask(peer, 77, body);
        assert_eq!(got.len(), 1, "{got:?}");
        let message = got.remove(0);
        assert_eq!(message.xid, 77);
        message.body
    }

    fn error(&mut self, peer: Peer, body: Body) -> OfError {
        match self.one(peer, body) {
            Body::Error(e) => known(&e.error),
            other => panic!("no error: {other:?}"),
        }
    }

    fn multipart(&mut self, peer: Peer, request: MultipartRequest) -> MultipartReply {
        match self.one(peer, Body::MultipartRequest(request)) {
            Body::MultipartReply { reply, .. } => reply,
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, peer: Peer, fm: FlowMod) {
        let got = self.ask(peer, 5, Body::FlowMod(Box::new(fm)));
        assert!(got.is_empty(), "{got:?}");
    }

    fn flows(&mut self, peer: Peer) -> Vec<FlowStats> {
        let request = MultipartRequest::Flow(Box::new(FlowStatsRequest::all()));
        let mut out = Vec::new();
        let got = self.ask(peer, 9, Body::MultipartRequest(request));
        let last = got.len() - 1;
        for (n, message) in got.into_iter().enumerate() {
            assert_eq!(message.xid, 9);
            let Body::MultipartReply { more, reply: MultipartReply::Flow { flows, .. } } =
                message.body
            else {
                panic!("{message:?}")
            };
            assert_eq!(more, n != last);
            out.extend(flows);
        }
        out
    }

    fn rule_count(&self) -> usize {
        let pipeline = &self.switch.bridge(self.bridge).unwrap().pipeline;
        pipeline.rule_count() - pipeline.table(INTERNAL_TABLE).unwrap().rules().len()
    }

    /// A packet comes in.
    fn receive(&mut self, port: u32, packet: &Packet) {
        let number = self.switch.bridge(self.bridge).unwrap().ports[&PortNo(port)].dp_port.unwrap();
        self.model.inject(packet.clone(), number);
        self.deliver();
    }

    /// Carries events to controllers, as the daemon does.
    fn deliver(&mut self) {
        let events: Vec<Event> = std::mem::take(&mut *self.events.lock().unwrap());
        for event in events {
            if let Event::PacketIn(packet_in) = event {
                self.connections.packet_in(&packet_in, &self.switch, self.clock.now());
            }
        }
    }

    /// Periodic work, as the daemon does it.
    fn tick(&mut self, ms: u64) {
        self.clock.advance(ms);
        let now = self.clock.now();
        for (bridge, changes) in self.switch.run() {
            self.connections.rules_changed(bridge, changes, &mut self.switch, now);
        }
        self.connections.run(&mut self.switch, now);
    }

    fn sent(&self, port: u32) -> usize {
        let number = self.switch.bridge(self.bridge).unwrap().ports[&PortNo(port)].dp_port.unwrap();
        self.model.take_sent(number).len()
    }
}

fn known(code: &ErrorCode) -> OfError {
    match code {
        ErrorCode::Known(e) => *e,
        other => panic!("{other:?}"),
    }
}

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn to_controller() -> Action {
    Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff }
}

fn ip(dst: u32) -> Match {
    let mut m = Match::ANY;
    m.set(Field::EthType, 0x800);
    m.set(Field::Ipv4Dst, dst.into());
    m
}

fn flow(priority: u16, matching: Match, actions: &[Action]) -> FlowMod {
    FlowMod::add(priority, matching, actions)
}

fn delete_all() -> FlowMod {
    FlowMod { command: FlowModCommand::Delete, table_id: TABLE_ALL, ..flow(0, Match::ANY, &[]) }
}

fn udp(src: u8, dst: u8) -> Packet {
    Frame::ethernet([2, 0, 0, 0, 0, dst], [2, 0, 0, 0, 0, src])
        .ipv4([10, 0, 0, src].into(), [10, 0, 0, dst].into(), 64)
        .udp(1000, 2000)
        .payload(&[0; 20])
        .packet()
}
