// SPDX-License-Identifier: GPL-2.0

//! When a channel that gets no credits is of no more use.
//!
//! A command that waits for a credit is not under way: no timeout runs for it. While others are
//! outstanding, their timeouts say whether the target works. With none outstanding only the target can
//! go on, by a grant. The channel is looked at each [`period_ms`] while commands wait; after so many
//! looks in a row that find no progress it has starved.

/// So many periods without progress are too many.
const PERIODS: u32 = 10;

/// Milliseconds from one look to the next, if commands may wait for `limit_ms` and for two periods more at
/// most.
pub const fn period_ms(limit_ms: u32) -> u32 {
    limit_ms.div_ceil(PERIODS)
}

/// What a look finds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
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
    /// Commands wait: look again.
    Again,
    /// They have waited for too long.
    Starved,
}

/// What is known from the looks before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Starving {
    /// Of the last look.
    pub ended: i32,
    /// Of the last look.
    pub refused: i32,
    /// Looks in a row that found no progress.
    pub looks: u32,
}

impl Starving {
    /// The knowledge after another look, and what to do.
    pub const fn look(self, now: Look) -> (Self, Verdict) {
        let waits = now.refused != self.refused;
        let looks = if !now.stuck {
            0
        } else if self.looks > 0 && now.ended == self.ended {
            // While nothing ends the midlayer may hold back the commands that wait.
            self.looks.saturating_add(1)
        } else if waits {
            1
        } else {
            0
        };
        let verdict = if looks > PERIODS {
            Verdict::Starved
        } else if looks > 0 || waits {
            Verdict::Again
        } else {
            Verdict::Rest
        };
        let after = Self {
            ended: now.ended,
            refused: now.refused,
            looks,
        };
        (after, verdict)
    }
}
