// SPDX-License-Identifier: Apache-2.0
//! Quality of service (`qos/`).

use super::Commands;
use crate::daemon::Daemon;
use bridge::port::Port;
use netdev::Device;
use std::fmt::Write as _;
use unixctl::Invocation;

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("qos/show", "interface", 1, 1, |daemon, call| {
        let port = port(daemon, call)?;
        let text = port.device.as_deref().and_then(|device| qos_text(&port.name, device));
        Ok(text.unwrap_or_else(|| format!("QoS not configured on {}\n", port.name)))
    });
    commands.show("qos/show-types", "interface", 1, 1, |daemon, call| {
        let port = port(daemon, call)?;
        let types = port.device.as_deref().map(Device::qos_types).unwrap_or_default();
        if types.is_empty() {
            return Ok(format!("No QoS types supported for interface: {}\n", port.name));
        }
        Ok(types.iter().map(|name| format!("QoS type: {name}\n")).collect())
    });
}

fn port<'a>(daemon: &'a Daemon, call: Invocation<'_>) -> Result<&'a Port, String> {
    call.arg(0)
        .and_then(|name| daemon.switch.bridges().find_map(|bridge| bridge.port_by_name(name)))
        .ok_or_else(|| "no such interface".to_owned())
}

/// Returns the QoS of a device with the counters of its queues; `None`: it has none.
fn qos_text(name: &str, device: &dyn Device) -> Option<String> {
    let qos = device.qos()?;
    let mut out = format!("QoS: {name} {}\n", qos.kind);
    // A String takes all writes.
    for (option, value) in &qos.options {
        let _ = writeln!(out, "{option}: {value}");
    }
    for (queue, options) in &qos.queues {
        let _ = match queue {
            0 => writeln!(out, "\nDefault:"),
            queue => writeln!(out, "\nQueue {queue}:"),
        };
        for (option, value) in options {
            let _ = writeln!(out, "  {option}: {value}");
        }
        if let Some(stats) = device.queue_stats(*queue) {
            let _ = writeln!(out, "  tx_packets: {}", stats.tx_packets);
            let _ = writeln!(out, "  tx_bytes: {}", stats.tx_bytes);
            let _ = writeln!(out, "  tx_errors: {}", stats.tx_errors);
        }
    }
    Some(out)
}
