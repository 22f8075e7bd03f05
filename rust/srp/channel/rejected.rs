// SPDX-License-Identifier: GPL-2.0

//! Commands that are not sent: given back for a retry, or ended at once. Any context.

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
    /// Undoes the preparation of a command that could not be mapped or must not be sent.
    #[cold]
    pub(super) fn unprepared(&self, mut slot: Held<'_>, why: Error) -> Result<(), Rejected> {
        // Returning a credit that was taken cannot exceed the maximum.
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

    /// Gives a command back for a retry.
    pub(super) fn busy(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.busy.increment();
        Err(Rejected {
            cmd,
            why: Busy::Host,
        })
    }

    /// Rejects a command while there is no connection.
    #[cold]
    pub(super) fn refuse(&self, cmd: Command) -> Result<(), Rejected> {
        let result = match self.status.life() {
            Life::Live | Life::Recovering if self.status.is_failing() => {
                ScsiResult::DID_TRANSPORT_FAILFAST
            }
            // The midlayer blocks the host. This command passed earlier, or comes from the error
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
