// SPDX-License-Identifier: Apache-2.0
//! Counters of connection tracking, by the names of Open vSwitch's coverage counters.
//!
//! The tracker counts in memory of its own. BPF programs count in the table's memory, which may be
//! older than the tracker: their counts at the start are no events of this tracker.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::config::{EVENT_LINE, EVENTS, SHARDS};
use crate::memory::Memory;
use std::sync::Arc;

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

const KINDS: usize = Counter::ALL.len();

// Programs have a word for each counter.
const _: () = assert!(KINDS <= EVENT_LINE);

/// Returns the events that BPF programs counted.
fn events(memory: &dyn Memory, number: usize) -> u64 {
    let at = |shard: usize| EVENTS + shard * EVENT_LINE + number;
    let word = |shard| memory.config().get(at(shard)).map_or(0, |w| w.load(Ordering::Relaxed));
    (0..SHARDS).map(word).fold(0, u64::wrapping_add)
}

/// The counters of a tracker. Any thread may add to them.
#[derive(Debug)]
pub struct Counters {
    memory: Arc<dyn Memory>,
    own: [AtomicU64; KINDS],
    /// Events of programs before the start.
    before: [u64; KINDS],
}

impl Counters {
    pub(crate) fn new(memory: Arc<dyn Memory>) -> Counters {
        let before = std::array::from_fn(|number| events(&*memory, number));
        Counters { memory, own: Default::default(), before }
    }

    /// Adds one.
    pub fn add(&self, counter: Counter) {
        self.own[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events since the tracker began, those that programs counted included.
    pub fn get(&self, counter: Counter) -> u64 {
        let number = counter as usize;
        let theirs = events(&*self.memory, number).wrapping_sub(self.before[number]);
        self.own[number].load(Ordering::Relaxed).wrapping_add(theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PlainMemory, Sizes};

    #[test]
    fn events_of_programs_are_counted_from_the_start() {
        let memory = Arc::new(PlainMemory::new(Sizes::default()));
        let of_shard = |shard: usize| {
            memory.config().get(EVENTS + shard * EVENT_LINE + Counter::ZoneFull as usize).unwrap()
        };
        of_shard(1).store(3, Ordering::Relaxed);
        let counters = Counters::new(memory.clone());
        assert_eq!(counters.get(Counter::ZoneFull), 0);
        of_shard(1).store(5, Ordering::Relaxed);
        of_shard(7).store(1, Ordering::Relaxed);
        counters.add(Counter::ZoneFull);
        assert_eq!((counters.get(Counter::ZoneFull), counters.get(Counter::Full)), (4, 0));
    }
}
