// SPDX-License-Identifier: GPL-2.0

//! Admission of the SE and the CEs, by their epochs.

use std::collections::BTreeSet;

use super::{Fence, Stage, Store, Who};
use crate::{
    message::{Message, Role, Scope, Status},
    peer::Peer,
};

impl Store {
    /// Rejects SEs of older epochs.
    pub fn refuse_before(&mut self, epoch: u64) {
        self.se = epoch;
    }

    pub(super) fn attach(&mut self, peer: Peer, role: Role, member: u32, epoch: u64) {
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
                    boot: self.boot,
                },
            );
        }
        // A new connection of the same role and number replaces the old one.
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
                    boot: self.boot,
                },
            );
            self.serve();
        } else {
            self.say(format!("attached: CE {member}, epoch {epoch}"));
        }
    }

    pub(super) fn fence(&mut self, peer: Peer, scope: Scope, member: u32, epoch: u64) {
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
        // The operations of the closed connections are dead, but their writes may not yet have
        // reached the file.
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

    /// Acknowledges completed fences, and answers CEs that waited for one.
    pub(super) fn settle(&mut self) {
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
                    _ => Who::Unknown,
                };
            }
            self.send(
                peer,
                Message::Attached {
                    status,
                    number: self.number,
                    epoch: counts,
                    boot: self.boot,
                },
            );
        }
    }
}
