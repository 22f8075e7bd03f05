// SPDX-License-Identifier: GPL-2.0

//! The treatment of logins.

use srp_target::{
    proto::reject::Reject,
    target::{Action, Buffer, ChannelId},
    wire::{self, field, Others},
};

use super::{put, Channel, Rules, Step, DEPTH};
use crate::orders::{Logins, Message};

/// More credits than possible.
const TOO_MANY: i32 = i32::MAX;

/// The port that a login arrives at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Port {
    /// The port for commands.
    Commands,
    /// The port for channels that carry only responses.
    Answers,
}

impl<B: Buffer> Rules<B> {
    /// Handles a connection request with this private data.
    pub fn login(&mut self, id: ChannelId, data: &[u8], port: Port) {
        let Ok(mut req) = field::<56>(data, 0) else {
            return self.say(format!("FAILED: a login of {} bytes", data.len()));
        };
        let multi = req[10] & 1;
        match port {
            Port::Answers => self.say(format!("login for answers multi={multi}")),
            Port::Commands => self.say(format!("login multi={multi} length={}", data.len())),
        }
        let tag = u64::from_be_bytes(field(&req, 0).unwrap_or_default());
        let reason = match self.logins {
            Logins::Silent => return,
            Logins::Reject(reason) => Some(Reject::Srp(reason)),
            Logins::Only(most) if self.channels.len() >= most => {
                Some(Reject::INSUFFICIENT_RESOURCES)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return self.steps.push(Step::Act(Action::Reject {
                channel: id,
                response: wire::login_rej(tag, reason, 6),
            }));
        }
        if port == Port::Commands {
            // Accept any target port identifier, and grant no immediate data.
            req[10] &= !0x80;
            put(&mut req, 32, &self.id);
            self.target.login(id, &req);
            return self.filter();
        }
        let others = match multi {
            1 => Others::Maintained,
            _ => Others::None,
        };
        let response = wire::login_rsp(tag, 0, 1024, 96, 6, others, false);
        self.accept(id, response, DEPTH as usize + 1, 1024, true);
    }

    pub(super) fn accept(
        &mut self,
        id: ChannelId,
        mut response: Vec<u8>,
        receives: usize,
        len: usize,
        answers: bool,
    ) {
        let used = |n: &usize| self.channels.values().any(|c| c.number == *n);
        let number = (0..).find(|n| !used(n)).unwrap_or_default();
        self.channels.insert(id, Channel { number, answers });
        match &self.logins {
            Logins::Bytes(at, bytes) => put(&mut response, *at, bytes),
            Logins::Length(len) => response.truncate(*len),
            _ => {}
        }
        self.steps.push(Step::Act(Action::Accept {
            channel: id,
            response,
            receives,
            len,
        }));
    }

    /// A connection is established.
    pub fn established(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        self.say(format!("channel={}", channel.number));
        if self.logins == Logins::Break {
            self.send_first(&Message::Credits(TOO_MANY));
        }
    }
}
