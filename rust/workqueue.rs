// SPDX-License-Identifier: GPL-2.0

//! Work queues of our own, and work items that can be taken back.
//!
//! Beside [`kernel::workqueue`], which knows only the system's queues: a module may be unloaded
//! only when none of its work is left, and a storage path needs a queue that makes progress without
//! memory ([`Flags::MEM_RECLAIM`]). Items are the kernel crate's [`Work`], or [`Delayed`].
//!
//! Not supported: changing the delay of an item that is already scheduled.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! [`Work`]: kernel::workqueue::Work
//!
//! # Examples
//!
//! ```
//! use ib_srp::{
//!     sync::Completion,
//!     workqueue::{impl_has_delayed, new_delayed, Delayed, DelayedItem, Flags, Handle, WorkQueue},
//! };
//! use kernel::{prelude::*, sync::Arc};
//!
//! #[pin_data]
//! struct Example {
//!     #[pin]
//!     timer: Delayed<Self>,
//!     #[pin]
//!     over: Completion,
//! }
//!
//! impl_has_delayed! {
//!     impl HasDelayed<0> for Example { self.timer }
//! }
//!
//! impl DelayedItem for Example {
//!     fn run(this: Arc<Self>) {
//!         this.over.complete();
//!     }
//! }
//!
//! /// Dropping the queue waits for it.
//! fn queue() -> Result<WorkQueue> {
//!     WorkQueue::new(c"example", Flags::UNBOUND | Flags::MEM_RECLAIM)
//! }
//!
//! fn in_a_second(queue: Handle) -> Result {
//!     let item = pin_init!(Example {
//!         timer <- new_delayed!(queue, "example"),
//!         over <- Completion::new(),
//!     });
//!     let item = Arc::pin_init(item, GFP_KERNEL)?;
//!     Delayed::schedule(item, 1000).map_err(|_| EBUSY)
//! }
//! ```

use crate::{
    bindings,
    errno::ESHUTDOWN,
    sync::Completion, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
    },
    workqueue::{
        HasWork,
        Queue,
        Work,
        WorkItem, //
    },
};

mod crew;
mod delayed;

pub use crew::Crew;
pub use delayed::{
    impl_has_delayed,
    new_delayed,
    Delayed,
    DelayedItem,
    HasDelayed, //
};

/// The properties of a [`WorkQueue`].
#[derive(Clone, Copy)]
pub struct Flags(c_uint);

impl Flags {
    /// The items run on the CPU that queued them.
    pub const PERCPU: Self = Self(bindings::wq_flags_WQ_PERCPU);
    /// The items run on any CPU.
    pub const UNBOUND: Self = Self(bindings::wq_flags_WQ_UNBOUND);
    /// One item always makes progress, even if no memory can be had for another worker.
    pub const MEM_RECLAIM: Self = Self(bindings::wq_flags_WQ_MEM_RECLAIM);
}

impl core::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A work queue, whose drop is the barrier for all work on it.
///
/// Dropping it refuses new work, waits for the timers of the scheduled [`Delayed`] items, runs all
/// that is queued to its end and destroys the queue. It sleeps, and must not happen in an item that
/// runs on this queue. Whoever queues work holds a [`Handle`].
pub struct WorkQueue(Handle);

impl WorkQueue {
    /// Makes a work queue whose workers are called `name`. Sleeps.
    ///
    /// Exactly one of [`Flags::PERCPU`] and [`Flags::UNBOUND`] must be given.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] for other flags, [`ENOMEM`].
    pub fn new(name: &CStr, flags: Flags) -> Result<Self> {
        let percpu = flags.0 & Flags::PERCPU.0 != 0;
        let unbound = flags.0 & Flags::UNBOUND.0 != 0;
        if percpu == unbound {
            return Err(EINVAL);
        }
        // SAFETY: `name` is a C string, which the call copies; 0 stands for the default number of
        // items that run at a time.
        let wq = unsafe { bindings::srp_helper_alloc_workqueue(name.as_char_ptr(), flags.0, 0) };
        let wq = NonNull::new(wq).ok_or(ENOMEM)?;
        let init = pin_init!(Inner {
            wq,
            users: Atomic::new(0),
            idle <- Completion::new(),
        });
        match Arc::pin_init(init, GFP_KERNEL) {
            // INVARIANT: The queue is ours, there are no users, and `CLOSED` is not set.
            Ok(inner) => Ok(Self(Handle(inner))),
            Err(e) => {
                // SAFETY: The queue has just been made and nobody else knows it.
                unsafe { bindings::destroy_workqueue(wq.as_ptr()) };
                Err(e)
            }
        }
    }

    /// Returns something to queue work with, which does not keep the queue open.
    pub fn handle(&self) -> Handle {
        self.0.clone()
    }
}

impl core::ops::Deref for WorkQueue {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        let inner = &self.0 .0;
        if inner.users.fetch_add(CLOSED, Full) != 0 {
            inner.idle.wait();
        }
        // SAFETY: By the type invariant of `Inner` nobody uses the queue and no timer is going to,
        // since there are no users and `CLOSED` lets no new ones in. Items already queued are run
        // to their end by this call; what they try to queue is refused.
        unsafe { bindings::destroy_workqueue(inner.wq.as_ptr()) };
    }
}

/// Added to `Inner::users` by the drop of the [`WorkQueue`].
const CLOSED: i32 = 1 << 30;

/// # Invariants
///
/// - `wq` is a valid queue at least as long as [`CLOSED`] has not been added to `users`, or the
///   rest of `users` has not been zero since.
/// - `users` counts the calls in progress on `wq` and the armed timers of [`Delayed`] items.
#[pin_data]
struct Inner {
    wq: NonNull<bindings::workqueue_struct>,
    users: Atomic<i32>,
    /// Complete when the last user of a closed queue is gone.
    #[pin]
    idle: Completion,
}

// SAFETY: A `struct workqueue_struct` is not bound to a thread.
unsafe impl Send for Inner {}
// SAFETY: The functions on a `struct workqueue_struct` lock where they need to.
unsafe impl Sync for Inner {}

impl Inner {
    /// Becomes a user; `false` if the queue is closed. [`Inner::leave`] must follow if `true`.
    fn enter(&self) -> bool {
        if self.users.fetch_add(1, Full) < CLOSED {
            return true;
        }
        self.leave();
        false
    }

    /// Stops being a user.
    fn leave(&self) {
        if self.users.fetch_sub(1, Full) == CLOSED + 1 {
            self.idle.complete_all();
        }
    }
}

/// What work is queued with: a counted reference to a [`WorkQueue`], which outlives it without
/// keeping it open.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

impl Handle {
    /// Queues `item`. Callable in any context but NMI.
    ///
    /// The queue holds the [`Arc`] until the item runs, which is in process context.
    ///
    /// # Errors
    ///
    /// Gives `item` back if it is queued already or is being cancelled, or if the queue is closed.
    pub fn enqueue<T, const ID: u64>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
    {
        if !self.0.enter() {
            return Err(item);
        }
        // SAFETY: By the type invariant the queue is valid until `leave`.
        let queue = unsafe { Queue::from_raw(self.0.wq.as_ptr()) };
        let result = queue.enqueue::<Arc<T>, ID>(item);
        self.0.leave();
        result
    }

    /// Waits until all that was queued before this call has run; sleeps.
    ///
    /// Must not be called in an item of this queue. [`Delayed`] items whose time has not come are
    /// not waited for.
    ///
    /// # Errors
    ///
    /// [`ESHUTDOWN`] if the queue is closed; the drop of the [`WorkQueue`] waits for the items then.
    pub fn flush(&self) -> Result {
        if !self.0.enter() {
            return Err(ESHUTDOWN);
        }
        // SAFETY: By the type invariant the queue is valid until `leave`.
        unsafe { bindings::__flush_workqueue(self.0.wq.as_ptr()) };
        self.0.leave();
        Ok(())
    }
}

/// An item that [`cancel_sync`] can take back.
///
/// # Safety
///
/// The [`Work`] that [`HasWork`] names is a field by itself, and not a part of a
/// [`kernel::workqueue::DelayedWork`]: its timer would be left, and waited for without a pause.
pub unsafe trait Cancel<const ID: u64 = 0>: HasWork<Self, ID> + Sized {}

/// Takes `item` back from the queue that it waits in, and waits until it is not running; sleeps.
///
/// On return the item neither waits nor runs, unless someone queued it again. Returns whether it
/// had waited and will now not run. Must not be called in the item itself, nor with anything held
/// that the item needs.
///
/// An item with a timer is a [`Delayed`], which has a function of its own for this:
///
/// ```compile_fail,E0277
/// # use ib_srp::workqueue::cancel_sync;
/// # use kernel::workqueue::{impl_has_delayed_work, DelayedWork, WorkItem};
/// # use kernel::{prelude::*, sync::Arc};
/// #[pin_data]
/// struct Late {
///     #[pin]
///     work: DelayedWork<Late>,
/// }
///
/// impl_has_delayed_work! {
///     impl HasDelayedWork<Self> for Late { self.work }
/// }
///
/// impl WorkItem for Late {
///     type Pointer = Arc<Self>;
///     fn run(_: Arc<Self>) {}
/// }
///
/// fn cancel(item: &Arc<Late>) -> bool {
///     cancel_sync::<_, 0>(item)
/// }
/// ```
pub fn cancel_sync<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + Cancel<ID>,
{
    let ptr = Arc::as_ptr(item);
    // SAFETY: The pointer of an `Arc` points at a valid value.
    let work = unsafe { T::raw_get_work(ptr.cast_mut()) };
    // SAFETY: The pointer is that of a field of a valid value.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: The `struct work_struct` has been initialised by `Work::new`, lives as long as
    // `item` does, and by the contract of `Cancel` has no timer.
    let pending = unsafe { bindings::cancel_work_sync(work) };
    if pending {
        // SAFETY: `T::Pointer` is `Arc<T>`, so that it was queued by giving up an `Arc` that the
        // item would have taken back when it ran. It was pending, and so it will not run.
        drop(unsafe { Arc::from_raw(ptr) });
    }
    pending
}

#[cfg(SRP_KUNIT)]
#[path = "workqueue/tests.rs"]
mod tests;
