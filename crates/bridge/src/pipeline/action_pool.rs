// SPDX-License-Identifier: Apache-2.0
//! Equal lists of actions, stored once.
//!
//! A table of a hundred thousand rules rarely has more than some dozen different lists of actions,
//! but each flow mod brings a list of its own.

use openflow::action::Actions;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Number of lists that are remembered.
const PLACES: usize = 256;
/// Number of actions above which a list is not looked up.
const LONG: usize = 16;

/// The lists of recent use, each at the place that its hash selects. A clone starts empty, which
/// costs only the memory of some lists.
#[derive(Debug, Default)]
pub(super) struct ActionPool {
    places: Vec<Option<Actions>>,
    seed: foldhash::fast::RandomState,
}

impl Clone for ActionPool {
    fn clone(&self) -> Self {
        ActionPool::default()
    }
}

impl ActionPool {
    /// Returns a list equal to `actions`: a remembered one, if there is one.
    pub(super) fn share(&mut self, actions: &Actions) -> Actions {
        if actions.len() > LONG {
            return Arc::clone(actions);
        }
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let at = (self.seed.hash_one(actions) % PLACES as u64) as usize;
        let Some(place) = self.places.get_mut(at) else { return Arc::clone(actions) };
        let known = place.get_or_insert_with(|| Arc::clone(actions));
        if known != actions {
            *known = Arc::clone(actions);
        }
        Arc::clone(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::{Action, PortNo};

    #[test]
    fn equal_lists_are_kept_once() {
        let output = |n| -> Actions { Arc::new([Action::Output { port: PortNo(n), max_len: 0 }]) };
        let mut pool = ActionPool::default();
        let first = pool.share(&output(1));
        assert!(Arc::ptr_eq(&pool.share(&output(1)), &first));
        for n in 0..2000 {
            assert_eq!(pool.share(&output(n)), output(n));
        }
        let remembered = pool.places.iter().flatten().count();
        assert!(remembered > PLACES / 2 && remembered <= PLACES, "{remembered}");
        let mut clone = pool.clone();
        assert_eq!(clone.share(&output(1)), first);
    }
}
