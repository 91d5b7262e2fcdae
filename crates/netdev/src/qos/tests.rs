// SPDX-License-Identifier: Apache-2.0

use super::class::Class;
use super::traffic_control::Counts;
use super::*;
use netlink::attribute::{put, read};
use proptest::prelude::*;

const LINK: LinkLimits = LinkLimits { mtu: 1_500, speed: None };

fn options<const N: usize>(pairs: [(&str, &str); N]) -> QosOptions {
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn request<const N: usize>(kind: &str, pairs: [(&str, &str); N]) -> QosRequest {
    QosRequest { kind: kind.to_owned(), options: options(pairs), queues: BTreeMap::new() }
}

fn plan(request: &QosRequest) -> (Plan, Vec<String>) {
    let mut complaints = Vec::new();
    (Plan::of(request, LINK, &mut complaints).expect("a type"), complaints)
}

#[test]
fn htb_has_open_vswitchs_defaults_and_bounds() {
    let mut wanted = request("linux-htb", [("max-rate", "10000000")]);
    let one = options([("min-rate", "1000000"), ("max-rate", "5000000"), ("priority", "3")]);
    wanted.queues.insert(1, one);
    wanted.queues.insert(5, options([("burst", "100000"), ("max-rate", "99000000000")]));
    let (plan, complaints) = plan(&wanted);
    assert!(complaints.is_empty(), "{complaints:?}");
    let report = plan.report();
    assert_eq!((report.kind, &*report.options), ("linux-htb", &[("max-rate", 10_000_000)][..]));
    // The text of Open vSwitch 3.1 for these rows.
    let queue = |n| report.queues[&n].clone();
    let (min, max) = (("min-rate", 12_000), ("max-rate", 10_000_000));
    assert_eq!(queue(0), [("burst", 12_512), min, max]);
    let own =
        [("burst", 12_512), ("priority", 3), ("min-rate", 1_000_000), ("max-rate", 5_000_000)];
    assert_eq!(queue(1), own);
    assert_eq!(queue(5), [("burst", 100_000), min, max]);
}

#[test]
fn a_link_without_a_speed_has_ten_gigabits() {
    let of = |link| {
        let plan = Plan::of(&request("linux-hfsc", []), link, &mut Vec::new()).unwrap();
        plan.report().options
    };
    assert_eq!(of(LINK), [("max-rate", 10_000_000_000)]);
    let fast = LinkLimits { speed: Some(100_000_000_000), ..LINK };
    assert_eq!(of(fast), [("max-rate", 100_000_000_000)]);
}

#[test]
fn wrong_values_are_named() {
    let mut wanted = request("linux-htb", [("max-rate", "fast")]);
    wanted.queues.insert(QUEUES, QosOptions::new());
    wanted.queues.insert(2, options([("burst", "-1")]));
    let (plan, complaints) = plan(&wanted);
    assert_eq!(
        complaints,
        [
            "QoS: other_config:max-rate \"fast\" is not a number, ignored",
            "Queue 2: other_config:burst \"-1\" is not a number, ignored",
            "Queue 61440: the highest queue is 61439",
        ]
    );
    assert_eq!(plan.queues.keys().copied().collect::<Vec<_>>(), [0, 2]);
    let mut wanted = request("linux-sfq", []);
    wanted.queues.insert(1, QosOptions::new());
    assert_eq!(self::plan(&wanted).1, ["linux-sfq has no queues"]);
    assert!(Plan::of(&request("nonsense", []), LINK, &mut Vec::new()).is_none());
}

#[test]
fn an_egress_policer_needs_a_rate() {
    let (limit, complaints) = EgressLimit::of(&request(EGRESS_POLICER, [("cir", "46000")]));
    assert_eq!((limit.rate, limit.burst, complaints.len()), (46_000, POLICER_BURST, 0));
    let (limit, complaints) = EgressLimit::of(&request(EGRESS_POLICER, []));
    assert_eq!((limit.rate, complaints.len()), (0, 1));
}

#[test]
fn rates_above_32_bits_are_written_whole() {
    let class = Class::root(5_000_000_000);
    let bytes = class.encode_htb(LINK);
    let rate64: Vec<&[u8]> = read(&bytes).filter(|(k, _)| *k > 1).map(|(_, v)| v).collect();
    assert_eq!(rate64, [5_000_000_000u64.to_ne_bytes(); 2]);
    let slow = Class::root(1_000).encode_htb(LINK);
    assert_eq!(read(&slow).count(), 1);
    // struct tc_htb_opt; 1,500 bytes at 1,000 bytes a second are 1.5 s of 64 ns.
    let parms = read(&slow).next().unwrap().1;
    assert_eq!(parms.len(), 44);
    assert_eq!(parms[24..28], 23_437_500u32.to_ne_bytes());
}

#[test]
fn queues_and_classes_belong_together() {
    assert_eq!(queue_priority(0), Some(0x1_0001));
    assert_eq!(queue_priority(QUEUES - 1).and_then(queue_of), Some(QUEUES - 1));
    assert_eq!(queue_priority(QUEUES), None);
    assert_eq!((queue_of(ROOT_CLASS), queue_of(0x1_0000), queue_of(3)), (None, None, None));
}

proptest! {
    #[test]
    fn any_counters_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut nested = Vec::new();
        put(&mut nested, 7, &bytes);
        Counts::parse(&nested);
        Counts::parse(&bytes);
    }
}
