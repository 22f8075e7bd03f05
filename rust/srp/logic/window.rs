// SPDX-License-Identifier: GPL-2.0

//! Counters of what happens within a minute.

use super::ktime::Ktime;

/// In nanoseconds: a minute.
const WINDOW_NS: i64 = 60_000_000_000;

/// Counts events in windows of [`WINDOW_NS`], each of which begins with an event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Window {
    since: Ktime,
    count: u32,
}

impl Window {
    const fn new() -> Self {
        Self {
            since: Ktime::from_ns(0),
            count: 0,
        }
    }

    /// Counts an event at the time `now`, and returns the number in its window.
    const fn add(&mut self, now: Ktime) -> u32 {
        if self.count == 0 || now.ns_since(self.since) > WINDOW_NS {
            self.since = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

/// Counts protocol violations, to give up on a target that repeats them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Strikes(Window);

impl Strikes {
    /// This many violations within a minute are too many.
    pub const MAX: u32 = 5;

    /// No violation so far.
    pub const fn new() -> Self {
        Self(Window::new())
    }

    /// Counts a violation at the time `now`. Once there were too many, that is never forgotten.
    pub const fn add(&mut self, now: Ktime) {
        if !self.is_out() {
            self.0.add(now);
        }
    }

    /// Whether there were too many violations within a minute.
    pub const fn is_out(&self) -> bool {
        self.0.count >= Self::MAX
    }
}

/// Limits the log messages of a session that its target can repeat.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Budget {
    said: Window,
    suppressed: u32,
}

impl Budget {
    /// Messages per minute.
    pub const MAX: u32 = 10;

    /// No message so far.
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
