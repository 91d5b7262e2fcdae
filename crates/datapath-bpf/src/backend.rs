// SPDX-License-Identifier: Apache-2.0
//! The interface that [`crate::BpfProvider`] needs to the programs and their tables.
//! [`BpfDatapath`] implements it. The tests of placement implement it with a backend that records
//! each call.

use crate::attachment::{AttachError, Attachment, Held, HookSet, RxOwner, Unavailable};
use crate::{BpfDatapath, miss};
use datapath::offload::{Reason, Segmenter, TunnelHelper, TunnelHelperCounts, UpcallAccount};
use datapath::{
    Actions, AdoptedPort, BondTable, BucketBytes, DropReason, FlowStats, LookupStats, Megaflow,
    MeterConfig, MeterStats, MissOrigin, PortCounts, PortNo, Refusal, SequenceNumbers,
    TunnelEndpoint, Ufid,
};
use netdev::Policing;
use packet::{Mac, Packet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use tunnel::PortConfig;

/// The programs at both hooks and their shared tables. Methods may be called from any thread.
#[doc(hidden)]
pub trait Backend: Send + Sync {
    /// Returns the ports in tables that were taken over from an earlier daemon.
    fn adopted_ports(&self) -> Vec<AdoptedPort>;

    /// Returns the tunnel ports in such tables.
    fn adopted_tunnels(&self) -> Vec<(PortNo, PortConfig)>;

    /// Attaches a port to exactly the hooks of `attachment`, or changes a port that is attached.
    ///
    /// # Errors
    ///
    /// Returns the first hook that failed. The port is then as it was before, or not attached at
    /// all.
    fn attach(&self, port: PortNo, attachment: &Attachment) -> Result<(), Reason>;

    /// Chooses the user's program that the port runs at XDP; `None` chooses the built-in program.
    /// Loads the program, and detaches the present program from XDP. The next [`Backend::attach`]
    /// to XDP attaches the new one. When this returns, no flow that [`Backend::suits_xdp`] refuses
    /// runs at XDP on the port. After an error the port is in the same state as after `None`.
    ///
    /// # Errors
    ///
    /// Returns the defect of the object.
    fn use_object(&self, port: PortNo, object: Option<&Path>) -> Result<(), Reason>;

    /// Returns the declared capabilities of a port's user's program, as lines of text. `None` when
    /// there is no program, or it could not be used.
    fn about_object(&self, _port: PortNo) -> Option<String> {
        None
    }

    /// Returns the optional programs that the kernel refused, a line for each: the reason and the
    /// consequence.
    fn refused_programs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks whether XDP can run a flow. XDP must support the actions, have room for the objects
    /// that the actions need, and the program of the flow's ingress port must know the actions.
    ///
    /// # Errors
    ///
    /// Returns the missing capability.
    fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal>;

    /// Follows a change of [`flow::extract::vlan_limit`].
    ///
    /// # Errors
    ///
    /// Returns the reason; no flow is taken then.
    fn follow_vlan_limit(&self) -> Result<(), Reason> {
        Ok(())
    }

    /// Returns the filter that sockets need so that each packet has one owner; `None`: there is no
    /// filter.
    fn filter(&self) -> Option<BorrowedFd<'_>>;

    /// Sets the owner of the packets that arrive at `ifindex`, from this instant. `ifindex` belongs
    /// to `port`, or is about to. Without this call the programs alone own the packets from
    /// [`Backend::attach`] on.
    ///
    /// # Errors
    ///
    /// Fails when there is no room for the interface.
    fn set_rx_owner(&self, port: PortNo, ifindex: u32, owner: RxOwner) -> Result<(), Reason>;

    /// Returns true when programs own the packets that arrive at `ifindex`, as packets of `port`.
    fn owns_rx(&self, port: PortNo, ifindex: u32) -> bool;

    /// Blocks until the packets that were between a socket and the skb hook have gone through. May
    /// take milliseconds.
    fn wait_for_packets(&self);

    /// Detaches a port and removes it from the tables. May take milliseconds.
    fn detach(&self, port: PortNo);

    /// Removes a port from the tables. The programs at its device pass all packets on, and
    /// [`Backend::finish_detaching`] detaches them.
    fn detach_later(&self, port: PortNo) {
        self.detach(port);
    }

    /// Detaches one program that [`Backend::detach_later`] left, which takes milliseconds. Returns
    /// false when there was none.
    fn finish_detaching(&self) -> bool {
        false
    }

    /// Adds a port of a tunnel, until [`Backend::detach`]. Returns false when programs do not pop such
    /// tunnels.
    fn add_tunnel(&self, _port: PortNo, _config: &PortConfig) -> bool {
        false
    }

    /// See [`datapath::OffloadProvider::sequence_numbers`].
    fn sequence(&self, _port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        None
    }

    /// Changes the MTU of a port in bytes, and whether it may be sent to.
    fn set_port(&self, port: PortNo, mtu: u32, up: bool);

    /// Limits the packets that arrive at `ifindex` for an attached port, at the skb hook.
    fn set_policing(&self, _port: PortNo, _ifindex: u32, _policing: Policing) {}

    /// Sets whether flows at XDP may redirect to an attached port.
    ///
    /// # Errors
    ///
    /// Fails when the device cannot be a target of redirects.
    fn set_redirect_target(&self, port: PortNo, is_target: bool) -> Result<(), Reason>;

    /// Sets whether flows at XDP may redirect frames in several buffers to a port that they may
    /// redirect to.
    fn set_split_target(&self, _port: PortNo, _takes_them: bool) {}

    /// Has frames for `mac` that flows at the skb hook send to an attached port enter the other end
    /// of its veth pair at once; `None`: all frames pass the port's device. Each
    /// [`Backend::attach`] ends it.
    fn set_peer(&self, _port: PortNo, _mac: Option<Mac>) {}

    /// Sets the addresses to which packets of tunnels come, for ports of [`datapath::Side::Underlay`].
    fn set_tunnel_endpoints(&self, _endpoints: &[TunnelEndpoint]) {}

    /// See [`datapath::OffloadProvider::set_tunnel_helper`].
    fn set_tunnel_helper(
        &self,
        _port: PortNo,
        _helper: Option<&TunnelHelper>,
    ) -> Result<(), Reason> {
        Ok(())
    }

    /// See [`datapath::OffloadProvider::tunnel_helper_counts`].
    fn tunnel_helper_counts(&self, _port: PortNo) -> Option<TunnelHelperCounts> {
        None
    }

    /// See [`datapath::OffloadProvider::set_segmenter`].
    fn set_segmenter(&self, _segmenter: Option<&Segmenter>) -> Result<(), Reason> {
        Ok(())
    }

    /// See [`datapath::offload::MissChannel::set_miss_device`].
    fn set_miss_device(&self, ifindex: u32);
    /// See [`datapath::offload::MissChannel::unwrap`].
    fn unwrap(&self, packet: &mut Packet) -> Option<MissOrigin>;
    /// See [`datapath::offload::MissChannel::note_taken`].
    fn note_taken(&self, port: PortNo, count: u64);
    /// See [`datapath::offload::MissChannel::hold_back`].
    fn hold_back(&self, port: PortNo, account: UpcallAccount, until_nanos: u64);
    /// See [`datapath::offload::MissChannel::resync_taken`].
    fn resync_taken(&self, lost: u64);
    /// See [`datapath::offload::MissChannel::is_on_its_way`].
    fn is_on_its_way(&self, port: PortNo) -> bool;
    /// See [`datapath::offload::MissChannel::sent_up`].
    fn sent_up(&self) -> u64;

    /// Returns at which of `allowed` [`Backend::install`] would put a flow, judged from its actions
    /// alone.
    ///
    /// # Errors
    ///
    /// Returns the reason why no hook would take the flow.
    fn would_take(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal>;

    /// Adds a flow with zero statistics where `allowed` and the actions let it run. Returns these
    /// hooks, which are never empty.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal; the flows are unchanged.
    fn install(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal>;

    /// Gives a present flow other actions, or the same at other hooks; its statistics go on.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal; the flow stays as it was.
    fn replace(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal>;

    /// See [`datapath::OffloadProvider::remove_many`].
    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats));
    /// See [`datapath::OffloadProvider::sweep`].
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats));
    /// See [`datapath::OffloadProvider::sweep_moved`].
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.sweep(each);
    }
    /// See [`datapath::OffloadProvider::flow`].
    fn flow(&self, ufid: Ufid) -> Option<Held>;
    /// See [`datapath::OffloadProvider::stats`].
    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        self.flow(ufid).map(|held| held.stats)
    }
    /// See [`datapath::OffloadProvider::actions`].
    fn actions(&self, ufid: Ufid) -> Option<Actions>;
    /// See [`datapath::OffloadProvider::len`].
    fn flow_count(&self) -> usize;
    /// See [`datapath::OffloadProvider::does`].
    fn encodes_alike(&self, ufid: Ufid, actions: &Actions) -> bool;

    /// See [`datapath::OffloadProvider::drops`].
    fn drops(&self, reason: DropReason) -> u64;
    /// See [`datapath::OffloadProvider::lookups`].
    fn lookups(&self) -> LookupStats;
    /// See [`datapath::OffloadProvider::port_counts`].
    fn port_counts(&self, port: PortNo) -> PortCounts;
    /// Sets the counts of a port to zero.
    fn forget_counts(&self, port: PortNo);

    /// See [`datapath::OffloadProvider::set_meter`].
    ///
    /// # Errors
    ///
    /// Fails when there is no room, or BPF cannot express the meter.
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal>;
    /// See [`datapath::OffloadProvider::remove_meter`].
    fn remove_meter(&self, id: u32) -> Option<MeterStats>;
    /// See [`datapath::OffloadProvider::meter_stats`].
    fn meter_stats(&self, id: u32) -> Option<MeterStats>;

    /// See [`datapath::OffloadProvider::set_bond`].
    ///
    /// # Errors
    ///
    /// Fails when there is no room.
    fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal>;
    /// See [`datapath::OffloadProvider::remove_bond`].
    fn remove_bond(&self, id: u32);
    /// See [`datapath::OffloadProvider::bond_bytes`].
    fn bond_bytes(&self, id: u32) -> Option<BucketBytes>;
    /// See [`datapath::OffloadProvider::adopted_bonds`].
    fn adopted_bonds(&self) -> Vec<(u32, BondTable)>;

    /// See [`datapath::OffloadProvider::maintain`].
    fn maintain(&self);
    /// See [`datapath::OffloadProvider::close`].
    fn close(&self, cleanup: bool);
}

impl Backend for BpfDatapath {
    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        BpfDatapath::adopted_ports(self)
    }

    fn adopted_tunnels(&self) -> Vec<(PortNo, PortConfig)> {
        BpfDatapath::adopted_tunnels(self)
    }

    fn attach(&self, port: PortNo, attachment: &Attachment) -> Result<(), Reason> {
        BpfDatapath::attach(self, port, attachment).map_err(|e| reason(&e))
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

    fn refused_programs(&self) -> Vec<String> {
        BpfDatapath::refused_programs(self)
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

    fn set_rx_owner(&self, port: PortNo, ifindex: u32, owner: RxOwner) -> Result<(), Reason> {
        BpfDatapath::set_rx_owner(self, port, ifindex, owner).map_err(|e| reason(&e))
    }

    fn owns_rx(&self, port: PortNo, ifindex: u32) -> bool {
        BpfDatapath::owns_rx(self, port, ifindex)
    }

    fn wait_for_packets(&self) {
        if let Err(e) = BpfDatapath::wait_for_packets(self) {
            tracing::warn!(target: "dpif", "packets may be lost: the kernel does not wait ({e})");
        }
    }

    fn detach(&self, port: PortNo) {
        BpfDatapath::detach(self, port);
    }

    fn detach_later(&self, port: PortNo) {
        BpfDatapath::detach_later(self, port);
    }

    fn finish_detaching(&self) -> bool {
        BpfDatapath::finish_detaching(self)
    }

    fn add_tunnel(&self, port: PortNo, config: &PortConfig) -> bool {
        BpfDatapath::add_tunnel(self, port, config)
    }

    fn sequence(&self, port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        BpfDatapath::sequence(self, port)
    }

    fn set_port(&self, port: PortNo, mtu: u32, up: bool) {
        BpfDatapath::set_port(self, port, mtu, up);
    }

    fn set_policing(&self, port: PortNo, ifindex: u32, policing: Policing) {
        BpfDatapath::set_policing(self, port, ifindex, policing);
    }

    fn set_redirect_target(&self, port: PortNo, is_target: bool) -> Result<(), Reason> {
        self.set_devmap(port, is_target)
            .map_err(|e| Reason::new(refusal_of_system(&e), format!("no target of redirects: {e}")))
    }

    fn set_split_target(&self, port: PortNo, takes_them: bool) {
        BpfDatapath::set_split_target(self, port, takes_them);
    }

    fn set_peer(&self, port: PortNo, mac: Option<Mac>) {
        BpfDatapath::set_peer(self, port, mac);
    }

    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        if let Err(error) = BpfDatapath::set_tunnel_endpoints(self, endpoints) {
            tracing::warn!(
                target: "dpif",
                "the BPF programs do not know all {} addresses of tunnels ({error}): packets of \
                 tunnels to the others go to the host's stack",
                endpoints.len()
            );
        }
    }

    fn set_tunnel_helper(&self, port: PortNo, helper: Option<&TunnelHelper>) -> Result<(), Reason> {
        BpfDatapath::set_tunnel_helper(self, port, helper).map_err(|e| reason(&e))
    }

    fn tunnel_helper_counts(&self, port: PortNo) -> Option<TunnelHelperCounts> {
        BpfDatapath::tunnel_helper_counts(self, port)
    }

    fn set_segmenter(&self, segmenter: Option<&Segmenter>) -> Result<(), Reason> {
        BpfDatapath::set_segmenter(self, segmenter).map_err(|e| reason(&e))
    }

    fn set_miss_device(&self, ifindex: u32) {
        BpfDatapath::set_miss_device(self, ifindex);
    }

    fn unwrap(&self, packet: &mut Packet) -> Option<MissOrigin> {
        let miss::Missed { mut origin, tracked } = miss::strip(packet)?;
        origin.tracked = tracked.map(|tracked| Box::new(self.tracked(&tracked)));
        Some(origin)
    }

    fn note_taken(&self, port: PortNo, count: u64) {
        BpfDatapath::note_taken(self, port, count);
    }

    fn hold_back(&self, port: PortNo, account: UpcallAccount, until_nanos: u64) {
        BpfDatapath::hold_back(self, port, account, until_nanos);
    }

    fn resync_taken(&self, lost: u64) {
        BpfDatapath::resync_taken(self, lost);
    }

    fn is_on_its_way(&self, port: PortNo) -> bool {
        self.on_their_way(port) > 0
    }

    fn sent_up(&self) -> u64 {
        self.counters().up
    }

    fn would_take(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        Ok(self.encode(flow)?.hooks & allowed)
    }

    fn install(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        BpfDatapath::install(self, flow, allowed)
    }

    fn replace(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        BpfDatapath::replace(self, flow, allowed)
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        BpfDatapath::remove_many(self, ufids, each);
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        BpfDatapath::sweep(self, each);
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        BpfDatapath::sweep_moved(self, each);
    }

    fn flow(&self, ufid: Ufid) -> Option<Held> {
        BpfDatapath::flow_as_swept(self, ufid)
    }

    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        BpfDatapath::flow(self, ufid).map(|held| held.stats)
    }

    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        BpfDatapath::actions(self, ufid).map(Actions::from)
    }

    fn flow_count(&self) -> usize {
        self.len()
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

    fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        BpfDatapath::set_bond(self, id, table)
    }

    fn remove_bond(&self, id: u32) {
        BpfDatapath::remove_bond(self, id);
    }

    fn bond_bytes(&self, id: u32) -> Option<BucketBytes> {
        BpfDatapath::bond_bytes(self, id)
    }

    fn adopted_bonds(&self) -> Vec<(u32, BondTable)> {
        BpfDatapath::adopted_bonds(self)
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

/// Converts the error of [`BpfDatapath::open`] to the reason of a missing tier.
pub fn unavailable(error: &Unavailable) -> Reason {
    let refusal = match error {
        Unavailable::Permission(_) => Refusal::NoPermission,
        Unavailable::Kernel { .. } => Refusal::KernelTooOld,
        _ => Refusal::TierUnavailable,
    };
    Reason::new(refusal, error.to_string())
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
        // EINVAL: the driver has XDP, but not with this MTU or this number of queues.
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

/// ERANGE: veth's answer to an MTU that is too large for XDP.
fn is_mtu(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::RANGE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

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
