// SPDX-License-Identifier: Apache-2.0
//! The miss queue of a faster tier. Needs no privileges.

use clock::Clock;
use datapath::{
    Action, Actions, Counters, Datapath, DropReason, FlowDump, Flows, Megaflow, MissOrigin,
    Packets, PortKind, PortNo, PortSpec, Ports, Tracked, Ufid, Upcall, UpcallFactory, Upcaller,
};
use datapath_userspace::{Config, MissSource, MissedPacket, UserspaceDatapath};
use flow::{Field, Key, Match};
use netdev::{PacketPool, Reception, dummy};
use packet::Packet;
use packet::build::Frame;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use testing::wait_until;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The arguments of `done`, and the number of packets that the output port had sent by then.
type Done = (Vec<(PortNo, u64)>, u64);

/// A faster tier: its descriptor is readable while packets wait.
struct Tier {
    ready: OwnedFd,
    waiting: Mutex<VecDeque<MissedPacket>>,
    broken: AtomicBool,
    turns: AtomicU64,
    dropped: AtomicBool,
    malformed: AtomicU64,
    done: Mutex<mpsc::Sender<Done>>,
    output: String,
}

struct Source(Arc<Tier>);

impl Tier {
    fn pass(&self, packets: Vec<MissedPacket>) {
        self.waiting.lock().expect("no panic").extend(packets);
        self.make_ready();
    }

    fn make_ready(&self) {
        rustix::io::write(&self.ready, &1u64.to_ne_bytes()).expect("the counter has room");
    }
}

impl MissSource for Source {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.0.ready.as_fd()
    }

    fn recv(
        &mut self,
        out: &mut Vec<MissedPacket>,
        _: &mut PacketPool,
        max: usize,
    ) -> io::Result<u64> {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        if self.0.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("torn off"));
        }
        let mut waiting = self.0.waiting.lock().expect("no panic");
        let n = max.min(waiting.len());
        out.extend(waiting.drain(..n));
        if n > 0 && waiting.is_empty() {
            rustix::io::read(&self.0.ready, &mut [0; 8]).expect("it is ready");
        }
        Ok(self.0.malformed.swap(0, Ordering::Relaxed))
    }

    fn done(&mut self, processed: &[(PortNo, u64)]) {
        let sent = dummy::lookup(&self.0.output).map_or(0, |d| {
            netdev::Device::stats(&*d).expect("always").tx_packets.expect("dummies count")
        });
        let _ = self.0.done.lock().expect("no panic").send((processed.to_vec(), sent));
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.0.dropped.store(true, Ordering::Relaxed);
    }
}

/// Records the keys of upcalls and answers with an output. Panics at port 66.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<flow::Key>>>);

impl UpcallFactory for Recorder {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(self.clone())
    }
}

impl Upcaller for Recorder {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        assert_ne!(upcall.in_port, PortNo(66), "a panic that the test wants");
        self.0.lock().expect("no panic").push(*upcall.key);
        [Action::Output(PortNo(1))].into()
    }
}

struct Testbed {
    dp: Arc<UserspaceDatapath>,
    tier: Arc<Tier>,
    id: datapath_userspace::MissSourceId,
    recorder: Recorder,
    done: mpsc::Receiver<Done>,
}

/// Creates a datapath with the dummy `output` as port 1 and a miss source.
fn bed(output: &str) -> Testbed {
    let dp = UserspaceDatapath::new("netdev@test", Clock::new(), Config::default());
    let recorder = Recorder::default();
    dp.set_upcall_factory(Arc::new(recorder.clone()));
    let spec = PortSpec { name: output.into(), kind: PortKind::Dummy, ..PortSpec::default() };
    assert_eq!(dp.add_port(&spec).expect("a dummy opens"), PortNo(1));
    let (sender, done) = mpsc::channel();
    let tier = Arc::new(Tier {
        ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor"),
        waiting: Mutex::default(),
        broken: AtomicBool::new(false),
        turns: AtomicU64::new(0),
        dropped: AtomicBool::new(false),
        malformed: AtomicU64::new(0),
        done: Mutex::new(sender),
        output: output.to_owned(),
    });
    let id = dp.add_miss_source(Box::new(Source(tier.clone()))).expect("a thread starts");
    Testbed { dp, tier, id, recorder, done }
}

impl Testbed {
    fn wait_done(&self) -> Done {
        self.done.recv_timeout(TIMEOUT).expect("the packets are processed")
    }

    fn wait_dropped(&self) {
        let end = Instant::now() + TIMEOUT;
        while !self.tier.dropped.load(Ordering::Relaxed) {
            assert!(Instant::now() < end, "the miss source is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn frame(number: u8) -> Packet {
    Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 1, number])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(1, 2)
        .packet()
}

fn missed(port: u32, number: u8) -> MissedPacket {
    MissedPacket { packet: frame(number), origin: MissOrigin::port(PortNo(port)) }
}

#[test]
fn packets_are_processed_in_order_and_done_when_sent() {
    let bed = bed("hand-a");
    assert!(
        bed.dp.threads(Duration::ZERO).iter().all(|t| t.queues.is_empty()),
        "it is no port's queue"
    );
    bed.tier.pass((0..20).map(|i| missed(2 + u32::from(i % 2), i)).collect());
    assert_eq!(bed.wait_done(), (vec![(PortNo(2), 10), (PortNo(3), 10)], 20));
    let keys = bed.recorder.0.lock().expect("no panic");
    let order: Vec<u8> = keys.iter().map(|k| k.dl_src[5]).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    assert!(keys.iter().all(|k| k.in_port.get() == 2 + u32::from(k.dl_src[5] % 2)));
}

#[test]
fn metadata_is_part_of_the_key_and_recirculated_packets_meet_their_flow() {
    let bed = bed("hand-b");
    let mut matching = Match::ANY;
    matching.set(Field::InPortOxm, 5u32.into());
    matching.set(Field::RecircId, 9u32.into());
    matching.set(Field::PktMark, 0x77u32.into());
    matching.set(Field::PacketType, 0u32.into());
    let actions: Actions = [Action::Output(PortNo(1))].into();
    let flow = Megaflow { ufid: Ufid(1), matching, actions };
    bed.dp.install(&flow).expect("room");
    let again = |recirc_id| {
        let origin = MissOrigin {
            in_port: PortNo(5),
            recirc_id,
            dp_hash: 3,
            priority: 4,
            mark: 0x77,
            recirculations: 1,
            tracked: None,
        };
        MissedPacket { origin, ..missed(5, recirc_id as u8) }
    };
    bed.tier.pass(vec![again(9), again(0), again(9), again(8)]);
    assert_eq!(bed.wait_done(), (vec![(PortNo(5), 4)], 4));
    let FlowDump { stats, .. } = bed.dp.flow(Ufid(1)).expect("installed");
    assert_eq!(stats.packets, 2);
    let keys = bed.recorder.0.lock().expect("no panic");
    let of = |id: u32| keys.iter().find(|k| k.recirc_id.get() == id).expect("it missed");
    for id in [0, 8] {
        let k = of(id);
        assert_eq!((k.dp_hash.get(), k.skb_priority.get(), k.pkt_mark.get()), (3, 4, 0x77));
    }
    assert_eq!(keys.len(), 2);
}

#[test]
fn a_tracked_packet_has_its_fields_and_goes_on_with_its_list() {
    let bed = bed("hand-t");
    let mut fields = Key::ZERO;
    fields.ct_state = 0x22;
    fields.ct_mark.set(7);
    fields.ct_nw_src.set(0x0a00_0001);
    let tracked = |number: u8, rest: Option<Actions>| {
        let tracked = Some(Box::new(Tracked { fields, rest }));
        let origin = MissOrigin { tracked, recirc_id: 4, ..MissOrigin::port(PortNo(5)) };
        MissedPacket { packet: frame(number), origin }
    };
    let rest: Actions = [Action::Recirc(9)].into();
    let stale: Actions = [Action::Drop(DropReason::CtStale)].into();
    bed.tier.pass(vec![
        tracked(1, None),
        tracked(2, Some(rest)),
        tracked(3, Some(stale)),
        missed(5, 4),
    ]);
    bed.wait_done();
    let keys = bed.recorder.0.lock().expect("no panic");
    let seen =
        |k: &Key| (k.dl_src[5], k.recirc_id.get(), k.ct_state, k.ct_mark.get(), k.ct_nw_src.get());
    let expected = [(1, 4, 0x22, 7, 0x0a00_0001), (2, 9, 0x22, 7, 0x0a00_0001), (4, 0, 0, 0, 0)];
    assert_eq!(keys.iter().map(seen).collect::<Vec<_>>(), expected);
    assert_eq!(Counters::drops(&*bed.dp, DropReason::CtStale), 1);
}

#[test]
fn a_panic_loses_the_batch_but_it_is_accounted_for() {
    let bed = bed("hand-c");
    bed.tier.pass(vec![missed(2, 1), missed(66, 2), missed(2, 3)]);
    assert_eq!(bed.wait_done().0, [(PortNo(2), 2), (PortNo(66), 1)]);
    bed.tier.pass(vec![missed(2, 4)]);
    assert_eq!(bed.wait_done().0, [(PortNo(2), 1)]);
}

#[test]
fn malformed_misses_are_counted() {
    let bed = bed("miss-malformed");
    bed.tier.malformed.store(3, Ordering::Relaxed);
    bed.tier.pass(vec![missed(5, 1)]);
    bed.wait_done();
    // The counter is written after the packets are processed.
    let counted = || Counters::drops(&*bed.dp, DropReason::Malformed);
    assert!(wait_until(TIMEOUT, || counted() == 3), "{}", counted());
    bed.tier.malformed.store(2, Ordering::Relaxed);
    bed.tier.make_ready(); // a turn without packets
    assert!(wait_until(TIMEOUT, || counted() == 5), "{}", counted());
}

#[test]
fn a_source_that_fails_is_dropped() {
    let bed = bed("hand-d");
    bed.tier.broken.store(true, Ordering::Relaxed);
    bed.tier.make_ready();
    bed.wait_dropped();
    assert_eq!(bed.tier.turns.load(Ordering::Relaxed), 1);
    bed.dp.remove_miss_source(bed.id);
}

#[test]
fn one_that_is_ready_without_packets_does_not_make_the_thread_spin() {
    let bed = bed("hand-e");
    bed.tier.make_ready();
    std::thread::sleep(Duration::from_millis(400));
    let turns = bed.tier.turns.load(Ordering::Relaxed);
    assert!((1..=64 * 10).contains(&turns), "{turns} turns");
    bed.tier.pass(vec![missed(2, 1)]);
    assert_eq!(bed.wait_done().0, [(PortNo(2), 1)]);
}

#[test]
fn it_is_dropped_when_removed_or_shut_down_and_lives_through_new_threads() {
    let bed_f = bed("hand-f");
    bed_f.dp.remove_miss_source(bed_f.id);
    assert!(bed_f.tier.dropped.load(Ordering::Relaxed));
    bed_f.tier.pass(vec![missed(2, 1)]);
    assert!(bed_f.done.recv_timeout(Duration::from_millis(50)).is_err());

    let bed_g = bed("hand-g");
    bed_g.dp.reconfigure(Config { cores: vec![0], ..Config::default() });
    bed_g.tier.pass(vec![missed(2, 1)]);
    assert_eq!(bed_g.wait_done().0, [(PortNo(2), 1)]);
    bed_g.dp.shutdown();
    assert!(bed_g.tier.dropped.load(Ordering::Relaxed));
    assert!(bed_g.dp.add_miss_source(Box::new(Source(bed_g.tier.clone()))).is_err());
}

#[test]
fn dummies_have_no_receiving_to_switch() {
    let bed = bed("hand-h");
    let error =
        |port, reception| bed.dp.set_receiving(PortNo(port), reception).err().map(|e| e.kind());
    assert_eq!(error(1, Reception::Off), Some(io::ErrorKind::Unsupported));
    assert_eq!(error(9, Reception::On), Some(io::ErrorKind::NotFound));
}
