// SPDX-License-Identifier: Apache-2.0
//! One routing table: the longest prefix decides.

use crate::address::{Cidr, bits, mask, width};
use crate::route::Route;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Routes of one family by the length of their prefixes, longest first; then by the bits of the
/// prefix and the mark.
type Lengths = BTreeMap<Reverse<u8>, HashMap<(u128, u32), Route>>;

/// The routes of one table and one origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    ipv4: Lengths,
    ipv6: Lengths,
}

impl Table {
    fn family(&self, is_ipv6: bool) -> &Lengths {
        if is_ipv6 { &self.ipv6 } else { &self.ipv4 }
    }

    fn family_mut(&mut self, is_ipv6: bool) -> &mut Lengths {
        if is_ipv6 { &mut self.ipv6 } else { &mut self.ipv4 }
    }

    /// Adds a route, unless there is one with the same prefix and mark and no higher metric.
    pub(crate) fn insert(&mut self, route: Route) {
        let prefix = route.prefix.network();
        let key = (bits(prefix.address()), route.mark);
        let length = self.family_mut(prefix.is_ipv6()).entry(Reverse(prefix.length())).or_default();
        if length.get(&key).is_none_or(|there| there.metric > route.metric) {
            length.insert(key, Route { prefix, ..route });
        }
    }

    /// Adds a route in place of one with the same prefix and mark.
    pub(crate) fn replace(&mut self, route: Route) {
        self.remove(route.prefix, route.mark);
        self.insert(route);
    }

    /// Removes the route with this prefix and mark.
    pub(crate) fn remove(&mut self, prefix: Cidr, mark: u32) -> Option<Route> {
        let prefix = prefix.network();
        let lengths = self.family_mut(prefix.is_ipv6());
        let length = lengths.get_mut(&Reverse(prefix.length()))?;
        let removed = length.remove(&(bits(prefix.address()), mark));
        if length.is_empty() {
            lengths.remove(&Reverse(prefix.length()));
        }
        removed
    }

    /// Returns the route with the longest prefix that has `destination`.
    pub(crate) fn lookup(&self, destination: IpAddr, mark: u32) -> Option<&Route> {
        let (address, width) = (bits(destination), width(destination));
        self.family(destination.is_ipv6()).iter().find_map(|(Reverse(length), routes)| {
            routes.get(&(address & mask(width, *length), mark))
        })
    }

    /// Returns true when there are no routes.
    pub(crate) fn is_empty(&self) -> bool {
        self.ipv4.is_empty() && self.ipv6.is_empty()
    }

    /// Returns all routes in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.ipv4.values().chain(self.ipv6.values()).flat_map(HashMap::values)
    }
}
