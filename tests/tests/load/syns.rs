// SPDX-License-Identifier: Apache-2.0
//! SYNs of random sources to one port, through a stateful firewall that lets them in.

use crate::tools::{SOON, Scene, mac_bytes};
use packet::build::Frame;
use packet::{Packet, TcpHeader};
use slipswitch_tests::harness::{Flood, wait_until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use zerocopy::network_endian::{U16, U32};

const FIREWALL: &str = "priority=10,arp,actions=NORMAL
     priority=5,ip,actions=ct(zone=1,table=1)
     table=1,ip,ct_state=+trk+new,actions=ct(commit,zone=1),NORMAL
     table=1,ip,ct_state=+trk+est-inv,actions=NORMAL";
/// How many connections there may be. One chunk of memory has room for three times as many.
const MOST: u64 = 20_000;
/// Connections of others.
const OTHERS: usize = 50;
/// Connections that others begin during the flood.
const NEW: usize = 50;
/// Seconds for which a host asks for echoes.
const ECHOING: u32 = 8;
/// Kilobytes by which the daemon may grow: a hundredth of what one connection for each SYN would take.
const GROWTH: u64 = 16 << 10;

/// A TCP connection, both of whose ends are here.
struct Talk {
    client: TcpStream,
    server: TcpStream,
}

impl Talk {
    fn new(scene: &Scene, listener: &TcpListener) -> Talk {
        let target: SocketAddr = listener.local_addr().expect("it is bound");
        let connect = || TcpStream::connect_timeout(&target, SOON).expect("it connects");
        let client = scene.b.netns.with(connect);
        let (server, _) = listener.accept().expect("someone connects");
        for end in [&client, &server] {
            end.set_read_timeout(Some(SOON)).expect("not zero");
        }
        Talk { client, server }
    }

    /// Sends a byte there and another one back.
    #[track_caller]
    fn goes_on(&mut self, byte: u8) {
        let mut got = [0];
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            (&*from).write_all(&[byte]).expect("the connection lives");
            (&*to).read_exact(&mut got).expect("the byte arrives");
            assert_eq!(got, [byte]);
        }
    }
}

/// A SYN to port 80 of the first host. It has no route back, so it does not answer.
fn syn(to: [u8; 6], source: Ipv4Addr, port: u16) -> Packet {
    let header = TcpHeader {
        src: U16::new(port),
        dst: U16::new(80),
        seq: U32::new(u32::from(source)),
        ack: U32::ZERO,
        offset_flags: U16::new(5 << 12 | 2),
        window: U16::new(8192),
        checksum: U16::ZERO,
        urgent: U16::ZERO,
    };
    let frame = Frame::ethernet(to, [2, 0, 0, 0, 0, 0x98])
        .ipv4(source, Ipv4Addr::new(10, 0, 0, 1), 64)
        .tcp_header(header)
        .finish();
    Packet::from_slice(&frame)
}

#[test]
fn half_open_connections_end_no_established_one_and_take_bounded_memory() {
    let Some(scene) = Scene::new(FIREWALL) else { return };
    scene.switch.appctl(&format!("dpctl/ct-set-maxconns {MOST}"));
    let listener = scene.a.netns.with(|| TcpListener::bind("10.0.0.1:5000").expect("its address"));
    let mut others: Vec<Talk> = (0..OTHERS).map(|_| Talk::new(&scene, &listener)).collect();
    others.iter_mut().for_each(|talk| talk.goes_on(1));
    let count =
        || -> u64 { scene.switch.appctl("dpctl/ct-get-nconns").trim().parse().expect("a number") };
    let chunks = || {
        let pins = std::fs::read_dir(scene.switch.sandbox().pins()).into_iter().flatten().flatten();
        pins.filter(|pin| pin.file_name().to_string_lossy().starts_with("ct_")).count()
    };
    let (memory, maps) = (scene.memory(), chunks());
    assert!(maps > 0, "connections are in memory that programs share");

    // A connection of ICMP that is established before: a new one could make room for a SYN's until its
    // first answer, and echoes are not sent again.
    let echoes = scene.b.pinging("10.0.0.1", ECHOING);
    let connections = || scene.switch.appctl("dpctl/dump-conntrack zone=1");
    assert!(wait_until(SOON, || connections().contains("icmp")), "{}", connections());
    std::thread::sleep(Duration::from_millis(200));

    let to = mac_bytes(&scene.a);
    let flood = Flood::start(&scene.attacker, 12, move |random| {
        // Not of the hosts' network.
        syn(to, Ipv4Addr::new(11, random.u8(..), random.u8(..), random.u8(1..)), random.u16(1..))
    });
    let is_full = || flood.sent() > 4 * MOST && count() > MOST / 4;
    assert!(wait_until(SOON * 6, is_full), "{} sent, {} made", flood.sent(), count());
    for byte in 2..40 {
        others.iter_mut().for_each(|talk| talk.goes_on(byte));
        assert!(count() <= MOST, "{} connections", count());
    }
    // Others begin connections, too.
    others.extend((0..NEW).map(|_| Talk::new(&scene, &listener)));
    others.iter_mut().for_each(|talk| talk.goes_on(40));
    let echoes = echoes.join().expect("fping ran");
    assert_eq!(echoes.lost(), 0, "{}\n{}", echoes.said, scene.switch.appctl("coverage/show"));
    scene.commands_are_prompt();
    let grown = scene.memory().saturating_sub(memory);
    assert!(grown < GROWTH, "the daemon has grown by {grown} kB");
    // Slots of ended connections wait for their grace periods: another chunk is needed at most.
    assert!(chunks() <= maps + 1, "{} maps of connections, {maps} before", chunks());
    drop(flood);
    let text = scene.switch.appctl("dpctl/dump-conntrack zone=1");
    let alive = |line: &&str| line.contains("dport=5000") && line.contains("state=ESTABLISHED");
    let alive = text.lines().filter(alive).count();
    assert_eq!(alive, others.len(), "connections of others");
    assert_eq!(scene.switch.warnings(), Vec::<String>::new());
}
