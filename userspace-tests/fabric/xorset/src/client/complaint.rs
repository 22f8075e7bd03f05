// SPDX-License-Identifier: GPL-2.0

//! What nodes say of each other, and who is to be believed. Two who do not reach each other both say so, and one of them is
//! at fault: it is the one that has a part in more complaints, which the others are given time to make.

use std::collections::BTreeMap;

use crate::layout::{has, Mask, NODES};

/// A complaint, which comes again twice a second, counts for so long, in milliseconds.
const COUNTS: u64 = 1200;
/// So long others have time to tell the same, and the two to reach each other after all. One that is not told again until
/// then does not count any more.
const HEAR: u64 = 1500;

/// Complaints: of whom and by whom, since when and until when.
#[derive(Default)]
pub(super) struct Complaints(BTreeMap<(usize, usize), (u64, u64)>);

impl Complaints {
    /// One has come. True if it is new.
    pub(super) fn add(&mut self, of: usize, by: usize, now: u64) -> bool {
        let (since, until) = self.0.entry((of, by)).or_insert((now, 0));
        let new = *until <= now;
        if new {
            *since = now;
        }
        *until = now + COUNTS;
        new
    }

    /// The connection to a node is not what it was. What it has said does not count, nor what is said of it, as that is the
    /// same fault.
    pub(super) fn gone(&mut self, n: usize) {
        self.0.retain(|(of, by), _| *of != n && *by != n);
    }

    /// A new map makes them all old.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Nodes that do not do their part, of those that are not `out`: all that say so themselves, or else one.
    pub(super) fn guilty(&self, out: Mask, now: u64) -> Mask {
        let counts = |((of, by), (_, until)): &(&(usize, usize), &(u64, u64))| {
            *until > now && !has(out, *of) && !has(out, *by)
        };
        let list: Vec<_> = self.0.iter().filter(counts).collect();
        let own = list.iter().filter(|((of, by), _)| of == by);
        let own = own.fold(0, |mask, ((of, _), _)| mask | 1 << of);
        let first = list.iter().map(|(_, (since, _))| *since).min();
        if own != 0 || first.is_none_or(|first| now < first + HEAR) {
            return own;
        }
        let others = |n: usize| {
            let other = |(of, by): &(usize, usize)| match n {
                _ if n == *of => 1 << by,
                _ if n == *by => 1 << of,
                _ => 0,
            };
            let all: Mask = list.iter().fold(0, |mask, (pair, _)| mask | other(pair));
            all.count_ones()
        };
        // Of two that are alike it is the one that was complained of first.
        let since = |n: usize| {
            let of_it = list.iter().filter(|((of, _), _)| *of == n);
            of_it.map(|(_, (since, _))| *since).min()
        };
        let most = (0..NODES).map(others).max();
        let worst = (0..NODES).filter(|n| Some(others(*n)) == most);
        let worst = worst.min_by_key(|n| since(*n).unwrap_or(u64::MAX));
        worst.map_or(0, |n| 1 << n)
    }
}
