// SPDX-License-Identifier: GPL-2.0

//! The client of a set: accepts block commands and sends each part to the node with its blocks.
//! Only one client is active, the holder of a key in etcd, and only it changes the map.
//!
//! Two parts are serialized if one could observe the other half done: parts with the same blocks,
//! and, where blocks of a lost node are reconstructed, all parts at the same offset in the cells of
//! the stripe.

mod cells;
mod command;
mod complaint;
mod map;
mod part;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::DerefMut,
};

use cells::Cells;
use command::Command;
use complaint::Complaints;
use part::{Part, Stage};
use wss::peer::Peer;

use crate::{
    coordinator::{Answer, Request, TTL},
    layout::{Mask, Size, NODES},
    link::{Due, Link, LinkAction, Payload, Watch},
    map::{Map, State},
    message::{Message, Role},
};

/// Renewal interval of the client key, in milliseconds.
const HOLD: u64 = TTL / 4;
/// The client ends when 1 / `MARGIN` of the key's lifetime is left.
const MARGIN: u64 = 6;
/// Interval of etcd snapshots in milliseconds.
const LOOK: u64 = 300;
/// Delay before an unresponsive node is admitted again, in milliseconds.
const REST: u64 = 10_000;
/// Retry delay of a part in milliseconds.
const AGAIN: u64 = 200;
/// Maximum number of parts in flight per node.
const DEPTH: usize = 32;
/// Maximum length of the data of all commands, in bytes. One command is always accepted.
const HELD: usize = 256 << 20;

/// Parameters of a client.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Identifier, unique among clients.
    pub id: u64,
    /// Milliseconds between rebuilt stripes of a node, on average; 0: as fast as the nodes answer.
    pub pause: u64,
    /// Lifetime of the key without renewal, in milliseconds.
    pub lease: u64,
    /// Timeout of a command in milliseconds, after which it ends as [`Outcome::NotReady`]. Without
    /// one a command waits until the set can do it.
    pub patience: Option<u64>,
}

/// Number of a command, assigned by the caller.
pub type CommandId = u64;

/// Memory for the data of a command.
pub trait Memory: DerefMut<Target = [u8]> + Send + Sync + 'static {}
impl<T: DerefMut<Target = [u8]> + Send + Sync + 'static> Memory for T {}

/// Result of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Done. The memory of a read has its data.
    Good,
    /// Its blocks are lost. A write may have been done in part, or may still be done until another
    /// write of its blocks starts.
    Failed,
    /// Too many nodes are missing or have not answered in time. No data is lost. A write may have
    /// been done, as with `Failed`.
    NotReady,
    /// Refused: the data of the others take all memory. Nothing has been done.
    Busy,
    /// Cancelled; no part of the command is in flight.
    Over,
}

/// Work for the caller, in list order. `B` is the memory of commands.
pub enum Action<B> {
    /// Work on a connection. The caller reports the outcome with [`Client::connected`] and
    /// [`Client::closed`].
    Link(LinkAction),
    /// Send a request to etcd, then call [`Client::answered`].
    Ask {
        /// Identifier of the request.
        id: u64,
        /// The request.
        request: Request,
    },
    /// The set is usable. Reported once.
    Ready(Size),
    /// A command has ended.
    Answer {
        /// The command.
        command: CommandId,
        /// Its result.
        outcome: Outcome,
        /// Its memory, unless a message with a part of it waits to be sent.
        memory: Option<B>,
    },
    /// Log a line.
    Say(String),
    /// End the process: another client may have taken over.
    End(String),
}

/// The report of a node about itself.
#[derive(Clone, Copy, Debug)]
struct Attached {
    since: u64,
    size: Size,
    /// The set that its file belongs to; 0 if none.
    set: u64,
}

impl Attached {
    /// Returns whether the file can belong to a node of this map, whatever its content.
    fn fits(&self, map: &Map) -> bool {
        self.size == map.size && (self.set == 0 || self.set == map.set)
    }
}

struct Partner {
    link: Link,
    attached: Option<Attached>,
    /// Last epoch for which the node has sent SETTLED on the current connection.
    settled: u64,
    /// Admission epoch in the last map that the node settled.
    let_in: u64,
    /// The admission epoch of the file that it had when it was last admitted; its cells were judged
    /// by that file.
    judged: Option<u64>,
    /// The node is not admitted before this time.
    rest: u64,
    /// Its valid stripes. If it is up in an open epoch, the others have bad blocks.
    cells: Cells,
    /// Earliest time of the next rebuild of a stripe.
    next: u64,
    /// Stripes that cannot be rebuilt in this epoch.
    hard: BTreeSet<u64>,
    /// Number of stripes that were written again because of bad blocks.
    repaired: u64,
}

/// A client. `B` is the memory of commands.
pub struct Client<B> {
    settings: Settings,
    now: u64,
    watch: Watch,
    partners: [Partner; NODES],
    /// Stripes with blocks that cannot be computed in this epoch: these become bad, so that the
    /// nodes return.
    given_up: BTreeSet<u64>,
    /// Number of stripes that a node got without such blocks.
    incomplete: u64,
    next: u64,
    /// Time until which the key may be used, if held.
    held: Option<u64>,
    hold_at: u64,
    look_at: u64,
    holding: Option<(u64, u64)>,
    asking: Option<u64>,
    complaints: Complaints,
    /// The client that this one waits for.
    other: Option<u64>,
    /// Whether the client has logged that etcd does not know the set of its nodes.
    strange: bool,
    /// The last time at which more than two nodes were missing.
    crowd: Option<u64>,
    /// The epoch in which this client took over.
    first: u64,
    /// The current map.
    map: Option<Map>,
    size: Option<Size>,
    /// Nodes that are up in a map which etcd may have accepted.
    rising: Mask,
    open: bool,
    ready: bool,
    commands: BTreeMap<CommandId, Command<B>>,
    /// Length of the data of all commands, in bytes.
    bytes: usize,
    parts: BTreeMap<u64, Part>,
    /// Stripe and number of each part.
    stripes: BTreeSet<(u64, u64)>,
    sent: BTreeMap<u64, u64>,
    ended: bool,
    actions: Vec<Action<B>>,
}

impl<B: Memory> Client<B> {
    /// Creates a client without the key.
    pub fn new(settings: Settings, now: u64) -> Self {
        let partner = || Partner {
            link: Link::new(now),
            attached: None,
            settled: 0,
            let_in: 0,
            judged: None,
            rest: 0,
            cells: Cells::none(),
            next: 0,
            hard: BTreeSet::new(),
            repaired: 0,
        };
        Self {
            settings,
            now,
            watch: Watch::new(now),
            partners: std::array::from_fn(|_| partner()),
            given_up: BTreeSet::new(),
            incomplete: 0,
            next: 1,
            held: None,
            hold_at: now,
            look_at: now,
            holding: None,
            asking: None,
            complaints: Complaints::default(),
            other: None,
            strange: false,
            crowd: None,
            first: 0,
            map: None,
            size: None,
            rising: 0,
            open: false,
            ready: false,
            commands: BTreeMap::new(),
            bytes: 0,
            parts: BTreeMap::new(),
            stripes: BTreeSet::new(),
            sent: BTreeMap::new(),
            ended: false,
            actions: Vec::new(),
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action<B>> {
        std::mem::take(&mut self.actions)
    }

    /// Returns whether all nodes of the map have settled, so that commands are executed.
    pub fn open(&self) -> bool {
        self.open && self.map.as_ref().is_some_and(|m| !m.new)
    }

    /// Returns whether all five nodes are up and settled.
    pub fn whole(&self) -> bool {
        let map = self.map.as_ref().filter(|_| self.open());
        map.is_some_and(|m| {
            (0..NODES).all(|n| m.states[n] == State::Up && self.partners[n].settled == m.epoch)
        })
    }

    /// Time in milliseconds until which this client has the set, if it has it.
    pub fn held(&self) -> Option<u64> {
        self.held.filter(|_| !self.ended)
    }

    /// The current map.
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// Number of unfinished parts.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Number of stripes of each node that were written again because of bad blocks.
    pub fn repaired(&self) -> [u64; NODES] {
        std::array::from_fn(|n| self.partners[n].repaired)
    }

    /// Number of stripes that were rebuilt on a node except for blocks that cannot be computed.
    pub fn incomplete(&self) -> u64 {
        self.incomplete
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Say(what));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn link(&mut self, action: LinkAction) {
        self.actions.push(Action::Link(action));
    }

    fn send(&mut self, n: usize, message: Message, payload: Payload) {
        let peer = self.partners[n].link.peer;
        self.link(LinkAction::Send {
            peer,
            message,
            payload,
        });
    }

    fn tell(&mut self, n: usize, message: Message) {
        self.send(n, message, Payload::Bytes([].into()));
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

    /// Sets the time in milliseconds. Call it before any call that delivers input, because a
    /// command must be answered only while the key is held.
    pub fn clock(&mut self, now: u64) {
        self.now = now;
        if self.held.is_some_and(|until| now >= until) {
            self.end("etcd does not answer, so the key of the client may be another's");
        }
    }

    /// Like [`Client::clock`], plus the periodic work. Call it at least every 300 ms.
    pub fn tick(&mut self, now: u64) {
        self.clock(now);
        if self.ended {
            return;
        }
        let late = self.watch.tick(now);
        if self.holding.is_none() && now >= self.hold_at {
            let (value, ttl) = (self.settings.id, self.settings.lease);
            let key = crate::coordinator::Key::Client;
            let id = self.ask(Request::Hold { key, value, ttl });
            self.holding = Some((id, now));
        }
        if self.held.is_some() && self.asking.is_none() && now >= self.look_at {
            let id = self.ask(Request::Look);
            self.asking = Some(id);
        }
        for n in 0..NODES {
            match self.partners[n].link.tick(self.watch.now, late) {
                Due::Nothing => {}
                Due::Alive => self.tell(n, Message::Alive { floor: 0 }),
                Due::Close => self.close(n, "nothing was heard of it"),
                Due::Connect => {
                    let peer = self.number();
                    let now = self.watch.now;
                    self.partners[n].link.connect(peer, now);
                    self.link(LinkAction::Connect { peer, to: n });
                }
            }
        }
        self.refuse();
        self.rebuild();
        self.go();
    }

    /// Takes over. Reconnects to all nodes, because their reports may be outdated: the previous
    /// client may have admitted nodes again since then.
    fn begin(&mut self) {
        for n in 0..NODES {
            if self.partners[n].link.up() {
                self.close(n, "this client takes over");
            }
        }
    }

    /// Records the client that holds the key, and logs a change.
    fn waits(&mut self, other: Option<u64>) {
        if let Some(number) = other.filter(|_| self.other != other) {
            let me = self.settings.id;
            self.say(format!(
                "client {number} has the set: this one, {me}, waits for its end"
            ));
        }
        self.other = other;
    }

    /// Handles an answer from etcd.
    pub fn answered(&mut self, id: u64, answer: Answer) {
        if self.holding.is_some_and(|(h, _)| h == id) {
            let asked = self.holding.take().map_or(0, |(_, at)| at);
            match answer {
                Answer::Held(true) => {
                    if self.held.is_none() {
                        self.say(format!("client {} takes the set", self.settings.id));
                        self.begin();
                    }
                    self.held = Some(asked + self.settings.lease - self.settings.lease / MARGIN);
                    self.hold_at = asked + HOLD;
                }
                Answer::Held(false) if self.held.is_some() => {
                    self.end("another client has its place")
                }
                _ => self.hold_at = self.now + HOLD,
            }
            if self.held.is_none() && self.asking.is_none() {
                // Find out which client holds the key.
                self.asking = Some(self.ask(Request::Look));
            }
            return;
        }
        if self.asking != Some(id) {
            return;
        }
        self.asking = None;
        match answer {
            Answer::Looked(view) if self.held.is_none() => self.waits(view.client),
            Answer::Looked(view) => {
                self.look_at = self.now + LOOK;
                self.look(view);
            }
            Answer::Changed(_) => self.look_at = self.now,
            _ => self.look_at = self.now + LOOK,
        }
        self.go();
    }

    /// Handles an established outgoing connection.
    pub fn connected(&mut self, peer: Peer) {
        let now = self.watch.now;
        if let Some(n) = self.partner(peer) {
            self.partners[n].link.connected(now);
            self.tell(n, Message::Attach { role: Role::Client });
        }
    }

    /// Handles a connection that has ended or failed.
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
        self.link(LinkAction::Close { peer });
        self.gone(n);
    }

    fn gone(&mut self, n: usize) {
        let now = self.now;
        let partner = &mut self.partners[n];
        partner.link.closed(self.watch.now);
        self.complaints.gone(n);
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

    /// Handles a message.
    pub fn message(&mut self, peer: Peer, bytes: &[u8], payload: &[u8]) {
        let now = self.watch.now;
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
                set,
                ..
            } if !self.partners[n].link.up() => {
                let size = Size { cell, stripes };
                if usize::from(number) != n || !size.is_valid() {
                    return self.close(n, &format!("it is node {number}, or of no size"));
                }
                self.partners[n].link.attached(now);
                self.partners[n].attached = Some(Attached { since, size, set });
                self.judge(n, since);
                if let Some(other) = self.other_size(n, size) {
                    let what = size.option(&other);
                    self.say(format!("node {n} is refused: its file has {what}"));
                }
                self.epoch(n);
            }
            Message::Settled { epoch } => self.settled(n, epoch),
            Message::Complain { epoch, number } => {
                let of = &self.partners[usize::from(number)];
                let counts = of.link.up() && self.map.as_ref().is_some_and(|m| m.epoch == epoch);
                if counts && self.complaints.add(usize::from(number), n, now) {
                    let what = match usize::from(number) == n {
                        true => "waits for its file".to_string(),
                        false => format!("does not reach node {number}"),
                    };
                    self.say(format!("node {n} {what}"));
                }
            }
            Message::Data { status, id, node } => self.done(n, id, (status, node), Some(payload)),
            Message::Done { status, id, node } => self.done(n, id, (status, node), None),
            Message::Spoilt { epoch, stripe } => {
                let there = self.size.is_some_and(|s| stripe < s.stripes);
                if there && self.open() && self.map.as_ref().is_some_and(|m| m.epoch == epoch) {
                    self.spoilt(n, stripe);
                    self.rebuild();
                }
            }
            other => return self.close(n, &format!("unexpected {other:?}")),
        }
        self.go();
    }
}
