// SPDX-License-Identifier: GPL-2.0

//! Channels between request and response, and those that got no usable response.

use super::attempt::Attempt;
use crate::srp::{
    channel::Connection,
    ktime::Ktime,
    proto::login::Requested, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A channel that waits for the response to its login request. Dropping it ends its connection.
pub(super) struct Connecting<'a> {
    pub(super) attempt: Arc<dyn Attempt>,
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) requested: Requested,
    /// When the request was sent.
    pub(super) since: Ktime,
    pub(super) retired: &'a Retired,
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.attempt.events().go_dead();
            connection.hang_up();
            connection.shutdown();
            connection.close();
            connection.retire();
            self.retired.add(connection);
        }
    }
}

/// Failed connections. Their queue pairs are destroyed together, after one grace period.
pub(super) struct Retired(Cell<KVec<Arc<Connection>>>);

impl Retired {
    pub(super) const fn new() -> Self {
        Self(Cell::new(KVec::new()))
    }

    fn add(&self, connection: Arc<Connection>) {
        let mut all = self.0.take();
        if all.push(connection.clone(), GFP_KERNEL).is_err() {
            connection.disconnect();
        }
        self.0.set(all);
    }

    /// Disconnects all failed connections. Sleeps.
    pub(super) fn clear(&self) {
        for connection in self.0.take() {
            connection.disconnect();
        }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        self.clear();
    }
}
