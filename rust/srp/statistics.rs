// SPDX-License-Identifier: GPL-2.0

//! What happens to a session, counted from the login on, over all its connections.

use core::fmt;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// A number that never goes back. Any context.
pub struct Count(Atomic<u64>);

impl Count {
    /// Nothing was counted.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// What was counted.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts one more.
    pub fn increment(&self) {
        self.0.add(1, Relaxed);
    }

    /// Counts `n` more, with no atomic operation: one caller at a time, or some of it is not counted.
    #[inline(always)]
    pub fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The counts of a session that do not belong to a channel.
pub struct Statistics {
    /// Connections that were lost, those among them that a try to reconnect had just made.
    pub connections_lost: Count,
    /// Logins, the first one and each try to reconnect.
    pub login_tries: Count,
    /// Commands that the error handler wanted back.
    pub aborts: Count,
    /// Resets of a unit.
    pub device_resets: Count,
    /// Resets of the host, which end the connection.
    pub host_resets: Count,
    /// Connections that were lost because the target broke the protocol.
    pub violations: Count,
}

impl Statistics {
    /// Nothing has happened.
    pub(super) const fn new() -> Self {
        Self {
            connections_lost: Count::new(),
            login_tries: Count::new(),
            aborts: Count::new(),
            device_resets: Count::new(),
            host_resets: Count::new(),
            violations: Count::new(),
        }
    }
}
