// SPDX-License-Identifier: GPL-2.0

//! Events of a session, counted from the login on, over all its connections.

use crate::sync::Count;

/// The counters of a session that do not belong to a channel.
#[derive(Default)]
pub struct Statistics {
    /// Number of lost connections, including those that a reconnect had just made.
    pub connections_lost: Count,
    /// Number of logins: the first one and each attempt to reconnect.
    pub login_tries: Count,
    /// Number of aborts by the error handler.
    pub aborts: Count,
    /// Number of resets of a logical unit.
    pub device_resets: Count,
    /// Number of resets of the host, which end the connection.
    pub host_resets: Count,
    /// Number of connections lost to protocol violations by the target or by a node that answers
    /// for it.
    pub violations: Count,
}
