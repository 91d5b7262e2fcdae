// SPDX-License-Identifier: Apache-2.0
//! Lines for people about ports whose packets do not fit the underlay with their outer headers.

use crate::daemon::Daemon;
use bridge::bridge::Bridge;
use std::collections::BTreeMap;
use underlay::Query;

/// Returns lines by the names of the devices by which tunnels leave and that are too small: one for
/// each bridge with ports of a larger MTU.
pub(super) fn lines(daemon: &Daemon) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for bridge in daemon.switch.bridges() {
        for (device, (mtu, overhead)) in exits(daemon, bridge) {
            let most = mtu.saturating_sub(overhead);
            let ports = bridge.ports.values();
            let names: Vec<&str> = ports
                .filter(|port| !port.is_virtual() && port.status.admin_up && port.status.mtu > most)
                .map(|port| port.name.as_str())
                .collect();
            if !names.is_empty() {
                let line = format!(
                    "  tunnels of {}: packets of more than {most} bytes do not fit its MTU of {mtu} \
                     with {overhead} bytes of outer headers: lower the MTU of {} and of their other \
                     ends, or raise that of {device}\n",
                    bridge.name,
                    names.join(", ")
                );
                all.entry(device).or_default().push_str(&line);
            }
        }
    }
    all
}

/// Returns the devices by which tunnels of a bridge leave, each with its MTU and the most bytes of
/// outer headers.
fn exits(daemon: &Daemon, bridge: &Bridge) -> BTreeMap<String, (u32, u32)> {
    let mut exits: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for config in bridge.ports.values().filter_map(|port| port.tunnel.as_ref()) {
        let remote = config.remote.fixed();
        let Some(found) = remote.and_then(|to| daemon.underlay.lookup(&Query::to(to))) else {
            continue;
        };
        let Some(mtu) = found.mtu.filter(|_| !found.is_local) else { continue };
        let (least, most) = exits.entry(found.device.to_string()).or_insert((mtu, 0));
        (*least, *most) = ((*least).min(mtu), (*most).max(config.overhead()));
    }
    exits
}
