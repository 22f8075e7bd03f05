// SPDX-License-Identifier: GPL-2.0

//! Liveness checks of a target: one rule for the tests of a connection, and one for credits.
//!
//! A target that makes no progress for a while is probed. If it does not respond for a while, the
//! connection is ended. A [`Policy`] tells when the channels are checked:
//!
//! ```text
//!   Idle --test--> Ask --2.5 s--> Look --2.5 s--> Judge --> Idle
//!    ^  |           ^               |               |
//!    +--+           +----test-------+---------------+
//! keep_alive
//! ```
//!
//! If a path is lost in one direction, commands in flight in the other may still end. So only
//! commands that end in the second half of a test's 5 s count as a sign of life.
//!
//! A command that waits for a credit is not in flight, so no timeout runs for it, and without a
//! credit there is no probe. A task management request in flight then stands for it. Otherwise,
//! while commands are outstanding, their timeouts tell whether the target works. With none
//! outstanding, only a grant helps: the target has [`CREDIT_ROUNDS`] rounds of [`credit_round_ms`]
//! to send one.

/// Half of the time to respond to a probe of a test, in milliseconds.
const HALF_MS: u32 = 2_500;
/// A flush may take this many times as long as another command (`SD_FLUSH_TIMEOUT_MULTIPLIER`).
const FLUSH_TIMES: u32 = 2;
/// Maximum time in which the error handler ends a command that timed out, in milliseconds: its
/// requests take up to 5 s each, then it ends the connection.
const HANDLER_MS: u32 = 60_000;
/// Number of tolerated consecutive rounds without progress, while commands wait for a credit.
const CREDIT_ROUNDS: u32 = 10;

/// Length of a round in milliseconds. Commands may wait for a credit for `limit_ms`, plus two
/// rounds at most.
pub const fn credit_round_ms(limit_ms: u32) -> u32 {
    limit_ms.div_ceil(CREDIT_ROUNDS)
}

/// Upper bound on the time until the midlayer has ended a command, in milliseconds; `request` is
/// the request timeout of a disk.
pub const fn removal_limit_ms(request: u32) -> u32 {
    request
        .saturating_mul(FLUSH_TIMES)
        .saturating_add(HANDLER_MS)
}

/// The purpose of a check of the channels.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Every `keep_alive`: an idle channel is probed, and must respond before the next check.
    #[default]
    Idle,
    /// A test begins: all channels are probed.
    Ask,
    /// From here on, a completed command is a sign of life.
    Look,
    /// The test ends: an idle channel must have responded.
    Judge,
    /// The disks are being removed, and no command of the session has ended for `rounds` rounds.
    /// Pending writes may take as long as the midlayer allows, but the target must respond.
    Removal {
        /// Number of rounds without a completed command.
        rounds: u32,
        /// Number of rounds after which the midlayer has ended every command.
        limit: u32,
    },
}

/// The action for a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Do nothing now.
    Wait,
    /// Probe the channel.
    Ask,
    /// Give up the connection: a probe has had no response.
    Silent,
    /// Give up the connection: the target responds, but no command ends.
    Stuck,
}

impl Policy {
    /// Returns the verdict on a channel. `idle`: no command has ended on it since the last check.
    /// `due`: the response to its probe is outstanding.
    pub const fn verdict(self, idle: bool, due: bool) -> Verdict {
        match (self, idle, due) {
            (Self::Idle | Self::Judge, true, true) => Verdict::Silent,
            (Self::Idle, true, false) | (Self::Ask, _, false) => Verdict::Ask,
            (Self::Removal { rounds: 0, .. }, ..) => Verdict::Wait,
            (Self::Removal { rounds, limit }, ..) if rounds > limit => Verdict::Stuck,
            (Self::Removal { .. }, _, false) => Verdict::Ask,
            // A probe that is in flight at the first round may be a recent one.
            (Self::Removal { rounds: 2.., .. }, _, true) => Verdict::Silent,
            _ => Verdict::Wait,
        }
    }

    /// The policy after this one, and the delay until then in milliseconds; `None` for the
    /// `keep_alive` interval.
    pub const fn next(self) -> (Self, Option<u32>) {
        match self {
            Self::Ask => (Self::Look, Some(HALF_MS)),
            Self::Look => (Self::Judge, Some(HALF_MS)),
            _ => (Self::Idle, None),
        }
    }

    /// Whether another trigger starts a new test. `due`: the response to a probe on any channel is
    /// outstanding. The verdict of a test in progress must not be delayed repeatedly.
    pub const fn begins_anew(self, due: bool) -> bool {
        match self {
            Self::Idle => true,
            Self::Look | Self::Judge => !due,
            Self::Ask | Self::Removal { .. } => false,
        }
    }
}

/// Counts rounds without progress.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Watch {
    /// Number of commands that had ended at the last check, modulo 2^32.
    ended: i32,
    /// Number of commands that had been refused for lack of a credit, modulo 2^32.
    refused: i32,
    /// Number of consecutive rounds without progress.
    rounds: u32,
}

/// Whether commands get credits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Credits {
    /// No command waits: stop checking.
    Enough,
    /// Commands wait: check again.
    Missing,
    /// Commands have waited too long.
    Starved,
}

impl Watch {
    /// A watch that begins when this many commands have ended.
    pub const fn new(ended: i32) -> Self {
        Self {
            ended,
            refused: 0,
            rounds: 0,
        }
    }

    /// Resets the rounds, for a new connection.
    pub const fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Counts a round. `ended` is the number of commands that have ended so far. Returns the number
    /// of consecutive rounds in which no command has ended.
    pub const fn round(&mut self, ended: i32) -> u32 {
        self.rounds = match self.ended == ended {
            true => self.rounds.saturating_add(1),
            false => 0,
        };
        self.ended = ended;
        self.rounds
    }

    /// Counts a round in which commands may have waited for credits. `stuck`: there is no credit
    /// for a command, and no command is outstanding. `refused`: how many commands have been refused
    /// for lack of a credit, modulo 2^32.
    pub const fn credits(&mut self, stuck: bool, ended: i32, refused: i32) -> Credits {
        let waits = refused != self.refused;
        self.rounds = if !stuck {
            0
        } else if self.rounds > 0 && ended == self.ended {
            // Count the round even if no command was refused: the midlayer may retry only when one
            // ends.
            self.rounds.saturating_add(1)
        } else {
            waits as u32
        };
        self.ended = ended;
        self.refused = refused;
        if self.rounds > CREDIT_ROUNDS {
            Credits::Starved
        } else if self.rounds > 0 || waits {
            Credits::Missing
        } else {
            Credits::Enough
        }
    }
}
