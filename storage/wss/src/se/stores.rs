// SPDX-License-Identifier: GPL-2.0

//! Connections to the RSs, and the handling of all messages.

use std::{collections::BTreeSet, sync::Arc};

use srp_target::{
    scsi::{Geometry, Unit},
    target::{Buffer, Outcome},
};

use super::{
    Action, Answerer, Engine, Job, Part, Request, State, Store, What, OUTGOING, PATIENCE, RETRY,
};
use crate::{
    map::{Map, Object},
    message::{Broken, Message, Role, Scope, Status},
    peer::{misused, Peer, Pulse},
};

/// Maximum number of extents of a unit.
const MAX_EXTENTS: u64 = 1 << 20;

impl<B: Buffer> Engine<B> {
    /// Sets the time in milliseconds. Call it at least every [`crate::peer::SILENCE`] / 8.
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
                store.state = State::Connecting(now);
                self.next_peer += 1;
                self.actions.push(Action::Connect {
                    peer: next,
                    store: n,
                    place: store.places.attempt(),
                });
            } else if store.state.in_vain(now, &store.places) {
                silent.push(peer);
            } else if let Some(pulse) = store.state.pulse() {
                if pulse.silent(now) {
                    silent.push(peer);
                } else if pulse.due(now) {
                    due.push(peer);
                }
            }
        }
        let since = |task: u64| self.jobs.get(&task).map_or(now, |j| j.since);
        let waiting = self.waiting.iter().map(|(_, task)| *task);
        let mut late: Vec<_> = waiting.filter(|t| since(*t) + PATIENCE <= now).collect();
        // The initiators get the answers in the order of their commands.
        late.sort_unstable();
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

    /// Handles a new connection of a CE or to an RS.
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

    pub(super) fn store(&self, peer: Peer) -> Option<usize> {
        let open = |s: &Store| s.peer == peer && !matches!(s.state, State::Idle(_));
        self.stores.iter().position(open)
    }

    pub(super) fn close(&mut self, peer: Peer) {
        self.actions.push(Action::Close { peer });
        self.closed(peer);
    }

    /// Handles a connection that has ended or failed.
    pub fn closed(&mut self, peer: Peer) {
        if let Some(n) = self.store(peer) {
            if self.stores[n].state.up() {
                self.say(format!("RS {:?} is lost", self.stores[n].number));
            }
            self.stores[n].state = State::Idle(self.now + RETRY);
            // The RS ends its answer channels, too.
            if let Some(number) = self.stores[n].number {
                self.sessions.drop_store(number);
            }
            for request in self.requests.values_mut().filter(|r| r.sent == Some(peer)) {
                request.sent = None;
            }
        }
        if let Some((Some(member), _)) = self.peers.remove(&peer) {
            self.say(format!("CE {member} is lost"));
            self.fence(member, None);
        }
    }

    /// Handles a message.
    pub fn message(&mut self, peer: Peer, bytes: &[u8]) {
        let now = self.now;
        let message = Message::parse(bytes);
        if let Some(n) = self.store(peer) {
            if let Some(pulse) = self.stores[n].state.pulse() {
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
            (Some(m), Ok(Message::Join { id, initiator })) => {
                self.join(peer, Answerer::Ce(m), *id, initiator);
            }
            (
                Some(m),
                Ok(Message::Left {
                    status,
                    id,
                    session,
                }),
            ) => self.left(Answerer::Ce(m), *status, *id, *session),
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

    pub(super) fn store_message(&mut self, n: usize, peer: Peer, message: Result<Message, Broken>) {
        let up = self.stores[n].state.up();
        let this = Answerer::Rs(self.stores[n].number.unwrap_or(0));
        match message {
            Ok(Message::Alive) => {}
            Ok(Message::Attached {
                status: Status::Good,
                number,
                ..
            }) if !up && self.stores[n].number.is_some_and(|known| known != number) => {
                self.say(format!("{this} is expected, and RS {number} is there"));
                self.close(peer);
            }
            Ok(Message::Attached {
                status: Status::Good,
                number,
                boot,
                ..
            }) if !up => {
                self.stores[n].state = State::Up(Pulse::new(self.now));
                self.stores[n].places.found();
                self.stores[n].number = Some(number);
                self.say(format!("attached to RS {number}"));
                self.booted(number, boot);
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
            Ok(Message::Join { id, initiator }) if up => self.join(peer, this, id, &initiator),
            Ok(Message::Left {
                status,
                id,
                session,
            }) if up => self.left(this, status, id, session),
            Ok(Message::Done { status, id, value }) if up => {
                let sent = self.requests.get(&id).is_some_and(|r| r.sent == Some(peer));
                let request = if sent {
                    self.requests.remove(&id)
                } else {
                    None
                };
                match request.map(|r| (r.what, r.begun)) {
                    Some((What::Open(store, object), _)) => {
                        self.opened(store, object, status, value);
                    }
                    Some((What::Flush(task, object), begun)) => {
                        if status == Status::Good {
                            self.losses.flushed(object, begun);
                        } else {
                            self.unflushable(object);
                        }
                        self.flushed(task, id, status);
                    }
                    None => {}
                }
            }
            other => {
                self.say(misused(peer, &other));
                self.close(peer);
            }
        }
    }

    /// Returns the objects of an RS whose sizes are unknown.
    pub(super) fn wanted(&self, store: u32) -> BTreeSet<u32> {
        let all = self.settings.units.iter().flatten();
        let unknown = all.filter(|o| o.0 == store && !self.sizes.contains_key(o));
        unknown.map(|o| o.1).collect()
    }

    pub(super) fn ask(
        &mut self,
        store: u32,
        message: impl FnOnce(u64) -> Message,
        what: What,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        // Replace an earlier query for the same object.
        self.requests
            .retain(|_, r| r.what != what || !matches!(what, What::Open(..)));
        let request = Request {
            store,
            message: message(id),
            what,
            begun: self.losses.time(),
            sent: None,
        };
        self.requests.insert(id, request);
        id
    }

    pub(super) fn ask_again(&mut self, number: u32) {
        let found = self
            .stores
            .iter()
            .find(|s| s.state.up() && s.number == Some(number));
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

    pub(super) fn opened(&mut self, store: u32, object: u32, status: Status, blocks: u64) {
        if status != Status::Good || blocks < self.settings.line {
            let why = format!("RS {store} has no object {object} of at least a line");
            return self.actions.push(Action::End(why));
        }
        self.sizes.insert((store, object), blocks);
        self.begin();
    }

    /// Opens the target when all RSs have fenced older SEs and all sizes are known.
    pub(super) fn begin(&mut self) {
        let ready = self.stores.iter().all(|s| s.fenced);
        if !ready || self.open() {
            return;
        }
        let numbers: BTreeSet<_> = self.stores.iter().filter_map(|s| s.number).collect();
        if numbers.len() != self.stores.len() {
            let why = format!("two RS have one number: {numbers:?}");
            return self.actions.push(Action::End(why));
        }
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
            let all = list.iter().map(|o| o.blocks / self.settings.extent);
            if all.fold(0, u64::saturating_add) > MAX_EXTENTS {
                let why = format!("{objects:?} is too large for extents of this size");
                return self.actions.push(Action::End(why));
            }
            let map = Map::new(&list, self.settings.extent, self.settings.line);
            let geometry = Geometry {
                blocks: map.blocks(),
                read_only: false,
                max_transfer: self.settings.max_transfer,
                max_unmap: self.settings.max_transfer / 512,
                max_ranges: 1,
            };
            self.maps.push(map);
            let name = format!("{objects:?}");
            let unit = Unit::elsewhere(geometry, name.as_bytes(), self.settings.guid);
            units.push(Arc::new(unit));
        }
        self.say("all RS are here".into());
        self.target.open(units);
    }
}
