// SPDX-License-Identifier: GPL-2.0

//! The events of a connection, and their handler.

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The peer has the request and needs this many milliseconds to reply: at most 70,000.
    Later(u32),
    /// The peer has replied to the request, with this private data, padded with zeros.
    Replied(&'a [u8]),
    /// The peer has rejected the request.
    Rejected {
        /// `enum ib_cm_rej_reason`.
        reason: u16,
        /// Additional information, with the length that the peer specifies, at most 72 bytes.
        info: &'a [u8],
        /// The private data, padded with zeros.
        private_data: &'a [u8],
    },
    /// No reply to the request arrived.
    Unreachable,
    /// The connection is down.
    Disconnected,
    /// The queue pair number may be used again.
    TimewaitExit,
}

/// Handles the events of an [`Id`](super::Id).
pub trait EventHandler: Send + Sync + 'static {
    /// Handles an event. There is at most one reply, rejection or lack of a reply, and then at most
    /// one end of the connection. [`Event::Later`] comes before all of these.
    ///
    /// Called from a work queue of the connection manager. May sleep, but must not drop the last
    /// reference to its own id.
    fn event(&self, event: Event<'_>);
}
