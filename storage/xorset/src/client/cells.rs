// SPDX-License-Identifier: GPL-2.0

//! Which stripes of a node are valid, and the order of their rebuild.
//!
//! The client knows what it has written while a node was out. So a node that returns with its file
//! to the client that has excluded it needs only these stripes. Another client rebuilds all.

use std::collections::BTreeSet;

/// Maximum number of stripes that are remembered for a node. With more, all are rebuilt.
const MOST: usize = 1 << 20;

/// The valid stripes of a node.
#[derive(Debug)]
pub(super) enum Cells {
    /// All before the first number, and these after it.
    Built(u64, BTreeSet<u64>),
    /// All except these.
    Except(BTreeSet<u64>),
}

impl Cells {
    /// No valid stripe.
    pub(super) fn none() -> Self {
        Self::Built(0, BTreeSet::new())
    }

    /// All stripes.
    pub(super) fn all() -> Self {
        Self::Except(BTreeSet::new())
    }

    /// Returns whether a stripe is valid.
    pub(super) fn valid(&self, stripe: u64) -> bool {
        match self {
            Self::Built(first, more) => stripe < *first || more.contains(&stripe),
            Self::Except(set) => !set.contains(&stripe),
        }
    }

    /// Returns whether all stripes are valid.
    pub(super) fn whole(&self, stripes: u64) -> bool {
        match self {
            Self::Built(first, _) => *first == stripes,
            Self::Except(set) => set.is_empty(),
        }
    }

    /// The node is out: stripes that are not known to be valid are rebuilt from the start.
    pub(super) fn out(&mut self) {
        if let Self::Built(..) = self {
            *self = Self::none();
        }
    }

    /// A stripe changes without the node, or has bad blocks there.
    pub(super) fn spoil(&mut self, stripe: u64) {
        match self {
            Self::Built(first, more) => {
                more.remove(&stripe);
                *first = stripe.min(*first);
            }
            Self::Except(set) => {
                set.insert(stripe);
                if set.len() > MOST {
                    *self = Self::none();
                }
            }
        }
    }

    /// A stripe is rebuilt.
    pub(super) fn made(&mut self, stripe: u64) {
        match self {
            Self::Built(first, more) => {
                more.insert(stripe);
                while more.remove(first) {
                    *first += 1;
                }
            }
            Self::Except(set) => {
                set.remove(&stripe);
            }
        }
    }

    /// The first `count` stripes to rebuild, without those in `skip`.
    pub(super) fn next(&self, stripes: u64, skip: &BTreeSet<u64>, count: usize) -> Vec<u64> {
        let free = |s: &u64| !skip.contains(s);
        match self {
            Self::Built(first, more) => {
                let left = (*first..stripes).filter(|s| !more.contains(s));
                left.filter(free).take(count).collect()
            }
            Self::Except(set) => set.iter().copied().filter(free).take(count).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_in_any_order() {
        let mut cells = Cells::none();
        let skip = BTreeSet::from([1]);
        assert_eq!(cells.next(5, &skip, 3), [0, 2, 3]);
        for stripe in [2, 0, 4] {
            cells.made(stripe);
        }
        let valid = |c: &Cells| (0..5).filter(|s| c.valid(*s)).collect::<Vec<_>>();
        assert_eq!(valid(&cells), [0, 2, 4]);
        assert_eq!(cells.next(5, &skip, 3), [3]);
        cells.made(1);
        assert!(!cells.whole(5));
        cells.made(3);
        assert!(cells.whole(5));
        cells.spoil(3);
        assert_eq!(valid(&cells), [0, 1, 2]);
        cells.out();
        assert_eq!(valid(&cells), []);
    }

    #[test]
    fn stripes_that_have_changed() {
        let mut cells = Cells::all();
        cells.spoil(3);
        cells.spoil(1);
        cells.out();
        assert_eq!(cells.next(5, &BTreeSet::new(), 9), [1, 3]);
        assert!(cells.valid(0) && !cells.valid(3));
        cells.made(1);
        cells.made(3);
        assert!(cells.whole(5));
    }
}
