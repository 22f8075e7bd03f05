// SPDX-License-Identifier: GPL-2.0

//! The events of a connection, and the handler that takes them.

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The peer has the request, and asks for so many milliseconds to answer it: 70,000 at most.
    Later(u32),
    /// The peer has answered the request; the private data is its answer, and zeros after it.
    Answered(&'a [u8]),
    /// The peer said no.
    Rejected {
        /// `enum ib_cm_rej_reason`.
        reason: u16,
        /// Additional information, as long as the peer says.
        info: &'a [u8],
        /// The private data, and zeros after it.
        private_data: &'a [u8],
    },
    /// No answer to the request arrived.
    Unreachable,
    /// The connection is down.
    Disconnected,
    /// The queue pair number may be used again.
    TimewaitExit,
}

/// Takes the events of an [`Id`](super::Id).
pub trait EventHandler: Send + Sync + 'static {
    /// An event arrived: at most one that is an answer, a rejection or the lack of an answer, and
    /// then at most one end of the connection. A peer asks for time before all of these.
    ///
    /// Called from a work queue of the connection manager. May sleep, but must not drop the last
    /// reference to its own id.
    fn event(&self, event: Event<'_>);
}
