// SPDX-License-Identifier: Apache-2.0
//! A port whose packets are all of new flows.

use crate::tools::{MICROFLOWS, SOON, Scene, mac_bytes};
use slipswitch_tests::harness::{Flood, stranger, udp};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// During an attack: established flows lose nothing, commands are answered.
fn others_lose_nothing(scene: &Scene) {
    let (there, back) = thread::scope(|scope| {
        let there = scope.spawn(|| scene.a.ping("10.0.0.2", 100));
        let back = scope.spawn(|| scene.b.ping("10.0.0.1", 100));
        scene.commands_are_prompt();
        (there.join().expect("ping runs"), back.join().expect("ping runs"))
    });
    assert_eq!((there, back), (100, 100), "{}", scene.switch.appctl("coverage/show"));
}

/// After its attack the attacker loses nothing either, once its port has some share again.
fn attacker_gets_over_it(scene: &Scene) {
    assert!(scene.attacker.reaches("10.0.0.1", SOON), "{}", scene.switch.story());
    assert_eq!(scene.attacker.ping("10.0.0.1", 20), 20);
}

/// A share that the harness's flood exceeds on any machine, and that of others is enough for what
/// they do.
const SMALL: &str = "set Open_vSwitch . other_config:upcall-cpu-percent=3";

#[test]
fn misses_beyond_a_ports_share_are_dropped_and_counted_and_others_lose_nothing() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    scene.switch.vsctl(SMALL);
    let flood = Flood::start(&scene.attacker, 7, stranger);
    scene.exceeds("datapath_drop_upcall_limit", 0);
    scene.exceeds("upcall_seen_once", 0);
    others_lose_nothing(&scene);
    // The first packets of others' flows, too: their ports have shares of their own.
    assert_eq!(scene.new_flows(200, Duration::from_millis(5)), 200);
    let dropped = scene.switch.counter("datapath_drop_upcall_limit");
    let sent = flood.sent();
    drop(flood);
    assert!(dropped <= sent, "{dropped} packets dropped of {sent}");
    let show = scene.switch.appctl("dpctl/show");
    assert!(!show.contains("lost:0\n"), "{show}");
    attacker_gets_over_it(&scene);
    assert_eq!(scene.switch.warnings(), Vec::<String>::new());
}

/// Uses up all idle time of all CPUs until it is dropped, and leaves to the flood and to the switch the
/// time that they want: on a slow machine the flood would else stay below the share.
struct Hurry(Arc<AtomicBool>);

impl Hurry {
    fn new(cpus: usize) -> Hurry {
        let over = Arc::<AtomicBool>::default();
        for _ in 0..cpus {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Linux has a niceness for each thread.
                rustix::process::setpriority_process(None, 19).expect("a thread can be nicer");
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Hurry(over)
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_is_bounded_without_being_asked_for_where_others_want_the_cpus() {
    // With more CPUs the default is more than one thread can spend.
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if cpus > 4 {
        testing::skip(&format!("with {cpus} CPUs there is no bound that one flood exceeds"));
        return;
    }
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    let _hurry = Hurry::new(cpus);
    // One flood takes as much time as the default share of two CPUs, on a fast machine less.
    let _floods = [11, 12, 13].map(|seed| Flood::start(&scene.attacker, seed, stranger));
    scene.exceeds("datapath_drop_upcall_limit", 0);
    others_lose_nothing(&scene);
}

#[test]
fn the_same_in_userspace() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    scene.switch.vsctl("set Open_vSwitch . other_config:bpf-offload=false");
    scene.switch.vsctl(SMALL);
    scene.rest();
    let flood = Flood::start(&scene.attacker, 8, stranger);
    scene.exceeds("datapath_drop_upcall_limit", 0);
    others_lose_nothing(&scene);
    drop(flood);
    attacker_gets_over_it(&scene);
}

#[test]
fn many_new_flows_of_one_port_lose_no_packet() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    assert_eq!(scene.new_flows(500, Duration::from_millis(2)), 500);
    assert_eq!(scene.switch.counter("datapath_drop_upcall_limit"), 0);
}

#[test]
fn without_a_share_nothing_is_dropped_for_it() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    scene.switch.vsctl("set Open_vSwitch . other_config:upcall-cpu-percent=0");
    let flood = Flood::start(&scene.attacker, 9, stranger);
    scene.exceeds("upcall_translated", 2000);
    drop(flood);
    assert_eq!(scene.switch.counter("upcall_seen_once"), 0);
}

#[test]
fn a_flood_of_source_addresses_disturbs_nobody() {
    let Some(scene) = Scene::new("priority=1,actions=NORMAL") else { return };
    scene.switch.vsctl(SMALL);
    // To itself: NORMAL learns the source and drops.
    assert!(scene.attacker.reaches("10.0.0.1", SOON));
    let to = mac_bytes(&scene.attacker);
    let flood = Flood::start(&scene.attacker, 10, move |random| {
        let source = random.u32(..).to_be_bytes();
        let from = [2, 1, source[0], source[1], source[2], source[3]];
        udp(to, from, (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)), (5, 6))
    });
    scene.exceeds("datapath_drop_upcall_limit", 0);
    others_lose_nothing(&scene);
    let learned = scene.switch.appctl("fdb/show br0").lines().count();
    drop(flood);
    assert!(learned <= 8193, "{learned} lines of MAC addresses");
    for host in [&scene.a, &scene.b] {
        let (mac, table) = (host.netns.mac("eth0"), scene.switch.appctl("fdb/show br0"));
        assert!(table.contains(&mac), "{mac} was forgotten");
    }
}
