// SPDX-License-Identifier: GPL-2.0

//! A node: has cells, takes writes, and passes on to other nodes what their parities need.
//!
//! A write is logged here with old XOR new (the delta), then the delta goes to the nodes of the two parities, which log it,
//! then the write is answered. If the data cell is lost, the node of a parity takes the write in its place (the
//! substitute): it makes the old content from other cells.
//!
//! A map begins an epoch. What was under way before is brought to its end first: each node sends again what it had to pass
//! on, and deltas of a node that is out of the set go from those that have them to those that do not. When all nodes say
//! that nothing is left, the parities are right, and the client goes on.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use wss::peer::{Peer, Pulse};

use crate::{
    journal::{Journal, Media, Name, Record, RECORD},
    layout::{column, has, node, plan, xor, Cell, Mask, Size, Span, NODES, ROWS},
    link::{Due, Link, GRACE},
    map::{Map, State},
    message::{Broken, Message, Role, Status},
};

/// Connections that a node makes have this bit in their number.
pub const OUTGOING: Peer = 1 << 63;
/// Most writes of this node from the oldest one on that some node may not have.
const WINDOW: usize = 32;
/// Least bytes of half of a log: all that may be under way is in a half of that.
pub fn least_log(size: &Size) -> u64 {
    (2 * NODES * (WINDOW + 1) * (RECORD + size.cell_bytes())) as u64
}

/// A node is complained of once in so many milliseconds.
const COMPLAIN: u64 = 1000;

/// Something that has to be done, in the order of the list.
pub enum Action {
    /// Make a connection to a node, then call [`Node::connected`] or [`Node::closed`].
    Connect {
        /// Its number from now on.
        peer: Peer,
        /// Which node.
        to: usize,
    },
    /// Send a message.
    Send {
        /// Where.
        peer: Peer,
        /// It.
        message: Message,
        /// Its payload; empty if there is none.
        payload: Arc<[u8]>,
    },
    /// End a connection, without [`Node::closed`].
    Close {
        /// Which.
        peer: Peer,
    },
    /// Make all stable that was written so far, then call [`Node::synced`].
    Sync {
        /// With this.
        lsn: u64,
    },
    /// Something to tell whoever runs the node.
    Say(String),
    /// The node cannot go on.
    End(String),
}

struct Incoming {
    who: Option<Role>,
    pulse: Pulse,
}

/// A write that other nodes have to log.
struct Relay {
    waits: Mask,
    /// Those that it is to be sent to.
    due: Mask,
    /// Those that are of another epoch still.
    again: Mask,
    /// It is logged here.
    lsn: u64,
    since: u64,
}

enum Goal {
    Read,
    Write(Vec<u8>),
    Rebuild,
}

/// Blocks that are made from those of other cells.
struct Gather {
    peer: Peer,
    id: u64,
    span: Span,
    lost: Mask,
    goal: Goal,
    sum: Vec<u8>,
    waits: BTreeSet<u64>,
}

struct Waiting {
    peer: Peer,
    id: u64,
    span: Span,
    lost: Mask,
    data: Vec<u8>,
}

/// A node.
pub struct Node<M> {
    journal: Journal<M>,
    number: usize,
    now: u64,
    /// That of the last epoch, once it is told.
    map: Option<Map>,
    links: [Link; NODES],
    next_peer: Peer,
    incoming: BTreeMap<Peer, Incoming>,
    /// Who has told the map.
    client: Option<Peer>,
    /// It waits for SETTLED.
    telling: bool,
    /// All nodes have settled.
    opened: bool,
    relays: BTreeMap<Name, Relay>,
    /// Who waits for a write.
    writes: BTreeMap<u64, (Peer, u64)>,
    /// Who waits for a rebuilt stripe: until when in the log.
    rebuilds: Vec<(u64, Peer, u64)>,
    /// Who waits for a delta: until when in the log.
    acks: Vec<(u64, Peer, Name)>,
    gathers: BTreeMap<u64, Gather>,
    /// Requests to other nodes, for which gather, and to which node.
    reads: BTreeMap<u64, (u64, usize)>,
    next: u64,
    waiting: VecDeque<Waiting>,
    syncing: bool,
    complained: u64,
    ended: bool,
    actions: Vec<Action>,
}

fn nothing() -> Arc<[u8]> {
    Arc::new([])
}

impl<M: Media> Node<M> {
    /// A node with what its journal has.
    pub fn new(journal: Journal<M>, now: u64) -> Self {
        Self {
            number: usize::from(journal.number()),
            journal,
            now,
            map: None,
            links: [Link::new(now); NODES],
            next_peer: OUTGOING,
            incoming: BTreeMap::new(),
            client: None,
            telling: false,
            opened: false,
            relays: BTreeMap::new(),
            writes: BTreeMap::new(),
            rebuilds: Vec::new(),
            acks: Vec::new(),
            gathers: BTreeMap::new(),
            reads: BTreeMap::new(),
            next: 1,
            waiting: VecDeque::new(),
            syncing: false,
            complained: 0,
            ended: false,
            actions: Vec::new(),
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Nothing is under way.
    pub fn idle(&self) -> bool {
        let nothing = self.relays.is_empty() && self.acks.is_empty() && self.gathers.is_empty();
        nothing && self.waiting.is_empty() && self.rebuilds.is_empty()
    }

    /// What it keeps.
    pub fn journal(&mut self) -> &mut Journal<M> {
        &mut self.journal
    }

    fn check(&mut self, result: io::Result<()>) {
        if let (Err(e), false) = (result, self.ended) {
            self.ended = true;
            self.actions.push(Action::End(e.to_string()));
        }
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Say(what));
    }

    fn send(&mut self, peer: Peer, message: Message, payload: Arc<[u8]>) {
        self.actions.push(Action::Send {
            peer,
            message,
            payload,
        });
    }

    fn tell(&mut self, peer: Peer, message: Message) {
        self.send(peer, message, nothing());
    }

    fn close(&mut self, peer: Peer, why: &str) {
        self.say(format!("connection {peer} ended: {why}"));
        self.actions.push(Action::Close { peer });
        self.gone(peer);
    }

    /// All who need a write of this node with a smaller number have it.
    fn floor(&self) -> u64 {
        let me = self.number as u8;
        let mut own = self.journal.records().range((me, 0)..(me + 1, 0));
        let record = own.next().map(|((_, seq), _)| *seq);
        record.unwrap_or(self.journal.floor(me))
    }

    /// So late it is, in milliseconds. To be called every 300 ms or more often.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let floor = self.floor();
        let mut silent = Vec::new();
        let mut alive = Vec::new();
        for (peer, incoming) in &mut self.incoming {
            if incoming.pulse.silent(now) {
                silent.push(*peer);
            } else if incoming.pulse.due(now) {
                alive.push(*peer);
            }
        }
        for n in 0..NODES {
            if n == self.number {
                continue;
            }
            match self.links[n].tick(now) {
                Due::Nothing => {}
                Due::Alive => alive.push(self.links[n].peer),
                Due::Close => silent.push(self.links[n].peer),
                Due::Connect => {
                    self.next_peer += 1;
                    let peer = self.next_peer;
                    self.links[n].connect(peer);
                    self.actions.push(Action::Connect { peer, to: n });
                }
            }
        }
        for peer in alive {
            self.tell(peer, Message::Alive { floor });
        }
        for peer in silent {
            self.close(peer, "nothing was heard of it");
        }
        self.complain();
        for relay in self.relays.values_mut() {
            // Who has answered that it is of another epoch.
            relay.due |= std::mem::take(&mut relay.again);
        }
        self.go(true);
    }

    /// Tells the client who does not answer.
    fn complain(&mut self) {
        let (Some(client), true) = (self.client, self.now >= self.complained + COMPLAIN) else {
            return;
        };
        let old = self.relays.values().filter(|r| self.now >= r.since + GRACE);
        let waits = old.fold(0, |mask, r| mask | r.waits);
        let down = |n: &usize| has(waits, *n) || self.links[*n].down(self.now) >= GRACE;
        let others = (0..NODES).filter(|n| *n != self.number);
        let map = self.map.as_ref();
        let (Some(map), list) = (map, others.filter(down).collect::<Vec<_>>()) else {
            return;
        };
        let epoch = map.epoch;
        let wanted: Vec<_> = list
            .into_iter()
            .filter(|n| map.states[*n] != State::Out)
            .collect();
        for n in wanted {
            self.complained = self.now;
            let number = n as u8;
            self.tell(client, Message::Complain { epoch, number });
        }
    }

    /// Somebody has a connection, or one that was to be made is there.
    pub fn connected(&mut self, peer: Peer) {
        if peer & OUTGOING == 0 {
            let incoming = Incoming {
                who: None,
                pulse: Pulse::new(self.now),
            };
            self.incoming.insert(peer, incoming);
            return;
        }
        let now = self.now;
        if let Some(link) = self.links.iter_mut().find(|l| l.peer == peer) {
            link.connected(now);
            let role = Role::Node(self.number as u8);
            self.tell(peer, Message::Attach { role });
        }
    }

    /// A connection is no more, or was not made.
    pub fn closed(&mut self, peer: Peer) {
        self.gone(peer);
        self.go(false);
    }

    fn gone(&mut self, peer: Peer) {
        self.incoming.remove(&peer);
        self.acks.retain(|(_, p, _)| *p != peer);
        if self.client == Some(peer) {
            self.forget_client();
        }
        let now = self.now;
        let Some(n) = self.links.iter().position(|l| l.peer == peer) else {
            return;
        };
        self.links[n].closed(now);
        let lost: BTreeSet<_> = self
            .reads
            .values()
            .filter(|(_, to)| *to == n)
            .map(|(g, _)| *g)
            .collect();
        for gather in lost {
            self.fail(gather, Status::Failed);
        }
    }

    /// Nobody waits for anything any more. What is logged goes on.
    fn forget_client(&mut self) {
        self.client = None;
        self.telling = false;
        self.gathers.clear();
        self.reads.clear();
        self.waiting.clear();
        self.writes.clear();
        self.rebuilds.clear();
    }

    /// The log is stable up to there.
    pub fn synced(&mut self, lsn: u64) {
        self.syncing = false;
        let result = self.journal.synced(lsn);
        self.check(result);
        self.go(false);
    }

    /// A message has arrived.
    pub fn message(&mut self, peer: Peer, bytes: &[u8], payload: &[u8]) {
        let now = self.now;
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(broken) => return self.close(peer, &broken.to_string()),
        };
        let fits = match message.payload() {
            _ if matches!(message, Message::Epoch { .. } | Message::Data { .. }) => true,
            len => len.unwrap_or(0) == payload.len(),
        };
        if !fits {
            return self.close(peer, &Broken::Len(payload.len()).to_string());
        }
        let result = if let Some(n) = self.links.iter().position(|l| l.peer == peer) {
            self.links[n].heard(now);
            self.answer(n, peer, message, payload)
        } else if let Some(incoming) = self.incoming.get_mut(&peer) {
            incoming.pulse.heard(now);
            let who = incoming.who;
            self.request(peer, who, message, payload)
        } else {
            Ok(())
        };
        self.check(result);
        self.go(false);
    }

    /// From a node that this one is connected to.
    fn answer(&mut self, n: usize, peer: Peer, message: Message, payload: &[u8]) -> io::Result<()> {
        match message {
            Message::Alive { floor } if self.links[n].up() => {
                self.raise(n, floor)?;
            }
            Message::Attached { number, .. } if usize::from(number) == n && !self.links[n].up() => {
                self.links[n].attached(self.now);
                for relay in self.relays.values_mut() {
                    relay.due |= relay.waits & 1 << n;
                }
            }
            Message::Ack { status, owner, seq } => {
                if let Some(relay) = self.relays.get_mut(&(owner, seq)) {
                    match status {
                        Status::Good => relay.waits &= !(1 << n),
                        // Sent again with the next tick.
                        _ => relay.again |= 1 << n,
                    }
                }
            }
            Message::Data { status, id } => {
                let Some((gather, _)) = self.reads.remove(&id) else {
                    return Ok(());
                };
                let Some(g) = self.gathers.get_mut(&gather) else {
                    return Ok(());
                };
                if status != Status::Good || payload.len() != g.sum.len() {
                    self.fail(gather, Status::Failed);
                    return Ok(());
                }
                xor(&mut g.sum, payload);
                g.waits.remove(&id);
                self.gathered(gather)?;
            }
            other => self.close(peer, &format!("nobody sends {other:?} here")),
        }
        Ok(())
    }

    /// A node says what it will not send any more. As long as not all have settled, somebody may send what it had begun
    /// before it was let in.
    fn raise(&mut self, n: usize, floor: u64) -> io::Result<()> {
        let counts = |m: &Map| m.states[n] != State::Out && m.since[n] <= floor >> 32;
        if self.opened && self.map.as_ref().is_some_and(counts) {
            self.journal.raise(n as u8, floor)?;
        }
        Ok(())
    }

    /// From whoever is connected to this node.
    fn request(
        &mut self,
        peer: Peer,
        who: Option<Role>,
        message: Message,
        payload: &[u8],
    ) -> io::Result<()> {
        let counts = |epoch| self.map.as_ref().is_some_and(|m| m.epoch == epoch);
        let is_client = who == Some(Role::Client);
        let ready = |epoch| self.client == Some(peer) && !self.telling && counts(epoch);
        let done = |status, id| Message::Done { status, id };
        match message {
            Message::Attach { role } if who.is_none() => {
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
                let data = |status| Message::Data { status, id };
                let may = if is_client {
                    ready(epoch)
                } else {
                    counts(epoch)
                };
                if !may {
                    self.tell(peer, data(Status::Stale));
                } else if !span.fits(&self.journal.size()) {
                    self.tell(peer, data(Status::Invalid));
                } else if span.node() == self.number && !has(lost, self.number) {
                    let bytes = self.journal.read(span)?;
                    self.send(peer, data(Status::Good), bytes.into());
                } else if is_client {
                    self.gather(peer, id, span, lost, Goal::Read)?;
                } else {
                    self.tell(peer, data(Status::Invalid));
                }
            }
            Message::Write {
                epoch,
                id,
                span,
                lost,
            } if is_client => {
                if !ready(epoch) {
                    self.tell(peer, done(Status::Stale, id));
                } else if !span.fits(&self.journal.size()) || self.own_row(&span, lost).is_none() {
                    self.tell(peer, done(Status::Invalid, id));
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
            } if is_client => {
                if !ready(epoch) {
                    self.tell(peer, done(Status::Stale, id));
                } else if stripe >= self.journal.size().stripes || !has(lost, self.number) {
                    self.tell(peer, done(Status::Invalid, id));
                } else {
                    self.rebuild(peer, id, stripe, lost, 0)?;
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
                    self.close(peer, "nobody but a node sends DELTA");
                    return Ok(());
                };
                if !counts(epoch) {
                    let status = Status::Stale;
                    self.tell(peer, Message::Ack { status, owner, seq });
                    return Ok(());
                }
                self.raise(usize::from(sender), floor)?;
                self.delta(peer, (owner, seq), span, lost, payload)?;
            }
            other => self.close(peer, &format!("nobody sends {other:?} here")),
        }
        Ok(())
    }

    /// The row of this node's cell that has a part in a write: the data itself, or in its place a parity.
    fn own_row(&self, span: &Span, lost: Mask) -> Option<u8> {
        let mine = |c: &Cell| node(span.stripe, c.column) == self.number;
        if has(lost, self.number) {
            return None;
        }
        if !has(lost, span.node()) {
            return mine(&span.cell).then_some(span.cell.row);
        }
        self.parity_row(span)
    }

    fn parity_row(&self, span: &Span) -> Option<u8> {
        let mine = |c: &Cell| node(span.stripe, c.column) == self.number;
        span.cell.parities().into_iter().find(mine).map(|c| c.row)
    }

    /// The nodes that a write is to be passed on to.
    fn targets(&self, (owner, seq): Name, span: &Span, lost: Mask) -> Mask {
        let Some(map) = &self.map else {
            return 0;
        };
        let nodes = span.cell.parities().map(|c| node(span.stripe, c.column));
        let wanted = |n: &usize| {
            let part = !has(lost, *n) && *n != self.number && *n != usize::from(owner);
            // Who was let in later makes its cells anew.
            part && map.states[*n] != State::Out && map.since[*n] <= seq >> 32
        };
        nodes
            .into_iter()
            .filter(wanted)
            .fold(0, |mask, n| mask | 1 << n)
    }

    /// A node that can send again what it has to pass on.
    fn lives(map: &Map, (owner, seq): Name) -> bool {
        let n = usize::from(owner);
        map.states[n] != State::Out && map.since[n] <= seq >> 32
    }

    fn epoch(&mut self, peer: Peer, epoch: u64, payload: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(payload).ok();
        let Some(map) = text.and_then(Map::parse).filter(|m| m.epoch == epoch) else {
            self.close(peer, "its map is wrong");
            return Ok(());
        };
        let state = map.states[self.number];
        if epoch < self.journal.epoch() || state == State::Out {
            self.close(
                peer,
                &format!("its map of epoch {epoch} is old, or leaves this node out"),
            );
            return Ok(());
        }
        let (since, mine) = (map.since[self.number], self.journal.since());
        if since != mine {
            let fresh = state == State::Rebuilding || (map.new && mine == 0);
            if !fresh {
                self.close(peer, "this node's file is not the one that the map means");
                return Ok(());
            }
            self.say(format!("let in with epoch {since}"));
            self.relays.clear();
            self.acks.clear();
            self.journal.wipe(epoch, since)?;
        } else if epoch > self.journal.epoch() {
            self.journal.enter(epoch)?;
        }
        if let Some(old) = self.client.filter(|c| *c != peer) {
            self.close(old, "there is another client");
        }
        self.forget_client();
        self.client = Some(peer);
        self.telling = true;
        self.opened = false;
        self.map = Some(map.clone());
        let me = self.number as u8;
        let ours = |name: &Name| name.0 == me || !Self::lives(&map, *name);
        let records: Vec<(Name, Record)> = self
            .journal
            .records()
            .iter()
            .filter(|(name, _)| ours(name))
            .map(|(name, r)| (*name, r.clone()))
            .collect();
        for (name, record) in records {
            let targets = self.targets(name, &record.span, record.lost);
            let now = self.now;
            let relay = self.relays.entry(name).or_insert(Relay {
                waits: targets,
                due: 0,
                again: 0,
                lsn: record.lsn,
                since: now,
            });
            relay.waits &= targets;
            relay.due = relay.waits;
            relay.since = now;
        }
        // Of a node that lives again somebody has passed on writes.
        let records = self.journal.records();
        self.relays
            .retain(|name, _| ours(name) && records.contains_key(name));
        self.say(format!(
            "epoch {epoch}, {} writes to be passed on",
            self.relays.len()
        ));
        Ok(())
    }

    /// All nodes have settled: what a node that is out has passed on is not needed any more.
    fn open(&mut self) -> io::Result<()> {
        let Some(map) = self.map.clone() else {
            return Ok(());
        };
        self.opened = true;
        for owner in (0..NODES).filter(|n| *n != self.number) {
            let floor = match map.states[owner] {
                State::Out => map.epoch << 32,
                _ => map.since[owner] << 32,
            };
            self.journal.raise(owner as u8, floor)?;
        }
        Ok(())
    }

    fn delta(
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
                self.journal.write(name, span, lost, row, payload.into())?;
                self.journal.lsn()
            }
        };
        self.acks.push((lsn, peer, name));
        Ok(())
    }

    fn start(&mut self, w: Waiting) -> io::Result<()> {
        if has(w.lost, w.span.node()) {
            return self.gather(w.peer, w.id, w.span, w.lost, Goal::Write(w.data));
        }
        let old = self.journal.read(w.span)?;
        self.commit(w.peer, w.id, w.span, w.lost, old, w.data)
    }

    /// The old content is known.
    fn commit(
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
        self.journal.write(name, span, lost, row, old.into())?;
        self.writes.insert(name.1, (peer, id));
        let relay = Relay {
            waits,
            due: waits,
            again: 0,
            lsn: self.journal.lsn(),
            since: self.now,
        };
        self.relays.insert(name, relay);
        Ok(())
    }

    fn rebuild(&mut self, peer: Peer, id: u64, stripe: u64, lost: Mask, row: u8) -> io::Result<()> {
        if usize::from(row) == ROWS {
            self.rebuilds.push((self.journal.lsn(), peer, id));
            return Ok(());
        }
        let span = Span {
            stripe,
            cell: Cell {
                row,
                column: column(stripe, self.number),
            },
            block: 0,
            blocks: self.journal.size().cell,
        };
        self.gather(peer, id, span, lost, Goal::Rebuild)
    }

    fn gather(
        &mut self,
        peer: Peer,
        id: u64,
        span: Span,
        lost: Mask,
        goal: Goal,
    ) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        let mut gather = Gather {
            peer,
            id,
            span,
            lost,
            goal,
            sum: vec![0; span.len()],
            waits: BTreeSet::new(),
        };
        let cells = plan(span.stripe, lost, span.cell);
        let status = if cells.is_none() {
            Status::Invalid
        } else {
            Status::Failed
        };
        let (mut ask, mut down) = (Vec::new(), cells.is_none());
        for cell in cells.unwrap_or_default() {
            let span = span.of(cell);
            let n = span.node();
            if n == self.number {
                let bytes = self.journal.read(span)?;
                xor(&mut gather.sum, &bytes);
                continue;
            }
            down |= !self.links[n].up();
            let id = self.next;
            self.next += 1;
            gather.waits.insert(id);
            ask.push((n, id, span));
        }
        self.gathers.insert(number, gather);
        if down {
            self.fail(number, status);
            return Ok(());
        }
        let epoch = self.journal.epoch();
        for (n, id, span) in ask {
            self.reads.insert(id, (number, n));
            let read = Message::Read {
                epoch,
                id,
                span,
                lost,
            };
            self.tell(self.links[n].peer, read);
        }
        self.gathered(number)
    }

    fn fail(&mut self, gather: u64, status: Status) {
        self.reads.retain(|_, (g, _)| *g != gather);
        if let Some(Gather { peer, id, goal, .. }) = self.gathers.remove(&gather) {
            let answer = match goal {
                Goal::Read => Message::Data { status, id },
                _ => Message::Done { status, id },
            };
            self.tell(peer, answer);
        }
    }

    /// If all cells of a gather are here it goes on.
    fn gathered(&mut self, gather: u64) -> io::Result<()> {
        if self
            .gathers
            .get(&gather)
            .is_none_or(|g| !g.waits.is_empty())
        {
            return Ok(());
        }
        let Some(g) = self.gathers.remove(&gather) else {
            return Ok(());
        };
        match g.goal {
            Goal::Read => {
                let (status, id) = (Status::Good, g.id);
                self.send(g.peer, Message::Data { status, id }, g.sum.into());
                Ok(())
            }
            Goal::Write(data) => self.commit(g.peer, g.id, g.span, g.lost, g.sum, data),
            Goal::Rebuild => {
                self.journal.rebuilt(g.span, g.sum)?;
                self.rebuild(g.peer, g.id, g.span.stripe, g.lost, g.span.cell.row + 1)
            }
        }
    }

    /// Goes on with whatever can go on.
    fn go(&mut self, all: bool) {
        if !self.ended {
            let result = self.goes(all);
            self.check(result);
        }
    }

    fn goes(&mut self, all: bool) -> io::Result<()> {
        let me = self.number as u8;
        loop {
            let lsn = self.journal.lsn();
            // Numbers that may be out at once: those from the floor on.
            while !self.waiting.is_empty() {
                let own = self.journal.records().range((me, 0)..(me + 1, 0)).count();
                if own + self.gathers.len() >= WINDOW {
                    break;
                }
                if let Some(w) = self.waiting.pop_front() {
                    self.start(w)?;
                }
            }
            self.relay();
            let durable = self.journal.durable();
            let over = |r: &Relay| r.waits == 0 && r.lsn <= durable;
            let over: Vec<_> = self
                .relays
                .iter()
                .filter(|(_, r)| over(r))
                .map(|(n, _)| *n)
                .collect();
            for name in over {
                self.relays.remove(&name);
                if name.0 != me {
                    continue;
                }
                self.journal.done(name.1)?;
                if let Some((peer, id)) = self.writes.remove(&name.1) {
                    let status = Status::Good;
                    self.tell(peer, Message::Done { status, id });
                }
            }
            if self.journal.lsn() == lsn {
                break;
            }
        }
        let durable = self.journal.durable();
        let (now, later) = std::mem::take(&mut self.acks)
            .into_iter()
            .partition(|(lsn, _, _)| *lsn <= durable);
        self.acks = later;
        for (_, peer, (owner, seq)) in now {
            let status = Status::Good;
            self.tell(peer, Message::Ack { status, owner, seq });
        }
        let (now, later) = std::mem::take(&mut self.rebuilds)
            .into_iter()
            .partition(|(lsn, _, _)| *lsn <= durable);
        self.rebuilds = later;
        for (_, peer, id) in now {
            let status = Status::Good;
            self.tell(peer, Message::Done { status, id });
        }
        if let (true, true, Some(client)) = (self.telling, self.relays.is_empty(), self.client) {
            self.telling = false;
            let epoch = self.journal.epoch();
            self.tell(client, Message::Settled { epoch });
        }
        // That writes are done has time.
        let urgent = self.relays.values().any(|r| r.lsn > durable)
            || !self.acks.is_empty()
            || !self.rebuilds.is_empty();
        let lsn = self.journal.lsn();
        if !self.syncing && lsn > durable && (urgent || all) {
            self.syncing = true;
            self.actions.push(Action::Sync { lsn });
        }
        Ok(())
    }

    /// Passes on what is logged here.
    fn relay(&mut self) {
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
