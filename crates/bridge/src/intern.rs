// SPDX-License-Identifier: Apache-2.0
//! Masks and lists of actions of recent megaflows. Most megaflows have one of a few of them, and
//! share it.

use classifier::MiniMatch;
use datapath::{Action, Actions};
use flow::Match;

/// Masks that are remembered, and lists of actions.
const PLACES: usize = 4;

/// The last [`PLACES`] values; a new one replaces the oldest.
struct LastFew<T> {
    places: [Option<T>; PLACES],
    next: usize,
}

impl<T> Default for LastFew<T> {
    fn default() -> LastFew<T> {
        LastFew { places: [const { None }; PLACES], next: 0 }
    }
}

impl<T: Clone> LastFew<T> {
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

/// The masks and lists of actions of one thread's recent megaflows.
#[derive(Default)]
pub(crate) struct RecentInterner {
    masks: LastFew<MiniMatch>,
    actions: LastFew<Actions>,
}

impl RecentInterner {
    /// Compresses a match, with the mask of an earlier one where they are equal.
    pub(crate) fn compress(&mut self, matching: &Match) -> MiniMatch {
        let known = self.masks.find(|other| MiniMatch::with_mask_of(other, matching));
        known.unwrap_or_else(|| {
            let new = MiniMatch::new(matching);
            self.masks.remember(&new);
            new
        })
    }

    /// Returns a list of actions as datapaths keep it: an earlier one where they are equal.
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
        let mut interner = RecentInterner::default();
        for n in 0..20 {
            for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::EthSrc] {
                let wanted = matching(field, n);
                assert_eq!(interner.compress(&wanted), MiniMatch::new(&wanted));
            }
        }
        let list = |n| vec![Action::Output(PortNo(n))];
        let first = interner.share(list(1));
        assert_eq!(*first, *list(1));
        assert!(Arc::ptr_eq(&first, &interner.share(list(1))));
        for n in 2..20 {
            assert_eq!(*interner.share(list(n)), *list(n));
        }
        assert!(!Arc::ptr_eq(&first, &interner.share(list(1))), "it gave way long ago");
    }
}
