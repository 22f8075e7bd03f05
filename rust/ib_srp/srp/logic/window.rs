// SPDX-License-Identifier: GPL-2.0

//! Counters of events within a minute.

use super::time::Ktime;

/// Length of a window: a minute, in nanoseconds.
const WINDOW_NS: i64 = 60_000_000_000;

/// Counts events in windows of a minute, each of which begins with an event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Window {
    since: Ktime,
    count: u32,
}

impl Window {
    /// Returns an empty counter.
    pub const fn new() -> Self {
        Self {
            since: Ktime::from_ns(0),
            count: 0,
        }
    }

    /// Counts an event at the time `now`, and returns the number of events in its window.
    pub const fn add(&mut self, now: Ktime) -> u32 {
        if self.count == 0 || now.ns_since(self.since) > WINDOW_NS {
            self.since = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

/// Limits the log messages that a target can cause in its session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Budget {
    said: Window,
    suppressed: u32,
}

impl Budget {
    /// Maximum number of messages per minute.
    pub const MAX: u32 = 10;

    /// Returns a full budget.
    pub const fn new() -> Self {
        Self {
            said: Window::new(),
            suppressed: 0,
        }
    }

    /// Whether a message may be logged at the time `now`: returns how many were suppressed before
    /// it, or [`None`] if it must be suppressed, too.
    pub const fn spend(&mut self, now: Ktime) -> Option<u32> {
        if self.said.add(now) > Self::MAX {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        let suppressed = self.suppressed;
        self.suppressed = 0;
        Some(suppressed)
    }
}
