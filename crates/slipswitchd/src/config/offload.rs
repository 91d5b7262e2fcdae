// SPDX-License-Identifier: Apache-2.0
//! The BPF datapath beneath the switch. It begins when the database first allows it, and
//! `other_config:bpf-offload` turns it off and on. State that an earlier daemon left in it is
//! adopted or discarded.

use super::connection_memory;
use super::context::Context;
use super::desired::{Desired, DesiredBridge, Tunables};
use super::state::SwitchState;
use super::tunnel_helpers;
use datapath::TierSet;
use datapath::offload::OffloadProvider;
use datapath_bpf::maps::{MAX_FLOWS, MAX_MASKS};
use datapath_bpf::{BpfDatapath, BpfProvider, Config, Pins, Unavailable};
use placement::PlacedDatapath;
use process::Dirs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a daemon removes what an earlier one left.
const UNUSABLE: &str = "its BPF tables cannot be gone on with";
/// The tiers of BPF.
const BPF: TierSet = TierSet::XDP_AND_TCX;

/// Returns true when flows may run in BPF, whatever other providers there are.
pub(super) fn is_on(context: &Context<'_>) -> bool {
    context.placed.is_some_and(|placed| placed.has_provider(BPF))
}

/// Puts `bpf-offload` and `flow-restore-wait` into force; before the first port.
pub(super) fn sync(context: &mut Context<'_>, state: &mut SwitchState, new: &Tunables) {
    let Some(placed) = context.placed else { return };
    if new.bpf_offload && !placed.is_begun(BPF) {
        begin(context, state, placed, new);
        super::tunables::packet_threads(context, state, new);
    }
    if !new.bpf_offload && !placed.is_begun(BPF) && !state.configured {
        discard(context.directories, "other_config:bpf-offload=false");
        connection_memory::begin(context, state, None);
    }
    placed.set_blocked(BPF, (!new.bpf_offload).then(datapath_bpf::disabled));
    if new.bpf_sizes != state.tunables.bpf_sizes && state.configured && placed.is_begun(BPF) {
        state.remarks.info(
            "other_config:bpf-max-flows and bpf-max-masks are read when the tables are made: \
             restart after ovs-appctl exit --cleanup",
        );
    }
    if !new.flow_restore_wait {
        if state.restoring.take().is_some() {
            context.switch.slow_path().hold_revalidation(false);
            context.switch.need_revalidation();
        }
    } else if !state.configured {
        state.restoring = Some(Instant::now() + Duration::from_secs(new.restore_deadline));
    }
    if !state.configured {
        // Adopted flows belong to ports and rules that are not there yet.
        context.switch.slow_path().hold_revalidation(true);
    }
}

/// Returns a size of the tables: the one that the database asks for, clamped to `range`.
fn size(name: &str, asked: Option<u64>, default: u32, range: RangeInclusive<u32>) -> u32 {
    let Some(asked) = asked else { return default };
    let within = asked.clamp((*range.start()).into(), (*range.end()).into());
    if within != asked {
        tracing::warn!(
            target: "dpif",
            "other_config:{name} is {asked}, which is not from {} to {}: {within} is taken",
            range.start(),
            range.end(),
        );
    }
    u32::try_from(within).unwrap_or(default)
}

/// Makes the BPF datapath, or adopts the pinned one.
fn begin(
    context: &Context<'_>,
    state: &mut SwitchState,
    placed: &Arc<PlacedDatapath>,
    new: &Tunables,
) {
    let mut config = Config::default();
    config.max_flows = size("bpf-max-flows", new.bpf_sizes.0, config.max_flows, MAX_FLOWS);
    config.max_masks = size("bpf-max-masks", new.bpf_sizes.1, config.max_masks, MAX_MASKS);
    let directory = context.directories.bpf_pins();
    // The lock comes first: nothing is adopted while another daemon uses it.
    let pins = Pins::open(&directory).map(Arc::new);
    state.pins = pins.as_ref().ok().cloned();
    connection_memory::begin(context, state, pins.as_ref().ok());
    let opened = match pins {
        Ok(pins) => open(context, state, config, &pins),
        Err(error) => {
            if !matches!(error, Unavailable::InUse(_)) {
                discard(context.directories, UNUSABLE);
            }
            Err(error)
        }
    };
    if !opened.as_ref().is_ok_and(BpfDatapath::was_adopted) {
        // Their programs are gone, so their packets would reach the host's stack.
        tunnel_helpers::discard_all(&owner(context.directories));
    }
    let provider = match opened {
        Ok(bpf) => {
            if bpf.was_adopted() {
                tracing::info!(
                    target: "dpif",
                    "adopted {} flows and {} ports that an earlier daemon left in {}",
                    bpf.len(),
                    bpf.adopted_ports().len(),
                    directory.display(),
                );
            }
            Ok(Arc::new(BpfProvider::new(Arc::new(bpf))) as Arc<dyn OffloadProvider>)
        }
        Err(error) => {
            let reason = datapath_bpf::unavailable(&error);
            tracing::warn!(target: "dpif", "flows run in userspace: {reason}");
            Err(reason)
        }
    };
    placed.begin(BPF, provider);
    // The megaflows may outlive this daemon.
    context.switch.slow_path().recirc.derive_ids();
    context.switch.slow_path().expect_unknown_flows(); // those that were adopted
    if let Err(error) = placed.serve(BPF, context.userspace) {
        tracing::warn!(target: "dpif", "flows run in userspace: no device for packets that BPF passes up ({error})");
    }
}

/// Opens the datapath over pins and the memory of connections. Without it no flows stay pinned.
/// Connections do: this daemon goes on with them, or leaves them to a later one.
fn open(
    context: &Context<'_>,
    state: &SwitchState,
    config: Config,
    pins: &Arc<Pins>,
) -> Result<BpfDatapath, Unavailable> {
    let (clock, memory) = (context.clock.clone(), state.connection_memory.as_deref());
    BpfDatapath::open_over(config, clock, Some(Arc::clone(pins)), memory).inspect_err(|_| {
        if pins.discard_flows() {
            log_discard("flows", pins.directory(), UNUSABLE);
        }
    })
}

/// Removes all pinned objects at the end of a daemon that leaves nothing. The BPF datapath has done
/// that, if there is one.
pub(super) fn remove_pins(state: &SwitchState) {
    if let Some(pins) = &state.pins {
        pins.discard();
    }
}

/// Removes the BPF programs and tables that an earlier daemon left. They would go on forwarding by
/// the rules of that daemon, alongside this one.
fn discard(directories: &Dirs, why: &str) {
    let pins = directories.bpf_pins();
    match datapath_bpf::discard(&pins) {
        Ok(false) => {}
        Ok(true) => log_discard("flows and connections", &pins, why),
        Err(error) => tracing::warn!(
            target: "dpif",
            "what an earlier daemon left in {} stays, and may forward ({error})",
            pins.display(),
        ),
    }
}

fn log_discard(objects: &str, directory: &Path, why: &str) {
    tracing::info!(target: "dpif", "removed the {objects} in {}: {why}", directory.display());
}

/// Returns the name that marks the interfaces which this daemon makes to outlive it. Other daemons
/// have other directories, so they have other names.
pub(super) fn owner(directories: &Dirs) -> String {
    directories.run.display().to_string()
}

/// Removes interfaces of internal ports that an earlier daemon left, and that the database does
/// not name any more.
fn remove_orphans(directories: &Dirs, wanted: &Desired) {
    let owner = owner(directories);
    let left = netdev::persistent_interfaces(&owner).unwrap_or_else(|error| {
        tracing::warn!(target: "netdev_linux", "interfaces that an earlier daemon left cannot be looked for ({error})");
        Vec::new()
    });
    let named = |name: &str| {
        wanted.bridges.values().flat_map(DesiredBridge::interfaces).any(|row| row.name == name)
    };
    for name in left.iter().filter(|name| !named(name)) {
        match netdev::remove_persistent(name, &owner) {
            Ok(()) => tracing::info!(
                target: "netdev_linux",
                "{name}: removed: an earlier daemon made it, and the database names it no more",
            ),
            Err(error) => tracing::warn!(
                target: "netdev_linux",
                "an interface that an earlier daemon left stays ({error}): ip link del {name} removes it",
            ),
        }
    }
}

/// Ends the adoption, once the ports of the first configuration are there. Adopted state of other
/// ports is removed. Adopted flows are checked against the rules, unless the rules are still being
/// restored.
pub(super) fn configured(context: &mut Context<'_>, state: &SwitchState, wanted: &Desired) {
    let Some(placed) = context.placed else { return };
    placed.finish_adoption();
    remove_orphans(context.directories, wanted);
    if state.restoring.is_none() {
        context.switch.slow_path().hold_revalidation(false);
        context.switch.need_revalidation();
    }
}

/// Ends a `flow-restore-wait` whose deadline has passed. With `peers`, checks the other ends of
/// ports.
pub(super) fn tick(context: &mut Context<'_>, state: &mut SwitchState, peers: bool) {
    if state.restoring.is_some_and(|end| Instant::now() >= end) {
        state.restoring = None;
        tracing::warn!(
            target: "bridge",
            "flow-restore-wait has lasted {} s: flows are checked against the tables as these are \
             now (other_config:flow-restore-deadline)",
            state.tunables.restore_deadline,
        );
        context.switch.slow_path().hold_revalidation(false);
        context.switch.need_revalidation();
    }
    if peers && let Some(placed) = context.placed {
        placed.look_at_peers();
    }
}
