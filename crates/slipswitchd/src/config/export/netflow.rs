// SPDX-License-Identifier: Apache-2.0
//! Rows of the table NetFlow.

use super::super::state::{BridgeState, Remarks};
use super::open;
use crate::collectors::Collectors;
use ::export::WallTime;
use ::export::netflow::{ACTIVE_TIMEOUT, Settings};
use bridge::export::NetFlow;
use bridge::switch::Switch;
use clock::Millis;
use ovsdb::{Replica, Row};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Highest engine id that leaves all its bits in interface numbers.
const MAX_ID_IN_INTERFACE: u8 = 127;

/// A row of the table, of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct DesiredNetFlow {
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
            seconds => Some(u64::try_from(seconds).map_or(ACTIVE_TIMEOUT, Duration::from_secs)),
        },
    })
}

/// NetFlow of a bridge that runs.
#[derive(Debug)]
pub(super) struct RunningNetFlow {
    wanted: DesiredNetFlow,
    exporter: Arc<NetFlow>,
    collectors: Collectors,
}

/// Makes the NetFlow of a bridge that of its row.
pub(super) fn sync(
    switch: &mut Switch,
    state: &mut BridgeState,
    wanted: Option<&DesiredNetFlow>,
    remarks: &mut Remarks,
) {
    let Some(wanted) = wanted else {
        if state.export.netflow.take().is_some()
            && let Some(bridge) = switch.bridge_mut(state.index)
        {
            bridge.exports.netflow = None;
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
    let old = state.export.netflow.take();
    let exporter = match &old {
        Some(running) => Arc::clone(&running.exporter),
        None => Arc::new(NetFlow::new(settings, now)),
    };
    if old.is_none() {
        if let Some(bridge) = switch.bridge_mut(state.index) {
            bridge.exports.netflow = Some(Arc::clone(&exporter));
        }
    } else {
        exporter.configure(settings, now);
    }
    let collectors = match old {
        Some(running) if running.is_complete(wanted) => running.collectors,
        _ => open(&name, "netflow", &wanted.targets, None, remarks),
    };
    let wanted = wanted.clone();
    state.export.netflow = Some(RunningNetFlow { wanted, exporter, collectors });
}

impl RunningNetFlow {
    /// Returns true when each target has its socket.
    fn is_complete(&self, wanted: &DesiredNetFlow) -> bool {
        self.wanted.targets == wanted.targets && self.collectors.len() == wanted.targets.len()
    }

    pub(super) fn run(&mut self, now: Millis, wall: WallTime) {
        for datagram in self.exporter.run(now, wall) {
            self.collectors.send(&datagram);
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.exporter.deadline()
    }

    /// Returns the numbers of datagrams that were sent, and that the kernel did not take, and of
    /// records that found no room.
    pub(super) fn counts(&self) -> [u64; 3] {
        let (sent, unsent) = self.collectors.counts();
        [sent, unsent, self.exporter.without_room()]
    }
}
