// SPDX-License-Identifier: GPL-2.0

//! The end of several waits together.

use kernel::time::{
    Instant,
    Monotonic,
    Msecs, //
};

/// A time on the monotonic clock.
pub struct Deadline {
    begin: Instant<Monotonic>,
    limit: Msecs,
}

impl Deadline {
    /// In `limit` milliseconds.
    pub fn new(limit: Msecs) -> Self {
        Self {
            begin: Instant::now(),
            limit,
        }
    }

    /// Milliseconds that are left, 0 when it has passed.
    pub fn left(&self) -> Msecs {
        let gone = u32::try_from(self.begin.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.limit.saturating_sub(gone)
    }
}
