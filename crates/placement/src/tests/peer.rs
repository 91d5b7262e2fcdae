// SPDX-License-Identifier: Apache-2.0
//! Veths whose other ends frames may enter at once.

use super::fakes::*;
use datapath::{PortNo, Ports};
use datapath_bpf::fit::{PeerLink, XdpFacts};
use netdev::Endpoint;
use packet::Mac;
use std::sync::atomic::Ordering;

/// The other end of every veth.
const END: Endpoint = Endpoint { namespace: Some(3), index: 2 };
const LINK: PeerLink =
    PeerLink { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500, is_up: true, has_xdp: false };
const ENTERS: [&str; 1] = ["set_peer 1 02:00:00:00:00:01"];
const LEAVES: [&str; 1] = ["set_peer 1 none"];

/// Returns a bench with ports 1 to `count`, veths that frames may skip.
fn bench(count: u32) -> Bench {
    let b = Bench::new();
    *b.prober.veth.lock().unwrap() = XdpFacts {
        end: Some(END),
        peer_link: Some(LINK),
        mtu: 1500,
        leaves_work: true,
        qdisc: Some("noqueue".into()),
        has_egress_filter: Some(false),
        ..XdpFacts::default()
    };
    for n in 1..=count {
        assert_eq!(b.add(&format!("veth{n}"), "system", None), n);
    }
    b.fast.take_log();
    b
}

/// A thread hears of the device itself later, and finds the port as it is.
#[test]
fn a_device_that_an_event_of_its_other_end_shows_up_is_up() {
    let b = bench(0);
    b.base.is_down.store(true, Ordering::Relaxed);
    b.veths(1);
    b.base.is_down.store(false, Ordering::Relaxed);
    b.fast.take_log();
    b.placed.ends_changed(&[END]);
    assert_eq!(b.fast.take_log(), ["set_port 1 1500 true"]);
    b.placed.refresh(PortNo(1));
    assert_eq!(b.fast.take_log(), [""; 0]);
}

#[test]
fn events_that_are_lost_end_it_where_something_changed() {
    let b = bench(1);
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ENTERS);
    b.placed.ends_lost();
    assert_eq!(b.fast.take_log(), [""; 0], "nothing changed");
    b.prober.veth.lock().unwrap().qdisc = Some("tbf".into());
    b.placed.look_at_peers();
    assert_eq!(b.fast.take_log(), [""; 0], "a poll is for XDP");
    b.placed.ends_lost();
    assert_eq!(b.fast.take_log(), LEAVES);
}

/// An XDP program that a BPF link attaches, and any change that a daemon without CAP_NET_BROADCAST
/// hears nothing of.
#[test]
fn housekeeping_finds_changes_that_no_event_reports() {
    let b = bench(1);
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ENTERS);
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    for link in [
        None,
        Some(PeerLink { has_xdp: true, ..LINK }),
        Some(PeerLink { is_up: false, ..LINK }),
        Some(PeerLink { mtu: 1499, ..LINK }),
    ] {
        b.prober.veth.lock().unwrap().peer_link = link;
        b.placed.maintain();
        assert_eq!(b.fast.take_log(), LEAVES, "{link:?}");
        b.prober.veth.lock().unwrap().peer_link = Some(LINK);
        b.placed.maintain();
        assert_eq!(b.fast.take_log(), ENTERS, "{link:?}");
    }
    b.prober.veth.lock().unwrap().peer_link = Some(PeerLink { mac, ..LINK });
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ["set_peer 1 02:00:00:00:00:09"]);
    b.prober.captures.lock().unwrap().0 = vec![1];
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), LEAVES);
}

/// A capture makes its device promiscuous, which is an event, and is found at the next round.
#[test]
fn a_changed_fact_ends_it_until_the_next_round() {
    let b = bench(1);
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ENTERS);
    b.prober.veth.lock().unwrap().promiscuity = 2;
    b.placed.ends_changed(&[END]);
    assert_eq!(b.fast.take_log(), LEAVES);
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ENTERS);
}

/// The address belongs to the device that had the earlier index.
#[test]
fn another_device_of_the_name_is_not_entered_by_the_address_of_the_first() {
    let b = bench(1);
    b.placed.maintain();
    assert_eq!(b.fast.take_log(), ENTERS);
    b.base.shift.store(100, Ordering::Relaxed);
    b.placed.ends_changed(&[END]);
    let log = b.fast.take_log();
    assert_eq!(log.first().map(String::as_str), Some(LEAVES[0]), "{log:?}");
}

#[test]
fn captures_are_read_once_a_round_and_links_of_a_bounded_number() {
    const PORTS: u32 = 200;
    let b = bench(PORTS);
    let read = || std::mem::take(&mut b.prober.captures.lock().unwrap().1);
    assert_eq!(read(), 0, "adding a port reads none");
    let mut rounds = 0;
    let mut entered = 0;
    while entered < PORTS as usize {
        b.placed.maintain();
        rounds += 1;
        let looks = std::mem::take(&mut *b.prober.ends.lock().unwrap()).len();
        assert!(looks <= 64 && rounds <= 4, "{looks} in round {rounds}");
        entered += b.fast.take_log().len();
    }
    assert_eq!(read(), rounds);
    // At every port, in the first round.
    b.prober.captures.lock().unwrap().0 = vec![0];
    b.placed.maintain();
    assert_eq!(b.fast.take_log().len(), PORTS as usize);
}

#[test]
fn packets_that_skip_a_device_are_counted_by_a_provider_that_came_after_the_port() {
    let b = Bench::late(FakeFast::default());
    b.veths(1);
    let device = b.placed.device(PortNo(1)).unwrap();
    let before = device.stats().unwrap().tx_packets.unwrap();
    b.begin();
    assert_eq!(device.stats().unwrap().tx_packets, Some(before + 4));
}
