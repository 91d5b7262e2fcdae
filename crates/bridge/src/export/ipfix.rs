// SPDX-License-Identifier: Apache-2.0
//! IPFIX of a bridge: samples of all its packets, and of those of `sample` actions.

use crate::snapshot::{BridgeIndex, BridgeView, PortView, Snapshot};
use crate::translate::Located;
use ::export::WallTime;
use ::export::ipfix::{self, Direction, Exporter, Interface, Settings, Statistics, TunnelType};
use clock::Millis;
use datapath::{PortNo as DpPort, SampleDirection, TunnelKind, Userdata};
use openflow::PortNo;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// IPFIX as translation and upcalls read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IpfixView {
    /// Samples of all packets (`Bridge:ipfix`).
    pub bridge: Option<BridgeSampler>,
    /// Collector sets of `sample` actions (Flow_Sample_Collector_Set), by their id.
    pub sets: BTreeMap<u32, SetSampler>,
}

/// Samples of all packets of a bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeSampler {
    /// Receives the samples.
    pub exporter: Arc<Ipfix>,
    /// Probability of a sample, of 2^32; `u32::MAX` is always. Not 0.
    pub probability: u32,
    /// Observation domain.
    pub obs_domain: u32,
    /// Observation point.
    pub obs_point: u32,
    /// Packets are sampled where they come in.
    pub samples_input: bool,
    /// Packets are sampled where they go out.
    pub samples_output: bool,
    /// Records have the outer header of the tunnel that the packet came out of, or goes into.
    pub has_tunnels: bool,
}

/// A collector set of `sample` actions.
#[derive(Clone, Debug, PartialEq)]
pub struct SetSampler {
    /// Receives the samples.
    pub exporter: Arc<Ipfix>,
    /// Records have the outer header of the tunnel that the packet came out of, or goes into.
    pub has_tunnels: bool,
}

/// An exporter that threads share. Any thread may use it; a lock is held for microseconds, except by
/// [`Ipfix::run`], which makes the messages of ended flows.
#[derive(Debug)]
pub struct Ipfix(Mutex<Exporter>);

/// Two exporters are equal when they are the same one.
impl PartialEq for Ipfix {
    fn eq(&self, other: &Ipfix) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Ipfix {
    /// Returns an exporter without flows. `id` is its number in statistics.
    pub fn new(settings: Settings, id: u32) -> Ipfix {
        Ipfix(Mutex::new(Exporter::new(settings, id)))
    }

    /// Changes the settings.
    pub fn configure(&self, settings: Settings, now: Millis) {
        self.exporter().configure(settings, now);
    }

    /// Returns the messages that are to be sent now. For the control thread.
    pub fn run(&self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        self.exporter().run(now, wall)
    }

    /// Ends all flows, and returns the last messages. For the control thread.
    pub fn finish(&self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        self.exporter().finish(now, wall)
    }

    /// Counts messages that went to collectors.
    pub fn add_sent(&self, sent: u64, unsent: u64) {
        self.exporter().add_sent(sent, unsent);
    }

    /// Returns the time at which [`Ipfix::run`] is to be called again; `None` for never.
    pub fn deadline(&self) -> Option<Millis> {
        self.exporter().deadline()
    }

    /// Returns the counts for controllers.
    pub fn statistics(&self) -> Statistics {
        self.exporter().statistics()
    }

    /// Returns the number of ended flows that found no room.
    pub fn without_room(&self) -> u64 {
        self.exporter().without_room()
    }

    fn exporter(&self) -> MutexGuard<'_, Exporter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // counts and flows, each whole
    }
}

/// The part of a record that depends on the kind of the sample.
struct Source<'a> {
    exporter: &'a Ipfix,
    /// Number of packets that the sample stands for.
    packets: u64,
    obs_domain: u32,
    obs_point: u32,
    has_tunnels: bool,
    direction: Direction,
}

/// Returns the exporter that `userdata` names, unless it no longer exists.
fn source<'a>(view: &'a IpfixView, userdata: &Userdata, place: &Located) -> Option<Source<'a>> {
    let by_port = |port| if port == DpPort::NONE { Direction::Ingress } else { Direction::Egress };
    match userdata {
        Userdata::Ipfix { output_port, .. } => {
            let sampler = view.bridge.as_ref().filter(|_| !ipfix::is_bfd(&place.key))?;
            Some(Source {
                exporter: &sampler.exporter,
                packets: u32::MAX.checked_div(sampler.probability).unwrap_or(1).into(),
                obs_domain: sampler.obs_domain,
                obs_point: sampler.obs_point,
                has_tunnels: sampler.has_tunnels,
                direction: by_port(*output_port),
            })
        }
        Userdata::FlowSample {
            probability,
            collector_set,
            obs_domain,
            obs_point,
            output_port,
            direction,
            ..
        } => {
            let set = view.sets.get(collector_set)?;
            Some(Source {
                exporter: &set.exporter,
                packets: u16::MAX.checked_div(*probability).unwrap_or(1).into(),
                obs_domain: *obs_domain,
                obs_point: *obs_point,
                has_tunnels: set.has_tunnels,
                direction: match direction {
                    SampleDirection::Default => by_port(*output_port),
                    SampleDirection::Ingress => Direction::Ingress,
                    SampleDirection::Egress => Direction::Egress,
                },
            })
        }
        Userdata::SlowPath { .. } | Userdata::Controller { .. } | Userdata::Sflow { .. } => None,
    }
}

/// Adds a packet to the exporter that `userdata` names, unless it no longer exists. `sent` returns the
/// tunnel that the packet goes into; it is called for packets that leave by a tunnel port.
pub(crate) fn sample(
    snapshot: &Snapshot,
    place: &Located,
    packet: &packet::Packet,
    userdata: &Userdata,
    now: Millis,
    sent: impl FnOnce() -> Option<flow::Tunnel>,
) {
    let (Userdata::Ipfix { output_port, origin }
    | Userdata::FlowSample { output_port, origin, .. }) = userdata
    else {
        return;
    };
    let index = BridgeIndex(origin.bridge.into());
    let Some(bridge) = snapshot.bridge(index) else { return };
    let Some(view) = &bridge.exports.ipfix else { return };
    let Some(source) = source(view, userdata, place) else { return };
    let key = &place.key;
    // As in OVS the input has no name when it is a port of another bridge.
    let in_port = bridge.ports.get(&PortNo(key.in_port.get())).filter(|_| place.bridge == index);
    // The outer header: of the direction in which the sample is.
    let tunnel = match *output_port {
        _ if !source.has_tunnels => None,
        DpPort::NONE => {
            let config = in_port.and_then(|port| port.tunnel.as_ref());
            config.filter(|_| key.tunnel.dst.get() != 0).map(|config| (config.kind, key.tunnel))
        }
        port => snapshot.tunnel_kind(port).and_then(|kind| Some((kind, sent()?))),
    };
    let tunnel = tunnel.and_then(|(kind, fields)| Some((tunnel_type(kind)?, fields)));
    let input = in_port.map_or_else(Interface::default, interface);
    let output = match source.direction {
        Direction::Egress => interface_at(snapshot, index, bridge, *output_port),
        Direction::Ingress => Interface::default(),
    };
    let sampled = ipfix::Packet {
        key,
        size: packet.len() as u64,
        packets: source.packets,
        input,
        output,
        direction: source.direction,
        tunnel: tunnel.as_ref().map(|(kind, fields)| (*kind, fields)),
        obs_domain: source.obs_domain,
        obs_point: source.obs_point,
        is_dropped: origin.is_dropped,
    };
    source.exporter.exporter().sample(&sampled, now);
}

fn interface_at<'a>(
    snapshot: &Snapshot,
    index: BridgeIndex,
    bridge: &'a BridgeView,
    port: DpPort,
) -> Interface<'a> {
    let own = snapshot.ports.get(&port).filter(|(at, _)| *at == index);
    let own = own.and_then(|(_, number)| bridge.ports.get(number));
    // Ports of tunnels are not in the map.
    let found = own.or_else(|| bridge.ports.values().find(|p| p.dp_port == Some(port)));
    found.map_or_else(Interface::default, interface)
}

fn interface(port: &PortView) -> Interface<'_> {
    Interface { index: port.ifindex, name: &port.name }
}

/// Returns the type of a tunnel in records; `None` for one that has none, as in OVS.
fn tunnel_type(kind: TunnelKind) -> Option<TunnelType> {
    match kind {
        TunnelKind::Vxlan => Some(TunnelType::Vxlan),
        TunnelKind::Gre => Some(TunnelType::Gre),
        TunnelKind::Geneve => Some(TunnelType::Geneve),
        TunnelKind::Lisp => Some(TunnelType::Lisp),
        TunnelKind::Stt => Some(TunnelType::Stt),
        _ => None,
    }
}
