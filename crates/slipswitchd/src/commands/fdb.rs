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
    commands.change("fdb/show", "bridge", 1, 1, |daemon, call| {
        // Megaflows' packets keep addresses young.
        daemon.switch.collect_statistics();
        let bridge = bridge(daemon, call.arg(0))?;
        Ok(entries_text(&bridge.macs.entries(daemon.clock.now())))
    });
    commands.json("fdb/show", |daemon, call| {
        let bridge = bridge(daemon, call.arg(0))?;
        Ok(entries_json(&bridge.macs.entries(daemon.clock.now())))
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

fn entries_text(entries: &[MacEntry]) -> String {
    let mut out = " port  VLAN  MAC                Age\n".to_owned();
    for entry in entries {
        let age = entry.age.map_or_else(|| "static".to_owned(), |seconds| format!("{seconds:3}"));
        let _ = writeln!(
            out,
            "{:>5}  {:>4}  {}  {age}",
            openflow_text(entry.port),
            entry.vlan,
            Mac(entry.mac)
        ); // a String takes all writes
    }
    out
}

fn entries_json(entries: &[MacEntry]) -> Value {
    let entry = |entry: &MacEntry| {
        let mut object = json!({
            "port": openflow_text(entry.port),
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
    let mut out = " port  VLAN  GROUP                Age\n".to_owned();
    for MulticastEntry { port, vlan, group, age } in entries {
        let port = openflow_text(*port);
        // As in OVS the columns move with the length of a group.
        let _ = match group {
            Some(group) => {
                let group = group.to_canonical();
                writeln!(out, "{port:>5}  {vlan:>4}  {group}         {age:>3}")
            }
            None => writeln!(out, "{port:>5}  {vlan:>4}  querier             {age:>3}"),
        }; // a String takes all writes
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
    use openflow::PortNo;

    #[test]
    fn entries() {
        let entries = [
            MacEntry { port: PortNo(1), vlan: 4095, mac: [0, 0, 0, 0, 0, 1], age: None },
            MacEntry { port: PortNo(1), vlan: 0, mac: [0x50, 0x54, 0, 0, 0, 5], age: Some(2) },
            MacEntry { port: PortNo::LOCAL, vlan: 0, mac: [0, 0, 0, 0, 0, 2], age: None },
        ];
        assert_eq!(
            entries_text(&entries),
            " port  VLAN  MAC                Age\n\
             \x20   1  4095  00:00:00:00:00:01  static\n\
             \x20   1     0  50:54:00:00:00:05    2\n\
             LOCAL     0  00:00:00:00:00:02  static\n"
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
