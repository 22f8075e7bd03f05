// SPDX-License-Identifier: GPL-2.0

//! CacheEngine: has blocks in the lines of its arena, moves them between the initiator's memory and the arena, and sends
//! the response itself, through the answer channel of the session.
//!
//! Writes go through: a command is answered when its blocks are in the file. They are in a line of their own until then,
//! so nobody reads what may never have been written. A read of a block that is not here brings its whole line.

use std::collections::{BTreeMap, HashMap};

use srp_target::{
    proto::{
        cmd::DirectBuf,
        login::{BUF_FMT_DIRECT, BUF_FMT_INDIRECT},
        login_rej::RejReason,
        opcode,
    },
    scsi::status,
    target::{ChannelId, MAX_IT_IU_LEN},
    wire::{self, LoginReq, Others, Reason, Residual, MIN_IT_IU_LEN},
};

use crate::{
    cache::{Cache, Key},
    message::{Exec, Message, Role, Scope, Status, Transfer},
    order::{Order, Span},
    peer::{misused, Peer, Pulse},
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
    /// Let an initiator in, with buffers for messages of [`MIN_IT_IU_LEN`] bytes.
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

#[derive(Clone, Copy, Debug)]
enum State {
    /// To be made at this time.
    Idle(u64),
    Connecting,
    /// The answer to ATTACH is not here.
    Attaching(Pulse),
    Up(Pulse),
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

/// A GET or PUT; `va` of the transfer is a place in the arena.
struct Flight {
    job: JobId,
    part: usize,
    store: u32,
    put: bool,
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
        self.se.up() && self.stores.iter().all(Link::up)
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
        if self.se.up() {
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

    /// So late it is, in milliseconds. To be called every [`crate::peer::SILENCE`] / 8 or more often.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        for to in self.all() {
            let link = self.link(to);
            let peer = link.peer;
            let Some(pulse) = link.pulse() else {
                continue;
            };
            if pulse.silent(now) {
                self.say(format!("{to:?}: nothing was heard"));
                self.actions.push(Action::Close { peer });
                self.lost(to);
            } else if pulse.due(now) {
                self.send(peer, Message::Alive);
            }
        }
        self.connect();
        self.settle();
    }

    fn connect(&mut self) {
        for to in self.all() {
            // With the SE it begins anew when nothing is left of what was before.
            let wanted = match to {
                To::Se => self.jobs.is_empty(),
                To::Store(_) => self.epoch != 0,
            };
            let (now, epoch, peer) = (self.now, self.epoch, self.next_peer);
            let link = self.link(to);
            let stale = to != To::Se && link.stale == epoch;
            if wanted && !stale && matches!(link.state, State::Idle(next) if next <= now) {
                link.peer = peer;
                link.state = State::Connecting;
                self.next_peer += 1;
                self.actions.push(Action::Connect { peer, to });
            }
        }
    }

    /// A connection has been made. The other side reaches the arena at this address, with this rkey.
    pub fn connected(&mut self, peer: Peer, va: u64, key: u32) {
        let Some(to) = self.whose(peer) else {
            return;
        };
        let epoch = if to == To::Se { 0 } else { self.epoch };
        let (pulse, member) = (Pulse::new(self.now), self.settings.member);
        let link = self.link(to);
        link.arena = (va, key);
        link.state = State::Attaching(pulse);
        self.send(
            peer,
            Message::Attach {
                role: Role::Ce,
                member,
                epoch,
            },
        );
    }

    /// A connection is no more, or could not be made. Nothing of the other side reaches the arena any more.
    pub fn closed(&mut self, peer: Peer) {
        if let Some(to) = self.whose(peer) {
            self.lost(to);
            self.settle();
        }
    }

    fn lost(&mut self, to: To) {
        let next = self.now + RETRY;
        let link = self.link(to);
        let was_up = link.up();
        let peer = link.peer;
        link.state = State::Idle(next);
        match to {
            To::Se => {
                if was_up {
                    self.say("the SE is lost".into());
                }
                self.alone();
            }
            To::Store(n) => {
                if was_up {
                    self.say(format!("RS {:?} is lost", self.stores[n].number));
                }
                self.store_lost(peer);
            }
        }
    }

    /// Without an SE there are no sessions.
    fn alone(&mut self) {
        for (channel, req) in std::mem::take(&mut self.logins) {
            self.reject(channel, req.tag, RejReason::InsufficientResources);
        }
        for channel in std::mem::take(&mut self.sessions).into_values() {
            self.leave(channel, Some(Reason::None));
        }
        self.fences.clear();
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }

    /// What was sent to an RS has been done or not, or is done still.
    fn store_lost(&mut self, peer: Peer) {
        let mut over = Vec::new();
        for (id, flight) in &mut self.flights {
            if flight.peer != Some(peer) {
                continue;
            }
            flight.peer = None;
            flight.uncertain = flight.put;
            let killed = self.jobs.get(&flight.job).is_some_and(|j| j.killed);
            if killed && !flight.put {
                over.push(*id);
            }
        }
        for id in over {
            self.landed(id, Status::Lost);
        }
    }

    /// An RS is back. All that this CE has sent to it before is over there.
    fn store_up(&mut self, number: u32) {
        let mut over = Vec::new();
        for (id, flight) in &self.flights {
            let killed = self.jobs.get(&flight.job).is_some_and(|j| j.killed);
            if flight.store == number && flight.peer.is_none() && killed {
                over.push(*id);
            }
        }
        for id in over {
            self.landed(id, Status::Lost);
        }
        self.take_off(number);
    }

    /// An RS takes nothing of this epoch any more: the SE has given this CE up.
    fn store_stale(&mut self, n: usize) {
        self.stores[n].stale = self.epoch;
        let peer = self.stores[n].peer;
        self.actions.push(Action::Close { peer });
        self.lost(To::Store(n));
        if !matches!(self.se.state, State::Idle(_)) {
            let peer = self.se.peer;
            self.actions.push(Action::Close { peer });
        }
        self.lost(To::Se);
        let number = self.stores[n].number;
        let here = |f: &Flight| Some(f.store) == number && f.peer.is_none();
        let over: Vec<_> = self
            .flights
            .iter()
            .filter(|(_, f)| here(f))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.landed(id, Status::Stale);
        }
    }

    /// Sends what waits for an RS.
    fn take_off(&mut self, number: u32) {
        let Some(link) = self
            .stores
            .iter()
            .find(|l| l.up() && l.number == Some(number))
        else {
            return;
        };
        let (peer, (va, key)) = (link.peer, link.arena);
        let mut messages = Vec::new();
        for flight in self
            .flights
            .values_mut()
            .filter(|f| f.store == number && f.peer.is_none())
        {
            flight.peer = Some(peer);
            flight.uncertain = false;
            let transfer = Transfer {
                va: va + flight.transfer.va,
                key,
                ..flight.transfer
            };
            messages.push(if flight.put {
                Message::Put(transfer)
            } else {
                Message::Get(transfer)
            });
        }
        for message in messages {
            self.send(peer, message);
        }
    }

    /// A message has arrived.
    pub fn message(&mut self, peer: Peer, bytes: &[u8]) {
        let Some(to) = self.whose(peer) else {
            return;
        };
        let now = self.now;
        let link = self.link(to);
        if let Some(pulse) = link.pulse() {
            pulse.heard(now);
        }
        let (up, attaching) = (link.up(), matches!(link.state, State::Attaching(_)));
        let message = Message::parse(bytes);
        match (to, &message) {
            (_, Ok(Message::Alive)) => {}
            (
                _,
                Ok(Message::Attached {
                    status,
                    number,
                    epoch,
                }),
            ) if attaching => self.attached_to(to, *status, *number, *epoch),
            (
                To::Se,
                Ok(Message::Joined {
                    status,
                    id,
                    session,
                }),
            ) if up => self.joined(*status, *id, *session),
            (To::Se, Ok(Message::Exec(exec))) if up => self.exec(exec.clone()),
            (To::Se, Ok(Message::Cancel { id })) if up => self.cancel(*id),
            (
                To::Se,
                Ok(Message::Fence {
                    scope: Scope::Session,
                    epoch,
                    ..
                }),
            ) if up => self.fence(*epoch),
            (To::Store(_), Ok(Message::Done { status, id, .. })) if up => {
                let mine = self.flights.get(id).is_some_and(|f| f.peer == Some(peer));
                if mine {
                    self.landed(*id, *status);
                }
            }
            _ => {
                self.say(misused(peer, &message));
                self.actions.push(Action::Close { peer });
                self.lost(to);
            }
        }
        self.settle();
    }

    fn attached_to(&mut self, to: To, status: Status, number: u32, epoch: u64) {
        let pulse = Pulse::new(self.now);
        match (to, status) {
            (To::Se, Status::Good) => {
                self.se.state = State::Up(pulse);
                self.epoch = epoch;
                self.say(format!("attached to the SE, epoch {epoch}"));
                // The RS shall know it by the new epoch.
                for n in 0..self.stores.len() {
                    if !matches!(self.stores[n].state, State::Idle(_)) {
                        let peer = self.stores[n].peer;
                        self.actions.push(Action::Close { peer });
                        self.lost(To::Store(n));
                    }
                    self.stores[n].state = State::Idle(self.now);
                }
                self.connect();
            }
            (To::Store(n), Status::Good) => {
                self.stores[n].state = State::Up(pulse);
                self.stores[n].number = Some(number);
                self.say(format!("attached to RS {number}"));
                self.store_up(number);
            }
            (To::Store(n), _) => {
                self.stores[n].number = Some(number);
                self.store_stale(n);
            }
            (To::Se, _) => {
                let peer = self.se.peer;
                self.actions.push(Action::Close { peer });
                self.lost(to);
            }
        }
    }

    // Answer channels.

    /// A connection of an initiator arrives, with this private data. There will be an [`Action::Accept`] or an
    /// [`Action::Reject`].
    pub fn login(&mut self, channel: ChannelId, data: &[u8]) {
        let req = match LoginReq::parse(data) {
            Ok(req) => req,
            Err(broken) => {
                self.say(format!("login: {broken}"));
                return self.reject(channel, 0, RejReason::UnableEstablishChannel);
            }
        };
        let refused = if req.target != self.settings.id {
            Some(RejReason::UnableAssociateChannel)
        } else if req.it_iu_len > MAX_IT_IU_LEN {
            Some(RejReason::ReqItIuLengthTooLarge)
        } else if req.buf_fmt & !(BUF_FMT_DIRECT | BUF_FMT_INDIRECT) != 0 {
            Some(RejReason::UnsupportedDescriptorFormat)
        } else if req.multichannel != 1 || req.it_iu_len < MIN_IT_IU_LEN {
            // A session begins at the SE.
            Some(RejReason::UnableEstablishChannel)
        } else if !self.attached() {
            Some(RejReason::InsufficientResources)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.say(format!("login refused: {}", reason.name()));
            return self.reject(channel, req.tag, reason);
        }
        self.logins.insert(channel, req);
        self.tell_se(Message::Join {
            id: channel,
            initiator: req.initiator,
        });
    }

    fn reject(&mut self, channel: ChannelId, tag: u64, reason: RejReason) {
        self.actions.push(Action::Reject {
            channel,
            response: wire::login_rej(tag, reason.number(), BUF_FMT_DIRECT | BUF_FMT_INDIRECT),
        });
    }

    fn joined(&mut self, status: Status, channel: ChannelId, session: u64) {
        let Some(req) = self.logins.remove(&channel) else {
            // It has gone meanwhile.
            if status == Status::Good && !self.sessions.contains_key(&session) {
                let status = Status::Stale;
                self.tell_se(Message::Left { status, session });
            }
            return;
        };
        if status != Status::Good {
            return self.reject(channel, req.tag, RejReason::UnableAssociateChannel);
        }
        if self.sessions.contains_key(&session) {
            return self.reject(channel, req.tag, RejReason::ChannelLimitReached);
        }
        self.sessions.insert(session, channel);
        self.actions.push(Action::Accept {
            channel,
            response: wire::login_rsp(
                req.tag,
                0,
                req.it_iu_len,
                MIN_IT_IU_LEN,
                BUF_FMT_DIRECT | BUF_FMT_INDIRECT,
                Others::Maintained,
                false,
            ),
        });
    }

    /// A message of an initiator has arrived. There is but one that may.
    pub fn received(&mut self, channel: ChannelId, bytes: &[u8]) {
        let why = match bytes.first() {
            Some(&opcode::I_LOGOUT) => None,
            _ => Some(Reason::Invalid),
        };
        if why.is_some() {
            self.say(format!("channel {channel} ended: it takes no requests"));
        }
        if self.sessions.values().any(|c| *c == channel) {
            self.forget(channel);
            self.leave(channel, why);
        }
        self.settle();
    }

    fn leave(&mut self, channel: ChannelId, why: Option<Reason>) {
        self.actions.push(Action::Leave {
            channel,
            message: why.map(wire::t_logout),
        });
    }

    /// The session of an answer channel has none any more.
    fn forget(&mut self, channel: ChannelId) {
        let session = self
            .sessions
            .iter()
            .find(|(_, c)| **c == channel)
            .map(|(s, _)| *s);
        if let Some(session) = session {
            self.sessions.remove(&session);
            let status = Status::Lost;
            self.tell_se(Message::Left { status, session });
            for id in self.of(session) {
                self.kill(id);
            }
        }
    }

    /// An answer channel is no more, or there will be none. Of what was to be moved through it nothing happens any more.
    pub fn ended(&mut self, channel: ChannelId) {
        self.logins.remove(&channel);
        self.forget(channel);
        let moving =
            |j: &Job| j.channel == channel && matches!(j.stage, Stage::Fetching | Stage::Answering);
        let over: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| moving(j))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.finish(id, Status::Lost);
        }
        self.settle();
    }

    /// All sessions end.
    pub fn shutdown(&mut self) {
        for channel in self.sessions.values().copied().collect::<Vec<_>>() {
            self.forget(channel);
            self.leave(channel, Some(Reason::None));
        }
        self.settle();
    }

    // Commands.

    fn of(&self, session: u64) -> Vec<JobId> {
        let all = self.jobs.iter().filter(|(_, j)| j.exec.session == session);
        all.map(|(id, _)| *id).collect()
    }

    fn fence(&mut self, session: u64) {
        if let Some(channel) = self.sessions.remove(&session) {
            self.leave(channel, Some(Reason::None));
        }
        for id in self.of(session) {
            self.kill(id);
        }
        self.fences.push(session);
    }

    fn cancel(&mut self, exec: u64) {
        let found = self.jobs.iter().find(|(_, j)| j.exec.id == exec);
        // Of one that is not there the end is on the way.
        if let Some(id) = found.map(|(id, _)| *id) {
            self.kill(id);
        }
    }

    /// Cuts extents into parts of lines.
    fn parts(&self, exec: &Exec) -> Vec<Part> {
        let per_line = u64::from(self.settings.line / 512);
        let mut parts = Vec::new();
        for e in &exec.extents {
            let (mut at, mut left) = (e.at, u64::from(e.blocks));
            while left > 0 {
                let line = at / per_line;
                let blocks = left.min((line + 1) * per_line - at);
                let key = Key {
                    store: e.store,
                    object: e.object,
                    line,
                    epoch: e.epoch,
                };
                parts.push(Part {
                    store: e.store,
                    object: e.object,
                    at,
                    blocks: blocks as u32,
                    key: (e.epoch != 0).then_some(key),
                    line: 0,
                    offset: (at - line * per_line) * 512,
                });
                at += blocks;
                left -= blocks;
            }
        }
        parts
    }

    fn exec(&mut self, exec: Exec) {
        let refused = |status| Message::Done {
            status,
            id: exec.id,
            value: 0,
        };
        let Some(&channel) = self.sessions.get(&exec.session) else {
            return self.tell_se(refused(Status::Stale));
        };
        let sum = exec
            .extents
            .iter()
            .try_fold(0u64, |_, e| e.at.checked_add(e.blocks.into()));
        let parts = match sum {
            Some(_) if exec.len() <= self.settings.line as u64 * self.cache.len() as u64 => {
                self.parts(&exec)
            }
            _ => Vec::new(),
        };
        let (len, moved) = (exec.len(), exec.moved());
        let data = if exec.write {
            moved == len
        } else {
            moved <= len && exec.answer
        };
        if parts.is_empty() || parts.len() > self.cache.len() || !data {
            return self.tell_se(refused(Status::Invalid));
        }
        let id = self.next_job;
        self.next_job += 1;
        let per_line = u64::from(self.settings.line / 512);
        let spans = parts.iter().map(|p| {
            let line = p.at / per_line * per_line;
            let whole = !exec.write && p.key.is_some();
            Span {
                store: p.store,
                object: p.object,
                from: if whole { line } else { p.at },
                to: if whole {
                    line + per_line
                } else {
                    p.at + u64::from(p.blocks)
                },
            }
        });
        self.order.add(id, exec.write, spans.collect());
        self.jobs.insert(
            id,
            Job {
                link: self.se.peer,
                channel,
                parts,
                stage: Stage::Queued,
                flying: 0,
                killed: false,
                status: Status::Good,
                exec,
            },
        );
    }

    /// Begins what can begin, and tells what has been waited for.
    fn settle(&mut self) {
        let queued = |j: &Job| j.stage == Stage::Queued;
        let waiting: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| queued(j))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            if !self.order.may_go(id) {
                continue;
            }
            // Who waits for lines is not overtaken, so it gets them.
            if job.parts.len() > self.cache.free() {
                break;
            }
            self.begin(id);
        }
        for session in std::mem::take(&mut self.fences) {
            if self.of(session).is_empty() {
                self.tell_se(Message::Fenced {
                    scope: Scope::Session,
                    member: 0,
                    epoch: session,
                });
            } else {
                self.fences.push(session);
            }
        }
    }

    fn begin(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (write, stable, channel) = (job.exec.write, job.exec.stable, job.channel);
        let mut missing = Vec::new();
        for (n, part) in job.parts.iter_mut().enumerate() {
            let here = match part.key {
                Some(key) if !write && !stable => self.cache.find(&key),
                _ => None,
            };
            match here {
                Some(line) => {
                    self.cache.pin(line);
                    part.line = line;
                }
                None => {
                    // There is one, as `settle` has seen.
                    let Some(line) = self.cache.take() else {
                        continue;
                    };
                    part.line = line;
                    missing.push(n);
                }
            }
        }
        if write {
            job.stage = Stage::Fetching;
            let segments = segments(self.settings.line, job);
            return self.actions.push(Action::Fetch {
                channel,
                job: id,
                segments,
            });
        }
        job.stage = Stage::Filling;
        self.hits[usize::from(!missing.is_empty())] += 1;
        for n in missing {
            self.fly(id, n, false);
        }
        self.advance(id);
    }

    /// A part goes between the arena and an RS: when it is read and kept the whole line.
    fn fly(&mut self, job_id: JobId, n: usize, put: bool) {
        let Some(job) = self.jobs.get_mut(&job_id) else {
            return;
        };
        job.flying += 1;
        let part = job.parts[n];
        let line = u64::from(self.settings.line);
        let whole = !put && part.key.is_some();
        let id = self.next_flight;
        self.next_flight += 1;
        let transfer = Transfer {
            id,
            object: part.object,
            at: if whole {
                part.at - part.offset / 512
            } else {
                part.at
            },
            blocks: if whole {
                (line / 512) as u32
            } else {
                part.blocks
            },
            stable: job.exec.stable,
            va: part.line as u64 * line + if whole { 0 } else { part.offset },
            key: 0,
        };
        let flight = Flight {
            job: job_id,
            part: n,
            store: part.store,
            put,
            transfer,
            peer: None,
            uncertain: false,
        };
        self.flights.insert(id, flight);
        self.take_off(part.store);
    }

    /// A GET or PUT is over.
    fn landed(&mut self, id: u64, status: Status) {
        let Some(flight) = self.flights.remove(&id) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&flight.job) else {
            return;
        };
        job.flying -= 1;
        if status != Status::Good && job.status == Status::Good {
            job.status = status;
        }
        let (part, line) = (job.parts[flight.part], u64::from(self.settings.line));
        if let Some(key) = part.key {
            let whole = u64::from(part.blocks) * 512 == line;
            match (flight.put, status) {
                (false, Status::Good) => self.cache.install(part.line, key),
                (true, Status::Good) if whole => self.cache.install(part.line, key),
                (true, Status::Good) => {
                    if let Some(old) = self.cache.find(&key) {
                        self.actions.push(Action::Copy {
                            from: part.line as u64 * line + part.offset,
                            to: old as u64 * line + part.offset,
                            len: u64::from(part.blocks) * 512,
                        });
                    }
                }
                (false, _) => {}
                // What the file has now nobody knows.
                (true, _) => {
                    if let Some(old) = self.cache.find(&key) {
                        self.cache.forget(old);
                    }
                }
            }
        }
        self.advance(flight.job);
    }

    /// Goes on with a command when nothing of it is between the arena and an RS.
    fn advance(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.flying > 0 || !matches!(job.stage, Stage::Filling | Stage::Storing) {
            return;
        }
        if job.killed || job.status != Status::Good || !job.exec.answer {
            let status = job.status;
            return self.finish(id, status);
        }
        let exec = &job.exec;
        let len = exec.len() as u32;
        let residual = Residual::new(exec.room, len);
        let (out, into) = match exec.write {
            true => (residual, Residual::None),
            false => (Residual::None, residual),
        };
        let message = wire::cmd_rsp(exec.credits, exec.tag, status::GOOD, out, into, &[]);
        let segments = match exec.write {
            true => Vec::new(),
            false => segments(self.settings.line, job),
        };
        job.stage = Stage::Answering;
        let channel = job.channel;
        self.actions.push(Action::Answer {
            channel,
            job: id,
            segments,
            message,
        });
    }

    /// The initiator's data is in the arena.
    pub fn fetched(&mut self, id: JobId) {
        let Some(job) = self
            .jobs
            .get_mut(&id)
            .filter(|j| j.stage == Stage::Fetching)
        else {
            return;
        };
        if job.killed {
            self.finish(id, Status::Lost);
        } else {
            job.stage = Stage::Storing;
            for n in 0..job.parts.len() {
                self.fly(id, n, true);
            }
        }
        self.settle();
    }

    /// A response has been sent.
    pub fn sent(&mut self, id: JobId) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|j| j.stage == Stage::Answering)
        {
            self.finish(id, Status::Answered);
        }
        self.settle();
    }

    /// A command gets no response, if none is on its way.
    fn kill(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.killed = true;
        match job.stage {
            Stage::Queued => self.finish(id, Status::Lost),
            Stage::Fetching | Stage::Answering => {}
            Stage::Filling | Stage::Storing => {
                let idle = |f: &Flight| f.job == id && f.peer.is_none() && !f.uncertain;
                let over: Vec<_> = self
                    .flights
                    .iter()
                    .filter(|(_, f)| idle(f))
                    .map(|(n, _)| *n)
                    .collect();
                for n in over {
                    self.landed(n, Status::Lost);
                }
            }
        }
    }

    /// A command is over.
    fn finish(&mut self, id: JobId, status: Status) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.order.remove(id);
        if job.stage != Stage::Queued {
            for part in &job.parts {
                self.cache.unpin(part.line);
            }
        }
        if !self.se.up() || self.se.peer != job.link {
            return;
        }
        let id = job.exec.id;
        self.tell_se(if job.killed && status != Status::Answered {
            Message::Cancelled { id }
        } else {
            let value = 0;
            Message::Done { status, id, value }
        });
    }
}

/// Where the bytes of a command's parts are in the arena, and where in the initiator's memory.
fn segments(line: u32, job: &Job) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut parts = job.parts.iter().map(|p| {
        let start = p.line as u64 * u64::from(line) + p.offset;
        (start, u64::from(p.blocks) * 512)
    });
    let (mut at, mut here) = parts.next().unwrap_or_default();
    for place in &job.exec.places {
        let (mut va, mut left) = (place.va(), u64::from(place.len()));
        while left > 0 {
            if here == 0 {
                match parts.next() {
                    Some(next) => (at, here) = next,
                    None => return segments,
                }
            }
            let n = left.min(here);
            segments.push(Segment {
                at,
                place: DirectBuf::new(va, place.key(), n as u32),
            });
            va = va.wrapping_add(n);
            at += n;
            left -= n;
            here -= n;
        }
    }
    segments
}
