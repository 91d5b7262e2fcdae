// SPDX-License-Identifier: Apache-2.0
//! The table of connections beneath the switch. The daemon tracks in memory that BPF programs share,
//! where the kernel and its privileges allow that, and goes on with the connections of an earlier
//! daemon.

use super::context::Context;
use super::state::SwitchState;
use conntrack::Table;
use conntrack::layout::CHUNK_CONNS;
use datapath::Datapath as _;
use datapath_bpf::Pins;
use datapath_bpf::ct_memory::{Adoption, BpfMemory};
use datapath_bpf::grace::Grace;
use datapath_userspace::{ConnectionTable, Makers};
use std::sync::Arc;

/// Gives the datapath its table of connections, before the first port. With `pins` connections
/// outlive the daemon. When BPF is switched on later, the table that is in use is pinned.
pub(super) fn begin(context: &Context<'_>, state: &mut SwitchState, pins: Option<&Arc<Pins>>) {
    if context.userspace.connections().is_some() {
        if let (Some(memory), Some(pins)) = (&state.connection_memory, pins)
            && let Err(error) = memory.pin(pins)
        {
            tracing::warn!(target: "conntrack", "connections end with this daemon: {error}");
        }
        return;
    }
    let shared = open(pins).inspect_err(|error| {
        tracing::info!(target: "conntrack", "connections are tracked in userspace alone: {error}");
    });
    let (memory, table) = match shared {
        Ok((memory, table)) => (Some(memory), table),
        Err(_) => (None, ConnectionTable::default()),
    };
    if context.userspace.begin_tracking(table) {
        state.connection_memory = memory;
    }
}

/// Opens a table in memory that BPF programs can share.
fn open(pins: Option<&Arc<Pins>>) -> anyhow::Result<(Arc<BpfMemory>, ConnectionTable)> {
    // First, because without it the connections of an earlier daemon must not be touched.
    let barrier = Box::new(Grace::new().inspect_err(|error| {
        tracing::warn!(
            target: "conntrack",
            "the kernel gives no means to wait for BPF programs ({error})"
        );
    })?);
    let (memory, adoption) = BpfMemory::open(pins, CHUNK_CONNS)?;
    let memory = Arc::new(memory);
    let [start, step, ..] = datapath_bpf::hash::factors();
    let table = Table::open(memory.clone(), [start, step])?;
    if let (Adoption::Done, Some(pins)) = (adoption, pins) {
        tracing::info!(
            target: "conntrack",
            "took over {} connections that an earlier daemon left in {}",
            table.counts().conns(),
            pins.directory().display(),
        );
    }
    let table = ConnectionTable { table: Arc::new(table), barrier, makers: Makers::Programs };
    Ok((memory, table))
}
