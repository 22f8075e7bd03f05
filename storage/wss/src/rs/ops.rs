// SPDX-License-Identifier: GPL-2.0

//! File operations, from the request to DONE.

use super::{Action, Op, OpId, Stage, Store, Work, MAX_TRANSFER};
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
            dead: false,
        });
        self.actions.push(Action::Execute {
            peer,
            op,
            work: Work::Flush { object },
        });
    }

    /// Starts a transfer, in stage `stage`.
    pub(super) fn transfer(
        &mut self,
        peer: Peer,
        member: u32,
        t: Transfer,
        stage: Stage,
        zero: Option<Zero>,
    ) {
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

    /// Handles the completed data transfer of an operation.
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

    /// Handles the completed file I/O of an operation.
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
