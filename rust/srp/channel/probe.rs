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

/// None is out.
const IDLE: u64 = 0;
/// Beside the generation in bits 8 to 39: one is out.
const OUT: u64 = 1;
/// As [`OUT`], but the target has been told to forget it, and may have.
const RECALLED: u64 = 2;

/// INQUIRY without room for data: no other command of any use leaves a unit attention for the midlayer
/// (SAM-5, 5.14).
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 0, 0];

/// The probe of a channel: a command that changes nothing, for LUN 0, whose answer does not matter, but that there
/// is one.
pub struct Probe {
    /// Memory for the message; the word is one of the above.
    cell: StateCell<Chunk>,
    /// Commands of the channel that had ended at the last look.
    ended: Atomic<i32>,
}

const fn word(generation: u32, state: u64) -> u64 {
    (generation as u64) << 8 | state
}

impl Probe {
    /// None is out; messages are written to `iu`.
    pub fn new(iu: Chunk) -> Self {
        Self {
            cell: StateCell::new(IDLE, iu),
            ended: Atomic::new(0),
        }
    }

    /// No command has ended since the last look; `ended` is the number of those that have. For the session's timer only.
    pub fn is_idle(&self, ended: i32) -> bool {
        let before = self.ended.load(Relaxed);
        self.ended.store(ended, Relaxed);
        before == ended
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
        let out = word(generation, OUT);
        let before = self.cell.load().0;
        let free = before == IDLE || before & 0xff == RECALLED;
        let Some(mut iu) = free.then(|| self.cell.acquire(before, out)).flatten() else {
            return Err(Lost::KeepAlive);
        };
        let Some(tag) = Tag::tsk_mgmt(generation, connection.index(), PROBE)
            .filter(|_| connection.take_credit(reserve))
        else {
            iu.release(IDLE);
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
        iu.release(out);
        wr.and_then(|wr| wr.post(true))
            .map(|()| true)
            .map_err(Lost::Post)
    }

    /// Takes an answer. Returns whether it belongs to the probe that is out.
    pub fn answer(&self, tag: Tag) -> bool {
        let generation = tag.generation();
        [OUT, RECALLED]
            .iter()
            .any(|&state| self.cell.transition(word(generation, state), IDLE))
    }

    /// The unit has been reset: no answer need come to the probe that is out. One may have crossed that.
    pub fn recall(&self, lun: Lun) {
        let now = self.cell.load().0;
        if lun == Lun::default() && now & 0xff == OUT {
            // If it was answered meanwhile, none is out.
            let _ = self.cell.transition(now, now ^ OUT ^ RECALLED);
        }
    }

    /// The queue pair of what was under way is gone. Nobody must begin to send.
    pub fn reset(&self) {
        self.cell.transition(self.cell.load().0, IDLE);
    }
}
