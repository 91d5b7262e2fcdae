// SPDX-License-Identifier: Apache-2.0
//! Meters (OpenFlow 1.3 section 5.7).

use clock::Millis;

/// One drop band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// Kilobits or packets a second.
    pub rate: u32,
    /// Kilobits or packets; 0 takes one second's rate.
    pub burst: u32,
}

/// A meter's configuration.
///
/// Each band is a token bucket that starts full, gains `rate` a second on the datapath's clock,
/// and holds `burst`. A packet takes its length in bits, or one packet, from each band's bucket;
/// a bucket that has too little is left alone and its band exceeded. A packet that exceeds any
/// band is dropped and counted on the exceeded band with the highest rate (of equal ones the
/// first).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MeterConfig {
    /// Rates are packets a second (else kilobits a second).
    pub packets: bool,
    /// Drop bands.
    pub bands: Vec<MeterBand>,
}

/// A meter's counters.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MeterStats {
    /// Packets that met the meter.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets and bytes that each band dropped.
    pub bands: Vec<(u64, u64)>,
    /// When it was set.
    pub since: Millis,
}
