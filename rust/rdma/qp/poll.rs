// SPDX-License-Identifier: GPL-2.0

//! Queue pairs without interrupts: those who wait poll the completion queue, one at a time.

use super::{
    Handler,
    PollContext,
    Qp, //
};
use crate::bindings;
use kernel::{
    ffi::c_int,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::NotThreadSafe, //
};

/// Completions that are taken in one poll.
const BUDGET: c_int = 64;

/// Whoever has it polls the completion queue, and runs its callbacks.
pub(super) struct PollLock(Atomic<bool>);

/// The lock is held until this is dropped.
pub(super) struct PollGuard<'a>(&'a PollLock);

/// Softirqs, and other tasks, do not run on this CPU until this is dropped.
struct NoSoftirq(NotThreadSafe);

impl NoSoftirq {
    fn new() -> Self {
        // SAFETY: It is enabled again by drop, on the same CPU.
        unsafe { bindings::srp_helper_local_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for NoSoftirq {
    fn drop(&mut self) {
        // SAFETY: `new` has disabled it.
        unsafe { bindings::srp_helper_local_bh_enable() };
    }
}

impl PollLock {
    pub(super) fn new() -> Self {
        Self(Atomic::new(false))
    }

    fn try_lock(&self) -> Option<PollGuard<'_>> {
        self.0
            .cmpxchg(false, true, Acquire)
            .is_ok()
            .then(|| PollGuard(self))
    }

    /// Waits for the lock. Sleeps.
    pub(super) fn lock(&self) -> PollGuard<'_> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            fsleep(Delta::from_micros(100));
        }
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0 .0.store(false, Release);
    }
}

impl<H: Handler> Qp<H> {
    /// There are no interrupts.
    pub fn is_polled(&self) -> bool {
        self.sizes.context == PollContext::Direct
    }

    /// Runs the callbacks of what has completed on a polled queue pair, and returns how many. Returns 0
    /// at once for any other, and while another one polls it.
    ///
    /// Context: process or softirq. Does not sleep.
    pub fn poll(&self) -> u32 {
        if !self.is_polled() {
            return 0;
        }
        // A load first does not take the cache line from the one who has the lock.
        if self.poll_lock.0.load(Relaxed) {
            return 0;
        }
        // As a softirq: nobody takes this CPU away from the one who has the lock.
        let _here = NoSoftirq::new();
        let Some(guard) = self.poll_lock.try_lock() else {
            return 0;
        };
        self.process(&guard)
    }

    fn process(&self, _: &PollGuard<'_>) -> u32 {
        let cq = self.polled_cq.load(Relaxed);
        if cq.is_null() {
            return 0;
        }
        // SAFETY: By the invariant of `Qp` it is valid as long as the lock is held, and nobody else polls it.
        let count = unsafe { bindings::ib_process_cq_direct(cq, BUDGET) };
        u32::try_from(count).unwrap_or(0)
    }
}
