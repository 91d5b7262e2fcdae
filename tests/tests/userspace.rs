// SPDX-License-Identifier: Apache-2.0
//! Parts that only the userspace datapath has: packet threads, limits of upcalls, statistics of
//! threads, and devices that fail.

use clock::Clock;
use datapath::{
    Actions, Counters, Datapath, DropReason, Flows, LookupStats, Megaflow, Packets, PortError,
    PortKind, PortNo, PortSpec, Ports, Tier, TunnelKind, Ufid, Upcall, UpcallFactory, Upcaller,
};
use datapath_userspace::{Config, UpcallShare, UserspaceDatapath};
use packet::Packet;
use slipswitch_tests::behaviour::frames::udp;
use slipswitch_tests::behaviour::{PORTS, Veth, World, on};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Counts upcalls and answers with a drop.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Counting {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl UpcallFactory for Counting {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(self.clone())
    }
}

impl Upcaller for Counting {
    fn upcall(&mut self, _: &Upcall<'_>) -> Actions {
        self.0.fetch_add(1, Ordering::Relaxed);
        [].into()
    }
}

fn plain(config: Config) -> (Arc<UserspaceDatapath>, Clock) {
    let clock = Clock::new();
    (UserspaceDatapath::new("netdev@test", clock.clone(), config), clock)
}

fn flow(id: u128, actions: &str) -> Megaflow {
    Megaflow { ufid: Ufid(id), matching: on(1), actions: World::actions(actions).into() }
}

#[test]
fn without_an_answerer_misses_are_lost() {
    let (dp, _) = plain(Config::default());
    dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    let LookupStats { hits, misses, lost, .. } = dp.lookups();
    assert_eq!((hits, misses, lost), (0, 0, 1));
    assert_eq!(dp.drops(DropReason::UpcallLimit), 1);
}

#[test]
fn misses_of_one_port_are_paid_for_and_others_go_on() {
    // A nanosecond a second, and as much saved: the first miss spends it all.
    let upcall_share = UpcallShare { time: Duration::from_nanos(1), uses_idle_cpu: false };
    let (dp, _) = plain(Config { upcall_share, ..Config::default() });
    let upcalls = Counting::default();
    dp.set_upcall_factory(Arc::new(upcalls.clone()));
    for (i, name) in ["limit-a", "limit-b"].into_iter().enumerate() {
        let spec = PortSpec { name: name.into(), kind: PortKind::Dummy, ..PortSpec::default() };
        assert_eq!(dp.add_port(&spec).expect("a dummy opens"), PortNo(1 + i as u32));
    }
    for _ in 0..50 {
        dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    }
    assert_eq!(upcalls.count(), 1);
    assert_eq!((dp.drops(DropReason::UpcallLimit), dp.lookups().lost), (49, 49));
    dp.inject(Packet::from_slice(&udp(1)), PortNo(2));
    assert_eq!(upcalls.count(), 2);
    assert_eq!((dp.upcalls(PortNo(1)), dp.upcalls(PortNo(2))), (Some(1), Some(1)));
    // Established flows pay nothing.
    dp.install(&flow(1, "drop")).expect("room");
    let before = dp.lookups().hits;
    for _ in 0..50 {
        dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    }
    assert_eq!((dp.lookups().hits - before, upcalls.count()), (50, 2));
    dp.remove(Ufid(1)).expect("it is there");
    // Without a share nobody pays.
    dp.reconfigure(Config::default());
    for _ in 0..50 {
        dp.inject(Packet::from_slice(&udp(1)), PortNo(2));
    }
    assert_eq!((upcalls.count(), dp.lookups().lost), (52, 49), "port 2 was closed before");
}

#[test]
fn statistics_miss_no_packet_while_flows_come_and_go() {
    let (dp, _) = plain(Config::default());
    let upcalls = Counting::default();
    dp.set_upcall_factory(Arc::new(upcalls.clone()));
    let done = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let dp = dp.clone();
            std::thread::spawn(move || {
                for _ in 0..5_000 {
                    dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
                }
            })
        })
        .collect();
    let control = {
        let (dp, done) = (dp.clone(), done.clone());
        std::thread::spawn(move || {
            let mut counted = 0;
            while !done.load(Ordering::Relaxed) {
                dp.install(&flow(1, "drop")).expect("room");
                std::thread::yield_now();
                counted += dp.remove(Ufid(1)).expect("it is there").packets;
            }
            counted
        })
    };
    for sender in senders {
        sender.join().expect("the sender ends");
    }
    done.store(true, Ordering::Relaxed);
    let counted = control.join().expect("the control thread ends");
    assert_eq!(counted + upcalls.count(), 10_000);
    assert_eq!(dp.drops(DropReason::Flow), 10_000);
}

#[test]
fn shutdown_lets_go_of_everything() {
    let (dp, _) = plain(Config::default());
    let upcalls = Counting::default();
    dp.set_upcall_factory(Arc::new(upcalls.clone()));
    let spec = PortSpec { name: "gone-after".into(), kind: PortKind::Dummy, ..PortSpec::default() };
    dp.add_port(&spec).expect("a dummy opens");
    dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    dp.install(&flow(1, "drop")).expect("room");
    dp.shutdown();
    assert_eq!(Arc::strong_count(&upcalls.0), 1, "nobody holds the upcall factory");
    assert!(netdev::dummy::lookup("gone-after").is_none(), "the device is closed");
    assert!(dp.dump().is_empty() && dp.ports().is_empty());
    dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    assert_eq!(upcalls.count(), 1);
    dp.shutdown();
}

#[test]
fn ports_that_cannot_be_opened_say_why() {
    let (dp, _) = plain(Config::default());
    let open = |kind: PortKind, options: &[(&str, &str)], other: &[(&str, &str)]| {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
        };
        let spec = PortSpec {
            name: "nothing-here".into(),
            kind,
            options: map(options),
            other_config: map(other),
            ..PortSpec::default()
        };
        dp.add_port(&spec).expect_err("it cannot be opened")
    };
    assert!(matches!(open(PortKind::Patch, &[], &[]), PortError::UnknownKind { .. }));
    let text = open(PortKind::Tunnel(TunnelKind::Vxlan), &[("dst_port", "0")], &[]).to_string();
    assert!(text.contains("dst_port") && text.contains("\"0\""), "{text}");
    assert_eq!(
        open(PortKind::System, &[], &[]).to_string(),
        "could not open network device nothing-here (No such device)"
    );
    let text = open(PortKind::Dummy, &[("n_rxq", "many")], &[]).to_string();
    assert!(text.contains("n_rxq") && text.contains("many"), "{text}");
    let text = open(PortKind::Dummy, &[], &[("pmd-rxq-affinity", "1")]).to_string();
    assert!(text.contains("pmd-rxq-affinity"), "{text}");
    assert!(dp.ports().is_empty());
}

#[test]
fn dummy_mode_has_no_threads_and_counts_as_main() {
    let (dp, _) = plain(Config::default());
    dp.install(&flow(1, "2")).expect("room");
    let spec = PortSpec { name: "counted".into(), kind: PortKind::Dummy, ..PortSpec::default() };
    dp.add_port(&spec).expect("a dummy opens");
    for _ in 0..3 {
        dp.inject(Packet::from_slice(&udp(1)), PortNo(1));
    }
    let threads = dp.threads(Duration::ZERO);
    assert_eq!(threads.len(), 1);
    assert_eq!((threads[0].core, threads[0].queues.len()), (None, 0));
    let stats = threads[0].stats;
    assert_eq!((stats.received, stats.megaflow_hits, stats.cache_hits), (3, 1, 2));
    assert_eq!(stats.passes_per_packet(), 1.0);
    dp.clear_thread_stats();
    assert_eq!(dp.threads(Duration::ZERO)[0].stats.received, 0);
    assert_eq!(dp.lookups().hits, 3, "the datapath's own counters go on");
}

#[test]
fn threads_move_while_packets_flow() {
    Veth::run(Tier::Userspace, |fixture| {
        let dp = fixture.userspace().clone();
        let w = World::new(fixture);
        w.install(1, on(1), "2");
        let mut sent = 0;
        for cores in [vec![], vec![0], vec![0, 1], vec![]] {
            dp.reconfigure(Config { cores: cores.clone(), ..Config::default() });
            let threads = dp.threads(Duration::ZERO);
            assert_eq!(threads.len(), cores.len().max(1));
            assert_eq!(threads.iter().map(|t| t.queues.len()).sum::<usize>(), PORTS);
            assert_eq!(threads.iter().filter_map(|t| t.core).collect::<Vec<_>>(), cores);
            w.fixture().inject_all(PortNo(1), vec![Packet::from_slice(&udp(1)); 20]);
            sent += 20;
            assert_eq!(w.out(2).len(), 20, "{cores:?}");
            assert_eq!(w.stats(1).packets, sent);
            assert_eq!(dp.lookups().hits, sent, "what ended threads counted is kept");
        }
    });
}

/// Clock ticks of processor time that the thread called `name` of this process has used.
fn ticks(tid: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"))
        .expect("the thread is there");
    let fields: Vec<&str> =
        stat.rsplit(") ").next().expect("a name in parentheses").split(' ').collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

#[test]
fn idle_threads_sleep() {
    Veth::run(Tier::Userspace, |fixture| {
        let tasks = || -> Vec<String> {
            let entries = std::fs::read_dir("/proc/self/task").expect("procfs is there");
            entries
                .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
                .collect()
        };
        // A core's thread has a name that no other test here gives a thread.
        let dp = fixture.userspace().clone();
        dp.reconfigure(Config { cores: vec![1], ..Config::default() });
        let w = World::new(fixture);
        w.install(1, on(1), "2");
        w.inject(1, &udp(1));
        assert_eq!(w.out(2).len(), 1);
        let is_ours = |tid: &String| {
            std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"))
                .is_ok_and(|c| c.trim() == "pmd-c01")
        };
        let ours: Vec<String> = tasks().into_iter().filter(is_ours).collect();
        assert!(!ours.is_empty());
        let before: Vec<u64> = ours.iter().map(|t| ticks(t)).collect();
        // One port down as well: that must not make its queue look ready for ever.
        let down = w.dp().device(PortNo(4)).expect("port 4 is there");
        down.set_admin_up(false).expect("root may");
        std::thread::sleep(Duration::from_millis(400));
        for (tid, before) in ours.iter().zip(before) {
            let used = ticks(tid) - before;
            assert!(used <= 2, "an idle thread used {used} ticks in 400 ms");
        }
    });
}

#[test]
fn a_device_that_vanishes_stops_only_itself() {
    Veth::run(Tier::Userspace, |fixture| {
        let w = World::new(fixture);
        w.install(1, on(1), "3,2");
        let deleted =
            Command::new("ip").args(["link", "del", "p3"]).status().expect("ip is installed");
        assert!(deleted.success());
        for _ in 0..5 {
            w.inject(1, &udp(1));
        }
        assert_eq!(w.out(2).len(), 5);
        assert_eq!(w.drops(DropReason::OutputError), 5);
        w.dp().remove_port(PortNo(3)).expect("the port is still there");
        let again = PortSpec { name: "p3".into(), kind: PortKind::System, ..PortSpec::default() };
        assert_eq!(
            w.dp().add_port(&again).expect_err("the device is gone").to_string(),
            "could not open network device p3 (No such device)"
        );
    });
}

#[test]
fn a_panic_in_an_upcall_costs_one_batch() {
    Veth::run(Tier::Userspace, |fixture| {
        let dp = fixture.userspace().clone();
        let w = World::new(fixture);
        w.install(1, on(1), "2");
        w.answer(|_| panic!("this panic is the test's"));
        let panicking =
            std::thread::spawn(move || dp.inject(Packet::from_slice(&udp(1)), PortNo(3)));
        assert!(panicking.join().is_err(), "on the caller's thread it is the caller's");
        w.fixture().send(PortNo(3), vec![Packet::from_slice(&udp(1))]);
        for _ in 0..3 {
            w.inject(1, &udp(1));
        }
        assert_eq!(w.out(2).len(), 3, "the thread goes on");
    });
}
