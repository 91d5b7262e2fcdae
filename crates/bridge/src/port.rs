// SPDX-License-Identifier: Apache-2.0
//! Ports and bundles of one bridge: the control thread's copy.

use crate::aggregate::{AggregateSettings, PortSettings};
use crate::bfd::Monitor;
use crate::bond;
use crate::cfm::CfmPort;
use crate::group::Count;
use crate::lldp::LldpPort;
use crate::protocol::Protocol;
use crate::received::Received;
use crate::snapshot::{BridgeIndex, BundleView, PortView};
use crate::spanning_tree::PortState as TreeState;
use crate::tunnel;
use clock::Millis;
use datapath::{PortKind, PortNo as DpPort};
use netdev::{Device, Duplex, Status};
use openflow::PortNo;
use openflow::message::{PortConfig, PortDesc, PortFeatures, PortState, PortStats};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One OpenFlow port.
pub struct Port {
    /// OpenFlow number.
    pub number: PortNo,
    /// Interface name.
    pub name: String,
    /// Kind of the port, as texts show it.
    pub kind: PortKind,
    /// Datapath number; `None` for patch ports. Several tunnel ports may share one.
    pub dp_port: Option<DpPort>,
    /// For patch ports: name of the peer interface.
    pub peer: Option<String>,
    /// For tunnel ports: their options.
    pub tunnel: Option<Arc<tunnel::Config>>,
    /// The device; `None` for patch and tunnel ports.
    pub device: Option<Arc<dyn Device>>,
    /// OFPPC_* flags as controllers set them.
    pub config: PortConfig,
    /// Status that the device reported last.
    pub status: Status,
    /// Time at which the port was added.
    pub created: Millis,
    /// The protocols on the port allow traffic. Without any it is true.
    pub is_allowed: bool,
    /// The port was just added, and controllers do not see it as live yet.
    pub(crate) is_new: bool,
    /// Connectivity fault management, where it is on.
    pub cfm: Option<Arc<CfmPort>>,
    /// LLDP, where it is configured.
    pub lldp: Option<Arc<LldpPort>>,
    /// BFD; `None` where it is off.
    pub bfd: Option<Arc<Monitor>>,
    /// State in the spanning tree; `None` for a port that is not in one.
    pub tree_state: Option<TreeState>,
    /// The DSCP that packets of some queues get (`Queue:dscp`), as six bits.
    pub queue_dscp: Arc<BTreeMap<u32, u8>>,
    /// Packets and bytes through a patch or tunnel port: rx, tx.
    pub virtual_stats: Arc<[Count; 2]>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port({} {} {:?})", self.number, self.name, self.dp_port)
    }
}

impl Port {
    /// Returns true for patch ports.
    pub fn is_patch(&self) -> bool {
        self.kind == PortKind::Patch
    }

    /// Returns true for patch and tunnel ports, which have no device of their own.
    pub fn is_virtual(&self) -> bool {
        self.is_patch() || self.tunnel.is_some()
    }

    /// Reads the status of the device. Returns the port's earlier description when it has changed.
    pub fn refresh(&mut self) -> Option<PortDesc> {
        let device = self.device.as_ref()?;
        let status = device.status().unwrap_or_else(|_| Status {
            // The device is gone: the port keeps its status, but is down.
            admin_up: false,
            link_up: false,
            ..self.status.clone()
        });
        let before = (status != self.status).then(|| self.desc());
        self.status = status;
        before
    }

    /// Returns true when the port carries traffic: neither a controller nor the device has set it
    /// down.
    pub fn is_up(&self) -> bool {
        !self.config.contains(PortConfig::PORT_DOWN)
            && (self.device.is_none() || self.status.admin_up && self.status.link_up)
    }

    /// Returns true when the port is up and the protocols on it allow traffic.
    pub fn may_enable(&self) -> bool {
        self.is_up() && self.is_allowed
    }

    /// Returns true when one of the protocols that watch the path to the other end finds it good, or
    /// when there is no such protocol on the port.
    pub(crate) fn has_path(&self, now: Millis) -> bool {
        let watches = [
            self.cfm.as_ref().map(|cfm| cfm.status().is_live()),
            self.bfd.as_ref().map(|bfd| bfd.is_forwarding(now)),
        ];
        watches.into_iter().flatten().reduce(|a, b| a | b).unwrap_or(true)
    }

    /// Returns the machines of the protocols on the port alone, in the order of Open vSwitch.
    pub(crate) fn machines(&self) -> impl Iterator<Item = Arc<dyn Protocol>> {
        let cfm = self.cfm.clone().map(|cfm| cfm as Arc<dyn Protocol>);
        let bfd = self.bfd.clone().map(|bfd| bfd as Arc<dyn Protocol>);
        let lldp = self.lldp.clone().map(|lldp| lldp as Arc<dyn Protocol>);
        [cfm, bfd, lldp].into_iter().flatten()
    }

    /// Has these machines send from the port's present address.
    pub(crate) fn update_machines(&self) {
        let mac = self.status.mac;
        self.cfm.iter().for_each(|cfm| cfm.set_mac(mac));
        self.bfd.iter().for_each(|bfd| bfd.set_mac(mac));
        self.lldp.iter().for_each(|lldp| lldp.set_mac(mac));
    }

    /// Returns the counter of received packets.
    pub(crate) fn received(&self) -> Received {
        match &self.device {
            Some(device) => Received::Device(Arc::clone(device)),
            None => Received::Virtual(Arc::clone(&self.virtual_stats)),
        }
    }

    /// Returns true when floods may include the port.
    pub(crate) fn is_floodable(&self) -> bool {
        !self.config.contains(PortConfig::NO_FLOOD)
            && self.tree_state.is_none_or(TreeState::forwards)
    }

    /// Returns the OpenFlow port state (OFPPS_*).
    pub fn state(&self) -> PortState {
        let mut state = PortState::empty();
        if self.is_virtual() || self.status.link_up {
            state.set(PortState::LIVE, self.is_allowed && !self.is_new);
        } else {
            state |= PortState::LINK_DOWN;
        }
        state | tree_bits(self.tree_state)
    }

    /// Returns the OpenFlow description of the port.
    pub fn desc(&self) -> PortDesc {
        let kbps =
            self.status.speed_bps.map_or(0, |bps| u32::try_from(bps / 1000).unwrap_or(u32::MAX));
        let down = !self.is_virtual() && !self.status.admin_up;
        PortDesc {
            port_no: self.number,
            hw_addr: self.status.mac,
            name: self.name.clone(),
            config: if down { self.config | PortConfig::PORT_DOWN } else { self.config },
            state: self.state(),
            curr: current_features(&self.status),
            advertised: PortFeatures::empty(),
            supported: PortFeatures::empty(),
            peer: PortFeatures::empty(),
            curr_speed: kbps,
            max_speed: 0,
        }
    }

    /// Returns the port's counters; unknown ones are all ones.
    pub fn stats(&self, now: Millis) -> PortStats {
        let mut out = PortStats::unknown(self.number);
        out.duration = Some(Duration::from_millis(now.since(self.created)));
        if self.is_virtual() {
            let [rx, tx] = &*self.virtual_stats;
            (out.rx_packets, out.rx_bytes) = rx.counts();
            (out.tx_packets, out.tx_bytes) = tx.counts();
            return out;
        }
        out.custom = self.device.as_ref().map(|d| d.custom_counters()).unwrap_or_default();
        let Some(stats) = self.device.as_ref().and_then(|d| d.stats().ok()) else { return out };
        let known = |v: Option<u64>| v.unwrap_or(u64::MAX);
        out.rx_packets = known(stats.rx_packets);
        out.tx_packets = known(stats.tx_packets);
        out.rx_bytes = known(stats.rx_bytes);
        out.tx_bytes = known(stats.tx_bytes);
        out.rx_dropped = known(stats.rx_dropped);
        out.tx_dropped = known(stats.tx_dropped);
        out.rx_errors = known(stats.rx_errors);
        out.tx_errors = known(stats.tx_errors);
        out.rx_frame_err = known(stats.rx_frame_errors);
        out.rx_over_err = known(stats.rx_over_errors);
        out.rx_crc_err = known(stats.rx_crc_errors);
        out.collisions = known(stats.collisions);
        out
    }

    /// Returns the view for translation. `peer` is the other end of a patch port. `bundle` is the
    /// index of the port's bundle in the bridge. `protocols` take packets from the
    /// port.
    pub(crate) fn view(
        &self,
        peer: Option<(BridgeIndex, PortNo)>,
        bundle: Option<usize>,
        protocols: Arc<[Arc<dyn Protocol>]>,
    ) -> PortView {
        PortView {
            number: self.number,
            name: self.name.clone(),
            dp_port: self.dp_port,
            peer,
            is_patch: self.is_patch(),
            tunnel: self.tunnel.clone(),
            bundle,
            config: self.config,
            up: self.is_up(),
            live: self.may_enable(),
            tree_state: self.tree_state,
            protocols,
            mac: self.status.mac,
            mtu: self.status.mtu,
            ifindex: self.status.ifindex.unwrap_or(0),
            queue_dscp: Arc::clone(&self.queue_dscp),
            virtual_stats: Arc::clone(&self.virtual_stats),
        }
    }
}

/// Returns the OFPPS_STP_* bits of a state in the spanning tree.
fn tree_bits(state: Option<TreeState>) -> PortState {
    match state {
        None | Some(TreeState::Disabled) => PortState::empty(),
        Some(TreeState::Blocking) => PortState::STP_BLOCK,
        Some(TreeState::Listening | TreeState::Discarding) => PortState::STP_LISTEN,
        Some(TreeState::Learning) => PortState::STP_LEARN,
        Some(TreeState::Forwarding) => PortState::STP_FORWARD,
    }
}

fn current_features(status: &Status) -> PortFeatures {
    let full = status.duplex != Some(Duplex::Half);
    match (status.speed_bps.map(|bps| bps / 1_000_000), full) {
        (Some(10), true) => PortFeatures::FD_10MB,
        (Some(10), false) => PortFeatures::HD_10MB,
        (Some(100), true) => PortFeatures::FD_100MB,
        (Some(100), false) => PortFeatures::HD_100MB,
        (Some(1_000), true) => PortFeatures::FD_1GB,
        (Some(1_000), false) => PortFeatures::HD_1GB,
        (Some(10_000), _) => PortFeatures::FD_10GB,
        (Some(40_000), _) => PortFeatures::FD_40GB,
        (Some(100_000), _) => PortFeatures::FD_100GB,
        (Some(1_000_000), _) => PortFeatures::FD_1TB,
        (Some(_), _) => PortFeatures::OTHER,
        (None, _) => PortFeatures::empty(),
    }
}

/// Settings of a bundle, by interface names; [`BundleView`] has numbers.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// Settings; `members` and `floodable` are filled in when a snapshot is made.
    pub settings: BundleView,
    /// Interface names, in the order of the database.
    pub interfaces: Vec<String>,
    /// Settings of the bond, where there are several interfaces.
    pub bond: bond::Settings,
    /// Settings of LACP; `None` where it is off.
    pub lacp: Option<AggregateSettings>,
    /// Settings of LACP on each interface; missing ones are the default.
    pub lacp_ports: Vec<PortSettings>,
}
