// SPDX-License-Identifier: GPL-2.0

//! How long the disks of a session that ends may take to go.
//!
//! What they still have to write may take as long as the midlayer allows, from a target that is there. So one
//! that seems to do nothing is asked, and only if it does not answer the connection is ended.

/// A flush has the time of so many other commands (`SD_FLUSH_TIMEOUT_MULTIPLIER`).
const FLUSH_TIMES: u32 = 2;
/// The error handler has ended a command that timed out after this, in milliseconds: its requests have 5 s
/// each, and then it ends the connection.
const HANDLER_MS: u32 = 60_000;

/// After this time without the end of a command the target is asked, and after as much more it must have
/// answered; in milliseconds.
pub const fn slice_ms(patience: u32) -> u32 {
    patience / 2
}

/// A command that the midlayer watches has ended after so many milliseconds, where a request to a disk may
/// take `request`.
pub const fn limit_ms(request: u32) -> u32 {
    request
        .saturating_mul(FLUSH_TIMES)
        .saturating_add(HANDLER_MS)
}

/// What to do after a slice in which no command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Ask the target. A question that is out already may be a new one.
    Ask,
    /// Ask the target, which must have answered the last time.
    AskAgain,
    /// The target is there, and yet nothing comes of it.
    GiveUp,
}

/// No command has ended for `quiet` milliseconds, the last slice of which has just passed.
pub const fn next(quiet: u32, slice: u32, limit: u32) -> Next {
    if quiet > limit {
        Next::GiveUp
    } else if quiet > slice {
        Next::AskAgain
    } else {
        Next::Ask
    }
}
