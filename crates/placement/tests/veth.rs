// SPDX-License-Identifier: Apache-2.0
//! Placement over real parts: veths, the userspace datapath, the BPF datapath, the miss device.
//! Needs root.

use clock::Clock;
use datapath::{
    Action, Actions, Flows, Megaflow, Packets, PortKind, PortNo, PortSpec, Ports, Tier, TierSet,
    Ufid, Upcall, UpcallFactory, UpcallKind, Upcaller,
};
use datapath_bpf::{BpfDatapath, BpfProvider};
use datapath_userspace::UserspaceDatapath;
use flow::{Field, Key, Mask, Match};
use placement::PlacedDatapath;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use testing::Netns;

/// A host at the other end of the veth `name` of the thread's namespace.
fn host(name: &str, address: &str) -> Netns {
    let (switch, host) = (Netns::of_this_thread(), Netns::new());
    let there = switch.path();
    host.sh(&format!("ip link add eth0 type veth peer name {name} netns {}", there.display()));
    switch.sh(&format!("ip link set {name} up"));
    host.sh(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"));
    host
}

/// A switch of two ports: each packet leaves by the port at which it did not arrive.
struct Cable {
    placed: Weak<PlacedDatapath>,
    misses: AtomicU64,
}

struct Answerer(Arc<Cable>);

impl UpcallFactory for Answerer {
    fn upcaller(&self) -> Box<dyn Upcaller> {
        Box::new(Answerer(self.0.clone()))
    }
}

impl Upcaller for Answerer {
    fn upcall(&mut self, upcall: &Upcall<'_>) -> Actions {
        assert_eq!(upcall.kind, UpcallKind::Miss);
        self.0.misses.fetch_add(1, Ordering::Relaxed);
        let other = PortNo(3 - upcall.in_port.0);
        let actions: Actions = [Action::Output(other)].into();
        let mut mask = Mask::WILDCARD;
        for field in [Field::InPortOxm, Field::RecircId, Field::PacketType, Field::EthDst] {
            mask.set_exact(field);
        }
        let matching = Match::new(upcall.key, &mask);
        let flow = Megaflow { ufid: ufid(upcall.key), matching, actions: actions.clone() };
        if let Some(placed) = self.0.placed.upgrade() {
            let _ = placed.install(&flow); // an earlier packet may have installed it already
        }
        actions
    }
}

fn ufid(key: &Key) -> Ufid {
    let mac = key.dl_dst.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    Ufid(u128::from(key.in_port.get()) << 64 | mac)
}

#[test]
fn packets_of_veths_go_through_bpf() {
    testing::in_namespace_as_root(cable);
}

fn cable() {
    let (a, b) = (host("va", "10.9.0.1"), host("vb", "10.9.0.2"));
    let clock = Clock::new();
    let base =
        UserspaceDatapath::new("netdev@test", clock.clone(), datapath_userspace::Config::default());
    let placed = PlacedDatapath::new(base.clone(), vec![datapath_bpf::provider_slot()]);
    let config = datapath_bpf::Config { max_flows: 4096, ..datapath_bpf::Config::default() };
    let bpf = Arc::new(BpfDatapath::open(config, clock).expect("BPF"));
    placed.begin(TierSet::XDP_AND_TCX, Ok(Arc::new(BpfProvider::new(bpf))));
    placed.serve(TierSet::XDP_AND_TCX, &base).expect("a miss device");
    let cable = Arc::new(Cable { placed: Arc::downgrade(&placed), misses: AtomicU64::new(0) });
    placed.set_upcall_factory(Arc::new(Answerer(cable.clone())));
    for (name, number) in [("va", 1), ("vb", 2)] {
        let spec = PortSpec { name: name.into(), kind: PortKind::System, ..PortSpec::default() };
        assert_eq!(placed.add_port(&spec).expect("a port"), PortNo(number));
        let tiers = placed.tiers(PortNo(number)).expect("tiers");
        assert_eq!(
            tiers.iter().find(|t| t.tier == Tier::Tcx).map(|t| t.state.clone()),
            Some(Ok(()))
        );
    }
    println!("{}", a.sh("ping -q -c 20 -i 0.02 -W 2 10.9.0.2"));
    for _ in 0..3 {
        placed.maintain();
    }
    println!("{}", b.sh("ping -q -c 100 -i 0.002 -W 2 10.9.0.1"));
    let mut packets = 0;
    placed.sweep(&mut |_, stats| packets += stats.packets);
    let stats = placed.offload_stats();
    println!("{stats:?}\nmisses {}, packets {packets}", cable.misses.load(Ordering::Relaxed));
    for flow in placed.dump() {
        println!("{} {:?} {:?} {:?}", flow.flow.ufid, flow.tier, flow.refusals, flow.stats);
        assert_eq!((flow.tier, flow.refusals.nearest()), (Tier::Tcx, None));
    }
    // 120 echoes and their replies, each counted once. A flow does not count a packet that missed.
    let seen = packets + cable.misses.load(Ordering::Relaxed);
    assert!((240..280).contains(&seen), "{seen}");
    assert!(stats.fast_packets >= 200, "{stats:?}");
    placed.set_blocked(TierSet::XDP_AND_TCX, Some(datapath_bpf::disabled()));
    a.sh("ping -q -c 5 -i 0.02 -W 2 10.9.0.2");
    let mut after = 0;
    placed.sweep(&mut |_, stats| after += stats.packets);
    assert!(after >= packets + 10, "{after}");
    placed.cleanup();
}
