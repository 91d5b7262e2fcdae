// SPDX-License-Identifier: Apache-2.0
//! Megaflows that the switch did not make, and passes that are paused or rate-limited.

use bridge::event::Sender;
use bridge::revalidator::Pass;
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use clock::{Clock, Millis};
use datapath::{Actions, Datapath, Flows, Megaflow, Meters, Packets, PortKind, PortSpec, Ufid};
use datapath_model::{Chaos, Model, Rates};
use flow::{Field, Match};
use openflow::action::{Ct, CtZone};
use openflow::message::{
    FlowMod, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterFlags, MeterMod,
};
use openflow::{Action, PortNo};
use packet::Packet;
use packet::build::Frame;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn a_switch_that_is_dropped_leaves_nothing_behind() {
    let b = Bench::new(Rates::default());
    b.packet();
    assert_eq!(b.model.dump().len(), 1, "it has a megaflow, an upcaller and ports");
    let model = Arc::downgrade(&b.model);
    drop(b);
    assert!(model.upgrade().is_none());
}

struct Bench {
    switch: Switch,
    chaos: Arc<Chaos>,
    model: Arc<Model>,
    bridge: BridgeIndex,
    clock: Clock,
}

impl Bench {
    /// Returns a bench with two ports; TCP packets from port 1 go to port 2. Tests make the passes.
    fn new(rates: Rates) -> Bench {
        Bench::with(rates, false)
    }

    /// Does the same; with `threads` a thread makes passes.
    fn with(rates: Rates, threads: bool) -> Bench {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("dummy@ovs-dummy", clock.clone(), 1000, 1);
        let chaos = Chaos::new(model.clone(), rates, 1);
        let sender = Sender::new(|_| true);
        let mut switch = Switch::new(chaos.clone(), clock.clone(), sender, 1000, threads).unwrap();
        let bridge = switch.add_bridge("br0", 1);
        for name in ["p1", "p2"] {
            let spec = PortSpec { name: name.into(), kind: PortKind::Dummy, ..PortSpec::default() };
            switch
                .add_port(bridge, &PortRequest { spec, ofport: None, peer: None, tunnel: None })
                .unwrap();
            let bundle =
                bridge::port::Bundle { interfaces: vec![name.into()], ..Default::default() };
            switch.bridge_mut(bridge).unwrap().bundles.push(bundle);
        }
        let mut b = Bench { switch, chaos, model, bridge, clock };
        b.rule(2);
        b.switch.publish();
        b
    }

    fn dp_port(&self, port: u32) -> datapath::PortNo {
        self.switch.bridge(self.bridge).unwrap().ports[&PortNo(port)].dp_port.unwrap()
    }

    /// Installs a megaflow of IPv4 packets from datapath port `in_port` that the switch did not
    /// make.
    fn strange(&self, ufid: u128, in_port: datapath::PortNo, actions: &[datapath::Action]) {
        let mut matching = Match::ANY;
        matching.set(Field::InPortOxm, u128::from(in_port.0));
        matching.set(Field::EthType, 0x800);
        for field in [Field::RecircId, Field::PacketType] {
            matching.set(field, 0);
        }
        // The switch translates with these fields exact.
        for field in [Field::IpFrag, Field::VlanTci] {
            matching.set(field, 0);
        }
        let flow = Megaflow { ufid: Ufid(ufid), matching, actions: actions.into() };
        self.model.install(&flow).unwrap();
    }

    fn packet(&self) {
        self.model.inject(udp(), self.dp_port(1));
    }

    /// Sends five packets and returns their megaflow.
    fn five_packets(&self) -> Ufid {
        (0..5).for_each(|_| self.packet());
        let [flow] = &self.model.dump()[..] else { panic!("one megaflow") };
        flow.flow.ufid
    }

    /// Returns the number of megaflows in the switch's own table.
    fn known(&self) -> usize {
        self.switch.slow_path().megaflows.len()
    }

    /// Adds or replaces the rule by which packets from port 1 go to this port. The caller
    /// publishes.
    fn rule(&mut self, port: u32) {
        self.rule_with(&[Action::Output { port: PortNo(port), max_len: 0 }]);
    }

    fn rule_with(&mut self, actions: &[Action]) {
        let mut matching = Match::ANY;
        matching.set(Field::InPortOxm, 1);
        matching.set(Field::EthType, 0x800);
        self.switch.flow_mod(self.bridge, &FlowMod::add(5, matching, actions)).unwrap();
    }

    /// Adds or deletes a meter.
    fn meter(&mut self, command: MeterCommand, meter_id: u32) {
        let band = MeterBand { kind: MeterBandKind::Drop, rate: 1, burst_size: 0 };
        let meter = MeterConfig { meter_id, flags: MeterFlags::PKTPS, bands: vec![band] };
        self.switch.meter_mod(self.bridge, &MeterMod { command, meter }).unwrap();
        self.switch.publish();
    }

    /// Returns the numbers of the datapath's meters.
    fn meters(&self) -> Vec<u32> {
        (0..10).filter(|id| Meters::stats(&*self.model, *id).is_some()).collect()
    }

    /// Sends packets from port 1 to another port from now on.
    fn redirect(&mut self, port: u32) {
        self.rule(port);
        self.switch.publish_and_wait();
    }

    fn pass(&self, what: Pass) {
        self.switch.slow_path().pass(what);
    }

    fn actions(&self, ufid: u128) -> Option<Actions> {
        self.model.flow(Ufid(ufid)).map(|f| f.flow.actions)
    }

    /// Returns the packets that the rule has counted.
    fn counted(&self) -> u64 {
        let pipeline = &self.switch.bridge(self.bridge).unwrap().pipeline;
        pipeline.select(&Default::default()).iter().map(|r| r.stats.counts().0).sum()
    }
}

fn udp() -> Packet {
    Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(1000, 2000)
        .payload(&[0; 20])
        .packet()
}

#[test]
fn a_stranger_that_a_rule_explains_is_kept_and_counted() {
    let b = Bench::new(Rates::default());
    let to_2 = datapath::Action::Output(b.dp_port(2));
    b.strange(77, b.dp_port(1), std::slice::from_ref(&to_2));
    b.packet();
    b.packet();
    b.pass(Pass::Full);
    assert_eq!(b.actions(77).as_deref(), Some(&[to_2][..]));
    assert_eq!(b.switch.slow_path().megaflows.len(), 1);
    b.packet();
    b.pass(Pass::Full);
    assert_eq!(b.counted(), 3, "also what it counted before");
    assert_eq!(b.switch.slow_path().megaflows.len(), 1);
    b.clock.advance(20_000);
    b.pass(Pass::Full);
    assert_eq!(b.actions(77), None, "it expires like any other");
    assert_eq!(b.counted(), 3);
}

/// The megaflows of recirculated packets are met before those that lead to them.
#[test]
fn strangers_that_lead_to_each_other_are_kept() {
    let make = || {
        let mut b = Bench::new(Rates::default());
        b.switch.slow_path().recirc.derive_ids();
        // Several frozen pipelines, and rules after them.
        let again = |zone, table| {
            let (zone, table) = (CtZone::Number(zone), Some(table));
            let (commit, force, alg, actions) = (false, false, 0, Vec::new());
            Action::Ct(Box::new(Ct { commit, force, zone, table, alg, actions }))
        };
        b.rule_with(&[again(1, 1), again(2, 2)]);
        let output = || Action::Output { port: PortNo(2), max_len: 0 };
        let rules = [(1, vec![again(3, 3)]), (2, vec![output()]), (3, vec![output()])];
        for (table, actions) in rules {
            let flow_mod = FlowMod { table_id: table, ..FlowMod::add(5, Match::ANY, &actions) };
            b.switch.flow_mod(b.bridge, &flow_mod).unwrap();
        }
        b.switch.publish();
        b
    };
    let earlier = make();
    (0..8).for_each(|_| earlier.packet());
    let sorted = |b: &Bench| {
        let mut flows: Vec<Megaflow> = b.model.dump().into_iter().map(|dump| dump.flow).collect();
        flows.sort_by_key(|flow| flow.matching.key().recirc_id.get());
        flows
    };
    let flows = sorted(&earlier);
    let ids: Vec<u32> = flows.iter().map(|f| f.matching.key().recirc_id.get()).collect();
    assert!(ids.len() >= 4, "{ids:x?}");
    for rotation in 0..flows.len() {
        let b = make();
        let mut left = flows.clone();
        left.rotate_left(rotation);
        for (n, flow) in left.iter().enumerate() {
            b.model.install(&Megaflow { ufid: Ufid(n as u128), ..flow.clone() }).unwrap();
        }
        b.pass(Pass::Full);
        let after = sorted(&b);
        let same =
            |(a, b): (&Megaflow, &Megaflow)| a.matching == b.matching && a.actions == b.actions;
        assert!(after.len() == flows.len() && after.iter().zip(&flows).all(same), "{after:?}");
    }
}

#[test]
fn a_megaflow_is_used_when_it_meets_its_first_packet() {
    let b = Bench::new(Rates::default());
    let used = || b.model.used(b.dp_port(1));
    b.packet(); // it has led to the megaflow, and did not use it
    b.pass(Pass::Full);
    assert_eq!((b.model.dump().len(), used()), (1, 0));
    b.packet();
    assert_eq!(used(), 0, "nobody has looked");
    b.pass(Pass::Full);
    assert_eq!(used(), 1);
    b.packet();
    b.pass(Pass::Statistics);
    assert_eq!(used(), 1, "once");
    assert_eq!(b.model.used(b.dp_port(2)), 0);
}

#[test]
fn a_stranger_with_other_actions_gets_those_of_its_rule() {
    let b = Bench::new(Rates::default());
    b.strange(77, b.dp_port(1), &[datapath::Action::Output(b.dp_port(1))]);
    b.pass(Pass::Full);
    assert_eq!(b.actions(77).as_deref(), Some(&[datapath::Action::Output(b.dp_port(2))][..]));
}

#[test]
fn a_stranger_that_nothing_explains_is_removed() {
    let b = Bench::new(Rates::default());
    // A megaflow from a port that does not exist.
    b.strange(77, datapath::PortNo(99), &[]);
    // A megaflow wider than its translation, which depends on the type of packets.
    let mut matching = Match::ANY;
    matching.set(Field::InPortOxm, u128::from(b.dp_port(1).0));
    let wide = Megaflow { ufid: Ufid(78), matching, actions: [].into() };
    b.model.install(&wide).unwrap();
    b.pass(Pass::Statistics);
    assert_eq!(b.model.dump().len(), 2);
    b.pass(Pass::Full);
    assert!(b.model.dump().is_empty() && b.switch.slow_path().megaflows.is_empty());
}

#[test]
fn a_stranger_that_does_not_take_its_actions_is_removed() {
    let b = Bench::new(Rates { modify: 1000, ..Rates::default() });
    b.strange(77, b.dp_port(1), &[]);
    b.pass(Pass::Full);
    assert_eq!(b.actions(77), None);
    assert!(b.switch.slow_path().megaflows.is_empty());
}

#[test]
fn nothing_is_removed_or_changed_while_held() {
    let b = Bench::new(Rates::default());
    let slow = b.switch.slow_path();
    slow.hold_revalidation(true);
    b.strange(77, datapath::PortNo(99), &[]);
    b.strange(78, b.dp_port(1), &[datapath::Action::Output(b.dp_port(1))]);
    b.pass(Pass::Full);
    b.pass(Pass::Purge);
    assert_eq!(b.model.dump().len(), 2);
    assert_eq!(b.actions(78).as_deref(), Some(&[datapath::Action::Output(b.dp_port(1))][..]));
    slow.hold_revalidation(false);
    b.pass(Pass::Full);
    assert_eq!(b.actions(77), None);
    assert_eq!(b.actions(78).as_deref(), Some(&[datapath::Action::Output(b.dp_port(2))][..]));
}

#[test]
fn doomed_megaflows_go_with_their_last_counts() {
    let b = Bench::new(Rates::default());
    for _ in 0..5 {
        b.packet();
    }
    assert_eq!(b.model.dump().len(), 1);
    b.pass(Pass::Purge);
    assert!(b.model.dump().is_empty() && b.switch.slow_path().megaflows.is_empty());
    assert_eq!(b.counted(), 5);
    b.packet();
    let datapath: &dyn Datapath = &*b.model;
    datapath.flush();
    // The datapath lost the megaflow without notice: the switch forgets it after two passes.
    b.pass(Pass::Full);
    b.pass(Pass::Full);
    b.pass(Pass::Full);
    assert!(b.switch.slow_path().megaflows.is_empty());
}

#[test]
fn of_two_that_remove_a_megaflow_the_one_with_its_last_counts_credits_them() {
    let b = Bench::new(Rates::default());
    let (ufid, slow) = (b.five_packets(), Arc::clone(b.switch.slow_path()));
    b.chaos.interrupt(move || {
        slow.remove(ufid);
        assert_eq!(slow.megaflows.len(), 1, "it is for the other to take out");
    });
    b.switch.slow_path().remove(ufid);
    assert_eq!((b.counted(), b.known()), (5, 0));
}

#[test]
fn a_pass_leaves_a_megaflow_to_another_that_has_its_last_counts() {
    let b = Bench::new(Rates::default());
    let (ufid, model) = (b.five_packets(), Arc::clone(&b.model));
    b.chaos.interrupt(move || assert!(Flows::remove(&*model, ufid).is_some()));
    b.pass(Pass::Purge);
    assert_eq!(b.known(), 1, "it has yet to take the entry out");
    // Nobody takes the entry out: a pass removes a megaflow that two passes have not seen.
    b.pass(Pass::Full);
    assert_eq!(b.known(), 1);
    b.pass(Pass::Full);
    assert_eq!((b.counted(), b.known()), (5, 0));
}

#[test]
fn a_megaflow_is_not_credited_with_what_its_predecessor_counted() {
    let b = Bench::new(Rates::default());
    let (ufid, slow) = (b.five_packets(), Arc::clone(b.switch.slow_path()));
    let (model, from) = (Arc::clone(&b.model), b.dp_port(1));
    b.chaos.interrupt(move || {
        slow.remove(ufid);
        model.inject(udp(), from);
    });
    b.pass(Pass::Full); // it has swept the first one by then
    assert_eq!((b.counted(), b.known()), (6, 1));
    assert!(b.model.flow(ufid).is_some(), "it is in the place of the first one");
    b.packet();
    b.pass(Pass::Full);
    assert_eq!(b.counted(), 7);
}

#[test]
fn no_megaflow_is_policed_by_a_meter_that_came_later() {
    let mut b = Bench::new(Rates::default());
    b.meter(MeterCommand::Add, 1);
    b.rule_with(&[Action::Meter(1), Action::Output { port: PortNo(2), max_len: 0 }]);
    b.switch.publish();
    b.packet();
    assert_eq!((b.model.dump().len(), b.meters()), (1, vec![0]));
    b.switch.pause_revalidation(true);
    b.meter(MeterCommand::Delete, 1);
    b.meter(MeterCommand::Add, 2);
    assert_eq!(b.meters(), [1], "the megaflow still names the other");
    b.switch.pause_revalidation(false);
    b.meter(MeterCommand::Add, 3);
    assert_eq!(b.meters(), [0, 1]);
}

/// Packets are not sent back to their ingress port.
const DROPPED: [datapath::Action; 1] = [datapath::Action::Drop(datapath::DropReason::Flow)];

#[test]
fn no_pass_waits_for_housekeeping() {
    let mut b = Bench::with(Rates::default(), true);
    b.packet();
    let [flow] = &b.model.dump()[..] else { panic!("one megaflow") };
    let ufid = flow.flow.ufid.0;
    b.chaos.hold_up_housekeeping(true);
    eventually("housekeeping", || b.chaos.housekeeping_waits());
    b.switch.slow_path().expect_unknown_flows(); // the control thread leaves the pass to the other one
    b.redirect(1);
    eventually("other actions", || b.actions(ufid).as_deref() == Some(&DROPPED[..]));
    assert!(b.chaos.housekeeping_waits());
    b.chaos.hold_up_housekeeping(false);
}

/// Waits for the revalidator's thread, which may be delayed on a busy machine.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_changes_while_there_are_no_megaflows_costs_no_pass() {
    let mut b = Bench::with(Rates::default(), true);
    let passes = |b: &Bench| b.switch.slow_path().revalidator.passes.load(Ordering::Acquire);
    let is_empty = |b: &Bench| b.model.dump().is_empty();
    // The first pass looks for megaflows of an earlier daemon process.
    eventually("a first pass", || passes(&b) > 0);
    let before = passes(&b);
    for port in [1, 2].repeat(20) {
        b.redirect(port);
    }
    // One or two passes may have been requested earlier.
    assert!(passes(&b) < before + 10, "{}", passes(&b) - before);

    b.packet();
    let [flow] = &b.model.dump()[..] else { panic!("one megaflow") };
    let ufid = flow.flow.ufid.0;
    assert_eq!(b.actions(ufid).as_deref(), Some(&[datapath::Action::Output(b.dp_port(2))][..]));
    b.redirect(1);
    eventually("other actions", || b.actions(ufid).as_deref() == Some(&DROPPED[..]));

    // A foreign megaflow is checked once it is reported.
    b.switch.slow_path().pass(Pass::Purge);
    assert!(is_empty(&b));
    b.strange(77, datapath::PortNo(99), &[]);
    b.switch.slow_path().expect_unknown_flows();
    b.redirect(2);
    eventually("no stranger", || is_empty(&b));

    // So are megaflows that arrive while passes are held.
    b.switch.slow_path().hold_revalidation(true);
    b.strange(78, datapath::PortNo(99), &[]);
    b.redirect(1);
    assert!(!is_empty(&b));
    b.switch.slow_path().hold_revalidation(false);
    b.redirect(2);
    eventually("no stranger", || is_empty(&b));
}

#[test]
fn a_megaflow_whose_new_actions_the_datapath_does_not_take_goes() {
    let mut b = Bench::new(Rates::default());
    b.packet();
    assert_eq!(b.model.dump().len(), 1);
    // More nested lists than datapaths run.
    let short = || Action::OutputTrunc { port: PortNo(2), max_len: 64 };
    let back = || Action::Output { port: PortNo::IN_PORT, max_len: 0 };
    let nested =
        (0..20).fold(vec![short()], |inner, _| vec![short(), Action::Clone(inner), back()]);
    b.rule_with(&nested);
    b.switch.publish_and_wait();
    b.pass(Pass::Full);
    assert!(b.model.dump().is_empty(), "it has the old actions: {:?}", b.model.dump());
    assert!(b.switch.slow_path().megaflows.is_empty());
    b.packet();
    assert!(b.model.dump().is_empty());
    assert_eq!(b.counted(), 2);
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A packet to this UDP port.
    Packet(u16),
    Wait(u64),
    Pass,
    Statistics,
    /// Changes what the tables do with packets to this UDP port.
    Rule(u16, u32),
    MaxIdle(u64),
    FlowLimit(usize),
    /// Somebody removes all megaflows from the datapath.
    Flush,
    /// Somebody removes the first megaflow.
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..8).prop_map(Step::Packet),
        4 => (1u64..3000).prop_map(Step::Wait),
        1 => (3000u64..30_000).prop_map(Step::Wait),
        6 => Just(Step::Pass),
        2 => Just(Step::Statistics),
        1 => (0u16..8, 1u32..3).prop_map(|(port, out)| Step::Rule(port, out)),
        1 => prop_oneof![Just(500u64), Just(10_000), Just(1200)].prop_map(Step::MaxIdle),
        1 => prop_oneof![Just(3usize), Just(1000)].prop_map(Step::FlowLimit),
        1 => Just(Step::Flush),
        1 => Just(Step::Remove),
    ]
}

/// A model of passes that look at each megaflow.
#[derive(Default)]
struct Plain {
    /// Time of installation, and packets that no pass has credited, by megaflow.
    flows: BTreeMap<Ufid, (Millis, u64)>,
    sent: u64,
    /// Packets of megaflows that were removed by somebody else before a pass credited them.
    lost: u64,
}

impl Bench {
    fn rule_for(&mut self, udp_port: u16, out: u32) {
        let mut matching = Match::ANY;
        for (field, value) in [(Field::EthType, 0x800), (Field::IpProto, 17)] {
            matching.set(field, value);
        }
        matching.set(Field::UdpDst, udp_port.into());
        let action = Action::Output { port: PortNo(out), max_len: 0 };
        self.switch.flow_mod(self.bridge, &FlowMod::add(9, matching, &[action])).unwrap();
        self.switch.publish();
    }

    fn max_idle(&self) -> u64 {
        let slow = self.switch.slow_path();
        let max_idle = slow.revalidator.max_idle_ms.load(Ordering::Relaxed);
        let is_full = self.known() >= slow.flow_limit.load(Ordering::Relaxed);
        if is_full { max_idle.min(100) } else { max_idle }
    }

    /// Returns when each megaflow of the datapath was last used.
    fn last_uses(&self, plain: &Plain) -> BTreeMap<Ufid, Millis> {
        let last_use = |dump: datapath::FlowDump| {
            let ufid = dump.flow.ufid;
            (ufid, plain.flows[&ufid].0.max(dump.stats.used))
        };
        self.model.dump().into_iter().map(last_use).collect()
    }

    /// Makes a pass, or a change that makes one, and checks what is left and what is counted.
    fn check(&mut self, plain: &mut Plain, pass: impl FnOnce(&mut Bench), expires: bool) {
        let (now, max_idle) = (self.clock.now(), self.max_idle());
        let mut expected = self.last_uses(plain);
        if expires {
            expected.retain(|_, used| now.since(*used) <= max_idle);
        }
        pass(self);
        assert_eq!(self.last_uses(plain), expected, "at {now:?}, after {max_idle} ms");
        plain.flows.values_mut().for_each(|(_, uncredited)| *uncredited = 0);
        assert_eq!(self.counted(), plain.sent - plain.lost);
    }

    fn act(&mut self, step: Step, plain: &mut Plain) {
        match step {
            Step::Packet(port) => {
                let frame = Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
                    .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
                    .udp(1000, port);
                let before: BTreeMap<Ufid, u64> =
                    self.model.dump().iter().map(|d| (d.flow.ufid, d.stats.packets)).collect();
                self.model.inject(frame.payload(&[0; 20]).packet(), self.dp_port(1));
                plain.sent += 1;
                for dump in self.model.dump() {
                    match before.get(&dump.flow.ufid) {
                        None => {
                            let new = (self.clock.now(), dump.stats.packets);
                            plain.flows.insert(dump.flow.ufid, new);
                        }
                        Some(packets) => {
                            let flow = plain.flows.get_mut(&dump.flow.ufid).unwrap();
                            flow.1 += dump.stats.packets - packets;
                        }
                    }
                }
            }
            Step::Wait(ms) => self.clock.advance(ms),
            Step::Pass => self.check(plain, |b| b.pass(Pass::Full), true),
            Step::Statistics => self.check(plain, |b| b.pass(Pass::Statistics), false),
            Step::Rule(port, out) => self.check(plain, |b| b.rule_for(port, out), true),
            Step::MaxIdle(ms) => {
                let state = &self.switch.slow_path().revalidator;
                state.max_idle_ms.store(ms, Ordering::Relaxed);
            }
            Step::FlowLimit(limit) => self.switch.slow_path().set_flow_limit(limit),
            Step::Flush => {
                for dump in self.model.dump() {
                    plain.lost += plain.flows[&dump.flow.ufid].1;
                }
                self.model.flush();
                // Until two passes have not found them, packets find no megaflow.
                (0..2).for_each(|_| self.pass(Pass::Full));
                assert_eq!(self.known(), 0);
            }
            Step::Remove => {
                let Some(first) = self.model.dump().first().map(|d| d.flow.ufid) else { return };
                self.pass(Pass::Statistics);
                plain.flows.values_mut().for_each(|(_, uncredited)| *uncredited = 0);
                Flows::remove(&*self.model, first);
                (0..2).for_each(|_| self.pass(Pass::Full));
                assert_eq!(self.known(), self.model.dump().len());
            }
        }
    }
}

proptest! {
    /// Passes keep, expire and count what passes that look at each megaflow would.
    #[test]
    fn passes_do_what_a_look_at_each_megaflow_does(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut b = Bench::new(Rates::default());
        (0..8).for_each(|port| b.rule_for(port, 2));
        let mut plain = Plain::default();
        for step in steps {
            b.act(step, &mut plain);
        }
        b.check(&mut plain, |b| b.pass(Pass::Full), true);
        b.clock.advance(40_000);
        b.check(&mut plain, |b| b.pass(Pass::Full), true);
        prop_assert!(b.model.dump().is_empty() && b.known() == 0);
    }
}

#[test]
fn a_pass_looks_only_at_what_moved_or_may_expire() {
    let b = Bench::new(Rates { sweep: 0, ..Rates::default() });
    b.packet();
    let looks = || b.switch.slow_path().counters.looks.load(Ordering::Relaxed);
    b.pass(Pass::Full);
    b.pass(Pass::Full);
    let before = looks();
    b.clock.advance(500);
    (0..5).for_each(|_| b.pass(Pass::Full));
    assert_eq!(looks(), before, "nothing moves");
    b.packet();
    b.pass(Pass::Full);
    assert_eq!(looks(), before + 1);
    b.clock.advance(10_000);
    b.pass(Pass::Full);
    assert_eq!(b.model.dump().len(), 1, "for 10,000 ms it is not idle for too long");
    b.clock.advance(1);
    b.pass(Pass::Full);
    assert!(b.model.dump().is_empty());
}
