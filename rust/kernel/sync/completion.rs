// SPDX-License-Identifier: GPL-2.0

//! Completions that can be waited for with a timeout and reused.
//!
//! The kernel crate's `Completion` has only `complete_all` and a wait without a timeout.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::Completion;
//! use kernel::prelude::*;
//!
//! /// Tries twice; each try ends with a call of `complete` in a callback.
//! fn twice(over: &Completion, begin: impl Fn()) -> Result {
//!     begin();
//!     if over.wait_timeout(1000).is_ok() {
//!         return Ok(());
//!     }
//!     // No callback of the first try runs from here on.
//!     over.reinit();
//!     begin();
//!     over.wait_timeout(1000)
//! }
//! ```

use crate::bindings;
use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
};

/// A `struct completion`.
///
/// The completion counts the calls of [`Completion::complete`] that no waiter has consumed yet.
///
/// # Invariants
///
/// `inner` has been initialised by `init_completion`.
#[pin_data]
pub struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A `struct completion` is not bound to a thread.
unsafe impl Send for Completion {}
// SAFETY: Every operation takes the lock of the `struct completion`.
unsafe impl Sync for Completion {}

impl Completion {
    /// Creates an initialiser of a [`Completion`] that is not complete.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: `init_completion` initialises it.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::init_completion(slot) }
            }),
        })
    }

    /// Wakes one waiter, a current one or the next. Callable in any context except NMI.
    #[inline]
    pub fn complete(&self) {
        // SAFETY: By the type invariant, `inner` is initialised.
        unsafe { bindings::complete(self.inner.get()) }
    }

    /// Wakes all waiters, the current ones and all that come before the next
    /// [`Completion::reinit`]. Callable in any context except NMI.
    #[inline]
    pub fn complete_all(&self) {
        // SAFETY: By the type invariant, `inner` is initialised.
        unsafe { bindings::complete_all(self.inner.get()) }
    }

    /// Resets the completion to incomplete, for the next use. Callable in any context except NMI.
    ///
    /// The caller must ensure that no `complete` of the last use is outstanding: it would count for
    /// the next use. A waiter that was woken and has not run yet continues to wait; where that can
    /// happen, use a [`WaitQueue`](super::WaitQueue).
    #[inline]
    pub fn reinit(&self) {
        // SAFETY: By the type invariant, `inner` is initialised.
        unsafe { bindings::srp_helper_reinit_completion(self.inner.get()) }
    }

    /// Returns whether a wait would return at once. Callable in any context except NMI.
    #[inline]
    pub fn is_done(&self) -> bool {
        // SAFETY: By the type invariant, `inner` is initialised.
        unsafe { bindings::completion_done(self.inner.get()) }
    }

    /// Waits without a timeout; sleeps uninterruptibly.
    ///
    /// Use this only for events that the kernel itself is certain to cause.
    #[inline]
    pub fn wait(&self) {
        // SAFETY: By the type invariant, `inner` is initialised.
        unsafe { bindings::wait_for_completion(self.inner.get()) }
    }

    /// Waits for at most `timeout` milliseconds; sleeps uninterruptibly.
    ///
    /// # Errors
    ///
    /// [`ETIMEDOUT`] if the completion is not complete by then.
    pub fn wait_timeout(&self, timeout: Msecs) -> Result {
        // SAFETY: By the type invariant, `inner` is initialised.
        let left = unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(timeout))
        };
        if left == 0 {
            Err(ETIMEDOUT)
        } else {
            Ok(())
        }
    }

    /// Waits for at most `timeout` milliseconds or until the task gets a signal; sleeps.
    ///
    /// # Errors
    ///
    /// [`ETIMEDOUT`] if the completion is not complete by then, [`ERESTARTSYS`] after a signal.
    pub fn wait_interruptible_timeout(&self, timeout: Msecs) -> Result {
        // SAFETY: By the type invariant, `inner` is initialised.
        let left = unsafe {
            bindings::wait_for_completion_interruptible_timeout(
                self.inner.get(),
                msecs_to_jiffies(timeout),
            )
        };
        match left {
            0 => Err(ETIMEDOUT),
            1.. => Ok(()),
            // The only error that the C function returns.
            _ => Err(ERESTARTSYS),
        }
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_completion)]
mod tests {
    use super::*;
    use kernel::{
        sync::Arc,
        time::{
            Instant,
            Monotonic, //
        },
    };

    fn completion() -> Result<Arc<Completion>> {
        Arc::pin_init(Completion::new(), GFP_KERNEL)
    }

    #[test]
    fn times_out() -> Result {
        let c = completion()?;
        let start = Instant::<Monotonic>::now();
        assert_eq!(c.wait_timeout(20), Err(ETIMEDOUT));
        assert!(start.elapsed().as_millis() >= 10);
        assert_eq!(c.wait_interruptible_timeout(1), Err(ETIMEDOUT));
        Ok(())
    }

    #[test]
    fn complete_counts_waits() -> Result {
        let c = completion()?;
        c.complete();
        c.complete();
        assert!(c.is_done());
        assert_eq!(c.wait_timeout(1000), Ok(()));
        assert_eq!(c.wait_interruptible_timeout(1000), Ok(()));
        assert_eq!(c.wait_timeout(1), Err(ETIMEDOUT));
        Ok(())
    }

    #[test]
    fn complete_all_lasts_until_reinit() -> Result {
        let c = completion()?;
        c.complete_all();
        c.wait();
        assert_eq!(c.wait_timeout(1000), Ok(()));
        c.reinit();
        assert!(!c.is_done());
        assert_eq!(c.wait_timeout(1), Err(ETIMEDOUT));
        Ok(())
    }
}
