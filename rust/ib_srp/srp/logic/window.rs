// SPDX-License-Identifier: GPL-2.0

//! Counters of events within a minute.

use super::time::Ktime;

/// Length of a window: a minute, in nanoseconds.
const WINDOW_NS: i64 = 60_000_000_000;

/// Counts events in windows of a minute, each of which begins with an event. By default, no event
/// has occurred.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Window {
    since: Ktime,
    count: u32,
}

impl Window {
    /// Maximum number of messages that are logged in a window.
    pub const LOGGED: u32 = 10;

    /// Counts an event at the time `now`, and returns the number of events in its window.
    pub const fn add(&mut self, now: Ktime) -> u32 {
        if self.count == 0 || now.ns_since(self.since) > WINDOW_NS {
            self.since = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
    /// Counts an event at the time `now`. Returns the number of messages suppressed since the last
    /// one that was logged, or [`None`] if the message of this event must be suppressed, too.
    pub const fn may_log(&mut self, now: Ktime) -> Option<u32> {
        let before = self.count;
        match self.add(now) {
            1 => Some(before.saturating_sub(Self::LOGGED)),
            2..=Self::LOGGED => Some(0),
            _ => None,
        }
    }
}
