// SPDX-License-Identifier: Apache-2.0
//! Bridges and their datapath: `bridge/`, `ofproto/list`, `dpif/`.

use super::dpctl::flows::split_ufid;
use super::flow_line::{LineStyle, flow_line};
use super::ports::{PortNames, datapath_type, kind_text};
use super::{ANY, Answer, Commands};
use crate::daemon::Daemon;
use crate::features::{self, Feature};
use bridge::bridge::Bridge;
use bridge::connection::{format_contributors, format_flows};
use bridge::port::Port;
use bridge::revalidator::Pass;
use bridge::tunnel::Output;
use datapath::{PortKind, PortNo as DpPort};
use hashbrown::HashSet;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const UNKNOWN_BRIDGE: &str = "Unknown bridge";
const NO_BRIDGE: &str = "no such bridge";
/// Feature of the datapath that tests turn off.
const PUSH_POP: &str = "tnl_push_pop";

pub(super) fn register(commands: &Commands<'_>) {
    commands.change("bridge/dump-flows", "[--offload-stats] bridge", 1, 2, |daemon, call| {
        daemon.switch.collect_statistics();
        let bridge = call
            .args
            .last()
            .and_then(|name| daemon.switch.bridge_by_name(name))
            .ok_or(UNKNOWN_BRIDGE)?;
        let flows = format_flows(bridge, daemon.clock.now());
        Ok(if call.args.iter().any(|a| a == "--offload-stats") {
            with_offload(&flows)
        } else {
            flows
        })
    });
    commands.change("bridge/reconnect", "[bridge]", 0, 1, |daemon, call| {
        let bridges: Vec<_> = match call.arg(0) {
            Some(name) => vec![daemon.switch.bridge_by_name(name).ok_or(UNKNOWN_BRIDGE)?.index],
            None => daemon.switch.bridges().map(|b| b.index).collect(),
        };
        for bridge in bridges {
            daemon.connections.close_all(bridge, "reconnect was asked for (bridge/reconnect)");
        }
        Ok(String::new())
    });
    commands.change("ofproto/detrace", "ufid [pmd=PMD-ID]", 1, 2, |daemon, call| {
        let ufid = match split_ufid(call.arg(0).unwrap_or_default()) {
            Ok((Some(ufid), "")) => ufid,
            _ => return Err("failed to parse ufid".to_owned()),
        };
        if let Some(thread) = call.arg(1) {
            // All threads share the megaflows, so that the number selects nothing.
            let is_number = thread.strip_prefix("pmd=").is_some_and(|n| n.parse::<i64>().is_ok());
            if !is_number {
                return Err("Invalid pmd argument format. Expecting 'pmd=PMD-ID'".to_owned());
            }
        }
        daemon.switch.collect_statistics();
        let effects = daemon.switch.slow_path().megaflows.effects(ufid);
        Ok(format_contributors(&effects.unwrap_or_default(), daemon.clock.now()))
    });
    commands.show("ofproto/list", "", 0, 0, |daemon, _| {
        Ok(sorted(daemon).iter().map(|b| format!("{}\n", b.name)).collect())
    });
    commands.show("dpif/dump-dps", "", 0, 0, |daemon, _| {
        let kind = datapath_type(daemon);
        Ok(sorted(daemon).iter().map(|b| format!("{kind}@{}\n", b.name)).collect())
    });
    commands.show("dpif/show", "", 0, 0, |daemon, _| Ok(show(daemon)));
    commands.json("dpif/show", |daemon, _| Ok(show_json(daemon)));
    commands.show(
        "dpif/dump-flows",
        "[-m] [--names | --no-names] bridge",
        1,
        ANY,
        |daemon, call| {
            let bridge = call
                .args
                .last()
                .and_then(|name| daemon.switch.bridge_by_name(name))
                .ok_or(NO_BRIDGE)?;
            let mut verbose = false;
            let mut by_name = None;
            for arg in call.args {
                match arg.as_str() {
                    "-m" => verbose = true,
                    "--names" => by_name = Some(true),
                    "--no-names" => by_name = Some(false),
                    _ => {}
                }
            }
            Ok(dump_flows(daemon, bridge, verbose, by_name.unwrap_or(verbose)))
        },
    );
    commands.show("dpif/show-dp-features", "bridge", 1, 1, |daemon, call| {
        call.arg(0).and_then(|name| daemon.switch.bridge_by_name(name)).ok_or(NO_BRIDGE)?;
        let features = features::of(&**daemon.switch.datapath());
        Ok(features.iter().map(|f| format!("{}: {}\n", f.name, f.value)).collect())
    });
    commands.change("dpif/set-dp-features", "bridge", 1, 3, |daemon, call| {
        call.arg(0).and_then(|name| daemon.switch.bridge_by_name(name)).ok_or(NO_BRIDGE)?;
        let features = features::of(&**daemon.switch.datapath());
        let Some(key) = call.arg(1) else {
            return Ok(features.iter().map(|f| feature_line(daemon, f)).collect());
        };
        let Some(feature) = features.iter().find(|f| f.key == key) else {
            return Ok("Unexpected support field".to_owned());
        };
        match call.arg(2) {
            Some(value) => set_feature(daemon, feature, value),
            None => Ok(feature_line(daemon, feature)),
        }
    });
}

/// Formats a feature with its value in force and that of the datapath.
fn feature_line(daemon: &Daemon, feature: &Feature) -> String {
    let value = feature.capability();
    let withheld = daemon.switch.withheld();
    let levels = withheld.sample_nesting.map(|levels| levels.to_string());
    let is_withheld = match feature.key {
        PUSH_POP => daemon.switch.tunnel_output() == Output::Set,
        "clone" => withheld.clone,
        "check_pkt_len" => withheld.check_pkt_len,
        "add_mpls" => withheld.add_mpls,
        "trunc" => withheld.trunc,
        _ => false,
    };
    let in_force = match (feature.key, &levels) {
        ("sample_nesting", Some(levels)) => levels,
        _ if is_withheld => "false",
        _ => value,
    };
    let Feature { key, name, .. } = feature;
    format!("{key} ({name}) : [run time]:{in_force}, [boot time]:{value}\n")
}

/// Sets a feature. As in OVS wrong values are no errors. Features that translation cannot do without
/// keep the datapath's value.
fn set_feature(daemon: &mut Daemon, feature: &Feature, value: &str) -> Answer {
    let present = feature.capability();
    let refusal = match (present.parse::<u32>(), value.parse::<i64>()) {
        (Ok(_), Err(_)) => "Integer number expected",
        (Ok(_), Ok(..0)) => "Negative number not expected",
        (Ok(most), Ok(number)) if number > i64::from(most) => {
            "Can not set value beyond the datapath capability"
        }
        (Ok(_), Ok(_)) => "",
        (Err(_), _) => match (&*value.to_ascii_lowercase(), present) {
            ("true", "false") => "Can not enable features not supported by the datapth",
            ("true" | "false", _) => "",
            _ => "Boolean value expected",
        },
    };
    if !refusal.is_empty() {
        return Ok(refusal.to_owned());
    }
    let is_on = value.eq_ignore_ascii_case("true");
    let mut withheld = daemon.switch.withheld();
    match feature.key {
        PUSH_POP => daemon.switch.set_tunnel_output(if is_on { Output::Push } else { Output::Set }),
        "clone" => withheld.clone = !is_on,
        "check_pkt_len" => withheld.check_pkt_len = !is_on,
        "add_mpls" => withheld.add_mpls = !is_on,
        "trunc" => withheld.trunc = !is_on,
        "sample_nesting" => {
            withheld.sample_nesting = value.parse().ok().filter(|_| value != present);
        }
        _ if value.eq_ignore_ascii_case(present) => {}
        _ => {
            return super::unsupported(
                "dpif/set-dp-features",
                "only clone, sample_nesting, check_pkt_len, add_mpls, trunc and tnl_push_pop can be \
                 taken from a datapath",
            );
        }
    }
    if daemon.switch.withheld() != withheld {
        daemon.switch.withhold(withheld);
        daemon.publish_and_wake();
        daemon.switch.slow_path().pass(Pass::Purge); // megaflows are translated from scratch
        daemon.after_pass();
    }
    Ok(String::new())
}

fn sorted(daemon: &Daemon) -> Vec<&Bridge> {
    let mut bridges: Vec<&Bridge> = daemon.switch.bridges().collect();
    bridges.sort_by(|a, b| a.name.cmp(&b.name));
    bridges
}

/// Adds the counters of packets in hardware, which are zero, after the other counters.
fn with_offload(flows: &str) -> String {
    let mut out = String::with_capacity(flows.len() * 5 / 4);
    for line in flows.lines() {
        let end = line.find("n_bytes=").and_then(|at| Some(at + line.get(at..)?.find(", ")? + 2));
        let (head, tail) = end.and_then(|end| line.split_at_checked(end)).unwrap_or((line, ""));
        let _ = writeln!(out, "{head}n_offload_packets=0, n_offload_bytes=0, {tail}"); // a String takes all writes
    }
    out
}

/// Returns the ports of a bridge in the order of their names.
fn ports_by_name(bridge: &Bridge) -> Vec<&Port> {
    let mut ports: Vec<&Port> = bridge.ports.values().collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

/// Returns the number of a port, as OpenFlow 1.0 has it for the bridge's own port.
fn shown_number(port: &Port) -> u32 {
    port.number.to_u16().map_or(port.number.0, u32::from)
}

/// Returns `dpif/show` as JSON. As in Open vSwitch, numbers are strings.
fn show_json(daemon: &Daemon) -> Value {
    let bridges = sorted(daemon);
    if bridges.is_empty() {
        return json!([]);
    }
    let ofprotos: Vec<Value> = bridges
        .into_iter()
        .map(|bridge| {
            let ports: Vec<Value> = ports_by_name(bridge)
                .into_iter()
                .map(|port| {
                    let mut config = serde_json::Map::new();
                    if let Some(peer) = &port.peer {
                        config.insert("peer".to_owned(), peer.to_string().into());
                    }
                    let options = port.tunnel.iter().flat_map(|tunnel| tunnel.options());
                    config.extend(options.map(|(key, value)| (key.to_string(), value.into())));
                    let dummy = dummy_settings(port).into_iter();
                    config.extend(dummy.map(|(key, value)| (key.to_owned(), value.into())));
                    json!({
                        "netdev_name": port.name,
                        "netdev_type": kind_text(daemon, port.kind),
                        "netdev_config": config,
                        "odp_port": port.dp_port.map_or("none".to_owned(), |p| p.to_string()),
                        "ofp_port": shown_number(port).to_string(),
                    })
                })
                .collect();
            json!({"name": bridge.name, "ports": ports})
        })
        .collect();
    let datapath = daemon.switch.datapath();
    let lookups = datapath.lookups();
    json!([{
        "name": datapath.name(),
        "ofprotos": ofprotos,
        "stats": {"n_hit": lookups.hits.to_string(), "n_missed": lookups.misses.to_string()},
    }])
}

/// Returns the settings of a dummy as Open vSwitch shows them; none of another port.
fn dummy_settings(port: &Port) -> BTreeMap<&'static str, String> {
    let dummy = port.kind.is_dummy().then(|| netdev::dummy::lookup(&port.name)).flatten();
    let Some(dummy) = dummy else { return BTreeMap::new() };
    let mut out: BTreeMap<_, _> = dummy.shown_options().into_iter().collect();
    if port.kind == PortKind::DummyPmd {
        let receiving = dummy.n_queues().to_string();
        out.insert("configured_rx_queues", receiving.clone());
        out.insert("requested_rx_queues", receiving);
        out.insert("configured_tx_queues", "1".to_owned());
        out.insert("requested_tx_queues", "1".to_owned());
    }
    out
}

fn show(daemon: &Daemon) -> String {
    let bridges = sorted(daemon);
    if bridges.is_empty() {
        return String::new();
    }
    let lookups = daemon.switch.datapath().lookups();
    let mut out = format!(
        "{}: hit:{} missed:{}\n",
        daemon.switch.datapath().name(),
        lookups.hits,
        lookups.misses
    );
    for bridge in bridges {
        let _ = writeln!(out, "  {}:", bridge.name);
        for port in ports_by_name(bridge) {
            let dp_port = port.dp_port.map_or_else(|| "none".to_owned(), |p| p.to_string());
            let number = shown_number(port);
            let _ = write!(
                out,
                "    {} {number}/{dp_port}: ({}",
                port.name,
                kind_text(daemon, port.kind)
            );
            if let Some(peer) = &port.peer {
                let _ = write!(out, ": peer={peer}");
            }
            let tunnel = port.tunnel.iter().flat_map(|config| config.options());
            let dummy = dummy_settings(port).into_iter().map(|(k, v)| (k.to_string(), v));
            let options = tunnel.map(|(k, v)| (k.to_string(), v.to_string())).chain(dummy);
            let pairs: Vec<String> = options.map(|(k, v)| format!("{k}={v}")).collect();
            if !pairs.is_empty() {
                let _ = write!(out, ": {}", pairs.join(", "));
            }
            out.push_str(")\n");
        }
    }
    out
}

fn dump_flows(daemon: &Daemon, bridge: &Bridge, verbose: bool, by_name: bool) -> String {
    let names = by_name.then(|| PortNames::of_datapath(daemon));
    let ports: HashSet<DpPort> = bridge.ports.values().filter_map(|p| p.dp_port).collect();
    let style = LineStyle { verbose, names: names.as_ref(), dpctl: false };
    let now = daemon.clock.now();
    let mut out = String::new();
    for flow in daemon.switch.datapath().dump() {
        if ports.contains(&DpPort(flow.flow.matching.key().in_port.get())) {
            out.push_str(&flow_line(&flow, now, style));
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offload_counters_follow_the_others() {
        assert_eq!(
            with_offload(
                "duration=0s, n_packets=0, n_bytes=0, priority=10,tcp,in_port=1,actions=output:2\n\
                 table_id=254, duration=62s, n_packets=3, n_bytes=42, actions=drop\n"
            ),
            "duration=0s, n_packets=0, n_bytes=0, n_offload_packets=0, n_offload_bytes=0, \
             priority=10,tcp,in_port=1,actions=output:2\n\
             table_id=254, duration=62s, n_packets=3, n_bytes=42, n_offload_packets=0, \
             n_offload_bytes=0, actions=drop\n"
        );
    }
}
