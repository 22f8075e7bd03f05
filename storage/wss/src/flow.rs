// SPDX-License-Identifier: GPL-2.0

//! Flow control of a connection between roles. On InfiniBand and RoCE a message waits for a receive
//! buffer; iWARP ends the connection instead. So each side sends only as many messages as the peer
//! has buffers for, and [`Message::Grant`] grants more.

use std::collections::VecDeque;

use crate::{message::Message, peer::SILENCE};

/// Number of receive buffers on each side.
pub const RECEIVES: usize = 1024;
/// Number of buffers reserved for GRANTs: at most [`WINDOW`] / [`BATCH`] GRANTs are outstanding,
/// plus one with a buffer that is not yet reposted.
const FOR_GRANTS: usize = 8;
/// Number of messages that may be sent before the first GRANT.
pub const WINDOW: u32 = (RECEIVES - FOR_GRANTS) as u32;
/// Number of buffers per GRANT.
const BATCH: u32 = WINDOW / 4;

/// Maximum number of messages that wait for buffers of the peer. More than all commands of a large
/// system.
pub const WAITING: usize = 1 << 17;

/// One side of a connection.
#[derive(Debug)]
pub struct Flow {
    /// Number of free receive buffers of the peer.
    credits: u32,
    /// Number of free receive buffers of this side that are not yet granted.
    taken: u32,
    waiting: VecDeque<Vec<u8>>,
    /// Time in milliseconds since which messages wait without a GRANT.
    stuck: Option<u64>,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            credits: WINDOW,
            taken: 0,
            waiting: VecDeque::new(),
            stuck: None,
        }
    }
}

impl Flow {
    /// Queues a message after all others. `now` is in milliseconds. Returns false if the connection
    /// must be closed, because the peer has granted nothing for [`SILENCE`], or too little. A live
    /// peer that is so late closes the connection itself, since it receives no ALIVE either.
    pub fn queue(&mut self, message: Vec<u8>, now: u64) -> bool {
        if self.waiting.is_empty() {
            self.stuck = None;
        } else if now >= *self.stuck.get_or_insert(now) + SILENCE || self.waiting.len() == WAITING {
            return false;
        }
        self.waiting.push_back(message);
        true
    }

    /// Takes the next message, if it may be sent now.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.credits.checked_sub(1).and_then(|left| {
            let message = self.waiting.pop_front()?;
            self.credits = left;
            Some(message)
        })
    }

    /// Handles a GRANT. Returns false if the peer grants more buffers than it has.
    pub fn granted(&mut self, count: u32) -> bool {
        match self.credits.checked_add(count) {
            Some(credits) if credits <= WINDOW => {
                self.credits = credits;
                self.stuck = None;
                true
            }
            _ => false,
        }
    }

    /// Counts the free buffer of a message other than GRANT. Returns a GRANT to send, if one is
    /// due.
    pub fn free(&mut self) -> Option<Message> {
        self.taken += 1;
        (self.taken == BATCH).then(|| {
            self.taken = 0;
            Message::Grant { count: BATCH }
        })
    }
}
