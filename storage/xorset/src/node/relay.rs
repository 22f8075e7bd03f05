// SPDX-License-Identifier: GPL-2.0

//! Writes and their deltas.

use std::io;

use wss::peer::Peer;

use super::gather::Goal;
use super::Node;
use crate::{
    journal::{unreadable, Media, Name},
    layout::{has, node, xor, Cell, Mask, Span, NODES},
    link::GRACE,
    map::State,
    message::{Message, Status},
};

/// A write that other nodes must log.
pub(super) struct Relay {
    pub(super) waits: Mask,
    /// Nodes to which the delta must be sent.
    pub(super) due: Mask,
    /// Nodes that refused it in another epoch. The next tick sends it again.
    pub(super) again: Mask,
    /// Number of its log record.
    pub(super) lsn: u64,
    /// Time of the last send to each node.
    pub(super) sent: [u64; NODES],
}

impl Relay {
    /// Returns whether a node has not acknowledged the delta within the grace period.
    pub(super) fn overdue(&self, n: usize, now: u64) -> bool {
        has(self.waits & !self.due & !self.again, n) && now >= self.sent[n] + GRACE
    }
}

pub(super) struct Waiting {
    pub(super) peer: Peer,
    pub(super) id: u64,
    pub(super) span: Span,
    pub(super) lost: Mask,
    pub(super) data: Vec<u8>,
}

impl<M: Media> Node<M> {
    /// Returns the row of this node's cell that a write changes: the data cell, or on the
    /// substitute a parity.
    pub(super) fn own_row(&self, span: &Span, lost: Mask) -> Option<u8> {
        let mine = |c: &Cell| node(span.stripe, c.column) == self.number;
        if has(lost, self.number) {
            return None;
        }
        if !has(lost, span.node()) {
            return mine(&span.cell).then_some(span.cell.row);
        }
        self.parity_row(span)
    }

    pub(super) fn parity_row(&self, span: &Span) -> Option<u8> {
        let mine = |c: &Cell| node(span.stripe, c.column) == self.number;
        span.cell.parities().into_iter().find(mine).map(|c| c.row)
    }

    /// Returns the nodes that need the delta of a write.
    pub(super) fn targets(&self, (owner, seq): Name, span: &Span, lost: Mask) -> Mask {
        let Some(map) = &self.map else {
            return 0;
        };
        let nodes = span.cell.parities().map(|c| node(span.stripe, c.column));
        let wanted = |n: &usize| {
            let part = !has(lost, *n) && *n != self.number && *n != usize::from(owner);
            // A node that was admitted later rebuilds its cells.
            part && map.states[*n] != State::Out && map.since[*n] <= seq >> 32
        };
        nodes
            .into_iter()
            .filter(wanted)
            .fold(0, |mask, n| mask | 1 << n)
    }

    pub(super) fn delta(
        &mut self,
        peer: Peer,
        name: Name,
        span: Span,
        lost: Mask,
        payload: &[u8],
    ) -> io::Result<()> {
        let (owner, seq) = name;
        let known = self.journal.records().get(&name).map(|r| r.lsn);
        let old = seq < self.journal.floor(owner) || seq >> 32 < self.journal.since();
        let row = self.parity_row(&span);
        let wrong = usize::from(owner) == self.number || !span.fits(&self.journal.size());
        let (Some(row), false) = (row, wrong) else {
            self.close(peer, "a delta that is not for this node");
            return Ok(());
        };
        let lsn = match known {
            _ if old => 0,
            Some(lsn) => lsn,
            None => {
                let bad = self.journal.follow(name, span, lost, row, payload.into())?;
                if bad {
                    // The owner has the new content already. The other blocks of the stripe have
                    // it, too, so a rebuild computes the bad ones.
                    self.spoilt(span.stripe);
                }
                self.journal.lsn()
            }
        };
        self.acks.push((lsn, peer, name));
        Ok(())
    }

    pub(super) fn start(&mut self, w: Waiting) -> io::Result<()> {
        if has(w.lost, w.span.node()) {
            return self.gather(w.peer, w.id, w.span, w.lost, Goal::Write(w.data));
        }
        match self.journal.read(w.span) {
            Ok(old) => self.commit(w.peer, w.id, w.span, w.lost, old, w.data),
            Err(e) => self.refuse(w.peer, w.id, e),
        }
    }

    /// Refuses a write of the client if only blocks that it needs are bad.
    fn refuse(&mut self, peer: Peer, id: u64, e: io::Error) -> io::Result<()> {
        if !unreadable(&e) {
            return Err(e);
        }
        self.say(e.to_string());
        let (status, node) = (Status::Unreadable, self.number as u8);
        self.tell(peer, Message::Done { status, id, node });
        Ok(())
    }

    /// Logs a write, given the old content of its blocks.
    pub(super) fn commit(
        &mut self,
        peer: Peer,
        id: u64,
        span: Span,
        lost: Mask,
        mut old: Vec<u8>,
        new: Vec<u8>,
    ) -> io::Result<()> {
        let Some(row) = self.own_row(&span, lost) else {
            return Ok(());
        };
        xor(&mut old, &new);
        let me = self.number as u8;
        let name = (me, self.journal.floor(me));
        let waits = self.targets(name, &span, lost);
        if let Err(e) = self.journal.write(name, span, lost, row, old.into()) {
            return self.refuse(peer, id, e);
        }
        self.writes.insert(name.1, (peer, id));
        let relay = Relay {
            waits,
            due: waits,
            again: 0,
            lsn: self.journal.lsn(),
            sent: [0; NODES],
        };
        self.relays.insert(name, relay);
        Ok(())
    }

    /// Sends the durable deltas that are due.
    pub(super) fn relay(&mut self) {
        let now = self.watch.now;
        let (durable, epoch, floor) = (self.journal.durable(), self.journal.epoch(), self.floor());
        let mut sends = Vec::new();
        for (name, relay) in self.relays.iter_mut().filter(|(_, r)| r.lsn <= durable) {
            let Some(record) = self.journal.records().get(name) else {
                continue;
            };
            let due = relay.due & relay.waits;
            for n in (0..NODES).filter(|n| has(due, *n)) {
                if self.links[n].up() {
                    relay.due &= !(1 << n);
                    relay.sent[n] = now;
                    sends.push((self.links[n].peer, *name, record.clone()));
                }
            }
        }
        for (peer, (owner, seq), record) in sends {
            let delta = Message::Delta {
                epoch,
                owner,
                seq,
                span: record.span,
                lost: record.lost,
                floor,
            };
            self.send(peer, delta, record.delta);
        }
    }
}
