// SPDX-License-Identifier: GPL-2.0

//! The callbacks of a queue pair.

use super::{
    Qp,
    QpEvent, //
};
use crate::rdma::wc::{
    Flags,
    Status, //
};
use kernel::error::Error;

/// The reason why a queue pair failed.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// A request of the named kind failed.
    Request(&'static str, Status),
    /// The device reported an event.
    Event(QpEvent),
    /// Receives could not be posted.
    Post(Error),
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Request(what, status) => {
                write!(f, "{what} failed: {status} ({})", status.number())
            }
            Self::Event(event) => write!(f, "queue pair event: {event}"),
            Self::Post(e) => write!(f, "posting receives failed: error {}", e.to_errno()),
        }
    }
}

/// The callbacks of a [`Qp`]. They run in a softirq or a task, as its
/// [`PollContext`](super::PollContext) says. Those of a polled queue pair run in the caller of
/// [`Qp::poll`], with softirqs off, or in the task that ends the connection. Callbacks run one at a
/// time, and must not sleep.
pub trait Handler: Send + Sync + Sized + 'static {
    /// A message of the peer arrived. `message` is valid only during the call.
    fn received(qp: &Qp<Self>, message: &[u8], flags: Flags);

    /// The peer cannot reach the regions of a handle from now on.
    fn invalidated(qp: &Qp<Self>, handle: usize);

    /// The message posted by [`SendWr::post_control`](super::SendWr::post_control) has been sent.
    fn control_sent(qp: &Qp<Self>);

    /// The message posted by [`SendWr::post_last`](super::SendWr::post_last) has been sent.
    fn last_sent(qp: &Qp<Self>);

    /// The queue pair failed. Called for each failed request, except for those that are flushed
    /// while this side ends the connection. Any context, interrupts may be off.
    fn failed(qp: &Qp<Self>, failure: Failure);
}
