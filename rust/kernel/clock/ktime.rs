// SPDX-License-Identifier: GPL-2.0

//! Points in time.

/// A time of the monotonic clock, like C's `ktime_t`. The default is the time of boot.
///
/// C header: `include/linux/ktime.h`
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ktime(i64);

impl Ktime {
    /// The earliest time.
    pub const MIN: Self = Self(i64::MIN);

    /// Returns the time this many nanoseconds after boot.
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since boot.
    pub const fn to_ns(self) -> i64 {
        self.0
    }

    /// Adds milliseconds. Saturates at the latest time.
    pub const fn add_ms(self, ms: u32) -> Self {
        Self(self.0.saturating_add(ms as i64 * 1_000_000))
    }

    /// Nanoseconds since `earlier`; negative if `earlier` is later.
    pub const fn ns_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds since `earlier`, at most `u32::MAX`; 0 if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u32 {
        match self.ns_since(earlier) / 1_000_000 {
            ..=0 => 0,
            ms if ms > u32::MAX as i64 => u32::MAX,
            // CAST: At most `u32::MAX`.
            ms => ms as u32,
        }
    }
}
