// SPDX-License-Identifier: GPL-2.0

//! When a channel that gets no credits is of no more use.
//!
//! A command that waits for a credit is not under way: no timeout runs for it. While others are
//! outstanding, their timeouts say whether the target works. With none outstanding only the target can
//! go on, by a grant. The channel is looked at each [`period_ms`] while commands wait; after so many
//! periods in a row that find no progress it has starved.

/// So many periods without progress are too many.
const PERIODS: u32 = 10;

/// Milliseconds of a period, if commands may wait for `limit_ms` and for two periods more at
/// most.
pub const fn period_ms(limit_ms: u32) -> u32 {
    limit_ms.div_ceil(PERIODS)
}

/// What a channel is like at the end of a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// No credit for a command, and no command outstanding.
    pub stuck: bool,
    /// Commands that have ended, modulo 2^32.
    pub ended: i32,
    /// Commands that were refused for want of a credit, modulo 2^32.
    pub refused: i32,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No command waits.
    Rest,
    /// Commands wait: check once more.
    Again,
    /// They have waited for too long.
    Starved,
}

/// What is known from the periods before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Starving {
    /// At the end of the last period.
    pub ended: i32,
    /// At the end of the last period.
    pub refused: i32,
    /// Periods in a row without progress.
    pub periods: u32,
}

impl Starving {
    /// The knowledge after another period, and what to do.
    pub const fn next(self, now: Sample) -> (Self, Verdict) {
        let waits = now.refused != self.refused;
        let periods = if !now.stuck {
            0
        } else if self.periods > 0 && now.ended == self.ended {
            // While nothing ends the midlayer may hold back the commands that wait.
            self.periods.saturating_add(1)
        } else if waits {
            1
        } else {
            0
        };
        let verdict = if periods > PERIODS {
            Verdict::Starved
        } else if periods > 0 || waits {
            Verdict::Again
        } else {
            Verdict::Rest
        };
        let after = Self {
            ended: now.ended,
            refused: now.refused,
            periods,
        };
        (after, verdict)
    }
}
