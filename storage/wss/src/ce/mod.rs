// SPDX-License-Identifier: GPL-2.0

//! CacheEngine: caches blocks in the lines of its arena, moves them between the initiator's memory
//! and the arena, and sends the response through the answer channel of the session.
//!
//! If the RS has such a channel, too, the CE passes a command on to it whose lines are not in the
//! arena, and that no earlier read missed: then the data moves once, and takes no line from others.
//!
//! Write-through: a write is answered when its blocks are in the file. Until then they are in
//! separate lines, so that no read returns data that may never be written. A read miss fetches the
//! whole line.

mod jobs;
mod links;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use srp_target::{proto::cmd::DirectBuf, target::ChannelId};

use crate::{
    answers::{self, Answers, Out},
    cache::{Cache, Key, Recent},
    message::{Exec, Message, Status, Transfer, Zero},
    order::Order,
    peer::{Peer, Places, State},
};

/// Delay before a failed connection is retried, in milliseconds.
pub const RETRY: u64 = 500;

/// Number of a command, assigned by [`Engine`].
pub type JobId = u64;

/// Parameters of a CE.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of the CE, unique and not 0.
    pub member: u32,
    /// The target port identifier of the system.
    pub id: [u8; 16],
    /// Number of lines of the arena.
    pub lines: usize,
    /// Line size in bytes, a multiple of 512. Must match the SE.
    pub line: u32,
    /// Number of addresses of the SE.
    pub engines: usize,
    /// Number of addresses of each RS.
    pub stores: Vec<usize>,
}

/// Destination of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum To {
    /// The SE.
    Se,
    /// An RS, by index.
    Store(usize),
}

/// A range of the arena and its counterpart in the initiator's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// Offset in the arena.
    pub at: u64,
    /// The initiator's buffer.
    pub descriptor: DirectBuf,
}

/// Work for the caller, in list order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Connect, then call [`Engine::connected`] or [`Engine::closed`].
    Connect {
        /// Number of the new connection.
        peer: Peer,
        /// Destination.
        to: To,
        /// Index of its address.
        place: usize,
    },
    /// Send a message.
    Send {
        /// The connection.
        peer: Peer,
        /// The message.
        message: Message,
    },
    /// Close a connection; do not call [`Engine::closed`] for it. Afterwards the peer must not
    /// access the arena.
    Close {
        /// The connection.
        peer: Peer,
    },
    /// An action on an answer channel, which may call [`Engine::ended`].
    Channel(answers::Action),
    /// Read the initiator's memory into the arena, then call [`Engine::fetched`].
    Fetch {
        /// The channel.
        channel: ChannelId,
        /// The command.
        job: JobId,
        /// Source and destination.
        segments: Vec<Segment>,
    },
    /// Write from the arena to the initiator's memory, then send a response, then call
    /// [`Engine::sent`].
    Answer {
        /// The channel.
        channel: ChannelId,
        /// The command.
        job: JobId,
        /// Source and destination.
        segments: Vec<Segment>,
        /// The response.
        message: Vec<u8>,
    },
    /// Copy bytes within the arena, before any later work.
    Copy {
        /// Source offset.
        from: u64,
        /// Destination offset.
        to: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Log a line.
    Say(String),
}

/// A connection that is reconnected when it is lost.
struct Link {
    peer: Peer,
    state: State,
    places: Places,
    /// Number of the RS, once it is known.
    number: Option<u32>,
    /// RDMA address of the arena for the peer, and its rkey, once it has access.
    arena: Option<(u64, u32)>,
    /// Epoch of this CE that the peer has rejected.
    stale: u64,
}

impl Link {
    fn new(places: usize) -> Self {
        Self {
            peer: 0,
            state: State::Idle(0),
            places: Places::new(places),
            number: None,
            arena: None,
            stale: 0,
        }
    }

    fn open(&self, peer: Peer) -> bool {
        self.peer == peer && !matches!(self.state, State::Idle(_))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Waits for conflicting commands or free lines.
    Queued,
    /// Lines are read from an RS.
    Filling,
    /// Data is read from the initiator.
    Fetching,
    /// Blocks are written to an RS.
    Storing,
    /// The response is in flight.
    Answering,
    /// The RS does it.
    Given,
}

/// The part of a command that falls into one cache line.
#[derive(Clone, Copy, Debug)]
struct Part {
    store: u32,
    object: u32,
    at: u64,
    blocks: u32,
    /// Content of the line; `None` if another CE owns the extent.
    key: Option<Key>,
    /// The line, once the job has started.
    line: usize,
    /// Offset in the line.
    offset: u64,
}

struct Job {
    exec: Exec,
    /// The SE connection that delivered the command.
    link: Peer,
    channel: ChannelId,
    parts: Vec<Part>,
    stage: Stage,
    /// Number of transfers in flight.
    flying: usize,
    /// Whether the command is aborted. It then gets no response.
    killed: bool,
    status: Status,
}

impl Job {
    /// Number of lines that it needs to start. Zeroing needs none.
    fn lines(&self) -> usize {
        match self.exec.zero {
            Some(_) => 0,
            None => self.parts.len(),
        }
    }
}

/// A GET, PUT, ZERO or EXEC; `va` of the transfer is an offset in the arena.
struct Flight {
    job: JobId,
    part: usize,
    store: u32,
    /// Whether the operation writes or zeroes blocks of the file, or moves data of the initiator.
    put: bool,
    /// Whether the RS does the whole command.
    given: bool,
    zero: Option<Zero>,
    transfer: Transfer,
    /// The connection that the request was sent through.
    peer: Option<Peer>,
    /// Whether the RS may have executed the request, or may still do so, because the connection was
    /// lost after the send.
    uncertain: bool,
}

/// A CE.
pub struct Engine {
    settings: Settings,
    now: u64,
    /// The epoch assigned by the SE and announced to the RSs.
    epoch: u64,
    se: Link,
    stores: Vec<Link>,
    next_peer: Peer,
    answers: Answers,
    cache: Cache,
    recent: Recent,
    order: Order,
    jobs: BTreeMap<JobId, Job>,
    next_job: JobId,
    flights: BTreeMap<u64, Flight>,
    /// The transfers that wait for an RS, by the number of the RS.
    grounded: BTreeSet<(u32, u64)>,
    next_flight: u64,
    /// Fenced sessions, acknowledged when they have no job left.
    fences: Vec<u64>,
    /// Number of reads with all lines in the arena, and of other reads.
    hits: [u64; 2],
    /// Number of commands passed on to an RS.
    given: u64,
    actions: Vec<Action>,
}

impl Engine {
    /// Creates a CE without connections.
    pub fn new(settings: Settings, now: u64) -> Self {
        Self {
            now,
            epoch: 0,
            se: Link::new(settings.engines),
            stores: settings.stores.iter().map(|n| Link::new(*n)).collect(),
            next_peer: 1,
            answers: Answers::new(settings.id),
            cache: Cache::new(settings.lines),
            recent: Recent::new(settings.lines),
            order: Order::new((settings.line / 512).into()),
            jobs: BTreeMap::new(),
            next_job: 1,
            flights: BTreeMap::new(),
            grounded: BTreeSet::new(),
            next_flight: 1,
            fences: Vec::new(),
            hits: [0; 2],
            given: 0,
            actions: Vec::new(),
            settings,
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns whether the CE has no command and no pinned line.
    pub fn idle(&self) -> bool {
        self.jobs.is_empty() && self.flights.is_empty() && self.cache.free() == self.cache.len()
    }

    /// Returns whether the CE is attached to the SE and all RSs.
    pub fn attached(&self) -> bool {
        self.se.state.up() && self.stores.iter().all(|l| l.state.up())
    }

    /// The epoch assigned by the SE; 0 if none.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of reads with all lines in the arena, and of other reads.
    pub fn hits(&self) -> [u64; 2] {
        self.hits
    }

    /// Number of commands passed on to an RS.
    pub fn given(&self) -> u64 {
        self.given
    }

    // Answer channels.

    /// Handles a connection request of an initiator with this private data. An action follows
    /// later that accepts or rejects it.
    pub fn login(&mut self, channel: ChannelId, data: &[u8]) {
        self.answers.login(channel, data, self.now);
        self.serve();
    }

    /// Passes on the logins that have waited until this CE is attached.
    fn serve(&mut self) {
        let attached = self.attached();
        self.answers.serve(attached, self.now);
        self.pass();
    }

    /// Handles a message of an initiator. Only a logout is valid.
    pub fn received(&mut self, channel: ChannelId, bytes: &[u8]) {
        let session = self.answers.received(channel, bytes);
        self.left(session);
        self.settle();
    }

    /// Handles an answer channel that has ended or failed. No transfer through it is in flight.
    pub fn ended(&mut self, channel: ChannelId) {
        let session = self.answers.ended(channel);
        self.left(session);
        let moving =
            |j: &Job| j.channel == channel && matches!(j.stage, Stage::Fetching | Stage::Answering);
        let over = self.jobs.iter().filter(|(_, j)| moving(j));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.finish(id, Status::Lost);
        }
        self.settle();
    }

    /// Ends all answer channels.
    pub fn shutdown(&mut self) {
        for session in self.answers.shutdown() {
            self.left(Some(session));
        }
        self.settle();
    }

    /// Aborts the commands of a session without an answer channel.
    fn left(&mut self, session: Option<u64>) {
        self.pass();
        for id in session
            .into_iter()
            .flat_map(|s| self.of(s))
            .collect::<Vec<_>>()
        {
            self.kill(id);
        }
    }

    /// Passes on the work of the answer channels.
    fn pass(&mut self) {
        for out in self.answers.out() {
            match out {
                Out::Action(action) => self.actions.push(Action::Channel(action)),
                Out::Tell(message) => self.tell_se(message),
                Out::Say(what) => self.say(what),
            }
        }
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Say(what));
    }

    fn send(&mut self, peer: Peer, message: Message) {
        self.actions.push(Action::Send { peer, message });
    }

    fn tell_se(&mut self, message: Message) {
        if self.se.state.up() {
            self.send(self.se.peer, message);
        }
    }

    fn link(&mut self, to: To) -> &mut Link {
        match to {
            To::Se => &mut self.se,
            To::Store(n) => &mut self.stores[n],
        }
    }

    /// The destination of a connection.
    fn whose(&self, peer: Peer) -> Option<To> {
        if self.se.open(peer) {
            return Some(To::Se);
        }
        self.stores.iter().position(|l| l.open(peer)).map(To::Store)
    }

    fn all(&self) -> impl Iterator<Item = To> {
        std::iter::once(To::Se).chain((0..self.stores.len()).map(To::Store))
    }
}
