// SPDX-License-Identifier: GPL-2.0

//! The result of a query to the core, which a callback sets.

use crate::sync::Completion;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock,
    time::Msecs, //
};

/// The result of a query. It is set and taken once.
#[pin_data]
pub(super) struct QueryResult<T> {
    #[pin]
    value: SpinLock<Option<T>>,
    #[pin]
    answered: Completion,
}

impl<T: Unpin> QueryResult<T> {
    /// No result yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            value <- new_spinlock!(None, "rdma::QueryResult"),
            answered <- Completion::new(),
        })
    }

    /// Sets the result, unless there was one. Process context; does not sleep.
    pub(super) fn set(&self, value: T) {
        let mut place = self.value.lock();
        if place.is_none() && !self.is_set() {
            *place = Some(value);
        }
        drop(place);
        self.answered.complete_all();
    }

    /// Whether there is a result, or was one.
    pub(super) fn is_set(&self) -> bool {
        self.answered.is_done()
    }

    /// Waits for the result, at most `timeout` milliseconds, and takes it. Returns `None` if there
    /// is none yet, or it was already taken. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub(super) fn wait(&self, timeout: Msecs) -> Result<Option<T>> {
        match self.answered.wait_interruptible_timeout(timeout) {
            Err(e) if e != ETIMEDOUT => Err(e),
            _ => Ok(self.value.lock().take()),
        }
    }
}
