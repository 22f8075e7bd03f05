// SPDX-License-Identifier: GPL-2.0

//! A CE on RDMA devices.

use std::{io, net::SocketAddr, os::fd::RawFd};

use srp_target::reactor::{piece, Event, LinkId};
use verbs::{Arena, Op, Piece};

use super::{answer_channel, connect, early::Early, good, send, Links, Made, Role};
use crate::{
    ce::{Action, Engine, JobId, Segment, Settings, To},
    options::{Options, LINE},
    peer::{Peer, RS, SE},
};

pub(super) enum Token {
    Fetched(JobId),
    Sent(JobId),
    /// The arena is registered for the peer.
    Offered,
}

pub(super) struct Ce {
    engine: Engine,
    arena: Arena,
    se: Vec<SocketAddr>,
    stores: Vec<Vec<SocketAddr>>,
    made: Made,
    /// The most recent connection to an SE.
    to_se: Option<Peer>,
    early: Early<Action>,
    stopping: bool,
}

pub(super) fn role(options: Options) -> io::Result<(Ce, Links<Token>)> {
    let Options::Ce {
        member,
        se,
        stores,
        listen,
        id,
        cache,
        key: _,
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let bytes = cache << 20;
    let settings = Settings {
        member,
        id,
        lines: bytes / LINE as usize,
        line: LINE,
        engines: se.len(),
        stores: stores.iter().map(Vec::len).collect(),
    };
    let arena = Arena::new(bytes)?;
    let mut reactor = Links::new(listen)?;
    reactor.share(arena.clone());
    let role = Ce {
        engine: Engine::new(settings, 0),
        arena,
        se,
        stores,
        made: Made::default(),
        to_se: None,
        early: Early::default(),
        stopping: false,
    };
    Ok((role, reactor))
}

fn transfers(segments: &[Segment]) -> Vec<(usize, Piece)> {
    segments
        .iter()
        .map(|s| (s.at as usize, piece(&s.descriptor)))
        .collect()
}

impl Ce {
    pub(super) fn hits(&self) -> [u64; 2] {
        self.engine.hits()
    }

    fn closed(&mut self, id: LinkId) {
        match self.made.peer(id) {
            Some(peer) => {
                self.made.remove(peer);
                self.engine.closed(peer);
            }
            None => {
                self.early.over(id);
                self.engine.ended(id);
            }
        }
    }

    fn check(&mut self, reactor: &mut Links<Token>, id: LinkId, result: io::Result<()>) {
        if !good(reactor, id, result) {
            self.closed(id);
        }
    }

    fn action(&mut self, reactor: &mut Links<Token>, action: Action) {
        let action = match action {
            Action::Fetch { channel, .. } | Action::Answer { channel, .. } => {
                self.early.pass(channel, action)
            }
            other => Some(other),
        };
        let Some(action) = action else {
            return;
        };
        match action {
            Action::Say(what) => tracing::info!("{what}"),
            Action::Connect { peer, to, place } => {
                let to = match to {
                    To::Se => {
                        self.to_se = Some(peer);
                        (self.se[place], SE)
                    }
                    To::Store(n) => (self.stores[n][place], RS),
                };
                if !connect(reactor, &mut self.made, peer, to) {
                    self.engine.closed(peer);
                }
            }
            Action::Send { peer, message } => {
                if let Some(id) = self.made.link(peer) {
                    if !send(reactor, id, &message) {
                        self.closed(id);
                    }
                }
            }
            Action::Close { peer } => {
                if let Some(id) = self.made.remove(peer) {
                    reactor.close(id);
                }
            }
            Action::Channel(action) => {
                if let Some(channel) = answer_channel(reactor, &mut self.early, action) {
                    self.closed(channel);
                }
            }
            Action::Fetch {
                channel,
                job,
                segments,
            } => {
                let token = Some(Token::Fetched(job));
                let result = reactor.queue_arena(channel, token, Op::Read, transfers(&segments));
                self.check(reactor, channel, result);
            }
            Action::Answer {
                channel,
                job,
                segments,
                message,
            } => {
                let mut result = Ok(());
                if !segments.is_empty() {
                    result = reactor.queue_arena(channel, None, Op::Write, transfers(&segments));
                }
                let token = Some(Token::Sent(job));
                let result = result.and_then(|()| reactor.send(channel, token, &message));
                self.check(reactor, channel, result);
            }
            Action::Copy { from, to, len } => {
                let copied = self.arena.copy(from as usize, to as usize, len as usize);
                if let Err(e) = copied {
                    tracing::error!("arena: {from} to {to}, {len} bytes: {e}");
                }
            }
        }
    }
}

impl Role for Ce {
    type Token = Token;
    type Links = Links<Token>;

    fn tick(&mut self, now: u64) {
        self.engine.tick(now);
    }

    fn event(&mut self, reactor: &mut Links<Token>, event: Event<Token>) {
        match event {
            Event::Login { id, data } => self.engine.login(id, &data),
            Event::Refused { id, why } => {
                reactor.refuse(id, &why);
                self.closed(id);
            }
            Event::Connected { id } => {
                let Some(peer) = self.made.peer(id) else {
                    for action in self.early.over(id) {
                        self.action(reactor, action);
                    }
                    return;
                };
                // Only an RS has access to the arena.
                if self.to_se == Some(peer) {
                    return self.engine.connected(peer, 0, 0);
                }
                self.engine.proven(peer);
                let result = reactor.offer(id, Token::Offered);
                self.check(reactor, id, result);
            }
            Event::Received { id, buffer, len } => {
                let Some(peer) = self.made.peer(id) else {
                    self.engine.received(id, &buffer[..len]);
                    let result = reactor.receive(id, buffer);
                    return self.check(reactor, id, result);
                };
                let granted = reactor.granted(id, &buffer[..len]);
                if let Ok(false) = granted {
                    self.engine.message(peer, &buffer[..len]);
                }
                let result = granted.and_then(|granted| reactor.again(id, buffer, granted));
                self.check(reactor, id, result);
            }
            Event::Done { id, token, buffer } => {
                reactor.give(id, buffer);
                match token {
                    Token::Fetched(job) => self.engine.fetched(job),
                    Token::Sent(job) => self.engine.sent(job),
                    Token::Offered => {
                        if let (Some(peer), Some((va, key))) =
                            (self.made.peer(id), reactor.arena(id))
                        {
                            self.engine.connected(peer, va, key);
                        }
                    }
                }
            }
            Event::Memory { .. } => {}
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
            let actions = self.engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(reactor, action);
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn work(&mut self, _reactor: &mut Links<Token>) {}

    fn status(&self) -> serde_json::Value {
        self.engine.status()
    }

    fn shutdown(&mut self) {
        self.stopping = true;
        self.engine.shutdown();
    }

    fn idle(&self) -> bool {
        self.stopping && self.engine.idle()
    }
}
