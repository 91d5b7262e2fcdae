// SPDX-License-Identifier: Apache-2.0
//! Export of traffic, read by the collectors of `nfdump`.

use crate::tools::{SOON, in_kernel, packets, pair, switch, warm};
use slipswitch_tests::harness::{Host, Process, Switch, wait_until, without_tool};
use std::time::Duration;

/// A running collector, which keeps what it receives in a directory of the sandbox.
struct Collector<'a> {
    switch: &'a Switch,
    process: Process,
}

impl<'a> Collector<'a> {
    /// Starts `program` at 127.0.0.1:2055 of the switch's namespace; returns when it listens.
    fn start(switch: &'a Switch, program: &str) -> Collector<'a> {
        let directory = switch.sandbox().file("records");
        std::fs::create_dir_all(&directory).expect("the sandbox can be written");
        let directory = directory.to_str().expect("the directory's name is text");
        let arguments = ["-b", "127.0.0.1", "-p", "2055", "-l", directory];
        let netns = Some(switch.netns());
        let process = Process::start(switch.sandbox(), netns, program, program, &arguments);
        let listens =
            || switch.sh_limited("ss -Hlun sport = :2055", SOON).stdout.contains("127.0.0.1:2055");
        assert!(wait_until(SOON, listens), "{program} does not start");
        Collector { switch, process }
    }

    /// Ends the collector and returns its records: what `nfdump` prints for them in `format`.
    fn finish(mut self, format: &str) -> Vec<String> {
        self.process.signal("INT");
        self.process.wait(SOON);
        let line = format!("nfdump -q -R records -o 'fmt:{format}'");
        let text = self.switch.sandbox().sh(&line).stdout;
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

/// Sends 20 packets, with 20 answers, that all run at the skb hook.
fn ping_in_kernel(switch: &Switch, from: &Host) {
    in_kernel(switch, ["h1", "h2"]);
    let packets_of = |tier| packets(switch, &["eth_type(0x0800)", tier]);
    let (userspace, tcx) = (packets_of("dp:userspace"), packets_of("dp:tcx"));
    assert_eq!(from.ping("10.0.0.2", 20), 20);
    assert_eq!(packets_of("dp:userspace"), userspace);
    assert!(packets_of("dp:tcx") >= tcx + 40);
}

#[test]
fn netflow_counts_the_packets_that_run_in_the_kernel() {
    if without_tool(&["nfcapd", "nfdump", "ss"]) {
        return;
    }
    let Some((switch, a, _b)) = pair() else { return };
    let collector = Collector::start(&switch, "nfcapd");
    switch.vsctl(
        "set bridge br0 netflow=@n -- --id=@n create netflow 'targets=\"127.0.0.1:2055\"' \
         active_timeout=2 engine_id=3",
    );
    warm(&a, "10.0.0.2");
    in_kernel(&switch, ["h1", "h2"]);
    let in_userspace = packets(&switch, &["eth_type(0x0800)", "dp:userspace"]);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    assert_eq!(packets(&switch, &["eth_type(0x0800)", "dp:userspace"]), in_userspace);
    let sent = || switch.counter("netflow_sent") >= 1;
    assert!(wait_until(SOON, sent), "no datagram was sent");
    std::thread::sleep(Duration::from_secs(5)); // records of the last packets
    let records = collector.finish("%sa %da %pr %dp %in %out %pkt %byt");
    for (from, to, port, direction) in
        [("10.0.0.1", "10.0.0.2", "8.0", "1 2"), ("10.0.0.2", "10.0.0.1", "0.0", "2 1")]
    {
        let mut counts = (0, 0);
        for record in &records {
            let start = format!("{from} {to} ICMP {port} {direction} ");
            if let Some(rest) = record.strip_prefix(&start) {
                let mut numbers = rest.split(' ').map(|n| n.parse::<u64>().unwrap_or(0));
                counts.0 += numbers.next().unwrap_or(0);
                counts.1 += numbers.next().unwrap_or(0);
            }
        }
        assert!(counts.0 >= 35, "{from}: {counts:?} in\n{}", records.join("\n"));
        assert_eq!(counts.1, counts.0 * 98, "{from}: {counts:?}");
    }
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn sflow_samples_packets_and_finds_their_interfaces() {
    if without_tool(&["sfcapd", "nfdump", "ss"]) {
        return;
    }
    let Some((switch, a, _b)) = pair() else { return };
    let collector = Collector::start(&switch, "sfcapd");
    switch.vsctl(
        "set bridge br0 sflow=@s -- --id=@s create sflow 'targets=\"127.0.0.1:2055\"' \
         agent=10.9.9.9 sampling=1 polling=1",
    );
    warm(&a, "10.0.0.2");
    ping_in_kernel(&switch, &a);
    std::thread::sleep(Duration::from_secs(2)); // the last samples, and counters
    let index = |name: &str| switch.vsctl(&format!("get interface {name} ifindex"));
    let (h1, h2) = (index("h1"), index("h2"));
    let records = collector.finish("%sa %da %pr %in %out %byt");
    for (from, to, input, output) in
        [("10.0.0.1", "10.0.0.2", &h1, &h2), ("10.0.0.2", "10.0.0.1", &h2, &h1)]
    {
        // Bytes of a ping's frame with its check sequence.
        let wanted = format!("{from} {to} ICMP {} {} 102", input.trim(), output.trim());
        let count = records.iter().filter(|record| **record == wanted).count();
        assert!(count >= 20, "{count} of {wanted} in\n{}", records.join("\n"));
    }
    assert_eq!(switch.counter("sflow_unsent"), 0);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn ipfix_counts_sampled_packets_by_flow() {
    if without_tool(&["nfcapd", "nfdump", "ss"]) {
        return;
    }
    let Some((switch, a, _b)) = pair() else { return };
    let collector = Collector::start(&switch, "nfcapd");
    switch.vsctl(
        "set bridge br0 ipfix=@i -- --id=@i create ipfix 'targets=\"127.0.0.1:2055\"' sampling=1 \
         obs_domain_id=7 cache_active_timeout=2 cache_max_flows=100",
    );
    warm(&a, "10.0.0.2");
    ping_in_kernel(&switch, &a);
    std::thread::sleep(Duration::from_secs(5)); // records of the last packets
    let index = |name: &str| switch.vsctl(&format!("get interface {name} ifindex"));
    let (h1, h2) = (index("h1"), index("h2"));
    let records = collector.finish("%sa %da %pr %in %out %pkt");
    for (from, to, input, output) in
        [("10.0.0.1", "10.0.0.2", &h1, &h2), ("10.0.0.2", "10.0.0.1", &h2, &h1)]
    {
        // Each packet is sampled where it comes in, and where it goes out.
        for output in ["0", output.trim()] {
            let start = format!("{from} {to} ICMP {} {output} ", input.trim());
            let counts = records.iter().filter_map(|r| r.strip_prefix(&start)?.parse::<u64>().ok());
            let packets: u64 = counts.sum();
            assert!(packets >= 20, "{packets} of {start} in\n{}", records.join("\n"));
        }
    }
    assert_eq!(switch.counter("ipfix_unsent"), 0);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn sflow_needs_an_agent() {
    let Some(switch) = switch() else { return };
    switch.vsctl(
        "set bridge br0 sflow=@s -- --id=@s create sflow 'targets=\"127.0.0.1:2055\"' agent=nothing",
    );
    let warnings = switch.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("agent nothing is neither"), "{warnings:?}");
}

#[test]
fn a_wrong_target_is_named_and_harms_no_other() {
    let Some(switch) = switch() else { return };
    switch.vsctl(
        "set bridge br0 netflow=@n -- --id=@n create netflow \
         'targets=\"127.0.0.1:2055\",\"nonsense\"'",
    );
    let warnings = switch.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("netflow: target \"nonsense\""), "{warnings:?}");
}
