// SPDX-License-Identifier: GPL-2.0

//! When a channel without credits has starved.
//!
//! A command that waits for a credit is not in flight, so no timeout runs for it. While other
//! commands are outstanding, their timeouts tell whether the target works. With none outstanding,
//! only a grant by the target helps. The channel is checked every [`period_ms`] while commands
//! wait. It has starved after more than `PERIODS` periods in a row without progress.

/// How many consecutive periods without progress are tolerated.
const PERIODS: u32 = 10;

/// Length of a period in milliseconds. Commands may wait for `limit_ms`, plus two periods at most.
pub const fn period_ms(limit_ms: u32) -> u32 {
    limit_ms.div_ceil(PERIODS)
}

/// State of a channel at the end of a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// There is no credit for a command, and no command is outstanding.
    pub stuck: bool,
    /// Number of commands that have ended, modulo 2^32.
    pub ended: i32,
    /// Number of commands that were refused for lack of a credit, modulo 2^32.
    pub refused: i32,
}

/// What to do after a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No command waits: stop checking.
    Rest,
    /// Commands wait: check again.
    Again,
    /// Commands have waited too long.
    Starved,
}

/// State from the preceding periods.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Starving {
    /// [`Sample::ended`] at the end of the last period.
    pub ended: i32,
    /// [`Sample::refused`] at the end of the last period.
    pub refused: i32,
    /// Number of consecutive periods without progress.
    pub periods: u32,
}

impl Starving {
    /// The state after another period, and what to do.
    pub const fn next(self, now: Sample) -> (Self, Verdict) {
        let waits = now.refused != self.refused;
        let periods = if !now.stuck {
            0
        } else if self.periods > 0 && now.ended == self.ended {
            // While no command ends, the midlayer may hold back the waiting commands.
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
