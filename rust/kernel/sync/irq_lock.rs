// SPDX-License-Identifier: GPL-2.0

//! A spinlock for data that interrupt and softirq handlers also access.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::{new_spinlock_irq, SpinLockIrq};
//! use kernel::prelude::*;
//!
//! #[pin_data]
//! struct Errors {
//!     #[pin]
//!     last: SpinLockIrq<Option<Error>>,
//! }
//!
//! impl Errors {
//!     fn new() -> impl PinInit<Self> {
//!         pin_init!(Self {
//!             last <- new_spinlock_irq!(None, "Errors::last"),
//!         })
//!     }
//!
//!     /// Interrupt context.
//!     fn note(&self, error: Error) {
//!         *self.last.lock() = Some(error);
//!     }
//!
//!     /// Process context.
//!     fn take(&self) -> Option<Error> {
//!         self.last.lock().take()
//!     }
//! }
//! ```

use crate::compat::SpinLockIrqBackend;
use kernel::sync::lock::{
    Guard,
    Lock, //
};

/// Creates a [`SpinLockIrq`] initialiser with a lock class of its own, named by the literal if one
/// is given and otherwise after the place in the source.
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::irq_lock::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_irq;

/// A `spinlock_t` that is held with the interrupts of this CPU disabled.
///
/// It is the kernel crate's type, if there is one. It may be taken in any context except NMI, and
/// its owner must not sleep. Nested guards must be dropped in reverse order: unless the type is the
/// kernel crate's, each guard restores the interrupt state that it found.
///
/// With PREEMPT_RT interrupts stay enabled, and the owner can be preempted. Interrupt handlers are
/// threads there, and may take the lock. It must not be taken with interrupts disabled or a raw
/// spinlock held.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// The guard of a [`SpinLockIrq`].
pub type SpinLockIrqGuard<'a, T> = Guard<'a, T, SpinLockIrqBackend>;

#[cfg(SRP_KUNIT)]
#[kernel::prelude::kunit_tests(srp_irq_lock)]
mod tests {
    use super::*;
    use crate::{
        bindings,
        compat, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

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
    fn guards_go_in_any_order() -> Result {
        if !compat::IRQ_GUARDS_IN_ANY_ORDER {
            return Ok(());
        }
        let first = Arc::pin_init(new_spinlock_irq!((), "srp_test_first"), GFP_KERNEL)?;
        let second = Arc::pin_init(new_spinlock_irq!((), "srp_test_second"), GFP_KERNEL)?;

        let a = first.lock();
        let b = second.lock();
        drop(a);
        let held = irqs_disabled();
        drop(b);
        let off = irqs_disabled();
        // SAFETY: A test runs with interrupts enabled, and holds nothing now.
        unsafe { bindings::srp_helper_local_irq_enable() };

        assert_eq!(held, !compat::PREEMPTIBLE_SPINLOCKS);
        assert!(!off);
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
