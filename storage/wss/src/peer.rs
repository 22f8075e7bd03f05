// SPDX-License-Identifier: GPL-2.0

//! Connections between roles, and liveness of the peer.

use srp_target::auth::Identity;

use crate::message::{Broken, Message, Role};

/// The SE in identities.
pub const SE: u8 = Role::Se as u8;
/// A CE in identities.
pub const CE: u8 = Role::Ce as u8;
/// An RS in identities.
pub const RS: u8 = 3;

/// Returns whether a role with a proven identity may send a message.
pub fn fits(who: Identity, message: &Message) -> bool {
    match message {
        Message::Attach { role, member, .. } => (who.role, who.number) == (*role as u8, *member),
        Message::Attached { number, .. } => who.role != RS || who.number == *number,
        _ => true,
    }
}

/// Number of a connection, assigned by the caller. Numbers are never reused.
pub type Peer = u64;

/// Time in milliseconds after which a connection that receives nothing is closed.
pub const SILENCE: u64 = 3000;
/// Time in milliseconds after which a side that has sent nothing sends ALIVE.
const REPEAT: u64 = SILENCE / 4;
/// Timeout of connection establishment in milliseconds.
pub const ADMISSION: u64 = 2 * SILENCE;

/// Times of the last received and the last sent message, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    heard: u64,
    said: u64,
}

impl Pulse {
    /// Creates a pulse that starts at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            heard: now,
            said: now,
        }
    }

    /// Records that a message has arrived.
    pub fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    /// Returns whether nothing has arrived for [`SILENCE`].
    pub fn silent(&self, now: u64) -> bool {
        now >= self.heard + SILENCE
    }

    /// Returns whether [`Message::Alive`] must be sent. If so, it counts as sent.
    pub fn due(&mut self, now: u64) -> bool {
        let due = now >= self.said + REPEAT;
        if due {
            self.said = now;
        }
        due
    }
}

/// A connection to another role, which is reconnected when it is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// Connect at this time.
    Idle(u64),
    /// Connecting since this time.
    Connecting(u64),
    /// Waits for the answer to ATTACH.
    Attaching(Pulse),
    /// Attached.
    Up(Pulse),
}

impl State {
    /// Returns whether the connection is attached.
    pub(crate) fn up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// Returns whether establishment has timed out.
    pub(crate) fn in_vain(&self, now: u64) -> bool {
        matches!(self, Self::Connecting(since) if since + ADMISSION <= now)
    }

    /// Liveness of the peer, once the connection is established.
    pub(crate) fn pulse(&mut self) -> Option<&mut Pulse> {
        match self {
            Self::Attaching(pulse) | Self::Up(pulse) => Some(pulse),
            _ => None,
        }
    }
}

/// Returns the log text for a connection that is closed after a protocol violation.
pub(crate) fn misused(peer: Peer, what: &Result<Message, Broken>) -> String {
    match what {
        Ok(message) => format!("connection {peer} ended: unexpected {message:?}"),
        Err(broken) => format!("connection {peer} ended: {broken}"),
    }
}
