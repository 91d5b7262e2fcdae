// SPDX-License-Identifier: Apache-2.0
//! Action programs, one for each content, with the number of flows that use it.

use hashbrown::HashMap;

use crate::encode::{Traits, is_program};
use crate::layout::{CELLS_TOTAL, Program};
use crate::sets::SetNumber;
use crate::shared::Shared;

impl Program {
    /// Builds the shared-memory form of `cells`, which have these `traits`. `set`: the ports that
    /// copies go to at XDP, and whether the ingress port is left out.
    pub fn new(
        cells: &[u64; CELLS_TOTAL],
        traits: &Traits,
        set: Option<(SetNumber, bool)>,
    ) -> Program {
        Program {
            cells: *cells,
            set: set.map_or(0, |(number, _)| number.0 + 1),
            exclude: set.is_some_and(|(_, exclude)| exclude).into(),
            growth: traits.growth,
            again: traits.again.into(),
            cuts: traits.cuts.into(),
            pad: [0; 2],
        }
    }

    /// Returns the set of ports that copies go to at XDP.
    pub(crate) fn set(&self) -> Option<SetNumber> {
        self.set.checked_sub(1).map(SetNumber)
    }
}

/// Bookkeeping over the shared array. The place of a program without flows may be overwritten at
/// once, because a flow is counted until no packet runs it any more.
pub(crate) struct Programs {
    numbers: HashMap<Box<Program>, u32, foldhash::fast::RandomState>,
    flows: Vec<u32>,
    free: Vec<u32>,
}

impl Programs {
    /// Returns a table without programs.
    pub(crate) fn new() -> Programs {
        Programs { numbers: HashMap::default(), flows: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of different programs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of a program and counts one more flow there. `None`: there is no room.
    pub(crate) fn acquire(&mut self, shared: &Shared<Program>, program: &Program) -> Option<u32> {
        if let Some(number) = self.numbers.get(program) {
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
        shared.write(number as usize, program);
        *self.flows.get_mut(number as usize)? = 1;
        self.numbers.insert(Box::new(*program), number);
        Some(number)
    }

    /// Counts one flow less. Frees the place of a program without flows.
    pub(crate) fn release(&mut self, shared: &Shared<Program>, number: u32) {
        let Some(flows) = self.flows.get_mut(number as usize) else { return };
        *flows = flows.saturating_sub(1);
        if *flows == 0 {
            self.numbers.remove(&shared.read(number as usize));
            self.free.push(number);
        }
    }

    /// Counts a flow found in adopted tables. Returns false when `number` is no valid program.
    pub(crate) fn adopt_flow(&mut self, shared: &Shared<Program>, number: u32) -> bool {
        if number as usize >= shared.len() {
            return false;
        }
        let program = shared.read(number as usize);
        let set = program.set().map(|set| (set, program.exclude != 0));
        if !is_program(&program.cells)
            || program != Program::new(&program.cells, &Traits::of(&program.cells), set)
        {
            return false;
        }
        while self.flows.len() <= number as usize {
            self.flows.push(0);
        }
        if let Some(flows) = self.flows.get_mut(number as usize) {
            *flows += 1;
        }
        // Of two with one content either serves new flows.
        self.numbers.entry(Box::new(program)).or_insert(number);
        true
    }

    /// Frees the unused programs. Called after the last [`Programs::adopt_flow`].
    pub(crate) fn adopted(&mut self) {
        let unused = self.flows.iter().enumerate().filter(|(_, flows)| **flows == 0);
        self.free = unused.map(|(number, _)| number as u32).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_is_one_program() {
        let shared = Shared::private(2);
        let mut programs = Programs::new();
        let cells = |n| {
            let mut cells = [0; CELLS_TOTAL];
            cells[0] = n;
            Program::new(&cells, &Traits::default(), None)
        };
        assert_eq!(programs.acquire(&shared, &cells(1)), Some(0));
        assert_eq!(programs.acquire(&shared, &cells(1)), Some(0));
        assert_eq!(programs.acquire(&shared, &cells(2)), Some(1));
        assert_eq!(programs.acquire(&shared, &cells(3)), None);
        programs.release(&shared, 0);
        assert_eq!(programs.acquire(&shared, &cells(3)), None);
        programs.release(&shared, 0);
        assert_eq!(programs.acquire(&shared, &cells(3)), Some(0));
        assert_eq!(shared.read(0), cells(3));
        assert_eq!(programs.len(), 2);
        let other = Program::new(&cells(3).cells, &Traits::default(), Some((SetNumber(0), true)));
        programs.release(&shared, 1);
        assert_eq!(programs.acquire(&shared, &other), Some(1), "another set is another program");
    }
}
