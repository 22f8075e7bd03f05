// SPDX-License-Identifier: GPL-2.0

//! Credits of a channel: how many more messages the target has buffers for.
//!
//! The counter holds the unused credits. Sending takes one, and every message from the target
//! except a logout carries a signed change. A target that takes credits back cannot know how many
//! have been used by then, so the counter may be negative until responses arrive. Credits only gate
//! sending; queue depths do not depend on them after the login.

/// Maximum number of credits that can be unused, or owed; more is a protocol violation.
pub const MAX: u32 = 65_535;

/// Number of credits that commands leave, so that a task management request can always be sent.
pub const RESERVE_COMMAND: i32 = 1;

/// Number of credits that a task management request leaves.
pub const RESERVE_TSK_MGMT: i32 = 0;

/// The counter after taking one credit, or `None` if only `reserve` or fewer are left.
pub const fn take(unused: i32, reserve: i32) -> Option<i32> {
    if unused > reserve {
        unused.checked_sub(1)
    } else {
        None
    }
}

/// The counter after a change by the target, or `None` if it would leave `-limit..=limit`. `unused`
/// is in that range, and `limit` is at most [`MAX`].
pub const fn give(unused: i32, delta: i32, limit: u32) -> Option<i32> {
    // CAST: At most 65535.
    let limit = limit as i32;
    // A sum that wraps is nearly 2^31 away from 0.
    let sum = unused.wrapping_add(delta);
    if limit.wrapping_neg() <= sum && sum <= limit {
        Some(sum)
    } else {
        None
    }
}
