// SPDX-License-Identifier: GPL-2.0

//! Events: deliveries, completions, file I/O, time.

use super::{
    connections::{shown, ConnId, Item, Side, Token},
    initiator, Node, World, ARENA,
};
use wss::{message::Status, rs};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    Deliver(ConnId, usize),
    Complete(ConnId, usize),
    File(usize),
}

impl World {
    pub(super) fn deliver(&mut self, id: ConnId, side: usize) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let Some(item) = conn.queues[side].pop_front() else {
            return;
        };
        let (from, to) = (conn.sides[side], conn.sides[1 - side]);
        if self.lapsed(to.node) {
            return self.kill(to.node);
        }
        self.note(|| format!("{:?} -> {:?} ({id}): {}", from.node, to.node, shown(&item)));
        if !to.open {
            return;
        }
        let node = to.node;
        let alive = self.alive(node);
        let conn = self.conns.get_mut(&id).unwrap();
        if !alive {
            // The other node is dead.
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
                (true, Node::Rs(n)) => {
                    self.rss[n].store.as_mut().unwrap().login(to.local, &data);
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
                    (Node::Rs(n), true) => {
                        let store = self.rss[n].store.as_mut().unwrap();
                        store.received(to.local, &bytes);
                    }
                    (Node::Rs(n), false) => {
                        let store = self.rss[n].store.as_mut().unwrap();
                        store.message(to.local, &bytes);
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

    pub(super) fn closed(&mut self, side: Side, id: ConnId, other: Node) {
        match (side.node, side.channel) {
            (Node::Initiator(n), _) => initiator::closed(self, n, id, other),
            (Node::Se, true) => self.se.as_mut().unwrap().ended(side.local),
            (Node::Se, false) => self.se.as_mut().unwrap().closed(side.local),
            (Node::Ce(n), true) => self.ces[n].engine.as_mut().unwrap().ended(side.local),
            (Node::Ce(n), false) => self.ces[n].engine.as_mut().unwrap().closed(side.local),
            (Node::Rs(n), true) => self.rss[n].store.as_mut().unwrap().ended(side.local),
            (Node::Rs(n), false) => self.rss[n].store.as_mut().unwrap().closed(side.local),
        }
        self.pump(side.node);
    }

    pub(super) fn complete(&mut self, id: ConnId, side: usize) {
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
        if self.lapsed(node) {
            return self.kill(node);
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

    /// Executes file I/O. A write or zeroing covers only the first `blocks` blocks.
    pub(super) fn work(&mut self, n: usize, op: u64, work: rs::Work, blocks: u32) {
        let disk = &mut self.disks[self.rss[n].of];
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
            rs::Work::Zero { at, .. } => {
                let len = blocks as usize * 512;
                disk[at as usize * 512..][..len].fill(0);
            }
            rs::Work::Flush { .. } => {}
        }
    }

    pub(super) fn file(&mut self, n: usize) {
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
            rs::Work::Write { blocks, .. } | rs::Work::Zero { blocks, .. } if bad => (
                self.rng.below(u64::from(blocks) + 1) as u32,
                Status::WriteError,
            ),
            rs::Work::Write { blocks, .. } | rs::Work::Zero { blocks, .. } => {
                (blocks, Status::Good)
            }
            rs::Work::Read { .. } if bad => (0, Status::ReadError),
            _ => (0, Status::Good),
        };
        self.work(n, op, work, blocks);
        let stable = match work {
            rs::Work::Read { stable, .. }
            | rs::Work::Write { stable, .. }
            | rs::Work::Zero { stable, .. } => stable,
            rs::Work::Flush { .. } => true,
        };
        let status = match status {
            Status::Good if stable => self.sync(n),
            other => other,
        };
        if self.lapsed(Node::Rs(n)) {
            return self.kill(Node::Rs(n));
        }
        self.rss[n].store.as_mut().unwrap().executed(op, status);
        self.pump(Node::Rs(n));
    }

    pub fn tick_node(&mut self, node: Node) {
        if !self.alive(node) || self.frozen.contains(&node) {
            return;
        }
        if self.lapsed(node) {
            return self.kill(node);
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
        self.leases();
        for node in self.roles() {
            self.tick_node(node);
        }
        for n in 0..self.initiators.len() {
            self.tick_node(Node::Initiator(n));
        }
    }

    /// The possible events: deliveries and completions of connections, and file I/O.
    pub fn enabled(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, conn) in &self.conns {
            for side in 0..2 {
                let to = conn.sides[1 - side].node;
                let rdma = matches!(
                    conn.queues[side].front(),
                    Some(Item::Read(..) | Item::Write(..))
                );
                // An adapter serves RDMA even if its host is frozen.
                let awake = rdma || !self.frozen.contains(&to);
                if !conn.queues[side].is_empty() && !conn.held[side] && awake {
                    events.push(Event::Deliver(*id, side));
                }
                let node = conn.sides[side].node;
                let late = conn.late[side] || self.uncompleted && node == Node::Se;
                if !conn.completions[side].is_empty() && !self.frozen.contains(&node) && !late {
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

    /// Executes a random possible event, or advances time.
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

    /// Runs until a condition holds. Panics after `ms` milliseconds of simulated time.
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
}
