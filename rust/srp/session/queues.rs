// SPDX-License-Identifier: GPL-2.0

//! The queues of all sessions.

use crate::workqueue::Handle;

/// The queues that sessions end on.
#[derive(Clone)]
pub struct Queues {
    /// Connections.
    pub ending: Handle,
    /// Disks, which wait for the former.
    pub removal: Handle,
    /// New connections, which wait for the network.
    pub reconnect: Handle,
}
