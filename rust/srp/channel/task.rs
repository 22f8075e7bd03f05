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
            tag::Tag, //
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

/// No request is under way.
const IDLE: u64 = 0;
/// A request waits for its answer.
const WAITING: u64 = 1;
/// The answer is there, its code in bits 2 to 10.
const ANSWERED: u64 = 2;
/// The request was given up. Until the answer comes, its message may still be on its way, so there
/// is no other request.
const STUCK: u64 = 3;

/// The code of an answer without one.
const NO_CODE: u64 = 0x100;

/// The task management request of a channel.
pub struct Task {
    /// Memory for the message; the word is one of the states above, and from bit 16 on the
    /// generation of the last request.
    cell: StateCell<Chunk>,
    /// The state has changed.
    changed: Pin<KBox<WaitQueue>>,
}

const fn word(generation: u32, state: u64) -> u64 {
    (generation as u64) << 16 | state
}

const fn code(status: TmfStatus) -> u64 {
    match status {
        TmfStatus::Complete => 0,
        TmfStatus::InvalidFields => 2,
        TmfStatus::NotSupported => 4,
        TmfStatus::Failed => 5,
        TmfStatus::Unknown(code) => code as u64,
        TmfStatus::Missing => NO_CODE,
    }
}

const fn status(word: u64) -> TmfStatus {
    match word >> 2 & 0x1ff {
        NO_CODE => TmfStatus::Missing,
        // CAST: It came from a byte.
        code => TmfStatus::new(code as u8),
    }
}

impl Task {
    /// No request is under way; messages are written to `iu`.
    pub fn new(iu: Chunk) -> Result<Self> {
        Ok(Self {
            cell: StateCell::new(IDLE, iu),
            changed: KBox::pin_init(WaitQueue::new(), GFP_KERNEL)?,
        })
    }

    /// Sends a request and waits for the answer, at most 5 s, after at most 5 s for an earlier one.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no credit is left, or an earlier request has not been answered, `ENOTCONN` if the
    /// connection is or gets lost, `ETIMEDOUT` without an answer.
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
            result.map_or_else(|e| e.to_errno(), |status| code(status) as i32),
        ));
        result
    }

    /// As [`Self::run`]; `tag` is that of the request, if one was sent.
    fn exchange(
        &self,
        connection: &Connection,
        function: Function,
        lun: Lun,
        task_tag: u64,
        sent: &mut u64,
    ) -> Result<TmfStatus> {
        let mut before = 0;
        if !self.wait(connection, |now| {
            before = now;
            now & 3 == IDLE || now & 3 == STUCK
        })? || before & 3 == STUCK
        {
            return Err(EBUSY);
        }
        // CAST: Any 32 bits will do, but not the last ones.
        let mut generation = random_u64() as u32;
        if u64::from(generation) == before >> 16 {
            generation = generation.wrapping_add(1);
        }
        let (waiting, idle) = (word(generation, WAITING), word(generation, IDLE));
        let tag = Tag::tsk_mgmt(generation, connection.index(), 0).ok_or(EINVAL)?;
        {
            let posting = rcu::read_lock();
            if connection.is_lost() {
                return Err(ENOTCONN);
            }
            // Somebody else may have been faster; then it is his turn.
            let mut iu = self.cell.acquire(before, waiting).ok_or(EBUSY)?;
            if !connection.take_credit(RESERVE_TSK_MGMT) {
                iu.release(idle);
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
            iu.release(waiting);
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
        if !changed && self.cell.transition(waiting, word(generation, STUCK)) {
            return Err(ETIMEDOUT);
        }
        let answer = self.cell.load().0;
        if answer >> 16 != u64::from(generation) || answer & 3 != ANSWERED {
            // The connection was lost, and there may be another one already.
            return Err(ENOTCONN);
        }
        self.cell.transition(answer, idle);
        self.changed.wake_all();
        Ok(status(answer))
    }

    /// Sends a logout, after which there will be no other request, unless one is under way. Returns
    /// whether it has.
    pub fn log_out(&self, connection: &Connection) -> bool {
        let posting = rcu::read_lock();
        let now = self.cell.load().0;
        if connection.is_lost() || now & 3 != IDLE {
            return false;
        }
        let Some(mut iu) = self.cell.acquire(now, word(0, STUCK)) else {
            return false;
        };
        // Without a credit there is no buffer for it.
        if !connection.take_credit(RESERVE_TSK_MGMT) {
            iu.release(now);
            return false;
        }
        let wr = match misc::i_logout(iu.bytes_mut(), random_u64()) {
            Ok(len) => connection
                .live(&posting)
                .and_then(|live| live.send(&mut iu, len)),
            Err(_) => Err(EINVAL),
        };
        iu.release(word(0, STUCK));
        match wr.and_then(|wr| wr.post_last()) {
            Ok(()) => true,
            Err(e) => {
                connection.fail(Lost::Post(e));
                false
            }
        }
    }

    /// The queue pair of what was under way is gone. Nobody must begin to post.
    pub fn reset(&self) {
        // Only a waiter that gives up can be faster, once.
        while !self.cell.transition(self.cell.load().0, IDLE) {}
        self.changed.wake_all();
    }

    /// Waits until the state is as `done` wants it, at most 5 s; returns whether it is. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is or gets lost.
    fn wait(&self, connection: &Connection, mut done: impl FnMut(u64) -> bool) -> Result<bool> {
        let mut lost = false;
        let result = self.changed.wait_timeout(TSK_MGMT_TIMEOUT_MS, || {
            lost = connection.is_lost();
            lost || done(self.cell.load().0)
        });
        if lost {
            return Err(ENOTCONN);
        }
        Ok(result.is_ok())
    }

    /// Takes an answer. Returns whether it belongs to a request, even one that was given up.
    pub fn answer(&self, tag: Tag, status: TmfStatus) -> bool {
        let generation = tag.generation();
        let answered = word(generation, ANSWERED | code(status) << 2);
        let done = self.cell.transition(word(generation, WAITING), answered)
            || self
                .cell
                .transition(word(generation, STUCK), word(generation, IDLE));
        self.changed.wake_all();
        done
    }

    /// The connection is lost: nobody will answer.
    pub fn wake(&self) {
        self.changed.wake_all();
    }
}
