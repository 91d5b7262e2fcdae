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

/// Features of a link: bits of `enum ofp_port_features` of OpenFlow 1.1 and later (7.2.1), all 0
/// where the driver says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// In use.
    pub current: u32,
    /// Offered to the other end.
    pub advertised: u32,
    /// Supported by the device.
    pub supported: u32,
    /// Offered by the other end.
    pub peer: u32,
}

/// What the driver says about itself (`ETHTOOL_GDRVINFO`); empty strings where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// `driver_name` of the Interface's status column.
    pub name: String,
    /// `driver_version`.
    pub version: String,
    /// `firmware_version`.
    pub firmware: String,
}

/// State of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Administratively up (`IFF_UP`).
    pub admin_up: bool,
    /// The link works (`IFF_LOWER_UP`: carrier).
    pub link_up: bool,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u32,
    /// Smallest and largest MTU the driver takes, where known (0 = no limit known).
    pub mtu_range: Option<(u32, u32)>,
    /// The kernel's index, in the interface's own namespace; `None` when there is no interface.
    pub ifindex: Option<u32>,
    /// Present name in its namespace; differs from the configured name after a rename.
    pub current_name: String,
    /// It is in another network namespace than when it was opened.
    pub is_away: bool,
    /// Bits per second; `None` when the driver does not know.
    pub speed_bps: Option<u64>,
    /// `None` when the driver does not know.
    pub duplex: Option<Duplex>,
    /// Link features as OpenFlow shows them.
    pub features: Features,
    /// The driver on itself.
    pub driver: DriverInfo,
    /// How often the carrier changed (`IFLA_CARRIER_CHANGES`).
    pub link_resets: u64,
    /// In promiscuous mode.
    pub promiscuous: bool,
    /// Kind of virtual interface (`IFLA_INFO_KIND`: "veth", "tun", ...); `None` for hardware.
    pub link_kind: Option<String>,
    /// Further facts as `Interface.status` keys and values, e.g. `xdp-mode` of `AF_XDP` ports.
    pub extra: Vec<(String, String)>,
}

impl Status {
    /// The index by which others in the namespace where the device was opened know it.
    pub fn ifindex_here(&self) -> Option<u32> {
        self.ifindex.filter(|_| !self.is_away)
    }
}

/// Counters of a device since it was created. `None`: this device does not have that counter.
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
    /// Dropped by [`crate::Device::set_policing`]; ours, not the kernel's.
    pub rx_policed: Option<u64>,
    /// Frames that our receive socket lost because it was not read in time; with `AF_PACKET` in
    /// `rx_dropped`, too.
    pub rx_overrun: Option<u64>,
    /// Frames too short or too contradictory to be passed on; in `rx_errors`, too.
    pub rx_malformed: Option<u64>,
}
