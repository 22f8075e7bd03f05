// SPDX-License-Identifier: GPL-2.0

//! Answer channels: logins of initiators, which the SE admits, and the end of channels.

use srp_target::{
    proto::{
        login_iu::{BUF_FMT_DIRECT, BUF_FMT_INDIRECT},
        opcode,
        reject::Reject,
    },
    target::{ChannelId, MAX_IT_IU_LEN},
    wire::{self, LoginReq, Others, Reason, MIN_IT_IU_LEN},
};

use super::{Action, Engine, Job, Stage};
use crate::message::{Message, Status};

impl Engine {
    /// Handles a connection request of an initiator with this private data. An [`Action::Accept`]
    /// or an [`Action::Reject`] follows.
    pub fn login(&mut self, channel: ChannelId, data: &[u8]) {
        let req = match LoginReq::parse(data) {
            Ok(req) => req,
            Err(broken) => {
                self.say(format!("login: {broken}"));
                return self.reject(channel, 0, Reject::UNABLE_ESTABLISH_CHANNEL);
            }
        };
        let refused = if req.target != self.settings.id {
            Some(Reject::UNABLE_ASSOCIATE_CHANNEL)
        } else if req.it_iu_len > MAX_IT_IU_LEN {
            Some(Reject::REQ_IT_IU_LENGTH_TOO_LARGE)
        } else if req.buf_fmt & !(BUF_FMT_DIRECT | BUF_FMT_INDIRECT) != 0 {
            Some(Reject::UNSUPPORTED_DESCRIPTOR_FORMAT)
        } else if req.multichannel != 1 || req.it_iu_len < MIN_IT_IU_LEN {
            // Only the SE accepts a new session.
            Some(Reject::UNABLE_ESTABLISH_CHANNEL)
        } else if !self.attached() {
            Some(Reject::INSUFFICIENT_RESOURCES)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.say(format!("login refused: {}", reason.text().0));
            return self.reject(channel, req.tag, reason);
        }
        self.logins.insert(channel, req);
        self.tell_se(Message::Join {
            id: channel,
            initiator: req.initiator,
        });
    }

    pub(super) fn reject(&mut self, channel: ChannelId, tag: u64, reason: Reject) {
        self.actions.push(Action::Reject {
            channel,
            response: wire::login_rej(tag, reason, BUF_FMT_DIRECT | BUF_FMT_INDIRECT),
        });
    }

    pub(super) fn joined(&mut self, status: Status, channel: ChannelId, session: u64) {
        let Some(req) = self.logins.remove(&channel) else {
            // The initiator has given up the login.
            if status == Status::Good {
                self.never_was(channel, session);
            }
            return;
        };
        if status != Status::Good {
            return self.reject(channel, req.tag, Reject::UNABLE_ASSOCIATE_CHANNEL);
        }
        if self.sessions.contains_key(&session) {
            self.never_was(channel, session);
            return self.reject(channel, req.tag, Reject::CHANNEL_LIMIT_REACHED);
        }
        self.sessions.insert(session, channel);
        self.actions.push(Action::Accept {
            channel,
            response: wire::login_rsp(
                req.tag,
                0,
                req.it_iu_len,
                MIN_IT_IU_LEN,
                BUF_FMT_DIRECT | BUF_FMT_INDIRECT,
                Others::Maintained,
                false,
            ),
        });
    }

    /// Tells the SE that an admitted login has no answer channel.
    fn never_was(&mut self, channel: ChannelId, session: u64) {
        self.tell_se(Message::Left {
            status: Status::Stale,
            id: channel,
            session,
        });
    }

    /// Handles a message of an initiator. Only a logout is valid.
    pub fn received(&mut self, channel: ChannelId, bytes: &[u8]) {
        let why = match bytes.first() {
            Some(&opcode::I_LOGOUT) => None,
            _ => Some(Reason::Invalid),
        };
        if why.is_some() {
            self.say(format!("channel {channel} ended: it takes no requests"));
        }
        if self.sessions.values().any(|c| *c == channel) {
            self.forget(channel);
            self.leave(channel, why);
        }
        self.settle();
    }

    pub(super) fn leave(&mut self, channel: ChannelId, why: Option<Reason>) {
        self.actions.push(Action::Leave {
            channel,
            message: why.map(wire::t_logout),
        });
    }

    /// Removes an answer channel from its session.
    pub(super) fn forget(&mut self, channel: ChannelId) {
        let session = self
            .sessions
            .iter()
            .find(|(_, c)| **c == channel)
            .map(|(s, _)| *s);
        if let Some(session) = session {
            self.sessions.remove(&session);
            self.tell_se(Message::Left {
                status: Status::Lost,
                id: channel,
                session,
            });
            for id in self.of(session) {
                self.kill(id);
            }
        }
    }

    /// Handles an answer channel that has ended or failed. No transfer through it is in flight.
    pub fn ended(&mut self, channel: ChannelId) {
        self.logins.remove(&channel);
        self.forget(channel);
        let moving =
            |j: &Job| j.channel == channel && matches!(j.stage, Stage::Fetching | Stage::Answering);
        let over: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| moving(j))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.finish(id, Status::Lost);
        }
        self.settle();
    }

    /// Ends all answer channels.
    pub fn shutdown(&mut self) {
        for channel in self.sessions.values().copied().collect::<Vec<_>>() {
            self.forget(channel);
            self.leave(channel, Some(Reason::None));
        }
        self.settle();
    }
}
