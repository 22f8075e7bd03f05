// SPDX-License-Identifier: GPL-2.0

//! Task management: one request at a time on each channel.

use super::Connection;
use crate::{
    errno::ENOTCONN,
    random::random_u64,
    rdma::dma::Chunk,
    srp::{
        error::Lost,
        logic::{
            credit::RESERVE_TSK_MGMT,
            session::TSK_MGMT_TIMEOUT_MS,
            tag::Tag,
            task::{
                self,
                State,
                Word, //
            }, //
        },
        proto::{
            ids::Lun,
            misc,
            tmf::{
                Function,
                TmfStatus,
                TskMgmt, //
            }, //
        }, //
    },
    sync::{
        state_cell::StateCell,
        WaitQueue, //
    },
    trace::trace, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// The task management request of a channel.
pub struct Task {
    /// Memory for the message; the state word is a [`Word`].
    cell: StateCell<Chunk>,
    /// Woken when the state has changed.
    changed: Pin<KBox<WaitQueue>>,
}

impl Task {
    /// Creates an idle one. Messages are written to `iu`.
    pub fn new(iu: Chunk) -> Result<Self> {
        Ok(Self {
            cell: StateCell::new(Word::default().raw(), iu),
            changed: KBox::pin_init(WaitQueue::new(), GFP_KERNEL)?,
        })
    }

    fn word(&self) -> Word {
        Word::from_raw(self.cell.load().0)
    }

    fn transition(&self, from: Word, to: Word) -> bool {
        self.cell.transition(from.raw(), to.raw())
    }

    /// Sends a request and waits for the response, at most 5 s, after at most 5 s for an earlier
    /// request. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no credit is left or an earlier request has not been answered, `ENOTCONN` if the
    /// connection is or gets lost, `ETIMEDOUT` without a response.
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
            result.map_or_else(|e| e.to_errno(), |status| i32::from(task::code(status))),
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
        let mut before = Word::default();
        let free = self.wait(connection, |now| {
            before = now;
            matches!(now.state(), State::Idle | State::Stuck)
        })?;
        if !free || before.state() == State::Stuck {
            return Err(EBUSY);
        }
        // CAST: Any 32 bits will do, except those of the last request.
        let mut generation = random_u64() as u32;
        if generation == before.generation() {
            generation = generation.wrapping_add(1);
        }
        let (waiting, idle) = (Word::waiting(generation), Word::idle(generation));
        let tag = Tag::tsk_mgmt(generation, connection.index(), 0).ok_or(EINVAL)?;
        {
            let posting = rcu::read_lock();
            if connection.is_lost() {
                return Err(ENOTCONN);
            }
            // Another caller may have been faster.
            let mut iu = self
                .cell
                .acquire(before.raw(), waiting.raw())
                .ok_or(EBUSY)?;
            if !connection.take_credit(RESERVE_TSK_MGMT) {
                iu.release(idle.raw());
                return Err(EBUSY);
            }
            let request = TskMgmt {
                tag: tag.to_wire(),
                lun,
                function,
                task_tag,
            };
            let wr = match request.build(iu.bytes_mut()) {
                Ok(len) => connection
                    .live(&posting)
                    .and_then(|live| live.send(&mut iu, len)),
                Err(_) => Err(EINVAL),
            };
            iu.release(waiting.raw());
            *sent = tag.to_wire();
            trace!(task(
                connection.host(),
                connection.index(),
                *sent,
                function as u8,
                super::trace::lun(lun),
                task_tag,
            ));
            if let Err(e) = wr.and_then(|wr| wr.post(true)) {
                connection.fail(Lost::Post(e));
                return Err(e);
            }
        }
        let changed = self.wait(connection, |now| now != waiting)?;
        if !changed && self.transition(waiting, Word::stuck(generation)) {
            return Err(ETIMEDOUT);
        }
        let now = self.word();
        // No answer: the connection was lost, and there may be a new one already.
        let status = now.answer(generation).ok_or(ENOTCONN)?;
        self.transition(now, idle);
        self.changed.wake_all();
        Ok(status)
    }

    /// Sends a logout, unless a request is in flight. No request can follow the logout. Returns
    /// whether it was sent.
    pub fn log_out(&self, connection: &Connection) -> bool {
        let posting = rcu::read_lock();
        let (now, stuck) = (self.word(), Word::stuck(0));
        if connection.is_lost() || now.state() != State::Idle {
            return false;
        }
        let Some(mut iu) = self.cell.acquire(now.raw(), stuck.raw()) else {
            return false;
        };
        // Without a credit the target has no buffer for the logout.
        if !connection.take_credit(RESERVE_TSK_MGMT) {
            iu.release(now.raw());
            return false;
        }
        let wr = match misc::i_logout(iu.bytes_mut(), random_u64()) {
            Ok(len) => connection
                .live(&posting)
                .and_then(|live| live.send(&mut iu, len)),
            Err(_) => Err(EINVAL),
        };
        iu.release(stuck.raw());
        match wr.and_then(|wr| wr.post_last()) {
            Ok(()) => true,
            Err(e) => {
                connection.fail(Lost::Post(e));
                false
            }
        }
    }

    /// Resets the state: the queue pair of any request is shut down. No thread may start to post.
    pub fn reset(&self) {
        // Only the waiter of the last request, which times out or takes its answer, can race, and
        // only once.
        while !self.transition(self.word(), Word::default()) {}
        self.changed.wake_all();
    }

    /// Waits until the state satisfies `done`, at most 5 s. Returns whether it does. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is or gets lost.
    fn wait(&self, connection: &Connection, mut done: impl FnMut(Word) -> bool) -> Result<bool> {
        let mut lost = false;
        let result = self.changed.wait_timeout(TSK_MGMT_TIMEOUT_MS, || {
            lost = connection.is_lost();
            lost || done(self.word())
        });
        if lost {
            return Err(ENOTCONN);
        }
        Ok(result.is_ok())
    }

    /// Handles a response. Returns whether it belongs to a request, even one that was given up.
    pub fn answer(&self, tag: Tag, status: TmfStatus) -> bool {
        let generation = tag.generation();
        let answered = Word::answered(generation, status);
        let done = self.transition(Word::waiting(generation), answered)
            || self.transition(Word::stuck(generation), Word::idle(generation));
        self.changed.wake_all();
        done
    }

    /// Wakes the waiters: the connection is lost, so no response will come.
    pub fn wake(&self) {
        self.changed.wake_all();
    }
}
