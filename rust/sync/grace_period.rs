// SPDX-License-Identifier: GPL-2.0

//! RCU grace periods, also one for many.
//!
//! C header: [`include/linux/rcutree.h`](srctree/include/linux/rcutree.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::GracePeriod;
//!
//! /// All wait for the same grace period, instead of one after the other.
//! fn free_all(objects: impl Iterator<Item = (GracePeriod, impl FnOnce())>) {
//!     for (period, free) in objects {
//!         period.wait();
//!         free();
//!     }
//! }
//!
//! /// Nobody finds the object from here on.
//! fn unlink(unlink: impl FnOnce()) -> GracePeriod {
//!     unlink();
//!     GracePeriod::begin()
//! }
//! ```

use crate::bindings;
use kernel::ffi::c_ulong;

/// Waits until every RCU read-side section that runs now has ended; sleeps.
pub fn synchronize_rcu() {
    // SAFETY: It has no preconditions; a caller that must not sleep is told by lockdep.
    unsafe { bindings::synchronize_rcu() }
}

/// A grace period that has begun. Whoever is in a read-side section now has left it when
/// [`GracePeriod::wait`] returns.
#[must_use]
#[derive(Clone, Copy)]
pub struct GracePeriod(c_ulong);

impl GracePeriod {
    /// Begins one, or joins the next one. Callable in any context.
    pub fn begin() -> Self {
        // SAFETY: It has no preconditions.
        Self(unsafe { bindings::start_poll_synchronize_rcu() })
    }

    /// Waits for its end, which may have come already; sleeps.
    pub fn wait(self) {
        // SAFETY: It has no preconditions but the context, of which lockdep tells.
        unsafe { bindings::cond_synchronize_rcu(self.0) }
    }
}
