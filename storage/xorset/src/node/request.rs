// SPDX-License-Identifier: GPL-2.0

//! Messages to a node.

use std::io;

use wss::peer::Peer;

use super::gather::Goal;
use super::relay::Waiting;
use super::Node;
use crate::{
    journal::{unreadable, Media},
    layout::{has, xor},
    message::{Message, Role, Status},
};

impl<M: Media> Node<M> {
    /// Handles a message on an outgoing connection to a node.
    pub(super) fn answer(
        &mut self,
        n: usize,
        peer: Peer,
        message: Message,
        payload: &[u8],
    ) -> io::Result<()> {
        match message {
            Message::Alive { floor } if self.links[n].up() => {
                self.raise(n, floor)?;
            }
            Message::Attached { number, .. } if usize::from(number) == n && !self.links[n].up() => {
                self.links[n].attached(self.watch.now);
                for relay in self.relays.values_mut() {
                    relay.due |= relay.waits & 1 << n;
                }
            }
            Message::Ack { status, owner, seq } => {
                if let Some(relay) = self.relays.get_mut(&(owner, seq)) {
                    match status {
                        Status::Good => relay.waits &= !(1 << n),
                        // Resend with the next tick.
                        _ => relay.again |= 1 << n,
                    }
                }
            }
            Message::Data { status, id, node } => {
                let Some((gather, _)) = self.reads.remove(&id) else {
                    return Ok(());
                };
                let Some(g) = self.gathers.get_mut(&gather) else {
                    return Ok(());
                };
                if status != Status::Good || payload.len() != g.sum.len() {
                    match status {
                        Status::Unreadable => self.fail(gather, status, node)?,
                        _ => self.fail(gather, Status::Failed, 0)?,
                    }
                    return Ok(());
                }
                xor(&mut g.sum, payload);
                g.waits.remove(&id);
                self.gathered(gather)?;
            }
            other => self.close(peer, &format!("unexpected {other:?}")),
        }
        Ok(())
    }

    /// Handles a message on an incoming connection.
    pub(super) fn request(
        &mut self,
        peer: Peer,
        who: Option<Role>,
        message: Message,
        payload: &[u8],
    ) -> io::Result<()> {
        let counts = |epoch| self.map.as_ref().is_some_and(|m| m.epoch == epoch);
        let is_client = who == Some(Role::Client);
        let ready = |epoch| self.client == Some(peer) && !self.telling && counts(epoch);
        match message {
            Message::Attach { role } if who.is_none() && role != Role::Node(self.number as u8) => {
                if let Some(incoming) = self.incoming.get_mut(&peer) {
                    incoming.who = Some(role);
                }
                let size = self.journal.size();
                let attached = Message::Attached {
                    number: self.number as u8,
                    since: self.journal.since(),
                    epoch: self.journal.epoch(),
                    cell: size.cell,
                    stripes: size.stripes,
                    set: self.journal.set(),
                };
                self.tell(peer, attached);
            }
            Message::Alive { floor } => {
                if let Some(Role::Node(n)) = who {
                    self.raise(usize::from(n), floor)?;
                }
            }
            Message::Epoch { epoch } if is_client => self.epoch(peer, epoch, payload)?,
            Message::Open { epoch } if is_client => {
                if ready(epoch) {
                    self.open()?;
                }
            }
            Message::Read {
                epoch,
                id,
                span,
                lost,
            } => {
                let data = |status, node| Message::Data { status, id, node };
                let may = if is_client {
                    ready(epoch)
                } else {
                    counts(epoch)
                };
                if !may {
                    self.tell(peer, data(Status::Stale, 0));
                } else if !span.fits(&self.journal.size()) {
                    self.tell(peer, data(Status::Invalid, 0));
                } else if span.node() == self.number && !has(lost, self.number) {
                    match self.journal.read(span) {
                        Ok(bytes) => self.send(peer, data(Status::Good, 0), bytes.into()),
                        Err(e) if unreadable(&e) => {
                            self.say(e.to_string());
                            self.tell(peer, data(Status::Unreadable, self.number as u8));
                        }
                        Err(e) => return Err(e),
                    }
                } else if is_client {
                    self.gather(peer, id, span, lost, Goal::Read)?;
                } else {
                    self.tell(peer, data(Status::Invalid, 0));
                }
            }
            Message::Write {
                epoch,
                id,
                span,
                lost,
            } if is_client => {
                if !ready(epoch) {
                    self.tell(peer, Message::done(Status::Stale, id));
                } else if !span.fits(&self.journal.size()) || self.own_row(&span, lost).is_none() {
                    self.tell(peer, Message::done(Status::Invalid, id));
                } else {
                    let data = payload.to_vec();
                    self.waiting.push_back(Waiting {
                        peer,
                        id,
                        span,
                        lost,
                        data,
                    });
                }
            }
            Message::Rebuild {
                epoch,
                id,
                stripe,
                lost,
                rest,
            } if is_client => {
                if !ready(epoch) {
                    self.tell(peer, Message::done(Status::Stale, id));
                } else if stripe >= self.journal.size().stripes || !has(lost, self.number) {
                    self.tell(peer, Message::done(Status::Invalid, id));
                } else {
                    self.rebuild(peer, id, stripe, lost, rest)?;
                }
            }
            Message::Delta {
                epoch,
                owner,
                seq,
                span,
                lost,
                floor,
            } => {
                let Some(Role::Node(sender)) = who else {
                    self.close(peer, "DELTA from a peer that is not a node");
                    return Ok(());
                };
                if !counts(epoch) {
                    let status = Status::Stale;
                    self.tell(peer, Message::Ack { status, owner, seq });
                    return Ok(());
                }
                // A number of this epoch is assigned only after all nodes have settled.
                if !self.opened && seq >> 32 == epoch {
                    self.open()?;
                }
                self.raise(usize::from(sender), floor)?;
                self.delta(peer, (owner, seq), span, lost, payload)?;
            }
            other => self.close(peer, &format!("unexpected {other:?}")),
        }
        Ok(())
    }
}
