// SPDX-License-Identifier: Apache-2.0
//! LLDP with auto-attach (`autoattach/`). As in Open vSwitch all bridges are shown, whichever is named.

use super::Commands;
use bridge::bridge::Bridge;
use bridge::lldp::{Element, MappingStatus, Report};
use std::fmt::Write as _;

/// Returns the text of one port by its name and its report.
type Text = fn(&str, &Report) -> String;

pub(super) fn register(commands: &Commands<'_>) {
    for (command, text) in [
        ("autoattach/status", neighbours as Text),
        ("autoattach/show-isid", mappings),
        ("autoattach/statistics", statistics),
    ] {
        commands.show(command, "[bridge]", 0, 1, move |daemon, _| {
            let all = daemon.switch.bridges().flat_map(Bridge::lldps);
            Ok(all.map(|(name, lldp)| text(name, &lldp.report())).collect())
        });
    }
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Returns the identifier of a system in auto-attach; `None` where all of it is zero. Open vSwitch
/// shows the fields of 16 bits in the order of a little-endian machine.
fn system(element: &Element) -> Option<[u8; 12]> {
    let ([c0, c1], (reserved, [r2, r3])) = (element.connection.to_le_bytes(), element.reserved);
    let [r0, r1] = reserved.to_le_bytes();
    let [m0, m1, m2, m3, m4, m5] = element.mac;
    let bytes = [m0, m1, m2, m3, m4, m5, c0, c1, r0, r1, r2, r3];
    (bytes != [0; 12]).then_some(bytes)
}

fn neighbours(name: &str, report: &Report) -> String {
    let mut out = format!("LLDP: {name}\n");
    for pdu in &report.neighbours {
        let Some(system) = pdu.element.as_ref().and_then(system) else { continue };
        // A String takes all writes.
        let _ = write!(
            out,
            "  Auto Attach Primary Server Id: {}\n  Auto Attach Primary Server Descr: {}\n  \
             Auto Attach Primary Server System Id: {}\n",
            hex(&pdu.chassis.value),
            pdu.description.as_deref().unwrap_or("<None>"),
            hex(&system),
        );
    }
    out
}

fn mappings(name: &str, report: &Report) -> String {
    let mut out = format!(
        "LLDP: {name}\n{:<8} {:<4} {:<11} {:<8}\n-------- ---- ----------- --------\n",
        "I-SID", "VLAN", "Source", "Status"
    );
    for (mapping, status) in &report.mappings {
        // A String takes all writes.
        let _ = writeln!(
            out,
            "{:<8} {:<4} {:<11} {:<11}",
            mapping.isid,
            mapping.vlan,
            "Switch",
            status_text(*status)
        );
    }
    out
}

fn status_text(status: MappingStatus) -> &'static str {
    match status {
        MappingStatus::Pending => "Pending",
        MappingStatus::Answered(2) => "Active",
        MappingStatus::Answered(3) => "Reject (Generic)",
        MappingStatus::Answered(4) => "Reject (AA resources unavailable)",
        MappingStatus::Answered(6) => "Reject (Invalid)",
        MappingStatus::Answered(8) => "Reject (VLAN resources unavailable)",
        MappingStatus::Answered(9) => "Reject (Application interaction issue)",
        MappingStatus::Answered(_) => "Undefined",
    }
}

fn statistics(name: &str, report: &Report) -> String {
    let counts = &report.counts;
    format!(
        "Statistics: {name}\n  tx cnt: {}\n  rx cnt: {}\n  rx discarded cnt: {}\n  \
         rx unrecognized cnt: {}\n  ageout cnt: {}\n  insert cnt: {}\n  delete cnt: {}\n  \
         drop cnt: {}\n",
        counts.sent,
        counts.received,
        counts.discarded,
        counts.unrecognized,
        counts.aged,
        counts.inserted,
        counts.deleted,
        counts.dropped,
    )
}
