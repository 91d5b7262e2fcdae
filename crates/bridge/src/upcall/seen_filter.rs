// SPDX-License-Identifier: Apache-2.0
//! A lossy filter of identities that were seen before, in a fixed amount of memory.

use datapath::Ufid;

/// Identities that the filter remembers at most. A port under upcall pressure may have some 100,000
/// flows, each of which comes back after all others have. Memory that was never written costs
/// nothing.
const PLACES: usize = 1 << 20;

/// The megaflows that packets asked for and that were not made yet.
///
/// Each identity has one place, and a later identity with the same place replaces it. So the filter
/// may forget an identity. It may also take one for another, with a chance of 1 in 2^31: that
/// megaflow is made one packet too early.
#[derive(Default)]
pub(crate) struct SeenOnce(Vec<u32>);

impl SeenOnce {
    /// Returns true when the filter remembers `ufid`; remembers it from now on.
    pub(crate) fn again(&mut self, ufid: Ufid) -> bool {
        if self.0.is_empty() {
            self.0 = vec![0; PLACES];
        }
        let mark = (ufid.0 >> 64) as u32 | 1; // 0: nothing was seen
        let place = self.0.get_mut(ufid.0 as usize % PLACES);
        place.is_some_and(|place| std::mem::replace(place, mark) == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_known() {
        let mut seen = SeenOnce::default();
        let (a, b) = (Ufid(5 << 64 | 3), Ufid(7 << 64 | 3));
        assert!(!seen.again(a));
        assert!(seen.again(a) && seen.again(a));
        assert!(!seen.again(b), "another one in its place");
        assert!(!seen.again(a), "forgotten");
    }
}
