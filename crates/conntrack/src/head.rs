// SPDX-License-Identifier: Apache-2.0
//! The state word of a connection. All changes of it are compare-and-swaps of the whole word.

use crate::layout::head::{
    DEAD, FLAGS_MASK, FLAGS_SHIFT, FREE, GENERATION_SHIFT, LIVE, PHASE_SHIFT, TENTATIVE,
};
use crate::ticks::Ticks;

/// Where a slot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Without a user; creators may take it.
    Free,
    /// Under construction; lookups do not find it.
    Tentative,
    /// In use.
    Live,
    /// Ended; the sweeper frees the slot once no reader can hold its number.
    Dead,
}

/// A value of the state word: phase, flags (`layout::flags`), generation and expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(pub u64);

impl Head {
    /// Makes a value.
    pub fn new(phase: Phase, flags: u16, generation: u16, expires: Ticks) -> Head {
        Head(
            u64::from(generation) << GENERATION_SHIFT
                | (u64::from(flags) & FLAGS_MASK) << FLAGS_SHIFT
                | u64::from(expires.0),
        )
        .with_phase(phase)
    }

    /// Returns the phase.
    pub fn phase(self) -> Phase {
        match self.0 >> PHASE_SHIFT {
            FREE => Phase::Free,
            TENTATIVE => Phase::Tentative,
            LIVE => Phase::Live,
            _ => Phase::Dead,
        }
    }

    /// Returns the value in another phase.
    pub fn with_phase(self, phase: Phase) -> Head {
        let bits = match phase {
            Phase::Free => FREE,
            Phase::Tentative => TENTATIVE,
            Phase::Live => LIVE,
            Phase::Dead => DEAD,
        };
        Head(self.0 & !(DEAD << PHASE_SHIFT) | bits << PHASE_SHIFT)
    }

    /// Returns the flags.
    pub fn flags(self) -> u16 {
        (self.0 >> FLAGS_SHIFT & FLAGS_MASK) as u16
    }

    /// Returns true when all of `flags` are set.
    pub fn has(self, flags: u16) -> bool {
        self.flags() & flags == flags
    }

    /// Returns the generation, which a new user of the slot increments.
    pub fn generation(self) -> u16 {
        (self.0 >> GENERATION_SHIFT) as u16
    }

    /// Returns the moment at which the connection ends.
    pub fn expires(self) -> Ticks {
        Ticks(self.0 as u32)
    }

    /// Returns the value with other flags and another expiry.
    pub fn with(self, flags: u16, expires: Ticks) -> Head {
        Head::new(self.phase(), flags, self.generation(), expires)
    }

    /// Returns true for a live connection that has not expired.
    pub fn is_live(self, now: Ticks) -> bool {
        self.phase() == Phase::Live && !now.reached(self.expires())
    }
}

const _: () = assert!(DEAD == 3 && FREE == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for phase in [Phase::Free, Phase::Tentative, Phase::Live, Phase::Dead] {
            let head = Head::new(phase, 0x2001, 0xffff, Ticks(7));
            assert_eq!(head.phase(), phase);
            assert_eq!(
                (head.flags(), head.generation(), head.expires()),
                (0x2001, 0xffff, Ticks(7))
            );
            assert_eq!(head.with(1, Ticks(9)), Head::new(phase, 1, 0xffff, Ticks(9)));
        }
        let live = Head::new(Phase::Live, 0, 1, Ticks(10));
        assert!(live.is_live(Ticks(9)) && !live.is_live(Ticks(10)));
        assert!(!live.with_phase(Phase::Tentative).is_live(Ticks(9)));
    }
}
