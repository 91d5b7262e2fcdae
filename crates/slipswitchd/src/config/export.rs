// SPDX-License-Identifier: Apache-2.0
//! Export of traffic to collectors: rows of the table NetFlow (ovs-vswitchd.conf.db(5)).

use super::Configuration;
use super::state::{BridgeState, Remarks};
use crate::collectors::Collectors;
use ::export::WallTime;
use ::export::netflow::{self, Settings};
use bridge::export::NetFlow;
use bridge::switch::Switch;
use clock::Millis;
use ovsdb::{Replica, Row};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Highest engine id that leaves all its bits in interface numbers.
const MAX_ID_IN_INTERFACE: u8 = 127;

/// A row of the table NetFlow, of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredNetFlow {
    targets: BTreeSet<String>,
    engine_type: Option<u8>,
    engine_id: Option<u8>,
    add_id_to_interface: bool,
    active_timeout: Option<Duration>,
}

/// Returns the NetFlow row of a bridge's row.
pub(super) fn read(replica: &Replica, row: &Row) -> Option<DesiredNetFlow> {
    let row = replica.row("NetFlow", row.opt_uuid("netflow")?)?;
    let byte = |column| row.opt_int(column).and_then(|n| u8::try_from(n).ok());
    Some(DesiredNetFlow {
        targets: row.strs("targets").map(str::to_owned).collect(),
        engine_type: byte("engine_type"),
        engine_id: byte("engine_id"),
        add_id_to_interface: row.bool("add_id_to_interface"),
        active_timeout: match row.int("active_timeout") {
            0 => None,
            seconds => {
                Some(u64::try_from(seconds).map_or(netflow::ACTIVE_TIMEOUT, Duration::from_secs))
            }
        },
    })
}

/// The exports of a bridge that run.
#[derive(Debug, Default)]
pub(super) struct ExportState {
    netflow: Option<RunningNetFlow>,
}

#[derive(Debug)]
struct RunningNetFlow {
    wanted: DesiredNetFlow,
    exporter: Arc<NetFlow>,
    collectors: Collectors,
}

/// Makes the exports of a bridge those of its row. NetFlow keeps its flows while there is a row.
pub(super) fn sync(
    switch: &mut Switch,
    state: &mut BridgeState,
    wanted: Option<&DesiredNetFlow>,
    remarks: &mut Remarks,
) {
    let running = state.export.netflow.as_mut();
    let Some(wanted) = wanted else {
        if running.is_some() {
            state.export.netflow = None;
            if let Some(bridge) = switch.bridge_mut(state.index) {
                bridge.exports.netflow = None;
            }
        }
        return;
    };
    let Some(bridge) = switch.bridge(state.index) else { return };
    let name = bridge.name.clone();
    let engine_id = wanted.engine_id.unwrap_or(state.index.0 as u8); // its low bits
    if wanted.add_id_to_interface && engine_id > MAX_ID_IN_INTERFACE {
        remarks.warn(format!(
            "bridge {name}: NetFlow port mangling may conflict with another vswitch, choose an engine \
             id less than 128"
        ));
    }
    let settings = Settings {
        engine_type: wanted.engine_type.unwrap_or(0),
        engine_id,
        add_id_to_interface: wanted.add_id_to_interface,
        active_timeout: wanted.active_timeout,
    };
    let now = switch.now();
    match running {
        Some(running) => {
            if running.wanted != *wanted {
                running.exporter.configure(settings, now);
            }
            if running.wanted.targets != wanted.targets {
                running.collectors = open(&name, "netflow", &wanted.targets, None, remarks);
            }
            running.wanted = wanted.clone();
        }
        None => {
            let exporter = Arc::new(NetFlow::new(settings, now));
            let collectors = open(&name, "netflow", &wanted.targets, None, remarks);
            if let Some(bridge) = switch.bridge_mut(state.index) {
                bridge.exports.netflow = Some(Arc::clone(&exporter));
            }
            let wanted = wanted.clone();
            state.export.netflow = Some(RunningNetFlow { wanted, exporter, collectors });
        }
    }
}

fn open(
    bridge: &str,
    column: &str,
    targets: &BTreeSet<String>,
    default_port: Option<u16>,
    remarks: &mut Remarks,
) -> Collectors {
    let (collectors, failed) = Collectors::open(targets, default_port);
    for (target, error) in failed {
        remarks
            .warn(format!("bridge {bridge}: {column}: target \"{target}\" gets nothing ({error})"));
    }
    collectors
}

impl ExportState {
    fn run(&mut self, now: Millis, wall: WallTime) {
        if let Some(netflow) = &mut self.netflow {
            for datagram in netflow.exporter.run(now, wall) {
                netflow.collectors.send(&datagram);
            }
        }
    }

    fn deadline(&self) -> Option<Millis> {
        self.netflow.as_ref().map(|netflow| netflow.exporter.deadline())
    }
}

impl Configuration {
    /// Sends to collectors what is due. For each round of periodic work, after the statistics of
    /// megaflows were credited.
    pub(crate) fn run_exports(&mut self, now: Millis) {
        let wall = SystemTime::now().into();
        for bridge in self.state.bridges.values_mut() {
            bridge.export.run(now, wall);
        }
    }

    /// Returns the time at which [`Configuration::run_exports`] has work again; `None` for never.
    pub(crate) fn export_deadline(&self) -> Option<Millis> {
        self.state.bridges.values().filter_map(|bridge| bridge.export.deadline()).min()
    }

    /// Returns counters of export for `coverage/show`.
    pub(super) fn export_counters(&self) -> [(&'static str, u64); 3] {
        let mut counts = (0, 0, 0);
        for netflow in self.state.bridges.values().filter_map(|b| b.export.netflow.as_ref()) {
            let (sent, unsent) = netflow.collectors.counts();
            counts.0 += sent;
            counts.1 += unsent;
            counts.2 += netflow.exporter.without_room();
        }
        [("netflow_sent", counts.0), ("netflow_unsent", counts.1), ("netflow_no_room", counts.2)]
    }
}
