// SPDX-License-Identifier: GPL-2.0

//! Membership: the client's view of the nodes, and the map that it proposes.

use std::collections::BTreeSet;

use super::cells::Cells;
use super::part::{Kind, Part, Stage};
use super::{Action, Attached, Client, Memory, Partner, REST};
use crate::{
    coordinator::{Request, View},
    layout::{has, Mask, Size, ALL, NODES},
    link::{Payload, GRACE},
    map::{Map, State},
    message::Message,
};

impl<B: Memory> Client<B> {
    pub(super) fn look(&mut self, view: View) {
        let parsed = view.map.as_ref().map(|(_, text)| Map::parse(text));
        if let Some(None) = parsed {
            return self.end("the map in etcd is none");
        }
        let map = parsed.flatten();
        if map.is_none() {
            self.strange();
        }
        let revision = view.map.as_ref().map_or(0, |(r, _)| *r);
        let known = self.map.as_ref().map_or(0, |m| m.epoch);
        if let Some(map) = map
            .as_ref()
            .filter(|m| m.client == self.settings.id && m.epoch > known)
        {
            self.adopt(map.clone());
        } else if known > 0 && map.as_ref().is_none_or(|m| m.epoch != known) {
            return self.end("another client has changed the map");
        }
        let up = |n: &usize| self.partners[*n].link.up();
        let up = (0..NODES).filter(up).fold(0, |mask, n| mask | 1 << n);
        let missing = |m: &Map| ALL & !(m.mask(State::Up) & up) | self.lost(m);
        if map.as_ref().is_some_and(|m| missing(m).count_ones() > 2) {
            self.crowd = Some(self.watch.now);
        }
        if let Some(wanted) = self.wanted(map) {
            let up = |m: &Map| m.mask(State::Up);
            self.rising |= up(&wanted) & !self.map.as_ref().map_or(ALL, up);
            let (client, map) = (self.settings.id, wanted.text());
            let id = self.ask(Request::Change {
                revision,
                client,
                map,
            });
            self.asking = Some(id);
        }
    }

    /// Returns the nodes that are unreachable or at fault, or have another file.
    pub(super) fn lost(&self, map: &Map) -> Mask {
        let now = self.watch.now;
        let guilty = self.complaints.guilty(map.mask(State::Out), now);
        let lost = |n: &usize| {
            let down = self.partners[*n].link.down(now);
            down >= GRACE || has(guilty, *n) || self.other_file(*n, map)
        };
        (0..NODES).filter(lost).fold(0, |mask, n| mask | 1 << n)
    }

    /// Returns whether a node has another file than the map expects.
    fn other_file(&self, n: usize, map: &Map) -> bool {
        let partner = &self.partners[n];
        let had = match map.states[n] {
            State::Up => !map.new,
            // If an earlier client admitted the node, later data is only in the file that the node
            // had then.
            State::Rebuilding => partner.let_in == map.since[n] || map.since[n] < self.first,
            State::Out => false,
        };
        let other = |a: &Attached| !a.fits(map) || (had && a.since != map.since[n]);
        partner.attached.as_ref().is_some_and(other)
    }

    /// Logs once that a node belongs to a set that etcd does not know.
    fn strange(&mut self) {
        let used = |p: &Partner| p.attached.is_some_and(|a| a.set != 0);
        let Some(n) = self.partners.iter().position(used) else {
            return;
        };
        if !std::mem::replace(&mut self.strange, true) {
            self.say(format!(
                "etcd has no map, but node {n} is of a set: is --set its name?"
            ));
        }
    }

    /// Returns the size of the set, or, without a map, of another node, if it differs from `size`.
    pub(super) fn other_size(&self, n: usize, size: Size) -> Option<Size> {
        let others = self.partners.iter().enumerate().filter(|(m, _)| *m != n);
        let mut others = others.filter_map(|(_, p)| p.attached.as_ref());
        let set = match &self.map {
            Some(map) => Some(map.size),
            None => others.next().map(|a| a.size),
        };
        set.filter(|s| *s != size)
    }

    /// Returns the map to propose; `None` to keep the current one.
    pub(super) fn wanted(&self, map: Option<Map>) -> Option<Map> {
        let Some(map) = map else {
            // The size of a new set is that of the files, if all agree.
            let size = self.partners[0].attached?.size;
            let same = |a: Attached| a.since == 0 && a.size == size;
            let mut all = self.partners.iter();
            return all
                .all(|p| p.link.up() && p.attached.is_some_and(same))
                .then(|| Map::first(self.settings.id, size));
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
        let lost = self.lost(&map);
        // With more than two nodes missing the set is unusable, so put no node out: the nodes must
        // return with their files. The grace period allows for nodes that return one by one.
        let few = self.crowd.is_none_or(|at| self.watch.now >= at + GRACE);
        for n in 0..NODES {
            let partner = &self.partners[n];
            match map.states[n] {
                State::Rebuilding if has(lost, n) => next.states[n] = State::Out,
                State::Rebuilding if self.open && partner.cells.whole() => {
                    next.states[n] = State::Up;
                }
                State::Up if has(lost, n) && few => next.states[n] = State::Out,
                State::Out
                    if self.open
                        && partner.attached.is_some_and(|a| a.fits(&map))
                        && self.now >= partner.rest =>
                {
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
        if self.map.is_none() {
            self.first = map.epoch;
        }
        (self.open, self.rising) = (false, 0);
        let guilty = self.complaints.guilty(0, self.watch.now);
        self.complaints.clear();
        self.given_up.clear();
        self.size = Some(map.size);
        // A node that is excluded may lack writes in flight.
        let writes = self.parts.values().filter(|p| p.kind == Kind::Write);
        let writes: BTreeSet<_> = writes.map(|p| p.span.stripe).collect();
        for (n, partner) in self.partners.iter_mut().enumerate() {
            if has(guilty, n) {
                partner.rest = self.now + REST;
            }
            partner.settled = 0;
            partner.hard.clear();
            let before = self.map.as_ref().map(|m| (m.states[n], m.since[n]));
            if before.is_some_and(|(state, _)| state != State::Out) && map.states[n] == State::Out {
                partner.cells.out();
                for stripe in &writes {
                    partner.cells.spoil(*stripe);
                }
            }
            let same = partner.attached.map(|a| a.since) == before.map(|(_, since)| since);
            if before.is_none_or(|(_, since)| since != map.since[n]) {
                partner.judged = partner.attached.map(|a| a.since);
                if !same {
                    partner.cells = Cells::none();
                }
            }
        }
        // Drop the rebuild parts that the new map makes obsolete.
        let partners = &self.partners;
        let over = |p: &Part| match p.kind {
            Kind::Rebuild(n) => {
                map.states[n] == State::Out || partners[n].cells.valid(p.span.stripe)
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

    /// A node attaches. If it is admitted and has not settled yet, its cells must be those of the
    /// file that it had when it was admitted.
    pub(super) fn judge(&mut self, n: usize, since: u64) {
        let partner = &mut self.partners[n];
        let Some(map) = &self.map else {
            return;
        };
        let admitted = map.states[n] == State::Rebuilding && partner.let_in != map.since[n];
        if admitted && since != map.since[n] && Some(since) != partner.judged {
            partner.cells = Cells::none();
        }
    }

    /// Sends the map to a node.
    pub(super) fn epoch(&mut self, n: usize) {
        let Some(map) = self.map.clone() else {
            return;
        };
        let attached = self.partners[n].attached;
        let size = attached.is_some_and(|a| a.size != map.size);
        if let Some(a) = attached.filter(|a| a.set != 0 && a.set != map.set) {
            let (other, set) = (a.set, map.set);
            return self.say(format!(
                "node {n} is refused: its file is of set {other}, not {set}"
            ));
        }
        // A node with a file of another size gets the map, too, so that it reports why it is
        // rejected.
        let may = size || (map.states[n] != State::Out && !self.other_file(n, &map));
        if may && self.partners[n].link.up() && !self.ended {
            let epoch = map.epoch;
            let text = Payload::Bytes(map.text().as_bytes().into());
            self.send(n, Message::Epoch { epoch }, text);
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
            attached.set = map.set;
        }
        if self.open {
            // The node has reconnected: its unfinished operations are done or will never be.
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
            // A node that is up in this client's first map lacks no write of this client.
            if !self.ready && map.states[n] == State::Up {
                self.partners[n].cells = Cells::all();
            }
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

    /// Returns the nodes without valid cells of a stripe.
    pub(super) fn lost_of(&self, stripe: u64) -> Mask {
        let Some(map) = &self.map else {
            return 0;
        };
        let gone = |n: &usize| match map.states[*n] {
            State::Up => false,
            State::Out => true,
            State::Rebuilding => !self.partners[*n].cells.valid(stripe),
        };
        let mut lost: Mask = (0..NODES).filter(gone).fold(0, |mask, n| mask | 1 << n);
        // Read around bad blocks, as long as that is possible.
        for n in (0..NODES).filter(|n| map.states[*n] == State::Up) {
            if !self.partners[n].cells.valid(stripe) && lost.count_ones() < 2 {
                lost |= 1 << n;
            }
        }
        lost
    }
}
