// SPDX-License-Identifier: Apache-2.0
//! A firewall that lets connections out.

use super::{Stopped, await_conn, client, conn, conns, equal, file, firewall, is_ignored};
use super::{is_refused, pair, part, server, succeeds};
use crate::tools::{SOON, Stream, tcp};
use slipswitch_tests::harness::{Kind, wait_until, without_tool};

/// The flow that drops what the outside begins.
const DROPPED: &str = "br0 cookie=9/-1";

#[test]
fn connections_go_out_and_none_come_in() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows("br0", &firewall("ip", "zone=1", "zone=1"));
    tcp(&a, &b, 2_000_000);
    let line = await_conn(&switch, &["tcp,", "TIME_WAIT"]);
    let (sport, dport) = (part(&line, "sport="), part(&line, "dport="));
    assert_eq!(
        line,
        format!(
            "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport={sport},dport={dport}),\
             reply=(src=10.1.1.2,dst=10.1.1.1,sport={dport},dport={sport}),zone=1,\
             protoinfo=(state=TIME_WAIT)"
        )
    );
    assert!(a.reaches("10.1.1.2", SOON));
    assert!(is_refused(&a, "10.1.1.2:9"), "an error about a connection's packet passes");
    assert_eq!(b.ping("10.1.1.1", 3), 0);
    assert!(is_ignored(&b, "10.1.1.1:7"), "the inside would refuse it");
    assert!(!is_refused(&b, "10.1.1.1:9"), "the inside would refuse it");
    let (dropped, _) = switch.counts(DROPPED);
    assert!(dropped >= 3, "{dropped}");
    assert_eq!(conns(&switch, &["orig=(src=10.1.1.2"]), Vec::<String>::new());
}

#[test]
fn a_connection_is_established_while_it_lives() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows(
        "br0",
        &firewall("tcp", "zone=3,exec(set_field:17->ct_mark,set_field:0x22->ct_label)", "zone=3"),
    );
    let mut stream = Stream::new(&a, &b, "10.1.1.2:7000", "10.1.1.2:7000");
    stream.write(100_000);
    let line = conn(&switch, &["tcp,", "dport=7000"]);
    let expected = "zone=3,mark=17,labels=0x22,protoinfo=(state=ESTABLISHED)";
    assert!(line.ends_with(expected), "{line}");
    let text = switch.appctl("dpctl/dump-conntrack -s");
    let timeout: u32 = part(&text, "timeout=").parse().expect("a number");
    assert!((86_000..=86_400).contains(&timeout), "{text}");
    switch.appctl("dpctl/flush-conntrack zone=3");
    assert_eq!(conns(&switch, &[]), Vec::<String>::new());
    // Its next segment is the first of a connection that is picked up.
    stream.write(100_000);
    let line = await_conn(&switch, &["tcp,", "ESTABLISHED"]);
    assert!(line.ends_with(expected), "{line}");
    assert_eq!(stream.finish(), 200_000);
    await_conn(&switch, &["tcp,", "TIME_WAIT"]);
}

/// Once its policy has megaflows, a connection begins, carries data and ends in BPF.
#[test]
fn connections_need_no_daemon() {
    let Some((switch, a, b)) = pair() else { return };
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    switch.flows("br0", &firewall("ip", "zone=1", "zone=1"));
    for _ in 0..2 {
        tcp(&a, &b, 2_000_000);
        assert!(a.reaches("10.1.1.2", SOON));
    }
    let stopped = Stopped::new(&switch);
    tcp(&a, &b, 2_000_000);
    assert!(a.reaches("10.1.1.2", SOON));
    assert_eq!(b.ping("10.1.1.1", 1), 0);
    drop(stopped);
    let ended = || conns(&switch, &["tcp,orig=(src=10.1.1.1,", "TIME_WAIT"]);
    assert!(wait_until(SOON, || ended().len() == 3), "{:#?}", conns(&switch, &[]));
    assert_eq!(conns(&switch, &["icmp,"]).len(), 3);
    assert_eq!(switch.appctl("dpctl/ct-get-nconns").trim(), "6");
}

#[test]
fn iperf3_passes() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["iperf3"]) {
        return;
    }
    switch.flows("br0", &firewall("ip", "zone=1", "zone=1"));
    for (options, least) in [
        // Data on its way at the end is not counted.
        ("-n 30M", 20_000_000),
        ("-n 30M -R", 20_000_000),
        ("-n 60M -P 4", 20_000_000),
        ("-u -n 3M -b 100M -l 1200", 1_500_000),
        ("-u -n 3M -b 100M -l 1200 -R", 1_500_000),
    ] {
        let server = server(&switch, &b, "tcp", 5201, &["iperf3", "-s", "-1"]);
        let text = succeeds(&switch, &a, &format!("iperf3 -J -c 10.1.1.2 {options}"));
        let report: serde_json::Value = serde_json::from_str(&text).expect("it writes JSON");
        let end = &report["end"];
        let bytes = match options.contains("-u") {
            true => {
                let sum = &end["sum"];
                let number = |name: &str| sum[name].as_f64().unwrap_or_default();
                number("bytes") * (1.0 - number("lost_percent") / 100.0)
            }
            false => end["sum_received"]["bytes"].as_f64().unwrap_or_default(),
        };
        assert!(bytes >= f64::from(least), "{options}: {bytes} bytes arrived\n{text}");
        drop(server);
    }
    let udp = conns(&switch, &["udp,orig=(src=10.1.1.1", "dport=5201"]);
    assert_eq!(udp.len(), 2, "{:#?}", conns(&switch, &[]));
    let tcp = conns(&switch, &["tcp,orig=(src=10.1.1.1", "dport=5201"]);
    // A control connection of each run, and what carried data.
    assert_eq!(tcp.len(), 5 + 1 + 1 + 4, "{tcp:#?}");
    let (dropped, _) = switch.counts(DROPPED);
    assert_eq!(dropped, 0);
}

#[test]
fn http_passes() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["busybox", "curl"]) {
        return;
    }
    switch.flows("br0", &firewall("tcp,tp_dst=80", "zone=1", "zone=1"));
    file(&switch, "page", 1_000_000);
    let dir = switch.sandbox().dir().to_str().expect("text").to_owned();
    let _httpd = server(
        &switch,
        &b,
        "tcp",
        80,
        &["busybox", "httpd", "-f", "-p", "10.1.1.2:80", "-h", &dir],
    );
    for n in 0..10 {
        succeeds(&switch, &a, &format!("curl -sS -f -o got{n} http://10.1.1.2/page"));
        equal(&switch, "page", &format!("got{n}"));
    }
    let all = || conns(&switch, &["tcp,orig=(src=10.1.1.1,dst=10.1.1.2", "dport=80)", "TIME_WAIT"]);
    assert!(wait_until(SOON, || all().len() == 10), "{:#?}", conns(&switch, &[]));
    let other = client(&switch, &a, "curl -sS -m 1 http://10.1.1.2:81/");
    assert_eq!(other.code, Some(28), "no answer, as 81 may not pass: {}", other.text());
}
