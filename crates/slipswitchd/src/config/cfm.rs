// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management as rows of Interface ask for it (ovs-vswitchd.conf.db(5),
//! "Connectivity Fault Management").

use super::context::Context;
use super::desired::DesiredBridge;
use super::interfaces::short;
use super::state::{BridgeState, Remarks};
use bridge::cfm::{PortSettings, Settings, Status, Vlan};
use ovsdb::{Datum, Row};

/// Milliseconds between two messages where `cfm_interval` is absent or not positive, as in OVS.
const DEFAULT_INTERVAL_MS: u32 = 1000;

/// The columns that [`columns`] fills.
pub(super) const COLUMNS: [&str; 6] = [
    "cfm_fault",
    "cfm_fault_status",
    "cfm_flap_count",
    "cfm_health",
    "cfm_remote_mpids",
    "cfm_remote_opstate",
];

/// Returns the settings of the interface called `name`; `None` when it is off.
pub(super) fn read(name: &str, row: &Row, remarks: &mut Vec<String>) -> Option<PortSettings> {
    // A negative identifier is a large one, as in OVS.
    let mpid = row.opt_int("cfm_mpid")? as u64;
    let config = row.map("other_config");
    let mut bad = |key: &str, want: &str| {
        let text = config.str(key);
        remarks.push(format!(
            "interface {name}: other_config:{key} \"{text}\" is not {want}, ignored"
        ));
    };
    let interval = config.int("cfm_interval").filter(|ms| *ms > 0);
    if interval.is_none() && config.get("cfm_interval").is_some() {
        bad("cfm_interval", "a positive number");
    }
    let vlan = match config.get("cfm_ccm_vlan") {
        None => Vlan::None,
        Some(text) if text.eq_ignore_ascii_case("random") => Vlan::Random,
        Some(text) => match text.trim().parse() {
            Ok(0) => Vlan::None,
            Ok(id @ 1..=4095) => Vlan::Id(id),
            _ => {
                bad("cfm_ccm_vlan", "\"random\" or a number from 1 to 4095");
                Vlan::None
            }
        },
    };
    let priority = config.uint("cfm_ccm_pcp").and_then(|n| u8::try_from(n).ok()).filter(|n| *n < 8);
    if priority.is_none() && config.get("cfm_ccm_pcp").is_some() {
        bad("cfm_ccm_pcp", "a number from 0 to 7");
    }
    let machine = Settings {
        mpid,
        interval_ms: interval
            .map_or(DEFAULT_INTERVAL_MS, |ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        is_extended: config.bool("cfm_extended", false),
        has_demand: config.bool("cfm_demand", false),
        is_up: config.get("cfm_opstate").is_none_or(|text| text.eq_ignore_ascii_case("up")),
    };
    Some(PortSettings { machine, vlan, priority: priority.unwrap_or(0) })
}

/// Brings the open ports of a bridge to the settings of their rows.
pub(super) fn sync(
    context: &mut Context<'_>,
    bridge: &BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    for (number, row) in bridge.open(wanted) {
        if let Err(error) = context.switch.set_cfm(bridge.index, number, row.cfm.clone()) {
            remarks.warn(format!(
                "{}: CFM configuration on port {} ({}) failed (Invalid argument): {error}",
                wanted.name,
                short(number),
                row.name
            ));
        }
    }
}

/// Returns the values of [`COLUMNS`], all empty where it is off.
pub(super) fn columns(status: Option<&Status>) -> [Datum; 6] {
    let Some(status) = status else { return std::array::from_fn(|_| Datum::empty()) };
    let remote = status.is_remote_up.map(|is_up| if is_up { "up" } else { "down" });
    [
        Datum::from(!status.faults.is_empty()),
        Datum::set(status.faults.names().collect::<Vec<_>>()),
        Datum::from(i64::try_from(status.flaps).unwrap_or(i64::MAX)),
        status.health.map_or_else(Datum::empty, |health| Datum::from(i64::from(health))),
        Datum::set(status.remotes.iter().map(|mpid| *mpid as i64).collect::<Vec<_>>()),
        remote.map_or_else(Datum::empty, Datum::from),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn of(mpid: Option<i64>, config: &[(&str, &str)]) -> (Option<PortSettings>, Vec<String>) {
        let mut remarks = Vec::new();
        let mpid = mpid.map(|mpid| (Arc::from("cfm_mpid"), Datum::from(mpid)));
        let config = (Arc::from("other_config"), Datum::map(config.iter().copied()));
        let row = Row::new(mpid.into_iter().chain([config]));
        (read("p1", &row, &mut remarks), remarks)
    }

    #[test]
    fn settings_have_defaults() {
        assert_eq!(of(None, &[("cfm_interval", "7")]), (None, vec![]));
        let machine = Settings {
            mpid: 5,
            interval_ms: 1000,
            is_extended: false,
            has_demand: false,
            is_up: true,
        };
        let plain = PortSettings { machine, vlan: Vlan::None, priority: 0 };
        assert_eq!(of(Some(5), &[]), (Some(plain), vec![]));
    }

    #[test]
    fn all_settings_are_read() {
        let (settings, remarks) = of(
            Some(-1),
            &[
                ("cfm_interval", "300"),
                ("cfm_extended", "true"),
                ("cfm_demand", "true"),
                ("cfm_opstate", "down"),
                ("cfm_ccm_vlan", "Random"),
                ("cfm_ccm_pcp", "7"),
            ],
        );
        let machine = Settings {
            mpid: u64::MAX,
            interval_ms: 300,
            is_extended: true,
            has_demand: true,
            is_up: false,
        };
        assert_eq!(settings, Some(PortSettings { machine, vlan: Vlan::Random, priority: 7 }));
        assert_eq!(remarks, Vec::<String>::new());
    }

    #[test]
    fn bad_values_are_reported() {
        let config = [("cfm_interval", "soon"), ("cfm_ccm_vlan", "4096"), ("cfm_ccm_pcp", "8")];
        let (settings, remarks) = of(Some(5), &config);
        let settings = settings.expect("it is on");
        assert_eq!((settings.vlan, settings.priority), (Vlan::None, 0));
        assert_eq!(settings.machine.interval_ms, 1000);
        assert_eq!(
            remarks,
            [
                "interface p1: other_config:cfm_interval \"soon\" is not a positive number, ignored",
                "interface p1: other_config:cfm_ccm_vlan \"4096\" is not \"random\" or a number from 1 to 4095, ignored",
                "interface p1: other_config:cfm_ccm_pcp \"8\" is not a number from 0 to 7, ignored",
            ]
        );
    }
}
