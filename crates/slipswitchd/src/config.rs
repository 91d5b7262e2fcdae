// SPDX-License-Identifier: Apache-2.0
//! The switch, made what the database says. (OVS: vswitchd/bridge.c.)
//!
//! # Overview
//! [`Configuration::apply`] reads the replica of the database into plain structures (`desired`),
//! and compares them with the bridges and ports that were made earlier (`state`). Only differences
//! are carried out: removing first, then adding, then settings. [`Configuration::finish`] writes
//! the result back in the same step, `cur_cfg` with it, so that `ovs-vsctl` goes on at once.
//! [`Configuration::write_changes`] writes the columns that change later: link states, statistics,
//! controllers. Each step works on a [`Context`], which the daemon makes.
//!
//! # Invariants
//! - Nothing changes while the database is not there, or while another daemon holds the lock
//!   `ovs_vswitchd`: packets are forwarded as configured last. After a reconnection the same
//!   comparison reconciles.
//! - An invalid row never stops the others: an Interface gets its `error` column, any other row a
//!   line in the log (once, until it changes) and a default.
//! - A port whose row asks for nothing else is not touched, whatever else changes.
//!
//! # Which side it errs on
//! A port whose own device vanished is closed, and its number kept for its return.

mod address;
mod bfd;
mod bonds;
mod bridges;
mod cards;
mod cfm;
mod connection_memory;
mod context;
mod controllers;
mod counts;
mod desired;
mod device;
mod export;
mod fail;
mod host;
mod idle;
mod in_band;
mod interfaces;
mod links;
mod lldp;
mod mirrors;
mod offload;
mod qos;
mod socket_policy;
mod spanning_tree;
mod state;
mod status;
mod system_datapath;
#[cfg(test)]
mod tests;
mod tracking;
mod tunables;
mod tunnel;
mod tunnel_helpers;
mod vlan;

pub use context::Context;
pub use status::Extent;
pub(crate) use tunables::upcall_share;
pub(crate) use tunnel_helpers::Report as TunnelHelperReport;

use crate::args::{Args, CaCert, DummyLevel};
use crate::openflow::SharedControl;
use bridge::switch::Switch;
use desired::Desired;
use ovsdb::{
    Client, ClientOptions, MonitorSpec, Outcome, Remote, RemoteError, Replica, SessionOptions,
    Transaction,
};
use placement::PlacedDatapath;
use process::Dirs;
use state::SwitchState;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The lock that the daemon holds while it serves a database, as OVS's does.
const LOCK: &str = "ovs_vswitchd";
/// Number of new ports in a reconfiguration that are attached to tiers at once. To attach a port takes
/// about 12 ms, in which the control thread answers nobody. A few ports are common, and their tiers are
/// then in force when `ovs-vsctl` returns.
const ATTACHED_AT_ONCE: usize = 8;
/// Time that the server may take to grant the lock, before the log reports another daemon.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Time that the database may be away before the log reports it: a restart takes less.
const DATABASE_PATIENCE: Duration = Duration::from_secs(30);

/// The connection to the database, and the bridges and ports that were made from its rows.
#[derive(Default)]
pub struct Configuration {
    client: Option<Rc<Client>>,
    state: SwitchState,
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
        let state = SwitchState {
            tls_args,
            tls_policy: args.ssl.policy.clone(),
            tls_peer_ca: args.ssl.peer_ca_cert.clone(),
            ..SwitchState::default()
        };
        Ok(Configuration { client: Some(Rc::new(client)), state })
    }

    /// Waits until there may be work for [`Configuration::apply`]; forever without a database. The
    /// future borrows nothing. Only one may wait at a time.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        let client = self.client.clone();
        async move {
            match client {
                Some(client) => client.changed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the connection to the database.
    pub fn client(&self) -> Option<&Rc<Client>> {
        self.client.as_ref()
    }

    /// Returns true when the database can be read and written.
    pub fn is_ready(&self) -> bool {
        self.client.as_ref().is_some_and(|client| is_ready(client))
    }

    /// Returns true when a configuration was made since the start.
    pub fn is_configured(&self) -> bool {
        self.state.configured
    }

    /// Returns `other_config:vlan-limit`; 0 is no limit.
    pub fn vlan_limit(&self) -> u64 {
        self.state.tunables.vlan_limit
    }

    /// Returns true when the database has limits of connections in zones.
    pub fn has_zone_limits(&self) -> bool {
        self.state.tracking.has_limits()
    }

    /// Returns the counters of configuration, for `coverage/show`.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.state.counts.all().into_iter().chain(self.export_counters())
    }

    /// Returns a report on each tunnel device of the kernel that helps tunnels, or that is missing.
    pub(crate) fn tunnel_helpers(
        &self,
        placed: Option<&Arc<PlacedDatapath>>,
    ) -> Vec<TunnelHelperReport> {
        self.state.tunnel_helpers.reports(placed)
    }

    /// Returns true when the bridge exists.
    pub fn has_bridge(&self, bridge: &str) -> bool {
        self.state.bridges.contains_key(bridge)
    }

    /// Returns true when a bridge of one of these types exists.
    pub fn has_bridge_of_type(&self, types: &[&str]) -> bool {
        self.state.bridges.values().any(|bridge| types.contains(&bridge.datapath_type.as_str()))
    }

    /// Returns the tables and columns that are read and written.
    pub fn monitor_spec() -> MonitorSpec {
        MonitorSpec::new("Open_vSwitch")
            .table(
                "Open_vSwitch",
                ["bridges", "datapaths", "manager_options", "ssl", "other_config", "next_cfg"],
            )
            .table("Manager", ["target", "connection_mode"])
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
            .written("Bridge", ["datapath_id", "datapath_version", "status", "rstp_status"])
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
                    "bond_fake_iface",
                    "lacp",
                    "qos",
                ],
            )
            .written(
                "Port",
                ["bond_active_slave", "status", "statistics", "rstp_status", "rstp_statistics"],
            )
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
                    "ingress_policing_kpkts_burst",
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
                    "lacp_current",
                    "cfm_fault",
                    "cfm_fault_status",
                    "cfm_flap_count",
                    "cfm_health",
                    "cfm_remote_mpids",
                    "cfm_remote_opstate",
                    "bfd_status",
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
            .table(
                "Mirror",
                [
                    "name",
                    "select_all",
                    "select_src_port",
                    "select_dst_port",
                    "select_vlan",
                    "output_port",
                    "output_vlan",
                    "snaplen",
                    "filter",
                ],
            )
            .written("Mirror", ["statistics"])
            .table("sFlow", ["targets", "agent", "header", "polling", "sampling"])
            .table(
                "NetFlow",
                ["targets", "engine_type", "engine_id", "add_id_to_interface", "active_timeout"],
            )
            .table("AutoAttach", ["system_name", "system_description", "mappings"])
            .table(
                "IPFIX",
                [
                    "targets",
                    "sampling",
                    "obs_domain_id",
                    "obs_point_id",
                    "cache_active_timeout",
                    "cache_max_flows",
                    "template_interval",
                    "stats_interval",
                    "other_config",
                ],
            )
            .table("Flow_Sample_Collector_Set", ["id", "bridge", "ipfix", "local_group_id"])
            .table("QoS", ["type", "other_config", "queues"])
            .table("Queue", ["other_config", "dscp"])
            .table("Flow_Table", ["name", "flow_limit", "overflow_policy", "groups", "prefixes"])
            .table("Datapath", ["ct_zones", "ct_zone_default_limit"])
            .written("Datapath", ["capabilities"])
            .table("CT_Zone", ["timeout_policy", "limit"])
            .table("CT_Timeout_Policy", ["timeouts"])
    }
}

/// Returns the TLS options of the command line, when they are complete.
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

/// Reads the configuration in `replica`, as [`Configuration::apply`] does before it changes anything.
/// Returns the log's lines about settings that are left out. `None` when there is no Open_vSwitch
/// row.
pub fn remarks(replica: &Replica) -> Option<Vec<String>> {
    desired::read(replica).map(|wanted| {
        let notes = wanted.bridges.into_values().filter_map(|bridge| bridge.note);
        wanted.remarks.into_iter().chain(notes).collect()
    })
}

/// A configuration that [`Configuration::apply`] has made and [`Configuration::finish`] writes back.
pub struct Applied {
    client: Rc<Client>,
    desired: Desired,
    is_first: bool,
}

/// The steps of configuration. The daemon publishes after each of them that changes the switch.
impl Configuration {
    /// Makes the switch what the database says. `None`: the database cannot be read and written
    /// (no connection, not the lock), or it has no Open_vSwitch row, and nothing was done. After
    /// publication, the caller passes the result to [`Configuration::finish`]. `control` is for the
    /// tasks of OpenFlow sockets.
    pub fn apply(&mut self, context: &mut Context<'_>, control: &SharedControl) -> Option<Applied> {
        let client = self.ready_client()?;
        let _ = client.take_changes(); // the comparison finds them itself
        let desired = desired::read(&client.replica())?;
        let state = &mut self.state;
        state.counts.reconfigured();
        for remark in &desired.remarks {
            state.remarks.warn(remark.as_str());
        }
        for note in desired.bridges.values().filter_map(|bridge| bridge.note.as_deref()) {
            state.remarks.info(note);
        }
        state.restored |= !desired.tunables.flow_restore_wait;
        let tls = state.tls.clone();
        tunables::vlan_limit(context, state, &desired.tunables);
        cards::sync(context, state, &desired.tunables);
        offload::sync(context, state, &desired.tunables);
        tunables::sync(context, state, &desired);
        tracking::sync(context, state, &desired.tracking);
        if state.tls != tls {
            client.set_tls(controllers::files(state));
        }
        if let Some(placed) = context.placed {
            placed.attach_at_once(ATTACHED_AT_ONCE);
        }
        system_datapath::sync(context, state, &desired);
        bridges::sync(control, context, state, &desired);
        system_datapath::finish(context);
        tunnel_helpers::sync(context, state, &desired.tunables);
        state.remarks.end_round();
        let is_first = !std::mem::replace(&mut state.configured, true);
        state.is_lock_logged = false;
        Some(Applied { client, desired, is_first })
    }

    /// Ends a reconfiguration, and writes back what was made.
    pub fn finish(&mut self, context: &mut Context<'_>, applied: &Applied) {
        if applied.is_first {
            offload::configured(context, &self.state, &applied.desired);
        }
        let Applied { client, desired, .. } = applied;
        self.write(context, client, Extent::States, Some(desired));
    }

    /// Closes the ports whose device is gone: the part of a reconfiguration that does not need the
    /// database. The ports stay closed until the database is back.
    pub fn close_lost_ports(&mut self, context: &mut Context<'_>) {
        for bridge in self.state.bridges.values_mut() {
            let gone: Vec<String> = bridge
                .interfaces
                .iter()
                .filter(|(_, i)| {
                    i.number.is_some_and(|n| interfaces::is_gone(context.switch, bridge.index, n))
                })
                .map(|(name, _)| name.clone())
                .collect();
            for name in gone {
                interfaces::close_port(context, bridge, &name);
            }
        }
    }

    /// Begins a round of periodic work: checks the connection to the database, and the deadline of
    /// `flow-restore-wait`. Returns the extent of this round's writing; `None` before the first
    /// configuration.
    pub fn begin_round(&mut self, context: &mut Context<'_>) -> Option<Extent> {
        let state = &mut self.state;
        if let Some(client) = &self.client {
            watch_connection(client, state);
            watch_lock(client, state);
        }
        if !state.configured {
            return None;
        }
        let now = context.clock.now();
        let interval = state.tunables.stats_interval;
        let statistics = state.stats_written.is_none_or(|at| now.since(at) >= interval);
        if statistics {
            state.stats_written = Some(now);
        }
        offload::tick(context, state, statistics);
        tunnel_helpers::tick(context, state);
        Some(match statistics {
            true => Extent::Statistics,
            // Dummies do not report their changes.
            false if context.dummy != DummyLevel::Off || state.unwritten.get() => Extent::States,
            false => Extent::Controllers,
        })
    }

    /// Opens and closes bridges by the state of their controllers, and keeps their rules for in-band
    /// control; part of a round of periodic work, and of time that passes by command.
    pub fn run_fail_modes(&mut self, context: &mut Context<'_>) {
        let hold = !self.state.restored;
        for bridge in self.state.bridges.values_mut() {
            fail::tick(context, bridge, hold);
            in_band::tick(context, bridge);
        }
    }

    /// Writes the columns of `extent` that differ from the database. Does nothing before the first
    /// configuration and while the database is not there; a later round writes them then.
    pub fn write_changes(&mut self, context: &Context<'_>, extent: Extent) {
        if let Some(client) = self.ready_client().filter(|_| self.state.configured) {
            self.write(context, &client, extent, None);
        }
    }

    /// Removes all bridges with their ports, and so the interfaces that were made for them
    /// (`exit --cleanup`). The database is left as it is.
    pub fn remove_bridges(&mut self, context: &mut Context<'_>) {
        for (name, bridge) in std::mem::take(&mut self.state.bridges) {
            bridges::remove(context, &name, bridge);
        }
        tunnel_helpers::clear(context, &mut self.state);
    }

    /// Removes the pinned BPF objects, after the datapath has left nothing of its own.
    pub fn remove_pins(&self) {
        offload::remove_pins(&self.state);
    }

    /// Returns the client, when the database can be read and written.
    fn ready_client(&self) -> Option<Rc<Client>> {
        self.client.clone().filter(|client| is_ready(client))
    }

    /// Writes the columns that differ from the database, in one transaction. `desired` is the
    /// configuration that was just made.
    fn write(
        &mut self,
        context: &Context<'_>,
        client: &Client,
        extent: Extent,
        desired: Option<&Desired>,
    ) {
        let replica = client.replica();
        let state = &mut self.state;
        if extent >= Extent::States {
            state.unwritten.set(false);
        }
        let mut writer = status::Writer::new(client, &replica, extent);
        for bridge in state.bridges.values_mut() {
            writer.bridge(context, bridge);
        }
        for (name, bridge) in desired.iter().flat_map(|desired| &desired.bridges) {
            if !state.bridges.contains_key(name) {
                writer.unmade(bridge);
            }
        }
        writer.root(context, state, desired.is_some());
        if let Some(transaction) = writer.finish() {
            submit(client, transaction, state, Rc::clone(context.activity));
        }
    }
}

/// True when a device that was in another namespace is gone: no event reports that here.
pub fn has_lost_device(switch: &Switch) -> bool {
    let away = switch.bridges().flat_map(|b| b.ports.values()).filter(|p| p.status.is_away);
    away.filter_map(|port| port.device.as_ref())
        .any(|device| device.status().is_err_and(|error| netdev::link::is_gone(&error)))
}

fn is_ready(client: &Client) -> bool {
    client.is_synchronized() && client.has_lock()
}

/// Reports once that the database has been away for [`DATABASE_PATIENCE`]. Packets are still
/// forwarded, but nobody can change the configuration, and the status and statistics in the
/// database are old.
fn watch_connection(client: &Client, state: &mut SwitchState) {
    if client.is_synchronized() {
        if state.is_absence_logged {
            tracing::info!(target: "bridge", "the database is back");
        }
        (state.without_database, state.is_absence_logged) = (None, false);
        return;
    }
    let since = *state.without_database.get_or_insert_with(Instant::now);
    if since.elapsed() >= DATABASE_PATIENCE && !state.is_absence_logged {
        state.is_absence_logged = true;
        tracing::warn!(
            target: "bridge",
            "no connection to the database for {} s: packets are forwarded as configured last, and \
             changes wait; is ovsdb-server running?",
            since.elapsed().as_secs(),
        );
    }
}

/// Reports once that another daemon serves the database.
fn watch_lock(client: &Client, state: &mut SwitchState) {
    if !client.is_synchronized() || client.has_lock() {
        state.without_lock = None;
        return;
    }
    let since = *state.without_lock.get_or_insert_with(Instant::now);
    if since.elapsed() >= LOCK_PATIENCE && !state.is_lock_logged {
        state.is_lock_logged = true;
        tracing::error!(
            target: "bridge",
            "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
            std::process::id(),
        );
    }
}

/// Sends a transaction. If it takes no effect, `SwitchState::unwritten` is set and `activity` is
/// rung: the next round makes the transaction again, because the replica still differs. The reason
/// of a refusal is logged once, until a transaction takes effect or the reason changes.
fn submit(client: &Client, transaction: Transaction, state: &SwitchState, activity: Rc<Notify>) {
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
