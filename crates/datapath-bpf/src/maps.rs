// SPDX-License-Identifier: Apache-2.0
//! The shared arrays, their names and sizes.

use std::collections::HashMap;
use std::io;
use std::mem::offset_of;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, IntoBytes};

use crate::attachment::Config;
use crate::layout::*;
use crate::options::OptionTable;
use crate::shared::Shared;

/// Flag of maps that a process can map: BPF_F_MMAPABLE of `include/uapi/linux/bpf.h`.
pub(crate) const MMAPABLE: u32 = 1 << 10;
const ARRAY: u32 = libbpf_sys::BPF_MAP_TYPE_ARRAY;

/// Range of the number of flow slots. Each takes 384 bytes and 32 of totals, allocated at the
/// start.
pub const MAX_FLOWS: RangeInclusive<u32> = 1 << 10..=EMC_SLOTS;
/// Range of the number of masks; a mask number has 16 bits.
pub const MAX_MASKS: RangeInclusive<u32> = 1..=u16::MAX as u32;

/// Largest size in bytes of the map of flows' recent counts; above it CPUs share shards.
const MOST_RECENT_BYTES: u64 = 256 << 20;
/// Smallest number of lines of the signature cache that are used.
const LEAST_CACHE_LINES: u32 = 1 << 9;
/// Size in bytes that the exact-match caches of all CPUs take together, about.
const EMC_BYTES: usize = 64 << 20;
/// Range of the number of lines that the exact-match cache of one CPU has, whatever [`EMC_BYTES`]
/// gives. A larger cache fits in none of the hardware's caches, and is hardly faster than the table
/// itself.
const EMC_LINES: RangeInclusive<usize> = 1 << 10..=1 << 18;

/// Size in bytes that the results of chains of all CPUs take together, about.
const CHAINS_BYTES: usize = 16 << 20;
/// Range of the number of results of one CPU, whatever [`CHAINS_BYTES`] gives.
const CHAINS: RangeInclusive<usize> = 1 << 8..=1 << 17;

/// The arrays that are one element of their map (`TABLE` of `bpf/maps.h`).
pub(crate) const TABLES: [&str; 7] =
    ["emc", "last_flows", "epochs", "moves", "config", "ports", "ifaces"];
/// Prefix of the name of such a map in an object.
const SECTION: &str = ".data.";
/// Every kernel takes values of this size (KMALLOC_MAX_SIZE of `kernel/bpf/arraymap.c`).
const ALWAYS_TAKEN: u32 = 4 << 20;

/// Returns the short name of a shared map, by its name in an object.
pub(crate) fn short_name(in_object: &str) -> &str {
    in_object.strip_prefix(SECTION).filter(|name| TABLES.contains(name)).unwrap_or(in_object)
}

/// Numbers of elements of the shared arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Flow slots; a power of two.
    pub flows: u32,
    /// Number of masks that there is room for.
    pub masks: u32,
    /// Index buckets; a power of two.
    pub buckets: u32,
    /// Lines of the signature cache; a power of two.
    pub cache_lines: u32,
    /// Shards of counters; a power of two.
    pub shards: u32,
    /// Number of action programs that there is room for.
    pub programs: u32,
    /// Lines of the exact-match cache of one CPU; a power of two.
    pub emc_lines: u32,
    /// Results of chains of one CPU; a power of two.
    pub chains: u32,
    /// CPUs that have an exact-match cache, a last flow and results of chains.
    pub cpus: u32,
    /// CPUs share shards, so programs count by atomic additions.
    pub shards_atomic: bool,
}

impl Sizes {
    /// Returns the sizes for a configuration on a host with `cpus` possible CPUs. The index is at
    /// most half full, so that two choices of eight places always have room in practice. The
    /// signature cache has two entries a flow.
    pub fn new(config: &Config, cpus: usize) -> Sizes {
        let flows =
            config.max_flows.clamp(*MAX_FLOWS.start(), *MAX_FLOWS.end()).next_power_of_two();
        let with_own = cpus.clamp(1, 1 << 13); // NR_CPUS is at most this
        let most = EMC_BYTES / size_of::<EmcLine>() / with_own;
        let emc_lines = 1 << most.clamp(*EMC_LINES.start(), *EMC_LINES.end()).ilog2();
        let most = CHAINS_BYTES / CHAIN_BYTES as usize / with_own;
        let chains = 1 << most.clamp(*CHAINS.start(), *CHAINS.end()).ilog2();
        let cpus = u32::try_from(cpus.max(1)).unwrap_or(1 << 16).min(1 << 16).next_power_of_two();
        let bytes = u64::from(flows) * size_of::<Recent>() as u64;
        let most = (MOST_RECENT_BYTES / bytes).clamp(1, 1 << 16) as u32; // fits: clamped
        let most = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        let shards = cpus.min(most);
        Sizes {
            flows,
            masks: config.max_masks.clamp(*MAX_MASKS.start(), *MAX_MASKS.end()),
            buckets: flows / 4,
            cache_lines: flows / 2,
            shards,
            programs: config.max_programs.clamp(1, 1 << 22),
            emc_lines,
            chains,
            cpus: with_own as u32, // clamped
            shards_atomic: shards < cpus,
        }
    }

    /// Returns the name, the bytes of an element, and the number of elements of every shared array.
    pub(crate) fn arrays(&self) -> [(&'static str, usize, u32); 24] {
        [
            ("slots", size_of::<SlotEntry>(), self.flows),
            ("details", size_of::<SlotDetail>(), self.flows),
            ("masks", size_of::<MaskEntry>(), self.masks),
            ("index", size_of::<Bucket>(), self.buckets),
            ("emc", size_of::<EmcLine>(), self.cpus * self.emc_lines),
            ("last_flows", size_of::<LastFlow>(), self.cpus),
            ("epochs", size_of::<Epochs>(), 1),
            ("moves", size_of::<Moves>(), self.cpus),
            ("cache", size_of::<CacheLine>(), self.cache_lines),
            ("recent", size_of::<Recent>(), self.shards.saturating_mul(self.flows)),
            ("totals", size_of::<Totals>(), self.flows),
            ("programs", size_of::<Program>(), self.programs),
            ("tunnel_headers", size_of::<TunnelHeader>(), TUNNEL_HEADERS),
            ("ports", size_of::<Port>(), MAX_PORTS),
            ("port_stats", size_of::<PortCount>(), self.shards.saturating_mul(MAX_PORTS)),
            ("port_sets", size_of::<PortSet>(), PORT_SETS),
            ("ifaces", size_of::<Iface>(), IFACES),
            ("counters", size_of::<Counters>(), self.shards),
            ("meters", size_of::<Meter>(), MAX_METERS),
            ("policers", size_of::<Policer>(), MAX_PORTS),
            ("bond_places", size_of::<BondPlaces>(), 1),
            ("bonds", size_of::<BondEntry>(), MAX_BONDS),
            ("bond_bytes", size_of::<BondBytes>(), self.shards.saturating_mul(MAX_BONDS)),
            ("config", size_of::<ConfigEntry>(), 1),
        ]
    }

    /// Returns the bytes of a value and the number of entries of the map that has the shared array
    /// called `name`.
    pub(crate) fn shape(&self, name: &str) -> Option<(u32, u32)> {
        if name == "chains" {
            return Some((CHAIN_BYTES, self.cpus * self.chains));
        }
        let (_, bytes, entries) = self.arrays().into_iter().find(|(n, ..)| *n == name)?;
        let bytes = bytes as u32; // a few hundred
        Some(if TABLES.contains(&name) { (bytes * entries, 1) } else { (bytes, entries) })
    }

    /// Halves the exact-match caches until the kernel takes them as one value. `kernel_takes`
    /// returns whether the kernel takes a value of this many bytes.
    pub(crate) fn limit_emc(&mut self, kernel_takes: impl Fn(u32) -> bool) {
        while self.emc_lines > 1 {
            match self.shape("emc") {
                Some((bytes, _)) if bytes > ALWAYS_TAKEN && !kernel_takes(bytes) => {
                    self.emc_lines /= 2;
                }
                _ => return,
            }
        }
    }

    /// Returns the number of elements of the shared array called `name`.
    pub(crate) fn entries(&self, name: &str) -> Option<u32> {
        self.arrays().into_iter().find(|(n, ..)| *n == name).map(|(.., entries)| entries)
    }

    /// Checks that the map of the shared array `name` has the shape that these sizes need.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the difference.
    pub(crate) fn check(&self, name: &str, info: &crate::sys::MapInfo) -> Result<(), String> {
        let Some((bytes, entries)) = self.shape(name) else { return Ok(()) };
        let is = (info.kind, info.value_size, info.max_entries, info.flags & MMAPABLE);
        if is == (ARRAY, bytes, entries, MMAPABLE) && info.key_size == 4 {
            return Ok(());
        }
        Err(format!(
            "map {name} has {} entries of {} bytes, {entries} of {bytes} are wanted",
            info.max_entries, info.value_size
        ))
    }
}

/// Smallest number of lines of the exact-match cache that are used.
const LEAST_EMC_LINES: u32 = 1 << 10;

/// Returns the number of lines of the exact-match cache to use for `keys` keys, where `present`
/// lines are in use and the cache has `most`. The keys take at most three quarters of the entries,
/// so that nearly all find room, and not much less, so that they are in few lines of memory. 0:
/// there are more keys than the cache can hold, and programs skip it.
fn emc_lines(present: u32, keys: usize, most: u32) -> u32 {
    let wanted = steps().find(|lines| keys <= emc_room(*lines)).unwrap_or(u32::MAX);
    let suits = keys <= emc_room(present) && present / 2 < wanted;
    match wanted {
        _ if suits => present,
        _ if wanted <= most => wanted,
        _ if keys <= emc_room(most) => most,
        _ => 0,
    }
}

/// Returns the number of keys that `lines` lines have room for.
pub(crate) fn emc_room(lines: u32) -> usize {
    lines as usize * EMC_WAYS / 4 * 3
}

/// Returns the numbers of lines to choose from, each at most a quarter larger than the previous
/// one. They are few, because a change moves the places of all keys.
fn steps() -> impl Iterator<Item = u32> {
    let octaves = (LEAST_EMC_LINES.ilog2()..u32::BITS).map(|n| 1 << (n - 2));
    octaves.flat_map(|quarter: u32| (4..8).map(move |n| quarter * n))
}

/// Returns the offset of an entry of the table of options in the configuration.
const fn option_at(number: usize) -> usize {
    offset_of!(ConfigEntry, options) + number * size_of::<TunnelOption>()
}

const _: () = assert!(size_of::<TunnelOption>() == 8, "an entry is one word");

/// Checks that tables with this `magic` and `version` have this layout.
fn check_layout(magic: u64, version: u32) -> Result<(), String> {
    match (magic, version) {
        (MAGIC, VERSION) => Ok(()),
        (MAGIC, other) => Err(format!("layout version {other} where {VERSION} is wanted")),
        _ => Err("they are no tables of Slipswitch".to_owned()),
    }
}

/// Checks the layout of the tables whose map `config` is `fd`. In each version the map begins with
/// the magic and the version. With another layout, all other fields may differ.
///
/// # Errors
///
/// Fails when the layout is another one, or the map cannot be read.
pub(crate) fn check_layout_of(fd: BorrowedFd<'_>) -> Result<(), String> {
    let info = crate::sys::map_info(fd).map_err(|e| format!("map config: {e}"))?;
    let head = offset_of!(ConfigEntry, version) + size_of::<u64>();
    if info.kind != ARRAY || (info.value_size as usize) < head || info.flags & MMAPABLE == 0 {
        return Err("map config is of another kind".to_owned());
    }
    let head = Shared::<[u64; 2]>::map(fd, 1).map_err(|e| format!("map config: {e}"))?.read(0);
    let version = head.as_bytes().get(offset_of!(ConfigEntry, version)..);
    let version = version.and_then(<[u8]>::first_chunk).map_or(0, |v| u32::from_ne_bytes(*v));
    check_layout(head[0], version)
}

/// The shared arrays. Any thread may use them; each access is atomic ([`Shared`]).
pub struct Maps {
    /// Flow slots: the part that programs read for each packet.
    pub slots: Shared<SlotEntry>,
    /// Flow slots: the part that programs read for fewer packets.
    pub details: Shared<SlotDetail>,
    /// Masks of flows, by number.
    pub masks: Shared<MaskEntry>,
    /// The index: from the hash of a key under one mask to a slot.
    pub index: Shared<Bucket>,
    /// The signature cache: from the hash of a key under the union of all masks to a slot.
    pub cache: Shared<CacheLine>,
    /// Epochs of slots; one element.
    pub epochs: Shared<Epochs>,
    /// Exact-match caches of all CPUs.
    pub emc: Shared<EmcLine>,
    /// How often each CPU moved counts out of its exact-match cache.
    pub moves: Shared<Moves>,
    /// Recent counts of flows.
    pub recent: Shared<Recent>,
    /// Counts of flows from before the recent ones.
    pub totals: Shared<Totals>,
    /// Action lists of flows.
    pub programs: Shared<Program>,
    /// Outer headers of tunnels.
    pub tunnel_headers: Shared<TunnelHeader>,
    /// Ports, by datapath port number.
    pub ports: Shared<Port>,
    /// Counters of ports whose packets no device counts, by shard and port.
    pub port_stats: Shared<PortCount>,
    /// Sets of ports that copies go to at XDP.
    pub port_sets: Shared<PortSet>,
    /// The table of interfaces: from an interface index to a port.
    pub ifaces: Shared<Iface>,
    /// Counters of the whole datapath.
    pub counters: Shared<Counters>,
    /// Meters, by number.
    pub meters: Shared<Meter>,
    /// Limits of the packets of ports, by datapath port number.
    pub policers: Shared<Policer>,
    /// Places of bonds; one element.
    pub bond_places: Shared<BondPlaces>,
    /// Bonds, by place.
    pub bonds: Shared<BondEntry>,
    /// Bytes of the buckets of bonds, by shard and place.
    pub bond_bytes: Shared<BondBytes>,
    /// Settings that programs and daemon agree on.
    pub config: Shared<ConfigEntry>,
    /// Sizes of the maps.
    pub sizes: Sizes,
}

impl Maps {
    /// Maps all arrays into this process. `fds` has the maps by their short names.
    ///
    /// # Errors
    ///
    /// Fails when a map is missing, has another shape than `sizes` gives, or cannot be mapped.
    pub fn map(fds: &HashMap<String, OwnedFd>, sizes: Sizes) -> io::Result<Maps> {
        fn one<T>(
            fds: &HashMap<String, OwnedFd>,
            sizes: &Sizes,
            name: &str,
        ) -> io::Result<Shared<T>>
        where
            T: zerocopy::FromBytes + zerocopy::IntoBytes,
            T: zerocopy::Immutable + zerocopy::KnownLayout,
        {
            let missing = || io::Error::other(format!("no map {name}"));
            let fd = fds.get(name).ok_or_else(missing)?;
            let entries = sizes.entries(name).ok_or_else(missing)?;
            sizes.check(name, &crate::sys::map_info(fd.as_fd())?).map_err(io::Error::other)?;
            Shared::map(fd.as_fd(), entries as usize)
        }
        Ok(Maps {
            slots: one(fds, &sizes, "slots")?,
            details: one(fds, &sizes, "details")?,
            masks: one(fds, &sizes, "masks")?,
            index: one(fds, &sizes, "index")?,
            cache: one(fds, &sizes, "cache")?,
            epochs: one(fds, &sizes, "epochs")?,
            emc: one(fds, &sizes, "emc")?,
            moves: one(fds, &sizes, "moves")?,
            recent: one(fds, &sizes, "recent")?,
            totals: one(fds, &sizes, "totals")?,
            programs: one(fds, &sizes, "programs")?,
            tunnel_headers: one(fds, &sizes, "tunnel_headers")?,
            ports: one(fds, &sizes, "ports")?,
            port_stats: one(fds, &sizes, "port_stats")?,
            port_sets: one(fds, &sizes, "port_sets")?,
            ifaces: one(fds, &sizes, "ifaces")?,
            counters: one(fds, &sizes, "counters")?,
            meters: one(fds, &sizes, "meters")?,
            policers: one(fds, &sizes, "policers")?,
            bond_places: one(fds, &sizes, "bond_places")?,
            bonds: one(fds, &sizes, "bonds")?,
            bond_bytes: one(fds, &sizes, "bond_bytes")?,
            config: one(fds, &sizes, "config")?,
            sizes,
        })
    }

    /// Returns arrays of these sizes, all zero, in memory of this process alone. No program reads
    /// them.
    pub fn private(sizes: Sizes) -> Maps {
        let of = |name: &str| sizes.entries(name).unwrap_or(1) as usize;
        Maps {
            slots: Shared::private(of("slots")),
            details: Shared::private(of("details")),
            masks: Shared::private(of("masks")),
            index: Shared::private(of("index")),
            cache: Shared::private(of("cache")),
            epochs: Shared::private(of("epochs")),
            emc: Shared::private(of("emc")),
            moves: Shared::private(of("moves")),
            recent: Shared::private(of("recent")),
            totals: Shared::private(of("totals")),
            programs: Shared::private(of("programs")),
            tunnel_headers: Shared::private(of("tunnel_headers")),
            ports: Shared::private(of("ports")),
            port_stats: Shared::private(of("port_stats")),
            port_sets: Shared::private(of("port_sets")),
            ifaces: Shared::private(of("ifaces")),
            counters: Shared::private(of("counters")),
            meters: Shared::private(of("meters")),
            policers: Shared::private(of("policers")),
            bond_places: Shared::private(of("bond_places")),
            bonds: Shared::private(of("bonds")),
            bond_bytes: Shared::private(of("bond_bytes")),
            config: Shared::private(of("config")),
            sizes,
        }
    }

    /// Fills the configuration of new tables.
    pub fn configure(&self, factors: &crate::hash::Factors) {
        let s = &self.sizes;
        self.config.write(
            0,
            &ConfigEntry {
                magic: MAGIC,
                version: VERSION,
                max_flows: s.flows,
                max_masks: s.masks,
                buckets: s.buckets,
                cache_lines: s.cache_lines,
                shards: s.shards,
                max_programs: s.programs,
                miss_ifindex: 0,
                vlan_limit: flow::extract::vlan_limit() as u32, // at most VLANS
                emc_lines: s.emc_lines,
                cpus: s.cpus,
                generations: 1,
                cache_mask: s.cache_lines - 1,
                whole_only: 0,
                emc_used: LEAST_EMC_LINES.min(s.emc_lines),
                emc_reach: LEAST_EMC_LINES.min(s.emc_lines),
                segmenter: 0,
                pad: 0,
                factors: *factors,
                options: [TunnelOption::default(); _],
            },
        );
    }

    /// Returns the known Geneve options.
    pub(crate) fn options(&self) -> OptionTable {
        OptionTable(std::array::from_fn(|n| {
            let word = self.config.word(0, option_at(n)).load(Ordering::Acquire);
            let entry = TunnelOption::read_from_bytes(word.as_bytes()).unwrap_or_default();
            if OptionTable::fits(&entry) { entry } else { TunnelOption::default() }
        }))
    }

    /// Adds an entry to the table of known options. Programs see all of the entry or nothing.
    pub(crate) fn set_option(&self, number: usize, entry: &TunnelOption) {
        let bytes = entry.as_bytes().first_chunk().copied().unwrap_or_default();
        self.config.store(0, option_at(number), u64::from_ne_bytes(bytes));
    }

    /// Sets the number of lines of the signature cache that are used for `keys` keys. Each key gets
    /// room for two entries, on as few pages as possible. Programs may change to the new size at
    /// any time. Entries at other places are looked up again.
    pub(crate) fn fit_cache(&self, keys: usize) {
        let at = offset_of!(ConfigEntry, cache_mask);
        let present = self.config.load_half(0, at).wrapping_add(1);
        let wanted = u32::try_from(keys.saturating_mul(2) / WAYS).unwrap_or(u32::MAX / 2);
        let wanted = wanted.max(LEAST_CACHE_LINES).next_power_of_two().min(self.sizes.cache_lines);
        if wanted > present || wanted < present / 4 || present > self.sizes.cache_lines {
            self.config.store_half(0, at, wanted - 1);
        }
    }

    /// Returns the number of lines of each CPU's exact-match cache that are used. 0: none.
    pub(crate) fn emc_used(&self) -> u32 {
        self.config.load_half(0, offset_of!(ConfigEntry, emc_used))
    }

    /// Returns the number of lines of each CPU's exact-match cache that may have entries.
    pub(crate) fn emc_reach(&self) -> u32 {
        self.config.load_half(0, offset_of!(ConfigEntry, emc_reach))
    }

    /// Sets the number of lines of each CPU's exact-match cache that are used for `keys` keys, and
    /// returns whether it changed. Programs may change to the new number at any time.
    pub(crate) fn fit_emc(&self, keys: usize) -> bool {
        let present = self.emc_used();
        let wanted = emc_lines(present, keys, self.sizes.emc_lines);
        let reach = wanted.max(self.emc_reach());
        self.config.store_half(0, offset_of!(ConfigEntry, emc_reach), reach);
        self.config.store_half(0, offset_of!(ConfigEntry, emc_used), wanted);
        wanted != present
    }

    /// Returns a number for a new variant of the programs. It is never 0, and differs from all
    /// earlier ones.
    pub(crate) fn next_generation(&self) -> u32 {
        let at = offset_of!(ConfigEntry, generations);
        self.config.update_half(0, at, |last| last.wrapping_add(1).max(1))
    }

    /// Returns the configuration of tables that an earlier daemon left.
    ///
    /// # Errors
    ///
    /// Returns the difference when the tables have another layout or other sizes, or their keys
    /// have another VLAN limit.
    pub(crate) fn configured(&self) -> Result<ConfigEntry, String> {
        let c = self.config.read(0);
        let s = &self.sizes;
        check_layout(c.magic, c.version)?;
        let is = [c.max_flows, c.max_masks, c.buckets, c.cache_lines, c.shards, c.max_programs];
        if is != [s.flows, s.masks, s.buckets, s.cache_lines, s.shards, s.programs]
            || [c.emc_lines, c.cpus] != [s.emc_lines, s.cpus]
            || c.emc_used > c.emc_reach
            || c.emc_reach > s.emc_lines
        {
            return Err("other sizes".into());
        }
        // The same key would stand for other packets.
        if c.vlan_limit as usize != flow::extract::vlan_limit() {
            return Err(format!("flows of vlan-limit {}", c.vlan_limit));
        }
        if c.factors.iter().any(|f| f % 2 == 0) {
            return Err("even hash factors".into());
        }
        if !OptionTable(c.options).is_valid() {
            return Err("a damaged table of options".into());
        }
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_match_caches_are_as_large_as_the_kernel_takes_them() {
        let mut sizes = Sizes::new(&Config::default(), 2);
        sizes.limit_emc(|_| true);
        assert_eq!(sizes.emc_lines, 1 << 18);
        sizes.limit_emc(|bytes| bytes <= 8 << 20);
        assert_eq!(sizes.shape("emc"), Some((8 << 20, 1)));
        sizes.limit_emc(|_| false);
        assert_eq!(sizes.shape("emc"), Some((4 << 20, 1)), "all kernels take that");
    }

    #[test]
    fn lines_follow_flows_and_do_not_flap() {
        let most = 1 << 15;
        assert_eq!(emc_lines(LEAST_EMC_LINES, 0, most), LEAST_EMC_LINES);
        assert_eq!(emc_lines(LEAST_EMC_LINES, 3072, most), LEAST_EMC_LINES);
        let grown = emc_lines(LEAST_EMC_LINES, 10_000, most);
        assert_eq!(grown, 3584);
        assert_eq!(emc_lines(grown, 10_752, most), grown, "three quarters");
        assert_eq!(emc_lines(grown, 10_753, most), 4096);
        assert_eq!(emc_lines(grown, 5_400, most), grown, "more than half of that");
        assert_eq!(emc_lines(grown, 5_000, most), 1792);
        assert_eq!(emc_lines(most, 98_304, most), most);
        assert_eq!(emc_lines(most, 98_305, most), 0);
        assert_eq!(emc_lines(0, 98_304, most), most);
        assert_eq!(emc_lines(most, usize::MAX >> 3, most), 0);
        assert_eq!(emc_lines(0, 500, 100), 0, "too small a cache for any");
        assert_eq!(emc_lines(0, 50, 100), 100);
    }

    #[test]
    fn the_signature_cache_follows_the_number_of_flows() {
        let maps =
            Maps::private(Sizes::new(&Config { max_flows: 1 << 16, ..Config::default() }, 1));
        maps.configure(&crate::hash::factors());
        let fit = |flows| {
            maps.fit_cache(flows);
            maps.config.read(0).cache_mask + 1
        };
        assert_eq!(fit(10), LEAST_CACHE_LINES);
        assert_eq!(fit(10_000), 8192);
        assert_eq!(fit(5_000), 8192, "not at once");
        assert_eq!(fit(1 << 16), 1 << 15);
        assert_eq!(fit(1000), LEAST_CACHE_LINES);
        assert_eq!(fit(usize::MAX), 1 << 15);
    }
}
