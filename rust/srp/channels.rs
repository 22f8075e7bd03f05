// SPDX-License-Identifier: GPL-2.0

//! All channels of a session, which end together.

use super::channel::Connection;
use crate::{
    sync::synchronize_rcu,
    sync::NoIo,
    workqueue::Crew, //
};
use core::ops::Deref;
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::Arc, //
};

/// The channels of a session, one for each hardware queue.
#[derive(Default)]
pub struct Channels(KVec<Arc<Connection>>);

impl Channels {
    /// Adds a channel. May sleep.
    pub fn push(&mut self, connection: Arc<Connection>) -> Result<(), AllocError> {
        self.0.push(connection, GFP_KERNEL)
    }

    /// Has `crew` end the connections and their commands. Nobody must begin to post: the session is lost. Sleeps.
    ///
    /// A device may take a minute for each step of a queue pair, so all take it at the same time. There is no
    /// deadline: as long as a queue pair is not drained, the memory of its commands is not the midlayer's.
    pub fn end(&self, crew: &Crew) {
        let all = |step: fn(&Connection)| {
            crew.each(self, |connection| {
                // Memory that is reclaimed by writing to these very disks would not come before this is done.
                let _noio = NoIo::enter();
                step(connection);
            })
        };
        for connection in self.iter() {
            connection.task.wake();
        }
        all(Connection::hang_up);
        // Whoever has not seen that the session is lost has posted after this.
        synchronize_rcu();
        all(|connection| {
            connection.shutdown();
            connection.close();
            connection.retire();
        });
        all(Connection::disconnect);
    }
}

impl Deref for Channels {
    type Target = [Arc<Connection>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Whoever has one of them still must not connect it.
impl Drop for Channels {
    fn drop(&mut self) {
        // What goes below has one grace period for all, and so has what goes with the last reference.
        for connection in self.iter() {
            connection.retire();
        }
        for connection in self.iter() {
            let _ = connection.finish();
        }
    }
}
