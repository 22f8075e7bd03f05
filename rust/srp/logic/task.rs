// SPDX-License-Identifier: GPL-2.0

//! State machine of the task management requests of a channel, which sends one at a time.
//!
//! ```text
//!   Idle --send--> Waiting --answer--> Answered --taken--> Idle
//!                     |
//!                  timeout
//!                     v
//!                   Stuck --answer--> Idle
//!
//!   any --the queue pair is gone--> Idle
//! ```

use super::super::proto::tmf::TmfStatus;

/// State of the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// No request is in flight.
    Idle,
    /// A request waits for its response.
    Waiting,
    /// The response has arrived.
    Answered,
    /// The request was given up. Its message may be in flight until the response arrives, so no
    /// other request is sent.
    Stuck,
}

/// State, response and generation of the request in one word. The default is [`State::Idle`] of
/// generation 0.
///
/// Bits 0 and 1 are the state, bits 2 to 10 the response code, bits 16 to 47 the generation; the
/// others are 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Word(u64);

const IDLE: u64 = 0;
const WAITING: u64 = 1;
const ANSWERED: u64 = 2;
const STUCK: u64 = 3;

/// A response without a code.
const NO_CODE: u16 = 0x100;

impl Word {
    const fn new(generation: u32, state: u64) -> Self {
        Self((generation as u64) << 16 | state)
    }

    /// No request is in flight; the last one had this generation.
    pub const fn idle(generation: u32) -> Self {
        Self::new(generation, IDLE)
    }

    /// The request of this generation awaits its response.
    pub const fn waiting(generation: u32) -> Self {
        Self::new(generation, WAITING)
    }

    /// The request of this generation has its response.
    pub const fn answered(generation: u32, status: TmfStatus) -> Self {
        Self::new(generation, ANSWERED | (code(status) as u64) << 2)
    }

    /// The request of this generation was given up.
    pub const fn stuck(generation: u32) -> Self {
        Self::new(generation, STUCK)
    }

    /// Converts a stored word.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The value to store.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The state.
    pub const fn state(self) -> State {
        match self.0 & 3 {
            IDLE => State::Idle,
            WAITING => State::Waiting,
            ANSWERED => State::Answered,
            _ => State::Stuck,
        }
    }

    /// Distinguishes the requests; part of their tags.
    pub const fn generation(self) -> u32 {
        // CAST: Bits 16 to 47.
        (self.0 >> 16) as u32
    }

    /// The response to the request of this generation, if it has arrived.
    pub const fn answer(self, generation: u32) -> Option<TmfStatus> {
        if !matches!(self.state(), State::Answered) || self.generation() != generation {
            return None;
        }
        // CAST: Nine bits.
        Some(match (self.0 >> 2) as u16 & 0x1ff {
            NO_CODE => TmfStatus::Missing,
            // CAST: The code came from a byte.
            code => TmfStatus::new(code as u8),
        })
    }
}

/// The response code of `status`; 256 for none.
pub const fn code(status: TmfStatus) -> u16 {
    match status {
        TmfStatus::Complete => 0,
        TmfStatus::InvalidFields => 2,
        TmfStatus::NotSupported => 4,
        TmfStatus::Failed => 5,
        TmfStatus::Unknown(code) => code as u16,
        TmfStatus::Missing => NO_CODE,
    }
}
