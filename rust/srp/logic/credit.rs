// SPDX-License-Identifier: GPL-2.0

//! Credits of a channel: how many more messages the target has buffers for.
//!
//! The counter holds what is unused. Sending takes one, every message from the target carries a
//! signed change. Credits only gate sending; the depth of queues never depends on them after the
//! login.

/// Most credits that can be unused; more is a protocol violation.
pub const MAX: u32 = 65_535;

/// Credits that commands leave, so that a task management request can always be sent.
pub const RESERVE_COMMAND: u32 = 1;

/// Credits that a task management request leaves.
pub const RESERVE_TSK_MGMT: u32 = 0;

/// A change that leaves the counter below 0 or above its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfRange;

/// The counter after taking one credit, or `None` if only `reserve` are left.
pub const fn take(unused: u32, reserve: u32) -> Option<u32> {
    if unused > reserve {
        unused.checked_sub(1)
    } else {
        None
    }
}

/// The counter after a change by the target, which must be within `0..=limit`.
pub const fn give(unused: u32, delta: i32, limit: u32) -> Result<u32, OutOfRange> {
    match unused.checked_add_signed(delta) {
        Some(sum) if sum <= limit => Ok(sum),
        _ => Err(OutOfRange),
    }
}
