// SPDX-License-Identifier: GPL-2.0

//! A work queue of the module, so that no work item outlives the module.
//!
//! The kernel crate has only the system queues.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    workqueue::Queue, //
};

/// A work queue. Dropping it waits for its work items.
///
/// # Invariants
///
/// The pointer is valid.
pub struct WorkQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A work queue has no thread affinity.
unsafe impl Send for WorkQueue {}
// SAFETY: A work queue does its own locking.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Creates a work queue. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new() -> Result<Self> {
        // SAFETY: No precondition.
        let queue = unsafe { bindings::srp_vfab_alloc_workqueue() };
        // INVARIANT: The work queue was just created.
        NonNull::new(queue.cast()).map(Self).ok_or(ENOMEM)
    }

    /// The queue, for new work items.
    pub fn queue(&self) -> &Queue {
        // SAFETY: The work queue is valid as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }

    /// Waits for all work items queued so far. Sleeps.
    pub fn flush(&self) {
        // SAFETY: The work queue is valid.
        unsafe { bindings::srp_vfab_flush_workqueue(self.0.as_ptr().cast()) };
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: The work queue is valid; nothing uses it after this.
        unsafe { bindings::srp_vfab_destroy_workqueue(self.0.as_ptr().cast()) };
    }
}
