// SPDX-License-Identifier: GPL-2.0

//! All channels of a session: which of them a command takes, its error handling, and how they end together.

use super::{
    channel::Connection,
    proto::ids::Lun, //
};
use crate::{
    scsi,
    sync::{
        noio,
        synchronize_rcu, //
    },
    workqueue::Crew, //
};
use core::ops::Deref;
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::Arc, //
};

/// The channels of a session, one for each hardware queue. Its answer channels, which nothing is sent on, are apart.
#[derive(Default)]
pub struct Channels {
    all: KVec<Arc<Connection>>,
    // These refer to the others.
    answers: KVec<Arc<Connection>>,
}

impl Channels {
    /// Adds a channel. May sleep.
    pub fn push(&mut self, connection: Arc<Connection>) -> Result<(), AllocError> {
        self.all.push(connection, GFP_KERNEL)
    }

    /// Adds an answer channel. May sleep.
    pub fn push_answers(&mut self, connection: Arc<Connection>) -> Result<(), AllocError> {
        self.answers.push(connection, GFP_KERNEL)
    }

    /// The answer channels.
    pub fn answers(&self) -> &[Arc<Connection>] {
        &self.answers
    }

    /// Channels of both kinds that are not connected.
    pub fn missing(&self) -> usize {
        Iterator::chain(self.iter(), self.answers.iter())
            .filter(|c| !c.is_open())
            .count()
    }

    /// The channel for a hardware queue: its own, or while that is not connected the next one.
    #[inline]
    pub fn for_hw_queue(&self, hw_queue: u16) -> Option<&Arc<Connection>> {
        let own = self.get(usize::from(hw_queue))?;
        match own.is_open() {
            true => Some(own),
            false => Some(self.instead_of(own, hw_queue)),
        }
    }

    #[cold]
    #[inline(never)]
    fn instead_of<'a>(&'a self, own: &'a Arc<Connection>, hw_queue: u16) -> &'a Arc<Connection> {
        let after = self.iter().skip(usize::from(hw_queue) + 1);
        // One that completes commands by itself. Without any the own one says why.
        Iterator::chain(after, self.iter())
            .find(|c| c.is_open() && !c.is_polled())
            .unwrap_or(own)
    }

    /// Aborts the command with this tag, which is for the unit. Returns whether the driver has given it up, which
    /// it may have done before. Sleeps.
    pub fn abort(&self, tag: scsi::Tag, lun: Lun) -> bool {
        self.iter().find_map(|c| c.abort(tag, lun)).unwrap_or(true)
    }

    /// Has the target reset the unit, and ends the commands for it that it had. Returns whether it has; a command
    /// that has timed out may still be held. Sleeps.
    pub fn reset_device(&self, lun: Lun) -> bool {
        // The midlayer holds commands back, but when a user wants the reset it does not wait for those
        // that it was just sending, each in an RCU read-side section. What is sent after the request must
        // not be taken for reset: the target would carry it out, and it would be sent again.
        synchronize_rcu();
        // The answer on a channel comes after all that was sent on it before, and proves nothing for
        // another channel, where a command may still be on its way.
        let mut reset = false;
        for connection in self.iter().filter(|c| c.has_out(lun)) {
            if !self.reset_unit(connection, lun) {
                return false;
            }
            reset = true;
        }
        if !reset && !self.first().is_some_and(|c| self.reset_unit(c, lun)) {
            return false;
        }
        for connection in self.iter() {
            connection.wait_unit(lun);
        }
        true
    }

    fn reset_unit(&self, connection: &Connection, lun: Lun) -> bool {
        let reset = connection.reset_unit(lun);
        if reset {
            for other in self.iter() {
                other.probe.recall(lun);
            }
        }
        reset
    }

    /// Has `crew` end the connections and their commands. Nobody must begin to post: the session is lost. Sleeps.
    ///
    /// A device may take a minute for each step of a queue pair, so all take it at the same time. There is no
    /// deadline: as long as a queue pair is not drained, the memory of its commands is not the midlayer's.
    ///
    /// A key is good on each connection of the protection domain, and an answer may come on another one than
    /// the command. So no command ends before all queue pairs are drained; those of answer channels go first, as
    /// their callbacks post on the others.
    pub fn end(&self, crew: &Crew) {
        let each = |all: &[_], answers: &[_], step: fn(&Connection)| {
            crew.each(all, answers, |connection: &Arc<Connection>| {
                // Memory that is reclaimed by writing to these very disks would not come before this is done.
                noio(|| step(connection));
            })
        };
        let all = |step| each(self, &self.answers, step);
        for connection in self.iter() {
            connection.task.wake();
        }
        all(Connection::hang_up);
        // Whoever has not seen that the session is lost has posted after this.
        synchronize_rcu();
        each(&[], &self.answers, Connection::shutdown);
        all(Connection::shutdown);
        all(|connection| {
            connection.close();
            connection.retire();
        });
        all(Connection::disconnect);
    }
}

impl Deref for Channels {
    type Target = [Arc<Connection>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// Whoever has one of them still must not connect it.
impl Drop for Channels {
    fn drop(&mut self) {
        // What goes below has one grace period for all, and so has what goes with the last reference.
        let both = || Iterator::chain(self.answers.iter(), self.iter());
        for connection in both() {
            connection.retire();
        }
        for connection in both() {
            let _ = connection.finish();
        }
    }
}
