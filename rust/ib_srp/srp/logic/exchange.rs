// SPDX-License-Identifier: GPL-2.0

//! State machine of a request that is not a command of the midlayer: a task management request or a
//! probe. One of each is in flight at a time.
//!
//! ```text
//!   Idle --send--> Waiting --response--> Responded --taken--> Idle    (task management)
//!   Idle --send--> Waiting --response--> Idle                         (probe)
//!                  Waiting --given up--> Abandoned --response--> Idle
//!                                        Abandoned --send--> Waiting  (probe)
//!   Idle --logout--> Abandoned
//!
//!   any --the queue pair is gone--> Idle
//! ```

use super::super::proto::tmf::TmfStatus;

/// How far the request is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// No request is in flight.
    Idle,
    /// A request waits for its response.
    Waiting,
    /// The response has arrived.
    Responded,
    /// The request was given up: its response is late, or the target may have forgotten it after a
    /// reset. Its message may be in flight until the response arrives. Also the phase after a
    /// logout, which has no response, and after which nothing is sent.
    Abandoned,
}

/// Phase, response and generation of a request in one word. The default is [`Phase::Idle`] of
/// generation 0.
///
/// Bits 0 and 1 are the phase, bits 2 to 10 the response code, bits 16 to 47 the generation; the
/// others are 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Exchange(u64);

/// A response without a code.
const NO_CODE: u16 = 0x100;

impl Exchange {
    /// The request of this generation is in this phase.
    pub const fn new(phase: Phase, generation: u32) -> Self {
        Self((generation as u64) << 16 | phase as u64)
    }

    /// The request of this generation has its response.
    pub const fn responded(generation: u32, status: TmfStatus) -> Self {
        Self(Self::new(Phase::Responded, generation).0 | (code(status) as u64) << 2)
    }

    /// Converts a stored word.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The value to store.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The phase.
    pub const fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Idle,
            1 => Phase::Waiting,
            2 => Phase::Responded,
            _ => Phase::Abandoned,
        }
    }

    /// Distinguishes the requests; part of their tags.
    pub const fn generation(self) -> u32 {
        // CAST: Bits 16 to 47.
        (self.0 >> 16) as u32
    }

    /// The same generation in another phase, without a response code.
    pub const fn with_phase(self, phase: Phase) -> Self {
        Self::new(phase, self.generation())
    }

    /// A number that is different for each request without a response, also if it was given up; 0
    /// if there is none.
    pub const fn unanswered(self) -> u64 {
        match self.phase() {
            Phase::Waiting | Phase::Abandoned => self.with_phase(Phase::Waiting).0,
            Phase::Idle | Phase::Responded => 0,
        }
    }

    /// The response to the request of this generation, if it has arrived.
    pub const fn response(self, generation: u32) -> Option<TmfStatus> {
        if !matches!(self.phase(), Phase::Responded) || self.generation() != generation {
            return None;
        }
        // CAST: Nine bits.
        Some(match (self.0 >> 2) as u16 & 0x1ff {
            NO_CODE => TmfStatus(None),
            // CAST: The code came from a byte.
            code => TmfStatus(Some(code as u8)),
        })
    }
}

/// The response code of `status`; 256 for none.
pub const fn code(status: TmfStatus) -> u16 {
    match status.0 {
        Some(code) => code as u16,
        None => NO_CODE,
    }
}
