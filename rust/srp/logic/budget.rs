// SPDX-License-Identifier: GPL-2.0

//! Rate limit of a session's log messages that its target can repeat.

use super::ktime::Ktime;

/// Messages per [`WINDOW_NS`].
pub const MAX: u32 = 10;
/// In nanoseconds: a minute.
pub const WINDOW_NS: i64 = 60_000_000_000;

/// Counts logged and suppressed messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Budget {
    since: Ktime,
    said: u32,
    kept: u32,
}

impl Budget {
    /// Nothing logged so far.
    pub const fn new() -> Self {
        Self {
            since: Ktime::from_ns(0),
            said: 0,
            kept: 0,
        }
    }

    /// Returns how many messages were suppressed before this one, or `None` to suppress it, too.
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
