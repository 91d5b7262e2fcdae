// SPDX-License-Identifier: Apache-2.0
//! The traits; the crate's text says what they are for.

use crate::{
    Action, Bonds, DropReason, FlowDump, FlowStats, LookupStats, Megaflow, MeterConfig, MeterStats,
    PortError, PortInfo, PortNo, PortSpec, QueueNumbering, Refusal, TunnelEndpoint, Ufid,
    UpcallFactory,
};
use flow::Key;
use netdev::{Device, Policing, QosRequest};
use packet::Packet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Devices of a datapath. Called by the control thread; may take milliseconds.
pub trait Ports: Send + Sync {
    /// Opens the device and starts to receive from it. The port gets `spec.wanted` when that
    /// is free, else a free number from 1: in an empty datapath the lowest, later any, as megaflows
    /// of removed ports are better not met by others. On an error nothing has changed.
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError>;

    /// Closes the port. Megaflows that name it stay until they are removed; their packets to it are
    /// dropped with [`DropReason::OutputPortGone`].
    fn remove_port(&self, port: PortNo) -> Result<(), PortError>;

    /// All ports, by number.
    fn ports(&self) -> Vec<PortInfo>;

    /// The control side of a port's device.
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>>;

    /// Returns the number of upcalls for packets of a port; `None` without such a port, or where they are
    /// not counted.
    fn upcalls(&self, port: PortNo) -> Option<u64> {
        let _ = port;
        None
    }

    /// Sets ingress policing. The error holds the reason for which this port has no policing.
    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError>;

    /// Sets the QoS of the port's egress; see [`Device::set_qos`]. Returns complaints about invalid
    /// values, for which defaults stand. The error holds the reason for which the port has no QoS.
    fn set_qos(&self, port: PortNo, qos: Option<&QosRequest>) -> Result<Vec<String>, PortError> {
        let device = self.device(port).ok_or_else(|| PortError::NotFound(port.to_string()))?;
        device.set_qos(qos).map_err(|error| PortError::Option {
            name: device.name().to_owned(),
            problem: match qos {
                Some(qos) if error.kind() == ErrorKind::Unsupported && !has_text(&error) => {
                    format!("devices of this kind have no QoS of the type \"{}\"", qos.kind)
                }
                _ => format!("QoS cannot be set: {error}"),
            },
        })
    }

    /// Sets the addresses to which packets of tunnels come. Ports of the kind
    /// [`PortKind::Underlay`](crate::PortKind::Underlay) receive these packets alone.
    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        let _ = endpoints;
    }

    /// Takes the sequence numbers of a tunnel port's packets from `numbers` from now on, after it has
    /// skipped as many there as it gave itself. Only the first call for a port counts.
    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        let _ = (port, numbers);
    }
}

/// The sequence numbers of the packets of a tunnel port (RFC 2890, 2.2), for all tiers that push its headers. Any
/// thread may call it.
pub trait SequenceNumbers: Send + Sync {
    /// Takes `count` numbers, which nobody else gets, and returns the first one. They begin at 0, and again
    /// after `u32::MAX`.
    fn take(&self, count: u32) -> u32;
}

/// Returns true when the error has more than its kind.
fn has_text(error: &io::Error) -> bool {
    error.get_ref().is_some() || error.raw_os_error().is_some()
}

/// Megaflows. Called by packet threads in upcalls, by revalidators and by the control thread.
pub trait Flows: Send + Sync {
    /// Adds a megaflow with zero statistics. A refusal changes nothing.
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal>;

    /// Prepares for the installation of these megaflows, each by a call of its own. Changes
    /// nothing. Their places are scattered over memory, and a datapath may read all of them now:
    /// these reads overlap, whereas each installation waits for its own reads.
    fn prefetch(&self, flows: &[&Megaflow]) {
        let _ = flows;
    }

    /// Returns the mask of a megaflow to install in the place of one with `mask`, which
    /// [`Flows::install`] refused with [`Refusal::TagsOpen`], for packets like `key`. It covers
    /// `mask`.
    fn closed_mask(&self, key: &Key, mask: &flow::Mask) -> flow::Mask {
        let _ = key;
        *mask
    }

    /// Replaces a megaflow's actions; its statistics go on. False when the megaflow does not exist,
    /// or when no tier takes these actions: then the megaflow keeps its earlier actions, and the
    /// caller must remove it.
    fn modify(&self, ufid: Ufid, actions: &crate::Actions) -> bool;

    /// [`Flows::modify`] for many, which may be much faster; `refused` is called with each megaflow
    /// for which `modify` would return false.
    fn modify_many(&self, flows: &[(Ufid, crate::Actions)], refused: &mut dyn FnMut(Ufid)) {
        for (ufid, actions) in flows {
            if !self.modify(*ufid, actions) {
                refused(*ufid);
            }
        }
    }

    /// Removes a megaflow and returns its final statistics: no packet is counted after this
    /// returns that is not in them. `None` when it is not there.
    fn remove(&self, ufid: Ufid) -> Option<FlowStats>;

    /// Removes many megaflows, as [`Flows::remove`] does, and calls `each` for the final
    /// statistics of every one that was there, in no order. A datapath for which a removal is
    /// a long matter does many in the time of one. `each` may call back into this trait.
    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        for ufid in ufids {
            if let Some(stats) = self.remove(*ufid) {
                each(*ufid, stats);
            }
        }
    }

    /// One megaflow.
    fn flow(&self, ufid: Ufid) -> Option<FlowDump>;

    /// Calls `each` for the statistics of every megaflow, in no order. Megaflows that come or
    /// go meanwhile may be left out. `each` may call back into this trait.
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats));

    /// Calls `each` for the statistics of every megaflow that was installed, or whose statistics
    /// changed, since the last call of this method; others may be among them. So it has one caller.
    /// In all other respects it is like [`Flows::sweep`].
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.sweep(each);
    }

    /// Calls `each` for the statistics of those of `ufids` that exist, without their order.
    fn stats_of(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        for ufid in ufids {
            if let Some(dump) = self.flow(*ufid) {
                each(*ufid, dump.stats);
            }
        }
    }

    /// All megaflows, for people.
    fn dump(&self) -> Vec<FlowDump>;

    /// Removes all megaflows.
    fn flush(&self);
}

/// Packets that go through outside the fast path.
pub trait Packets: Send + Sync {
    /// Sets the factory of the handlers that answer upcalls. Before this call, misses are dropped
    /// with [`DropReason::UpcallLimit`]. Called once.
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>);

    /// Runs `actions` on `packet` as if it had come in with `key`, on the caller's thread, to
    /// the end (recirculations and upcalls included).
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]);

    /// Takes a packet as if it had been received on `port`, on the caller's thread: lookup,
    /// upcall, actions. For dummy ports and tests.
    fn inject(&self, packet: Packet, port: PortNo);

    /// Notes that `n` megaflows from upcalls for packets of `port` have met their first packet. A
    /// datapath that limits the cost of a port's upcalls need not count these.
    fn megaflows_used(&self, _port: PortNo, _n: u64) {}
}

/// Meters that [`Action::Meter`] refers to.
pub trait Meters: Send + Sync {
    /// Highest number of meters, and of bands in each.
    fn limits(&self) -> (u32, u8);
    /// Sets or replaces meter `id`; statistics start at zero.
    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal>;
    /// Removes meter `id`; packets that meet it then pass. Final statistics.
    fn remove(&self, id: u32) -> Option<MeterStats>;
    /// Statistics of meter `id`.
    fn stats(&self, id: u32) -> Option<MeterStats>;
}

/// Connections that [`Action::Ct`] tracks. Called by the control thread.
pub trait Connections: Send + Sync {
    /// The tracker with its table.
    fn tracker(&self) -> &conntrack::Tracker;
    /// Reassembly of fragments.
    fn fragments(&self) -> &dyn conntrack::Reassembly;
    /// The time now, on the clock of the table.
    fn now(&self) -> conntrack::Ticks;
    /// The time between the starts of two passes over all connections.
    fn sweep_interval(&self) -> Duration;
    /// Sets it; zero is not allowed.
    fn set_sweep_interval(&self, interval: Duration);

    /// Returns the counters of connection tracking and reassembly, by their names in
    /// `coverage/show`.
    fn coverage(&self) -> Vec<(&'static str, u64)> {
        let counters = self.tracker().counters();
        let fragments = self.fragments();
        let both = [conntrack::Family::V4, conntrack::Family::V6].map(|f| fragments.counters(f));
        let (checked, wrong) = fragments.checksums();
        let tracked = conntrack::Counter::ALL.iter();
        let mut all: Vec<_> = tracked.map(|c| (c.name(), counters.get(*c))).collect();
        all.extend([
            ("ipf_stuck_frag_list_expired", both.iter().map(|c| c.expired).sum()),
            ("ipf_stuck_frag_list_purged", both.iter().map(|c| c.purged).sum()),
            ("ipf_l3csum_checked", checked),
            ("ipf_l3csum_err", wrong),
        ]);
        all
    }
}

/// Counters of a datapath, in addition to those of flows and ports.
pub trait Counters: Send + Sync {
    /// Lookups since start.
    fn lookups(&self) -> LookupStats;
    /// Packets dropped for `reason` since start.
    fn drops(&self, reason: DropReason) -> u64;
    /// Checksums of outer headers that [`Action::TunnelPop`] verified since start.
    fn tunnel_checks(&self) -> tunnel::Checks {
        tunnel::Checks::default()
    }
}

/// A whole datapath.
pub trait Datapath: Ports + Flows + Packets + Counters {
    /// Name in texts, such as "netdev@ovs-netdev".
    fn name(&self) -> &str;
    /// Meters, when it has them.
    fn meters(&self) -> Option<&dyn Meters>;
    /// Bonds that [`Action::LbOutput`] names, when it has them.
    fn bonds(&self) -> Option<&dyn Bonds> {
        None
    }
    /// Connections, when it tracks them.
    fn connections(&self) -> Option<&dyn Connections>;
    /// Ends the connections of trackers beneath that are not in [`Datapath::connections`]: those of
    /// the kernel. Returns their number.
    fn flush_kernel_connections(&self, wanted: &conntrack::Flush) -> usize {
        let _ = wanted;
        0
    }
    /// Returns how packets name the queues of ports.
    fn queue_numbering(&self) -> QueueNumbering {
        QueueNumbering::Plain
    }
    /// True when a megaflow may match or set all fields that `action` and its nested actions need.
    fn supports(&self, action: &Action) -> bool;
    /// Housekeeping that neither packets nor passes over megaflows wait for. Called twice a second
    /// at most, and rarely while no packets come, by one thread; may take a tenth of a second, as
    /// where programs are loaded.
    fn maintain(&self) {}
    /// Stops packet threads and closes ports; megaflows are gone for a userspace datapath.
    fn shutdown(&self);
}
