// SPDX-License-Identifier: Apache-2.0
//! The layout of the memory that all processors of packets share. A BPF header mirrors this file.
//!
//! All cells are 64-bit words in host byte order. No cell is ever accessed by parts.

/// Version of this layout; memory of another version is not used.
pub const VERSION: u64 = 3;

/// Words of a tuple's canonical form.
///
/// Word 0: `port_low << 48 | port_high << 32 | zone << 16 | proto << 8 | kind`; ICMP has its
/// identifier and code in place of the ports. IPv4: word 1 is `address_low << 32 | address_high`,
/// the others are zero. IPv6: words 1 and 2 are the low endpoint's address, 3 and 4 the high one's.
pub const KEY_WORDS: usize = 5;

/// Bits of the kind, the lowest byte of a key.
pub mod key_kind {
    /// The addresses are IPv6.
    pub const V6: u8 = 1;
    /// Position of the ICMP class (`IcmpClass`), zero for other protocols.
    pub const CLASS_SHIFT: u8 = 1;
    /// The bits of the ICMP class, after the shift.
    pub const CLASS_MASK: u8 = 3;
    /// The high endpoint of an ICMP connection sends the requests.
    pub const HIGH_ASKS: u8 = 8;
}

/// Words of the configuration.
pub mod config {
    /// Number of words.
    pub const WORDS: usize = EVENTS + SHARDS * EVENT_LINE;
    /// [`MAGIC_VALUE`] plus [`super::VERSION`]; zero in fresh memory.
    pub const MAGIC: usize = 0;
    /// The upper 48 bits of [`MAGIC`].
    pub const MAGIC_VALUE: u64 = 0x536c_6970_6374 << 16;
    /// Bits of [`super::config_flags`].
    pub const FLAGS: usize = 1;
    /// Generation of the index that takes new entries (8 bits), then the generation of the other
    /// index that is also searched (8 bits, [`NO_INDEX`]: none).
    pub const INDEX: usize = 2;
    /// "No other index" in [`INDEX`].
    pub const NO_INDEX: u64 = 0xff;
    /// Secret start of the hash.
    pub const SEED: usize = 3;
    /// First of the secret odd factors of the hash. A word of a key has two: one for the word, one
    /// for its high half. Those that IPv4 uses are in the first line.
    pub const FACTORS: usize = 4;
    /// Largest number of connections.
    pub const MAX_CONNS: usize = FACTORS + 2 * super::KEY_WORDS;
    /// Largest number of half-open connections, in percent of [`MAX_CONNS`] and of zones' limits.
    pub const HALF_OPEN_PERCENT: usize = MAX_CONNS + 1;
    /// Limit of zones without one of their own; zero: none.
    pub const DEFAULT_LIMIT: usize = MAX_CONNS + 2;
    /// First of [`SHARDS`] lines with the number of connections and of half-open ones.
    pub const TOTALS: usize = 24;
    /// Number of lines of totals.
    pub const SHARDS: usize = 8;
    /// Words of a line.
    pub const LINE: usize = 8;
    /// First of [`SHARDS`] lines of what BPF programs counted, by number of the `Counter`.
    pub const EVENTS: usize = TOTALS + SHARDS * LINE;
    /// Words of such a line.
    pub const EVENT_LINE: usize = 16;
}

/// Bits of [`config::FLAGS`].
pub mod config_flags {
    /// TCP segments outside the window pass.
    pub const NO_SEQUENCE_CHECK: u64 = 1;
}

/// Places of an index bucket, which is one line. A place is zero, or `hash << 32 | slot + 1`.
pub const BUCKET_PLACES: usize = 8;
/// Buckets of the first index.
pub const INDEX_MIN_BUCKETS: usize = 1 << 15;
/// Buckets of the largest index.
pub const INDEX_MAX_BUCKETS: usize = 1 << 20;
/// Largest number of generations of the index. Each has four times the buckets of the one before,
/// at most [`INDEX_MAX_BUCKETS`].
pub const INDEX_GENERATIONS: usize = 16;
/// Used places of the first bucket up to which it takes another entry before the second one is
/// considered.
pub const FIRST_ENOUGH: usize = 5;
/// Buckets after the first one of a connection that has no room, in whose first places a half-open
/// connection is searched that makes room. In the smallest index, as few as 8,000 half-open
/// connections are enough for one there.
pub const EVICTION_BUCKETS: usize = 32;

/// Connections of a chunk. A slot number is `chunk << CHUNK_SHIFT | place`.
pub const CHUNK_CONNS: usize = 1 << CHUNK_SHIFT;
/// See [`CHUNK_CONNS`].
pub const CHUNK_SHIFT: u32 = 16;
/// Largest number of chunks.
pub const CHUNKS: usize = 64;

/// Rings of free slots; a creator takes from the ring `cpu % RINGS` first.
pub const RINGS: usize = 8;
/// Slot numbers of a ring.
pub const RING_SLOTS: usize = 32_768;
/// Words of a ring.
pub mod ring {
    /// Number of slots ever taken; moved by compare-and-swap.
    pub const HEAD: usize = 0;
    /// Number of slots ever put in; moved by the sweeper.
    pub const TAIL: usize = 8;
    /// First cell. A cell has two slot numbers, the first in its low half.
    pub const CELLS: usize = 16;
}

/// Number of zones.
pub const ZONES: usize = 65_536;
/// Words of a zone.
pub mod zone {
    /// Number of words.
    pub const WORDS: usize = 4;
    /// Limit plus one; zero: the default limit holds.
    pub const LIMIT: usize = 0;
    /// Number of connections.
    pub const COUNT: usize = 1;
    /// Number of half-open connections.
    pub const HALF_OPEN: usize = 2;
    /// Number of expectations. Above zero, packets of unknown connections go to the daemon.
    pub const EXPECTATIONS: usize = 3;
    /// Limits of zones below this number may be used up by half-open connections: half of a small
    /// limit would be too few to open connections at all.
    pub const SMALL_LIMIT: u64 = 64;
}

/// Number of timeout policies; number 0 is the default.
pub const POLICIES: usize = 4_096;
/// Words of a policy: the timeouts in ticks by number, two a word, the even number in the low half.
/// A zero stands for the default policy's value.
pub const POLICY_WORDS: usize = 8;

/// Number of extensions.
pub const EXTENSIONS: usize = 65_536;
/// Words of an extension.
pub mod extension {
    /// Number of words.
    pub const WORDS: usize = 8;
    /// `generation << 32 | slot + 1` of the owner; zero: free.
    pub const OWNER: usize = 0;
    /// First of five words: the tuple of the original direction of the parent; zeros: no parent.
    pub const PARENT: usize = 1;
    /// Flags: bit 0: the parent's source is the high endpoint.
    pub const FLAGS: usize = 6;
    /// Sequence skew in the low half; bit 32: it applies to the data of the reply direction.
    pub const SKEW: usize = 7;
}

/// Words of a connection, two lines.
pub mod conn {
    /// Number of words.
    pub const WORDS: usize = 16;
    /// Phase, flags, generation, expiry: see [`super::head`].
    pub const HEAD: usize = 0;
    /// First of five words: the tuple of the original direction.
    pub const KEY: usize = 1;
    /// First of two words, by direction `d`: lowest acceptable sequence number of peer `d` (low
    /// half), highest of the other peer (high half).
    pub const WINDOW: usize = 6;
    /// TCP: states 2 × 4 bits, window shifts with flags 2 × 8 bits, largest windows 2 × 16 bits.
    pub const CONTROL: usize = 8;
    /// Mark in the low half, then policy (12 bits), timeout (4), shard of the totals (4), helper
    /// (2).
    pub const MARK: usize = 9;
    /// First of two words of the label, low half first.
    pub const LABEL: usize = 10;
    /// First of two words, the high half first: the address of the reply tuple that NAT replaced:
    /// its destination (source NAT) or its source (destination NAT).
    pub const NAT_ADDRESS: usize = 12;
    /// `source port << 48 | destination port << 32` of the reply tuple (ICMP: identifier, code),
    /// and the number of the extension plus one in the low 17 bits.
    pub const NAT_PORTS: usize = 14;
    /// Tick of creation in the low half.
    pub const MADE: usize = 15;
}

/// Bits of a connection's head.
pub mod head {
    /// Position of the phase (2 bits).
    pub const PHASE_SHIFT: u32 = 62;
    /// The slot is unused.
    pub const FREE: u64 = 0;
    /// The connection is being made.
    pub const TENTATIVE: u64 = 1;
    /// The connection exists.
    pub const LIVE: u64 = 2;
    /// The connection has ended; the sweeper will free the slot.
    pub const DEAD: u64 = 3;
    /// Position of the flags (14 bits).
    pub const FLAGS_SHIFT: u32 = 48;
    /// Mask of the flags.
    pub const FLAGS_MASK: u64 = 0x3fff;
    /// Position of the generation (16 bits). The expiry, in ticks, has the lower 32 bits.
    pub const GENERATION_SHIFT: u32 = 32;
}

/// Flags in a connection's head.
pub mod flags {
    /// Both sides have answered; the connection is no longer half-open.
    pub const ASSURED: u16 = 1;
    /// A packet of the reply direction was seen.
    pub const REPLIED: u16 = 2;
    /// A second packet of the original direction was seen.
    pub const MULTIPLE: u16 = 4;
    /// The original direction's source is the high endpoint.
    pub const ORIGINAL_IS_HIGH: u16 = 8;
    /// NAT changes the source of the original direction.
    pub const NAT_SRC: u16 = 16;
    /// NAT changes the destination of the original direction.
    pub const NAT_DST: u16 = 32;
    /// Only the daemon processes packets: a helper, or a sequence skew.
    pub const DAEMON: u16 = 64;
    /// The connection was expected by another one.
    pub const RELATED: u16 = 128;
    /// The connection counts as half-open.
    pub const HALF_OPEN: u16 = 256;
}

/// Ticks are nanoseconds of `CLOCK_MONOTONIC` shifted right by this number: 16.8 ms.
pub const TICK_SHIFT: u32 = 24;
/// A connection's expiry moves only when it changes by this many ticks (67 ms).
pub const REFRESH_TICKS: i32 = 4;
