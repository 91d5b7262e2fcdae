// SPDX-License-Identifier: Apache-2.0
//! Routes, and questions for them.

use crate::address::Cidr;
use std::net::IpAddr;
use std::sync::Arc;

/// The origin of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The kernel's routing tables, or the address of a dummy (`Cached`).
    System,
    /// `ovs/route/add` (`User`).
    User,
}

/// The kind of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Packets go out of a device.
    Unicast,
    /// The destination is an address of this host.
    Local,
    /// Packets are refused: `unreachable`, `blackhole`, `prohibit`.
    Refuse,
    /// The lookup goes on with the next rule: `throw`.
    Throw,
}

/// The device and the router to which packets of a route go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The name of the device.
    pub device: Arc<str>,
    /// The router; `None`: the destination is at the device's link. It may be an IPv6 address of a
    /// route for IPv4 (RFC 5549).
    pub gateway: Option<IpAddr>,
}

/// One route of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The subnet of destinations.
    pub prefix: Cidr,
    /// The mark of packets that may take it.
    pub mark: u32,
    /// Its kind.
    pub kind: RouteKind,
    /// Its origin.
    pub origin: Origin,
    /// Its next hop; `None` for [`RouteKind::Refuse`] and [`RouteKind::Throw`].
    pub next_hop: Option<NextHop>,
    /// The source address of packets that have none yet; `None` without a next hop.
    pub source: Option<IpAddr>,
    /// The kernel's metric: of routes with one prefix, the lowest decides.
    pub metric: u32,
    /// The MTU that is set for the route itself, in bytes of an IP packet.
    pub mtu: Option<u32>,
}

impl Route {
    /// The rank among the routes of a table that match a destination, as in Open vSwitch.
    pub(crate) fn priority(&self) -> u16 {
        let length = u16::from(self.prefix.length());
        let mapped = if self.prefix.is_ipv6() { 0 } else { 96 };
        let extra = match (self.origin, self.kind) {
            (Origin::User, _) => 32,
            (Origin::System, RouteKind::Local) => 64,
            (Origin::System, RouteKind::Unicast | RouteKind::Refuse | RouteKind::Throw) => 0,
        };
        length + mapped + extra
    }
}

/// A question for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The destination, not IPv4-mapped.
    pub destination: IpAddr,
    /// The source address, if the packet has one already. It must be an address of this host.
    pub source: Option<IpAddr>,
    /// The packet's mark.
    pub mark: u32,
}

impl Query {
    /// Returns the question for a packet to `destination` without a mark.
    pub fn to(destination: IpAddr) -> Query {
        Query { destination, source: None, mark: 0 }
    }
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name of the device.
    pub device: Arc<str>,
    /// The router; `None`: the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
    /// The source address: the query's, or that of the route.
    pub source: IpAddr,
    /// True when the destination is an address of this host.
    pub is_local: bool,
    /// The longest IP packet in bytes, of the route or the device; `None` when it is not known.
    pub mtu: Option<u32>,
}

impl Found {
    /// Returns the address whose Ethernet address is needed to reach `destination`.
    pub fn neighbour(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }
}
