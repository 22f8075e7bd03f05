// SPDX-License-Identifier: GPL-2.0

//! Probes the target for a sign of life.

use super::{
    control::{
        Control,
        Unsent, //
    },
    Connection, //
};
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
            exchange::{
                Exchange,
                State, //
            },
            tag::Tag, //
        },
        proto::{
            cmd::Cmd,
            ids::Lun, //
        }, //
    }, //
};
use kernel::sync::rcu;

/// The number of a probe in its tag; a task management request has 0.
pub(super) const PROBE: u16 = 1;

/// INQUIRY with allocation length 0: the only suitable command that does not clear a pending unit
/// attention (SAM-5, 5.14).
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 0, 0];

/// The probe of a channel: a command to LUN 0 that changes nothing. Any response is a sign of life.
pub struct Probe {
    /// The state word is an [`Exchange`].
    control: Control,
}

impl Probe {
    /// Creates a probe that is not in flight. Its message is written to `iu`.
    pub fn new(iu: Chunk) -> Self {
        Self {
            control: Control::new(Exchange::default().raw(), iu),
        }
    }

    fn word(&self) -> Exchange {
        Exchange::from_raw(self.control.load().0)
    }

    fn transition(&self, from: Exchange, to: Exchange) -> bool {
        self.control.transition(from.raw(), to.raw())
    }

    /// Whether a probe is in flight that the target must respond to.
    pub fn is_out(&self) -> bool {
        self.word().state() == State::Waiting
    }

    /// Sends a probe if the channel is connected and has a credit for a command. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`Lost::KeepAlive`] if the last probe has no response, [`Lost::Post`] if the device
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
        if connection.status.state().is_lost() || !connection.is_open() {
            return Ok(false);
        }
        let before = self.word();
        if before.state() == State::Waiting {
            return Err(Lost::KeepAlive);
        }
        // CAST: Any 32 bits will do.
        let generation = random_u64() as u32;
        let waiting = Exchange::new(State::Waiting, generation);
        let Some(tag) = Tag::tsk_mgmt(generation, connection.index(), PROBE) else {
            return Ok(false);
        };
        let inquiry = Cmd {
            tag: tag.to_wire(),
            lun: Lun::default(),
            cdb: &INQUIRY,
        };
        let sent = connection.send_control(
            &posting,
            &self.control,
            (before.raw(), waiting.raw()),
            Some(reserve),
            |iu| inquiry.build(iu),
            |wr| wr.post(true),
        );
        match sent {
            Ok(()) => Ok(true),
            Err(Unsent::NoCredit) => Ok(false),
            Err(Unsent::Busy) => Err(Lost::KeepAlive),
            Err(Unsent::Refused(e)) => Err(Lost::Post(e)),
        }
    }

    /// Handles a response. Returns whether it belongs to the outstanding probe.
    pub fn response(&self, tag: Tag) -> bool {
        let word = |state| Exchange::new(state, tag.generation());
        self.transition(word(State::Waiting), word(State::Idle))
            || self.transition(word(State::Abandoned), word(State::Idle))
    }

    /// Handles a reset of the unit `lun`: the target may have dropped an outstanding probe of this
    /// unit, so it no longer counts as outstanding. A late response is still accepted.
    pub fn recall(&self, lun: Lun) {
        let now = self.word();
        if now.state() == State::Waiting && lun == Lun::default() {
            // Fails if the response has arrived meanwhile.
            let _ = self.transition(now, now.with_state(State::Abandoned));
        }
    }

    /// Resets the state: the queue pair of any probe is shut down. No thread may start to send.
    pub fn reset(&self) {
        self.transition(self.word(), Exchange::default());
    }
}
