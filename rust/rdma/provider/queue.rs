// SPDX-License-Identifier: GPL-2.0

//! A work queue of the module's own, so that no work is left when it goes.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    workqueue::Queue, //
};

/// A work queue. Dropping it waits for its work.
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
    /// Makes one. May sleep.
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

    /// To put work into.
    pub fn queue(&self) -> &Queue {
        // SAFETY: By the type invariant it is valid as long as this.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }

    /// Waits for all work that was put into it. Sleeps.
    pub fn flush(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::srp_vfab_flush_workqueue(self.0.as_ptr().cast()) };
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nobody uses it any more.
        unsafe { bindings::srp_vfab_destroy_workqueue(self.0.as_ptr().cast()) };
    }
}
