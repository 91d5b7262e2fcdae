// SPDX-License-Identifier: Apache-2.0
//! Values of a shared array, one for each content, with the number of flows that use it.

use std::hash::Hash;

use hashbrown::HashMap;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::shared::Shared;

/// Bookkeeping over a shared array. The place of a value without flows may be overwritten at once,
/// because a flow is counted until no packet runs it any more.
pub(crate) struct Interned<T> {
    numbers: HashMap<Box<T>, u32, foldhash::fast::RandomState>,
    flows: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Interned<T>
where
    T: Copy + Eq + Hash + FromBytes + IntoBytes + Immutable + KnownLayout,
{
    /// Returns a table without values.
    pub(crate) fn new() -> Interned<T> {
        Interned { numbers: HashMap::default(), flows: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of different values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of a value; `None`: it is not there.
    pub(crate) fn number(&self, value: &T) -> Option<u32> {
        self.numbers.get(value).copied()
    }

    /// Returns the number of a value and counts one more flow there. `None`: there is no room.
    pub(crate) fn acquire(&mut self, shared: &Shared<T>, value: &T) -> Option<u32> {
        if let Some(number) = self.numbers.get(value) {
            *self.flows.get_mut(*number as usize)? += 1;
            return Some(*number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.flows.len() < shared.len() => {
                self.flows.push(0);
                self.flows.len() as u32 - 1
            }
            None => return None,
        };
        shared.write(number as usize, value);
        *self.flows.get_mut(number as usize)? = 1;
        self.numbers.insert(Box::new(*value), number);
        Some(number)
    }

    /// Counts one flow less. Frees the place of a value without flows.
    pub(crate) fn release(&mut self, shared: &Shared<T>, number: u32) {
        let Some(flows) = self.flows.get_mut(number as usize) else { return };
        *flows = flows.saturating_sub(1);
        if *flows == 0 {
            let value = shared.read(number as usize);
            // Of two with one content the other one may be known.
            if self.numbers.get(&value) == Some(&number) {
                self.numbers.remove(&value);
            }
            self.free.push(number);
        }
    }

    /// Counts a flow found in adopted tables, whose value the caller has verified. `number` is within the
    /// array.
    pub(crate) fn adopt(&mut self, value: &T, number: u32) {
        while self.flows.len() <= number as usize {
            self.flows.push(0);
        }
        if let Some(flows) = self.flows.get_mut(number as usize) {
            *flows += 1;
        }
        // Of two with one content either serves new flows.
        self.numbers.entry(Box::new(*value)).or_insert(number);
    }

    /// Frees the unused places. Called after the last [`Interned::adopt`].
    pub(crate) fn adopted(&mut self) {
        let unused = self.flows.iter().enumerate().filter(|(_, flows)| **flows == 0);
        self.free = unused.map(|(number, _)| number as u32).collect();
    }
}
