// SPDX-License-Identifier: GPL-2.0

//! When to give up on a target that violates the protocol again and again.

use super::ktime::Ktime;

/// This many violations in [`WINDOW_NS`] are too many.
pub const MAX: u32 = 5;
/// In nanoseconds: a minute.
pub const WINDOW_NS: i64 = 60_000_000_000;

/// Counts protocol violations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Strikes {
    /// When the current count began.
    since: Ktime,
    count: u32,
}

impl Strikes {
    /// None so far.
    pub const fn new() -> Self {
        Self {
            since: Ktime::from_ns(0),
            count: 0,
        }
    }

    /// Counts a violation at the time `now`. The limit, once reached, stays reached.
    pub const fn add(&mut self, now: Ktime) {
        if self.is_out() {
            return;
        }
        if self.count == 0 || now.ns_since(self.since) > WINDOW_NS {
            *self = Self {
                since: now,
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
    }

    /// Whether there were [`MAX`] violations in [`WINDOW_NS`].
    pub const fn is_out(&self) -> bool {
        self.count >= MAX
    }
}
