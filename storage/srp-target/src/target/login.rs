// SPDX-License-Identifier: GPL-2.0

//! Logins: admission and rejection.

use std::sync::Arc;

use super::{
    sessions::{Nexus, Refused},
    Action, Buffer, Channel, ChannelId, Target, MAX_IT_IU_LEN,
};
use crate::{
    acl,
    proto::{
        login_iu::{BUF_FMT_DIRECT, BUF_FMT_INDIRECT},
        reject::Reject,
    },
    wire::{login_rej, login_rsp, LoginReq, Others, CMD_LEN, MIN_IT_IU_LEN},
};

/// Maximum length of a message to the initiator, in bytes: a response with sense data.
const TI_IU_LEN: u32 = 64;
const BUF_FMT: u16 = BUF_FMT_DIRECT | BUF_FMT_INDIRECT;

/// A login that waits for the end of the previous session's channels and tasks.
pub(super) struct Login {
    pub(super) channel: ChannelId,
    /// The thread with the channel.
    pub(super) thread: usize,
    pub(super) req: LoginReq,
    pub(super) units: acl::Units,
    /// Whether this login terminated other channels.
    pub(super) terminated: bool,
}

impl<B: Buffer> Target<B> {
    /// Handles a connection request with this private data. An [`Action::Accept`] or an
    /// [`Action::Reject`] follows.
    pub fn login(&mut self, id: ChannelId, data: &[u8]) {
        let req = match LoginReq::parse(data) {
            Ok(req) => req,
            Err(broken) => {
                self.actions.push(Action::Say(format!("login: {broken}")));
                return self.reject(id, 0, Reject::UNABLE_ESTABLISH_CHANNEL);
            }
        };
        let result = self.check(&req).map_err(Refused::Reason).and_then(|()| {
            let most = self.settings.channels;
            self.sessions.login(self.thread, id, req, most)
        });
        match result {
            Ok(()) => self.obey(),
            Err(Refused::Reason(reason)) => {
                self.say(
                    &req.initiator,
                    &format!("login refused: {}", reason.text().0),
                );
                self.reject(id, req.tag, reason);
            }
            Err(Refused::Unlisted(new)) => {
                if new {
                    self.say(
                        &req.initiator,
                        "login refused: it is not in the list of --allow",
                    );
                }
                // The reason that LIO gives.
                self.reject(id, req.tag, Reject::CHANNEL_LIMIT_REACHED);
            }
        }
    }

    /// Rejects a connection for lack of memory or queue pairs.
    pub fn no_resources(&mut self, id: ChannelId) {
        let tag = self.channels.get(&id).map_or(0, |c| c.tag);
        self.ended(id);
        self.reject(id, tag, Reject::INSUFFICIENT_RESOURCES);
    }

    fn reject(&mut self, channel: ChannelId, tag: u64, reason: Reject) {
        self.actions.push(Action::Reject {
            channel,
            response: login_rej(tag, reason, BUF_FMT),
        });
    }

    fn check(&self, req: &LoginReq) -> Result<(), Reject> {
        if req.target != self.settings.id {
            return Err(Reject::UNABLE_ASSOCIATE_CHANNEL);
        }
        if req.it_iu_len > MAX_IT_IU_LEN {
            return Err(Reject::REQ_IT_IU_LENGTH_TOO_LARGE);
        }
        if req.buf_fmt & !BUF_FMT != 0 {
            return Err(Reject::UNSUPPORTED_DESCRIPTOR_FORMAT);
        }
        if req.it_iu_len < MIN_IT_IU_LEN || req.multichannel > 1 {
            return Err(Reject::UNABLE_ESTABLISH_CHANNEL);
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, login: &Login, nexus: Arc<Nexus>, others: Others) {
        let req = &login.req;
        // Immediate data must start after the CDB and inside of the message.
        let place = |at: &u16| usize::from(*at) >= CMD_LEN + 4 && u32::from(*at) < req.it_iu_len;
        let immediate = req.immediate.filter(place);
        let depth = self.settings.queue_depth;
        self.channels.insert(
            login.channel,
            Channel {
                tag: req.tag,
                initiator: req.initiator,
                nexus,
                credits: depth,
                owed: 0,
                immediate,
                leaving: false,
            },
        );
        self.actions.push(Action::Accept {
            channel: login.channel,
            response: login_rsp(
                req.tag,
                depth,
                req.it_iu_len,
                TI_IU_LEN,
                BUF_FMT,
                others,
                immediate.is_some(),
            ),
            // One more than the credits: a logout needs no credit.
            receives: depth as usize + 1,
            len: req.it_iu_len as usize,
        });
    }
}
