// SPDX-License-Identifier: GPL-2.0

//! Who is in the set: what the client sees of the nodes, and the map that it wants.

use super::part::{Kind, Part, Stage};
use super::{Action, Client, Partner, REST};
use crate::{
    coordinator::{Request, View},
    layout::{Mask, NODES},
    link::GRACE,
    map::{Map, State},
    message::Message,
};

impl Client {
    pub(super) fn look(&mut self, view: View) {
        let parsed = view.map.as_ref().map(|(_, text)| Map::parse(text));
        if let Some(None) = parsed {
            return self.end("the map in etcd is none");
        }
        let map = parsed.flatten();
        let revision = view.map.as_ref().map_or(0, |(r, _)| *r);
        self.view = Some(view);
        let known = self.map.as_ref().map_or(0, |m| m.epoch);
        if let Some(map) = map
            .as_ref()
            .filter(|m| m.client == self.settings.id && m.epoch > known)
        {
            self.adopt(map.clone());
        } else if known > 0 && map.as_ref().is_none_or(|m| m.epoch != known) {
            return self.end("another client has changed the map");
        }
        if let Some(wanted) = self.wanted(map) {
            let (client, map) = (self.settings.id, wanted.text());
            let id = self.ask(Request::Change {
                revision,
                client,
                map,
            });
            self.asking = Some(id);
        }
    }

    /// A node that cannot do its part.
    pub(super) fn lost(&self, n: usize, map: &Map) -> bool {
        let partner = &self.partners[n];
        let vanished = self.view.as_ref().is_some_and(|v| v.nodes[n].is_none());
        let down = partner.link.down(self.now);
        down >= GRACE
            || (down > 0 && vanished)
            || partner.complained > self.now
            || self.other_file(n, map)
    }

    /// A node has not the file that the map means.
    pub(super) fn other_file(&self, n: usize, map: &Map) -> bool {
        let partner = &self.partners[n];
        let had = match map.states[n] {
            State::Up => !map.new,
            State::Rebuilding => partner.let_in == map.since[n],
            State::Out => false,
        };
        had && partner.attached.is_some_and(|a| a.since != map.since[n])
    }

    /// The map as it should be, if it is not so.
    pub(super) fn wanted(&self, map: Option<Map>) -> Option<Map> {
        let Some(map) = map else {
            let attached = |p: &Partner| p.link.up() && p.attached.is_some_and(|a| a.since == 0);
            return self
                .partners
                .iter()
                .all(attached)
                .then(|| Map::first(self.settings.id));
        };
        let mut next = map.clone();
        next.client = self.settings.id;
        next.epoch += 1;
        let ours = map.client == next.client;
        if !ours {
            return Some(next);
        }
        if map.new {
            next.new = false;
            return self.open.then_some(next);
        }
        for n in 0..NODES {
            let partner = &self.partners[n];
            match map.states[n] {
                State::Rebuilding if self.lost(n, &map) => next.states[n] = State::Out,
                State::Rebuilding
                    if self.open && self.size.is_some_and(|s| partner.built == s.stripes) =>
                {
                    next.states[n] = State::Up;
                }
                // Two may be lost. A third one has to come back as it was.
                State::Up if self.lost(n, &map) && next.mask(State::Up).count_ones() > 3 => {
                    next.states[n] = State::Out;
                }
                State::Out if self.open && partner.link.up() && self.now >= partner.rest => {
                    next.states[n] = State::Rebuilding;
                    next.since[n] = next.epoch;
                }
                _ => {}
            }
        }
        (next.states != map.states).then_some(next)
    }

    pub(super) fn adopt(&mut self, map: Map) {
        self.say(format!("map {}", map.text()));
        self.open = false;
        for (n, partner) in self.partners.iter_mut().enumerate() {
            if partner.complained > self.now {
                partner.rest = self.now + REST;
            }
            partner.complained = 0;
            partner.settled = 0;
            let before = self.map.as_ref().map_or(0, |m| m.since[n]);
            if map.since[n] != before {
                partner.built = 0;
            }
        }
        // Whoever is not as before begins anew.
        let partners = &self.partners;
        let over = |p: &Part| match p.kind {
            Kind::Rebuild(n) => {
                map.states[n] != State::Rebuilding || partners[n].built != p.span.stripe
            }
            _ => false,
        };
        let over: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, p)| over(p))
            .map(|(n, _)| *n)
            .collect();
        for number in over {
            self.part_over(number);
        }
        self.map = Some(map);
        for part in self.parts.values_mut() {
            if let Stage::Sent(_, n) = part.stage {
                part.stage = Stage::Waiting(self.now, Some(n));
            }
        }
        self.sent.clear();
        for n in 0..NODES {
            self.epoch(n);
        }
    }

    /// Tells a node the map.
    pub(super) fn epoch(&mut self, n: usize) {
        let Some(map) = self.map.clone() else {
            return;
        };
        let may = map.states[n] != State::Out && !self.other_file(n, &map);
        if may && self.partners[n].link.up() && !self.ended {
            let epoch = map.epoch;
            self.send(n, Message::Epoch { epoch }, map.text().as_bytes().into());
        }
    }

    pub(super) fn settled(&mut self, n: usize, epoch: u64) {
        let Some(map) = self.map.clone().filter(|m| m.epoch == epoch) else {
            return;
        };
        let partner = &mut self.partners[n];
        partner.settled = epoch;
        partner.let_in = map.since[n];
        if let Some(attached) = &mut partner.attached {
            attached.since = map.since[n];
        }
        if self.open {
            // It was away for a moment. What it had begun is done or will never be.
            self.tell(n, Message::Open { epoch });
            return self.resolved(Some(n));
        }
        let settled =
            |n: &usize| map.states[*n] == State::Out || self.partners[*n].settled == epoch;
        if !(0..NODES).all(|n| settled(&n)) {
            return;
        }
        self.open = true;
        for n in 0..NODES {
            if map.states[n] != State::Out {
                self.tell(n, Message::Open { epoch });
            }
        }
        self.say(format!("epoch {epoch} is open"));
        self.resolved(None);
        if let (false, false, Some(size)) = (self.ready, map.new, self.size) {
            self.ready = true;
            self.actions.push(Action::Ready(size));
        }
    }

    /// The nodes without a stripe.
    pub(super) fn lost_of(&self, stripe: u64) -> Mask {
        let Some(map) = &self.map else {
            return 0;
        };
        let gone = |n: &usize| match map.states[*n] {
            State::Up => false,
            State::Out => true,
            State::Rebuilding => stripe >= self.partners[*n].built,
        };
        (0..NODES).filter(gone).fold(0, |mask, n| mask | 1 << n)
    }
}
