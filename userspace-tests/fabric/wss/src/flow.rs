// SPDX-License-Identifier: GPL-2.0

//! Flow control of a connection between roles. InfiniBand and RoCE let a message wait for a buffer; iWARP ends the connection.
//! So each side sends no more than the other one has buffers for, and is told by [`Message::Grant`] when there are more.

use std::collections::VecDeque;

use crate::{message::Message, peer::SILENCE};

/// Buffers for messages on each side.
pub const RECEIVES: usize = 1024;
/// Those that are for GRANT. There are never more of them than [`WINDOW`] / [`BATCH`], and one that has been read while its
/// buffer has not been given back.
const FOR_GRANTS: usize = 8;
/// Messages that may be sent before there is a GRANT.
pub const WINDOW: u32 = (RECEIVES - FOR_GRANTS) as u32;
/// So many buffers are granted at once.
const BATCH: u32 = WINDOW / 4;

/// Most messages that wait for buffers of the other side. All commands of a large system are fewer.
pub const WAITING: usize = 1 << 17;

/// One side of a connection.
#[derive(Debug)]
pub struct Flow {
    /// Buffers of the other side that are free for us.
    credits: u32,
    /// Buffers of ours that are free again and not granted.
    taken: u32,
    waiting: VecDeque<Vec<u8>>,
    /// Since when messages wait and nothing was granted, in milliseconds.
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
    /// A message is to be sent, when those before it are. `now` is in milliseconds. False if the connection is at its end, as
    /// the other side takes nothing: it has granted nothing for [`SILENCE`], or too little. An honest one that is so late
    /// ends the connection itself, since ALIVE does not reach it either.
    pub fn queue(&mut self, message: Vec<u8>, now: u64) -> bool {
        if self.waiting.is_empty() {
            self.stuck = None;
        } else if now >= *self.stuck.get_or_insert(now) + SILENCE || self.waiting.len() == WAITING {
            return false;
        }
        self.waiting.push_back(message);
        true
    }

    /// The next message that can be sent now.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.credits.checked_sub(1).and_then(|left| {
            let message = self.waiting.pop_front()?;
            self.credits = left;
            Some(message)
        })
    }

    /// The other side has granted buffers. False if it has more than there can be, so it is out of its mind.
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

    /// The buffer of a message that was no GRANT is free again. A GRANT is to be sent now, if one is returned.
    pub fn free(&mut self) -> Option<Message> {
        self.taken += 1;
        (self.taken == BATCH).then(|| {
            self.taken = 0;
            Message::Grant { count: BATCH }
        })
    }
}
