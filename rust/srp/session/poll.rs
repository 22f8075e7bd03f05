// SPDX-License-Identifier: GPL-2.0

//! Polling the polled channels for those who do not.
//!
//! Who submits a polled request polls for its end. Nobody does for task management, for the tests of an
//! idle connection, or for commands of the error handler.

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

/// How often, in milliseconds.
const INTERVAL_MS: Msecs = 20;

/// The next poll.
pub(super) type Poll = Delayed<Session, POLL>;
const POLL: u64 = 5;
impl_has_delayed! { impl HasDelayed<POLL> for Session { self.poll } }

impl Session {
    /// Polls from now on, if there are polled channels, until the connection is down. Any context.
    pub(in crate::srp) fn begin_poll(self: &Arc<Self>) {
        if self.geometry.polled > 0 {
            // If it is set already, that will do.
            let _ = Poll::schedule(self.clone(), INTERVAL_MS);
        }
    }

    /// No more polls. The connection is down. Sleeps.
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
