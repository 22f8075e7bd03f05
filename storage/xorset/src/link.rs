// SPDX-License-Identifier: GPL-2.0

//! A connection to a node, with reconnection.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use wss::peer::{Peer, Pulse, ADMISSION};

use crate::message::Message;

/// Delay before reconnection in milliseconds.
const AGAIN: u64 = 300;
/// Grace period in milliseconds: a node that is unreachable for this long is lost.
pub(crate) const GRACE: u64 = 4000;

/// Maximum time counted between two ticks, in milliseconds.
const STEP: u64 = 300;
/// After this time without a tick, ALIVE is sent at once, in milliseconds.
const LATE: u64 = 1000;

/// A clock that stops while the process waits for its file or a CPU. Messages of its peers may be
/// pending then, so this time must not count as silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    last: u64,
    /// Counted milliseconds.
    pub(crate) now: u64,
}

impl Watch {
    pub(crate) fn new(now: u64) -> Self {
        Self { last: now, now }
    }

    /// Sets the time. Returns true if this tick is late.
    pub(crate) fn tick(&mut self, now: u64) -> bool {
        let step = now - self.last;
        (self.last, self.now) = (now, self.now + step.min(STEP));
        step >= LATE
    }
}

/// The payload of a message.
#[derive(Clone)]
pub enum Payload {
    /// These bytes; none if there is no payload.
    Bytes(Arc<[u8]>),
    /// A part of the memory of a write.
    Part(Arc<dyn Deref<Target = [u8]> + Send + Sync>, Range<usize>),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Part(memory, range) => &memory[range.clone()],
        }
    }
}

/// Work for the caller of a node or a client on its connections.
pub enum LinkAction {
    /// Connect to a node, then report that it is connected or closed.
    Connect {
        /// Number of the new connection.
        peer: Peer,
        /// The node.
        to: usize,
    },
    /// Send a message.
    Send {
        /// The connection.
        peer: Peer,
        /// The message.
        message: Message,
        /// Its payload.
        payload: Payload,
    },
    /// Close a connection; do not report that it is closed.
    Close {
        /// The connection.
        peer: Peer,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Connect at this time.
    Idle(u64),
    /// Connecting since this time.
    Connecting(u64),
    /// Waits for the answer to ATTACH.
    Attaching(Pulse),
    Up(Pulse),
}

/// The action that is due on a connection.
pub(crate) enum Due {
    Nothing,
    Connect,
    Alive,
    /// The peer is silent.
    Close,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    state: State,
    /// Time of the last message received while attached; initially the creation time.
    down: u64,
}

impl Link {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            peer: 0,
            state: State::Idle(now),
            down: now,
        }
    }

    pub(crate) fn up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Milliseconds since a message was last received while attached; 0 if attached.
    pub(crate) fn down(&self, now: u64) -> u64 {
        if self.up() {
            0
        } else {
            now - self.down
        }
    }

    pub(crate) fn connect(&mut self, peer: Peer, now: u64) {
        self.peer = peer;
        self.state = State::Connecting(now);
    }

    pub(crate) fn connected(&mut self, now: u64) {
        self.state = State::Attaching(Pulse::new(now));
    }

    pub(crate) fn attached(&mut self, now: u64) {
        self.state = State::Up(Pulse::new(now));
        self.down = now;
    }

    pub(crate) fn heard(&mut self, now: u64) {
        if let State::Attaching(pulse) | State::Up(pulse) = &mut self.state {
            pulse.heard(now);
        }
        if self.up() {
            self.down = now;
        }
    }

    pub(crate) fn closed(&mut self, now: u64) {
        self.peer = 0;
        self.state = State::Idle(now + AGAIN);
    }

    /// `late`: this side had no tick for [`LATE`], so send ALIVE at once.
    pub(crate) fn tick(&mut self, now: u64, late: bool) -> Due {
        match &mut self.state {
            State::Idle(at) if *at <= now => Due::Connect,
            State::Connecting(since) if *since + ADMISSION <= now => Due::Close,
            State::Attaching(pulse) | State::Up(pulse) if pulse.silent(now) => Due::Close,
            State::Up(pulse) => match pulse.due(now) || late {
                true => Due::Alive,
                false => Due::Nothing,
            },
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_without_a_result_is_tried_again() {
        let mut link = Link::new(0);
        assert!(matches!(link.tick(0, false), Due::Connect));
        link.connect(1, 0);
        assert!(matches!(link.tick(ADMISSION - 1, false), Due::Nothing));
        assert!(matches!(link.tick(ADMISSION, false), Due::Close));
        link.closed(ADMISSION);
        assert!(matches!(link.tick(ADMISSION, false), Due::Nothing));
        assert!(matches!(link.tick(ADMISSION + AGAIN, false), Due::Connect));
    }
}
