// SPDX-License-Identifier: Apache-2.0
//! Action programs.

use crate::encode::{Traits, is_program};
use crate::interned::Interned;
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

/// The programs of flows.
pub(crate) type Programs = Interned<Program>;

impl Programs {
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
        self.adopt(&program, number);
        true
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

    #[test]
    fn of_two_places_with_one_content_the_known_one_stays() {
        let shared = Shared::private(3);
        let mut programs = Programs::new();
        let program = Program::new(&[0; CELLS_TOTAL], &Traits::default(), None);
        [0, 1].into_iter().for_each(|number| programs.adopt(&program, number));
        programs.adopted();
        programs.release(&shared, 1);
        assert_eq!(programs.number(&program), Some(0));
        assert_eq!(programs.acquire(&shared, &program), Some(0));
    }
}
