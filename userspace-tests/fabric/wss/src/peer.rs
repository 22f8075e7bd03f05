// SPDX-License-Identifier: GPL-2.0

//! Connections between roles, and how long nobody has heard of the other side.

use crate::message::{Broken, Message};

/// A connection, numbered by whoever calls; no number is used twice.
pub type Peer = u64;

/// A connection without a word for so long is at its end, in milliseconds.
pub const SILENCE: u64 = 3000;
/// Who has said nothing for so long says that it lives.
const REPEAT: u64 = SILENCE / 4;
/// Whoever takes so long to let somebody in sleeps, in milliseconds.
const ADMISSION: u64 = 2 * SILENCE;

/// When something was heard and said, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    heard: u64,
    said: u64,
}

impl Pulse {
    /// It begins now.
    pub fn new(now: u64) -> Self {
        Self {
            heard: now,
            said: now,
        }
    }

    /// A message has arrived.
    pub fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    /// Nothing has arrived for too long.
    pub fn silent(&self, now: u64) -> bool {
        now >= self.heard + SILENCE
    }

    /// [`Message::Alive`] is to be sent. It counts as sent.
    pub fn due(&mut self, now: u64) -> bool {
        let due = now >= self.said + REPEAT;
        if due {
            self.said = now;
        }
        due
    }
}

/// A connection to another role, which is made again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// To be made at this time.
    Idle(u64),
    /// It is being made since this time.
    Connecting(u64),
    /// The answer to ATTACH is not here.
    Attaching(Pulse),
    /// Both sides know each other.
    Up(Pulse),
}

impl State {
    /// Both sides know each other.
    pub(crate) fn up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// It has been tried for too long to make it.
    pub(crate) fn in_vain(&self, now: u64) -> bool {
        matches!(self, Self::Connecting(since) if since + ADMISSION <= now)
    }

    /// When something was heard, once it is made.
    pub(crate) fn pulse(&mut self) -> Option<&mut Pulse> {
        match self {
            Self::Attaching(pulse) | Self::Up(pulse) => Some(pulse),
            _ => None,
        }
    }
}

/// Why a connection is ended that somebody misuses.
pub(crate) fn misused(peer: Peer, what: &Result<Message, Broken>) -> String {
    match what {
        Ok(message) => format!("connection {peer} ended: nobody sends {message:?} here"),
        Err(broken) => format!("connection {peer} ended: {broken}"),
    }
}
