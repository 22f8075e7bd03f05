// SPDX-License-Identifier: GPL-2.0

//! How a connection is tested: when it is idle, or at once, with a verdict within 5 s.
//!
//! ```text
//!   Keep --test--> Ask --2.5 s--> Look --2.5 s--> Judge --> Keep
//!    ^  |           ^               |               |
//!    +--+           +----test-------+---------------+
//! keep_alive
//! ```
//!
//! If a path is lost in one direction, commands in flight in the other may still end. So only
//! commands that end in the second half count as a sign of life.

/// Half of the time for an answer, in milliseconds.
const HALF_MS: u32 = 2_500;

/// What the test timer of a session does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Stage {
    /// Probe idle channels, which must have answered by the next time.
    Keep = 0,
    /// Probe all channels.
    Ask = 1,
    /// From here on a completed command is a sign of life.
    Look = 2,
    /// Idle channels must have answered.
    Judge = 3,
}

/// What to do with a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Nothing now.
    Wait,
    /// Probe it.
    Ask,
    /// Give it up.
    Dead,
}

impl Stage {
    /// The stage with this number; [`Self::Keep`] if there is none.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ask,
            2 => Self::Look,
            3 => Self::Judge,
            _ => Self::Keep,
        }
    }

    /// What to do with a channel. `idle`: no command has ended on it since the last time. `due`:
    /// its answer is outstanding.
    pub const fn verdict(self, idle: bool, due: bool) -> Verdict {
        match (self, idle, due) {
            (Self::Keep | Self::Judge, true, true) => Verdict::Dead,
            (Self::Keep, true, false) | (Self::Ask, _, false) => Verdict::Ask,
            _ => Verdict::Wait,
        }
    }

    /// The next stage and the delay until then in milliseconds; `None` for `keep_alive`.
    pub const fn next(self) -> (Self, Option<u32>) {
        match self {
            Self::Ask => (Self::Look, Some(HALF_MS)),
            Self::Look => (Self::Judge, Some(HALF_MS)),
            Self::Keep | Self::Judge => (Self::Keep, None),
        }
    }

    /// Whether another trigger begins a new test. `due`: the answer of any channel is outstanding.
    /// The verdict of a test in progress must not be delayed again and again.
    pub const fn begins_anew(self, due: bool) -> bool {
        match self {
            Self::Keep => true,
            Self::Ask => false,
            Self::Look | Self::Judge => !due,
        }
    }
}
