// SPDX-License-Identifier: Apache-2.0
//! The datapath with a kernel that has `openvswitch.ko`, as the guests of `cargo xtask vm` have.

use clock::Clock;
use datapath::{
    Action, Actions, Counters, Datapath, Flows, Megaflow, Packets, PortKind, PortNo, PortSpec,
    Ports, Refusal, Ufid, Upcall, UpcallFactory, UpcallKind, Upcaller,
};
use datapath_kernel::{KernelDatapath, Numbering, Unavailable};
use flow::{Field, Key, Mask, Match};
use netdev::{Kind, OpenSpec, Opened, PacketPool};
use packet::Packet;
use packet::build::Frame;
use random::random_packet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::{Netns, in_namespace_as_root, skip, wait_for};

#[path = "support/packet.rs"]
mod random;

/// Time for a packet to go through.
const ARRIVAL: Duration = Duration::from_secs(5);
/// The switch's number of the kernel's port 0.
const FIRST: u32 = 1000;

fn number(kernel: u32) -> PortNo {
    PortNo(FIRST + kernel)
}

/// Opens the datapath, or says why the test does not run.
fn open() -> Option<Arc<KernelDatapath>> {
    match KernelDatapath::open("ovs-test", Clock::new(), Numbering { first: FIRST }) {
        Ok(datapath) => Some(datapath),
        Err(Unavailable::NotLoaded) => {
            skip("the kernel has no openvswitch.ko");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a test in a namespace of its own with a new datapath.
fn with_datapath(test: impl FnOnce(Arc<KernelDatapath>) + Send) {
    in_namespace_as_root(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        if let Some(datapath) = open() {
            test(datapath);
        }
    });
}

/// A veth pair `pN` and `hN`, of which `pN` is a port. Returns the other end.
fn add_pair(datapath: &KernelDatapath, n: u32) -> Peer {
    let here = Netns::of_this_thread();
    here.sh(&format!("ip link add p{n} type veth peer name h{n}"));
    here.sh(&format!("ip link set p{n} up && ip link set h{n} up"));
    assert_eq!(datapath.add_port(&spec(&format!("p{n}"), PortKind::Vport)).unwrap(), number(n));
    Peer::open(&format!("h{n}"))
}

fn spec(name: &str, kind: PortKind) -> PortSpec {
    PortSpec { name: name.into(), kind, ..PortSpec::default() }
}

/// The other end of a port.
struct Peer(Opened, PacketPool);

impl Peer {
    fn open(name: &str) -> Peer {
        Peer(netdev::open(&OpenSpec::new(name, Kind::System)).unwrap(), PacketPool::default())
    }

    fn send(&self, frame: &[u8]) {
        assert_eq!(self.0.sender.send(&[Packet::from_slice(frame)]).sent, 1);
    }

    /// Waits for a frame.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut got = Vec::new();
        let Peer(opened, pool) = self;
        wait_for(ARRIVAL, || {
            opened.queues[0].recv(&mut got, pool, 1).unwrap();
            got.pop().map(|packet| packet.data().to_vec())
        })
    }
}

fn udp(src: u16) -> Vec<u8> {
    Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(src, 53)
        .payload(b"0123456789")
        .finish()
}

/// Packets like `key` by the ingress port and the Ethernet type, and their VLAN headers.
fn broad(key: &Key) -> Match {
    let mut mask = Mask::WILDCARD;
    for field in [Field::InPortOxm, Field::RecircId, Field::PacketType, Field::EthType] {
        mask.set_exact(field);
    }
    Match::new(key, &Numbering::with_tags(key, &mask))
}

type Answer = dyn Fn(&Upcall<'_>) -> Vec<Action> + Send + Sync;

/// Answers each upcall by a function, and keeps the keys.
#[derive(Clone)]
struct Answers {
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<(Key, bool)>>>,
}

impl Answers {
    fn begin(
        datapath: &KernelDatapath,
        answer: impl Fn(&Upcall<'_>) -> Vec<Action> + Send + Sync + 'static,
    ) -> Answers {
        let answers = Answers { answer: Arc::new(answer), seen: Arc::default() };
        datapath.set_upcall_factory(Arc::new(answers.clone()));
        answers
    }

    fn seen(&self) -> Vec<(Key, bool)> {
        self.seen.lock().unwrap().clone()
    }
}

impl UpcallFactory for Answers {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(self.clone())
    }
}

impl Upcaller for Answers {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        let is_miss = upcall.kind == UpcallKind::Miss;
        self.seen.lock().unwrap().push((*upcall.key, is_miss));
        (self.answer)(upcall).into()
    }
}

#[test]
fn packets_are_forwarded_counted_and_called_up() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let mut three = add_pair(&datapath, 3);
        let answers = Answers::begin(&datapath, |_| vec![Action::Output(number(2))]);
        let (first, later) = (udp(1), udp(2));
        one.send(&first);
        assert_eq!(two.receive().as_deref(), Some(&*first), "by the upcall's answer");
        let [(key, true)] = answers.seen()[..] else { panic!("{:?}", answers.seen()) };
        assert_eq!(key, flow::extract::key_of(&first, number(1).0));

        let matching = broad(&key);
        let actions: Actions = vec![Action::Output(number(2))].into();
        let flow = Megaflow { ufid: Ufid(7 << 100 | 5), matching, actions };
        datapath.install(&flow).unwrap();
        assert_eq!(datapath.install(&flow), Err(Refusal::Exists));
        one.send(&later);
        assert_eq!(two.receive().as_deref(), Some(&*later), "by the megaflow");
        assert_eq!(answers.seen().len(), 1);
        let dump = datapath.flow(flow.ufid).unwrap();
        assert_eq!((dump.stats.packets, dump.stats.bytes), (1, later.len() as u64));
        assert!(dump.stats.used.0 > 0);
        let mut swept = Vec::new();
        datapath.sweep(&mut |ufid, stats| swept.push((ufid, stats)));
        let [(ufid, stats)] = swept[..] else { panic!("{swept:?}") };
        assert_eq!((ufid, stats.packets, stats.bytes), (flow.ufid, 1, later.len() as u64));

        assert!(datapath.modify(flow.ufid, &vec![Action::Output(number(3))].into()));
        one.send(&later);
        assert_eq!(three.receive().as_deref(), Some(&*later));
        assert_eq!(datapath.remove(flow.ufid).unwrap().packets, 2, "counts go on");
        assert_eq!(datapath.remove(flow.ufid), None);
        assert!(!datapath.modify(flow.ufid, &Actions::from([])));
        let lookups = datapath.lookups();
        assert_eq!((lookups.hits, lookups.misses, lookups.flows), (2, 1, 0));
        datapath.cleanup();
    });
}

#[test]
fn injected_packets_and_action_upcalls() {
    with_datapath(|datapath| {
        let (_one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let userdata = datapath::Userdata::Controller {
            reason: 1,
            max_len: 128,
            controller_id: 2,
            recirc_id: 3,
            rule_cookie: 4,
            continuation: false,
        };
        let expected = userdata.clone();
        let answers = Answers::begin(&datapath, move |upcall| {
            assert_eq!(upcall.kind, UpcallKind::Action(&expected));
            vec![]
        });
        let frame = udp(1);
        let key = flow::extract::key_of(&frame, number(1).0);
        let actions = vec![Action::Userspace(userdata), Action::Output(number(2))];
        datapath
            .install(&Megaflow { ufid: Ufid(1), matching: broad(&key), actions: actions.into() })
            .unwrap();
        datapath.inject(Packet::from_slice(&frame), number(1));
        assert_eq!(two.receive().as_deref(), Some(&*frame));
        let seen = wait_for(ARRIVAL, || Some(answers.seen()).filter(|seen| !seen.is_empty()));
        assert_eq!(seen, Some(vec![(key, false)]));
        datapath.execute(Packet::from_slice(&frame), &key, &[Action::Output(number(2))]);
        assert_eq!(two.receive().as_deref(), Some(&*frame));
        let of_switch = flow::extract::key_of(&frame, PortNo::NONE.0);
        datapath.execute(Packet::from_slice(&frame), &of_switch, &[Action::Output(number(2))]);
        assert_eq!(two.receive().as_deref(), Some(&*frame));
        datapath.cleanup();
    });
}

/// A packet of few different values, perhaps a tracked one.
fn some_packet(rng: &mut fastrand::Rng) -> Key {
    let mut key = random_packet(rng, 1, number(1).0);
    if rng.u8(..3) == 0 {
        key.ct_state = 0x22;
        key.ct_zone = rng.u16(..3).into();
        key.ct_mark = rng.u32(..3).into();
    }
    key
}

/// Some bits of a packet's fields, as translation may have them: the Ethernet type and fragments are
/// exact, and the protocol is where fields after it are.
fn random_mask(key: &Key, rng: &mut fastrand::Rng) -> Mask {
    let whole = datapath::exact_mask(key);
    let mut mask = Mask::WILDCARD;
    for field in Field::ALL {
        if rng.u8(..3) == 0 {
            mask.set_exact(field);
        }
    }
    mask.0.nw_proto = u8::MAX;
    mask.0.nw_frag = u8::MAX;
    mask.words_mut().iter_mut().zip(whole.words()).for_each(|(bits, all)| *bits &= all);
    for field in [Field::InPortOxm, Field::RecircId, Field::PacketType, Field::EthType] {
        mask.set_exact(field);
    }
    mask.0.tp_src = if rng.bool() { whole.0.tp_src } else { mask.0.tp_src };
    Numbering::with_tags(key, &mask)
}

/// The match without the bits that a dump does not have: those that are zero where there is no VLAN
/// header, the tuple of a packet that has none, and contexts of NSH with other metadata.
fn as_dumped(matching: &Match) -> Match {
    let mut mask = *matching.mask();
    for (vlan, bits) in matching.key().vlans.iter().zip(&mut mask.0.vlans) {
        if vlan.tci.get() & flow::VLAN_CFI == 0 {
            *bits = flow::Vlan::default();
        }
    }
    if matching.key().ct_nw_proto == 0 {
        (mask.0.ct_nw_src, mask.0.ct_nw_dst) = Default::default();
        (mask.0.ct_tp_src, mask.0.ct_tp_dst) = Default::default();
        (mask.0.ct_ipv6_src, mask.0.ct_ipv6_dst) = Default::default();
        mask.0.ct_nw_proto = 0;
    }
    if matching.key().nsh.mdtype != 1 {
        mask.0.nsh.context = Default::default();
    }
    Match::new(matching.key(), &mask)
}

#[test]
fn the_kernel_takes_each_match_that_is_encoded_and_gives_it_back() {
    with_datapath(|datapath| {
        let _one = add_pair(&datapath, 1);
        let mut rng = fastrand::Rng::with_seed(39);
        let (mut taken, mut unsupported) = (0, 0);
        for n in 0..3_000 {
            let key = some_packet(&mut rng);
            let matching = Match::new(&key, &random_mask(&key, &mut rng));
            let flow = Megaflow { ufid: Ufid(n), matching, actions: vec![Action::CtClear].into() };
            match datapath.install(&flow) {
                Ok(()) => taken += 1,
                // Another random flow has the same match.
                Err(Refusal::Exists) => {}
                Err(Refusal::UnsupportedKey) => unsupported += 1,
                Err(refusal) => panic!("{refusal}: {flow:?}"),
            }
        }
        assert!(taken > 1_000 && unsupported < 1_500, "{taken} taken, {unsupported} refused");
        let before: Vec<_> = datapath.dump();
        assert_eq!(before.len(), taken);
        datapath.shutdown();
        drop(datapath);
        let datapath = open().unwrap();
        let after = datapath.dump();
        assert_eq!(after.len(), taken);
        for dump in before {
            let again = datapath.flow(dump.flow.ufid).expect("it was adopted").flow;
            assert_eq!(again.actions, dump.flow.actions);
            let [again, before] = [again, dump.flow].map(|flow| as_dumped(&flow.matching));
            assert_eq!(again, before);
        }
        datapath.cleanup();
    });
}

#[test]
fn megaflows_and_ports_outlive_the_daemon() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let internal =
            PortSpec { mac: Some([2, 0, 0, 0, 9, 9]), ..spec("in0", PortKind::InternalVport) };
        assert_eq!(datapath.add_port(&internal).unwrap(), number(3));
        let device = datapath.device(number(3)).unwrap();
        assert_eq!(device.status().unwrap().mac, [2, 0, 0, 0, 9, 9]);
        let key = flow::extract::key_of(&udp(1), number(1).0);
        let actions: Actions = vec![Action::Output(number(2))].into();
        let flow = Megaflow { ufid: Ufid(9), matching: broad(&key), actions };
        datapath.install(&flow).unwrap();
        one.send(&udp(1));
        assert!(two.receive().is_some());
        datapath.shutdown();
        drop((datapath, device));

        one.send(&udp(2));
        assert!(two.receive().is_some(), "while no daemon runs");
        let datapath = open().unwrap();
        let [dump] = &datapath.dump()[..] else { panic!("{:?}", datapath.dump()) };
        assert_eq!((&dump.flow, dump.stats.packets), (&flow, 2));
        assert_eq!(datapath.add_port(&spec("p2", PortKind::Vport)).unwrap(), number(2));
        assert_eq!(datapath.add_port(&internal).unwrap(), number(3));
        datapath.remove_unclaimed();
        let ports: Vec<String> = datapath.ports().into_iter().map(|port| port.name).collect();
        assert_eq!(ports, ["p2", "in0"]);
        let p1 = datapath.add_port(&spec("p1", PortKind::Vport)).unwrap();
        assert_ne!(p1, number(2));
        datapath.remove_port(number(3)).unwrap();
        assert!(!Netns::of_this_thread().run("ip link show in0").ok(), "the kernel's device");
        datapath.cleanup();
        assert!(!Netns::of_this_thread().run("ip link show ovs-test").ok());
    });
}

#[test]
fn megaflows_that_others_remove_are_put_back_with_their_counts() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let key = flow::extract::key_of(&udp(1), number(1).0);
        let actions: Actions = vec![Action::Output(number(2))].into();
        let flow = Megaflow { ufid: Ufid(9), matching: broad(&key), actions };
        datapath.install(&flow).unwrap();
        one.send(&udp(1));
        assert!(two.receive().is_some());
        datapath.sweep(&mut |_, _| {});
        if testing::without_tool(&["ovs-dpctl"]) {
            return;
        }
        let here = Netns::of_this_thread();
        let text = here.sh("ovs-dpctl dump-flows -m system@ovs-test");
        assert!(text.contains(&format!("ufid:{}", flow.ufid)), "{text}");
        assert!(text.contains("packets:1") && text.contains("actions:p2"), "{text}");
        here.sh("ovs-dpctl del-flows system@ovs-test");
        datapath.sweep(&mut |_, stats| assert_eq!(stats.packets, 1));
        one.send(&udp(1));
        assert!(two.receive().is_some());
        assert_eq!(datapath.remove(flow.ufid).unwrap().packets, 2);
        datapath.cleanup();
    });
}

#[test]
fn a_meter_limits_and_counts() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let (meters, bands) = datapath::Meters::limits(&*datapath);
        assert!(meters > 8 && bands >= 1, "{meters} meters, {bands} bands");
        let band = datapath::MeterBand { rate: 1, burst: 1 };
        let config = datapath::MeterConfig { packets: true, bands: vec![band] };
        datapath::Meters::set(&*datapath, 3, &config).unwrap();
        let key = flow::extract::key_of(&udp(1), number(1).0);
        let actions: Actions = vec![Action::Meter(3), Action::Output(number(2))].into();
        datapath.install(&Megaflow { ufid: Ufid(9), matching: broad(&key), actions }).unwrap();
        for _ in 0..10 {
            one.send(&udp(1));
        }
        assert!(two.receive().is_some());
        let stats = wait_for(ARRIVAL, || {
            datapath::Meters::stats(&*datapath, 3).filter(|stats| stats.packets == 10)
        });
        assert!(stats.unwrap().bands[0].0 >= 1);
        Flows::remove(&*datapath, Ufid(9)).unwrap();
        assert_eq!(datapath::Meters::remove(&*datapath, 3).unwrap().packets, 10);
        assert_eq!(datapath::Meters::stats(&*datapath, 3), None);
        datapath.cleanup();
    });
}

/// Has the datapath inspect itself until `ovs-dpctl` shows the port.
fn wait_for_port(datapath: &KernelDatapath, name: &str) {
    let here = Netns::of_this_thread();
    let found = wait_for(ARRIVAL, || {
        datapath.maintain();
        let shown = here.run("ovs-dpctl show system@ovs-test");
        (shown.ok() && shown.stdout.contains(&format!(": {name}"))).then_some(())
    });
    assert!(found.is_some(), "{name} is not added again");
}

#[test]
fn ports_and_datapaths_that_others_delete_are_made_again() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        if testing::without_tool(&["ovs-dpctl"]) {
            return;
        }
        let mac = [2, 0, 0, 0, 9, 9];
        let internal = PortSpec { mac: Some(mac), ..spec("in0", PortKind::InternalVport) };
        assert_eq!(datapath.add_port(&internal).unwrap(), number(3));
        let band = datapath::MeterBand { rate: 1000, burst: 1000 };
        let config = datapath::MeterConfig { packets: true, bands: vec![band] };
        datapath::Meters::set(&*datapath, 3, &config).unwrap();
        let key = flow::extract::key_of(&udp(1), number(1).0);
        let actions: Actions = vec![Action::Meter(3), Action::Output(number(2))].into();
        let flow = Megaflow { ufid: Ufid(9), matching: broad(&key), actions };
        datapath.install(&flow).unwrap();
        one.send(&udp(1));
        assert!(two.receive().is_some());
        datapath.sweep(&mut |_, _| {});
        let here = Netns::of_this_thread();

        here.sh("ovs-dpctl del-if system@ovs-test p2");
        wait_for_port(&datapath, "p2");
        one.send(&udp(2));
        assert!(two.receive().is_some(), "under the number that megaflows have");
        datapath.sweep(&mut |_, _| {});

        here.sh("ovs-dpctl del-dp system@ovs-test");
        assert!(!here.run("ip link show in0").ok(), "the kernel's device");
        wait_for_port(&datapath, "in0");
        datapath.sweep(&mut |_, stats| assert_eq!(stats.packets, 2));
        one.send(&udp(3));
        assert!(two.receive().is_some(), "by the megaflow that was put back");
        assert_eq!(Flows::remove(&*datapath, Ufid(9)).unwrap().packets, 3);
        let device = datapath.device(number(3)).unwrap();
        assert_eq!(device.status().unwrap().mac, mac);
        assert_eq!(datapath::Meters::stats(&*datapath, 3).unwrap().packets, 1, "since then");
        let ports = datapath.ports();
        assert_eq!(ports.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2, 3].map(number));
        let answers = Answers::begin(&datapath, |_| vec![Action::Output(number(2))]);
        one.send(&udp(4));
        assert!(two.receive().is_some(), "by an upcall");
        assert_eq!(answers.seen().len(), 1);

        datapath.cleanup();
        datapath.maintain();
        assert!(!here.run("ip link show ovs-test").ok(), "the datapath's own end is no deletion");
    });
}

#[test]
fn upcalls_without_room_are_counted_and_later_ones_are_answered() {
    with_datapath(|datapath| {
        let (one, mut two) = (add_pair(&datapath, 1), add_pair(&datapath, 2));
        let gate = Arc::new(std::sync::RwLock::new(()));
        let closed = gate.write().unwrap();
        let of_answers = gate.clone();
        let answers = Answers::begin(&datapath, move |_| {
            drop(of_answers.read().unwrap());
            vec![]
        });
        let frame = [udp(1), vec![0; 1400]].concat();
        let batch: Vec<Packet> = (0..64).map(|_| Packet::from_slice(&frame)).collect();
        // A socket takes 8 MiB.
        let mut sent = 0;
        while datapath.lookups().lost == 0 {
            assert!(sent < 64 * 1024, "nothing was lost");
            sent += one.0.sender.send(&batch).sent;
        }
        drop(closed);
        let idle = wait_for(ARRIVAL * 10, || datapath.is_idle().then_some(()));
        assert!(idle.is_some());
        let lookups = datapath.lookups();
        assert_eq!(lookups.misses, sent);
        assert_eq!(answers.seen().len() as u64, sent - lookups.lost, "each is answered or lost");
        assert_eq!(datapath.drops(datapath::DropReason::UpcallLimit), lookups.lost);

        let key = flow::extract::key_of(&udp(1), number(1).0);
        let actions: Actions = vec![Action::Output(number(2))].into();
        datapath.install(&Megaflow { ufid: Ufid(9), matching: broad(&key), actions }).unwrap();
        one.send(&udp(1));
        assert!(two.receive().is_some());
        Flows::remove(&*datapath, Ufid(9)).unwrap();
        let before = answers.seen().len();
        one.send(&udp(2));
        let more = wait_for(ARRIVAL, || (answers.seen().len() > before).then_some(()));
        assert!(more.is_some());
        datapath.cleanup();
    });
}
