// SPDX-License-Identifier: GPL-2.0

//! Carries out the orders that are for the rules.

use std::time::{Duration, Instant};

use srp_target::{
    proto::opcode,
    scsi::status,
    sense::Sense,
    target::{Action, Buffer, ChannelId},
};

use super::{
    command::{Header, Rule},
    put, Rules, Step,
};
use crate::orders::{Grants, Message, Order};

/// Tag of messages that answer no request.
const TAG: u64 = 0x1234_5678_90ab_cdef;

impl<B: Buffer> Rules<B> {
    /// Carries out an order. Returns false if it is not for the rules, or fails.
    pub fn told(&mut self, order: Order) -> bool {
        match order {
            Order::On {
                opcode,
                treatment,
                count,
            } => {
                self.rules.retain(|r| r.opcode != opcode && r.left > 0);
                self.rules.extend(treatment.map(|treatment| Rule {
                    opcode,
                    left: count,
                    treatment,
                }));
            }
            Order::Answer { data } => {
                for held in std::mem::take(&mut self.held) {
                    let Some(header) = Header::parse(&held.buffer[..held.len]) else {
                        continue;
                    };
                    if data {
                        self.execute(held.channel, &header, None, held.buffer, held.len);
                    } else {
                        self.respond(held.channel, &header, status::GOOD, &[]);
                        self.receive(held.channel, held.buffer);
                    }
                }
            }
            Order::Tasks { code, keep } => (self.code, self.keep) = (code, keep),
            Order::Abort(code) => self.abort_code = code,
            Order::Send(message) => return self.send_first(&message),
            Order::Logins(logins) => self.logins = logins,
            Order::Grants(grants) => (self.grants, self.granted) = (grants, Instant::now()),
            Order::ReceiveOff => self.receives = false,
            Order::Vendor(name) => self.vendor = Some(name),
            Order::Luns { count, size } => {
                let Some(units) = self.units.get(..count) else {
                    return false;
                };
                self.luns_size = size;
                self.target.open(units.to_vec());
                self.filter();
            }
            Order::Answers { here } => self.here = here,
            Order::Disconnect { only_answers } => {
                let all = self
                    .channels
                    .iter()
                    .filter(|(_, c)| c.answers || !only_answers);
                let leave = |(id, _): (&ChannelId, _)| Action::Leave {
                    channel: *id,
                    message: None,
                };
                self.steps.extend(all.map(leave).map(Step::Act));
            }
            Order::Requests { .. } | Order::ForgetRequests => return false,
        }
        true
    }

    /// Grants a credit that is due. Returns whether more will follow.
    pub fn tick(&mut self, now: Instant) -> bool {
        let Grants::Every(seconds) = self.grants else {
            return false;
        };
        if now >= self.granted + Duration::from_secs(seconds) {
            self.granted = now;
            self.send_first(&Message::Credits(1));
        }
        true
    }

    /// Sends a message on the first channel. Returns false if there is none.
    pub(super) fn send_first(&mut self, what: &Message) -> bool {
        let first = self.channels.iter().min_by_key(|(_, c)| c.number);
        let Some(id) = first.map(|(id, _)| *id) else {
            self.say("FAILED: no channel to send to".into());
            return false;
        };
        let mut message = vec![0; 16];
        put(&mut message, 8, &TAG.to_be_bytes());
        match *what {
            Message::Logout(reason) => {
                message[0] = opcode::T_LOGOUT;
                put(&mut message, 4, &reason.to_be_bytes());
            }
            Message::Credits(delta) => {
                message[0] = opcode::CRED_REQ;
                put(&mut message, 4, &delta.to_be_bytes());
            }
            Message::Report([key, asc, ascq]) => {
                message[0] = opcode::AER_REQ;
                let code = (asc, ascq);
                let information = None;
                let sense = Sense {
                    key,
                    code,
                    information,
                }
                .fixed();
                message.resize(36, 0);
                put(&mut message, 28, &(sense.len() as u32).to_be_bytes());
                message.extend(sense);
            }
        }
        self.send(id, message);
        true
    }
}
