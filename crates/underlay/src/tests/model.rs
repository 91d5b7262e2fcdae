// SPDX-License-Identifier: Apache-2.0
//! Lookups compared with a search through all routes.

use super::{cidr, device, ip, stopped};
use crate::{
    Cidr, NextHop, Origin, Query, RouteKind, Rule, RuleAction, System, SystemRoute, TABLE_LOCAL,
    TABLE_MAIN, UserRoute,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// A route as the model has it. Its gateway is its identity.
#[derive(Clone, Copy, Debug)]
struct Entry {
    table: u32,
    prefix: Cidr,
    origin: Origin,
    mark: u32,
    gateway: IpAddr,
}

impl Entry {
    fn is_local(&self) -> bool {
        self.table == TABLE_LOCAL && self.origin == Origin::System
    }

    fn rank(&self) -> i32 {
        let extra = match self.origin {
            Origin::User => 32,
            Origin::System if self.is_local() => 64,
            Origin::System => 0,
        };
        i32::from(self.prefix.length()) + extra
    }

    fn next_hop(&self) -> NextHop {
        NextHop { device: "eth0".into(), gateway: Some(self.gateway) }
    }
}

/// The gateway of the first rule that leads to a route.
fn search(entries: &[Entry], rules: &[Rule], query: &Query) -> Option<IpAddr> {
    let source = query.source.unwrap_or(ip("0.0.0.0"));
    let is_selected = |rule: &&Rule| {
        rule.from.is_none_or(|f| f.length() == 0 || f.contains(source)) != rule.is_inverted
    };
    for rule in rules.iter().filter(is_selected) {
        let RuleAction::Table(table) = rule.action else { return None };
        let mut best: Option<&Entry> = None;
        for entry in entries.iter().filter(|e| e.table == table && e.mark == query.mark) {
            // Of equal routes the user's last one or the kernel's first one counts.
            let is_better = |b: &Entry| {
                entry.rank() > b.rank() || entry.rank() == b.rank() && entry.origin == Origin::User
            };
            if entry.prefix.contains(query.destination) && best.is_none_or(is_better) {
                best = Some(entry);
            }
        }
        if let Some(best) = best {
            return Some(best.gateway);
        }
    }
    None
}

/// Few addresses and lengths, so that prefixes nest and collide.
fn prefix() -> impl Strategy<Value = Cidr> {
    let addresses = vec![0x0a00_0000u32, 0x0a00_0001, 0x0a00_0100, 0x0a80_0000, 0x8000_0000];
    let lengths = vec![0u8, 1, 8, 9, 23, 24, 31, 32];
    let pair = (prop::sample::select(addresses), prop::sample::select(lengths));
    pair.prop_map(|(bits, length)| Cidr::new(Ipv4Addr::from_bits(bits).into(), length).unwrap())
}

fn entry() -> impl Strategy<Value = Entry> {
    let tables = prop::sample::select(vec![TABLE_LOCAL, TABLE_MAIN, 100]);
    (prefix(), tables, any::<bool>(), 0u32..2).prop_map(|(prefix, table, is_user, mark)| Entry {
        table,
        prefix,
        origin: if is_user { Origin::User } else { Origin::System },
        mark: if is_user { mark } else { 0 },
        gateway: ip("0.0.0.0"), // numbered later
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let tables = prop::sample::select(vec![TABLE_MAIN, 100, 101]);
    let from = prop::option::of(prefix());
    (1u32..40_000, from, any::<bool>(), tables).prop_map(|(priority, from, is_inverted, table)| {
        let rule = Rule::to_table(Origin::User, false, priority, table);
        Rule { from, is_inverted, ..rule }
    })
}

fn query() -> impl Strategy<Value = Query> {
    (prefix(), any::<bool>(), 0u32..2).prop_map(|(destination, has_source, mark)| {
        let destination = destination.address();
        Query { destination, source: has_source.then_some(destination), mark }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn lookups_are_those_of_a_search_through_everything(
        mut entries in prop::collection::vec(entry(), 0..20),
        rules in prop::collection::vec(rule(), 0..6),
        queries in prop::collection::vec(query(), 1..20),
    ) {
        // Every address is a local one, so that any source may be asked for.
        let prefix = cidr("0.0.0.0/0");
        let (table, origin) = (TABLE_LOCAL, Origin::System);
        entries.push(Entry { table, prefix, origin, mark: 0, gateway: ip("0.0.0.0") });
        for (number, entry) in (0x0a01_0000..).zip(&mut entries) {
            entry.gateway = Ipv4Addr::from_bits(number).into();
        }

        let (_, underlay) = stopped();
        let of_system = |e: &&Entry| e.origin == Origin::System;
        underlay.set_system(System {
            routes: entries.iter().filter(of_system).map(|e| SystemRoute {
                table: e.table,
                prefix: e.prefix,
                kind: if e.is_local() { RouteKind::Local } else { RouteKind::Unicast },
                next_hop: Some(e.next_hop()),
                source: None,
                metric: 0,
                mtu: None,
            }).collect(),
            rules: Rule::standard(),
            devices: [("eth0".into(), device(&["10.0.0.1/0"]))].into(),
        });
        for e in entries.iter().filter(|e| e.origin == Origin::User) {
            let added = underlay.add_route(&UserRoute {
                table: e.table,
                prefix: e.prefix,
                device: "eth0".to_owned(),
                gateway: Some(e.gateway),
                source: None,
                mark: e.mark,
            });
            prop_assert!(added.is_ok());
        }
        let mut all_rules: Vec<Rule> = Rule::standard();
        all_rules.retain(|r| !r.is_ipv6);
        for rule in rules {
            underlay.add_rule(rule, Some(rule.priority));
            all_rules.push(rule);
        }
        all_rules.sort_by_key(|r| r.priority);
        for query in queries {
            let found = underlay.lookup(&query).and_then(|f| f.gateway);
            prop_assert_eq!(found, search(&entries, &all_rules, &query), "{:?}", query);
        }
    }
}
