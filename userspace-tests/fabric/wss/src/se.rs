// SPDX-License-Identifier: GPL-2.0

//! StorageEngine: has the sessions, knows where each block is, and tells a CE what to move. Data does not come here.
//!
//! Sessions, credits and task management are those of [`Target`]. A command that is under way at a CE is so until the CE
//! has said that it is over, or until no RS takes anything of that CE any more. The target answers no login of the same
//! initiator before that: what an old session wrote never lands behind what a new one writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use srp_target::{
    proto::{cmd::DirectBuf, ids::PortId},
    scsi::{Command, Geometry, Unit},
    sense::Sense,
    target::{self, Buffer, ChannelId, Done, Out, Outcome, Remote, Target, TaskId},
};

use crate::{
    map::{Map, Object, Owner},
    message::{Exec, Extent, Message, Role, Scope, Status, EXTENTS, PLACES},
    peer::{misused, Peer, Pulse},
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

#[derive(Clone, Copy, Debug)]
enum State {
    Idle(u64),
    Connecting,
    Attaching(Pulse),
    Up(Pulse),
}

struct Store {
    peer: Peer,
    state: State,
    number: Option<u32>,
    /// It takes nothing that was before this SE.
    fenced: bool,
}

impl Store {
    fn up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    fn pulse(&mut self) -> Option<&mut Pulse> {
        match &mut self.state {
            State::Attaching(pulse) | State::Up(pulse) => Some(pulse),
            _ => None,
        }
    }
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
    /// CEs with an answer channel.
    reach: BTreeSet<u32>,
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

    // Connections.

    /// So late it is, in milliseconds. To be called every [`crate::peer::SILENCE`] / 8 or more often.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let (mut silent, mut due) = (Vec::new(), Vec::new());
        for (peer, (_, pulse)) in &mut self.peers {
            if pulse.silent(now) {
                silent.push(*peer);
            } else if pulse.due(now) {
                due.push(*peer);
            }
        }
        for n in 0..self.stores.len() {
            let next = self.next_peer;
            let store = &mut self.stores[n];
            let peer = store.peer;
            if matches!(store.state, State::Idle(at) if at <= now) {
                store.peer = next;
                store.state = State::Connecting;
                self.next_peer += 1;
                self.actions.push(Action::Connect {
                    peer: next,
                    store: n,
                });
            } else if let Some(pulse) = store.pulse() {
                if pulse.silent(now) {
                    silent.push(peer);
                } else if pulse.due(now) {
                    due.push(peer);
                }
            }
        }
        let late = |j: &Job| matches!(j.stage, Stage::Waiting) && j.since + PATIENCE <= now;
        let late: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| late(j))
            .map(|(t, _)| *t)
            .collect();
        for task in late {
            self.over(task, Outcome::Busy);
        }
        for peer in due {
            self.send(peer, Message::Alive);
        }
        for peer in silent {
            self.say(format!(
                "connection {peer:#x} ended: nothing was heard of it"
            ));
            self.close(peer);
        }
    }

    /// A connection of a CE has arrived, or one to an RS has been made.
    pub fn connected(&mut self, peer: Peer) {
        let pulse = Pulse::new(self.now);
        match self.store(peer) {
            Some(n) => {
                self.stores[n].state = State::Attaching(pulse);
                let epoch = self.settings.epoch;
                self.send(
                    peer,
                    Message::Attach {
                        role: Role::Se,
                        member: 0,
                        epoch,
                    },
                );
            }
            None if peer & OUTGOING == 0 => {
                self.peers.insert(peer, (None, pulse));
            }
            None => {}
        }
    }

    fn store(&self, peer: Peer) -> Option<usize> {
        let open = |s: &Store| s.peer == peer && !matches!(s.state, State::Idle(_));
        self.stores.iter().position(open)
    }

    fn close(&mut self, peer: Peer) {
        self.actions.push(Action::Close { peer });
        self.closed(peer);
    }

    /// A connection is no more, or could not be made.
    pub fn closed(&mut self, peer: Peer) {
        if let Some(n) = self.store(peer) {
            if self.stores[n].up() {
                self.say(format!("RS {:?} is lost", self.stores[n].number));
            }
            self.stores[n].state = State::Idle(self.now + RETRY);
            for request in self.requests.values_mut().filter(|r| r.sent == Some(peer)) {
                request.sent = None;
            }
        }
        if let Some((Some(member), _)) = self.peers.remove(&peer) {
            self.say(format!("CE {member} is lost"));
            self.fence(member, None);
        }
    }

    /// A message has arrived.
    pub fn message(&mut self, peer: Peer, bytes: &[u8]) {
        let now = self.now;
        let message = Message::parse(bytes);
        if let Some(n) = self.store(peer) {
            if let Some(pulse) = self.stores[n].pulse() {
                pulse.heard(now);
            }
            return self.store_message(n, peer, message);
        }
        let Some((member, pulse)) = self.peers.get_mut(&peer) else {
            return;
        };
        pulse.heard(now);
        let member = *member;
        match (member, &message) {
            (_, Ok(Message::Alive)) => {}
            (
                None,
                Ok(Message::Attach {
                    role: Role::Ce,
                    member: m @ 1..,
                    ..
                }),
            ) => self.attach(peer, *m),
            (Some(m), Ok(Message::Join { id, initiator })) => self.join(peer, m, *id, initiator),
            (Some(m), Ok(Message::Left { status, session })) => self.left(m, *status, *session),
            (Some(_), Ok(Message::Done { status, id, .. })) => self.part_over(peer, *id, *status),
            (Some(_), Ok(Message::Cancelled { id })) => self.part_over(peer, *id, Status::Lost),
            (
                Some(_),
                Ok(Message::Fenced {
                    scope: Scope::Session,
                    epoch,
                    ..
                }),
            ) => {
                let of_it = |job: &Job, part: &Part| job.session == *epoch && part.link == peer;
                self.parts_over(of_it);
            }
            _ => {
                self.say(misused(peer, &message));
                self.close(peer);
            }
        }
    }

    fn store_message(
        &mut self,
        n: usize,
        peer: Peer,
        message: Result<Message, crate::message::Broken>,
    ) {
        let up = self.stores[n].up();
        match message {
            Ok(Message::Alive) => {}
            Ok(Message::Attached {
                status: Status::Good,
                number,
                ..
            }) if !up => {
                self.stores[n].state = State::Up(Pulse::new(self.now));
                self.stores[n].number = Some(number);
                self.say(format!("attached to RS {number}"));
                let mut fences = vec![(Scope::All, 0, self.settings.epoch)];
                let members = self.members.iter();
                fences.extend(members.map(|(m, member)| (Scope::Member, *m, member.epoch)));
                for (scope, member, epoch) in fences {
                    self.send(
                        peer,
                        Message::Fence {
                            scope,
                            member,
                            epoch,
                        },
                    );
                }
                for object in self.wanted(number) {
                    self.ask(
                        number,
                        |id| Message::Open { id, object },
                        What::Open(number, object),
                    );
                }
                self.ask_again(number);
            }
            Ok(Message::Attached { status, .. }) if !up => {
                let why = format!("an RS refuses this SE: {status:?}; there is a newer one");
                self.actions.push(Action::End(why));
            }
            Ok(Message::Fenced {
                scope: Scope::All, ..
            }) if up => {
                self.stores[n].fenced = true;
                self.begin();
            }
            Ok(Message::Fenced {
                scope: Scope::Member,
                member,
                epoch,
            }) if up => self.fenced(n, member, epoch),
            Ok(Message::Done { status, id, value }) if up => {
                let sent = self.requests.get(&id).is_some_and(|r| r.sent == Some(peer));
                let request = if sent {
                    self.requests.remove(&id)
                } else {
                    None
                };
                match request.map(|r| r.what) {
                    Some(What::Open(store, object)) => self.opened(store, object, status, value),
                    Some(What::Flush(task)) => self.flushed(task, id, status),
                    None => {}
                }
            }
            other => {
                self.say(misused(peer, &other));
                self.close(peer);
            }
        }
    }

    /// Objects of an RS whose size is not known.
    fn wanted(&self, store: u32) -> BTreeSet<u32> {
        let all = self.settings.units.iter().flatten();
        let unknown = all.filter(|o| o.0 == store && !self.sizes.contains_key(o));
        unknown.map(|o| o.1).collect()
    }

    fn ask(&mut self, store: u32, message: impl FnOnce(u64) -> Message, what: What) -> u64 {
        let id = self.next;
        self.next += 1;
        // One that has been asked about an object is not asked again.
        self.requests
            .retain(|_, r| r.what != what || !matches!(what, What::Open(..)));
        let request = Request {
            store,
            message: message(id),
            what,
            sent: None,
        };
        self.requests.insert(id, request);
        id
    }

    fn ask_again(&mut self, number: u32) {
        let found = self
            .stores
            .iter()
            .find(|s| s.up() && s.number == Some(number));
        let Some(peer) = found.map(|s| s.peer) else {
            return;
        };
        let mut messages = Vec::new();
        for request in self.requests.values_mut() {
            if request.store == number && request.sent.is_none() {
                request.sent = Some(peer);
                messages.push(request.message.clone());
            }
        }
        for message in messages {
            self.send(peer, message);
        }
    }

    fn opened(&mut self, store: u32, object: u32, status: Status, blocks: u64) {
        if status != Status::Good || blocks < self.settings.line {
            let why = format!("RS {store} has no object {object} of at least a line");
            return self.actions.push(Action::End(why));
        }
        self.sizes.insert((store, object), blocks);
        self.begin();
    }

    /// Lets initiators in, as soon as all RS are fenced and all sizes are known.
    fn begin(&mut self) {
        let ready = self.stores.iter().all(|s| s.fenced);
        if !ready || self.open() {
            return;
        }
        let numbers: BTreeSet<_> = self.stores.iter().filter_map(|s| s.number).collect();
        let all = self.settings.units.iter().flatten();
        let strange = all.clone().find(|o| !numbers.contains(&o.0));
        if let Some((store, _)) = strange {
            let why = format!("there is no RS {store}; there are {numbers:?}");
            return self.actions.push(Action::End(why));
        }
        if !all.clone().all(|o| self.sizes.contains_key(o)) {
            return;
        }
        let mut units = Vec::new();
        for objects in &self.settings.units {
            let object = |o: &(u32, u32)| Object {
                store: o.0,
                object: o.1,
                blocks: self.sizes[o],
            };
            let list: Vec<_> = objects.iter().map(object).collect();
            let map = Map::new(&list, self.settings.extent, self.settings.line);
            let geometry = Geometry {
                blocks: map.blocks(),
                read_only: false,
                max_transfer: self.settings.max_transfer,
            };
            self.maps.push(map);
            let name = format!("{objects:?}");
            let unit = Unit::elsewhere(geometry, name.as_bytes(), self.settings.guid);
            units.push(Arc::new(unit));
        }
        self.say("all RS are here".into());
        self.target.open(units);
    }

    // CEs.

    fn attach(&mut self, peer: Peer, number: u32) {
        if let Some(old) = self.members.get(&number).and_then(|m| m.peer) {
            self.say(format!("CE {number} is here again"));
            self.close(old);
        }
        if let Some((member, _)) = self.peers.get_mut(&peer) {
            *member = Some(number);
        }
        self.fence(number, Some(peer));
    }

    /// A CE has a new epoch, with this connection or with none. Nothing that it had to do before counts any more.
    fn fence(&mut self, number: u32, peer: Option<Peer>) {
        let epoch = self.fresh();
        let member = Member {
            peer,
            epoch,
            unfenced: (0..self.stores.len()).collect(),
        };
        self.members.insert(number, member);
        // Those that it answers begin anew: what is under way may be answered or not, and of a node that is off nobody else
        // tells them.
        let mut over = Vec::new();
        for (initiator, session) in &mut self.sessions {
            if session.reach.remove(&number) {
                over.push(*initiator);
            }
        }
        for initiator in over {
            self.end_session(&initiator, &format!("CE {number} was lost"));
        }
        for n in 0..self.stores.len() {
            if self.stores[n].up() {
                let peer = self.stores[n].peer;
                self.send(
                    peer,
                    Message::Fence {
                        scope: Scope::Member,
                        member: number,
                        epoch,
                    },
                );
            }
        }
    }

    /// An RS takes nothing older of a CE any more.
    fn fenced(&mut self, store: usize, number: u32, epoch: u64) {
        let Some(member) = self.members.get_mut(&number).filter(|m| m.epoch == epoch) else {
            return;
        };
        let waited = member.unfenced.remove(&store);
        if !waited || !member.unfenced.is_empty() {
            return;
        }
        if let Some(peer) = member.peer {
            self.say(format!("attached: CE {number}, epoch {epoch}"));
            self.send(
                peer,
                Message::Attached {
                    status: Status::Good,
                    number,
                    epoch,
                },
            );
        }
        let now = self.members[&number].peer;
        self.parts_over(|_, part| part.member == number && Some(part.link) != now);
        self.go_on();
    }

    fn join(&mut self, peer: Peer, number: u32, id: u64, initiator: &[u8; 16]) {
        let mut joined = (Status::Stale, 0);
        if self.target.has_session(initiator) {
            let session = self.session(initiator);
            session.reach.insert(number);
            joined = (Status::Good, session.epoch);
        }
        let (status, session) = joined;
        self.say(format!(
            "{}: CE {number} has an answer channel: {status:?}",
            PortId(*initiator)
        ));
        self.send(
            peer,
            Message::Joined {
                status,
                id,
                session,
            },
        );
        self.go_on();
    }

    fn session(&mut self, initiator: &[u8; 16]) -> &mut Session {
        let epoch = self.epoch + 1;
        self.sessions.entry(*initiator).or_insert_with(|| {
            self.epoch = epoch;
            Session {
                epoch,
                reach: BTreeSet::new(),
            }
        })
    }

    /// A CE has no answer channel of a session any more.
    fn left(&mut self, number: u32, status: Status, epoch: u64) {
        let found = self.sessions.iter_mut().find(|(_, s)| s.epoch == epoch);
        let Some((initiator, session)) = found else {
            return;
        };
        let initiator = *initiator;
        session.reach.remove(&number);
        if status == Status::Lost {
            self.end_session(
                &initiator,
                &format!("CE {number} has lost its answer channel"),
            );
        }
    }

    fn end_session(&mut self, initiator: &[u8; 16], why: &str) {
        if self.target.has_session(initiator) {
            self.say(format!("{}: session ended: {why}", PortId(*initiator)));
            self.target.end_session(initiator);
        }
    }

    /// The last channel of a session is no more: its CEs shall have nothing of it.
    fn gone(&mut self, initiator: &[u8; 16]) {
        let Some(session) = self.sessions.remove(initiator) else {
            return;
        };
        for peer in self
            .members
            .values()
            .filter(|m| m.up())
            .filter_map(|m| m.peer)
        {
            self.actions.push(Action::Send {
                peer,
                message: Message::Fence {
                    scope: Scope::Session,
                    member: 0,
                    epoch: session.epoch,
                },
            });
        }
    }

    // Commands.

    fn dispatch(&mut self, task: TaskId, remote: Remote) {
        let session = self.session(&remote.initiator).epoch;
        let job = Job {
            remote,
            session,
            stage: Stage::Waiting,
            since: self.now,
        };
        self.jobs.insert(task, job);
        self.go(task);
    }

    /// Those that wait go on if they can.
    fn go_on(&mut self) {
        let waits = |j: &Job| matches!(j.stage, Stage::Waiting);
        let waiting: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| waits(j))
            .map(|(t, _)| *t)
            .collect();
        for task in waiting {
            self.go(task);
        }
    }

    fn over(&mut self, task: TaskId, outcome: Outcome) {
        self.jobs.remove(&task);
        self.target.dispatched(task, outcome);
    }

    fn go(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        let (unit, command) = (job.remote.unit, job.remote.command.clone());
        match command {
            Command::Read { lba, count, fua } => self.move_blocks(task, lba, count, false, fua),
            Command::Write { lba, count, fua } => self.move_blocks(task, lba, count, true, fua),
            _ => self.flush(task, unit),
        }
    }

    fn flush(&mut self, task: TaskId, unit: usize) {
        let objects: BTreeSet<_> = self.settings.units[unit].iter().copied().collect();
        let mut ids = BTreeSet::new();
        for (store, object) in &objects {
            let (store, object) = (*store, *object);
            ids.insert(self.ask(store, |id| Message::Flush { id, object }, What::Flush(task)));
        }
        if let Some(job) = self.jobs.get_mut(&task) {
            job.stage = Stage::Flushing(ids, Status::Good);
        }
        for (store, _) in objects {
            self.ask_again(store);
        }
    }

    fn flushed(&mut self, task: TaskId, id: u64, status: Status) {
        let Some(job) = self.jobs.get_mut(&task) else {
            return;
        };
        let Stage::Flushing(ids, worst) = &mut job.stage else {
            return;
        };
        ids.remove(&id);
        if status != Status::Good {
            *worst = status;
        }
        if ids.is_empty() {
            let outcome = match worst {
                Status::Good => Outcome::Good,
                _ => Outcome::Failed(Sense::WRITE_ERROR),
            };
            self.over(task, outcome);
        }
    }

    /// CEs that can own an extent for a session: those that all sessions reach, or else those that this one does.
    fn candidates(&self, session: &Session) -> Vec<u32> {
        let up = |m: &&u32| self.members.get(m).is_some_and(Member::up);
        let mine: Vec<_> = session.reach.iter().filter(up).copied().collect();
        let others = || self.sessions.values().filter(|s| !s.reach.is_empty());
        let all = |m: &&u32| others().all(|s| s.reach.contains(m));
        let common: Vec<_> = mine.iter().filter(all).copied().collect();
        if common.is_empty() {
            mine
        } else {
            common
        }
    }

    fn move_blocks(&mut self, task: TaskId, lba: u64, count: u32, write: bool, stable: bool) {
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        let (unit, initiator) = (job.remote.unit, job.remote.initiator);
        let Some(session) = self
            .sessions
            .get(&initiator)
            .filter(|s| s.epoch == job.session)
        else {
            return;
        };
        let candidates = self.candidates(session);
        let reach = session.reach.clone();
        let pieces = self.maps[unit].pieces(lba, count);
        if pieces.is_empty() {
            // No block is moved.
            return self.over(task, Outcome::Good);
        }
        if candidates.is_empty() {
            return;
        }
        // A read is done by one CE, which keeps nothing of what others own.
        let needed = if write { pieces.len() } else { 1 };
        for piece in &pieces[..needed] {
            let extent = &mut self.maps[unit].extents()[piece.extent];
            let best = candidates[piece.extent % candidates.len()];
            let (owner, idle) = (extent.owner.map(|o| o.member), extent.busy == 0);
            let up = |m: &u32| self.members.get(m).is_some_and(Member::up) && reach.contains(m);
            let usable = owner.as_ref().is_some_and(up);
            if !idle && (!usable || extent.wanted) {
                // Who comes later waits, too, so that it gets idle.
                extent.wanted = true;
                return;
            }
            extent.wanted = false;
            if !usable || (idle && owner != Some(best)) {
                self.epoch += 1;
                extent.owner = Some(Owner {
                    member: best,
                    epoch: self.epoch,
                });
            }
        }
        // One EXEC for each CE in a row.
        let mut execs: Vec<(u32, Vec<Extent>, Vec<usize>)> = Vec::new();
        for piece in &pieces {
            let extent = &self.maps[unit].extents()[piece.extent];
            let owner = extent.owner.unwrap_or(Owner {
                member: 0,
                epoch: 0,
            });
            let mut part = Extent {
                store: extent.store,
                object: extent.object,
                at: piece.at,
                blocks: piece.blocks,
                epoch: owner.epoch,
            };
            match execs.last_mut() {
                Some((member, extents, busy)) if *member == owner.member => {
                    extents.push(part);
                    busy.push(piece.extent);
                }
                Some((_, extents, _)) if !write => {
                    part.epoch = 0;
                    extents.push(part);
                }
                _ => execs.push((owner.member, vec![part], vec![piece.extent])),
            }
        }
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        let mut places = Places::new(&job.remote.places);
        let (tag, room, id) = (job.remote.tag, job.remote.room, job.session);
        let answer = execs.len() == 1;
        let mut made = Vec::new();
        for (member, extents, busy) in execs {
            let len = extents.iter().map(|e| u64::from(e.blocks) * 512).sum();
            let exec = Exec {
                id: self.next,
                session: id,
                write,
                answer,
                stable,
                tag,
                room,
                credits: 0,
                extents,
                places: places.take(len),
            };
            self.next += 1;
            if exec.extents.len() > EXTENTS || exec.places.len() > PLACES {
                return self.over(task, Outcome::Failed(Sense::FIELD));
            }
            made.push((member, exec, busy));
        }
        let mut parts = Vec::new();
        for (number, mut exec, extents) in made {
            if answer {
                // Without a channel the command is about to be cancelled.
                let Some(credits) = self.target.grant_for(task) else {
                    return;
                };
                exec.credits = credits;
            }
            let Some(link) = self.members.get(&number).and_then(|m| m.peer) else {
                return;
            };
            for extent in &extents {
                self.maps[unit].extents()[*extent].busy += 1;
            }
            self.execs.insert(exec.id, task);
            parts.push(Part {
                exec: exec.id,
                member: number,
                link,
                extents,
                status: None,
            });
            self.send(link, Message::Exec(exec));
        }
        if let Some(job) = self.jobs.get_mut(&task) {
            job.stage = Stage::Parts(parts);
        }
    }

    /// A command gets no response.
    fn cancel(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        match &job.stage {
            Stage::Waiting => self.over(task, Outcome::Over),
            Stage::Flushing(..) => {
                self.requests.retain(|_, r| r.what != What::Flush(task));
                self.over(task, Outcome::Over);
            }
            Stage::Parts(parts) => {
                let open = parts.iter().filter(|p| p.status.is_none());
                for part in open {
                    // One that is lost is fenced.
                    if self.peers.contains_key(&part.link) {
                        self.actions.push(Action::Send {
                            peer: part.link,
                            message: Message::Cancel { id: part.exec },
                        });
                    }
                }
            }
        }
    }

    /// A CE has nothing of an EXEC any more.
    fn part_over(&mut self, peer: Peer, exec: u64, status: Status) {
        let Some(task) = self.execs.get(&exec).copied() else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&task) else {
            return;
        };
        let unit = job.remote.unit;
        let Stage::Parts(parts) = &mut job.stage else {
            return;
        };
        let Some(part) = parts.iter_mut().find(|p| p.exec == exec && p.link == peer) else {
            return;
        };
        self.execs.remove(&exec);
        part.status = Some(status);
        for extent in &part.extents {
            self.maps[unit].extents()[*extent].busy -= 1;
        }
        let all: Option<Vec<_>> = parts.iter().map(|p| p.status).collect();
        if let Some(all) = all {
            let initiator = job.remote.initiator;
            let outcome = outcome(&all);
            let lost = outcome == Outcome::Over;
            if lost
                && self
                    .sessions
                    .get(&initiator)
                    .is_some_and(|s| s.epoch == job.session)
                && !self.target.aborted(task)
            {
                self.end_session(&initiator, "a CE has lost a command");
            }
            self.over(task, outcome);
        }
        self.go_on();
    }

    fn parts_over(&mut self, which: impl Fn(&Job, &Part) -> bool) {
        let mut over = Vec::new();
        for job in self.jobs.values() {
            if let Stage::Parts(parts) = &job.stage {
                let open = parts.iter().filter(|p| p.status.is_none() && which(job, p));
                over.extend(open.map(|p| (p.link, p.exec)));
            }
        }
        for (link, exec) in over {
            self.part_over(link, exec, Status::Lost);
        }
    }
}

fn outcome(parts: &[Status]) -> Outcome {
    let any = |wanted| parts.contains(&wanted);
    if any(Status::Answered) {
        Outcome::Answered
    } else if any(Status::Lost) || any(Status::Stale) {
        Outcome::Over
    } else if any(Status::WriteError) {
        Outcome::Failed(Sense::WRITE_ERROR)
    } else if any(Status::Full) {
        Outcome::Failed(Sense::FULL)
    } else if any(Status::ReadError) {
        Outcome::Failed(Sense::READ_ERROR)
    } else if any(Status::Invalid) {
        Outcome::Failed(Sense::FIELD)
    } else {
        Outcome::Good
    }
}

/// The initiator's buffers, cut to what each EXEC moves.
struct Places<'a> {
    list: &'a [DirectBuf],
    /// Bytes of the first one that are taken.
    used: u32,
}

impl<'a> Places<'a> {
    fn new(list: &'a [DirectBuf]) -> Self {
        Self { list, used: 0 }
    }

    fn take(&mut self, mut len: u64) -> Vec<DirectBuf> {
        let mut taken = Vec::new();
        while let (1.., Some(first)) = (len, self.list.first()) {
            let left = first.len() - self.used;
            let n = u64::from(left).min(len) as u32;
            if n > 0 {
                let va = first.va().wrapping_add(self.used.into());
                taken.push(DirectBuf::new(va, first.key(), n));
            }
            len -= u64::from(n);
            self.used += n;
            if self.used == first.len() {
                self.list = &self.list[1..];
                self.used = 0;
            }
        }
        taken
    }
}
