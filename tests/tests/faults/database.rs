// SPDX-License-Identifier: Apache-2.0
//! A database server that is slow, sends nonsense, dies or hangs. Meanwhile packets continue to
//! flow and the log reports the fault once. In the end the switch has the database's configuration.

use crate::proxy::{Manner, Proxy};
use crate::tools::{BACKOFF, SOON, memory};
use slipswitch_tests::harness::{Kind, Mode, Options, Switch, wait_until};
use std::time::{Duration, Instant};

const FRAME: &str = "50540000000250540000000188cc0000";

/// A dummy switch with ports p1 and p2 and a running clock, connected through a proxy.
fn switch() -> (Switch, Proxy) {
    let arguments = vec!["unix:proxy.sock".to_owned()];
    let options = Options { arguments, ..Options::new(Kind::under_test(), Mode::Dummy) };
    let switch = Switch::with(options);
    let sandbox = switch.sandbox();
    let proxy = Proxy::start(&sandbox.file("proxy.sock"), &sandbox.file("db.sock"));
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    for port in ["p1", "p2"] {
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy options:tx_pcap={port}-tx.pcap"
        ));
    }
    switch.flows("br0", "in_port=1,actions=output:2");
    (switch, proxy)
}

/// The switch forwards, and answers at once.
#[track_caller]
fn forwards(switch: &Switch) {
    let (before, start) = (switch.sent("p2").len(), Instant::now());
    switch.receive("p1", FRAME);
    assert_eq!(switch.sent("p2").len(), before + 1, "{}", switch.story());
    assert!(switch.ofctl("dump-flows br0").contains("output:2"));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "that took {took:?}");
}

/// Something that the daemon has to do is written into the database, and not waited for.
fn ask(switch: &Switch, port: &str) {
    switch.vsctl(&format!("--no-wait add-port br0 {port} -- set interface {port} type=dummy"));
}

fn is_done(switch: &Switch, port: &str) -> bool {
    switch.ofctl("show br0").contains(&format!("({port})"))
}

#[track_caller]
fn comes(switch: &Switch, port: &str) {
    assert!(wait_until(BACKOFF, || is_done(switch, port)), "{port}: {}", switch.story());
    let number = switch.vsctl(&format!("--timeout=10 get interface {port} ofport"));
    assert!(number.trim().parse::<u32>().is_ok_and(|n| n > 0), "{port} has number {number}");
}

fn message(method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"id":null,"method":"{method}","params":{params}}}"#).into_bytes()
}

#[test]
fn nonsense_from_the_database_is_logged_once_and_survived() {
    let (switch, proxy) = switch();
    let update = |update: &str| {
        let params = format!(
            r#"[["monid","Open_vSwitch"],"00000000-0000-0000-0000-000000000001",{update}]"#
        );
        message("update3", &params)
    };
    let row = "00000000-0000-0000-0000-000000000009";
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("no JSON", b"{\"id\":nonsense}".to_vec()),
        ("no text", b"{\"id\":\xff\xfe\x00}".to_vec()),
        ("an answer to nothing", br#"{"id":4711,"result":{},"error":null}"#.to_vec()),
        ("too deep", b"{\"a\":".repeat(200)),
        (
            "a table that is not there",
            update(&format!(r#"{{"Nonsense":{{"{row}":{{"insert":{{}}}}}}}}"#)),
        ),
        ("a row without a name", update(r#"{"Bridge":{"nonsense":{"insert":{}}}}"#)),
        (
            "a value of another type",
            update(&format!(r#"{{"Bridge":{{"{row}":{{"insert":{{"name":{{}}}}}}}}}}"#)),
        ),
        (
            "a row deleted that is not there",
            update(&format!(r#"{{"Bridge":{{"{row}":{{"delete":null}}}}}}"#)),
        ),
        ("parameters that are none", message("update3", "17")),
        ("the end of the monitor", message("monitor_canceled", r#"[["monid","Open_vSwitch"]]"#)),
    ];
    for (number, (what, bytes)) in table.iter().enumerate() {
        // A connection that has lasted a second is tried again at once.
        std::thread::sleep(Duration::from_millis(1100));
        let (connections, warnings) = (proxy.accepted(), switch.warnings().len());
        let port = format!("q{number}");
        proxy.say(bytes);
        ask(&switch, &port);
        forwards(&switch);
        comes(&switch, &port);
        forwards(&switch);
        let told = switch.warnings().len() - warnings;
        assert!(told <= 1, "{what}: {told} warnings: {}", switch.story());
        let again = proxy.accepted() - connections;
        assert!(again <= 1, "{what}: {again} connections: {}", switch.story());
    }
    // A value that a later protocol might add is no error.
    let (connections, warnings) = (proxy.accepted(), switch.warnings().len());
    proxy.say(&[message("nonsense", "[]"), message("more", "1")].concat());
    ask(&switch, "q99");
    comes(&switch, "q99");
    assert_eq!((proxy.accepted(), switch.warnings().len()), (connections, warnings));
}

#[test]
fn a_database_that_breaks_off_in_a_message_is_asked_again() {
    let (switch, proxy) = switch();
    for bytes in [1, 5_000] {
        std::thread::sleep(Duration::from_millis(1100));
        proxy.behave(Manner::Broken(bytes));
        proxy.cut();
        let port = format!("q{bytes}");
        ask(&switch, &port);
        let broken = proxy.accepted();
        assert!(wait_until(SOON, || proxy.accepted() > broken), "{}", switch.story());
        forwards(&switch);
        assert!(!is_done(&switch, &port), "the database was not heard to the end");
        proxy.behave(Manner::Honest);
        comes(&switch, &port);
    }
    // Half of an update.
    proxy.say(br#"{"id":null,"method":"update3","params":[["monid","Open_vSw"#);
    forwards(&switch);
    proxy.cut();
    ask(&switch, "q7");
    comes(&switch, "q7");
}

#[test]
fn a_database_that_only_lies_is_asked_seldom_and_not_complained_about_for_long() {
    let (switch, proxy) = switch();
    std::thread::sleep(Duration::from_millis(1100));
    let (before, lines) = (proxy.accepted(), switch.log().lines().count());
    proxy.behave(Manner::Lying(b"* OK IMAP4rev1 ready\r\n".to_vec()));
    proxy.cut();
    // At once, then after 1, 2, 4 and 8 seconds.
    std::thread::sleep(Duration::from_secs(6));
    let tries = proxy.accepted() - before;
    assert!((2..=4).contains(&tries), "{tries} attempts in 6 s: {}", switch.story());
    let log = switch.log();
    let said: Vec<&str> = log.lines().skip(lines).collect();
    assert!(said.len() <= 5 * tries, "{} lines in 6 s: {said:#?}", said.len());
    assert!(said.iter().any(|l| l.contains("JSON")), "no line names the fault: {said:#?}");
    forwards(&switch);
    // The pauses have reached their longest.
    let quiet = || switch.log().contains("suppressing further logging");
    assert!(wait_until(Duration::from_secs(30), quiet), "{}", switch.story());
    let (tries, lines) = (proxy.accepted(), switch.log().lines().count());
    assert!(wait_until(BACKOFF, || proxy.accepted() > tries), "{}", switch.story());
    let log = switch.log();
    let said: Vec<&str> = log.lines().skip(lines).collect();
    assert!(said.is_empty(), "{said:#?}");
    // Another trouble is worth a word.
    proxy.behave(Manner::Lying(b"{\"id\":nonsense}".to_vec()));
    let told = || switch.warnings().iter().any(|l| l.contains("nonsense") || l.contains("column"));
    assert!(wait_until(BACKOFF, told), "{}", switch.story());
    let lines = switch.log().lines().count();
    proxy.behave(Manner::Honest);
    ask(&switch, "q1");
    comes(&switch, "q1");
    forwards(&switch);
    let connected = switch.log().lines().skip(lines).filter(|l| l.ends_with(": connected")).count();
    assert_eq!(connected, 1, "{}", switch.story());
}

#[test]
fn a_huge_message_ends_the_connection_and_its_memory_is_given_back() {
    let (switch, proxy) = switch();
    std::thread::sleep(Duration::from_millis(1100));
    let before = memory(&switch);
    proxy.say(b"{\"id\":null,\"method\":\"");
    let piece = vec![b'a'; 1 << 20];
    // The limit is 256 MiB.
    let mut largest = 0;
    let connections = proxy.accepted();
    for _ in 0..300 {
        proxy.say(&piece);
        largest = largest.max(memory(&switch));
        if proxy.accepted() > connections {
            break;
        }
    }
    forwards(&switch);
    assert!(wait_until(SOON, || proxy.accepted() > connections), "{}", switch.story());
    assert!(largest < before + 600 * 1024, "{largest} kB after {before} kB");
    ask(&switch, "q1");
    comes(&switch, "q1");
    let now = memory(&switch);
    assert!(now < before + 16 * 1024, "{now} kB after {before} kB");
}

#[test]
fn a_slow_database_is_heard_out_and_holds_nobody_up() {
    let (switch, proxy) = switch();
    let ports: String = (10..70)
        .map(|n| format!(" -- add-port br0 d{n} -- set interface d{n} type=dummy"))
        .collect();
    switch.vsctl(&format!("--no-wait{ports}"));
    comes(&switch, "d69");
    std::thread::sleep(Duration::from_millis(1100));
    let warnings = switch.warnings().len();
    proxy.behave(Manner::Dribbling(50));
    let connections = proxy.accepted();
    proxy.cut();
    assert!(wait_until(SOON, || proxy.accepted() > connections));
    ask(&switch, "q1");
    while !is_done(&switch, "q1") {
        forwards(&switch);
        assert_eq!(proxy.accepted(), connections + 1, "it was given up: {}", switch.story());
    }
    comes(&switch, "q1");
    assert_eq!(switch.warnings().len(), warnings, "{}", switch.story());
}

#[test]
fn a_database_that_hangs_holds_nobody_up() {
    let (switch, _proxy) = switch();
    let pid = switch.sandbox().read("ovsdb-server.pid");
    let signal = |name: &str| switch.run(&format!("kill -{name} {}", pid.trim()));
    signal("STOP");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        forwards(&switch);
        switch.ofctl("add-flow br0 table=7,actions=drop");
        std::thread::sleep(Duration::from_millis(100));
    }
    signal("CONT");
    ask(&switch, "q1");
    comes(&switch, "q1");
    assert!(switch.ofctl("dump-flows br0 table=7").contains("drop"), "flows stay");
}

#[test]
fn a_database_that_is_restarted_ten_times_is_followed_to_the_end() {
    let (mut switch, _proxy) = switch();
    for round in 0..10 {
        ask(&switch, &format!("r{round}"));
        if round % 2 == 1 {
            switch.vsctl(&format!("--no-wait del-port r{}", round - 1));
        }
        switch.kill_database();
        forwards(&switch);
        switch.start_database();
    }
    comes(&switch, "r9");
    let ports = switch.ofctl("show br0");
    for round in 0..10 {
        let is_there = ports.contains(&format!("(r{round})"));
        assert_eq!(is_there, round % 2 == 1, "r{round}: {ports}");
    }
    forwards(&switch);
    let severe = switch.warnings();
    assert!(severe.len() <= 10, "{severe:#?}");
}
