// SPDX-License-Identifier: GPL-2.0

//! Rate-limited logging.
//!
//! The kernel crate has no limit for its `pr_warn!`.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    time::{
        ClockSource,
        Monotonic, //
    }, //
};

/// Lets through [`RateLimit::BURST`] events in [`RateLimit::INTERVAL_SECS`] seconds, as
/// `printk_ratelimited` does by default.
///
/// C's `struct ratelimit_state` has a spinlock that debug kernels require to be initialised at run
/// time; this type can be a static and does not lock.
pub struct RateLimit {
    /// Start of the interval, in nanoseconds of the monotonic clock; 0 before the first event.
    begin: Atomic<i64>,
    /// Number of events let through in this interval.
    passed: Atomic<i32>,
    /// Number of events suppressed since the last report.
    missed: Atomic<i32>,
}

impl RateLimit {
    /// Maximum number of events that pass in one interval.
    pub const BURST: i32 = 10;
    /// The length of an interval, in seconds.
    pub const INTERVAL_SECS: i64 = 5;

    /// Creates a limiter without events.
    pub const fn new() -> Self {
        Self {
            begin: Atomic::new(0),
            passed: Atomic::new(0),
            missed: Atomic::new(0),
        }
    }

    /// Returns whether an event may pass now. Callable in any context except NMI.
    ///
    /// Logs, once per interval, the number of events that were suppressed in earlier intervals.
    pub fn allow(&self) -> bool {
        let (pass, missed) = self.allow_at(Monotonic::ktime_get());
        if missed > 0 {
            pr_warn!("{missed} messages like the next one were suppressed\n");
        }
        pass
    }

    /// As [`RateLimit::allow`] at the time `now`, in nanoseconds; the second value is the number of
    /// suppressed events to report.
    fn allow_at(&self, now: i64) -> (bool, i32) {
        let begin = self.begin.load(Relaxed);
        let over = begin == 0 || now.saturating_sub(begin) > Self::INTERVAL_SECS * 1_000_000_000;
        let mut missed = 0;
        // Only one of the callers that see the end of the interval begins the next one.
        if over && self.begin.cmpxchg(begin, now, Full).is_ok() {
            self.passed.store(0, Relaxed);
            missed = self.missed.xchg(0, Relaxed);
        }
        if self.passed.load(Relaxed) < Self::BURST
            && self.passed.fetch_add(1, Relaxed) < Self::BURST
        {
            return (true, missed);
        }
        self.missed.add(1, Relaxed);
        (false, missed)
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_ratelimit)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn rate_limit_passes_a_burst_per_interval() {
        let limit = RateLimit::new();
        for i in 0..RateLimit::BURST {
            assert_eq!(limit.allow_at(SECOND + i64::from(i)), (true, 0));
        }
        assert_eq!(limit.allow_at(2 * SECOND), (false, 0));
        assert_eq!(limit.allow_at(6 * SECOND), (false, 0));
        assert_eq!(limit.allow_at(6 * SECOND + 1), (true, 2));
        assert_eq!(limit.allow_at(6 * SECOND + 2), (true, 0));
    }
}
