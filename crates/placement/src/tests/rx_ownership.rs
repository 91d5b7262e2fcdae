// SPDX-License-Identifier: Apache-2.0
//! Each packet of a port has one owner, whatever the port's tiers become.

use super::fakes::*;
use datapath::{PortNo, Ports};
use datapath_bpf::RxOwner;
use netdev::{Policing, QosRequest, Reception};
use std::fs::File;
use std::sync::atomic::Ordering;

/// The state that a packet meets after a certain step.
#[derive(Clone, Copy, Debug)]
struct Moment {
    reception: Reception,
    has_filter: bool,
    hook: bool,
    owner: Option<RxOwner>,
}

impl Moment {
    fn after(mut self, step: Step) -> Moment {
        match step {
            Step::Receives(reception) => self.reception = reception,
            Step::Filter => self.has_filter = true,
            Step::Hook(hook) => {
                self.hook = hook;
                self.owner = self.owner.filter(|_| hook);
            }
            Step::Owner(owner) => self.owner = Some(owner),
            Step::Wait => {}
        }
        self
    }

    /// Returns whether the socket takes a packet now, and whether the packet leaves it with a note.
    fn socket(self) -> (bool, bool) {
        let is_programs = self.owner.is_some_and(|owner| owner != RxOwner::Socket);
        match self.reception {
            Reception::On | Reception::Briefly if self.has_filter => (!is_programs, is_programs),
            Reception::On | Reception::Briefly => (true, false),
            Reception::Muted | Reception::Off => (false, false),
        }
    }

    /// Returns whether the hook takes a packet now.
    fn hook(self, has_note: bool) -> bool {
        let takes = match self.owner {
            None => false,
            Some(RxOwner::Socket | RxOwner::Programs) => has_note,
            Some(RxOwner::ProgramsAlone) => true,
        };
        self.hook && takes
    }
}

/// Returns how often a packet is taken, and where, for each pair of moments at which it may meet
/// the socket and the hook during these steps.
fn takings(start: Moment, steps: &[Step]) -> Vec<(usize, String)> {
    let mut moments = vec![start];
    for step in steps {
        moments.push(moments[moments.len() - 1].after(*step));
    }
    let mut found = Vec::new();
    for (i, at_socket) in moments.iter().enumerate() {
        let (taken, note) = at_socket.socket();
        for (j, at_hook) in moments.iter().enumerate().skip(i) {
            if steps[i..j].contains(&Step::Wait) {
                break;
            }
            let times = usize::from(taken) + usize::from(at_hook.hook(note));
            found.push((times, format!("at the socket {at_socket:?}, at the hook {at_hook:?}")));
        }
    }
    found
}

fn steps(b: &Bench) -> Vec<Step> {
    std::mem::take(&mut b.fast.steps.lock().unwrap())
}

fn with_filter() -> FakeFast {
    FakeFast { filter: Some(File::open("/dev/null").unwrap()), ..FakeFast::default() }
}

/// Makes all kinds of changes to a port at the skb hook, and returns the takings during each.
fn changes(b: &Bench) -> Vec<(usize, String)> {
    let port = PortNo(b.add("veth1", "system", None));
    // While the port was added, no side or an open socket took all packets.
    let mut now = steps(b).into_iter().fold(
        Moment { reception: Reception::On, has_filter: false, hook: false, owner: None },
        Moment::after,
    );
    let mut found = Vec::new();
    let mut follow = |change: &dyn Fn()| {
        change();
        let steps = steps(b);
        found.extend(takings(now, &steps));
        now = steps.into_iter().fold(now, Moment::after);
    };
    for tier in ["userspace", "tcx", "userspace", "auto", "xdp", "userspace", "xdp", "auto"] {
        follow(&|| b.placed.retier(port, &spec("veth1", "system", Some(tier))).unwrap());
        follow(&|| b.placed.look_at_peers());
    }
    for is_on in [false, true, false, true] {
        follow(&|| b.set_enabled(is_on));
    }
    for rate_kbps in [1000, 0] {
        let policing = Policing { rate_kbps, ..Policing::default() };
        follow(&|| b.placed.set_policing(port, policing).unwrap());
    }
    for kind in [Some("linux-htb"), None] {
        let qos = kind.map(|kind| QosRequest { kind: kind.to_owned(), ..QosRequest::default() });
        follow(&|| assert!(b.placed.set_qos(port, qos.as_ref()).is_ok()));
    }
    found
}

#[test]
fn each_packet_is_taken_once() {
    for opens_muted in [false, true] {
        let b = Bench::with(with_filter());
        b.base.opens_muted.store(opens_muted, Ordering::Relaxed);
        let found = changes(&b);
        assert!(found.len() > 50, "{}", found.len());
        for (times, how) in found {
            assert_eq!(times, 1, "{how}");
        }
    }
}

/// A port whose attachment is postponed gets its packets from the start, also where a person changes
/// its tier after some parts of the move.
#[test]
fn each_packet_of_a_postponed_port_is_taken_once() {
    for parts in 0..4 {
        let b = Bench::with(with_filter());
        b.base.opens_muted.store(true, Ordering::Relaxed);
        b.placed.attach_at_once(0);
        let port = PortNo(b.add("veth1", "system", None));
        let start =
            Moment { reception: Reception::Off, has_filter: false, hook: false, owner: None };
        let mut now = steps(&b).into_iter().fold(start, Moment::after);
        assert_eq!((now.reception, now.hook), (Reception::Briefly, false), "userspace forwards");
        let mut seen = 0;
        let mut follow = |change: &dyn Fn() -> bool| {
            let goes_on = change();
            let steps = steps(&b);
            for (times, how) in takings(now, &steps) {
                assert_eq!(times, 1, "{how}");
                seen += 1;
            }
            now = steps.into_iter().fold(now, Moment::after);
            goes_on
        };
        let retier = |tier| b.placed.retier(port, &spec("veth1", "system", Some(tier))).is_ok();
        for _ in 0..parts {
            follow(&|| b.placed.work_off());
        }
        follow(&|| retier("userspace"));
        follow(&|| retier("tcx"));
        while follow(&|| b.placed.work_off()) {}
        assert_eq!((now.reception, now.owner), (Reception::Off, Some(RxOwner::ProgramsAlone)));
        assert!(seen > 20, "{seen}");
    }
}

/// The whole of many ports waits once for packets on their way.
#[test]
fn postponed_ports_wait_together() {
    let b = Bench::with(with_filter());
    b.placed.attach_at_once(0);
    for n in 1..=20 {
        b.add(&format!("veth{n}"), "system", None);
    }
    steps(&b);
    let mut parts = 0;
    while b.placed.work_off() {
        parts += 1;
    }
    assert_eq!(steps(&b).iter().filter(|step| **step == Step::Wait).count(), 2);
    assert_eq!(parts, 20 + 2 + 20, "attachments, completions of 16 and 4, stops of sockets");
}

#[test]
fn no_packet_is_taken_twice_without_a_filter() {
    let b = Bench::new();
    let found = changes(&b);
    assert!(found.iter().any(|(times, _)| *times == 1));
    for (times, how) in found {
        assert!(times < 2, "{how}");
    }
}

#[test]
fn what_an_earlier_daemon_attached_is_taken_once_by_the_base() {
    let b = Bench::late(with_filter());
    b.base.opens_muted.store(true, Ordering::Relaxed);
    b.fast.owners.lock().unwrap().insert((PortNo(1), 1), RxOwner::ProgramsAlone);
    b.begin();
    let start = Moment {
        reception: Reception::Off,
        has_filter: false,
        hook: true,
        owner: Some(RxOwner::ProgramsAlone),
    };
    b.add("veth1", "system", Some("userspace"));
    for (times, how) in takings(start, &steps(&b)) {
        assert_eq!(times, 1, "{how}");
    }
}
