// SPDX-License-Identifier: Apache-2.0
//! The number of rules of a subtable for each priority.

use imbl::OrdMap;
use smallvec::SmallVec;

/// Priorities that need no tree; most subtables have one or two.
const FEW: usize = 4;

/// The number of rules of each priority. It is copied for nearly every rule that is added: a few
/// priorities are copied themselves, and a clone shares the tree of many.
#[derive(Clone, Debug)]
pub(crate) enum Priorities {
    /// In no order.
    Few(SmallVec<[(u32, u32); FEW]>),
    /// By priority.
    Many(OrdMap<u32, u32>),
}

impl Default for Priorities {
    fn default() -> Self {
        Priorities::Few(SmallVec::new())
    }
}

impl Priorities {
    /// Returns the highest priority; 0 when there is none.
    pub fn max(&self) -> u32 {
        match self {
            Priorities::Few(list) => list.iter().map(|(priority, _)| *priority).max().unwrap_or(0),
            Priorities::Many(map) => map.get_max().map_or(0, |(priority, _)| *priority),
        }
    }

    /// Returns true when some rule has this priority.
    pub fn has(&self, priority: u32) -> bool {
        match self {
            Priorities::Few(list) => list.iter().any(|(other, _)| *other == priority),
            Priorities::Many(map) => map.contains_key(&priority),
        }
    }

    /// Counts one more rule of this priority.
    pub fn add(&mut self, priority: u32) {
        match self {
            Priorities::Few(list) => {
                if let Some((_, count)) = list.iter_mut().find(|(other, _)| *other == priority) {
                    *count += 1;
                } else if list.len() < FEW {
                    list.push((priority, 1));
                } else {
                    let mut map: OrdMap<u32, u32> = list.iter().copied().collect();
                    map.insert(priority, 1);
                    *self = Priorities::Many(map);
                }
            }
            Priorities::Many(map) => *map.entry(priority).or_default() += 1,
        }
    }

    /// Counts one rule less of this priority.
    pub fn remove(&mut self, priority: u32) {
        match self {
            Priorities::Few(list) => {
                for (_, count) in list.iter_mut().filter(|(other, _)| *other == priority) {
                    *count -= 1; // it counted the rule
                }
                list.retain(|(_, count)| *count > 0);
            }
            Priorities::Many(map) => {
                if let Some(count) = map.get_mut(&priority) {
                    *count -= 1; // as above
                    if *count == 0 {
                        map.remove(&priority);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn are_those_that_a_map_has(
            steps in prop::collection::vec((0u32..8, any::<bool>()), 0..80),
        ) {
            let mut priorities = Priorities::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (priority, adds) in steps {
                if adds {
                    priorities.add(priority);
                    *model.entry(priority).or_default() += 1;
                } else if let Some(count) = model.get_mut(&priority) {
                    priorities.remove(priority);
                    *count -= 1;
                    model.retain(|_, count| *count > 0);
                }
                prop_assert_eq!(priorities.max(), model.keys().copied().max().unwrap_or(0));
                for other in 0..8 {
                    prop_assert_eq!(priorities.has(other), model.contains_key(&other));
                }
            }
        }
    }
}
