// SPDX-License-Identifier: Apache-2.0
//! The fail mode: what a bridge does without controllers.
//!
//! Without any controller a standalone bridge has one ordinary rule, `priority=0
//! actions=NORMAL`, that people see and may delete; it comes with the bridge, and again when
//! its controllers or its mode go away (all other rules go then, as in OVS). With controllers
//! it starts out empty, and forwards by a hidden rule above all others once no controller was
//! connected for three probe intervals, until one is back (`ovs-vswitchd.conf.db(5)`,
//! `Bridge:fail_mode`). A secure bridge does what its tables say.

use super::confine;
use super::controllers::is_active;
use super::state::{BridgeState, Fail};
use super::wanted::{FailMode, WantedBridge, WantedController};
use crate::daemon::Daemon;
use bridge::pipeline::Change;
use bridge::snapshot::BridgeIndex;
use openflow::action::Actions;
use openflow::{Action, PortNo};
use std::sync::Arc;

/// Probe interval that counts for the fail mode where probes are off.
const DEFAULT_PROBE: u64 = 5000;

fn normal() -> Actions {
    Arc::from([Action::Output { port: PortNo::NORMAL, max_len: 0 }])
}

/// True for a controller that the bridge connects to and leaves to decide: not for a target that
/// it is kept from, by which no controller can ever come.
fn is_primary(d: &Daemon, bridge: &str, controller: &WantedController) -> bool {
    let target = &controller.target;
    let is_allowed =
        !d.configuration.confined || confine::check(target, bridge, &d.directories.run).is_ok();
    !controller.service && is_active(target) && is_allowed
}

/// Takes up a new mode or the coming and going of controllers; `fresh` for a new bridge.
pub(super) fn sync(d: &mut Daemon, bridge: &mut BridgeState, wanted: &WantedBridge, fresh: bool) {
    let has_controllers = wanted.controllers.values().any(|c| is_primary(d, &wanted.name, c));
    let turned = has_controllers != bridge.fail.has_controllers;
    let remoded = wanted.fail_mode != bridge.fail.mode;
    bridge.fail.mode = wanted.fail_mode;
    if turned {
        bridge.fail.has_controllers = has_controllers;
        bridge.fail.since = d.clock.now();
    }
    if fresh || turned || remoded && !has_controllers {
        flush(d, bridge.index, &mut bridge.fail, fresh);
    } else if remoded && wanted.fail_mode == FailMode::Secure {
        set_open(d, bridge.index, &mut bridge.fail, false);
    }
}

/// Empties the tables and adds the first rule where there is to be one.
fn flush(d: &mut Daemon, index: BridgeIndex, fail: &mut Fail, fresh: bool) {
    let now = d.clock.now();
    fail.open = false;
    let Some(bridge) = d.switch.bridge_mut(index) else { return };
    let mut changes = if fresh { Vec::new() } else { bridge.pipeline.clear_rules() };
    if !fail.has_controllers && fail.mode == FailMode::Standalone {
        match bridge.pipeline.add_default(normal(), now) {
            Ok(added) => changes.extend(added),
            Err(error) => {
                tracing::warn!(target: "bridge", "bridge {}: cannot add its first rule ({error})", bridge.name)
            }
        }
    }
    d.changed(index, changes);
}

/// Opens or closes a bridge by how its controllers do; called now and then. With `hold` no
/// controller is connected to yet, and none is missed.
pub(super) fn tick(d: &mut Daemon, bridge: &mut BridgeState, hold: bool) {
    let now = d.clock.now();
    if hold {
        bridge.fail.since = now;
        return;
    }
    if bridge.fail.mode == FailMode::Secure || !bridge.fail.has_controllers {
        return;
    }
    let probes = bridge.controllers.values().filter(|c| !c.wanted.service).map(|c| {
        match c.wanted.inactivity_probe {
            0 => DEFAULT_PROBE,
            ms => ms,
        }
    });
    let patience = probes.max().unwrap_or(DEFAULT_PROBE).saturating_mul(3);
    // Controllers of before the present ones do not count.
    let seen = d.connections.primary_last_connected(bridge.index, now);
    let last = seen.map_or(bridge.fail.since, |seen| seen.max(bridge.fail.since));
    let is_alone = now.since(last) >= patience;
    if is_alone && !bridge.fail.open {
        tracing::warn!(
            target: "fail_open",
            "{}: could not connect to controller for {} seconds, failing open",
            d.switch.bridge(bridge.index).map_or("", |b| &b.name),
            now.since(last) / 1000,
        );
    } else if !is_alone && bridge.fail.open {
        tracing::info!(
            target: "fail_open",
            "{}: no longer in fail-open mode",
            d.switch.bridge(bridge.index).map_or("", |b| &b.name),
        );
    }
    set_open(d, bridge.index, &mut bridge.fail, is_alone);
}

fn set_open(d: &mut Daemon, index: BridgeIndex, fail: &mut Fail, open: bool) {
    if fail.open == open {
        return;
    }
    let now = d.clock.now();
    let Some(bridge) = d.switch.bridge_mut(index) else { return };
    if open {
        let added = bridge.pipeline.add_hidden(0, u16::MAX, flow::Match::ANY, normal(), now);
        if let Err(error) = added {
            tracing::warn!(target: "fail_open", "{}: cannot add the rule to fail open ({error})", bridge.name);
            return;
        }
    } else {
        let _: Vec<Change> = bridge.pipeline.remove_hidden(); // hidden: nobody is told
    }
    fail.open = open;
}
