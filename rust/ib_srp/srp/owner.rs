// SPDX-License-Identifier: GPL-2.0

//! What a connection reports to its session.

use super::error::Lost;
use kernel::sync::ArcBorrow;

/// Receives the events of a connection. None of this is on the fast path.
///
/// Context: any, interrupts may be off.
pub trait Owner: Send + Sync {
    /// A connection of the session has failed.
    fn fail(self: ArcBorrow<'_, Self>, why: Lost);

    /// The target has violated the protocol on a connection before its login was done.
    fn strike(&self, why: &Lost);

    /// The answer channel with this number has failed, for the reason `why`. If `why` is `None`,
    /// the session loses its connection, too: a call of [`Owner::fail`] follows.
    fn answer_channel_lost(&self, number: usize, why: Option<&Lost>);

    /// A command was refused for lack of a credit.
    fn credit_missing(self: ArcBorrow<'_, Self>);

    /// The target reports that its logical units have changed.
    fn units_changed(self: ArcBorrow<'_, Self>);
}
