// SPDX-License-Identifier: GPL-2.0

//! Taking commands back from the target, for the error handler.

use super::Connection;
use crate::{
    scsi::{
        self,
        ScsiResult, //
    },
    srp::{
        ktime::ktime_get,
        logic::slot::{
            Event,
            State,
            Word, //
        },
        proto::ids::Lun,
        slot::Cell, //
    },
    sync::NoIo, //
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
    /// The slot that has the command with this tag, its number and state.
    pub fn find(&self, tag: scsi::Tag) -> Option<(u16, &Cell, Word)> {
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
    pub fn begin_abort(&self, cell: &Cell, word: Word) -> bool {
        let _posting = rcu::read_lock();
        !self.is_lost() && (word.state() == State::Aborting || cell.abort(word))
    }

    /// The target says that it will not touch the command of this slot any more: ends it, if its
    /// state is still `word`.
    pub fn finish_abort(&self, index: u16, word: Word) {
        if let Some(cell) = self.slots.get(usize::from(index)) {
            self.take_back(cell, word, ScsiResult::DID_ABORT);
        }
    }

    fn take_back(&self, cell: &Cell, word: Word, result: ScsiResult) {
        let _posting = rcu::read_lock();
        if self.is_lost() {
            // The end of the connection is that of the command.
            return;
        }
        cell.recall(word.generation());
        if let Some(slot) = cell.take_from(word, Event::Answer) {
            self.counts.unanswered.increment();
            self.conclude(cell, slot, result);
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
    pub fn all_out(&self, lun: Lun) -> Result<KVVec<(&Cell, Word)>> {
        // Memory may be reclaimed by writing to this very disk.
        let _noio = NoIo::enter();
        let mut all = KVVec::new();
        for cell in &self.slots {
            if let Some(word) = cell.for_unit(lun).filter(is_out) {
                all.push((cell, word), GFP_KERNEL)?;
            }
        }
        Ok(all)
    }

    /// The target says that it will not touch these commands for the unit any more, which were sent on
    /// this channel before: ends them. Those that have not timed out are tried again.
    pub fn finish_unit(&self, lun: Lun, all: &[(&Cell, Word)]) {
        for &(cell, before) in all {
            let same = |now: &Word| is_out(now) && now.generation() == before.generation();
            if let Some(word) = cell.for_unit(lun).filter(same) {
                self.take_back(cell, word, ScsiResult::DID_RESET);
            }
        }
    }

    /// Waits until the slot has given up the command of this generation, at most `timeout`
    /// milliseconds. Sleeps. Returns whether it has.
    pub fn wait_freed(&self, cell: &Cell, generation: u32, timeout: Msecs) -> bool {
        self.wait_until(timeout, || !cell.holds(generation))
    }

    /// Waits until no slot is on the way from a command for the unit to being free, at most
    /// `timeout` milliseconds. Sleeps. Returns whether there is none.
    pub fn wait_unit(&self, lun: Lun, timeout: Msecs) -> bool {
        let going = |word: Word| matches!(word.state(), State::Responded | State::Invalidating);
        self.wait_until(timeout, || {
            !self
                .slots
                .iter()
                .any(|c| c.for_unit(lun).is_some_and(going))
        })
    }

    fn wait_until(&self, timeout: Msecs, done: impl Fn() -> bool) -> bool {
        const SLICE: Msecs = 50;
        let end = ktime_get().add_ms(timeout);
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
