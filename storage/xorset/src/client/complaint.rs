// SPDX-License-Identifier: GPL-2.0

//! Complaints of nodes about each other. If two nodes cannot reach each other, both complain, and
//! one is at fault. After other nodes have had time to complain, the client blames the node that
//! has complaints to or from more other nodes.

use std::collections::BTreeMap;

use crate::layout::{has, Mask, NODES};

/// Validity of a complaint in milliseconds. Nodes repeat complaints every 500 ms.
const COUNTS: u64 = 1200;
/// Time in milliseconds for other nodes to complain, and for the two nodes to reconnect. A
/// complaint that is not repeated until then is ignored.
const HEAR: u64 = 1500;

/// Complaints by (accused, accuser): start and end of validity.
#[derive(Default)]
pub(super) struct Complaints(BTreeMap<(usize, usize), (u64, u64)>);

impl Complaints {
    /// Adds a complaint. Returns true if it is new.
    pub(super) fn add(&mut self, of: usize, by: usize, now: u64) -> bool {
        let (since, until) = self.0.entry((of, by)).or_insert((now, 0));
        let new = *until <= now;
        if new {
            *since = now;
        }
        *until = now + COUNTS;
        new
    }

    /// Drops complaints by and about a node when the connection to it ends, as the cause is the
    /// same.
    pub(super) fn gone(&mut self, n: usize) {
        self.0.retain(|(of, by), _| *of != n && *by != n);
    }

    /// Drops all complaints, for a new map.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the nodes at fault, ignoring complaints by or about nodes in `out`: all that
    /// complain about themselves, else at most one.
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
        // Of nodes with equal counts, blame the one accused first.
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
