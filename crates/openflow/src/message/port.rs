// SPDX-License-Identifier: Apache-2.0
//! Ports: description, status, changes, statistics.

use crate::PortNo;
use std::time::Duration;

bitflags::bitflags! {
    /// Administrative settings of a port (OFPPC_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortConfig: u32 {
        /// Administratively down.
        const PORT_DOWN = 1 << 0;
        /// No spanning tree (1.0).
        const NO_STP = 1 << 1;
        /// Drop received packets.
        const NO_RECV = 1 << 2;
        /// Drop received spanning tree packets (1.0).
        const NO_RECV_STP = 1 << 3;
        /// Leave out of flooding (1.0).
        const NO_FLOOD = 1 << 4;
        /// Drop packets to it.
        const NO_FWD = 1 << 5;
        /// No packet-in for it.
        const NO_PACKET_IN = 1 << 6;
    }

    /// Current state of a port (OFPPS_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortState: u32 {
        /// No link.
        const LINK_DOWN = 1 << 0;
        /// Blocked by a protocol (1.1+).
        const BLOCKED = 1 << 1;
        /// Live for fast failover (1.1+).
        const LIVE = 1 << 2;
        /// Spanning tree state listening (1.0; no STP bit set).
        const STP_LISTEN = 1 << 3;
        /// Spanning tree state learning (1.0).
        const STP_LEARN = 1 << 4;
        /// Spanning tree state forwarding (1.0).
        const STP_FORWARD = 1 << 5;
        /// Spanning tree state blocking (1.0).
        const STP_BLOCK = 1 << 6;
    }

    /// Features of an Ethernet port, as OpenFlow 1.1+ numbers them (OFPPF_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortFeatures: u32 {
        /// 10 Mb half-duplex.
        const HD_10MB = 1 << 0;
        /// 10 Mb full-duplex.
        const FD_10MB = 1 << 1;
        /// 100 Mb half-duplex.
        const HD_100MB = 1 << 2;
        /// 100 Mb full-duplex.
        const FD_100MB = 1 << 3;
        /// 1 Gb half-duplex.
        const HD_1GB = 1 << 4;
        /// 1 Gb full-duplex.
        const FD_1GB = 1 << 5;
        /// 10 Gb full-duplex.
        const FD_10GB = 1 << 6;
        /// 40 Gb full-duplex (1.1+).
        const FD_40GB = 1 << 7;
        /// 100 Gb full-duplex (1.1+).
        const FD_100GB = 1 << 8;
        /// 1 Tb full-duplex (1.1+).
        const FD_1TB = 1 << 9;
        /// Another rate (1.1+).
        const OTHER = 1 << 10;
        /// The medium is copper.
        const COPPER = 1 << 11;
        /// The medium is fiber.
        const FIBER = 1 << 12;
        /// The link uses auto-negotiation.
        const AUTONEG = 1 << 13;
        /// The link supports pause frames.
        const PAUSE = 1 << 14;
        /// Asymmetric pause.
        const PAUSE_ASYM = 1 << 15;
    }
}

/// Description of a port (struct ofp_port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Its number.
    pub port_no: PortNo,
    /// Its Ethernet address.
    pub hw_addr: [u8; 6],
    /// Its 64-bit address, where it has one (1.4+ ethernet property does not carry it).
    pub name: String,
    /// Administrative settings.
    pub config: PortConfig,
    /// Current state of the link.
    pub state: PortState,
    /// Current features.
    pub curr: PortFeatures,
    /// Features that it advertises.
    pub advertised: PortFeatures,
    /// Features that it can.
    pub supported: PortFeatures,
    /// Features that its peer advertises.
    pub peer: PortFeatures,
    /// Current rate, kbit/s; 0 when unknown (1.1+).
    pub curr_speed: u32,
    /// Highest rate, kbit/s; 0 when unknown (1.1+).
    pub max_speed: u32,
}

/// Kind of change to a port (OFPPR_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PortStatusReason {
    /// It is new.
    Add = 0,
    /// It is gone.
    Delete = 1,
    /// Something about it changed.
    Modify = 2,
}

/// OFPT_PORT_STATUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Kind of change.
    pub reason: PortStatusReason,
    /// The port as it is now (or was last).
    pub port: PortDesc,
}

/// OFPT_PORT_MOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// The port.
    pub port_no: PortNo,
    /// Its Ethernet address, against mistakes.
    pub hw_addr: [u8; 6],
    /// The bits of `mask` become those of `config`.
    pub config: PortConfig,
    /// See `config`.
    pub mask: PortConfig,
    /// Features to advertise; empty leaves them alone.
    pub advertise: PortFeatures,
}

/// Statistics of a port. `u64::MAX` is "unknown" for every counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The port.
    pub port_no: PortNo,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Dropped instead of sent.
    pub tx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_err: u64,
    /// Packets dropped on receive because of an overrun.
    pub rx_over_err: u64,
    /// CRC errors.
    pub rx_crc_err: u64,
    /// Number of collisions.
    pub collisions: u64,
    /// How long it has been there (1.3+); `None` when unknown.
    pub duration: Option<Duration>,
    /// RFC 2819 and further counters, sent as OVS does in 1.4+ (OFPPSPT_EXPERIMENTER,
    /// INTEL_PORT_STATS_RFC2819), when any is known.
    pub rfc2819: Option<Box<Rfc2819Stats>>,
    /// The device's own counters, by name (1.4+, INTEL_PORT_STATS_CUSTOM).
    pub custom: Vec<(String, u64)>,
}

impl PortStats {
    /// Every counter unknown.
    pub fn unknown(port_no: PortNo) -> PortStats {
        PortStats {
            port_no,
            rx_packets: u64::MAX,
            tx_packets: u64::MAX,
            rx_bytes: u64::MAX,
            tx_bytes: u64::MAX,
            rx_dropped: u64::MAX,
            tx_dropped: u64::MAX,
            rx_errors: u64::MAX,
            tx_errors: u64::MAX,
            rx_frame_err: u64::MAX,
            rx_over_err: u64::MAX,
            rx_crc_err: u64::MAX,
            collisions: u64::MAX,
            duration: None,
            rfc2819: None,
            custom: Vec::new(),
        }
    }
}

/// Packet counters by size and kind; `u64::MAX` is "unknown". In the order of OVS's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc2819Stats {
    /// rx 1 to 64, 65 to 127, 128 to 255, 256 to 511, 512 to 1023, 1024 to 1522, 1523 to max.
    pub rx_sizes: [u64; 7],
    /// tx, likewise.
    pub tx_sizes: [u64; 7],
    /// Multicast packets sent (tx_multicast_packets).
    pub tx_multicast: u64,
    /// Broadcast packets received (rx_broadcast_packets).
    pub rx_broadcast: u64,
    /// Broadcast packets sent (tx_broadcast_packets).
    pub tx_broadcast: u64,
    /// Received packets that were too short (rx_undersized_errors).
    pub rx_undersized: u64,
    /// Received packets that were too long (rx_oversize_errors).
    pub rx_oversize: u64,
    /// Received fragments with a bad CRC (rx_fragmented_errors).
    pub rx_fragmented: u64,
    /// Received packets that were too long and had a bad CRC (rx_jabber_errors).
    pub rx_jabber: u64,
}

impl Default for Rfc2819Stats {
    fn default() -> Self {
        Rfc2819Stats {
            rx_sizes: [u64::MAX; 7],
            tx_sizes: [u64::MAX; 7],
            tx_multicast: u64::MAX,
            rx_broadcast: u64::MAX,
            tx_broadcast: u64::MAX,
            rx_undersized: u64::MAX,
            rx_oversize: u64::MAX,
            rx_fragmented: u64::MAX,
            rx_jabber: u64::MAX,
        }
    }
}
