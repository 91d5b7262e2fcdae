// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management (`cfm/`).

use super::{Commands, forced, texts};
use bridge::bridge::Bridge;
use bridge::cfm::Report;
use std::fmt::Write as _;

/// Open vSwitch's answer for an interface without connectivity fault management.
const MISSING: &str = "no such CFM object";

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("cfm/show", "[interface]", 0, 1, |daemon, call| {
        let now = daemon.clock.now();
        let all = daemon.switch.bridges().flat_map(Bridge::cfms);
        texts(all, call.arg(0), MISSING, |name, cfm| details(name, &cfm.report(now)))
    });
    commands.change("cfm/set-fault", "[interface] normal|false|true", 1, 2, |daemon, call| {
        let (interface, is_faulty) = forced(&call)?;
        match daemon.switch.force_cfm_fault(interface, is_faulty) {
            true => Ok("OK".to_owned()),
            false => Err(MISSING.to_owned()),
        }
    });
}

fn up(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

fn details(name: &str, report: &Report) -> String {
    let mut out = format!(
        "---- {name} ----\nMPID {}:{}{}\n",
        report.settings.mpid,
        if report.settings.is_extended { " extended" } else { "" },
        if report.is_overridden { " fault_override" } else { "" },
    );
    // A String takes all writes.
    if !report.status.faults.is_empty() {
        let _ = writeln!(out, "  fault: {}", report.status.faults);
    }
    let health = report.status.health.map_or_else(|| "undefined".to_owned(), |h| h.to_string());
    let _ = write!(
        out,
        "  average health: {health}\n  opstate: {}\n  remote_opstate: {}\n  interval: {}ms\n  \
         next CCM tx: {}ms\n  next fault check: {}ms\n",
        up(report.settings.is_up),
        up(report.is_remote_up),
        report.interval_ms,
        report.next_ccm_ms,
        report.next_check_ms,
    );
    for (mpid, is_heard, is_up) in &report.remotes {
        let _ = write!(
            out,
            "Remote MPID {mpid}\n  recv since check: {is_heard}\n  opstate: {}\n",
            up(*is_up)
        );
    }
    out
}
