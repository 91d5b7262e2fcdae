// SPDX-License-Identifier: Apache-2.0
//! `slipswitch/tiers`: the tiers of each port, and the reasons why it is not on others.

use super::ports::sorted;
use super::{Answer, Commands, tunnel_mtu};
use crate::daemon::Daemon;
use datapath::PortNo;
use placement::PlacedDatapath;
use std::fmt::Write as _;

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("slipswitch/tiers", "[PORT]", 0, 1, |daemon, call| tiers(daemon, call.arg(0)));
}

fn tiers(daemon: &Daemon, wanted: Option<&str>) -> Answer {
    let ports = sorted(&**daemon.switch.datapath());
    if let Some(name) = wanted
        && ports.iter().all(|p| p.name != name)
    {
        return Err(format!("{name}: no such port"));
    }
    let mut out = String::new();
    let too_small = tunnel_mtu::lines(daemon);
    for port in ports.iter().filter(|p| wanted.is_none_or(|name| p.name == name)) {
        let more = too_small.get(&port.name).map_or("", String::as_str);
        // A String takes all writes.
        let _ = write!(out, "{}\n{}{more}", port.name, lines(daemon, port.number));
    }
    Ok(out)
}

/// Returns a line for each tier: its state for `port`.
pub(super) fn lines(daemon: &Daemon, port: PortNo) -> String {
    let Some(placed) = &daemon.placed else { return "  userspace  yes\n".to_owned() };
    let mut out = String::new();
    for state in placed.tiers(port).unwrap_or_default() {
        let name = state.tier.name();
        let _ = match state.state {
            Ok(()) => writeln!(out, "{}", format!("  {name:<10} yes  {}", state.how).trim_end()),
            Err(reason) => writeln!(out, "  {name:<10} no   {reason}"),
        };
    }
    out + &about(placed, port)
}

/// Returns what the providers of tiers report about `port`, a line each.
pub(super) fn about(placed: &PlacedDatapath, port: PortNo) -> String {
    placed.about_port(port).iter().map(|line| format!("  {line}\n")).collect()
}
