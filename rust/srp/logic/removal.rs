// SPDX-License-Identifier: GPL-2.0

//! How long the removal of the disks of an ending session may take.
//!
//! Pending writes may take as long as the midlayer allows, but a target that makes no progress is
//! probed. The connection is ended if the target does not respond, or if no command ends within
//! [`limit_ms`].

/// A flush may take this many times as long as another command (`SD_FLUSH_TIMEOUT_MULTIPLIER`).
const FLUSH_TIMES: u32 = 2;
/// Maximum time in which the error handler ends a command that timed out, in milliseconds: its
/// requests take up to 5 s each, then it ends the connection.
const HANDLER_MS: u32 = 60_000;

/// Milliseconds without a completed command after which the target is probed. It must respond
/// within the same time.
pub const fn slice_ms(patience: u32) -> u32 {
    patience / 2
}

/// Milliseconds within which a command ends, by the midlayer's timeout at the latest, if a request
/// to a disk may take `request` milliseconds.
pub const fn limit_ms(request: u32) -> u32 {
    request
        .saturating_mul(FLUSH_TIMES)
        .saturating_add(HANDLER_MS)
}

/// What to do after a slice in which no command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Probe the target. A probe already in flight may be recent.
    Ask,
    /// Probe the target again. It must have responded to the last probe.
    AskAgain,
    /// The target is alive, but no command ends.
    GiveUp,
}

/// Decides what to do after a slice; no command has ended for `quiet` milliseconds.
pub const fn next(quiet: u32, slice: u32, limit: u32) -> Next {
    if quiet > limit {
        Next::GiveUp
    } else if quiet > slice {
        Next::AskAgain
    } else {
        Next::Ask
    }
}
