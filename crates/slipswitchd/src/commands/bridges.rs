// SPDX-License-Identifier: Apache-2.0
//! Bridges and their datapath: `bridge/`, `ofproto/list`, `dpif/`.

use super::flow_line::{LineStyle, flow_line};
use super::ports::{PortNames, datapath_type, kind_text};
use super::{ANY, Commands};
use crate::daemon::Daemon;
use crate::features;
use bridge::bridge::Bridge;
use bridge::connection::format_flows;
use bridge::tunnel::Output;
use datapath::PortNo as DpPort;
use hashbrown::HashSet;
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
    commands.show("ofproto/list", "", 0, 0, |daemon, _| {
        Ok(sorted(daemon).iter().map(|b| format!("{}\n", b.name)).collect())
    });
    commands.show("dpif/dump-dps", "", 0, 0, |daemon, _| {
        let kind = datapath_type(daemon);
        Ok(sorted(daemon).iter().map(|b| format!("{kind}@{}\n", b.name)).collect())
    });
    commands.show("dpif/show", "", 0, 0, |daemon, _| Ok(show(daemon)));
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
        if call.arg(1) == Some(PUSH_POP) {
            daemon.switch.set_tunnel_output(match call.arg(2) {
                Some("true") => Output::Push,
                Some("false") => Output::Set,
                _ => return Err("Boolean value expected".to_owned()),
            });
            return Ok(String::new());
        }
        super::unsupported(
            call.command,
            "what the datapath can do is fixed; see dpif/show-dp-features",
        )
    });
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
        let mut ports: Vec<_> = bridge.ports.values().collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for port in ports {
            let dp_port = port.dp_port.map_or_else(|| "none".to_owned(), |p| p.to_string());
            // The bridge's own port goes by OpenFlow 1.0's number, as in OVS.
            let number = port.number.to_u16().map_or(port.number.0, u32::from);
            let _ = write!(
                out,
                "    {} {number}/{dp_port}: ({}",
                port.name,
                kind_text(daemon, port.kind)
            );
            if let Some(peer) = &port.peer {
                let _ = write!(out, ": peer={peer}");
            }
            if let Some(config) = &port.tunnel {
                let options = config.options();
                let pairs: Vec<String> = options.iter().map(|(k, v)| format!("{k}={v}")).collect();
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
