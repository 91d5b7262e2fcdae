// SPDX-License-Identifier: Apache-2.0
//! Sweeps of moved flows, over random histories.

use super::fakes::*;
use datapath::{Flows, Packets, PortNo, Refusal, Ufid};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Install(u128),
    Remove(u128),
    Modify(u128, u32),
    CountInProvider(u128, u64),
    CountInBase(u128),
    Withdraw(u128),
    Housekeeping,
    /// A sweep of all flows, which must not hide anything from sweeps of moved ones.
    SweepAll,
    SweepMoved,
}

fn step() -> impl Strategy<Value = Step> {
    let flow = || 1u128..7;
    prop_oneof![
        3 => flow().prop_map(Step::Install),
        1 => flow().prop_map(Step::Remove),
        1 => (flow(), 2u32..4).prop_map(|(ufid, port)| Step::Modify(ufid, port)),
        4 => (flow(), 1u64..4).prop_map(|(ufid, n)| Step::CountInProvider(ufid, n)),
        2 => flow().prop_map(Step::CountInBase),
        2 => flow().prop_map(Step::Withdraw),
        1 => Just(Step::Housekeeping),
        1 => Just(Step::SweepAll),
        3 => Just(Step::SweepMoved),
    ]
}

proptest! {
    /// After each sweep, what sweeps of moved flows have reported last are the statistics of all
    /// flows, and a flow that did not move is not reported.
    #[test]
    fn sweeps_of_moved_flows_leave_out_nothing(
        steps in proptest::collection::vec(step(), 1..100),
    ) {
        let b = Bench::new();
        b.veths(3);
        b.begin();
        let mut reported = BTreeMap::new();
        for step in steps {
            match step {
                Step::Install(ufid) => {
                    if b.placed.install(&flow(ufid, 1, &[output(2)])).is_ok() {
                        reported.remove(&Ufid(ufid));
                    }
                }
                Step::Remove(ufid) => {
                    Flows::remove(&*b.placed, Ufid(ufid));
                }
                Step::Modify(ufid, port) => {
                    b.placed.modify(Ufid(ufid), &[output(port)].into());
                }
                Step::CountInProvider(ufid, n) if b.fast.has(ufid) => b.fast.count(ufid, n),
                Step::CountInProvider(..) => {}
                Step::CountInBase(ufid) => b.base.inject(packet_of(ufid), PortNo(1)),
                Step::Withdraw(ufid) => b.withdraw(&[(Ufid(ufid), Refusal::TableFull)]),
                Step::Housekeeping => b.placed.maintain(),
                Step::SweepAll => b.placed.sweep(&mut |_, _| {}),
                Step::SweepMoved => {
                    b.placed.sweep_moved(&mut |ufid, stats| {
                        reported.insert(ufid, stats);
                    });
                    for dump in b.placed.dump() {
                        prop_assert_eq!(reported.get(&dump.flow.ufid), Some(&dump.stats));
                    }
                    let mut again = 0;
                    b.placed.sweep_moved(&mut |_, _| again += 1);
                    prop_assert_eq!(again, 0, "nothing has moved");
                }
            }
        }
    }
}
