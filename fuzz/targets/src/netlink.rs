// SPDX-License-Identifier: Apache-2.0
//! Messages of the kernel over rtnetlink: links, routes and filters.

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

pub fn run(bytes: &[u8]) {
    let links = netdev::link::decode(bytes);
    // Each message takes a header and an interface's fixed part.
    assert!(links.len() <= bytes.len() / (2 * HEADER), "{} of {}", links.len(), bytes.len());
    for link in &links {
        assert!(!link.name.contains('\0'));
        assert!(link.name.chars().count() <= bytes.len());
    }
    // Interfaces are read one by one: the bytes after a message do not change it.
    if let Some((first, length)) = links.first().zip(first_length(bytes))
        && let Some(alone) = bytes.get(..length)
        && let Some(again) = netdev::link::decode(alone).first()
    {
        assert_eq!(again, first);
    }
    assert!(netdev::routing::decode_all(bytes) <= bytes.len() / (HEADER + 8));
    let mut filters = Vec::new();
    for message in ::netlink::message::messages(bytes) {
        filter(message.payload);
        datapath_tc::client::ingress_qdisc(message.payload);
        filters.extend(xdp_flow::reader::filter(message.payload));
    }
    at_xdp(&filters);
    assert!(::netlink::message::answers(bytes, 0).count() <= bytes.len() / HEADER);
    let Some(payload) = bytes.get(HEADER..) else { return };
    let interface = netdev::decode_interface(payload);
    assert!(interface.is_none_or(|i| !i.name.contains('\0')));
}

/// Every device can be sent to.
struct Any;

impl xdp_flow::effect::Targets for Any {
    fn longest(&self, _: u32) -> Result<u32, String> {
        Ok(1518)
    }
}

/// Any filters give a plan, in which each filter is in a rule or has a reason.
fn at_xdp(filters: &[xdp_flow::reader::TcFilter]) {
    let plan = xdp_flow::plan::Plan::new(filters, &Any, 100);
    assert!(plan.rules.len() <= 100);
    for (number, reason) in plan.reasons.iter().enumerate() {
        let is_used = plan.rules.iter().any(|rule| rule.filters.contains(&number));
        assert!(is_used || reason.is_some());
    }
}

/// A filter that is understood is a request again, which shows the same filter.
fn filter(payload: &[u8]) {
    let Some(shown) = datapath_tc::filter::Shown::parse(payload) else { return };
    let Some(filter) = shown.filter else { return };
    assert_eq!(filter.place, shown.place);
    let again = datapath_tc::filter::Shown::parse(&filter.message());
    assert_eq!(again.map(|again| again.place), Some(filter.place));
}

fn first_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b) as usize)
}
