// SPDX-License-Identifier: GPL-2.0

//! Task management: one request at a time on each channel.

use super::{
    control::{
        Control,
        Unsent, //
    },
    Connection, //
};
use crate::{
    errno::ENOTCONN,
    random::random_u64,
    rdma::dma::Chunk,
    srp::{
        error::Lost,
        logic::{
            credit::RESERVE_TSK_MGMT,
            exchange::{
                self,
                Exchange,
                State, //
            },
            tag::Tag,
            time::TSK_MGMT_TIMEOUT_MS, //
        },
        proto::{
            ids::Lun,
            message::build_short,
            opcode,
            tmf::{
                Function,
                TmfStatus,
                TskMgmt, //
            }, //
        }, //
    },
    sync::WaitQueue,
    trace::trace, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// The task management request of a channel.
pub struct Task {
    /// The state word is an [`Exchange`].
    control: Control,
    /// Woken when the state has changed.
    changed: Pin<KBox<WaitQueue>>,
}

impl Task {
    /// Creates a `Task` without a request in flight. Messages are written to `iu`.
    pub fn new(iu: Chunk) -> Result<Self> {
        Ok(Self {
            control: Control::new(Exchange::default().raw(), iu),
            changed: KBox::pin_init(WaitQueue::new(), GFP_KERNEL)?,
        })
    }

    fn word(&self) -> Exchange {
        Exchange::from_raw(self.control.load().0)
    }

    fn transition(&self, from: Exchange, to: Exchange) -> bool {
        self.control.transition(from.raw(), to.raw())
    }

    /// Sends a request and waits for the response, at most 5 s, after at most 5 s for an earlier
    /// request. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no credit is left or an earlier request has no response, `ENOTCONN` if the
    /// connection is lost before or during the wait, `ETIMEDOUT` without a response.
    pub fn run(
        &self,
        connection: &Connection,
        function: Function,
        lun: Lun,
        task_tag: u64,
    ) -> Result<TmfStatus> {
        let mut tag = 0;
        let result = self.exchange(connection, function, lun, task_tag, &mut tag);
        trace!(task_done(
            connection.host(),
            connection.index(),
            tag,
            result.map_or_else(|e| e.to_errno(), |status| i32::from(exchange::code(status))),
        ));
        result
    }

    /// As [`Self::run`]. Sets `sent` to the tag of the request, if one was sent.
    fn exchange(
        &self,
        connection: &Connection,
        function: Function,
        lun: Lun,
        task_tag: u64,
        sent: &mut u64,
    ) -> Result<TmfStatus> {
        let mut before = Exchange::default();
        let free = self.wait(connection, |now| {
            before = now;
            matches!(now.state(), State::Idle | State::Abandoned)
        })?;
        if !free || before.state() == State::Abandoned {
            return Err(EBUSY);
        }
        // CAST: Any 32 bits will do, except those of the last request.
        let mut generation = random_u64() as u32;
        if generation == before.generation() {
            generation = generation.wrapping_add(1);
        }
        let waiting = Exchange::new(State::Waiting, generation);
        let tag = Tag::tsk_mgmt(generation, connection.index(), 0)
            .ok_or(EINVAL)?
            .to_wire();
        let request = TskMgmt {
            tag,
            lun,
            function,
            task_tag,
        };
        {
            let posting = rcu::read_lock();
            if connection.status.state().is_lost() {
                return Err(ENOTCONN);
            }
            connection
                .send_control(
                    &posting,
                    &self.control,
                    (before.raw(), waiting.raw()),
                    Some(RESERVE_TSK_MGMT),
                    |iu| request.build(iu),
                    |wr| {
                        *sent = tag;
                        trace!(task(
                            connection.host(),
                            connection.index(),
                            tag,
                            function as u8,
                            super::trace::lun(lun),
                            task_tag,
                        ));
                        wr.post(true)
                    },
                )
                .map_err(|why| self.unsent(connection, why))?;
        }
        let changed = self.wait(connection, |now| now != waiting)?;
        if !changed && self.transition(waiting, waiting.with_state(State::Abandoned)) {
            return Err(ETIMEDOUT);
        }
        let now = self.word();
        // No answer: the connection was lost, and there may be a new one already.
        let status = now.response(generation).ok_or(ENOTCONN)?;
        self.transition(now, now.with_state(State::Idle));
        self.changed.wake_all();
        Ok(status)
    }

    /// Returns the errno of a message that was not sent. If the device has refused it, the
    /// connection has failed. `EBUSY` also if another caller took the request first.
    fn unsent(&self, connection: &Connection, why: Unsent) -> Error {
        match why {
            Unsent::Busy | Unsent::NoCredit => EBUSY,
            Unsent::Refused(e) => {
                connection.fail(Lost::Post(e));
                e
            }
        }
    }

    /// Sends a logout, unless a request is in flight. No request can follow the logout. Returns
    /// whether it was sent.
    pub fn log_out(&self, connection: &Connection) -> bool {
        let posting = rcu::read_lock();
        let (now, last) = (self.word(), Exchange::new(State::Abandoned, 0));
        if connection.status.state().is_lost() || now.state() != State::Idle {
            return false;
        }
        connection
            .send_control(
                &posting,
                &self.control,
                (now.raw(), last.raw()),
                Some(RESERVE_TSK_MGMT),
                |iu| build_short(iu, opcode::I_LOGOUT, random_u64()),
                |wr| wr.post_last(),
            )
            .map_err(|why| self.unsent(connection, why))
            .is_ok()
    }

    /// Resets the state: the queue pair of any request is shut down. No thread may start to post.
    pub fn reset(&self) {
        // Only the waiter of the last request, which times out or takes its answer, can race, and
        // only once.
        while !self.transition(self.word(), Exchange::default()) {}
        self.changed.wake_all();
    }

    /// Waits until the state satisfies `done`, at most 5 s. Returns whether it does. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is lost before or during the wait.
    fn wait(
        &self,
        connection: &Connection,
        mut done: impl FnMut(Exchange) -> bool,
    ) -> Result<bool> {
        let mut lost = false;
        let result = self.changed.wait_timeout(TSK_MGMT_TIMEOUT_MS, || {
            lost = connection.status.state().is_lost();
            lost || done(self.word())
        });
        if lost {
            return Err(ENOTCONN);
        }
        Ok(result.is_ok())
    }

    /// Handles a response. Returns whether it belongs to a request, even one that was given up.
    pub fn response(&self, tag: Tag, status: TmfStatus) -> bool {
        let generation = tag.generation();
        let word = |state| Exchange::new(state, generation);
        let responded = Exchange::responded(generation, status);
        let done = self.transition(word(State::Waiting), responded)
            || self.transition(word(State::Abandoned), word(State::Idle));
        self.changed.wake_all();
        done
    }

    /// Wakes the waiters: the connection is lost, so no response will come.
    pub fn wake(&self) {
        self.changed.wake_all();
    }
}
