// SPDX-License-Identifier: GPL-2.0

//! Queue pairs without interrupts: those who wait poll the completion queue, one at a time.

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
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::atomic::Relaxed,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Completions that are taken in one poll.
const BUDGET: c_int = 64;

/// Whoever has it polls the completion queue, and runs its callbacks.
#[pin_data]
pub(super) struct PollLock {
    /// A task that sleeps has it.
    #[pin]
    asleep: SpinLockBh<bool>,
}

/// One poll. Softirqs, and without PREEMPT_RT other tasks, do not run on this CPU until this is
/// dropped.
struct PollGuard<'a>(SpinLockBhGuard<'a, bool>);

/// The lock is held until this is dropped, by a task that may sleep.
pub(super) struct SleepGuard<'a>(&'a PollLock);

impl PollLock {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            asleep <- new_spinlock_bh!(false, "Qp::poll_lock"),
        })
    }

    /// [`None`] at once while a task that sleeps has it, and without PREEMPT_RT while any task has. With
    /// PREEMPT_RT it waits for the owner, which may be preempted, and has the priority of the caller
    /// meanwhile.
    fn try_lock(&self) -> Option<PollGuard<'_>> {
        let asleep = if compat::PREEMPTIBLE_SPINLOCKS {
            self.asleep.lock()
        } else {
            self.asleep.try_lock()?
        };
        (!*asleep).then_some(PollGuard(asleep))
    }

    /// Waits for one poll. Sleeps.
    fn wait(&self) -> PollGuard<'_> {
        loop {
            let asleep = self.asleep.lock();
            if !*asleep {
                return PollGuard(asleep);
            }
            drop(asleep);
            fsleep(Delta::from_micros(100));
        }
    }

    /// Waits for the lock. Sleeps.
    pub(super) fn lock(&self) -> SleepGuard<'_> {
        let PollGuard(mut asleep) = self.wait();
        *asleep = true;
        SleepGuard(self)
    }
}

impl Drop for SleepGuard<'_> {
    fn drop(&mut self) {
        *self.0.asleep.lock() = false;
    }
}

impl<H: Handler> Qp<H> {
    /// There are no interrupts.
    pub fn is_polled(&self) -> bool {
        self.sizes.context == PollContext::Direct
    }

    /// Runs the callbacks of what has completed on a polled queue pair, and returns how many. Returns 0
    /// at once for any other, and while it is drained. While another task polls it, returns 0 at once
    /// without PREEMPT_RT, and waits for that task with it.
    ///
    /// Context: process or softirq. Does not sleep, except for spinlocks with PREEMPT_RT.
    pub fn poll(&self) -> u32 {
        if !self.is_polled() {
            return 0;
        }
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
