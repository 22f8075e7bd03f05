// SPDX-License-Identifier: GPL-2.0

//! An SE on RDMA devices.

use std::{collections::BTreeSet, io, net::SocketAddr, os::fd::RawFd, sync::Arc};

use srp_target::{
    acl::ListFile,
    fabric::{self, Commands, Front},
    reactor::{Event, LinkId},
    target::{self, ChannelId, TaskId, Work},
    workers::{execute, Workers},
};
use verbs::Buffer;

use super::{accept_role, connect, election::Term, good, send, Links, Made, Role};
use crate::{
    options::{Options, LINE},
    peer::{Peer, RS},
    se::{Action, Engine, Settings, OUTGOING},
};

/// Maximum length of a transfer, in bytes. Fits the smallest arena of a CE, and four extents unless
/// objects are small.
const MAX_TRANSFER: u64 = 1 << 20;

pub(super) struct Se {
    engine: Engine<Buffer>,
    /// The initiators that may log in.
    allow: Option<ListFile>,
    stores: Vec<Vec<SocketAddr>>,
    made: Made,
    /// Connections of CEs.
    roles: BTreeSet<LinkId>,
    commands: Commands,
    /// The term of the SE, if elected through etcd.
    term: Option<Arc<Term>>,
    failed: Option<String>,
}

impl Front for Engine<Buffer> {
    fn no_resources(&mut self, channel: ChannelId) {
        Engine::no_resources(self, channel);
    }

    fn ended(&mut self, channel: ChannelId) {
        Engine::ended(self, channel);
    }

    fn no_memory(&mut self, task: TaskId, work: Option<Work<Buffer>>) {
        Engine::no_memory(self, task, work.and_then(|w| w.out));
    }

    fn channel(&self, task: TaskId) -> Option<ChannelId> {
        Engine::channel(self, task)
    }
}

pub(super) fn role(
    options: Options,
    epoch: u64,
    term: Option<Arc<Term>>,
) -> io::Result<(Se, Links<fabric::Token>)> {
    let Options::Se {
        stores,
        luns,
        listen,
        id,
        guid,
        queue_depth,
        channels,
        extent,
        system: _,
        key: _,
        allow,
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let settings = Settings {
        target: target::Settings {
            id,
            queue_depth,
            channels,
        },
        guid,
        units: luns,
        stores: stores.iter().map(Vec::len).collect(),
        extent: extent << 11,
        line: u64::from(LINE) / 512,
        max_transfer: MAX_TRANSFER,
        epoch,
    };
    let mut engine = Engine::new(settings, 0);
    let allow = allow.as_deref().map(ListFile::open).transpose()?;
    let allow = allow.map(|(file, list)| {
        engine.allow(list);
        file
    });
    let role = Se {
        engine,
        allow,
        stores,
        made: Made::default(),
        roles: BTreeSet::new(),
        // This thread executes only commands without data.
        commands: Workers::new(1, execute)?,
        term,
        failed: None,
    };
    Ok((role, Links::new(listen)?))
}

impl Se {
    fn link(&self, peer: Peer) -> Option<LinkId> {
        if peer & OUTGOING == 0 {
            return Some(peer);
        }
        self.made.link(peer)
    }

    /// Returns whether the term is valid now.
    fn leads(&mut self) -> bool {
        if let Some(why) = self.term.as_ref().and_then(|term| term.over()) {
            self.failed = Some(why);
        }
        self.failed.is_none()
    }

    fn closed(&mut self, id: LinkId) {
        match self.made.peer(id) {
            Some(peer) => {
                self.made.remove(peer);
                self.engine.closed(peer);
            }
            None if self.roles.remove(&id) => self.engine.closed(id),
            None => self.engine.ended(id),
        }
    }
}

impl Role for Se {
    type Token = fabric::Token;
    type Links = Links<fabric::Token>;

    fn tick(&mut self, now: u64) {
        self.engine.tick(now);
    }

    fn event(&mut self, reactor: &mut Links<fabric::Token>, event: Event<fabric::Token>) {
        // A GRANT is dropped, too: it would send queued messages.
        if !self.leads() {
            return;
        }
        match event {
            Event::Login { id, data } => {
                if !accept_role(reactor, id, &data) {
                    if let Some(list) = self.allow.as_mut().and_then(ListFile::news) {
                        self.engine.allow(list);
                    }
                    self.engine.login(id, &data);
                }
            }
            Event::Refused { id, why } => fabric::refused(&mut self.engine, id, &why),
            Event::Connected { id } => match self.made.peer(id) {
                Some(peer) => self.engine.connected(peer),
                None if reactor.welcomed(id) => {
                    self.roles.insert(id);
                    self.engine.connected(id);
                }
                None => {}
            },
            Event::Received { id, buffer, len } => {
                let peer = self.made.peer(id).or(self.roles.get(&id).copied());
                let Some(peer) = peer else {
                    return self.engine.received(id, buffer, len);
                };
                let granted = reactor.granted(id, &buffer[..len]);
                if let Ok(false) = granted {
                    self.engine.message(peer, &buffer[..len]);
                }
                let result = granted.and_then(|granted| reactor.again(id, buffer, granted));
                if !good(reactor, id, result) {
                    self.closed(id);
                }
            }
            Event::Done { id, token, buffer } => match (token, buffer) {
                (fabric::Token::Fetch(task), Some(buffer)) => self.engine.fetched(task, buffer),
                (fabric::Token::Fetch(_), None) => {}
                (fabric::Token::Answer(task), buffer) => {
                    reactor.give(id, buffer);
                    self.engine.sent(task);
                }
            },
            Event::Memory { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.closed(id);
            }
        }
    }

    fn act(&mut self, reactor: &mut Links<fabric::Token>) {
        loop {
            let actions = self.engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                if !self.leads() {
                    return;
                }
                match action {
                    Action::Target(action) => {
                        fabric::act(reactor, &mut self.engine, &self.commands, action, |t| t);
                    }
                    Action::Connect { peer, store, place } => {
                        let to = (self.stores[store][place], RS);
                        if !connect(reactor, &mut self.made, peer, to) {
                            self.engine.closed(peer);
                        }
                    }
                    Action::Send { peer, message } => {
                        if let Some(id) = self.link(peer) {
                            if !send(reactor, id, &message) {
                                self.closed(id);
                            }
                        }
                    }
                    Action::Close { peer } => {
                        if let Some(id) = self.link(peer) {
                            reactor.close(id);
                            self.roles.remove(&id);
                            self.made.remove(peer);
                        }
                    }
                    Action::End(why) => self.failed = Some(why),
                }
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.commands.fd()]
    }

    fn work(&mut self, reactor: &mut Links<fabric::Token>) {
        for (task, done) in self.commands.done() {
            self.engine.executed(task, done);
            self.act(reactor);
        }
    }

    fn status(&self) -> serde_json::Value {
        self.engine.status()
    }

    fn shutdown(&mut self) {
        self.engine.shutdown();
    }

    fn idle(&self) -> bool {
        self.engine.idle()
    }

    fn failed(&self) -> Option<String> {
        self.failed.clone()
    }
}
