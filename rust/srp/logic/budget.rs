// SPDX-License-Identifier: GPL-2.0

//! How much a session may say in the log about what its target can repeat.

use super::ktime::Ktime;

/// So many times in [`WINDOW_NS`].
pub const MAX: u32 = 10;
/// In nanoseconds: a minute.
pub const WINDOW_NS: i64 = 60_000_000_000;

/// Counts what was said and what was not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Budget {
    since: Ktime,
    said: u32,
    kept: u32,
}

impl Budget {
    /// Nothing was said so far.
    pub const fn new() -> Self {
        Self {
            since: Ktime::from_ns(0),
            said: 0,
            kept: 0,
        }
    }

    /// Whether something may be said at the time `now`: how much was kept quiet before it,
    /// or `None` if this is, too.
    pub const fn spend(&mut self, now: Ktime) -> Option<u32> {
        if self.said == 0 || now.ns_since(self.since) > WINDOW_NS {
            self.since = now;
            self.said = 0;
        }
        if self.said >= MAX {
            self.kept = self.kept.saturating_add(1);
            return None;
        }
        self.said += 1;
        let kept = self.kept;
        self.kept = 0;
        Some(kept)
    }
}
