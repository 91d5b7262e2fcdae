// SPDX-License-Identifier: Apache-2.0
//! LLDP and auto-attach as rows of Interface and AutoAttach ask for them (ovs-vswitchd.conf.db(5),
//! "LLDP Configuration" and "AutoAttach Table").
//!
//! The VLANs of a bridge's mappings become trunks of each port that announces them, as in Open vSwitch:
//! the database gets them, and the configuration follows. A mapping that is removed takes its VLAN
//! away again.

use super::context::Context;
use super::desired::DesiredBridge;
use super::state::BridgeState;
use bridge::lldp::{MOST_MAPPINGS, Settings};
use ovsdb::{Replica, Row, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// The description of the system where the database has none: that of Open vSwitch, by whose
/// behaviour other systems may recognise it.
const DEFAULT_DESCRIPTION: &str = "openvswitch 3.1.0";

/// A row of the AutoAttach table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredAutoAttach {
    pub system_name: String,
    pub system_description: String,
    /// VLANs by service.
    pub mappings: BTreeMap<u32, u16>,
}

/// A VLAN that a row of Port must get or lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrunkChange {
    pub port: Uuid,
    pub vlan: u16,
    pub is_added: bool,
}

/// State of auto-attach on a bridge.
#[derive(Debug, Default)]
pub(super) struct AutoAttachState {
    /// VLANs of the mappings that each interface announces.
    announced: BTreeMap<String, BTreeSet<u16>>,
    /// Changes that the database does not have yet.
    pub changes: Vec<TrunkChange>,
}

/// Reads the row of AutoAttach that a row of Bridge names.
pub(super) fn read(
    replica: &Replica,
    bridge: &Row,
    remarks: &mut Vec<String>,
) -> Option<DesiredAutoAttach> {
    let row = replica.row("AutoAttach", bridge.opt_uuid("auto_attach")?)?;
    // The schema has bounds for both numbers.
    let mappings = row.int_ints("mappings").filter_map(|(isid, vlan)| {
        Some((u32::try_from(isid).ok()?, u16::try_from(vlan).ok().filter(|vlan| *vlan < 4096)?))
    });
    let wanted = DesiredAutoAttach {
        system_name: row.str("system_name").to_owned(),
        system_description: row.str("system_description").to_owned(),
        mappings: mappings.collect(),
    };
    if wanted.mappings.len() > MOST_MAPPINGS {
        remarks.push(format!(
            "bridge {}: auto_attach has over {MOST_MAPPINGS} mappings: only the first of them are announced",
            bridge.str("name")
        ));
    }
    Some(wanted)
}

/// Returns whether LLDP is enabled on an interface; `None` where nothing is configured.
pub(super) fn is_enabled(row: &Row) -> Option<bool> {
    let config = row.map("lldp");
    (!config.is_empty()).then(|| config.bool("enable", false))
}

/// Brings the open ports of a bridge to the settings of their rows.
pub(super) fn sync(context: &mut Context<'_>, bridge: &mut BridgeState, wanted: &DesiredBridge) {
    let common = wanted.auto_attach.clone().unwrap_or_default();
    let description = match common.system_description.is_empty() {
        true => DEFAULT_DESCRIPTION.to_owned(),
        false => common.system_description,
    };
    let vlans: BTreeSet<u16> = common.mappings.values().copied().collect();
    let mut announced = BTreeMap::new();
    let rows: Vec<_> = bridge.open(wanted).collect();
    for (number, row) in rows {
        let settings = row.lldp.map(|is_enabled| Settings {
            is_enabled,
            system_name: common.system_name.clone(),
            system_description: description.clone(),
            mappings: common.mappings.clone(),
        });
        if !context.switch.set_lldp(bridge.index, number, settings) {
            continue;
        }
        let before = bridge.auto_attach.announced.remove(&row.name).unwrap_or_default();
        // The row of Port with the name of the interface, as in Open vSwitch.
        if let Some(port) = wanted.ports.get(&row.name).and_then(|port| port.uuid) {
            let changes = &mut bridge.auto_attach.changes;
            let removed = before.difference(&vlans).map(|vlan| (*vlan, false));
            let added = vlans.difference(&before).map(|vlan| (*vlan, true));
            for (vlan, is_added) in removed.chain(added) {
                changes.retain(|old| (old.port, old.vlan) != (port, vlan));
                changes.push(TrunkChange { port, vlan, is_added });
            }
        }
        announced.insert(row.name.clone(), vlans.clone());
    }
    bridge.auto_attach.announced = announced;
}

/// Returns the trunks of a row of Port after changes, and the VLAN mode that the row must have then;
/// `None` for the present one.
pub(super) fn trunks(
    present: impl IntoIterator<Item = i64>,
    changes: &[TrunkChange],
) -> (BTreeSet<i64>, Option<&'static str>) {
    let mut trunks: BTreeSet<i64> = present.into_iter().collect();
    let mut mode = None;
    for change in changes {
        let vlan = i64::from(change.vlan);
        match change.is_added {
            true => trunks.insert(vlan),
            false => trunks.remove(&vlan),
        };
        // Without trunks a trunk port has all VLANs.
        match trunks.len() {
            0 => mode = Some("access"),
            1 => mode = Some("trunk"),
            _ => {}
        }
    }
    (trunks, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_the_first_and_the_last_trunk() {
        let change = |vlan, is_added| TrunkChange { port: Uuid::from_u128(1), vlan, is_added };
        let of = |present: &[i64], changes: &[TrunkChange]| {
            let (trunks, mode) = trunks(present.iter().copied(), changes);
            (trunks.into_iter().collect::<Vec<_>>(), mode)
        };
        assert_eq!(of(&[], &[change(5, true), change(3, true)]), (vec![3, 5], Some("trunk")));
        assert_eq!(of(&[3, 5], &[change(7, true)]), (vec![3, 5, 7], None));
        assert_eq!(of(&[3, 5], &[change(5, false)]), (vec![3], Some("trunk")));
        assert_eq!(of(&[3], &[change(3, false)]), (vec![], Some("access")));
    }
}
