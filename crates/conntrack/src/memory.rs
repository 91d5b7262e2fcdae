// SPDX-License-Identifier: Apache-2.0
//! The memory of a connection table.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{
    BUCKET_PLACES, CHUNK_CONNS, CHUNKS, EXTENSIONS, INDEX_GENERATIONS, INDEX_MAX_BUCKETS,
    INDEX_MIN_BUCKETS, POLICIES, POLICY_WORDS, RING_SLOTS, RINGS, VERSION, ZONES, config, conn,
    extension, ring, zone,
};
use crate::ring::Ring;
use crate::zones::Counts;
use std::fmt::Debug;
use std::sync::OnceLock;

/// Memory that could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no memory for more connections")
    }
}

impl std::error::Error for OutOfMemory {}

/// The arrays of a connection table, as `layout` sets them out. Fresh memory is zero.
///
/// All threads may read and write all words, also threads of other processes and BPF programs. The
/// length of each array stays the same for the life of the value. Only the sweeper's thread calls
/// the methods that add or retire.
pub trait Memory: Debug + Send + Sync {
    /// Returns the configuration, [`config::WORDS`] words.
    fn config(&self) -> &[AtomicU64];
    /// Returns [`ZONES`] zones.
    fn zones(&self) -> &[AtomicU64];
    /// Returns [`POLICIES`] timeout policies.
    fn policies(&self) -> &[AtomicU64];
    /// Returns the extensions.
    fn extensions(&self) -> &[AtomicU64];
    /// Returns the ring of free slots with this number, below [`RINGS`].
    fn ring(&self, number: usize) -> &[AtomicU64];
    /// Returns the buckets of an index, a power of two of them. `None`: there is no such index.
    fn index(&self, generation: u8) -> Option<&[AtomicU64]>;
    /// Returns the connections of a chunk. `None`: there is no such chunk (yet).
    fn chunk(&self, number: usize) -> Option<&[AtomicU64]>;

    /// Makes the chunk `number`.
    ///
    /// # Errors
    ///
    /// The chunk cannot be had.
    fn add_chunk(&self, number: usize) -> Result<(), OutOfMemory>;
    /// Makes the index `generation`, larger than the one before.
    ///
    /// # Errors
    ///
    /// The index cannot be had, or the one before is as large as an index may be.
    fn add_index(&self, generation: u8) -> Result<(), OutOfMemory>;
    /// Takes note that no thread uses the index `generation` from now on.
    fn retire_index(&self, generation: u8);
}

/// Why memory that an earlier process left cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongLayout {
    /// The first word of the configuration is of another version, or of something else.
    Version(u64),
    /// The part with this name has impossible values.
    Damaged(&'static str),
}

impl std::fmt::Display for WrongLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WrongLayout::Version(0) => f.write_str("they are not complete"),
            WrongLayout::Version(magic) if magic & !0xffff == config::MAGIC_VALUE => {
                write!(f, "they have layout version {}, {VERSION} is wanted", magic & 0xffff)
            }
            WrongLayout::Version(_) => f.write_str("they are no connections of Slipswitch"),
            WrongLayout::Damaged(part) => write!(f, "{part} has impossible values"),
        }
    }
}

impl std::error::Error for WrongLayout {}

/// Checks memory that an earlier process left: the version, and the values that decide how much
/// memory and time the table takes. All other words may have any values.
///
/// # Errors
///
/// The memory cannot be used.
pub fn check(memory: &dyn Memory) -> Result<(), WrongLayout> {
    let words = memory.config();
    let load = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
    let magic = load(config::MAGIC);
    if magic != config::MAGIC_VALUE | VERSION || words.len() < config::WORDS {
        return Err(WrongLayout::Version(magic));
    }
    let counts = Counts(memory);
    let chunks = (0..CHUNKS).map_while(|number| memory.chunk(number));
    let slots = chunks.map(|chunk| chunk.len() / conn::WORDS).sum::<usize>() as u64;
    let (index, other) = (load(config::INDEX) as u8, (load(config::INDEX) >> 8) as u8);
    let is_alone = u64::from(other) == config::NO_INDEX;
    let is_plausible = (config::FACTORS..config::MAX_CONNS).all(|at| load(at) % 2 == 1)
        && load(config::HALF_OPEN_PERCENT) <= 100
        && u32::try_from(load(config::MAX_CONNS)).is_ok()
        && counts.conns() <= slots
        && counts.half_open() <= slots
        && memory.index(index).is_some()
        && (is_alone || other != index && memory.index(other).is_some());
    if !is_plausible {
        return Err(WrongLayout::Damaged("the configuration"));
    }
    let is_ring = |number| Ring::new(memory.ring(number)).is_some_and(|ring| ring.is_plausible());
    if !(0..RINGS).all(is_ring) {
        return Err(WrongLayout::Damaged("a ring of free slots"));
    }
    Ok(())
}

/// Sizes of a [`PlainMemory`].
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Buckets of the first index, a power of two.
    pub buckets: usize,
    /// Buckets of the largest index, a power of two.
    pub max_buckets: usize,
    /// Connections of a chunk, at most [`CHUNK_CONNS`].
    pub chunk_conns: usize,
    /// Largest number of chunks, at most [`CHUNKS`].
    pub chunks: usize,
    /// Slots of a ring of free slots, an even number.
    pub ring_slots: usize,
}

impl Sizes {
    /// Returns the number of buckets of a generation of the index: four times those of the one before.
    /// `None`: there is no such generation, because the one before is as large as an index may be.
    pub fn buckets_of(&self, generation: u8) -> Option<usize> {
        let shift = u32::from(generation) * 2;
        let wanted = self.buckets.checked_mul(1usize.checked_shl(shift)?)?;
        let before = self.buckets.checked_shl(shift.saturating_sub(2))?;
        // The last step may be a smaller one.
        (generation == 0 || before < self.max_buckets)
            .then(|| wanted.min(self.max_buckets.max(self.buckets)))
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            buckets: INDEX_MIN_BUCKETS,
            max_buckets: INDEX_MAX_BUCKETS,
            chunk_conns: CHUNK_CONNS,
            chunks: CHUNKS,
            ring_slots: RING_SLOTS,
        }
    }
}

/// Memory of this process alone: connections end with it.
#[derive(Debug)]
pub struct PlainMemory {
    sizes: Sizes,
    config: Box<[AtomicU64]>,
    zones: Box<[AtomicU64]>,
    policies: Box<[AtomicU64]>,
    extensions: Box<[AtomicU64]>,
    rings: Vec<Box<[AtomicU64]>>,
    /// By generation; each has four times the buckets of the one before.
    indexes: [OnceLock<Box<[AtomicU64]>>; INDEX_GENERATIONS],
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

/// Returns zeros. Large arrays take no memory until they are used: the kernel's fresh pages are
/// zero.
#[cfg(not(test))]
fn words(len: usize) -> Box<[AtomicU64]> {
    zerocopy::FromZeros::new_box_zeroed_with_elems(len)
        .unwrap_or_else(|_| (0..len).map(|_| AtomicU64::new(0)).collect())
}

/// Returns zeros.
#[cfg(test)]
pub(crate) fn words(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

impl PlainMemory {
    /// Makes memory with one index and no chunk.
    pub fn new(sizes: Sizes) -> PlainMemory {
        let memory = PlainMemory {
            sizes,
            config: words(config::WORDS),
            zones: words(ZONES * zone::WORDS),
            policies: words(POLICIES * POLICY_WORDS),
            extensions: words(EXTENSIONS * extension::WORDS),
            rings: (0..RINGS).map(|_| words(ring::CELLS + sizes.ring_slots.div_ceil(2))).collect(),
            indexes: Default::default(),
            chunks: (0..sizes.chunks.min(CHUNKS)).map(|_| OnceLock::new()).collect(),
        };
        let first = memory.add_index(0);
        debug_assert!(first.is_ok());
        memory
    }

    #[cfg(test)]
    pub(crate) fn config_word(&self, at: usize) -> &AtomicU64 {
        &self.config[at]
    }

    /// Stores random words into all arrays but the configuration. Rings hold no more than they can.
    #[cfg(test)]
    pub(crate) fn damage(&self, mut random: impl FnMut() -> u64) {
        let chunks = self.chunks.iter().filter_map(|chunk| chunk.get());
        let indexes = self.indexes.iter().filter_map(|index| index.get());
        let arrays = [&self.zones, &self.policies, &self.extensions];
        for array in arrays.into_iter().chain(&self.rings).chain(chunks).chain(indexes) {
            for word in array.iter() {
                // Small numbers are plausible slots.
                let value = random();
                let value = if value.is_multiple_of(3) { value & 0x1ff } else { value };
                word.store(value, Ordering::Relaxed);
            }
        }
        for ring in &self.rings {
            let head = ring[ring::HEAD].load(Ordering::Relaxed);
            let len = random() % (self.sizes.ring_slots as u64 + 1);
            ring[ring::TAIL].store(head.wrapping_add(len), Ordering::Relaxed);
        }
    }
}

impl Memory for PlainMemory {
    fn config(&self) -> &[AtomicU64] {
        &self.config
    }

    fn zones(&self) -> &[AtomicU64] {
        &self.zones
    }

    fn policies(&self) -> &[AtomicU64] {
        &self.policies
    }

    fn extensions(&self) -> &[AtomicU64] {
        &self.extensions
    }

    fn ring(&self, number: usize) -> &[AtomicU64] {
        self.rings.get(number).map_or(&[], |ring| ring)
    }

    fn index(&self, generation: u8) -> Option<&[AtomicU64]> {
        self.indexes.get(usize::from(generation))?.get().map(|index| &**index)
    }

    fn chunk(&self, number: usize) -> Option<&[AtomicU64]> {
        self.chunks.get(number)?.get().map(|chunk| &**chunk)
    }

    fn add_chunk(&self, number: usize) -> Result<(), OutOfMemory> {
        let chunk = self.chunks.get(number).ok_or(OutOfMemory)?;
        chunk.get_or_init(|| words(self.sizes.chunk_conns.min(CHUNK_CONNS) * conn::WORDS));
        Ok(())
    }

    fn add_index(&self, generation: u8) -> Result<(), OutOfMemory> {
        let index = self.indexes.get(usize::from(generation)).ok_or(OutOfMemory)?;
        let buckets = self.sizes.buckets_of(generation).ok_or(OutOfMemory)?;
        index.get_or_init(|| words(buckets * BUCKET_PLACES));
        Ok(())
    }

    /// The memory stays: all smaller indexes together have a third of the largest one's size.
    fn retire_index(&self, _generation: u8) {}
}
