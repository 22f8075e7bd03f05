// SPDX-License-Identifier: GPL-2.0

//! Sends messages that are not commands: task management, probes, replies, logout.

use super::Connection;
use crate::{
    rdma::{
        dma::Chunk,
        qp::SendWr, //
    },
    srp::proto::message_error::BuildError,
    sync::state_cell::StateCell, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// Memory for a message, with a state word.
pub(super) type Control = StateCell<Chunk>;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unsent {
    /// The state word is not `from`, or another thread holds the memory.
    Busy,
    /// The target has no buffer for the message.
    NoCredit,
    /// The device refuses the message.
    Refused(Error),
}

impl Connection {
    /// Sends the message that `build` writes to the memory of `control`: moves the state word from
    /// `from` to `to`, takes a credit if `reserve` says how many must be left, and posts the
    /// message by `post`. Without a credit the word stays `from`; if the device refuses the
    /// message, it is `to`.
    ///
    /// The caller has checked in the section `posting` that the connection is not lost, or is a
    /// completion callback, which the teardown of the connection waits for.
    pub(super) fn send_control(
        &self,
        posting: &rcu::Guard,
        control: &Control,
        (from, to): (u64, u64),
        reserve: Option<i32>,
        build: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
        post: impl FnOnce(SendWr<'_>) -> Result,
    ) -> Result<(), Unsent> {
        let mut iu = control.acquire(from, to).ok_or(Unsent::Busy)?;
        if reserve.is_some_and(|reserve| !self.take_credit(reserve)) {
            iu.release(from);
            return Err(Unsent::NoCredit);
        }
        let wr = match build(iu.bytes_mut()) {
            Ok(len) => self.live(posting).and_then(|live| live.send(&mut iu, len)),
            Err(_) => Err(EINVAL),
        };
        // Release the memory first: the response may come before the doorbell returns.
        iu.release(to);
        wr.and_then(post).map_err(Unsent::Refused)
    }
}
