// SPDX-License-Identifier: GPL-2.0

//! Taking commands back from the target: the error handling of one channel.

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
            session::TSK_MGMT_TIMEOUT_MS,
            slot::{
                Event,
                State,
                Word, //
            },
            tag::Tag, //
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
    /// Aborts the command with this tag, which is for the unit: has the target forget it, if it may have it, and
    /// waits until the slot has given it up. Returns whether it has; `None` if no slot of this channel has such a
    /// command. Sleeps.
    pub fn abort(&self, tag: scsi::Tag, lun: Lun) -> Option<bool> {
        let (index, cell, word) = self.find(tag)?;
        let generation = word.generation();
        // What the target has answered meanwhile is on its way to being free.
        if is_out(&word) && self.begin_abort(cell, word) && !self.is_lost() {
            let Some(task) = Tag::command(generation, self.index, index) else {
                return Some(false);
            };
            let result = self
                .task
                .run(self, Function::AbortTask, lun, task.to_wire());
            // Anything but "complete" proves nothing, so the command stays ours, unless the target has
            // answered it meanwhile or the connection is lost.
            if self.is_complete("abort of a command", result) {
                self.take_back(
                    cell,
                    word.with_state(State::Aborting),
                    ScsiResult::DID_ABORT,
                );
            } else if cell.holds(generation) && !self.is_lost() {
                return Some(false);
            }
        }
        Some(self.wait_freed(cell, generation))
    }

    /// Resets the unit and ends the commands for it that were sent on this channel. Returns whether the target
    /// has. Sleeps.
    pub fn reset_unit(&self, lun: Lun) -> bool {
        // Another reset that ends meanwhile lets the midlayer send commands behind this one.
        let Ok(commands) = self.all_out(lun) else {
            return false;
        };
        let result = self.task.run(self, Function::LunReset, lun, NO_TASK);
        if !self.is_complete("LUN reset", result) {
            return false;
        }
        self.finish_unit(lun, &commands);
        true
    }

    /// Says in the log why a task management request has not done what it should.
    fn is_complete(&self, what: &str, result: Result<TmfStatus>) -> bool {
        match result {
            Ok(status) if status.is_complete() => return true,
            Ok(status) => session_log_ratelimited!(
                Warning,
                self.status,
                "{what} failed: {}",
                format_args!("{status}")
            ),
            Err(e) => {
                session_log_ratelimited!(
                    Warning,
                    self.status,
                    "{what} failed: error {}",
                    e.to_errno()
                )
            }
        }
        false
    }

    /// The slot that has the command with this tag, its number and state.
    fn find(&self, tag: scsi::Tag) -> Option<(u16, &Cell, Word)> {
        let all = (0u16..).zip(&self.slots);
        all.into_iter()
            .find_map(|(index, cell)| Some((index, cell, cell.of_tag(tag)?)))
    }

    /// Says that the command is going to be aborted, if its state is still `word`, Posted or
    /// Aborting, and the connection is not lost.
    ///
    /// The command was handed over before its doorbell, so its sender may still be at work on the slot when it is Posted. A
    /// command that has timed out has no sender any more: `blk_mq_timeout_work()` waits for a grace period
    /// (`blk_mq_wait_quiesce_done()`, block/blk-mq.c:1754) before it calls for the error handler. That is one
    /// of RCU, as the tag set of a SCSI host whose `queuecommand()` never sleeps is not `BLK_MQ_F_BLOCKING`.
    fn begin_abort(&self, cell: &Cell, word: Word) -> bool {
        let _posting = rcu::read_lock();
        !self.is_lost() && (word.state() == State::Aborting || cell.abort(word))
    }

    /// The target says that it will not touch the command of this slot any more: ends it, if its
    /// state is still `word`.
    fn take_back(&self, cell: &Cell, word: Word, result: ScsiResult) {
        let _posting = rcu::read_lock();
        if self.is_lost() {
            // The end of the connection is that of the command.
            return;
        }
        cell.recall(word.generation());
        if let Some(slot) = cell.take_from(word, Event::Answer) {
            self.counts.unanswered.increment();
            self.conclude(slot, result);
        }
    }

    /// The target may have a command.
    pub fn has_any_out(&self) -> bool {
        self.slots.iter().any(|cell| is_out(&cell.word()))
    }

    /// The target may have a command for the unit.
    pub fn has_out(&self, lun: Lun) -> bool {
        let out = |word: Word| is_out(&word);
        self.slots.iter().any(|c| c.for_unit(lun).is_some_and(out))
    }

    /// The commands for the unit that the target may have.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn all_out(&self, lun: Lun) -> Result<KVVec<(&Cell, Word)>> {
        // Memory may be reclaimed by writing to this very disk.
        noio(|| {
            let mut all = KVVec::new();
            for cell in &self.slots {
                if let Some(word) = cell.for_unit(lun).filter(is_out) {
                    all.push((cell, word), GFP_KERNEL)?;
                }
            }
            Ok(all)
        })
    }

    /// The target says that it will not touch these commands for the unit any more, which were sent on
    /// this channel before: ends them. Those that have not timed out are tried again.
    fn finish_unit(&self, lun: Lun, all: &[(&Cell, Word)]) {
        for &(cell, before) in all {
            let same = |now: &Word| is_out(now) && now.generation() == before.generation();
            if let Some(word) = cell.for_unit(lun).filter(same) {
                self.take_back(cell, word, ScsiResult::DID_RESET);
            }
        }
    }

    /// Waits until the slot has given up the command of this generation, at most 5 s. Sleeps. Returns whether it
    /// has.
    fn wait_freed(&self, cell: &Cell, generation: u32) -> bool {
        self.wait_until(|| !cell.holds(generation))
    }

    /// Waits until no slot is on the way from a command for the unit to being free, at most 5 s. Sleeps. Returns
    /// whether there is none.
    pub fn wait_unit(&self, lun: Lun) -> bool {
        let going = |word: Word| matches!(word.state(), State::Responded | State::Invalidating);
        self.wait_until(|| {
            !self
                .slots
                .iter()
                .any(|c| c.for_unit(lun).is_some_and(going))
        })
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> bool {
        const SLICE: Msecs = 50;
        let end = ktime_get().add_ms(TSK_MGMT_TIMEOUT_MS);
        self.waiters.add(1, Relaxed);
        while !done() {
            self.freed.reinit();
            let left = end.ms_since(ktime_get());
            // It may have happened before `reinit`, and another waiter may take the wake-up for its
            // own, hence the slices.
            if left == 0 || done() {
                break;
            }
            let _ = self.freed.wait_timeout(left.min(SLICE));
        }
        self.waiters.add(-1, Relaxed);
        done()
    }
}
