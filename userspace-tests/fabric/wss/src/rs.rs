// SPDX-License-Identifier: GPL-2.0

//! RealStorage: has the files. It moves blocks between them and the arenas of CEs.
//!
//! The SE says which epoch of each CE counts. What comes from an older one never reaches a file after the fence is
//! answered; so no clock is needed to be sure of a CE that nobody hears of.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    message::{Message, Role, Scope, Status, Transfer, Zero},
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

    /// Answers what has waited for ops or for a fence.
    fn settle(&mut self) {
        let (done, waiting) = std::mem::take(&mut self.fences)
            .into_iter()
            .partition(|f: &Fence| f.waits.is_empty());
        self.fences = waiting;
        for f in done {
            let Fence {
                peer,
                scope,
                member,
                epoch,
                ..
            } = f;
            self.send(
                peer,
                Message::Fenced {
                    scope,
                    member,
                    epoch,
                },
            );
        }
        let mut waiting = Vec::new();
        for (peer, connection) in &self.connections {
            if let Who::Waiting(member, epoch) = connection.who {
                waiting.push((*peer, member, epoch));
            }
        }
        for (peer, member, epoch) in waiting {
            let counts = self
                .members
                .get(&member)
                .copied()
                .unwrap_or(0)
                .max(self.floor);
            let mut before = self.ops.values();
            let busy = before.any(|op| op.member == member && op.peer != peer);
            let status = match counts.cmp(&epoch) {
                std::cmp::Ordering::Greater => Status::Stale,
                std::cmp::Ordering::Equal if !busy => Status::Good,
                _ => continue,
            };
            if let Some(connection) = self.connections.get_mut(&peer) {
                connection.who = match status {
                    Status::Good => Who::Ce(member, epoch),
                    _ => Who::Nobody,
                };
            }
            self.send(
                peer,
                Message::Attached {
                    status,
                    number: self.number,
                    epoch: counts,
                },
            );
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

    fn attach(&mut self, peer: Peer, role: Role, member: u32, epoch: u64) {
        let who = match role {
            Role::Ce => Who::Waiting(member, epoch),
            Role::Se => Who::Se,
        };
        if role == Role::Se && epoch < self.se {
            self.say(format!(
                "an SE of epoch {epoch} is refused: there is one of {}",
                self.se
            ));
            return self.send(
                peer,
                Message::Attached {
                    status: Status::Stale,
                    number: self.number,
                    epoch: self.se,
                },
            );
        }
        // There is one of each; the last one counts.
        let same = |other: Who| match (who, other) {
            (Who::Se, Who::Se) => true,
            (Who::Waiting(a, _), Who::Waiting(b, _) | Who::Ce(b, _)) => a == b,
            _ => false,
        };
        let others: Vec<_> = self
            .connections
            .iter()
            .filter(|(id, c)| **id != peer && same(c.who))
            .map(|(id, _)| *id)
            .collect();
        for other in others {
            self.close(other);
        }
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.who = who;
        }
        if role == Role::Se {
            self.se = epoch;
            self.say(format!("attached: the SE, epoch {epoch}"));
            self.send(
                peer,
                Message::Attached {
                    status: Status::Good,
                    number: self.number,
                    epoch,
                },
            );
        } else {
            self.say(format!("attached: CE {member}, epoch {epoch}"));
        }
    }

    fn fence(&mut self, peer: Peer, scope: Scope, member: u32, epoch: u64) {
        let meant = |m: u32| scope == Scope::All || m == member;
        if scope == Scope::All {
            self.floor = epoch;
            self.members.retain(|_, e| *e >= epoch);
        } else {
            self.members.insert(member, epoch);
        }
        let old: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| matches!(c.who, Who::Ce(m, e) if meant(m) && e < epoch))
            .map(|(id, _)| *id)
            .collect();
        for peer in old {
            self.close(peer);
        }
        // What is left of those is dead, but a write may be on its way to the file.
        let mut waits = BTreeSet::new();
        for (id, op) in &self.ops {
            if op.dead && meant(op.member) && op.stage == Stage::Writing {
                waits.insert(*id);
            }
        }
        self.say(format!(
            "fence: {scope:?} {member}, epoch {epoch}, {} writes",
            waits.len()
        ));
        self.fences.push(Fence {
            peer,
            scope,
            member,
            epoch,
            waits,
        });
    }

    fn done(&mut self, peer: Peer, id: u64, status: Status, value: u64) {
        self.send(peer, Message::Done { status, id, value });
    }

    fn op(&mut self, op: Op) -> OpId {
        let id = self.next;
        self.next += 1;
        self.ops.insert(id, op);
        id
    }

    fn flush(&mut self, peer: Peer, id: u64, object: u32) {
        if object as usize >= self.objects.len() {
            return self.done(peer, id, Status::Invalid, 0);
        }
        let op = self.op(Op {
            peer,
            member: 0,
            id,
            stage: Stage::Flushing,
            transfer: None,
            dead: false,
        });
        self.actions.push(Action::Execute {
            peer,
            op,
            work: Work::Flush { object },
        });
    }

    /// Begins with this stage.
    fn transfer(&mut self, peer: Peer, member: u32, t: Transfer, stage: Stage, zero: Option<Zero>) {
        let there = self.objects.get(t.object as usize).copied().unwrap_or(0);
        let end = t.at.checked_add(t.blocks.into());
        let len = u64::from(t.blocks) * 512;
        if end.is_none_or(|end| end > there) || len > MAX_TRANSFER {
            return self.done(peer, t.id, Status::Invalid, 0);
        }
        let (va, key, len) = (t.va, t.key, len as u32);
        let op = self.op(Op {
            peer,
            member,
            id: t.id,
            stage,
            transfer: Some(t),
            dead: false,
        });
        let (object, at, blocks, stable) = (t.object, t.at, t.blocks, t.stable);
        self.actions.push(match (stage, zero) {
            (_, Some(how)) => Action::Execute {
                peer,
                op,
                work: Work::Zero {
                    object,
                    at,
                    blocks,
                    stable,
                    how,
                },
            },
            (Stage::Pulling, None) => Action::Pull {
                peer,
                op,
                va,
                key,
                len,
            },
            (_, None) => Action::Execute {
                peer,
                op,
                work: Work::Read {
                    object,
                    at,
                    blocks,
                    stable,
                },
            },
        });
    }

    /// Bytes have been moved.
    pub fn moved(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let (peer, request) = (op.peer, op.id);
        match (op.stage, op.transfer) {
            (Stage::Pulling, Some(t)) => {
                op.stage = Stage::Writing;
                let work = Work::Write {
                    object: t.object,
                    at: t.at,
                    blocks: t.blocks,
                    stable: t.stable,
                };
                let op = id;
                self.actions.push(Action::Execute { peer, op, work });
            }
            (Stage::Pushing, _) => {
                self.end(id);
                self.done(peer, request, Status::Good, 0);
            }
            _ => {}
        }
        self.settle();
    }

    /// A file has been worked on.
    pub fn executed(&mut self, id: OpId, status: Status) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let (peer, request, dead) = (op.peer, op.id, op.dead);
        match (op.stage, op.transfer, status) {
            (Stage::Reading, Some(t), Status::Good) if !dead => {
                op.stage = Stage::Pushing;
                self.actions.push(Action::Push {
                    peer,
                    op: id,
                    va: t.va,
                    key: t.key,
                    len: t.blocks * 512,
                });
            }
            _ => {
                self.end(id);
                if !dead {
                    self.done(peer, request, status, 0);
                }
            }
        }
        self.settle();
    }
}
