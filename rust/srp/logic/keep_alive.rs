// SPDX-License-Identifier: GPL-2.0

//! Tests of a connection: when it is idle, or on demand with a verdict within 5 s.
//!
//! ```text
//!   Keep --test--> Ask --2.5 s--> Look --2.5 s--> Judge --> Keep
//!    ^  |           ^               |               |
//!    +--+           +----test-------+---------------+
//! keep_alive
//! ```
//!
//! If a path is lost in one direction, commands in flight in the other may still end. So only
//! commands that end in the second half of the 5 s count as a sign of life.

/// Half of the time to respond to a probe, in milliseconds.
const HALF_MS: u32 = 2_500;

/// What the test timer of a session does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Stage {
    /// Probe idle channels, which must respond before the timer fires again.
    Keep = 0,
    /// Probe all channels.
    Ask = 1,
    /// From here on, a completed command is a sign of life.
    Look = 2,
    /// Idle channels must have responded.
    Judge = 3,
}

/// What to do with a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Do nothing now.
    Wait,
    /// Probe the channel.
    Ask,
    /// Give up the connection.
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

    /// What to do with a channel. `idle`: no command has ended on it since the timer last fired.
    /// `due`: the response to its probe is outstanding.
    pub const fn verdict(self, idle: bool, due: bool) -> Verdict {
        match (self, idle, due) {
            (Self::Keep | Self::Judge, true, true) => Verdict::Dead,
            (Self::Keep, true, false) | (Self::Ask, _, false) => Verdict::Ask,
            _ => Verdict::Wait,
        }
    }

    /// The next stage and the delay until then in milliseconds; `None` for the `keep_alive`
    /// interval.
    pub const fn next(self) -> (Self, Option<u32>) {
        match self {
            Self::Ask => (Self::Look, Some(HALF_MS)),
            Self::Look => (Self::Judge, Some(HALF_MS)),
            Self::Keep | Self::Judge => (Self::Keep, None),
        }
    }

    /// Whether another trigger starts a new test. `due`: the response to a probe on any channel is
    /// outstanding. The verdict of a test in progress must not be delayed again and again.
    pub const fn begins_anew(self, due: bool) -> bool {
        match self {
            Self::Keep => true,
            Self::Ask => false,
            Self::Look | Self::Judge => !due,
        }
    }
}
