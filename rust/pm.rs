// SPDX-License-Identifier: GPL-2.0

//! Notification of system sleep: suspend and hibernation.
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

/// Takes what a [`Notifier`] tells.
///
/// Both functions are called in process context, in the task that puts the system to sleep, with
/// the semaphore of the notifier chain held for reading and mostly `system_transition_mutex`. They
/// may sleep, but the system waits for them. They must not make or drop a [`Notifier`].
///
/// A `suspending` is followed by one `resumed`, also if the system does not sleep after all, but
/// for two cases: a `resumed` may come alone, when the handler was registered in between or when
/// the restoring of an image failed; and when opening `/dev/snapshot` fails for lack of memory,
/// none comes. So neither may rely on the other.
pub trait SleepHandler: Send + Sync + 'static {
    /// The system is going to suspend or hibernate. Processes run, and devices work.
    ///
    /// Disks are still written to afterwards: file systems are synced, and an image is stored.
    fn suspending(&self);

    /// The system is awake again, or has not slept after all. Devices work again and processes
    /// have been thawed.
    fn resumed(&self);
}

/// A handler that is told when the system goes to sleep and when it wakes up.
///
/// Without `CONFIG_PM_SLEEP` there is no sleep, and nothing is told.
///
/// Dropping it waits for the calls of the handler that are running, and none begin after it: they
/// are made with the semaphore of the notifier chain held for reading, and the drop takes the
/// notifier out with the semaphore held for writing. It sleeps, and must not happen in a handler,
/// nor with a lock held that a handler takes.
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
// SAFETY: A shared notifier gives access to nothing.
unsafe impl<T: SleepHandler> Sync for Notifier<T> {}

impl<T: SleepHandler> Notifier<T> {
    /// Registers `handler`, which can be called before this returns. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `register_pm_notifier`, which has none for a notifier that is new.
    pub fn new(handler: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            handler,
            // INVARIANT: It is registered here, at its final address. This comes last, as `call`
            // uses the other field.
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block {
                    notifier_call: Some(Self::call),
                    ..Default::default()
                };
                // SAFETY: `slot` is valid for writing.
                unsafe { slot.write(block) };
                // SAFETY: It is initialised, and is pinned until `drop` has taken it out.
                to_result(unsafe { bindings::srp_helper_register_pm_notifier(slot) })
            }),
        }? Error)
    }

    /// # Safety
    ///
    /// Called by the chain of PM notifiers with the block of a `Notifier<T>` that is registered.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        action: c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        let block: *const Opaque<bindings::notifier_block> = Opaque::cast_from(block);
        // SAFETY: By the safety requirements.
        let this = unsafe { container_of!(block.cast_mut(), Self, block) };
        // SAFETY: The handler was set before the block was registered, and stays until `drop` has
        // waited for this call.
        let handler = unsafe { &(*this).handler };
        match u32::try_from(action) {
            Ok(bindings::PM_SUSPEND_PREPARE | bindings::PM_HIBERNATION_PREPARE) => {
                handler.suspending()
            }
            Ok(
                bindings::PM_POST_SUSPEND
                | bindings::PM_POST_HIBERNATION
                | bindings::PM_POST_RESTORE,
            ) => handler.resumed(),
            // The restoring of an image replaces this kernel, or fails.
            _ => {}
        }
        // CAST: It is 0.
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<T: SleepHandler> PinnedDrop for Notifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered.
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

    struct Counts {
        suspending: Atomic<i32>,
        resumed: Atomic<i32>,
    }

    impl SleepHandler for Counts {
        fn suspending(&self) {
            self.suspending.add(1, Relaxed);
        }

        fn resumed(&self) {
            self.resumed.add(1, Relaxed);
        }
    }

    impl Counts {
        fn new() -> Result<Arc<Self>> {
            let counts = Self {
                suspending: Atomic::new(0),
                resumed: Atomic::new(0),
            };
            Ok(Arc::new(counts, GFP_KERNEL)?)
        }

        fn get(&self) -> (i32, i32) {
            (self.suspending.load(Relaxed), self.resumed.load(Relaxed))
        }
    }

    fn register(counts: &Arc<Counts>) -> Result<Pin<KBox<Notifier<Counts>>>> {
        KBox::pin_init(Notifier::new(counts.clone()), GFP_KERNEL)
    }

    /// Calls what the chain would call, and returns its answer.
    fn tell(notifier: &Notifier<Counts>, action: c_ulong) -> Option<c_int> {
        let block = notifier.block.get();
        // SAFETY: The notifier is registered.
        let call = unsafe { (*block).notifier_call }?;
        // SAFETY: It is the function of this block.
        Some(unsafe { call(block, action, core::ptr::null_mut()) })
    }

    #[test]
    fn actions() -> Result {
        let (one, other) = (Counts::new()?, Counts::new()?);
        let notifier = register(&one)?;
        let _other = register(&other)?;
        for (action, counts) in [
            // PM_HIBERNATION_PREPARE, PM_POST_HIBERNATION
            (1, (1, 0)),
            (2, (1, 1)),
            // PM_SUSPEND_PREPARE, PM_POST_SUSPEND
            (3, (2, 1)),
            (4, (2, 2)),
            // PM_RESTORE_PREPARE, PM_POST_RESTORE
            (5, (2, 2)),
            (6, (2, 3)),
            // None at all
            (0, (2, 3)),
            (7, (2, 3)),
            (c_ulong::MAX, (2, 3)),
            (1 << 32 | 3, (2, 3)),
        ] {
            // NOTIFY_DONE: it never objects.
            assert_eq!(tell(&notifier, action), Some(0));
            assert_eq!(one.get(), counts);
            assert_eq!(other.get(), (0, 0));
        }
        Ok(())
    }

    #[test]
    fn drop_gives_the_handler_back() -> Result {
        let counts = Counts::new()?;
        // Where there is a chain, it would find an old block in it.
        for _ in 0..3 {
            let notifier = register(&counts)?;
            assert!(tell(&notifier, 4).is_some());
        }
        assert_eq!(counts.get(), (0, 3));
        assert!(Arc::into_unique_or_drop(counts).is_some());
        Ok(())
    }
}
