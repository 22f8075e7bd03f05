// SPDX-License-Identifier: GPL-2.0

//! A timer that is a field of a reference-counted object, and calls that object in softirq context.
//!
//! A start of the kernel crate's `HrTimer` returns a handle that must be kept. Its drop cancels the
//! timer and waits for the callback, which a softirq must not do. Here a start owns the object
//! until the timer has expired, so a softirq or the callback can start the timer.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use crate::{
    bindings,
    compat::NO_RESTART, //
};
use core::{
    marker::PhantomData,
    ptr::null_mut, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    types::Opaque, //
};

#[cfg(SRP_KUNIT)]
mod tests;

/// An object with a timer.
pub trait Expire: Send + Sync + 'static {
    /// The timer has expired. Softirq context.
    fn expired(self: Arc<Self>);
}

/// A timer.
///
/// # Invariants
///
/// `owner` is null or owns a reference, that of the one start that has not expired yet. It is not
/// null while the timer is queued: the reference is taken out only after dequeuing the timer, or by
/// the callback.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub struct Timer<T: Expire> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    owner: Atomic<*mut T>,
    _owner: PhantomData<Arc<T>>,
}

// SAFETY: A timer is not bound to a thread.
unsafe impl<T: Expire> Send for Timer<T> {}
// SAFETY: Only the context that takes `owner` out has the reference.
unsafe impl<T: Expire> Sync for Timer<T> {}

impl<T: Expire> Timer<T> {
    /// Creates a stopped timer.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is valid for writes and is pinned.
                unsafe {
                    bindings::srp_vfab_hrtimer_setup(
                        slot,
                        Some(expired::<T>),
                        bindings::hrtimer_mode_HRTIMER_MODE_REL_SOFT,
                    )
                };
            }),
            owner: Atomic::new(null_mut()),
            _owner: PhantomData,
        })
    }

    /// Calls [`Expire::expired`] of `owner`, which must contain this timer, in `ns` nanoseconds.
    /// Does nothing if a start is pending, or with another owner, which would not keep the timer
    /// alive.
    pub fn start(&self, owner: Arc<T>, ns: u64) {
        let begin = Arc::as_ptr(&owner).cast::<Self>();
        let end = Arc::as_ptr(&owner).wrapping_add(1).cast::<Self>();
        if !(begin..end).contains(&core::ptr::from_ref(self)) {
            return;
        }
        let owner = Arc::into_raw(owner).cast_mut();
        if self.owner.cmpxchg(null_mut(), owner, Full).is_err() {
            // SAFETY: `owner` came from `Arc::into_raw` above, and was not stored.
            drop(unsafe { Arc::from_raw(owner) });
            return;
        }
        // INVARIANT: The reference is that of this start.
        // SAFETY: The timer is initialised, and `owner` keeps it alive until it has expired or was
        // cancelled.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                i64::try_from(ns).unwrap_or(i64::MAX),
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_REL_SOFT,
            )
        };
    }

    /// Cancels earlier starts: none of them calls back after this. Waits for a running callback. A
    /// concurrent start may take effect after this. Sleeps.
    pub fn cancel(&self) {
        // SAFETY: The timer is initialised.
        let queued = unsafe { bindings::hrtimer_cancel(self.timer.get()) } != 0;
        // If the timer was not queued, the reference belongs to a start that is about to queue it,
        // or a callback has taken it.
        if queued {
            drop(self.owner());
        }
    }

    /// Takes the reference out. The caller has dequeued the timer.
    fn owner(&self) -> Option<Arc<T>> {
        let owner = self.owner.xchg(null_mut(), Full);
        #[cfg(SRP_KUNIT)]
        if owner.is_null() {
            tests::queued_without_owner();
        }
        // SAFETY: `owner` owns a reference, which this call alone has taken out.
        (!owner.is_null()).then(|| unsafe { Arc::from_raw(owner) })
    }
}

#[pinned_drop]
impl<T: Expire> PinnedDrop for Timer<T> {
    fn drop(self: Pin<&mut Self>) {
        // By the type invariant the timer is not queued. Its callback may be at its last
        // instructions, in this drop or after it: neither it nor `__run_hrtimer()` accesses the
        // timer then.
        // SAFETY: The timer is initialised.
        unsafe { bindings::hrtimer_try_to_cancel(self.timer.get()) };
    }
}

/// # Safety
///
/// `timer` is a field of a `Timer<T>`.
unsafe extern "C" fn expired<T: Expire>(
    timer: *mut bindings::hrtimer,
) -> bindings::hrtimer_restart {
    let this = timer.cast::<Opaque<bindings::hrtimer>>();
    // SAFETY: `timer` is a field of a `Timer<T>`, which the reference of the start keeps alive.
    let this = unsafe { &*kernel::container_of!(this, Timer<T>, timer) };
    if let Some(owner) = this.owner() {
        owner.expired();
    }
    NO_RESTART
}
