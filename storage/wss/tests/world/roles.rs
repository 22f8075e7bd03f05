// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of the roles on the simulated fabric.

use super::{
    connections::{Item, Source, Token},
    Node, World, OBJECT,
};
use srp_target::{
    target::{self, ChannelId},
    workers,
};
use wss::{answers, ce, message::Message, peer::Peer, rs, se};

/// Time in milliseconds after which a disconnect is forced.
const LEAVING: u64 = 300;

impl World {
    pub fn pump(&mut self, node: Node) {
        match node {
            Node::Se => self.pump_se(),
            Node::Ce(n) => self.pump_ce(n),
            Node::Rs(n) => self.pump_rs(n),
            Node::Initiator(_) => {}
        }
    }

    fn send(&mut self, node: Node, peer: Peer, message: &Message) {
        if let Some((id, side)) = self.find(node, peer, false) {
            self.push(id, side, Item::Message(message.build(), None));
        }
    }

    fn close_peer(&mut self, node: Node, peer: Peer) {
        if let Some((id, side)) = self.find(node, peer, false) {
            self.close(id, side);
        }
    }

    fn reject(&mut self, node: Node, channel: ChannelId) {
        if let Some((id, side)) = self.find(node, channel, true) {
            let conn = self.conns.get_mut(&id).unwrap();
            conn.queues[side].push_back(Item::Rejected);
            conn.sides[side].open = false;
        }
    }

    fn leave(&mut self, node: Node, channel: ChannelId, message: Option<Vec<u8>>) {
        if let Some((id, side)) = self.find(node, channel, true) {
            if let Some(message) = message {
                self.push(id, side, Item::Message(message, None));
            }
            let until = self.now + LEAVING;
            self.conns.get_mut(&id).unwrap().sides[side].until = Some(until);
        }
    }

    fn answer_channel(&mut self, node: Node, action: answers::Action) {
        match action {
            answers::Action::Accept { channel, response } => {
                if let Some((id, side)) = self.find(node, channel, true) {
                    self.push(id, side, Item::Accepted(response));
                }
            }
            answers::Action::Reject { channel, .. } => self.reject(node, channel),
            answers::Action::Leave { channel, message } => self.leave(node, channel, message),
        }
    }

    fn pump_se(&mut self) {
        const SE: Node = Node::Se;
        while let Some(engine) = &mut self.se {
            let actions = engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    se::Action::Connect { peer, store, place } => {
                        let to = Node::Rs(self.places(store)[place]);
                        self.connect(SE, peer, to, Vec::new());
                    }
                    se::Action::Send { peer, message } => self.send(SE, peer, &message),
                    se::Action::Close { peer } => self.close_peer(SE, peer),
                    se::Action::End(why) => panic!("the SE ends: {why}"),
                    se::Action::Target(action) => self.target(action),
                }
            }
        }
    }

    fn target(&mut self, action: target::Action<Vec<u8>>) {
        const SE: Node = Node::Se;
        use target::Action::*;
        match action {
            Accept {
                channel, response, ..
            } => {
                if let Some((id, side)) = self.find(SE, channel, true) {
                    self.push(id, side, Item::Accepted(response));
                }
            }
            Reject { channel, .. } => self.reject(SE, channel),
            Receive { .. } | Free { .. } => {}
            Say(what) => {
                if let Some(number) = what.strip_prefix("attached to RS 10") {
                    let number = number.parse::<usize>().unwrap();
                    self.attached.insert(number);
                    let first = number * OBJECT as usize;
                    self.history
                        .certain(first..first + OBJECT as usize, self.clock);
                }
                if let Some(at) = what.find(": a flush has failed") {
                    let number = what[..at].strip_prefix("RS 10").unwrap();
                    let first = number.parse::<usize>().unwrap() * OBJECT as usize;
                    self.history
                        .certain(first..first + OBJECT as usize, self.clock);
                }
                self.note(|| format!("Se: {what}"));
            }
            Fetch {
                channel,
                task,
                from,
            } => {
                if let Some((id, side)) = self.find(SE, channel, true) {
                    let list = from.iter().map(|d| (d.va(), d.key(), d.len())).collect();
                    self.push(id, side, Item::Read(list, Token::Fetch(task)));
                }
            }
            Execute { task, work } => {
                let into = (work.into > 0).then(|| vec![0; work.into]);
                let (task, done) = workers::execute(workers::Job { task, work, into });
                self.se.as_mut().unwrap().executed(task, done);
            }
            Answer {
                channel,
                task,
                data,
                message,
            } => {
                let Some((id, side)) = self.find(SE, channel, true) else {
                    return;
                };
                if let Some((bytes, descriptors)) = data {
                    let mut rest = &bytes[..];
                    let mut list = Vec::new();
                    for descriptor in descriptors {
                        let (part, behind) = rest.split_at(descriptor.len() as usize);
                        list.push((
                            descriptor.va(),
                            descriptor.key(),
                            Source::Bytes(part.to_vec()),
                        ));
                        rest = behind;
                    }
                    self.push(id, side, Item::Write(list, None));
                }
                self.push(id, side, Item::Message(message, task.map(Token::Answer)));
            }
            Leave { channel, message } => self.leave(SE, channel, message),
            Dispatch { .. } | Cancel { .. } | Gone { .. } => unreachable!(),
        }
    }

    fn pump_ce(&mut self, n: usize) {
        let node = Node::Ce(n);
        while let Some(engine) = &mut self.ces[n].engine {
            let actions = engine.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    ce::Action::Connect { peer, to, place } => {
                        let to = match to {
                            ce::To::Se => Node::Se,
                            ce::To::Store(n) => Node::Rs(self.places(n)[place]),
                        };
                        self.connect(node, peer, to, Vec::new());
                    }
                    ce::Action::Send { peer, message } => self.send(node, peer, &message),
                    ce::Action::Close { peer } => self.close_peer(node, peer),
                    ce::Action::Channel(action) => self.answer_channel(node, action),
                    ce::Action::Say(what) => self.note(|| format!("Ce({n}): {what}")),
                    ce::Action::Copy { from, to, len } => {
                        let (from, to, len) = (from as usize, to as usize, len as usize);
                        self.ces[n].arena.copy_within(from..from + len, to);
                    }
                    ce::Action::Fetch {
                        channel,
                        job,
                        segments,
                    } => {
                        let Some((id, side)) = self.find(node, channel, true) else {
                            continue;
                        };
                        let descriptors = segments.iter().map(|s| s.descriptor);
                        let list = descriptors.map(|p| (p.va(), p.key(), p.len())).collect();
                        let here = segments
                            .iter()
                            .map(|s| (s.at as usize, s.descriptor.len() as usize));
                        self.ces[n].fetches.insert(job, here.collect());
                        self.push(id, side, Item::Read(list, Token::Fetched(job)));
                    }
                    ce::Action::Answer {
                        channel,
                        job,
                        segments,
                        message,
                    } => {
                        let Some((id, side)) = self.find(node, channel, true) else {
                            continue;
                        };
                        for s in &segments {
                            let source = Source::Arena(s.at, s.descriptor.len());
                            let list = vec![(s.descriptor.va(), s.descriptor.key(), source)];
                            self.push(id, side, Item::Write(list, None));
                        }
                        self.push(id, side, Item::Message(message, Some(Token::Sent(job))));
                    }
                }
            }
        }
    }

    fn pump_rs(&mut self, n: usize) {
        let node = Node::Rs(n);
        while let Some(store) = &mut self.rss[n].store {
            let actions = store.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    rs::Action::Send { peer, message } => self.send(node, peer, &message),
                    rs::Action::Close { peer } => self.close_peer(node, peer),
                    rs::Action::Channel(action) => self.answer_channel(node, action),
                    rs::Action::Pull { peer, op, from } => {
                        if let Some((id, side)) = self.find_any(node, peer) {
                            let list = from.iter().map(|d| (d.va(), d.key(), d.len())).collect();
                            self.push(id, side, Item::Read(list, Token::Pulled(op)));
                        }
                    }
                    rs::Action::Push {
                        peer,
                        op,
                        to,
                        message,
                    } => {
                        let Some((id, side)) = self.find_any(node, peer) else {
                            continue;
                        };
                        let mut rest = &self.rss[n].memory[&op][..];
                        let mut list = Vec::new();
                        for d in &to {
                            let (part, behind) = rest.split_at(d.len() as usize);
                            list.push((d.va(), d.key(), Source::Bytes(part.to_vec())));
                            rest = behind;
                        }
                        let token = Some(Token::Pushed(op));
                        match message {
                            None => self.push(id, side, Item::Write(list, token)),
                            Some(message) => {
                                self.push(id, side, Item::Write(list, None));
                                self.push(id, side, Item::Message(message, token));
                            }
                        }
                    }
                    rs::Action::Execute { op, work, .. } => {
                        let mut at = self.clock;
                        if self.slow_disk > 0 && self.rng.one_in(self.slow_disk) {
                            at += self.rng.below(3000);
                        }
                        self.rss[n].pending.push((op, work, at));
                    }
                    rs::Action::Forget { op } => {
                        self.rss[n].memory.remove(&op);
                    }
                    rs::Action::Say(what) => self.note(|| format!("Rs({n}): {what}")),
                }
            }
        }
    }
}
