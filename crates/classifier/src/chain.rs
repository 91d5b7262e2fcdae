//! The rules of a subtable that share a hash.

use std::sync::Arc;

/// At least one rule; those with the same match by falling priority. Nearly always there is
/// just one, and tables are copied piece by piece as they change: hence the small form, whose
/// clone is that of its rule.
#[derive(Debug)]
pub(crate) enum Chain<R> {
    /// One rule.
    One(Arc<R>),
    /// Two or more.
    #[expect(
        clippy::box_collection,
        reason = "a vector in place would double the size of every chain"
    )]
    Many(Box<Vec<Arc<R>>>),
}

// By hand, as a derived one would ask for `R: Clone`.
impl<R> Clone for Chain<R> {
    fn clone(&self) -> Self {
        match self {
            Chain::One(rule) => Chain::One(Arc::clone(rule)),
            Chain::Many(rules) => Chain::Many(rules.clone()),
        }
    }
}

impl<R> Chain<R> {
    pub fn as_slice(&self) -> &[Arc<R>] {
        match self {
            Chain::One(rule) => std::slice::from_ref(rule),
            Chain::Many(rules) => rules,
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [Arc<R>] {
        match self {
            Chain::One(rule) => std::slice::from_mut(rule),
            Chain::Many(rules) => rules,
        }
    }

    /// Adds a rule at a place, or at the end when that is further.
    pub fn insert(&mut self, at: usize, rule: Arc<R>) {
        match self {
            Chain::One(only) => {
                let only = Arc::clone(only);
                let both = if at == 0 { vec![rule, only] } else { vec![only, rule] };
                *self = Chain::Many(Box::new(both));
            }
            Chain::Many(rules) => rules.insert(at.min(rules.len()), rule),
        }
    }

    /// Takes out the rule at a place. `None` when there is none, or when it is the only one:
    /// then the whole chain must go.
    pub fn remove(&mut self, at: usize) -> Option<Arc<R>> {
        let Chain::Many(rules) = self else { return None };
        if at >= rules.len() {
            return None;
        }
        let removed = rules.remove(at);
        if let [only] = rules.as_slice() {
            *self = Chain::One(Arc::clone(only));
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let mut chain = Chain::One(Arc::new(2));
        let show = |chain: &Chain<i32>| chain.as_slice().iter().map(|r| **r).collect::<Vec<_>>();
        assert_eq!(chain.remove(0), None, "the last one goes with its chain");
        chain.insert(0, Arc::new(1));
        chain.insert(99, Arc::new(4));
        chain.insert(2, Arc::new(3));
        assert_eq!(show(&chain), [1, 2, 3, 4]);
        let copy = chain.clone();
        assert_eq!(chain.remove(4), None);
        for (at, removed) in [(1, 2), (2, 4), (0, 1)] {
            assert_eq!(chain.remove(at).as_deref(), Some(&removed));
        }
        assert!(matches!(chain, Chain::One(_)));
        assert_eq!((show(&chain), show(&copy)), (vec![3], vec![1, 2, 3, 4]));
        chain.insert(1, Arc::new(5));
        chain.as_mut_slice()[0] = Arc::new(9);
        assert_eq!(show(&chain), [9, 5]);
    }
}
