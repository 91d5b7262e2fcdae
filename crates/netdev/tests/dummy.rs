// SPDX-License-Identifier: Apache-2.0
//! Dummy devices. Needs no privilege.

use netdev::{Kind, OpenSpec, Opened, PacketPool, SendReport, dummy, open};
use packet::{Gso, Offload, Packet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn opened(name: &str, options: &[(&str, &str)]) -> Opened {
    let mut spec = OpenSpec::new(name, Kind::Dummy);
    spec.options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let o = open(&spec).unwrap_or_else(|e| panic!("{e}"));
    o.device.set_admin_up(true).expect("a dummy can");
    o
}

fn frame(n: usize, fill: u8) -> Packet {
    Packet::from_slice(&vec![fill; n])
}

/// Returns the frames of a capture file.
fn captured(path: &std::path::Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("the file was created");
    assert_eq!(bytes[..4], 0xa1b2_c3d4u32.to_ne_bytes());
    let (mut at, mut frames) = (24, Vec::new());
    while at < bytes.len() {
        let n = u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().expect("4 bytes")) as usize;
        frames.push(bytes[at + 16..at + 16 + n].to_vec());
        at += 16 + n;
    }
    frames
}

#[test]
fn packets_are_processed_inline_with_a_receiver_and_wait_without() {
    let mut o = opened("inline0", &[]);
    let dev = dummy::lookup("inline0").expect("it is open");
    assert_eq!(dev.receive(0, vec![frame(60, 1), frame(13, 1)]), 1);
    let (mut out, mut pool) = (Vec::new(), PacketPool::default());
    assert!(o.queues[0].poll_fd().is_none());
    assert_eq!(o.queues[0].recv(&mut out, &mut pool, 8).expect("always"), 1);
    assert_eq!(dev.receive(0, vec![frame(61, 2); 120]), 100, "the queue is full");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, sender) = (seen.clone(), o.sender.clone());
    dev.on_receive(Some(Arc::new(move |queue, packets: Vec<Packet>| {
        // A receiver may send on the same device.
        assert_eq!(sender.send(&packets).sent, packets.len() as u64);
        log.lock().expect("no panic").push((queue, packets.len()));
    })));
    assert_eq!(dev.receive(7, vec![frame(62, 3)]), 1);
    assert_eq!(*seen.lock().expect("no panic"), [(0, 100), (0, 1)]);
    let stats = o.device.stats().expect("always");
    assert_eq!((stats.rx_packets, stats.rx_bytes), (Some(102), Some(60 + 6100 + 62)));
    assert_eq!((stats.tx_packets, stats.tx_bytes), (Some(101), Some(6100 + 62)));
    assert_eq!((stats.rx_dropped, stats.rx_errors), (Some(20), Some(1)));
    let custom: Vec<String> =
        o.device.custom_counters().iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        custom,
        [
            "rx_custom_packets_1=102",
            "rx_custom_packets_2=102",
            "rx_q0_bytes=6222",
            "rx_q0_packets=102",
            "tx_q0_bytes=6162",
            "tx_q0_packets=101",
        ]
    );
    dev.on_receive(None);
}

#[test]
fn names_are_taken_while_a_device_is_open() {
    let o = opened("name0", &[("ifindex", "77")]);
    assert_eq!(o.device.ifindex(), Some(77));
    assert!(open(&OpenSpec::new("name0", Kind::Dummy)).is_err());
    assert!(dummy::all().iter().any(|d| netdev::Device::name(&**d) == "name0"));
    drop(o);
    assert!(dummy::lookup("name0").is_none());
    let again = opened("name0", &[]);
    let mac = again.device.status().expect("always").mac;
    assert_eq!(mac[..4], [0xaa, 0x55, 0xaa, 0x55]);
}

#[test]
fn frames_are_captured_and_counted() {
    let dir = testing::directory();
    let (rx, tx) = (dir.path().join("rx"), dir.path().join("tx"));
    let o = opened(
        "pcap0",
        &[("rxq_pcap", rx.to_str().expect("text")), ("tx_pcap", tx.to_str().expect("text"))],
    );
    dummy::lookup("pcap0").expect("open").receive(0, vec![frame(60, 1)]);
    let mut tagged = frame(1518, 0);
    tagged.data_mut()[12..14].copy_from_slice(&[0x81, 0]);
    let mut broken = frame(60, 1);
    broken.offload.csum = Some((59, 16));
    let report =
        o.sender.send(&[frame(60, 2), frame(1514, 0), frame(1515, 0), tagged, frame(9, 0), broken]);
    let expected =
        SendReport { sent: 3, dropped_too_long: 1, dropped_malformed: 2, ..SendReport::default() };
    assert_eq!(report, expected);
    assert_eq!(captured(&rx), [vec![1; 60]]);
    let sent = captured(&tx);
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [60, 1514, 1518]);
    o.device.set_admin_up(false).expect("a dummy can");
    let status = o.device.status().expect("always");
    assert!(!status.admin_up && !status.link_up);
    assert_eq!(o.sender.send(&[frame(60, 2)]).sent, 1, "as in Open vSwitch");
    let stats = o.device.stats().expect("always");
    assert_eq!((stats.tx_packets, stats.tx_dropped, stats.rx_errors), (Some(4), Some(2), None));
    drop(o);

    // One file for both directions.
    let both = dir.path().join("both");
    let o = opened("pcap1", &[("pcap", both.to_str().expect("text"))]);
    dummy::lookup("pcap1").expect("open").receive(0, vec![frame(60, 3)]);
    o.sender.send(&[frame(61, 4)]);
    assert_eq!(captured(&both), [vec![3; 60], vec![4; 61]]);

    let e = open(&{
        let mut s = OpenSpec::new("pcap2", Kind::Dummy);
        s.options.insert("pcap".into(), "/no/such/directory/x".into());
        s
    });
    assert!(e.err().expect("no file").to_string().contains("options:pcap"));
}

#[test]
fn large_packets_leave_in_segments() {
    let dir = testing::directory();
    let tx = dir.path().join("tx");
    let o = opened("gso0", &[("tx_pcap", tx.to_str().expect("text"))]);
    // Ethernet, IPv4, UDP with 3,000 bytes of payload.
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend(3028u16.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
    bytes.extend(3008u16.to_be_bytes());
    bytes.resize(14 + 3028, 0);
    let mut p = Packet::from_slice(&bytes);
    p.offload =
        Offload { csum: Some((34, 6)), gso: Some((Gso::UdpL4, 1000, 42)), ..Offload::default() };
    assert_eq!(o.sender.send(&[p]).sent, 1);
    assert_eq!(captured(&tx).iter().map(Vec::len).collect::<Vec<_>>(), [1042; 3]);
}

#[test]
fn a_dummy_with_an_address_answers_arp() {
    let mut o = opened("arp0", &[]);
    let dev = dummy::lookup("arp0").expect("open");
    dev.add_ip4("10.1.2.3".parse().expect("an address"));
    let mac = o.device.status().expect("always").mac;
    let mut request = vec![0xff; 6];
    request.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9]);
    request.extend([10, 1, 2, 9, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]);
    assert_eq!(o.sender.send(&[Packet::from_slice(&request)]).sent, 1);
    let mut out = Vec::new();
    o.queues[0].recv(&mut out, &mut PacketPool::default(), 8).expect("always");
    let [reply] = out.as_slice() else { panic!("{out:?}") };
    let mut expected = vec![2, 0, 0, 0, 0, 9];
    expected.extend(mac);
    expected.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    expected.extend(mac);
    expected.extend([10, 1, 2, 3, 2, 0, 0, 0, 0, 9, 10, 1, 2, 9]);
    assert_eq!(reply.data(), expected);
}

#[test]
fn dummies_connect_by_streams() {
    let dir = testing::directory();
    let path = dir.path().join("sock");
    let path = path.to_str().expect("text");
    let mut a = opened("conn-a", &[("pstream", &format!("punix:{path}"))]);
    let mut b = opened("conn-b", &[("stream", &format!("unix:{path}"))]);
    let (da, db) = (dummy::lookup("conn-a").expect("open"), dummy::lookup("conn-b").expect("open"));
    let wait = |what: &str, done: &mut dyn FnMut() -> bool| {
        let end = Instant::now() + Duration::from_secs(5);
        while !done() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait("connected", &mut || {
        da.connection_state() == "connected" && db.connection_state() == "connected"
    });
    let mut pool = PacketPool::default();
    for (from, to, n) in [(0, 1, 60), (1, 0, 1514)] {
        let p = frame(n, 5);
        let mut both = [&mut a, &mut b];
        assert_eq!(both[from].sender.send(std::slice::from_ref(&p)).sent, 1);
        let mut out = Vec::new();
        wait("delivered", &mut || {
            both[to].queues[0].recv(&mut out, &mut pool, 8).expect("always") > 0
        });
        assert_eq!(out, [p]);
    }
    drop((a, da));
    wait("hung up", &mut || db.connection_state() == "disconnected");
    assert!(!std::path::Path::new(path).exists(), "the socket is removed");
    let _a = opened("conn-a", &[("pstream", &format!("punix:{path}"))]);
    wait("connected again", &mut || db.connection_state() == "connected");
    let mut s = OpenSpec::new("conn-c", Kind::Dummy);
    s.options.insert("stream".into(), "carrier-pigeon:1".into());
    assert!(open(&s).err().expect("no such thing").to_string().contains("options:stream"));
}
