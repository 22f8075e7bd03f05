// SPDX-License-Identifier: GPL-2.0

//! How a connection is tested: when it is idle, or at once, with a verdict in 5 s.
//!
//! ```text
//!   Keep --test--> Ask --2.5 s--> Look --2.5 s--> Judge --> Keep
//!    ^  |           ^               |               |
//!    +--+           +----test-------+---------------+
//! keep_alive
//! ```
//!
//! Of a way that is lost in one direction commands may still end that are on their way in the other. So those count as a
//! sign of life that end in the second half.

/// A half of the time for an answer, in milliseconds.
const HALF_MS: u32 = 2_500;

/// What the timer of a session's tests is set for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Stage {
    /// Idle channels are asked, and must have answered by the next time.
    Keep = 0,
    /// All channels are asked.
    Ask = 1,
    /// From here on the end of a command is a sign of life.
    Look = 2,
    /// Idle channels must have answered.
    Judge = 3,
}

/// What a channel needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Nothing now.
    Wait,
    /// To be asked.
    Ask,
    /// To be given up.
    Dead,
}

impl Stage {
    /// The one with this number; [`Self::Keep`] if there is none.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ask,
            2 => Self::Look,
            3 => Self::Judge,
            _ => Self::Keep,
        }
    }

    /// What a channel needs on which no command has ended since the last time, if it is `idle`, and from which an
    /// answer is `due`.
    pub const fn verdict(self, idle: bool, due: bool) -> Verdict {
        match (self, idle, due) {
            (Self::Keep | Self::Judge, true, true) => Verdict::Dead,
            (Self::Keep, true, false) | (Self::Ask, _, false) => Verdict::Ask,
            _ => Verdict::Wait,
        }
    }

    /// The stage after it, and after how many milliseconds that is, `keep_alive` if there is no number.
    pub const fn next(self) -> (Self, Option<u32>) {
        match self {
            Self::Ask => (Self::Look, Some(HALF_MS)),
            Self::Look => (Self::Judge, Some(HALF_MS)),
            Self::Keep | Self::Judge => (Self::Keep, None),
        }
    }

    /// Whether another reason for a test, with an answer `due` from any channel, begins a new one. The verdict of the
    /// one that is under way must not move away again and again.
    pub const fn begins_anew(self, due: bool) -> bool {
        match self {
            Self::Keep => true,
            Self::Ask => false,
            Self::Look | Self::Judge => !due,
        }
    }
}
