// SPDX-License-Identifier: GPL-2.0

//! Private workqueues, and work items that can be cancelled.
//!
//! [`kernel::workqueue`] only has the system queues. A module may be unloaded only when none of its
//! work is left, and a storage path needs a queue that makes progress under memory pressure
//! ([`Flag::MemReclaim`]). Items are the kernel crate's [`Work`], or [`Delayed`].
//!
//! Not supported: `mod_delayed_work()`; see [`Delayed::hurry`].
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
//!     workqueue::{impl_has_delayed, new_delayed, Delayed, DelayedItem, Flag, Handle, WorkQueue},
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
//! /// Dropping the queue waits for its items.
//! fn queue() -> Result<WorkQueue> {
//!     WorkQueue::new(c"example", Flag::Unbound | Flag::MemReclaim)
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
    impl_flags,
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

mod delayed;
mod timed_interrupt;
mod worker_pool;

pub use delayed::{
    impl_has_delayed,
    new_delayed,
    Delayed,
    DelayedItem,
    HasDelayed, //
};
pub use timed_interrupt::TimedInterrupt;
pub use worker_pool::WorkerPool;

impl_flags!(
    /// The properties of a [`WorkQueue`].
    #[derive(Clone, Copy)]
    pub struct Flags(u32);

    /// A property of a [`WorkQueue`].
    #[derive(Clone, Copy)]
    pub enum Flag {
        /// The items run on the CPU that queued them.
        Percpu = bindings::wq_flags_WQ_PERCPU,
        /// The items run on any CPU.
        Unbound = bindings::wq_flags_WQ_UNBOUND,
        /// One item always makes progress, even if there is no memory for another worker.
        MemReclaim = bindings::wq_flags_WQ_MEM_RECLAIM,
    }
);

/// A workqueue. Dropping it waits for all of its work.
///
/// The drop refuses new work, waits for the timers of scheduled [`Delayed`] items, runs all queued
/// items to completion and destroys the queue. It sleeps, and must not happen in a work item of
/// this queue. Work is queued through a [`Handle`].
pub struct WorkQueue(Handle);

impl WorkQueue {
    /// Creates a workqueue with workers called `name`. Sleeps.
    ///
    /// Exactly one of [`Flag::Percpu`] and [`Flag::Unbound`] must be given.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] for other flags, [`ENOMEM`].
    pub fn new(name: &CStr, flags: impl Into<Flags>) -> Result<Self> {
        let flags = flags.into();
        if flags.contains(Flag::Percpu) == flags.contains(Flag::Unbound) {
            return Err(EINVAL);
        }
        // SAFETY: `name` is a C string, which the call copies; 0 selects the default limit of
        // concurrent items.
        let wq =
            unsafe { bindings::srp_helper_alloc_workqueue(name.as_char_ptr(), flags.into(), 0) };
        let wq = NonNull::new(wq).ok_or(ENOMEM)?;
        let init = pin_init!(Inner {
            wq,
            users: Atomic::new(0),
            idle <- Completion::new(),
        });
        match Arc::pin_init(init, GFP_KERNEL) {
            // INVARIANT: `wq` is valid, there are no users, and `CLOSED` has not been added.
            Ok(inner) => Ok(Self(Handle(inner))),
            Err(e) => {
                // SAFETY: The queue was created above and has no user.
                unsafe { bindings::destroy_workqueue(wq.as_ptr()) };
                Err(e)
            }
        }
    }

    /// Returns a handle for queueing work, which does not keep the queue open.
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
        // SAFETY: By the type invariant of `Inner`, no call is in progress on the queue and no
        // timer is armed: there are no users, and `CLOSED` keeps new ones out. This call runs
        // queued items to completion; what they try to queue is refused.
        unsafe { bindings::destroy_workqueue(inner.wq.as_ptr()) };
    }
}

/// Added to `Inner::users` when the [`WorkQueue`] is dropped.
const CLOSED: i32 = 1 << 30;

/// # Invariants
///
/// - `wq` is valid at least until the [`WorkQueue`]'s drop has added [`CLOSED`] to `users` and the
///   remaining count has then reached zero.
/// - `users` counts the calls in progress on `wq` and the armed timers of [`Delayed`] items.
#[pin_data]
struct Inner {
    wq: NonNull<bindings::workqueue_struct>,
    users: Atomic<i32>,
    /// Completed when the last user of a closed queue leaves.
    #[pin]
    idle: Completion,
}

// SAFETY: A `struct workqueue_struct` is not bound to a thread.
unsafe impl Send for Inner {}
// SAFETY: The functions on a `struct workqueue_struct` do their own locking.
unsafe impl Sync for Inner {}

impl Inner {
    /// Registers a user. Returns `false` if the queue is closed; otherwise the caller must call
    /// [`Inner::leave`] afterwards.
    fn enter(&self) -> bool {
        if self.users.fetch_add(1, Full) < CLOSED {
            return true;
        }
        self.leave();
        false
    }

    /// Unregisters a user.
    fn leave(&self) {
        if self.users.fetch_sub(1, Full) == CLOSED + 1 {
            self.idle.complete_all();
        }
    }
}

/// A counted reference to a [`WorkQueue`], for queueing work. It may outlive the queue and does not
/// keep it open.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

impl Handle {
    /// Queues `item`. Callable in any context except NMI.
    ///
    /// The queue owns the [`Arc`] until the item runs, which happens in process context.
    ///
    /// # Errors
    ///
    /// Returns `item` if it is already queued or is being cancelled, or if the queue is closed.
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

    /// Waits until all work queued before this call has run; sleeps.
    ///
    /// Must not be called in an item of this queue. Does not wait for [`Delayed`] items with a
    /// running timer.
    ///
    /// # Errors
    ///
    /// [`ESHUTDOWN`] if the queue is closed; the drop of the [`WorkQueue`] then waits for the
    /// items.
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

/// An item that [`cancel_sync`] can cancel.
///
/// # Safety
///
/// The [`Work`] that [`HasWork`] names is a separate field and not part of a
/// [`kernel::workqueue::DelayedWork`]. Otherwise the timer of the latter would stay armed, and
/// `cancel_work_sync` would spin until it fires.
pub unsafe trait Cancel<const ID: u64 = 0>: HasWork<Self, ID> + Sized {}

/// Cancels `item` and waits until it is not running; sleeps.
///
/// On return the item is neither queued nor running, unless another context queued it again.
/// Returns whether the item was queued and now will not run. Must not be called in the item itself,
/// nor while holding anything that the item needs.
///
/// An item with a timer is a [`Delayed`], which has its own [`Delayed::cancel_sync`]:
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
    // SAFETY: `work` points at a field of a valid value.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: The `struct work_struct` has been initialised by `Work::new`, lives as long as `item`
    // does, and has no timer, as `Cancel` requires.
    let pending = unsafe { bindings::cancel_work_sync(work) };
    if pending {
        // SAFETY: `T::Pointer` is `Arc<T>`: queueing the item gave up an `Arc`, which only a run
        // would take back. The item was pending and will not run.
        drop(unsafe { Arc::from_raw(ptr) });
    }
    pending
}

#[cfg(SRP_KUNIT)]
#[path = "workqueue/tests.rs"]
mod tests;
