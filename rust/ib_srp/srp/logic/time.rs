// SPDX-License-Identifier: GPL-2.0

//! Time limits of the driver for a target.

pub use crate::clock::ktime::Ktime;

/// Milliseconds of silence of the target after which a login is given up, unless the target has
/// asked for more time. The connection managers repeat a request about every 4 s, so a new
/// login only helps if another machine has taken over the target's address.
pub const LOGIN_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds of silence after which the peer of an answer channel is left out. A request is
/// repeated once in that time.
pub const ANSWER_CHANNEL_TIMEOUT_MS: u32 = 5_000;
/// Timeout of a command to a disk, in milliseconds, unless the transport retries for longer. Error
/// handling begins after this time.
pub const DISK_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds after which a task management request without a response has failed.
pub const TSK_MGMT_TIMEOUT_MS: u32 = 5_000;
/// Milliseconds after which the lookup of an address or route is given up. ARP sends three
/// requests, a second apart.
pub const RESOLVE_TIMEOUT_MS: u32 = 3_500;
/// Maximum wait for a logout to be sent, in milliseconds.
pub const LOGOUT_TIMEOUT_MS: u32 = 1_000;
