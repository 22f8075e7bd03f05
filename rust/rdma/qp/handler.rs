// SPDX-License-Identifier: GPL-2.0

//! Who takes the completions of a queue pair.

use super::Qp;
use crate::rdma::wc::{
    Event,
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
    Event(Event),
    /// Receives could not be posted.
    Post(Error),
}

/// Takes the completions of a [`Qp`], in softirq context; if it is polled, where somebody calls
/// [`Qp::poll`], with softirqs off, or ends the connection.
pub trait Handler: Send + Sync + Sized + 'static {
    /// A message of the peer arrived. It is gone when the function returns.
    fn received(&self, qp: &Qp<Self>, message: &[u8], flags: Flags);

    /// The regions of a handle can be reached no more.
    fn invalidated(&self, qp: &Qp<Self>, handle: usize);

    /// The message posted by [`Qp::post_control`] has been sent.
    fn control_sent(&self, qp: &Qp<Self>);

    /// The message posted by [`Qp::post_last`] has been sent.
    fn last_sent(&self, qp: &Qp<Self>);

    /// The queue pair failed. Called for each failed request, but not for those that fail because
    /// the queue pair was in error already. Any context, interrupts may be off.
    fn failed(&self, failure: Failure);
}
