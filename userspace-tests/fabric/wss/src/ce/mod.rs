// SPDX-License-Identifier: GPL-2.0

//! CacheEngine: has blocks in the lines of its arena, moves them between the initiator's memory and the arena, and sends
//! the response itself, through the answer channel of the session.
//!
//! Writes go through: a command is answered when its blocks are in the file. They are in a line of their own until then,
//! so nobody reads what may never have been written. A read of a block that is not here brings its whole line.

mod channels;
mod jobs;
mod links;

use std::collections::{BTreeMap, HashMap};

use srp_target::{proto::cmd::DirectBuf, target::ChannelId, wire::LoginReq};

use crate::{
    cache::{Cache, Key},
    message::{Exec, Message, Status, Transfer, Zero},
    order::Order,
    peer::{Peer, State},
};

/// A connection that could not be made is tried again after so many milliseconds.
pub const RETRY: u64 = 500;

/// A command, numbered by [`Cache`].
pub type JobId = u64;

/// How a CE is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its number, not 0, which no other CE has.
    pub member: u32,
    /// The target port identifier of the system.
    pub id: [u8; 16],
    /// Lines of the arena.
    pub lines: usize,
    /// Bytes of a line, a multiple of 512. The SE must have the same.
    pub line: u32,
    /// How many RS there are.
    pub stores: usize,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum To {
    /// To the SE.
    Se,
    /// To one of the RS, by its place.
    Store(usize),
}

/// Bytes of the arena and their place in the initiator's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// At which byte of the arena.
    pub at: u64,
    /// Address, rkey and length there.
    pub place: DirectBuf,
}

/// Something that has to be done, in the order of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Make a connection, then call [`Engine::connected`] or [`Engine::closed`].
    Connect {
        /// Its number.
        peer: Peer,
        /// Where to.
        to: To,
    },
    /// Send a message.
    Send {
        /// Where.
        peer: Peer,
        /// It.
        message: Message,
    },
    /// End a connection, without [`Engine::closed`]. Nothing of the other side reaches the arena any more.
    Close {
        /// Which.
        peer: Peer,
    },
    /// Let an initiator in, with buffers for messages of [`srp_target::wire::MIN_IT_IU_LEN`] bytes.
    Accept {
        /// Which.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// Refuse one.
    Reject {
        /// Which.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// Read the initiator's memory to the arena, then call [`Engine::fetched`].
    Fetch {
        /// Through which channel.
        channel: ChannelId,
        /// For what.
        job: JobId,
        /// From where, and where to.
        segments: Vec<Segment>,
    },
    /// Write from the arena to the initiator's memory and send a response, in this order, then call [`Engine::sent`].
    Answer {
        /// Through which channel.
        channel: ChannelId,
        /// For what.
        job: JobId,
        /// From where, and where to.
        segments: Vec<Segment>,
        /// The response.
        message: Vec<u8>,
    },
    /// Copy bytes of the arena, before anything else is done.
    Copy {
        /// From here.
        from: u64,
        /// To here.
        to: u64,
        /// So many.
        len: u64,
    },
    /// Send a message, if there is one, and end an answer channel; then call [`Engine::ended`].
    Leave {
        /// Which.
        channel: ChannelId,
        /// The last one.
        message: Option<Vec<u8>>,
    },
    /// Something to tell whoever runs the role.
    Say(String),
}

/// A connection that is made again and again.
struct Link {
    peer: Peer,
    state: State,
    /// Number of the RS, once it is known.
    number: Option<u32>,
    /// Address of the arena for the other side, and its rkey.
    arena: (u64, u32),
    /// Of this epoch it takes nothing.
    stale: u64,
}

impl Link {
    fn new() -> Self {
        Self {
            peer: 0,
            state: State::Idle(0),
            number: None,
            arena: (0, 0),
            stale: 0,
        }
    }

    fn open(&self, peer: Peer) -> bool {
        self.peer == peer && !matches!(self.state, State::Idle(_))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Others are in its way, or there are no lines.
    Queued,
    /// Lines come from an RS.
    Filling,
    /// Data comes from the initiator.
    Fetching,
    /// Blocks go to an RS.
    Storing,
    /// The response is on its way.
    Answering,
}

/// What a command has of one line.
#[derive(Clone, Copy, Debug)]
struct Part {
    store: u32,
    object: u32,
    at: u64,
    blocks: u32,
    /// `None` if it is another CE's.
    key: Option<Key>,
    /// The line that it has, once the job has begun.
    line: usize,
    /// At which byte of the line.
    offset: u64,
}

struct Job {
    exec: Exec,
    /// The SE's connection that it came through.
    link: Peer,
    channel: ChannelId,
    parts: Vec<Part>,
    stage: Stage,
    /// Transfers that are not over.
    flying: usize,
    /// It gets no response.
    killed: bool,
    status: Status,
}

/// A GET, PUT or ZERO; `va` of the transfer is a place in the arena.
struct Flight {
    job: JobId,
    part: usize,
    store: u32,
    /// It changes the file.
    put: bool,
    zero: Option<Zero>,
    transfer: Transfer,
    /// Where it has been sent to.
    peer: Option<Peer>,
    /// It has been sent, and the connection is gone: it may have been done, or may still be.
    uncertain: bool,
}

/// A CE.
pub struct Engine {
    settings: Settings,
    now: u64,
    /// Given by the SE; what the RS know.
    epoch: u64,
    se: Link,
    stores: Vec<Link>,
    next_peer: Peer,
    /// Logins that the SE has been asked about.
    logins: HashMap<ChannelId, LoginReq>,
    /// Answer channels, by session.
    sessions: BTreeMap<u64, ChannelId>,
    cache: Cache,
    order: Order,
    jobs: BTreeMap<JobId, Job>,
    next_job: JobId,
    flights: BTreeMap<u64, Flight>,
    next_flight: u64,
    /// Sessions that are over, to be told as soon as no job is left of them.
    fences: Vec<u64>,
    /// Commands that found all of their lines here, and those that did not.
    hits: [u64; 2],
    actions: Vec<Action>,
}

impl Engine {
    /// A CE without connections.
    pub fn new(settings: Settings, now: u64) -> Self {
        Self {
            settings,
            now,
            epoch: 0,
            se: Link::new(),
            stores: (0..settings.stores).map(|_| Link::new()).collect(),
            next_peer: 1,
            logins: HashMap::new(),
            sessions: BTreeMap::new(),
            cache: Cache::new(settings.lines),
            order: Order::default(),
            jobs: BTreeMap::new(),
            next_job: 1,
            flights: BTreeMap::new(),
            next_flight: 1,
            fences: Vec::new(),
            hits: [0; 2],
            actions: Vec::new(),
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// True if it has no command and no line is in use.
    pub fn idle(&self) -> bool {
        self.jobs.is_empty() && self.flights.is_empty() && self.cache.free() == self.cache.len()
    }

    /// True if the SE and all RS know it.
    pub fn attached(&self) -> bool {
        self.se.state.up() && self.stores.iter().all(|l| l.state.up())
    }

    /// The epoch that the SE has given, 0 for none.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Reads that found all of their lines in the arena, and those that did not.
    pub fn hits(&self) -> [u64; 2] {
        self.hits
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

    /// Whose connection it is.
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
