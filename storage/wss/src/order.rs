// SPDX-License-Identifier: GPL-2.0

//! The order of commands. A write has exclusive access to its blocks, a read shared access to the
//! cache lines of its blocks. Conflicting commands run in the order of arrival. A command is
//! compared with those on the same lines only.

use std::collections::{BTreeMap, BTreeSet};

/// A range of blocks of an object, within one line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The RS.
    pub store: u32,
    /// The object.
    pub object: u32,
    /// The first block.
    pub from: u64,
    /// The end, exclusive.
    pub to: u64,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        (self.store, self.object) == (other.store, other.object)
            && self.from < other.to
            && other.from < self.to
    }
}

struct Entry {
    write: bool,
    spans: Vec<Span>,
    /// Number of earlier commands that conflict.
    before: usize,
    /// Later commands that conflict.
    after: Vec<u64>,
}

/// All unfinished commands, by increasing number.
pub struct Order {
    /// Number of blocks of a line.
    line: u64,
    entries: BTreeMap<u64, Entry>,
    /// The commands on each line of an object of an RS.
    lines: BTreeMap<(u32, u32, u64), Vec<u64>>,
    /// Commands that may start, and have not.
    free: BTreeSet<u64>,
}

impl Order {
    /// Creates an order of commands on lines of this number of blocks.
    pub fn new(line: u64) -> Self {
        Self {
            line,
            entries: BTreeMap::new(),
            lines: BTreeMap::new(),
            free: BTreeSet::new(),
        }
    }

    fn place(&self, span: &Span) -> (u32, u32, u64) {
        (span.store, span.object, span.from / self.line)
    }

    /// Adds a command after all others. The spans of a read are whole lines. Returns the number of
    /// commands that it was compared with.
    pub fn add(&mut self, number: u64, write: bool, spans: Vec<Span>) -> usize {
        let (mut compared, mut before) = (0, BTreeSet::new());
        for span in &spans {
            let place = self.place(span);
            let here = self.lines.entry(place).or_default();
            for other in here.iter() {
                let Some(entry) = self.entries.get(other) else {
                    continue;
                };
                compared += 1;
                if (write || entry.write) && entry.spans.iter().any(|s| s.meets(span)) {
                    before.insert(*other);
                }
            }
            here.push(number);
        }
        for other in &before {
            if let Some(entry) = self.entries.get_mut(other) {
                entry.after.push(number);
            }
        }
        if before.is_empty() {
            self.free.insert(number);
        }
        let entry = Entry {
            write,
            spans,
            before: before.len(),
            after: Vec::new(),
        };
        self.entries.insert(number, entry);
        compared
    }

    /// Removes a command, which has ended or not started.
    pub fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.free.remove(&number);
        for span in &entry.spans {
            let place = self.place(span);
            if let Some(here) = self.lines.get_mut(&place) {
                here.retain(|n| *n != number);
                if here.is_empty() {
                    self.lines.remove(&place);
                }
            }
        }
        for later in entry.after {
            if let Some(entry) = self.entries.get_mut(&later) {
                entry.before -= 1;
                if entry.before == 0 {
                    self.free.insert(later);
                }
            }
        }
    }

    /// Returns the first command that may start.
    pub fn first(&self) -> Option<u64> {
        self.free.first().copied()
    }

    /// Records the start of a command.
    pub fn start(&mut self, number: u64) {
        self.free.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Vec<Span> {
        vec![Span {
            store: 0,
            object: 0,
            from,
            to,
        }]
    }

    fn free(order: &Order) -> Vec<u64> {
        order.free.iter().copied().collect()
    }

    #[test]
    fn conflicting_commands_wait() {
        let mut order = Order::new(128);
        order.add(1, false, span(0, 128));
        order.add(2, false, span(0, 128));
        order.add(3, true, span(8, 16));
        order.add(4, true, span(16, 24));
        order.add(5, true, span(12, 20));
        order.add(6, false, span(128, 256));
        assert_eq!(free(&order), [1, 2, 6]);
        assert_eq!(order.first(), Some(1));
        order.start(1);
        order.remove(1);
        assert_eq!(free(&order), [2, 6]);
        order.remove(2);
        assert_eq!(free(&order), [3, 4, 6]);
        order.remove(4);
        assert_eq!(free(&order), [3, 6]);
        order.start(3);
        assert_eq!(free(&order), [6]);
        order.remove(3);
        assert_eq!(free(&order), [5, 6]);
        order.remove(5);
        order.remove(6);
        assert!(order.first().is_none() && order.entries.is_empty() && order.lines.is_empty());
    }

    /// A command that has not started ends: those behind it wait for the others only.
    #[test]
    fn one_that_waits_ends() {
        let mut order = Order::new(128);
        order.add(1, true, span(0, 8));
        order.add(2, true, span(0, 16));
        order.add(3, true, span(8, 16));
        order.remove(2);
        assert_eq!(free(&order), [1, 3]);
        // One command on two spans of a line, which meet the same earlier one.
        order.add(4, true, [span(0, 2), span(4, 6)].concat());
        assert_eq!(free(&order), [1, 3]);
        order.remove(1);
        assert_eq!(free(&order), [3, 4]);
    }

    /// Random commands: those that may start are those that a comparison of all with all finds.
    #[test]
    fn as_by_comparing_all() {
        for seed in 0..200 {
            let mut rng = seeded::Rng(seed);
            let mut order = Order::new(8);
            let mut all: Vec<(u64, bool, Vec<Span>)> = Vec::new();
            let mut started = BTreeSet::new();
            for number in 0..200 {
                let write = rng.one_in(2);
                let mut spans = Vec::new();
                for _ in 0..1 + rng.below(3) {
                    let (line, from) = (rng.below(4) * 8, rng.below(8));
                    let to = from + 1 + rng.below(8 - from);
                    let (from, to) = if write { (from, to) } else { (0, 8) };
                    spans.extend(span(line + from, line + to));
                }
                order.add(number, write, spans.clone());
                all.push((number, write, spans));
                while all.len() > rng.below(12) as usize {
                    // The first one, or one that may not have started.
                    let n = all.remove(rng.below(all.len() as u64) as usize).0;
                    order.remove(n);
                    started.remove(&n);
                }
                if let Some(first) = order.first().filter(|_| rng.one_in(2)) {
                    order.start(first);
                    started.insert(first);
                }
                let meets = |a: &[Span], b: &[Span]| a.iter().any(|a| b.iter().any(|b| a.meets(b)));
                let may = |(n, write, spans): &&(u64, bool, Vec<Span>)| {
                    let mut before = all.iter().filter(|(m, ..)| m < n);
                    !before.any(|(_, w, s)| (*write || *w) && meets(spans, s))
                };
                let wanted: BTreeSet<_> = all.iter().filter(may).map(|c| c.0).collect();
                let found: BTreeSet<_> = order.free.union(&started).copied().collect();
                assert_eq!(found, wanted, "seed {seed}, {number}");
            }
        }
    }

    #[test]
    fn other_lines_are_not_looked_at() {
        let mut order = Order::new(8);
        let on = |store, object, line: u64| {
            let mut spans = span(line * 8, line * 8 + 8);
            spans[0].store = store;
            spans[0].object = object;
            spans
        };
        let mut number = 0;
        for (store, object) in [(0, 0), (0, 1), (1, 0)] {
            for line in 0..1000 {
                number += 1;
                assert_eq!(order.add(number, true, on(store, object, line)), 0);
            }
        }
        assert_eq!(order.free.len(), 3000);
        assert_eq!(order.add(3001, true, on(0, 1, 5)), 1);
        assert_eq!(order.free.len(), 3000);
    }
}
