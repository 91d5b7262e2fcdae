// SPDX-License-Identifier: Apache-2.0
//! Export of a bridge's traffic to collectors, as translation and effects see it.
//!
//! The crate `export` has the protocols. The objects here join them with the switch: snapshots share
//! them, packet threads and the revalidator add to them, and the control thread takes datagrams out.

mod egress;
mod ipfix;

pub(crate) use egress::{Egress, is_single_output, tunnel_after};
pub(crate) use ipfix::sample as sample_ipfix;
pub use ipfix::{BridgeSampler, Ipfix, IpfixView, SetSampler};

use ::export::WallTime;
use ::export::netflow::{Exporter, Flow, Output, Settings, Traffic};
use ::export::sflow::{self, Agent};
use clock::Millis;
use datapath::FlowStats;
use flow::{Key, Mask};
use openflow::PortNo;
use packet::ip_proto;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Exports of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    /// NetFlow; `None` when it is not configured.
    pub netflow: Option<Arc<NetFlow>>,
    /// sFlow; `None` when it is not configured.
    pub sflow: Option<SflowView>,
    /// IPFIX; `None` when it is configured neither for the bridge nor for a collector set.
    pub ipfix: Option<Arc<IpfixView>>,
}

/// sFlow as translation reads it.
#[derive(Clone, Debug)]
pub struct SflowView {
    /// Receives the samples.
    pub agent: Arc<Sflow>,
    /// Probability of a sample, of 2^32; `u32::MAX` is always. Not 0.
    pub probability: u32,
}

/// sFlow of one bridge. Any thread may use it; a lock is held for microseconds.
#[derive(Debug)]
pub struct Sflow(Mutex<Agent>);

impl Sflow {
    /// Returns an agent without samples.
    pub fn new(settings: sflow::Settings, now: Millis) -> Sflow {
        Sflow(Mutex::new(Agent::new(settings, now)))
    }

    /// Changes the settings.
    pub fn configure(&self, settings: sflow::Settings) {
        self.agent().configure(settings);
    }

    /// Adds the counters of the interfaces for which they are due.
    pub fn poll(&self, interfaces: &[sflow::Interface], now: Millis) {
        let mut agent = self.agent();
        agent.retain(|index| interfaces.iter().any(|interface| interface.index == index));
        interfaces.iter().for_each(|interface| agent.poll(interface, now));
    }

    /// Adds the counters of the datapath and of the process, which `counters` returns, when they are due.
    pub fn poll_global(&self, counters: impl FnOnce() -> sflow::Global, now: Millis) {
        self.agent().poll_global(counters, now);
    }

    /// Returns the datagrams of all samples so far.
    pub fn take(&self, now: Millis) -> Vec<Vec<u8>> {
        self.agent().take(now)
    }

    /// Returns the number of samples that found no room.
    pub fn without_room(&self) -> u64 {
        self.agent().dropped().into()
    }

    /// Adds a packet that came in with this key, by the interface with the index `input`.
    pub(crate) fn sample(
        &self,
        key: &Key,
        packet: &packet::Packet,
        input: u32,
        (tci_out, output): (u16, u32),
        egress: &Egress,
    ) {
        let is_udp = key.tunnel.tp_dst.get() != 0;
        let proto = if is_udp { ip_proto::UDP } else { ip_proto::GRE };
        let has_key = key.tunnel.flags.get() & flow::Tunnel::KEY != 0;
        let tunnel = egress::sflow_tunnel(&key.tunnel, proto, has_key);
        let [outermost, _] = key.vlans;
        let sampled = sflow::Packet {
            frame: packet.data(),
            size: packet.len(),
            input,
            output,
            tci_in: outermost.tci.get(),
            tci_out,
            tunnel,
            tunnel_out: egress.tunnel,
            labels_out: &egress.labels,
        };
        self.agent().sample(&sampled);
    }

    fn agent(&self) -> MutexGuard<'_, Agent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // counts and bytes, each whole
    }
}

/// NetFlow of one bridge. Any thread may use it; a lock is held for microseconds, except by
/// [`NetFlow::run`], which makes records of all flows once a second.
#[derive(Debug)]
pub struct NetFlow(Mutex<Exporter>);

impl NetFlow {
    /// Returns an exporter without flows.
    pub fn new(settings: Settings, now: Millis) -> NetFlow {
        NetFlow(Mutex::new(Exporter::new(settings, now)))
    }

    /// Changes the settings.
    pub fn configure(&self, settings: Settings, now: Millis) {
        self.exporter().configure(settings, now);
    }

    /// Returns the datagrams that are to be sent now. For the control thread.
    pub fn run(&self, now: Millis, wall: WallTime) -> Vec<Vec<u8>> {
        self.exporter().run(now, wall)
    }

    /// Returns the time at which [`NetFlow::run`] is to be called again.
    pub fn deadline(&self) -> Millis {
        self.exporter().deadline()
    }

    /// Returns the number of updates and datagrams that found no room.
    pub fn without_room(&self) -> u64 {
        self.exporter().without_room()
    }

    /// Adds the packets that `seen` counts to their flow.
    pub(crate) fn credit(&self, flow: Flow, output: Output, seen: &FlowStats) {
        if seen.packets == 0 {
            return;
        }
        let traffic = Traffic {
            packets: seen.packets,
            bytes: seen.bytes,
            tcp_flags: seen.tcp_flags as u8, // the record has no room for NS
            used: seen.used,
        };
        self.exporter().update(flow, output, &traffic, seen.used);
    }

    /// Sends what is known of a flow whose packets are no longer accounted.
    pub(crate) fn end(&self, flow: &Flow, now: Millis) {
        self.exporter().end(flow, now);
    }

    fn exporter(&self) -> MutexGuard<'_, Exporter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // counts, each whole
    }
}

/// Returns the NetFlow identity of an IPv4 packet with this key, whose `in_port` is an OpenFlow
/// number.
pub(crate) fn netflow_of(key: &Key) -> Flow {
    let has_ports = has_ports(key.nw_proto);
    Flow {
        in_port: port_number(PortNo(key.in_port.get())),
        nw_src: key.nw_src.get().to_be_bytes(),
        nw_dst: key.nw_dst.get().to_be_bytes(),
        nw_proto: key.nw_proto,
        nw_tos: key.nw_tos & DSCP,
        tp_src: if has_ports { key.tp_src.get() } else { 0 },
        tp_dst: if has_ports { key.tp_dst.get() } else { 0 },
    }
}

/// Bits of the type of service that a record depends on: the DSCP (RFC 2474), as in OVS.
const DSCP: u8 = 0xfc;

/// Returns true for protocols whose ports (ICMP: type and code) a record has.
fn has_ports(nw_proto: u8) -> bool {
    matches!(nw_proto, ip_proto::ICMP | ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP)
}

/// Makes the bits of an IPv4 packet exact that [`netflow_of`] depends on.
pub(crate) fn mask_netflow(key: &Key, mask: &mut Mask) {
    let m = &mut mask.0;
    m.nw_proto = u8::MAX;
    m.nw_tos |= DSCP;
    m.nw_src.set(u32::MAX);
    m.nw_dst.set(u32::MAX);
    if has_ports(key.nw_proto) {
        m.tp_src.set(u16::MAX);
        m.tp_dst.set(u16::MAX);
    }
}

/// Returns the number of a port in 16 bits, as records have it and as OpenFlow 1.0 does.
pub(crate) fn port_number(port: PortNo) -> u16 {
    port.0 as u16
}
