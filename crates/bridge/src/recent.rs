// SPDX-License-Identifier: Apache-2.0
//! What megaflows that were made lately had in common: most of them have one of a few masks, and
//! one of a few lists of actions, which they then share.

use classifier::MiniMatch;
use datapath::{Action, Actions};
use flow::Match;

/// Masks, and lists, that are remembered.
const PLACES: usize = 4;

/// The last few of a kind, the oldest of which gives way.
struct Few<T> {
    places: [Option<T>; PLACES],
    next: usize,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few { places: [const { None }; PLACES], next: 0 }
    }
}

impl<T: Clone> Few<T> {
    fn find<U>(&self, pick: impl FnMut(&T) -> Option<U>) -> Option<U> {
        self.places.iter().flatten().find_map(pick)
    }

    fn remember(&mut self, new: &T) {
        if let Some(place) = self.places.get_mut(self.next) {
            *place = Some(new.clone());
        }
        self.next = (self.next + 1) % PLACES;
    }
}

/// What one thread's megaflows had.
#[derive(Default)]
pub(crate) struct Recent {
    masks: Few<MiniMatch>,
    actions: Few<Actions>,
}

impl Recent {
    /// Compresses a match.
    pub(crate) fn compress(&mut self, matching: &Match) -> MiniMatch {
        let known = self.masks.find(|other| MiniMatch::with_mask_of(other, matching));
        known.unwrap_or_else(|| {
            let new = MiniMatch::new(matching);
            self.masks.remember(&new);
            new
        })
    }

    /// A list of actions as datapaths keep it.
    pub(crate) fn share(&mut self, actions: Vec<Action>) -> Actions {
        let known = self.actions.find(|other| (**other == *actions).then(|| Actions::clone(other)));
        known.unwrap_or_else(|| {
            let new = Actions::from(actions);
            self.actions.remember(&new);
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortNo;
    use flow::Field;
    use std::sync::Arc;

    fn matching(field: Field, value: u128) -> Match {
        let mut matching = Match::ANY;
        matching.set(field, value);
        matching
    }

    #[test]
    fn equal_masks_and_actions_are_shared() {
        let mut recent = Recent::default();
        for n in 0..20 {
            for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::EthSrc] {
                let wanted = matching(field, n);
                assert_eq!(recent.compress(&wanted), MiniMatch::new(&wanted));
            }
        }
        let list = |n| vec![Action::Output(PortNo(n))];
        let first = recent.share(list(1));
        assert_eq!(*first, *list(1));
        assert!(Arc::ptr_eq(&first, &recent.share(list(1))));
        for n in 2..20 {
            assert_eq!(*recent.share(list(n)), *list(n));
        }
        assert!(!Arc::ptr_eq(&first, &recent.share(list(1))), "it gave way long ago");
    }
}
