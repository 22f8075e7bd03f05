// SPDX-License-Identifier: GPL-2.0

//! Commands that a CE passes on, and the answer channels for them.

use srp_target::target::ChannelId;

use super::{Action, Given, Out, Stage, Status, Store, Transfer, Who};
use crate::{
    message::{Exec, Message},
    peer::Peer,
};

impl Store {
    /// Starts a command.
    pub(super) fn exec(&mut self, peer: Peer, member: u32, exec: &Exec) {
        let [extent] = exec.extents[..] else {
            return self.done(peer, exec.id, Status::Invalid, 0);
        };
        let whole = exec.direct && exec.zero.is_none() && exec.moved() > 0 && exec.sound();
        if extent.store != self.number || !whole {
            return self.done(peer, exec.id, Status::Invalid, 0);
        }
        let Some(channel) = self.answers.channel(exec.session) else {
            return self.done(peer, exec.id, Status::Stale, 0);
        };
        let given = Given {
            session: exec.session,
            channel,
            descriptors: exec.descriptors.clone(),
            response: exec.response(),
        };
        let transfer = Transfer {
            id: exec.id,
            object: extent.object,
            at: extent.at,
            blocks: extent.blocks,
            stable: exec.stable,
            va: 0,
            key: 0,
        };
        let stage = match exec.write {
            true => Stage::Pulling,
            false => Stage::Reading,
        };
        self.transfer(peer, member, transfer, (stage, None), Some(given));
    }

    /// Handles a connection request of an initiator with this private data. An action follows
    /// later that accepts or rejects it.
    pub fn login(&mut self, channel: ChannelId, data: &[u8]) {
        self.answers.login(channel, data, self.now);
        self.serve();
    }

    /// Passes on the logins that have waited until the SE is attached.
    pub(super) fn serve(&mut self) {
        let attached = self.connections.values().any(|c| c.who == Who::Se);
        self.answers.serve(attached, self.now);
        self.pass();
    }

    /// Handles a message of an initiator. Only a logout is valid.
    pub fn received(&mut self, channel: ChannelId, bytes: &[u8]) {
        self.answers.received(channel, bytes);
        self.pass();
    }

    /// Handles an answer channel that has ended or failed. No transfer through it is in flight.
    pub fn ended(&mut self, channel: ChannelId) {
        self.answers.ended(channel);
        self.pass();
        let mut over = Vec::new();
        for (id, op) in &self.ops {
            let here = op.given.as_ref().is_some_and(|g| g.channel == channel);
            if here && matches!(op.stage, Stage::Pulling | Stage::Pushing) {
                over.push(*id);
            }
        }
        for id in over {
            self.answer(id, Status::Lost);
        }
        self.settle();
    }

    /// Ends all answer channels.
    pub fn shutdown(&mut self) {
        self.answers.shutdown();
        self.pass();
    }

    /// Passes on the work of the answer channels.
    pub(super) fn pass(&mut self) {
        for out in self.answers.out() {
            match out {
                Out::Action(action) => self.actions.push(Action::Channel(action)),
                Out::Tell(message) => self.tell_se(message),
                Out::Say(what) => self.say(what),
            }
        }
    }

    fn tell_se(&mut self, message: Message) {
        let mut all = self.connections.iter();
        if let Some((peer, _)) = all.find(|(_, c)| c.who == Who::Se) {
            self.send(*peer, message);
        }
    }
}
