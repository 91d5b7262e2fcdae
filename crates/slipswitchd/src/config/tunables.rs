// SPDX-License-Identifier: Apache-2.0
//! Settings of the whole switch (`Open_vSwitch:other_config`).

use super::context::Context;
use super::desired::{Desired, Tunables};
use super::state::SwitchState;
use crate::args::DummyLevel;
use bridge::revalidator::Pass;
use bridge::switch::Switch;
use datapath_userspace::{Config, UpcallShare};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Default of `max-revalidator`, in milliseconds, as in OVS.
const MAX_REVALIDATOR: u64 = 500;
/// Default of `upcall-cpu-percent` and `ct-upcall-cpu-percent` for each CPU, in percent: other programs keep nine tenths of the
/// time that they have.
const UPCALL_PERCENT: u64 = 10;

/// Puts the settings into force that differ.
pub(super) fn sync(context: &mut Context<'_>, state: &mut SwitchState, wanted: &Desired) {
    if let Some(files) = &wanted.tls
        && state.tls.as_ref() != Some(files)
    {
        tracing::info!(target: "bridge", "TLS files are those of the database's SSL row");
    }
    state.tls.clone_from(&wanted.tls);
    let new = &wanted.tunables;
    if *new == state.tunables && state.configured {
        return;
    }
    let revalidator = &context.switch.slow_path().revalidator;
    revalidator.max_idle_ms.store(new.max_idle, Ordering::Relaxed);
    let interval = new.max_revalidator.unwrap_or(MAX_REVALIDATOR);
    revalidator.interval_ms.store(interval, Ordering::Relaxed);
    revalidator.is_interval_given.store(new.max_revalidator.is_some(), Ordering::Relaxed);
    if new.flow_limit != state.tunables.flow_limit || !state.configured {
        revalidator.configured_limit.store(new.flow_limit, Ordering::Relaxed);
        let limit = usize::try_from(new.flow_limit).unwrap_or(usize::MAX);
        context.switch.slow_path().flow_limit.store(limit, Ordering::Relaxed);
    }
    if new.pmd_cpu_mask != state.tunables.pmd_cpu_mask
        || new.upcall_cpu_percent != state.tunables.upcall_cpu_percent
        || new.ct_upcall_cpu_percent != state.tunables.ct_upcall_cpu_percent
    {
        packet_threads(context, state, new);
    }
    context.switch.set_sampled_drops(new.sampled_drops);
    context.connections.set_bundle_idle_timeout(new.bundle_idle_timeout);
    state.tunables = new.clone();
}

/// Sets the number of VLAN tags in keys. It is called before the BPF programs are loaded for the
/// first time.
pub(super) fn vlan_limit(context: &mut Context<'_>, state: &mut SwitchState, new: &Tunables) {
    if new.vlan_limit == state.tunables.vlan_limit && state.configured {
        return;
    }
    let before = flow::extract::vlan_limit();
    flow::extract::set_vlan_limit(usize::try_from(new.vlan_limit).unwrap_or(usize::MAX));
    if flow::extract::vlan_limit() == before {
        return;
    }
    forget_megaflows(context.switch);
    let Some(placed) = context.placed else { return };
    if let Err(reason) = placed.follow_vlan_limit() {
        state.remarks.warn(format!(
            "other_config:vlan-limit has changed, and flows run in userspace until the daemon is \
             started again: {reason}"
        ));
    }
    // BPF has refused the megaflows that came meanwhile.
    forget_megaflows(context.switch);
}

/// Removes all megaflows, because old keys do not compare with new ones.
fn forget_megaflows(switch: &mut Switch) {
    // A translation that is under way sees by this that its snapshot is old.
    switch.need_revalidation();
    switch.slow_path().pass(Pass::Purge);
}

/// Returns the CPU time that the upcalls of ports may use: `percent` of one CPU. `None` stands for
/// [`UPCALL_PERCENT`] of all CPUs, and idle time on top. In dummy mode there is no bound, because
/// results must not depend on a clock.
pub(crate) fn upcall_share(dummy: DummyLevel, percent: Option<u64>) -> UpcallShare {
    if dummy != DummyLevel::Off {
        return UpcallShare::default();
    }
    let per_second = |percent: u64| Duration::from_millis(percent.saturating_mul(10));
    let ours = || per_second(UPCALL_PERCENT * cpus() as u64);
    UpcallShare { time: percent.map_or_else(ours, per_second), uses_idle_cpu: percent.is_none() }
}

/// Returns the number of CPUs that the daemon may run on.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Sets the cores of packet threads and their share for upcalls. It also decides whether internal
/// ports outlive the daemon.
pub(super) fn packet_threads(context: &Context<'_>, state: &mut SwitchState, new: &Tunables) {
    let mask = new.pmd_cpu_mask.as_deref().unwrap_or_default();
    let available = cpus();
    match Config::cores_of_mask(mask) {
        Ok(cores) => {
            let (cores, absent): (Vec<usize>, Vec<usize>) =
                cores.into_iter().partition(|c| *c < available);
            if !absent.is_empty() {
                state.remarks.warn(format!(
                    "other_config:pmd-cpu-mask {mask} names cores that are not there: {absent:?}"
                ));
            }
            let is_placed = super::offload::is_on(context);
            let owner = state
                .owner
                .get_or_insert_with(|| super::offload::owner(context.directories).into());
            context.userspace.reconfigure(Config {
                cores,
                persistent_internal: is_placed.then(|| owner.clone()),
                open_muted: is_placed,
                upcall_share: upcall_share(context.dummy, new.upcall_cpu_percent),
                ct_upcall_share: upcall_share(context.dummy, new.ct_upcall_cpu_percent),
                ..Config::default()
            });
        }
        Err(error) => state.remarks.warn(error),
    }
}
