// SPDX-License-Identifier: Apache-2.0
//! The memory of the table of connections: arrays that BPF programs and the daemon share
//! (`bpf/ct_maps.h`), pinned so that connections outlive the daemon.
//!
//! ```text
//! ct_config ct_zones ct_policies ct_exts ct_free    arrays
//! ct_index ct_chunks                                arrays of the maps below
//! ct_index_GENERATION ct_chunk_NUMBER               buckets, connections
//! ```
//!
//! The inner maps are pinned by names of their own: to open them by their numbers takes a privilege
//! that the daemon may lack. Each is pinned before it is put into its array of maps, so none is in
//! use without a pin. `ct_config` is pinned last, so a set without it is not complete.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conntrack::layout::{
    BUCKET_PLACES, CHUNK_CONNS, CHUNKS, EXTENSIONS, INDEX_GENERATIONS, POLICIES, POLICY_WORDS,
    RING_SLOTS, RINGS, VERSION, ZONES, config, conn, extension, ring, zone,
};
use conntrack::{Memory, OutOfMemory, Sizes, WrongLayout};

use crate::attachment::Unavailable;
use crate::maps::MMAPABLE;
use crate::pins::{Part, Pins, unpin};
use crate::shared::Shared;
use crate::sys::{self, MapInfo};

const ARRAY: u32 = libbpf_sys::BPF_MAP_TYPE_ARRAY;
const ARRAY_OF_MAPS: u32 = libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS;
/// Inner maps may have different numbers of elements.
const INNER: u32 = libbpf_sys::BPF_F_INNER_MAP;
const RING_WORDS: usize = ring::CELLS + RING_SLOTS / 2;

/// The kind and the size of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    kind: u32,
    /// 64-bit words of a value.
    words: usize,
    entries: usize,
    flags: u32,
}

impl Shape {
    const fn array(words: usize, entries: usize) -> Shape {
        Shape { kind: ARRAY, words, entries, flags: MMAPABLE }
    }

    fn buckets(generation: u8) -> Option<Shape> {
        let entries = Sizes::default().buckets_of(generation)?;
        Some(Shape { flags: MMAPABLE | INNER, ..Shape::array(BUCKET_PLACES, entries) })
    }

    fn chunk(conns: usize) -> Shape {
        Shape::array(conn::WORDS, conns)
    }

    fn create(self) -> io::Result<OwnedFd> {
        sys::array(self.words as u32 * 8, self.entries as u32, self.flags)
    }

    /// Checks a map that an earlier daemon left. The kernel may add flags.
    fn check(self, name: &str, fd: BorrowedFd<'_>) -> Result<(), Obstacle> {
        let info = sys::map_info(fd).map_err(|e| Obstacle::system(name, e))?;
        let MapInfo { kind, key_size, value_size, max_entries, flags } = info;
        let is = (kind, key_size, value_size as usize, max_entries as usize);
        if is == (self.kind, 4, self.words * 8, self.entries) && flags & self.flags == self.flags {
            return Ok(());
        }
        Err(Obstacle::Layout(format!(
            "{name} has {max_entries} entries of {value_size} bytes, {} of {} are wanted",
            self.entries,
            self.words * 8
        )))
    }
}

/// Names of maps.
const CONFIG: &str = "ct_config";
const INDEX: &str = "ct_index";
const CHUNK_TABLE: &str = "ct_chunks";

fn index_name(generation: usize) -> String {
    format!("{INDEX}_{generation}")
}

fn chunk_name(number: usize) -> String {
    format!("ct_chunk_{number}")
}

/// A map that is mapped into the process.
struct Mapped {
    fd: OwnedFd,
    words: Shared<u64>,
}

impl Mapped {
    fn new(fd: OwnedFd, shape: Shape) -> io::Result<Mapped> {
        let words = Shared::map(fd.as_fd(), shape.words * shape.entries)?;
        Ok(Mapped { fd, words })
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.all_words()
    }
}

/// The arrays that there are once.
struct Arrays {
    config: Mapped,
    zones: Mapped,
    policies: Mapped,
    extensions: Mapped,
    free: Mapped,
}

impl Arrays {
    /// Gets each array by its name and shape from `one`.
    fn all<E>(one: impl Fn(&'static str, Shape) -> Result<Mapped, E>) -> Result<Arrays, E> {
        Ok(Arrays {
            config: one(CONFIG, Shape::array(config::WORDS, 1))?,
            zones: one("ct_zones", Shape::array(zone::WORDS, ZONES))?,
            policies: one("ct_policies", Shape::array(POLICY_WORDS, POLICIES))?,
            extensions: one("ct_exts", Shape::array(extension::WORDS, EXTENSIONS))?,
            free: one("ct_free", Shape::array(RING_WORDS, RINGS))?,
        })
    }

    /// The configuration comes last.
    fn named(&self) -> [(&'static str, &Mapped); 5] {
        [
            ("ct_zones", &self.zones),
            ("ct_policies", &self.policies),
            ("ct_exts", &self.extensions),
            ("ct_free", &self.free),
            (CONFIG, &self.config),
        ]
    }
}

/// An array of maps, with the maps in it that the process has mapped.
struct Outer {
    fd: OwnedFd,
    inner: Box<[OnceLock<Mapped>]>,
}

impl Outer {
    fn new(fd: OwnedFd, entries: usize) -> Outer {
        Outer { fd, inner: (0..entries).map(|_| OnceLock::new()).collect() }
    }

    fn words(&self, number: usize) -> Option<&[AtomicU64]> {
        self.inner.get(number)?.get().map(Mapped::words)
    }

    /// Returns the maps in the array with their numbers.
    fn maps(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let maps = self.inner.iter().map(OnceLock::get).enumerate();
        maps.filter_map(|(number, map)| Some((number, map?.fd.as_fd())))
    }

    /// Puts a map into the array, for programs and for this process.
    fn put(&self, number: usize, map: Mapped) -> io::Result<()> {
        let place = self.inner.get(number).ok_or(io::ErrorKind::InvalidInput)?;
        // An update waits for programs, which takes milliseconds.
        if sys::get(self.fd.as_fd(), number as u32)? != Some(sys::map_number(map.fd.as_fd())?) {
            sys::set(self.fd.as_fd(), number as u32, map.fd.as_raw_fd() as u32)?;
        }
        place.get_or_init(|| map);
        Ok(())
    }

    /// Takes a map away from programs.
    fn take_out(&self, number: usize) -> io::Result<()> {
        if sys::get(self.fd.as_fd(), number as u32)?.is_some() {
            sys::unset(self.fd.as_fd(), number as u32)?;
        }
        Ok(())
    }
}

/// The result of looking for connections of an earlier daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// None were pinned.
    Nothing,
    /// They were taken over.
    Done,
    /// They are of another version or shape, and are gone. The text says why.
    Dropped(String),
    /// They could not be taken over now, and stay pinned for a later daemon. The text says why.
    Kept(String),
}

/// The reason why pinned memory is not taken over.
enum Obstacle {
    /// It has another version or shape, or is not complete.
    Layout(String),
    /// The kernel refused a step; the memory may be sound.
    System(String),
}

impl Obstacle {
    fn system(name: &str, error: io::Error) -> Obstacle {
        Obstacle::System(format!("{name}: {error}"))
    }
}

/// The memory of the table of connections, shared with BPF programs.
///
/// Any thread may read and write it; the thread of the sweeper alone lets it grow. The memory of an
/// index that is no longer used stays until the process ends: all smaller ones together have a
/// third of the largest one's size.
pub struct BpfMemory {
    /// `None`: nothing is pinned. The lock is held while a map is pinned or unpinned.
    pins: Mutex<Option<Arc<Pins>>>,
    arrays: Arrays,
    index: Outer,
    chunks: Outer,
    chunk_conns: usize,
    /// The last attempt to grow failed, and that was logged.
    is_short: AtomicBool,
}

impl std::fmt::Debug for BpfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BpfMemory").field("pins", &self.pins).finish_non_exhaustive()
    }
}

/// Describes the failure of a step.
fn failure(step: &str, source: io::Error) -> Unavailable {
    match source.kind() {
        io::ErrorKind::PermissionDenied => Unavailable::Permission("make BPF maps"),
        io::ErrorKind::OutOfMemory => Unavailable::Memory(format!("connections ({step})")),
        _ => Unavailable::System { step: format!("connections: {step}"), source },
    }
}

impl BpfMemory {
    /// Opens the memory that is pinned in a directory, or makes and pins it. Without `pins` it ends
    /// with the process, unless [`BpfMemory::pin`] follows. The directory stays locked for as long
    /// as the memory exists, so no other daemon uses it.
    ///
    /// Memory that an earlier daemon left is taken over when it has the present version and shapes.
    /// Memory of another version or shape is removed, with a warning. When the kernel refuses a step,
    /// such as for want of descriptors, it stays pinned, and the new memory ends with the process.
    /// `chunk_conns` is the number of connections of a
    /// chunk: [`CHUNK_CONNS`], less in tests.
    ///
    /// # Errors
    ///
    /// Fails when the kernel makes no such maps, or a map cannot be mapped or pinned. Nothing is
    /// pinned then.
    pub fn open(
        pins: Option<&Arc<Pins>>,
        chunk_conns: usize,
    ) -> Result<(BpfMemory, Adoption), Unavailable> {
        let chunk_conns = chunk_conns.clamp(1, CHUNK_CONNS);
        let mut adoption = Adoption::Nothing;
        if let Some(pins) = pins.filter(|pins| !pins.is_empty(Part::Connections)) {
            match BpfMemory::adopt(pins, chunk_conns) {
                Ok(memory) => return Ok((memory, Adoption::Done)),
                Err(Obstacle::System(why)) => {
                    tracing::warn!(
                        target: "dpif",
                        "the connections that a former daemon left in {} stay there, because they \
                         cannot be taken over now ({why}); new ones end with this daemon",
                        pins.directory().display()
                    );
                    return Ok((BpfMemory::create(chunk_conns)?, Adoption::Kept(why)));
                }
                Err(Obstacle::Layout(why)) => {
                    tracing::warn!(
                        target: "dpif",
                        "the connections that a former daemon left in {} are dropped: {why}",
                        pins.directory().display()
                    );
                    pins.clear(Part::Connections);
                    adoption = Adoption::Dropped(why);
                }
            }
        }
        let memory = BpfMemory::create(chunk_conns)?;
        if let Some(pins) = pins {
            memory.pin(pins)?;
        }
        Ok((memory, adoption))
    }

    fn create(chunk_conns: usize) -> Result<BpfMemory, Unavailable> {
        let made = |name: &'static str, shape: Shape| {
            let map = shape.create().and_then(|fd| Mapped::new(fd, shape));
            map.map_err(|e| failure(&format!("making {name}"), e))
        };
        let outer = |name: &'static str, entries: usize, shape: Shape| {
            let inner = made(name, shape)?;
            let fd = sys::array_of_maps(entries as u32, inner.fd.as_fd())
                .map_err(|e| failure(&format!("making {name}"), e))?;
            Ok(Outer::new(fd, entries))
        };
        let arrays = Arrays::all(made)?;
        let first = Shape { flags: MMAPABLE | INNER, ..Shape::array(BUCKET_PLACES, 1) };
        let index = outer(INDEX, INDEX_GENERATIONS, first)?;
        let chunks = outer(CHUNK_TABLE, CHUNKS, Shape::chunk(chunk_conns))?;
        let (pins, is_short) = (Mutex::new(None), AtomicBool::new(false));
        let memory = BpfMemory { pins, arrays, index, chunks, chunk_conns, is_short };
        memory.grow_index(0).map_err(|e| failure("making an index", e))?;
        Ok(memory)
    }

    fn pins(&self) -> MutexGuard<'_, Option<Arc<Pins>>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner) // set once, whole
    }

    /// Pins memory that is not pinned yet, in place of other connections in the directory. From
    /// then on it outlives the process. Other threads may use it meanwhile.
    ///
    /// # Errors
    ///
    /// Fails when a map cannot be pinned. No connections are pinned then.
    pub fn pin(&self, pins: &Arc<Pins>) -> Result<(), Unavailable> {
        let mut held = self.pins(); // the memory does not grow meanwhile
        pins.clear(Part::Connections);
        self.pin_all(pins).inspect_err(|_| pins.clear(Part::Connections))?;
        *held = Some(Arc::clone(pins));
        Ok(())
    }

    /// Pins the inner maps first and the configuration last; see the text of the module.
    fn pin_all(&self, pins: &Pins) -> Result<(), Unavailable> {
        let indexes = self.index.maps().map(|(number, map)| (index_name(number), map));
        let chunks = self.chunks.maps().map(|(number, map)| (chunk_name(number), map));
        let outer = [(INDEX, &self.index), (CHUNK_TABLE, &self.chunks)];
        let outer = outer.map(|(name, outer)| (name.to_owned(), outer.fd.as_fd()));
        let arrays = self.arrays.named();
        let arrays = arrays.map(|(name, map)| (name.to_owned(), map.fd.as_fd()));
        for (name, map) in indexes.chain(chunks).chain(outer).chain(arrays) {
            let pinned = pins.pin_connections(&name, map);
            pinned.map_err(|e| failure(&format!("pinning {name}"), e))?;
        }
        Ok(())
    }

    /// Takes over the pinned memory.
    ///
    /// # Errors
    ///
    /// Returns the reason why that cannot be.
    fn adopt(pins: &Arc<Pins>, chunk_conns: usize) -> Result<BpfMemory, Obstacle> {
        let open = |name: &str, shape: Shape| {
            let fd = open_pin(pins, name)?;
            shape.check(name, fd.as_fd())?;
            Mapped::new(fd, shape).map_err(|e| Obstacle::system(name, e))
        };
        check_version(open_pin(pins, CONFIG)?.as_fd())?;
        let outer = |name: &str, entries: usize| {
            let fd = open_pin(pins, name)?;
            let info = sys::map_info(fd.as_fd()).map_err(|e| Obstacle::system(name, e))?;
            if (info.kind, info.max_entries as usize) != (ARRAY_OF_MAPS, entries) {
                return Err(Obstacle::Layout(format!("{name} is of another kind")));
            }
            Ok(Outer::new(fd, entries))
        };
        let memory = BpfMemory {
            pins: Mutex::new(Some(Arc::clone(pins))),
            arrays: Arrays::all(open)?,
            index: outer(INDEX, INDEX_GENERATIONS)?,
            chunks: outer(CHUNK_TABLE, CHUNKS)?,
            chunk_conns,
            is_short: AtomicBool::new(false),
        };
        let used = memory.generations();
        for generation in 0..INDEX_GENERATIONS {
            let name = index_name(generation);
            if !used.contains(&Some(generation as u8)) {
                // A daemon that was killed while it grew the index left it.
                let path = pins.connections(&name);
                if path.exists() {
                    unpin(&path);
                }
                memory.index.take_out(generation).map_err(|e| Obstacle::system(INDEX, e))?;
                continue;
            }
            let shape = Shape::buckets(generation as u8);
            let shape = shape
                .ok_or_else(|| Obstacle::Layout(format!("{CONFIG} names index {generation}")))?;
            let map = open(&name, shape)?;
            memory.index.put(generation, map).map_err(|e| Obstacle::system(&name, e))?;
        }
        for number in 0..CHUNKS {
            let name = chunk_name(number);
            if !pins.connections(&name).exists() {
                break;
            }
            let map = open(&name, Shape::chunk(chunk_conns))?;
            memory.chunks.put(number, map).map_err(|e| Obstacle::system(&name, e))?;
        }
        conntrack::check(&memory).map_err(|e| Obstacle::Layout(e.to_string()))?;
        Ok(memory)
    }

    /// Returns the generations of the index that the configuration names.
    fn generations(&self) -> [Option<u8>; 2] {
        let word = self.config().get(config::INDEX).map_or(0, |w| w.load(Ordering::Acquire));
        let other = (word >> 8) as u8;
        [Some(word as u8), Some(other).filter(|other| u64::from(*other) != config::NO_INDEX)]
    }

    /// Returns the maps by the names that programs use, for the loader.
    pub fn maps(&self) -> HashMap<String, BorrowedFd<'_>> {
        let arrays = self.arrays.named().map(|(name, map)| (name, map.fd.as_fd()));
        let outer = [(INDEX, self.index.fd.as_fd()), (CHUNK_TABLE, self.chunks.fd.as_fd())];
        arrays.into_iter().chain(outer).map(|(name, fd)| (name.to_owned(), fd)).collect()
    }

    fn grow_index(&self, generation: u8) -> io::Result<()> {
        let shape = Shape::buckets(generation)
            .ok_or_else(|| io::Error::other("the index is as large as it may be"))?;
        self.grow(&self.index, usize::from(generation), &index_name(generation.into()), shape)
    }

    /// Makes an inner map and puts it into its array of maps.
    fn grow(&self, outer: &Outer, number: usize, name: &str, shape: Shape) -> io::Result<()> {
        if outer.words(number).is_some() {
            return Ok(());
        }
        let map = Mapped::new(shape.create()?, shape)?;
        let pins = self.pins();
        if let Some(pins) = &*pins {
            let path = pins.connections(name);
            // An earlier attempt may have ended after it.
            if path.exists() {
                std::fs::remove_file(&path)?;
            }
            pins.pin_connections(name, map.fd.as_fd())?;
        }
        outer.put(number, map)
    }

    /// Logs the first of several failures to grow.
    fn note(&self, what: &str, result: io::Result<()>) -> Result<(), OutOfMemory> {
        let is_repeated = self.is_short.swap(result.is_err(), Ordering::Relaxed);
        result.map_err(|e| {
            if !is_repeated {
                tracing::warn!(
                    target: "dpif",
                    "no memory for {what} ({e}): new connections may not be tracked; lower the \
                     number of connections, or raise the memory limit of the daemon"
                );
            }
            OutOfMemory
        })
    }
}

impl Memory for BpfMemory {
    fn config(&self) -> &[AtomicU64] {
        self.arrays.config.words()
    }

    fn zones(&self) -> &[AtomicU64] {
        self.arrays.zones.words()
    }

    fn policies(&self) -> &[AtomicU64] {
        self.arrays.policies.words()
    }

    fn extensions(&self) -> &[AtomicU64] {
        self.arrays.extensions.words()
    }

    fn ring(&self, number: usize) -> &[AtomicU64] {
        let from = number.saturating_mul(RING_WORDS);
        let words = self.arrays.free.words().get(from..);
        words.and_then(|words| words.get(..RING_WORDS)).unwrap_or(&[])
    }

    fn index(&self, generation: u8) -> Option<&[AtomicU64]> {
        self.index.words(generation.into())
    }

    fn chunk(&self, number: usize) -> Option<&[AtomicU64]> {
        self.chunks.words(number)
    }

    fn add_chunk(&self, number: usize) -> Result<(), OutOfMemory> {
        let shape = Shape::chunk(self.chunk_conns);
        self.note("more connections", self.grow(&self.chunks, number, &chunk_name(number), shape))
    }

    fn add_index(&self, generation: u8) -> Result<(), OutOfMemory> {
        // At the largest size this is no failure.
        if Shape::buckets(generation).is_none() {
            return Err(OutOfMemory);
        }
        self.note("a larger index of connections", self.grow_index(generation))
    }

    fn retire_index(&self, generation: u8) {
        if let Err(e) = self.index.take_out(generation.into()) {
            tracing::warn!(target: "dpif", "connections: an old index stays in use ({e})");
        }
        let pins = self.pins();
        let path = pins.as_ref().map(|pins| pins.connections(&index_name(generation.into())));
        if let Some(path) = path.filter(|path| path.exists()) {
            unpin(&path);
        }
    }
}

/// Opens the pin of a map. Without one the memory is not complete.
fn open_pin(pins: &Pins, name: &str) -> Result<OwnedFd, Obstacle> {
    sys::open_pin(&pins.connections(name)).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Obstacle::Layout(format!("{name}: {e}")),
        _ => Obstacle::system(name, e),
    })
}

/// Checks the version of the memory whose configuration is `fd`. In each version the configuration
/// begins with it; all else may differ.
fn check_version(fd: BorrowedFd<'_>) -> Result<(), Obstacle> {
    let info = sys::map_info(fd).map_err(|e| Obstacle::system(CONFIG, e))?;
    if info.kind != ARRAY || info.value_size < 8 || info.flags & MMAPABLE == 0 {
        return Err(Obstacle::Layout(format!("{CONFIG} is of another kind")));
    }
    let words = Shared::<u64>::map(fd, 1).map_err(|e| Obstacle::system(CONFIG, e))?;
    match words.all_words().first().map_or(0, |word| word.load(Ordering::Acquire)) {
        magic if magic == config::MAGIC_VALUE | VERSION => Ok(()),
        magic => Err(Obstacle::Layout(WrongLayout::Version(magic).to_string())),
    }
}
