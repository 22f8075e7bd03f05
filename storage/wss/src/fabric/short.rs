// SPDX-License-Identifier: GPL-2.0

//! Transfers that wait for memory. Those of other connections may have all of it for a moment,
//! which must end no connection.

use std::collections::VecDeque;

/// The waiting transfers, in order.
pub(super) struct Short<T>(VecDeque<T>);

impl<T> Default for Short<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Short<T> {
    /// Starts a transfer after those that wait. `start` returns false if there is no memory now.
    /// Returns whether it is the first that waits.
    pub(super) fn start(&mut self, transfer: T, start: impl FnOnce(&T) -> bool) -> bool {
        let first = self.0.is_empty();
        if first && start(&transfer) {
            return false;
        }
        self.0.push_back(transfer);
        first
    }

    /// Starts the waiting transfers, as far as there is memory.
    pub(super) fn go_on(&mut self, mut start: impl FnMut(&T) -> bool) {
        while self.0.front().is_some_and(&mut start) {
            self.0.pop_front();
        }
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
}
