// SPDX-License-Identifier: GPL-2.0

//! Commands that are not sent: given back to be tried again, or ended at once. Any context.

use super::{
    Channel,
    Held, //
};
use crate::{
    errno::ENOTCONN,
    scsi::{
        Busy,
        Command,
        Rejected,
        ScsiResult, //
    },
    srp::{
        log::session_log_ratelimited,
        logic::{
            session::Life,
            slot::Event, //
        }, //
    },
};
use kernel::prelude::*;

impl Channel {
    /// Takes back what was done for a command that could not be mapped, or is not to be sent.
    #[cold]
    pub(super) fn unprepared(&self, mut slot: Held<'_>, why: Error) -> Result<(), Rejected> {
        // What was ours cannot exceed the maximum.
        let _ = self.give_credits(1);
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

    /// Gives a command back, to be tried again.
    pub(super) fn busy(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.busy.increment();
        Err(Rejected {
            cmd,
            why: Busy::Host,
        })
    }

    /// Says what happens to a command while there is no connection.
    #[cold]
    pub(super) fn refuse(&self, cmd: Command) -> Result<(), Rejected> {
        let result = match self.status.life() {
            Life::Live | Life::Recovering if self.status.is_failing() => {
                ScsiResult::DID_TRANSPORT_FAILFAST
            }
            // The midlayer holds commands back; this is one that it had let through before, or one
            // of the error handler, which tries again.
            Life::Live | Life::Recovering => {
                return self.busy(cmd);
            }
            _ => ScsiResult::DID_NO_CONNECT,
        };
        cmd.done(result);
        Ok(())
    }
}
