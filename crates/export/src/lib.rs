// SPDX-License-Identifier: Apache-2.0
//! Export of traffic statistics: what bridges report to collectors about their packets.
//!
//! # Task
//! Each module has one protocol: the records that it keeps, and the datagrams that it makes of them.
//! Nothing here opens a socket or reads a clock: the caller passes the time, and sends the datagrams.
//!
//! | module | protocol |
//! |---|---|
//! | [`ipfix`] | IPFIX: records of sampled packets by flow |
//! | [`netflow`] | NetFlow version 5: records of IPv4 flows |
//! | [`sflow`] | sFlow version 5: samples of packets, counters of interfaces |
//!
//! # Invariants
//! - Memory is bounded: each cache has a limit, and counts what found no room.
//! - Datagrams fit into one Ethernet frame.
//! - A record's counts are sent once.
//!
//! # Which side it errs on
//! A record that finds no room is not sent; the traffic itself is not touched.

pub mod ipfix;
pub mod netflow;
pub mod sflow;

/// Time of day, which datagrams carry: seconds and nanoseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WallTime {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

impl WallTime {
    /// Returns the time `ms` milliseconds before this one.
    #[must_use]
    pub fn before(self, ms: u64) -> WallTime {
        const SECOND: u64 = 1_000_000_000;
        let all = u64::from(self.seconds) * SECOND + u64::from(self.nanoseconds);
        let all = all.saturating_sub(ms.saturating_mul(1_000_000));
        WallTime { seconds: (all / SECOND) as u32, nanoseconds: (all % SECOND) as u32 }
    }
}

impl From<std::time::SystemTime> for WallTime {
    fn from(time: std::time::SystemTime) -> WallTime {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        // The protocols count seconds in 32 bits, which wrap in 2106.
        WallTime { seconds: since.as_secs() as u32, nanoseconds: since.subsec_nanos() }
    }
}
