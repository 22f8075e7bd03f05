// SPDX-License-Identifier: GPL-2.0

//! The submission path of a command. A command that cannot be sent is given back for a retry or
//! ended at once. Any context.

use super::{
    trace,
    Channel,
    Connection,
    Held, //
};
use crate::{
    errno::ENOTCONN,
    random::random_u64,
    scsi::{
        self,
        Busy,
        Command,
        Rejected,
        ScsiResult, //
    },
    srp::{
        error::Lost,
        log::session_log_ratelimited,
        logic::{
            credit,
            data_path,
            slot_state::Event,
            state::Life,
            tag::Tag, //
        },
        mapping, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    }, //
};

impl Connection {
    /// Sends a command that has this tag. The RCU read-side section `posting` began before this
    /// channel was chosen: teardown waits for its end, and then ends the commands posted in it.
    ///
    /// # Errors
    ///
    /// Gives the command back for lack of a slot, a credit, memory or a connection.
    ///
    /// Context: as [`Driver::queue_command`](crate::scsi::Driver::queue_command).
    #[inline(always)]
    pub fn queue(
        &self,
        posting: &rcu::Guard,
        cmd: Command,
        tag: scsi::Tag,
    ) -> Result<(), Rejected> {
        if self.status.state().is_lost() {
            return self.refuse(cmd);
        }
        let index = tag.index;
        let Some(cell) = self.slots.get(usize::from(index)) else {
            cmd.done(ScsiResult::DID_ERROR);
            return Ok(());
        };
        // The slot with the index of the tag is free, unless a command of a hardware queue without
        // an open channel has it.
        match cell.claim(random_u64, cmd.lun(), tag) {
            Some(slot) => self.send(posting, cmd, slot, index),
            None => self.queue_anywhere(posting, cmd, tag),
        }
    }

    /// Sends a command from any free slot.
    #[cold]
    #[inline(never)]
    fn queue_anywhere(
        &self,
        posting: &rcu::Guard,
        cmd: Command,
        tag: scsi::Tag,
    ) -> Result<(), Rejected> {
        let lun = cmd.lun();
        let mut slots = (0u16..).zip(&self.slots);
        match slots.find_map(|(index, cell)| Some((index, cell.claim(random_u64, lun, tag)?))) {
            Some((index, slot)) => self.send(posting, cmd, slot, index),
            None => self.busy(cmd),
        }
    }

    /// Sends a command from `slot`, number `index`.
    #[inline(always)]
    fn send(
        &self,
        posting: &rcu::Guard,
        cmd: Command,
        mut slot: Held<'_>,
        index: u16,
    ) -> Result<(), Rejected> {
        if !self.counts.take_credit(credit::RESERVE_COMMAND) {
            slot.release_after(Event::Cancel);
            return self.without_credit(cmd);
        }
        if let Err(cmd) = slot.handle.attach(cmd) {
            let _ = self.counts.give_credits(1);
            slot.release_after(Event::Cancel);
            return self.busy(cmd);
        }
        let thresholds = data_path::Thresholds {
            immediate: self.immediate.load(Relaxed),
            static_read: self.status.geometry.static_read,
        };
        let prepared = match Tag::command(slot.word().generation(), self.index, index) {
            Some(tag) => self
                .live(posting)
                .and_then(|live| mapping::prepare(&mut slot, &live, tag.to_wire(), thresholds)),
            None => Err(EINVAL),
        };
        let wr = match prepared {
            Ok(wr) => wr,
            Err(e) => return self.unprepared(slot, e),
        };
        trace::send(self, &slot, slot.word());
        // The completion of an invalidation also frees the send-queue entries before it.
        let signaled = !slot.path.is_dynamic() && self.counts.signal();
        // Release the slot first: the response may come before the doorbell returns.
        slot.release_after(Event::Post);
        let posted = wr.post(signaled);
        if let Err(e) = posted {
            self.fail(Lost::Post(e));
        }
        Ok(())
    }
}

impl Channel {
    /// Undoes the preparation of a command that could not be mapped or must not be sent.
    #[cold]
    fn unprepared(&self, mut slot: Held<'_>, why: Error) -> Result<(), Rejected> {
        // Returning a credit that was taken cannot exceed the maximum.
        let _ = self.counts.give_credits(1);
        let cmd = slot.handle.detach().ok().flatten();
        slot.release_after(Event::Cancel);
        match cmd {
            Some(cmd) if why == ENOMEM || why == ENOTCONN => self.busy(cmd),
            Some(cmd) => {
                session_log_ratelimited!(
                    Warning,
                    self.status,
                    "command of {} bytes in {} segments cannot be sent: error {}",
                    cmd.data_len(),
                    cmd.segments(),
                    why.to_errno()
                );
                cmd.done(ScsiResult::DID_ERROR);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Gives a command back for lack of a credit, and has the session check whether credits come.
    #[cold]
    #[inline(never)]
    fn without_credit(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.credit_waits.increment();
        self.owner.as_arc_borrow().credit_missing();
        self.busy(cmd)
    }

    /// Gives a command back for a retry.
    fn busy(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.busy.increment();
        Err(Rejected {
            cmd,
            why: Busy::Host,
        })
    }

    /// Rejects a command while there is no connection.
    #[cold]
    fn refuse(&self, cmd: Command) -> Result<(), Rejected> {
        let state = self.status.state();
        let result = match state.life {
            Life::Live | Life::Recovering if state.failing => ScsiResult::DID_TRANSPORT_FAILFAST,
            // The devices are blocked. This command was dispatched earlier, or comes from the error
            // handler, which retries.
            Life::Live | Life::Recovering => {
                return self.busy(cmd);
            }
            _ => ScsiResult::DID_NO_CONNECT,
        };
        cmd.done(result);
        Ok(())
    }
}
