// SPDX-License-Identifier: GPL-2.0

//! The life of a session, the login at one target, and its times. How it goes on is in
//! [`recovery`](super::recovery).

/// A login at a target that has said nothing for this many milliseconds is given up, unless the target has asked
/// for more time. The connection managers repeat a request each 4 s or so; another login would only find a target
/// that is at the same address, but not the same machine any longer.
pub const LOGIN_TIMEOUT_MS: u32 = 30_000;
/// Who answers in the place of the target, and says nothing for so many milliseconds, is left out. A request is repeated
/// once in that time.
pub const ANSWERS_TIMEOUT_MS: u32 = 5_000;
/// A command to a disk may take this many milliseconds, or as long as the transport tries; error handling begins
/// then.
pub const DISK_TIMEOUT_MS: u32 = 30_000;
/// A task management request that is not answered in this many milliseconds has failed.
pub const TSK_MGMT_TIMEOUT_MS: u32 = 5_000;
/// An address or route that is not found in this many milliseconds is given up. ARP asks three times, a second
/// apart.
pub const RESOLVE_TIMEOUT_MS: u32 = 3_500;

/// A logout that has not been sent in this many milliseconds is not waited for.
pub const LOG_OUT_TIMEOUT_MS: u32 = 1_000;
/// The pause before a first try to add the channels that a login has left out, in milliseconds.
const FILL_DELAY_MS: u32 = 1_000;
/// The longest such pause.
const MAX_FILL_DELAY_MS: u32 = 64_000;

/// A session that has not been lost with an answer channel for so many milliseconds forgets that it was.
pub const FORGET_FLAPS_MS: u32 = 600_000;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Life {
    /// The login is under way, with the scan for disks.
    Connecting = 0,
    /// Commands are sent.
    Live = 1,
    /// The login has failed.
    Failed = 2,
    /// The connection is lost, and there will be another.
    Recovering = 3,
    /// Removal has begun; it cannot be stopped.
    Removing = 4,
    /// Nothing is left.
    Gone = 5,
}

impl Life {
    /// All states, by number.
    pub const ALL: [Self; 6] = [
        Self::Connecting,
        Self::Live,
        Self::Failed,
        Self::Recovering,
        Self::Removing,
        Self::Gone,
    ];

    /// The session is of no more use, now or soon.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::Failed | Self::Removing | Self::Gone)
    }
}

/// The pause before the try with this number, from 0, to add channels that are missing: doubled each
/// time up to about a minute.
pub const fn fill_delay_ms(tries: u32) -> u32 {
    let shift = if tries > 6 { 6 } else { tries };
    let delay = FILL_DELAY_MS << shift;
    if delay > MAX_FILL_DELAY_MS {
        MAX_FILL_DELAY_MS
    } else {
        delay
    }
}
