// SPDX-License-Identifier: Apache-2.0
//! The columns of spanning trees in the tables Bridge and Port.

use super::{Writer, no_pairs};
use crate::config::context::Context;
use crate::config::state::BridgeState;
use bridge::bridge::Bridge;
use bridge::spanning_tree::{BridgeId, PortReport, Report, TreeKind, bridge_parts};
use clock::Millis;
use ovsdb::{Datum, Uuid};

/// The columns of Bridge, and of Port for facts and for numbers.
const STP: [&str; 3] = ["status", "status", "statistics"];
const RSTP: [&str; 3] = ["rstp_status", "rstp_status", "rstp_statistics"];

impl Writer<'_> {
    /// Writes the state of the bridge's spanning tree.
    pub(super) fn tree(&mut self, context: &Context<'_>, bridge: &Bridge, state: &BridgeState) {
        let report = bridge.tree().map(|tree| tree.report());
        let now = context.clock.now();
        for (kind, columns) in [(TreeKind::Stp, STP), (TreeKind::Rstp, RSTP)] {
            let report = report.as_ref().filter(|report| report.kind == kind);
            let [of_bridge, facts, numbers] = columns;
            self.set("Bridge", state.uuid, of_bridge, report.map_or_else(no_pairs, bridge_facts));
            for (name, row) in &state.ports {
                let mut ports = report.into_iter().flat_map(|report| &report.ports);
                match ports.find(|port| is_of(bridge, name, port)) {
                    Some(port) => self.tree_port(*row, kind, port, now),
                    None => {
                        self.set("Port", *row, facts, no_pairs());
                        self.set("Port", *row, numbers, no_pairs());
                    }
                }
            }
        }
    }

    /// Writes the columns of a Port row: with statistics, and once a fact has changed.
    fn tree_port(&mut self, row: Uuid, kind: TreeKind, port: &PortReport, now: Millis) {
        let (role, state) = (kind.role_name(port.role), kind.state_name(port.state));
        let ([_, facts, numbers], pairs) = match kind {
            TreeKind::Stp => {
                let pairs = vec![
                    ("stp_port_id", port.id.to_string()),
                    ("stp_state", state.to_owned()),
                    ("stp_role", role.to_owned()),
                ];
                (STP, pairs)
            }
            TreeKind::Rstp => {
                let pairs = vec![
                    ("rstp_port_id", format!("{:04x}", port.id)),
                    ("rstp_port_role", role.to_owned()),
                    ("rstp_port_state", state.to_owned()),
                    ("rstp_designated_bridge_id", rstp_id(port.vector.bridge)),
                    ("rstp_designated_port_id", format!("{:04x}", port.vector.bridge_port)),
                    ("rstp_designated_path_cost", port.vector.cost.to_string()),
                ];
                (RSTP, pairs)
            }
        };
        if !self.has_statistics() && self.has_facts(row, facts, &pairs) {
            return;
        }
        let seconds = (now.since(port.entered) / 1000).to_string();
        let seconds = (kind == TreeKind::Stp).then_some(("stp_sec_in_state", seconds));
        let all = pairs.iter().chain(&seconds).map(|(key, text)| (*key, text.as_str()));
        self.set("Port", row, facts, Datum::map(all));
        let [sent, received, errors] = port.counts;
        let counts = match kind {
            TreeKind::Stp => {
                vec![
                    ("stp_tx_count", sent),
                    ("stp_rx_count", received),
                    ("stp_error_count", errors),
                ]
            }
            TreeKind::Rstp => vec![
                ("rstp_tx_count", sent),
                ("rstp_rx_count", received),
                ("rstp_uptime", port.uptime),
                ("rstp_error_count", errors),
            ],
        };
        let counts = counts.into_iter().map(|(k, n)| (k, i64::try_from(n).unwrap_or(i64::MAX)));
        self.set("Port", row, numbers, Datum::map(counts));
    }

    /// Returns true when a column of a Port row has these pairs.
    fn has_facts(&self, row: Uuid, column: &str, facts: &[(&str, String)]) -> bool {
        let Some(row) = self.replica.row("Port", row) else { return false };
        let map = row.map(column);
        facts.iter().all(|(key, value)| map.get(key) == Some(value.as_str()))
    }
}

/// Returns true for the report on the interface of the bundle called `name`.
fn is_of(bridge: &Bridge, name: &str, port: &PortReport) -> bool {
    let bundle = bridge.bundles.iter().find(|bundle| bundle.settings.name == name);
    bundle.is_some_and(|bundle| bundle.interfaces.contains(&port.name))
}

fn bridge_facts(report: &Report) -> Datum {
    let root = &report.root;
    let pairs = match report.kind {
        TreeKind::Stp => vec![
            ("stp_bridge_id", stp_id(report.id)),
            ("stp_designated_root", stp_id(root.root)),
            ("stp_root_path_cost", root.cost.to_string()),
        ],
        TreeKind::Rstp => vec![
            ("rstp_bridge_id", rstp_id(report.id)),
            ("rstp_root_path_cost", root.cost.to_string()),
            ("rstp_root_id", rstp_id(root.root)),
            ("rstp_designated_id", rstp_id(root.bridge)),
            ("rstp_designated_port_id", format!("{:04x}", root.bridge_port)),
            ("rstp_bridge_port_id", format!("{:04x}", root.port)),
        ],
    };
    Datum::map(pairs.iter().map(|(key, text)| (*key, text.as_str())))
}

/// Returns the 48 bits of an identifier's address.
fn address(id: BridgeId) -> u64 {
    id & 0xffff_ffff_ffff
}

/// Returns an identifier as the columns of STP have it.
fn stp_id(id: BridgeId) -> String {
    format!("{:04x}.{:012x}", bridge_parts(id).0, address(id))
}

/// Returns an identifier as the columns of RSTP have it: 4 bits of priority, and 12 bits.
fn rstp_id(id: BridgeId) -> String {
    let (priority, _) = bridge_parts(id);
    format!("{:x}.{:03x}.{:012x}", priority >> 12, priority & 0xfff, address(id))
}
