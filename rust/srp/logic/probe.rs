// SPDX-License-Identifier: GPL-2.0

//! State machine of the probe of a channel.
//!
//! ```text
//!   Idle --send--> Out --answer--> Idle
//!    ^              |
//!    |           recall
//!    +--answer--    v    --send--> Out
//!               Recalled
//! ```

/// State and generation of a probe in one word. By default, no probe is in flight.
///
/// Bits 0 to 7 are the state, bits 8 to 39 the generation; all are 0 while no probe is in flight.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Word(u64);

/// A probe is in flight.
const OUT: u64 = 1;
/// A probe is in flight, but the target may have forgotten it after a reset.
const RECALLED: u64 = 2;

impl Word {
    /// No probe is in flight.
    pub const IDLE: Self = Self(0);

    /// The probe of this generation is in flight.
    pub const fn out(generation: u32) -> Self {
        Self((generation as u64) << 8 | OUT)
    }

    /// The probe of this generation is in flight, and the target may have forgotten it.
    pub const fn recalled(generation: u32) -> Self {
        Self((generation as u64) << 8 | RECALLED)
    }

    /// Converts a stored word.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The value to store.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether another probe may be sent: no probe is in flight, or its response may never arrive.
    pub const fn is_free(self) -> bool {
        self.0 & 0xff != OUT
    }

    /// The word after a reset of the logical unit, or `None` if that changes nothing.
    pub const fn recall(self) -> Option<Self> {
        if self.is_free() {
            return None;
        }
        Some(Self(self.0 ^ OUT ^ RECALLED))
    }
}
