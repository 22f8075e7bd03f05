// SPDX-License-Identifier: GPL-2.0

//! The submission path of a command.

use super::{
    trace,
    Connection,
    Held, //
};
use crate::{
    random::random_u16,
    scsi::{
        self,
        Command,
        Rejected,
        ScsiResult, //
    },
    srp::{
        error::Lost,
        logic::{
            credit,
            registration,
            slot::Event,
            tag::Tag, //
        },
        mapping,
        proto::ids::Lun, //
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
        if self.is_lost() {
            return self.refuse(cmd);
        }
        let index = tag.index;
        let Some(cell) = self.slots.get(usize::from(index)) else {
            cmd.done(ScsiResult::DID_ERROR);
            return Ok(());
        };
        let random = random_u16();
        // The slot with the index of the tag is free, unless a command of a hardware queue without
        // an open channel has it.
        match cell.claim(random, Lun::from_int(cmd.lun()), tag) {
            Some(slot) => self.send(posting, cmd, slot, index),
            None => self.queue_anywhere(posting, cmd, random, tag),
        }
    }

    /// Sends a command from any free slot.
    #[cold]
    #[inline(never)]
    fn queue_anywhere(
        &self,
        posting: &rcu::Guard,
        cmd: Command,
        random: u16,
        tag: scsi::Tag,
    ) -> Result<(), Rejected> {
        let lun = Lun::from_int(cmd.lun());
        let mut slots = (0u16..).zip(&self.slots);
        match slots.find_map(|(index, cell)| Some((index, cell.claim(random, lun, tag)?))) {
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
        if !self.take_credit(credit::RESERVE_COMMAND) {
            slot.release_after(Event::Cancel);
            return self.without_credit(cmd);
        }
        if let Err(cmd) = slot.handle.attach(cmd) {
            let _ = self.give_credits(1);
            slot.release_after(Event::Cancel);
            return self.busy(cmd);
        }
        let thresholds = registration::Thresholds {
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
        // The completion of an invalidation also recycles the sends before it.
        let signaled = !slot.way.is_dynamic() && self.counts.signal();
        // Release the slot first: the response may come before the doorbell returns.
        slot.release_after(Event::Post);
        let posted = wr.post(signaled);
        if let Err(e) = posted {
            self.fail(Lost::Post(e));
        }
        Ok(())
    }
}
