// SPDX-License-Identifier: GPL-2.0

//! Probes the target for a sign of life.

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

/// INQUIRY with no room for data: the only suitable command that does not clear a pending unit
/// attention (SAM-5, 5.14).
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 0, 0];

/// The probe of a channel: a command to LUN 0 that changes nothing. Any response is a sign of life.
pub struct Probe {
    /// Memory for the message; the state word is a [`Word`].
    cell: StateCell<Chunk>,
    /// Number of commands of the channel that had ended at the last check.
    ended: Atomic<i32>,
}

impl Probe {
    /// Creates a probe that is not in flight. Its message is written to `iu`.
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

    /// Returns whether `ended`, the number of ended commands, equals that of the last call. Only
    /// for the session's keep-alive timer.
    pub fn is_idle(&self, ended: i32) -> bool {
        let before = self.ended.load(Relaxed);
        self.ended.store(ended, Relaxed);
        before == ended
    }

    /// Whether a probe is in flight that the target must answer.
    pub fn is_out(&self) -> bool {
        !self.word().is_free()
    }

    /// Sends a probe if the channel is connected and has a credit for a command. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`Lost::KeepAlive`] if the last probe has not been answered, [`Lost::Post`] if the device
    /// refuses this one.
    pub fn send(&self, connection: &Connection) -> Result<(), Lost> {
        self.send_beside(connection, RESERVE_COMMAND).map(|_| ())
    }

    /// Sends a probe if the channel is connected, even if commands have used all their credits.
    /// Returns whether it was sent. Does not sleep.
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

    /// Handles a response. Returns whether it belongs to the outstanding probe.
    pub fn answer(&self, tag: Tag) -> bool {
        let generation = tag.generation();
        self.transition(Word::out(generation), Word::IDLE)
            || self.transition(Word::recalled(generation), Word::IDLE)
    }

    /// Handles a reset of the unit `lun`: an outstanding probe of this unit may get no response,
    /// although one may be in flight.
    pub fn recall(&self, lun: Lun) {
        let now = self.word();
        if let Some(recalled) = now.recall().filter(|_| lun == Lun::default()) {
            // Fails if the probe was answered meanwhile.
            let _ = self.transition(now, recalled);
        }
    }

    /// Resets the state: the queue pair of any probe is shut down. No thread may start to send.
    pub fn reset(&self) {
        self.transition(self.word(), Word::IDLE);
    }
}
