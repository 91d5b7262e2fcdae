// SPDX-License-Identifier: Apache-2.0
//! Extensions: properties that few connections have. Only the daemon uses them.

use crate::atomic::{AtomicU64, Ordering};
use crate::conn::{Conn, ConnId, Direction};
use crate::head::{Head, Phase};
use crate::layout::{EXTENSIONS, KEY_WORDS, extension};
use crate::memory::Memory;
use crate::table::Table;
use crate::tuple::{Canonical, Tuple};
use std::sync::{Mutex, PoisonError};

/// The difference between the sequence numbers that the two ends of a TCP connection use, after a
/// helper has changed the length of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Bytes that the helper added, or removed when negative.
    pub bytes: i32,
    /// The direction of the data that the helper changed.
    pub direction: Direction,
}

/// The free extensions of a table.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    returned: Vec<u16>,
    /// Numbers from here on were never used.
    unused: u32,
}

fn word(memory: &dyn Memory, number: u16, at: usize) -> Option<&AtomicU64> {
    memory.extensions().get(usize::from(number) * extension::WORDS + at)
}

fn load(memory: &dyn Memory, number: u16, at: usize) -> u64 {
    word(memory, number, at).map_or(0, |word| word.load(Ordering::Acquire))
}

fn store(memory: &dyn Memory, number: u16, at: usize, value: u64) {
    if let Some(word) = word(memory, number, at) {
        word.store(value, Ordering::Release);
    }
}

impl Extensions {
    /// Finds the free extensions in memory that may have been in use.
    pub(crate) fn adopt(memory: &dyn Memory) -> Extensions {
        let used = (0..EXTENSIONS as u32)
            .rev()
            .find(|number| load(memory, *number as u16, extension::OWNER) != 0);
        let unused = used.map_or(0, |last| last + 1);
        let returned = (0..unused)
            .map(|number| number as u16)
            .filter(|number| load(memory, *number, extension::OWNER) == 0)
            .collect();
        Extensions { free: Mutex::new(Free { returned, unused }) }
    }

    fn take(&self) -> Option<u16> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.pop().or_else(|| {
            let number = free.unused;
            (number < EXTENSIONS as u32).then(|| {
                free.unused += 1;
                number as u16
            })
        })
    }

    fn give(&self, number: u16) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.push(number);
    }
}

/// The owner's word of an extension that has no connection yet.
const NO_OWNER_YET: u64 = u64::MAX;

impl Table {
    /// Takes an extension, with the parent's tuple. `None`: all are in use. The caller gives it to
    /// a connection, or returns it.
    pub(crate) fn take_extension(&self, parent: Option<&Tuple>) -> Option<u16> {
        let number = self.extensions.take()?;
        let memory = self.memory();
        let key = parent.and_then(Tuple::canonical);
        let words = key.map_or([0; KEY_WORDS], |key| key.words);
        for (at, word) in words.into_iter().enumerate() {
            store(memory, number, extension::PARENT + at, word);
        }
        store(memory, number, extension::FLAGS, key.is_some_and(|key| key.high).into());
        store(memory, number, extension::SKEW, 0);
        store(memory, number, extension::OWNER, NO_OWNER_YET);
        Some(number)
    }

    /// Notes the connection that an extension belongs to.
    pub(crate) fn own_extension(&self, number: u16, owner: ConnId) {
        let owner = u64::from(owner.generation) << 32 | (u64::from(owner.slot) + 1);
        store(self.memory(), number, extension::OWNER, owner);
    }

    /// Returns an extension to the free ones.
    pub(crate) fn return_extension(&self, number: u16) {
        store(self.memory(), number, extension::OWNER, 0);
        self.extensions.give(number);
    }

    /// Returns to the free ones all extensions whose connection has ended without them being
    /// returned: of daemons that were killed. No packet thread runs yet.
    pub(crate) fn reclaim_extensions(&self) {
        for number in 0..EXTENSIONS as u32 {
            let number = number as u16;
            let owner = load(self.memory(), number, extension::OWNER);
            if owner == 0 {
                continue;
            }
            let id =
                ConnId { slot: (owner as u32).wrapping_sub(1), generation: (owner >> 32) as u16 };
            let conn = if owner == NO_OWNER_YET { None } else { self.slot(id.slot) };
            let in_use = conn.is_some_and(|conn| {
                let head = conn.head();
                head.phase() != Phase::Free
                    && head.generation() == id.generation
                    && conn.extension() == Some(number)
            });
            if !in_use {
                self.return_extension(number);
            }
        }
    }

    /// Returns the tuple of the original direction of the connection that expected this one.
    pub fn parent(&self, conn: Conn<'_>) -> Option<Tuple> {
        let number = conn.extension()?;
        let mut words = [0; KEY_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = load(self.memory(), number, extension::PARENT + at);
        }
        let high = load(self.memory(), number, extension::FLAGS) & 1 != 0;
        (words != [0; KEY_WORDS]).then_some(Canonical { words, high })?.tuple()
    }

    /// Returns the skew of a TCP connection's sequence numbers.
    pub fn skew(&self, conn: Conn<'_>) -> Option<Skew> {
        let word = load(self.memory(), conn.extension()?, extension::SKEW);
        let direction = if word >> 32 & 1 != 0 { Direction::Reply } else { Direction::Original };
        let bytes = word as u32 as i32;
        (bytes != 0).then_some(Skew { bytes, direction })
    }

    /// Adds to the skew of a connection that has an extension. Returns false when it has none.
    pub(crate) fn add_skew(&self, conn: Conn<'_>, head: Head, skew: Skew) -> bool {
        let Some(number) = conn.extension() else {
            return false;
        };
        let old = self.skew(conn).filter(|old| old.direction == skew.direction);
        let bytes = old.map_or(0, |old| old.bytes).wrapping_add(skew.bytes);
        let value = u64::from(bytes as u32) | (skew.direction.index() as u64) << 32;
        store(self.memory(), number, extension::SKEW, value);
        self.own_extension(number, conn.id(head));
        true
    }
}
