// SPDX-License-Identifier: Apache-2.0
//! Controllers that flood, stall, break off or talk nonsense. Others are not disturbed, and what
//! it costs is bounded.

use crate::tools::{BACKOFF, SOON, descriptors, memory};
use slipswitch_tests::harness::{Kind, Mode, Switch, wait_until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Kilobytes that a badly behaved peer may cost.
const COST: u64 = 48 * 1024;
/// How long another controller may have to wait for an answer, on a machine that is busy with
/// the flood.
const PROMPT: Duration = Duration::from_secs(1);
const FRAME: &str = "50540000000250540000000188cc0000";

/// How many messages a flood has.
fn flood_size() -> usize {
    let asked = std::env::var("SLIPSWITCH_TEST_FLOOD").ok();
    asked.map_or(100_000, |n| n.parse().expect("SLIPSWITCH_TEST_FLOOD is a number"))
}

/// A dummy switch whose clock runs, with ports p1 and p2.
fn switch() -> Switch {
    let switch = Switch::start(Kind::under_test(), Mode::Dummy);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    for port in ["p1", "p2"] {
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy options:tx_pcap={port}-tx.pcap"
        ));
    }
    switch.flows("br0", "in_port=1,actions=output:2");
    switch
}

/// A message of OpenFlow 1.3.
pub fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 8).expect("it fits");
    let mut bytes = vec![4, kind];
    bytes.extend(length.to_be_bytes());
    bytes.extend(xid.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A flow mod that adds a drop for the given metadata to table 5.
fn flow_mod(metadata: u64) -> Vec<u8> {
    let mut body = vec![0; 40];
    body[16] = 5; // table
    body[22..24].copy_from_slice(&7u16.to_be_bytes()); // priority
    body[24..28].fill(0xff); // no buffer
    body[28..36].fill(0xff); // any port, any group
    // Match of type OXM, 16 bytes: metadata.
    body.extend([0, 1, 0, 16, 0x80, 0, 4, 8]);
    body.extend(metadata.to_be_bytes());
    message(14, 1, &body)
}

/// A packet-out to port 1 of a frame of `length` bytes.
fn packet_out(length: usize) -> Vec<u8> {
    let mut body = vec![0xff; 4];
    body.extend(0xffff_fffdu32.to_be_bytes()); // from the controller
    body.extend([0, 16, 0, 0, 0, 0, 0, 0]); // length of the actions
    body.extend([0, 0, 0, 16, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0]); // output:1
    body.extend(vec![0x55; length]);
    message(13, 1, &body)
}

/// A connection that has said hello.
fn connect(switch: &Switch) -> UnixStream {
    connect_by(switch, "br0.mgmt")
}

/// The same by another socket of the bridge.
fn connect_by(switch: &Switch, socket: &str) -> UnixStream {
    let mut stream =
        UnixStream::connect(switch.sandbox().file(socket)).expect("the bridge listens");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    stream.set_write_timeout(Some(SOON)).expect("not zero");
    stream.write_all(&message(0, 1, &[])).expect("the bridge reads");
    assert_eq!(read(&mut stream).expect("the bridge says hello")[1], 0);
    stream
}

/// The next message; `None` at the connection's end.
pub fn read(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 8];
    stream.read_exact(&mut bytes).ok()?;
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    bytes.resize(length.max(8), 0);
    stream.read_exact(&mut bytes[8..]).ok()?;
    Some(bytes)
}

/// Asks for an echo; how long it took.
#[track_caller]
fn echo(stream: &mut UnixStream) -> Duration {
    let start = Instant::now();
    stream.write_all(&message(2, 77, b"echo")).expect("the bridge reads");
    assert_eq!(read(stream), Some(message(3, 77, b"echo")));
    start.elapsed()
}

/// Checks that a bad peer disturbs neither another controller, nor the tools, nor packets.
#[track_caller]
fn unharmed(switch: &Switch, other: &mut UnixStream) {
    let took = echo(other);
    assert!(took < PROMPT, "an echo took {took:?}");
    let before = switch.sent("p2").len();
    switch.receive("p1", FRAME);
    assert_eq!(switch.sent("p2").len(), before + 1, "{}", switch.story());
    assert!(switch.ofctl("dump-flows br0 table=0").contains("output:2"));
}

/// Writes `count` messages as fast as the bridge takes them, and then asks for an echo, while
/// another thread reads. Returns how many answers there were.
fn flood(switch: &Switch, count: usize, next: impl Fn(usize) -> Vec<u8>) -> usize {
    let mut stream = connect(switch);
    let mut reader = stream.try_clone().expect("descriptors are left");
    reader.set_read_timeout(Some(Duration::from_secs(120))).expect("not zero");
    stream.set_write_timeout(Some(Duration::from_secs(120))).expect("not zero");
    let last = message(2, u32::MAX, &[]);
    let answer = message(3, u32::MAX, &[]);
    let answers = std::thread::spawn(move || {
        let mut count = 0;
        while read(&mut reader).expect("the bridge answers") != answer {
            count += 1;
        }
        count
    });
    for start in (0..count).step_by(1000) {
        let batch: Vec<u8> = (start..count.min(start + 1000)).flat_map(&next).collect();
        stream.write_all(&batch).expect("the bridge reads");
    }
    stream.write_all(&last).expect("the bridge reads");
    answers.join().expect("the bridge answers all")
}

#[test]
fn floods_of_messages_hold_nobody_up_and_are_all_answered() {
    let switch = switch();
    let mut other = connect(&switch);
    let size = flood_size();
    let before = memory(&switch);
    let busy = AtomicBool::new(true);
    let (echoes, longest) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut echoes, mut longest) = (0, Duration::ZERO);
            while busy.load(Ordering::Relaxed) {
                longest = longest.max(echo(&mut other));
                echoes += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            (echoes, longest)
        });
        // A thousand flows again and again, echo requests, packets to a port.
        assert_eq!(flood(&switch, size, |n| flow_mod(n as u64 % 1000)), 0);
        assert_eq!(flood(&switch, size, |n| message(2, n as u32, &[0; 100])), size);
        assert_eq!(flood(&switch, size, |_| packet_out(100)), 0);
        busy.store(false, Ordering::Relaxed);
        asking.join().expect("the other controller is answered")
    });
    eprintln!("{size} of each: {echoes} echoes of another, the longest took {longest:?}");
    assert!(echoes > 10 && longest < PROMPT, "{echoes} echoes, the longest took {longest:?}");
    assert_eq!(switch.ofctl("dump-flows br0 table=5").matches("drop").count(), 1000);
    let out = switch.sent("p1").len();
    assert_eq!(out, size, "packets of the flood");
    unharmed(&switch, &mut other);
    let more = memory(&switch).saturating_sub(before);
    assert!(more < COST, "{more} kB more");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_controller_that_asks_and_never_reads_costs_little() {
    let switch = switch();
    let mut other = connect(&switch);
    let before = memory(&switch);
    let peers: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut stream = connect(&switch);
            stream.set_write_timeout(Some(Duration::from_millis(200))).expect("not zero");
            let batch: Vec<u8> = (0..500).flat_map(|n| message(2, n, &[7; 60_000])).collect();
            assert!(stream.write_all(&batch).is_err(), "30 MB were taken");
            stream
        })
        .collect();
    unharmed(&switch, &mut other);
    let more = memory(&switch).saturating_sub(before);
    assert!(more < COST, "8 peers cost {more} kB");
    drop(peers);
    unharmed(&switch, &mut other);
}

#[test]
fn half_a_message_is_waited_for_and_a_broken_off_one_is_forgotten() {
    let switch = switch();
    let mut other = connect(&switch);
    unharmed(&switch, &mut other);
    let (files, before) = (descriptors(&switch), memory(&switch));
    let whole = flow_mod(4711);
    // Cut everywhere, in the header too.
    for length in 1..whole.len() {
        let mut stream = connect(&switch);
        stream.write_all(&whole[..length]).expect("the bridge reads");
    }
    let waiting: Vec<UnixStream> = (0..50)
        .map(|_| {
            let mut stream = connect(&switch);
            stream.write_all(&packet_out(60_000)[..50_000]).expect("the bridge reads");
            stream
        })
        .collect();
    unharmed(&switch, &mut other);
    assert!(!switch.ofctl("dump-flows br0").contains("metadata"), "half a message did something");
    let more = memory(&switch).saturating_sub(before);
    assert!(more < 50 * 256, "50 halves of messages cost {more} kB");
    // The other half, after a while.
    let mut stream = connect(&switch);
    for piece in whole.chunks(7) {
        stream.write_all(piece).expect("the bridge reads");
        std::thread::sleep(Duration::from_millis(20));
    }
    echo(&mut stream);
    assert!(switch.ofctl("dump-flows br0 table=5").contains("metadata=0x1267"));
    let sent = switch.sent("p1").len();
    let (first, second) = (packet_out(1000)[..500].to_vec(), packet_out(1000)[500..].to_vec());
    stream.write_all(&first).expect("the bridge reads");
    unharmed(&switch, &mut other);
    assert_eq!(switch.sent("p1").len(), sent);
    stream.write_all(&second).expect("the bridge reads");
    assert!(wait_until(SOON, || switch.sent("p1").len() == sent + 1), "{}", switch.story());
    drop((waiting, stream));
    let closed = wait_until(SOON, || descriptors(&switch) <= files);
    assert!(closed, "{} descriptors after {files}", descriptors(&switch));
}

#[test]
fn messages_of_the_greatest_length_are_taken_or_refused_in_words() {
    let switch = switch();
    let mut other = connect(&switch);
    let mut stream = connect(&switch);
    let most = usize::from(u16::MAX) - 8;
    // Echo.
    let data: Vec<u8> = (0..most).map(|n| (n % 251) as u8).collect();
    stream.write_all(&message(2, 5, &data)).expect("the bridge reads");
    assert!(read(&mut stream) == Some(message(3, 5, &data)), "another echo");
    // All others, of zeros and of 0xff: an error that quotes the beginning, or an answer.
    let mut errors = 0;
    for (kind, fill) in (4..40).flat_map(|kind| [(kind, 0), (kind, 0xff)]) {
        stream.write_all(&message(kind, 6, &vec![fill; most])).expect("the bridge reads");
        stream.write_all(&message(2, 7, b"end")).expect("the bridge reads");
        loop {
            let answer = read(&mut stream).expect("the connection stays");
            match answer[1] {
                3 => break,
                1 => {
                    errors += 1;
                    assert!(answer.len() >= 12 + 64, "an error about type {kind}");
                }
                _ => {}
            }
        }
    }
    assert!(errors > 50, "{errors} errors");
    unharmed(&switch, &mut other);
    // A flow with as many actions as there is room for.
    let mut body = flow_mod(9)[8..].to_vec();
    let room = (most - body.len() - 8) / 16 * 16;
    body.extend([0, 4, 0, 0, 0, 0, 0, 0]);
    let at = body.len() - 6;
    body[at..at + 2].copy_from_slice(&(room as u16 + 8).to_be_bytes());
    for _ in 0..room / 16 {
        body.extend([0, 0, 0, 16, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    }
    stream.write_all(&message(14, 8, &body)).expect("the bridge reads");
    stream.write_all(&message(2, 9, b"end")).expect("the bridge reads");
    assert_eq!(read(&mut stream).expect("the connection stays")[1], 3, "it is taken");
    assert!(switch.ofctl("dump-aggregate br0 table=5").contains("flow_count=1"));
    // Its statistics are longer than the request that made it: monitors are notified all the same.
    switch.ofctl("add-flow br0 table=5,priority=1,actions=drop");
    let flows = switch.ofctl("-O OpenFlow13 dump-flows br0");
    assert!(flows.contains("actions=drop") && flows.contains("output:2"), "{flows}");
    assert_eq!(switch.warnings().iter().filter(|l| l.contains("left out of a dump")).count(), 1);
    unharmed(&switch, &mut other);
}

#[test]
fn another_version_is_refused_and_disturbs_nobody() {
    let switch = switch();
    let mut other = connect(&switch);
    let warnings = switch.warnings().len();
    let hello = |version: u8, bitmap: Option<u32>| {
        let mut bytes = vec![version, 0, 0, 8, 0, 0, 0, 1];
        if let Some(bitmap) = bitmap {
            bytes[3] = 16;
            bytes.extend([0, 1, 0, 8]);
            bytes.extend(bitmap.to_be_bytes());
        }
        bytes
    };
    for (first, wrong) in [
        (hello(0, None), true),
        (hello(9, Some(1 << 9)), true),
        (vec![4, 14, 0, 8, 0, 0, 0, 1], true),
        (hello(9, None), false),
        (hello(9, Some(0)), false),
        (hello(0xff, Some(1 << 4)), false),
    ] {
        let mut stream =
            UnixStream::connect(switch.sandbox().file("br0.mgmt")).expect("the bridge listens");
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        stream.write_all(&first).expect("the bridge reads");
        let hello = read(&mut stream).expect("the bridge says hello");
        if wrong {
            while let Some(answer) = read(&mut stream) {
                assert_eq!(answer[1], 1, "only an error: {first:x?}");
            }
        } else {
            let version = if first[0] == 0xff { 4 } else { hello[0] };
            stream.write_all(&[version, 2, 0, 8, 0, 0, 0, 3]).expect("the bridge reads");
            assert_eq!(read(&mut stream), Some(vec![version, 3, 0, 8, 0, 0, 0, 3]));
        }
        unharmed(&switch, &mut other);
    }
    let told = switch.warnings().len() - warnings;
    assert_eq!(told, 3, "one for each: {}", switch.story());
    // In the middle of a conversation.
    let mut stream = connect(&switch);
    stream.write_all(&[1, 5, 0, 8, 0, 0, 0, 3]).expect("the bridge reads");
    let answer = read(&mut stream).expect("an error");
    assert_eq!((answer[1], &answer[8..12]), (1, [0, 1, 0, 0].as_slice()), "OFPBRC_BAD_VERSION");
    echo(&mut stream);
    unharmed(&switch, &mut other);
}

/// A controller that accepts connections, says something and hears nothing.
struct Liar {
    address: String,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Liar {
    /// With `stays` connections are kept, else they end at once.
    fn start(words: &'static [u8], stays: bool) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        listener.set_nonblocking(true).expect("sockets can be");
        let (accepted, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (Arc::clone(&accepted), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((mut stream, _)) = listener.accept() {
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write_all(words); // a closed connection is no error
                    kept.extend(stays.then_some(stream));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Liar { address, accepted, stop }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn bad_controllers_are_asked_ever_more_seldom_and_the_log_falls_silent() {
    let switch = switch();
    let mut other = connect(&switch);
    let liars = [
        Liar::start(b"", false),
        Liar::start(&[4, 14, 0, 8, 0, 0, 0, 1], true),
        Liar::start(&[4, 0, 0, 3, 0, 0, 0, 0], true),
        Liar::start(&[4, 0, 0], false),
    ];
    let targets: Vec<String> = liars.iter().map(|l| format!("tcp:{}", l.address)).collect();
    switch.vsctl(&format!("set-controller br0 {} tcp:127.0.0.1:1", targets.join(" ")));
    let rows = switch.vsctl("--bare --columns=_uuid list controller");
    for row in rows.split_whitespace() {
        switch.vsctl(&format!("set controller {row} max_backoff=2000"));
    }
    // The first controller of a bridge finds it empty.
    switch.flows("br0", "in_port=1,actions=output:2");
    // Connections at 0, 1, 3, 5 and 7 s.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_secs(1));
        unharmed(&switch, &mut other);
    }
    for liar in &liars {
        let tries = liar.accepted();
        assert!((3..=7).contains(&tries), "{tries} attempts in 8 s: {}", switch.story());
    }
    let (before, lines) = (liars[0].accepted(), switch.log().lines().count());
    assert!(wait_until(BACKOFF, || liars[0].accepted() >= before + 2), "{}", switch.story());
    let log = switch.log();
    let said: Vec<&str> = log.lines().skip(lines).collect();
    assert!(said.is_empty(), "{said:#?}");
    let status = switch.vsctl("--columns=is_connected,status list controller");
    assert!(!status.contains("is_connected        : true"), "{status}");
    assert!(status.contains("last_error"), "{status}");
}

#[test]
fn a_controller_that_says_nothing_is_given_up() {
    let switch = switch();
    let mute = Liar::start(b"", true);
    switch.vsctl(&format!("set-controller br0 tcp:{}", mute.address));
    switch.vsctl("set controller br0 inactivity_probe=1000 max_backoff=1000");
    let told = wait_until(SOON, || switch.log().contains("no hello, disconnecting"));
    assert!(told, "{}", switch.story());
    let before = mute.accepted();
    assert!(wait_until(SOON, || mute.accepted() > before), "{}", switch.story());
    // And complained about no more.
    let lines = switch.log().lines().count();
    assert!(wait_until(SOON, || mute.accepted() > before + 1), "{}", switch.story());
    let log = switch.log();
    let said: Vec<&str> = log.lines().skip(lines).collect();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn the_last_error_of_a_controller_is_in_the_words_of_open_vswitch() {
    let switch = switch();
    let cases = [
        ("Connection refused", None),
        ("Connection timed out", Some(Liar::start(b"", true))),
        ("Protocol error", Some(Liar::start(&[4, 14, 0, 8, 0, 0, 0, 1], true))),
        (
            "Protocol error",
            Some(Liar::start(&[9, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 2, 0], true)),
        ),
        ("Protocol error", Some(Liar::start(&[4, 0, 0, 8, 0, 0, 0, 1, 4, 0, 0, 3], true))),
    ];
    for (words, liar) in &cases {
        let address = liar.as_ref().map_or("127.0.0.1:1", |liar| &liar.address);
        switch.vsctl(&format!(
            "set-controller br0 tcp:{address} -- set controller br0 inactivity_probe=1000"
        ));
        let told = wait_until(SOON, || {
            switch.vsctl("get controller br0 status").contains(&format!("last_error=\"{words}\""))
        });
        assert!(told, "{words}: {}", switch.vsctl("get controller br0 status"));
    }
    // A reconnection that was asked for is no error.
    let good = Liar::start(&[4, 0, 0, 8, 0, 0, 0, 1], true);
    switch.vsctl(&format!(
        "set-controller br0 tcp:{} -- set controller br0 inactivity_probe=0",
        good.address
    ));
    let is_connected = || switch.vsctl("get controller br0 is_connected") == "true\n";
    assert!(wait_until(SOON, is_connected), "{}", switch.story());
    switch.appctl("bridge/reconnect br0");
    assert!(wait_until(SOON, || good.accepted() == 2), "{}", switch.story());
    assert!(!switch.vsctl("get controller br0 status").contains("last_error"));
}

#[test]
fn a_rate_limit_lets_packets_go_one_by_one() {
    const QUEUED: usize = 25;
    let switch = switch();
    switch.vsctl(
        "set-controller br0 punix:$OVS_RUNDIR/br0.limited \
         -- set controller br0 controller_rate_limit=100 controller_burst_limit=25",
    );
    assert!(
        wait_until(SOON, || switch.sandbox().file("br0.limited").exists()),
        "{}",
        switch.story()
    );
    let mut controller = connect_by(&switch, "br0.limited");
    controller.write_all(&message(9, 2, &[0, 0, 0, 128])).expect("the bridge reads");
    echo(&mut controller); // it is a listener by now
    switch.flows("br0", "in_port=1,actions=controller");
    let frames = [FRAME].repeat(2 * QUEUED).join(" ");
    switch.appctl(&format!("netdev-dummy/receive p1 {frames}"));
    let mut arrivals = Vec::new();
    while arrivals.len() < 2 * QUEUED {
        let packet_in = read(&mut controller).expect("as many as were sent");
        if packet_in[1] == 10 {
            arrivals.push(Instant::now());
        }
    }
    // A burst at once, then one every 10 ms, even if the machine is busy at times.
    let late = arrivals.windows(2).filter(|two| two[1] - two[0] > Duration::from_millis(4));
    let bunches = late.count();
    assert!(bunches >= 4, "{QUEUED} packets came in {bunches} bunches");
}
