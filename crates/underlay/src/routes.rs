// SPDX-License-Identifier: Apache-2.0
//! All routing tables with their rules and devices, at one time.

use crate::address::Cidr;
use crate::device::{Device, Devices};
use crate::route::{Found, NextHop, Origin, Query, Route, RouteKind};
use crate::rule::{Rule, RuleAction};
use crate::system::{System, SystemRoute};
use crate::table::Table;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Number of the kernel's table `default` (include/uapi/linux/rtnetlink.h).
pub const TABLE_DEFAULT: u32 = 253;
/// Number of the kernel's table `main`.
pub const TABLE_MAIN: u32 = 254;
/// Number of the kernel's table `local`.
pub const TABLE_LOCAL: u32 = 255;

/// A route that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRoute {
    /// The number of its table.
    pub table: u32,
    /// The subnet of destinations.
    pub prefix: Cidr,
    /// The name of the device.
    pub device: String,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// The source address; `None`: an address of the device is chosen.
    pub source: Option<IpAddr>,
    /// The mark of packets that may take it.
    pub mark: u32,
}

/// The reason why a user's route is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRouteError {
    /// No device has this name.
    #[error("there is no such device, or it has no address")]
    NoDevice,
    /// The device has no address, or not the one that was asked for, in the subnet of the destination
    /// or the router.
    #[error("the device has no such source address in the subnet of the destination or gateway")]
    NoSource,
}

/// Tables by their numbers.
type Tables = BTreeMap<u32, Table>;

/// Routes, rules and devices. A lookup changes nothing.
#[derive(Clone, Debug)]
pub struct Routes {
    system: Arc<Tables>,
    user: Arc<Tables>,
    /// By priority; those of one priority in the order in which they are tried.
    rules: Arc<Vec<Rule>>,
    devices: Arc<Devices>,
}

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            system: Arc::default(),
            user: Arc::default(),
            rules: Arc::new(Rule::standard()),
            devices: Arc::default(),
        }
    }
}

impl Routes {
    /// Returns the route for `query`; `None` when there is none, or packets are refused.
    pub fn lookup(&self, query: &Query) -> Option<Found> {
        if query.source.is_some_and(|source| !self.is_local(source, query.mark)) {
            return None;
        }
        for rule in self.rules.iter().filter(|r| r.matches(query)) {
            let RuleAction::Table(number) = rule.action else { return None };
            let Some(route) = self.lookup_in(number, query) else { continue };
            if rule.suppressed_length.is_some_and(|most| route.prefix.length() <= most) {
                continue;
            }
            match route.kind {
                RouteKind::Throw => {}
                RouteKind::Refuse => return None,
                RouteKind::Unicast | RouteKind::Local => return self.found(route, query),
            }
        }
        None
    }

    /// Returns true when the table `local` has the address, for packets with `mark` or without one.
    fn is_local(&self, address: IpAddr, mark: u32) -> bool {
        let in_table = |mark| {
            let query = Query { destination: address, source: None, mark };
            self.lookup_in(TABLE_LOCAL, &query).is_some_and(|r| r.next_hop.is_some())
        };
        in_table(mark) || mark != 0 && in_table(0)
    }

    /// Returns the route of one table.
    fn lookup_in(&self, number: u32, query: &Query) -> Option<&Route> {
        let system = self.system.get(&number).and_then(|t| t.lookup(query.destination, query.mark));
        let user = self.user.get(&number).and_then(|t| t.lookup(query.destination, query.mark));
        match (system, user) {
            (Some(system), Some(user)) if system.priority() > user.priority() => Some(system),
            (_, Some(user)) => Some(user),
            (system, None) => system,
        }
    }

    fn found(&self, route: &Route, query: &Query) -> Option<Found> {
        let hop = route.next_hop.as_ref()?;
        let device = self.devices.get(&hop.device);
        Some(Found {
            device: Arc::clone(&hop.device),
            gateway: hop.gateway,
            source: query.source.or(route.source)?,
            is_local: route.kind == RouteKind::Local,
            mtu: route.mtu.or(device.map(|d| d.mtu).filter(|m| *m != 0)),
        })
    }

    /// Returns the devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Returns the address with which a device asks for its neighbour `target`: one in the same
    /// subnet, or else any of the same family.
    pub fn source_at(&self, device: &str, target: IpAddr) -> Option<IpAddr> {
        let device = self.devices.get(device)?;
        let of_family = || {
            let mut all = device.addresses.iter().map(|a| a.address());
            all.find(|a| a.is_ipv6() == target.is_ipv6())
        };
        device.source_for(target).or_else(of_family)
    }

    /// Returns the rules of both families, in the order in which they are tried.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns true when a rule or a route names a mark. The kernel's routes have none.
    pub fn name_marks(&self) -> bool {
        let mut of_user = self.user.values().flat_map(Table::iter);
        self.rules.iter().any(|rule| rule.mark.is_some()) || of_user.any(|route| route.mark != 0)
    }

    /// Returns the numbers of the tables that have routes.
    pub fn tables(&self) -> Vec<u32> {
        let with_next_hop = |number: &u32| !self.in_table(*number).is_empty();
        let mut numbers: Vec<u32> = self.system.keys().chain(self.user.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(with_next_hop);
        numbers
    }

    /// Returns the routes of a table that lead somewhere, IPv4 first, by their prefixes.
    pub fn in_table(&self, number: u32) -> Vec<&Route> {
        let tables = [self.system.get(&number), self.user.get(&number)];
        let mut all: Vec<&Route> = tables
            .into_iter()
            .flatten()
            .flat_map(Table::iter)
            .filter(|r| r.next_hop.is_some())
            .collect();
        all.sort_by_key(|r| (r.prefix, r.mark, r.origin));
        all
    }

    /// Replaces the kernel's state. Returns true when something has changed.
    pub(crate) fn set_system(&mut self, system: System) -> bool {
        let mut tables = Tables::new();
        for route in &system.routes {
            if let Some(entry) = cached(route, &system.devices) {
                tables.entry(route.table).or_default().insert(entry);
            }
        }
        let of_user = self.rules.iter().filter(|r| r.origin == Origin::User);
        let mut rules: Vec<Rule> = system.rules.iter().chain(of_user).copied().collect();
        rules.sort_by_key(|r| r.priority);
        let is_changed =
            *self.system != tables || *self.rules != rules || *self.devices != system.devices;
        if is_changed {
            self.system = Arc::new(tables);
            self.rules = Arc::new(rules);
            self.devices = Arc::new(system.devices);
        }
        is_changed
    }

    pub(crate) fn add_user(&mut self, asked: &UserRoute) -> Result<(), AddRouteError> {
        let (name, device) = self
            .devices
            .get_key_value(asked.device.as_str())
            .filter(|(_, device)| !device.addresses.is_empty())
            .ok_or(AddRouteError::NoDevice)?;
        let targets = [Some(asked.prefix.address()), asked.gateway];
        let mut targets = targets.into_iter().flatten();
        let source = match asked.source {
            Some(source) => targets.any(|t| device.is_source_for(source, t)).then_some(source),
            None => targets.find_map(|t| device.source_for(t)),
        };
        let source = source.ok_or(AddRouteError::NoSource)?;
        let route = Route {
            prefix: asked.prefix,
            mark: asked.mark,
            kind: RouteKind::Unicast,
            origin: Origin::User,
            next_hop: Some(NextHop { device: Arc::clone(name), gateway: asked.gateway }),
            source: Some(source),
            metric: 0,
            mtu: None,
        };
        Arc::make_mut(&mut self.user).entry(asked.table).or_default().replace(route);
        Ok(())
    }

    pub(crate) fn remove_user(&mut self, table: u32, prefix: Cidr, mark: u32) -> bool {
        let tables = Arc::make_mut(&mut self.user);
        let Some(routes) = tables.get_mut(&table) else { return false };
        let is_removed = routes.remove(prefix, mark).is_some();
        if routes.is_empty() {
            tables.remove(&table);
        }
        is_removed
    }

    pub(crate) fn add_rule(&mut self, rule: Rule, priority: Option<u32>) {
        let priority = priority.unwrap_or_else(|| self.free_priority());
        let rules = Arc::make_mut(&mut self.rules);
        let at = rules.partition_point(|r| r.priority <= priority);
        rules.insert(at, Rule { priority, origin: Origin::User, ..rule });
    }

    /// Returns the number before that of the last rule with a gap before it, rules of priority 0
    /// aside.
    fn free_priority(&self) -> u32 {
        let (mut found, mut before) = (0, 0);
        for rule in self.rules.iter() {
            if rule.priority != 0 && (found == 0 || rule.priority - before > 1) {
                found = rule.priority - 1;
            }
            before = rule.priority;
        }
        found
    }

    pub(crate) fn remove_rule(&mut self, rule: &Rule, priority: Option<u32>) -> bool {
        let rule = Rule { origin: Origin::User, ..*rule };
        let is_meant =
            |r: &Rule| r.is_same_but_priority(&rule) && priority.is_none_or(|p| p == r.priority);
        let rules = Arc::make_mut(&mut self.rules);
        let Some(at) = rules.iter().position(is_meant) else { return false };
        rules.remove(at);
        true
    }

    pub(crate) fn add_address(&mut self, name: &str, address: Cidr) -> bool {
        let devices = Arc::make_mut(&mut self.devices);
        let name = match devices.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let device = devices.entry(Arc::clone(&name)).or_insert_with(|| Device {
            is_up: true,
            has_link: true,
            ..Device::default()
        });
        if !device.addresses.contains(&address) {
            device.addresses.push(address);
        }
        let route = Route {
            prefix: address,
            mark: 0,
            kind: RouteKind::Local,
            origin: Origin::System,
            next_hop: Some(NextHop { device: name, gateway: None }),
            source: Some(address.address()),
            metric: 0,
            mtu: None,
        };
        Arc::make_mut(&mut self.system).entry(TABLE_LOCAL).or_default().replace(route);
        true
    }

    /// Removes the addresses of a device without a kernel object. Returns true when it had some.
    pub(crate) fn forget_addresses(&mut self, device: &str) -> bool {
        let is_meant = self.devices.get(device).is_some_and(|d| d.index == 0);
        is_meant && Arc::make_mut(&mut self.devices).remove(device).is_some()
    }
}

/// Returns the entry of a table for a route of the kernel; `None` when it leads to a device that is
/// not there, or no source address is found.
fn cached(route: &SystemRoute, devices: &Devices) -> Option<Route> {
    let source = match &route.next_hop {
        Some(hop) => Some(source_of(route, hop, devices)?),
        None => None,
    };
    let leads = matches!(route.kind, RouteKind::Unicast | RouteKind::Local);
    if leads != route.next_hop.is_some() {
        return None;
    }
    Some(Route {
        prefix: route.prefix,
        mark: 0,
        kind: route.kind,
        origin: Origin::System,
        next_hop: route.next_hop.clone(),
        source,
        metric: route.metric,
        mtu: route.mtu,
    })
}

/// Returns the source address of packets on a route of the kernel: the route's own; the address of
/// its device in the subnet of the destination or the router; another one of the device; another
/// one of the host, as the kernel chooses for IPv4.
fn source_of(route: &SystemRoute, hop: &NextHop, devices: &Devices) -> Option<IpAddr> {
    let device = devices.get(&hop.device)?;
    let is_ipv6 = route.prefix.is_ipv6();
    let of_family = |address: &IpAddr| address.is_ipv6() == is_ipv6;
    route
        .source
        .or_else(|| device.source_for(route.prefix.address()))
        .or_else(|| device.source_for(hop.gateway?).filter(of_family))
        .or_else(|| device.any_source(is_ipv6))
        .or_else(|| devices.values().find_map(|d| d.any_source(is_ipv6)))
}
