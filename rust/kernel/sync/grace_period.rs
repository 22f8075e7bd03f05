// SPDX-License-Identifier: GPL-2.0

//! RCU grace periods, which many objects can share.
//!
//! The kernel crate has `synchronize_rcu`, which begins a grace period for each call.
//!
//! C header: [`include/linux/rcutree.h`](srctree/include/linux/rcutree.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::GracePeriod;
//!
//! /// All objects share a grace period, instead of one grace period each.
//! fn free_all(objects: impl Iterator<Item = (GracePeriod, impl FnOnce())>) {
//!     for (period, free) in objects {
//!         period.wait();
//!         free();
//!     }
//! }
//!
//! /// New readers do not find the object from here on.
//! fn unlink(unlink: impl FnOnce()) -> GracePeriod {
//!     unlink();
//!     GracePeriod::begin()
//! }
//! ```

use crate::bindings;
use kernel::ffi::c_ulong;

/// A grace period. Every RCU read-side critical section that was running at [`GracePeriod::begin`]
/// has ended when [`GracePeriod::wait`] returns.
#[must_use]
#[derive(Clone, Copy)]
pub struct GracePeriod(c_ulong);

impl GracePeriod {
    /// Begins a grace period, or joins the next one. Callable in any context.
    pub fn begin() -> Self {
        // SAFETY: The function has no preconditions.
        Self(unsafe { bindings::start_poll_synchronize_rcu() })
    }

    /// Waits until the grace period has ended, which may already be the case; sleeps.
    pub fn wait(self) {
        // SAFETY: The function has no precondition except that it may sleep, which lockdep checks.
        unsafe { bindings::cond_synchronize_rcu(self.0) }
    }
}
