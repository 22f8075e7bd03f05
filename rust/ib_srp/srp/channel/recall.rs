// SPDX-License-Identifier: GPL-2.0

//! Abort and LUN reset on one channel, and the tick's checks of its slots.

use super::Connection;
use crate::{
    scsi::{
        self,
        ScsiResult, //
    },
    srp::{
        ktime::ktime_get,
        log::session_log_ratelimited,
        logic::{
            credit,
            slot_state::{
                Event,
                State,
                Word, //
            },
            tag::Tag,
            time::TSK_MGMT_TIMEOUT_MS,
            watch::{
                Credits,
                Watch, //
            }, //
        },
        proto::{
            ids::Lun,
            tmf::{
                Function,
                TmfStatus,
                NO_TASK, //
            }, //
        },
        slot::Cell, //
    },
    sync::noio, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
    time::Msecs, //
};

fn is_out(word: &Word) -> bool {
    matches!(word.state(), State::Posted | State::Aborting)
}

impl Connection {
    /// Aborts the command with this tag at `lun`. Sends ABORT TASK if the target may have the
    /// command, then waits until its slot is free. Returns whether the slot is free; `None` if no
    /// slot of this channel has the command. Sleeps.
    pub fn abort(&self, tag: scsi::Tag, lun: Lun) -> Option<bool> {
        let (index, cell, word) = self.find(tag)?;
        let generation = word.generation();
        // A command whose response arrives meanwhile is about to be freed.
        if is_out(&word) && self.begin_abort(cell, word) && !self.status.state().is_lost() {
            let Some(task) = Tag::command(generation, self.index, index) else {
                return Some(false);
            };
            let result = self.manage_task(Function::AbortTask, lun, task.to_wire());
            // Any other result proves nothing, so keep the command, unless it has its response
            // meanwhile or the connection is lost.
            if self.is_complete("abort of a command", result) {
                self.take_back(
                    cell,
                    word.with_state(State::Aborting),
                    ScsiResult::DID_ABORT,
                );
            } else if cell.holds(generation) && !self.status.state().is_lost() {
                return Some(false);
            }
        }
        Some(self.wait_until(|| !cell.holds(generation)))
    }

    /// Resets the unit and ends the commands for it that were sent on this channel. Returns whether
    /// the target has reset it. Sleeps.
    pub fn reset_unit(&self, lun: Lun) -> bool {
        // A concurrent reset may finish first and unblock the device, so take a snapshot of the
        // commands that this reset covers.
        let mut commands = KVVec::new();
        for out in self.of_unit(lun).filter(|(_, word)| is_out(word)) {
            // Allocate without I/O: reclaim may write to this very disk.
            if noio(|| commands.push(out, GFP_KERNEL)).is_err() {
                return false;
            }
        }
        let result = self.manage_task(Function::LunReset, lun, NO_TASK);
        if !self.is_complete("LUN reset", result) {
            return false;
        }
        // The target no longer accesses them. The midlayer retries those that have not timed out.
        for (cell, before) in commands {
            let same = |now: &Word| is_out(now) && now.generation() == before.generation();
            if let Some(word) = cell.for_unit(lun).filter(same) {
                self.take_back(cell, word, ScsiResult::DID_RESET);
            }
        }
        true
    }

    /// Returns whether a task management request has completed. If not, logs the reason.
    fn is_complete(&self, what: &str, result: Result<TmfStatus>) -> bool {
        match result {
            Ok(TmfStatus::COMPLETE) => return true,
            Ok(status) => {
                session_log_ratelimited!(Warning, self.status, "{what} failed: {status}")
            }
            Err(e) => {
                let e = e.to_errno();
                session_log_ratelimited!(Warning, self.status, "{what} failed: error {e}")
            }
        }
        false
    }

    /// Returns the index of the slot that has the command with this tag, the slot, and its state.
    fn find(&self, tag: scsi::Tag) -> Option<(u16, &Cell, Word)> {
        let mut all = (0u16..).zip(&self.slots);
        all.find_map(|(index, cell)| Some((index, cell, cell.of_tag(tag)?)))
    }

    /// Marks the command as being aborted. Returns `false` if the connection is lost, or if the
    /// command was Posted in `word` and its state has changed.
    ///
    /// A slot becomes Posted before the doorbell is rung, so the submitter may still use it. A
    /// command that has timed out has no submitter left: `blk_mq_timeout_work()` waits for a grace
    /// period (`blk_mq_wait_quiesce_done()`, block/blk-mq.c:1754) before it invokes the error
    /// handler. This is an RCU grace period, as the `queuecommand()` of this driver never sleeps,
    /// so that the tag set is not `BLK_MQ_F_BLOCKING`.
    fn begin_abort(&self, cell: &Cell, word: Word) -> bool {
        let _posting = rcu::read_lock();
        !self.status.state().is_lost() && (word.state() == State::Aborting || cell.abort(word))
    }

    /// Ends the command of this slot, if its state is still `word`. The target no longer accesses
    /// the command.
    fn take_back(&self, cell: &Cell, word: Word, result: ScsiResult) {
        let _posting = rcu::read_lock();
        if self.status.state().is_lost() {
            // The teardown of the connection ends the command.
            return;
        }
        cell.recall(word.generation());
        if let Some(slot) = cell.take_from(word, Event::Respond) {
            self.counts.without_response.increment();
            self.conclude(slot, result);
        }
    }

    /// Whether the target may have a command.
    pub fn has_any_out(&self) -> bool {
        self.slots.iter().any(|cell| is_out(&cell.word()))
    }

    /// Checks whether commands wait for credits that do not come. Only the tick calls this.
    pub fn look_at_credits(&self, watch: &mut Watch) -> Credits {
        if !self.is_open() {
            return Credits::Enough;
        }
        // A command in Building will be refused, or the next check finds it.
        let out = self
            .slots
            .iter()
            .any(|cell| !matches!(cell.word().state(), State::Free | State::Building));
        // Read the credits after the slots: a slot is freed after its credit is given and its end
        // is counted.
        let stuck = !out && credit::take(self.credits(), credit::RESERVE_COMMAND).is_none();
        // CAST: Modulo 2^32.
        watch.credits(stuck, self.ended(), self.counts.credit_waits.get() as i32)
    }

    /// The slots with commands for the unit, and their states.
    fn of_unit(&self, lun: Lun) -> impl Iterator<Item = (&Cell, Word)> {
        let slots = self.slots.iter();
        slots.filter_map(move |cell| Some((cell, cell.for_unit(lun)?)))
    }

    /// Whether the target may have a command for the unit.
    pub fn has_out(&self, lun: Lun) -> bool {
        self.of_unit(lun).any(|(_, word)| is_out(&word))
    }

    /// Waits until all commands for the unit that have a response have ended, at most 5 s. Returns
    /// whether they have. Sleeps.
    pub fn wait_unit(&self, lun: Lun) -> bool {
        let going = |word: Word| matches!(word.state(), State::Responded | State::Invalidating);
        self.wait_until(|| !self.of_unit(lun).any(|(_, word)| going(word)))
    }

    /// Waits until `done` returns `true`, at most 5 s. Freed slots wake it. Returns the last result
    /// of `done`. Sleeps.
    fn wait_until(&self, done: impl Fn() -> bool) -> bool {
        const SLICE: Msecs = 50;
        let end = ktime_get().add_ms(TSK_MGMT_TIMEOUT_MS);
        self.waiters.add(1, Relaxed);
        while !done() {
            self.freed.reinit();
            let left = end.ms_since(ktime_get());
            // The slot may have been freed before `reinit`, and another waiter's `reinit` may undo
            // the wakeup, so wait in slices.
            if left == 0 || done() {
                break;
            }
            let _ = self.freed.wait_timeout(left.min(SLICE));
        }
        self.waiters.add(-1, Relaxed);
        done()
    }
}
