// SPDX-License-Identifier: GPL-2.0

//! The order of commands. A write has exclusive access to its blocks, a read shared access to the
//! cache lines of its blocks. Conflicting commands run in the order of arrival.

use std::collections::BTreeMap;

/// A range of blocks of an object.
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
}

/// All unfinished commands, by increasing number.
#[derive(Default)]
pub struct Order {
    entries: BTreeMap<u64, Entry>,
}

impl Order {
    /// Adds a command after all others. The spans of a read are whole lines.
    pub fn add(&mut self, number: u64, write: bool, spans: Vec<Span>) {
        self.entries.insert(number, Entry { write, spans });
    }

    /// Removes a finished command.
    pub fn remove(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    /// Returns whether no earlier command conflicts with this one.
    pub fn may_go(&self, number: u64) -> bool {
        let Some(entry) = self.entries.get(&number) else {
            return false;
        };
        let mut before = self.entries.range(..number);
        !before.any(|(_, other)| {
            let meet = |s: &Span| other.spans.iter().any(|o| o.meets(s));
            (entry.write || other.write) && entry.spans.iter().any(meet)
        })
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

    #[test]
    fn who_is_in_whose_way() {
        let mut order = Order::default();
        order.add(1, false, span(0, 128));
        order.add(2, false, span(0, 128));
        order.add(3, true, span(8, 16));
        order.add(4, true, span(16, 24));
        order.add(5, true, span(12, 20));
        order.add(6, false, span(128, 256));
        let free = |order: &Order| (1..=6).filter(|n| order.may_go(*n)).collect::<Vec<_>>();
        assert_eq!(free(&order), [1, 2, 6]);
        order.remove(1);
        assert_eq!(free(&order), [2, 6]);
        order.remove(2);
        assert_eq!(free(&order), [3, 4, 6]);
        order.remove(4);
        assert_eq!(free(&order), [3, 6]);
        order.remove(3);
        assert_eq!(free(&order), [5, 6]);
        assert!(!order.may_go(7));
    }

    #[test]
    fn other_objects_are_elsewhere() {
        let mut order = Order::default();
        order.add(1, true, span(0, 8));
        let elsewhere = |store, object| {
            let mut spans = span(0, 8);
            spans[0].store = store;
            spans[0].object = object;
            spans
        };
        order.add(2, true, elsewhere(0, 1));
        order.add(3, true, elsewhere(1, 0));
        assert!(order.may_go(2) && order.may_go(3));
    }
}
