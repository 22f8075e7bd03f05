// SPDX-License-Identifier: GPL-2.0

//! Polls the polled channels for completions that have no other poller.
//!
//! The submitter of a polled request polls for its completion. No thread polls for task management,
//! connection tests, or commands of the error handler.

use super::Session;
use crate::workqueue::{
    impl_has_delayed,
    Delayed,
    DelayedItem, //
};
use kernel::{
    sync::Arc,
    time::Msecs, //
};

/// The polling interval, in milliseconds.
const INTERVAL_MS: Msecs = 20;

/// The next poll.
pub(super) type Poll = Delayed<Session, POLL>;
const POLL: u64 = 5;
impl_has_delayed! { impl HasDelayed<POLL> for Session { self.poll } }

impl Session {
    /// Starts to poll, if there are polled channels, until the connection is down. Any context.
    pub(in crate::srp) fn begin_poll(self: &Arc<Self>) {
        if self.geometry.polled > 0 {
            // Fails if the timer is armed already, which suffices.
            let _ = Poll::schedule(self.clone(), INTERVAL_MS);
        }
    }

    /// Stops polling. The connection is down. Sleeps.
    pub(super) fn end_poll(self: &Arc<Self>) {
        Poll::cancel_sync(self);
    }
}

impl DelayedItem<POLL> for Session {
    fn run(this: Arc<Self>) {
        if let (Some(channels), _) = this.parts() {
            for connection in channels.iter() {
                connection.poll();
            }
        }
        if !this.is_down() {
            this.begin_poll();
        }
    }
}
