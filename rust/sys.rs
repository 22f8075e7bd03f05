// SPDX-License-Identifier: GPL-2.0

//! Small services of the core kernel: capabilities, CPU counts, random numbers, limited logging.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
};

/// A capability that a task may have.
///
/// C header: [`include/uapi/linux/capability.h`](srctree/include/uapi/linux/capability.h)
#[derive(Clone, Copy)]
pub struct Capability(c_int);

/// Configuring the system.
// CAST: The number is 21.
pub const CAP_SYS_ADMIN: Capability = Capability(bindings::CAP_SYS_ADMIN as c_int);

/// Returns whether the current task has `cap` in the initial user namespace. Process context.
pub fn capable(cap: Capability) -> bool {
    // SAFETY: `cap` can only be one of the constants above.
    unsafe { bindings::capable(cap.0) }
}

/// Returns the number of CPUs that are online, at least 1.
pub fn num_online_cpus() -> u32 {
    // SAFETY: It reads a counter.
    unsafe { bindings::srp_helper_num_online_cpus() }
}

/// Returns the number of NUMA nodes that are online, at least 1.
pub fn num_online_nodes() -> u32 {
    // SAFETY: It reads a counter.
    unsafe { bindings::srp_helper_num_online_nodes() }
}

/// Returns the time of the monotonic clock in nanoseconds. Callable in any context.
pub fn monotonic_ns() -> i64 {
    // SAFETY: It only reads the clock.
    unsafe { bindings::ktime_get() }
}

/// Returns the seconds of the real-time clock since 1970. Callable in any context.
pub fn real_seconds() -> i64 {
    // SAFETY: It only reads the clock.
    unsafe { bindings::ktime_get_real_seconds() }
}

/// Waits until every RCU read-side section that runs now has ended; sleeps.
pub fn synchronize_rcu() {
    // SAFETY: It has no preconditions; a caller that must not sleep is told by lockdep.
    unsafe { bindings::synchronize_rcu() }
}

/// Returns 16 bits of the kernel's random number generator, which take a quarter of the time of 64. Callable
/// in any context.
pub fn random_u16() -> u16 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u16() }
}

/// Returns 32 bits of the kernel's random number generator. Callable in any context.
pub fn random_u32() -> u32 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u32() }
}

/// Returns 64 bits of the kernel's random number generator. Callable in any context.
pub fn random_u64() -> u64 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u64() }
}

/// Lets through [`RateLimit::BURST`] events in [`RateLimit::INTERVAL_SECS`] seconds, the rates of
/// `printk_ratelimited`.
///
/// C's `struct ratelimit_state` holds a spinlock that debug kernels want initialised at run time;
/// this one can be a static and does not lock.
pub struct RateLimit {
    /// When the interval began, in nanoseconds of the monotonic clock; 0 before the first event.
    begin: Atomic<i64>,
    /// Events let through in this interval.
    passed: Atomic<i32>,
    /// Events held back since the last report.
    missed: Atomic<i32>,
}

impl RateLimit {
    /// Events that may pass in one interval.
    pub const BURST: i32 = 10;
    /// The length of an interval, in seconds.
    pub const INTERVAL_SECS: i64 = 5;

    /// A limiter that has seen nothing.
    pub const fn new() -> Self {
        Self {
            begin: Atomic::new(0),
            passed: Atomic::new(0),
            missed: Atomic::new(0),
        }
    }

    /// Returns whether an event may pass now. Callable in any context but NMI.
    ///
    /// Says once per interval how many were held back before.
    pub fn allow(&self) -> bool {
        let (pass, missed) = self.allow_at(monotonic_ns());
        if missed > 0 {
            pr_warn!("{missed} messages like the next one were suppressed\n");
        }
        pass
    }

    /// As [`RateLimit::allow`] at the time `now`; the second value is how many to report.
    fn allow_at(&self, now: i64) -> (bool, i32) {
        let begin = self.begin.load(Relaxed);
        let over = begin == 0 || now.saturating_sub(begin) > Self::INTERVAL_SECS * 1_000_000_000;
        let mut missed = 0;
        // Only one of those who see the end of the interval begins the next one.
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
#[kunit_tests(srp_sys)]
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

    #[test]
    fn machine_has_a_cpu_and_a_node() {
        assert!(num_online_cpus() >= 1);
        assert!(num_online_nodes() >= 1);
        assert!(random_u64() != random_u64());
    }
}
