// SPDX-License-Identifier: Apache-2.0
//! Export of traffic: NetFlow's accounts of packets, and samples of packets for sFlow and IPFIX.

use super::context::Context;
use crate::effect::Effect;
use crate::export::{mask_netflow, netflow_of};
use crate::snapshot::BridgeView;
use crate::trace::Kind;
use ::export::sflow::{OUTPUT_DROPPED, OUTPUT_MULTIPLE};
use datapath::{Action as DpAction, PortNo as DpPort, SampleOrigin, Userdata};
use flow::{Key, VLAN_CFI};
use openflow::PortNo;
use openflow::action::{ObservationId, SampleDirection};
use packet::ethertype;
use std::sync::Arc;

/// The sFlow sample of a translation, whose contents depend on where the packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SflowSample {
    /// Index of its action in the list of actions.
    at: usize,
    probability: u32,
}

/// Outputs of a packet to datapath ports, for sFlow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outputs {
    count: u32,
    /// Index of the interface of the last one; 0 when it has none.
    ifindex: u32,
}

impl Outputs {
    /// Counts an output to the interface with this index.
    pub(super) fn add(&mut self, ifindex: u32) {
        self.count += 1;
        self.ifindex = ifindex;
    }

    /// Returns the output of a sample (sFlow version 5, "Input/output port information").
    fn number(self) -> u32 {
        match self.count {
            0 => OUTPUT_DROPPED,
            1 if self.ifindex != 0 => self.ifindex,
            count => OUTPUT_MULTIPLE | count,
        }
    }
}

impl Context<'_> {
    /// Adds the sFlow sample of a packet that has just been received. It is first in the list, so that
    /// it has the packet as it came in; [`Context::finish_sflow`] completes it.
    pub(super) fn begin_sflow(&mut self) {
        let Some(sflow) = &self.bridge.exports.sflow else { return };
        if self.in_port() == PortNo::NONE || self.sflow.is_some() {
            return;
        }
        self.sflow = Some(SflowSample { at: self.out.len(), probability: sflow.probability });
        self.emit(sflow_action(sflow.probability, 0, 0));
    }

    /// Completes the sFlow sample with the packet's way and the VLAN that it leaves in, which becomes
    /// exact. (OVS leaves it open, and reports the VLAN of the megaflow's first packet.)
    pub(super) fn finish_sflow(&mut self) {
        let Some(SflowSample { at, probability }) = self.sflow else { return };
        let [outer, _] = &mut self.mask.0.vlans;
        outer.tci.set(u16::MAX);
        let [outer, _] = self.base.vlans;
        let action = sflow_action(probability, outer.tci.get() & !VLAN_CFI, self.outputs.number());
        if let Some(place) = self.out.get_mut(at) {
            *place = action;
        }
    }

    /// Samples the packet for the bridge's IPFIX where it comes in.
    pub(super) fn sample_input(&mut self) {
        if self.in_port() != PortNo::NONE {
            self.sample_bridge(DpPort::NONE);
        }
    }

    /// Samples the packet for the bridge's IPFIX where it goes out.
    pub(super) fn sample_output(&mut self, port: DpPort) {
        self.sample_bridge(port);
    }

    /// Samples the packet for the bridge's IPFIX where the actions push its headers. OVS does so on its
    /// kernel datapath only, whose tunnels are devices.
    pub(super) fn sample_pushed(&mut self, tunnel_port: DpPort) {
        let view = self.bridge.exports.ipfix.as_ref();
        if view.and_then(|view| view.bridge.as_ref()).is_some_and(|sampler| sampler.has_tunnels) {
            self.sample_bridge(tunnel_port);
        }
    }

    fn sample_bridge(&mut self, output_port: DpPort) {
        let view = self.bridge.exports.ipfix.as_ref();
        let Some(sampler) = view.and_then(|view| view.bridge.as_ref()) else { return };
        let is_wanted = match output_port {
            DpPort::NONE => sampler.samples_input,
            _ => sampler.samples_output,
        };
        if is_wanted {
            let origin = self.sample_origin();
            self.has_ipfix = true;
            self.emit(sampled(sampler.probability, Userdata::Ipfix { output_port, origin }));
        }
    }

    /// Runs `sample(...)`. `ids` are those of the observation domain and of the observation point. As in
    /// OVS, fields of them are exact also where the packet has none.
    pub(super) fn sample(
        &mut self,
        probability: u16,
        collector_set: u32,
        ids: [ObservationId; 2],
        port: PortNo,
        direction: SampleDirection,
    ) {
        if self.bridge.exports.ipfix.is_none() {
            return; // there is no collector
        }
        let mut output_port = DpPort::NONE;
        // A sample at the input port is one of a packet that comes in.
        if port != PortNo::NONE && port != self.in_port() {
            let Some(found) = self.port(port).and_then(|port| port.dp_port) else {
                self.report(Kind::Error, || {
                    format!("can't use unknown port {port} in flow sample action")
                });
                return;
            };
            output_port = found;
        }
        self.commit();
        let [obs_domain, obs_point] = ids.map(|id| match id {
            ObservationId::Number(number) => number,
            ObservationId::Field(src) => self.read_subfield(&src) as u32, // has at most 32 bits
        });
        let userdata = Userdata::FlowSample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            output_port,
            direction: match direction {
                SampleDirection::Default => datapath::SampleDirection::Default,
                SampleDirection::Ingress => datapath::SampleDirection::Ingress,
                SampleDirection::Egress => datapath::SampleDirection::Egress,
            },
            origin: self.sample_origin(),
        };
        // 16 bits of probability become 32; all ones stay all ones.
        let probability = u32::from(probability) << 16 | u32::from(probability);
        self.has_ipfix = true;
        self.emit(sampled(probability, userdata));
    }

    /// Returns the origin of a sample; [`mark_dropped`] completes it.
    fn sample_origin(&self) -> SampleOrigin {
        // There are no 65,536 bridges.
        SampleOrigin { bridge: self.bridge_index.0 as u16, is_dropped: false }
    }

    /// Accounts the packet to its NetFlow record, if it is one of IPv4. `bridge` received it with the
    /// key `original`. As in OVS a packet is accounted where it comes in, not after a recirculation,
    /// and without the bits of its ECN.
    pub(super) fn account_netflow(&mut self, bridge: &BridgeView, original: &Key) {
        let Some(netflow) = &bridge.exports.netflow else { return };
        if original.dl_type.get() != ethertype::IPV4 {
            return;
        }
        mask_netflow(original, &mut self.mask);
        let output = match self.error {
            Some(_) => Default::default(),
            None => self.netflow_output,
        };
        self.effect(|| Effect::NetFlow {
            netflow: Arc::clone(netflow),
            flow: netflow_of(original),
            output,
        });
    }
}

/// Returns the action of a sample for sFlow.
fn sflow_action(probability: u32, vlan_tci: u16, output: u32) -> DpAction {
    sampled(probability, Userdata::Sflow { vlan_tci, output })
}

/// Returns the action of a sample. As in OVS one that is always taken is no `sample`.
fn sampled(probability: u32, userdata: Userdata) -> DpAction {
    let send = DpAction::Userspace(userdata);
    match probability {
        u32::MAX => send,
        _ => DpAction::Sample { probability, actions: vec![send] },
    }
}

/// Marks the samples for IPFIX of a megaflow without an output: records count its packets as dropped.
/// As in OVS a recirculation and an upcall are no output.
pub(super) fn mark_dropped(actions: &mut [DpAction]) {
    if !has_output(actions) {
        mark(actions);
    }
}

/// Returns true for the actions of a megaflow without an output whose last action is a sample: its packets
/// are dropped, and no action says so.
pub(super) fn ends_sampled(actions: &[DpAction]) -> bool {
    actions.last().is_some_and(is_sample) && !has_output(actions)
}

fn is_sample(action: &DpAction) -> bool {
    if let DpAction::Sample { actions, .. } = action {
        return actions.iter().any(is_sample);
    }
    matches!(
        action,
        DpAction::Userspace(
            Userdata::Sflow { .. } | Userdata::Ipfix { .. } | Userdata::FlowSample { .. }
        )
    )
}

fn has_output(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| match action {
        DpAction::Output(_) | DpAction::LbOutput(_) => true,
        DpAction::Clone(nested) | DpAction::Sample { probability: u32::MAX, actions: nested } => {
            has_output(nested)
        }
        DpAction::Drop(_)
        | DpAction::Recirc(_)
        | DpAction::Hash { .. }
        | DpAction::Trunc(_)
        | DpAction::PushVlan { .. }
        | DpAction::PopVlan
        | DpAction::PushMpls { .. }
        | DpAction::PopMpls { .. }
        | DpAction::AddMpls { .. }
        | DpAction::Set(_)
        | DpAction::Meter(_)
        | DpAction::Ct(_)
        | DpAction::CtClear
        | DpAction::TunnelPush { .. }
        | DpAction::TunnelPop(_)
        | DpAction::SetTunnel(_)
        | DpAction::PushEth { .. }
        | DpAction::PopEth
        | DpAction::PushNsh(_)
        | DpAction::PopNsh
        | DpAction::Userspace(_)
        | DpAction::Sample { .. }
        | DpAction::CheckPktLen { .. } => false,
    })
}

fn mark(actions: &mut [DpAction]) {
    for action in actions {
        match action {
            DpAction::Userspace(
                Userdata::Ipfix { origin, .. } | Userdata::FlowSample { origin, .. },
            ) => origin.is_dropped = true,
            DpAction::Clone(nested) | DpAction::Sample { actions: nested, .. } => mark(nested),
            DpAction::CheckPktLen { greater, not_greater, .. } => {
                mark(greater);
                mark(not_greater);
            }
            DpAction::Drop(_)
            | DpAction::Recirc(_)
            | DpAction::Hash { .. }
            | DpAction::Trunc(_)
            | DpAction::PushVlan { .. }
            | DpAction::PopVlan
            | DpAction::PushMpls { .. }
            | DpAction::PopMpls { .. }
            | DpAction::AddMpls { .. }
            | DpAction::Set(_)
            | DpAction::Meter(_)
            | DpAction::Ct(_)
            | DpAction::CtClear
            | DpAction::TunnelPush { .. }
            | DpAction::TunnelPop(_)
            | DpAction::SetTunnel(_)
            | DpAction::PushEth { .. }
            | DpAction::PopEth
            | DpAction::PushNsh(_)
            | DpAction::PopNsh
            | DpAction::Userspace(_)
            | DpAction::LbOutput(_)
            | DpAction::Output(_) => {}
        }
    }
}
