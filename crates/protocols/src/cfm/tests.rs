// SPDX-License-Identifier: Apache-2.0

use super::*;

fn settings(mpid: u64) -> Settings {
    Settings { mpid, interval_ms: 100, is_extended: true, has_demand: false, is_up: true }
}

fn new(settings: Settings) -> Cfm {
    Cfm::new(settings, 0, Millis(0)).expect("the settings are good")
}

/// Runs both ends from one time to another, in steps of 10 ms. Messages of `b` arrive if `is_joined`.
fn run(a: &mut Cfm, b: &mut Cfm, from: i64, to: i64, is_joined: bool) {
    for now in (from..to).step_by(10).map(Millis) {
        let (of_a, of_b) = (a.run(now, 0).ccm, b.run(now, 0).ccm);
        if let Some(ccm) = of_a {
            b.receive(&ccm.encode(), now);
        }
        if let Some(ccm) = of_b.filter(|_| is_joined) {
            a.receive(&ccm.encode(), now);
        }
    }
}

#[test]
fn two_ends_find_each_other() {
    let (mut a, mut b) = (new(settings(1)), new(settings(2)));
    run(&mut a, &mut b, 0, 3_000, true);
    let status = a.status();
    assert!(status.is_live());
    assert_eq!((status.faults, status.flaps), (Faults::NONE, 0));
    assert_eq!((&*status.remotes, status.health), (&[2][..], Some(100)));
    assert_eq!(status.is_remote_up, Some(true));
    assert_eq!(b.status().remotes, [1]);
}

#[test]
fn silence_is_a_fault_at_one_end_and_a_defect_at_the_other() {
    let (mut a, mut b) = (new(settings(1)), new(settings(2)));
    run(&mut a, &mut b, 0, 1_000, true);
    run(&mut a, &mut b, 1_000, 2_000, false);
    assert_eq!((a.status().faults, a.status().flaps), (Faults::RECV, 1));
    assert!(!a.status().is_live());
    assert_eq!(b.status().faults, Faults::RDI);
    run(&mut a, &mut b, 2_000, 3_000, true);
    assert_eq!((a.status().faults, a.status().flaps), (Faults::NONE, 2));
    assert_eq!(b.status().faults, Faults::NONE);
}

#[test]
fn a_fault_check_comes_after_three_and_a_half_intervals() {
    let mut a = new(settings(1));
    for now in 0..350 {
        assert_eq!(a.run(Millis(now), 0).change, None, "at {now}");
    }
    assert_eq!(a.run(Millis(350), 0).change, Some((Faults::NONE, Faults::RECV)));
    assert_eq!(a.run(Millis(699), 0).change, None);
    assert_eq!(a.status().health, None);
    for now in (700..=2_450).step_by(350) {
        a.run(Millis(now), 0);
    }
    assert_eq!(a.status().health, Some(0), "the seventh check has none");
}

#[test]
fn messages_are_sent_in_the_interval_and_carry_the_settings() {
    let mut a = new(Settings { is_up: false, interval_ms: 300, ..settings(1 << 40) });
    let first = a.run(Millis(0), 0).ccm.expect("it is due");
    assert_eq!((first.interval, first.extended_interval), (0, 300));
    assert_eq!((first.extended_mpid, first.is_down, first.has_defect), (1 << 40, true, false));
    assert_eq!((a.run(Millis(299), 0).ccm, a.next_due()), (None, Millis(300)));
    assert_eq!(a.run(Millis(300), 0).ccm.map(|ccm| ccm.sequence), Some(2));
    a.run(Millis(1_050), 0);
    assert!(a.run(Millis(1_350), 0).ccm.expect("it is due").has_defect);
    let mut plain = new(Settings { is_extended: false, is_up: false, ..settings(7) });
    let ccm = plain.run(Millis(0), 0).ccm.expect("it is due");
    assert_eq!((ccm.interval, ccm.mpid, ccm.extended_mpid, ccm.is_down), (3, 7, 0, false));
    assert_eq!(plain.destination(), DESTINATION);
    assert_eq!(plain.status().is_remote_up, None);
}

#[test]
fn intervals_without_the_extension_are_those_with_a_code() {
    let of = |ms, is_extended| {
        let interval = Settings { interval_ms: ms, is_extended, ..settings(1) }.interval();
        (interval.code, interval.ms)
    };
    for (ms, code, coded) in
        [(1, 1, 3), (3, 1, 3), (99, 2, 10), (100, 3, 100), (5_000, 4, 1_000), (999_999, 7, 600_000)]
    {
        assert_eq!(of(ms, false), (code, coded), "{ms}");
    }
    assert_eq!(
        [of(1_000, true), of(99, true), of(70_000, true)],
        [(4, 1_000), (0, 99), (0, 65_535)]
    );
}

#[test]
fn identifiers_have_a_range() {
    let check = |mpid, is_extended| Settings { is_extended, ..settings(mpid) }.check();
    assert_eq!(check(0, true), Err(SettingsError::ZeroMpid));
    assert_eq!(check(8191, false), Ok(()));
    assert_eq!(check(8192, false), Err(SettingsError::Mpid(8192)));
    assert_eq!(check(u64::MAX, true), Ok(()));
}

#[test]
fn the_remote_may_be_down() {
    let (mut a, mut b) = (new(settings(1)), new(Settings { is_up: false, ..settings(2) }));
    run(&mut a, &mut b, 0, 1_000, true);
    assert_eq!((a.status().faults, a.status().is_remote_up), (Faults::NONE, Some(false)));
    assert!(!a.status().is_live());
    b.configure(settings(2), 0, Millis(1_000)).expect("the settings are good");
    run(&mut a, &mut b, 1_000, 2_000, true);
    assert!(a.status().is_live());
}

#[test]
fn other_associations_and_loops_are_faults() {
    let mut a = new(settings(1));
    let mut strange = Ccm { maid: [0; MAID_LEN], ..a.run(Millis(0), 0).ccm.expect("it is due") };
    assert_eq!(a.receive(&strange.encode(), Millis(10)), [Oddity::Maid]);
    strange.maid = MAID;
    assert_eq!(a.receive(&strange.encode(), Millis(10)), []);
    strange.sequence = 2;
    assert_eq!(a.receive(&strange.encode(), Millis(20)), [Oddity::Loopback(1)]);
    let round = a.run(Millis(350), 0);
    assert_eq!(round.change, Some((Faults::NONE, Faults::MAID | Faults::LOOPBACK)));
    assert_eq!(a.status().faults.to_string(), "maid loopback");
    assert_eq!(
        a.receive(&[0; 10], Millis(351)),
        [Oddity::NoCcm(CcmError::Short)],
        "which is no fault"
    );
    assert_eq!(a.run(Millis(700), 0).change, Some((a_fault(), Faults::RECV)));
}

fn a_fault() -> Faults {
    Faults::MAID | Faults::LOOPBACK
}

#[test]
fn lost_messages_are_reported_and_lower_the_health() {
    let mut a = new(settings(1));
    let ccm = |sequence| Ccm {
        has_defect: false,
        interval: 3,
        sequence,
        mpid: 0,
        maid: MAID,
        extended_interval: 0,
        extended_mpid: 2,
        is_down: false,
    };
    assert_eq!(a.receive(&ccm(5).encode(), Millis(1)), []);
    let lost = Oddity::Sequence { mpid: 2, previous: 5, current: 7 };
    assert_eq!(a.receive(&ccm(7).encode(), Millis(2)), [lost]);
    let late = Ccm { interval: 0, extended_interval: 300, ..ccm(8) };
    let odd = a.receive(&late.encode(), Millis(3));
    assert_eq!(
        odd,
        [
            Oddity::Interval { interval: 0, mpid: 2 },
            Oddity::ExtendedInterval { interval_ms: 300, mpid: 2 }
        ]
    );
    for (sequence, now) in (9..).zip((350..=2_450).step_by(350)) {
        a.receive(&ccm(sequence).encode(), Millis(now));
        a.run(Millis(now), 0);
    }
    assert_eq!(a.status().health, Some(47), "10 of 21");
}

#[test]
fn a_person_sets_faults() {
    let mut a = new(settings(1));
    a.force(Some(true));
    assert_eq!(a.status().faults, Faults::OVERRIDE);
    a.run(Millis(350), 0);
    a.force(Some(false));
    assert!(a.status().is_live() && a.report(Millis(350)).is_overridden);
    a.force(None);
    assert_eq!(a.status().faults, Faults::RECV);
}

#[test]
fn packets_stand_for_messages_on_demand() {
    let demand = |mpid| Settings { has_demand: true, interval_ms: 300, ..settings(mpid) };
    let (mut a, mut b) = (new(demand(1)), new(demand(2)));
    run(&mut a, &mut b, 0, 3_000, true);
    assert_eq!(a.status().faults, Faults::NONE);
    // Checks are 1750 ms apart. Packets arrive, and no message.
    let mut packets = 0;
    for now in (3_000..32_000).step_by(10).map(Millis) {
        packets += 1;
        a.run(now, packets);
        assert!(a.status().faults.is_empty(), "at {now:?}");
    }
    for now in (32_000..36_000).step_by(10).map(Millis) {
        packets += 1;
        a.run(now, packets);
    }
    assert_eq!(a.status().faults, Faults::RECV, "a message must come in 100 intervals");
}

#[test]
fn remotes_have_a_limit() {
    let mut a = new(settings(1));
    let mut ccm = a.run(Millis(0), 0).ccm.expect("it is due");
    for mpid in 2..2 + MOST_REMOTES as u64 {
        ccm.extended_mpid = mpid;
        assert_eq!(a.receive(&ccm.encode(), Millis(1)), []);
    }
    ccm.extended_mpid = 9_999;
    assert_eq!(a.receive(&ccm.encode(), Millis(1)), [Oddity::Overflow(9_999)]);
    a.run(Millis(350), 0);
    assert_eq!(a.status().remotes.len(), MOST_REMOTES);
    for now in (700..=2_450).step_by(350) {
        a.run(Millis(now), 0);
    }
    assert_eq!(a.status().remotes.len(), 0);
}
