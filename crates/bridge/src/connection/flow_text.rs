// SPDX-License-Identifier: Apache-2.0
//! Rules as `ovs-appctl bridge/dump-flows` prints them.

use crate::bridge::Bridge;
use crate::effect::Effect;
use crate::pipeline::as_added;
use crate::rule::Rule;
use clock::Millis;
use flow::text::no_names;
use openflow::text::format_actions;
use std::fmt::Write;

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
    out.push_str(&rule.match_text(&no_names));
    let _ = write!(out, ",actions={}", format_actions(&rule.actions, &|_| None));
    out
}

/// Formats the rules and groups that made a megaflow of these effects, one line each in the order
/// of translation, for `ofproto/detrace`. The caller collects statistics first.
pub fn format_contributors(effects: &[Effect], now: Millis) -> String {
    let mut out = String::new();
    for effect in effects {
        // A String takes everything.
        let _ = match effect {
            Effect::Rule(rule) => {
                writeln!(out, "cookie={:#x}, {}", rule.cookie, format_flow(rule, now))
            }
            Effect::Bucket { group, bucket } => {
                let bucket = group.buckets.get(*bucket).map_or(0, |bucket| bucket.id);
                writeln!(out, "group_id={}, bucket_id={bucket}", group.id)
            }
            Effect::AllBuckets(group) => writeln!(out, "group_id={}", group.id),
            // The rules of the bridge under a tunnel.
            Effect::Encapsulated { effects, .. } => {
                write!(out, "{}", format_contributors(effects, now))
            }
            _ => Ok(()),
        };
    }
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
