// SPDX-License-Identifier: Apache-2.0
//! Packet threads come with load and go without, and queues move between them. Needs no privileges.

use clock::Clock;
use datapath::{Actions, MissOrigin, Packets, PortNo, Upcall, UpcallFactory, Upcaller};
use datapath_userspace::{Config, MissSource, MissedPacket, RxqAssign, UserspaceDatapath};
use netdev::PacketPool;
use packet::build::Frame;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The datapath measures this often.
const INTERVAL: Duration = Duration::from_secs(5);

/// A source that is always ready while `busy`. Each read takes a millisecond.
struct Endless {
    ready: OwnedFd,
    busy: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
}

impl MissSource for Endless {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(&mut self, _: &mut Vec<MissedPacket>, _: &mut PacketPool, _: usize) -> io::Result<u64> {
        if !self.busy.load(Ordering::Relaxed) {
            rustix::io::read(&self.ready, &mut [0; 8])?;
        }
        std::thread::sleep(Duration::from_millis(1));
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(1)
    }

    fn done(&mut self, _: &[(PortNo, u64)]) {}
}

/// A source of packets with successive UDP source ports.
struct Numbered {
    ready: OwnedFd,
    next: u16,
}

/// The number of packets of [`Numbered`].
const PACKETS: u16 = 20_000;

impl MissSource for Numbered {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(
        &mut self,
        out: &mut Vec<MissedPacket>,
        _: &mut PacketPool,
        max: usize,
    ) -> io::Result<u64> {
        let left = usize::from(PACKETS - self.next);
        for _ in 0..max.min(left) {
            let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
                .udp(self.next, 2);
            let origin = MissOrigin::port(PortNo(7));
            out.push(MissedPacket { packet: frame.packet(), origin });
            self.next += 1;
        }
        if self.next == PACKETS {
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        Ok(0)
    }

    fn done(&mut self, _: &[(PortNo, u64)]) {}
}

/// Records the UDP source ports of upcalls. Some take longer.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<u16>>>);

impl UpcallFactory for Recorder {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(self.clone())
    }
}

impl Upcaller for Recorder {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        let number = upcall.key.tp_src.get();
        if number.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.0.lock().expect("no panic").push(number);
        [].into()
    }
}

#[test]
fn packets_keep_their_order_while_their_queue_moves() {
    let config = |rxq_assign| Config { cores: vec![0, 1], rxq_assign, ..Config::default() };
    let first = config(RxqAssign::Cycles);
    let datapath = UserspaceDatapath::new("netdev@order", Clock::new(), first);
    let recorder = Recorder::default();
    datapath.set_upcall_factory(Arc::new(recorder.clone()));
    let ready =
        || eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    // The third of three queues has another thread by each rule.
    for _ in 0..2 {
        let (busy, reads) = Default::default();
        let source = Endless { ready: ready(), busy, reads };
        datapath.add_miss_source(Box::new(source)).expect("a thread starts");
    }
    datapath.add_miss_source(Box::new(Numbered { ready: ready(), next: 0 })).expect("a thread");
    let count = || recorder.0.lock().expect("no panic").len();
    let end = Instant::now() + Duration::from_secs(60);
    while count() < usize::from(PACKETS) && Instant::now() < end {
        for rule in [RxqAssign::RoundRobin, RxqAssign::Cycles] {
            datapath.reconfigure(config(rule));
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let seen = recorder.0.lock().expect("no panic");
    assert_eq!(*seen, (0..PACKETS).collect::<Vec<_>>());
}

fn threads(datapath: &UserspaceDatapath) -> usize {
    datapath.threads(Duration::ZERO).len()
}

#[test]
fn threads_come_with_load_and_go_without() {
    let config = Config { max_threads: 2, ..Config::default() };
    let datapath = UserspaceDatapath::new("netdev@threads", Clock::new(), config);
    let busy = Arc::new(AtomicBool::new(true));
    let reads = [(); 3].map(|()| Arc::<AtomicU64>::default());
    for reads in &reads {
        let ready = eventfd(1, EventfdFlags::CLOEXEC).expect("a descriptor");
        let source = Endless { ready, busy: busy.clone(), reads: reads.clone() };
        datapath.add_miss_source(Box::new(source)).expect("a thread starts");
    }
    let mut now = Instant::now();
    datapath.adapt_threads(now);
    assert_eq!(threads(&datapath), 1);
    std::thread::sleep(INTERVAL);
    now += INTERVAL;
    datapath.adapt_threads(now);
    assert_eq!(threads(&datapath), 2, "one thread was busy with three sources");
    // All are read on.
    let before = reads.each_ref().map(|reads| reads.load(Ordering::Relaxed));
    std::thread::sleep(INTERVAL);
    for (reads, before) in reads.iter().zip(before) {
        assert!(reads.load(Ordering::Relaxed) > before + 100);
    }
    now += INTERVAL;
    datapath.adapt_threads(now);
    assert_eq!(threads(&datapath), 2, "there may not be more");
    busy.store(false, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..2 {
        now += INTERVAL;
        datapath.adapt_threads(now);
        assert_eq!(threads(&datapath), 2, "the load may come back");
    }
    for _ in 0..12 {
        now += INTERVAL;
        datapath.adapt_threads(now);
    }
    assert_eq!(threads(&datapath), 1);
}
