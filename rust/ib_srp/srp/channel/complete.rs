// SPDX-License-Identifier: GPL-2.0

//! The completion path of a command: response, invalidation, and return to the midlayer.

use super::{
    control::{
        PROBE,
        TASK, //
    },
    trace,
    Channel,
    Connection,
    Counts,
    Held, //
};
use crate::{
    rdma::{
        qp::{
            self,
            Failure, //
        },
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
            data_path::DataPath,
            exchange::{
                self,
                Exchange, //
            },
            slot_state::{
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
        proto::rsp::{
            Good,
            Rsp,
            Transferred, //
        },
        slot::Slot, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    }, //
};

impl qp::Handler for Channel {
    #[inline(always)]
    fn received(connection: &Connection, message: &[u8], flags: Flags) {
        // After a violation, ignore all that this target sends.
        if connection.failed.load(Relaxed) {
            return;
        }
        // SRP uses neither immediate data nor remote invalidation.
        let odd = flags.with_imm() || flags.with_invalidate();
        if !odd && connection.good(message) {
            return;
        }
        let result = match odd {
            true => Err(Violation::Flags),
            false => connection.message(message),
        };
        if let Err(violation) = result {
            connection.fail(Lost::Violation(violation));
        }
    }

    #[inline(always)]
    fn invalidated(connection: &Connection, handle: usize) {
        let Some(cell) = connection.slots.get(handle) else {
            return;
        };
        let word = cell.word();
        if word.state() != State::Invalidating {
            return;
        }
        if let Some(slot) = cell.hold(word) {
            let result = slot.result;
            connection.end(slot, result);
        }
    }

    fn control_sent(connection: &Connection) {
        connection.replies.sent();
    }

    fn last_sent(connection: &Connection) {
        connection.logged_out.complete_all();
    }

    fn failed(connection: &Connection, failure: Failure) {
        connection.fail(Lost::Qp(failure));
    }
}

impl Connection {
    /// Handles `bytes` if they are the common successful response. Returns whether they are.
    #[inline]
    fn good(&self, bytes: &[u8]) -> bool {
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
        let Some(slot) = cell.take_from(posted, Event::Respond) else {
            return false;
        };
        self.counts.responded(slot.path, slot.len);
        if let (DataPath::Static, Some(piece), Some(cmd)) =
            (slot.path, &slot.bounce, slot.handle.get())
        {
            cmd.copy_to_buffer(piece.read(slot.len));
        }
        let credits = self.counts.give_credits(good.req_lim_delta);
        self.conclude(slot, ScsiResult::status(0));
        if let Err(violation) = credits {
            self.fail(Lost::Violation(violation));
        }
        true
    }

    /// Handles any response.
    pub(super) fn response(&self, rsp: &Rsp<'_>) -> Result<(), Violation> {
        self.counts.give_credits(rsp.req_lim_delta)?;
        let tag = Tag::from_wire(rsp.tag);
        let unknown = Violation::Tag(rsp.tag);
        if tag.channel() != self.index {
            return Err(unknown);
        }
        let generation = tag.generation();
        let known = match tag.kind() {
            Kind::Command(index) => return self.ended_by(rsp, tag, index, None),
            Kind::TskMgmt(TASK) => {
                let responded = Exchange::responded(generation, rsp.tmf_status());
                let known = self.task.response(responded);
                self.wake_task();
                known
            }
            Kind::TskMgmt(PROBE) => {
                let idle = Exchange::new(exchange::Phase::Idle, generation);
                self.probe.response(idle)
            }
            Kind::TskMgmt(_) => false,
        };
        match known {
            true => Ok(()),
            false => Err(unknown),
        }
    }

    /// Handles a response to the command in slot `index` of this channel. The response arrived on
    /// this channel, or on the answer channel with the counters `elsewhere`.
    pub(super) fn ended_by(
        &self,
        rsp: &Rsp<'_>,
        tag: Tag,
        index: u16,
        elsewhere: Option<&Counts>,
    ) -> Result<(), Violation> {
        let unknown = Violation::Tag(rsp.tag);
        let cell = self.slots.get(usize::from(index)).ok_or(unknown)?;
        let posted = Word::new(State::Posted, tag.generation());
        let Some(slot) = cell
            .take_from(posted, Event::Respond)
            .or_else(|| cell.take_from(posted.with_state(State::Aborting), Event::Respond))
        else {
            // The response may have crossed a LUN reset or an abort whose response came on
            // another channel.
            return if cell.is_recalled(tag.generation()) || self.status.state().is_lost() {
                Ok(())
            } else {
                Err(unknown)
            };
        };
        let (result, len) = self.result(&slot, rsp);
        elsewhere.unwrap_or(&self.counts).responded(slot.path, len);
        if elsewhere.is_some() {
            self.counts.elsewhere.increment();
        }
        self.conclude(slot, result);
        Ok(())
    }

    /// Ends the command of a slot in state Responded with `result`, after invalidating its
    /// registrations, if any.
    #[inline(always)]
    pub(super) fn conclude(&self, mut slot: Held<'_>, result: ScsiResult) {
        trace::response(self, &slot, slot.word(), result);
        if !slot.path.is_dynamic() {
            self.end(slot, result);
            return;
        }
        let section = rcu::read_lock();
        let invalidation = match self
            .live(&section)
            .and_then(|live| live.invalidation(&mut slot.handle))
        {
            Ok(Some(invalidation)) => Ok(invalidation),
            Ok(None) => return self.end(slot, result),
            Err(e) => Err(e),
        };
        slot.result = result;
        trace::invalidate(self, &slot, slot.word());
        // Release the slot first: the completion may come before the doorbell returns.
        slot.release_after(Event::Invalidate);
        if let Err(e) = invalidation.and_then(|invalidation| invalidation.post()) {
            self.fail(Lost::Post(e));
        }
    }
}

impl Channel {
    /// Applies a response to the command of a slot. Returns the result and the number of bytes
    /// transferred.
    fn result(&self, slot: &Slot, rsp: &Rsp<'_>) -> (ScsiResult, u32) {
        let Some(cmd) = slot.handle.get() else {
            return (ScsiResult::DID_ERROR, 0);
        };
        match rsp.outcome(cmd.data_len(), mapping::direction(cmd)) {
            Ok(mut outcome) => {
                if let (DataPath::Static, Some(piece)) = (slot.path, &slot.bounce) {
                    if !mapping::is_cleared(cmd) {
                        let known = outcome.transferred();
                        if known != Transferred::AllButResid {
                            // Bytes that the target has not written may be another user's data.
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
                    cmd.copy_to_buffer(piece.read(cmd.data_len() - outcome.resid));
                }
                cmd.set_resid(outcome.resid);
                (
                    cmd.with_sense(outcome.status, outcome.sense),
                    cmd.data_len() - outcome.resid,
                )
            }
            Err(fault) => {
                session_log_ratelimited!(
                    Warning,
                    self.status,
                    "invalid response to a command: {fault}"
                );
                (ScsiResult::DID_ERROR, 0)
            }
        }
    }

    /// Ends all commands. No slot is held, as no thread posts and no callback runs.
    pub(super) fn sweep(&self) {
        for cell in &self.slots {
            // The error handler may concurrently move a command from Posted to Aborting, once.
            let mut word = cell.word();
            let mut taken = cell.take_from(word, Event::Fail);
            if taken.is_none() {
                word = cell.word();
                taken = cell.take_from(word, Event::Fail);
            }
            if let Some(slot) = taken {
                let result = match word.state() {
                    // The target has completed the command; only the invalidation is missing.
                    State::Responded | State::Invalidating => slot.result,
                    _ => {
                        self.counts.without_response.increment();
                        lost_result(&slot)
                    }
                };
                self.end(slot, result);
            }
        }
        self.freed.complete_all();
    }

    /// Frees a slot and completes its command. If the command has timed out, the midlayer ignores
    /// the completion, and the error handler ends it.
    #[inline(always)]
    fn end(&self, mut slot: Held<'_>, result: ScsiResult) {
        let Ok(cmd) = slot.handle.detach() else {
            // The teardown of the connection will free the slot.
            self.fail(Lost::Post(EBUSY));
            slot.result = result;
            slot.release();
            return;
        };
        trace::done(self, &slot, slot.word(), result);
        // Free the slot first: once the command completes, the midlayer can reuse the tag.
        match slot.word().state() {
            State::Failed => slot.release_after(Event::Drained),
            _ => slot.release_after(Event::Finish),
        }
        if let Some(cmd) = cmd {
            cmd.done(result);
        }
        if self.waiters.load(Relaxed) != 0 {
            self.freed.complete_all();
        }
    }
}

/// The result of a command that was lost with its connection. The midlayer retries `DID_RESET` any
/// number of times within the command's time limit. `DID_TRANSPORT_DISRUPTED` counts as a retry,
/// and fails failfast requests at once.
fn lost_result(slot: &Slot) -> ScsiResult {
    match slot.handle.get() {
        Some(cmd) if !cmd.is_failfast() => ScsiResult::DID_RESET,
        _ => ScsiResult::DID_TRANSPORT_DISRUPTED,
    }
}
