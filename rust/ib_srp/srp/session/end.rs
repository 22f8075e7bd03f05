// SPDX-License-Identifier: GPL-2.0

//! The end of a session's connections, whatever the reason: the only error path.

use super::{
    reconnect::Connect,
    Session,
    END,
    LOGOUT_PATIENCE_MS, //
};
use crate::{
    srp::{
        error::{
            Lost,
            Trouble, //
        },
        ktime::{
            ktime_get,
            real_seconds, //
        },
        log::session_log,
        logic::{
            backoff::Cause,
            recovery::{
                Ended,
                Ending,
                Loss,
                Recovery, //
            },
            state::Life,
            window::Window, //
        },
        status::Owner, //
    },
    trace::trace,
    tracepoint::Text, //
};
use kernel::{
    impl_has_work,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::Msecs,
    workqueue::WorkItem, //
};

impl_has_work! { impl HasWork<Session, END> for Session { self.end } }

/// Maximum wait of a host reset for the next connection, in milliseconds. It covers the wait for a
/// permit and the timeout of a login.
const RESET_TIMEOUT_MS: Msecs = 60_000;

/// The losses, for the log and sysfs.
#[derive(Default)]
pub(super) struct News {
    /// The last trouble, and its time in seconds since 1970.
    last: Option<(i64, Trouble)>,
    /// Counts the losses: only a limited number is logged.
    losses: Window,
    /// The last loss was not logged.
    pub(super) quiet: bool,
}

impl Owner for Session {
    fn fail(self: ArcBorrow<'_, Self>, why: Lost) {
        Arc::from(self).lose(Some(why));
    }

    fn strike(&self, why: &Lost) {
        self.on(|recovery| recovery.strike(ktime_get()));
        self.say_lost(why);
    }

    fn answer_channel_lost(&self, number: usize, why: Option<&Lost>) {
        self.count_flap(number, why);
    }

    fn credit_missing(self: ArcBorrow<'_, Self>) {
        Arc::from(self).watch_credits();
    }

    fn units_changed(self: ArcBorrow<'_, Self>) {
        Arc::from(self).begin_rescan();
    }
}

impl Session {
    /// Ends a failed connection and its commands. A live session reconnects, a recovering one
    /// makes another attempt, any other ends.
    ///
    /// Logs the reason once for each connection, including one that is still being made. Any
    /// context, interrupts may be off.
    pub fn fail(self: &Arc<Self>, why: Lost) {
        self.lose(Some(why));
    }

    /// Ends the connection and waits until its commands have ended, for as long as the device
    /// takes; then waits for the next connection, at most 60 s. Returns whether the session is
    /// live. Sleeps.
    pub fn reset_host(self: &Arc<Self>) -> bool {
        self.fail(Lost::HostReset);
        self.wait_down();
        // The commands have ended. The midlayer next tests the units, which needs a connection.
        let _ = self
            .changed
            .wait_timeout(RESET_TIMEOUT_MS, || self.status().state().is_settled());
        self.status().state().life == Life::Live
    }

    /// Waits until all commands of a lost connection have ended, for as long as the device takes.
    /// There may be a new connection by then. Sleeps.
    pub(in crate::srp) fn wait_down(&self) {
        self.changed
            .wait(|| self.status().state().is_down() || !self.status().state().is_lost());
    }

    pub(super) fn lose(self: &Arc<Self>, why: Option<Lost>) {
        let cause = match why {
            Some(Lost::HostReset) => Cause::Reset,
            Some(why) if why.is_strike() => Cause::Violation,
            _ => Cause::Plain,
        };
        match self.on(|recovery| recovery.lost(cause, ktime_get())) {
            Loss::End { say } => {
                if let Some(why) = why {
                    trace!(lost(self.status().host(), &Text::new(why)));
                    if say {
                        self.say_lost(&why);
                    }
                }
                // The work item is not queued yet: that of the last connection ended before this
                // connection began.
                let _ = self.queues.ending.enqueue::<Self, END>(self.clone());
            }
            Loss::Say => {
                if let Some(why) = why {
                    self.say_lost(&why);
                }
            }
            Loss::Attempt => self.begin_reconnect(),
            Loss::Nothing => {}
        }
    }

    fn say_lost(&self, why: &Lost) {
        self.status().statistics.connections_lost.increment();
        if matches!(why, Lost::Violation(_) | Lost::AnswerChannel(_)) {
            self.status().statistics.violations.increment();
        }
        let trouble = Trouble::Lost(*why);
        let said = {
            let mut news = self.news.lock();
            news.last = Some((real_seconds(), trouble));
            let said = match why {
                // A reset is requested, so it is always logged.
                Lost::HostReset => Some(0),
                _ => news.losses.may_log(ktime_get()),
            };
            news.quiet = said.is_none();
            said
        };
        match said {
            Some(0) => session_log!(Err, self, "{trouble}"),
            Some(kept) => session_log!(Err, self, "{trouble} ({kept} earlier losses not logged)"),
            None => {}
        }
    }

    /// The last loss or failed reconnect, and its time in seconds since 1970. Any context.
    pub fn last_error(&self) -> Option<(i64, Trouble)> {
        self.news.lock().last
    }

    /// Sets [`Self::last_error`]. Any context.
    pub(super) fn note(&self, what: Trouble) {
        self.news.lock().last = Some((real_seconds(), what));
    }

    fn end_connections(self: &Arc<Self>) {
        let (channels, _) = self.parts();
        match self.on(Recovery::ending) {
            Ending::Notify => {
                if let Some(rport) = self.rport() {
                    // Tell the class before the commands go back to the midlayer, which then holds
                    // them.
                    rport.start_tl_fail_timers();
                }
                self.on(Recovery::notified);
            }
            Ending::EndCommands => {}
        }
        // A login that adds channels sees the loss, and must not connect a channel from here on.
        self.logins.waiting.interrupt();
        Connect::cancel_sync(self);
        self.forget_rounds();
        if let Some(channels) = &channels {
            channels.end(&self.workers);
        }
        match self.on(Recovery::ended) {
            Ended::Remove => self.remove(LOGOUT_PATIENCE_MS),
            Ended::Retry(retry) => self.retry(retry),
        }
    }
}

impl WorkItem<END> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.end_connections();
    }
}
