// SPDX-License-Identifier: GPL-2.0

//! RealStorage: stores the files, and moves blocks between them and the arenas of CEs. A command
//! that a CE passes on it does itself: it moves the blocks between file and initiator, and answers.
//!
//! The SE sets the valid epoch of each CE. After the fence is acknowledged no operation of an older
//! epoch reaches a file, so no timeout is needed to exclude an unreachable CE.

mod given;
mod members;
mod ops;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use srp_target::{proto::cmd::DirectBuf, target::ChannelId};

use crate::{
    answers::{self, Answers, Out},
    message::{Message, Scope, Status, Transfer, Zero},
    peer::{misused, Peer, Pulse},
};

/// Number of an operation, assigned by [`Store`].
pub type OpId = u64;

/// Maximum length of one GET or PUT, in bytes.
pub const MAX_TRANSFER: u64 = 1 << 20;

/// File I/O.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// Read blocks into the buffer of the operation.
    Read {
        /// The object.
        object: u32,
        /// First block.
        at: u64,
        /// Number of blocks.
        blocks: u32,
        /// Flush first.
        stable: bool,
    },
    /// Write blocks from the buffer of the operation.
    Write {
        /// The object.
        object: u32,
        /// First block.
        at: u64,
        /// Number of blocks.
        blocks: u32,
        /// Flush afterwards.
        stable: bool,
    },
    /// Zero blocks.
    Zero {
        /// The object.
        object: u32,
        /// First block.
        at: u64,
        /// Number of blocks.
        blocks: u32,
        /// Flush afterwards.
        stable: bool,
        /// The method of zeroing.
        how: Zero,
    },
    /// Flush the object.
    Flush {
        /// The object.
        object: u32,
    },
}

/// Work for the caller, in list order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Send a message.
    Send {
        /// The connection.
        peer: Peer,
        /// The message.
        message: Message,
    },
    /// Close a connection; do not call [`Store::closed`] for it. Afterwards neither messages nor
    /// data may reach the peer.
    Close {
        /// The connection.
        peer: Peer,
    },
    /// Read from the peer's memory into the buffer of the operation, then call [`Store::moved`].
    Pull {
        /// The connection, or the answer channel.
        peer: Peer,
        /// The operation.
        op: OpId,
        /// The memory.
        from: Vec<DirectBuf>,
    },
    /// Write the buffer of the operation to the peer's memory, if any is given, then send a
    /// message, if any, then call [`Store::moved`].
    Push {
        /// The connection, or the answer channel.
        peer: Peer,
        /// The operation.
        op: OpId,
        /// The memory.
        to: Vec<DirectBuf>,
        /// The response.
        message: Option<Vec<u8>>,
    },
    /// An action on an answer channel, which may call [`Store::ended`].
    Channel(answers::Action),
    /// Do file I/O, then call [`Store::executed`].
    Execute {
        /// The connection, or the answer channel, of the operation's buffer.
        peer: Peer,
        /// The operation.
        op: OpId,
        /// The I/O.
        work: Work,
    },
    /// Free the buffer of an operation.
    Forget {
        /// The operation.
        op: OpId,
    },
    /// Log a line.
    Say(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    /// Not attached.
    Unknown,
    Se,
    /// A CE that waits until its epoch is valid and its earlier operations have ended.
    Waiting(u32, u64),
    Ce(u32, u64),
}

struct Connection {
    who: Who,
    pulse: Pulse,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Pulling,
    Writing,
    Reading,
    Pushing,
    Flushing,
}

struct Op {
    peer: Peer,
    member: u32,
    /// Identifier of the request.
    id: u64,
    stage: Stage,
    transfer: Option<Transfer>,
    /// Set if the operation is a whole command.
    given: Option<Given>,
    /// Whether the result is discarded.
    dead: bool,
}

/// The initiator of a command.
struct Given {
    session: u64,
    channel: ChannelId,
    descriptors: Vec<DirectBuf>,
    response: Vec<u8>,
}

struct Fence {
    peer: Peer,
    scope: Scope,
    member: u32,
    epoch: u64,
    waits: BTreeSet<OpId>,
}

/// An RS.
pub struct Store {
    number: u32,
    /// Boot of the host.
    boot: u64,
    /// Number of blocks of each object.
    objects: Vec<u64>,
    now: u64,
    connections: BTreeMap<Peer, Connection>,
    /// Lowest valid epoch of an SE.
    se: u64,
    /// Epoch of the last fence of each single CE. The valid epoch of a CE is the greater one of
    /// this and `floor`.
    members: BTreeMap<u32, u64>,
    /// Epoch of the last fence of all CEs.
    floor: u64,
    ops: BTreeMap<OpId, Op>,
    next: OpId,
    fences: Vec<Fence>,
    answers: Answers,
    /// Number of commands answered.
    answered: u64,
    actions: Vec<Action>,
}

/// Parameters of an RS.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of the RS.
    pub number: u32,
    /// The target port identifier of the system.
    pub id: [u8; 16],
    /// Boot of the host. It differs from that of an earlier RS if a power loss may have taken
    /// writes of the earlier one.
    pub boot: u64,
}

impl Store {
    /// Creates an RS with objects of these sizes in blocks.
    pub fn new(settings: Settings, objects: Vec<u64>, now: u64) -> Self {
        Self {
            number: settings.number,
            boot: settings.boot,
            objects,
            now,
            connections: BTreeMap::new(),
            se: 0,
            members: BTreeMap::new(),
            floor: 0,
            ops: BTreeMap::new(),
            next: 1,
            fences: Vec::new(),
            answers: Answers::new(settings.id),
            answered: 0,
            actions: Vec::new(),
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns whether no operation is in flight.
    pub fn idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// Sets the time in milliseconds. Call it at least every [`crate::peer::SILENCE`] / 8.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let mut silent = Vec::new();
        for (peer, connection) in &mut self.connections {
            if connection.pulse.silent(now) {
                silent.push(*peer);
            } else if connection.pulse.due(now) {
                self.actions.push(Action::Send {
                    peer: *peer,
                    message: Message::Alive,
                });
            }
        }
        for peer in silent {
            self.say(format!("connection {peer} ended: nothing was heard of it"));
            self.close(peer);
        }
        self.serve();
        self.settle();
    }

    /// Handles a new connection of another role.
    pub fn connected(&mut self, peer: Peer) {
        let connection = Connection {
            who: Who::Unknown,
            pulse: Pulse::new(self.now),
        };
        self.connections.insert(peer, connection);
    }

    /// Handles a connection that has ended. No transfer through it is in flight.
    pub fn closed(&mut self, peer: Peer) {
        self.gone(peer);
        self.settle();
    }

    fn say(&mut self, what: String) {
        self.actions.push(Action::Say(what));
    }

    fn send(&mut self, peer: Peer, message: Message) {
        self.actions.push(Action::Send { peer, message });
    }

    /// Ends a connection, or an answer channel, that the caller cannot serve.
    pub fn fail(&mut self, peer: Peer, why: &str) {
        self.say(format!("connection {peer} ended: {why}"));
        self.close(peer);
        self.answers.drop(peer, None);
        self.pass();
        self.settle();
    }

    fn close(&mut self, peer: Peer) {
        if self.connections.contains_key(&peer) {
            self.actions.push(Action::Close { peer });
            self.gone(peer);
        }
    }

    fn gone(&mut self, peer: Peer) {
        let connection = self.connections.remove(&peer);
        if connection.is_some_and(|c| c.who == Who::Se) {
            self.answers.alone();
            self.pass();
        }
        let mut over = Vec::new();
        for (id, op) in self.ops.iter_mut().filter(|(_, op)| op.peer == peer) {
            op.dead = true;
            let moving = matches!(op.stage, Stage::Pulling | Stage::Pushing);
            if moving && op.given.is_none() {
                over.push(*id);
            }
        }
        for id in over {
            self.end(id);
        }
        self.fences.retain(|f| f.peer != peer);
    }

    fn end(&mut self, id: OpId) {
        self.ops.remove(&id);
        self.actions.push(Action::Forget { op: id });
        for fence in &mut self.fences {
            fence.waits.remove(&id);
        }
    }

    /// Handles a message.
    pub fn message(&mut self, peer: Peer, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&peer) else {
            return;
        };
        connection.pulse.heard(self.now);
        let who = connection.who;
        let message = Message::parse(bytes);
        match (who, &message) {
            (_, Ok(Message::Alive)) => {}
            (
                Who::Unknown,
                Ok(Message::Attach {
                    role,
                    member,
                    epoch,
                }),
            ) => self.attach(peer, *role, *member, *epoch),
            (
                Who::Se,
                Ok(Message::Fence {
                    scope: scope @ (Scope::Member | Scope::All),
                    member,
                    epoch,
                }),
            ) => self.fence(peer, *scope, *member, *epoch),
            (Who::Se, Ok(Message::Open { id, object })) => {
                let blocks = self.objects.get(*object as usize).copied();
                let status = match blocks {
                    Some(_) => Status::Good,
                    None => Status::Invalid,
                };
                self.done(peer, *id, status, blocks.unwrap_or(0));
            }
            (Who::Se, Ok(Message::Flush { id, object })) => self.flush(peer, *id, *object),
            (
                Who::Se,
                Ok(Message::Joined {
                    status,
                    id,
                    session,
                }),
            ) => {
                self.answers.joined(*status, *id, *session);
                self.pass();
            }
            (
                Who::Se,
                Ok(Message::Fence {
                    scope: Scope::Session,
                    epoch,
                    ..
                }),
            ) => {
                self.answers.fence(*epoch);
                self.pass();
            }
            (Who::Ce(member, _), Ok(Message::Exec(exec))) => self.exec(peer, member, exec),
            (Who::Ce(member, _), Ok(Message::Get(t))) => {
                self.transfer(peer, member, *t, (Stage::Reading, None), None);
            }
            (Who::Ce(member, _), Ok(Message::Put(t))) => {
                self.transfer(peer, member, *t, (Stage::Pulling, None), None);
            }
            (Who::Ce(member, _), Ok(Message::Zero(t, how))) => {
                self.transfer(peer, member, *t, (Stage::Writing, Some(*how)), None);
            }
            _ => {
                self.say(misused(peer, &message));
                self.close(peer);
            }
        }
        self.settle();
    }
}
