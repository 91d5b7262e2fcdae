// SPDX-License-Identifier: Apache-2.0
//! A view of one connection in the table.

use crate::atomic::{AtomicU64, Ordering};
use crate::head::{Head, Phase};
use crate::layout::{conn, flags};
use crate::ticks::Ticks;
use crate::tuple::{Canonical, Ports, Tuple};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// That of the packet that made the connection.
    Original,
    /// The opposite.
    Reply,
}

impl Direction {
    /// Returns 0 for the original direction, 1 for the reply.
    pub fn index(self) -> usize {
        match self {
            Direction::Original => 0,
            Direction::Reply => 1,
        }
    }

    /// Returns the opposite direction.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}

/// The identity of a connection: a slot, and the generation that distinguishes its users over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// Slot number.
    pub slot: u32,
    /// Generation of the slot.
    pub generation: u16,
}

/// An application protocol whose control connection announces data connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// The File Transfer Protocol (RFC 959).
    Ftp,
    /// The Trivial File Transfer Protocol (RFC 1350).
    Tftp,
}

impl Helper {
    /// Returns the name as in `alg=NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
            Helper::Tftp => "tftp",
        }
    }

    /// Returns the helper with this name.
    pub fn from_name(name: &str) -> Option<Helper> {
        [Helper::Ftp, Helper::Tftp].into_iter().find(|helper| helper.name() == name)
    }
}

/// The parts of a connection's word 9, except for the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Number of the timeout policy, below `layout::POLICIES`.
    pub policy: u16,
    /// Number of the timeout in use (`Timeout`).
    pub timeout: u8,
    /// The line of the totals on which the connection counts.
    pub shard: u8,
    /// The helper.
    pub helper: Option<Helper>,
}

impl Class {
    pub(crate) fn to_bits(self) -> u64 {
        let helper = match self.helper {
            None => 0u64,
            Some(Helper::Ftp) => 1,
            Some(Helper::Tftp) => 2,
        };
        u64::from(self.policy & 0xfff) << 32
            | u64::from(self.timeout & 0xf) << 44
            | u64::from(self.shard & 0xf) << 48
            | helper << 52
    }

    pub(crate) fn from_bits(bits: u64) -> Class {
        Class {
            policy: (bits >> 32 & 0xfff) as u16,
            timeout: (bits >> 44 & 0xf) as u8,
            shard: (bits >> 48 & 0xf) as u8,
            helper: match bits >> 52 & 3 {
                1 => Some(Helper::Ftp),
                2 => Some(Helper::Tftp),
                _ => None,
            },
        }
    }
}

/// A connection in the table. Any thread may read it. Reads are of one moment each: two of them
/// need not fit together.
#[derive(Clone, Copy, Debug)]
pub struct Conn<'t> {
    words: &'t [AtomicU64; conn::WORDS],
    slot: u32,
}

impl<'t> Conn<'t> {
    pub(crate) fn new(words: &'t [AtomicU64], slot: u32) -> Option<Conn<'t>> {
        Some(Conn { words: words.try_into().ok()?, slot })
    }

    /// Returns the slot number.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the state word.
    pub fn head(&self) -> Head {
        Head(self.words[conn::HEAD].load(Ordering::Acquire))
    }

    /// Replaces the state word `old` by `new`.
    ///
    /// # Errors
    ///
    /// The word is another one, which is returned.
    pub(crate) fn exchange_head(&self, old: Head, new: Head) -> Result<(), Head> {
        self.words[conn::HEAD]
            .compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst)
            .map(|_| ())
            .map_err(Head)
    }

    /// Returns a word; zero for positions outside the connection.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word of a connection that no other thread uses yet.
    pub(crate) fn set_word(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Replaces a word when it is still `old`.
    pub(crate) fn exchange_word(&self, at: usize, old: u64, new: u64) -> bool {
        old == new
            || self.words.get(at).is_some_and(|word| {
                word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
    }

    /// Changes a word by `change` until no other thread interferes, at most a few times.
    pub(crate) fn change_word(&self, at: usize, change: impl Fn(u64) -> u64) {
        for _ in 0..8 {
            let old = self.word(at);
            if self.exchange_word(at, old, change(old)) {
                return;
            }
        }
    }

    /// Returns the original direction's key; `head` has its orientation.
    pub(crate) fn key(&self, head: Head) -> Canonical {
        let mut words = [0; crate::layout::KEY_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.word(conn::KEY + at);
        }
        Canonical { words, high: head.has(flags::ORIGINAL_IS_HIGH) }
    }

    /// Returns true when the original direction's key has these words.
    pub(crate) fn has_words(&self, words: &[u64; crate::layout::KEY_WORDS]) -> bool {
        words.iter().enumerate().all(|(at, word)| self.word(conn::KEY + at) == *word)
    }

    /// Returns the tuple of the original direction. `None`: the memory is damaged.
    pub fn original(&self, head: Head) -> Option<Tuple> {
        self.key(head).tuple()
    }

    /// Returns the tuple of the reply direction.
    pub fn reply(&self, head: Head) -> Option<Tuple> {
        let reply = self.original(head)?.reversed();
        if head.flags() & (flags::NAT_SRC | flags::NAT_DST) == 0 {
            return Some(reply);
        }
        let address = match reply.src {
            IpAddr::V4(_) => {
                IpAddr::V4(Ipv4Addr::from_bits(self.word(conn::NAT_ADDRESS + 1) as u32))
            }
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(self.word(conn::NAT_ADDRESS)) << 64
                    | u128::from(self.word(conn::NAT_ADDRESS + 1)),
            )),
        };
        let stored = self.word(conn::NAT_PORTS);
        let (src, dst) = ((stored >> 48) as u16, (stored >> 32) as u16);
        let ports = match reply.ports {
            Ports::Pair { .. } => Ports::Pair { src, dst },
            Ports::Icmp(icmp) => Ports::Icmp(crate::tuple::Icmp { id: src, ..icmp }),
        };
        Some(if head.has(flags::NAT_SRC) {
            Tuple { dst: address, ports, ..reply }
        } else {
            Tuple { src: address, ports, ..reply }
        })
    }

    /// Returns the direction of the packets with this tuple, or `None` for a connection without it.
    pub(crate) fn direction_of(&self, head: Head, key: &Canonical) -> Option<Direction> {
        if self.has_words(&key.words) {
            if key.high == head.has(flags::ORIGINAL_IS_HIGH) {
                return Some(Direction::Original);
            }
            if head.flags() & (flags::NAT_SRC | flags::NAT_DST) == 0 {
                return Some(Direction::Reply);
            }
        }
        if head.flags() & (flags::NAT_SRC | flags::NAT_DST) == 0 {
            return None;
        }
        (self.reply(head)?.canonical()? == *key).then_some(Direction::Reply)
    }

    /// Returns the mark.
    pub fn mark(&self) -> u32 {
        self.word(conn::MARK) as u32
    }

    /// Replaces the bits `mask` of the mark.
    pub fn set_mark(&self, value: u32, mask: u32) {
        self.change_word(conn::MARK, |old| old & !u64::from(mask) | u64::from(value & mask));
    }

    /// Returns policy, timeout, shard and helper.
    pub fn class(&self) -> Class {
        Class::from_bits(self.word(conn::MARK))
    }

    pub(crate) fn set_timeout_class(&self, timeout: u8) {
        self.change_word(conn::MARK, |old| {
            let class = Class { timeout, ..Class::from_bits(old) };
            old & 0xffff_ffff | class.to_bits()
        });
    }

    /// Returns the label. While another thread changes it, the halves may be of two settings.
    pub fn label(&self) -> u128 {
        u128::from(self.word(conn::LABEL)) | u128::from(self.word(conn::LABEL + 1)) << 64
    }

    /// Replaces the bits `mask` of the label, each half by itself.
    pub fn set_label(&self, value: u128, mask: u128) {
        for (at, shift) in [(conn::LABEL, 0), (conn::LABEL + 1, 64)] {
            let (value, mask) = ((value >> shift) as u64, (mask >> shift) as u64);
            if mask != 0 {
                self.change_word(at, |old| old & !mask | value & mask);
            }
        }
    }

    /// Returns the number of the extension.
    pub fn extension(&self) -> Option<u16> {
        let stored = self.word(conn::NAT_PORTS) & 0x1_ffff;
        u16::try_from(stored.checked_sub(1)?).ok()
    }

    /// Returns the tick of creation.
    pub fn made(&self) -> Ticks {
        Ticks(self.word(conn::MADE) as u32)
    }

    /// Returns the identity, with `head`'s generation.
    pub fn id(&self, head: Head) -> ConnId {
        ConnId { slot: self.slot, generation: head.generation() }
    }

    /// Returns true while `id`'s user of the slot lives, expired or not.
    pub fn is(&self, id: ConnId) -> bool {
        let head = self.head();
        id.slot == self.slot && head.generation() == id.generation && head.phase() == Phase::Live
    }
}
