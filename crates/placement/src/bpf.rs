// SPDX-License-Identifier: Apache-2.0
//! The BPF datapath as a fast path.

use crate::{Attachment, FastPath, Held, Reason, TierSet};
use datapath::{
    Actions, AdoptedPort, DropReason, FlowStats, LookupStats, Megaflow, MeterConfig, MeterStats,
    Origin, PortCounts, PortNo, Refusal, Tier, Ufid,
};
use datapath_bpf::{AttachError, BpfDatapath, HookSet, Hooks, Taker, Unavailable};
use packet::Packet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Why there is no BPF datapath, as a reason.
pub fn unavailable(error: &Unavailable) -> Reason {
    let refusal = match error {
        Unavailable::Permission(_) => Refusal::NoPermission,
        Unavailable::Kernel { .. } => Refusal::KernelTooOld,
        _ => Refusal::TierUnavailable,
    };
    Reason::new(refusal, error.to_string())
}

/// For people, in lines: which program of the user's a port has at XDP, what it can do (`known`,
/// or read from the file, without loading it), and what becomes of the flows that it cannot run.
pub fn about_object(path: &Path, known: Option<String>) -> Vec<String> {
    let mut lines = vec![format!("options:bpf-object is {}", path.display())];
    let about = match known {
        Some(about) => Ok(about),
        None => datapath_bpf::object::examine_file(path).map(|about| about.to_string()),
    };
    match about {
        Ok(about) => {
            lines.extend(about.lines().map(|line| format!("  {line}")));
            lines.push(format!(
                "  flows that compare more ({}) or do more ({}) run at the next tier",
                Refusal::UnsupportedKey,
                Refusal::UnsupportedAction,
            ));
        }
        Err(error) => {
            lines.push(format!("  it cannot be used, all flows run at the next tier: {error}"));
        }
    }
    lines
}

fn hooks_of(tiers: TierSet) -> HookSet {
    let mut hooks = HookSet::empty();
    hooks.set(HookSet::XDP, tiers.has(Tier::Xdp));
    hooks.set(HookSet::TC, tiers.has(Tier::Tcx));
    hooks
}

fn tiers_of(hooks: HookSet) -> TierSet {
    let mut tiers = TierSet::NONE;
    if hooks.contains(HookSet::XDP) {
        tiers = tiers.with(Tier::Xdp);
    }
    if hooks.contains(HookSet::TC) {
        tiers = tiers.with(Tier::Tcx);
    }
    tiers
}

fn refusal_of(error: &AttachError) -> Refusal {
    match error {
        AttachError::PortNumber(_) | AttachError::Interfaces(_) => Refusal::TableFull,
        AttachError::XdpAtStack(_) => Refusal::DeviceKind,
        AttachError::Kernel { source, .. } => refusal_of_system(source),
        AttachError::Pin { .. } => Refusal::TierUnavailable,
    }
}

fn refusal_of_system(error: &io::Error) -> Refusal {
    if is_mtu(error) {
        return Refusal::DriverLacksSupport;
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::NoPermission,
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => Refusal::HookBusy,
        // EINVAL: the driver has XDP, but not with this MTU or so many queues.
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Refusal::DriverLacksSupport,
        _ => Refusal::TierUnavailable,
    }
}

fn reason(error: &AttachError) -> Reason {
    let detail = match error {
        AttachError::Kernel { source, .. } if is_mtu(source) => format!(
            "{error}: frames of its other end's MTU are in several buffers, which this kernel \
             cannot redirect (Linux 6.3 can); ip link set DEVICE mtu 3400 makes them one"
        ),
        _ => error.to_string(),
    };
    Reason::new(refusal_of(error), detail)
}

/// ERANGE: what veth says of an MTU that is too large for XDP.
fn is_mtu(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::RANGE.raw_os_error())
}

impl FastPath for BpfDatapath {
    fn tiers(&self) -> TierSet {
        TierSet::XDP_AND_TCX
    }

    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        BpfDatapath::adopted_ports(self)
    }

    fn attach(&self, port: PortNo, at: &Attachment) -> Result<(), Reason> {
        let attachment = datapath_bpf::Attachment {
            ifindex: at.ifindex,
            side: at.side,
            hooks: Hooks {
                tc: at.tiers.has(Tier::Tcx),
                xdp: at.tiers.has(Tier::Xdp).then_some(at.mode),
            },
            mtu: at.mtu,
            up: at.up,
        };
        BpfDatapath::attach(self, port, &attachment).map_err(|e| reason(&e))
    }

    fn use_object(&self, port: PortNo, object: Option<&Path>) -> Result<(), Reason> {
        BpfDatapath::use_object(self, port, object).map_err(|e| {
            if let Some(log) = e.log() {
                tracing::warn!(target: "dpif", "the kernel on a user's program ({e}):\n{log}");
            }
            Reason::new(Refusal::UserObject, e.to_string())
        })
    }

    fn about_object(&self, port: PortNo) -> Option<String> {
        self.capabilities(port).map(|capabilities| capabilities.to_string())
    }

    fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        BpfDatapath::suits_xdp(self, flow)
    }

    fn follow_vlan_limit(&self) -> Result<(), Reason> {
        BpfDatapath::follow_vlan_limit(self).map_err(|e| unavailable(&e))
    }

    fn filter(&self) -> Option<BorrowedFd<'_>> {
        BpfDatapath::filter(self)
    }

    fn set_taker(&self, port: PortNo, ifindex: u32, taker: Taker) -> Result<(), Reason> {
        BpfDatapath::set_taker(self, port, ifindex, taker).map_err(|e| reason(&e))
    }

    fn takes(&self, port: PortNo, ifindex: u32) -> bool {
        BpfDatapath::takes(self, port, ifindex)
    }

    fn wait_for_packets(&self) {
        if let Err(e) = BpfDatapath::wait_for_packets(self) {
            tracing::warn!(target: "dpif", "packets may be lost: the kernel does not wait ({e})");
        }
    }

    fn detach(&self, port: PortNo) {
        BpfDatapath::detach(self, port);
    }

    fn set_port(&self, port: PortNo, mtu: u32, up: bool) {
        BpfDatapath::set_port(self, port, mtu, up);
    }

    fn set_redirect_target(&self, port: PortNo, is_target: bool) -> Result<(), Reason> {
        self.set_devmap(port, is_target)
            .map_err(|e| Reason::new(refusal_of_system(&e), format!("no target of redirects: {e}")))
    }

    fn set_split_target(&self, port: PortNo, takes_them: bool) {
        BpfDatapath::set_split_target(self, port, takes_them);
    }

    fn set_miss_device(&self, ifindex: u32) {
        BpfDatapath::set_miss_device(self, ifindex);
    }

    fn unwrap(&self, packet: &mut Packet) -> Option<Origin> {
        datapath_bpf::miss::strip(packet)
    }

    fn note_taken(&self, port: PortNo, count: u64) {
        BpfDatapath::note_taken(self, port, count);
    }

    fn hold_back(&self, port: PortNo, until: u64) {
        BpfDatapath::hold_back(self, port, until);
    }

    fn resync_taken(&self) {
        BpfDatapath::resync_taken(self);
    }

    fn is_on_its_way(&self, port: PortNo) -> Option<bool> {
        Some(self.on_their_way(port) > 0)
    }

    fn would_take(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal> {
        let encoded = datapath_bpf::encode::encode(&flow.actions)?;
        Ok(tiers_of(encoded.hooks & hooks_of(allowed)))
    }

    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal> {
        BpfDatapath::install(self, flow, hooks_of(allowed)).map(tiers_of)
    }

    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal> {
        BpfDatapath::replace(self, flow, hooks_of(allowed)).map(tiers_of)
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        BpfDatapath::remove_many(self, ufids, each);
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        BpfDatapath::sweep(self, each);
    }

    fn flow(&self, ufid: Ufid) -> Option<Held> {
        let held = BpfDatapath::flow(self, ufid)?;
        Some(Held { matching: held.matching, tiers: tiers_of(held.hooks), stats: held.stats })
    }

    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        BpfDatapath::actions(self, ufid).map(Actions::from)
    }

    fn len(&self) -> usize {
        BpfDatapath::len(self)
    }

    fn encodes_alike(&self, ufid: Ufid, actions: &Actions) -> bool {
        BpfDatapath::encodes_alike(self, ufid, actions)
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.counters().drops.get(reason as usize).copied().unwrap_or_default()
    }

    fn lookups(&self) -> LookupStats {
        let totals = self.counters();
        LookupStats {
            hits: totals.hits,
            misses: 0,
            lost: totals.drops.get(DropReason::UpcallLimit as usize).copied().unwrap_or(0),
            mask_hits: totals.masks_visited,
            cache_hits: totals.hits.saturating_sub(totals.found),
            masks: totals.masks,
            flows: totals.flows,
        }
    }

    fn port_counts(&self, port: PortNo) -> PortCounts {
        BpfDatapath::port_counts(self, port)
    }

    fn forget_counts(&self, port: PortNo) {
        BpfDatapath::forget_counts(self, port);
    }

    fn sent_up(&self) -> u64 {
        self.counters().up
    }

    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        BpfDatapath::set_meter(self, id, config)
    }

    fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        BpfDatapath::remove_meter(self, id)
    }

    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        BpfDatapath::meter_stats(self, id)
    }

    fn maintain(&self) {
        BpfDatapath::maintain(self);
    }

    fn close(&self, cleanup: bool) {
        BpfDatapath::close(self, cleanup);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_tiers() {
        for tiers in [TierSet::NONE, TierSet::TCX, TierSet::XDP_AND_TCX] {
            assert_eq!(tiers_of(hooks_of(tiers)), tiers);
        }
    }

    #[test]
    fn errors_have_reasons() {
        let kernel = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            refusal_of(&AttachError::Kernel { ifindex: 1, hook: "XDP", source })
        };
        assert_eq!(kernel(95), Refusal::DriverLacksSupport); // EOPNOTSUPP
        assert_eq!(kernel(22), Refusal::DriverLacksSupport); // EINVAL
        assert_eq!(kernel(34), Refusal::DriverLacksSupport); // ERANGE
        assert_eq!(kernel(16), Refusal::HookBusy); // EBUSY
        assert_eq!(kernel(17), Refusal::HookBusy); // EEXIST
        assert_eq!(kernel(1), Refusal::NoPermission); // EPERM
        assert_eq!(kernel(12), Refusal::TierUnavailable); // ENOMEM
        let none = unavailable(&Unavailable::Permission("load programs"));
        assert_eq!(none.refusal, Refusal::NoPermission);
        assert!(none.detail.contains("CAP_BPF"), "{none}");
    }
}
