// SPDX-License-Identifier: GPL-2.0

//! Transfers that wait for memory. Transfers of other connections may use all memory for a moment,
//! which must not end a connection. If no operation of this process is in flight, none can free
//! memory: the limit of locked memory is too low, or other processes use it.

use std::collections::VecDeque;

/// Time in milliseconds after which a waiting transfer is given up, if no operation is in flight.
const PATIENCE: u64 = 2000;

/// The waiting transfers, in order.
pub(super) struct Short<T> {
    waiting: VecDeque<T>,
    /// Since when the first one waits although nothing is in flight.
    since: Option<u64>,
}

impl<T> Default for Short<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            since: None,
        }
    }
}

impl<T> Short<T> {
    /// Starts a transfer after those that wait. `start` returns false if there is no memory now.
    /// Returns whether it is the first that waits.
    pub(super) fn start(&mut self, transfer: T, start: impl FnOnce(&T) -> bool) -> bool {
        let first = self.waiting.is_empty();
        if first && start(&transfer) {
            return false;
        }
        self.waiting.push_back(transfer);
        first
    }

    /// Starts the waiting transfers, as far as there is memory.
    pub(super) fn go_on(&mut self, mut start: impl FnMut(&T) -> bool) {
        while self.waiting.front().is_some_and(&mut start) {
            self.waiting.pop_front();
            self.since = None;
        }
    }

    /// Returns the first transfer if it has waited in vain. `busy`: operations are in flight, whose
    /// end may free memory.
    pub(super) fn in_vain(&mut self, now: u64, busy: bool) -> Option<&T> {
        if busy || self.waiting.is_empty() {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        self.waiting.front().filter(|_| now >= since + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_wait_for_memory_in_order() {
        let (mut short, mut memory, mut started) = (Short::default(), 1, Vec::new());
        let mut start = |memory: &mut u32, n: &u32| {
            let some = *memory > 0;
            if some {
                *memory -= 1;
                started.push(*n);
            }
            some
        };
        assert!(!short.start(0, |n| start(&mut memory, n)));
        assert!(short.start(1, |n| start(&mut memory, n)));
        // A later one does not overtake, even if there is memory again.
        memory = 9;
        assert!(!short.start(2, |n| start(&mut memory, n)));
        memory = 1;
        short.go_on(|n| start(&mut memory, n));
        memory = 9;
        short.go_on(|n| start(&mut memory, n));
        short.go_on(|n| start(&mut memory, n));
        assert!(!short.start(3, |n| start(&mut memory, n)));
        assert_eq!(started, [0, 1, 2, 3]);
    }

    #[test]
    fn a_transfer_that_nothing_delays_is_given_up() {
        let mut short = Short::default();
        assert!(short.start(7, |_| false));
        // Operations in flight may free memory at any time.
        assert_eq!(short.in_vain(0, true), None);
        assert_eq!(short.in_vain(9 * PATIENCE, true), None);
        let begin = 10 * PATIENCE;
        assert_eq!(short.in_vain(begin, false), None);
        assert_eq!(short.in_vain(begin + PATIENCE - 1, false), None);
        assert_eq!(short.in_vain(begin + PATIENCE, false), Some(&7));
        // The next one has its own time.
        assert!(!short.start(8, |_| false));
        short.go_on(|n| *n == 7);
        let begin = begin + PATIENCE;
        assert_eq!(short.in_vain(begin, false), None);
        assert_eq!(short.in_vain(begin + PATIENCE, false), Some(&8));
        short.go_on(|_| true);
        assert_eq!(short.in_vain(begin + 9 * PATIENCE, false), None);
    }
}
