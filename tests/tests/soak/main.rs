// SPDX-License-Identifier: Apache-2.0
//! Long churn: ports, flows, links, groups, bridges and controllers come and go under traffic,
//! and the daemon ends with the resources that it began with. A minute in the ordinary set;
//! `SLIPSWITCH_SOAK_MINUTES=30 cargo test -p slipswitch-tests --test soak -- --ignored --nocapture`
//! for as long as one likes.

mod churn;
mod held;
mod traffic;

use churn::Churn;
use held::Held;
use slipswitch_tests::harness::{
    Host, Kind, Mode, Switch, wait_until, without_privilege, without_tool,
};
use std::time::{Duration, Instant};
use traffic::Traffic;

/// Rounds after which what the daemon holds is what it is to hold at the end.
const WARM_UP: u32 = 8;
/// Kilobytes by which memory may grow in addition to a tenth: allocators keep a varying amount.
const SLACK: u64 = 8 << 10;
const SOON: Duration = Duration::from_secs(20);
/// Between two lines of figures.
const REPORT: Duration = Duration::from_secs(60);

#[test]
fn a_minute_of_churn_leaves_nothing_behind() {
    soak(Duration::from_secs(60));
}

#[test]
#[ignore = "takes SLIPSWITCH_SOAK_MINUTES, 30 unless set"]
fn churn_for_long_leaves_nothing_behind() {
    let minutes = std::env::var("SLIPSWITCH_SOAK_MINUTES").ok();
    let minutes = minutes.map_or(30, |text| text.parse().expect("a number of minutes"));
    soak(Duration::from_secs(60 * minutes));
}

fn soak(length: Duration) {
    if without_privilege() || without_tool(&["ip", "ping", "fping", "nsenter"]) {
        return;
    }
    let mut switch = Switch::start(Kind::Slipswitch, Mode::Real);
    restart_with_small_tables(&mut switch);
    // Megaflows of one round are gone soon after it.
    switch.vsctl("set Open_vSwitch . other_config:max-idle=1000 -- add-br br0");
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    a.ping("10.0.0.2", 15);
    let mut churn = Churn::new(&switch);
    let traffic = Traffic::start(&a, &b);
    let begin = Instant::now();
    let (mut first, mut told) = (None, begin);
    while begin.elapsed() < length || first.is_none() {
        churn.round();
        if churn.rounds() == WARM_UP {
            first = Some(at_rest(&switch));
        }
        if told.elapsed() >= REPORT {
            told = Instant::now();
            tell(begin, &churn, &traffic, &Held::by(&switch));
        }
    }
    let (first, last) = (first.expect("it was warm"), at_rest(&switch));
    drop(churn); // its port was part of what there was
    let seen = traffic.finish();
    println!("soak: at first {first}\nsoak: at last  {last}\nsoak: traffic: {seen:?}");
    assert_eq!(first.without_memory(), last.without_memory(), "{}", switch.story());
    let bound = first.memory + first.memory / 10 + SLACK;
    assert!(last.memory <= bound, "{} kB of memory, of {bound}", last.memory);
    assert_eq!(seen.answered, seen.asked, "echo requests");
    assert!(seen.connections > 0 && seen.broken == 0, "{seen:?}");
    assert_no_errors(&switch);
    assert_alive(&a, &b);
}

/// The daemon's records of the BPF tables' slots have their size from the start, and a page of them
/// becomes resident once any flow used it: some 30 MB in time, which hide everything else.
fn restart_with_small_tables(switch: &mut Switch) {
    switch.vsctl("set Open_vSwitch . other_config:bpf-max-flows=4096");
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0), "{}", switch.story());
    switch.start_daemon();
}

fn tell(begin: Instant, churn: &Churn<'_>, traffic: &Traffic, held: &Held) {
    let minutes = begin.elapsed().as_secs() / 60;
    println!("soak: {minutes} min, {} rounds: {held}; {:?}", churn.rounds(), traffic.seen());
}

/// The daemon's resources when nothing is left to do: two readings that agree, except for memory.
fn at_rest(switch: &Switch) -> Held {
    let mut last = Held::by(switch);
    wait_until(SOON, || {
        std::thread::sleep(Duration::from_millis(1500));
        let now = Held::by(switch);
        let is_same = now.without_memory() == last.without_memory();
        last = now;
        is_same
    });
    last
}

fn assert_no_errors(switch: &Switch) {
    let log = switch.log();
    let errors: Vec<&str> =
        log.lines().filter(|l| l.contains("|ERR|") || l.contains("panicked")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

fn assert_alive(a: &Host, b: &Host) {
    assert_eq!(a.ping("10.0.0.2", 20) + b.ping("10.0.0.1", 20), 40);
}
