// SPDX-License-Identifier: GPL-2.0

//! Asking the target for a sign of life.

use super::{
    channel::Connection,
    error::Lost,
    logic::{
        credit::RESERVE_COMMAND,
        tag::Tag, //
    },
    proto::{
        cmd::Cmd,
        ids::Lun, //
    },
};
use crate::{
    rdma::dma::Chunk,
    sync::state_cell::StateCell,
    sys::random_u64, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// The number of a probe in its tag; a task management request has 0.
pub const PROBE: u16 = 1;

/// None is out.
const IDLE: u64 = 0;
/// Beside the generation in bits 8 to 39: one is out.
const OUT: u64 = 1;

/// The probe of a channel: a command that changes nothing (TEST UNIT READY for LUN 0), whose answer
/// does not matter, but that there is one.
pub struct Probe {
    /// Memory for the message; the word is one of the above.
    cell: StateCell<Chunk>,
}

const fn out(generation: u32) -> u64 {
    (generation as u64) << 8 | OUT
}

impl Probe {
    /// None is out; messages are written to `iu`.
    pub fn new(iu: Chunk) -> Self {
        Self {
            cell: StateCell::new(IDLE, iu),
        }
    }

    /// Sends a probe, if the channel is connected and has a credit. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`Lost::KeepAlive`] if the last one has not been answered.
    pub fn send(&self, connection: &Connection) -> Result<(), Lost> {
        let channel = connection.handler();
        let _posting = rcu::read_lock();
        if channel.is_lost() || !channel.is_open() {
            return Ok(());
        }
        // CAST: Any 32 bits will do.
        let generation = random_u64() as u32;
        let Some(mut iu) = self.cell.acquire(IDLE, out(generation)) else {
            return Err(Lost::KeepAlive);
        };
        let Some(tag) = Tag::tsk_mgmt(generation, channel.index(), PROBE)
            .filter(|_| channel.take_credit(RESERVE_COMMAND))
        else {
            iu.release(IDLE);
            return Ok(());
        };
        let test_unit_ready = Cmd {
            tag: tag.to_wire(),
            lun: Lun::default(),
            cdb: &[0; 6],
        };
        let message = match test_unit_ready.build(iu.bytes_mut()) {
            Ok(len) => iu.message(len),
            Err(_) => Err(EINVAL),
        };
        iu.release(out(generation));
        message
            .and_then(|message| connection.post_send(None, message, true))
            .map_err(Lost::Post)
    }

    /// Takes an answer. Returns whether it belongs to the probe that is out.
    pub fn answer(&self, tag: Tag) -> bool {
        self.cell.transition(out(tag.generation()), IDLE)
    }

    /// The queue pair of what was under way is gone. Nobody must begin to send.
    pub fn reset(&self) {
        self.cell.transition(self.cell.load().0, IDLE);
    }
}
