// SPDX-License-Identifier: GPL-2.0

//! Connections to the SE and to the RSs, with reconnection.

use std::collections::BTreeSet;

use srp_target::wire::Reason;

use super::{Action, Engine, Flight, State, To, RETRY};
use crate::{
    message::{Exec, Message, Role, Scope, Status, Transfer},
    peer::{misused, Peer, Pulse},
};

impl Engine {
    /// Sets the time in milliseconds. Call it at least every [`crate::peer::SILENCE`] / 8.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        for to in self.all() {
            let link = self.link(to);
            let peer = link.peer;
            let in_vain = link.state.in_vain(now, &link.places);
            let pulse = link.state.pulse();
            let silent = pulse.as_ref().is_some_and(|p| p.silent(now));
            if in_vain || silent {
                self.say(format!("{to:?}: nothing was heard"));
                self.actions.push(Action::Close { peer });
                self.lost(to);
            } else if pulse.is_some_and(|p| p.due(now)) {
                self.send(peer, Message::Alive);
            }
        }
        self.connect();
        self.serve();
        self.settle();
    }

    pub(super) fn connect(&mut self) {
        for to in self.all() {
            // Reconnect to the SE when no job of the previous connection is left.
            let wanted = match to {
                To::Se => self.jobs.is_empty(),
                To::Store(_) => self.epoch != 0,
            };
            let (now, epoch, peer) = (self.now, self.epoch, self.next_peer);
            let link = self.link(to);
            let stale = to != To::Se && link.stale == epoch;
            if wanted && !stale && matches!(link.state, State::Idle(next) if next <= now) {
                link.peer = peer;
                link.state = State::Connecting(now);
                let place = link.places.attempt();
                self.next_peer += 1;
                self.actions.push(Action::Connect { peer, to, place });
            }
        }
    }

    /// Handles a connection to an RS that has no access to the arena yet: [`Engine::connected`]
    /// follows. Until then neither side is silent.
    pub fn proven(&mut self, peer: Peer) {
        if let Some(to) = self.whose(peer) {
            let pulse = Pulse::new(self.now);
            let link = self.link(to);
            (link.arena, link.state) = (None, State::Attaching(pulse));
        }
    }

    /// Handles an established connection. The peer can access the arena at `va` with rkey `key`.
    pub fn connected(&mut self, peer: Peer, va: u64, key: u32) {
        let Some(to) = self.whose(peer) else {
            return;
        };
        let epoch = if to == To::Se { 0 } else { self.epoch };
        let (pulse, member) = (Pulse::new(self.now), self.settings.member);
        let link = self.link(to);
        link.arena = Some((va, key));
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

    /// Handles a connection that has ended or failed. The peer cannot access the arena.
    pub fn closed(&mut self, peer: Peer) {
        if let Some(to) = self.whose(peer) {
            self.lost(to);
            self.settle();
        }
    }

    pub(super) fn lost(&mut self, to: To) {
        let next = self.now + RETRY;
        let link = self.link(to);
        let was_up = link.state.up();
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

    /// Ends all sessions when the SE is lost.
    pub(super) fn alone(&mut self) {
        self.answers.alone();
        self.pass();
        self.fences.clear();
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }

    /// Handles the loss of an RS. The RS may have executed a transfer, or may still do so. It may
    /// have answered a command that it does, so the session ends.
    pub(super) fn store_lost(&mut self, peer: Peer) {
        let (mut over, mut given) = (Vec::new(), BTreeSet::new());
        for (id, flight) in &mut self.flights {
            if flight.peer != Some(peer) {
                continue;
            }
            flight.peer = None;
            self.grounded.insert((flight.store, *id));
            flight.uncertain = flight.put;
            let killed = self.jobs.get(&flight.job).is_some_and(|j| j.killed);
            if killed && !flight.put {
                over.push(*id);
            }
            given.extend(flight.given.then_some(flight.job));
        }
        for job in given {
            let channel = self.jobs.get(&job).map(|j| j.channel);
            let session = channel.and_then(|c| self.answers.drop(c, Some(Reason::None)));
            self.left(session);
            self.kill(job);
        }
        for id in over {
            self.landed(id, Status::Lost);
        }
    }

    /// Handles an RS that is attached again. It has finished or discarded all earlier transfers of
    /// this CE.
    pub(super) fn store_up(&mut self, number: u32) {
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

    /// Handles an RS that rejects the epoch of this CE: the SE has fenced the CE.
    pub(super) fn store_stale(&mut self, n: usize) {
        self.stores[n].stale = self.epoch;
        let peer = self.stores[n].peer;
        self.actions.push(Action::Close { peer });
        self.lost(To::Store(n));
        self.stores[n].places.stay();
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

    /// Sends the transfers that wait for an RS.
    pub(super) fn take_off(&mut self, number: u32) {
        let Some(link) = self
            .stores
            .iter()
            .find(|l| l.state.up() && l.number == Some(number))
        else {
            return;
        };
        let peer = link.peer;
        let Some((va, key)) = link.arena else {
            return;
        };
        let mut messages = Vec::new();
        let waiting = self.grounded.range((number, 0)..=(number, u64::MAX));
        let waiting: Vec<_> = waiting.copied().collect();
        for place in waiting {
            self.grounded.remove(&place);
            let Some(flight) = self.flights.get_mut(&place.1) else {
                continue;
            };
            flight.peer = Some(peer);
            flight.uncertain = false;
            let transfer = Transfer {
                va: va + flight.transfer.va,
                key,
                ..flight.transfer
            };
            messages.push(match flight.zero {
                Some(how) => Message::Zero(
                    Transfer {
                        va: 0,
                        key: 0,
                        ..transfer
                    },
                    how,
                ),
                None if flight.given => match self.jobs.get(&flight.job) {
                    Some(job) => Message::Exec(Exec {
                        id: transfer.id,
                        ..job.exec.clone()
                    }),
                    None => continue,
                },
                None if flight.put => Message::Put(transfer),
                None => Message::Get(transfer),
            });
        }
        for message in messages {
            self.send(peer, message);
        }
    }

    /// Handles a message.
    pub fn message(&mut self, peer: Peer, bytes: &[u8]) {
        let Some(to) = self.whose(peer) else {
            return;
        };
        let now = self.now;
        let link = self.link(to);
        if let Some(pulse) = link.state.pulse() {
            pulse.heard(now);
        }
        let asked = link.arena.is_some();
        let (up, attaching) = (
            link.state.up(),
            matches!(link.state, State::Attaching(_)) && asked,
        );
        let message = Message::parse(bytes);
        match (to, &message) {
            (_, Ok(Message::Alive)) => {}
            (
                _,
                Ok(Message::Attached {
                    status,
                    number,
                    epoch,
                    ..
                }),
            ) if attaching => self.attached_to(to, *status, *number, *epoch),
            (
                To::Se,
                Ok(Message::Joined {
                    status,
                    id,
                    session,
                }),
            ) if up => {
                self.answers.joined(*status, *id, *session);
                self.pass();
            }
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

    pub(super) fn attached_to(&mut self, to: To, status: Status, number: u32, epoch: u64) {
        let pulse = Pulse::new(self.now);
        match (to, status) {
            (To::Se, Status::Good) => {
                self.se.state = State::Up(pulse);
                self.se.places.found();
                self.epoch = epoch;
                self.say(format!("attached to the SE, epoch {epoch}"));
                // Reconnect to the RSs with the new epoch.
                for n in 0..self.stores.len() {
                    // An RS is there, although it may wait for this epoch.
                    if self.stores[n].state.pulse().is_some() {
                        self.stores[n].places.stay();
                    }
                    if !matches!(self.stores[n].state, State::Idle(_)) {
                        let peer = self.stores[n].peer;
                        self.actions.push(Action::Close { peer });
                        self.lost(To::Store(n));
                    }
                    self.stores[n].state = State::Idle(self.now);
                }
                self.connect();
            }
            (To::Store(n), _) if self.stores[n].number.is_some_and(|known| known != number) => {
                let (known, peer) = (self.stores[n].number, self.stores[n].peer);
                self.say(format!(
                    "RS {known:?} is expected, and RS {number} is there"
                ));
                self.actions.push(Action::Close { peer });
                self.lost(to);
            }
            (To::Store(n), Status::Good) => {
                self.stores[n].state = State::Up(pulse);
                self.stores[n].places.found();
                self.stores[n].number = Some(number);
                self.say(format!("attached to RS {number}"));
                self.store_up(number);
                self.serve();
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
}
