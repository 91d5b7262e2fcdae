// SPDX-License-Identifier: Apache-2.0
//! Where traffic ends, and is counted.

use crate::histogram::{BUCKETS, Histogram};
use crate::link::tcx_ingress;
use crate::object::{Hook, Load, Programs};
use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, OwnedFd};

/// Frames of the generator, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Bytes of theirs, without checksums of Ethernet.
    pub bytes: u64,
}

/// Reads what programs called `sink` of one object have counted.
pub struct Sink {
    seen: MapHandle,
    delays: MapHandle,
}

impl Sink {
    /// Of this object.
    ///
    /// # Errors
    /// When its maps cannot be opened.
    pub fn of(programs: &Programs) -> Result<Sink> {
        Ok(Sink { seen: programs.map("seen")?, delays: programs.map("delays")? })
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tally(&self) -> Result<Tally> {
        let mut sum = Tally::default();
        for words in per_cpu(&self.seen, 0)? {
            sum.packets += words.first().copied().unwrap_or_default();
            sum.bytes += words.get(1).copied().unwrap_or_default();
        }
        Ok(sum)
    }

    /// Delays of the stamped frames so far.
    ///
    /// # Errors
    /// When the kernel refuses.
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

/// A sink at a device, as long as it is held.
pub struct Drain {
    /// What it counts.
    pub sink: Sink,
    _held: Held,
    _programs: Programs,
}

enum Held {
    Xdp { _link: Link },
    Tc { _link: OwnedFd },
}

impl Drain {
    /// Counts and drops what arrives on a device of the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn at(hook: Hook, ifindex: u32) -> Result<Drain> {
        let programs = Programs::load(Load::at(hook))?;
        let held = match hook {
            Hook::Xdp => Held::Xdp { _link: programs.attach_xdp("sink", ifindex)? },
            Hook::Tc => {
                Held::Tc { _link: tcx_ingress(programs.program("sink")?.as_fd(), ifindex)? }
            }
        };
        let sink = Sink::of(&programs).context("the sink's maps")?;
        Ok(Drain { sink, _held: held, _programs: programs })
    }
}
