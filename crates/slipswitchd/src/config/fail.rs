// SPDX-License-Identifier: Apache-2.0
//! The fail mode: the forwarding of a bridge without controllers.
//!
//! Without any controller a standalone bridge has one ordinary rule, `priority=0 actions=NORMAL`,
//! that dumps show and that can be deleted. The bridge starts with the rule, and gets it again when
//! its controllers or its mode go away (all other rules, groups and meters go then, as in OVS).
//!
//! With controllers a standalone bridge starts empty. When no controller has admitted the switch
//! ([`bridge::connection`]) for three probe intervals the bridge *fails open*: all rules go, and a
//! hidden rule above all others forwards by NORMAL until a controller admits the switch. Then only the
//! hidden rule goes (`ovs-vswitchd.conf.db(5)`, `Bridge:fail_mode`). Without probes (interval 0) the
//! bridge fails open when no controller is connected and the last message of one is a second old, as
//! in OVS. A secure bridge does what its tables say.

use super::context::Context;
use super::controllers::is_active;
use super::desired::{DesiredBridge, DesiredController, FailMode};
use super::socket_policy;
use super::state::{BridgeState, Fail, Open};
use bridge::rule::FAIL_OPEN;
use bridge::snapshot::BridgeIndex;
use openflow::action::Actions;
use openflow::{Action, PortNo};
use std::sync::Arc;

/// Milliseconds without a controller before which no bridge fails open: OVS counts whole seconds.
const LEAST_TIME_ALONE: u64 = 1000;
/// Milliseconds between two log lines of a bridge that stays open, as in OVS.
const LOG_INTERVAL: u64 = 60_000;
/// Milliseconds between two probes for admission, as in OVS.
const PROBE_INTERVAL: i64 = 2000;

/// Returns the actions that forward by NORMAL.
pub(super) fn normal() -> Actions {
    Arc::from([Action::Output { port: PortNo::NORMAL, max_len: 0 }])
}

/// Returns true for a controller that the bridge connects to and that decides about its rules. A
/// target that the daemon may not connect to does not count: it never brings a controller.
fn is_primary(context: &Context<'_>, bridge: &str, controller: &DesiredController) -> bool {
    let target = &controller.target;
    let is_allowed = !context.is_confined
        || socket_policy::check(target, bridge, &context.directories.run).is_ok();
    !controller.service && is_active(target) && is_allowed
}

/// Follows a new mode, and controllers that were added or removed. `fresh` is true for a new bridge.
pub(super) fn sync(
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    fresh: bool,
) {
    let has_controllers = wanted.controllers.values().any(|c| is_primary(context, &wanted.name, c));
    let turned = has_controllers != bridge.fail.has_controllers;
    let remoded = wanted.fail_mode != bridge.fail.mode;
    bridge.fail.mode = wanted.fail_mode;
    bridge.fail.has_controllers = has_controllers;
    if fresh || turned || remoded && !has_controllers {
        flush(context, bridge.index, &mut bridge.fail, fresh);
    } else if remoded && wanted.fail_mode == FailMode::Secure {
        close(context, bridge.index, &mut bridge.fail);
    }
}

/// Removes all rules, groups and meters, and adds the first rule if the mode asks for it.
fn flush(context: &mut Context<'_>, index: BridgeIndex, fail: &mut Fail, fresh: bool) {
    let now = context.clock.now();
    fail.open = None;
    context.switch.counters.flushes += 1;
    let mut changes = if fresh { Vec::new() } else { context.switch.clear_bridge(index) };
    let Some(bridge) = context.switch.bridge_mut(index) else { return };
    if !fail.has_controllers && fail.mode == FailMode::Standalone {
        match bridge.pipeline.add_default(normal(), now) {
            Ok(added) => changes.extend(added),
            Err(error) => {
                tracing::warn!(target: "bridge", "bridge {}: cannot add its first rule ({error})", bridge.name)
            }
        }
    }
    context.changed(index, changes);
}

/// Opens a bridge that no controller has admitted for long enough, and closes one that a controller
/// has admitted. It is called about twice a second. With `hold` the bridge does not connect to
/// controllers yet, so it does not open.
pub(super) fn tick(context: &mut Context<'_>, bridge: &mut BridgeState, hold: bool) {
    let fail = &mut bridge.fail;
    if hold || fail.mode == FailMode::Secure || !fail.has_controllers {
        return;
    }
    if context.connections.is_admitted(bridge.index) {
        close(context, bridge.index, fail);
        return;
    }
    let now = context.clock.now();
    let controllers = || bridge.controllers.values().filter(|c| !c.wanted.service);
    let probes = controllers().map(|c| c.wanted.inactivity_probe);
    let longest = probes.max().unwrap_or(0).saturating_mul(3).max(LEAST_TIME_ALONE);
    // A controller that was configured later gets the whole time, too.
    let since = controllers().map(|c| c.since).max();
    let Some(last) = since.max(context.connections.last_admitted(bridge.index, now)) else {
        return;
    };
    let alone = now.since(last);
    let name = context.switch.bridge(bridge.index).map_or("", |b| &b.name);
    match &mut fail.open {
        None if alone >= longest => {
            tracing::warn!(
                target: "fail_open",
                "{name}: could not connect to controller, or no controller admitted the switch, for {} seconds, failing open",
                alone / 1000,
            );
            open(context, bridge.index, fail, alone);
        }
        None => {}
        Some(open) => {
            if alone >= open.logged.saturating_add(LOG_INTERVAL) {
                open.logged = alone;
                tracing::info!(
                    target: "fail_open",
                    "{name}: still in fail-open mode after {} seconds without a controller",
                    alone / 1000,
                );
            }
            if now >= open.next_probe {
                open.next_probe = now + PROBE_INTERVAL;
                context.connections.probe_admission(bridge.index, context.switch, now);
            }
        }
    }
}

/// Removes all rules and forwards by NORMAL, after `alone` milliseconds without a controller.
fn open(context: &mut Context<'_>, index: BridgeIndex, fail: &mut Fail, alone: u64) {
    flush(context, index, fail, false);
    let now = context.clock.now();
    let Some(bridge) = context.switch.bridge_mut(index) else { return };
    match bridge.pipeline.add_hidden(0, FAIL_OPEN, flow::Match::ANY, normal(), now) {
        Ok(_) => fail.open = Some(Open { logged: alone, next_probe: now }),
        Err(error) => {
            tracing::warn!(target: "fail_open", "{}: cannot add the rule to fail open ({error})", bridge.name);
        }
    }
}

/// Ends forwarding by NORMAL, if the bridge is open.
fn close(context: &mut Context<'_>, index: BridgeIndex, fail: &mut Fail) {
    if fail.open.take().is_none() {
        return;
    }
    let Some(bridge) = context.switch.bridge_mut(index) else { return };
    tracing::info!(target: "fail_open", "{}: no longer in fail-open mode", bridge.name);
    bridge.pipeline.remove_hidden(0, FAIL_OPEN, &flow::Match::ANY); // controllers do not see it
}
