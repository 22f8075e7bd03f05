// SPDX-License-Identifier: GPL-2.0

//! StorageEngine: has the sessions, knows where each block is, and tells a CE what to move. Data does not come here.
//!
//! Sessions, credits and task management are those of [`Target`]. A command that is under way at a CE is so until the CE
//! has said that it is over, or until no RS takes anything of that CE any more. The target answers no login of the same
//! initiator before that: what an old session wrote never lands behind what a new one writes.

mod commands;
mod members;
mod stores;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use srp_target::target::{self, Buffer, ChannelId, Done, Out, Remote, Target, TaskId};

use crate::{
    map::Map,
    message::{Message, Status},
    peer::{Peer, Pulse, State},
};

/// A connection that could not be made is tried again after so many milliseconds.
pub const RETRY: u64 = 500;
/// A command that no CE can carry out is answered with BUSY after so many milliseconds: before its initiator loses
/// patience. It comes again.
pub const PATIENCE: u64 = 5000;
/// The bit of the numbers of connections that the SE makes itself.
pub const OUTGOING: Peer = 1 << 63;

/// How an SE is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of its target.
    pub target: target::Settings,
    /// GUID that the names of units come from.
    pub guid: u64,
    /// Of each unit the objects, as numbers of an RS and of an object of it.
    pub units: Vec<Vec<(u32, u32)>>,
    /// How many RS there are.
    pub stores: usize,
    /// Blocks of an extent, a multiple of a line.
    pub extent: u64,
    /// Blocks of a line. All CE must have the same.
    pub line: u64,
    /// Most bytes that a command moves.
    pub max_transfer: u64,
    /// Larger than that of any SE of this system before, as a time is.
    pub epoch: u64,
}

/// Something that has to be done, in the order of the list.
pub enum Action<B> {
    /// What the target wants; neither `Dispatch`, nor `Cancel`, nor `Gone`.
    Target(target::Action<B>),
    /// Make a connection to the RS with this place, then call [`Engine::connected`] or [`Engine::closed`].
    Connect {
        /// Its number.
        peer: Peer,
        /// Which RS.
        store: usize,
    },
    /// Send a message.
    Send {
        /// Where.
        peer: Peer,
        /// It.
        message: Message,
    },
    /// End a connection, without [`Engine::closed`].
    Close {
        /// Which.
        peer: Peer,
    },
    /// End the role: it cannot go on.
    End(String),
}

struct Store {
    peer: Peer,
    state: State,
    number: Option<u32>,
    /// It takes nothing that was before this SE.
    fenced: bool,
}

/// A CE that has ever been here.
struct Member {
    /// Its connection, if there is one.
    peer: Option<Peer>,
    epoch: u64,
    /// The RS, by place, that may still take something of an older epoch.
    unfenced: BTreeSet<usize>,
}

impl Member {
    fn up(&self) -> bool {
        self.peer.is_some() && self.unfenced.is_empty()
    }
}

struct Session {
    epoch: u64,
    /// CEs with an answer channel, and the logins of it. A CE may have been asked for a second one before it has told that
    /// the first one is no more.
    reach: BTreeMap<u32, BTreeSet<u64>>,
}

/// What one CE has to do for a command.
struct Part {
    exec: u64,
    member: u32,
    /// The CE's connection that it went through.
    link: Peer,
    /// The extents that are busy with it.
    extents: Vec<usize>,
    status: Option<Status>,
}

enum Stage {
    /// An extent has no owner.
    Waiting,
    Parts(Vec<Part>),
    /// Requests that are not answered.
    Flushing(BTreeSet<u64>, Status),
}

struct Job {
    remote: Remote,
    session: u64,
    stage: Stage,
    /// When it has come.
    since: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    /// The size of an object.
    Open(u32, u32),
    /// What was written is made stable, for a command.
    Flush(TaskId),
}

/// What an RS has been asked for.
struct Request {
    store: u32,
    message: Message,
    what: What,
    sent: Option<Peer>,
}

/// An SE.
pub struct Engine<B> {
    settings: Settings,
    now: u64,
    /// The last one that was given.
    epoch: u64,
    target: Target<B>,
    stores: Vec<Store>,
    next_peer: Peer,
    /// Connections of CEs.
    peers: BTreeMap<Peer, (Option<u32>, Pulse)>,
    members: BTreeMap<u32, Member>,
    sessions: HashMap<[u8; 16], Session>,
    /// Sizes of objects.
    sizes: HashMap<(u32, u32), u64>,
    /// Of each unit, once all sizes are known.
    maps: Vec<Map>,
    jobs: BTreeMap<TaskId, Job>,
    /// The command of an EXEC.
    execs: HashMap<u64, TaskId>,
    requests: BTreeMap<u64, Request>,
    /// Of an EXEC or a request.
    next: u64,
    actions: Vec<Action<B>>,
}

impl<B: Buffer> Engine<B> {
    /// An SE without connections.
    pub fn new(settings: Settings, now: u64) -> Self {
        let store = |_| Store {
            peer: 0,
            state: State::Idle(0),
            number: None,
            fenced: false,
        };
        Self {
            now,
            epoch: settings.epoch,
            target: Target::closed(settings.target),
            stores: (0..settings.stores).map(store).collect(),
            next_peer: OUTGOING,
            peers: BTreeMap::new(),
            members: BTreeMap::new(),
            sessions: HashMap::new(),
            sizes: HashMap::new(),
            maps: Vec::new(),
            jobs: BTreeMap::new(),
            execs: HashMap::new(),
            requests: BTreeMap::new(),
            next: 1,
            actions: Vec::new(),
            settings,
        }
    }

    /// What is to be done now.
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

    /// True if no session is left.
    pub fn idle(&self) -> bool {
        self.target.idle()
    }

    /// True if all units are known.
    pub fn open(&self) -> bool {
        !self.maps.is_empty()
    }

    /// Commands that are not over.
    pub fn commands(&self) -> usize {
        self.jobs.len()
    }

    /// Who owns how many extents.
    pub fn owners(&mut self) -> BTreeMap<u32, usize> {
        let mut owners = BTreeMap::new();
        for extent in self.maps.iter_mut().flat_map(Map::extents) {
            if let Some(owner) = extent.owner {
                *owners.entry(owner.member).or_default() += 1;
            }
        }
        owners
    }

    /// Commands under way, counted by extent.
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

    // What the target is told.

    /// A connection of an initiator arrives: [`Target::login`].
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
    }

    /// [`Target::channel`].
    pub fn channel(&self, task: TaskId) -> Option<ChannelId> {
        self.target.channel(task)
    }

    /// All sessions end.
    pub fn shutdown(&mut self) {
        self.target.shutdown();
    }
}
