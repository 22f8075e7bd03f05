// SPDX-License-Identifier: GPL-2.0

//! File operations, from the request to DONE.

use srp_target::proto::cmd::DirectBuf;

use super::{Action, Given, Op, OpId, Stage, Store, Work, MAX_TRANSFER};
use crate::{
    message::{Message, Status, Transfer, Zero},
    peer::Peer,
};

impl Store {
    pub(super) fn done(&mut self, peer: Peer, id: u64, status: Status, value: u64) {
        self.send(peer, Message::Done { status, id, value });
    }

    pub(super) fn op(&mut self, op: Op) -> OpId {
        let id = self.next;
        self.next += 1;
        self.ops.insert(id, op);
        id
    }

    pub(super) fn flush(&mut self, peer: Peer, id: u64, object: u32) {
        if object as usize >= self.objects.len() {
            return self.done(peer, id, Status::Invalid, 0);
        }
        let op = self.op(Op {
            peer,
            member: 0,
            id,
            stage: Stage::Flushing,
            transfer: None,
            given: None,
            dead: false,
        });
        self.actions.push(Action::Execute {
            peer,
            op,
            work: Work::Flush { object },
        });
    }

    /// Starts a transfer, in a stage, or zeroing. A command is of an initiator, which has the data.
    pub(super) fn transfer(
        &mut self,
        peer: Peer,
        member: u32,
        t: Transfer,
        (stage, zero): (Stage, Option<Zero>),
        given: Option<Given>,
    ) {
        let there = self.objects.get(t.object as usize).copied().unwrap_or(0);
        let end = t.at.checked_add(t.blocks.into());
        let len = u64::from(t.blocks) * 512;
        if end.is_none_or(|end| end > there) || len > MAX_TRANSFER {
            return self.done(peer, t.id, Status::Invalid, 0);
        }
        let (at, from) = match &given {
            Some(given) => (given.channel, given.descriptors.clone()),
            None => (peer, arena(&t)),
        };
        let op = self.op(Op {
            peer,
            member,
            id: t.id,
            stage,
            transfer: Some(t),
            given,
            dead: false,
        });
        let peer = at;
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
            (Stage::Pulling, None) => Action::Pull { peer, op, from },
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

    /// Returns whether an operation of an initiator has lost its answer channel.
    fn lost(&self, op: &Op) -> bool {
        let lost = |g: &Given| self.answers.channel(g.session) != Some(g.channel);
        op.given.as_ref().is_some_and(lost)
    }

    /// Ends an operation, and reports it to the CE.
    pub(super) fn answer(&mut self, id: OpId, status: Status) {
        let Some(op) = self.ops.get(&id) else {
            return;
        };
        let (peer, request, dead) = (op.peer, op.id, op.dead);
        self.end(id);
        if !dead {
            self.done(peer, request, status, 0);
        }
    }

    /// Handles the completed data transfer, or answer, of an operation.
    pub fn moved(&mut self, id: OpId) {
        let Some(op) = self.ops.get(&id) else {
            return;
        };
        match (op.stage, op.transfer) {
            // A write that is fenced, or of a session that is, must not reach the file.
            (Stage::Pulling, _) if op.dead || self.lost(op) => self.answer(id, Status::Lost),
            (Stage::Pulling, Some(t)) => {
                let peer = op.given.as_ref().map_or(op.peer, |g| g.channel);
                self.enter(id, Stage::Writing);
                let work = Work::Write {
                    object: t.object,
                    at: t.at,
                    blocks: t.blocks,
                    stable: t.stable,
                };
                self.actions.push(Action::Execute { peer, op: id, work });
            }
            (Stage::Pushing, _) if op.given.is_some() => {
                self.answered += 1;
                self.answer(id, Status::Answered);
            }
            (Stage::Pushing, _) => self.answer(id, Status::Good),
            _ => {}
        }
        self.settle();
    }

    fn over(&mut self, id: OpId, status: Status) {
        self.answer(id, status);
        self.settle();
    }

    fn enter(&mut self, id: OpId, stage: Stage) {
        if let Some(op) = self.ops.get_mut(&id) {
            op.stage = stage;
        }
    }

    /// Handles the completed file I/O of an operation.
    pub fn executed(&mut self, id: OpId, status: Status) {
        let Some(op) = self.ops.get(&id) else {
            return;
        };
        let (peer, to, message) = match (op.stage, op.transfer, &op.given) {
            _ if op.dead || status != Status::Good => return self.over(id, status),
            _ if self.lost(op) => return self.over(id, Status::Lost),
            (Stage::Reading, _, Some(g)) => {
                (g.channel, g.descriptors.clone(), Some(g.response.clone()))
            }
            (Stage::Writing, _, Some(g)) => (g.channel, Vec::new(), Some(g.response.clone())),
            (Stage::Reading, Some(t), None) => (op.peer, arena(&t), None),
            _ => return self.over(id, status),
        };
        self.enter(id, Stage::Pushing);
        self.actions.push(Action::Push {
            peer,
            op: id,
            to,
            message,
        });
        self.settle();
    }
}

/// The memory of a transfer.
fn arena(t: &Transfer) -> Vec<DirectBuf> {
    vec![DirectBuf::new(t.va, t.key, t.blocks * 512)]
}
