// SPDX-License-Identifier: GPL-2.0

//! Asking the target for a sign of life.

use super::Connection;
use crate::{
    random::random_u64,
    rdma::dma::Chunk,
    srp::{
        error::Lost,
        logic::{
            credit::{
                RESERVE_COMMAND,
                RESERVE_TSK_MGMT, //
            },
            probe::Word,
            tag::Tag, //
        },
        proto::{
            cmd::Cmd,
            ids::Lun, //
        }, //
    },
    sync::state_cell::StateCell, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu, //
    }, //
};

/// The number of a probe in its tag; a task management request has 0.
pub(super) const PROBE: u16 = 1;

/// INQUIRY without room for data: no other command of any use leaves a unit attention for the midlayer
/// (SAM-5, 5.14).
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 0, 0];

/// The probe of a channel: a command that changes nothing, for LUN 0, whose answer does not matter, but that there
/// is one.
pub struct Probe {
    /// Memory for the message; the word is a [`Word`].
    cell: StateCell<Chunk>,
    /// Commands of the channel that had ended at the last test.
    ended: Atomic<i32>,
}

impl Probe {
    /// None is out; messages are written to `iu`.
    pub fn new(iu: Chunk) -> Self {
        Self {
            cell: StateCell::new(Word::IDLE.raw(), iu),
            ended: Atomic::new(0),
        }
    }

    fn word(&self) -> Word {
        Word::from_raw(self.cell.load().0)
    }

    fn transition(&self, from: Word, to: Word) -> bool {
        self.cell.transition(from.raw(), to.raw())
    }

    /// No command has ended since the last call; `ended` is the number of those that have. For the session's timer only.
    pub fn is_idle(&self, ended: i32) -> bool {
        let before = self.ended.load(Relaxed);
        self.ended.store(ended, Relaxed);
        before == ended
    }

    /// An answer is due.
    pub fn is_out(&self) -> bool {
        !self.word().is_free()
    }

    /// Sends a probe, if the channel is connected and has a credit for a command. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`Lost::KeepAlive`] if the last one has not been answered.
    pub fn send(&self, connection: &Connection) -> Result<(), Lost> {
        self.send_beside(connection, RESERVE_COMMAND).map(|_| ())
    }

    /// Sends a probe, if the channel is connected, even if commands have taken all credits that they may
    /// have; whether it was sent. Does not sleep.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn ask(&self, connection: &Connection) -> Result<bool, Lost> {
        self.send_beside(connection, RESERVE_TSK_MGMT)
    }

    fn send_beside(&self, connection: &Connection, reserve: i32) -> Result<bool, Lost> {
        let posting = rcu::read_lock();
        if connection.is_lost() || !connection.is_open() {
            return Ok(false);
        }
        // CAST: Any 32 bits will do.
        let generation = random_u64() as u32;
        let out = Word::out(generation);
        let before = self.word();
        if !before.is_free() {
            return Err(Lost::KeepAlive);
        }
        let Some(mut iu) = self.cell.acquire(before.raw(), out.raw()) else {
            return Err(Lost::KeepAlive);
        };
        let Some(tag) = Tag::tsk_mgmt(generation, connection.index(), PROBE)
            .filter(|_| connection.take_credit(reserve))
        else {
            iu.release(Word::IDLE.raw());
            return Ok(false);
        };
        let inquiry = Cmd {
            tag: tag.to_wire(),
            lun: Lun::default(),
            cdb: &INQUIRY,
        };
        let wr = match inquiry.build(iu.bytes_mut()) {
            Ok(len) => connection
                .live(&posting)
                .and_then(|live| live.send(&mut iu, len)),
            Err(_) => Err(EINVAL),
        };
        iu.release(out.raw());
        wr.and_then(|wr| wr.post(true))
            .map(|()| true)
            .map_err(Lost::Post)
    }

    /// Takes an answer. Returns whether it belongs to the probe that is out.
    pub fn answer(&self, tag: Tag) -> bool {
        let generation = tag.generation();
        self.transition(Word::out(generation), Word::IDLE)
            || self.transition(Word::recalled(generation), Word::IDLE)
    }

    /// The unit has been reset: no answer need come to the probe that is out. One may have crossed that.
    pub fn recall(&self, lun: Lun) {
        let now = self.word();
        if let Some(recalled) = now.recall().filter(|_| lun == Lun::default()) {
            // If it was answered meanwhile, none is out.
            let _ = self.transition(now, recalled);
        }
    }

    /// The queue pair of what was under way is gone. Nobody must begin to send.
    pub fn reset(&self) {
        self.transition(self.word(), Word::IDLE);
    }
}
