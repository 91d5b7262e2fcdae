// SPDX-License-Identifier: Apache-2.0
//! Meters (1.3+).

use std::time::Duration;

/// Meter numbers with a meaning.
pub mod meter_id {
    /// Highest number of a meter.
    pub const MAX: u32 = 0xffff_0000;
    /// For the slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// For packets to controllers.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// All meters.
    pub const ALL: u32 = 0xffff_ffff;
}

bitflags::bitflags! {
    /// Flags of a meter (OFPMF_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MeterFlags: u16 {
        /// Rates in kbit/s.
        const KBPS = 1 << 0;
        /// Rates in packets/s.
        const PKTPS = 1 << 1;
        /// Burst sizes are given.
        const BURST = 1 << 2;
        /// Collect statistics.
        const STATS = 1 << 3;
    }
}

/// Commands of OFPT_METER_MOD (OFPMC_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MeterCommand {
    /// New meter.
    Add = 0,
    /// Other contents.
    Modify = 1,
    /// Remove one or all.
    Delete = 2,
}

/// Effect of a band on packets above its rate (OFPMBT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// Drop the packet.
    Drop,
    /// Raise the drop precedence in DSCP.
    DscpRemark {
        /// Number of levels to raise the drop precedence by.
        prec_level: u8,
    },
}

/// A band of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// Effect of the band on packets above its rate.
    pub kind: MeterBandKind,
    /// The band applies above this rate, in kbit/s or packets/s as the meter's flags say.
    pub rate: u32,
    /// Burst size, in kbit or packets as the meter's flags say.
    pub burst_size: u32,
}

/// Configuration of a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// The meter.
    pub meter_id: u32,
    /// Unit of the rates and further settings (OFPMF_*).
    pub flags: MeterFlags,
    /// The bands, in the order of the message.
    pub bands: Vec<MeterBand>,
}

/// OFPT_METER_MOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// The change to make: add, modify or delete.
    pub command: MeterCommand,
    /// The meter.
    pub meter: MeterConfig,
}

/// Statistics of a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter_id: u32,
    /// Flows that use it.
    pub flow_count: u32,
    /// Packets, `u64::MAX` when unknown.
    pub packet_in_count: u64,
    /// Bytes, `u64::MAX` when unknown.
    pub byte_in_count: u64,
    /// How long it has been there.
    pub duration: Duration,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}

/// Capabilities of meters (OFPMP_METER_FEATURES).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Most meters.
    pub max_meters: u32,
    /// Bit N: band type N (1 drop, 2 DSCP remark).
    pub band_types: u32,
    /// [`MeterFlags`] bits.
    pub capabilities: u32,
    /// Most bands in a meter.
    pub max_bands: u8,
    /// Highest colour value.
    pub max_color: u8,
}
