// SPDX-License-Identifier: Apache-2.0
//! The kernel's routing by rtnetlink: routes, rules, addresses and neighbours, read and followed.
//!
//! [`RoutingMonitor`] follows them. [`PathMtuMonitor`] receives the reports of routers about packets
//! that are too long. The readers of
//! messages are total: a message that is cut short or unknown is left out.

mod address;
mod monitor;
mod neighbour;
mod path_mtu;
mod route;
mod rule;

pub use monitor::{Pace, RoutingMonitor, RoutingUpdate};
pub use neighbour::resolve_neighbour;
pub use path_mtu::{PathMtu, PathMtuMonitor, Reports};

use crate::netlink::messages;
use std::net::IpAddr;

// include/uapi/linux/rtnetlink.h
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// Reads an address of the length that the family has.
fn address_of(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Returns the family of an address, as the kernel numbers it.
fn family_of(address: IpAddr) -> u8 {
    (if address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }) as u8
}

/// Returns the bytes of an address.
fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// Reads every message of a datagram that describes routing. Returns their number. For fuzzing:
/// any bytes are read or left out.
pub fn decode_all(datagram: &[u8]) -> usize {
    let is_read = |kind, payload: &[u8]| match kind {
        RTM_NEWADDR | RTM_DELADDR => address::parse(payload).is_some(),
        RTM_NEWROUTE | RTM_DELROUTE => route::parse(payload).is_some(),
        RTM_NEWRULE | RTM_DELRULE => rule::parse(payload).is_some(),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour::parse(payload).is_some(),
        _ => false,
    };
    messages(datagram).filter(|m| is_read(m.kind, m.payload)).count()
}

#[cfg(test)]
mod tests;
