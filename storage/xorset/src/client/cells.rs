// SPDX-License-Identifier: GPL-2.0

//! Which stripes of a node are valid, and the order of their rebuild.
//!
//! The client knows what it has written while a node was out. So a node that returns with its file
//! to the client that has excluded it needs only these stripes. Another client rebuilds all.

use std::collections::BTreeSet;

/// Maximum number of stripes in a set. A node with more bad ones is rebuilt as a whole.
const MOST: usize = 1 << 20;

/// The valid stripes of a node.
#[derive(Debug)]
pub(super) enum Cells {
    /// All before the first number except the second set, and those in the first set after it.
    Built(u64, BTreeSet<u64>, BTreeSet<u64>),
    /// All except these.
    Except(BTreeSet<u64>),
}

impl Cells {
    /// No valid stripe.
    pub(super) fn none() -> Self {
        Self::Built(0, BTreeSet::new(), BTreeSet::new())
    }

    /// All stripes.
    pub(super) fn all() -> Self {
        Self::Except(BTreeSet::new())
    }

    /// Returns whether a stripe is valid.
    pub(super) fn valid(&self, stripe: u64) -> bool {
        match self {
            Self::Built(first, more, bad) => match stripe < *first {
                true => !bad.contains(&stripe),
                false => more.contains(&stripe),
            },
            Self::Except(set) => !set.contains(&stripe),
        }
    }

    /// Returns whether all stripes are valid.
    pub(super) fn whole(&self) -> bool {
        matches!(self, Self::Except(set) if set.is_empty())
    }

    /// Number of stripes, of `stripes`, that are not valid.
    pub(super) fn missing(&self, stripes: u64) -> u64 {
        match self {
            Self::Built(first, more, bad) => {
                stripes.saturating_sub(*first + more.len() as u64) + bad.len() as u64
            }
            Self::Except(set) => set.len() as u64,
        }
    }

    /// Records that the node is out. A rebuild in progress starts again from the first stripe.
    pub(super) fn out(&mut self) {
        if let Self::Built(..) = self {
            *self = Self::none();
        }
    }

    /// A stripe changes without the node, or has bad blocks there.
    pub(super) fn spoil(&mut self, stripe: u64) {
        match self {
            Self::Built(first, more, _) if stripe >= *first => {
                more.remove(&stripe);
            }
            Self::Built(_, _, set) | Self::Except(set) => {
                set.insert(stripe);
                if set.len() > MOST {
                    *self = Self::none();
                }
            }
        }
    }

    /// A stripe of `stripes` is rebuilt.
    pub(super) fn made(&mut self, stripe: u64, stripes: u64) {
        match self {
            Self::Built(first, more, bad) => {
                match stripe < *first {
                    true => bad.remove(&stripe),
                    false => more.insert(stripe),
                };
                while more.remove(first) {
                    *first += 1;
                }
                if *first == stripes {
                    *self = Self::Except(std::mem::take(bad));
                }
            }
            Self::Except(set) => {
                set.remove(&stripe);
            }
        }
    }

    /// The first `count` stripes to rebuild, of those that are `free`.
    pub(super) fn next(&self, stripes: u64, free: impl Fn(u64) -> bool, count: usize) -> Vec<u64> {
        let free = |s: &u64| free(*s);
        match self {
            Self::Built(first, more, bad) => {
                let left = (*first..stripes).filter(|s| !more.contains(s));
                let left = bad.iter().copied().chain(left);
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
        let free = |s| s != 1;
        assert_eq!(cells.next(5, free, 3), [0, 2, 3]);
        for stripe in [2, 0, 4] {
            cells.made(stripe, 5);
        }
        let valid = |c: &Cells| (0..5).filter(|s| c.valid(*s)).collect::<Vec<_>>();
        assert_eq!(valid(&cells), [0, 2, 4]);
        assert_eq!(cells.next(5, free, 3), [3]);
        assert_eq!(cells.missing(5), 2);
        cells.made(1, 5);
        // A bad block discards only its stripe.
        cells.spoil(0);
        cells.spoil(4);
        assert_eq!(valid(&cells), [1, 2]);
        assert_eq!(cells.next(5, free, 2), [0, 3]);
        for stripe in [4, 3] {
            cells.made(stripe, 5);
            assert!(!cells.whole());
        }
        assert_eq!(valid(&cells), [1, 2, 3, 4]);
        cells.made(0, 5);
        assert!(cells.whole());
        cells.spoil(3);
        assert_eq!((valid(&cells), cells.missing(5)), (vec![0, 1, 2, 4], 1));
        let mut cells = Cells::none();
        cells.made(0, 5);
        cells.out();
        assert!(valid(&cells).is_empty());
    }

    #[test]
    fn stripes_that_have_changed() {
        let mut cells = Cells::all();
        cells.spoil(3);
        cells.spoil(1);
        cells.out();
        assert_eq!(cells.next(5, |_| true, 9), [1, 3]);
        assert!(cells.valid(0) && !cells.valid(3));
        cells.made(1, 5);
        cells.made(3, 5);
        assert!(cells.whole());
    }
}
