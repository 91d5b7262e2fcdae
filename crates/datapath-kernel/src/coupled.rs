// SPDX-License-Identifier: Apache-2.0
//! Two datapaths under one numbering of ports: the switch's own, and the kernel's once it is there.

use crate::{KernelDatapath, Numbering};
use conntrack::Flush;
use datapath::{
    Action, Actions, BondTable, Bonds, BucketBytes, Connections, Counters, Datapath, DropReason,
    FlowDump, FlowStats, Flows, LookupStats, Megaflow, MeterConfig, MeterStats, Meters, Packets,
    PortError, PortInfo, PortNo, PortSpec, Ports, QueueNumbering, Refusal, SequenceNumbers,
    TunnelEndpoint, Ufid, UpcallFactory,
};
use flow::{Key, Mask};
use netdev::{Device, Policing, QosRequest};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The numbers of the kernel's ports. The switch's own datapath gives lower ones.
pub const NUMBERING: Numbering = Numbering { first: 0x0010_0000 };

/// A datapath that passes each call on to one of two datapaths, by the port or the kind of port. Any
/// thread may use it.
pub struct CoupledDatapath {
    own: Arc<dyn Datapath>,
    kernel: OnceLock<Arc<KernelDatapath>>,
    factory: OnceLock<Arc<dyn UpcallFactory>>,
    /// The configurations of all meters, for the kernel's datapath.
    meters: Mutex<BTreeMap<u32, MeterConfig>>,
}

impl CoupledDatapath {
    /// Returns a datapath that passes every call on to `own`, until [`CoupledDatapath::begin`].
    pub fn new(own: Arc<dyn Datapath>) -> Arc<CoupledDatapath> {
        Arc::new(CoupledDatapath {
            own,
            kernel: OnceLock::new(),
            factory: OnceLock::new(),
            meters: Mutex::default(),
        })
    }

    /// Adds the kernel's datapath, whose ports have the numbers of [`NUMBERING`]. Called by the
    /// control thread, once; later calls do nothing.
    pub fn begin(&self, kernel: Arc<KernelDatapath>) {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        if self.kernel.get().is_some() {
            return;
        }
        for (id, config) in &*meters {
            if let Err(refusal) = Meters::set(&*kernel, *id, config) {
                tracing::warn!(
                    target: "dpif_netlink",
                    "{}: meter {id} is not in the kernel ({refusal}): its packets pass",
                    kernel.name(),
                );
            }
        }
        if let Some(factory) = self.factory.get() {
            kernel.set_upcall_factory(Arc::clone(factory));
        }
        // Checked above, under the lock.
        let _ = self.kernel.set(kernel);
        drop(meters);
        self.follow_zone_limits();
    }

    /// Gives the kernel's tracker the limits of zones that the own one has; after each change of those.
    pub fn follow_zone_limits(&self) {
        let (Some(kernel), Some(own)) = (self.kernel.get(), self.own.connections()) else { return };
        if let Err(error) = kernel.follow_zone_limits(own.tracker().table().counts()) {
            tracing::warn!(target: "dpif_netlink", "{}: {error}", kernel.name());
        }
    }

    /// Returns the switch's own datapath.
    pub fn own(&self) -> &Arc<dyn Datapath> {
        &self.own
    }

    /// Returns the kernel's datapath; `None` before [`CoupledDatapath::begin`].
    pub fn kernel(&self) -> Option<&Arc<KernelDatapath>> {
        self.kernel.get()
    }

    /// Returns the datapath that a port belongs to.
    fn of(&self, port: PortNo) -> &dyn Datapath {
        match self.kernel.get() {
            Some(kernel) if NUMBERING.to_kernel(port).is_some() => &**kernel,
            _ => &*self.own,
        }
    }

    fn of_flow(&self, flow: &Megaflow) -> &dyn Datapath {
        self.of(PortNo(flow.matching.key().in_port.get()))
    }

    /// Returns the datapath that has a megaflow: the kernel's list is asked.
    fn holder(&self, ufid: Ufid) -> &dyn Datapath {
        match self.kernel.get() {
            Some(kernel) if kernel.holds(ufid) => &**kernel,
            _ => &*self.own,
        }
    }

    /// Returns both datapaths, or the one that there is.
    fn all(&self) -> impl Iterator<Item = &dyn Datapath> {
        let kernel = self.kernel.get().map(|kernel| &**kernel as &dyn Datapath);
        [Some(&*self.own), kernel].into_iter().flatten()
    }

    /// Divides identities by the datapath that has the megaflows: the own ones first.
    fn divide(&self, ufids: &[Ufid]) -> (Vec<Ufid>, Vec<Ufid>) {
        let kernel = self.kernel.get();
        ufids.iter().partition(|ufid| kernel.is_none_or(|kernel| !kernel.holds(**ufid)))
    }
}

/// Returns the port of the first output, in nested lists too.
fn first_output(actions: &[Action]) -> Option<PortNo> {
    actions.iter().find_map(|action| match action {
        Action::Output(port) => Some(*port),
        Action::LbOutput(first_member) => Some(PortNo(*first_member)),
        Action::Sample { actions, .. } | Action::Clone(actions) => first_output(actions),
        Action::CheckPktLen { greater, not_greater, .. } => {
            first_output(greater).or_else(|| first_output(not_greater))
        }
        Action::Drop(_)
        | Action::Userspace(_)
        | Action::Recirc(_)
        | Action::Hash { .. }
        | Action::Trunc(_)
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::AddMpls { .. }
        | Action::Set(_)
        | Action::Meter(_)
        | Action::Ct(_)
        | Action::CtClear
        | Action::TunnelPush { .. }
        | Action::TunnelPop(_)
        | Action::SetTunnel(_)
        | Action::PushEth { .. }
        | Action::PopEth
        | Action::PushNsh(_)
        | Action::PopNsh => None,
    })
}

impl Ports for CoupledDatapath {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        if !KernelDatapath::has_kind(spec.kind) {
            return self.own.add_port(spec);
        }
        match self.kernel.get() {
            Some(kernel) => kernel.add_port(spec),
            None => Err(PortError::Open {
                name: spec.name.clone(),
                cause: "openvswitch.ko is not in use".to_owned(),
            }),
        }
    }

    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        self.of(port).remove_port(port)
    }

    fn ports(&self) -> Vec<PortInfo> {
        self.all().flat_map(Ports::ports).collect()
    }

    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.of(port).device(port)
    }

    fn upcalls(&self, port: PortNo) -> Option<u64> {
        self.of(port).upcalls(port)
    }

    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        self.of(port).set_policing(port, policing)
    }

    fn set_qos(&self, port: PortNo, qos: Option<&QosRequest>) -> Result<Vec<String>, PortError> {
        self.of(port).set_qos(port, qos)
    }

    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        self.of(port).share_sequence(port, numbers);
    }

    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        self.own.set_tunnel_endpoints(endpoints);
    }
}

impl Flows for CoupledDatapath {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        self.of_flow(flow).install(flow)
    }

    fn prefetch(&self, flows: &[&Megaflow]) {
        self.own.prefetch(flows);
    }

    fn closed_mask(&self, key: &Key, mask: &Mask) -> Mask {
        self.of(PortNo(key.in_port.get())).closed_mask(key, mask)
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        self.holder(ufid).modify(ufid, actions)
    }

    fn modify_many(&self, flows: &[(Ufid, Actions)], refused: &mut dyn FnMut(Ufid)) {
        let Some(kernel) = self.kernel.get() else {
            return self.own.modify_many(flows, refused);
        };
        let (theirs, own): (Vec<_>, Vec<_>) =
            flows.iter().cloned().partition(|(ufid, _)| kernel.holds(*ufid));
        self.own.modify_many(&own, refused);
        kernel.modify_many(&theirs, refused);
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        self.holder(ufid).remove(ufid)
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let Some(kernel) = self.kernel.get() else {
            return self.own.remove_many(ufids, each);
        };
        let (own, theirs) = self.divide(ufids);
        self.own.remove_many(&own, each);
        kernel.remove_many(&theirs, each);
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.holder(ufid).flow(ufid)
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.all().for_each(|datapath| datapath.sweep(each));
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.all().for_each(|datapath| datapath.sweep_moved(each));
    }

    fn stats_of(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let Some(kernel) = self.kernel.get() else {
            return self.own.stats_of(ufids, each);
        };
        let (own, theirs) = self.divide(ufids);
        self.own.stats_of(&own, each);
        kernel.stats_of(&theirs, each);
    }

    fn dump(&self) -> Vec<FlowDump> {
        self.all().flat_map(Flows::dump).collect()
    }

    fn flush(&self) {
        self.all().for_each(Flows::flush);
    }
}

impl Packets for CoupledDatapath {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.all().for_each(|datapath| datapath.set_upcall_factory(Arc::clone(&factory)));
        // Called once, by the contract.
        let _ = self.factory.set(factory);
    }

    /// A packet of no port is one of the datapath that it is sent by.
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        let in_port = PortNo(key.in_port.get());
        let place = match in_port {
            PortNo::NONE => first_output(actions).unwrap_or(in_port),
            port => port,
        };
        self.of(place).execute(packet, key, actions);
    }

    fn inject(&self, packet: Packet, port: PortNo) {
        self.of(port).inject(packet, port);
    }

    fn megaflows_used(&self, port: PortNo, n: u64) {
        self.of(port).megaflows_used(port, n);
    }
}

impl Meters for CoupledDatapath {
    fn limits(&self) -> (u32, u8) {
        let own = self.own.meters().map_or((0, 0), Meters::limits);
        match self.kernel.get() {
            None => own,
            Some(kernel) => {
                let (meters, bands) = Meters::limits(&**kernel);
                (own.0.min(meters), own.1.min(bands))
            }
        }
    }

    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        let own = self.own.meters().ok_or(Refusal::UnsupportedAction)?;
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        own.set(id, config)?;
        if let Some(kernel) = self.kernel.get()
            && let Err(refusal) = Meters::set(&**kernel, id, config)
        {
            own.remove(id);
            meters.remove(&id);
            return Err(refusal);
        }
        meters.insert(id, config.clone());
        Ok(())
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.remove(&id);
        let own = self.own.meters().and_then(|own| own.remove(id));
        let theirs = self.kernel.get().and_then(|kernel| Meters::remove(&**kernel, id));
        sum(own, theirs)
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        let own = self.own.meters().and_then(|own| own.stats(id));
        let theirs = self.kernel.get().and_then(|kernel| Meters::stats(&**kernel, id));
        sum(own, theirs)
    }
}

/// Adds the counters of a meter in both datapaths.
fn sum(own: Option<MeterStats>, theirs: Option<MeterStats>) -> Option<MeterStats> {
    let (mut own, theirs) = match (own, theirs) {
        (Some(own), Some(theirs)) => (own, theirs),
        (one, other) => return one.or(other),
    };
    own.packets += theirs.packets;
    own.bytes += theirs.bytes;
    for (band, (packets, bytes)) in own.bands.iter_mut().zip(theirs.bands) {
        band.0 += packets;
        band.1 += bytes;
    }
    Some(own)
}

impl Counters for CoupledDatapath {
    fn lookups(&self) -> LookupStats {
        self.all().map(Counters::lookups).fold(LookupStats::default(), |a, b| LookupStats {
            hits: a.hits + b.hits,
            misses: a.misses + b.misses,
            lost: a.lost + b.lost,
            mask_hits: a.mask_hits + b.mask_hits,
            cache_hits: a.cache_hits + b.cache_hits,
            masks: a.masks + b.masks,
            flows: a.flows + b.flows,
        })
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.all().map(|datapath| datapath.drops(reason)).sum()
    }

    fn tunnel_checks(&self) -> tunnel::Checks {
        self.own.tunnel_checks()
    }
}

/// Bonds of the own datapath. A bond with a port of the kernel's is refused.
impl Bonds for CoupledDatapath {
    fn set(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        let is_kernels =
            |port: &PortNo| self.kernel.get().is_some() && NUMBERING.to_kernel(*port).is_some();
        let bonds = self.own.bonds().ok_or(Refusal::Bond)?;
        if table.members.iter().any(is_kernels) {
            bonds.remove(id);
            return Err(Refusal::Bond);
        }
        bonds.set(id, table)
    }

    fn remove(&self, id: u32) {
        if let Some(bonds) = self.own.bonds() {
            bonds.remove(id);
        }
    }

    fn table(&self, id: u32) -> Option<BondTable> {
        self.own.bonds()?.table(id)
    }

    fn ids(&self) -> Vec<u32> {
        self.own.bonds().map_or_else(Vec::new, Bonds::ids)
    }

    fn bytes(&self, id: u32) -> Option<BucketBytes> {
        self.own.bonds()?.bytes(id)
    }
}

impl Datapath for CoupledDatapath {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn queue_numbering(&self) -> QueueNumbering {
        QueueNumbering::Classes
    }

    fn meters(&self) -> Option<&dyn Meters> {
        self.own.meters().map(|_| self as &dyn Meters)
    }

    fn bonds(&self) -> Option<&dyn Bonds> {
        self.own.bonds().map(|_| self as &dyn Bonds)
    }

    /// The kernel has a table of connections of its own, which is not shown here.
    fn connections(&self) -> Option<&dyn Connections> {
        self.own.connections()
    }

    fn flush_kernel_connections(&self, wanted: &Flush) -> usize {
        let Some(kernel) = self.kernel.get() else { return 0 };
        crate::connections::flush(wanted).unwrap_or_else(|error| {
            tracing::warn!(
                target: "dpif_netlink",
                "{}: connections stay in the kernel ({error})", kernel.name(),
            );
            0
        })
    }

    fn supports(&self, action: &Action) -> bool {
        self.own.supports(action)
    }

    fn maintain(&self) {
        self.all().for_each(Datapath::maintain);
    }

    fn shutdown(&self) {
        self.all().for_each(Datapath::shutdown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_output_is_found_in_nested_lists() {
        let output = |n| Action::Output(PortNo(n));
        assert_eq!(first_output(&[Action::PopVlan, Action::Meter(1)]), None);
        let branches =
            Action::CheckPktLen { len: 9, greater: vec![], not_greater: vec![output(4)] };
        for (nested, expected) in [
            (Action::Clone(vec![Action::PopVlan, output(2)]), 2),
            (Action::Sample { probability: 1, actions: vec![output(3)] }, 3),
            (branches, 4),
            (Action::PopVlan, 5),
        ] {
            assert_eq!(first_output(&[nested, output(5)]), Some(PortNo(expected)));
        }
    }

    #[test]
    fn counters_of_a_meter_in_both_datapaths_are_added() {
        let stats = |n| MeterStats {
            packets: n,
            bytes: 10 * n,
            bands: vec![(n, 2 * n)],
            since: clock::Millis(4),
        };
        assert_eq!(sum(Some(stats(1)), Some(stats(2))), Some(stats(3)));
        assert_eq!(sum(None, Some(stats(2))), Some(stats(2)));
        assert_eq!(sum(Some(stats(2)), None), Some(stats(2)));
        assert_eq!(sum(None, None), None);
    }
}
