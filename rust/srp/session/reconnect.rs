// SPDX-License-Identifier: GPL-2.0

//! Another connection for a session that has lost its own.
//!
//! The state of the remote port, its timeouts and when to try again are those of the SRP transport
//! class. What differs from its idea: a try runs on a queue of our own and holds no lock while it
//! waits for the network, so that the timeouts are kept. `srp_reconnect_rport()` only takes over a
//! try that has succeeded ([`Session::commit`]), and otherwise begins the next one. Tries before that timer's
//! are our own, see [`backoff`](crate::srp::logic::backoff).
//!
//! Queue pairs and identifiers are new each time. Slots, message memory, memory regions and
//! completion queues are those of the login; what has to be allocated on the way is so without I/O.

use super::Session;
use crate::{
    errno,
    random::random_u16,
    scsi::transport::srp::Rport,
    srp::{
        channels::Channels,
        connect::Purpose,
        error::{
            LoginFailure,
            Trouble, //
        },
        ktime::ktime_get,
        log::session_log,
        logic::{
            backoff::{
                spread_ms,
                Pause, //
            },
            recovery::{
                BeginTry,
                Commit,
                Outcome,
                Recovery,
                Reset,
                Retry,
                Returned, //
            },
            session::LOGIN_TIMEOUT_MS,
            strikes, //
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

/// How long a wait for a try is at a time.
const WAIT_SLICE_MS: Msecs = 10_000;

/// The next try.
pub(super) type Reconnect = Delayed<Session, RECONNECT>;
const RECONNECT: u64 = 1;
impl_has_delayed! { impl HasDelayed<RECONNECT> for Session { self.reconnect } }

impl Session {
    /// Begins to reconnect at once, if the session has lost its connection. After a try that is under way
    /// there is another one then. Any context.
    pub fn begin_reconnect(self: &Arc<Self>) {
        self.try_in(0);
    }

    /// The next try comes in `delay` milliseconds, whatever pause there would be. Any context.
    fn try_in(self: &Arc<Self>, delay: Msecs) {
        let recovery = self.recovery.lock();
        if recovery.state().may_try() {
            // Not if it is being taken back, by the end of the session.
            let _ = Reconnect::hurry(self.clone(), delay);
        }
    }

    /// The next try comes after the pause that it has, unless it comes earlier; or with the timer of the
    /// transport class. Any context.
    fn try_later(self: &Arc<Self>, rport: &Rport<Self>) {
        let timeouts = rport.timeouts();
        let reconnect_delay = u32::try_from(timeouts.reconnect_delay);
        let recovery = self.recovery.lock();
        if !recovery.state().may_try() {
            return;
        }
        let pause = match reconnect_delay {
            Ok(seconds) => recovery.backoff().pause(seconds, random_u16()),
            // Nobody tries, but for a reset of the host.
            Err(_) if recovery.state().reset == Reset::Wanted => Pause::Ms(0),
            Err(_) => return,
        };
        let delay = match (pause, reconnect_delay) {
            (Pause::Ms(delay), _) => delay,
            // A commit that came while the class was told of the loss has stopped its timer.
            (Pause::ReconnectDelay, Ok(seconds)) if !timeouts.block() => {
                seconds.saturating_mul(1000)
            }
            (Pause::ReconnectDelay, _) => return,
        };
        let _ = Reconnect::schedule(self.clone(), delay);
    }

    /// See [`Backoff::wanted_tries`](crate::srp::logic::backoff::Backoff::wanted_tries).
    pub(super) fn wanted_tries(&self) -> u32 {
        self.recovery.lock().backoff().wanted_tries()
    }

    /// Tries to reconnect that have failed since the connection was lost.
    #[cfg(SRP_KUNIT)]
    pub fn failed_tries(&self) -> u32 {
        self.recovery.lock().backoff().tries()
    }

    /// The session is down, and no try is under way. Any context.
    pub(super) fn retry(self: &Arc<Self>, retry: Retry) {
        match retry {
            Retry::Later => {
                if let Some(rport) = self.rport() {
                    self.try_later(&rport);
                }
            }
            Retry::GiveUp => session_log!(
                Err,
                self,
                "{} protocol violations in a minute: not reconnecting any more; log out and in",
                strikes::MAX
            ),
            Retry::None => {}
        }
    }

    /// Takes over the connection that a try has made; to be called by the transport class only,
    /// which orders this with its timeouts.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` if there is none; then another try begins. `ENODEV` if the session is ending,
    /// `ENOTCONN` if the new connection is lost already, `EPROTO` if the target has broken the protocol
    /// too often.
    pub fn commit(self: &Arc<Self>) -> Result {
        let rport = self.rport();
        let timeouts = rport.as_ref().map(|rport| rport.timeouts());
        let blocks = timeouts.is_some_and(|timeouts| timeouts.block());
        let running = rport.is_some_and(|rport| rport.is_running());
        let outcome = match self.on(|recovery| recovery.commit(blocks, running, ktime_get())) {
            Commit::Outcome(outcome) => outcome,
            Commit::TrySpread => {
                let seconds = timeouts.map_or(0, |timeouts| timeouts.reconnect_delay);
                self.try_in(spread_ms(u32::try_from(seconds).unwrap_or(0), random_u16()));
                return Err(errno::EINPROGRESS);
            }
            Commit::Wait => {
                let wait = |done: &dyn Fn() -> bool| {
                    let done = || done() || self.is_ending();
                    // In slices, as a thread that does not run for minutes is reported.
                    while self.changed.wait_timeout(WAIT_SLICE_MS, done).is_err() {}
                };
                wait(&|| self.is_down());
                self.begin_reconnect();
                wait(&|| !self.view().is_asked());
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

    /// One try.
    fn attempt(self: &Arc<Self>, channels: &Channels, rport: &Rport<Self>) {
        let automatic = rport.timeouts().reconnect_delay > 0;
        match self.on(|recovery| recovery.begin_try(automatic)) {
            BeginTry::Connect => {}
            BeginTry::Nothing => return,
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
                    session_log!(Warning, self, "{}", format_args!("{trouble}"));
                }
                self.on(Recovery::try_failed);
                return self.end_attempt(channels);
            }
        };
        self.on(Recovery::connected);
        let taken = rport.reconnect();
        match self.on(Recovery::returned) {
            Returned::StartTimers => {}
            Returned::EndTry => {
                if !self.is_ending() {
                    // Why was told of the connection itself.
                    session_log!(
                        Warning,
                        self,
                        "reconnect failed: the new connection was lost at once (error {})",
                        taken.err().map_or(0, |e| e.to_errno())
                    );
                }
                return self.end_attempt(channels);
            }
        }
        // From here on the connections are those of the session, and may be lost again already.
        if !self.is_quiet() {
            session_log!(
                Info,
                self,
                "reconnected, {} of {} channels",
                count,
                channels.len()
            );
        }
        self.start_timers(true);
    }

    /// Ends what a try has made that failed.
    fn end_attempt(self: &Arc<Self>, channels: &Channels) {
        channels.end(&self.crew);
        self.retry(self.on(Recovery::try_ended));
    }

    /// The connection is new, see [`Self::begin_fill`]: sets the timers that it needs.
    pub(super) fn start_timers(self: &Arc<Self>, again: bool) {
        self.begin_keep_alive();
        self.begin_poll();
        self.begin_fill(again);
    }

    /// No more tries. The session is ending. Sleeps.
    pub(super) fn end_reconnect(self: &Arc<Self>) {
        Reconnect::cancel_sync(self);
    }
}

impl DelayedItem<RECONNECT> for Session {
    fn run(this: Arc<Self>) {
        if let ((Some(channels), _), Some(rport)) = (this.parts(), this.rport()) {
            noio(|| this.attempt(&channels, &rport));
        }
    }
}
