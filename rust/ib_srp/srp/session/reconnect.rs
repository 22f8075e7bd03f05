// SPDX-License-Identifier: GPL-2.0

//! Reconnects a session that has lost its connection, and adds channels that a connection lacks:
//! those that a login has left out, and the answer channels, which no reconnect sets up.
//!
//! The SRP transport class has the state of the remote port, its timeouts and the reconnect timer.
//! Contrary to its design, an attempt runs on a queue of the driver and holds no lock while it
//! waits for the network, so that the timeouts are met. `srp_reconnect_rport()` only takes over an
//! attempt that has succeeded ([`Session::commit`]), and otherwise starts the next one. The driver
//! itself schedules the attempts ahead of that timer, see [`backoff`](crate::srp::logic::backoff).
//!
//! Queue pairs and identifiers are new each time. Slots, message memory, memory regions and
//! completion queues are those of the login. Allocations for a reconnect do no I/O.

use super::{
    Session,
    CONNECT,
    WAIT_SLICE_MS, //
};
use crate::{
    errno,
    random::random_u16,
    scsi::transport::srp::Rport,
    srp::{
        channels::Channels,
        connect::Purpose,
        error::{
            LoginFailure,
            Lost,
            Trouble, //
        },
        ktime::ktime_get,
        log::session_log,
        logic::{
            backoff::spread_ms,
            recovery::{
                self,
                BeginAttempt,
                Commit,
                Outcome,
                Recovery,
                Retry,
                Returned, //
            },
            state::{
                Life,
                Reset, //
            },
            time::LOGIN_TIMEOUT_MS, //
        },
    },
    sync::noio,
    workqueue::{
        impl_has_delayed,
        Delayed,
        DelayedItem, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// Logs in: to reconnect, or to add missing channels.
pub(super) type Connect = Delayed<Session, CONNECT>;
impl_has_delayed! { impl HasDelayed<CONNECT> for Session { self.connect } }

impl Session {
    /// Starts to reconnect at once, if the session has lost its connection. If an attempt is in
    /// flight, another one follows. Any context.
    pub fn begin_reconnect(self: &Arc<Self>) {
        self.attempt_in(0);
    }

    /// Schedules the next attempt in `delay` milliseconds, whatever the pause. Any context.
    fn attempt_in(self: &Arc<Self>, delay: Msecs) {
        let recovery = self.recovery.lock();
        if recovery.state().may_attempt() {
            // Fails while the session's teardown cancels the timer.
            let _ = Connect::hurry(self.clone(), delay);
        }
    }

    /// Schedules the next attempt after its pause, unless it is due earlier, or leaves it to the
    /// timer of the transport class. Any context.
    fn attempt_later(self: &Arc<Self>, rport: &Rport<Self>) {
        let timeouts = rport.timeouts();
        let recovery = self.recovery.lock();
        if !recovery.state().may_attempt() {
            return;
        }
        let delay = match u32::try_from(timeouts.reconnect_delay) {
            Ok(seconds) => match recovery.backoff().pause(seconds, random_u16()) {
                Some(delay) => delay,
                // If no timeout blocks the port, a commit during the notification of the loss has
                // succeeded, and the class has stopped its timer.
                None if !timeouts.block() => seconds.saturating_mul(1000),
                None => return,
            },
            // Reconnecting is disabled, except for a reset of the host.
            Err(_) if recovery.state().reset == Reset::Wanted => 0,
            Err(_) => return,
        };
        let _ = Connect::schedule(self.clone(), delay);
    }

    /// Handles `retry`. The session is down, and no attempt is in flight. Any context.
    pub(super) fn retry(self: &Arc<Self>, retry: Retry) {
        match retry {
            Retry::Later => {
                if let Some(rport) = self.rport() {
                    self.attempt_later(&rport);
                }
            }
            Retry::GiveUp => session_log!(
                Err,
                self,
                "{} protocol violations in a minute: no further reconnect attempts; \
                 log out and in again",
                recovery::MAX_STRIKES
            ),
            Retry::None => {}
        }
    }

    /// Takes over the connection of an attempt. Only the transport class may call this, because it
    /// orders the call with its timeouts. May sleep.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` if an attempt is in flight or begins. `ENODEV` if the session is ending,
    /// `ENOTCONN` if the new connection is lost already, `EPROTO` if the target has violated the
    /// protocol too often.
    pub fn commit(self: &Arc<Self>) -> Result {
        let rport = self.rport();
        let timeouts = rport.as_ref().map(|rport| rport.timeouts());
        let blocks = timeouts.is_some_and(|timeouts| timeouts.block());
        let running = rport.is_some_and(|rport| rport.is_running());
        let outcome = match self.on(|recovery| recovery.commit(blocks, running, ktime_get())) {
            Commit::Outcome(outcome) => outcome,
            Commit::Attempt => {
                let seconds = timeouts.map_or(0, |timeouts| timeouts.reconnect_delay);
                self.attempt_in(spread_ms(u32::try_from(seconds).unwrap_or(0), random_u16()));
                return Err(errno::EINPROGRESS);
            }
            Commit::Wait => {
                let wait = |done: &dyn Fn() -> bool| {
                    let done = || done() || self.status().state().is_ending();
                    // Wait in slices, because the kernel reports a thread that sleeps for minutes.
                    while self.changed.wait_timeout(WAIT_SLICE_MS, done).is_err() {}
                };
                wait(&|| self.status().state().is_down());
                self.begin_reconnect();
                wait(&|| !self.status().state().asked);
                self.on(|recovery| recovery.waited(ktime_get()))
            }
            Commit::Protocol => return Err(errno::EPROTO),
        };
        match outcome {
            Outcome::Accept => Ok(()),
            Outcome::InProgress => Err(errno::EINPROGRESS),
            Outcome::NotConnected => Err(errno::ENOTCONN),
            Outcome::NoDevice => Err(ENODEV),
        }
    }

    /// Makes one attempt to reconnect.
    fn attempt(self: &Arc<Self>, channels: &Channels, rport: &Rport<Self>) {
        let automatic = rport.timeouts().reconnect_delay > 0;
        match self.on(|recovery| recovery.begin_attempt(automatic)) {
            BeginAttempt::Connect => {}
            BeginAttempt::Nothing => return,
        }
        let result = self
            .log_in(Purpose::Again, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.again(channels));
        let count = match result {
            Ok(count) => count,
            Err(why) => {
                if !matches!(why, LoginFailure::Removed) {
                    let trouble = Trouble::Reconnect(why);
                    self.note(trouble);
                    session_log!(Warning, self, "{trouble}");
                }
                self.on(Recovery::attempt_failed);
                return self.end_attempt(channels);
            }
        };
        self.on(Recovery::connected);
        let taken = rport.reconnect();
        match self.on(Recovery::returned) {
            Returned::StartTimers => {}
            Returned::EndAttempt => {
                if !self.status().state().is_ending() {
                    let e = taken.err().map_or(0, |e| e.to_errno());
                    // The reason for the loss is logged separately.
                    session_log!(
                        Warning,
                        self,
                        "reconnect failed: the new connection was lost at once (error {e})"
                    );
                }
                return self.end_attempt(channels);
            }
        }
        // From here on the connections are the session's, and may be lost already.
        if !self.news.lock().quiet {
            let all = channels.len();
            session_log!(Info, self, "reconnected, {count} of {all} channels");
        }
        self.start_timers(true);
    }

    /// Tears down the connections of a failed attempt, and schedules the next attempt.
    fn end_attempt(self: &Arc<Self>, channels: &Channels) {
        channels.end(&self.workers);
        self.retry(self.on(Recovery::attempt_ended));
    }

    /// Sets the deadlines of a new connection, and starts to add the channels that it lacks.
    /// `again`: the session had a connection earlier.
    pub(super) fn start_timers(self: &Arc<Self>, again: bool) {
        self.begin_watch();
        let (Some(channels), _) = self.parts() else {
            return;
        };
        if channels.missing() > 0 {
            let left_out = channels.iter().any(|c| !c.is_open());
            self.fill_in(self.on(|recovery| recovery.fill().begin(ktime_get(), left_out, again)));
        }
    }

    /// Schedules the next attempt to add channels in `delay` milliseconds. Any context.
    fn fill_in(self: &Arc<Self>, delay: Msecs) {
        let recovery = self.recovery.lock();
        // The same work item reconnects a session that has lost its connection.
        if recovery.state().life == Life::Live {
            let _ = Connect::hurry(self.clone(), delay);
        }
    }

    /// Answer channel `number` is lost; without `why`, the session's connection is lost with it.
    pub(super) fn count_flap(&self, number: usize, why: Option<&Lost>) {
        if self.status().state().is_lost() || self.status().state().is_ending() {
            return;
        }
        self.on(|recovery| recovery.fill().flap(ktime_get()));
        let Some(from) = self.logins.params.answers_from.get(number) else {
            return;
        };
        let from = &from.destination;
        // The pauses limit the rate of these log lines.
        match why {
            None => session_log!(Warning, self, "the answer channel to {from} is lost"),
            Some(why) => session_log!(Warning, self, "no answer channel to {from}: {why}"),
        }
    }

    /// Attempts to add the channels that are missing.
    pub(super) fn add_missing(self: &Arc<Self>, channels: &Channels) {
        let before = channels.missing();
        if before == 0 || self.status().state().is_lost() {
            return;
        }
        let flapping = self.on(|recovery| recovery.fill().is_flapping(ktime_get()));
        let result = self
            .log_in(Purpose::More, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.more(channels, !flapping));
        let left = channels.missing();
        if self.status().state().is_lost() {
            return;
        }
        if left < before {
            let all = channels.len() + channels.answer_channels().len();
            session_log!(Info, self, "{} of {all} channels connected", all - left);
        }
        if left == 0 {
            return;
        }
        let (delay, longer) = self.on(|recovery| recovery.fill().failed());
        if let (Err(why), true, true) = (result, longer, left == before) {
            // Log only while the pause grows: at its maximum, a full target would cause a line each
            // minute.
            session_log!(Warning, self, "{left} channels still missing: {why}");
        }
        self.fill_in(delay);
    }
}

impl DelayedItem<CONNECT> for Session {
    fn run(this: Arc<Self>) {
        let ((Some(channels), _), rport) = (this.parts(), this.rport()) else {
            return;
        };
        noio(|| match (this.status().state().life, rport) {
            (Life::Live, _) => this.add_missing(&channels),
            (_, Some(rport)) => this.attempt(&channels, &rport),
            (_, None) => {}
        });
    }
}
