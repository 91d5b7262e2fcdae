// SPDX-License-Identifier: Apache-2.0
//! Rules as `ovs-appctl bridge/dump-flows` prints them.

use crate::bridge::Bridge;
use crate::pipeline::as_added;
use crate::rule::Rule;
use classifier::Entry;
use clock::Millis;
use flow::text::{format_match, no_names};
use openflow::text::format_actions;
use std::fmt::Write;

/// Priority of flow mods without one; texts leave it out.
const DEFAULT_PRIORITY: u32 = 32_768;

/// Formats one rule as a line without line feed. Ports are shown by number, as OVS prints them
/// here.
fn format_flow(rule: &Rule, now: Millis) -> String {
    let (packets, bytes) = rule.stats.counts();
    let mut out = String::new();
    if rule.table != 0 {
        let _ = write!(out, "table_id={}, ", rule.table); // a String takes everything
    }
    let _ = write!(
        out,
        "duration={}s, n_packets={packets}, n_bytes={bytes}, ",
        now.since(rule.created) / 1000
    );
    let matching = format_match(&rule.matching.expand(), &no_names);
    if rule.priority() != DEFAULT_PRIORITY {
        let _ = write!(out, "priority={}", rule.priority());
        if !matching.is_empty() {
            out.push(',');
        }
    }
    out.push_str(&matching);
    let _ = write!(out, ",actions={}", format_actions(&rule.actions, &|_| None));
    out
}

/// Formats all rules of a bridge, hidden ones included, one line each, for `bridge/dump-flows`. The
/// caller collects statistics first.
pub fn format_flows(bridge: &Bridge, now: Millis) -> String {
    let mut out = String::new();
    for (_, table) in bridge.pipeline.tables() {
        for rule in as_added(table.rules().iter()) {
            out.push_str(&format_flow(&rule, now));
            out.push('\n');
        }
    }
    out
}
