// SPDX-License-Identifier: Apache-2.0
//! Packets that go to controllers: the reason, and the meter.

use super::*;
use hashbrown::HashMap;
use openflow::message::meter_id;

/// The reasons of a translation's packet-ins (OFPR_*).
fn reasons(t: &Translation) -> Vec<u8> {
    fn of(actions: &[datapath::Action], found: &mut Vec<u8>) {
        for action in actions {
            match action {
                datapath::Action::Userspace(Userdata::Controller { reason, .. }) => {
                    found.push(*reason)
                }
                datapath::Action::Clone(inner) => of(inner, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    of(&t.actions, &mut found);
    found
}

fn controller() -> Action {
    to(PortNo::CONTROLLER)
}

#[test]
fn rules_that_a_bucket_leads_to_are_no_bucket() {
    let mut w = World::new(2);
    let bucket = |w: &mut World, action: Action| {
        w.group(1, GroupKind::All, Selection::Default, vec![(0, PortNo::NONE, vec![action])]);
    };
    w.rule("", [Action::Group(1), controller()]);
    w.rule("table=1,priority=5,tcp", [controller(), Action::Clone(vec![controller()])]);
    bucket(&mut w, controller());
    assert_eq!(reasons(&w.translate(&key(TCP))), [4, 1]);
    bucket(&mut w, resubmit(1));
    assert_eq!(reasons(&w.translate(&key(TCP))), [1, 1, 1]);
    w.clear_rules();
    w.rule("", [Action::Group(1)]);
    w.rule("table=1,priority=0", [controller()]);
    assert_eq!(reasons(&w.translate(&key(TCP))), [6], "a table-miss flow");
}

#[test]
fn a_packet_out_is_one_behind_a_patch_port_too() {
    let mut w = World::new(3);
    let br1 = w.add_bridge(3);
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule_on(br1, "priority=0", [controller()]);
    let t = w.run(&key(TCP), EffectsMode::Collect, None, Some(&[out(3), controller()]));
    assert_eq!(reasons(&t), [5, 5]);
    w.rule("", [out(3)]);
    assert_eq!(reasons(&w.translate(&key(TCP))), [6]);
}

#[test]
fn controllers_have_a_meter_of_their_own() {
    let mut w = World::new(2);
    w.rule("", [controller(), out(2)]);
    assert_eq!(w.translate(&key(TCP)).actions.len(), 2);
    w.br0().meters = std::sync::Arc::new(HashMap::from_iter([(1, 0), (meter_id::CONTROLLER, 7)]));
    let metered = |w: &World, meter: u32| {
        let t = w.translate(&key(TCP));
        let [datapath::Action::Clone(inner), _] = t.actions.as_slice() else {
            panic!("{:?}", t.actions)
        };
        let [first, datapath::Action::Userspace(_)] = inner.as_slice() else { panic!("{inner:?}") };
        assert_eq!(*first, datapath::Action::Meter(meter));
    };
    metered(&w, 7);
    // One that names a meter has that.
    let named = Controller {
        max_len: 77,
        controller_id: 0,
        reason: 1,
        userdata: Vec::new(),
        pause: false,
        meter_id: 1,
    };
    w.clear_rules();
    w.rule("", [Action::Controller(Box::new(named)), out(2)]);
    metered(&w, 0);
    // Packets that no rule matches, too.
    w.clear_rules();
    w.br0().config.miss_to_controller = true;
    let t = w.translate(&key(TCP));
    let [first, datapath::Action::Userspace(_)] = t.actions.as_slice() else {
        panic!("{:?}", t.actions)
    };
    assert_eq!(*first, datapath::Action::Meter(7), "the last clone is none");
}
