// SPDX-License-Identifier: Apache-2.0
//! Bonds and LACP as rows of Port and Interface ask for them (ovs-vswitchd.conf.db(5), "Bonding
//! Configuration" and "LACP Configuration").

use super::desired::Map;
use bridge::aggregate::{AggregateSettings, PortSettings};
use bridge::bond::{Mode, Settings};
use ovsdb::Row;
use packet::Mac;

/// Least number of milliseconds between two balancings.
const LEAST_REBALANCE_MS: u32 = 1_000;

/// Default of `bond-miimon-interval` in milliseconds.
const MIIMON_MS: u32 = 200;

/// Returns the settings of the bond called `name`.
pub(super) fn bond(name: &str, row: &Row, remarks: &mut Vec<String>) -> Settings {
    let config = row.map("other_config");
    let text = row.opt_str("bond_mode");
    let mode = text.map_or(Some(Mode::default()), Mode::parse).unwrap_or_else(|| {
        let (text, mode) = (text.unwrap_or_default(), Mode::default());
        remarks.push(format!("port {name}: unknown bond_mode {text}, defaulting to {mode}"));
        mode
    });
    let delay = |column: &str| u32::try_from(row.int(column)).unwrap_or(0);
    let falls_back = config.bool("lacp-fallback-ab", false);
    let has_primary = mode == Mode::ActiveBackup || falls_back;
    let number = |key: &str| config.get(key).and_then(|text| text.trim().parse::<i64>().ok());
    let default = Settings::default();
    let rebalance = number("bond-rebalance-interval").unwrap_or(default.rebalance_ms.into());
    let rebalance = u32::try_from(rebalance.max(0)).unwrap_or(u32::MAX);
    Settings {
        mode,
        updelay_ms: delay("bond_updelay"),
        downdelay_ms: delay("bond_downdelay"),
        rebalance_ms: if rebalance == 0 { 0 } else { rebalance.max(LEAST_REBALANCE_MS) },
        basis: number("bond-hash-basis").map_or(0, |n| n as u32), // the lowest 32 bits, as in OVS
        falls_back,
        primary: config.get("bond-primary").filter(|_| has_primary).map(str::to_owned),
        all_members_active: config.bool("all-members-active", false),
        lb_output: config.bool("lb-output-action", true),
    }
}

/// Returns the time between two checks of the registers of a bond's interfaces, in milliseconds; `None`
/// where the carrier decides about their links.
pub(super) fn miimon(name: &str, row: &Row, remarks: &mut Vec<String>) -> Option<u32> {
    let config = row.map("other_config");
    match config.get("bond-detect-mode") {
        None | Some("carrier") => None,
        Some("miimon") => {
            let text = config.get("bond-miimon-interval");
            let interval = text.and_then(|text| text.trim().parse::<u32>().ok());
            Some(interval.filter(|ms| *ms > 0).unwrap_or(MIIMON_MS))
        }
        Some(other) => {
            remarks.push(format!(
                "port {name}: unsupported bond-detect-mode {other}, defaulting to carrier"
            ));
            None
        }
    }
}

/// Returns the settings of LACP on the port called `name`; `None` when it is off. A bad value turns
/// it off, with a remark.
pub(super) fn lacp(name: &str, row: &Row, remarks: &mut Vec<String>) -> Option<AggregateSettings> {
    let is_active = match row.opt_str("lacp")? {
        "active" => true,
        "passive" => false,
        "off" => return None,
        other => {
            remarks.push(format!("port {name}: unknown LACP mode {other}"));
            return None;
        }
    };
    let config = row.map("other_config");
    let system_id = match config.get("lacp-system-id").map(|text| (text, text.parse::<Mac>())) {
        None => None,
        Some((_, Ok(Mac([0, 0, 0, 0, 0, 0])))) => {
            remarks.push(format!("port {name}: Invalid zero LACP system ID."));
            return None;
        }
        Some((_, Ok(mac))) => Some(mac.0),
        Some((text, Err(_))) => {
            remarks
                .push(format!("port {name}: LACP system ID ({text}) must be an Ethernet address."));
            return None;
        }
    };
    let time = config.get("lacp-time").unwrap_or_default();
    Some(AggregateSettings {
        is_active,
        is_fast: time.eq_ignore_ascii_case("fast"),
        system_id,
        system_priority: positive(config.get("lacp-system-priority")),
        falls_back: config.bool("lacp-fallback-ab", false),
    })
}

/// Returns the settings of LACP in an Interface's `other_config`. Values out of range count as absent,
/// as in OVS.
pub(super) fn lacp_port(config: &Map) -> PortSettings {
    let number = |key: &str| positive(config.get(key).map(String::as_str));
    PortSettings {
        port_id: number("lacp-port-id"),
        port_priority: number("lacp-port-priority"),
        key: number("lacp-aggregation-key").unwrap_or(0),
    }
}

fn positive(text: Option<&str>) -> Option<u16> {
    text?.trim().parse().ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::Datum;
    use std::sync::Arc;

    fn row(columns: Vec<(&str, Datum)>) -> Row {
        Row::new(columns.into_iter().map(|(c, d)| (Arc::from(c), d)))
    }

    #[test]
    fn bonds_have_open_vswitchs_defaults_and_limits() {
        let mut remarks = Vec::new();
        assert_eq!(bond("b", &row(vec![]), &mut remarks), Settings::default());
        let config =
            [("bond-rebalance-interval", "10"), ("bond-primary", "p1"), ("bond-hash-basis", "7")];
        let slb = row(vec![
            ("bond_mode", Datum::from("balance-slb")),
            ("bond_updelay", Datum::from(-5)),
            ("bond_downdelay", Datum::from(200)),
            ("other_config", Datum::map(config)),
        ]);
        let settings = bond("b", &slb, &mut remarks);
        assert_eq!((settings.mode, settings.primary), (Mode::BalanceSlb, None));
        assert_eq!((settings.updelay_ms, settings.downdelay_ms), (0, 200));
        assert_eq!((settings.rebalance_ms, settings.basis), (1_000, 7));
        assert!(remarks.is_empty(), "{remarks:?}");
        let off = row(vec![("other_config", Datum::map([("lb-output-action", "false")]))]);
        assert!(settings.lb_output && !bond("b", &off, &mut remarks).lb_output);
        let bad =
            row(vec![("bond_mode", Datum::from("stable")), ("bond_fake_iface", Datum::from(true))]);
        assert_eq!(bond("b", &bad, &mut remarks).mode, Mode::ActiveBackup);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
    }

    #[test]
    fn registers_decide_where_miimon_is_asked_for() {
        let mut remarks = Vec::new();
        let mut of = |mode: &str, interval: &str| {
            let config = [("bond-detect-mode", mode), ("bond-miimon-interval", interval)];
            miimon("b", &row(vec![("other_config", Datum::map(config))]), &mut remarks)
        };
        assert_eq!(of("miimon", "50"), Some(50));
        for bad in ["0", "-5", "x"] {
            assert_eq!(of("miimon", bad), Some(MIIMON_MS), "{bad}");
        }
        assert_eq!(of("carrier", "50"), None);
        assert_eq!(of("magic", "50"), None);
        assert_eq!(remarks, ["port b: unsupported bond-detect-mode magic, defaulting to carrier"]);
    }

    #[test]
    fn lacp_is_off_unless_it_is_asked_for_and_right() {
        let mut remarks = Vec::new();
        let mut of = |mode: Option<&str>, key: &str, value: &str| {
            let mut columns = vec![("other_config", Datum::map([(key, value)]))];
            columns.extend(mode.map(|mode| ("lacp", Datum::from(mode))));
            lacp("b", &row(columns), &mut remarks)
        };
        assert_eq!(of(None, "lacp-time", "fast"), None);
        assert_eq!(of(Some("off"), "lacp-time", "fast"), None);
        let active = of(Some("active"), "lacp-time", "FAST").unwrap();
        assert!(active.is_active && active.is_fast);
        let passive = of(Some("passive"), "lacp-system-priority", "70000").unwrap();
        assert_eq!((passive.is_active, passive.system_priority), (false, None));
        assert_eq!(of(Some("active"), "lacp-system-id", "nonsense"), None);
        assert_eq!(of(Some("active"), "lacp-system-id", "00:00:00:00:00:00"), None);
        assert_eq!(of(Some("fast"), "lacp-time", "fast"), None);
        assert_eq!(remarks.len(), 3, "{remarks:?}");
    }

    #[test]
    fn numbers_of_interfaces_out_of_range_count_as_absent() {
        let of = |key: &str, value: &str| {
            lacp_port(&[(key.to_owned(), value.to_owned())].into_iter().collect())
        };
        assert_eq!(of("lacp-port-id", "11").port_id, Some(11));
        for bad in ["0", "-1", "65536", "x"] {
            assert_eq!(of("lacp-port-id", bad), PortSettings::default(), "{bad}");
        }
        assert_eq!(of("lacp-aggregation-key", "3333").key, 3333);
    }
}
