// SPDX-License-Identifier: Apache-2.0
//! The switch, made what the database says. (OVS: vswitchd/bridge.c.)
//!
//! # What it is
//! [`reconfigure`] reads the replica of the database into plain structures (`wanted`), and
//! compares them with what was made before (`state`); only differences are carried out:
//! removing first, then adding, then settings. What was made is written back in the same step,
//! `cur_cfg` with it, so that `ovs-vsctl` goes on at once. [`status_tick`] writes what changes
//! by itself: link states, statistics, controllers.
//!
//! # Invariants
//! - Nothing is changed while the database is not there, or while another daemon holds the lock
//!   `ovs_vswitchd`: packets go on as configured last. After a reconnection the same comparison
//!   reconciles.
//! - A row that makes no sense never stops the others: an Interface gets its `error` column,
//!   everything else a line in the log (once, until it changes), and a default.
//! - A port that is wanted as it is, is not touched, whatever else changes.
//! - No borrow of the daemon is held across an `await`.
//!
//! # Which side it errs on
//! A port whose own device vanished is closed, and its number kept for its return.
//!
//! # What we know it does not do
//! Mirrors, NetFlow, sFlow, IPFIX, STP, RSTP, multicast snooping, bonds other than
//! active-backup, LACP, QoS, BFD, CFM, LLDP, tunnels and in-band control are later work: one WARN
//! for each row and column says that the setting is ignored.

mod address;
mod bridges;
mod controllers;
mod counts;
mod desired;
mod device;
mod fail;
mod host;
mod idle;
mod interfaces;
mod offload;
mod socket_policy;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod tunables;
mod vlan;

pub use idle::time_until_next_deadline;
pub(crate) use tunables::upcall_share;

use crate::args::{Args, CaCert, DummyLevel};
use crate::daemon::{Daemon, Shared};
use desired::Desired;
use ovsdb::{
    Client, ClientOptions, MonitorSpec, Outcome, Remote, RemoteError, Replica, SessionOptions,
    Transaction,
};
use process::Dirs;
use state::State;
use status::Extent;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The lock that the daemon holds while it serves a database, as OVS's does.
const LOCK: &str = "ovs_vswitchd";
/// How long the server may take to say whether the lock is ours, before a person is told.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// How long the database may be away, before a person is told. It may be restarted.
const DATABASE_PATIENCE: Duration = Duration::from_secs(30);

/// What the database said, and what was made of it.
#[derive(Default)]
pub struct Configuration {
    client: Option<Rc<Client>>,
    /// The database may not name any Unix socket of the host.
    confined: bool,
    state: State,
}

impl Configuration {
    /// Connects to the database of the command line. Call within a tokio `LocalSet`.
    ///
    /// # Errors
    /// The database's address makes no sense.
    pub fn start(args: &Args, dirs: &Dirs) -> Result<Configuration, RemoteError> {
        let remotes = Remote::parse_list(&args.database(dirs), &dirs.run)?;
        let tls_args = tls_of(args);
        let options = ClientOptions {
            session: SessionOptions { lock: Some(LOCK.to_owned()), ..SessionOptions::default() },
            tls: tls_args.clone(),
            ..ClientOptions::default()
        };
        let client = Client::start(remotes, Configuration::monitor_spec(), options);
        let state = State {
            tls_args,
            tls_policy: args.ssl.policy.clone(),
            tls_peer_ca: args.ssl.peer_ca_cert.clone(),
            ..State::default()
        };
        let confined = !args.no_self_confinement;
        Ok(Configuration { client: Some(Rc::new(client)), confined, state })
    }

    /// Waits until there may be something for [`reconfigure`]; for ever without a database. The
    /// future borrows nothing. One at a time.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        let client = self.client.clone();
        async move {
            match client {
                Some(client) => client.changed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The connection to the database.
    pub fn client(&self) -> Option<&Rc<Client>> {
        self.client.as_ref()
    }

    /// True when the database can be read and written.
    pub fn is_ready(&self) -> bool {
        self.client.as_ref().is_some_and(|client| is_ready(client))
    }

    /// A configuration was made since the start.
    pub fn is_configured(&self) -> bool {
        self.state.configured
    }

    /// `other_config:vlan-limit`; 0 is no limit.
    pub fn vlan_limit(&self) -> u64 {
        self.state.tunables.vlan_limit
    }

    /// Counters of configuration, for `coverage/show`.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.state.counts.all().into_iter()
    }

    /// True when the bridge was made.
    pub fn has_bridge(&self, bridge: &str) -> bool {
        self.state.bridges.contains_key(bridge)
    }

    /// True when a bridge of one of these types was made.
    pub fn has_bridge_of_type(&self, types: &[&str]) -> bool {
        self.state.bridges.values().any(|bridge| types.contains(&bridge.datapath_type.as_str()))
    }

    /// Tables and columns that are read and written.
    pub fn monitor_spec() -> MonitorSpec {
        MonitorSpec::new("Open_vSwitch")
            .table("Open_vSwitch", ["bridges", "ssl", "other_config", "next_cfg"])
            .written(
                "Open_vSwitch",
                [
                    "cur_cfg",
                    "iface_types",
                    "datapath_types",
                    "dpdk_initialized",
                    "dpdk_version",
                    "statistics",
                ],
            )
            .table("SSL", ["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"])
            .table(
                "Bridge",
                [
                    "name",
                    "datapath_type",
                    "ports",
                    "controller",
                    "protocols",
                    "fail_mode",
                    "other_config",
                    "flood_vlans",
                    "flow_tables",
                    "mirrors",
                    "netflow",
                    "sflow",
                    "ipfix",
                    "stp_enable",
                    "rstp_enable",
                    "mcast_snooping_enable",
                    "auto_attach",
                ],
            )
            .written("Bridge", ["datapath_id", "datapath_version"])
            .table(
                "Port",
                [
                    "name",
                    "interfaces",
                    "tag",
                    "trunks",
                    "cvlans",
                    "vlan_mode",
                    "protected",
                    "other_config",
                    "bond_mode",
                    "bond_updelay",
                    "bond_downdelay",
                    "lacp",
                    "qos",
                ],
            )
            .written("Port", ["bond_active_slave"])
            .table(
                "Interface",
                [
                    "name",
                    "type",
                    "options",
                    "other_config",
                    "ofport_request",
                    "mac",
                    "mtu_request",
                    "ingress_policing_rate",
                    "ingress_policing_burst",
                    "ingress_policing_kpkts_rate",
                    "bfd",
                    "cfm_mpid",
                    "lldp",
                ],
            )
            .written(
                "Interface",
                [
                    "ofport",
                    "error",
                    "admin_state",
                    "link_state",
                    "link_speed",
                    "link_resets",
                    "duplex",
                    "mac_in_use",
                    "mtu",
                    "ifindex",
                    "status",
                    "statistics",
                ],
            )
            .table(
                "Controller",
                [
                    "target",
                    "type",
                    "connection_mode",
                    "local_ip",
                    "max_backoff",
                    "inactivity_probe",
                    "enable_async_messages",
                    "controller_queue_size",
                    "controller_rate_limit",
                    "controller_burst_limit",
                ],
            )
            .written("Controller", ["is_connected", "role", "status"])
            .table("Flow_Table", ["name", "flow_limit", "overflow_policy", "groups", "prefixes"])
    }
}

/// The TLS options of the command line, when they are complete.
fn tls_of(args: &Args) -> Option<tls::Files> {
    let (ca_certificate, bootstrap) = match &args.ssl.ca_cert {
        CaCert::File(path) => (path.clone(), false),
        CaCert::Bootstrap(path) => (path.clone(), true),
        CaCert::Unset | CaCert::None => (PathBuf::new(), false),
    };
    Some(tls::Files {
        private_key: args.ssl.private_key.clone()?,
        certificate: args.ssl.certificate.clone()?,
        ca_certificate,
        bootstrap,
        peer_ca_certificate: args.ssl.peer_ca_cert.clone(),
        policy: args.ssl.policy.clone(),
    })
}

/// Reads what `replica` asks for, as [`reconfigure`] does before it changes anything, and tells
/// what it left out and why. `None` when there is no Open_vSwitch row.
pub fn remarks(replica: &Replica) -> Option<Vec<String>> {
    desired::read(replica).map(|wanted| wanted.remarks)
}

/// Makes the switch what the database says, and writes back what was made. True when the
/// switch now is what the database says; false when that cannot be said (no database, not the
/// lock), and nothing was done.
pub fn reconfigure(shared: &Shared) -> bool {
    let mut guard = shared.borrow_mut();
    let d = &mut *guard;
    let Some(client) = ready(d) else { return false };
    let _ = client.take_changes(); // the comparison finds them itself
    let replica = client.replica();
    let Some(wanted) = desired::read(&replica) else { return false };
    let mut state = std::mem::take(&mut d.configuration.state);
    state.counts.reconfigured();
    for remark in &wanted.remarks {
        state.remarks.warn(remark.as_str());
    }
    state.restored |= !wanted.tunables.flow_restore_wait;
    let tls = state.tls.clone();
    tunables::vlan_limit(d, &mut state, &wanted.tunables);
    offload::sync(d, &mut state, &wanted.tunables);
    tunables::sync(d, &mut state, &wanted);
    if state.tls != tls {
        client.set_tls(controllers::files(&state));
    }
    bridges::sync(shared, d, &mut state, &wanted);
    state.remarks.end_round();
    let is_first = !std::mem::replace(&mut state.configured, true);
    state.lock_told = false;
    d.settle();
    if is_first {
        offload::configured(d, &state, &wanted);
    }
    write(d, &client, &mut state, Extent::States, Some(&wanted));
    d.configuration.state = state;
    true
}

/// The client, when the database can be read and written.
fn ready(d: &Daemon) -> Option<Rc<Client>> {
    d.configuration.client.clone().filter(|c| is_ready(c))
}

fn is_ready(client: &Client) -> bool {
    client.is_synchronized() && client.has_lock()
}

/// Says once that the database has been away for long: packets go on, but nobody can change
/// anything, and status and statistics that tools show are of before.
fn watch_connection(client: &Client, state: &mut State) {
    if client.is_synchronized() {
        if state.absence_told {
            tracing::info!(target: "bridge", "the database is back");
        }
        (state.without_database, state.absence_told) = (None, false);
        return;
    }
    let since = *state.without_database.get_or_insert_with(Instant::now);
    if since.elapsed() >= DATABASE_PATIENCE && !state.absence_told {
        state.absence_told = true;
        tracing::warn!(
            target: "bridge",
            "no connection to the database for {} s: packets are forwarded as configured last, and \
             changes wait; is ovsdb-server running?",
            since.elapsed().as_secs(),
        );
    }
}

/// Says once that another daemon serves the database.
fn watch_lock(client: &Client, state: &mut State) {
    if !client.is_synchronized() || client.has_lock() {
        state.without_lock = None;
        return;
    }
    let since = *state.without_lock.get_or_insert_with(Instant::now);
    if since.elapsed() >= LOCK_PATIENCE && !state.lock_told {
        state.lock_told = true;
        tracing::error!(
            target: "bridge",
            "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
            std::process::id(),
        );
    }
}

/// Interfaces of the host came, went or changed: closes ports whose device is gone, opens those
/// whose device is there (again), and writes their state.
pub fn links_changed(shared: &Shared) {
    // All that a reconfiguration does; what did not change costs a look at each device.
    if reconfigure(shared) {
        return;
    }
    // The database is not there. Ports whose device is gone stay closed until it is back.
    let mut guard = shared.borrow_mut();
    let d = &mut *guard;
    let mut state = std::mem::take(&mut d.configuration.state);
    for bridge in state.bridges.values_mut() {
        let gone: Vec<String> = bridge
            .interfaces
            .iter()
            .filter(|(_, i)| i.number.is_some_and(|n| interfaces::is_gone(d, bridge.index, n)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            interfaces::close_port(d, bridge, &name);
        }
    }
    d.configuration.state = state;
    d.settle();
}

/// Periodic work: fail modes, and writing of states that changed and, each
/// `stats-update-interval`, of statistics. Cheap when nothing changed; call it about twice a
/// second, but for as long as [`time_until_next_deadline`] says.
pub fn status_tick(shared: &Shared) {
    let mut guard = shared.borrow_mut();
    let d = &mut *guard;
    if let Some(client) = d.configuration.client.clone() {
        watch_connection(&client, &mut d.configuration.state);
        watch_lock(&client, &mut d.configuration.state);
    }
    if !d.configuration.state.configured {
        return;
    }
    let now = d.clock.now();
    let mut state = std::mem::take(&mut d.configuration.state);
    let interval = state.tunables.stats_interval;
    let statistics = state.stats_written.is_none_or(|at| now.since(at) >= interval);
    if statistics {
        state.stats_written = Some(now);
    }
    offload::tick(d, &mut state, statistics);
    // Dummies change by command; others tell (`links_changed`), but for speed and the like.
    let is_lost = statistics && has_lost(d);
    if statistics || d.dummy != DummyLevel::Off {
        d.refresh_ports();
    }
    d.configuration.state = state;
    fail_modes(d);
    let mut state = std::mem::take(&mut d.configuration.state);
    if let Some(client) = ready(d) {
        let extent = match statistics {
            true => Extent::Statistics,
            // Dummies change without a word.
            false if d.dummy != DummyLevel::Off || state.unwritten.get() => Extent::States,
            false => Extent::Controllers,
        };
        write(d, &client, &mut state, extent, None);
    }
    d.configuration.state = state;
    drop(guard);
    if is_lost {
        links_changed(shared);
    }
}

/// A device that was in another namespace is gone with that: nobody says so here.
fn has_lost(d: &Daemon) -> bool {
    let away = d.switch.bridges().flat_map(|b| b.ports.values()).filter(|p| p.status.is_away);
    away.filter_map(|port| port.device.as_ref())
        .any(|device| device.status().is_err_and(|error| netdev::link::is_gone(&error)))
}

/// Opens and closes bridges by how their controllers do; part of [`status_tick`], and of time
/// that passes by command.
pub fn fail_modes(d: &mut Daemon) {
    if !d.configuration.state.configured {
        return;
    }
    let mut state = std::mem::take(&mut d.configuration.state);
    for bridge in state.bridges.values_mut() {
        fail::tick(d, bridge, !state.restored);
    }
    d.configuration.state = state;
    d.settle();
}

/// Writes states that a command has just changed, without waiting for [`status_tick`]; nothing
/// while the database is not there, for the next tick does it then.
pub fn write_states(d: &mut Daemon) {
    let Some(client) = ready(d).filter(|_| d.configuration.state.configured) else { return };
    let mut state = std::mem::take(&mut d.configuration.state);
    write(d, &client, &mut state, Extent::States, None);
    d.configuration.state = state;
}

/// Writes what differs from the database, in one transaction. `wanted` is what was just made.
fn write(d: &Daemon, client: &Client, state: &mut State, extent: Extent, wanted: Option<&Desired>) {
    let replica = client.replica();
    if extent >= Extent::States {
        state.unwritten.set(false);
    }
    let mut writer = status::Writer::new(client, &replica, extent);
    for bridge in state.bridges.values_mut() {
        writer.bridge(d, bridge);
    }
    for (name, bridge) in wanted.iter().flat_map(|w| &w.bridges) {
        if !state.bridges.contains_key(name) {
            writer.unmade(bridge);
        }
    }
    writer.root(d, state, wanted.is_some());
    if let Some(transaction) = writer.finish() {
        submit(client, transaction, state, Rc::clone(&d.activity));
    }
}

/// Sends a transaction. One that did not take effect is noted in `State::unwritten`, and made again
/// by the next round, because the replica still differs; `activity` is rung for that. The reason of
/// a refusal is logged once, until one takes effect or there is another reason.
fn submit(client: &Client, transaction: Transaction, state: &State, activity: Rc<Notify>) {
    let unwritten = Rc::clone(&state.unwritten);
    let refused = Rc::clone(&state.refused);
    let counts = Rc::clone(&state.counts);
    let outcome = client.submit(transaction);
    tokio::task::spawn_local(async move {
        let outcome = outcome.await;
        counts.transaction(&outcome);
        if !matches!(outcome, Ok(Outcome::Committed(_) | Outcome::Unchanged)) {
            unwritten.set(true);
            activity.notify_one();
        }
        match outcome {
            Ok(Outcome::Failed(error)) => {
                let said = refused.replace(Some(error.clone()));
                if said.as_ref() != Some(&error) {
                    tracing::warn!(target: "bridge", "the database refused what was written into it ({error})");
                }
            }
            Ok(Outcome::TryAgain(why)) => {
                tracing::debug!(target: "bridge", "what was written into the database is to be written again ({why})");
            }
            Ok(Outcome::Committed(_)) => {
                *refused.borrow_mut() = None;
            }
            Ok(Outcome::Unchanged | Outcome::NotLocked) | Err(_) => {}
        }
    });
}

/// Removes all bridges with their ports, and so the interfaces that were made for them
/// (`exit --cleanup`). The database is left as it is.
pub fn cleanup(shared: &Shared) {
    let mut guard = shared.borrow_mut();
    let d = &mut *guard;
    let mut state = std::mem::take(&mut d.configuration.state);
    for (name, bridge) in std::mem::take(&mut state.bridges) {
        bridges::remove(d, &name, bridge);
    }
    d.settle();
    d.configuration.state = state;
}
