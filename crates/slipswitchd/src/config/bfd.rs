// SPDX-License-Identifier: Apache-2.0
//! BFD as rows of Interface ask for it (ovs-vswitchd.conf.db(5), "Bidirectional Forwarding Detection
//! (BFD)").

use super::context::Context;
use super::desired::{DesiredBridge, DesiredInterface};
use super::state::BridgeState;
use bridge::bfd::{Path, SessionSettings, Settings};
use bridge::snapshot::BridgeIndex;
use openflow::PortNo;
use ovsdb::StringMap;
use packet::Mac;
use std::net::Ipv4Addr;

/// Returns the settings of BFD on the interface called `name`; `None` when it is off. Bad values count
/// as absent, as in OVS, with a remark.
pub(super) fn read(
    name: &str,
    config: StringMap<'_>,
    remarks: &mut Vec<String>,
) -> Option<Settings> {
    if !config.bool("enable", false) {
        return None;
    }
    let mut remark = |key: &str, problem: String| {
        remarks.push(format!("interface {name}: bfd:{key}: {problem}, ignored"));
    };
    let mut number = |key: &str, least: i64, most: i64, default: u32| {
        let Some(text) = config.get(key) else { return default };
        let value = config.int(key);
        if value.is_none_or(|value| !(least..=most).contains(&value)) {
            remark(key, format!("\"{text}\" is not a number from {least} to {most}"));
        }
        match value {
            Some(value) if value > most => default,
            Some(value) => u32::try_from(value).unwrap_or(0),
            None => default,
        }
    };
    let most = i64::from(i32::MAX);
    let default = SessionSettings::default();
    let session = SessionSettings {
        min_rx: number("min_rx", 1, most, default.min_rx).max(1),
        min_tx: number("min_tx", 1, most, default.min_tx).max(1),
        decay_min_rx: number("decay_min_rx", 0, most, 0),
        // A multiplier of 0 is out of range, and becomes the default, unlike an interval of 0.
        multiplier: match u8::try_from(number("mult", 1, 255, 3)) {
            Ok(multiplier @ 1..) => multiplier,
            _ => default.multiplier,
        },
        is_joined_path_down: config.bool("cpath_down", false),
        forwards_if_receiving: config.bool("forwarding_if_rx", false),
    };
    let mut mac = |key: &str| {
        let text = config.get(key).filter(|text| !text.is_empty())?;
        match text.parse::<Mac>() {
            Ok(Mac([0, 0, 0, 0, 0, 0])) => None,
            Ok(mac) => Some(mac.0),
            Err(_) => {
                remark(key, format!("\"{text}\" is not a valid Ethernet address"));
                None
            }
        }
    };
    let local_source = mac("bfd_local_src_mac");
    let local_destination = mac("bfd_local_dst_mac").unwrap_or(Path::ETHERNET);
    let remote_destination = mac("bfd_remote_dst_mac");
    let mut ip = |key: &str, default: Ipv4Addr| {
        let Some(text) = config.get(key).filter(|text| !text.is_empty()) else { return default };
        text.parse().unwrap_or_else(|_| {
            remark(key, format!("\"{text}\" is not a valid IP address"));
            default
        })
    };
    let path = Path {
        is_oam: config.bool("oam", false),
        checks_tunnel_key: config.bool("check_tnl_key", false),
        local_source,
        local_destination,
        remote_destination,
        source: ip("bfd_src_ip", Path::SOURCE),
        destination: ip("bfd_dst_ip", Path::DESTINATION),
    };
    Some(Settings { session, path })
}

/// Puts BFD of a port that was just added into force. Until the other end answers, the port does not
/// carry traffic; so it is also in the message that reports the port to controllers.
pub(super) fn opened(
    context: &mut Context<'_>,
    index: BridgeIndex,
    number: PortNo,
    row: &DesiredInterface,
) {
    let Some(settings) = &row.bfd else { return };
    context.switch.set_bfd(index, number, Some(settings));
    let bridge = context.switch.bridge_mut(index);
    if let Some(port) = bridge.and_then(|bridge| bridge.ports.get_mut(&number)) {
        port.is_allowed = false;
    }
}

/// Puts BFD of all ports of a bridge into force.
pub(super) fn sync(context: &mut Context<'_>, bridge: &BridgeState, wanted: &DesiredBridge) {
    for (number, row) in bridge.open(wanted) {
        context.switch.set_bfd(bridge.index, number, row.bfd.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::{Datum, Row};
    use std::sync::Arc;

    fn of(pairs: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let datum = Datum::map(pairs.iter().copied());
        let row = Row::new([(Arc::from("bfd"), datum)]);
        let mut remarks = Vec::new();
        (read("i", row.map("bfd"), &mut remarks), remarks)
    }

    #[test]
    fn defaults_are_open_vswitchs() {
        assert_eq!(of(&[("min_tx", "x")]), (None, vec![]));
        assert_eq!(of(&[("enable", "true")]), (Some(Settings::default()), vec![]));
    }

    #[test]
    fn all_settings_are_read() {
        let (settings, remarks) = of(&[
            ("enable", "true"),
            ("min_rx", "300"),
            ("min_tx", "200"),
            ("decay_min_rx", "3000"),
            ("mult", "255"),
            ("cpath_down", "true"),
            ("forwarding_if_rx", "true"),
            ("oam", "true"),
            ("check_tnl_key", "true"),
            ("bfd_local_src_mac", "02:00:00:00:00:01"),
            ("bfd_local_dst_mac", "02:00:00:00:00:02"),
            ("bfd_remote_dst_mac", "02:00:00:00:00:03"),
            ("bfd_src_ip", "10.0.0.1"),
            ("bfd_dst_ip", "10.0.0.2"),
        ]);
        let session = SessionSettings {
            min_rx: 300,
            min_tx: 200,
            decay_min_rx: 3000,
            multiplier: 255,
            is_joined_path_down: true,
            forwards_if_receiving: true,
        };
        let path = Path {
            is_oam: true,
            checks_tunnel_key: true,
            local_source: Some([2, 0, 0, 0, 0, 1]),
            local_destination: [2, 0, 0, 0, 0, 2],
            remote_destination: Some([2, 0, 0, 0, 0, 3]),
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        };
        assert_eq!((settings, remarks), (Some(Settings { session, path }), vec![]));
    }

    #[test]
    fn bad_values_are_named_and_replaced() {
        for (key, value) in [
            ("mult", "0"),
            ("mult", "256"),
            ("min_rx", "x"),
            ("decay_min_rx", "99999999999"),
            ("bfd_local_src_mac", "x"),
            ("bfd_src_ip", "1.2.3"),
        ] {
            let (settings, remarks) = of(&[("enable", "true"), (key, value)]);
            assert_eq!(settings, Some(Settings::default()), "{key}={value}");
            let [remark] = &remarks[..] else { panic!("{key}: {remarks:?}") };
            assert!(remark.starts_with(&format!("interface i: bfd:{key}: \"{value}\" is not ")));
        }
        let (settings, remarks) = of(&[("enable", "true"), ("min_tx", "-5")]);
        assert_eq!((settings.map(|s| s.session.min_tx), remarks.len()), (Some(1), 1));
    }
}
