// SPDX-License-Identifier: GPL-2.0

//! Points in time, and how long the driver waits for a target.

/// A time of the monotonic clock, like C's `ktime_t`. The default is the time of the boot.
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

/// Milliseconds of silence of the target after which a login is given up, unless the target has
/// asked for more time. The connection managers repeat a request about every 4 s, so a new
/// login only helps if another machine has taken over the target's address.
pub const LOGIN_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds of silence after which the peer of an answer channel is left out. A request is
/// repeated once in that time.
pub const ANSWER_CHANNEL_TIMEOUT_MS: u32 = 5_000;
/// Timeout of a command to a disk, in milliseconds, unless the transport retries for longer. After
/// it, error handling begins.
pub const DISK_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds after which a task management request without a response has failed.
pub const TSK_MGMT_TIMEOUT_MS: u32 = 5_000;
/// Milliseconds after which the lookup of an address or route is given up. ARP sends three
/// requests, a second apart.
pub const RESOLVE_TIMEOUT_MS: u32 = 3_500;
/// Maximum wait for a logout to be sent, in milliseconds.
pub const LOGOUT_TIMEOUT_MS: u32 = 1_000;
