// SPDX-License-Identifier: GPL-2.0

//! Where a session is on a list.

use super::Session;
use kernel::sync::Arc;

/// Has a list of sessions.
pub trait Registry: Send + Sync {
    /// Takes a session that has ended off the list.
    ///
    /// Context: process, may sleep.
    fn forget(&self, session: &Arc<Session>);
}
