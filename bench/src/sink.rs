// SPDX-License-Identifier: Apache-2.0
//! Where traffic ends, and is counted.

use crate::histogram::{BUCKETS, Histogram};
use crate::programs::{Attached, Hook, Programs};
use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// Counted frames of the generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    /// Without checksums of Ethernet.
    pub bytes: u64,
}

/// Reads the counters of the programs `sink` and `leave` of an object.
pub struct Sink {
    seen: MapHandle,
    delays: MapHandle,
    _attached: Option<Attached>,
}

impl Sink {
    /// Counts and drops what arrives on a device of the calling thread's namespace, as long as
    /// this value is held.
    pub fn at(hook: Hook, ifindex: u32) -> Result<Sink> {
        let attached = Programs::load(hook, 0)?.attach("sink", ifindex)?;
        let sink = Sink::of(&attached.programs)?;
        Ok(Sink { _attached: Some(attached), ..sink })
    }

    /// The counters of an object whose program is attached elsewhere.
    pub fn of(programs: &Programs) -> Result<Sink> {
        let (seen, delays) = (programs.map("seen")?, programs.map("delays")?);
        Ok(Sink { seen, delays, _attached: None })
    }

    /// The frames so far.
    pub fn tally(&self) -> Result<Tally> {
        let mut sum = Tally::default();
        for words in per_cpu(&self.seen, 0)? {
            sum.packets += words.first().copied().unwrap_or_default();
            sum.bytes += words.get(1).copied().unwrap_or_default();
        }
        Ok(sum)
    }

    /// Delays of the stamped frames so far.
    pub fn delays(&self) -> Result<Histogram> {
        let bucket = |at| Ok(per_cpu(&self.delays, at)?.iter().flatten().sum());
        (0..BUCKETS as u32).map(bucket).collect::<Result<_>>().map(Histogram)
    }
}

/// The words of an element, for each CPU.
fn per_cpu(map: &MapHandle, element: u32) -> Result<Vec<Vec<u64>>> {
    let values = map.lookup_percpu(&element.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let words = |value: &Vec<u8>| {
        let (words, _) = value.as_chunks();
        words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    };
    Ok(values.iter().map(words).collect())
}
