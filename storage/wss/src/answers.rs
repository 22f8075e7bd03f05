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

/// How long a login waits until the role can serve it, in milliseconds. After a change of SE or RS
/// an initiator may come back before the roles know each other again, and tries a refused channel
/// again only seconds later.
const HOLD: u64 = 2000;
/// Maximum number of logins that wait so.
const HELD: usize = 256;

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
    /// Logins that wait until the role can serve them, and the times at which they are refused.
    held: BTreeMap<ChannelId, (LoginReq, u64)>,
    /// Logins that wait for the answer of the SE.
    logins: HashMap<ChannelId, LoginReq>,
    /// The channels, by session.
    sessions: BTreeMap<u64, ChannelId>,
    out: Vec<Out>,
}

impl Answers {
    pub(crate) fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            held: BTreeMap::new(),
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

    /// Number of logins that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + self.logins.len()
    }

    /// The channel of a session.
    pub(crate) fn channel(&self, session: u64) -> Option<ChannelId> {
        self.sessions.get(&session).copied()
    }

    fn say(&mut self, what: String) {
        self.out.push(Out::Say(what));
    }

    /// Handles a connection request of an initiator with this private data. [`Answers::serve`] has
    /// to follow.
    pub(crate) fn login(&mut self, channel: ChannelId, data: &[u8], now: u64) {
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
        } else if self.held.len() >= HELD {
            Some(Reject::INSUFFICIENT_RESOURCES)
        } else {
            None
        };
        match refused {
            Some(reason) => self.refuse(channel, req.tag, reason),
            None => drop(self.held.insert(channel, (req, now + HOLD))),
        }
    }

    fn refuse(&mut self, channel: ChannelId, tag: u64, reason: Reject) {
        self.say(format!("login refused: {}", reason.text().0));
        self.reject(channel, tag, reason);
    }

    /// Passes on the logins that have waited. `attached`: the role can ask the SE, and serve
    /// initiators. Call it at each tick, too.
    pub(crate) fn serve(&mut self, attached: bool, now: u64) {
        if self.held.is_empty() {
            return;
        }
        let over = |until: u64| attached || now >= until;
        let (over, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(_, (_, until))| over(*until));
        self.held = held;
        for (channel, (req, _)) in over {
            if !attached {
                self.refuse(channel, req.tag, Reject::INSUFFICIENT_RESOURCES);
                continue;
            }
            self.logins.insert(channel, req);
            self.out.push(Out::Tell(Message::Join {
                id: channel,
                initiator: req.initiator,
            }));
        }
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
        self.held.remove(&channel);
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

#[cfg(test)]
mod tests {
    use super::*;
    use srp_target::proto::{
        ids::PortId,
        login_iu::{LoginReqRdma, MultiChannel, Requested},
    };

    const TARGET: PortId = PortId([7; 16]);

    fn login(answers: &mut Answers, channel: ChannelId, now: u64) {
        let request = LoginReqRdma::new(&Requested {
            tag: channel,
            max_it_iu_len: 260,
            descriptors: 12,
            immediate: 0,
            multichannel: MultiChannel::Multi,
            initiator: PortId([1; 16]),
            target: TARGET,
        });
        answers.login(channel, request.as_bytes(), now);
    }

    /// The channels whose logins were passed on, and those that were refused.
    fn told(answers: &mut Answers) -> [Vec<ChannelId>; 2] {
        let mut all = [Vec::new(), Vec::new()];
        for out in answers.out() {
            match out {
                Out::Tell(Message::Join { id, .. }) => all[0].push(id),
                Out::Action(Action::Reject { channel, .. }) => all[1].push(channel),
                _ => {}
            }
        }
        all
    }

    #[test]
    fn a_login_waits_until_the_role_can_serve_it() {
        let mut answers = Answers::new(TARGET.0);
        for channel in 1..4 {
            login(&mut answers, channel, 1000 * channel);
            answers.serve(false, 1000 * channel);
        }
        answers.ended(3);
        // The first one has waited too long.
        assert_eq!(told(&mut answers), [vec![], vec![1]]);
        answers.serve(true, 3100);
        assert_eq!(told(&mut answers), [vec![2], vec![]]);
        assert_eq!(answers.waiting(), 1);
    }

    #[test]
    fn few_logins_wait() {
        let mut answers = Answers::new(TARGET.0);
        let count = HELD as u64 + 1;
        for channel in 0..count {
            login(&mut answers, channel, 0);
        }
        answers.serve(false, 1);
        assert_eq!(told(&mut answers), [vec![], vec![count - 1]]);
        answers.serve(false, HOLD);
        assert_eq!(told(&mut answers)[1].len(), HELD);
    }
}
