// SPDX-License-Identifier: GPL-2.0

//! Connections: the items in flight, and their effect on the peer.

use std::collections::VecDeque;

use super::{Node, World, ARENA};
use wss::message::Message;

pub type ConnId = u64;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Token {
    /// SE: a fetch, or a response.
    Fetch(u64),
    Answer(u64),
    /// CE: a fetch, or a response.
    Fetched(u64),
    Sent(u64),
    /// RS: a read or write of an arena.
    Pulled(u64),
    Pushed(u64),
}

/// Payload of a work request: bytes, or a range of the sender's arena, read when the request is
/// executed.
#[derive(Clone, Debug)]
pub enum Source {
    Bytes(Vec<u8>),
    Arena(u64, u32),
}

#[derive(Clone, Debug)]
pub enum Item {
    /// The connection request, with private data.
    Connect(Vec<u8>),
    Accepted(Vec<u8>),
    Rejected,
    Message(Vec<u8>, Option<Token>),
    /// RDMA READ: address, rkey, length.
    Read(Vec<(u64, u32, u32)>, Token),
    Write(Vec<(u64, u32, Source)>, Option<Token>),
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub node: Node,
    /// The node's number of the connection, and whether it is a channel.
    pub(super) local: u64,
    pub(super) channel: bool,
    pub open: bool,
    /// Time when the end is forced.
    pub(super) until: Option<u64>,
}

pub struct Conn {
    pub sides: [Side; 2],
    /// Items in flight from each side.
    pub(super) queues: [VecDeque<Item>; 2],
    /// Completions for each side.
    pub(super) completions: [VecDeque<(Token, Vec<u8>)>; 2],
    /// Delivery from this side is held.
    pub(super) held: [bool; 2],
    /// Completions for this side are held.
    pub(super) late: [bool; 2],
    /// Time of the connection request.
    pub since: u64,
}

impl World {
    pub fn sides_of(&self, node: Node) -> Vec<(ConnId, usize)> {
        let mut found = Vec::new();
        for (id, conn) in &self.conns {
            for side in 0..2 {
                if conn.sides[side].node == node && conn.sides[side].open {
                    found.push((*id, side));
                }
            }
        }
        found
    }

    /// The connections between two nodes, and the side of the first node.
    pub fn between(&self, from: Node, to: Node) -> Vec<(ConnId, usize)> {
        let all = self.sides_of(from).into_iter();
        all.filter(|(id, side)| self.conns[id].sides[1 - side].node == to)
            .collect()
    }

    pub fn connect(&mut self, from: Node, local: u64, to: Node, data: Vec<u8>) -> ConnId {
        let id = self.number();
        let channel = matches!(from, Node::Initiator(_));
        let theirs = self.number();
        let side = |node, local, channel| Side {
            node,
            local,
            channel,
            open: true,
            until: None,
        };
        let mut conn = Conn {
            sides: [side(from, local, channel), side(to, theirs, channel)],
            queues: Default::default(),
            completions: Default::default(),
            held: [false; 2],
            late: [false; 2],
            since: self.now,
        };
        conn.queues[0].push_back(Item::Connect(data));
        self.conns.insert(id, conn);
        id
    }

    pub(super) fn find(&self, node: Node, local: u64, channel: bool) -> Option<(ConnId, usize)> {
        let mine = |s: &Side| s.node == node && s.local == local && s.channel == channel && s.open;
        let mut all = self.conns.iter();
        all.find_map(|(id, c)| (0..2).find(|n| mine(&c.sides[*n])).map(|side| (*id, side)))
    }

    /// A connection or a channel of a node.
    pub(super) fn find_any(&self, node: Node, local: u64) -> Option<(ConnId, usize)> {
        self.find(node, local, false)
            .or_else(|| self.find(node, local, true))
    }

    pub fn push(&mut self, id: ConnId, side: usize, item: Item) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if conn.sides[side].open {
                conn.queues[side].push_back(item);
            }
        }
    }

    /// Closes one side of a connection.
    pub fn close(&mut self, id: ConnId, side: usize) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.sides[side].open = false;
        conn.queues[1 - side].clear();
        conn.completions[side].clear();
        let sent = conn.queues[side].len() as u64;
        let arrives = self.rng.below(sent + 1) as usize;
        let node = conn.sides[side].node;
        conn.queues[side].truncate(arrives);
        let mut queue = std::mem::take(&mut conn.queues[side]);
        // Take a snapshot of the payload in flight: the sender's memory may change.
        for item in &mut queue {
            if let Item::Write(list, _) = item {
                for (_, _, source) in list {
                    *source = Source::Bytes(self.bytes(node, source));
                }
            }
        }
        queue.push_back(Item::Closed);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.queues[side] = queue;
            if !conn.sides[1 - side].open {
                self.conns.remove(&id);
            }
        }
    }

    /// Breaks a connection for both sides.
    pub fn cut(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            for queue in &mut conn.queues {
                queue.clear();
                queue.push_back(Item::Closed);
            }
            conn.held = [false; 2];
        }
    }

    pub(super) fn bytes(&self, node: Node, source: &Source) -> Vec<u8> {
        match (source, node) {
            (Source::Bytes(bytes), _) => bytes.clone(),
            (Source::Arena(at, len), Node::Ce(n)) => {
                self.ces[n].arena[*at as usize..][..*len as usize].to_vec()
            }
            _ => unreachable!("only a CE has an arena"),
        }
    }

    /// Registered memory of a node; `None` if the rkey is invalid.
    pub(super) fn memory(
        &mut self,
        node: Node,
        va: u64,
        key: u32,
        len: usize,
    ) -> Option<&mut [u8]> {
        match node {
            Node::Initiator(n) => self.initiators[n].memory(va, key, len),
            Node::Ce(n) => {
                let ce = &mut self.ces[n];
                assert_eq!(key, ce.key, "an RS uses the arena of a CE that was before");
                Some(&mut ce.arena[(va - ARENA) as usize..][..len])
            }
            _ => unreachable!("{node:?} has no registered memory"),
        }
    }

    /// Holds delivery from one node to another until [`World::release`].
    pub fn hold(&mut self, from: Node, to: Node) {
        for (id, side) in self.between(from, to) {
            self.conns.get_mut(&id).unwrap().held[side] = true;
        }
    }

    pub fn late_side(&mut self, id: ConnId, side: usize, late: bool) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.late[side] = late;
        }
    }

    /// Whether completions for a side are pending.
    pub fn pending(&self, id: ConnId, side: usize) -> bool {
        let conn = self.conns.get(&id);
        conn.is_some_and(|c| !c.completions[side].is_empty())
    }

    pub fn hold_side(&mut self, id: ConnId, side: usize, held: bool) {
        self.conns.get_mut(&id).unwrap().held[side] = held;
    }

    /// The items in flight from a side.
    pub fn queue(&self, id: ConnId, side: usize) -> impl Iterator<Item = &Item> {
        self.conns[&id].queues[side].iter()
    }

    /// Whether a fetch completion for a node is pending.
    pub fn completes(&self, node: Node) -> bool {
        self.sides_of(node).iter().any(|(id, side)| {
            let mut all = self.conns[id].completions[*side].iter();
            all.any(|(token, _)| matches!(token, Token::Fetched(_)))
        })
    }

    pub fn release(&mut self) {
        for conn in self.conns.values_mut() {
            (conn.held, conn.late) = ([false; 2], [false; 2]);
        }
    }
}

pub(super) fn shown(item: &Item) -> String {
    match item {
        Item::Message(bytes, _) => match Message::parse(bytes) {
            Ok(message) => format!("{message:?}"),
            Err(_) => format!("SRP {:#04x} {:02x?}", bytes[0], &bytes[8..16]),
        },
        Item::Write(list, _) => format!("write {}", list.len()),
        Item::Accepted(_) => "accepted".into(),
        Item::Connect(_) => "connect".into(),
        other => format!("{other:?}"),
    }
}
