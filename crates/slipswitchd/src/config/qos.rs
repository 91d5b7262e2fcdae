// SPDX-License-Identifier: Apache-2.0
//! QoS of ports: rows of the tables QoS and Queue (ovs-vswitchd.conf.db(5)).

use super::context::Context;
use super::desired::{DesiredBridge, Map};
use super::state::{BridgeState, Remarks};
use netdev::QosRequest;
use ovsdb::{Replica, Row};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The QoS of a port: for each of its interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredQos {
    pub request: QosRequest,
    /// `Queue:dscp` by the number of the queue.
    pub dscp: Arc<BTreeMap<u32, u8>>,
}

/// Reads the QoS of a row of the Port table; `None`: it has none.
pub(super) fn read(replica: &Replica, port: &Row) -> Option<DesiredQos> {
    let row = replica.row("QoS", port.opt_uuid("qos")?)?;
    let kind = row.str("type");
    if kind.is_empty() {
        return None;
    }
    let mut dscp = BTreeMap::new();
    let mut queues = BTreeMap::new();
    for (number, uuid) in row.int_uuids("queues") {
        let (Ok(number), Some(row)) = (u32::try_from(number), replica.row("Queue", uuid)) else {
            continue;
        };
        queues.insert(number, options(row));
        let mark = row.opt_int("dscp").and_then(|mark| u8::try_from(mark).ok());
        dscp.extend(mark.filter(|mark| *mark < 64).map(|mark| (number, mark)));
    }
    let request = QosRequest { kind: kind.to_owned(), options: options(row), queues };
    Some(DesiredQos { request, dscp: Arc::new(dscp) })
}

fn options(row: &Row) -> Map {
    row.map("other_config").iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// Gives the open ports of a bridge the QoS of their rows. A row that cannot be carried out gets the
/// `error` column of its interfaces; the switch tries again at each reconfiguration.
pub(super) fn sync(
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    for (port, row) in
        wanted.ports.values().flat_map(|port| port.interfaces.iter().map(move |row| (port, row)))
    {
        let Some(state) = bridge.interfaces.get_mut(&row.name) else { continue };
        let Some(number) = state.number else { continue };
        let qos = port.qos.as_ref();
        let dscp = qos.map(|qos| Arc::clone(&qos.dscp)).unwrap_or_default();
        let found = context.switch.bridge(bridge.index).and_then(|b| b.ports.get(&number));
        let Some(held) = found else { continue };
        let dp_port = held.dp_port.filter(|_| held.device.is_some());
        if held.queue_dscp != dscp
            && let Some(b) = context.switch.bridge_mut(bridge.index)
            && let Some(held) = b.ports.get_mut(&number)
        {
            held.queue_dscp = dscp;
        }
        let request = qos.map(|qos| &qos.request);
        let is_set = state.qos.as_ref().is_some_and(|set| set.as_ref() == request);
        let Some(dp_port) = dp_port.filter(|_| !is_set) else {
            if let (None, Some(request)) = (dp_port, request) {
                remarks.warn(format!(
                    "port {}: qos {} is ignored: interface {} has no device",
                    port.settings.name, request.kind, row.name
                ));
            }
            state.qos_complaints.iter().for_each(|line| remarks.warn(line.as_str()));
            continue;
        };
        match context.switch.datapath().set_qos(dp_port, request) {
            Ok(complaints) => {
                state.qos = Some(request.cloned());
                let name = &port.settings.name;
                let line = |complaint: String| format!("port {name}: {complaint}");
                state.qos_complaints = complaints.into_iter().map(line).collect();
                state.qos_complaints.iter().for_each(|line| remarks.warn(line.as_str()));
            }
            Err(error) => {
                let error = error.to_string();
                remarks.warn(format!("port {}: {error}", port.settings.name));
                state.error = Some(error);
                (state.qos, state.qos_complaints) = (None, Vec::new());
            }
        }
    }
}
