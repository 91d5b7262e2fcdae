// SPDX-License-Identifier: Apache-2.0
//! Tunnels: `tnl/ports/`, `tnl/egress_port_range`, `ofproto/tnl-push-pop`, `ofproto/list-tunnels`.

use super::Commands;
use bridge::tunnel::{Listener, Output};
use flow::text::{no_names, odp};
use std::sync::Arc;
use tunnel::SourcePorts;

pub(super) fn register(commands: &Commands<'_>) {
    commands.change("tnl/egress_port_range", "min max", 0, 2, |daemon, call| {
        let (Some(min), Some(max)) = (call.arg(0), call.arg(1)) else {
            let SourcePorts { first, last } = daemon.switch.source_ports();
            return Ok(format!("Tunnel UDP source port range: {first}-{last}\n"));
        };
        // Open vSwitch reports both without an error.
        let Some(min) = udp_port(min) else { return Ok("Invalid min.".to_owned()) };
        let Some(max) = udp_port(max) else { return Ok("Invalid max.".to_owned()) };
        let (first, last) = (min.min(max), min.max(max));
        daemon.switch.set_source_ports(SourcePorts { first, last });
        Ok("OK".to_owned())
    });
    commands.change("ofproto/tnl-push-pop", "[on]|[off]", 1, 1, |daemon, call| {
        let (output, text) = match call.arg(0).map(str::to_ascii_lowercase).as_deref() {
            Some("on") => (Output::Push, "on"),
            Some("off") => (Output::Set, "off"),
            _ => return Err("Invalid argument".to_owned()),
        };
        daemon.switch.set_tunnel_output(output);
        Ok(format!("Tunnel push-pop {text}"))
    });
    commands.change("tnl/ports/show", "-v", 0, 1, |daemon, call| {
        daemon.switch.publish(); // earlier changes must be visible
        let is_verbose = call.arg(0).is_some_and(|arg| arg.eq_ignore_ascii_case("-v"));
        let snapshot = daemon.switch.slow_path().published.newest();
        let listening = &snapshot.tunnels.listening;
        let mut lines: Vec<String> = if is_verbose {
            let line = |(listener, matching): (&Listener, flow::Match)| {
                let style = odp::Style::default();
                let flow = odp::format(matching.key(), matching.mask(), style, &no_names);
                format!("{} ({}) : {flow}\n", listener.name, listener.number)
            };
            listening.endpoints().map(line).collect()
        } else {
            let line = |listener: &Arc<Listener>| {
                let Listener { name, number, vports, .. } = &**listener;
                format!("{name} ({number}) ref_cnt={vports}\n")
            };
            listening.listeners().iter().map(line).collect()
        };
        lines.sort();
        Ok("Listening ports:\n".to_owned() + &lines.concat())
    });
    commands.show("slipswitch/tunnel-helpers", "", 0, 0, |daemon, _| {
        let reports = daemon.configuration.tunnel_helpers(daemon.placed.as_ref());
        Ok(reports.iter().map(|report| format!("{}: {}\n", report.title, report.text)).collect())
    });
    commands.show("ofproto/list-tunnels", "", 0, 0, |daemon, _| {
        let ports = daemon.switch.bridges().flat_map(|b| b.ports.values());
        let mut lines: Vec<String> = ports
            .filter_map(|port| Some(port.tunnel.as_ref()?.line(&port.name, port.dp_port?) + "\n"))
            .collect();
        lines.sort();
        Ok(lines.concat())
    });
}

/// Reads a UDP port as C's atoi does.
fn udp_port(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok().filter(|port| *port != 0)
}
