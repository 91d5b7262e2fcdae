// SPDX-License-Identifier: Apache-2.0
//! OpenFlow sockets of one bridge, made equal to its Controller rows.

use super::context::Context;
use super::desired::{DesiredBridge, DesiredController};
use super::socket_policy;
use super::state::{BridgeState, ControllerState, Remarks, Service, SwitchState};
use crate::openflow::SharedControl;
use crate::openflow::{Connector, Endpoint, Listener, Target};
use bridge::connection::{Kind, Options, RateLimit};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Returns true for targets that the switch connects to by itself.
pub(super) fn is_active(target: &str) -> bool {
    Target::parse(target, Path::new("/")).is_some()
}

/// Makes the sockets of a bridge equal to `wanted`. With `hold` (`flow-restore-wait`) there are no
/// controllers yet, so that no controller interferes with flows that are being restored.
pub(super) fn sync(
    control: &SharedControl,
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    files: Option<&tls::Files>,
    hold: bool,
    remarks: &mut Remarks,
) {
    let rows = if hold { &BTreeMap::new() } else { &wanted.controllers };
    if bridge.versions != wanted.versions {
        // Peers must negotiate the version again.
        close(context, bridge);
        context.connections.close_all(bridge.index, "protocols changed");
        bridge.versions = wanted.versions;
    }
    services(control, context, bridge, wanted, remarks);
    let stale: Vec<String> = bridge
        .controllers
        .iter()
        .filter(|(target, state)| {
            rows.get(*target).is_none_or(|w| !same(w, &state.wanted))
                || state.tls.as_ref() != needed(target, files)
        })
        .map(|(target, _)| target.clone())
        .collect();
    for target in stale {
        if let Some(state) = bridge.controllers.remove(&target) {
            if !matches!(state.service, Service::Failed) {
                let kind = kind_name(&state.service);
                tracing::info!(target: "connmgr", "{}: removed {kind} controller \"{target}\"", wanted.name);
            }
            stop(context, state.service);
        }
    }
    for (target, controller) in rows {
        if let Some(state) = bridge.controllers.get_mut(target) {
            if settings(controller) != settings(&state.wanted) {
                retune(context, &state.service, &options(wanted, controller), controller);
            }
            state.wanted = controller.clone(); // the same target in another row
            if !matches!(state.service, Service::Failed) {
                continue;
            }
        }
        let service =
            start(control, context, bridge, wanted, controller, files).unwrap_or_else(|error| {
                remarks.warn(format!("{}: {error}", wanted.name));
                Service::Failed
            });
        if !matches!(service, Service::Failed) {
            tracing::info!(target: "connmgr", "{}: added {} controller \"{target}\"", wanted.name, kind_name(&service));
        }
        let tls = needed(target, files).cloned();
        let since = bridge.controllers.get(target).map_or_else(|| context.clock.now(), |c| c.since);
        let wanted = controller.clone();
        let state = ControllerState { wanted, since, tls, service, written: None };
        bridge.controllers.insert(target.clone(), state);
    }
}

/// Returns the TLS files, when this target needs them. Other connections stay when files change.
fn needed<'a>(target: &str, files: Option<&'a tls::Files>) -> Option<&'a tls::Files> {
    files.filter(|_| target.starts_with("ssl:") || target.starts_with("pssl:"))
}

fn kind_name(service: &Service) -> &'static str {
    match service {
        Service::Active(_) => "primary",
        Service::Passive(_) => "service",
        Service::Failed => "failed",
    }
}

/// Returns true when the connection of one row serves the other row, too; the [`settings`] may
/// differ.
fn same(a: &DesiredController, b: &DesiredController) -> bool {
    (&a.target, a.service) == (&b.target, b.service)
}

/// Returns the settings that may change while a connection exists.
fn settings(w: &DesiredController) -> (u64, u64, Option<RateLimit>, u32, bool) {
    (w.max_backoff, w.inactivity_probe, w.limit, w.waiting_packets, w.async_messages)
}

/// Returns the options for the connections of a row.
fn options(wanted: &DesiredBridge, controller: &DesiredController) -> Options {
    let active = is_active(&controller.target);
    let kind = if active && !controller.service { Kind::Primary } else { Kind::Service };
    Options {
        inactivity_probe_ms: controller.inactivity_probe,
        packet_in_limit: controller.limit,
        waiting_packets: controller.waiting_packets,
        async_messages: controller.async_messages,
        ..Options::new(kind, &controller.target, wanted.versions)
    }
}

fn retune(
    context: &mut Context<'_>,
    service: &Service,
    options: &Options,
    controller: &DesiredController,
) {
    let backoff = Duration::from_millis(controller.max_backoff);
    match service {
        Service::Active(connector) => connector.reconfigure(options, backoff, context.connections),
        Service::Passive(listener) => listener.reconfigure(options, context.connections),
        Service::Failed => {}
    }
}

/// Opens the sockets `BRIDGE.mgmt` and `BRIDGE.snoop`.
fn services(
    control: &SharedControl,
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    for (suffix, kind) in [("mgmt", Kind::Service), ("snoop", Kind::Snoop)] {
        let name = format!("{}<->unix", wanted.name);
        let options = Options {
            waiting_packets: wanted.waiting_packets,
            ..Options::new(kind, &name, wanted.versions)
        };
        if let Some(listener) = bridge.services.get(suffix) {
            listener.reconfigure(&options, context.connections);
            continue;
        }
        let path = context.directories.run.join(format!("{}.{suffix}", wanted.name));
        let endpoint = Endpoint::Unix(path);
        match Listener::start(control, &endpoint, bridge.index, options, None) {
            Ok(listener) => {
                bridge.services.insert(suffix, listener);
                if kind == Kind::Service {
                    tracing::info!(target: "connmgr", "{}: added service controller \"{endpoint}\"", wanted.name);
                }
            }
            Err(error) => remarks.warn(format!("{}: {error}", wanted.name)),
        }
    }
}

fn start(
    control: &SharedControl,
    context: &Context<'_>,
    bridge: &BridgeState,
    wanted: &DesiredBridge,
    controller: &DesiredController,
    files: Option<&tls::Files>,
) -> Result<Service, String> {
    let text = &controller.target;
    if context.is_confined {
        socket_policy::check(text, &wanted.name, &context.directories.run)?;
    }
    let bad_tls = |error: std::io::Error| format!("controller {text}: TLS is not set up: {error}");
    let options = options(wanted, controller);
    if let Some(target) = Target::parse(text, &context.directories.run) {
        // A fault in the files is reported now. Each connection reads the files again.
        if let (Target::Tls(..), Some(files)) = (&target, files) {
            tls::connector(files).map_err(bad_tls)?;
        }
        let (backoff, tls) = (Duration::from_millis(controller.max_backoff), files.cloned());
        let connector = Connector::start(control, target, bridge.index, options, backoff, tls);
        return Ok(Service::Active(connector));
    }
    let endpoint = Endpoint::parse(text, &context.directories.run).map_err(|_| {
        format!("controller target \"{text}\" is no connection method; use tcp:IP[:PORT], ssl:IP[:PORT], unix:FILE, ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:FILE")
    })?;
    if let (Endpoint::Tls(_), Some(files)) = (&endpoint, files) {
        tls::acceptor(files).map_err(bad_tls)?;
    }
    Listener::start(control, &endpoint, bridge.index, options, files.cloned())
        .map(Service::Passive)
        .map_err(|e| e.to_string())
}

fn stop(context: &mut Context<'_>, service: Service) {
    match service {
        Service::Active(connector) => connector.close(context.connections, context.services),
        Service::Passive(listener) => listener.close(context.connections, context.services),
        Service::Failed => {}
    }
}

/// Closes all sockets of a bridge.
pub(super) fn close(context: &mut Context<'_>, bridge: &mut BridgeState) {
    for (_, state) in std::mem::take(&mut bridge.controllers) {
        stop(context, state.service);
    }
    for listener in std::mem::take(&mut bridge.services).into_values() {
        listener.close(context.connections, context.services);
    }
}

/// Returns the TLS files in force: those of the database, otherwise those of the command line.
/// Settings that the database does not have always come from the command line.
pub(super) fn files(state: &SwitchState) -> Option<tls::Files> {
    let files = state.tls.as_ref().or(state.tls_args.as_ref())?;
    Some(tls::Files {
        peer_ca_certificate: state.tls_peer_ca.clone(),
        policy: state.tls_policy.clone(),
        ..files.clone()
    })
}
