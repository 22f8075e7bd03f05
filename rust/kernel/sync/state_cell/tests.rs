// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of [`StateCell`] in one context, and in two racing contexts.

use super::*;
use crate::sync::race::race;
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// Number of rounds of each of two racing contexts.
const ROUNDS: u64 = 100_000;

/// Maximum number of polls for a word that the other context must set; they take minutes.
const LOOKS: u64 = 1 << 32;

/// Data with an invariant: both numbers are equal while the data has no owner.
#[derive(Default)]
struct Pair(u64, u64);

/// The object that two contexts race for.
struct Race {
    cell: StateCell<Pair>,
    owners: Atomic<u32>,
    taken: Atomic<u64>,
    moved: Atomic<u64>,
    missed: Atomic<u64>,
    wrong: Atomic<u32>,
}

fn new() -> Result<Arc<Race>> {
    let race = Race {
        cell: StateCell::new(0, Pair::default()),
        owners: Atomic::new(0),
        taken: Atomic::new(0),
        moved: Atomic::new(0),
        missed: Atomic::new(0),
        wrong: Atomic::new(0),
    };
    Ok(Arc::new(race, GFP_KERNEL)?)
}

impl Race {
    /// Checks the invariant and changes the data, as its owner.
    fn own(&self, pair: &mut Pair) {
        if self.owners.fetch_add(1, Relaxed) != 0 || pair.0 != pair.1 {
            self.wrong.fetch_add(1, Relaxed);
        }
        pair.0 += 1;
        cpu_relax();
        pair.1 += 1;
        self.owners.fetch_sub(1, Relaxed);
        self.taken.fetch_add(1, Relaxed);
    }

    fn miss(&self) {
        self.missed.fetch_add(1, Relaxed);
        cpu_relax();
    }

    /// Takes the data [`ROUNDS`] times, leaving the word as it is.
    fn take(&self) {
        let mut left = ROUNDS;
        while left > 0 {
            match self.cell.acquire(0, 0) {
                Some(mut pair) => {
                    self.own(&mut pair);
                    // Give the data back by `release` and by a drop in turn.
                    if left % 2 == 0 {
                        pair.release(0);
                    }
                    left -= 1;
                }
                None => self.miss(),
            }
        }
    }

    /// Tries to advance each word to the next, by taking the data.
    fn take_next(&self) {
        for word in 0..ROUNDS {
            if let Some(mut pair) = self.cell.acquire(word, word) {
                self.own(&mut pair);
                pair.release(word + 1);
            }
            if !self.wait_past(word) {
                return;
            }
        }
    }

    /// Tries to advance each word to the next, without taking the data.
    fn move_next(&self) {
        for word in 0..ROUNDS {
            if self.cell.transition(word, word + 1) {
                self.moved.fetch_add(1, Relaxed);
            }
            if !self.wait_past(word) {
                return;
            }
        }
    }

    /// Waits until the word is above `word`. Returns `false` if it decreases or after [`LOOKS`]
    /// polls.
    fn wait_past(&self, word: u64) -> bool {
        let mut last = word;
        for _ in 0..LOOKS {
            let (now, _) = self.cell.load();
            if now < last {
                break;
            }
            if now > word {
                return true;
            }
            last = now;
            self.miss();
        }
        self.wrong.fetch_add(1, Relaxed);
        false
    }

    fn result(&self) -> Option<(u64, u64)> {
        let pair = self.cell.acquire(self.cell.load().0, 0)?;
        Some((pair.0, pair.1))
    }
}

#[kunit_tests(srp_state_cell)]
mod cases {
    use super::*;

    #[test]
    fn one_owner() {
        let mut cell = StateCell::new(OWNED | 5, Pair(1, 1));
        assert_eq!(cell.get_mut().0, 1);
        assert_eq!(cell.load(), (5, false));
        assert!(cell.acquire(4, 6).is_none());
        let Some(mut pair) = cell.acquire(5, 6) else {
            return assert!(false);
        };
        assert_eq!(cell.load(), (6, true));
        // The data is taken, so both calls fail for any expected word.
        for word in [5, 6, OWNED | 6] {
            assert!(cell.acquire(word, 7).is_none());
            assert!(!cell.transition(word, 7));
        }
        pair.1 = 2;
        pair.release(OWNED | 8);
        assert_eq!(cell.load(), (8, false));
        assert_eq!(cell.get_mut().1, 2);
    }

    #[test]
    fn dropped_guard_leaves_its_word() {
        let cell = StateCell::new(0, ());
        drop(cell.acquire(0, OWNED | 3));
        assert_eq!(cell.load(), (3, false));
    }

    #[test]
    fn transition_needs_the_word() {
        let cell = StateCell::new(1, ());
        assert!(!cell.transition(0, 2));
        assert!(cell.transition(1, OWNED | 2));
        assert_eq!(cell.load(), (2, false));
        assert!(cell.acquire(2, 2).is_some());
    }

    #[test]
    fn racing_owners_lose_no_update() -> Result {
        let shared = new()?;
        race(&shared, &[Race::take, Race::take])?;
        assert_eq!(shared.wrong.load(Relaxed), 0);
        assert_eq!(shared.taken.load(Relaxed), 2 * ROUNDS);
        assert!(shared.result() == Some((2 * ROUNDS, 2 * ROUNDS)));
        pr_info!("found it taken {} times\n", shared.missed.load(Relaxed));
        Ok(())
    }

    #[test]
    fn each_word_has_one_taker() -> Result {
        let shared = new()?;
        race(&shared, &[Race::take_next, Race::take_next])?;
        assert_eq!(shared.wrong.load(Relaxed), 0);
        assert_eq!(shared.taken.load(Relaxed), ROUNDS);
        assert_eq!(shared.cell.load(), (ROUNDS, false));
        assert!(shared.result() == Some((ROUNDS, ROUNDS)));
        Ok(())
    }

    #[test]
    fn transitions_and_owners_exclude_each_other() -> Result {
        let shared = new()?;
        race(&shared, &[Race::take_next, Race::move_next])?;
        assert_eq!(shared.wrong.load(Relaxed), 0);
        let taken = shared.taken.load(Relaxed);
        assert_eq!(taken + shared.moved.load(Relaxed), ROUNDS);
        assert_eq!(shared.cell.load(), (ROUNDS, false));
        assert!(shared.result() == Some((taken, taken)));
        pr_info!("{} of {} words were taken\n", taken, ROUNDS);
        Ok(())
    }
}
