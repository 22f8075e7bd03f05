// SPDX-License-Identifier: GPL-2.0

//! Queue pairs without interrupts: waiting tasks poll the completion queue, one at a time.

use super::{
    Handler,
    PollContext,
    Qp, //
};
use crate::{
    bindings,
    compat,
    sync::{
        new_spinlock_bh,
        SpinLockBh,
        SpinLockBhGuard, //
    }, //
};
use core::ptr::null_mut;
use kernel::{
    ffi::c_int,
    prelude::*, //
};

/// Maximum number of completions per poll.
const BUDGET: c_int = 64;

/// The completion queue that the holder of the lock polls, or null. Softirqs, and without
/// PREEMPT_RT other tasks, do not run on the holder's CPU meanwhile.
#[pin_data]
pub(super) struct PolledCq {
    #[pin]
    cq: SpinLockBh<*mut bindings::ib_cq>,
}

impl PolledCq {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cq <- new_spinlock_bh!(null_mut(), "Qp::polled"),
        })
    }

    /// Waits for a poll in progress; later polls use `cq`.
    pub(super) fn set(&self, cq: *mut bindings::ib_cq) {
        *self.cq.lock() = cq;
    }

    /// Without PREEMPT_RT returns [`None`] at once while another task polls the queue. With
    /// PREEMPT_RT waits for that task, which may be preempted and inherits the caller's priority.
    fn try_lock(&self) -> Option<SpinLockBhGuard<'_, *mut bindings::ib_cq>> {
        match compat::PREEMPTIBLE_SPINLOCKS {
            true => Some(self.cq.lock()),
            false => self.cq.try_lock(),
        }
    }
}

impl<H: Handler> Qp<H> {
    /// Returns whether the queue pair is polled, without interrupts.
    pub fn is_polled(&self) -> bool {
        self.sizes.context == PollContext::Direct
    }

    /// Runs the callbacks of completed requests of a polled queue pair and returns their number.
    /// Returns 0 at once if the queue pair is not a polled one, or its completion queue is not in
    /// use. While another task polls, returns 0 at once without PREEMPT_RT; with PREEMPT_RT waits
    /// for that task.
    ///
    /// Context: process or softirq. Does not sleep, except for spinlocks with PREEMPT_RT.
    pub fn poll(&self) -> u32 {
        if !self.is_polled() {
            return 0;
        }
        let Some(cq) = self.polled.try_lock() else {
            return 0;
        };
        if cq.is_null() {
            return 0;
        }
        // SAFETY: By the invariant of `Qp` the queue is valid while `polled` is locked, and only
        // the holder of the lock polls it.
        let count = unsafe { bindings::ib_process_cq_direct(*cq, BUDGET) };
        u32::try_from(count).unwrap_or(0)
    }
}
