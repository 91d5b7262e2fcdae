// SPDX-License-Identifier: Apache-2.0
//! Rules: which routing table a packet's lookup uses.

use crate::address::Cidr;
use crate::route::{Origin, Query};
use crate::routes::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use std::net::IpAddr;

/// The consequence of a rule that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The table with this number is searched.
    Table(u32),
    /// Packets are refused: `unreachable`, `blackhole`, `prohibit`.
    Refuse,
}

/// One rule (ip-rule(8)). Lower priorities come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rank: 0 is tried first.
    pub priority: u32,
    /// True for a rule of IPv6 packets.
    pub is_ipv6: bool,
    /// The kernel or the user.
    pub origin: Origin,
    /// The rule matches packets that the selectors do not match.
    pub is_inverted: bool,
    /// The subnet of sources; `None`: all.
    pub from: Option<Cidr>,
    /// The subnet of destinations; `None`: all.
    pub to: Option<Cidr>,
    /// The mark, and the bits of it that count; `None`: all marks.
    pub mark: Option<(u32, u32)>,
    /// Routes whose prefix is this long or shorter do not count.
    pub suppressed_length: Option<u8>,
    /// Its consequence.
    pub action: RuleAction,
}

impl Rule {
    /// Returns a rule for all packets of a family that uses the table with this number.
    pub fn to_table(origin: Origin, is_ipv6: bool, priority: u32, table: u32) -> Rule {
        Rule {
            priority,
            is_ipv6,
            origin,
            is_inverted: false,
            from: None,
            to: None,
            mark: None,
            suppressed_length: None,
            action: RuleAction::Table(table),
        }
    }

    /// Returns the rules with which every kernel starts.
    pub fn standard() -> Vec<Rule> {
        let rule =
            |is_ipv6, priority, table| Rule::to_table(Origin::System, is_ipv6, priority, table);
        vec![
            rule(false, 0, TABLE_LOCAL),
            rule(true, 0, TABLE_LOCAL),
            rule(false, 0x7ffe, TABLE_MAIN),
            rule(true, 0x7ffe, TABLE_MAIN),
            rule(false, 0x7fff, TABLE_DEFAULT),
        ]
    }

    /// Returns true when the rule decides for packets of `query`. A packet without a source matches
    /// only rules that do not select by one.
    pub(crate) fn matches(&self, query: &Query) -> bool {
        if self.is_ipv6 != query.destination.is_ipv6() {
            return false;
        }
        let source = query.source.unwrap_or(crate::address::unspecified(self.is_ipv6));
        let has = |subnet: Option<Cidr>, address: IpAddr| {
            subnet.is_none_or(|s| s.length() == 0 || s.contains(address))
        };
        let is_marked = self.mark.is_none_or(|(value, bits)| (query.mark ^ value) & bits == 0);
        let is_selected = has(self.from, source) && has(self.to, query.destination) && is_marked;
        is_selected != self.is_inverted
    }

    /// Returns true when two rules differ at most in their priority.
    pub(crate) fn is_same_but_priority(&self, other: &Rule) -> bool {
        *self == Rule { priority: self.priority, ..*other }
    }
}
