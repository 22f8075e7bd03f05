// SPDX-License-Identifier: GPL-2.0

//! Life cycle and timeouts of a session, a login to one target. The transitions are in
//! [`recovery`](super::recovery).

/// Milliseconds of silence of the target after which a login is given up, unless the target has
/// asked for more time. The connection managers repeat a request every 4 s or so. A new login only
/// helps if another machine has taken over the target's address.
pub const LOGIN_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds of silence after which the peer of an answer channel is left out. A request is
/// repeated once in that time.
pub const ANSWERS_TIMEOUT_MS: u32 = 5_000;
/// Timeout of a command to a disk, in milliseconds, unless the transport retries for longer. After
/// it, error handling begins.
pub const DISK_TIMEOUT_MS: u32 = 30_000;
/// Milliseconds after which a task management request without a response has failed.
pub const TSK_MGMT_TIMEOUT_MS: u32 = 5_000;
/// Milliseconds after which the lookup of an address or route is given up. ARP sends three
/// requests, a second apart.
pub const RESOLVE_TIMEOUT_MS: u32 = 3_500;

/// Maximum wait for a logout to be sent, in milliseconds.
pub const LOG_OUT_TIMEOUT_MS: u32 = 1_000;

/// Milliseconds without a loss of an answer channel after which a session forgets earlier ones.
pub const FORGET_FLAPS_MS: u32 = 600_000;

/// Life cycle state of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Life {
    /// The login is in progress, including the scan for disks.
    Connecting = 0,
    /// Commands can be sent.
    Live = 1,
    /// The login has failed.
    Failed = 2,
    /// The connection is lost, and the session reconnects.
    Recovering = 3,
    /// Removal has begun; it cannot be stopped.
    Removing = 4,
    /// The teardown is complete.
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

    /// Whether the session is ending or gone.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::Failed | Self::Removing | Self::Gone)
    }
}
