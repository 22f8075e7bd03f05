// SPDX-License-Identifier: GPL-2.0

//! What the target sends.

use super::{
    Channel,
    Connection, //
};
use crate::{
    rdma::{
        dma::Chunk,
        wc::Flags, //
    },
    scsi::ScsiResult,
    srp::{
        error::{
            Lost,
            Violation, //
        },
        log::session_log_ratelimited,
        logic::{
            registration::Way,
            send_queue::ANSWERS,
            slot::{
                Event,
                State,
                Word, //
            },
            tag::{
                Kind,
                Tag, //
            }, //
        },
        mapping,
        probe::PROBE, //
        proto::{
            error::BuildError,
            message::Message,
            misc::{
                self,
                AerReq, //
            },
            rsp::{
                Good,
                Rsp,
                Transferred, //
            },
            sense::Sense, //
        },
    },
    sync::state_cell::StateCell,
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Memory for answers to the target, which go out and are sent one after the other.
pub(super) struct Replies {
    memory: KVec<StateCell<Chunk>>,
    /// Answers that went out, and that were sent, modulo 2^32; changed by completion callbacks
    /// only, of which one runs at a time.
    out: Atomic<u32>,
    sent: Atomic<u32>,
}

impl Replies {
    pub(super) fn new(chunks: &mut KVVec<Chunk>) -> Result<Self> {
        let mut memory = KVec::with_capacity(ANSWERS as usize, GFP_KERNEL)?;
        for _ in 0..ANSWERS {
            let chunk = chunks.pop().ok_or(ENOMEM)?;
            memory.push(StateCell::new(0, chunk), GFP_KERNEL)?;
        }
        Ok(Self {
            memory,
            out: Atomic::new(0),
            sent: Atomic::new(0),
        })
    }

    /// The queue pair that the answers went out on is gone.
    pub(super) fn reset(&self) {
        self.sent.store(self.out.load(Relaxed), Relaxed);
    }

    /// The memory of the oldest answer may be used again.
    pub(super) fn sent(&self) {
        self.sent
            .store(self.sent.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl Channel {
    /// Takes the usual response, and says whether it was one.
    #[inline]
    pub(super) fn good(&self, connection: &Connection, bytes: &[u8]) -> bool {
        let Some(good) = Good::parse(bytes) else {
            return false;
        };
        let tag = Tag::from_wire(good.tag);
        let Kind::Command(index) = tag.kind() else {
            return false;
        };
        let Some(cell) = self.slots.get(usize::from(index)) else {
            return false;
        };
        if tag.channel() != self.index {
            return false;
        }
        let posted = Word::new(State::Posted, tag.generation());
        let Some(slot) = cell.take_from(posted, Event::Answer) else {
            return false;
        };
        self.counts.answered(slot.way, slot.len);
        if let (Way::Static, Some(piece), Some(cmd)) = (slot.way, &slot.bounce, slot.handle.get()) {
            cmd.copy_to_buffer(piece.take(slot.len));
        }
        let credits = self.give_credits(good.req_lim_delta);
        self.settle(connection, cell, slot, ScsiResult::status(0));
        if let Err(violation) = credits {
            self.fail(Lost::Violation(violation));
        }
        true
    }

    #[cold]
    pub(super) fn message(
        &self,
        connection: &Connection,
        bytes: &[u8],
        flags: Flags,
    ) -> Result<(), Violation> {
        if flags.is_unexpected() {
            return Err(Violation::Flags);
        }
        match Message::parse(bytes).map_err(Violation::Message)? {
            Message::Rsp(rsp) => self.response(connection, &rsp),
            Message::CredReq(request) => {
                self.give_credits(request.req_lim_delta)?;
                self.reply(connection, |iu| misc::cred_rsp(iu, request.tag))
            }
            Message::AerReq(request) => {
                self.give_credits(request.req_lim_delta)?;
                self.report(&request);
                self.reply(connection, |iu| misc::aer_rsp(iu, request.tag))
            }
            Message::TLogout(logout) => {
                self.fail(Lost::TLogout(logout.reason, logout.reason_name()));
                Ok(())
            }
        }
    }

    /// An event that the target reports.
    fn report(&self, request: &AerReq<'_>) {
        if Sense::parse(request.sense).is_some_and(|sense| sense.is_reported_luns_changed()) {
            self.session.units_changed();
        } else {
            session_log_ratelimited!(
                Warning,
                self.session,
                "event report of the target for LUN {} ignored",
                format_args!("{:?}", request.lun)
            );
        }
    }

    fn response(&self, connection: &Connection, rsp: &Rsp<'_>) -> Result<(), Violation> {
        self.give_credits(rsp.req_lim_delta)?;
        let tag = Tag::from_wire(rsp.tag);
        let unknown = Violation::Tag(rsp.tag);
        if tag.channel() != self.index {
            return Err(unknown);
        }
        let index = match tag.kind() {
            Kind::TskMgmt(0) if self.task.answer(tag, rsp.tmf_status()) => return Ok(()),
            Kind::TskMgmt(PROBE) if self.probe.answer(tag) => return Ok(()),
            Kind::TskMgmt(_) => return Err(unknown),
            Kind::Command(index) => usize::from(index),
        };
        let cell = self.slots.get(index).ok_or(unknown)?;
        let posted = Word::new(State::Posted, tag.generation());
        let Some(slot) = cell
            .take_from(posted, Event::Answer)
            .or_else(|| cell.take_from(posted.with_state(State::Aborting), Event::Answer))
        else {
            // It may have crossed a reset of the unit on another channel.
            return if cell.is_recalled(tag.generation()) || self.is_lost() {
                Ok(())
            } else {
                Err(unknown)
            };
        };
        let (result, len) = self.result(&slot, rsp);
        self.counts.answered(slot.way, len);
        self.settle(connection, cell, slot, result);
        Ok(())
    }

    /// Takes over what a response says about the command of a slot; also returns how many bytes of its data went.
    fn result(&self, slot: &super::Slot, rsp: &Rsp<'_>) -> (ScsiResult, u32) {
        let Some(cmd) = slot.handle.get() else {
            return (ScsiResult::DID_ERROR, 0);
        };
        match rsp.outcome(cmd.data_len(), mapping::direction(cmd)) {
            Ok(mut outcome) => {
                if let (Way::Static, Some(piece)) = (slot.way, &slot.bounce) {
                    if !mapping::is_cleared(cmd) {
                        let known = outcome.transferred();
                        if known != Transferred::AllButResid {
                            // The rest may be of another user.
                            outcome.resid = cmd.data_len();
                        }
                        let again = match known {
                            Transferred::UpTo(block) => {
                                cmd.len_up_to(block) > 0 && !cmd.is_failfast_driver()
                            }
                            Transferred::NoSense => true,
                            Transferred::AllButResid | Transferred::Unknown => false,
                        };
                        if again {
                            cmd.set_resid(outcome.resid);
                            return (ScsiResult::DID_SOFT_ERROR, cmd.data_len() - outcome.resid);
                        }
                    }
                    cmd.copy_to_buffer(piece.take(cmd.data_len() - outcome.resid));
                }
                cmd.set_resid(outcome.resid);
                if !outcome.sense.is_empty() {
                    cmd.set_sense(outcome.sense);
                }
                (
                    ScsiResult::status(outcome.status),
                    cmd.data_len() - outcome.resid,
                )
            }
            Err(fault) => {
                session_log_ratelimited!(
                    Warning,
                    self.session,
                    "response to a command: {}",
                    format_args!("{fault}")
                );
                (ScsiResult::DID_ERROR, 0)
            }
        }
    }

    /// Answers a request of the target.
    fn reply(
        &self,
        connection: &Connection,
        build: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
    ) -> Result<(), Violation> {
        let replies = &self.replies;
        let out = replies.out.load(Relaxed);
        if out.wrapping_sub(replies.sent.load(Relaxed)) >= ANSWERS {
            return Err(Violation::Request);
        }
        let cell = replies.memory.get((out % ANSWERS) as usize);
        let mut iu = cell
            .and_then(|cell| cell.acquire(0, 0))
            .ok_or(Violation::Request)?;
        let message = match build(iu.bytes_mut()) {
            Ok(len) => iu.message(len),
            Err(_) => Err(EMSGSIZE),
        };
        iu.release(0);
        replies.out.store(out.wrapping_add(1), Relaxed);
        if let Err(e) = message.and_then(|message| connection.post_control(message)) {
            self.fail(Lost::Post(e));
        }
        Ok(())
    }
}
