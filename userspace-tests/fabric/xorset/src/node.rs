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

mod epoch;
mod gather;
mod relay;
mod request;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use gather::Gather;
use relay::{Relay, Waiting};
use wss::peer::{Peer, Pulse};

use crate::{
    journal::{Journal, Media, Name, RECORD},
    layout::{Size, NODES},
    link::{Due, Link, Watch, GRACE},
    map::{Map, State},
    message::{Broken, Message, Role, Status},
};

/// Connections that a node makes have this bit in their number.
pub const OUTGOING: Peer = 1 << 63;
/// Most writes of this node from the oldest one on that some node may not have.
const WINDOW: u64 = 32;
/// Least bytes of half of a log: all that may be under way is in a half of that.
pub fn least_log(size: &Size) -> u64 {
    (2 * NODES * (WINDOW as usize + 1) * (RECORD + size.cell_bytes())) as u64
}

/// A node is complained of once in so many milliseconds.
const COMPLAIN: u64 = 500;

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

/// A node.
pub struct Node<M> {
    journal: Journal<M>,
    number: usize,
    watch: Watch,
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
    /// Since when its file has been at a sync.
    syncing: Option<u64>,
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
            watch: Watch::new(now),
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
            syncing: None,
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
        let late = self.watch.tick(now);
        let now = self.watch.now;
        let floor = self.floor();
        let mut silent = Vec::new();
        let mut alive = Vec::new();
        for (peer, incoming) in &mut self.incoming {
            if incoming.pulse.silent(now) {
                silent.push(*peer);
            } else if incoming.pulse.due(now) || late {
                alive.push(*peer);
            }
        }
        for n in 0..NODES {
            if n == self.number {
                continue;
            }
            match self.links[n].tick(now, late) {
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

    /// Its file does not answer.
    fn waits(&self) -> bool {
        let late = |since| self.watch.now >= since + GRACE;
        self.syncing.is_some_and(late)
    }

    /// Tells the client who does not answer. Whoever waits for its own file cannot know, and tells that.
    fn complain(&mut self) {
        let now = self.watch.now;
        let (Some(client), Some(map)) = (self.client, &self.map) else {
            return;
        };
        if now < self.complained + COMPLAIN {
            return;
        }
        let epoch = map.epoch;
        let old = |n: usize| self.relays.values().any(|r| r.overdue(n, now));
        let down = |n: usize| n != self.number && (old(n) || self.links[n].down(now) >= GRACE);
        let list: Vec<_> = match self.waits() {
            true => vec![self.number],
            false => (0..NODES)
                .filter(|n| map.states[*n] != State::Out && down(*n))
                .collect(),
        };
        for n in list {
            self.complained = now;
            let number = n as u8;
            self.tell(client, Message::Complain { epoch, number });
        }
    }

    /// Somebody has a connection, or one that was to be made is there.
    pub fn connected(&mut self, peer: Peer) {
        if peer & OUTGOING == 0 {
            let incoming = Incoming {
                who: None,
                pulse: Pulse::new(self.watch.now),
            };
            self.incoming.insert(peer, incoming);
            return;
        }
        let now = self.watch.now;
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
        let now = self.watch.now;
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
        self.syncing = None;
        let result = self.journal.synced(lsn);
        self.check(result);
        self.go(false);
    }

    /// A message has arrived.
    pub fn message(&mut self, peer: Peer, bytes: &[u8], payload: &[u8]) {
        let now = self.watch.now;
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
            while !self.waiting.is_empty() {
                // What is done counts, too, from the floor on: others have it in their logs.
                let own = self.journal.floor(me) - self.floor();
                if own + self.gathers.len() as u64 >= WINDOW {
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
        if self.syncing.is_none() && lsn > durable && (urgent || all) {
            self.syncing = Some(self.watch.now);
            self.actions.push(Action::Sync { lsn });
        }
        Ok(())
    }
}
