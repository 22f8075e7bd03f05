// SPDX-License-Identifier: GPL-2.0

//! The client of a set, with its connections to the nodes and to etcd.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::RawFd,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, PoisonError,
    },
    time::Instant,
};

use srp_target::{
    reactor::{LinkId, Reactor},
    workers::Workers,
};
use verbs::Buffer;
use wss::fabric::{good, Made};

use super::{backlog::Backlog, connect, fits, go_on, send};
use crate::{
    client::{self, Action, Client, Settings},
    coordinator::{Answer, Coordinator, Request},
    link::LinkAction,
    message::LEN,
    options::Set,
};

/// The memory of a command. `T` is what the caller knows of a buffer.
pub(super) enum Memory<T> {
    Buffer(T, Buffer),
    /// Of a command that moves no data, or had them in its message.
    Bytes(Vec<u8>),
}

impl<T> Deref for Memory<T> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(_, buffer) => buffer,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl<T> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(_, buffer) => buffer,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// How long the client has the set. Other threads may ask.
pub(super) struct Lease {
    begin: Instant,
    /// In milliseconds after `begin`.
    until: AtomicU64,
}

impl Lease {
    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Returns whether the client may have lost the set.
    pub(super) fn over(&self) -> bool {
        self.now() >= self.until.load(Ordering::Relaxed)
    }
}

pub(super) struct Nodes<B> {
    pub(super) client: Client<B>,
    pub(super) set: Set,
    pub(super) lease: Arc<Lease>,
    pub(super) failed: Option<String>,
    made: Made,
    backlog: Backlog,
    etcd: Workers<(u64, Request), (u64, Answer)>,
}

impl<B: client::Memory> Nodes<B> {
    pub(super) fn new(
        set: Set,
        etcd: impl Coordinator + Send + 'static,
        settings: Settings,
    ) -> io::Result<Self> {
        let etcd = Arc::new(Mutex::new(etcd));
        let ask = move |(id, request)| {
            let mut etcd = etcd.lock().unwrap_or_else(PoisonError::into_inner);
            (id, etcd.ask(&request))
        };
        let lease = Lease {
            begin: Instant::now(),
            until: AtomicU64::new(0),
        };
        Ok(Self {
            client: Client::new(settings, 0),
            set,
            lease: Arc::new(lease),
            failed: None,
            made: Made::default(),
            backlog: Backlog::default(),
            etcd: Workers::new(1, ask)?,
        })
    }

    /// Sets the time. Call it before any input.
    pub(super) fn clock(&mut self) {
        self.client.clock(self.lease.now());
    }

    pub(super) fn tick(&mut self) {
        self.client.tick(self.lease.now());
    }

    /// Handles the end of a connection. Returns whether it is to a node.
    pub(super) fn closed(&mut self, id: LinkId) -> bool {
        self.backlog.forget(id);
        let Some(peer) = self.made.peer(id) else {
            return false;
        };
        self.made.remove(peer);
        self.client.closed(peer);
        true
    }

    pub(super) fn connected(&mut self, id: LinkId) {
        if let Some(peer) = self.made.peer(id) {
            self.client.connected(peer);
        }
    }

    /// Handles a message. Returns the buffer if the connection is not to a node.
    pub(super) fn received<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        id: LinkId,
        buffer: Buffer,
        len: usize,
    ) -> Option<Buffer> {
        let Some(peer) = self.made.peer(id) else {
            return Some(buffer);
        };
        let (message, payload) = buffer[..len].split_at(len.min(LEN));
        let mut result = fits(reactor.peer(id), message);
        if result.is_ok() {
            self.client.message(peer, message, payload);
            result = reactor.receive(id, buffer);
        }
        if !good(reactor, id, result) {
            self.closed(id);
        }
        None
    }

    /// Carries out an action that concerns connections, etcd or the log. Returns others.
    pub(super) fn action<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        action: Action<B>,
    ) -> Option<Action<B>> {
        match action {
            Action::Say(what) => tracing::info!("{what}"),
            Action::Link(LinkAction::Connect { peer, to }) => {
                if !connect(reactor, &mut self.made, peer, &self.set, to) {
                    self.client.closed(peer);
                }
            }
            Action::Link(LinkAction::Send {
                peer,
                message,
                payload,
            }) => {
                if let Some(id) = self.made.link(peer) {
                    if !send(reactor, &mut self.backlog, id, message, payload) {
                        self.closed(id);
                    }
                }
            }
            Action::Link(LinkAction::Close { peer }) => {
                if let Some(id) = self.made.remove(peer) {
                    self.backlog.forget(id);
                    reactor.close(id);
                }
            }
            Action::Ask { id, request } => self.etcd.give((id, request)),
            Action::End(why) => self.failed = Some(why),
            other => return Some(other),
        }
        None
    }

    /// Sends the messages that have waited for memory.
    pub(super) fn go_on<T>(&mut self, reactor: &mut Reactor<T>) {
        for id in go_on(reactor, &mut self.backlog) {
            self.closed(id);
        }
    }

    /// Descriptor that is readable when there are answers of etcd.
    pub(super) fn fd(&self) -> RawFd {
        self.etcd.fd()
    }

    pub(super) fn answers(&mut self) -> Vec<(u64, Answer)> {
        self.etcd.done()
    }

    pub(super) fn answered(&mut self, id: u64, answer: Answer) {
        self.client.answered(id, answer);
        let until = self.client.held().unwrap_or(0);
        self.lease.until.store(until, Ordering::Relaxed);
    }
}
