// SPDX-License-Identifier: GPL-2.0

//! RealStorage: has the files. It moves blocks between them and the arenas of CEs.
//!
//! The SE says which epoch of each CE counts. What comes from an older one never reaches a file after the fence is
//! answered; so no clock is needed to be sure of a CE that nobody hears of.

mod members;
mod ops;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    message::{Message, Scope, Status, Transfer, Zero},
    peer::{misused, Peer, Pulse},
};

/// Something that is carried out, numbered by [`Store`].
pub type OpId = u64;

/// Most bytes that one GET or PUT moves.
pub const MAX_TRANSFER: u64 = 1 << 20;

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// Read blocks to the memory of the op.
    Read {
        /// Which object.
        object: u32,
        /// The first block.
        at: u64,
        /// How many.
        blocks: u32,
        /// What was written is made stable first.
        stable: bool,
    },
    /// Write blocks from the memory of the op.
    Write {
        /// Which object.
        object: u32,
        /// The first block.
        at: u64,
        /// How many.
        blocks: u32,
        /// They are made stable.
        stable: bool,
    },
    /// Make zeros of blocks.
    Zero {
        /// Which object.
        object: u32,
        /// The first block.
        at: u64,
        /// How many.
        blocks: u32,
        /// They are made stable.
        stable: bool,
        /// What becomes of their place.
        how: Zero,
    },
    /// What was written is made stable.
    Flush {
        /// Which object.
        object: u32,
    },
}

/// Something that has to be done, in the order of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Send a message.
    Send {
        /// Where.
        peer: Peer,
        /// It.
        message: Message,
    },
    /// End a connection, without [`Store::closed`]. Nothing reaches its other side any more.
    Close {
        /// Which.
        peer: Peer,
    },
    /// Read so many bytes from the other side's arena to the memory of the op, then call [`Store::moved`].
    Pull {
        /// From where.
        peer: Peer,
        /// For what.
        op: OpId,
        /// Address.
        va: u64,
        /// The rkey.
        key: u32,
        /// Bytes.
        len: u32,
    },
    /// Write the memory of the op there, then call [`Store::moved`].
    Push {
        /// Where.
        peer: Peer,
        /// For what.
        op: OpId,
        /// Address.
        va: u64,
        /// The rkey.
        key: u32,
        /// Bytes.
        len: u32,
    },
    /// Work on a file, then call [`Store::executed`].
    Execute {
        /// Whom the memory of the op is for.
        peer: Peer,
        /// For what.
        op: OpId,
        /// What.
        work: Work,
    },
    /// The memory of an op is not used any more.
    Forget {
        /// Which.
        op: OpId,
    },
    /// Something to tell whoever runs the role.
    Say(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    /// It has not said so.
    Nobody,
    Se,
    /// A CE that may not do anything so far.
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
    /// Of the request.
    id: u64,
    stage: Stage,
    transfer: Option<Transfer>,
    /// Nobody waits for it.
    dead: bool,
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
    /// Blocks of each object.
    objects: Vec<u64>,
    now: u64,
    connections: BTreeMap<Peer, Connection>,
    /// The epoch of the SE that counts.
    se: u64,
    /// The epoch of each CE that counts.
    members: BTreeMap<u32, u64>,
    /// No older one counts.
    floor: u64,
    ops: BTreeMap<OpId, Op>,
    next: OpId,
    fences: Vec<Fence>,
    actions: Vec<Action>,
}

impl Store {
    /// An RS with this number and objects of so many blocks.
    pub fn new(number: u32, objects: Vec<u64>, now: u64) -> Self {
        Self {
            number,
            objects,
            now,
            connections: BTreeMap::new(),
            se: 0,
            members: BTreeMap::new(),
            floor: 0,
            ops: BTreeMap::new(),
            next: 1,
            fences: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// True if nothing is carried out.
    pub fn idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// So late it is, in milliseconds. To be called every [`crate::peer::SILENCE`] / 8 or more often.
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
        self.settle();
    }

    /// Somebody has a connection.
    pub fn connected(&mut self, peer: Peer) {
        let connection = Connection {
            who: Who::Nobody,
            pulse: Pulse::new(self.now),
        };
        self.connections.insert(peer, connection);
    }

    /// A connection is no more. Of what was to be moved through it nothing happens any more.
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

    fn close(&mut self, peer: Peer) {
        if self.connections.contains_key(&peer) {
            self.actions.push(Action::Close { peer });
            self.gone(peer);
        }
    }

    fn gone(&mut self, peer: Peer) {
        self.connections.remove(&peer);
        let mut over = Vec::new();
        for (id, op) in self.ops.iter_mut().filter(|(_, op)| op.peer == peer) {
            op.dead = true;
            if matches!(op.stage, Stage::Pulling | Stage::Pushing) {
                over.push(*id);
            }
        }
        for id in over {
            self.end(id);
        }
        self.fences.retain(|f| f.peer != peer);
    }

    /// An op is no more.
    fn end(&mut self, id: OpId) {
        self.ops.remove(&id);
        self.actions.push(Action::Forget { op: id });
        for fence in &mut self.fences {
            fence.waits.remove(&id);
        }
    }

    /// A message has arrived.
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
                Who::Nobody,
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
            (Who::Ce(member, _), Ok(Message::Get(t))) => {
                self.transfer(peer, member, *t, Stage::Reading, None);
            }
            (Who::Ce(member, _), Ok(Message::Put(t))) => {
                self.transfer(peer, member, *t, Stage::Pulling, None);
            }
            (Who::Ce(member, _), Ok(Message::Zero(t, how))) => {
                self.transfer(peer, member, *t, Stage::Writing, Some(*how));
            }
            _ => {
                self.say(misused(peer, &message));
                self.close(peer);
            }
        }
        self.settle();
    }
}
