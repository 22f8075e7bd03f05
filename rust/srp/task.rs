// SPDX-License-Identifier: GPL-2.0

//! Task management: one request at a time on each channel.

use super::{
    channel::Connection,
    logic::{
        credit::RESERVE_TSK_MGMT,
        session::TSK_MGMT_TIMEOUT_MS,
        tag::Tag, //
    },
    proto::{
        ids::Lun,
        tmf::{
            Function,
            TmfStatus,
            TskMgmt, //
        }, //
    },
};
use crate::{
    errno::ENOTCONN,
    rdma::dma::Chunk,
    sync::{
        state_cell::StateCell,
        Completion, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};

/// The status word while there is no answer.
const NO_ANSWER: u32 = u32::MAX;
/// The status word of an answer without a code.
const NO_CODE: u32 = 0x100;
/// The bit of the state word that says that a request waits for its answer; the generation is
/// above it.
const WAITING: u64 = 1;

/// The task management request of a channel.
pub struct Task {
    /// Generation and [`WAITING`], and memory for the message.
    cell: StateCell<Chunk>,
    status: Atomic<u32>,
    answered: Pin<KBox<Completion>>,
}

const fn word(generation: u32, waiting: u64) -> u64 {
    (generation as u64) << 1 | waiting
}

/// The number of a status, for the status word.
const fn code(status: TmfStatus) -> u32 {
    match status {
        TmfStatus::Complete => 0,
        TmfStatus::InvalidFields => 2,
        TmfStatus::NotSupported => 4,
        TmfStatus::Failed => 5,
        TmfStatus::Unknown(code) => code as u32,
        TmfStatus::Missing => NO_CODE,
    }
}

impl Task {
    /// No request is under way; messages are written to `iu`.
    pub fn new(iu: Chunk) -> Result<Self> {
        Ok(Self {
            cell: StateCell::new(0, iu),
            status: Atomic::new(NO_ANSWER),
            answered: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
        })
    }

    /// Sends a request and waits for the answer, at most 5 s. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another request is under way or no credit is left, `ENOTCONN` if the connection
    /// is or gets lost, `ETIMEDOUT` without an answer.
    pub fn run(
        &self,
        connection: &Connection,
        function: Function,
        lun: Lun,
        task_tag: u64,
    ) -> Result<TmfStatus> {
        let channel = connection.handler();
        let (old, _) = self.cell.load();
        let generation = (old >> 1) as u32;
        if old & WAITING != 0 {
            return Err(EBUSY);
        }
        let generation = generation.wrapping_add(1);
        let waiting = word(generation, WAITING);
        let mut iu = self.cell.acquire(old, waiting).ok_or(EBUSY)?;
        let done = word(generation, 0);
        if channel.is_lost() {
            iu.release(done);
            return Err(ENOTCONN);
        }
        if !channel.take_credit(RESERVE_TSK_MGMT) {
            iu.release(done);
            return Err(EBUSY);
        }
        let tag = Tag::tsk_mgmt(generation, channel.index(), 0).ok_or(EINVAL)?;
        let request = TskMgmt {
            tag: tag.to_wire(),
            lun,
            function,
            task_tag,
        };
        let message = match request.build(iu.bytes_mut()) {
            Ok(len) => iu.message(len),
            Err(_) => Err(EINVAL),
        };
        self.status.store(NO_ANSWER, Relaxed);
        self.answered.reinit();
        iu.release(waiting);

        let result = message
            .and_then(|message| connection.post_send(None, message, true))
            .and_then(|()| self.wait(connection));
        // From here on an answer to this request is late.
        if let Some(iu) = self.cell.acquire(waiting, done) {
            iu.release(done);
        }
        result
    }

    fn wait(&self, connection: &Connection) -> Result<TmfStatus> {
        // A connection that was lost before `reinit` has woken nobody.
        if connection.handler().is_lost() {
            return Err(ENOTCONN);
        }
        self.answered.wait_timeout(TSK_MGMT_TIMEOUT_MS)?;
        match self.status.load(Acquire) {
            NO_ANSWER => Err(ENOTCONN),
            NO_CODE => Ok(TmfStatus::Missing),
            // CAST: The code was a byte.
            code => Ok(TmfStatus::new(code as u8)),
        }
    }

    /// Takes an answer. Returns whether it belongs to a request that was made; a late one does.
    pub fn answer(&self, tag: Tag, status: TmfStatus) -> bool {
        let (now, _) = self.cell.load();
        let generation = (now >> 1) as u32;
        if now == word(tag.generation(), WAITING) {
            self.status.store(code(status), Release);
            self.answered.complete_all();
            return true;
        }
        // Within the last half of all generations: it was sent and given up.
        generation.wrapping_sub(tag.generation()) < u32::MAX / 2 && tag.generation() != 0
    }

    /// The connection is lost: nobody will answer.
    pub fn wake(&self) {
        self.answered.complete_all();
    }
}
