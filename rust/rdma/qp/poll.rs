// SPDX-License-Identifier: GPL-2.0

//! Queue pairs without interrupts: whoever waits looks himself.

use super::{
    Handler,
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

/// Completions that are taken in one turn.
const BUDGET: c_int = 64;

/// Whose turn it is to look: one at a time has the callbacks.
pub(super) struct Turn(Atomic<bool>);

/// It is one's turn until this is dropped.
pub(super) struct Looking<'a>(&'a Turn);

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

impl Turn {
    pub(super) fn new() -> Self {
        Self(Atomic::new(false))
    }

    fn take(&self) -> Option<Looking<'_>> {
        self.0
            .cmpxchg(false, true, Acquire)
            .is_ok()
            .then(|| Looking(self))
    }

    /// Waits for one's turn. Sleeps.
    pub(super) fn wait(&self) -> Looking<'_> {
        loop {
            if let Some(looking) = self.take() {
                return looking;
            }
            fsleep(Delta::from_micros(100));
        }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0 .0.store(false, Release);
    }
}

impl<H: Handler> Qp<H> {
    /// There are no interrupts.
    pub fn is_polled(&self) -> bool {
        self.cq.is_polled()
    }

    /// Runs the callbacks of what has completed on a polled queue pair, and returns how many. Returns 0
    /// at once for any other, and while somebody else is looking.
    ///
    /// Context: process or softirq. Does not sleep.
    pub fn poll(&self) -> u32 {
        if !self.is_polled() {
            return 0;
        }
        // Most often there is nobody else; a look first does not take the line from him who is.
        if self.turn.0.load(Relaxed) {
            return 0;
        }
        // As a softirq: nobody takes this CPU away in the middle of a turn that others wait for.
        let _here = NoSoftirq::new();
        let Some(looking) = self.turn.take() else {
            return 0;
        };
        self.look(&looking)
    }

    fn look(&self, _: &Looking<'_>) -> u32 {
        // SAFETY: The queue is valid; nobody else looks at it during this turn.
        let count = unsafe { bindings::ib_process_cq_direct(self.cq.as_raw(), BUDGET) };
        u32::try_from(count).unwrap_or(0)
    }

    /// Takes what the last connection has left in a polled completion queue. Sleeps.
    pub(super) fn empty(&self) {
        if self.is_polled() {
            let looking = self.turn.wait();
            while self.look(&looking) > 0 {}
        }
    }
}
