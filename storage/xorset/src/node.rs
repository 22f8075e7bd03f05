// SPDX-License-Identifier: GPL-2.0

//! A node: stores cells, accepts writes, and sends other nodes the deltas for their parities.
//!
//! A write is logged with its delta, old XOR new. Then the delta is sent to the nodes of the two
//! parities, which log it. Then the write is answered. If the data cell is lost, the node of a
//! parity accepts the write instead (the substitute) and reconstructs the old content from other
//! cells.
//!
//! A map starts an epoch. First all writes in flight are settled: each node resends its
//! unacknowledged deltas, and nodes that have deltas of an excluded node send them to those that
//! lack them. When all nodes have sent SETTLED, the parities are consistent, and the client
//! continues.

mod epoch;
mod gather;
mod relay;
mod request;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use gather::Gather;
use relay::{Relay, Waiting};
use wss::peer::{Peer, Pulse};

use crate::{
    journal::{unreadable, Journal, Media, Name, RECORD},
    layout::{Cell, Size, Span, NODES, ROWS},
    link::{Due, Link, LinkAction, Payload, Watch, GRACE},
    map::{Map, State},
    message::{Broken, Message, Role, Status},
};

/// Flag in the numbers of connections that the node itself makes.
pub const OUTGOING: Peer = 1 << 63;
/// Maximum number of writes of this node, counted from the oldest one that some node may lack.
const WINDOW: u64 = 32;
/// Returns the minimum length of half of a log, in bytes: sufficient for all writes that may be in
/// flight.
pub fn least_log(size: &Size) -> u64 {
    (2 * NODES * (WINDOW as usize + 1) * (RECORD + size.cell_bytes())) as u64
}

/// Interval in milliseconds in which a node reads one of its stripes, to find bad blocks.
const SCRUB: u64 = 250;
/// Duration of a sync in milliseconds after which the scrub waits for its end.
const HANGS: u64 = 1000;
/// Interval of complaints in milliseconds.
const COMPLAIN: u64 = 500;

/// Work for the caller, in list order.
pub enum Action {
    /// Work on a connection. The caller reports the outcome with [`Node::connected`] and
    /// [`Node::closed`].
    Link(LinkAction),
    /// Make all earlier writes durable, then call [`Node::synced`].
    Sync {
        /// Argument of [`Node::synced`].
        lsn: u64,
    },
    /// Log a line.
    Say(String),
    /// End the process after a fatal error.
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
    /// The last map that a client has sent.
    map: Option<Map>,
    links: [Link; NODES],
    next_peer: Peer,
    incoming: BTreeMap<Peer, Incoming>,
    /// The client connection that delivered the map.
    client: Option<Peer>,
    /// Whether SETTLED must be sent.
    telling: bool,
    /// Whether all nodes have settled.
    opened: bool,
    relays: BTreeMap<Name, Relay>,
    /// Client connection and request of each write, by number.
    writes: BTreeMap<u64, (Peer, u64)>,
    /// Rebuilt stripes to answer: record number to wait for, connection, request.
    rebuilds: Vec<(u64, Peer, u64)>,
    /// Deltas to acknowledge: record number to wait for, connection, write.
    acks: Vec<(u64, Peer, Name)>,
    gathers: BTreeMap<u64, Gather>,
    /// Reads from other nodes, by request: the gather and the node.
    reads: BTreeMap<u64, (u64, usize)>,
    next: u64,
    waiting: VecDeque<Waiting>,
    /// Start time of the sync in progress.
    syncing: Option<u64>,
    complained: u64,
    /// Stripe that is read next, to find bad blocks early, and the time.
    scrub: (u64, u64),
    ended: bool,
    actions: Vec<Action>,
}

fn nothing() -> Arc<[u8]> {
    Arc::new([])
}

impl<M: Media> Node<M> {
    /// Creates a node with the content of its journal.
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
            scrub: (0, now),
            ended: false,
            actions: Vec::new(),
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns whether no operation is in flight.
    pub fn idle(&self) -> bool {
        let nothing = self.relays.is_empty() && self.acks.is_empty() && self.gathers.is_empty();
        nothing && self.waiting.is_empty() && self.rebuilds.is_empty()
    }

    /// Returns the journal.
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

    fn link(&mut self, action: LinkAction) {
        self.actions.push(Action::Link(action));
    }

    fn send(&mut self, peer: Peer, message: Message, payload: Arc<[u8]>) {
        self.link(LinkAction::Send {
            peer,
            message,
            payload: Payload::Bytes(payload),
        });
    }

    fn tell(&mut self, peer: Peer, message: Message) {
        self.send(peer, message, nothing());
    }

    fn close(&mut self, peer: Peer, why: &str) {
        self.say(format!("connection {peer} ended: {why}"));
        self.link(LinkAction::Close { peer });
        self.gone(peer);
    }

    /// Returns the number below which each node has all writes of this node that it needs.
    fn floor(&self) -> u64 {
        let me = self.number as u8;
        let mut own = self.journal.records().range((me, 0)..(me + 1, 0));
        let record = own.next().map(|((_, seq), _)| *seq);
        record.unwrap_or(self.journal.floor(me))
    }

    /// Sets the time in milliseconds. Call it at least every 300 ms.
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
                    self.links[n].connect(peer, now);
                    self.link(LinkAction::Connect { peer, to: n });
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
        let result = self.scrub();
        self.check(result);
        for relay in self.relays.values_mut() {
            // Resend to nodes that were in another epoch.
            relay.due |= std::mem::take(&mut relay.again);
        }
        self.go(true);
    }

    /// Returns whether a sync of the node's file is overdue.
    fn waits(&self) -> bool {
        let late = |since| self.watch.now >= since + GRACE;
        self.syncing.is_some_and(late)
    }

    /// Reads the cells of the next stripe, and reports bad blocks.
    fn scrub(&mut self) -> io::Result<()> {
        let (now, (stripe, at)) = (self.watch.now, self.scrub);
        let (Some(client), Some(map), true) = (self.client, &self.map, self.opened) else {
            return Ok(());
        };
        // A file that does not answer must not stop the node; under load a sync is always in
        // flight.
        let hangs = self.syncing.is_some_and(|since| now >= since + HANGS);
        if now < at || map.states[self.number] != State::Up || hangs {
            return Ok(());
        }
        let (epoch, size) = (map.epoch, self.journal.size());
        self.scrub = ((stripe + 1) % size.stripes, now + SCRUB);
        for row in 0..ROWS as u8 {
            let span = Span {
                stripe,
                cell: Cell { row, column: 0 },
                block: 0,
                blocks: size.cell,
            };
            match self.journal.read(span) {
                Ok(_) => {}
                Err(e) if unreadable(&e) => {
                    self.say(format!("scrub: {e}"));
                    self.tell(client, Message::Spoilt { epoch, stripe });
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reports bad blocks in a stripe to the client, which has them rebuilt. If it is not open, it
    /// ignores the report, and the scrub finds the blocks.
    fn spoilt(&mut self, stripe: u64) {
        self.say(format!("bad blocks in stripe {stripe}"));
        if let Some(client) = self.client {
            let epoch = self.journal.epoch();
            self.tell(client, Message::Spoilt { epoch, stripe });
        }
    }

    /// Reports unresponsive nodes to the client. If the file of this node does not respond, it
    /// cannot judge others, and reports only itself.
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

    /// Handles an established incoming or outgoing connection.
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

    /// Handles a connection that has ended or failed.
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
            if let Err(e) = self.fail(gather, Status::Failed, 0) {
                self.check(Err(e));
            }
        }
    }

    /// Drops all requests of the client. Logged writes continue.
    fn forget_client(&mut self) {
        self.client = None;
        self.telling = false;
        self.gathers.clear();
        self.reads.clear();
        self.waiting.clear();
        self.writes.clear();
        self.rebuilds.clear();
    }

    /// Handles a completed sync: the log is durable up to `lsn`.
    pub fn synced(&mut self, lsn: u64) {
        self.syncing = None;
        let result = self.journal.synced(lsn);
        self.check(result);
        self.go(false);
    }

    /// Handles a message.
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

    /// Does all work that can proceed. `all`: also syncs for log records that can wait.
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
                // Completed writes from the floor on count, too: other nodes still have them in
                // their logs.
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
                    self.tell(peer, Message::done(Status::Good, id));
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
            self.tell(peer, Message::done(Status::Good, id));
        }
        if let (true, true, Some(client)) = (self.telling, self.relays.is_empty(), self.client) {
            self.telling = false;
            let epoch = self.journal.epoch();
            self.tell(client, Message::Settled { epoch });
        }
        // Only completion records can wait.
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
