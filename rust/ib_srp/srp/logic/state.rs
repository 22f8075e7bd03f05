// SPDX-License-Identifier: GPL-2.0

//! The state of a session, in fields for the state machine [`recovery`](super::recovery), and in
//! one word for readers without a lock.

/// Life cycle state of a session.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Life {
    /// The login is in progress, including the scan for disks.
    #[default]
    Connecting = 0,
    /// Commands can be sent.
    Live = 1,
    /// The login has failed.
    Failed = 2,
    /// The connection is lost; the session may reconnect.
    Recovering = 3,
    /// Removal has begun; it cannot be stopped.
    Removing = 4,
    /// The teardown is complete.
    Gone = 5,
}

/// The connection of a session. Bit 2 of the number is set if there is no usable connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Link {
    /// Commands can be sent, or the login is in progress.
    #[default]
    Up = 0,
    /// The logout has begun, so the end of the connection is not reported.
    Closing = 1,
    /// The connection is lost. The work item that ends it is queued.
    Lost = 4,
    /// The transport class is being told of the loss. If it has blocked the port, it already knows.
    Notifying = 5,
    /// The class has been told, unless the session is ending. The commands are being ended.
    Ending = 6,
    /// All commands have ended, and the queue pairs are gone.
    Down = 7,
}

/// Progress of a reconnect attempt.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Attempt {
    /// No attempt.
    #[default]
    None,
    /// The attempt is connecting.
    Connecting {
        /// A loss was reported since the attempt began.
        broken: bool,
    },
    /// The attempt has succeeded, and waits for the transport class to take the connection.
    Ready {
        /// A loss was reported since the attempt began.
        broken: bool,
    },
    /// The class has taken the connection; `srp_reconnect_rport()` has not returned.
    Taken,
    /// The attempt has failed, and is being torn down.
    Failed,
}

/// A host reset, which needs one attempt regardless of the pause between attempts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Reset {
    /// No reset is pending.
    #[default]
    None = 0,
    /// The next attempt is for the reset.
    Wanted = 1,
    /// The current attempt is for the reset.
    Tried = 2,
}

/// The state of a session, except its history and its deadlines. By default it is logging in.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    /// Life cycle state of the session.
    pub life: Life,
    /// The connection.
    pub link: Link,
    /// The reconnect attempt.
    pub attempt: Attempt,
    /// The pending host reset.
    pub reset: Reset,
    /// Commands fail at once: the target has been unreachable for `fast_io_fail_tmo`.
    pub failing: bool,
    /// The target has violated the protocol too often: the session makes no attempts.
    pub banned: bool,
    /// A caller of [`Recovery::commit`](super::recovery::Recovery::commit) waits for the outcome of
    /// an attempt.
    pub asked: bool,
    /// Commands wait for a credit, and the tick checks whether credits come.
    pub starving: bool,
}

/// A flag at this bit of the word.
const fn bit(flag: bool, number: u32) -> u32 {
    (flag as u32).wrapping_shl(number)
}

impl State {
    /// The state in one word: life in bits 0 to 2, link in bits 3 to 5, attempt in bits 6 to 9,
    /// reset in bits 10 and 11, then the flags.
    pub const fn to_word(self) -> u32 {
        let attempt = match self.attempt {
            Attempt::None => 0,
            Attempt::Connecting { broken } => 1 | bit(broken, 3),
            Attempt::Ready { broken } => 2 | bit(broken, 3),
            Attempt::Taken => 3,
            Attempt::Failed => 4,
        };
        self.life as u32
            | (self.link as u32) << 3
            | attempt << 6
            | (self.reset as u32) << 10
            | bit(self.failing, 12)
            | bit(self.banned, 13)
            | bit(self.asked, 14)
            | bit(self.starving, 15)
    }

    /// Converts from [`State::to_word`].
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        let broken = word & 1 << 9 != 0;
        Self {
            life: match word & 7 {
                0 => Life::Connecting,
                1 => Life::Live,
                2 => Life::Failed,
                3 => Life::Recovering,
                4 => Life::Removing,
                _ => Life::Gone,
            },
            link: match word >> 3 & 7 {
                0 | 2 => Link::Up,
                1 | 3 => Link::Closing,
                4 => Link::Lost,
                5 => Link::Notifying,
                6 => Link::Ending,
                _ => Link::Down,
            },
            attempt: match word >> 6 & 7 {
                0 => Attempt::None,
                1 => Attempt::Connecting { broken },
                2 => Attempt::Ready { broken },
                3 => Attempt::Taken,
                _ => Attempt::Failed,
            },
            reset: match word >> 10 & 3 {
                0 => Reset::None,
                1 => Reset::Wanted,
                _ => Reset::Tried,
            },
            failing: word & 1 << 12 != 0,
            banned: word & 1 << 13 != 0,
            asked: word & 1 << 14 != 0,
            starving: word & 1 << 15 != 0,
        }
    }

    /// Whether there is no usable connection.
    #[inline]
    pub const fn is_lost(&self) -> bool {
        self.link as u8 & 4 != 0
    }

    /// Whether the connection is lost and all commands have ended.
    pub const fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    /// Whether the session is being removed or will be, or is gone.
    pub const fn is_ending(&self) -> bool {
        matches!(self.life, Life::Failed | Life::Removing | Life::Gone)
    }

    /// Whether an attempt may start.
    pub const fn may_attempt(&self) -> bool {
        matches!(self.life, Life::Recovering) && self.is_down()
    }

    /// Whether waiting for recovery is over: the session is ending; or no reset is pending, and
    /// either the session is live again, or it is failing or banned and no attempt has connected.
    pub const fn is_settled(&self) -> bool {
        let settled = match self.life {
            Life::Connecting => false,
            // The port is running once the call of the class has returned.
            Life::Live => !matches!(self.attempt, Attempt::Taken),
            Life::Recovering => {
                let nearly = matches!(self.attempt, Attempt::Ready { .. } | Attempt::Taken);
                (self.failing || self.banned) && !nearly
            }
            Life::Failed | Life::Removing | Life::Gone => return true,
        };
        settled && matches!(self.reset, Reset::None)
    }
}
