// SPDX-License-Identifier: Apache-2.0
//! Rows of the table sFlow.

use super::super::state::{BridgeState, Remarks};
use super::open;
use crate::collectors::Collectors;
use ::export::sflow::{
    DEFAULT_PORT, Global, HEADER_BYTES, Interface, Lacp, MAX_HEADER_BYTES, POLLING_SECONDS,
    SAMPLING, Settings,
};
use bridge::aggregate::{Aggregate, state};
use bridge::bridge::Bridge;
use bridge::export::{Sflow, SflowView};
use bridge::switch::Switch;
use clock::Millis;
use netdev::Duplex;
use ovsdb::{Replica, Row};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use underlay::Underlay;

/// Milliseconds between two rounds: the protocol asks for samples to be sent within a second.
const INTERVAL_MS: i64 = 500;

/// A row of the table, of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct DesiredSflow {
    targets: BTreeSet<String>,
    agent: Option<String>,
    header_bytes: usize,
    polling_seconds: u32,
    sampling: u32,
}

/// Returns the sFlow row of a bridge's row.
pub(super) fn read(replica: &Replica, row: &Row) -> Option<DesiredSflow> {
    let row = replica.row("sFlow", row.opt_uuid("sflow")?)?;
    let number = |column| row.opt_int(column).and_then(|n| u32::try_from(n).ok());
    Some(DesiredSflow {
        targets: row.strs("targets").map(str::to_owned).collect(),
        agent: row.opt_str("agent").map(str::to_owned),
        header_bytes: row
            .opt_int("header")
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0)
            .unwrap_or(HEADER_BYTES)
            .min(MAX_HEADER_BYTES),
        polling_seconds: number("polling").unwrap_or(POLLING_SECONDS),
        sampling: number("sampling").unwrap_or(SAMPLING),
    })
}

/// sFlow of a bridge that runs.
#[derive(Debug)]
pub(super) struct RunningSflow {
    targets: BTreeSet<String>,
    settings: Settings,
    agent: Arc<Sflow>,
    collectors: Collectors,
    next: Millis,
}

/// Makes the sFlow of a bridge that of its row. Without a collector or an agent's address there is
/// none, as in OVS.
pub(super) fn sync(
    switch: &mut Switch,
    underlay: &Underlay,
    state: &mut BridgeState,
    wanted: Option<&DesiredSflow>,
    sub_agent: u32,
    remarks: &mut Remarks,
) {
    let Some(name) = switch.bridge(state.index).map(|bridge| bridge.name.clone()) else { return };
    let old = state.export.sflow.take();
    let now = switch.now();
    let running = wanted.and_then(|wanted| {
        let (old, old_collectors) = match old {
            Some(RunningSflow { targets, settings, agent, collectors, .. }) => {
                let is_complete = targets == wanted.targets && collectors.len() == targets.len();
                (Some((settings, agent)), is_complete.then_some(collectors))
            }
            None => (None, None),
        };
        let collectors = old_collectors
            .unwrap_or_else(|| open(&name, "sflow", &wanted.targets, Some(DEFAULT_PORT), remarks));
        let address = match &wanted.agent {
            Some(agent) => agent.parse().ok().or_else(|| address_of(underlay, agent)),
            None => collectors.source(),
        };
        let Some(address) = address else {
            let why = match &wanted.agent {
                Some(agent) => format!("agent {agent} is neither an address nor a device with one"),
                None => "no target has a socket".to_owned(),
            };
            remarks.warn(format!("bridge {name}: sflow: there is no sFlow ({why})"));
            return None;
        };
        let settings = Settings {
            agent: address,
            sub_agent,
            sampling: wanted.sampling,
            header_bytes: wanted.header_bytes,
            polling_seconds: wanted.polling_seconds,
        };
        let agent = match old {
            Some((before, agent)) => {
                if before != settings {
                    agent.configure(settings);
                }
                agent
            }
            None => Arc::new(Sflow::new(settings, now)),
        };
        let targets = wanted.targets.clone();
        Some(RunningSflow { targets, settings, agent, collectors, next: now })
    });
    let view = running.as_ref().and_then(|running| {
        let probability = u32::MAX.checked_div(running.settings.sampling)?.max(1);
        Some(SflowView { agent: Arc::clone(&running.agent), probability })
    });
    state.export.sflow = running;
    let is_same = |a: &SflowView, b: &SflowView| {
        a.probability == b.probability && Arc::ptr_eq(&a.agent, &b.agent)
    };
    let before = switch.bridge(state.index).and_then(|bridge| bridge.exports.sflow.as_ref());
    let is_unchanged = match (before, &view) {
        (Some(before), Some(view)) => is_same(before, view),
        (None, None) => true,
        _ => false,
    };
    if !is_unchanged && let Some(bridge) = switch.bridge_mut(state.index) {
        bridge.exports.sflow = view;
    }
}

/// Returns the first address of a device, one of IPv4 if it has one.
fn address_of(underlay: &Underlay, device: &str) -> Option<IpAddr> {
    let routes = underlay.routes();
    let addresses = &routes.devices().get(device)?.addresses;
    let addresses = || addresses.iter().map(|cidr| cidr.address());
    addresses().find(IpAddr::is_ipv4).or_else(|| addresses().next())
}

impl RunningSflow {
    pub(super) fn run(&mut self, bridge: &Bridge, switch: &Switch, now: Millis) {
        if now >= self.next {
            self.next = now + INTERVAL_MS;
            if self.settings.polling_seconds > 0 {
                let ports = bridge.ports.values().filter(|port| port.status.ifindex.is_some());
                let interfaces: Vec<Interface> =
                    ports.map(|port| interface(bridge, port)).collect();
                self.agent.poll(&interfaces, now);
                self.agent.poll_global(|| global(switch), now);
            }
        }
        for datagram in self.agent.take(now) {
            self.collectors.send(&datagram);
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.next
    }

    /// Returns the numbers of datagrams that were sent, and that the kernel did not take, and of
    /// samples that found no room.
    pub(super) fn counts(&self) -> [u64; 3] {
        let (sent, unsent) = self.collectors.counts();
        [sent, unsent, self.agent.without_room()]
    }
}

/// Returns the counters of the datapath and of the process.
fn global(switch: &Switch) -> Global {
    let lookups = switch.datapath().lookups();
    let usage = crate::usage::Usage::now().unwrap_or_default();
    Global {
        user_ms: usage.user_ms,
        system_ms: usage.system_ms,
        memory_bytes: usage.memory_bytes,
        hits: lookups.hits,
        misses: lookups.misses,
        lost: lookups.lost,
        flows: lookups.flows as u64,
    }
}

fn interface(bridge: &Bridge, port: &bridge::port::Port) -> Interface {
    let status = &port.status;
    let stats = port.device.as_ref().and_then(|device| device.stats().ok()).unwrap_or_default();
    Interface {
        index: status.ifindex.unwrap_or(0),
        name: port.name.clone(),
        datapath_id: bridge.datapath_id,
        port: port.number.0,
        speed_bps: status.speed_bps.unwrap_or(0),
        is_full_duplex: status.duplex.map(|duplex| duplex != Duplex::Half),
        admin_up: status.admin_up,
        link_up: status.link_up,
        promiscuous: status.promiscuous,
        received: [
            stats.rx_bytes,
            stats.rx_packets,
            stats.multicast,
            stats.rx_dropped,
            stats.rx_errors,
        ],
        sent: [stats.tx_bytes, stats.tx_packets, stats.tx_dropped, stats.tx_errors],
        malformed: [stats.rx_frame_errors, stats.rx_crc_errors, None],
        lacp: bridge.aggregate_of(&port.name).and_then(|aggregate| lacp(aggregate, port)),
    }
}

/// Returns the counters of LACP on a member of `aggregate`.
fn lacp(aggregate: &Aggregate, port: &bridge::port::Port) -> Option<Lacp> {
    let report = aggregate.report();
    let member = report.members.iter().find(|member| member.settings.number == port.number.0)?;
    let configured = state::AGGREGATION
        | if report.settings.is_active { state::ACTIVITY } else { 0 }
        | if report.settings.is_fast { state::TIMEOUT } else { 0 };
    Some(Lacp {
        systems: [member.actor.system_id, member.partner.system_id],
        aggregate: report.key?.into(),
        states: [configured, member.actor.state, 0, member.partner.state],
        received: member.counts.received,
        illegal: member.counts.bad,
        sent: member.counts.sent,
    })
}
