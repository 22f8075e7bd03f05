// SPDX-License-Identifier: GPL-2.0

//! Events of a session, counted from the login on, over all its connections.

use core::fmt;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// A monotonic counter. Any context.
pub struct Count(Atomic<u64>);

impl Count {
    /// Creates a counter that is zero.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// The present count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds 1.
    pub fn increment(&self) {
        self.0.add(1, Relaxed);
    }

    /// Adds `n` by a load and a store. Concurrent calls may lose counts.
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

/// The counters of a session that do not belong to a channel.
pub struct Statistics {
    /// Number of lost connections, including those that a reconnect had just made.
    pub connections_lost: Count,
    /// Number of logins: the first one and each attempt to reconnect.
    pub login_tries: Count,
    /// Number of aborts by the error handler.
    pub aborts: Count,
    /// Number of resets of a logical unit.
    pub device_resets: Count,
    /// Number of resets of the host, which end the connection.
    pub host_resets: Count,
    /// Number of connections lost to protocol violations by the target or by a node that answers
    /// for it.
    pub violations: Count,
}

impl Statistics {
    /// Creates the counters, all zero.
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
