// SPDX-License-Identifier: GPL-2.0

//! The client of a set: takes commands about blocks of the unit and sends each part to the node that has it. There is one
//! at a time, the holder of a key in etcd; it is the one who changes the map.
//!
//! It lets no two parts go at once of which one could see the other half done: writes of the same blocks, and where a
//! node is lost, as blocks are made from others then, all of the same place in their cells.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use wss::peer::Peer;

use crate::{
    coordinator::{Answer, Request, View, TTL},
    layout::{column, has, node, spans, Cell, Mask, Size, Span, BLOCK, NODES},
    link::{Due, Link, GRACE},
    map::{Map, State},
    message::{Message, Role, Status},
};

/// The key is held again so often, and is of no use so long before its end, in milliseconds.
const HOLD: u64 = TTL / 4;
const MARGIN: u64 = TTL / 6;
/// How often etcd is looked at.
const LOOK: u64 = 300;
/// What nobody can do for so long is refused.
const PATIENCE: u64 = 12_000;
/// Nodes that do not answer others come back so much later.
const REST: u64 = 10_000;
/// A complaint, which comes again each second, counts for so long.
const COMPLAINT: u64 = 3000;
/// A part that was not done is tried again so much later.
const AGAIN: u64 = 200;
/// Most parts at one node.
const DEPTH: usize = 32;

/// Who the client is, and how it goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Names it. No other client has the same one.
    pub id: u64,
    /// Milliseconds between stripes that are made again.
    pub pause: u64,
}

/// A command, numbered by whoever gives it.
pub type CommandId = u64;

/// What came of a command.
#[derive(Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was done; what was read.
    Good(Vec<u8>),
    /// Too many nodes are lost, or do not answer. A write may have been done in part, or may be done as long as no other
    /// one of its blocks is begun.
    Failed,
    /// It was cancelled, and nothing of it is under way.
    Over,
}

/// Something that has to be done, in the order of the list.
pub enum Action {
    /// Make a connection to a node, then call [`Client::connected`] or [`Client::closed`].
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
    /// End a connection, without [`Client::closed`].
    Close {
        /// Which.
        peer: Peer,
    },
    /// Ask etcd, then call [`Client::answered`].
    Ask {
        /// Names the request.
        id: u64,
        /// It.
        request: Request,
    },
    /// The set can be used. Told once.
    Ready(Size),
    /// A command is over.
    Answer {
        /// Which.
        command: CommandId,
        /// What came of it.
        outcome: Outcome,
    },
    /// Something to tell whoever runs the client.
    Say(String),
    /// The client cannot go on: another one may have taken its place.
    End(String),
}

/// What a node has said of itself.
#[derive(Clone, Copy, Debug)]
struct Attached {
    since: u64,
}

struct Partner {
    link: Link,
    attached: Option<Attached>,
    /// The epoch that it has settled in, over this connection.
    settled: u64,
    /// The epoch that it was let in with the last time.
    let_in: u64,
    /// Until when it counts that others have said that it does not answer.
    complained: u64,
    /// It is not let in before.
    rest: u64,
    /// Stripes that were made again.
    built: u64,
    /// When the next one may be.
    next: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Read,
    Write,
    /// Of the cells of this node.
    Rebuild(usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// It goes from this time on. The node that may be at it still.
    Waiting(u64, Option<usize>),
    /// Under this number, to this node.
    Sent(u64, usize),
}

/// What one node has to do.
struct Part {
    kind: Kind,
    span: Span,
    command: Option<CommandId>,
    data: Arc<[u8]>,
    /// Where its blocks are among those of the command.
    at: usize,
    stage: Stage,
}

struct Command {
    since: u64,
    parts: usize,
    data: Vec<u8>,
    failed: bool,
    /// Nobody waits for it.
    dead: bool,
    cancelled: bool,
}

/// A client.
pub struct Client {
    settings: Settings,
    now: u64,
    partners: [Partner; NODES],
    next: u64,
    /// Until when the key is held.
    held: Option<u64>,
    hold_at: u64,
    look_at: u64,
    holding: Option<(u64, u64)>,
    asking: Option<u64>,
    view: Option<View>,
    /// The map that counts.
    map: Option<Map>,
    size: Option<Size>,
    open: bool,
    ready: bool,
    commands: BTreeMap<CommandId, Command>,
    parts: BTreeMap<u64, Part>,
    /// Parts by stripe.
    stripes: BTreeSet<(u64, u64)>,
    sent: BTreeMap<u64, u64>,
    ended: bool,
    actions: Vec<Action>,
}

impl Client {
    /// A client that has no key.
    pub fn new(settings: Settings, now: u64) -> Self {
        let partner = || Partner {
            link: Link::new(now),
            attached: None,
            settled: 0,
            let_in: 0,
            complained: 0,
            rest: 0,
            built: 0,
            next: 0,
        };
        Self {
            settings,
            now,
            partners: std::array::from_fn(|_| partner()),
            next: 1,
            held: None,
            hold_at: now,
            look_at: now,
            holding: None,
            asking: None,
            view: None,
            map: None,
            size: None,
            open: false,
            ready: false,
            commands: BTreeMap::new(),
            parts: BTreeMap::new(),
            stripes: BTreeSet::new(),
            sent: BTreeMap::new(),
            ended: false,
            actions: Vec::new(),
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// All nodes of the map have settled, so commands go.
    pub fn open(&self) -> bool {
        self.open && self.map.as_ref().is_some_and(|m| !m.new)
    }

    /// All five nodes have all their cells, and answer.
    pub fn whole(&self) -> bool {
        let map = self.map.as_ref().filter(|_| self.open());
        map.is_some_and(|m| {
            (0..NODES).all(|n| m.states[n] == State::Up && self.partners[n].settled == m.epoch)
        })
    }

    /// The map that counts.
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// Parts of commands that are under way.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Say(what));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn send(&mut self, n: usize, message: Message, payload: Arc<[u8]>) {
        self.actions.push(Action::Send {
            peer: self.partners[n].link.peer,
            message,
            payload,
        });
    }

    fn tell(&mut self, n: usize, message: Message) {
        self.send(n, message, Arc::new([]));
    }

    fn end(&mut self, why: &str) {
        if !self.ended {
            self.ended = true;
            self.actions.push(Action::End(why.to_string()));
        }
    }

    fn ask(&mut self, request: Request) -> u64 {
        let id = self.number();
        self.actions.push(Action::Ask { id, request });
        id
    }

    /// So late it is, in milliseconds. To be called before any other call that brings something, as an answer may only be
    /// given as long as the key is held.
    pub fn clock(&mut self, now: u64) {
        self.now = now;
        if self.held.is_some_and(|until| now >= until) {
            self.end("etcd does not answer, so the key of the client may be another's");
        }
    }

    /// The same. To be called every 300 ms or more often.
    pub fn tick(&mut self, now: u64) {
        self.clock(now);
        if self.ended {
            return;
        }
        if self.holding.is_none() && now >= self.hold_at {
            let value = self.settings.id;
            let key = crate::coordinator::Key::Client;
            let id = self.ask(Request::Hold { key, value });
            self.holding = Some((id, now));
        }
        if self.held.is_some() && self.asking.is_none() && now >= self.look_at {
            let id = self.ask(Request::Look);
            self.asking = Some(id);
        }
        for n in 0..NODES {
            match self.partners[n].link.tick(now) {
                Due::Nothing => {}
                Due::Alive => self.tell(n, Message::Alive { floor: 0 }),
                Due::Close => self.close(n, "nothing was heard of it"),
                Due::Connect => {
                    let peer = self.number();
                    self.partners[n].link.connect(peer);
                    self.actions.push(Action::Connect { peer, to: n });
                }
            }
        }
        self.refuse();
        self.rebuild();
        self.go();
    }

    /// etcd has answered.
    pub fn answered(&mut self, id: u64, answer: Answer) {
        if self.holding.is_some_and(|(h, _)| h == id) {
            let asked = self.holding.take().map_or(0, |(_, at)| at);
            match answer {
                Answer::Held(true) => {
                    self.held = Some(asked + TTL - MARGIN);
                    self.hold_at = asked + HOLD;
                }
                Answer::Held(false) if self.held.is_some() => {
                    self.end("another client has its place")
                }
                _ => self.hold_at = self.now + HOLD,
            }
            return;
        }
        if self.asking != Some(id) {
            return;
        }
        self.asking = None;
        match answer {
            Answer::Looked(view) => {
                self.look_at = self.now + LOOK;
                self.look(view);
            }
            Answer::Changed(_) => self.look_at = self.now,
            _ => self.look_at = self.now + LOOK,
        }
        self.go();
    }

    fn look(&mut self, view: View) {
        let parsed = view.map.as_ref().map(|(_, text)| Map::parse(text));
        if let Some(None) = parsed {
            return self.end("the map in etcd is none");
        }
        let map = parsed.flatten();
        let revision = view.map.as_ref().map_or(0, |(r, _)| *r);
        self.view = Some(view);
        let known = self.map.as_ref().map_or(0, |m| m.epoch);
        if let Some(map) = map
            .as_ref()
            .filter(|m| m.client == self.settings.id && m.epoch > known)
        {
            self.adopt(map.clone());
        } else if known > 0 && map.as_ref().is_none_or(|m| m.epoch != known) {
            return self.end("another client has changed the map");
        }
        if let Some(wanted) = self.wanted(map) {
            let (client, map) = (self.settings.id, wanted.text());
            let id = self.ask(Request::Change {
                revision,
                client,
                map,
            });
            self.asking = Some(id);
        }
    }

    /// A node that cannot do its part.
    fn lost(&self, n: usize, map: &Map) -> bool {
        let partner = &self.partners[n];
        let vanished = self.view.as_ref().is_some_and(|v| v.nodes[n].is_none());
        let down = partner.link.down(self.now);
        down >= GRACE
            || (down > 0 && vanished)
            || partner.complained > self.now
            || self.other_file(n, map)
    }

    /// A node has not the file that the map means.
    fn other_file(&self, n: usize, map: &Map) -> bool {
        let partner = &self.partners[n];
        let had = match map.states[n] {
            State::Up => !map.new,
            State::Rebuilding => partner.let_in == map.since[n],
            State::Out => false,
        };
        had && partner.attached.is_some_and(|a| a.since != map.since[n])
    }

    /// The map as it should be, if it is not so.
    fn wanted(&self, map: Option<Map>) -> Option<Map> {
        let Some(map) = map else {
            let attached = |p: &Partner| p.link.up() && p.attached.is_some_and(|a| a.since == 0);
            return self
                .partners
                .iter()
                .all(attached)
                .then(|| Map::first(self.settings.id));
        };
        let mut next = map.clone();
        next.client = self.settings.id;
        next.epoch += 1;
        let ours = map.client == next.client;
        if !ours {
            return Some(next);
        }
        if map.new {
            next.new = false;
            return self.open.then_some(next);
        }
        for n in 0..NODES {
            let partner = &self.partners[n];
            match map.states[n] {
                State::Rebuilding if self.lost(n, &map) => next.states[n] = State::Out,
                State::Rebuilding
                    if self.open && self.size.is_some_and(|s| partner.built == s.stripes) =>
                {
                    next.states[n] = State::Up;
                }
                // Two may be lost. A third one has to come back as it was.
                State::Up if self.lost(n, &map) && next.mask(State::Up).count_ones() > 3 => {
                    next.states[n] = State::Out;
                }
                State::Out if self.open && partner.link.up() && self.now >= partner.rest => {
                    next.states[n] = State::Rebuilding;
                    next.since[n] = next.epoch;
                }
                _ => {}
            }
        }
        (next.states != map.states).then_some(next)
    }

    fn adopt(&mut self, map: Map) {
        self.say(format!("map {}", map.text()));
        self.open = false;
        for (n, partner) in self.partners.iter_mut().enumerate() {
            if partner.complained > self.now {
                partner.rest = self.now + REST;
            }
            partner.complained = 0;
            partner.settled = 0;
            let before = self.map.as_ref().map_or(0, |m| m.since[n]);
            if map.since[n] != before {
                partner.built = 0;
            }
        }
        // Whoever is not as before begins anew.
        let partners = &self.partners;
        let over = |p: &Part| match p.kind {
            Kind::Rebuild(n) => {
                map.states[n] != State::Rebuilding || partners[n].built != p.span.stripe
            }
            _ => false,
        };
        let over: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, p)| over(p))
            .map(|(n, _)| *n)
            .collect();
        for number in over {
            self.part_over(number);
        }
        self.map = Some(map);
        for part in self.parts.values_mut() {
            if let Stage::Sent(_, n) = part.stage {
                part.stage = Stage::Waiting(self.now, Some(n));
            }
        }
        self.sent.clear();
        for n in 0..NODES {
            self.epoch(n);
        }
    }

    /// Tells a node the map.
    fn epoch(&mut self, n: usize) {
        let Some(map) = self.map.clone() else {
            return;
        };
        let may = map.states[n] != State::Out && !self.other_file(n, &map);
        if may && self.partners[n].link.up() && !self.ended {
            let epoch = map.epoch;
            self.send(n, Message::Epoch { epoch }, map.text().as_bytes().into());
        }
    }

    /// A connection that was to be made is there.
    pub fn connected(&mut self, peer: Peer) {
        let now = self.now;
        if let Some(n) = self.partner(peer) {
            self.partners[n].link.connected(now);
            self.tell(n, Message::Attach { role: Role::Client });
        }
    }

    /// A connection is no more, or was not made.
    pub fn closed(&mut self, peer: Peer) {
        if let Some(n) = self.partner(peer) {
            self.gone(n);
        }
    }

    fn partner(&self, peer: Peer) -> Option<usize> {
        self.partners.iter().position(|p| p.link.peer == peer)
    }

    fn close(&mut self, n: usize, why: &str) {
        self.say(format!("connection to node {n} ended: {why}"));
        let peer = self.partners[n].link.peer;
        self.actions.push(Action::Close { peer });
        self.gone(n);
    }

    fn gone(&mut self, n: usize) {
        let now = self.now;
        let partner = &mut self.partners[n];
        partner.link.closed(now);
        partner.attached = None;
        partner.settled = 0;
        for part in self.parts.values_mut() {
            if let Stage::Sent(id, to) = part.stage {
                if to == n {
                    part.stage = Stage::Waiting(now, Some(n));
                    self.sent.remove(&id);
                }
            }
        }
    }

    /// A message has arrived.
    pub fn message(&mut self, peer: Peer, bytes: &[u8], payload: &[u8]) {
        let now = self.now;
        let Some(n) = self.partner(peer) else {
            return;
        };
        if self.ended {
            return;
        }
        self.partners[n].link.heard(now);
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(broken) => return self.close(n, &broken.to_string()),
        };
        match message {
            Message::Alive { .. } => {}
            Message::Attached {
                number,
                since,
                cell,
                stripes,
                ..
            } if !self.partners[n].link.up() => {
                let size = Size { cell, stripes };
                let other = self.size.is_some_and(|s| s != size);
                if usize::from(number) != n || other || !(1..=128).contains(&cell) || stripes == 0 {
                    return self.close(n, &format!("it is node {number} of a set of {size:?}"));
                }
                self.size = Some(size);
                self.partners[n].link.attached(now);
                self.partners[n].attached = Some(Attached { since });
                self.epoch(n);
            }
            Message::Settled { epoch } => self.settled(n, epoch),
            Message::Complain { epoch, number } => {
                let counts = self.map.as_ref().is_some_and(|m| m.epoch == epoch);
                // Of two who do not reach each other one is enough.
                let now = self.now;
                let other =
                    |(n, p): (usize, &Partner)| n != usize::from(number) && p.complained > now;
                if counts && !self.partners.iter().enumerate().any(other) {
                    self.say(format!("node {n} does not reach node {number}"));
                    self.partners[usize::from(number)].complained = now + COMPLAINT;
                }
            }
            Message::Data { status, id } => self.done(n, id, status, Some(payload)),
            Message::Done { status, id } => self.done(n, id, status, None),
            other => return self.close(n, &format!("nobody sends {other:?} here")),
        }
        self.go();
    }

    fn settled(&mut self, n: usize, epoch: u64) {
        let Some(map) = self.map.clone().filter(|m| m.epoch == epoch) else {
            return;
        };
        let partner = &mut self.partners[n];
        partner.settled = epoch;
        partner.let_in = map.since[n];
        if let Some(attached) = &mut partner.attached {
            attached.since = map.since[n];
        }
        if self.open {
            // It was away for a moment. What it had begun is done or will never be.
            self.tell(n, Message::Open { epoch });
            return self.resolved(Some(n));
        }
        let settled =
            |n: &usize| map.states[*n] == State::Out || self.partners[*n].settled == epoch;
        if !(0..NODES).all(|n| settled(&n)) {
            return;
        }
        self.open = true;
        for n in 0..NODES {
            if map.states[n] != State::Out {
                self.tell(n, Message::Open { epoch });
            }
        }
        self.say(format!("epoch {epoch} is open"));
        self.resolved(None);
        if let (false, false, Some(size)) = (self.ready, map.new, self.size) {
            self.ready = true;
            self.actions.push(Action::Ready(size));
        }
    }

    /// Nobody is at what was sent to a node before, or to any.
    fn resolved(&mut self, which: Option<usize>) {
        let mut over = Vec::new();
        for (number, part) in &mut self.parts {
            let Stage::Waiting(at, Some(n)) = part.stage else {
                continue;
            };
            if which.is_some_and(|w| w != n) {
                continue;
            }
            part.stage = Stage::Waiting(at, None);
            let command = part.command.and_then(|c| self.commands.get(&c));
            if command.is_some_and(|c| c.dead) {
                over.push(*number);
            }
        }
        for number in over {
            self.part_over(number);
        }
    }

    /// The nodes without a stripe.
    fn lost_of(&self, stripe: u64) -> Mask {
        let Some(map) = &self.map else {
            return 0;
        };
        let gone = |n: &usize| match map.states[*n] {
            State::Up => false,
            State::Out => true,
            State::Rebuilding => stripe >= self.partners[*n].built,
        };
        (0..NODES).filter(gone).fold(0, |mask, n| mask | 1 << n)
    }

    /// Gives a command about `count` blocks, which are there. A write has its data.
    pub fn command(&mut self, id: CommandId, lba: u64, count: u32, data: Option<Vec<u8>>) {
        let Some(size) = self.size else {
            return self.actions.push(Action::Answer {
                command: id,
                outcome: Outcome::Failed,
            });
        };
        let list = spans(&size, lba, count.into());
        let write = data.is_some();
        let bytes = data.unwrap_or_default();
        let command = Command {
            since: self.now,
            parts: list.len(),
            data: if write {
                Vec::new()
            } else {
                vec![0; count as usize * BLOCK]
            },
            failed: false,
            dead: false,
            cancelled: false,
        };
        self.commands.insert(id, command);
        let mut at = 0;
        for span in list {
            let data: Arc<[u8]> = if write {
                bytes[at..at + span.len()].into()
            } else {
                Arc::new([])
            };
            self.part(Part {
                kind: if write { Kind::Write } else { Kind::Read },
                span,
                command: Some(id),
                data,
                at,
                stage: Stage::Waiting(self.now, None),
            });
            at += span.len();
        }
        self.command_over(id);
        self.go();
    }

    fn part(&mut self, part: Part) {
        let number = self.number();
        self.stripes.insert((part.span.stripe, number));
        self.parts.insert(number, part);
    }

    /// Nobody waits for a command. It is over when nothing of it is under way.
    pub fn cancel(&mut self, id: CommandId) {
        if let Some(command) = self.commands.get_mut(&id) {
            command.cancelled = true;
        }
        self.kill(id);
        self.go();
    }

    /// What nobody is at is not done any more.
    fn kill(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        command.dead = true;
        let parts = self.parts.iter();
        let mine = parts
            .filter(|(_, p)| p.command == Some(id) && matches!(p.stage, Stage::Waiting(_, None)));
        let over: Vec<_> = mine.map(|(n, _)| *n).collect();
        for number in over {
            self.part_over(number);
        }
    }

    fn part_over(&mut self, number: u64) {
        let Some(part) = self.parts.remove(&number) else {
            return;
        };
        self.stripes.remove(&(part.span.stripe, number));
        let Some(id) = part.command else {
            return;
        };
        if let Some(command) = self.commands.get_mut(&id) {
            command.parts -= 1;
        }
        self.command_over(id);
    }

    fn command_over(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id).filter(|c| c.parts == 0) else {
            return;
        };
        let outcome = match () {
            () if command.cancelled => Outcome::Over,
            // It has been answered.
            () if command.dead => {
                self.commands.remove(&id);
                return;
            }
            () if command.failed => Outcome::Failed,
            () => Outcome::Good(std::mem::take(&mut command.data)),
        };
        self.commands.remove(&id);
        self.actions.push(Action::Answer {
            command: id,
            outcome,
        });
    }

    /// Answers what cannot be done.
    fn refuse(&mut self) {
        let Some(map) = self.map.clone() else {
            return;
        };
        let unable = |n: &usize| map.states[*n] != State::Up || self.lost(*n, &map);
        let broken = !self.open && (0..NODES).filter(unable).count() > 2;
        let old = |c: &Command| broken || self.now >= c.since + PATIENCE;
        let list = self.commands.iter().filter(|(_, c)| !c.dead && old(c));
        let list: Vec<_> = list.map(|(id, _)| *id).collect();
        for command in list {
            self.say(format!("command {command} is refused: nodes are missing"));
            self.actions.push(Action::Answer {
                command,
                outcome: Outcome::Failed,
            });
            self.kill(command);
        }
    }

    fn done(&mut self, n: usize, id: u64, status: Status, payload: Option<&[u8]>) {
        let number = match self.sent.get(&id) {
            Some(number) => *number,
            None => return,
        };
        let Some(part) = self
            .parts
            .get_mut(&number)
            .filter(|p| p.stage == Stage::Sent(id, n))
        else {
            return;
        };
        let read = part.kind == Kind::Read;
        let wrong = payload.is_some() != read
            || (status == Status::Good && payload.is_some_and(|p| p.len() != part.span.len()));
        if wrong {
            return self.close(n, "an answer that does not fit");
        }
        self.sent.remove(&id);
        match (status, part.kind) {
            (Status::Good, Kind::Rebuild(node)) => {
                let partner = &mut self.partners[node];
                partner.built = part.span.stripe + 1;
                partner.next = self.now + self.settings.pause;
                self.part_over(number);
            }
            (Status::Good, _) => {
                let command = part.command.and_then(|c| self.commands.get_mut(&c));
                if let (Some(command), Some(bytes)) = (command, payload) {
                    command.data[part.at..part.at + bytes.len()].copy_from_slice(bytes);
                }
                self.part_over(number);
            }
            (Status::Invalid, _) => {
                if let Some(command) = part.command.and_then(|c| self.commands.get_mut(&c)) {
                    command.failed = true;
                }
                self.say(format!("node {n} refuses a request"));
                self.part_over(number);
            }
            (Status::Stale | Status::Failed, _) => {
                part.stage = Stage::Waiting(self.now + AGAIN, None);
                let command = part.command.and_then(|c| self.commands.get(&c));
                if command.is_some_and(|c| c.dead) {
                    self.part_over(number);
                }
            }
        }
    }

    /// Has the next stripe of each node made that is let in again.
    fn rebuild(&mut self) {
        let (Some(map), Some(size), true) = (self.map.clone(), self.size, self.open()) else {
            return;
        };
        for n in 0..NODES {
            let partner = &self.partners[n];
            let busy = self.parts.values().any(|p| p.kind == Kind::Rebuild(n));
            let wanted = map.states[n] == State::Rebuilding && partner.built < size.stripes;
            if !wanted || busy || self.now < partner.next {
                continue;
            }
            let stripe = partner.built;
            let cell = Cell {
                row: 0,
                column: column(stripe, n),
            };
            self.part(Part {
                kind: Kind::Rebuild(n),
                span: Span {
                    stripe,
                    cell,
                    block: 0,
                    blocks: size.cell,
                },
                command: None,
                data: Arc::new([]),
                at: 0,
                stage: Stage::Waiting(self.now, None),
            });
        }
    }

    /// One of both could see the other one half done.
    fn conflict(lost: Mask, a: &Part, b: &Part) -> bool {
        let made = |p: &Part| has(lost, p.span.node());
        let both_read = a.kind == Kind::Read && b.kind == Kind::Read;
        // What makes cells again is at the place of a cell that is lost.
        let same = a.span.cell == b.span.cell || made(a) || made(b);
        a.span.meets(&b.span) && same && !both_read
    }

    /// Sends what can go, in order.
    fn go(&mut self) {
        if !self.open() || self.ended {
            return;
        }
        let Some(epoch) = self.map.as_ref().map(|m| m.epoch) else {
            return;
        };
        let mut busy = [0; NODES];
        for part in self.parts.values() {
            if let Stage::Sent(_, n) = part.stage {
                busy[n] += 1;
            }
        }
        let ready = |p: &Part| matches!(p.stage, Stage::Waiting(at, None) if at <= self.now);
        let list: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, p)| ready(p))
            .map(|(n, _)| *n)
            .collect();
        for number in list {
            if busy.iter().all(|b| *b >= DEPTH) {
                break;
            }
            let Some(part) = self.parts.get(&number) else {
                continue;
            };
            let stripe = part.span.stripe;
            let lost = self.lost_of(stripe);
            let before = self.stripes.range((stripe, 0)..(stripe, number));
            let mut before = before.filter_map(|(_, n)| self.parts.get(n));
            if before.any(|other| Self::conflict(lost, part, other)) {
                continue;
            }
            let home = part.span.node();
            let n = match part.kind {
                Kind::Rebuild(n) => Some(n),
                _ if !has(lost, home) => Some(home),
                _ => {
                    let nodes = part.span.cell.parities().map(|c| node(stripe, c.column));
                    nodes.into_iter().find(|n| !has(lost, *n))
                }
            };
            let Some(n) = n.filter(|n| self.partners[*n].settled == epoch && busy[*n] < DEPTH)
            else {
                continue;
            };
            busy[n] += 1;
            let (kind, span, data) = (part.kind, part.span, part.data.clone());
            let id = self.number();
            self.sent.insert(id, number);
            if let Some(part) = self.parts.get_mut(&number) {
                part.stage = Stage::Sent(id, n);
            }
            let message = match kind {
                Kind::Read => Message::Read {
                    epoch,
                    id,
                    span,
                    lost,
                },
                Kind::Write => Message::Write {
                    epoch,
                    id,
                    span,
                    lost,
                },
                Kind::Rebuild(_) => Message::Rebuild {
                    epoch,
                    id,
                    stripe,
                    lost,
                },
            };
            self.send(n, message, data);
        }
    }
}
