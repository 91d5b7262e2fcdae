// SPDX-License-Identifier: Apache-2.0
//! State and counters of a device.

/// Full or half duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// One direction at a time.
    Half,
    /// Both directions at once.
    Full,
}

/// Features of a link: bits of `enum ofp_port_features` of OpenFlow 1.1 and later (7.2.1). All are
/// 0 if the driver reports none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Features in use.
    pub current: u32,
    /// Features offered to the other end.
    pub advertised: u32,
    /// Features that the device supports.
    pub supported: u32,
    /// Features that the other end offers.
    pub peer: u32,
}

/// The driver's data about itself (`ETHTOOL_GDRVINFO`). Strings that it does not report are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// `driver_name` of the Interface's status column.
    pub name: String,
    /// `driver_version` of that column.
    pub version: String,
    /// `firmware_version` of that column.
    pub firmware: String,
}

/// The state of a device at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// True when the device is administratively up (`IFF_UP`).
    pub admin_up: bool,
    /// True when the link has carrier (`IFF_LOWER_UP`).
    pub link_up: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// MTU: bytes of a frame without its Ethernet header.
    pub mtu: u32,
    /// Smallest and largest MTU that the driver accepts, if known; 0 means no limit known.
    pub mtu_range: Option<(u32, u32)>,
    /// The kernel's index, in the interface's own namespace; `None` when there is no interface.
    pub ifindex: Option<u32>,
    /// Present name in its namespace. It differs from the configured name after a rename.
    pub current_name: String,
    /// True when it is not in the network namespace where it was opened.
    pub is_away: bool,
    /// Speed in bits per second; `None` when the driver does not report it.
    pub speed_bps: Option<u64>,
    /// Duplex; `None` when the driver does not report it.
    pub duplex: Option<Duplex>,
    /// Link features of OpenFlow.
    pub features: Features,
    /// The driver's data about itself.
    pub driver: DriverInfo,
    /// Number of carrier changes (`IFLA_CARRIER_CHANGES`).
    pub link_resets: u64,
    /// True in promiscuous mode.
    pub promiscuous: bool,
    /// Kind of virtual interface (`IFLA_INFO_KIND`: "veth", "tun", ...); `None` for hardware.
    pub link_kind: Option<String>,
    /// Further keys and values of `Interface.status`, for example `xdp-mode` of `AF_XDP` ports.
    pub extra: Vec<(String, String)>,
}

impl Status {
    /// Returns the interface's index in the network namespace where it was opened; `None` when it
    /// is in another one.
    pub fn ifindex_here(&self) -> Option<u32> {
        self.ifindex.filter(|_| !self.is_away)
    }
}

/// Counters of a device since its creation. `None`: the device does not have that counter.
///
/// The names follow `struct rtnl_link_stats64` (include/uapi/linux/if_link.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct DeviceStats {
    pub rx_packets: Option<u64>,
    pub tx_packets: Option<u64>,
    pub rx_bytes: Option<u64>,
    pub tx_bytes: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_errors: Option<u64>,
    pub rx_dropped: Option<u64>,
    pub tx_dropped: Option<u64>,
    pub multicast: Option<u64>,
    pub collisions: Option<u64>,
    pub rx_length_errors: Option<u64>,
    pub rx_over_errors: Option<u64>,
    pub rx_crc_errors: Option<u64>,
    pub rx_frame_errors: Option<u64>,
    pub rx_fifo_errors: Option<u64>,
    pub rx_missed_errors: Option<u64>,
    pub tx_aborted_errors: Option<u64>,
    pub tx_carrier_errors: Option<u64>,
    pub tx_fifo_errors: Option<u64>,
    pub tx_heartbeat_errors: Option<u64>,
    pub tx_window_errors: Option<u64>,
    /// Packets dropped by [`crate::Device::set_policing`]. The switch counts them, not the kernel.
    pub rx_policed: Option<u64>,
    /// Frames that the receive socket lost because it was not read in time. With `AF_PACKET` they
    /// are included in `rx_dropped`.
    pub rx_overrun: Option<u64>,
    /// Frames that were too short or contradictory to be delivered. They are included in
    /// `rx_errors`.
    pub rx_malformed: Option<u64>,
}
