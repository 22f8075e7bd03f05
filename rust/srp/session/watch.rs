// SPDX-License-Identifier: GPL-2.0

//! Looking at polled channels when nobody else does.
//!
//! Who submits a polled request looks for its end. Nobody does for task management, for the tests of an
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
const WATCH_MS: Msecs = 20;

/// The next look.
pub(super) type Watch = Delayed<Session, WATCH>;
const WATCH: u64 = 5;
impl_has_delayed! { impl HasDelayed<WATCH> for Session { self.watch } }

impl Session {
    /// Begins to look, if there are polled channels, and does so until the connection is down. Any
    /// context.
    pub(in crate::srp) fn watch(self: &Arc<Self>) {
        if self.geometry.polled > 0 {
            // If it is set already, that will do.
            let _ = Watch::schedule(self.clone(), WATCH_MS);
        }
    }

    /// Nobody looks any more. The connection is down. Sleeps.
    pub(super) fn end_watch(self: &Arc<Self>) {
        Watch::cancel_sync(self);
    }
}

impl DelayedItem<WATCH> for Session {
    fn run(this: Arc<Self>) {
        if let (Some(channels), _) = this.parts() {
            for connection in channels.iter() {
                connection.poll();
            }
        }
        if !this.is_down() {
            this.watch();
        }
    }
}
