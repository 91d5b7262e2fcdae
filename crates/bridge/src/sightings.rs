// SPDX-License-Identifier: Apache-2.0
//! What was seen lately, in a fixed amount of memory.

use datapath::Ufid;

/// Identities that are remembered at most: a port that is pressed may have some 100,000 flows, of
/// which each comes again when all others have. Memory that was never written takes none.
const PLACES: usize = 1 << 20;

/// Megaflows that packets asked for lately, and that were not made. Each has one place, which the
/// next one that falls there takes; so one that comes again may be forgotten, and one may be taken
/// for another, in one of 2^31 cases: it gets its megaflow a packet too soon.
#[derive(Default)]
pub(crate) struct Sightings(Vec<u32>);

impl Sightings {
    /// True when `ufid` was seen before and is remembered; it is from now on.
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
        let mut sightings = Sightings::default();
        let (a, b) = (Ufid(5 << 64 | 3), Ufid(7 << 64 | 3));
        assert!(!sightings.again(a));
        assert!(sightings.again(a) && sightings.again(a));
        assert!(!sightings.again(b), "another one in its place");
        assert!(!sightings.again(a), "forgotten");
    }
}
