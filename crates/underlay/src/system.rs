// SPDX-License-Identifier: Apache-2.0
//! The state of the kernel's network, as its follower reads it.

use crate::address::Cidr;
use crate::device::Devices;
use crate::route::{NextHop, RouteKind};
use crate::rule::Rule;
use std::net::IpAddr;

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRoute {
    /// The number of its table.
    pub table: u32,
    /// The subnet of destinations.
    pub prefix: Cidr,
    /// Its kind.
    pub kind: RouteKind,
    /// The first of its next hops that is alive; `None` without one.
    pub next_hop: Option<NextHop>,
    /// The source address that the route itself names.
    pub source: Option<IpAddr>,
    /// The metric: of routes with one prefix, the lowest decides.
    pub metric: u32,
    /// The MTU that is set for the route itself, in bytes of an IP packet.
    pub mtu: Option<u32>,
}

/// All routes, rules and devices of the kernel at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The routes, in the order in which the kernel tries those that are equal.
    pub routes: Vec<SystemRoute>,
    /// The rules. Those of a priority are in the order in which the kernel tries them.
    pub rules: Vec<Rule>,
    /// The devices.
    pub devices: Devices,
}
