// SPDX-License-Identifier: GPL-2.0

//! Another connection for a session that has lost its own, and looking after one that is idle.
//!
//! The state of the remote port, its timeouts and when to try again are those of the SRP transport
//! class. What differs from its idea: a try runs on a queue of our own and holds no lock while it
//! waits for the network, so that the timeouts are kept. `srp_reconnect_rport()` only takes over a
//! try that has succeeded ([`Session::commit`]), and otherwise begins the next one. Tries before that timer's
//! are our own, see [`backoff`](super::logic::backoff).
//!
//! Queue pairs and identifiers are new each time. Slots, message memory, memory regions and
//! completion queues are those of the login; what has to be allocated on the way is so without I/O.

use super::{
    channel::Connection,
    channels::Channels,
    connect::{
        Login,
        Purpose, //
    },
    error::{
        LoginFailure,
        Lost,
        Trouble, //
    },
    front::scsi::Io,
    log::session_log,
    logic::{
        backoff::{
            spread_ms,
            Pause, //
        },
        session::{
            fill_delay_ms,
            Event,
            State,
            LOGIN_TIMEOUT_MS, //
        },
        strikes, //
    },
    session::{
        Attempt,
        Session,
        Told, //
    },
};
use crate::{
    errno,
    params,
    scsi::Host,
    sync::NoIo,
    sys::{
        monotonic_ns,
        random_u16, //
    },
    workqueue::{
        Delayed,
        DelayedItem,
        HasDelayed, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
    time::Msecs, //
};

/// How long a wait for a try is at a time.
const WAIT_SLICE_MS: Msecs = 10_000;
/// After a resume a target has this time to answer.
const WAKE_TEST_MS: Msecs = 5_000;
/// Disks are looked for at most once in this time, whatever the target reports.
const RESCAN_INTERVAL_MS: Msecs = 30_000;

impl Session {
    /// Begins to reconnect at once, if the session has lost its connection. After a try that is under way
    /// there is another one then. Any context.
    pub fn begin_reconnect(self: &Arc<Self>) {
        self.try_in(0);
    }

    /// The next try comes in `delay` milliseconds, whatever pause there would be. Any context.
    fn try_in(self: &Arc<Self>, delay: Msecs) {
        let phase = self.phase.lock();
        if phase.state == State::Recovering && self.is_down() {
            // Not if it is being taken back, by the end of the session.
            let _ = <Delayed<Self, 6>>::hurry(self.clone(), delay);
        }
    }

    /// The next try comes after the pause that it has, unless it comes earlier; or with the timer of the
    /// transport class. Any context.
    fn try_later(self: &Arc<Self>, host: &Host<Io>) {
        let reconnect_delay = u32::try_from(host.timeouts().reconnect_delay);
        let phase = self.phase.lock();
        if phase.state != State::Recovering || !self.is_down() {
            return;
        }
        let pause = match reconnect_delay {
            Ok(seconds) => phase.backoff.pause(seconds, random_u16()),
            // Nobody tries, but for a reset of the host.
            Err(_) if phase.reset => Pause::Ms(0),
            Err(_) => return,
        };
        let delay = match (pause, reconnect_delay) {
            (Pause::Ms(delay), _) => delay,
            // A commit that came while the class was told of the loss has stopped its timer.
            (Pause::ReconnectDelay, Ok(seconds)) if !host.timeouts().block() => {
                seconds.saturating_mul(1000)
            }
            (Pause::ReconnectDelay, _) => return,
        };
        let _ = <Delayed<Self, 6>>::schedule(self.clone(), delay);
    }

    /// The network may be back: as [`Self::begin_reconnect`], and a try that waits for a lost packet to be
    /// sent again begins anew. Any context.
    pub fn retry_now(self: &Arc<Self>) {
        if self.state() == State::Recovering {
            self.begin_reconnect();
            self.waiting.interrupt();
        }
    }

    /// Tries to reconnect that have failed since the connection was lost.
    pub fn failed_tries(&self) -> u32 {
        self.phase.lock().backoff.tries()
    }

    /// Sets a timer, unless the session is ending, which has taken all timers back then.
    fn later<const ID: u64>(self: &Arc<Self>, delay: Msecs)
    where
        Self: DelayedItem<ID> + HasDelayed<ID>,
    {
        let phase = self.phase.lock();
        if !phase.state.is_ending() {
            // If it is set already, that will do.
            let _ = <Delayed<Self, ID>>::schedule(self.clone(), delay);
        }
    }

    /// The first try after a loss, see [`Backoff`](super::logic::backoff::Backoff).
    pub(super) fn first_reconnect(self: &Arc<Self>) {
        if self.is_given_up() {
            return;
        }
        if let (_, Some(host)) = self.parts() {
            self.try_later(&host);
        }
    }

    /// The target has broken the protocol too often. Says so.
    fn is_given_up(&self) -> bool {
        let mut phase = self.phase.lock();
        let out = phase.strikes.is_out();
        // Nobody tries any more.
        phase.awaited &= !out;
        drop(phase);
        if out {
            session_log!(
                Err,
                self,
                "{} protocol violations in a minute: not reconnecting any more; log out and in",
                strikes::MAX
            );
            // There is nothing to wait for.
            self.settle();
        }
        out
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
        let (_, host) = self.parts();
        let mut phase = self.phase.lock();
        match phase.state {
            State::Live => return Ok(()),
            State::Recovering => {}
            _ => return Err(ENODEV),
        }
        let blocks = host.as_ref().is_some_and(|host| host.timeouts().block());
        // While the class is to hear of the loss, it must not take this for a try that failed.
        let told = match phase.told {
            Told::No => false,
            Told::Now => blocks && !host.as_ref().is_some_and(|host| host.is_running()),
            Told::Yes => true,
        };
        if !told {
            return Ok(());
        }
        if phase.strikes.is_out() {
            return Err(errno::EPROTO);
        }
        if !phase.ready {
            let attempt = phase.attempt;
            // The caller, or who waits for it with its connection: that one was taken, and lost at once. There will
            // be another try, which this must not wait for.
            if !blocks && attempt == Attempt::Taking {
                return Ok(());
            }
            self.tried.store(false, Relaxed);
            drop(phase);
            if blocks {
                if attempt == Attempt::None {
                    let seconds = host
                        .as_ref()
                        .map_or(0, |host| host.timeouts().reconnect_delay);
                    self.try_in(spread_ms(u32::try_from(seconds).unwrap_or(0), random_u16()));
                }
                return Err(errno::EINPROGRESS);
            }
            // There is no timeout that would be late, and an error would have the commands fail.
            let wait = |done: &dyn Fn() -> bool| {
                let done = || done() || self.is_ending();
                // In slices, as a thread that does not run for minutes is reported.
                while self.changed.wait_timeout(WAIT_SLICE_MS, done).is_err() {}
            };
            wait(&|| self.is_down());
            self.begin_reconnect();
            wait(&|| self.tried.load(Acquire));
            phase = self.phase.lock();
            if !phase.ready {
                return Err(errno::EINPROGRESS);
            }
        }
        if phase.broken {
            return Err(errno::ENOTCONN);
        }
        if self.step(&mut phase, Event::Reconnected) {
            self.is_up(&mut phase);
        }
        Ok(())
    }

    /// One try to reconnect.
    fn attempt(self: &Arc<Self>) {
        let _noio = NoIo::enter();
        self.phase.lock().attempt = Attempt::Connecting;
        if let (Some(channels), Some(host)) = self.parts() {
            self.attempt_on(&channels, &host);
        }
        self.phase.lock().attempt = Attempt::None;
        self.has_tried();
    }

    fn attempt_on(self: &Arc<Self>, channels: &Channels, host: &Host<Io>) {
        let wanted = {
            let mut phase = self.phase.lock();
            let out = phase.strikes.is_out();
            phase.awaited &= !out;
            if phase.state != State::Recovering || !self.is_down() || out {
                return;
            }
            phase.broken = false;
            // A reset of the host is one try, whatever the pause between tries is.
            let wanted = core::mem::take(&mut phase.reset);
            if !wanted && host.timeouts().reconnect_delay <= 0 {
                return;
            }
            wanted
        };
        let result = Login::new(self, Purpose::Again, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.again(channels));
        let count = match result {
            Ok(count) => count,
            Err(why) => {
                if !matches!(why, LoginFailure::Removed) {
                    let trouble = Trouble::Reconnect(why);
                    self.note(trouble);
                    session_log!(Warning, self, "{}", format_args!("{trouble}"));
                }
                channels.end();
                self.try_failed(wanted, host);
                return;
            }
        };
        // There is hope again, until the port is running or the new connection is lost.
        let hopeless = self.settled.load(Relaxed);
        self.settled.store(false, Relaxed);
        {
            let mut phase = self.phase.lock();
            phase.ready = true;
            phase.attempt = Attempt::Taking;
        }
        self.has_tried();
        let taken = host.reconnect_rport();
        {
            let mut phase = self.phase.lock();
            if phase.ready {
                phase.ready = false;
                drop(phase);
                if !self.is_ending() {
                    // Why was told of the connection itself.
                    session_log!(
                        Warning,
                        self,
                        "reconnect failed: the new connection was lost at once ({})",
                        taken.err().map_or(0, |e| e.to_errno())
                    );
                }
                channels.end();
                self.try_failed(wanted, host);
                if hopeless || self.is_failing() {
                    self.settle();
                }
                return;
            }
            // Not before: the port is running now, too.
            if phase.state == State::Live {
                self.settle();
            }
        }
        // From here on the connections are those of the session, and may be lost again already.
        if !self.quiet.load(Relaxed) {
            session_log!(
                Info,
                self,
                "reconnected, {} of {} channels",
                count,
                channels.len()
            );
        }
        self.look_after();
    }

    /// `wanted`: for a reset.
    fn try_failed(self: &Arc<Self>, wanted: bool, host: &Host<Io>) {
        {
            let mut phase = self.phase.lock();
            phase.backoff.failed();
            // A reset that came meanwhile has a try of its own.
            phase.awaited &= !wanted || phase.reset;
        }
        if !self.is_given_up() {
            self.try_later(host);
        }
    }

    fn has_tried(&self) {
        self.tried.store(true, Release);
        self.changed.wake_all();
    }

    /// The connection is new: sets the timers that it needs.
    pub(super) fn look_after(self: &Arc<Self>) {
        self.begin_keep_alive();
        self.watch();
        let (channels, _) = self.parts();
        if channels.is_some_and(|all| all.iter().any(|c| !c.is_open())) {
            self.fills.store(0, Relaxed);
            self.later::<1>(fill_delay_ms(0));
        }
    }

    /// Tries to add the channels that are missing.
    fn add_missing(self: &Arc<Self>) {
        let _noio = NoIo::enter();
        let (Some(channels), _) = self.parts() else {
            return;
        };
        let missing = |c: &&Arc<Connection>| !c.is_open();
        let before = channels.iter().filter(missing).count();
        if before == 0 || self.is_lost() {
            return;
        }
        let result = Login::new(self, Purpose::More, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.more(&channels));
        if self.is_lost() {
            return;
        }
        let left = channels.iter().filter(missing).count();
        let tries = match left {
            0 => 0,
            _ => self.fills.fetch_add(1, Relaxed) + 1,
        };
        if left < before {
            session_log!(
                Info,
                self,
                "{} of {} channels",
                channels.len() - left,
                channels.len()
            );
        } else if let (Err(why), true) = (
            result,
            fill_delay_ms(tries) > fill_delay_ms(tries.saturating_sub(1)),
        ) {
            // Who has no room for more says the same each minute from then on.
            session_log!(
                Warning,
                self,
                "{left} channels still missing: {}",
                format_args!("{why}")
            );
        }
        if left > 0 {
            self.later::<1>(fill_delay_ms(tries));
        }
    }

    /// Sets the timer that tests an idle connection, if the parameter wants it.
    fn begin_keep_alive(self: &Arc<Self>) {
        let seconds = params::keep_alive();
        if seconds > 0 {
            self.later::<2>(seconds.saturating_mul(1000));
        }
    }

    /// Time has passed that nobody has noticed: finds out whether the connection still works, with a
    /// test now and a look at the answer a little later. Sleeps.
    pub fn wake(self: &Arc<Self>) {
        self.begin_reconnect();
        // The timer may have been set for much later. There is one only, as a test is not to find that of
        // another unanswered.
        Delayed::<Self, 2>::cancel_sync(self);
        self.woken.store(true, Relaxed);
        self.later::<2>(0);
    }

    /// For each channel on which nothing has ended since the last look, which would be a sign of life: ends the connection
    /// if the target has not answered the last test, or else asks it. From the last answer that is less than
    /// three times the parameter: in the first the answer came, after the second it asks, the third is for that.
    fn test_idle(self: &Arc<Self>) {
        if self.is_lost() {
            // The next connection sets the timer again.
            return;
        }
        let woken = self.woken.xchg(false, Relaxed);
        let (channels, _) = self.parts();
        for channel in channels.iter().flat_map(|all| all.iter()) {
            // Each has a way of its own through the network.
            if !channel.probe.is_idle(channel.ended()) && !woken {
                continue;
            }
            // What it says is of this connection, which does not go before this.
            let _posting = rcu::read_lock();
            // Without commands that the target has, one that waits for a credit comes first.
            let asked = match channel.has_any_out() {
                true => channel.probe.ask(channel).map(|_| ()),
                false => channel.probe.send(channel),
            };
            match asked {
                Ok(()) => {}
                // That test may have been sent just now. It has until the next look.
                Err(Lost::KeepAlive) if woken => {}
                Err(why) => return self.fail(why),
            }
        }
        if woken {
            self.later::<2>(WAKE_TEST_MS);
        } else {
            self.begin_keep_alive();
        }
    }

    /// The target says that its units have changed: looks for disks, now or when the interval has
    /// passed. Any context.
    pub fn units_changed(self: &Arc<Self>) {
        let passed = monotonic_ns().saturating_sub(self.last_scan.load(Relaxed)) / 1_000_000;
        let left = i64::from(RESCAN_INTERVAL_MS).saturating_sub(passed);
        self.later::<3>(Msecs::try_from(left).unwrap_or(0));
    }
}

impl DelayedItem<6> for Session {
    fn run(this: Arc<Self>) {
        this.attempt();
    }
}

impl DelayedItem<1> for Session {
    fn run(this: Arc<Self>) {
        this.add_missing();
    }
}

impl DelayedItem<2> for Session {
    fn run(this: Arc<Self>) {
        this.test_idle();
    }
}

impl DelayedItem<3> for Session {
    fn run(this: Arc<Self>) {
        this.last_scan.store(monotonic_ns(), Relaxed);
        match this.state() {
            State::Live => {}
            State::Recovering => return this.units_changed(),
            _ => return,
        }
        if let (_, Some(host)) = this.parts() {
            session_log!(Info, this, "the target's units have changed");
            host.rescan();
        }
    }
}
