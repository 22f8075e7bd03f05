// SPDX-License-Identifier: GPL-2.0

//! All channels of a session: command routing, error handling, and teardown.

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
    workqueue::WorkerPool, //
};
use core::ops::Deref;
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};

/// The channels of a session, one for each hardware queue, and its answer channels, which send
/// nothing.
#[derive(Default)]
pub struct Channels {
    all: KVec<Arc<Connection>>,
    // Answer channels refer to the channels in `all`.
    answer_channels: KVec<Arc<Connection>>,
}

impl Channels {
    /// Adds a channel. May sleep.
    pub fn push(&mut self, connection: Arc<Connection>) -> Result<(), AllocError> {
        self.all.push(connection, GFP_KERNEL)
    }

    /// Adds an answer channel. May sleep.
    pub fn push_answer_channel(&mut self, connection: Arc<Connection>) -> Result<(), AllocError> {
        self.answer_channels.push(connection, GFP_KERNEL)
    }

    /// The answer channels.
    pub fn answer_channels(&self) -> &[Arc<Connection>] {
        &self.answer_channels
    }

    /// The number of channels of both kinds that are not connected.
    pub fn missing(&self) -> usize {
        Iterator::chain(self.iter(), self.answer_channels.iter())
            .filter(|c| !c.is_open())
            .count()
    }

    /// Returns the channel of a hardware queue, or the next open one if that channel is not
    /// connected. The command must be posted in the section in which the channel is chosen.
    #[inline]
    pub fn for_hw_queue<'a>(
        &'a self,
        hw_queue: u16,
        _posting: &'a rcu::Guard,
    ) -> Option<&'a Arc<Connection>> {
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
        // Skip polled channels: commands must complete without a poller. If no other channel is
        // open, the queue's own channel rejects the command.
        Iterator::chain(after, self.iter())
            .find(|c| c.is_open() && !c.is_polled())
            .unwrap_or(own)
    }

    /// Aborts the command with this tag, which is for the unit `lun`. Returns whether the driver
    /// has given the command up, perhaps before this call. Sleeps.
    pub fn abort(&self, tag: scsi::Tag, lun: Lun) -> bool {
        self.iter().find_map(|c| c.abort(tag, lun)).unwrap_or(true)
    }

    /// Has the target reset the unit, and ends the commands that the target had for it. Returns
    /// whether the target has reset it; the driver may still hold a command that has timed out.
    /// Sleeps.
    pub fn reset_device(&self, lun: Lun) -> bool {
        // For a reset from user space the midlayer blocks the host and does not wait for
        // submissions in flight, each in an RCU read-side section. A command sent after the reset
        // request must not be ended as reset: the target would execute it, and the midlayer would
        // retry it.
        synchronize_rcu();
        // A response to a reset proves that the target has received all commands sent earlier on
        // the same channel. On another channel a command may still be in flight.
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
                other.recall_probe(lun);
            }
        }
        reset
    }

    /// Ends the connections and their commands, with `workers`. The session is marked as lost, so
    /// that no thread starts to post. Sleeps.
    ///
    /// A device may take a minute for each step of a queue pair, so the queue pairs take each step
    /// in parallel. There is no deadline: until a queue pair is drained, the memory of its commands
    /// must not go back to the midlayer.
    ///
    /// A key is valid on each connection of the protection domain, and a response may come on
    /// another connection than its command. So no command ends before all queue pairs are drained.
    /// The queue pairs of answer channels go first, since their callbacks post on the other
    /// channels.
    pub fn end(&self, workers: &WorkerPool) {
        let each = |all: &[_], answers: &[_], step: fn(&Connection)| {
            workers.each(all, answers, |connection: &Arc<Connection>| {
                // Reclaim may have to write to these disks, and such a write completes only after
                // the teardown.
                noio(|| step(connection));
            })
        };
        let all = |step| each(self, &self.answer_channels, step);
        for connection in self.iter() {
            connection.wake_task();
        }
        all(Connection::hang_up);
        // A sender that has not seen the loss has posted by the end of this grace period.
        synchronize_rcu();
        each(&[], &self.answer_channels, Connection::shutdown);
        all(Connection::shutdown);
        all(|connection| {
            connection.close();
            connection.retire();
        });
        all(Connection::destroy);
    }
}

impl Deref for Channels {
    type Target = [Arc<Connection>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// A caller that still holds a channel must not connect it.
impl Drop for Channels {
    fn drop(&mut self) {
        // One grace period covers all channels, both here and when the last references are dropped.
        let both = || Iterator::chain(self.answer_channels.iter(), self.iter());
        for connection in both() {
            connection.retire();
        }
        for connection in both() {
            let _ = connection.finish();
        }
    }
}
