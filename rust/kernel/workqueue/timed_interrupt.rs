// SPDX-License-Identifier: GPL-2.0

//! Calls that wait without a deadline of their own.
//!
//! [`Interrupt`] ends such a wait from another thread; a [`TimedInterrupt`] also ends it after a
//! time limit.

use super::{
    impl_has_delayed,
    new_delayed,
    Delayed,
    DelayedItem,
    Handle, //
};
use crate::sync::Interrupt;
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

impl_has_delayed! { impl HasDelayed<0> for TimedInterrupt { self.timeout } }

/// Interrupts a thread in calls that have no deadline, on request or after a time limit.
///
/// # Examples
///
/// ```
/// use ib_srp::workqueue::{Handle, TimedInterrupt};
/// use kernel::{prelude::*, sync::Arc};
///
/// /// Calls a function that may wait forever, and ends its wait after a second.
/// fn discover(queue: Handle, discover: impl FnOnce() -> Result) -> Result {
///     let interrupt = TimedInterrupt::new(queue)?;
///     let (result, expired) = interrupt.run(|| interrupt.at_most(1000, discover));
///     match expired {
///         true => Err(ETIMEDOUT),
///         false => result,
///     }
/// }
/// ```
#[pin_data]
pub struct TimedInterrupt {
    #[pin]
    thread: Interrupt,
    #[pin]
    timeout: Delayed<Self>,
}

impl TimedInterrupt {
    /// Creates an interrupt without a thread. Timeouts run on `queue`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(queue: Handle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                thread <- Interrupt::new(),
                timeout <- new_delayed!(queue, "TimedInterrupt::timeout"),
            }),
            GFP_KERNEL,
        )
    }

    /// As [`Interrupt::run`].
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.thread.run(f)
    }

    /// Calls `f`, within a call of [`Self::run`], and interrupts its waits after `limit`
    /// milliseconds. Also returns whether the limit has expired. Sleeps.
    pub fn at_most<R>(self: &Arc<Self>, limit: Msecs, f: impl FnOnce() -> R) -> (R, bool) {
        let _ = Delayed::schedule(self.clone(), limit);
        let result = f();
        (result, !Delayed::cancel_sync(self))
    }

    /// Interrupts the waits of the thread in [`Self::run`]. Any context.
    pub fn interrupt(&self) {
        self.thread.interrupt();
    }
}

impl DelayedItem for TimedInterrupt {
    fn run(this: Arc<Self>) {
        this.interrupt();
    }
}
