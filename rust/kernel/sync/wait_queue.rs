// SPDX-License-Identifier: GPL-2.0

//! Waiting for a condition that may cease to hold before the waiter runs.
//!
//! The kernel crate's `CondVar` needs a lock that its waker takes, too.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::WaitQueue;
//! use kernel::{
//!     prelude::*,
//!     sync::atomic::{Acquire, Atomic, Release},
//! };
//!
//! #[pin_data]
//! struct Users {
//!     count: Atomic<u32>,
//!     #[pin]
//!     changed: WaitQueue,
//! }
//!
//! impl Users {
//!     fn set(&self, count: u32) {
//!         self.count.store(count, Release);
//!         self.changed.wake_all();
//!     }
//!
//!     fn none_within_a_second(&self) -> Result {
//!         self.changed
//!             .wait_timeout(1000, || self.count.load(Acquire) == 0)
//!     }
//! }
//! ```

use crate::bindings;
use core::ptr::null_mut;
use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
};

/// A `wait_queue_head_t`.
///
/// A woken waiter checks its condition again. So other events before the waiter runs do not matter,
/// unlike with a reused [`Completion`](super::Completion).
///
/// # Invariants
///
/// `head` has been initialised by `init_waitqueue_head`.
#[pin_data]
pub struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A `wait_queue_head_t` is not bound to a thread.
unsafe impl Send for WaitQueue {}
// SAFETY: Every operation takes the lock of the `wait_queue_head_t`.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Creates an initialiser of a queue without waiters.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: `init_waitqueue_head` initialises it.
        pin_init!(Self {
            head <- Opaque::ffi_init(|slot: *mut bindings::wait_queue_head| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::srp_helper_init_waitqueue_head(slot) }
            }),
        })
    }

    /// Makes all waiters check their conditions; must be called after each change to a condition.
    /// Callable in any context except NMI.
    pub fn wake_all(&self) {
        // SAFETY: By the type invariant, `head` is initialised. 0 wakes all waiters.
        unsafe { bindings::__wake_up(self.head.get(), bindings::TASK_NORMAL, 0, null_mut()) };
    }

    /// Waits until `condition`, which must not sleep, holds. Sleeps uninterruptibly.
    ///
    /// Use this only for conditions that the kernel itself is certain to fulfil.
    pub fn wait(&self, condition: impl FnMut() -> bool) {
        let _ = self.wait_jiffies(c_long::MAX, condition);
    }

    /// As [`Self::wait`], for at most `timeout` milliseconds.
    ///
    /// # Errors
    ///
    /// [`ETIMEDOUT`] if the condition does not hold by then.
    pub fn wait_timeout(&self, timeout: Msecs, condition: impl FnMut() -> bool) -> Result {
        // `LONG_MAX` would wait forever.
        let jiffies = msecs_to_jiffies(timeout).min(c_long::MAX as usize - 1);
        // CAST: At most `LONG_MAX` - 1.
        self.wait_jiffies(jiffies as c_long, condition)
    }

    fn wait_jiffies(&self, mut left: c_long, mut condition: impl FnMut() -> bool) -> Result {
        if condition() {
            return Ok(());
        }
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is on the stack of the current thread, which stays here until
        // `finish_wait`.
        unsafe { bindings::init_wait(entry.get()) };
        let result = loop {
            // SAFETY: `head` and `entry` are initialised. A later change of the condition wakes the
            // thread.
            unsafe {
                bindings::prepare_to_wait(
                    self.head.get(),
                    entry.get(),
                    bindings::TASK_UNINTERRUPTIBLE as c_int,
                )
            };
            if condition() {
                break Ok(());
            }
            if left == 0 {
                break Err(ETIMEDOUT);
            }
            // SAFETY: The thread may sleep here. The timeout is not negative.
            left = unsafe { bindings::schedule_timeout(left) };
        };
        // SAFETY: `head` and `entry` are initialised, and `entry` is on no other queue.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_wait_queue)]
mod tests {
    use super::*;
    use crate::sync::race::race;
    use kernel::{
        processor::cpu_relax,
        sync::{
            atomic::{
                Acquire,
                Atomic,
                Release, //
            },
            Arc, //
        },
        time::{
            Instant,
            Monotonic, //
        },
    };

    #[pin_data]
    struct Shared {
        #[pin]
        queue: WaitQueue,
        waits: Atomic<bool>,
        set: Atomic<bool>,
    }

    impl Shared {
        fn new() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    queue <- WaitQueue::new(),
                    waits: Atomic::new(false),
                    set: Atomic::new(false),
                }),
                GFP_KERNEL,
            )
        }

        fn is_set(&self) -> bool {
            self.waits.store(true, Release);
            self.set.load(Acquire)
        }

        fn set(&self) {
            self.set.store(true, Release);
            self.queue.wake_all();
        }

        fn waiter(&self) {
            self.queue.wait(|| self.is_set());
        }

        fn waiter_with_timeout(&self) {
            let begin = Instant::<Monotonic>::now();
            assert_eq!(self.queue.wait_timeout(60_000, || self.is_set()), Ok(()));
            assert!(begin.elapsed().as_millis() < 50_000);
        }

        /// Sets the condition once a waiter waits or is about to.
        fn waker(&self) {
            while !self.waits.load(Acquire) {
                cpu_relax();
            }
            self.set();
        }
    }

    #[test]
    fn times_out() -> Result {
        let shared = Shared::new()?;
        let waits = |shared: &Shared| {
            let start = Instant::<Monotonic>::now();
            assert_eq!(
                shared.queue.wait_timeout(20, || shared.is_set()),
                Err(ETIMEDOUT)
            );
            start.elapsed().as_millis() >= 10
        };
        // In a guest that does not get its CPUs, ticks arrive late and in bursts, and a timeout in
        // ticks may end early.
        assert!((0..10).any(|_| waits(&shared)));
        assert_eq!(shared.queue.wait_timeout(0, || false), Err(ETIMEDOUT));
        shared.set();
        assert_eq!(shared.queue.wait_timeout(0, || shared.is_set()), Ok(()));
        shared.queue.wait(|| shared.is_set());
        Ok(())
    }

    #[test]
    fn each_waiter_is_woken() -> Result {
        for _ in 0..20 {
            let shared = Shared::new()?;
            race(
                &shared,
                &[Shared::waiter, Shared::waker, Shared::waiter_with_timeout],
            )?;
        }
        Ok(())
    }
}
