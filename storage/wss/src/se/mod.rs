// SPDX-License-Identifier: GPL-2.0

//! StorageEngine: manages the sessions, knows the location of each block, and tells CEs
//! which blocks to move. No data passes through the SE.
//!
//! [`Target`] implements the sessions, credits and task management. A command is in flight at a CE
//! until the CE reports its end, or until every RS has fenced the CE. Until then the target answers
//! no login of the same initiator, so a write of an old session never overtakes a write of the new
//! one.

mod commands;
mod losses;
mod members;
mod sessions;
mod status;
mod stores;

use std::collections::{BTreeMap, BTreeSet};

use srp_target::{
    acl::List,
    target::{self, Buffer, ChannelId, Done, Out, Remote, Target, TaskId},
};

use crate::{
    map::Map,
    message::{Message, Status},
    peer::{Peer, Places, Pulse, State},
};

/// Delay before a failed connection is retried, in milliseconds.
pub const RETRY: u64 = 500;
/// Time in milliseconds after which a command that no CE can execute is answered with BUSY. Less
/// than the timeout of the initiator, which retries the command.
pub const PATIENCE: u64 = 5000;
/// Flag in the numbers of connections that the SE itself makes.
pub const OUTGOING: Peer = 1 << 63;

/// Parameters of an SE.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parameters of the target.
    pub target: target::Settings,
    /// GUID from which the identifiers of units are derived.
    pub guid: u64,
    /// The objects of each unit: RS and object.
    pub units: Vec<Vec<(u32, u32)>>,
    /// Number of addresses of each RS.
    pub stores: Vec<usize>,
    /// Number of blocks per extent, a multiple of `line`.
    pub extent: u64,
    /// Number of blocks per line. Must match the CEs.
    pub line: u64,
    /// Maximum length of a transfer, in bytes.
    pub max_transfer: u64,
    /// Greater than the epoch of every earlier SE of this system, such as a time.
    pub epoch: u64,
}

/// Work for the caller, in list order.
pub enum Action<B> {
    /// An action of the target, other than `Dispatch`, `Cancel` and `Gone`.
    Target(target::Action<B>),
    /// Connect to an address of an RS, then call [`Engine::connected`] or [`Engine::closed`].
    Connect {
        /// Number of the new connection.
        peer: Peer,
        /// Index of the RS.
        store: usize,
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
    /// Close a connection; do not call [`Engine::closed`] for it.
    Close {
        /// The connection.
        peer: Peer,
    },
    /// End the role after a fatal error.
    End(String),
}

struct Store {
    peer: Peer,
    state: State,
    places: Places,
    number: Option<u32>,
    /// Whether the RS has fenced everything older than this SE.
    fenced: bool,
}

/// A role with answer channels.
#[derive(Clone, Copy, Debug)]
enum Answerer {
    Ce(u32),
    Rs(u32),
}

impl std::fmt::Display for Answerer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ce(n) => write!(f, "CE {n}"),
            Self::Rs(n) => write!(f, "RS {n}"),
        }
    }
}

/// A CE that has attached at least once.
struct Member {
    /// The connection of the CE, if any.
    peer: Option<Peer>,
    epoch: u64,
    /// Indices of RSs that may still accept an older epoch.
    unfenced: BTreeSet<usize>,
}

impl Member {
    fn up(&self) -> bool {
        self.peer.is_some() && self.unfenced.is_empty()
    }
}

/// The part of a command at one CE.
struct Part {
    exec: u64,
    member: u32,
    /// The CE connection that the EXEC was sent through.
    link: Peer,
    /// Indices of the extents that count this part in `busy`.
    extents: Vec<usize>,
    status: Option<Status>,
}

/// What a command waits for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Need {
    /// A CE that can own its extents.
    Member,
    /// The completion of an answer that tells of lost writes.
    Told,
    /// The end of all commands of an extent, given by unit and index.
    Idle(usize, usize),
}

enum Stage {
    Waiting(Need),
    Parts(Vec<Part>),
    /// FLUSH requests in flight, and the status so far.
    Flushing(BTreeSet<u64>, Status),
}

struct Job {
    remote: Remote,
    session: u64,
    stage: Stage,
    /// Arrival time.
    since: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    /// Query the size of an object.
    Open(u32, u32),
    /// Flush an object for a command.
    Flush(TaskId, (u32, u32)),
}

/// A request to an RS.
struct Request {
    store: u32,
    message: Message,
    what: What,
    /// Number of the request among the writes ([`losses::Losses::time`]).
    begun: u64,
    sent: Option<Peer>,
}

/// An SE.
pub struct Engine<B> {
    settings: Settings,
    now: u64,
    /// The last epoch allocated.
    epoch: u64,
    target: Target<B>,
    stores: Vec<Store>,
    next_peer: Peer,
    /// Connections of CEs, with the number of the CE once it is attached.
    peers: BTreeMap<Peer, (Option<u32>, Pulse)>,
    members: BTreeMap<u32, Member>,
    sessions: sessions::Sessions,
    /// Number of blocks of each object, by RS and object.
    sizes: BTreeMap<(u32, u32), u64>,
    /// The map of each unit, once all sizes are known.
    maps: Vec<Map>,
    jobs: BTreeMap<TaskId, Job>,
    /// The waiting jobs.
    waiting: BTreeSet<(Need, TaskId)>,
    /// Number of times that a waiting command was tried again.
    retries: u64,
    /// The command of each EXEC.
    execs: BTreeMap<u64, TaskId>,
    requests: BTreeMap<u64, Request>,
    losses: losses::Losses,
    /// Next identifier of an EXEC or a request.
    next: u64,
    actions: Vec<Action<B>>,
}

impl<B: Buffer> Engine<B> {
    /// Creates an SE without connections.
    pub fn new(settings: Settings, now: u64) -> Self {
        let store = |places: &usize| Store {
            peer: 0,
            state: State::Idle(0),
            places: Places::new(*places),
            number: None,
            fenced: false,
        };
        Self {
            now,
            epoch: settings.epoch,
            target: Target::closed(settings.target),
            stores: settings.stores.iter().map(store).collect(),
            next_peer: OUTGOING,
            peers: BTreeMap::new(),
            members: BTreeMap::new(),
            sessions: sessions::Sessions::default(),
            sizes: BTreeMap::new(),
            maps: Vec::new(),
            jobs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            retries: 0,
            execs: BTreeMap::new(),
            requests: BTreeMap::new(),
            losses: losses::Losses::new(settings.units.iter().flatten().copied()),
            next: 1,
            actions: Vec::new(),
            settings,
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action<B>> {
        loop {
            let wanted = self.target.actions();
            if wanted.is_empty() {
                break;
            }
            for action in wanted {
                match action {
                    target::Action::Dispatch { task, remote } => self.dispatch(task, remote),
                    target::Action::Cancel { task } => self.cancel(task),
                    target::Action::Gone { initiator } => self.gone(&initiator),
                    other => self.actions.push(Action::Target(other)),
                }
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// Returns whether no session is left.
    pub fn idle(&self) -> bool {
        self.target.idle()
    }

    /// Returns whether all units are known.
    pub fn open(&self) -> bool {
        !self.maps.is_empty()
    }

    /// Number of commands in flight or waiting.
    pub fn commands(&self) -> usize {
        self.jobs.len()
    }

    /// Number of times that a waiting command was tried again.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Number of extents by owner.
    pub fn owners(&mut self) -> BTreeMap<u32, usize> {
        let mut owners = BTreeMap::new();
        for extent in self.maps.iter_mut().flat_map(Map::extents) {
            if let Some(owner) = extent.owner() {
                *owners.entry(owner.member).or_default() += 1;
            }
        }
        owners
    }

    /// Sum of the commands in flight over all extents.
    pub fn busy(&mut self) -> u32 {
        let all = self.maps.iter_mut().flat_map(Map::extents);
        all.map(|e| e.busy).sum()
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Target(target::Action::Say(what)));
    }

    fn send(&mut self, peer: Peer, message: Message) {
        self.actions.push(Action::Send { peer, message });
    }

    fn fresh(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Sets the list of initiators that may log in.
    pub fn allow(&mut self, list: List) {
        self.target.allow(list);
    }

    // Calls that are passed on to the target.

    /// Handles a connection request of an initiator: [`Target::login`].
    pub fn login(&mut self, channel: ChannelId, data: &[u8]) {
        self.target.login(channel, data);
    }

    /// [`Target::no_resources`].
    pub fn no_resources(&mut self, channel: ChannelId) {
        self.target.no_resources(channel);
    }

    /// [`Target::received`].
    pub fn received(&mut self, channel: ChannelId, buffer: B, len: usize) {
        self.target.received(channel, buffer, len);
    }

    /// [`Target::ended`].
    pub fn ended(&mut self, channel: ChannelId) {
        self.target.ended(channel);
        self.unanswered();
    }

    /// [`Target::fetched`].
    pub fn fetched(&mut self, task: TaskId, buffer: B) {
        self.target.fetched(task, buffer);
    }

    /// [`Target::executed`].
    pub fn executed(&mut self, task: TaskId, done: Done<B>) {
        self.target.executed(task, done);
    }

    /// [`Target::no_memory`].
    pub fn no_memory(&mut self, task: TaskId, out: Option<Out<B>>) {
        self.target.no_memory(task, out);
    }

    /// [`Target::sent`].
    pub fn sent(&mut self, task: TaskId) {
        self.target.sent(task);
        self.answered(task);
    }

    /// [`Target::channel`].
    pub fn channel(&self, task: TaskId) -> Option<ChannelId> {
        self.target.channel(task)
    }

    /// Ends all sessions.
    pub fn shutdown(&mut self) {
        self.target.shutdown();
    }
}
