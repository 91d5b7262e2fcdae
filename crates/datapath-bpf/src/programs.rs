//! Action programs, one for each content, with the number of flows that use it.

use hashbrown::HashMap;

use crate::layout::{CELLS_TOTAL, Program};
use crate::shared::Shared;

/// Bookkeeping over the shared array. A program without flows is written over at once: flows
/// count until no packet runs them any more.
pub struct Programs {
    numbers: HashMap<Box<[u64; CELLS_TOTAL]>, u32, foldhash::fast::RandomState>,
    flows: Vec<u32>,
    free: Vec<u32>,
}

impl Programs {
    /// No programs.
    pub fn new() -> Programs {
        Programs { numbers: HashMap::default(), flows: Vec::new(), free: Vec::new() }
    }

    /// Number of different programs.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True when there are no programs.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of a program for one more flow. `None`: no room.
    pub fn acquire(&mut self, shared: &Shared<Program>, cells: &[u64; CELLS_TOTAL]) -> Option<u32> {
        if let Some(number) = self.numbers.get(cells) {
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
        shared.write(number as usize, &Program { cells: *cells });
        *self.flows.get_mut(number as usize)? = 1;
        self.numbers.insert(Box::new(*cells), number);
        Some(number)
    }

    /// One flow less.
    pub fn release(&mut self, shared: &Shared<Program>, number: u32) {
        let Some(flows) = self.flows.get_mut(number as usize) else { return };
        *flows = flows.saturating_sub(1);
        if *flows == 0 {
            self.numbers.remove(&shared.read(number as usize).cells);
            self.free.push(number);
        }
    }

    /// Counts a flow found in adopted tables; false when `number` is no program.
    pub fn adopt_flow(&mut self, shared: &Shared<Program>, number: u32) -> bool {
        if number as usize >= shared.len() {
            return false;
        }
        let cells = shared.read(number as usize).cells;
        if !crate::encode::is_program(&cells) {
            return false;
        }
        while self.flows.len() <= number as usize {
            self.flows.push(0);
        }
        if let Some(flows) = self.flows.get_mut(number as usize) {
            *flows += 1;
        }
        // Of two with one content either serves new flows.
        self.numbers.entry(Box::new(cells)).or_insert(number);
        true
    }

    /// After the last [`Programs::adopt_flow`]: what nobody uses is free.
    pub fn adopted(&mut self) {
        let unused = self.flows.iter().enumerate().filter(|(_, flows)| **flows == 0);
        self.free = unused.map(|(number, _)| number as u32).collect();
    }
}

impl Default for Programs {
    fn default() -> Self {
        Programs::new()
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
            cells
        };
        assert_eq!(programs.acquire(&shared, &cells(1)), Some(0));
        assert_eq!(programs.acquire(&shared, &cells(1)), Some(0));
        assert_eq!(programs.acquire(&shared, &cells(2)), Some(1));
        assert_eq!(programs.acquire(&shared, &cells(3)), None);
        programs.release(&shared, 0);
        assert_eq!(programs.acquire(&shared, &cells(3)), None);
        programs.release(&shared, 0);
        assert_eq!(programs.acquire(&shared, &cells(3)), Some(0));
        assert_eq!(shared.read(0).cells, cells(3));
        assert_eq!(programs.len(), 2);
    }
}
