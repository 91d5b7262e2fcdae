// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::link::LinkClient;
use crate::netlink::attribute;
use crate::netlink_counters;
use packet::Mac;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use testing::{in_namespace, wait_until};
use underlay::{Cidr, RouteKind, Rule, RuleAction, System};

fn ip_address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a prefix")
}

#[track_caller]
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("iproute2 is installed").success(), "ip {arguments}");
}

/// The state that the monitor has reported so far.
struct Follower {
    monitor: RoutingMonitor,
    system: System,
    neighbours: BTreeMap<(String, IpAddr), Mac>,
}

impl Follower {
    fn new(monitor: RoutingMonitor) -> Follower {
        Follower { monitor, system: System::default(), neighbours: BTreeMap::new() }
    }

    fn poll(&mut self) {
        for update in self.monitor.poll(Instant::now()).expect("the sockets work") {
            match update {
                RoutingUpdate::System(system) => self.system = system,
                RoutingUpdate::Neighbours(all) => {
                    let all = all.into_iter().map(|(device, at, mac)| ((device, at), mac));
                    self.neighbours = all.collect();
                }
                RoutingUpdate::Neighbour(device, at, Some(mac)) => {
                    self.neighbours.insert((device, at), mac);
                }
                RoutingUpdate::Neighbour(device, at, None) => {
                    self.neighbours.remove(&(device, at));
                }
            }
        }
    }

    /// Follows until the state is as it should be.
    #[track_caller]
    fn until(&mut self, expected: &str, condition: impl Fn(&Follower) -> bool) {
        let seen = wait_until(Duration::from_secs(10), || {
            self.poll();
            condition(self)
        });
        assert!(seen, "{expected}: {:#?} {:?}", self.system, self.neighbours);
    }

    /// `DEVICE GATEWAY` of the route with this prefix in table `main`.
    fn route(&self, prefix: &str) -> Option<String> {
        let is_meant = |r: &&underlay::SystemRoute| r.prefix == cidr(prefix) && r.table == 254;
        let hop = self.system.routes.iter().find(is_meant)?.next_hop.as_ref()?;
        let gateway = hop.gateway.map_or("-".to_owned(), |g| g.to_string());
        Some(format!("{} {gateway}", hop.device))
    }
}

/// A pair of interfaces that are up, and a follower.
fn followed() -> Follower {
    // The namespaces of tests begin without IPv6.
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0").expect("IPv6 is there");
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0").expect("IPv6 is there");
    ip("link set lo up");
    ip("link add d0 address 02:00:00:00:00:01 type veth peer name d1 address 02:00:00:00:00:02");
    ip("addr add 10.0.0.1/24 dev d0");
    ip("link set d0 up");
    ip("link set d1 up");
    let mut follower = Follower::new(RoutingMonitor::new().expect("a socket"));
    follower.until("the present state", |f| f.route("10.0.0.0/24") == Some("d0 -".to_owned()));
    follower
}

#[test]
fn routes_are_followed() {
    in_namespace(|| {
        let mut f = followed();
        let device = &f.system.devices["d0"];
        assert_eq!((device.mac, device.mtu), (Mac([2, 0, 0, 0, 0, 1]), 1500));
        ip("route add 10.9.0.0/16 via 10.0.0.9 mtu 1400 metric 5");
        f.until("added", |f| f.route("10.9.0.0/16") == Some("d0 10.0.0.9".to_owned()));
        let route = f.system.routes.iter().find(|r| r.prefix == cidr("10.9.0.0/16"));
        assert_eq!(route.map(|r| (r.metric, r.mtu, r.source)), Some((5, Some(1400), None)));
        ip("route change 10.9.0.0/16 via 10.0.0.8 metric 5");
        f.until("changed", |f| f.route("10.9.0.0/16") == Some("d0 10.0.0.8".to_owned()));
        ip("route del 10.9.0.0/16");
        f.until("removed", |f| f.route("10.9.0.0/16").is_none());
        ip("-6 addr add 2001:db8::1/64 dev d0 nodad");
        ip("-6 route add 2001:db9::/32 via 2001:db8::9");
        f.until("IPv6", |f| f.route("2001:db9::/32") == Some("d0 2001:db8::9".to_owned()));
        ip("route add 10.8.0.0/16 via inet6 2001:db8::9 dev d0 src 10.0.0.1");
        f.until("RFC 5549", |f| f.route("10.8.0.0/16") == Some("d0 2001:db8::9".to_owned()));
        ip("route add 10.7.0.0/16 nexthop via 10.0.0.3 nexthop via 10.0.0.4");
        f.until("multipath", |f| f.route("10.7.0.0/16") == Some("d0 10.0.0.3".to_owned()));
        ip("nexthop add id 7 via 10.0.0.7 dev d0");
        ip("route add 10.6.0.0/16 nhid 7");
        f.until("object", |f| f.route("10.6.0.0/16") == Some("d0 10.0.0.7".to_owned()));
        ip("nexthop replace id 7 via 10.0.0.6 dev d0");
        f.until("changed object", |f| f.route("10.6.0.0/16") == Some("d0 10.0.0.6".to_owned()));
        ip("route add blackhole 10.5.0.0/16");
        let is_refused = |r: &underlay::SystemRoute| {
            r.prefix == cidr("10.5.0.0/16") && r.kind == RouteKind::Refuse && r.next_hop.is_none()
        };
        f.until("refused", |f| f.system.routes.iter().any(is_refused));
        ip("route add 10.4.0.0/16 via 10.0.0.4 table 100");
        f.until("other table", |f| f.system.routes.iter().any(|r| r.table == 100));
        // The kernel reports no removal of IPv4 routes whose interface goes down.
        ip("link set d0 down");
        f.until("down", |f| f.route("10.0.0.0/24").is_none() && f.route("10.7.0.0/16").is_none());
        ip("link set d0 up");
        f.until("up", |f| f.route("10.0.0.0/24").is_some());
    });
}

#[test]
fn addresses_and_names_are_followed() {
    in_namespace(|| {
        let mut f = followed();
        let addresses = |f: &Follower, name: &str| -> Vec<String> {
            let device = f.system.devices.get(name);
            device.map_or(Vec::new(), |d| d.addresses.iter().map(Cidr::to_string).collect())
        };
        ip("addr add 10.1.0.1/16 dev d1");
        f.until("added", |f| addresses(f, "d1").contains(&"10.1.0.1/16".to_owned()));
        ip("addr del 10.1.0.1/16 dev d1");
        f.until("removed", |f| !addresses(f, "d1").contains(&"10.1.0.1/16".to_owned()));
        ip("link set d0 mtu 1300");
        f.until("MTU", |f| f.system.devices["d0"].mtu == 1300);
        ip("link set d0 name other");
        f.until("renamed", |f| f.route("10.0.0.0/24") == Some("other -".to_owned()));
        ip("link del other");
        f.until("deleted", |f| !f.system.devices.contains_key("other"));
    });
}

#[test]
fn rules_are_followed() {
    in_namespace(|| {
        let mut f = followed();
        let standard = Rule::standard();
        let mut sorted = f.system.rules.clone();
        sorted.sort_by_key(|r| (r.priority, r.is_ipv6));
        assert_eq!(sorted, standard);
        let find = |f: &Follower, priority| {
            f.system.rules.iter().find(|r| r.priority == priority).copied()
        };
        ip("rule add from 10.0.0.0/8 lookup 100 prio 50");
        f.until("added", |f| find(f, 50).is_some_and(|r| r.from == Some(cidr("10.0.0.0/8"))));
        assert_eq!(find(&f, 50).map(|r| r.action), Some(RuleAction::Table(100)));
        ip("rule add not fwmark 0x7/0xff to 10.2.0.0/16 lookup 1000 prio 51");
        f.until("selectors", |f| find(f, 51).is_some());
        let rule = find(&f, 51).expect("seen");
        assert_eq!((rule.mark, rule.is_inverted), (Some((7, 0xff)), true));
        assert_eq!((rule.to, rule.action), (Some(cidr("10.2.0.0/16")), RuleAction::Table(1000)));
        ip("rule add lookup main suppress_prefixlength 0 prio 52");
        f.until("suppressed", |f| find(f, 52).is_some_and(|r| r.suppressed_length == Some(0)));
        ip("rule add iif d0 lookup 100 prio 53");
        ip("rule add iif lo prohibit prio 54");
        f.until("refused", |f| find(f, 54).is_some_and(|r| r.action == RuleAction::Refuse));
        assert_eq!(find(&f, 53), None, "packets of this host do not arrive at d0");
        ip("rule del prio 50");
        f.until("removed", |f| find(f, 50).is_none());
    });
}

#[test]
fn neighbours_are_followed() {
    in_namespace(|| {
        let mut f = followed();
        let mac = |f: &Follower, at: &str| {
            f.neighbours.get(&("d0".to_owned(), ip_address(at))).map(Mac::to_string)
        };
        let first = Some("02:00:00:00:00:09".to_owned());
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev d0");
        f.until("added", |f| mac(f, "10.0.0.9") == first);
        ip("neigh add fe80::9 lladdr 02:00:00:00:00:09 dev d0");
        f.until("IPv6", |f| mac(f, "fe80::9") == first);
        ip("neigh replace 10.0.0.9 lladdr 02:00:00:00:00:08 dev d0");
        f.until("changed", |f| mac(f, "10.0.0.9") == Some("02:00:00:00:00:08".to_owned()));
        ip("neigh del 10.0.0.9 dev d0");
        f.until("removed", |f| mac(f, "10.0.0.9").is_none());
        // A later follower finds the present ones.
        let mut later = Follower::new(RoutingMonitor::new().expect("a socket"));
        later.until("the present ones", |f| mac(f, "fe80::9") == first);
    });
}

#[test]
fn lost_events_are_made_up_for() {
    in_namespace(|| {
        let mut f = followed();
        f.monitor = RoutingMonitor::with_buffer(4096).expect("a socket");
        f.until("the present state", |f| f.monitor.dumps_read() > 0);
        let before = netlink_counters().overflows;
        // Nobody reads meanwhile.
        let batch: String = (0..2000)
            .map(|n| format!("route add 10.100.{}.{}/32 via 10.0.0.9\n", n / 250, n % 250))
            .chain((0..1000).map(|n| format!("route del 10.100.{}.{}/32\n", n / 250, n % 250)))
            .chain(["neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev d0\n".to_owned()])
            .collect();
        let directory = testing::TempDir::new().expect("a directory");
        let file = directory.path().join("batch");
        std::fs::write(&file, batch).expect("written");
        ip(&format!("-batch {}", file.display()));
        f.until("the end", |f| {
            let count =
                f.system.routes.iter().filter(|r| r.prefix.length() == 32 && r.table == 254);
            count.count() == 1000 && f.route("10.100.7.249/32").is_some()
        });
        f.until("the neighbour", |f| !f.neighbours.is_empty());
        assert!(netlink_counters().overflows > before, "no event was lost");
        assert!(f.route("10.100.0.0/32").is_none());
        // The next change is followed as usual.
        ip("route del 10.100.7.249/32");
        f.until("removed", |f| f.route("10.100.7.249/32").is_none());
    });
}

#[test]
fn a_storm_of_events_causes_few_dumps() {
    in_namespace(|| {
        let mut f = followed();
        let before = f.monitor.dumps_read();
        let began = Instant::now();
        for n in 0..100 {
            ip(&format!("route add 10.101.0.{n}/32 via 10.0.0.9"));
            f.poll();
        }
        f.until("all", |f| f.route("10.101.0.99/32").is_some());
        let most = began.elapsed().as_millis() / 20 + 2;
        assert!(u128::from(f.monitor.dumps_read() - before) <= most, "a pause follows each dump");
    });
}

#[test]
fn a_relaxed_monitor_puts_dumps_off_until_its_pace_changes() {
    in_namespace(|| {
        let mut f = followed();
        f.monitor.set_pace(Pace::Relaxed);
        ip("route add 10.102.0.1/32 via 10.0.0.9");
        f.poll();
        // The last dump ended just now, or the route is read at once.
        let pause = f.monitor.pause(Instant::now());
        let before = f.monitor.dumps_read();
        ip("route add 10.102.0.2/32 via 10.0.0.9");
        f.poll();
        let now = Instant::now();
        let relaxed = f.monitor.pause(now);
        f.monitor.set_pace(Pace::Prompt);
        let prompt = f.monitor.pause(now);
        assert!(relaxed > prompt, "{pause:?} {relaxed:?} {prompt:?}");
        f.until("both", |f| f.route("10.102.0.2/32").is_some());
        assert!(f.monitor.dumps_read() > before);
    });
}

#[test]
fn the_kernel_resolves_neighbours() {
    in_namespace(|| {
        let mut f = followed();
        let peer = testing::Netns::new();
        ip(&format!("link set d1 netns {}", peer.path().display()));
        peer.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=0");
        peer.sh("ip addr add 10.0.0.2/24 dev d1; ip link set d1 up");
        peer.sh("ip -6 addr add 2001:db8::2/64 dev d1 nodad");
        ip("-6 addr add 2001:db8::1/64 dev d0 nodad");
        let (client, index) = (LinkClient::new().expect("a socket"), crate::link::find("d0"));
        let index = index.expect("there").index;
        let mac = Some("02:00:00:00:00:02".to_owned());
        for at in ["10.0.0.2", "2001:db8::2"] {
            let address = ip_address(at);
            resolve_neighbour(&client, index, address).expect("accepted");
            f.until(at, |f| {
                f.neighbours.get(&("d0".to_owned(), address)).map(Mac::to_string) == mac
            });
        }
        let nowhere = resolve_neighbour(&client, 9999, ip_address("10.0.0.2"));
        assert_eq!(nowhere.map_err(|e| e.raw_os_error()), Err(Some(libc::ENODEV)));
    });
}

/// A message as the kernel sends it.
fn route_message(kind: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let fixed = vec![libc::AF_INET as u8, 16, 0, 0, 254, 4, 0, kind, 0, 0, 0, 0];
    [fixed, attributes.concat()].concat()
}

#[test]
fn routes_that_do_not_count() {
    let number = |n: u32| n.to_ne_bytes();
    let whole = [attribute(1, &[10, 1, 0, 0]), attribute(4, &number(7))];
    assert!(route::parse(&route_message(1, &whole)).is_some());
    assert_eq!(route::parse(&route_message(1, &whole[..1])), None, "no device");
    assert_eq!(route::parse(&route_message(5, &whole)), None, "multicast");
    let mut other = route_message(1, &whole);
    other[3] = 8;
    assert_eq!(route::parse(&other), None, "one traffic class");
    let mut other = route_message(1, &whole);
    other[8..].copy_from_slice(&[number(0x200).to_vec(), whole.concat()].concat());
    assert_eq!(route::parse(&other), None, "an exception");
    let mut other = route_message(1, &whole);
    other[8..12].copy_from_slice(&number(1));
    assert_eq!(route::parse(&other), None, "dead");
    let encapsulated = [whole.to_vec(), vec![attribute(22, &[0; 4])]].concat();
    assert_eq!(route::parse(&route_message(1, &encapsulated)), None, "an encapsulation");
}

#[test]
fn a_message_that_is_cut_short_is_read_or_left_out() {
    let hop = [vec![16, 0, 0, 0, 1, 0, 0, 0], attribute(5, &[10, 0, 0, 9])].concat();
    let nested = attribute(8, &attribute(2, &1400u32.to_ne_bytes()));
    let all = [attribute(1, &[10, 1, 0, 0]), attribute(9, &[hop.clone(), hop].concat()), nested];
    let whole = route_message(1, &all);
    let read = |length: usize| whole.get(..length).and_then(route::parse);
    let full = read(whole.len()).expect("whole");
    assert_eq!((full.mtu, full.hop.map(|h| h.index)), (Some(1400), Some(1)));
    for length in 0..whole.len() {
        assert!(read(length).is_none_or(|route| route.mtu.is_none()), "{length} bytes");
        let _ = (rule::parse(&whole[..length]), neighbour::parse(&whole[..length]));
        let _ = address::parse(&whole[..length]);
    }
}

#[test]
fn a_dead_next_hop_is_passed_over() {
    let hop = |flags: u8, gateway: u8| {
        let address = attribute(5, &[10, 0, 0, gateway]);
        [vec![8 + address.len() as u8, 0, flags, 0, gateway, 0, 0, 0], address].concat()
    };
    let chosen = |hops: &[Vec<u8>]| {
        let attributes = [attribute(1, &[10, 1, 0, 0]), attribute(9, &hops.concat())];
        route::parse(&route_message(1, &attributes)).and_then(|r| r.hop).map(|h| h.index)
    };
    if cfg!(target_endian = "little") {
        assert_eq!(chosen(&[hop(1, 1), hop(0, 2)]), Some(2));
        assert_eq!(chosen(&[hop(16, 1), hop(0, 2)]), Some(2));
        assert_eq!(chosen(&[hop(1, 1), hop(16, 2)]), Some(2));
        assert_eq!(chosen(&[hop(1, 1), hop(1, 2)]), None);
    }
}

proptest! {
    #[test]
    fn any_payload_is_read_or_left_out(
        family in prop::sample::select(vec![0u8, 2, 10, 7]),
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = family;
        }
        let _ = (address::parse(&bytes), route::parse(&bytes));
        let _ = (rule::parse(&bytes), neighbour::parse(&bytes));
        prop_assert!(decode_all(&bytes) <= bytes.len() / 16);
    }
}
