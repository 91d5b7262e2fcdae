// SPDX-License-Identifier: Apache-2.0
//! Devices that vanish, come back, change and move, under load. Other ports lose nothing, the
//! port itself what its own absence takes, and the database says what is.

use crate::tools::{
    SOON, interface, pair, two_hosts, wait_until_offloaded, warm, without_namespaces,
};
use crate::traffic::Ping;
use slipswitch_tests::harness::{Host, Kind, Mode, Netns, Switch, wait_until};
use std::time::{Duration, Instant};

/// Echo requests, 100 a second, that may be lost beyond those of a port's absence: what is on its
/// way, and what the port's host takes to be found again by those that ask for its address.
const MARGIN: usize = 300;
/// The same where nobody has to ask for an address again.
const NARROW: usize = 100;

/// Two hosts that talk and one, 10.0.0.3 on port h3, whose device suffers.
fn three() -> Option<(Switch, Host, Host, Host)> {
    if without_namespaces() {
        return None;
    }
    let (switch, a, b) = pair();
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    warm(&switch, &a, "10.0.0.2");
    warm(&switch, &c, "10.0.0.1");
    wait_until_offloaded(&switch);
    Some((switch, a, b, c))
}

/// Pings 10.0.0.2 from `a`, of which nothing may be lost, and 10.0.0.3, while `work` is done.
/// How long the third host could not be reached at most, `work` says; `margin` more
/// requests may be lost.
#[track_caller]
fn under_load(switch: &Switch, a: &Host, c: &Host, margin: usize, work: impl FnOnce() -> Duration) {
    let (others, own) = (Ping::start(switch, a, "10.0.0.2"), Ping::start(switch, a, "10.0.0.3"));
    std::thread::sleep(Duration::from_millis(300));
    let absent = work();
    assert!(a.reaches(c.address(), SOON), "{}", switch.story());
    std::thread::sleep(Duration::from_millis(500));
    let (others, own) = (others.finish(switch), own.finish(switch));
    eprintln!(
        "absent for {absent:?}: {} of {} lost, of others {:?} of {}",
        own.lost.len(),
        own.sent,
        others.lost,
        others.sent
    );
    others.all(30, switch);
    let bound = absent.as_millis() as usize / 10 + margin;
    own.at_most(bound, 30, switch);
}

/// The port status messages for port h3.
fn described(switch: &Switch) -> String {
    let text = switch.ofctl("dump-ports-desc br0");
    let own = text.split("(h3)").nth(1).unwrap_or_else(|| panic!("no h3: {text}"));
    own.split(": addr:").take(2).collect()
}

#[test]
fn a_device_that_vanishes_and_comes_back() {
    let Some((switch, a, _b, c)) = three() else { return };
    let number = switch.vsctl("get interface h3 ofport");
    under_load(&switch, &a, &c, MARGIN, || {
        let start = Instant::now();
        c.netns.sh("ip link del eth0");
        interface(&switch, "h3", "ofport", "-1");
        let error = switch.vsctl("get interface h3 error");
        assert!(error.contains("h3") && error.contains("No such device"), "{error}");
        interface(&switch, "h3", "link_state", "[]");
        interface(&switch, "h3", "mtu", "[]");
        interface(&switch, "h3", "ifindex", "[]");
        c.tie(switch.netns());
        a.netns.sh("ip neigh flush all");
        interface(&switch, "h3", "ofport", number.trim());
        interface(&switch, "h3", "error", "[]");
        interface(&switch, "h3", "link_state", "up");
        interface(&switch, "h3", "mtu", "1500");
        start.elapsed()
    });
    let warnings = switch.warnings();
    let told = warnings.iter().filter(|l| l.contains("h3")).count();
    assert_eq!(told, 1, "{warnings:#?}");
}

/// Gives a device another name; before Linux 6.2 it has to be down for that.
fn rename(netns: &Netns, from: &str, to: &str) {
    let down = format!("ip link set {from} down && ip link set {from} name {to}");
    let by_down = format!("({down} && ip link set {to} up)");
    netns.sh(&format!("ip link set {from} name {to} 2>/dev/null || {by_down}"));
}

#[test]
fn a_device_that_is_renamed_and_named_back() {
    let Some((switch, a, _b, c)) = three() else { return };
    let number = switch.vsctl("get interface h3 ofport");
    under_load(&switch, &a, &c, MARGIN, || {
        let start = Instant::now();
        rename(switch.netns(), "h3", "other");
        interface(&switch, "h3", "ofport", "-1");
        let error = switch.vsctl("get interface h3 error");
        assert!(error.contains("h3"), "{error}");
        // Under its new name it is another port.
        switch.vsctl("add-port br0 other");
        interface(&switch, "other", "link_state", "up");
        assert!(c.reaches("10.0.0.1", SOON), "{}", switch.story());
        switch.vsctl("del-port other");
        rename(switch.netns(), "other", "h3");
        interface(&switch, "h3", "ofport", number.trim());
        interface(&switch, "h3", "error", "[]");
        interface(&switch, "h3", "link_state", "up");
        start.elapsed()
    });
}

#[test]
fn a_device_whose_name_is_taken_by_another() {
    let Some((switch, a, _b, c)) = three() else { return };
    let before = switch.vsctl("get interface h3 ifindex");
    under_load(&switch, &a, &c, MARGIN, || {
        let start = Instant::now();
        // At one blow: the name never answers to nobody for long.
        rename(switch.netns(), "h3", "old");
        rename(&c.netns, "eth0", "eth1");
        c.tie(switch.netns());
        switch.netns().sh("ip link del old");
        a.netns.sh("ip neigh flush all");
        let other = wait_until(SOON, || {
            let now = switch.vsctl("get interface h3 ifindex");
            now != before && now.trim() != "[]"
        });
        assert!(other, "{}", switch.story());
        interface(&switch, "h3", "error", "[]");
        interface(&switch, "h3", "link_state", "up");
        start.elapsed()
    });
}

#[test]
fn an_mtu_that_changes_costs_no_packet() {
    let Some((switch, a, _b, c)) = three() else { return };
    let pings = [Ping::start(&switch, &a, "10.0.0.2"), Ping::start(&switch, &a, "10.0.0.3")];
    for mtu in ["1400", "9000", "600", "1500"] {
        switch.netns().sh(&format!("ip link set h3 mtu {mtu}"));
        interface(&switch, "h3", "mtu", mtu);
        interface(&switch, "h3", "error", "[]");
        std::thread::sleep(Duration::from_millis(100));
    }
    for ping in pings {
        ping.finish(&switch).all(20, &switch);
    }
    // And what does not fit is dropped, not what does.
    switch.netns().sh("ip link set h3 mtu 1000");
    interface(&switch, "h3", "mtu", "1000");
    let answers = |size: u32| a.ping_whole("10.0.0.3", 5, size) == 5;
    assert!(answers(900));
    assert!(!answers(1200));
    assert!(c.reaches("10.0.0.1", SOON));
}

#[test]
fn a_carrier_that_comes_and_goes() {
    let Some((switch, a, _b, c)) = three() else { return };
    let resets = |switch: &Switch| -> u32 {
        let text = switch.vsctl("get interface h3 link_resets");
        text.trim().parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let before = resets(&switch);
    under_load(&switch, &a, &c, MARGIN, || {
        let start = Instant::now();
        for _ in 0..3 {
            c.netns.sh("ip link set eth0 down");
            interface(&switch, "h3", "link_state", "down");
            assert_eq!(switch.vsctl("get interface h3 error"), "[]\n");
            assert!(described(&switch).contains("LINK_DOWN"));
            c.netns.sh("ip link set eth0 up");
            interface(&switch, "h3", "link_state", "up");
            c.netns.carrier("eth0");
        }
        start.elapsed()
    });
    assert!(
        wait_until(SOON, || resets(&switch) >= before + 6),
        "{} after {before}",
        resets(&switch)
    );
    let text = described(&switch);
    assert!(!text.contains("LINK_DOWN"), "{text}");
    // The switch's own end is set down: the administrator's doing.
    switch.netns().sh("ip link set h3 down");
    interface(&switch, "h3", "admin_state", "down");
    assert!(described(&switch).contains("PORT_DOWN"));
    switch.netns().sh("ip link set h3 up");
    interface(&switch, "h3", "admin_state", "up");
    assert!(a.reaches("10.0.0.3", SOON), "{}", switch.story());
}

#[test]
fn a_device_that_moves_to_another_namespace_and_back() {
    let Some((switch, a, _b, c)) = three() else { return };
    let number = switch.vsctl("get interface h3 ofport");
    let away = Netns::new();
    under_load(&switch, &a, &c, NARROW, || {
        let start = Instant::now();
        let path = |netns: &Netns| {
            let enter = netns.enter();
            let option = enter.get(1).and_then(|o| o.strip_prefix("--net="));
            option.expect("nsenter takes its namespace first").to_owned()
        };
        switch.netns().sh(&format!("ip link set h3 netns {}", path(&away)));
        interface(&switch, "h3", "ofport", "-1");
        interface(&switch, "h3", "link_state", "[]");
        assert!(away.sh("ip -o link").contains("h3"));
        let left = away.sh("ip -d link show h3; tc qdisc show dev h3");
        assert!(!left.contains("xdp") && !left.contains("clsact"), "{left}");
        away.sh(&format!("ip link set h3 netns {}; true", path(switch.netns())));
        switch.netns().sh("ip link set h3 up");
        interface(&switch, "h3", "ofport", number.trim());
        interface(&switch, "h3", "error", "[]");
        interface(&switch, "h3", "link_state", "up");
        // The kernel takes up to a second to believe that a link is up again.
        c.netns.carrier("eth0");
        start.elapsed()
    });
}

#[test]
fn a_storm_of_other_devices_is_weathered() {
    let Some((switch, a, _b, c)) = three() else { return };
    let before = switch.warnings().len();
    let ping = Ping::start(&switch, &a, "10.0.0.2");
    // Far more link messages than a socket holds.
    let batch: String = (0..200)
        .map(|n| {
            format!(
                "link add s{n} type veth peer name t{n}\nlink set s{n} up\nlink set s{n} mtu 1000\n"
            )
        })
        .chain((0..200).map(|n| format!("link del s{n}\n")))
        .collect();
    let file = switch.sandbox().write("storm", batch);
    for _ in 0..2 {
        switch.netns().sh(&format!("ip -batch {}", file.display()));
        assert!(switch.ofctl("show br0").contains("(h1)"));
    }
    c.netns.sh("ip link set eth0 down");
    interface(&switch, "h3", "link_state", "down");
    c.netns.sh("ip link set eth0 up");
    interface(&switch, "h3", "link_state", "up");
    ping.finish(&switch).all(50, &switch);
    assert_eq!(switch.warnings().len(), before, "{}", switch.story());
}

#[test]
fn the_database_is_away_while_a_device_vanishes() {
    if without_namespaces() {
        return;
    }
    let mut switch = Switch::start(Kind::under_test(), Mode::Real);
    let (a, b) = two_hosts(&switch);
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    warm(&switch, &a, "10.0.0.2");
    warm(&switch, &c, "10.0.0.1");
    let ping = Ping::start(&switch, &a, "10.0.0.2");
    switch.kill_database();
    c.netns.sh("ip link del eth0");
    b.netns.sh("ip link set eth0 mtu 1400");
    switch.netns().sh("ip link set h2 mtu 1400");
    let closed = wait_until(SOON, || !switch.ofctl("show br0").contains("(h3)"));
    assert!(closed, "{}", switch.story());
    switch.start_database();
    interface(&switch, "h3", "ofport", "-1");
    interface(&switch, "h2", "mtu", "1400");
    ping.finish(&switch).all(50, &switch);
    c.tie(switch.netns());
    interface(&switch, "h3", "error", "[]");
    assert!(c.reaches("10.0.0.1", SOON), "{}", switch.story());
}
