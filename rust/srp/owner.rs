// SPDX-License-Identifier: GPL-2.0

//! What a connection has to tell the session that it belongs to.

use super::error::Lost;
use kernel::sync::ArcBorrow;

/// Hears what happens to a connection. None of this is on the way of a command that goes well.
///
/// Context: any, interrupts may be off.
pub trait Owner: Send + Sync {
    /// The connection, which is that of the session, is of no more use.
    fn fail(self: ArcBorrow<'_, Self>, why: Lost);

    /// The target has broken the protocol on a connection that is not the session's yet.
    fn strike(&self, why: &Lost);

    /// The answer channel with this number is of no more use, for this reason; without one the session's connection is
    /// of no more use either, as is said next.
    fn answers_lost(&self, number: usize, why: Option<&Lost>);

    /// A command was refused for want of a credit.
    fn credit_missing(self: ArcBorrow<'_, Self>);

    /// The target says that its units have changed.
    fn units_changed(self: ArcBorrow<'_, Self>);
}
