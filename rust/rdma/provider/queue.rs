// SPDX-License-Identifier: GPL-2.0

//! A work queue of the module, so that no work item outlives the module.
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
/// It is valid.
pub struct WorkQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A work queue has no thread affinity.
unsafe impl Send for WorkQueue {}
// SAFETY: As above.
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
        // INVARIANT: It was just made.
        NonNull::new(queue.cast()).map(Self).ok_or(ENOMEM)
    }

    /// The queue, for new work items.
    pub fn queue(&self) -> &Queue {
        // SAFETY: By the type invariant it is valid as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }

    /// Waits for all work items queued so far. Sleeps.
    pub fn flush(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::srp_vfab_flush_workqueue(self.0.as_ptr().cast()) };
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nothing uses it after this.
        unsafe { bindings::srp_vfab_destroy_workqueue(self.0.as_ptr().cast()) };
    }
}
