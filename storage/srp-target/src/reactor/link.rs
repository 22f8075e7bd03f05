// SPDX-License-Identifier: GPL-2.0

//! A connection, its operations and its end.

use std::{
    io,
    time::{Duration, Instant},
};

use verbs::{Buffer, Connection, Device, Op, Piece, Post, Slots};

use super::{domain::Domain, gone, host::HostId, login::Door, LinkId, Reactor};

/// Grace period of a disconnect. Short, because a new login waits for the end of the old session.
const LEAVING: Duration = Duration::from_millis(300);

pub(super) struct Link<T> {
    pub(super) connection: Connection,
    pub(super) device: HostId,
    pub(super) domain: Domain,
    /// Maximum number of queued operations.
    most: usize,
    /// Total length of the receive buffers, in bytes.
    pub(super) messages: usize,
    /// Whether [`Reactor::welcome`] has accepted it.
    pub(super) welcome: bool,
    pub(super) tokens: Slots<Option<T>>,
    /// The newest operation.
    newest: u64,
    /// The operation whose completion starts the disconnect.
    pub(super) last: Option<u64>,
}

impl<T> Link<T> {
    /// Returns whether the peer is a role: only its operations are without a limit.
    pub(super) fn is_role(&self) -> bool {
        self.most == usize::MAX
    }

    /// Registers an operation. Fails if too many are outstanding.
    fn token(&mut self, token: Option<T>) -> io::Result<u64> {
        if self.tokens.len() >= self.most {
            return Err(io::Error::other("the other side takes no answers"));
        }
        self.newest = self.tokens.insert(token) as u64;
        Ok(self.newest)
    }
}

/// The response follows the data, which nothing else waits for.
fn post<T>(op: Op, token: &Option<T>) -> Post {
    match (op, token) {
        (Op::Write, None) => Post::WithNext,
        _ => Post::Now,
    }
}

impl<T> Reactor<T> {
    pub(super) fn add(
        &mut self,
        id: LinkId,
        connection: Connection,
        (device, domain): (HostId, Device),
        [most, messages]: [usize; 2],
    ) {
        let link = Link {
            connection,
            device,
            domain: Domain::new(domain),
            most,
            messages,
            welcome: false,
            tokens: Slots::default(),
            newest: 0,
            last: None,
        };
        self.links.insert(id, link);
        self.open.entry(id).or_insert(None);
    }

    /// Posts a receive buffer.
    pub fn receive(&mut self, id: LinkId, buffer: Buffer) -> io::Result<()> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        link.connection.receive(buffer)
    }

    /// Queues an operation on a buffer. [`Event::Done`] follows if there is a token. An RDMA WRITE
    /// without one is posted with the next operation of the connection.
    pub fn queue(
        &mut self,
        id: LinkId,
        token: Option<T>,
        op: Op,
        buffer: Buffer,
        pieces: Vec<Piece>,
    ) -> io::Result<()> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        let post = post(op, &token);
        let token = link.token(token)?;
        link.connection.queue(token, op, post, buffer, pieces)
    }

    /// Like [`Reactor::queue`], on bytes of the arena. Each piece is preceded by its offset in the
    /// arena.
    pub fn queue_arena(
        &mut self,
        id: LinkId,
        token: Option<T>,
        op: Op,
        pieces: Vec<(usize, Piece)>,
    ) -> io::Result<()> {
        let arena = self.local(id)?;
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        let post = post(op, &token);
        let token = link.token(token)?;
        link.connection.queue_arena(token, op, post, arena, pieces)
    }

    /// Sends a message.
    pub fn send(&mut self, id: LinkId, token: Option<T>, message: &[u8]) -> io::Result<()> {
        let mut buffer = self.take(id, message.len())?;
        buffer[..message.len()].copy_from_slice(message);
        let len = message.len() as u32;
        let piece = Piece { va: 0, key: 0, len };
        self.queue(id, token, Op::Send, buffer, vec![piece])
    }

    /// Sends a message, if any, and disconnects. [`Event::Ended`] follows, or [`Reactor::late`]
    /// returns the connection.
    pub fn leave(&mut self, id: LinkId, message: Option<&[u8]>) -> io::Result<()> {
        if let Some(message) = message {
            self.send(id, None, message)?;
        }
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        self.leaving.insert(id, Instant::now() + LEAVING);
        match message {
            Some(_) => link.last = Some(link.newest),
            None => link.connection.disconnect(),
        }
        Ok(())
    }

    /// Returns whether a connection is closing or a listener is missing. If so, [`Reactor::late`]
    /// must be called.
    pub fn leaving(&self) -> bool {
        !self.leaving.is_empty() || self.doors.iter().any(Door::closed)
    }

    /// Closes a connection without waiting for the peer. It has no further events.
    pub fn close(&mut self, id: LinkId) {
        self.forget(id);
    }

    /// Closes and returns the connections with an expired grace period. Listens again where the
    /// device has come back.
    pub fn late(&mut self) -> Vec<LinkId> {
        self.end_late_handshakes();
        let now = Instant::now();
        for door in &mut self.doors {
            door.open(&self.events, now);
        }
        let late = self.leaving.iter().filter(|(_, until)| now > **until);
        let late: Vec<_> = late.map(|(id, _)| *id).collect();
        for id in &late {
            self.forget(*id);
        }
        late
    }
}
