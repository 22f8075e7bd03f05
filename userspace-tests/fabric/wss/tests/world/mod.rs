// SPDX-License-Identifier: GPL-2.0

//! A made-up fabric with all roles, disks and initiators on it, in which everything happens in an order that a number
//! decides, and everything can go wrong.
//!
//! A connection keeps the order of what goes one way, as a reliable one does. An RDMA operation is carried out in the
//! memory of its other side when it arrives there, and its completion takes its time to come back. Who ends a connection
//! has nothing of it any more; some of what it has sent may still arrive before the other side hears of the end.

#![allow(dead_code)]

pub mod history;
pub mod initiator;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use history::History;
use initiator::Initiator;
use srp_target::{
    target::{self, ChannelId, Settings},
    workers,
};
use wss::{
    ce,
    message::{Message, Status},
    peer::Peer,
    rs, se,
};

/// Bytes of a line; four blocks, so that most commands are about several.
pub const LINE: u32 = 2048;
/// Blocks of an extent.
pub const EXTENT: u64 = 8;
/// Blocks of an object.
pub const OBJECT: u64 = 32;
/// Blocks of the unit: an object of each RS.
pub const BLOCKS: u64 = 2 * OBJECT;
pub const TARGET: [u8; 16] = [7; 16];
pub const DEPTH: u32 = 6;
/// A target that is to end a connection ends it after so many milliseconds whatever the other side does.
const LEAVING: u64 = 1000;
/// Where the arena of a CE is.
const ARENA: u64 = 1 << 20;

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Node {
    Se,
    Ce(usize),
    Rs(usize),
    Initiator(usize),
}

pub type ConnId = u64;

/// What a completion is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Token {
    /// Of the SE: what was fetched for a task, or its answer.
    Fetch(u64),
    Answer(u64),
    /// Of a CE.
    Fetched(u64),
    Sent(u64),
    /// Of an RS.
    Pulled(u64),
    Pushed(u64),
}

/// Bytes of a work request: themselves, or those that the arena of the sender has when it is carried out.
#[derive(Clone, Debug)]
pub enum Source {
    Bytes(Vec<u8>),
    Arena(u64, u32),
}

#[derive(Clone, Debug)]
pub enum Item {
    /// The first, with private data.
    Connect(Vec<u8>),
    Accepted(Vec<u8>),
    Rejected,
    Message(Vec<u8>, Option<Token>),
    /// Memory of the other side is read: address, rkey, length.
    Read(Vec<(u64, u32, u32)>, Token),
    Write(Vec<(u64, u32, Source)>, Option<Token>),
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub node: Node,
    /// The node's own number of it, and whether that is one of a channel.
    local: u64,
    channel: bool,
    pub open: bool,
    /// It ends by itself at this time.
    until: Option<u64>,
}

pub struct Conn {
    pub sides: [Side; 2],
    /// What goes from each side to the other.
    queues: [VecDeque<Item>; 2],
    /// Completions for each side.
    completions: [VecDeque<(Token, Vec<u8>)>; 2],
    /// Nothing goes from this side.
    held: [bool; 2],
    /// When it was begun.
    pub since: u64,
}

pub struct CeNode {
    pub engine: Option<ce::Engine>,
    arena: Vec<u8>,
    key: u32,
    /// Places in the arena of what is fetched for a job.
    fetches: HashMap<u64, Vec<(usize, usize)>>,
}

pub struct RsNode {
    pub store: Option<rs::Store>,
    memory: HashMap<u64, Vec<u8>>,
    /// What the file is to do, in any order, but not before this event.
    pub pending: Vec<(u64, rs::Work, u64)>,
}

pub struct World {
    pub rng: Rng,
    /// Milliseconds.
    pub now: u64,
    /// Events.
    pub clock: u64,
    pub se: Option<se::Engine<Vec<u8>>>,
    pub ces: Vec<CeNode>,
    pub rss: Vec<RsNode>,
    /// By RS; one object each.
    pub disks: Vec<Vec<u8>>,
    pub initiators: Vec<Initiator>,
    pub conns: BTreeMap<ConnId, Conn>,
    pub frozen: BTreeSet<Node>,
    pub history: History,
    /// Files that fail: one in so many operations, 0 for none.
    pub bad_disk: u64,
    pub disks_failed: bool,
    /// Initiators that do not reach a CE.
    pub barred: Vec<(usize, usize)>,
    /// Time goes on once in so many events.
    pub pace: u64,
    /// Blocks that most commands are about.
    pub span: u64,
    /// Files that take long: one in so many operations, 0 for none.
    pub slow_disk: u64,
    /// Nothing is done by a file of this RS.
    pub stuck: BTreeSet<usize>,
    next: u64,
    pub trace: Vec<String>,
    pub verbose: bool,
}

impl World {
    pub fn new(seed: u64, ces: usize, initiators: usize) -> Self {
        let mut this = Self {
            rng: Rng(seed),
            now: 1_000_000,
            clock: 1,
            se: None,
            ces: Vec::new(),
            rss: Vec::new(),
            disks: vec![vec![0; OBJECT as usize * 512]; 2],
            initiators: (0..initiators).map(Initiator::new).collect(),
            conns: BTreeMap::new(),
            frozen: BTreeSet::new(),
            history: History::new(BLOCKS as usize),
            bad_disk: 0,
            disks_failed: false,
            barred: Vec::new(),
            pace: 60,
            span: 24,
            slow_disk: 0,
            stuck: BTreeSet::new(),
            next: 1,
            trace: Vec::new(),
            verbose: std::env::var_os("TRACE").is_some(),
        };
        for _ in 0..ces {
            this.ces.push(CeNode {
                engine: None,
                arena: Vec::new(),
                key: 0,
                fetches: HashMap::new(),
            });
        }
        for _ in 0..2 {
            this.rss.push(RsNode {
                store: None,
                memory: HashMap::new(),
                pending: Vec::new(),
            });
        }
        for node in this.roles() {
            this.start(node);
        }
        this
    }

    pub fn roles(&self) -> Vec<Node> {
        let mut all = vec![Node::Se];
        all.extend((0..self.rss.len()).map(Node::Rs));
        all.extend((0..self.ces.len()).map(Node::Ce));
        all
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.verbose {
            let line = format!("{} {}: {}", self.clock, self.now, what());
            eprintln!("{line}");
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    // Nodes.

    pub fn alive(&self, node: Node) -> bool {
        match node {
            Node::Se => self.se.is_some(),
            Node::Ce(n) => self.ces[n].engine.is_some(),
            Node::Rs(n) => self.rss[n].store.is_some(),
            Node::Initiator(_) => true,
        }
    }

    pub fn start(&mut self, node: Node) {
        if self.alive(node) {
            return;
        }
        self.note(|| format!("start {node:?}"));
        let number = self.number();
        match node {
            Node::Se => {
                let settings = se::Settings {
                    target: Settings {
                        id: TARGET,
                        queue_depth: DEPTH,
                        channels: 4,
                    },
                    guid: 5,
                    units: vec![vec![(100, 0), (101, 0)]],
                    stores: 2,
                    extent: EXTENT,
                    line: u64::from(LINE) / 512,
                    max_transfer: 12 * 512,
                    epoch: self.now << 20,
                };
                self.se = Some(se::Engine::new(settings, self.now));
            }
            Node::Ce(n) => {
                let settings = ce::Settings {
                    member: n as u32 + 1,
                    id: TARGET,
                    lines: 10,
                    line: LINE,
                    stores: 2,
                };
                let ce = &mut self.ces[n];
                ce.engine = Some(ce::Engine::new(settings, self.now));
                ce.arena = vec![0xcc; 10 * LINE as usize];
                ce.key = number as u32;
            }
            Node::Rs(n) => {
                let store = rs::Store::new(100 + n as u32, vec![OBJECT], self.now);
                self.rss[n].store = Some(store);
            }
            Node::Initiator(_) => {}
        }
        self.tick_node(node);
    }

    /// The process ends, without a word.
    pub fn kill(&mut self, node: Node) {
        self.note(|| format!("kill {node:?}"));
        match node {
            Node::Se => self.se = None,
            Node::Ce(n) => {
                self.ces[n].engine = None;
                self.ces[n].fetches.clear();
            }
            Node::Rs(n) => {
                self.rss[n].store = None;
                // What the file was doing it has done as far as it got.
                for (op, work, _) in std::mem::take(&mut self.rss[n].pending) {
                    let blocks = match work {
                        rs::Work::Write { blocks, .. } => self.rng.below(u64::from(blocks) + 1),
                        _ => 0,
                    };
                    self.work(n, op, work, blocks as u32);
                }
                self.rss[n].memory.clear();
            }
            Node::Initiator(_) => unreachable!(),
        }
        self.frozen.remove(&node);
        for (id, side) in self.sides_of(node) {
            self.close(id, side);
        }
    }

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

    /// The connections between two nodes, and which side the first one is.
    pub fn between(&self, from: Node, to: Node) -> Vec<(ConnId, usize)> {
        let all = self.sides_of(from).into_iter();
        all.filter(|(id, side)| self.conns[id].sides[1 - side].node == to)
            .collect()
    }

    // Connections.

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
            since: self.now,
        };
        conn.queues[0].push_back(Item::Connect(data));
        self.conns.insert(id, conn);
        id
    }

    fn find(&self, node: Node, local: u64, channel: bool) -> Option<(ConnId, usize)> {
        let mine = |s: &Side| s.node == node && s.local == local && s.channel == channel && s.open;
        let mut all = self.conns.iter();
        all.find_map(|(id, c)| (0..2).find(|n| mine(&c.sides[*n])).map(|side| (*id, side)))
    }

    pub fn push(&mut self, id: ConnId, side: usize, item: Item) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if conn.sides[side].open {
                conn.queues[side].push_back(item);
            }
        }
    }

    /// A side ends a connection.
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
        // What is in the network is as it was when it was sent.
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

    /// A connection breaks for both sides.
    pub fn cut(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            for queue in &mut conn.queues {
                queue.clear();
                queue.push_back(Item::Closed);
            }
            conn.held = [false; 2];
        }
    }

    fn bytes(&self, node: Node, source: &Source) -> Vec<u8> {
        match (source, node) {
            (Source::Bytes(bytes), _) => bytes.clone(),
            (Source::Arena(at, len), Node::Ce(n)) => {
                self.ces[n].arena[*at as usize..][..*len as usize].to_vec()
            }
            _ => unreachable!("only a CE has an arena"),
        }
    }

    /// Memory that a node has registered. `None` if the rkey is not good any more.
    fn memory(&mut self, node: Node, va: u64, key: u32, len: usize) -> Option<&mut [u8]> {
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

    // What happens.

    fn deliver(&mut self, id: ConnId, side: usize) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let Some(item) = conn.queues[side].pop_front() else {
            return;
        };
        let (from, to) = (conn.sides[side], conn.sides[1 - side]);
        self.note(|| format!("{:?} -> {:?} ({id}): {}", from.node, to.node, shown(&item)));
        if !to.open {
            return;
        }
        let node = to.node;
        let alive = self.alive(node);
        let conn = self.conns.get_mut(&id).unwrap();
        if !alive {
            // Nobody listens there.
            conn.sides[1 - side].open = false;
            conn.queues[side].clear();
            conn.queues[1 - side].clear();
            conn.queues[1 - side].push_back(Item::Closed);
            return;
        }
        match item {
            Item::Closed => {
                conn.sides[1 - side].open = false;
                if !from.open || conn.queues[1 - side].is_empty() {
                    self.conns.remove(&id);
                }
                self.closed(to, id, from.node);
            }
            Item::Connect(data) => match (to.channel, node) {
                (true, Node::Se) => self.se.as_mut().unwrap().login(to.local, &data),
                (true, Node::Ce(n)) => {
                    self.ces[n].engine.as_mut().unwrap().login(to.local, &data);
                }
                (_, Node::Se) => {
                    self.push(id, 1 - side, Item::Accepted(Vec::new()));
                    self.se.as_mut().unwrap().connected(to.local);
                }
                (_, Node::Rs(n)) => {
                    self.push(id, 1 - side, Item::Accepted(Vec::new()));
                    self.rss[n].store.as_mut().unwrap().connected(to.local);
                }
                _ => unreachable!(),
            },
            Item::Accepted(data) => match node {
                Node::Initiator(n) => initiator::accepted(self, n, id, &data),
                Node::Se => self.se.as_mut().unwrap().connected(to.local),
                Node::Ce(n) => {
                    let ce = &mut self.ces[n];
                    ce.engine
                        .as_mut()
                        .unwrap()
                        .connected(to.local, ARENA, ce.key);
                }
                Node::Rs(_) => unreachable!(),
            },
            Item::Rejected => {
                conn.sides[1 - side].open = false;
                self.conns.remove(&id);
                self.closed(to, id, from.node);
            }
            Item::Message(bytes, token) => {
                if let Some(token) = token {
                    conn.completions[side].push_back((token, Vec::new()));
                }
                match (node, to.channel) {
                    (Node::Initiator(n), _) => initiator::received(self, n, id, &bytes),
                    (Node::Se, true) => {
                        let len = bytes.len();
                        self.se.as_mut().unwrap().received(to.local, bytes, len);
                    }
                    (Node::Se, false) => self.se.as_mut().unwrap().message(to.local, &bytes),
                    (Node::Ce(n), true) => {
                        self.ces[n]
                            .engine
                            .as_mut()
                            .unwrap()
                            .received(to.local, &bytes);
                    }
                    (Node::Ce(n), false) => {
                        self.ces[n]
                            .engine
                            .as_mut()
                            .unwrap()
                            .message(to.local, &bytes);
                    }
                    (Node::Rs(n), _) => {
                        self.rss[n]
                            .store
                            .as_mut()
                            .unwrap()
                            .message(to.local, &bytes);
                    }
                }
            }
            Item::Read(list, token) => {
                let mut bytes = Vec::new();
                for (va, key, len) in list {
                    match self.memory(node, va, key, len as usize) {
                        Some(part) => bytes.extend_from_slice(part),
                        None => return self.cut(id),
                    }
                }
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.completions[side].push_back((token, bytes));
                }
            }
            Item::Write(list, token) => {
                for (va, key, source) in list {
                    let bytes = self.bytes(from.node, &source);
                    match self.memory(node, va, key, bytes.len()) {
                        Some(part) => part.copy_from_slice(&bytes),
                        None => return self.cut(id),
                    }
                }
                if let (Some(token), Some(conn)) = (token, self.conns.get_mut(&id)) {
                    conn.completions[side].push_back((token, Vec::new()));
                }
            }
        }
        self.pump(node);
    }

    fn closed(&mut self, side: Side, id: ConnId, other: Node) {
        match (side.node, side.channel) {
            (Node::Initiator(n), _) => initiator::closed(self, n, id, other),
            (Node::Se, true) => self.se.as_mut().unwrap().ended(side.local),
            (Node::Se, false) => self.se.as_mut().unwrap().closed(side.local),
            (Node::Ce(n), true) => self.ces[n].engine.as_mut().unwrap().ended(side.local),
            (Node::Ce(n), false) => self.ces[n].engine.as_mut().unwrap().closed(side.local),
            (Node::Rs(n), _) => self.rss[n].store.as_mut().unwrap().closed(side.local),
        }
        self.pump(side.node);
    }

    fn complete(&mut self, id: ConnId, side: usize) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let Some((token, bytes)) = conn.completions[side].pop_front() else {
            return;
        };
        let node = conn.sides[side].node;
        if !conn.sides[side].open || !self.alive(node) {
            return;
        }
        self.note(|| format!("{node:?} ({id}): completed {token:?}"));
        match (node, token) {
            (Node::Se, Token::Fetch(task)) => self.se.as_mut().unwrap().fetched(task, bytes),
            (Node::Se, Token::Answer(task)) => self.se.as_mut().unwrap().sent(task),
            (Node::Ce(n), Token::Fetched(job)) => {
                let ce = &mut self.ces[n];
                let mut rest = &bytes[..];
                for (at, len) in ce.fetches.remove(&job).unwrap() {
                    let (part, behind) = rest.split_at(len);
                    ce.arena[at..at + len].copy_from_slice(part);
                    rest = behind;
                }
                ce.engine.as_mut().unwrap().fetched(job);
            }
            (Node::Ce(n), Token::Sent(job)) => self.ces[n].engine.as_mut().unwrap().sent(job),
            (Node::Rs(n), Token::Pulled(op)) => {
                self.rss[n].memory.insert(op, bytes);
                self.rss[n].store.as_mut().unwrap().moved(op);
            }
            (Node::Rs(n), Token::Pushed(op)) => self.rss[n].store.as_mut().unwrap().moved(op),
            _ => unreachable!("{node:?} {token:?}"),
        }
        self.pump(node);
    }

    /// A file does its work, or the first blocks of it.
    fn work(&mut self, n: usize, op: u64, work: rs::Work, blocks: u32) {
        let disk = &mut self.disks[n];
        match work {
            rs::Work::Read { at, blocks, .. } => {
                let bytes = disk[at as usize * 512..][..blocks as usize * 512].to_vec();
                self.rss[n].memory.insert(op, bytes);
            }
            rs::Work::Write { at, .. } => {
                let bytes = &self.rss[n].memory[&op];
                let len = blocks as usize * 512;
                disk[at as usize * 512..][..len].copy_from_slice(&bytes[..len]);
            }
            rs::Work::Flush { .. } => {}
        }
    }

    fn file(&mut self, n: usize) {
        let clock = self.clock;
        let ready = |(_, (_, _, at)): &(usize, &(u64, rs::Work, u64))| *at <= clock;
        let all: Vec<_> = self.rss[n]
            .pending
            .iter()
            .enumerate()
            .filter(ready)
            .map(|(i, _)| i)
            .collect();
        let which = self.rng.below(all.len() as u64) as usize;
        let (op, work, _) = self.rss[n].pending.swap_remove(all[which]);
        self.note(|| format!("Rs({n}): {work:?}"));
        let bad = self.bad_disk > 0 && self.rng.one_in(self.bad_disk);
        self.disks_failed |= bad;
        let (blocks, status) = match work {
            rs::Work::Write { blocks, .. } if bad => (
                self.rng.below(u64::from(blocks) + 1) as u32,
                Status::WriteError,
            ),
            rs::Work::Write { blocks, .. } => (blocks, Status::Good),
            rs::Work::Read { .. } if bad => (0, Status::ReadError),
            _ => (0, Status::Good),
        };
        self.work(n, op, work, blocks);
        self.rss[n].store.as_mut().unwrap().executed(op, status);
        self.pump(Node::Rs(n));
    }

    pub fn tick_node(&mut self, node: Node) {
        if !self.alive(node) || self.frozen.contains(&node) {
            return;
        }
        let now = self.now;
        match node {
            Node::Se => self.se.as_mut().unwrap().tick(now),
            Node::Ce(n) => self.ces[n].engine.as_mut().unwrap().tick(now),
            Node::Rs(n) => self.rss[n].store.as_mut().unwrap().tick(now),
            Node::Initiator(n) => initiator::tick(self, n),
        }
        self.pump(node);
        for (id, side) in self.sides_of(node) {
            let over = self
                .conns
                .get(&id)
                .map(|c| (c.sides[side], c.sides[1 - side].node));
            if let Some((over, other)) =
                over.filter(|(s, _)| s.until.is_some_and(|until| until <= now))
            {
                self.close(id, side);
                self.closed(over, id, other);
            }
        }
    }

    pub fn tick(&mut self, ms: u64) {
        self.now += ms;
        for node in self.roles() {
            self.tick_node(node);
        }
        for n in 0..self.initiators.len() {
            self.tick_node(Node::Initiator(n));
        }
    }

    /// What can happen now: a queue or completions of a connection, or a file.
    pub fn enabled(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, conn) in &self.conns {
            for side in 0..2 {
                let to = conn.sides[1 - side].node;
                let rdma = matches!(
                    conn.queues[side].front(),
                    Some(Item::Read(..) | Item::Write(..))
                );
                // An adapter serves RDMA whatever its host does.
                let awake = rdma || !self.frozen.contains(&to);
                if !conn.queues[side].is_empty() && !conn.held[side] && awake {
                    events.push(Event::Deliver(*id, side));
                }
                let node = conn.sides[side].node;
                if !conn.completions[side].is_empty() && !self.frozen.contains(&node) {
                    events.push(Event::Complete(*id, side));
                }
            }
        }
        for (n, rs) in self.rss.iter().enumerate() {
            let works = !self.frozen.contains(&Node::Rs(n)) && !self.stuck.contains(&n);
            if rs.pending.iter().any(|(_, _, at)| *at <= self.clock) && works {
                events.push(Event::File(n));
            }
        }
        events
    }

    pub fn happen(&mut self, event: Event) {
        self.clock += 1;
        match event {
            Event::Deliver(id, side) => self.deliver(id, side),
            Event::Complete(id, side) => self.complete(id, side),
            Event::File(n) => self.file(n),
        }
    }

    /// One event of those that can happen, or time.
    pub fn step(&mut self) {
        self.clock += 1;
        let events = self.enabled();
        if events.is_empty() || self.rng.one_in(self.pace) {
            let ms = 20 + self.rng.below(300);
            return self.tick(ms);
        }
        let which = self.rng.below(events.len() as u64) as usize;
        self.happen(events[which]);
    }

    /// Goes on until something is so, for so many milliseconds of its time at most.
    pub fn until(&mut self, what: &str, ms: u64, done: impl Fn(&Self) -> bool) {
        let end = self.now + ms;
        while !done(self) {
            assert!(self.now < end, "not within {ms} ms: {what}");
            self.step();
        }
    }

    pub fn for_ms(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.step();
        }
    }

    /// Nothing goes from one node to another until [`World::release`].
    pub fn hold(&mut self, from: Node, to: Node) {
        for (id, side) in self.between(from, to) {
            self.conns.get_mut(&id).unwrap().held[side] = true;
        }
    }

    pub fn hold_side(&mut self, id: ConnId, side: usize, held: bool) {
        self.conns.get_mut(&id).unwrap().held[side] = held;
    }

    /// What is on its way from a side.
    pub fn queue(&self, id: ConnId, side: usize) -> impl Iterator<Item = &Item> {
        self.conns[&id].queues[side].iter()
    }

    /// A completion of what has been fetched is on its way to a node.
    pub fn completes(&self, node: Node) -> bool {
        self.sides_of(node).iter().any(|(id, side)| {
            let mut all = self.conns[id].completions[*side].iter();
            all.any(|(token, _)| matches!(token, Token::Fetched(_)))
        })
    }

    pub fn release(&mut self) {
        for conn in self.conns.values_mut() {
            conn.held = [false; 2];
        }
    }

    // What the roles want.

    pub fn pump(&mut self, node: Node) {
        match node {
            Node::Se => self.pump_se(),
            Node::Ce(n) => self.pump_ce(n),
            Node::Rs(n) => self.pump_rs(n),
            Node::Initiator(_) => {}
        }
    }

    fn send(&mut self, node: Node, peer: Peer, message: &Message) {
        if let Some((id, side)) = self.find(node, peer, false) {
            self.push(id, side, Item::Message(message.build(), None));
        }
    }

    fn close_peer(&mut self, node: Node, peer: Peer) {
        if let Some((id, side)) = self.find(node, peer, false) {
            self.close(id, side);
        }
    }

    fn reject(&mut self, node: Node, channel: ChannelId) {
        if let Some((id, side)) = self.find(node, channel, true) {
            let conn = self.conns.get_mut(&id).unwrap();
            conn.queues[side].push_back(Item::Rejected);
            conn.sides[side].open = false;
        }
    }

    fn leave(&mut self, node: Node, channel: ChannelId, message: Option<Vec<u8>>) {
        if let Some((id, side)) = self.find(node, channel, true) {
            if let Some(message) = message {
                self.push(id, side, Item::Message(message, None));
            }
            let until = self.now + LEAVING;
            self.conns.get_mut(&id).unwrap().sides[side].until = Some(until);
        }
    }

    fn pump_se(&mut self) {
        const SE: Node = Node::Se;
        while let Some(engine) = &mut self.se {
            let actions = engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    se::Action::Connect { peer, store } => {
                        self.connect(SE, peer, Node::Rs(store), Vec::new());
                    }
                    se::Action::Send { peer, message } => self.send(SE, peer, &message),
                    se::Action::Close { peer } => self.close_peer(SE, peer),
                    se::Action::End(why) => panic!("the SE ends: {why}"),
                    se::Action::Target(action) => self.target(action),
                }
            }
        }
    }

    fn target(&mut self, action: target::Action<Vec<u8>>) {
        const SE: Node = Node::Se;
        use target::Action::*;
        match action {
            Accept {
                channel, response, ..
            } => {
                if let Some((id, side)) = self.find(SE, channel, true) {
                    self.push(id, side, Item::Accepted(response));
                }
            }
            Reject { channel, .. } => self.reject(SE, channel),
            Receive { .. } | Free { .. } => {}
            Say(what) => self.note(|| format!("Se: {what}")),
            Fetch {
                channel,
                task,
                from,
            } => {
                if let Some((id, side)) = self.find(SE, channel, true) {
                    let list = from.iter().map(|d| (d.va(), d.key(), d.len())).collect();
                    self.push(id, side, Item::Read(list, Token::Fetch(task)));
                }
            }
            Execute { task, work } => {
                let into = (work.into > 0).then(|| vec![0; work.into]);
                let (task, done) = workers::execute(workers::Job { task, work, into });
                self.se.as_mut().unwrap().executed(task, done);
            }
            Answer {
                channel,
                task,
                data,
                message,
            } => {
                let Some((id, side)) = self.find(SE, channel, true) else {
                    return;
                };
                if let Some((bytes, places)) = data {
                    let mut rest = &bytes[..];
                    let mut list = Vec::new();
                    for place in places {
                        let (part, behind) = rest.split_at(place.len() as usize);
                        list.push((place.va(), place.key(), Source::Bytes(part.to_vec())));
                        rest = behind;
                    }
                    self.push(id, side, Item::Write(list, None));
                }
                self.push(id, side, Item::Message(message, task.map(Token::Answer)));
            }
            Leave { channel, message } => self.leave(SE, channel, message),
            Dispatch { .. } | Cancel { .. } | Gone { .. } => unreachable!(),
        }
    }

    fn pump_ce(&mut self, n: usize) {
        let node = Node::Ce(n);
        while let Some(engine) = &mut self.ces[n].engine {
            let actions = engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    ce::Action::Connect { peer, to } => {
                        let to = match to {
                            ce::To::Se => Node::Se,
                            ce::To::Store(n) => Node::Rs(n),
                        };
                        self.connect(node, peer, to, Vec::new());
                    }
                    ce::Action::Send { peer, message } => self.send(node, peer, &message),
                    ce::Action::Close { peer } => self.close_peer(node, peer),
                    ce::Action::Accept { channel, response } => {
                        if let Some((id, side)) = self.find(node, channel, true) {
                            self.push(id, side, Item::Accepted(response));
                        }
                    }
                    ce::Action::Reject { channel, .. } => self.reject(node, channel),
                    ce::Action::Leave { channel, message } => self.leave(node, channel, message),
                    ce::Action::Say(what) => self.note(|| format!("Ce({n}): {what}")),
                    ce::Action::Copy { from, to, len } => {
                        let (from, to, len) = (from as usize, to as usize, len as usize);
                        self.ces[n].arena.copy_within(from..from + len, to);
                    }
                    ce::Action::Fetch {
                        channel,
                        job,
                        segments,
                    } => {
                        let Some((id, side)) = self.find(node, channel, true) else {
                            continue;
                        };
                        let places = segments.iter().map(|s| s.place);
                        let list = places.map(|p| (p.va(), p.key(), p.len())).collect();
                        let here = segments
                            .iter()
                            .map(|s| (s.at as usize, s.place.len() as usize));
                        self.ces[n].fetches.insert(job, here.collect());
                        self.push(id, side, Item::Read(list, Token::Fetched(job)));
                    }
                    ce::Action::Answer {
                        channel,
                        job,
                        segments,
                        message,
                    } => {
                        let Some((id, side)) = self.find(node, channel, true) else {
                            continue;
                        };
                        for s in &segments {
                            let source = Source::Arena(s.at, s.place.len());
                            let list = vec![(s.place.va(), s.place.key(), source)];
                            self.push(id, side, Item::Write(list, None));
                        }
                        self.push(id, side, Item::Message(message, Some(Token::Sent(job))));
                    }
                }
            }
        }
    }

    fn pump_rs(&mut self, n: usize) {
        let node = Node::Rs(n);
        while let Some(store) = &mut self.rss[n].store {
            let actions = store.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    rs::Action::Send { peer, message } => self.send(node, peer, &message),
                    rs::Action::Close { peer } => self.close_peer(node, peer),
                    rs::Action::Pull {
                        peer,
                        op,
                        va,
                        key,
                        len,
                    } => {
                        if let Some((id, side)) = self.find(node, peer, false) {
                            let list = vec![(va, key, len)];
                            self.push(id, side, Item::Read(list, Token::Pulled(op)));
                        }
                    }
                    rs::Action::Push {
                        peer, op, va, key, ..
                    } => {
                        if let Some((id, side)) = self.find(node, peer, false) {
                            let bytes = self.rss[n].memory[&op].clone();
                            let list = vec![(va, key, Source::Bytes(bytes))];
                            self.push(id, side, Item::Write(list, Some(Token::Pushed(op))));
                        }
                    }
                    rs::Action::Execute { op, work, .. } => {
                        let mut at = self.clock;
                        if self.slow_disk > 0 && self.rng.one_in(self.slow_disk) {
                            at += self.rng.below(3000);
                        }
                        self.rss[n].pending.push((op, work, at));
                    }
                    rs::Action::Forget { op } => {
                        self.rss[n].memory.remove(&op);
                    }
                    rs::Action::Say(what) => self.note(|| format!("Rs({n}): {what}")),
                }
            }
        }
    }

    /// All faults are over, and all that was begun ends.
    pub fn heal(&mut self) {
        self.note(|| "heal".into());
        self.release();
        self.frozen.clear();
        self.stuck.clear();
        self.bad_disk = 0;
        self.slow_disk = 0;
        for (_, _, at) in self.rss.iter_mut().flat_map(|rs| &mut rs.pending) {
            *at = 0;
        }
        for node in self.roles() {
            self.start(node);
        }
        self.until("all commands have ended", 200_000, |w| {
            w.initiators.iter().all(|i| i.idle())
        });
        self.until("nothing is under way in any role", 20_000, |w| {
            w.se.as_ref().is_some_and(|se| se.commands() == 0)
                && w.ces
                    .iter()
                    .all(|ce| ce.engine.as_ref().is_some_and(|e| e.idle()))
                && w.rss
                    .iter()
                    .all(|rs| rs.store.as_ref().is_some_and(|s| s.idle()))
        });
        assert_eq!(self.se.as_mut().unwrap().busy(), 0);
    }

    /// Reads all blocks, and compares what was read with the disks.
    pub fn judge(&mut self) {
        initiator::read_all(self, 0);
        self.until("all blocks are read", 200_000, |w| {
            w.initiators.iter().all(|i| i.idle())
        });
        for block in 0..BLOCKS {
            let disk = &self.disks[(block / OBJECT) as usize];
            let bytes = &disk[(block % OBJECT) as usize * 512..][..512];
            let value = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(
                Some(&value),
                self.initiators[0].last.get(&block),
                "block {block} of the disk is not what was read"
            );
        }
    }
}

/// Something that can happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    Deliver(ConnId, usize),
    Complete(ConnId, usize),
    File(usize),
}

fn shown(item: &Item) -> String {
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
