// SPDX-License-Identifier: Apache-2.0
//! Port mirrors: rows of the Mirror table (ovs-vswitchd.conf.db(5)).

use super::state::{BridgeState, Remarks};
use super::vlan;
use bridge::mirror::{MAX_MIRRORS, Mirror, MirrorOutput};
use bridge::switch::Switch;
use flow::{Match, text};
use ovsdb::{Replica, Row, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lower bound of `snaplen`, in bytes: an Ethernet header.
const MIN_SNAPLEN: i64 = 14;

/// A row of the Mirror table, of a bridge. Ports have the names of their rows.
#[derive(Clone, Debug)]
pub(super) struct DesiredMirror {
    name: String,
    /// All ports of the bridge are selected.
    all: bool,
    sources: BTreeSet<String>,
    destinations: BTreeSet<String>,
    vlans: Vec<u16>,
    /// Text of `filter`.
    filter: Option<String>,
    output: MirrorOutput<String>,
    snaplen: Option<u16>,
}

/// Returns the mirrors of a bridge's row, and adds what is wrong with them to `remarks`.
pub(super) fn read(
    replica: &Replica,
    bridge: &str,
    row: &Row,
    remarks: &mut Vec<String>,
) -> BTreeMap<Uuid, DesiredMirror> {
    let mut mirrors = BTreeMap::new();
    for uuid in row.uuids("mirrors") {
        let Some(row) = replica.row("Mirror", uuid) else { continue };
        let name = row.str("name");
        let port = |uuid: Uuid| Some(replica.row("Port", uuid)?.str("name").to_owned());
        let vlan = row.opt_int("output_vlan").and_then(vlan::vlan);
        let output = match (row.opt_uuid("output_port"), vlan) {
            (Some(uuid), vlan) => {
                if vlan.is_some() {
                    remarks.push(format!(
                        "bridge {bridge}: mirror {name} specifies both output port and output vlan; \
                         ignoring output vlan"
                    ));
                }
                MirrorOutput::Bundle(port(uuid).unwrap_or_default())
            }
            (None, Some(vlan)) => MirrorOutput::Vlan(vlan),
            (None, None) => {
                remarks.push(format!(
                    "bridge {bridge}: mirror {name} does not specify output; ignoring"
                ));
                continue;
            }
        };
        let mut vlans: Vec<u16> = row.ints("select_vlan").filter_map(vlan::vlan).collect();
        vlans.sort_unstable();
        let mirror = DesiredMirror {
            name: name.to_owned(),
            all: row.bool("select_all"),
            sources: row.uuids("select_src_port").filter_map(port).collect(),
            destinations: row.uuids("select_dst_port").filter_map(port).collect(),
            vlans,
            filter: row.opt_str("filter").filter(|text| !text.is_empty()).map(str::to_owned),
            output,
            snaplen: row
                .opt_int("snaplen")
                .and_then(|bytes| u16::try_from(bytes.max(MIN_SNAPLEN)).ok())
                .filter(|bytes| *bytes != u16::MAX),
        };
        if mirrors.len() == MAX_MIRRORS {
            remarks.push(format!(
                "bridge {bridge}: maximum of {MAX_MIRRORS} port mirrors reached, cannot create {name}"
            ));
            continue;
        }
        mirrors.insert(uuid, mirror);
    }
    mirrors
}

/// Makes the mirrors of a bridge equal to `wanted`. A mirror keeps its counters while its row
/// exists.
pub(super) fn sync(
    switch: &mut Switch,
    state: &mut BridgeState,
    wanted: &BTreeMap<Uuid, DesiredMirror>,
    remarks: &mut Remarks,
) {
    if wanted.is_empty() && state.mirrors.is_empty() {
        return;
    }
    let Some(bridge) = switch.bridge(state.index) else { return };
    let known: BTreeSet<String> = bridge.bundles.iter().map(|b| b.settings.name.clone()).collect();
    let mut mirrors: Vec<Mirror> = Vec::new();
    let mut rows = BTreeMap::new();
    for (uuid, row) in wanted {
        let name = &row.name;
        if let MirrorOutput::Bundle(output) = &row.output
            && !known.contains(output)
        {
            remarks.warn(format!(
                "bridge {}: mirror {name} outputs to port not on bridge",
                bridge.name
            ));
            continue;
        }
        let mut selected = |ports: &BTreeSet<String>| {
            for port in ports.difference(&known) {
                remarks.warn(format!(
                    "bridge {}: mirror {name} cannot match on nonexistent port {port}",
                    bridge.name
                ));
            }
            if row.all { known.clone() } else { ports & &known }
        };
        let (sources, destinations) = (selected(&row.sources), selected(&row.destinations));
        let ports = |name: &str| bridge.port_by_name(name).map(|port| port.number.0);
        let filter = match row.filter.as_deref().map(|text| filter(text, &ports)).transpose() {
            Ok(filter) => filter,
            Err(error) => {
                remarks.warn(format!(
                    "bridge {}: mirror {name}: filter is invalid ({error}); the mirror is ignored",
                    bridge.name
                ));
                continue;
            }
        };
        let stats = state.mirrors.get(uuid).map_or_else(Arc::default, |m| Arc::clone(&m.stats));
        let mirror = Mirror {
            name: name.clone(),
            sources,
            destinations,
            vlans: row.vlans.clone(),
            filter,
            output: row.output.clone(),
            snaplen: row.snaplen,
            stats,
        };
        rows.insert(*uuid, mirror.clone());
        mirrors.push(mirror);
    }
    state.mirrors = rows;
    let before = &bridge.mirrors;
    let is_same = before.len() == mirrors.len()
        && before
            .iter()
            .zip(&mirrors)
            .all(|(a, b)| a.is_same(b) && Arc::ptr_eq(&a.stats, &b.stats));
    if !is_same && let Some(bridge) = switch.bridge_mut(state.index) {
        bridge.mirrors = mirrors;
    }
}

/// Reads a filter: a match in ovs-ofctl's syntax. Fails on a field without its prerequisites, too.
fn filter(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Result<Match, String> {
    let wanted = text::parse_match(text, ports).map_err(|error| error.to_string())?;
    match wanted.unmet_prerequisite() {
        Some(field) => Err(format!("the prerequisites of {} are missing", field.name())),
        None => Ok(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_needs_its_prerequisites() {
        let of = |text: &str| filter(text, &|_| None);
        assert!(of("tcp,tp_dst=80").is_ok());
        assert!(of("ip,nw_src=10.0.0.0/8").is_ok());
        assert!(of("nw_src=10.0.0.1").unwrap_err().contains("prerequisites"));
        assert!(of("nonsense=1").is_err());
    }
}
