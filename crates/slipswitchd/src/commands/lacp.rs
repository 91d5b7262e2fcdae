// SPDX-License-Identifier: Apache-2.0
//! LACP (`lacp/`).

use super::{Commands, texts};
use bridge::aggregate::{Freshness, Info, Report, state};
use packet::Mac;
use std::fmt::Write as _;

/// Returns the text of one port by its name and its report.
type Text = fn(&str, &Report) -> String;

pub(super) fn register(commands: &Commands<'_>) {
    let both = [("lacp/show", details as Text), ("lacp/show-stats", statistics)];
    for (command, text) in both {
        commands.show(command, "[port]", 0, 1, move |daemon, call| {
            let all = daemon.switch.bridges().flat_map(|bridge| bridge.aggregates());
            texts(all, call.arg(0), "no such lacp object", |name, aggregate| {
                text(name, &aggregate.report())
            })
        });
    }
}

fn details(name: &str, report: &Report) -> String {
    let settings = &report.settings;
    let mut out = format!(
        "---- {name} ----\n  status: {}{}\n  sys_id: {}\n  sys_priority: {}\n  aggregation key: {}\n  lacp_time: {}\n",
        if settings.is_active { "active" } else { "passive" },
        if report.is_negotiated { " negotiated" } else { "" },
        Mac(settings.system_id),
        settings.system_priority,
        report.key.map_or_else(|| "none".to_owned(), |key| key.to_string()),
        if settings.is_fast { "fast" } else { "slow" },
    );
    for member in &report.members {
        let freshness = match member.freshness {
            Freshness::Current => "current",
            Freshness::Expired => "expired",
            Freshness::Defaulted => "defaulted",
        };
        // A String takes all writes.
        let _ = write!(
            out,
            "\nmember: {}: {freshness} {}\n  port_id: {}\n  port_priority: {}\n  may_enable: {}\n",
            member.settings.name,
            if member.is_attached { "attached" } else { "detached" },
            member.settings.port_id,
            member.settings.port_priority,
            member.may_enable,
        );
        for (end, info) in [("actor", &member.actor), ("partner", &member.partner)] {
            out.push_str(&end_text(end, info));
        }
    }
    out
}

fn end_text(end: &str, info: &Info) -> String {
    let names = state::NAMES.iter().filter(|(bit, _)| info.state & bit != 0);
    let state: String = names.flat_map(|(_, name)| [" ", name]).collect();
    format!(
        "\n  {end} sys_id: {}\n  {end} sys_priority: {}\n  {end} port_id: {}\n  \
         {end} port_priority: {}\n  {end} key: {}\n  {end} state:{state}\n",
        Mac(info.system_id),
        info.system_priority,
        info.port_id,
        info.port_priority,
        info.key,
    )
}

fn statistics(name: &str, report: &Report) -> String {
    let mut out = format!("---- {name} statistics ----\n");
    for member in &report.members {
        let counts = &member.counts;
        // A String takes all writes.
        let _ = write!(
            out,
            "\nmember: {}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  \
             RX Marker Request PDUs: {}\n  Link Expired: {}\n  Link Defaulted: {}\n  \
             Carrier Status Changed: {}\n",
            member.settings.name,
            counts.sent,
            counts.received,
            counts.bad,
            counts.markers,
            counts.expired,
            counts.defaulted,
            counts.carrier_changes,
        );
    }
    out
}
