// SPDX-License-Identifier: GPL-2.0

//! Commands that wait for a credit.
//!
//! If no command is outstanding, nothing times out, so neither the midlayer nor the transport
//! notices.

use super::Session;
use crate::{
    srp::{
        error::Lost,
        logic::{
            session::DISK_TIMEOUT_MS,
            starving::{
                period_ms,
                Verdict, //
            }, //
        }, //
    },
    workqueue::{
        impl_has_delayed,
        Delayed,
        DelayedItem, //
    }, //
};
use kernel::{
    sync::Arc,
    time::Msecs, //
};

/// The next check.
pub(super) type Starving = Delayed<Session, STARVING>;
const STARVING: u64 = 8;
impl_has_delayed! { impl HasDelayed<STARVING> for Session { self.starving } }

impl Session {
    /// Maximum time that a command to a disk may take, in milliseconds.
    pub(in crate::srp) fn command_time(&self) -> Msecs {
        DISK_TIMEOUT_MS.max(self.nexus.time_allowed())
    }

    /// A command was refused for lack of a credit: checks whether credits come, until no command
    /// waits or the connection is lost. Any context.
    pub(super) fn begin_starving(self: &Arc<Self>) {
        // Fails if the timer is armed already, which suffices.
        let _ = Starving::schedule(self.clone(), period_ms(self.command_time()));
    }

    /// Stops the checks, until a command is refused. Sleeps.
    pub(super) fn end_starving(self: &Arc<Self>) {
        Starving::cancel_sync(self);
    }
}

impl DelayedItem<STARVING> for Session {
    fn run(this: Arc<Self>) {
        if this.is_lost() {
            // The next connection has its own credits; if they are too few, a command is refused
            // again.
            return;
        }
        let (Some(channels), _) = this.parts() else {
            return;
        };
        let mut wait = false;
        for channel in channels.iter() {
            match channel.check_credits() {
                Verdict::Rest => {}
                Verdict::Again => wait = true,
                Verdict::Starved => {
                    let seconds = this.command_time() / 1000;
                    return this.fail(Lost::Starved(channel.index(), seconds));
                }
            }
        }
        if wait {
            this.begin_starving();
        }
    }
}
