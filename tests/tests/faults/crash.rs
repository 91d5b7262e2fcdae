// SPDX-License-Identifier: Apache-2.0
//! The daemon is killed at random moments, again and again.

use crate::kernel::Objects;
use crate::tools::{
    SOON, descriptors, memory, pair, wait_until_offloaded, warm, without_namespaces,
};
use crate::traffic::{Ping, Talk};
use fastrand::Rng;
use slipswitch_tests::harness::{Switch, acquainted, patient, wait_until};
use std::time::Duration;

/// Kilobytes by which one daemon may be larger than another.
const MORE: u64 = 8 * 1024;

/// How often the daemon is killed.
fn kills() -> u32 {
    let asked = std::env::var("SLIPSWITCH_TEST_KILLS").ok();
    asked.map_or(6, |n| n.parse().expect("SLIPSWITCH_TEST_KILLS is a number"))
}

/// The rules, as a script that saved them would restore them.
fn rules() -> String {
    let hosts = (10..60).map(|n| format!("table=3,priority=9,ip,nw_dst=10.0.1.{n},actions=drop\n"));
    hosts.collect::<String>()
        + "priority=20,ip,actions=resubmit(,4)\npriority=1,actions=NORMAL\ntable=4,actions=NORMAL\n"
}

/// The state that must be the same after each kill.
#[derive(Debug, PartialEq, Eq)]
struct State {
    ports: String,
    rules: Vec<String>,
    devices: Vec<String>,
    pins: Vec<String>,
    processes: usize,
}

impl State {
    fn of(switch: &Switch) -> State {
        let names = |text: String| {
            let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
            names.sort();
            names
        };
        let pins = std::fs::read_dir(switch.sandbox().pins()).into_iter().flatten().flatten();
        let pins = pins.map(|e| e.file_name().to_string_lossy().into_owned() + "\n").collect();
        State {
            ports: switch.vsctl("--columns=name,ofport,error,link_state list interface"),
            rules: switch.dump("br0"),
            devices: names(switch.netns().sh("ip -br link | sed 's/[ @].*//'")),
            pins: names(pins),
            processes: processes(switch),
        }
    }
}

/// Processes that belong to the switch.
fn processes(switch: &Switch) -> usize {
    let mine = format!("OVS_RUNDIR={}", switch.sandbox().dir().display());
    let all = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let is_mine = |path: std::path::PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|variable| variable == mine.as_bytes())
    };
    all.filter(|e| is_mine(e.path())).count()
}

/// A random pause of at most this many milliseconds.
fn pass(random: &mut Rng, most: u64) {
    std::thread::sleep(Duration::from_millis(random.u64(0..=most)));
}

/// Kills the daemon and starts it again; now and then the new one is killed while it starts.
/// Returns how many were killed.
fn crash(switch: &mut Switch, random: &mut Rng) -> u32 {
    let mut killed = 1;
    switch.kill_daemon();
    pass(random, 300);
    switch.launch_daemon();
    while random.u8(..) < 85 {
        pass(random, 800);
        switch.kill_daemon();
        killed += 1;
        switch.launch_daemon();
    }
    switch.await_daemon();
    killed
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_costs_no_packet_and_leaves_nothing() {
    if without_namespaces() {
        return;
    }
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let (mut switch, a, b) = pair();
    switch.vsctl("set bridge br0 fail_mode=secure");
    switch.flows("br0", &rules());
    warm(&switch, &a, "10.0.0.2");
    acquainted(&a, &b);
    let ping = Ping::start(&switch, &a, "10.0.0.2");
    let back = Ping::start(&switch, &b, "10.0.0.1");
    let talk = Talk::start(&a, &b);
    wait_until_offloaded(&switch);
    let before = State::of(&switch);
    let pins = switch.sandbox().pins();
    let mut objects = Objects::pinned(&pins);
    let at_first = objects.clone();
    let everything = Objects::all().counts();
    let (mut held, mut largest) = (None, 0);
    let (wanted, mut killed) = (kills(), 0);
    while killed < wanted {
        pass(&mut random, 1500);
        switch.vsctl("set open_vswitch . other_config:flow-restore-wait=true");
        pass(&mut random, 300);
        killed += crash(&mut switch, &mut random);
        // A socket file may still be the dead daemon's.
        assert!(wait_until(SOON, || switch.sh("ovs-ofctl show br0").ok()), "{}", switch.story());
        switch.sandbox().write("rules.txt", rules());
        switch.ofctl("add-flows br0 rules.txt");
        switch.vsctl("--no-wait remove open_vswitch . other_config flow-restore-wait");
        wait_until_offloaded(&switch);
        let mut after = State::of(&switch);
        wait_until(SOON, || {
            after = State::of(&switch);
            after == before
        });
        assert_eq!(after, before, "after {killed} kills, seed {seed}");
        let (first_files, first_memory) =
            *held.get_or_insert((descriptors(&switch), memory(&switch)));
        // There are more programs for a moment while they are rebuilt.
        let few = wait_until(SOON, || descriptors(&switch) <= first_files + 2);
        assert!(few, "{} descriptors after {first_files}", descriptors(&switch));
        largest = largest.max(memory(&switch));
        assert!(largest <= first_memory + MORE, "{largest} kB after {first_memory} kB");
        objects.add(&Objects::pinned(&pins));
    }
    let (heard, there, there_back) = (talk.finish(), ping.finish(&switch), back.finish(&switch));
    let now = Objects::pinned(&pins);
    eprintln!(
        "{killed} kills: {} and {} echo requests, {:?} and {:?} lost; TCP: {heard:?}; \
         pinned (maps, programs, links) {:?} at first and {:?} now, in the kernel {everything:?} \
         and {:?}; at most {largest} kB",
        there.sent,
        there_back.sent,
        there.lost,
        there_back.lost,
        at_first.counts(),
        now.counts(),
        Objects::all().counts(),
    );
    there.all(100, &switch);
    there_back.all(100, &switch);
    // Of a slow machine's queues some may overflow.
    let is_slow = patient(SOON) > SOON;
    let again = if is_slow { u64::from(killed) } else { 0 };
    assert!(heard.bytes > 1_000_000 && heard.again <= again, "{heard:?}, seed {seed}");
    assert!(heard.silence < SOON / 10, "{heard:?}, seed {seed}");
    assert_eq!(at_first.counts(), now.counts(), "seed {seed}");
    let old = objects.but(&now);
    let gone = wait_until(SOON, || old.and(&Objects::all()) == Objects::default());
    assert!(gone, "{:?} of {old:?} are left, seed {seed}", old.and(&Objects::all()));
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    objects.add(&now);
    let gone = wait_until(SOON, || objects.and(&Objects::all()) == Objects::default());
    assert!(gone, "{:?} are left after a cleanup", objects.and(&Objects::all()));
}
