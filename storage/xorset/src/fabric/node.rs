// SPDX-License-Identifier: GPL-2.0

//! A node on RDMA devices.

use std::{collections::BTreeSet, fs::File, io, os::fd::RawFd, thread, time::Duration};

use srp_target::{
    reactor::{Event, LinkId, Reactor},
    workers::Workers,
};
use wss::{
    fabric::{good, Made, Role},
    peer::Peer,
};

use super::{backlog::Backlog, connect, fits, go_on, name, send, Disk, KEYED, PRIVATE, RECEIVES};
use crate::{
    coordinator::{Coordinator, Key, Request, TTL},
    etcd::Etcd,
    journal::Journal,
    link::LinkAction,
    message::{LEN, PAYLOAD},
    node::{Action, Node, OUTGOING},
    options::Set,
};

pub(super) struct NodeRole {
    node: Node<Disk>,
    set: Set,
    made: Made,
    backlog: Backlog,
    /// Incoming connections.
    others: BTreeSet<LinkId>,
    sync: Workers<u64, (u64, io::Result<()>)>,
    stopping: bool,
    failed: Option<String>,
}

pub(super) fn role(
    journal: Journal<Disk>,
    file: File,
    set: Set,
) -> io::Result<(NodeRole, Reactor<()>)> {
    let number = journal.number();
    let listen = set.nodes[usize::from(number)];
    let file = std::sync::Arc::new(file);
    let reactor = Reactor::new(listen)?;
    let (mut etcd, value) = (Etcd::new(set.etcd.clone(), &set.name)?, name());
    // Keeps the key of the node. The thread ends with the process.
    thread::spawn(move || loop {
        let (key, ttl) = (Key::Node(number), TTL);
        etcd.ask(&Request::Hold { key, value, ttl });
        thread::sleep(Duration::from_millis(TTL / 4));
    });
    let role = NodeRole {
        node: Node::new(journal, 0),
        set,
        made: Made::default(),
        backlog: Backlog::default(),
        others: BTreeSet::new(),
        sync: Workers::new(1, move |lsn| (lsn, file.sync_data()))?,
        stopping: false,
        failed: None,
    };
    Ok((role, reactor))
}

impl NodeRole {
    fn link(&self, peer: Peer) -> Option<LinkId> {
        if peer & OUTGOING == 0 {
            return Some(peer);
        }
        self.made.link(peer)
    }

    fn accepted(&mut self, id: LinkId) {
        self.others.insert(id);
        self.node.connected(id);
    }

    fn closed(&mut self, id: LinkId) {
        self.backlog.forget(id);
        match self.made.peer(id) {
            Some(peer) => {
                self.made.remove(peer);
                self.node.closed(peer);
            }
            None => {
                self.others.remove(&id);
                self.node.closed(id);
            }
        }
    }

    fn action(&mut self, reactor: &mut Reactor<()>, action: Action) {
        match action {
            Action::Say(what) => tracing::info!("{what}"),
            Action::Link(LinkAction::Connect { peer, to }) => {
                if !connect(reactor, &mut self.made, peer, &self.set, to) {
                    self.node.closed(peer);
                }
            }
            Action::Link(LinkAction::Send {
                peer,
                message,
                payload,
            }) => {
                if let Some(id) = self.link(peer) {
                    if !send(reactor, &mut self.backlog, id, message, payload) {
                        self.closed(id);
                    }
                }
            }
            Action::Link(LinkAction::Close { peer }) => {
                if let Some(id) = self.link(peer) {
                    self.backlog.forget(id);
                    reactor.close(id);
                    self.others.remove(&id);
                    self.made.remove(peer);
                }
            }
            Action::Sync { lsn } => self.sync.give(lsn),
            Action::End(why) => self.failed = Some(why),
        }
    }
}

impl Role for NodeRole {
    type Token = ();
    type Links = Reactor<()>;

    fn tick(&mut self, now: u64) {
        self.node.tick(now);
    }

    fn event(&mut self, reactor: &mut Reactor<()>, event: Event<()>) {
        match event {
            Event::Login { id, data } => {
                let sizes = [RECEIVES, LEN + PAYLOAD];
                if !reactor.welcome(id, &data, [PRIVATE, KEYED], sizes) {
                    tracing::warn!("connection {id} is refused: it is of no role");
                    reactor.close(id);
                }
            }
            Event::Connected { id } => match self.made.peer(id) {
                Some(peer) => self.node.connected(peer),
                None => self.accepted(id),
            },
            Event::Refused { id, why } => reactor.refuse(id, &why),
            Event::Received { id, buffer, len } => {
                let peer = self.made.peer(id).unwrap_or(id);
                let (message, payload) = buffer[..len].split_at(len.min(LEN));
                let mut result = fits(reactor.peer(id), message);
                if result.is_ok() {
                    self.node.message(peer, message, payload);
                    result = reactor.receive(id, buffer);
                }
                if !good(reactor, id, result) {
                    self.closed(id);
                }
            }
            Event::Done { id, buffer, .. } => reactor.give(id, buffer),
            Event::Memory { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.closed(id);
            }
        }
    }

    fn act(&mut self, reactor: &mut Reactor<()>) {
        for id in go_on(reactor, &mut self.backlog) {
            self.closed(id);
        }
        loop {
            let actions = self.node.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(reactor, action);
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.sync.fd()]
    }

    fn work(&mut self, reactor: &mut Reactor<()>) {
        for (lsn, result) in self.sync.done() {
            match result {
                Ok(()) => self.node.synced(lsn),
                Err(e) => self.failed = Some(format!("its file: {e}")),
            }
            self.act(reactor);
        }
    }

    fn status(&self) -> serde_json::Value {
        self.node.status()
    }

    fn shutdown(&mut self) {
        self.stopping = true;
    }

    fn idle(&self) -> bool {
        self.stopping && self.node.idle()
    }

    fn failed(&self) -> Option<String> {
        self.failed.clone()
    }
}
