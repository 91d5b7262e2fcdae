// SPDX-License-Identifier: Apache-2.0
//! Learned addresses (`fdb/`) and multicast groups (`mdb/`).

use super::Commands;
use super::ports::openflow_text;
use crate::daemon::Daemon;
use bridge::bridge::Bridge;
use bridge::mac_table::{MacEntry, StaticAdd};
use bridge::multicast_table::MulticastEntry;
use packet::Mac;
use serde_json::{Value, json};
use std::fmt::Write as _;

const NO_BRIDGE: &str = "no such bridge";
const FLUSHED: &str = "table successfully flushed";
const CLEARED: &str = "statistics successfully cleared";
const NO_SNOOPING: &str = "multicast snooping is disabled";

pub(super) fn register(commands: &Commands<'_>) {
    commands.change("fdb/show", "[bridge...]", 0, usize::MAX, |daemon, call| {
        // Megaflows' packets keep addresses young.
        daemon.switch.collect_statistics();
        let bridges = named(daemon, call.args)?;
        Ok(bridges_text(&entries_of(daemon, &bridges)))
    });
    commands.json("fdb/show", |daemon, call| {
        let bridges = named(daemon, call.args)?;
        let entries = entries_of(daemon, &bridges);
        Ok(entries.iter().map(|(name, list)| ((*name).to_owned(), entries_json(list))).collect())
    });
    commands.change("fdb/add", "bridge port vlan mac", 4, 4, |daemon, call| {
        let bridge = bridge(daemon, call.arg(0))?;
        let mac = mac(call.arg(3))?;
        let vlan = vlan(call.arg(2))?;
        let port = call
            .arg(1)
            .and_then(|name| bridge.port_by_name(name))
            .ok_or("software error, odp port is present but no ofp port")?;
        let text = match bridge.macs.add_static(vlan, mac, port.number) {
            StaticAdd::Unchanged => return Ok(String::new()),
            StaticAdd::Added => String::new(),
            StaticAdd::Replaced { port, was_static } => format!(
                "Overriding already existing {} entry on {}\n",
                if was_static { "static" } else { "dynamic" },
                openflow_text(port),
            ),
        };
        daemon.switch.mac_tables_changed();
        Ok(text)
    });
    commands.change("fdb/del", "bridge vlan mac", 3, 3, |daemon, call| {
        let bridge = bridge(daemon, call.arg(0))?;
        let mac = mac(call.arg(2))?;
        let vlan = vlan(call.arg(1))?;
        let is_static = |e: &MacEntry| e.vlan == vlan && e.mac == mac && e.age.is_none();
        if !bridge.macs.entries(daemon.clock.now()).iter().any(is_static)
            || !bridge.macs.remove(vlan, mac)
        {
            return Err("could not find static mac entry".to_owned());
        }
        daemon.switch.mac_tables_changed();
        Ok(String::new())
    });
    commands.change("fdb/flush", "[bridge]", 0, 1, |daemon, call| {
        let mut changed = false;
        for bridge in selected(daemon, call.arg(0))? {
            changed |= bridge.macs.flush();
        }
        if changed {
            daemon.switch.mac_tables_changed();
        }
        Ok(FLUSHED.to_owned())
    });
    commands.show("fdb/stats-show", "bridge", 1, 1, |daemon, call| {
        Ok(stats_text(bridge(daemon, call.arg(0))?))
    });
    commands.show("fdb/stats-clear", "[bridge]", 0, 1, |daemon, call| {
        for bridge in selected(daemon, call.arg(0))? {
            bridge.macs.clear_stats();
        }
        Ok(CLEARED.to_owned())
    });
    commands.show("mdb/show", "bridge", 1, 1, |daemon, call| {
        let bridge = bridge(daemon, call.arg(0))?;
        let table = bridge.multicast.as_ref().ok_or(NO_SNOOPING)?;
        Ok(groups_text(&table.entries(daemon.clock.now())))
    });
    commands.change("mdb/flush", "[bridge]", 0, 1, |daemon, call| {
        let mut changed = false;
        for bridge in selected(daemon, call.arg(0))? {
            match &bridge.multicast {
                Some(table) => changed |= table.flush(),
                None if call.arg(0).is_some() => return Err(NO_SNOOPING.to_owned()),
                None => {}
            }
        }
        if changed {
            daemon.switch.mac_tables_changed();
        }
        Ok(FLUSHED.to_owned())
    });
}

fn bridge<'a>(daemon: &'a Daemon, name: Option<&str>) -> Result<&'a Bridge, String> {
    name.and_then(|name| daemon.switch.bridge_by_name(name)).ok_or_else(|| NO_BRIDGE.to_owned())
}

/// The bridge called so, or all.
fn selected<'a>(daemon: &'a Daemon, name: Option<&str>) -> Result<Vec<&'a Bridge>, String> {
    match name {
        Some(name) => Ok(vec![bridge(daemon, Some(name))?]),
        None => Ok(daemon.switch.bridges().collect()),
    }
}

/// The bridges called so, in this order, or all by their names. Nothing is shown when one of them is
/// missing.
fn named<'a>(daemon: &'a Daemon, names: &[String]) -> Result<Vec<&'a Bridge>, String> {
    match names {
        [] => {
            let mut all: Vec<&Bridge> = daemon.switch.bridges().collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        }
        [name] => Ok(vec![bridge(daemon, Some(name))?]),
        _ => names
            .iter()
            .map(|name| bridge(daemon, Some(name)).map_err(|reason| format!("{reason} {name}")))
            .collect(),
    }
}

/// Names of bridges with their addresses.
fn entries_of<'a>(daemon: &Daemon, bridges: &[&'a Bridge]) -> Vec<(&'a str, Vec<MacEntry>)> {
    let now = daemon.clock.now();
    bridges.iter().map(|bridge| (&*bridge.name, bridge.macs.entries(now))).collect()
}

fn mac(text: Option<&str>) -> Result<[u8; 6], String> {
    let mac = text.and_then(|text| text.parse::<Mac>().ok());
    mac.map(<[u8; 6]>::from).ok_or_else(|| "bad MAC address".to_owned())
}

/// A VLAN; OVS would take any text for a number.
fn vlan(text: Option<&str>) -> Result<u16, String> {
    let text = text.unwrap_or_default();
    text.parse()
        .ok()
        .filter(|vlan| *vlan <= 4095)
        .ok_or_else(|| format!("bad VLAN \"{text}\": a number from 0 (none) to 4095 is expected"))
}

/// The addresses of one bridge in the form of Open vSwitch 3.1, those of several with the name of the
/// bridge in front, as from 4.0 on.
fn bridges_text(bridges: &[(&str, Vec<MacEntry>)]) -> String {
    const BRIDGE: &str = "Bridge";
    const COLUMNS: &str = "VLAN  MAC                Age";
    if let [(_, entries)] = bridges {
        let lines = entries.iter().map(|entry| entry_text(entry) + "\n");
        return format!(" port  {COLUMNS}\n") + &lines.collect::<String>();
    }
    let names = bridges.iter().map(|(name, _)| name.len());
    // Columns are two characters apart, and a number may begin one earlier.
    let width = names.fold(BRIDGE.len(), usize::max) + 1;
    let mut out = match bridges {
        [] => format!(" Port  {COLUMNS}\n"),
        _ => format!(" {BRIDGE:width$} Port  {COLUMNS}\n"),
    };
    for (name, entries) in bridges {
        // The name is on the first line of its bridge.
        let names = std::iter::once(*name).chain(std::iter::repeat(""));
        for (name, entry) in names.zip(entries) {
            let _ = writeln!(out, " {name:width$}{}", entry_text(entry)); // a String takes all writes
        }
        if entries.is_empty() {
            let _ = writeln!(out, " {name}"); // likewise
        }
    }
    out
}

fn entry_text(entry: &MacEntry) -> String {
    let age = entry.age.map_or_else(|| "static".to_owned(), |seconds| format!("{seconds:3}"));
    let (port, mac) = (openflow_text(entry.port), Mac(entry.mac));
    format!("{port:>5}  {:>4}  {mac}  {age}", entry.vlan)
}

fn entries_json(entries: &[MacEntry]) -> Value {
    let entry = |entry: &MacEntry| {
        let mut object = json!({
            "port": entry.port.to_u16().map_or(entry.port.0, u32::from),
            "vlan": entry.vlan,
            "mac": Mac(entry.mac).to_string(),
        });
        match entry.age {
            Some(seconds) => object["age"] = seconds.into(),
            None => object["static"] = true.into(),
        }
        object
    };
    entries.iter().map(entry).collect()
}

fn groups_text(entries: &[MulticastEntry]) -> String {
    let mut out = " port  VLAN  protocol  GROUP                Age\n".to_owned();
    for MulticastEntry { port, vlan, group, protocol, age } in entries {
        let port = openflow_text(*port);
        // Routers ask in no version that is known.
        let protocol = protocol.map_or_else(|| "UNKNOWN".to_owned(), |p| p.to_string());
        // As in OVS the columns move with the length of a group.
        let group = match group {
            Some(group) => group.to_canonical().to_string(),
            None => "querier    ".to_owned(),
        };
        // A String takes all writes.
        let _ = writeln!(out, "{port:>5}  {vlan:>4}  {protocol:8}  {group}         {age:>3}");
    }
    out
}

fn stats_text(bridge: &Bridge) -> String {
    let (usage, stats) = (bridge.macs.usage(), bridge.macs.stats());
    format!(
        "Statistics for bridge \"{}\":\n\
         \x20 Current/maximum MAC entries in the table: {}/{}\n\
         \x20 Current static MAC entries in the table : {}\n\
         \x20 Total number of learned MAC entries     : {}\n\
         \x20 Total number of expired MAC entries     : {}\n\
         \x20 Total number of evicted MAC entries     : {}\n\
         \x20 Total number of port moved MAC entries  : {}\n",
        bridge.name,
        usage.entries,
        usage.capacity,
        usage.static_entries,
        stats.learned,
        stats.expired,
        stats.evicted,
        stats.moved,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge::multicast_table::GroupProtocol;
    use openflow::PortNo;

    fn entries() -> [MacEntry; 3] {
        [
            MacEntry { port: PortNo(1), vlan: 4095, mac: [0, 0, 0, 0, 0, 1], age: None },
            MacEntry { port: PortNo(1), vlan: 0, mac: [0x50, 0x54, 0, 0, 0, 5], age: Some(2) },
            MacEntry { port: PortNo::LOCAL, vlan: 0, mac: [0, 0, 0, 0, 0, 2], age: None },
        ]
    }

    #[test]
    fn one_bridge() {
        assert_eq!(
            bridges_text(&[("br0", entries().to_vec())]),
            " port  VLAN  MAC                Age\n\
             \x20   1  4095  00:00:00:00:00:01  static\n\
             \x20   1     0  50:54:00:00:00:05    2\n\
             LOCAL     0  00:00:00:00:00:02  static\n"
        );
        assert_eq!(
            entries_json(&entries()),
            json!([
                {"port": 1, "vlan": 4095, "mac": "00:00:00:00:00:01", "static": true},
                {"port": 1, "vlan": 0, "mac": "50:54:00:00:00:05", "age": 2},
                {"port": 65534, "vlan": 0, "mac": "00:00:00:00:00:02", "static": true},
            ])
        );
    }

    /// The form of Open vSwitch 4.0.
    #[test]
    fn several_bridges_and_none() {
        let [a, b, c] = entries();
        let all = [("br-nexthop", vec![a, c]), ("br0", vec![]), ("br1", vec![b])];
        assert_eq!(
            bridges_text(&all),
            " Bridge      Port  VLAN  MAC                Age\n\
             \x20br-nexthop     1  4095  00:00:00:00:00:01  static\n\
             \x20           LOCAL     0  00:00:00:00:00:02  static\n\
             \x20br0\n\
             \x20br1            1     0  50:54:00:00:00:05    2\n"
        );
        let all = [("br0", vec![a]), ("br1", vec![b])];
        assert_eq!(
            bridges_text(&all),
            " Bridge  Port  VLAN  MAC                Age\n\
             \x20br0        1  4095  00:00:00:00:00:01  static\n\
             \x20br1        1     0  50:54:00:00:00:05    2\n"
        );
        assert_eq!(bridges_text(&[]), " Port  VLAN  MAC                Age\n");
    }

    #[test]
    fn groups() {
        let entry = |group: Option<&str>, protocol| MulticastEntry {
            port: PortNo(3),
            vlan: 5,
            group: group.and_then(|g| g.parse().ok()),
            protocol,
            age: 7,
        };
        let entries = [
            entry(Some("::ffff:224.1.2.3"), Some(GroupProtocol::IgmpV3)),
            entry(Some("ff05::7"), Some(GroupProtocol::MldV1)),
            entry(None, None),
        ];
        assert_eq!(
            groups_text(&entries),
            " port  VLAN  protocol  GROUP                Age\n\
             \x20   3     5  IGMPv3    224.1.2.3           7\n\
             \x20   3     5  MLDv1     ff05::7           7\n\
             \x20   3     5  UNKNOWN   querier               7\n"
        );
    }

    #[test]
    fn vlans() {
        assert_eq!(vlan(Some("0")), Ok(0));
        assert_eq!(vlan(Some("4095")), Ok(4095));
        for bad in ["4096", "x", "", "-1"] {
            assert!(vlan(Some(bad)).is_err(), "{bad}");
        }
    }
}
