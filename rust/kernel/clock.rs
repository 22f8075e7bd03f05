// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks, as plain numbers.
//!
//! C header: [`include/linux/timekeeping.h`](srctree/include/linux/timekeeping.h)

use crate::bindings;

/// Returns the time of the monotonic clock in nanoseconds. Callable in any context.
pub fn monotonic_ns() -> i64 {
    // SAFETY: The function only reads the clock.
    unsafe { bindings::ktime_get() }
}

/// Returns the seconds of the real-time clock since 1970. Callable in any context.
pub fn real_seconds() -> i64 {
    // SAFETY: The function only reads the clock.
    unsafe { bindings::ktime_get_real_seconds() }
}
