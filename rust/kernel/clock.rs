// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks, and times that threads share.
//!
//! C header: [`include/linux/timekeeping.h`](srctree/include/linux/timekeeping.h)

pub mod ktime;

use kernel::{
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        ClockSource,
        Monotonic,
        RealTime,
        NSEC_PER_SEC, //
    }, //
};
use ktime::Ktime;

/// The current time. Any context.
pub fn ktime_get() -> Ktime {
    Ktime::from_ns(Monotonic::ktime_get())
}

/// The seconds of the real-time clock since 1970. Any context.
pub fn real_seconds() -> i64 {
    RealTime::ktime_get() / NSEC_PER_SEC
}

/// A time that any thread may read and set. Accesses are relaxed.
pub struct AtomicKtime(Atomic<i64>);

impl AtomicKtime {
    /// Creates an atomic time with this value.
    pub const fn new(time: Ktime) -> Self {
        Self(Atomic::new(time.to_ns()))
    }

    /// The time.
    pub fn load(&self) -> Ktime {
        Ktime::from_ns(self.0.load(Relaxed))
    }

    /// Sets the time to `time`.
    pub fn store(&self, time: Ktime) {
        self.0.store(time.to_ns(), Relaxed);
    }

    /// Sets the time to `time` if it equals `from`. Returns whether the time was set.
    pub fn replace(&self, from: Ktime, time: Ktime) -> bool {
        let (from, time) = (from.to_ns(), time.to_ns());
        self.0.cmpxchg(from, time, Relaxed).is_ok()
    }
}
