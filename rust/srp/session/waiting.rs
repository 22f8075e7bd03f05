// SPDX-License-Identifier: GPL-2.0

//! A thread that connects, in a call that has no deadline.

use super::Session;
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

const WAITING: u64 = 6;
type Timer = Delayed<Session, WAITING>;
impl_has_delayed! { impl HasDelayed<WAITING> for Session { self.waiting.timeout } }

/// Ends such calls.
#[pin_data]
pub(in crate::srp) struct Waiting {
    #[pin]
    thread: Interrupt,
    #[pin]
    timeout: Timer,
}

impl Waiting {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            thread <- Interrupt::new(),
            timeout <- new_delayed!(queue, "Session::waiting"),
        })
    }

    /// As [`Interrupt::run`].
    pub(in crate::srp) fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.thread.run(f)
    }

    /// Ends the waits of the thread in [`Self::run`]. Any context.
    pub(super) fn interrupt(&self) {
        self.thread.interrupt();
    }
}

impl Session {
    /// Calls `f`, in a call of [`Waiting::run`], whose waits end after `limit` milliseconds; and says whether
    /// that time was over. Sleeps.
    pub(in crate::srp) fn wait_at_most<R>(
        self: &Arc<Self>,
        limit: Msecs,
        f: impl FnOnce() -> R,
    ) -> (R, bool) {
        let _ = Timer::schedule(self.clone(), limit);
        let result = f();
        (result, !Timer::cancel_sync(self))
    }
}

impl DelayedItem<WAITING> for Session {
    fn run(this: Arc<Self>) {
        this.waiting.interrupt();
    }
}
