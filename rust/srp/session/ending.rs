// SPDX-License-Identifier: GPL-2.0

//! How a session and its connections end.

use super::{
    Session,
    Told, //
};
use crate::{
    srp::{
        channel::Connection,
        error::Lost,
        logic::{
            removal::{
                self,
                Next, //
            },
            session::{
                Event,
                State,
                LOG_OUT_TIMEOUT_MS, //
            }, //
        }, //
    },
    sys::monotonic_ns,
    workqueue::{
        Delayed,
        DelayedItem, //
    }, //
};
use kernel::{
    sync::{
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::Msecs,
    workqueue::WorkItem, //
};

/// The patience of a log-out, in milliseconds; see [`Session::remove`].
pub const LOG_OUT_PATIENCE_MS: Msecs = 10_000;

/// What the removal timer goes by.
pub(super) struct Patience {
    /// That of [`Session::remove`].
    all: Atomic<u32>,
    /// After so many milliseconds the midlayer has ended a command, if it can.
    limit: Atomic<u32>,
    /// Commands that had ended when the timer was set.
    ended: Atomic<i32>,
    /// How long none has, in milliseconds.
    quiet: Atomic<u32>,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self {
            all: Atomic::new(LOG_OUT_PATIENCE_MS),
            limit: Atomic::new(0),
            ended: Atomic::new(0),
            quiet: Atomic::new(0),
        }
    }

    fn slice(&self) -> Msecs {
        removal::slice_ms(self.all.load(Relaxed))
    }
}

impl Session {
    /// Ends the session in the background, the disks first. Does not sleep.
    ///
    /// The disks may have much to write, for which a target may take as long as the midlayer lets it. If
    /// no command has ended for half of `patience` milliseconds the target is asked for a sign of life,
    /// again and again; the connection is ended if it does not answer in the other half, or if no
    /// command ends in twice the longest time that a disk gives a request and a minute. The first call
    /// counts.
    pub fn remove(self: &Arc<Self>, patience: Msecs) {
        let mut phase = self.phase.lock();
        if self.step(&mut phase, Event::Remove) {
            self.patience.all.store(patience, Relaxed);
            drop(phase);
            self.settle();
            self.waiting.interrupt();
            // It was not queued before, as the state changes once.
            let _ = self.queues.removal.enqueue::<Self, 1>(self.clone());
        }
    }

    /// Commands that have ended, modulo 2^32.
    pub(in crate::srp) fn ended(&self) -> i32 {
        let channels = self.live.lock().channels.clone();
        let counts = channels.iter().flat_map(|all| all.iter());
        counts.fold(0, |sum, c| sum.wrapping_add(c.ended()))
    }

    /// Ends the connections: the one error path.
    fn bring_down(self: &Arc<Self>) {
        let (channels, host) = self.parts();
        if self.state() == State::Recovering {
            self.phase.lock().told = Told::Now;
            if let Some(host) = &host {
                // Before the commands come back to the midlayer, so that they wait there.
                host.start_tl_fail_timers();
            }
            self.phase.lock().told = Told::Yes;
        }
        // It looks whether the connection is lost, and is not to connect anything after this.
        self.waiting.interrupt();
        Delayed::<Self, 1>::cancel_sync(self);
        // What it knows belongs to this connection. If it is set once more, by a command that is just being
        // refused, it finds the connection lost, or the next one.
        Delayed::<Self, 7>::cancel_sync(self);
        if let Some(channels) = &channels {
            channels.end();
        }
        let state = {
            // Together: whoever sees it may reconnect at once.
            let phase = self.phase.lock();
            self.is_down.store(true, Release);
            phase.state
        };
        self.changed.wake_all();
        match state {
            State::Recovering => self.first_reconnect(),
            State::Failed => self.remove(LOG_OUT_PATIENCE_MS),
            _ => {}
        }
    }

    /// Ends the session: disks, commands, connections, in this order.
    fn tear_down(self: &Arc<Self>) {
        let (channels, host) = self.parts();
        if let Some(host) = &host {
            // With a connection, too: the class may just be taking it over, with the disks still blocked.
            host.give_up();
            // From here on the removal timer is the one that asks, and no test of its own may meet another.
            Delayed::<Self, 2>::cancel_sync(self);
            let limit = removal::limit_ms(host.request_timeout());
            self.patience.limit.store(limit, Relaxed);
            self.patience.ended.store(self.ended(), Relaxed);
            let _ = <Delayed<Self, 0>>::schedule(self.clone(), self.patience.slice());
            host.remove();
            Delayed::<Self, 0>::cancel_sync(self);
        }
        self.leaving.store(true, Relaxed);
        if let Some(channels) = &channels {
            log_out(channels);
        }
        self.lose(None);
        self.changed.wait(|| self.is_down());
        // A try that is under way ends when it sees the state, which also keeps the timers from being
        // set again.
        Delayed::<Self, 6>::cancel_sync(self);
        Delayed::<Self, 1>::cancel_sync(self);
        Delayed::<Self, 2>::cancel_sync(self);
        Delayed::<Self, 3>::cancel_sync(self);
        Delayed::<Self, 5>::cancel_sync(self);
        // Nobody posts any more, who could set it.
        Delayed::<Self, 7>::cancel_sync(self);
        drop(channels);
        drop(host);
        let live = core::mem::take(&mut *self.live.lock());
        // The host first: it has references to the connections.
        drop(live.host);
        drop(live.channels);
        drop(live.pd);
        self.advance(Event::Removed);
        self.port.forget(self);
    }
}

impl Session {
    /// What has happened to the disks that go, since the last look; asks the target if that was nothing.
    ///
    /// # Errors
    ///
    /// Why the connection must end.
    fn look_at_removal(&self) -> Result<(), Lost> {
        let ended = self.ended();
        if self.patience.ended.xchg(ended, Relaxed) != ended {
            self.patience.quiet.store(0, Relaxed);
            return Ok(());
        }
        let slice = self.patience.slice();
        let quiet = self.patience.quiet.load(Relaxed).saturating_add(slice);
        self.patience.quiet.store(quiet, Relaxed);
        match removal::next(quiet, slice, self.patience.limit.load(Relaxed)) {
            Next::Ask => self.ask(true),
            Next::AskAgain => self.ask(false),
            Next::GiveUp => Err(Lost::RemovalTimeout),
        }
    }

    /// Asks for a sign of life on each channel. `first`: a question that is out may be a new one.
    ///
    /// # Errors
    ///
    /// If a channel has not answered the last time, or has no credit, so that no command can be sent either.
    fn ask(&self, first: bool) -> Result<(), Lost> {
        let (channels, _) = self.parts();
        let all = channels.iter().flat_map(|all| all.iter());
        for connection in all.filter(|c| c.is_open()) {
            match connection.probe.ask(connection) {
                Ok(true) => {}
                Err(Lost::KeepAlive) if first => {}
                Ok(false) | Err(Lost::KeepAlive) => return Err(Lost::RemovalSilence),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// Tells the target on all channels that nothing will follow, and waits until that has been sent, at
/// most a second altogether.
fn log_out(channels: &[Arc<Connection>]) {
    let begin = monotonic_ns();
    for connection in channels {
        connection.begin_log_out();
    }
    for connection in channels {
        let gone = monotonic_ns().saturating_sub(begin) / 1_000_000;
        let left = i64::from(LOG_OUT_TIMEOUT_MS).saturating_sub(gone);
        connection.end_log_out(Msecs::try_from(left).unwrap_or(0));
    }
}

impl WorkItem<0> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.bring_down();
    }
}

impl WorkItem<1> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.tear_down();
    }
}

impl DelayedItem<0> for Session {
    fn run(this: Arc<Self>) {
        match this.look_at_removal() {
            // Refused if the disks have gone meanwhile.
            Ok(()) => {
                let slice = this.patience.slice();
                let _ = <Delayed<Self, 0>>::schedule(this, slice);
            }
            Err(why) => this.fail(why),
        }
    }
}

impl DelayedItem<4> for Session {
    fn run(this: Arc<Self>) {
        this.waiting.interrupt();
    }
}
