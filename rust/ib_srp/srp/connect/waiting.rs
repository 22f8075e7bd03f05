// SPDX-License-Identifier: GPL-2.0

//! Interrupts a connecting thread in calls that have no deadline.

use crate::{
    sync::Interrupt,
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Delayed,
        DelayedItem,
        Handle, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

type Timer = Delayed<Waiting>;
impl_has_delayed! { impl HasDelayed<0> for Waiting { self.timeout } }

/// Interrupts calls that have no deadline.
#[pin_data]
pub struct Waiting {
    #[pin]
    thread: Interrupt,
    #[pin]
    timeout: Timer,
}

impl Waiting {
    /// Creates one without a thread. Timeouts run on `queue`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(queue: Handle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                thread <- Interrupt::new(),
                timeout <- new_delayed!(queue, "Waiting::timeout"),
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
        let _ = Timer::schedule(self.clone(), limit);
        let result = f();
        (result, !Timer::cancel_sync(self))
    }

    /// Interrupts the waits of the thread in [`Self::run`]. Any context.
    pub fn interrupt(&self) {
        self.thread.interrupt();
    }
}

impl DelayedItem for Waiting {
    fn run(this: Arc<Self>) {
        this.interrupt();
    }
}
