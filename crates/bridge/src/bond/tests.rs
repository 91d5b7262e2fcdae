// SPDX-License-Identifier: Apache-2.0
use super::*;
use datapath::BondTable;
use packet::Mac;

const P1: PortNo = PortNo(1);
const P2: PortNo = PortNo(2);

/// Returns links of two ports, up or down.
fn links(up: [bool; 2]) -> Vec<Link> {
    let link = |(at, is_up): (usize, &bool)| Link {
        number: PortNo(at as u32 + 1),
        name: format!("p{}", at + 1),
        mac: [2, 0, 0, 0, 0, at as u8 + 1],
        is_up: *is_up,
        may_enable: *is_up,
    };
    up.iter().enumerate().map(link).collect()
}

fn bond(settings: &Settings) -> Bond {
    let mut bond = Bond::new("bond0");
    bond.update(settings, LacpStatus::Off, &links([true; 2]), Millis(0));
    bond.take_announcement();
    bond
}

#[test]
fn hashes_are_those_of_open_vswitch() {
    // As `ovs-appctl bond/hash` of Open vSwitch 3.1 answers.
    let hash = |mac: [u8; 6], vlan, basis| source_hash(Mac(mac), vlan, basis) & 0xff;
    for (mac, vlan, basis, expected) in HASHES {
        assert_eq!(hash(mac, vlan, basis), expected, "{mac:?} {vlan} {basis}");
    }
}

/// Address, VLAN, basis and bucket.
const HASHES: [([u8; 6], u16, u32, u32); 4] = [
    ([0, 0, 0, 0, 0, 1], 0, 0, 68),
    ([0x50, 0x54, 0, 0, 0, 5], 7, 0, 65),
    ([0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee], 4095, 12345, 45),
    ([0xff; 6], 0, u32::MAX, 77),
];

#[test]
fn delays_are_waited_for_and_forgotten() {
    let settings = Settings { updelay_ms: 300, downdelay_ms: 100, ..Settings::default() };
    let mut bond = bond(&settings);
    let mut at = |ms: i64, up: [bool; 2]| {
        bond.update(&settings, LacpStatus::Off, &links(up), Millis(ms));
        let enabled: Vec<bool> = bond.members().iter().map(|m| m.is_enabled).collect();
        (enabled, bond.active().map(|m| m.number))
    };
    assert_eq!(at(1_000, [false, true]), (vec![true, true], Some(P1)));
    assert_eq!(at(1_099, [false, true]), (vec![true, true], Some(P1)));
    assert_eq!(at(1_099, [true, true]), (vec![true, true], Some(P1)), "up again in time");
    assert_eq!(at(1_200, [true, true]), (vec![true, true], Some(P1)));
    assert_eq!(at(2_000, [false, true]), (vec![true, true], Some(P1)));
    assert_eq!(at(2_100, [false, true]), (vec![false, true], Some(P2)));
    assert_eq!(at(3_000, [true, true]), (vec![false, true], Some(P2)));
    assert_eq!(at(3_300, [true, true]), (vec![true, true], Some(P2)));
}

#[test]
fn the_updelay_is_skipped_when_no_member_is_enabled() {
    let settings = Settings { updelay_ms: 60_000, ..Settings::default() };
    let mut bond = bond(&settings);
    bond.update(&settings, LacpStatus::Off, &links([false; 2]), Millis(10));
    assert_eq!((bond.active(), bond.active_mac()), (None, [0; 6]));
    bond.update(&settings, LacpStatus::Off, &links([false, true]), Millis(20));
    assert_eq!(bond.active().map(|m| m.number), Some(P2));
}

#[test]
fn hosts_are_announced_after_a_member_is_lost() {
    let settings = Settings::default();
    let mut bond = bond(&settings);
    bond.update(&settings, LacpStatus::Off, &links([true, false]), Millis(10));
    assert!(bond.take_announcement());
    assert!(!bond.take_announcement());
    // The partner of LACP follows by itself.
    bond.update(&settings, LacpStatus::Negotiated, &links([false, true]), Millis(20));
    assert!(!bond.take_announcement());
}

#[test]
fn buckets_leave_a_disabled_member() {
    let settings = Settings { mode: Mode::BalanceSlb, ..Settings::default() };
    let mut bond = bond(&settings);
    let of = |bond: &Bond| (0..=9).map(|b| bond.view().member(b)).collect::<Vec<_>>();
    let [a, b] = [Some(P1), Some(P2)];
    assert_eq!(of(&bond), [a, b, a, b, a, b, a, b, a, b], "in turn");
    bond.update(&settings, LacpStatus::Off, &links([true, false]), Millis(10));
    assert_eq!(of(&bond), [a; 10]);
    bond.update(&settings, LacpStatus::Off, &links([true, true]), Millis(20));
    assert_eq!(of(&bond), [a; 10], "they stay");
    assert_eq!(bond.migrate(3, "p2"), Ok(()));
    assert_eq!(bond.view().member(3), b);
    assert_eq!(bond.migrate(3, "p9"), Err("no such member"));
}

#[test]
fn the_datapaths_table_follows_members_and_an_earlier_daemon() {
    use datapath::PortNo as DpPort;
    let settings = Settings { mode: Mode::BalanceTcp, basis: 5, ..Settings::default() };
    let mut bond = bond(&settings);
    assert!(bond.wants_output() && !bond.has_output(), "LACP has no partner");
    bond.update(&settings, LacpStatus::Negotiated, &links([true; 2]), Millis(1));
    assert!(bond.has_output());
    let ports = [(P1, DpPort(11)), (P2, DpPort(12))];
    let [a, b] = [Some(DpPort(11)), Some(DpPort(12))];
    // Buckets without a member take that of the table.
    let earlier = BondTable::new(5, [], |bucket| if bucket < 200 { b } else { Some(DpPort(9)) });
    bond.buckets.assign(0, P1);
    bond.recall_buckets(&earlier, &ports);
    let table = bond.table(&ports);
    assert_eq!((table.basis, &table.members[..]), (5, &[DpPort(11), DpPort(12)][..]));
    assert_eq!((table.member(0), table.member(1), table.member(199)), (a, b, b));
    let others: Vec<_> = (200..=255).map(|bucket| table.member(bucket)).collect();
    assert!(others.contains(&a) && others.contains(&b), "in turn: {others:?}");
    bond.update(&settings, LacpStatus::Negotiated, &links([true, false]), Millis(10));
    assert_eq!(bond.table(&ports).buckets.iter().filter(|member| **member == a).count(), 256);
    bond.update(&settings, LacpStatus::Negotiated, &links([false, false]), Millis(20));
    assert_eq!(bond.table(&ports).buckets.iter().flatten().count(), 0);
    // Of a member that comes back, buckets without a load are its share; the others stay.
    bond.update(&settings, LacpStatus::Negotiated, &links([true, false]), Millis(21));
    assert_eq!(bond.table(&ports).member(7), a);
    bond.credit(7, 100);
    assert!(bond.take_new_member());
    bond.update(&settings, LacpStatus::Negotiated, &links([true; 2]), Millis(22));
    assert!(bond.take_new_member() && !bond.take_new_member());
    assert_eq!(bond.table(&ports).buckets.iter().filter(|member| **member == a).count(), 256);
    bond.spread_idle();
    let table = bond.table(&ports);
    assert_eq!(table.member(7), a);
    let share = table.buckets.iter().filter(|member| **member == b).count();
    assert!((127..=128).contains(&share), "{share}");
    let off = Settings { lb_output: false, ..settings };
    bond.update(&off, LacpStatus::Negotiated, &links([true; 2]), Millis(30));
    assert!(!bond.wants_output());
}

#[test]
fn loads_are_balanced_after_the_interval() {
    let settings = Settings { mode: Mode::BalanceSlb, ..Settings::default() };
    let mut bond = bond(&settings);
    for bucket in 0..4 {
        bond.buckets.assign(bucket, P1);
        bond.buckets.credit(bucket, 1 << 20);
    }
    bond.rebalance(Millis(9_999));
    assert_eq!(bond.buckets.assigned(0), Some(P1), "not yet");
    bond.rebalance(Millis(10_000));
    let of: Vec<_> = (0..4).map(|b| bond.buckets.assigned(b)).collect();
    assert_eq!(of, [Some(P2), Some(P2), Some(P1), Some(P1)]);
    assert_eq!(bond.buckets.load(0), 1 << 19, "old bytes count half");
    assert_eq!(bond.next_rebalance(), Millis(20_000));
    assert!(bond.update(&settings, LacpStatus::Off, &links([true; 2]), Millis(10_000)));
}

#[test]
fn a_command_makes_another_member_active() {
    let settings = Settings::default();
    let mut bond = bond(&settings);
    assert_eq!(bond.set_active("p2"), Ok(true));
    assert_eq!(bond.set_active("p2"), Ok(false));
    assert_eq!(bond.set_active("p9"), Err("no such member"));
    assert!(bond.take_announcement());
    bond.update(&settings, LacpStatus::Off, &links([true, true]), Millis(10));
    assert_eq!(bond.active().map(|m| m.number), Some(P2), "it stays");
    bond.update(&settings, LacpStatus::Off, &links([true, false]), Millis(20));
    assert_eq!(bond.set_active("p2"), Err("cannot make disabled member active"));
}
