// SPDX-License-Identifier: GPL-2.0

//! All messages of the target except the common response: other responses, requests, to which the
//! driver replies, and logout.

use super::{
    control::Control,
    Connection, //
};
use crate::{
    rdma::dma::Chunk,
    srp::{
        error::{
            Lost,
            Violation, //
        },
        log::session_log_ratelimited,
        logic::{
            exchange::Exchange,
            send_queue::REPLIES, //
        },
        proto::{
            message::{
                build_short,
                AerReq,
                Message, //
            },
            opcode,
            sense::Sense, //
        },
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu, //
    }, //
};

/// Memory for replies to the target, which are posted and sent in order.
pub(super) struct Replies {
    memory: KVec<Control>,
    /// Number of replies posted (`out`) and sent (`sent`), modulo 2^32. Completion callbacks, which
    /// are serialised, change them, and the teardown does so after the last callback.
    out: Atomic<u32>,
    sent: Atomic<u32>,
}

impl Replies {
    pub(super) fn new(chunks: &mut KVVec<Chunk>) -> Result<Self> {
        let mut memory = KVec::with_capacity(REPLIES as usize, GFP_KERNEL)?;
        for _ in 0..REPLIES {
            let chunk = chunks.pop().ok_or(ENOMEM)?;
            memory.push(Control::new(chunk), GFP_KERNEL)?;
        }
        Ok(Self {
            memory,
            out: Atomic::new(0),
            sent: Atomic::new(0),
        })
    }

    /// Counts all posted replies as sent: the queue pair is shut down.
    pub(super) fn reset(&self) {
        self.sent.store(self.out.load(Relaxed), Relaxed);
    }

    /// Releases the memory of the oldest posted reply.
    pub(super) fn sent(&self) {
        self.sent
            .store(self.sent.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl Connection {
    /// Handles any message except the common response.
    #[cold]
    pub(super) fn message(&self, bytes: &[u8]) -> Result<(), Violation> {
        let message = Message::parse(bytes).map_err(Violation::Message)?;
        match (message, &self.answer_channel) {
            (Message::Rsp(rsp), None) => self.response(&rsp),
            (Message::Rsp(rsp), Some(answers)) => answers.response(self, &rsp),
            (Message::TLogout(reason), _) => {
                self.fail(Lost::TLogout(reason));
                Ok(())
            }
            (_, Some(_)) => Err(Violation::AnswerChannelRequest),
            (Message::CredReq { req_lim_delta, tag }, None) => {
                self.counts.give_credits(req_lim_delta)?;
                self.reply(opcode::CRED_RSP, tag)
            }
            (Message::AerReq(request), None) => {
                self.counts.give_credits(request.req_lim_delta)?;
                self.report(&request);
                self.reply(opcode::AER_RSP, request.tag)
            }
        }
    }

    /// Handles an event report of the target.
    fn report(&self, request: &AerReq<'_>) {
        if Sense::parse(request.sense).is_some_and(|sense| sense.is_reported_luns_changed()) {
            self.owner.as_arc_borrow().units_changed();
        } else {
            let lun = request.lun;
            session_log_ratelimited!(
                Warning,
                self.status,
                "event report of the target for LUN {lun:?} ignored"
            );
        }
    }

    /// Replies to the request of the target with this tag.
    fn reply(&self, opcode: u8, tag: u64) -> Result<(), Violation> {
        let replies = &self.replies;
        let out = replies.out.load(Relaxed);
        if out.wrapping_sub(replies.sent.load(Relaxed)) >= REPLIES {
            return Err(Violation::Request);
        }
        let control = replies.memory.get((out % REPLIES) as usize);
        let control = control.ok_or(Violation::Request)?;
        replies.out.store(out.wrapping_add(1), Relaxed);
        let section = rcu::read_lock();
        let build = |iu: &mut [u8]| build_short(iu, opcode, tag);
        let idle = Exchange::default();
        match self.send_control(&section, control, (idle, idle), None, build, |wr| {
            wr.post_control()
        }) {
            Err(EBUSY) => Err(Violation::Request),
            // A reply takes no credit. If the device has refused it, the connection has failed.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
