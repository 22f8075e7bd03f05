// SPDX-License-Identifier: GPL-2.0

//! An RS on RDMA devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    os::fd::RawFd,
};

use srp_target::{
    proto::cmd::DirectBuf,
    reactor::{pieces, Event, LinkId, Parked},
};
use verbs::{Buffer, Op};

use super::{
    accept_role, answer_channel,
    early::Early,
    good,
    objects::{Job, Objects},
    send,
    short::Short,
    Links, Role,
};
use crate::{
    message::Status,
    peer::Peer,
    rs::{Action, OpId, Settings, Store, Work},
};

pub(super) enum Token {
    Pulled(OpId),
    Pushed(OpId),
}

pub(super) struct Rs<O> {
    store: Store,
    objects: O,
    failed: Option<String>,
    /// The connection and the buffer of each operation that is started.
    memory: BTreeMap<OpId, (LinkId, Option<Buffer>)>,
    short: Short<Action>,
    parked: Parked<Action>,
    early: Early<Action>,
    /// Connections of other roles. All others are answer channels.
    roles: BTreeSet<LinkId>,
}

pub(super) fn role<O: Objects>(
    settings: Settings,
    objects: O,
    listen: SocketAddr,
) -> io::Result<(Rs<O>, Links<Token>)> {
    let role = Rs {
        store: Store::new(settings, objects.blocks(), 0),
        objects,
        failed: None,
        memory: BTreeMap::new(),
        short: Short::default(),
        parked: Parked::default(),
        early: Early::default(),
        roles: BTreeSet::new(),
    };
    Ok((role, Links::new(listen)?))
}

/// The connection of a transfer and the length of its buffer.
fn needs(action: &Action) -> Option<(Peer, usize)> {
    match action {
        Action::Pull { peer, from, .. } => {
            Some((*peer, from.iter().map(|d| d.len() as usize).sum()))
        }
        Action::Execute {
            peer,
            work: Work::Read { blocks, .. },
            ..
        } => Some((*peer, *blocks as usize * 512)),
        _ => None,
    }
}

/// Writes a buffer to the peer's memory, if any is given, and sends a message, if any. The token
/// is of the last one.
fn push(
    reactor: &mut Links<Token>,
    (peer, op): (LinkId, OpId),
    buffer: Option<Buffer>,
    to: &[DirectBuf],
    message: Option<&[u8]>,
) -> io::Result<()> {
    let pushed = Some(Token::Pushed(op));
    match (buffer, message) {
        (Some(buffer), None) => reactor.queue(peer, pushed, Op::Write, buffer, pieces(to)),
        (Some(buffer), Some(message)) if !to.is_empty() => {
            reactor.queue(peer, None, Op::Write, buffer, pieces(to))?;
            reactor.send(peer, pushed, message)
        }
        (buffer, Some(message)) => {
            reactor.give(peer, buffer);
            reactor.send(peer, pushed, message)
        }
        (None, None) => Ok(()),
    }
}

impl<O: Objects> Rs<O> {
    /// Rejects SEs of older epochs.
    pub(super) fn refuse_before(&mut self, epoch: u64) {
        self.store.refuse_before(epoch);
    }

    /// Returns whether the objects are those of this RS now.
    fn has_objects(&mut self) -> bool {
        if self.failed.is_none() {
            self.failed = self.objects.lost();
        }
        self.failed.is_none()
    }

    fn action(&mut self, reactor: &mut Links<Token>, action: Action) {
        let action = match needs(&action) {
            Some((peer, _)) => self.early.pass(peer, action),
            None => Some(action),
        };
        let Some(action) = action else {
            return;
        };
        match action {
            Action::Say(what) => tracing::info!("{what}"),
            Action::Send { peer, message } => {
                if !send(reactor, peer, &message) {
                    self.closed(peer);
                }
            }
            Action::Close { peer } => {
                reactor.close(peer);
                self.forget(peer);
            }
            Action::Pull { .. }
            | Action::Execute {
                work: Work::Read { .. },
                ..
            } => {
                if let Some(action) = self.parked.pass(reactor, needs(&action), action) {
                    self.place(reactor, action);
                }
            }
            Action::Channel(action) => {
                if let Some(channel) = answer_channel(reactor, &mut self.early, action) {
                    self.closed(channel);
                }
            }
            Action::Push {
                peer,
                op,
                to,
                message,
            } => {
                let place = self.memory.get_mut(&op);
                let buffer = place.and_then(|(_, buffer)| buffer.take());
                let result = push(reactor, (peer, op), buffer, &to, message.as_deref());
                self.check(reactor, peer, result);
            }
            Action::Execute { peer, op, work } => {
                let memory = self.memory.remove(&op).and_then(|(_, buffer)| buffer);
                self.memory.insert(op, (peer, None));
                self.objects.give(Job { op, work, memory });
            }
            Action::Forget { op } => {
                if let Some((peer, buffer)) = self.memory.remove(&op) {
                    reactor.give(peer, buffer);
                }
            }
        }
    }

    /// Starts the transfers of a connection whose memory is registered. Without memory the first
    /// one waits for others.
    fn prepared(&mut self, reactor: &mut Links<Token>, id: LinkId, registered: bool) {
        let mut ready = match registered {
            true => self.parked.next(reactor, id),
            false => self.parked.first(id),
        };
        while let Some(action) = ready {
            self.place(reactor, action);
            ready = self.parked.next(reactor, id);
        }
    }

    /// Starts a transfer after those that wait for memory of others.
    fn place(&mut self, reactor: &mut Links<Token>, action: Action) {
        let mut short = std::mem::take(&mut self.short);
        if short.start(action, |action| self.start(reactor, action)) {
            tracing::warn!("no memory: transfers wait for others");
        }
        self.short = short;
    }

    /// Starts a transfer. Returns false if there is no memory now.
    fn start(&mut self, reactor: &mut Links<Token>, action: &Action) -> bool {
        let Some((peer, len)) = needs(action) else {
            return true;
        };
        let buffer = match reactor.take(peer, len) {
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => return false,
            result => result,
        };
        match (action.clone(), buffer) {
            (Action::Pull { op, from, .. }, buffer) => {
                let result = buffer.and_then(|buffer| {
                    self.memory.insert(op, (peer, None));
                    let token = Some(Token::Pulled(op));
                    reactor.queue(peer, token, Op::Read, buffer, pieces(&from))
                });
                self.check(reactor, peer, result);
            }
            (Action::Execute { op, work, .. }, Ok(buffer)) => {
                self.memory.insert(op, (peer, None));
                let memory = Some(buffer);
                self.objects.give(Job { op, work, memory });
            }
            (Action::Execute { op, .. }, Err(e)) => {
                self.check(reactor, peer, Err(e));
                // Not of the file: the connection has ended.
                self.store.executed(op, Status::Lost);
            }
            _ => {}
        }
        true
    }

    fn check(&mut self, reactor: &mut Links<Token>, peer: Peer, result: io::Result<()>) {
        if !good(reactor, peer, result) {
            self.closed(peer);
        }
    }

    /// Handles the end of a connection or of an answer channel.
    fn closed(&mut self, id: LinkId) {
        self.store.closed(id);
        self.store.ended(id);
        self.forget(id);
    }

    /// Ends the transfers that wait for memory of a connection, which has ended.
    fn forget(&mut self, id: LinkId) {
        self.roles.remove(&id);
        let early = self.early.over(id);
        for action in self.parked.all(id).chain(early) {
            if let Action::Execute { op, .. } = action {
                self.store.executed(op, Status::Lost);
            }
        }
    }
}

impl<O: Objects> Role for Rs<O> {
    type Token = Token;
    type Links = Links<Token>;

    fn tick(&mut self, now: u64) {
        self.store.tick(now);
        let busy = !self.memory.is_empty();
        if let Some((peer, len)) = self.short.in_vain(now, busy).and_then(needs) {
            let why = "there is no memory, and no operation has any; see `ulimit -l`";
            self.store.fail(peer, &format!("{len} bytes: {why}"));
        }
    }

    fn event(&mut self, reactor: &mut Links<Token>, event: Event<Token>) {
        // A GRANT is dropped, too: it would send queued messages.
        if !self.has_objects() {
            return;
        }
        match event {
            Event::Login { id, data } => {
                if !accept_role(reactor, id, &data) {
                    self.store.login(id, &data);
                }
            }
            Event::Refused { id, why } => {
                reactor.refuse(id, &why);
                self.closed(id);
            }
            Event::Received { id, buffer, len } if !self.roles.contains(&id) => {
                self.store.received(id, &buffer[..len]);
                let result = reactor.receive(id, buffer);
                self.check(reactor, id, result);
            }
            Event::Received { id, buffer, len } => {
                let granted = reactor.granted(id, &buffer[..len]);
                if let Ok(false) = granted {
                    self.store.message(id, &buffer[..len]);
                }
                let result = granted.and_then(|granted| reactor.again(id, buffer, granted));
                self.check(reactor, id, result);
            }
            Event::Done { id, token, buffer } => match token {
                Token::Pulled(op) => {
                    self.memory.insert(op, (id, buffer));
                    self.store.moved(op);
                }
                Token::Pushed(op) => {
                    reactor.give(id, buffer);
                    self.store.moved(op);
                }
            },
            Event::Connected { id } if reactor.welcomed(id) => {
                self.roles.insert(id);
                self.store.connected(id);
            }
            Event::Connected { id } => {
                for action in self.early.over(id) {
                    self.action(reactor, action);
                }
            }
            Event::Memory { id, registered } => self.prepared(reactor, id, registered),
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.closed(id);
            }
        }
    }

    fn act(&mut self, reactor: &mut Links<Token>) {
        loop {
            let mut short = std::mem::take(&mut self.short);
            short.go_on(|action| self.start(reactor, action));
            self.short = short;
            let actions = self.store.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                if !self.has_objects() {
                    return;
                }
                self.action(reactor, action);
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.objects.fd()]
    }

    fn work(&mut self, reactor: &mut Links<Token>) {
        for (op, status, buffer) in self.objects.done() {
            if let Some((_, place)) = self.memory.get_mut(&op) {
                *place = buffer;
            }
            self.store.executed(op, status);
            self.act(reactor);
        }
    }

    fn status(&self) -> serde_json::Value {
        let mut all = self.store.status();
        self.objects.status(&mut all);
        all
    }

    fn shutdown(&mut self) {
        self.store.shutdown();
    }

    fn idle(&self) -> bool {
        self.store.idle()
    }

    fn failed(&self) -> Option<String> {
        self.failed.clone()
    }
}
