// SPDX-License-Identifier: Apache-2.0
//! Messages about routes.

use super::address_of;
use crate::netlink::{attributes, u32_of};
use std::net::IpAddr;
use underlay::{Cidr, RouteKind};

// include/uapi/linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BLACKHOLE: u8 = 6;
const RTN_UNREACHABLE: u8 = 7;
const RTN_PROHIBIT: u8 = 8;
const RTN_THROW: u8 = 9;
/// The message is about an exception for one destination (redirect, path MTU), not about a route.
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
/// Bytes of `struct rtmsg`.
const FIXED: usize = 12;
/// Bytes of `struct rtnexthop`.
const HOP: usize = 8;

/// One next hop of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hop {
    /// The kernel's index of the interface; 0 when there is none.
    pub index: u32,
    /// The router.
    pub gateway: Option<IpAddr>,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The number of its table.
    pub table: u32,
    /// The subnet of destinations.
    pub prefix: Cidr,
    /// Its kind.
    pub kind: RouteKind,
    /// The first of its next hops that is alive; `None` for kinds without one.
    pub hop: Option<Hop>,
    /// The source address that the route names.
    pub source: Option<IpAddr>,
    /// The metric.
    pub metric: u32,
    /// The MTU that is set for it.
    pub mtu: Option<u32>,
}

/// Parses an `RTM_NEWROUTE` or `RTM_DELROUTE` payload. `None`: truncated, or a route that a tunnel's
/// packets do not take: of another family or kind, for one traffic class, with an encapsulation of
/// its own, without a next hop that is alive.
pub(super) fn parse(payload: &[u8]) -> Option<Route> {
    // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags(4)
    let [family, length, source_length, tos, table, _, _, kind, flags @ ..] =
        *payload.first_chunk::<FIXED>()?;
    let is_exception = u32::from_ne_bytes(flags) & RTM_F_CLONED != 0;
    if is_exception || source_length != 0 || tos != 0 {
        return None;
    }
    let is_ipv6 = match i32::from(family) {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let kind = match kind {
        RTN_UNICAST => RouteKind::Unicast,
        RTN_LOCAL => RouteKind::Local,
        RTN_BLACKHOLE | RTN_UNREACHABLE | RTN_PROHIBIT => RouteKind::Refuse,
        RTN_THROW => RouteKind::Throw,
        _ => return None,
    };
    let mut table = u32::from(table);
    let (mut destination, mut source) = (Cidr::all(is_ipv6).address(), None);
    let (mut metric, mut mtu) = (0, None);
    let (mut single, mut multiple) = (Hop::default(), None);
    for (kind, value) in attributes(payload.get(FIXED..)?) {
        match kind {
            RTA_TABLE => table = u32_of(value)?,
            RTA_DST => destination = address_of(family, value)?,
            RTA_PREFSRC => source = Some(address_of(family, value)?),
            RTA_PRIORITY => metric = u32_of(value)?,
            RTA_OIF => single.index = u32_of(value)?,
            RTA_GATEWAY => single.gateway = Some(address_of(family, value)?),
            RTA_VIA => single.gateway = via(value),
            RTA_METRICS => mtu = mtu_of(value),
            RTA_MULTIPATH => multiple = Some(alive(family, value)?),
            RTA_ENCAP => return None,
            _ => {}
        }
    }
    // The lowest byte of the route's flags has those of its only next hop.
    let is_dead = u32::from_ne_bytes(flags) & u32::from(RTNH_F_DEAD) != 0;
    let single = Some(single).filter(|hop| hop.index != 0 && !is_dead);
    let hop = match kind {
        RouteKind::Unicast | RouteKind::Local => Some(multiple.or(single)?),
        RouteKind::Refuse | RouteKind::Throw => None,
    };
    let prefix = Cidr::new(destination, length)?;
    Some(Route { table, prefix, kind, hop, source, metric, mtu })
}

/// Parses `struct rtvia`: family(2), address.
fn via(value: &[u8]) -> Option<IpAddr> {
    let (family, address) = value.split_first_chunk::<2>()?;
    address_of(u8::try_from(u16::from_ne_bytes(*family)).ok()?, address)
}

/// Returns the MTU in a list of metrics.
fn mtu_of(value: &[u8]) -> Option<u32> {
    attributes(value).find(|(kind, _)| *kind == RTAX_MTU).and_then(|(_, value)| u32_of(value))
}

/// Returns the first next hop that is alive, if possible one whose link is up.
fn alive(family: u8, mut bytes: &[u8]) -> Option<Hop> {
    let mut without_link = None;
    // struct rtnexthop: len(2), flags, hops, ifindex(4); then attributes
    while let Some([l0, l1, flags, _, index @ ..]) = bytes.first_chunk::<HOP>() {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let mut hop = Hop { index: u32::from_ne_bytes(*index), gateway: None };
        for (kind, value) in attributes(bytes.get(HOP..length)?) {
            match kind {
                RTA_GATEWAY => hop.gateway = address_of(family, value),
                RTA_VIA => hop.gateway = via(value),
                _ => {}
            }
        }
        if flags & RTNH_F_DEAD == 0 {
            if flags & RTNH_F_LINKDOWN == 0 {
                return Some(hop);
            }
            without_link = without_link.or(Some(hop));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    without_link
}
