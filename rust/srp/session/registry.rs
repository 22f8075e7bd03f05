// SPDX-License-Identifier: GPL-2.0

//! The list that a session is on.

use super::Session;
use kernel::sync::Arc;

/// A list of sessions.
pub trait Registry: Send + Sync {
    /// Removes a session that has ended from the list.
    ///
    /// Context: process, may sleep.
    fn forget(&self, session: &Arc<Session>);
}
