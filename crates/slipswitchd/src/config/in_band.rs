// SPDX-License-Identifier: Apache-2.0
//! In-band control: rules by which a bridge reaches its controllers over its own ports
//! ([`bridge::in_band`]).
//!
//! As in OVS a controller is in-band unless its `connection_mode` is `out-of-band`, and so is a
//! manager: a bridge with `tcp:` or `ssl:` targets that are IPv4 addresses has the rules, unless its
//! `other_config:disable-in-band` is true. Unlike in OVS a controller at a loopback address has none:
//! its packets never cross a bridge.

use super::context::Context;
use super::fail;
use super::state::BridgeState;
use crate::openflow::{OPENFLOW_PORT, Target};
use bridge::in_band::{InBandRule, Remote, rules};
use bridge::snapshot::BridgeIndex;
use openflow::Action;
use openflow::action::Actions;
use ovsdb::{Replica, Row};
use packet::Mac;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;
use underlay::{Query, Underlay};

/// TCP port of OVSDB (RFC 7047, section 7).
const OVSDB_PORT: u16 = 6640;

/// The settings of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredInBand {
    /// Controllers and managers, in order.
    pub remotes: BTreeSet<SocketAddrV4>,
    /// The queue of their packets (`other_config:in-band-queue`).
    pub queue: Option<u32>,
}

/// The rules of a bridge.
#[derive(Debug, Default)]
pub(super) struct InBand {
    wanted: DesiredInBand,
    installed: Vec<InBandRule>,
}

/// Reads the settings of the bridge of this row.
pub(super) fn read(replica: &Replica, root: &Row, bridge: &Row) -> DesiredInBand {
    let other = bridge.map("other_config");
    if other.get("disable-in-band") == Some("true") {
        return DesiredInBand::default();
    }
    let mut remotes = BTreeSet::new();
    for (table, owner, column, default_port) in [
        ("Controller", bridge, "controller", OPENFLOW_PORT),
        ("Manager", root, "manager_options", OVSDB_PORT),
    ] {
        for row in owner.uuids(column).filter_map(|uuid| replica.row(table, uuid)) {
            if row.str("connection_mode") != "out-of-band" {
                remotes.extend(address(row.str("target"), default_port));
            }
        }
    }
    let queue = other.get("in-band-queue").and_then(|text| text.parse().ok());
    DesiredInBand { remotes, queue }
}

/// Returns the address of a target to which the switch or the database server connects by TCP, unless
/// it is a loopback address.
fn address(target: &str, default_port: u16) -> Option<SocketAddrV4> {
    let (host, port) = match Target::parse_with_port(target, Path::new("/"), default_port)? {
        Target::Tcp(host, port) | Target::Tls(host, port) => (host, port),
        Target::Unix(_) => return None,
    };
    let ip: Ipv4Addr = host.parse().ok()?;
    (!ip.is_loopback()).then(|| SocketAddrV4::new(ip, port))
}

/// Follows new settings.
pub(super) fn sync(context: &mut Context<'_>, bridge: &mut BridgeState, wanted: &DesiredInBand) {
    if bridge.in_band.wanted == *wanted {
        return;
    }
    let is_requeued = bridge.in_band.wanted.queue != wanted.queue;
    bridge.in_band.wanted = wanted.clone();
    let index = bridge.index;
    if is_requeued {
        remove(context, index, std::mem::take(&mut bridge.in_band.installed));
    }
    let is_on = !wanted.remotes.is_empty();
    if context.switch.bridge(index).is_some_and(|b| b.config.in_band != is_on)
        && let Some(b) = context.switch.bridge_mut(index)
    {
        b.config.in_band = is_on;
    }
    tick(context, bridge);
}

/// Makes the rules those that controllers, routes and neighbours ask for now. It is called about twice
/// a second, and finds nothing to do unless one of them has changed, or all rules were removed.
pub(super) fn tick(context: &mut Context<'_>, bridge: &mut BridgeState) {
    let in_band = &mut bridge.in_band;
    if in_band.wanted.remotes.is_empty() && in_band.installed.is_empty() {
        return;
    }
    let remotes: Vec<Remote> =
        in_band.wanted.remotes.iter().map(|a| remote(context.underlay, *a)).collect();
    let local = Some(bridge.mac).filter(|mac| *mac != Mac::default());
    let wanted = rules(local, &remotes);
    let index = bridge.index;
    let Some(pipeline) = context.switch.bridge(index).map(|b| &b.pipeline) else { return };
    let (stay, go): (Vec<_>, Vec<_>) =
        std::mem::take(&mut in_band.installed).into_iter().partition(|rule| wanted.contains(rule));
    let missing: Vec<&InBandRule> = wanted
        .iter()
        .filter(|rule| !stay.contains(rule) || !pipeline.has_hidden(0, rule.0, &rule.1))
        .collect();
    remove(context, index, go);
    if !missing.is_empty()
        && let Some(b) = context.switch.bridge_mut(index)
    {
        let (actions, now) = (actions(in_band.wanted.queue), context.clock.now());
        for (priority, matching) in missing {
            let added = b.pipeline.add_hidden(0, *priority, *matching, actions.clone(), now);
            if let Err(error) = added {
                tracing::warn!(target: "in_band", "{}: cannot add a rule for in-band control ({error})", b.name);
            }
        }
    }
    in_band.installed = wanted;
}

fn remove(context: &mut Context<'_>, index: BridgeIndex, rules: Vec<InBandRule>) {
    if rules.is_empty() {
        return;
    }
    let Some(bridge) = context.switch.bridge_mut(index) else { return };
    for (priority, matching) in rules {
        bridge.pipeline.remove_hidden(0, priority, &matching); // controllers do not see hidden rules
    }
}

fn actions(queue: Option<u32>) -> Actions {
    let queue = queue.map(Action::SetQueue);
    queue.into_iter().chain(fail::normal().iter().cloned()).collect()
}

/// Finds the next hop to a remote in the host's routes and neighbours.
fn remote(underlay: &Underlay, address: SocketAddrV4) -> Remote {
    let destination = IpAddr::V4(*address.ip());
    let found = underlay.lookup(&Query::to(destination)).filter(|found| !found.is_local);
    let next_hop =
        found.and_then(|found| underlay.neighbour(&found.device, found.neighbour(destination)));
    Remote { address, next_hop }
}

#[cfg(test)]
mod tests {
    use super::{OPENFLOW_PORT, OVSDB_PORT, address};

    #[test]
    fn remotes_are_ipv4_addresses_beyond_the_host() {
        let text = |target, port| address(target, port).map(|a| a.to_string());
        assert_eq!(text("tcp:10.0.0.1", OPENFLOW_PORT).as_deref(), Some("10.0.0.1:6653"));
        assert_eq!(text("ssl:10.0.0.1:7000", OPENFLOW_PORT).as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(text("tcp:10.0.0.1", OVSDB_PORT).as_deref(), Some("10.0.0.1:6640"));
        assert_eq!(text("ssl:10.0.0.1:7000", OVSDB_PORT).as_deref(), Some("10.0.0.1:7000"));
        for other in ["tcp:127.0.0.1", "tcp:[::1]:6653", "unix:a", "ptcp:6640", "tcp:host", ""] {
            assert_eq!(text(other, OPENFLOW_PORT), None, "{other}");
        }
    }
}
