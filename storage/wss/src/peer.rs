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
/// The same for a role with several addresses: a machine that is off does not answer, and the next
/// address may be the right one.
const HURRY: u64 = SILENCE;

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
    pub(crate) fn in_vain(&self, now: u64, places: &Places) -> bool {
        matches!(self, Self::Connecting(since) if since + places.patience() <= now)
    }

    /// Liveness of the peer, once the connection is established.
    pub(crate) fn pulse(&mut self) -> Option<&mut Pulse> {
        match self {
            Self::Attaching(pulse) | Self::Up(pulse) => Some(pulse),
            _ => None,
        }
    }
}

/// The addresses of a role, by index, of which one serves at a time. They are tried in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    count: usize,
    next: usize,
    /// Number of attempts since the role was found.
    tries: usize,
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count,
            next: 0,
            tries: 0,
        }
    }

    /// Begins an attempt. Returns the address.
    pub(crate) fn attempt(&mut self) -> usize {
        let place = self.next;
        self.next = (place + 1) % self.count;
        self.tries += 1;
        place
    }

    /// The role serves at the address of the last attempt.
    pub(crate) fn found(&mut self) {
        self.tries = 0;
    }

    /// The next attempt is at the address of the last one.
    pub(crate) fn stay(&mut self) {
        self.next = (self.next + self.count - 1) % self.count;
    }

    /// Timeout of an attempt in milliseconds. Each fourth round has time for slow machines.
    fn patience(&self) -> u64 {
        let round = self.tries.saturating_sub(1) / self.count;
        match self.count > 1 && round % 4 < 3 {
            true => HURRY,
            false => ADMISSION,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(places: &mut Places, count: usize) -> Vec<(usize, u64)> {
        let one = |_| (places.attempt(), places.patience());
        (0..count).map(one).collect()
    }

    #[test]
    fn places_are_tried_in_turn() {
        let mut one = Places::new(1);
        assert_eq!(attempts(&mut one, 3), [(0, ADMISSION); 3]);
        let mut two = Places::new(2);
        let round = [(0, HURRY), (1, HURRY)];
        let slow = [(0, ADMISSION), (1, ADMISSION)];
        let all = [round, round, round, slow, round].concat();
        assert_eq!(attempts(&mut two, 10), all);
        // After a loss the next one is first.
        two.found();
        assert_eq!(attempts(&mut two, 1), [(0, HURRY)]);
        two.found();
        assert_eq!(attempts(&mut two, 7).last(), Some(&(1, ADMISSION)));
        two.found();
        two.stay();
        assert_eq!(attempts(&mut two, 2), [(1, HURRY), (0, HURRY)]);
        one.stay();
        assert_eq!(one.attempt(), 0);
    }
}
