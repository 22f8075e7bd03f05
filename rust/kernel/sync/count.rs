// SPDX-License-Identifier: GPL-2.0

//! Counters of events, for statistics.

use core::fmt;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// A monotonic counter, by default zero. Any context.
pub struct Count(Atomic<u64>);

impl Default for Count {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Count {
    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds 1.
    pub fn increment(&self) {
        self.0.add(1, Relaxed);
    }

    /// Adds `n` by a load and a store. Concurrent calls may lose counts.
    #[inline(always)]
    pub fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
