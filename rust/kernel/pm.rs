// SPDX-License-Identifier: GPL-2.0

//! Notification of the end of system sleep: suspend and hibernation.
//!
//! C header: [`include/linux/suspend.h`](srctree/include/linux/suspend.h)

use crate::bindings;
use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Handles the event of a [`Notifier`].
///
/// The handler runs in process context, in the task that puts the system to sleep. This task holds
/// the semaphore of the notifier chain for reading, and usually `system_transition_mutex`. The
/// handler may sleep, but the system waits for it. It must not create or drop a [`Notifier`].
///
/// Not supported: notification before the system sleeps.
pub trait SleepHandler: Send + Sync + 'static {
    /// Called when the system has woken up or has failed to sleep. Devices work and processes are
    /// thawed.
    fn resumed(&self);
}

/// Calls a handler when the system wakes up.
///
/// Without `CONFIG_PM_SLEEP` there is no sleep and no call.
///
/// Dropping the notifier waits for running calls of the handler; none begin afterwards. The chain
/// calls the handler with its semaphore held for reading, and the drop removes the notifier with
/// the semaphore held for writing. The drop sleeps. It must not happen in a handler, or with a lock
/// held that a handler takes.
///
/// # Invariants
///
/// `block` is in the chain of PM notifiers, with [`Notifier::call`] as its function.
#[pin_data(PinnedDrop)]
pub struct Notifier<T: SleepHandler> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    handler: Arc<T>,
}

// SAFETY: A notifier is not bound to a thread, and `T` is `Send` and `Sync`.
unsafe impl<T: SleepHandler> Send for Notifier<T> {}
// SAFETY: A shared reference to a notifier gives access to nothing.
unsafe impl<T: SleepHandler> Sync for Notifier<T> {}

impl<T: SleepHandler> Notifier<T> {
    /// Registers `handler`, which can be called before this returns. Sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `register_pm_notifier`, which has none for a new notifier.
    pub fn new(handler: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            handler,
            // INVARIANT: `block` is registered here, at its final address. This comes last, because
            // `call` uses `handler`.
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block {
                    notifier_call: Some(Self::call),
                    ..Default::default()
                };
                // SAFETY: `slot` is valid for writing.
                unsafe { slot.write(block) };
                // SAFETY: `slot` is initialised, and is pinned until `drop` has removed it from the
                // chain.
                to_result(unsafe { bindings::srp_helper_register_pm_notifier(slot) })
            }),
        }? Error)
    }

    /// # Safety
    ///
    /// Only the chain of PM notifiers may call this, with the block of a registered `Notifier<T>`.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        action: c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        let block: *const Opaque<bindings::notifier_block> = Opaque::cast_from(block);
        // SAFETY: By the safety requirements, `block` is that of a `Notifier<T>`.
        let this = unsafe { container_of!(block.cast_mut(), Self, block) };
        // SAFETY: The handler was set before the block was registered, and stays until `drop` has
        // waited for this call.
        let handler = unsafe { &(*this).handler };
        if let Ok(
            bindings::PM_POST_SUSPEND | bindings::PM_POST_HIBERNATION | bindings::PM_POST_RESTORE,
        ) = u32::try_from(action)
        {
            handler.resumed();
        }
        // CAST: The constant is 0.
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<T: SleepHandler> PinnedDrop for Notifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant, `block` is in the chain.
        unsafe { bindings::srp_helper_unregister_pm_notifier(self.block.get()) };
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_pm)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    struct Resumed(Atomic<i32>);

    impl SleepHandler for Resumed {
        fn resumed(&self) {
            self.0.add(1, Relaxed);
        }
    }

    impl Resumed {
        fn new() -> Result<Arc<Self>> {
            Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
        }

        fn count(&self) -> i32 {
            self.0.load(Relaxed)
        }
    }

    fn register(handler: &Arc<Resumed>) -> Result<Pin<KBox<Notifier<Resumed>>>> {
        KBox::pin_init(Notifier::new(handler.clone()), GFP_KERNEL)
    }

    /// Calls the notifier as the chain does, and returns its result.
    fn tell(notifier: &Notifier<Resumed>, action: c_ulong) -> Option<c_int> {
        let block = notifier.block.get();
        // SAFETY: The notifier is registered.
        let call = unsafe { (*block).notifier_call }?;
        // SAFETY: `call` is the function of this block.
        Some(unsafe { call(block, action, core::ptr::null_mut()) })
    }

    #[test]
    fn actions() -> Result {
        let (one, other) = (Resumed::new()?, Resumed::new()?);
        let notifier = register(&one)?;
        let _other = register(&other)?;
        for (action, count) in [
            // PM_HIBERNATION_PREPARE, PM_POST_HIBERNATION
            (1, 0),
            (2, 1),
            // PM_SUSPEND_PREPARE, PM_POST_SUSPEND
            (3, 1),
            (4, 2),
            // PM_RESTORE_PREPARE, PM_POST_RESTORE
            (5, 2),
            (6, 3),
            // Not an action.
            (0, 3),
            (7, 3),
            (c_ulong::MAX, 3),
            (1 << 32 | 4, 3),
        ] {
            // The notifier returns NOTIFY_DONE: it never vetoes.
            assert_eq!(tell(&notifier, action), Some(0));
            assert_eq!(one.count(), count);
            assert_eq!(other.count(), 0);
        }
        Ok(())
    }

    #[test]
    fn drop_gives_the_handler_back() -> Result {
        let handler = Resumed::new()?;
        // If a drop did not remove its block, the chain would contain freed memory.
        for _ in 0..3 {
            let notifier = register(&handler)?;
            assert!(tell(&notifier, 4).is_some());
        }
        assert_eq!(handler.count(), 3);
        assert!(Arc::into_unique_or_drop(handler).is_some());
        Ok(())
    }
}
