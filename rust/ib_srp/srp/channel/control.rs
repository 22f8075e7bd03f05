// SPDX-License-Identifier: GPL-2.0

//! Control messages, which are not commands of the midlayer, and probes.

use super::Connection;
use crate::{
    random::random_u64,
    rdma::{
        dma::Chunk,
        qp::SendWr, //
    },
    srp::{
        error::Lost,
        logic::{
            exchange::{
                Exchange,
                Phase, //
            },
            tag::Tag, //
        },
        proto::{
            cmd::Cmd,
            ids::Lun,
            message_error::BuildError, //
        }, //
    },
    sync::state_cell::StateCell, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
};

/// The number of a task management request in its tag.
pub(super) const TASK: u16 = 0;
/// The number of a probe in its tag.
pub(super) const PROBE: u16 = 1;

/// INQUIRY with allocation length 0: the only suitable command that does not clear a pending unit
/// attention (SAM-5, 5.14).
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 0, 0];

/// Memory for a message, and the state of its [`Exchange`].
pub(super) struct Control(StateCell<Chunk>);

impl Control {
    /// Creates an idle exchange. Its messages are written to `iu`.
    pub(super) fn new(iu: Chunk) -> Self {
        Self(StateCell::new(Exchange::default().raw(), iu))
    }

    /// The state, which may change at any time.
    pub(super) fn word(&self) -> Exchange {
        Exchange::from_raw(self.0.load().0)
    }

    /// Changes the state from `from` to `to`. Returns whether it did.
    pub(super) fn transition(&self, from: Exchange, to: Exchange) -> bool {
        self.0.transition(from.raw(), to.raw())
    }

    /// Handles a response to the request with the generation of `to`. The state becomes `to`, or
    /// Idle if the request was given up. Returns whether there was such a request.
    pub(super) fn response(&self, to: Exchange) -> bool {
        self.transition(to.with_phase(Phase::Waiting), to)
            || self.transition(to.with_phase(Phase::Abandoned), to.with_phase(Phase::Idle))
    }

    /// Resets the state. Its queue pair is shut down, and no thread may start to post.
    pub(super) fn reset(&self) {
        // Only the waiter of the last request can race, and only once: it times out or takes the
        // response.
        while !self.transition(self.word(), Exchange::default()) {}
    }
}

impl Connection {
    /// Sends a message: moves the state of `control` from `from` to `to`, takes a credit if
    /// `reserve` is given, has `build` write the message to the memory, and posts it by `post`. At
    /// least `reserve` credits are left. Returns whether there was a credit; without one the state
    /// stays `from`.
    ///
    /// The caller has checked in the section `posting` that the connection is not lost, or is a
    /// completion callback, which the teardown of the connection waits for.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the state is not `from`, or another thread holds the memory. Otherwise the device
    /// has refused the message: the state is `to`, and the connection has failed.
    pub(super) fn send_control(
        &self,
        posting: &rcu::Guard,
        control: &Control,
        (from, to): (Exchange, Exchange),
        reserve: Option<i32>,
        build: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
        post: impl FnOnce(SendWr<'_>) -> Result,
    ) -> Result<bool> {
        let mut iu = control.0.acquire(from.raw(), to.raw()).ok_or(EBUSY)?;
        if reserve.is_some_and(|reserve| !self.counts.take_credit(reserve)) {
            iu.release(from.raw());
            return Ok(false);
        }
        let wr = match build(iu.bytes_mut()) {
            Ok(len) => self.live(posting).and_then(|live| live.send(&mut iu, len)),
            Err(_) => Err(EINVAL),
        };
        // Release the memory first: the response may come before the doorbell returns.
        iu.release(to.raw());
        wr.and_then(post)
            .inspect_err(|&e| self.fail(Lost::Post(e)))
            .map(|()| true)
    }

    /// Sends a probe if the channel is connected and has more than `reserve` credits. The probe is
    /// a command to LUN 0 that changes nothing; any response is a sign of life. Without a credit, a
    /// task management request in flight stands for the probe: it may have taken the credit kept
    /// for both, and no probe would ever be sent. Returns whether one was sent. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`Lost::KeepAlive`] if the last probe has no response, [`Lost::Post`] if the device has
    /// refused this one.
    pub fn send_probe(&self, reserve: i32) -> Result<bool, Lost> {
        let posting = rcu::read_lock();
        if self.status.state().is_lost() || !self.is_open() {
            return Ok(false);
        }
        let before = self.probe.word();
        if before.phase() == Phase::Waiting {
            return Err(Lost::KeepAlive);
        }
        // CAST: Any 32 bits will do.
        let generation = random_u64() as u32;
        let waiting = Exchange::new(Phase::Waiting, generation);
        let Some(tag) = Tag::tsk_mgmt(generation, self.index, PROBE) else {
            return Ok(false);
        };
        let inquiry = Cmd {
            tag: tag.to_wire(),
            lun: Lun::default(),
            cdb: &INQUIRY,
        };
        let sent = self.send_control(
            &posting,
            &self.probe,
            (before, waiting),
            Some(reserve),
            |iu| inquiry.build(iu),
            |wr| wr.post(true),
        );
        if matches!(sent, Ok(false)) {
            self.stand_in.store(self.task.word().unanswered(), Relaxed);
        }
        // A failed post has ended the connection already, so its reason does not matter here.
        sent.map_err(|e| match e {
            EBUSY => Lost::KeepAlive,
            e => Lost::Post(e),
        })
    }

    /// Whether a probe is in flight that the target must respond to, or the request that stands for
    /// it.
    pub fn is_probed(&self) -> bool {
        let task = self.task.word().unanswered();
        self.probe.word().phase() == Phase::Waiting
            || task != 0 && task == self.stand_in.load(Relaxed)
    }

    /// Handles a reset of the unit `lun`: the target may have dropped a probe of this unit, so the
    /// probe no longer counts as outstanding. A late response is still accepted.
    pub fn recall_probe(&self, lun: Lun) {
        let now = self.probe.word();
        if now.phase() == Phase::Waiting && lun == Lun::default() {
            // Fails if the response has arrived meanwhile.
            let _ = self.probe.transition(now, now.with_phase(Phase::Abandoned));
        }
    }
}
