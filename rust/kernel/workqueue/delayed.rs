// SPDX-License-Identifier: GPL-2.0

//! Work items that run after a delay and can be cancelled before they run.
//!
//! [`kernel::workqueue::DelayedWork`] gets its queue only when it is scheduled, so nothing would
//! keep that queue alive until the timer fires. A [`Delayed`] has its queue from the start and
//! counts as a user of it while it is scheduled.

use super::Handle;
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    container_of,
    prelude::*,
    sync::{
        Arc,
        LockClassKey, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
};

/// Creates a [`Delayed`] initialiser with lock classes of its own: `new_delayed!(handle, "name")`.
#[macro_export]
macro_rules! new_delayed {
    ($queue:expr, $name:literal $(,)?) => {
        $crate::workqueue::Delayed::new(
            $queue,
            (::kernel::c_str!($name), ::kernel::static_lock_class!()),
            (
                ::kernel::c_str!(::core::concat!($name, "_timer")),
                ::kernel::static_lock_class!(),
            ),
        )
    };
}
pub use new_delayed;

/// The function of a [`Delayed`] field of `Self`.
pub trait DelayedItem<const ID: u64 = 0>: Send + Sync + Sized + 'static {
    /// Runs in process context, on the queue of the [`Delayed`].
    fn run(this: Arc<Self>);
}

/// Runs a [`DelayedItem`] later; a field of that item, initialised by [`new_delayed!`].
///
/// # Invariants
///
/// - `dwork` is initialised with `run_callback::<T, ID>` as its function.
/// - While it is pending, it owns one reference to the `Arc<T>` that contains it and counts as one
///   user of `queue`.
#[pin_data]
pub struct Delayed<T, const ID: u64 = 0> {
    #[pin]
    dwork: Opaque<bindings::delayed_work>,
    queue: Handle,
    _item: PhantomData<fn(T)>,
}

// SAFETY: A `struct delayed_work` is not bound to a thread.
unsafe impl<T, const ID: u64> Send for Delayed<T, ID> {}
// SAFETY: The functions on a `struct delayed_work` can be called concurrently.
unsafe impl<T, const ID: u64> Sync for Delayed<T, ID> {}

impl<T, const ID: u64> Delayed<T, ID>
where
    T: DelayedItem<ID> + HasDelayed<ID>,
{
    /// Creates an initialiser; use [`new_delayed!`].
    pub fn new(
        queue: Handle,
        work: (&'static CStr, Pin<&'static LockClassKey>),
        timer: (&'static CStr, Pin<&'static LockClassKey>),
    ) -> impl PinInit<Self> {
        // INVARIANT: `init_work_with_key` sets the function. The work is not pending.
        pin_init!(Self {
            dwork <- Opaque::ffi_init(move |slot: *mut bindings::delayed_work| {
                // SAFETY: `slot` is valid for writes, and so is its field.
                let work_slot = unsafe { &raw mut (*slot).work };
                // SAFETY: `slot` is valid for writes, and so is its field.
                let timer_slot = unsafe { &raw mut (*slot).timer };
                // SAFETY: The slot is valid for writes; name and key are static. The function is
                // called with this very `struct work_struct` only.
                unsafe {
                    bindings::init_work_with_key(
                        work_slot,
                        Some(run_callback::<T, ID>),
                        false,
                        work.0.as_char_ptr(),
                        work.1.as_ptr(),
                    )
                };
                // SAFETY: The slot is valid for writes; name and key are static. The timer belongs
                // to a `struct delayed_work`, as `delayed_work_timer_fn` expects, with its flag.
                unsafe {
                    bindings::timer_init_key(
                        timer_slot,
                        Some(bindings::delayed_work_timer_fn),
                        bindings::TIMER_IRQSAFE,
                        timer.0.as_char_ptr(),
                        timer.1.as_ptr(),
                    )
                };
            }),
            queue,
            _item: PhantomData,
        })
    }

    /// Schedules `item` to run in `delay` milliseconds. Callable in any context except NMI.
    ///
    /// # Errors
    ///
    /// Returns `item` if it is already scheduled or is being cancelled, or if the queue is closed.
    pub fn schedule(item: Arc<T>, delay: Msecs) -> Result<(), Arc<T>> {
        let ptr = Arc::into_raw(item);
        // SAFETY: `ptr` points to a valid value, which lives while `ptr` stands for an `Arc`.
        let this = unsafe { &*T::raw_get_delayed(ptr) };
        let queue = this.queue.clone();
        let queued = queue.0.enter() && {
            // INVARIANT: If the work becomes pending, it takes over the reference `ptr` and the
            // user that `enter` has registered: this function then does not call `leave`.
            // SAFETY: The queue is valid: this call is a user of it, and then the armed timer is.
            // `dwork` is initialised, and `ptr` keeps it valid until it has run or was cancelled.
            let queued = unsafe {
                bindings::queue_delayed_work_on(
                    // CAST: A value of the C enum that is passed as `int`.
                    bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                    queue.0.wq.as_ptr(),
                    this.dwork.get(),
                    msecs_to_jiffies(delay),
                )
            };
            if !queued {
                queue.0.leave();
            }
            queued
        };
        if queued {
            Ok(())
        } else {
            // SAFETY: The pointer from above, which was not given up.
            Err(unsafe { Arc::from_raw(ptr) })
        }
    }

    /// Schedules `item` to run in `delay` milliseconds, even if it is already scheduled for another
    /// time. If it is running, it runs again. Callable in any context except NMI.
    ///
    /// # Errors
    ///
    /// Returns `item` if it is being cancelled or begins to run, or if the queue is closed.
    pub fn hurry(item: Arc<T>, delay: Msecs) -> Result<(), Arc<T>> {
        let mut refused = match Self::schedule(item, delay) {
            Ok(()) => return Ok(()),
            Err(item) => item,
        };
        while Self::cancel(&refused) {
            refused = match Self::schedule(refused, delay) {
                Ok(()) => return Ok(()),
                // Another context has scheduled the item.
                Err(item) => item,
            };
        }
        Err(refused)
    }

    /// Cancels `item`. Callable in any context except NMI.
    ///
    /// Returns whether the item was scheduled and now will not run.
    fn cancel(item: &Arc<T>) -> bool {
        let ptr = Arc::as_ptr(item);
        // SAFETY: The pointer of an `Arc` points at a valid value, which `item` keeps.
        let this = unsafe { &*T::raw_get_delayed(ptr) };
        // SAFETY: By the type invariant, `dwork` is initialised.
        let pending = unsafe { bindings::cancel_delayed_work(this.dwork.get()) };
        Self::taken_back(this, ptr, pending)
    }

    /// Drops the reference and the queue user that a cancelled item owned, if it was `pending`.
    /// Returns `pending`.
    fn taken_back(this: &Self, ptr: *const T, pending: bool) -> bool {
        if pending {
            // INVARIANT: The item is not pending, so it owns no reference and is no user.
            this.queue.0.leave();
            // SAFETY: By the type invariant, the pending item owned a reference. It will not run.
            drop(unsafe { Arc::from_raw(ptr) });
        }
        pending
    }

    /// Cancels `item` and waits until it is not running; sleeps.
    ///
    /// On return the item is neither scheduled nor running, unless another context scheduled it
    /// again. Returns whether the item was scheduled and now will not run. Must not be called in
    /// the item itself, nor while holding anything that the item needs.
    pub fn cancel_sync(item: &Arc<T>) -> bool {
        let ptr = Arc::as_ptr(item);
        // SAFETY: The pointer of an `Arc` points at a valid value, which `item` keeps.
        let this = unsafe { &*T::raw_get_delayed(ptr) };
        // SAFETY: By the type invariant, `dwork` is initialised.
        let pending = unsafe { bindings::cancel_delayed_work_sync(this.dwork.get()) };
        Self::taken_back(this, ptr, pending)
    }
}

/// The function of the `struct delayed_work` of a [`Delayed`].
///
/// # Safety
///
/// `work` belongs to the [`Delayed<T, ID>`] field, named by [`HasDelayed`], of a value in an
/// `Arc<T>`, and has just ceased to be pending.
unsafe extern "C" fn run_callback<T, const ID: u64>(work: *mut bindings::work_struct)
where
    T: DelayedItem<ID> + HasDelayed<ID>,
{
    // SAFETY: By the safety requirements, `work` is a field of a `struct delayed_work`.
    let dwork = unsafe { container_of!(work, bindings::delayed_work, work) };
    let dwork: *const Opaque<bindings::delayed_work> = Opaque::cast_from(dwork);
    // SAFETY: By the safety requirements, `dwork` is that field of a `Delayed`.
    let delayed = unsafe { container_of!(dwork.cast_mut(), Delayed<T, ID>, dwork) };
    // SAFETY: By the safety requirements, `delayed` is a field of a `T`.
    let ptr = unsafe { T::delayed_container_of(delayed) };
    // SAFETY: By the type invariant of `Delayed`, the pending item owned a reference. It is not
    // pending now, so only this call takes the reference.
    let item = unsafe { Arc::from_raw(ptr) };
    // SAFETY: `item` keeps the field alive.
    let queue = unsafe { &(*delayed).queue };
    // The timer has fired. `destroy_workqueue` waits for items that run.
    queue.0.leave();
    T::run(item);
}

/// Names the [`Delayed<Self, ID>`] field of `Self`.
///
/// # Safety
///
/// The two methods must be inverses of each other, and `raw_get_delayed` must return the address of
/// a field of its argument. Implement it with [`impl_has_delayed!`].
pub unsafe trait HasDelayed<const ID: u64 = 0>: Sized {
    /// Returns the address of the field.
    ///
    /// # Safety
    ///
    /// `this` points at a valid `Self`.
    unsafe fn raw_get_delayed(this: *const Self) -> *const Delayed<Self, ID>;

    /// Returns the address of the value that contains the field.
    ///
    /// # Safety
    ///
    /// `delayed` points at that field of a `Self`.
    unsafe fn delayed_container_of(delayed: *const Delayed<Self, ID>) -> *const Self;
}

/// Implements [`HasDelayed`]: `impl_has_delayed! { impl HasDelayed<FILL> for Session {
/// self.fill.timer } }`.
#[macro_export]
macro_rules! impl_has_delayed {
    ($(impl HasDelayed<$id:tt> for $self:ty { self.$($field:ident).+ })*) => {$(
        #[allow(unsafe_code)]
        // SAFETY: The field has the right type, or this does not compile, and `container_of!`
        // undoes the projection to it.
        unsafe impl $crate::workqueue::HasDelayed<$id> for $self {
            #[inline]
            unsafe fn raw_get_delayed(
                this: *const Self,
            ) -> *const $crate::workqueue::Delayed<Self, $id> {
                // SAFETY: By the safety requirements `this` points at a valid value.
                unsafe { &raw const (*this).$($field).+ }
            }

            #[inline]
            unsafe fn delayed_container_of(
                delayed: *const $crate::workqueue::Delayed<Self, $id>,
            ) -> *const Self {
                // SAFETY: By the safety requirements, `delayed` is this field of a `Self`.
                unsafe { ::kernel::container_of!(delayed.cast_mut(), Self, $($field).+) }
            }
        }
    )*};
}
pub use impl_has_delayed;
