// SPDX-License-Identifier: Apache-2.0
//! Lists of all megaflows, which each pass over them needs for a moment.
//!
//! Their memory is large, so the allocator has it from the kernel each time and gives it back; to map
//! it and to fill it with zeros takes a sixth of a pass. So it is kept from one pass to the next.

use std::sync::{Mutex, PoisonError};

/// A value whose memory can be used again.
pub trait Recycle: Default {
    /// Empties the value. Keeps its memory, unless that is far more than was in use.
    fn recycle(&mut self);
}

/// A list keeps its memory when it has room for no more than this, or than [`ROOM`] times its
/// length.
const SMALL: usize = 8;
const ROOM: usize = 4;

impl<T> Recycle for Vec<T> {
    fn recycle(&mut self) {
        if self.capacity() > ROOM * self.len().max(SMALL) {
            *self = Vec::new();
        } else {
            self.clear();
        }
    }
}

impl<A: Recycle, B: Recycle> Recycle for (A, B) {
    fn recycle(&mut self) {
        self.0.recycle();
        self.1.recycle();
    }
}

/// A list that is empty between its uses. Threads may use it at once; one of them has the memory.
#[derive(Debug, Default)]
pub struct Scratch<T>(Mutex<T>);

impl<T: Recycle> Scratch<T> {
    /// Lends it, empty. No lock is held meanwhile.
    pub fn with<R>(&self, borrow: impl FnOnce(&mut T) -> R) -> R {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = std::mem::take(&mut *lock());
        let result = borrow(&mut list);
        list.recycle();
        *lock() = list;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_for_as_much_as_there_was() {
        let scratch = Scratch::<(Vec<u64>, Vec<u8>)>::default();
        let fill = |n: usize| {
            scratch.with(|(list, other)| {
                assert!(list.is_empty() && other.is_empty(), "it is lent empty");
                let had = list.capacity();
                list.extend(0..n as u64);
                other.push(1);
                had
            })
        };
        assert_eq!(fill(10_000), 0);
        assert!(fill(9_000) >= 10_000, "it is the same again");
        assert!(fill(100) >= 10_000);
        assert_eq!(fill(100), 0, "after few it was too large");
        assert!(fill(1) >= 100);
        assert_eq!(fill(8), 0);
        assert!(fill(1) >= 8);
        assert!(fill(1) >= 8, "what is small stays");
    }

    #[test]
    fn two_may_use_it_at_once() {
        let scratch = Scratch::<Vec<u8>>::default();
        scratch.with(|outer| {
            outer.push(1);
            scratch.with(|inner| assert!(inner.is_empty()));
            assert_eq!(outer[..], [1]);
        });
    }
}
