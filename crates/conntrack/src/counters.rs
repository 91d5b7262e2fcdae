// SPDX-License-Identifier: Apache-2.0
//! Counters of connection tracking, by the names of Open vSwitch's coverage counters.

use crate::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            /// All counters.
            pub const ALL: &[Counter] = &[$(Counter::$variant,)*];

            /// Returns the counter's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// A connection was not made: there are as many as may be.
    Full = "conntrack_full",
    /// A connection was not made: its zone has as many as it may.
    ZoneFull = "conntrack_zone_full",
    /// A connection was not made: too many are half-open.
    HalfOpenFull = "conntrack_half_open_full",
    /// A connection was not made: its buckets of the index are full.
    BucketFull = "conntrack_bucket_full",
    /// A connection was not made: other threads made one with its tuple.
    Overtaken = "conntrack_overtaken",
    /// A connection was not made: NAT found no free tuple.
    NatExhausted = "conntrack_nat_exhausted",
    /// An IPv4 header checksum was wrong.
    IpChecksumError = "conntrack_l3csum_err",
    /// A transport checksum was wrong.
    TransportChecksumError = "conntrack_l4csum_err",
    /// IPv4 header checksums were verified.
    IpChecksumChecked = "conntrack_l3csum_checked",
    /// Transport checksums were verified.
    TransportChecksumChecked = "conntrack_l4csum_checked",
    /// A packet after NAT had no connection.
    LookupNattedMiss = "conntrack_lookup_natted_miss",
    /// A TCP segment outside the window passed: the check is off.
    SequenceCheckBypassed = "conntrack_tcp_seq_chk_bypass",
    /// A TCP segment was outside the window.
    SequenceCheckFailed = "conntrack_tcp_seq_chk_failed",
    /// A TCP segment had an invalid combination of flags.
    InvalidTcpFlags = "conntrack_invalid_tcp_flags",
    /// A control packet of FTP was invalid.
    InvalidFtp = "conntrack_invalid_ftp",
    /// An expectation was not made: there are as many as may be.
    ExpectationsFull = "conntrack_expectations_full",
}

/// The counters of a tracker. Any thread may add to them.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; Counter::ALL.len()]);

impl Counters {
    /// Adds one.
    pub fn add(&self, counter: Counter) {
        self.0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}
