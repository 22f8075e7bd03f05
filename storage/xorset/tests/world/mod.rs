// SPDX-License-Identifier: GPL-2.0

//! A simulated fabric with five nodes, clients and etcd. A seed determines the order of events.

pub mod command;
pub mod disk;
pub mod etcd;
pub mod hang;
// Some of it only wss needs.
#[allow(dead_code)]
#[path = "../../../wss/tests/world/history.rs"]
mod history;
mod judge;
mod losses;
mod network;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use command::Command;
use disk::Disk;
use etcd::Etcd;
use hang::Hang;
use history::History;
use network::Conn;
pub use seeded::Rng;
use xorset::{
    client::{self, Client, Outcome, Settings},
    coordinator::{Answer, Coordinator, Key, Request, TTL},
    journal::Journal,
    layout::{plan, Cell, Size, Span, BLOCK, NODES, ROWS},
    link::{LinkAction, Payload},
    map::{Map, State},
    message::Message,
    node::{self, Node},
};

/// Length of half of the log, in bytes. Small, so that it is often full.
const LOG: u64 = 192 << 10;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Who {
    Node(usize),
    Client(usize),
    Etcd,
}

pub struct Slot {
    pub node: Option<Node<Disk>>,
    pub disk: Disk,
    boot: u64,
    hold_at: u64,
    ticked: u64,
    /// The current sync: record number, number of writes it makes durable, start time.
    sync: Option<(u64, u64, u64)>,
    hang: Option<Hang>,
    /// Time until which the node's thread waits for the file.
    stall: u64,
    /// Time of the node's last fault.
    fault: u64,
    /// Number of events since the node last read the clock.
    turn: u64,
    /// Whether a block of its cells has ever been spoilt.
    spoilt: bool,
    /// Whether the file is lost and the node not yet admitted again.
    lost: bool,
}

pub struct Seat {
    pub client: Option<Client<Vec<u8>>>,
    pub id: u64,
    /// Whether the client uses the etcd of another set.
    pub stray: bool,
    pub said: Vec<String>,
    asks: VecDeque<(u64, Request)>,
    pub ready: bool,
    clock: u64,
    ticked: u64,
}

enum Event {
    Message(u64, usize),
    Sync(usize),
    Ask(usize),
    Connect(usize),
}

pub struct World {
    pub rng: Rng,
    pub size: Size,
    pub now: u64,
    /// Number of events, for the history.
    events: u64,
    pub slots: Vec<Slot>,
    pub seats: Vec<Seat>,
    pub etcd: Etcd,
    /// The etcd of another set with the same nodes.
    other: Etcd,
    conns: BTreeMap<u64, Conn>,
    connects: Vec<(u64, Who, u64, usize)>,
    pub cuts: BTreeSet<(Who, Who)>,
    pub frozen: BTreeSet<Who>,
    /// Settings of clients that are added later.
    pub settings: Settings,
    pub commands: BTreeMap<u64, Command>,
    /// Writes of clients that have ended, until another client is ready.
    orphans: Vec<Command>,
    pub history: History,
    next: u64,
    pub answered: u64,
    /// Number of commands that were not done.
    pub failed: u64,
    /// Number of those with lost blocks.
    pub lost: u64,
    pub cancelled: u64,
    /// Number of clients that became ready.
    pub served: u64,
    /// Number of commands of other clients in flight when a client became ready.
    pub late: u64,
    pub degraded: u64,
    pub relayed: u64,
    /// Node and stripe of each rebuild requested.
    pub rebuilds: Vec<(usize, u64)>,
    /// Milliseconds between two ticks of a process; 0: each step of the time is one.
    pub pace: u64,
    /// A node that does not receive the messages of clients.
    pub mute: Option<usize>,
    /// Nodes that ended after an error, and the error.
    pub ended: Vec<(usize, String)>,
    trace: bool,
}

impl World {
    pub fn new(seed: u64, stripes: u64) -> Self {
        let size = Size { cell: 4, stripes };
        let mut world = Self {
            rng: Rng(seed),
            size,
            now: 1000,
            events: 0,
            slots: Vec::new(),
            seats: Vec::new(),
            etcd: Etcd::default(),
            other: Etcd::default(),
            conns: BTreeMap::new(),
            connects: Vec::new(),
            cuts: BTreeSet::new(),
            frozen: BTreeSet::new(),
            settings: Settings {
                id: 0,
                pause: 10,
                lease: TTL,
                patience: Some(12_000),
            },
            commands: BTreeMap::new(),
            orphans: Vec::new(),
            history: History::new(size.blocks() as usize),
            next: 1,
            answered: 0,
            failed: 0,
            lost: 0,
            cancelled: 0,
            served: 0,
            late: 0,
            degraded: 0,
            relayed: 0,
            rebuilds: Vec::new(),
            pace: 0,
            mute: None,
            ended: Vec::new(),
            trace: std::env::var("TRACE").is_ok(),
        };
        for n in 0..NODES {
            let disk = world.blank(n);
            world.slots.push(Slot {
                node: None,
                disk,
                boot: 0,
                hold_at: 0,
                ticked: 0,
                sync: None,
                hang: None,
                stall: 0,
                fault: 0,
                turn: 0,
                spoilt: false,
                lost: false,
            });
            world.start(n);
        }
        world.add_client();
        world
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:6} {}", self.now, what());
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn start(&mut self, n: usize) {
        if self.slots[n].node.is_some() || self.shut(n) {
            return;
        }
        self.note(|| format!("start Node({n})"));
        let boot = self.number();
        let slot = &mut self.slots[n];
        let journal = Journal::open(slot.disk.clone()).unwrap();
        slot.node = Some(Node::new(journal, self.now));
        slot.boot = boot;
        slot.hold_at = self.now;
        self.charge(n);
    }

    pub fn add_client(&mut self) -> usize {
        let id = self.number();
        let settings = Settings {
            id,
            ..self.settings
        };
        self.note(|| format!("start Client({})", self.seats.len()));
        self.seats.push(Seat {
            client: Some(Client::new(settings, self.now)),
            id,
            stray: false,
            said: Vec::new(),
            asks: VecDeque::new(),
            ready: false,
            clock: 0,
            ticked: 0,
        });
        self.seats.len() - 1
    }

    pub fn participants(&self) -> Vec<Who> {
        let clients = (0..self.seats.len()).filter(|c| self.seats[*c].client.is_some());
        let nodes = (0..NODES).map(Who::Node);
        nodes
            .chain(clients.map(Who::Client))
            .chain([Who::Etcd])
            .collect()
    }

    pub fn alive(&self, who: Who) -> bool {
        match who {
            Who::Node(n) => self.slots[n].node.is_some(),
            Who::Client(c) => self.seats[c].client.is_some(),
            Who::Etcd => true,
        }
    }

    fn runs(&self, who: Who) -> bool {
        let waits = matches!(who, Who::Node(n) if self.slots[n].stall > self.now);
        self.alive(who) && !self.frozen.contains(&who) && !waits
    }

    fn pump(&mut self, who: Who) {
        match who {
            Who::Node(n) => self.pump_node(n),
            Who::Client(c) => self.pump_client(c),
            Who::Etcd => {}
        }
    }

    fn link(&mut self, who: Who, action: LinkAction) {
        match action {
            LinkAction::Connect { peer, to } => self.connect(who, peer, to),
            LinkAction::Send {
                peer,
                message,
                payload,
            } => {
                match (who, &message) {
                    (Who::Node(_), Message::Delta { .. }) => self.relayed += 1,
                    (Who::Client(_), Message::Rebuild { stripe, .. }) => {
                        if let Some((_, (Who::Node(to), _))) = self.both_ends(who, peer) {
                            self.rebuilds.push((to, *stripe));
                        }
                    }
                    (
                        Who::Client(_),
                        Message::Read { lost: 1.., .. } | Message::Write { lost: 1.., .. },
                    ) => self.degraded += 1,
                    _ => {}
                }
                self.put(who, peer, message, payload);
            }
            LinkAction::Close { peer } => {
                if let Some((id, side)) = self.find(who, peer) {
                    self.hang_up(id, side, false);
                }
            }
        }
    }

    fn pump_node(&mut self, n: usize) {
        let who = Who::Node(n);
        self.charge(n);
        if self.slots[n].stall > self.now {
            return;
        }
        while let Some(node) = &mut self.slots[n].node {
            let actions = node.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    node::Action::Link(action) => self.link(who, action),
                    node::Action::Sync { lsn } => {
                        let slot = &mut self.slots[n];
                        assert!(slot.sync.is_none());
                        slot.sync = Some((lsn, slot.disk.written(), self.now));
                    }
                    node::Action::Say(what) => self.note(|| format!("{who:?}: {what}")),
                    node::Action::End(why) => {
                        assert!(why.contains("does not take its file"), "{who:?}: {why}");
                        self.ended.push((n, why));
                        self.kill(who);
                        return;
                    }
                }
            }
        }
    }

    fn pump_client(&mut self, c: usize) {
        let who = Who::Client(c);
        while let Some(client) = &mut self.seats[c].client {
            let actions = client.actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    client::Action::Link(action) => self.link(who, action),
                    client::Action::Ask { id, request } => {
                        self.seats[c].asks.push_back((id, request))
                    }
                    client::Action::Ready(size) => {
                        assert_eq!(size, self.size);
                        self.seats[c].ready = true;
                        self.served += 1;
                        let others = self.commands.values().filter(|o| o.seat != c);
                        self.late += others.count() as u64;
                    }
                    client::Action::Answer {
                        command,
                        outcome,
                        memory,
                    } => self.over(command, outcome, memory),
                    client::Action::Say(what) => {
                        self.note(|| format!("{who:?}: {what}"));
                        self.seats[c].said.push(what);
                    }
                    client::Action::End(why) => {
                        self.note(|| format!("{who:?} ends: {why}"));
                        self.kill(who);
                    }
                }
            }
        }
        let open = self.seats[c].client.as_ref().is_some_and(|c| c.open());
        if open && !self.orphans.is_empty() {
            // A new client continues: writes of earlier ones take no effect.
            for o in std::mem::take(&mut self.orphans) {
                self.ends(&o, false);
            }
        }
    }

    fn tick_client(&mut self, c: usize) {
        let now = self.now;
        let seat = &mut self.seats[c];
        if let (Some(client), true) = (&mut seat.client, seat.clock != now) {
            seat.clock = now;
            match now >= seat.ticked + self.pace {
                true => {
                    seat.ticked = now;
                    client.tick(now);
                }
                false => client.clock(now),
            }
        }
        self.pump_client(c);
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        (self.etcd.now, self.other.now) = (self.now, self.now);
        self.faults();
        for c in 0..self.seats.len() {
            if self.runs(Who::Client(c)) {
                self.tick_client(c);
            }
        }
        for n in 0..NODES {
            let who = Who::Node(n);
            if !self.alive(who) || self.frozen.contains(&who) {
                continue;
            }
            let (now, runs) = (self.now, self.runs(who));
            if runs {
                // Messages that the node sent before it waited for its file.
                self.pump_node(n);
            }
            let busy = self.busy(n);
            let slot = &mut self.slots[n];
            if let (Some(node), true) = (&mut slot.node, runs && !busy) {
                slot.turn = 0;
                if now >= slot.ticked + self.pace {
                    slot.ticked = now;
                    node.tick(now);
                }
            }
            // A real node does this in a separate thread.
            let (key, value, ttl) = (Key::Node(n as u8), slot.boot, TTL);
            if now >= slot.hold_at && !self.cuts.contains(&(who, Who::Etcd)) {
                self.slots[n].hold_at = now + TTL / 4;
                self.etcd.ask(&Request::Hold { key, value, ttl });
            }
            self.pump_node(n);
        }
    }

    fn possible(&self) -> Vec<Event> {
        let mut list = Vec::new();
        for (id, conn) in &self.conns {
            for side in 0..2 {
                let (to, from) = (conn.ends[side].0, conn.ends[1 - side].0);
                let there = !conn.queues[side].is_empty() && conn.open[side];
                let mute =
                    matches!((from, to), (Who::Client(_), Who::Node(n)) if self.mute == Some(n));
                if there && self.runs(to) && !mute && !self.cuts.contains(&(from, to)) {
                    list.push(Event::Message(*id, side));
                }
            }
        }
        for n in 0..NODES {
            let over = |(_, _, begun)| self.now >= self.sync_end(n, begun);
            if self.slots[n].sync.is_some_and(over) && self.runs(Who::Node(n)) {
                list.push(Event::Sync(n));
            }
        }
        for c in 0..self.seats.len() {
            let who = Who::Client(c);
            if !self.seats[c].asks.is_empty()
                && self.runs(who)
                && !self.cuts.contains(&(who, Who::Etcd))
            {
                list.push(Event::Ask(c));
            }
        }
        for (i, (at, who, _, to)) in self.connects.iter().enumerate() {
            // A node that waits for its file does not answer.
            let waits = self.slots[*to].stall > self.now;
            if *at <= self.now && self.runs(*who) && !waits {
                list.push(Event::Connect(i));
            }
        }
        list
    }

    pub fn step(&mut self) {
        let mut list = self.possible();
        if list.is_empty() || self.rng.one_in(12) {
            let by = if list.is_empty() {
                10 + self.rng.below(40)
            } else {
                1 + self.rng.below(8)
            };
            return self.advance(by);
        }
        let event = list.swap_remove(self.rng.below(list.len() as u64) as usize);
        match event {
            Event::Message(id, side) => self.deliver(id, side),
            Event::Sync(n) => self.sync(n),
            Event::Ask(c) => {
                let Some((id, request)) = self.seats[c].asks.pop_front() else {
                    return;
                };
                let before = self.etcd.map.clone();
                let answer = match self.seats[c].stray {
                    true => self.other.ask(&request),
                    false => self.etcd.ask(&request),
                };
                if answer == Answer::Changed(true) {
                    self.blame(before);
                }
                self.note(|| format!("Client({c}) asks {request:?}: {answer:?}"));
                self.tick_client(c);
                if let Some(client) = &mut self.seats[c].client {
                    client.answered(id, answer);
                }
                self.pump_client(c);
            }
            Event::Connect(i) => {
                let (_, who, peer, to) = self.connects.swap_remove(i);
                let there = self.runs(Who::Node(to)) && !self.cuts.contains(&(who, Who::Node(to)));
                if !there {
                    self.told(who, |n| n.closed(peer), |c| c.closed(peer));
                    return;
                }
                let (id, other) = (self.number(), self.number());
                let conn = Conn {
                    ends: [(who, peer), (Who::Node(to), other)],
                    queues: [VecDeque::new(), VecDeque::new()],
                    open: [true; 2],
                };
                self.conns.insert(id, conn);
                self.told(Who::Node(to), |n| n.connected(other), |_| {});
                self.told(who, |n| n.connected(peer), |c| c.connected(peer));
            }
        }
    }

    pub fn sync(&mut self, n: usize) {
        if let Some((lsn, count, _)) = self.slots[n].sync.take() {
            self.slots[n].disk.stable(count);
            self.told(Who::Node(n), |n| n.synced(lsn), |_| {});
        }
    }

    fn told(
        &mut self,
        who: Who,
        node: impl FnOnce(&mut Node<Disk>),
        client: impl FnOnce(&mut Client<Vec<u8>>),
    ) {
        match who {
            Who::Node(n) => {
                self.slots[n].turn += 1;
                if let Some(n) = &mut self.slots[n].node {
                    node(n);
                }
            }
            Who::Client(c) => {
                self.tick_client(c);
                if let Some(c) = &mut self.seats[c].client {
                    client(c);
                }
            }
            Who::Etcd => {}
        }
        self.pump(who);
    }

    pub fn until(&mut self, what: &str, most: u64, done: impl Fn(&Self) -> bool) {
        let end = self.now + most;
        while !done(self) {
            assert!(self.now < end, "not within {most} ms: {what}");
            self.step();
        }
    }

    /// A client that is ready.
    pub fn seat(&self) -> Option<usize> {
        let good = |c: &usize| {
            self.seats[*c]
                .client
                .as_ref()
                .is_some_and(|k| k.open() && self.seats[*c].ready)
        };
        (0..self.seats.len()).find(good)
    }

    pub fn quiet(&mut self) {
        self.until("all commands are answered", 60_000, |w| {
            w.commands.is_empty()
        });
    }

    /// Whether a client has asked for a map with this node up.
    pub fn rises(&self, seat: usize, n: usize) -> bool {
        self.seats[seat].asks.iter().any(|(_, request)| {
            let map = match request {
                Request::Change { map, .. } => Map::parse(map),
                _ => None,
            };
            map.is_some_and(|m| m.states[n] == State::Up)
        })
    }

    pub fn states(&self) -> Option<[State; NODES]> {
        let client = self.seats[self.seat()?].client.as_ref()?;
        client.map().map(|m| m.states)
    }
}

/// Creates a set and waits until it is usable.
pub fn up(seed: u64, stripes: u64) -> World {
    let mut world = World::new(seed, stripes);
    world.until("the set is open", 60_000, |w| w.seat().is_some());
    world
}
