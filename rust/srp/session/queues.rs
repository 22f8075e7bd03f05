// SPDX-License-Identifier: GPL-2.0

//! The work queues of all sessions.

use crate::workqueue::Handle;

/// The work queues of sessions.
#[derive(Clone)]
pub struct Queues {
    /// Teardown of connections.
    pub ending: Handle,
    /// Removal of disks, which waits for teardowns.
    pub removal: Handle,
    /// Reconnects, which wait for the network.
    pub reconnect: Handle,
}
