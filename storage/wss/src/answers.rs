// SPDX-License-Identifier: GPL-2.0

//! Answer channels of a CE or an RS: logins of initiators, which the SE admits, and the end of
//! channels.

use std::collections::{BTreeMap, HashMap};

use srp_target::{
    proto::{
        login_iu::{BUF_FMT_DIRECT, BUF_FMT_INDIRECT},
        opcode,
        reject::Reject,
    },
    target::{ChannelId, MAX_IT_IU_LEN},
    wire::{self, LoginReq, Others, Reason, MIN_IT_IU_LEN},
};

use crate::message::{Message, Status};

/// Work for the caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Accept an initiator, with receive buffers of [`srp_target::wire::MIN_IT_IU_LEN`] bytes.
    Accept {
        /// The channel.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// Reject an initiator.
    Reject {
        /// The channel.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// Send a message, if any, and end an answer channel; then tell the role that it has ended.
    Leave {
        /// The channel.
        channel: ChannelId,
        /// The logout.
        message: Option<Vec<u8>>,
    },
}

/// Work for the role, in list order.
pub(crate) enum Out {
    /// For the caller of the role.
    Action(Action),
    /// For the SE.
    Tell(Message),
    /// For the log.
    Say(String),
}

/// All answer channels.
pub(crate) struct Answers {
    /// The target port identifier of the system.
    id: [u8; 16],
    /// Logins that wait for the SE.
    logins: HashMap<ChannelId, LoginReq>,
    /// The channels, by session.
    sessions: BTreeMap<u64, ChannelId>,
    out: Vec<Out>,
}

impl Answers {
    pub(crate) fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            logins: HashMap::new(),
            sessions: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// Takes the pending work.
    pub(crate) fn out(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.out)
    }

    /// Number of channels.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Number of logins that wait for the SE.
    pub(crate) fn waiting(&self) -> usize {
        self.logins.len()
    }

    /// The channel of a session.
    pub(crate) fn channel(&self, session: u64) -> Option<ChannelId> {
        self.sessions.get(&session).copied()
    }

    fn say(&mut self, what: String) {
        self.out.push(Out::Say(what));
    }

    /// Handles a connection request of an initiator with this private data. `attached`: the role
    /// can ask the SE, and serve the initiator.
    pub(crate) fn login(&mut self, channel: ChannelId, data: &[u8], attached: bool) {
        let req = match LoginReq::parse(data) {
            Ok(req) => req,
            Err(broken) => {
                self.say(format!("login: {broken}"));
                return self.reject(channel, 0, Reject::UNABLE_ESTABLISH_CHANNEL);
            }
        };
        let refused = if req.target != self.id {
            Some(Reject::UNABLE_ASSOCIATE_CHANNEL)
        } else if req.it_iu_len > MAX_IT_IU_LEN {
            Some(Reject::REQ_IT_IU_LENGTH_TOO_LARGE)
        } else if req.buf_fmt & !(BUF_FMT_DIRECT | BUF_FMT_INDIRECT) != 0 {
            Some(Reject::UNSUPPORTED_DESCRIPTOR_FORMAT)
        } else if req.multichannel != 1 || req.it_iu_len < MIN_IT_IU_LEN {
            // Only the SE accepts a new session.
            Some(Reject::UNABLE_ESTABLISH_CHANNEL)
        } else if !attached {
            Some(Reject::INSUFFICIENT_RESOURCES)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.say(format!("login refused: {}", reason.text().0));
            return self.reject(channel, req.tag, reason);
        }
        self.logins.insert(channel, req);
        self.out.push(Out::Tell(Message::Join {
            id: channel,
            initiator: req.initiator,
        }));
    }

    fn reject(&mut self, channel: ChannelId, tag: u64, reason: Reject) {
        self.out.push(Out::Action(Action::Reject {
            channel,
            response: wire::login_rej(tag, reason, BUF_FMT_DIRECT | BUF_FMT_INDIRECT),
        }));
    }

    /// Handles the SE's answer to a login.
    pub(crate) fn joined(&mut self, status: Status, channel: ChannelId, session: u64) {
        let Some(req) = self.logins.remove(&channel) else {
            // The initiator has given up the login.
            if status == Status::Good {
                self.left(Status::Stale, channel, session);
            }
            return;
        };
        if status != Status::Good {
            return self.reject(channel, req.tag, Reject::UNABLE_ASSOCIATE_CHANNEL);
        }
        if self.sessions.contains_key(&session) {
            self.left(Status::Stale, channel, session);
            return self.reject(channel, req.tag, Reject::CHANNEL_LIMIT_REACHED);
        }
        self.sessions.insert(session, channel);
        self.out.push(Out::Action(Action::Accept {
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
        }));
    }

    fn left(&mut self, status: Status, id: ChannelId, session: u64) {
        self.out.push(Out::Tell(Message::Left {
            status,
            id,
            session,
        }));
    }

    /// Handles a message of an initiator: only a logout is valid. Returns the session of the
    /// channel, which ends.
    pub(crate) fn received(&mut self, channel: ChannelId, bytes: &[u8]) -> Option<u64> {
        let why = match bytes.first() {
            Some(&opcode::I_LOGOUT) => None,
            _ => Some(Reason::Invalid),
        };
        if why.is_some() {
            self.say(format!("channel {channel} ended: it takes no requests"));
        }
        self.drop(channel, why)
    }

    /// Ends a channel. Returns its session.
    pub(crate) fn drop(&mut self, channel: ChannelId, why: Option<Reason>) -> Option<u64> {
        let session = self.forget(channel)?;
        self.leave(channel, why);
        Some(session)
    }

    fn leave(&mut self, channel: ChannelId, why: Option<Reason>) {
        self.out.push(Out::Action(Action::Leave {
            channel,
            message: why.map(wire::t_logout),
        }));
    }

    /// Removes a channel from its session, which it returns.
    fn forget(&mut self, channel: ChannelId) -> Option<u64> {
        let mut all = self.sessions.iter();
        let session = *all.find(|(_, c)| **c == channel)?.0;
        self.sessions.remove(&session);
        self.left(Status::Lost, channel, session);
        Some(session)
    }

    /// Handles a channel that has ended or failed. Returns its session.
    pub(crate) fn ended(&mut self, channel: ChannelId) -> Option<u64> {
        self.logins.remove(&channel);
        self.forget(channel)
    }

    /// Ends the channel of a session that the SE fences.
    pub(crate) fn fence(&mut self, session: u64) {
        if let Some(channel) = self.sessions.remove(&session) {
            self.leave(channel, Some(Reason::None));
        }
    }

    /// Ends all channels when the SE is lost.
    pub(crate) fn alone(&mut self) {
        for (channel, req) in std::mem::take(&mut self.logins) {
            self.reject(channel, req.tag, Reject::INSUFFICIENT_RESOURCES);
        }
        for channel in std::mem::take(&mut self.sessions).into_values() {
            self.leave(channel, Some(Reason::None));
        }
    }

    /// Ends all channels. Returns their sessions.
    pub(crate) fn shutdown(&mut self) -> Vec<u64> {
        let channels: Vec<_> = self.sessions.values().copied().collect();
        let end = |channel: ChannelId| self.drop(channel, Some(Reason::None));
        channels.into_iter().filter_map(end).collect()
    }
}
