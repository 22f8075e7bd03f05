// SPDX-License-Identifier: GPL-2.0

//! A connection to a node, which is made again and again.

use wss::peer::{Peer, Pulse};

/// After a failure it is made again so much later, in milliseconds.
const AGAIN: u64 = 300;
/// A node that has not been reached for so long is lost, in milliseconds.
pub(crate) const GRACE: u64 = 4000;

/// As much of the time between two looks at the clock counts, in milliseconds.
const STEP: u64 = 300;
/// Who has not looked for so long says at once that it lives.
const LATE: u64 = 1000;

/// The time in which a process was served. While it waits for its file or a CPU, what others have said to it may be there
/// unread, so nobody may be blamed for that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    last: u64,
    /// Milliseconds that count.
    pub(crate) now: u64,
}

impl Watch {
    pub(crate) fn new(now: u64) -> Self {
        Self { last: now, now }
    }

    /// So late it is. True if that is late.
    pub(crate) fn tick(&mut self, now: u64) -> bool {
        let step = now - self.last;
        (self.last, self.now) = (now, self.now + step.min(STEP));
        step >= LATE
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// To be made at this time.
    Idle(u64),
    Connecting,
    /// The answer to ATTACH is not here.
    Attaching(Pulse),
    Up(Pulse),
}

/// What is to be done about a connection.
pub(crate) enum Due {
    Nothing,
    Connect,
    Alive,
    /// Nothing was heard of it.
    Close,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    state: State,
    /// When something was heard over it while it was up, or since when there is no such thing.
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

    /// Nothing was heard for so many milliseconds, and it is not up.
    pub(crate) fn down(&self, now: u64) -> u64 {
        if self.up() {
            0
        } else {
            now - self.down
        }
    }

    pub(crate) fn connect(&mut self, peer: Peer) {
        self.peer = peer;
        self.state = State::Connecting;
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

    /// `late`: the other side has heard nothing for longer than it should.
    pub(crate) fn tick(&mut self, now: u64, late: bool) -> Due {
        match &mut self.state {
            State::Idle(at) if *at <= now => Due::Connect,
            State::Attaching(pulse) | State::Up(pulse) if pulse.silent(now) => Due::Close,
            State::Up(pulse) => match pulse.due(now) || late {
                true => Due::Alive,
                false => Due::Nothing,
            },
            _ => Due::Nothing,
        }
    }
}
