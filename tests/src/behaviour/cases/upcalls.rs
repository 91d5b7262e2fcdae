// SPDX-License-Identifier: Apache-2.0
//! Upcalls, and what their answers do.

use crate::behaviour::frames::{ipv4, tcp, udp, v4};
use crate::behaviour::{FLOW_LIMIT, Why, World, on};
use datapath::{
    Action, DropReason, Megaflow, PortKind, PortNo, PortSpec, RECIRCULATION_LIMIT, Ufid, Userdata,
};
use flow::extract::key_of;
use flow::{Field, Key};
use packet::Packet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub fn a_miss_calls_up_and_runs_the_answer(w: &World) {
    w.answer(|_| World::actions("set(ipv4(ttl=9)),3"));
    w.inject(2, &tcp(2, 5));
    let upcalls = w.upcalls();
    assert_eq!(upcalls.len(), 1);
    assert_eq!(upcalls[0].why, Why::Miss);
    assert_eq!(upcalls[0].frame, tcp(2, 5));
    assert_eq!(upcalls[0].key, key_of(&tcp(2, 5), 2));
    assert_eq!(upcalls[0].in_port, PortNo(2));
    let out = w.out(3);
    assert_eq!(out.len(), 1);
    assert_eq!(key_of(&out[0], 0).nw_ttl, 9);
    let lookups = w.dp().lookups();
    assert_eq!((lookups.hits, lookups.misses, lookups.lost), (0, 1, 0));
}

pub fn an_install_in_the_upcall_serves_the_next_packet(w: &World) {
    let dp = Arc::downgrade(w.dp());
    w.answer(move |seen| {
        let actions = World::actions("2");
        let flow = Megaflow {
            ufid: Ufid(7),
            matching: on(seen.in_port.0),
            actions: actions.clone().into(),
        };
        dp.upgrade().expect("it is there").install(&flow).expect("room");
        actions
    });
    for _ in 0..4 {
        w.inject(1, &udp(3));
    }
    assert_eq!(w.out(2), vec![udp(3); 4]);
    assert_eq!(w.upcalls().len(), 1);
    assert_eq!(w.stats(7).packets, 3, "the packet that called up is the upcaller's to count");
}

pub fn a_refused_install_still_forwards(w: &World) {
    for i in 0..FLOW_LIMIT {
        let mut m = on(4);
        m.set(Field::Ipv4Dst, i as u128);
        w.install(i as u128, m, "drop");
    }
    let dp = Arc::downgrade(w.dp());
    w.answer(move |_| {
        let flow =
            Megaflow { ufid: Ufid(7777), matching: on(1), actions: World::actions("2").into() };
        assert!(dp.upgrade().expect("it is there").install(&flow).is_err());
        World::actions("2")
    });
    for _ in 0..3 {
        w.inject(1, &udp(3));
    }
    assert_eq!(w.out(2).len(), 3);
    assert_eq!(w.upcalls().len(), 3);
}

const TO_CONTROLLER: &str = "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=3,\
                             rule_cookie=0x99,controller_id=4,max_len=128))";

pub fn an_action_upcall_gets_the_packet_as_it_is(w: &World) {
    w.install(
        1,
        on(1),
        &format!("set(ipv4(ttl=5)),push_vlan(vid=9,pcp=0),{TO_CONTROLLER},pop_vlan,2"),
    );
    w.inject(1, &udp(3));
    let upcalls = w.upcalls();
    assert_eq!(upcalls.len(), 1);
    let Why::Action(Userdata::Controller {
        recirc_id, rule_cookie, controller_id, max_len, ..
    }) = upcalls[0].why
    else {
        panic!("{:?}", upcalls[0].why)
    };
    assert_eq!((recirc_id, rule_cookie, controller_id, max_len), (3, 0x99, 4, 128));
    assert_eq!(upcalls[0].key, key_of(&upcalls[0].frame, 1));
    assert_eq!((upcalls[0].key.nw_ttl, upcalls[0].key.vlans[0].tci.get()), (5, 0x1009));
    assert_eq!(w.out(2).len(), 1);
    assert_eq!(w.dp().lookups().misses, 0);
}

pub fn an_answer_to_an_action_upcall_runs_on_the_copy(w: &World) {
    w.answer(|_| World::actions("set(ipv4(dst=10.0.0.99)),3"));
    w.install(1, on(1), &format!("{TO_CONTROLLER},2"));
    w.inject(1, &udp(3));
    assert_eq!(w.out(2), [udp(3)]);
    let changed = w.out(3);
    assert_eq!(changed.len(), 1);
    assert_eq!(key_of(&changed[0], 0).nw_dst.get(), v4(99).to_bits());
}

pub fn upcalls_that_answer_with_upcalls_end(w: &World) {
    w.answer(|_| World::actions(TO_CONTROLLER));
    w.install(1, on(1), TO_CONTROLLER);
    w.inject(1, &udp(3));
    assert_eq!(w.upcalls().len() as u32, 1 + RECIRCULATION_LIMIT);
    assert_eq!(w.drops(DropReason::RecirculationLimit), 1);
}

pub fn upcalls_may_call_everything(w: &World) {
    let dp = Arc::downgrade(w.dp());
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    w.answer(move |seen| {
        // The packet-out below calls up again; once is enough.
        if counted.fetch_add(1, Ordering::Relaxed) > 0 {
            return World::actions("4");
        }
        let dp = dp.upgrade().expect("it is there");
        let flow = Megaflow { ufid: Ufid(1), matching: on(3), actions: World::actions("2").into() };
        dp.install(&flow).expect("room");
        assert!(dp.modify(Ufid(1), &World::actions("4").into()));
        assert_eq!(dp.dump().len(), 1);
        assert!(dp.flow(Ufid(1)).is_some());
        dp.sweep(&mut |_, _| {});
        assert!(dp.ports().len() >= 4);
        assert!(dp.device(PortNo(99)).is_none());
        assert!(
            dp.add_port(&PortSpec {
                name: "no-such-device0".into(),
                kind: PortKind::System,
                ..PortSpec::default()
            })
            .is_err()
                || dp.remove_port(PortNo(5)).is_ok()
        );
        let _ = (dp.lookups(), dp.drops(DropReason::Flow));
        let mut key = Key::ZERO;
        key.in_port.set(PortNo::NONE.0);
        dp.execute(Packet::from_slice(&seen.frame), &key, &World::actions("3"));
        dp.execute(Packet::from_slice(&seen.frame), &key, &[Action::Recirc(5)]);
        assert!(dp.remove(Ufid(1)).is_some());
        dp.flush();
        World::actions("2")
    });
    let frame = ipv4().udp(1, 2).finish();
    w.inject(1, &frame);
    assert_eq!((w.out(2).len(), w.out(3).len(), w.out(4).len()), (1, 1, 1));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
