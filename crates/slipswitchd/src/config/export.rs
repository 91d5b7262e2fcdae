// SPDX-License-Identifier: Apache-2.0
//! Export of traffic to collectors: rows of the tables NetFlow, sFlow, IPFIX and
//! Flow_Sample_Collector_Set (ovs-vswitchd.conf.db(5)).

mod ipfix;
mod netflow;
mod sflow;

pub(super) use ipfix::DesiredIpfix;
pub(super) use netflow::DesiredNetFlow;
pub(super) use sflow::DesiredSflow;

use super::Configuration;
use super::desired::DesiredBridge;
use super::state::{BridgeState, Remarks};
use crate::collectors::Collectors;
use ::export::WallTime;
use bridge::switch::Switch;
use clock::Millis;
use ipfix::RunningIpfix;
use netflow::RunningNetFlow;
use ovsdb::{Replica, Row, Uuid};
use sflow::RunningSflow;
use std::collections::BTreeSet;
use std::time::SystemTime;
use underlay::Underlay;

/// The exports that a bridge's row asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct DesiredExports {
    netflow: Option<DesiredNetFlow>,
    sflow: Option<DesiredSflow>,
    ipfix: DesiredIpfix,
}

/// Returns the exports of a bridge's row, whose id is `uuid`.
pub(super) fn read(
    replica: &Replica,
    uuid: Uuid,
    row: &Row,
    remarks: &mut Vec<String>,
) -> DesiredExports {
    DesiredExports {
        netflow: netflow::read(replica, row),
        sflow: sflow::read(replica, row),
        ipfix: ipfix::read(replica, uuid, row, remarks),
    }
}

/// The exports of a bridge that run.
#[derive(Debug, Default)]
pub(super) struct ExportState {
    netflow: Option<RunningNetFlow>,
    sflow: Option<RunningSflow>,
    ipfix: RunningIpfix,
}

/// Makes the exports of a bridge those of its row. They keep their flows, sequence numbers and
/// sockets as far as the row stays the same. `sflow_bridges` is the number of bridges with sFlow that
/// came before this one.
pub(super) fn sync(
    switch: &mut Switch,
    underlay: &Underlay,
    state: &mut BridgeState,
    row: &DesiredBridge,
    sflow_bridges: &mut u32,
    remarks: &mut Remarks,
) {
    netflow::sync(switch, state, row.exports.netflow.as_ref(), remarks);
    let sub_agent = *sflow_bridges;
    *sflow_bridges += u32::from(row.exports.sflow.is_some());
    sflow::sync(switch, underlay, state, row.exports.sflow.as_ref(), sub_agent, remarks);
    ipfix::sync(switch, state, &row.exports.ipfix, remarks);
}

/// Opens sockets to the targets of a bridge's `column`.
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

impl Configuration {
    /// Sends to collectors what is due. For each round of periodic work, after the statistics of
    /// megaflows were credited.
    pub(crate) fn run_exports(&mut self, switch: &Switch, now: Millis) {
        let wall: WallTime = SystemTime::now().into();
        for bridge in self.state.bridges.values_mut() {
            let index = bridge.index;
            if let Some(netflow) = &mut bridge.export.netflow {
                netflow.run(now, wall);
            }
            bridge.export.ipfix.run(now, wall);
            if let Some(sflow) = &mut bridge.export.sflow
                && let Some(bridge) = switch.bridge(index)
            {
                sflow.run(bridge, switch, now);
            }
        }
    }

    /// Returns the time at which [`Configuration::run_exports`] is to be called again; `None` for
    /// never.
    pub(crate) fn export_deadline(&self) -> Option<Millis> {
        let exports = self.state.bridges.values().map(|bridge| &bridge.export);
        let deadlines = exports.flat_map(|export| {
            let netflow = export.netflow.as_ref().map(RunningNetFlow::deadline);
            let sflow = export.sflow.as_ref().map(RunningSflow::deadline);
            [netflow, sflow, export.ipfix.deadline()]
        });
        deadlines.flatten().min()
    }

    /// Returns counters of export for `coverage/show`.
    pub(super) fn export_counters(&self) -> [(&'static str, u64); 9] {
        let mut counts = [0; 9];
        let mut add = |at: usize, [sent, unsent, no_room]: [u64; 3]| {
            for (count, more) in counts.iter_mut().skip(at).zip([sent, unsent, no_room]) {
                *count += more;
            }
        };
        for bridge in self.state.bridges.values() {
            if let Some(netflow) = &bridge.export.netflow {
                add(0, netflow.counts());
            }
            if let Some(sflow) = &bridge.export.sflow {
                add(3, sflow.counts());
            }
            add(6, bridge.export.ipfix.counts());
        }
        let names = [
            "netflow_sent",
            "netflow_unsent",
            "netflow_no_room",
            "sflow_sent",
            "sflow_unsent",
            "sflow_no_room",
            "ipfix_sent",
            "ipfix_unsent",
            "ipfix_no_room",
        ];
        std::array::from_fn(|i| {
            (names.get(i).copied().unwrap_or_default(), counts.get(i).copied().unwrap_or_default())
        })
    }
}
