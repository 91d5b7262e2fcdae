// SPDX-License-Identifier: Apache-2.0
//! Removal of connections from the connection tracker, in steps, over a switch with a tracker.

use super::*;
use clock::Millis;
use conntrack::{
    ChecksumState, Checksums, Commit, Family, IpPacket, Metadata, NoBarrier, PlainMemory, Request,
    Sizes, Table, Worker,
};
use datapath_userspace::{Config, ConnectionTable, Makers, UserspaceDatapath};
use openflow::message::CtFlush;

/// Slots of the table. A step of a removal visits 16,384 slots.
const SLOTS: usize = 40_000;
/// Steps of a removal that visits all slots.
const STEPS: usize = SLOTS.div_ceil(16_384);

struct Tracked {
    clock: Clock,
    datapath: Arc<UserspaceDatapath>,
    switch: Switch,
    connections: Connections,
    bridge: BridgeIndex,
}

impl Tracked {
    /// A switch with connections in the zones 5, 6 and 7, eight each, in all parts of the table.
    fn new() -> Tracked {
        let clock = Clock::new();
        clock.stop();
        let sizes = Sizes { chunk_conns: SLOTS, chunks: 1, ..Sizes::default() };
        let table = Table::open(Arc::new(PlainMemory::new(sizes)), [3, 5]).unwrap();
        let connections = ConnectionTable {
            table: Arc::new(table),
            barrier: Box::new(NoBarrier),
            makers: Makers::Daemon,
        };
        let datapath = UserspaceDatapath::with_connections(
            "netdev@ovs-netdev",
            clock.clone(),
            Config::default(),
            connections,
        );
        let base: Arc<dyn Datapath> = datapath.clone();
        let mut switch =
            Switch::new(base, clock.clone(), Sender::new(|_| true), 1000, false).unwrap();
        let bridge = switch.add_bridge("br0", 0x1234);
        let t = Tracked { clock, datapath, switch, connections: Connections::new(), bridge };
        // Each worker takes slots from a part of its own.
        let mut workers: Vec<Worker> =
            (0..8).map(|_| t.tracking().tracker().table().worker()).collect();
        for (n, worker) in workers.iter_mut().enumerate() {
            (5..8).for_each(|zone| t.commit(worker, zone, n as u16));
        }
        assert_eq!([5, 6, 7].map(|zone| t.count(zone)), [8; 3]);
        t
    }

    fn tracking(&self) -> &dyn datapath::Connections {
        self.datapath.connections().expect("it tracks connections")
    }

    fn commit(&self, worker: &mut Worker, zone: u16, port: u16) {
        let frame = Frame::ethernet([0; 6], [0; 6])
            .ipv4([10, 1, 1, 1].into(), [10, 1, 1, 2].into(), 64)
            .udp(1000 + port, 2)
            .finish();
        let mut bytes = frame[14..].to_vec();
        let mut packet = IpPacket {
            bytes: &mut bytes,
            family: Family::V4,
            verify: Checksums::ALL,
            checksum: ChecksumState::Finished,
        };
        let request = Request { zone, commit: Commit::Yes, ..Request::default() };
        let (tracking, mut meta) = (self.tracking(), Metadata::default());
        tracking.tracker().process(&worker.pin(), &mut packet, &mut meta, &request, tracking.now());
    }

    fn count(&self, zone: u16) -> u64 {
        self.tracking().tracker().table().counts().zone(zone)
    }

    fn connect(&mut self) -> Peer {
        let options = Options::new(Kind::Service, "test", Versions::KNOWN);
        let id = self.connections.accept(self.bridge, options, self.clock.now());
        let version = Version::V13;
        self.receive(id, &frame::hello(Versions::NONE.with(version), 1));
        self.connections.take_output(id);
        Peer { id, protocol: Protocol::new(version) }
    }

    fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.connections.receive(id, bytes, &mut self.switch, self.clock.now());
    }

    fn run(&mut self) {
        self.connections.run(&mut self.switch, self.clock.now());
    }

    /// Everything that was written to the peer since the last call.
    fn output(&mut self, peer: Peer) -> Vec<Body> {
        let bytes = self.connections.take_output(peer.id);
        let decode = |message| Message::decode(message, &peer.protocol).unwrap().body;
        frame::split(&bytes).map(decode).collect()
    }
}

fn bytes(peer: Peer, bodies: impl IntoIterator<Item = Body>) -> Vec<u8> {
    let encode = |(n, body)| {
        let message = Message { xid: n as u32, body };
        message.encode(&peer.protocol).unwrap()
    };
    bodies.into_iter().enumerate().flat_map(encode).collect()
}

#[test]
fn requests_after_a_removal_wait_for_its_end() {
    let mut t = Tracked::new();
    let peer = t.connect();
    let echo = |n| Body::EchoRequest(vec![n]);
    let wanted = CtFlush { zone: Some(6), ..CtFlush::default() };
    let requests = bytes(
        peer,
        [Body::CtFlushZone(5), echo(1), Body::CtFlush(wanted), Body::BarrierRequest, echo(2)],
    );
    t.receive(peer.id, &requests);
    // The first step is done.
    assert!(t.output(peer).is_empty());
    let left = t.count(5);
    assert!((1..8).contains(&left), "one step ends a part: {left}");
    let mut seen = Vec::new();
    let mut turns = 0;
    while t.connections.has_unfinished_request(peer.id) {
        assert!(!t.connections.wants_input(peer.id));
        let before = t.count(5) + t.count(6);
        t.receive(peer.id, &[]);
        turns += 1;
        assert!(before - t.count(5) - t.count(6) <= 4, "more than a step");
        assert!(t.count(5) == 0 || t.count(6) == 8, "one after the other");
        let output = t.output(peer);
        if !output.is_empty() {
            // An answer means that everything before it is done.
            assert_eq!(t.count(5), 0);
        }
        seen.extend(output);
        assert!(turns <= 4 * STEPS, "it does not end");
    }
    assert!(turns >= 2 * (STEPS - 1), "{turns} turns");
    assert_eq!([5, 6, 7].map(|zone| t.count(zone)), [0, 0, 8]);
    assert_eq!(seen, [Body::EchoReply(vec![1]), Body::BarrierReply, Body::EchoReply(vec![2])]);
    assert!(t.connections.wants_input(peer.id));
}

#[test]
fn other_peers_are_served_between_the_steps() {
    let mut t = Tracked::new();
    let (peer, other) = (t.connect(), t.connect());
    t.receive(peer.id, &bytes(peer, [Body::CtFlushZone(5)]));
    assert!(t.count(5) > 0);
    t.receive(other.id, &bytes(other, [Body::EchoRequest(vec![3])]));
    assert_eq!(t.output(other), [Body::EchoReply(vec![3])]);
    assert!(t.count(5) > 0);
}

#[test]
fn removals_go_on_without_their_peers() {
    let mut t = Tracked::new();
    let peers = [t.connect(), t.connect(), t.connect()];
    assert_ne!(t.connections.deadline(), Some(Millis(0)));
    for (peer, zone) in peers.into_iter().zip(5..) {
        t.receive(peer.id, &bytes(peer, [Body::CtFlushZone(zone)]));
        assert!(t.count(zone) > 0, "more than one step");
    }
    t.connections.closed(peers[0].id);
    // The transport of this one is still there while its output is written.
    t.connections.close(peers[1].id, "test");
    t.connections.closed(peers[1].id);
    t.connections.bridge_removed(t.bridge);
    t.connections.closed(peers[2].id);
    let mut turns = 0;
    while t.connections.deadline() == Some(Millis(0)) {
        let before = t.count(5) + t.count(6) + t.count(7);
        t.run();
        assert!(before - t.count(5) - t.count(6) - t.count(7) <= 4, "one step at a time");
        turns += 1;
        assert!(turns <= 3 * STEPS, "it does not end");
    }
    assert_eq!([5, 6, 7].map(|zone| t.count(zone)), [0; 3]);
    assert_eq!(turns, 3 * (STEPS - 1), "all orphans are done, and no turn is without work");
    assert_eq!(t.connections.deadline(), None);
}
