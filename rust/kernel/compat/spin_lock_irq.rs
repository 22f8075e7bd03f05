// SPDX-License-Identifier: GPL-2.0

//! The kernel crate's `SpinLockIrq`, for kernels whose crate does not have one.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

/// Creates an initialiser of a [`SpinLockIrq`] with its own lock class. The class is named by the
/// literal, if given, or else by the source location.
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::compat::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_irq;

/// A `spinlock_t` that is held with the interrupts of this CPU disabled.
///
/// The lock may be taken in any context except NMI, and its owner must not sleep. Nested guards
/// must be dropped in reverse order, because each restores the interrupt state that it found.
///
/// With PREEMPT_RT interrupts stay enabled, and the owner can be preempted. Interrupt handlers are
/// threads there, and may take the lock. The lock must not be taken with interrupts disabled or a
/// raw spinlock held.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// The backend of [`SpinLockIrq`]: `spin_lock_irqsave` and `spin_unlock_irqrestore`.
pub struct SpinLockIrqBackend;

// SAFETY: `spinlock_t` ensures mutual exclusion, and `relock` is the default implementation, which
// locks as `lock` does.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements `ptr` is valid for writes, and `name` and `key` stay
        // valid for reads.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        unsafe { bindings::srp_helper_spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock; `flags` is a local.
        unsafe { bindings::srp_helper_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: By the safety requirements the caller owns the lock, and `guard_state` is what
        // locking it returned.
        unsafe { bindings::srp_helper_spin_unlock_irqrestore(ptr, *guard_state) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements `ptr` is an initialised spinlock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_irq_lock)]
mod tests {
    use super::*;
    use crate::compat;
    use kernel::sync::Arc;

    fn irqs_disabled() -> bool {
        // SAFETY: Reading the interrupt flag has no preconditions.
        unsafe { bindings::srp_helper_irqs_disabled() }
    }

    #[test]
    fn disables_and_restores_interrupts() -> Result {
        let outer = Arc::pin_init(new_spinlock_irq!(1, "srp_test_outer"), GFP_KERNEL)?;
        let inner = Arc::pin_init(new_spinlock_irq!(2, "srp_test_inner"), GFP_KERNEL)?;

        let mut a = outer.lock();
        let held = irqs_disabled();
        let b = inner.lock();
        let nested = irqs_disabled();
        *a += *b;
        drop(b);
        let after_inner = irqs_disabled();
        let sum = *a;
        drop(a);

        let disables = !compat::PREEMPTIBLE_SPINLOCKS;
        assert_eq!((held, nested, after_inner), (disables, disables, disables));
        assert!(!irqs_disabled());
        assert_eq!(sum, 3);
        Ok(())
    }

    #[test]
    fn try_lock_fails_while_held() -> Result {
        let lock = Arc::pin_init(new_spinlock_irq!((), "srp_test_try"), GFP_KERNEL)?;

        let held = lock.lock();
        let second = lock.try_lock().is_some();
        drop(held);
        let off = irqs_disabled();
        let third = lock.try_lock().is_some();

        assert!(!second);
        assert!(!off);
        assert!(third);
        Ok(())
    }
}
