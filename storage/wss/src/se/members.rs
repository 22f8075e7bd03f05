// SPDX-License-Identifier: GPL-2.0

//! The CEs and their fences, and the answer channels of CEs and RSs.

use srp_target::{proto::ids::PortId, target::Buffer};

use super::{Action, Answerer, Engine, Member, Need};
use crate::{
    message::{Message, Scope, Status},
    peer::Peer,
};

impl<B: Buffer> Engine<B> {
    pub(super) fn attach(&mut self, peer: Peer, number: u32) {
        if let Some(old) = self.members.get(&number).and_then(|m| m.peer) {
            self.say(format!("CE {number} is here again"));
            self.close(old);
        }
        if let Some((member, _)) = self.peers.get_mut(&peer) {
            *member = Some(number);
        }
        self.fence(number, Some(peer));
    }

    /// Assigns a new epoch to a CE, with this connection or none, and fences all earlier work of
    /// the CE.
    pub(super) fn fence(&mut self, number: u32, peer: Option<Peer>) {
        let epoch = self.fresh();
        let member = Member {
            peer,
            epoch,
            unfenced: (0..self.stores.len()).collect(),
        };
        self.members.insert(number, member);
        // End the sessions with an answer channel through this CE. The CE may have answered
        // commands in flight, and if its node is off, only the SE can tell the initiator.
        for initiator in self.sessions.drop_member(number) {
            self.end_session(&initiator, &format!("CE {number} was lost"));
        }
        for n in 0..self.stores.len() {
            if self.stores[n].state.up() {
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

    /// Handles an RS that has fenced the older epochs of a CE.
    pub(super) fn fenced(&mut self, store: usize, number: u32, epoch: u64) {
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
                    boot: 0,
                },
            );
        }
        let now = self.members[&number].peer;
        self.parts_over(|_, part| part.member == number && Some(part.link) != now);
        self.go_on(Need::Member);
    }

    /// Handles the login of an initiator at a CE or an RS.
    pub(super) fn join(&mut self, peer: Peer, who: Answerer, id: u64, initiator: &[u8; 16]) {
        let mut joined = (Status::Stale, 0);
        if self.target.has_session(initiator) {
            joined = (Status::Good, self.session(initiator));
            match who {
                Answerer::Ce(n) => self.sessions.join(initiator, n, id),
                Answerer::Rs(n) => self.sessions.join_store(initiator, n, id),
            }
        }
        let (status, session) = joined;
        self.say(format!(
            "{}: {who} has an answer channel: {status:?}",
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
        self.go_on(Need::Member);
    }

    /// Returns the epoch of a session, which may be new.
    pub(super) fn session(&mut self, initiator: &[u8; 16]) -> u64 {
        if let Some(session) = self.sessions.get(initiator) {
            return session.epoch;
        }
        self.losses.known(initiator);
        let epoch = self.fresh();
        self.sessions.add(*initiator, epoch);
        epoch
    }

    /// Handles the end of an answer channel, which a CE or an RS reports.
    pub(super) fn left(&mut self, who: Answerer, status: Status, id: u64, epoch: u64) {
        let left = match who {
            Answerer::Ce(n) => self.sessions.left(n, id, epoch),
            Answerer::Rs(n) => self.sessions.left_store(n, id, epoch),
        };
        if let (Some(initiator), Status::Lost) = (left, status) {
            self.end_session(&initiator, &format!("{who} has lost its answer channel"));
        }
    }

    pub(super) fn end_session(&mut self, initiator: &[u8; 16], why: &str) {
        if self.target.has_session(initiator) {
            self.say(format!("{}: session ended: {why}", PortId(*initiator)));
            self.target.end_session(initiator);
        }
    }

    /// Handles the end of the last channel of a session: fences the session at CEs and RSs.
    pub(super) fn gone(&mut self, initiator: &[u8; 16]) {
        let Some(epoch) = self.sessions.remove(initiator) else {
            return;
        };
        self.losses.gone(initiator);
        let members = self.members.values().filter(|m| m.up());
        let stores = self.stores.iter().filter(|s| s.state.up());
        for peer in members.filter_map(|m| m.peer).chain(stores.map(|s| s.peer)) {
            self.actions.push(Action::Send {
                peer,
                message: Message::Fence {
                    scope: Scope::Session,
                    member: 0,
                    epoch,
                },
            });
        }
    }
}
