// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is held with softirqs disabled.
//!
//! The kernel crate has only spinlocks that leave interrupts alone or disable them.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::{new_spinlock_bh, SpinLockBh};
//! use kernel::prelude::*;
//!
//! #[pin_data]
//! struct Found {
//!     #[pin]
//!     count: SpinLockBh<u32>,
//! }
//!
//! impl Found {
//!     fn new() -> impl PinInit<Self> {
//!         pin_init!(Self {
//!             count <- new_spinlock_bh!(0, "Found::count"),
//!         })
//!     }
//!
//!     /// Does nothing if another task is already looking.
//!     fn look(&self, look: impl FnOnce() -> u32) {
//!         if let Some(mut count) = self.count.try_lock() {
//!             *count += look();
//!         }
//!     }
//! }
//! ```

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    },
};

/// Creates an initialiser of a [`SpinLockBh`] with its own lock class. The class is named by the
/// literal, if given, or else by the source location.
#[macro_export]
macro_rules! new_spinlock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::bh_lock::SpinLockBh::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_bh;

/// A `spinlock_t` that is held with the softirqs of this CPU disabled.
///
/// `lock()` is `spin_lock_bh`, dropping the guard is `spin_unlock_bh`. The lock may be taken in a
/// task or in a softirq, with interrupts enabled. Its owner must not sleep. With PREEMPT_RT the
/// owner can be preempted, and inherits the priority of tasks that sleep in `lock()`.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// The guard of a [`SpinLockBh`].
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// The [`Backend`] of [`SpinLockBh`].
pub struct SpinLockBhBackend;

// SAFETY: `spinlock_t` ensures mutual exclusion, and `relock` is the default implementation, which
// locks as `lock` does.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements `ptr` is valid for writes, and `name` and `key` stay
        // valid for reads.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        unsafe { bindings::srp_helper_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // Reading the lock first avoids taking its cache line from the owner.
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        if unsafe { bindings::srp_helper_spin_is_locked(ptr) } {
            return None;
        }
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        unsafe { bindings::srp_helper_spin_trylock_bh(ptr) }.then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, (): &Self::GuardState) {
        // SAFETY: By the safety requirements the caller owns the lock.
        unsafe { bindings::srp_helper_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_bh_lock)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn lock_waits_for_its_turn_and_try_lock_does_not() -> Result {
        let lock = Arc::pin_init(new_spinlock_bh!(0, "srp_test_bh"), GFP_KERNEL)?;

        let mut held = lock.lock();
        *held += 1;
        let second = lock.try_lock().is_some();
        drop(held);
        let third = lock.try_lock().map(|guard| *guard);

        assert!(!second);
        assert_eq!(third, Some(1));
        assert_eq!(*lock.lock(), 1);
        Ok(())
    }
}
