// SPDX-License-Identifier: Apache-2.0
use super::*;

mod model;

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a prefix")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn mac(last: u8) -> Mac {
    Mac([0x50, 0x54, 0, 0, 0, last])
}

fn stopped() -> (Clock, Underlay) {
    let clock = Clock::new();
    clock.stop();
    (clock.clone(), Underlay::new(clock))
}

fn user(prefix: &str, device: &str, gateway: Option<&str>) -> UserRoute {
    UserRoute {
        table: TABLE_MAIN,
        prefix: cidr(prefix),
        device: device.to_owned(),
        gateway: gateway.map(ip),
        source: None,
        mark: 0,
    }
}

/// `DEVICE GATEWAY SOURCE`, as far as there is one.
fn shown(found: Option<Found>) -> String {
    let Some(found) = found else { return "none".to_owned() };
    let gateway = found.gateway.map_or("-".to_owned(), address_text);
    let local = if found.is_local { " local" } else { "" };
    format!("{} {gateway} {}{local}", found.device, address_text(found.source))
}

fn to(underlay: &Underlay, destination: &str) -> String {
    shown(underlay.lookup(&Query::to(ip(destination))))
}

fn device(addresses: &[&str]) -> Device {
    Device {
        index: 1,
        mtu: 1500,
        mac: mac(1),
        is_up: true,
        has_link: true,
        addresses: addresses.iter().map(|a| cidr(a)).collect(),
    }
}

fn system_route(table: u32, prefix: &str, device: &str, gateway: Option<&str>) -> SystemRoute {
    let kind = if table == TABLE_LOCAL { RouteKind::Local } else { RouteKind::Unicast };
    let next_hop = Some(NextHop { device: device.into(), gateway: gateway.map(ip) });
    SystemRoute { table, prefix: cidr(prefix), kind, next_hop, source: None, metric: 0, mtu: None }
}

fn kernel() -> System {
    System {
        routes: vec![
            system_route(TABLE_MAIN, "0.0.0.0/0", "eth0", Some("10.0.0.254")),
            system_route(TABLE_MAIN, "10.0.0.0/24", "eth0", None),
            system_route(TABLE_LOCAL, "10.0.0.1/32", "eth0", None),
            system_route(TABLE_MAIN, "2001:db8::/64", "eth0", None),
            system_route(100, "0.0.0.0/0", "eth1", Some("10.1.0.254")),
        ],
        rules: Rule::standard(),
        devices: [
            ("eth0".into(), device(&["10.0.0.1/24", "2001:db8::1/64", "fe80::1/64"])),
            ("eth1".into(), device(&["10.1.0.1/24"])),
            ("lo".into(), device(&["127.0.0.1/8", "::1/128"])),
        ]
        .into(),
    }
}

#[test]
fn the_kernels_routes() {
    let (_, underlay) = stopped();
    assert_eq!(to(&underlay, "10.0.0.9"), "none");
    underlay.set_system(kernel());
    assert_eq!(to(&underlay, "10.0.0.9"), "eth0 - 10.0.0.1");
    assert_eq!(to(&underlay, "10.0.0.1"), "eth0 - 10.0.0.1 local");
    assert_eq!(to(&underlay, "8.8.8.8"), "eth0 10.0.0.254 10.0.0.1");
    assert_eq!(to(&underlay, "2001:db8::9"), "eth0 - 2001:db8::1");
    assert_eq!(to(&underlay, "2001:db9::9"), "none");
    assert_eq!(underlay.lookup(&Query::to(ip("8.8.8.8"))).unwrap().mtu, Some(1500));
    let marked = Query { mark: 7, ..Query::to(ip("8.8.8.8")) };
    assert_eq!(shown(underlay.lookup(&marked)), "none", "the kernel's routes have mark 0");
}

#[test]
fn only_changes_raise_the_sequence() {
    let (_, underlay) = stopped();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    underlay.on_change(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let mut before = underlay.sequence();
    let mut is_raised = |underlay: &Underlay| {
        let now = underlay.sequence();
        std::mem::replace(&mut before, now) != now
    };
    underlay.set_system(kernel());
    assert!(is_raised(&underlay));
    underlay.set_system(kernel());
    assert!(!is_raised(&underlay), "the same state");
    let mut other = kernel();
    other.devices.get_mut("eth0").unwrap().mtu = 1400;
    underlay.set_system(other);
    assert!(is_raised(&underlay));
    underlay.learn("br0", ip("10.0.0.6"), mac(6));
    underlay.learn("br0", ip("10.0.0.6"), mac(7));
    assert!(!is_raised(&underlay), "nobody asked");
    assert_eq!(underlay.neighbour("br0", ip("10.0.0.9")), None);
    underlay.learn("br0", ip("10.0.0.9"), mac(9));
    assert!(is_raised(&underlay));
    underlay.learn("br0", ip("10.0.0.9"), mac(9));
    assert!(!is_raised(&underlay), "confirmed");
    assert_eq!(underlay.neighbour("br0", ip("10.0.0.6")), Some(mac(7)));
    underlay.learn("br0", ip("10.0.0.6"), mac(6));
    assert!(is_raised(&underlay), "it was used");
    underlay.learn("br0", ip("10.0.0.9"), mac(8));
    assert!(is_raised(&underlay));
    underlay.flush_neighbours();
    assert!(is_raised(&underlay));
    underlay.flush_neighbours();
    assert!(!is_raised(&underlay));
    assert!(!underlay.remove_route(TABLE_MAIN, cidr("1.0.0.0/8"), 0));
    assert!(!is_raised(&underlay));
    underlay.set_kernel_neighbour("eth0", ip("10.0.0.7"), Some(mac(7)));
    assert!(!is_raised(&underlay), "nobody asked");
    assert_eq!(underlay.neighbour("eth0", ip("10.0.0.8")), None);
    underlay.set_kernel_neighbour("eth0", ip("10.0.0.8"), Some(mac(8)));
    assert!(is_raised(&underlay));
    underlay.set_kernel_neighbours([("eth0".to_owned(), ip("10.0.0.8"), mac(8))]);
    assert!(!is_raised(&underlay));
    underlay.set_kernel_neighbours([]);
    assert!(is_raised(&underlay));
    assert_eq!(calls.load(Ordering::Relaxed), 8);
}

#[test]
fn a_users_routes_beat_the_kernels_but_not_local_ones() {
    let (_, underlay) = stopped();
    underlay.set_system(kernel());
    underlay.add_route(&user("0.0.0.0/0", "eth1", Some("10.1.0.9"))).unwrap();
    // 0 + 96 + 32 is as much as 32 + 96.
    assert_eq!(to(&underlay, "8.8.8.8"), "eth1 10.1.0.9 10.1.0.1");
    assert_eq!(to(&underlay, "10.0.0.9"), "eth1 10.1.0.9 10.1.0.1");
    underlay.add_route(&user("10.0.0.0/24", "eth1", Some("10.1.0.8"))).unwrap();
    assert_eq!(to(&underlay, "10.0.0.9"), "eth1 10.1.0.8 10.1.0.1");
    assert_eq!(to(&underlay, "10.0.0.1"), "eth0 - 10.0.0.1 local");
    underlay.set_system(System { rules: Rule::standard(), ..System::default() });
    assert_eq!(to(&underlay, "10.0.0.9"), "eth1 10.1.0.8 10.1.0.1", "users' routes stay");
    assert!(underlay.remove_route(TABLE_MAIN, cidr("10.0.0.77/24"), 0));
    assert_eq!(to(&underlay, "10.0.0.9"), "eth1 10.1.0.9 10.1.0.1");
}

#[test]
fn a_users_route_needs_a_source() {
    let (_, underlay) = stopped();
    underlay.set_system(kernel());
    let add = |route: UserRoute| underlay.add_route(&route);
    assert_eq!(add(user("1.0.0.0/8", "nowhere", None)), Err(AddRouteError::NoDevice));
    assert_eq!(add(user("1.0.0.0/8", "eth0", None)), Err(AddRouteError::NoSource));
    assert_eq!(add(user("1.0.0.0/8", "eth0", Some("10.1.0.9"))), Err(AddRouteError::NoSource));
    let from = |source| UserRoute {
        source: Some(ip(source)),
        ..user("1.0.0.0/8", "eth0", Some("10.0.0.9"))
    };
    assert_eq!(add(from("10.0.0.2")), Err(AddRouteError::NoSource));
    assert_eq!(add(from("10.1.0.1")), Err(AddRouteError::NoSource));
    assert_eq!(add(from("10.0.0.1")), Ok(()));
    assert_eq!(to(&underlay, "1.1.1.1"), "eth0 10.0.0.9 10.0.0.1");
}

#[test]
fn marks_are_exact() {
    let (_, underlay) = stopped();
    underlay.add_address("br0", cidr("192.0.2.1/24"));
    underlay
        .add_route(&UserRoute { mark: 5, ..user("10.0.0.0/8", "br0", Some("192.0.2.5")) })
        .unwrap();
    let asked = |mark| shown(underlay.lookup(&Query { mark, ..Query::to(ip("10.1.1.1")) }));
    assert_eq!((asked(0), asked(4)), ("none".into(), "none".into()));
    assert!(underlay.routes().name_marks());
    assert_eq!(asked(5), "br0 192.0.2.5 192.0.2.1");
    let from = |source| Query { source: Some(ip(source)), mark: 5, destination: ip("10.1.1.1") };
    assert_eq!(shown(underlay.lookup(&from("192.0.2.1"))), "br0 192.0.2.5 192.0.2.1");
    assert_eq!(shown(underlay.lookup(&from("198.51.100.1"))), "none", "not an address of ours");
    assert!(underlay.remove_route(TABLE_MAIN, cidr("10.0.0.0/8"), 5));
    assert!(!underlay.routes().name_marks());
    let marked = Rule { mark: Some((5, u32::MAX)), ..Rule::standard()[0] };
    underlay.add_rule(marked, None);
    assert!(underlay.routes().name_marks());
}

#[test]
fn addresses_of_dummies_make_local_routes() {
    let (_, underlay) = stopped();
    underlay.add_address("br0", cidr("1.1.2.88/24"));
    underlay.add_address("br0", cidr("2001:cafe::88/64"));
    underlay.add_address("br0", cidr("1.1.2.88/24"));
    assert_eq!(underlay.routes().devices()["br0"].addresses.len(), 2);
    assert_eq!(to(&underlay, "1.1.2.92"), "br0 - 1.1.2.88 local");
    assert_eq!(to(&underlay, "2001:cafe::92"), "br0 - 2001:cafe::88 local");
    assert_eq!(underlay.routes().source_at("br0", ip("1.1.2.9")), Some(ip("1.1.2.88")));
    assert_eq!(underlay.routes().source_at("br0", ip("fe80::9")), Some(ip("2001:cafe::88")));
    underlay.forget_device("br0");
    assert!(underlay.routes().devices().is_empty());
    assert_eq!(to(&underlay, "1.1.2.92"), "br0 - 1.1.2.88 local", "routes stay");
}

#[test]
fn rules_choose_the_table() {
    let (_, underlay) = stopped();
    let mut system = kernel();
    system.routes.push(system_route(TABLE_LOCAL, "10.1.0.1/32", "eth1", None));
    underlay.set_system(system);
    let rule =
        Rule { from: Some(cidr("10.1.0.0/16")), ..Rule::to_table(Origin::User, false, 0, 100) };
    underlay.add_rule(rule, None);
    let priorities = |underlay: &Underlay| -> Vec<u32> {
        underlay.routes().rules().iter().map(|r| r.priority).collect()
    };
    assert_eq!(priorities(&underlay), [0, 0, 32765, 32766, 32766, 32767]);
    let from = |source| {
        shown(underlay.lookup(&Query { source: Some(ip(source)), ..Query::to(ip("8.8.8.8")) }))
    };
    assert_eq!(from("10.0.0.1"), "eth0 10.0.0.254 10.0.0.1");
    assert_eq!(from("10.1.0.1"), "eth1 10.1.0.254 10.1.0.1");
    assert_eq!(to(&underlay, "8.8.8.8"), "eth0 10.0.0.254 10.0.0.1");
    underlay.add_rule(Rule { is_inverted: true, ..rule }, None);
    assert_eq!(priorities(&underlay), [0, 0, 32764, 32765, 32766, 32766, 32767]);
    assert_eq!(from("10.0.0.1"), "eth1 10.1.0.254 10.0.0.1");
    assert!(!underlay.remove_rule(&rule, Some(1)));
    assert!(underlay.remove_rule(&rule, Some(32765)));
    assert!(underlay.remove_rule(&Rule { is_inverted: true, ..rule }, None));
    let standard = Rule::to_table(Origin::System, false, 0x7ffe, TABLE_MAIN);
    assert!(!underlay.remove_rule(&standard, None), "the kernel's");
}

#[test]
fn refused_thrown_and_suppressed_routes() {
    let (_, underlay) = stopped();
    let mut system = kernel();
    let special = |prefix: &str, kind| SystemRoute {
        kind,
        next_hop: None,
        ..system_route(TABLE_MAIN, prefix, "", None)
    };
    system.routes.push(special("10.9.0.0/16", RouteKind::Refuse));
    system.routes.push(special("10.8.0.0/16", RouteKind::Throw));
    system.rules.insert(
        4,
        Rule { suppressed_length: Some(0), ..Rule::to_table(Origin::System, false, 32760, 100) },
    );
    system.rules.push(Rule::to_table(Origin::System, false, 40_000, 100));
    underlay.set_system(system);
    assert_eq!(to(&underlay, "10.9.1.1"), "none");
    assert_eq!(to(&underlay, "10.8.1.1"), "eth1 10.1.0.254 10.1.0.1");
    assert_eq!(
        to(&underlay, "10.7.1.1"),
        "eth0 10.0.0.254 10.0.0.1",
        "the default route of 100 is suppressed"
    );
    assert_eq!(underlay.routes().in_table(TABLE_MAIN).len(), 3, "those that lead somewhere");
}

#[test]
fn a_route_of_ipv4_over_ipv6() {
    let (_, underlay) = stopped();
    let mut system = kernel();
    system.devices.insert("eth2".into(), device(&["fe80::2/64"]));
    system.routes.push(system_route(TABLE_MAIN, "10.5.0.0/16", "eth2", Some("fe80::9")));
    underlay.set_system(system);
    // RFC 5549: the source is an address of another device, as the kernel chooses it.
    assert_eq!(to(&underlay, "10.5.0.1"), "eth2 fe80::9 10.0.0.1");
    assert_eq!(underlay.routes().source_at("eth2", ip("fe80::9")), Some(ip("fe80::2")));
}

#[test]
fn the_lowest_metric_decides() {
    let (_, underlay) = stopped();
    let mut system = kernel();
    for (metric, gateway) in
        [(200, "10.0.0.2"), (100, "10.0.0.3"), (100, "10.0.0.4"), (300, "10.0.0.5")]
    {
        let route = system_route(TABLE_MAIN, "10.6.0.0/16", "eth0", Some(gateway));
        system.routes.push(SystemRoute { metric, mtu: Some(1300), ..route });
    }
    underlay.set_system(system);
    assert_eq!(to(&underlay, "10.6.0.1"), "eth0 10.0.0.3 10.0.0.1", "of equal ones the first");
    assert_eq!(underlay.lookup(&Query::to(ip("10.6.0.1"))).unwrap().mtu, Some(1300));
}

#[test]
fn learned_neighbours_age() {
    let (clock, underlay) = stopped();
    assert_eq!(underlay.aging(), Duration::from_secs(900));
    underlay.learn("br0", ip("10.0.0.9"), mac(9));
    underlay.learn("br1", ip("10.0.0.9"), mac(8));
    assert_eq!(underlay.neighbour("br1", ip("10.0.0.9")), Some(mac(8)));
    clock.advance(800_000);
    assert_eq!(underlay.neighbour("br0", ip("10.0.0.9")), Some(mac(9)));
    clock.advance(100_000);
    assert_eq!(underlay.neighbour("br0", ip("10.0.0.9")), Some(mac(9)), "its use kept it");
    assert_eq!(underlay.neighbour("br1", ip("10.0.0.9")), None);
    let expired: Vec<bool> = underlay.learned().iter().map(|n| n.is_expired).collect();
    assert_eq!(expired, [false, true]);
    assert!(underlay.next_expiry().is_some_and(|t| t <= clock.now()));
    let before = underlay.sequence();
    underlay.expire();
    assert_ne!(underlay.sequence(), before);
    assert_eq!(underlay.learned().len(), 1);
    underlay.set_aging(Duration::from_secs(10));
    clock.advance(10_000);
    underlay.expire();
    assert!(underlay.learned().is_empty());
    let counters = underlay.neighbour_counters();
    assert_eq!(counters, NeighbourCounters { learned: 2, refused: 0, misses: 1 });
}

#[test]
fn the_end_of_an_unused_neighbour_changes_nothing_but_that_of_a_question_does() {
    let (clock, underlay) = stopped();
    underlay.learn("br0", ip("10.0.0.9"), mac(9));
    clock.advance(900_000);
    let before = underlay.sequence();
    underlay.expire();
    assert_eq!((underlay.sequence(), underlay.learned().len()), (before, 0));
    assert_eq!(underlay.neighbour("br0", ip("10.0.0.9")), None);
    clock.advance(900_000);
    underlay.expire();
    // A later answer would raise the number no more, so that the question is to be asked again.
    assert_eq!(underlay.sequence(), before + 1);
}

#[test]
fn the_kernels_neighbours_fill_in() {
    let (_, underlay) = stopped();
    underlay.set_kernel_neighbours([("eth0".to_owned(), ip("10.0.0.9"), mac(7))]);
    assert_eq!(underlay.neighbour("eth0", ip("10.0.0.9")), Some(mac(7)));
    assert_eq!(underlay.neighbour("eth1", ip("10.0.0.9")), None);
    underlay.learn("eth0", ip("10.0.0.9"), mac(9));
    assert_eq!(underlay.neighbour("eth0", ip("10.0.0.9")), Some(mac(9)));
    underlay.forget_device("eth0");
    assert_eq!(underlay.neighbour("eth0", ip("10.0.0.9")), Some(mac(7)));
    assert!(underlay.learned().is_empty(), "the kernel's are not shown");
}

#[test]
fn path_mtus_change_the_sequence() {
    let (clock, underlay) = stopped();
    let before = underlay.sequence();
    underlay.record_path_mtu(ip("10.0.0.9"), 1400);
    underlay.record_path_mtu(ip("10.0.0.9"), 1450);
    assert_eq!(underlay.sequence(), before + 1);
    assert_eq!(underlay.path_mtu(ip("10.0.0.9")), Some(1400));
    assert_eq!(underlay.next_expiry(), Some(clock.now() + 600_000));
    clock.advance(600_000);
    assert_eq!(underlay.path_mtu(ip("10.0.0.9")), None);
    underlay.expire();
    assert_eq!((underlay.sequence(), underlay.next_expiry()), (before + 2, None));
}

#[test]
fn a_flood_of_neighbours_is_bounded() {
    let (_, underlay) = stopped();
    for n in 0..70_000 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(n));
        underlay.learn("br0", address, mac(1));
        assert!(underlay.neighbour("br1", address).is_none());
    }
    assert_eq!(underlay.learned().len(), 65_536);
    assert_eq!(underlay.neighbour_counters().refused, 70_000 - 65_536);
    let before = underlay.sequence();
    underlay.set_kernel_neighbour("br1", ip("255.0.0.1"), Some(mac(1)));
    assert_ne!(underlay.sequence(), before, "not all questions are remembered");
}

#[test]
fn an_address_that_was_known_is_supposed_while_the_neighbour_is_asked() {
    let (clock, underlay) = stopped();
    let (here, there) = ("br0", ip("10.0.0.9"));
    underlay.suppose(here, there, mac(9));
    assert_eq!(underlay.neighbour(here, there), Some(mac(9)));
    assert!(underlay.is_supposed(here, there) && underlay.learned().is_empty());
    // Its use does not keep it.
    clock.advance(9_000);
    assert_eq!(underlay.neighbour(here, there), Some(mac(9)));
    clock.advance(2_000);
    assert_eq!(underlay.neighbour(here, there), None);
    let before = underlay.sequence();
    underlay.expire();
    assert_ne!(underlay.sequence(), before);
    // An answer replaces it, from a packet or from the kernel; what is known is not replaced.
    underlay.suppose(here, there, mac(9));
    let before = underlay.sequence();
    underlay.learn(here, there, mac(9));
    assert_ne!(underlay.sequence(), before, "nobody needs to ask any more");
    underlay.suppose(here, there, mac(8));
    assert_eq!(underlay.neighbour(here, there), Some(mac(9)));
    assert!(!underlay.is_supposed(here, there));
    underlay.flush_neighbours();
    underlay.suppose(here, there, mac(9));
    underlay.set_kernel_neighbour(here, there, Some(mac(7)));
    assert_eq!(underlay.neighbour(here, there), Some(mac(7)));
    assert!(!underlay.is_supposed(here, there));
    // The kernel forgets it, and again while it is supposed.
    underlay.flush_neighbours();
    let before = underlay.sequence();
    underlay.set_kernel_neighbour(here, there, None);
    assert_ne!(underlay.sequence(), before);
    assert_eq!(underlay.neighbour(here, there), Some(mac(7)));
    assert!(underlay.is_supposed(here, there));
    // A neighbour that no translation has asked for is not kept.
    underlay.set_kernel_neighbour(here, ip("10.0.0.8"), Some(mac(8)));
    underlay.set_kernel_neighbour(here, ip("10.0.0.8"), None);
    assert_eq!(underlay.neighbour(here, ip("10.0.0.8")), None);
}

#[test]
fn a_neighbour_is_asked_for_once_in_a_while() {
    let (clock, underlay) = stopped();
    let address = IpAddr::from([10, 0, 0, 1]);
    let other = IpAddr::from([10, 0, 0, 2]);
    assert!(underlay.may_solicit("br0", address));
    assert!(!underlay.may_solicit("br0", address));
    assert!(underlay.may_solicit("br0", other));
    assert!(underlay.may_solicit("br1", address));
    clock.advance(999);
    assert!(!underlay.may_solicit("br0", address));
    clock.advance(1);
    assert!(underlay.may_solicit("br0", address));
    underlay.set_retransmission(Duration::ZERO);
    assert!(underlay.may_solicit("br0", address));
    assert_eq!(underlay.retransmission(), Duration::ZERO);
    // More neighbours than are remembered are asked for, and memory stays bounded.
    underlay.set_retransmission(Duration::from_secs(1));
    for n in 0..10_000u32 {
        assert!(underlay.may_solicit("br2", IpAddr::from(n.to_be_bytes())));
    }
    assert!(!underlay.may_solicit("br2", IpAddr::from([0, 0, 0, 1])));
}
