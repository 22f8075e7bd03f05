// SPDX-License-Identifier: GPL-2.0

//! The life of the probe of a channel.
//!
//! ```text
//!   Idle --send--> Out --answer--> Idle
//!    ^              |
//!    |           recall
//!    +--answer--    v    --send--> Out
//!               Recalled
//! ```

/// State and generation of a probe in one word. The default is that none is out.
///
/// Bits 0 to 7 are the state, bits 8 to 39 the generation; all of them are 0 while none is out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Word(u64);

/// One is out.
const OUT: u64 = 1;
/// The same, but the target has been told to forget it, and may have.
const RECALLED: u64 = 2;

impl Word {
    /// None is out.
    pub const IDLE: Self = Self(0);

    /// The probe of this generation is out.
    pub const fn out(generation: u32) -> Self {
        Self((generation as u64) << 8 | OUT)
    }

    /// The probe of this generation is out, and the target may have forgotten it.
    pub const fn recalled(generation: u32) -> Self {
        Self((generation as u64) << 8 | RECALLED)
    }

    /// From a stored word.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// For storing.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Another probe may be sent: no answer need come.
    pub const fn is_free(self) -> bool {
        self.0 & 0xff != OUT
    }

    /// The word when the target has been told to forget all, or `None` if that changes nothing.
    pub const fn recall(self) -> Option<Self> {
        if self.is_free() {
            return None;
        }
        Some(Self(self.0 ^ OUT ^ RECALLED))
    }
}
