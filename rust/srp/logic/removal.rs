// SPDX-License-Identifier: GPL-2.0

//! How long the disks of an ending session may take to go.
//!
//! Their pending writes may take as long as the midlayer allows, if the target is alive. So a
//! target that makes no progress is asked for a sign of life. The connection is ended if it does
//! not answer, or if no command ends within [`limit_ms`].

/// A flush may take this many times as long as another command (`SD_FLUSH_TIMEOUT_MULTIPLIER`).
const FLUSH_TIMES: u32 = 2;
/// Milliseconds in which the error handler has ended a command that timed out: its requests take up
/// to 5 s each, then it ends the connection.
const HANDLER_MS: u32 = 60_000;

/// Milliseconds without a completed command after which the target is asked. It must answer within
/// the same time again.
pub const fn slice_ms(patience: u32) -> u32 {
    patience / 2
}

/// Milliseconds in which a command under the midlayer's timeout has ended, if a request to a disk
/// may take `request` milliseconds.
pub const fn limit_ms(request: u32) -> u32 {
    request
        .saturating_mul(FLUSH_TIMES)
        .saturating_add(HANDLER_MS)
}

/// What to do after a slice in which no command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Ask the target. A question already in flight may be recent.
    Ask,
    /// Ask the target again. It must have answered the last question.
    AskAgain,
    /// The target is alive, but no command ends.
    GiveUp,
}

/// Decides after a slice; no command has ended for `quiet` milliseconds.
pub const fn next(quiet: u32, slice: u32, limit: u32) -> Next {
    if quiet > limit {
        Next::GiveUp
    } else if quiet > slice {
        Next::AskAgain
    } else {
        Next::Ask
    }
}
