// SPDX-License-Identifier: GPL-2.0

//! Who takes the completions of a queue pair.

use super::{
    Qp,
    QpEvent, //
};
use crate::rdma::wc::{
    Flags,
    Status, //
};
use kernel::error::Error;

/// Why a queue pair is of no more use.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// A request of the named kind ended badly.
    Request(&'static str, Status),
    /// The device reported an event.
    Event(QpEvent),
    /// Receives could not be posted.
    Post(Error),
}

/// What a [`Qp`] is for. It takes the completions, in a softirq or a task, as its
/// [`PollContext`](super::PollContext) says; if the queue pair is polled, where [`Qp::poll`] is
/// called, with softirqs off, or the connection ended. They come one at a time, and must not sleep.
pub trait Handler: Send + Sync + Sized + 'static {
    /// A message of the peer arrived. It is gone when the function returns.
    fn received(qp: &Qp<Self>, message: &[u8], flags: Flags);

    /// The regions of a handle can be reached no more.
    fn invalidated(qp: &Qp<Self>, handle: usize);

    /// The message posted by [`SendWr::post_control`](super::SendWr::post_control) has been sent.
    fn control_sent(qp: &Qp<Self>);

    /// The message posted by [`SendWr::post_last`](super::SendWr::post_last) has been sent.
    fn last_sent(qp: &Qp<Self>);

    /// The queue pair failed. Called for each failed request, but not for those that fail because
    /// the queue pair was in error already. Any context, interrupts may be off.
    fn failed(qp: &Qp<Self>, failure: Failure);
}
