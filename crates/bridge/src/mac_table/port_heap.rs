// SPDX-License-Identifier: Apache-2.0
//! Ports by their number of MAC addresses, the port with most of them first.
//!
//! A binary heap in which a port's number can change. Of several ports with the highest number the
//! heap's history decides which comes first. It decides as OVS's heap does, because the steps below
//! are in the same order: a port moves towards the top only past a port with a lower number, and
//! down only past one with a higher number, the left one if both are equal.

use hashbrown::HashMap;
use openflow::PortNo;

#[derive(Debug, Default)]
pub(super) struct PortHeap {
    /// Each port with its number of addresses, which is at least 1. The port at index `i` has no
    /// more addresses than the one at `(i - 1) / 2`.
    nodes: Vec<(PortNo, usize)>,
    /// Index of each port in `nodes`.
    places: HashMap<PortNo, usize>,
}

impl PortHeap {
    /// Returns a port that has most addresses; `None` when no port has any.
    pub(super) fn fullest(&self) -> Option<PortNo> {
        self.nodes.first().map(|(port, _)| *port)
    }

    /// Sets the number of addresses of `port`.
    pub(super) fn set(&mut self, port: PortNo, count: usize) {
        let i = match self.places.get(&port).copied() {
            Some(i) if count == 0 => {
                self.nodes.swap_remove(i);
                self.places.remove(&port);
                i
            }
            Some(i) => {
                self.nodes[i].1 = count; // `places` has indices of `nodes` only
                i
            }
            None if count == 0 => return,
            None => {
                self.nodes.push((port, count));
                self.nodes.len() - 1
            }
        };
        self.sift(i);
    }

    fn count(&self, i: usize) -> Option<usize> {
        self.nodes.get(i).map(|(_, count)| *count)
    }

    /// Moves the port at index `i`, if there is one, to a place where the order holds.
    fn sift(&mut self, mut i: usize) {
        while i > 0 && self.count((i - 1) / 2) < self.count(i) {
            i = self.swap(i, (i - 1) / 2);
        }
        loop {
            let mut most = i;
            for child in [2 * i + 1, 2 * i + 2] {
                if self.count(child) > self.count(most) {
                    most = child;
                }
            }
            if most == i {
                break;
            }
            i = self.swap(i, most);
        }
        if let Some((port, _)) = self.nodes.get(i) {
            self.places.insert(*port, i);
        }
    }

    /// Swaps the ports at two indices, and returns the second index. The place of the port that was
    /// at the first index is recorded at the end of its moves.
    fn swap(&mut self, i: usize, other: usize) -> usize {
        self.nodes.swap(i, other);
        if let Some((port, _)) = self.nodes.get(i) {
            self.places.insert(*port, i);
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every port is at its place, and no port has more than its parent.
    fn check(heap: &PortHeap) {
        assert_eq!(heap.places.len(), heap.nodes.len());
        for (i, (port, count)) in heap.nodes.iter().enumerate() {
            assert_eq!(heap.places[port], i);
            assert!(i == 0 || *count <= heap.nodes[(i - 1) / 2].1);
        }
    }

    #[test]
    fn the_first_port_has_most() {
        let mut heap = PortHeap::default();
        let mut counts = [0; 20];
        let mut random = 1u32;
        for _ in 0..5_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (port, count) = ((random >> 8) % 20, (random >> 16) as usize % 7);
            counts[port as usize] = count;
            heap.set(PortNo(port), count);
            check(&heap);
            let most = counts.iter().copied().max().filter(|most| *most > 0);
            assert_eq!(heap.fullest().map(|port| counts[port.0 as usize]), most);
        }
    }
}
