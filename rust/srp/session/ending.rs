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
        logic::session::{
            Event,
            State,
            LOG_OUT_TIMEOUT_MS, //
        },
        session::LOG_OUT_PATIENCE_MS, //
    },
    sync::NoIo,
    sys::{
        monotonic_ns,
        synchronize_rcu, //
    },
    workqueue::{
        Delayed,
        DelayedItem, //
    }, //
};
use kernel::{
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::Msecs,
    workqueue::WorkItem, //
};

impl Session {
    /// Commands that have ended, modulo 2^32.
    pub(in crate::srp) fn ended(&self) -> i32 {
        let channels = self.live.lock().channels.clone();
        let counts = channels.iter().flat_map(|all| all.iter());
        counts.fold(0, |sum, c| sum.wrapping_add(c.handler().ended()))
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
            if let Some(host) = host.as_ref().filter(|host| !host.timeouts().block()) {
                // A try that came between has stopped the timer.
                host.start_tl_fail_timers();
            }
        }
        // It looks whether the connection is lost, and is not to connect anything after this.
        self.waiting.interrupt();
        Delayed::<Self, 1>::cancel_sync(self);
        // What it knows belongs to this connection. If it is set once more, by a command that is just being
        // refused, it finds the connection lost, or the next one.
        Delayed::<Self, 7>::cancel_sync(self);
        if let Some(channels) = &channels {
            end_connections(channels);
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
            self.progress.store(self.ended(), Relaxed);
            let patience = self.patience.load(Relaxed);
            let _ = <Delayed<Self, 0>>::schedule(self.clone(), patience);
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

/// Tells the target on all channels that nothing will follow, and waits until that has been sent, at
/// most a second altogether.
fn log_out(channels: &[Arc<Connection>]) {
    let begin = monotonic_ns();
    for connection in channels {
        connection.handler().begin_log_out(connection);
    }
    for connection in channels {
        let gone = monotonic_ns().saturating_sub(begin) / 1_000_000;
        let left = i64::from(LOG_OUT_TIMEOUT_MS).saturating_sub(gone);
        connection
            .handler()
            .end_log_out(Msecs::try_from(left).unwrap_or(0));
    }
}

/// Ends connections and their commands. Nobody must begin to post: the session is lost.
pub fn end_connections(channels: &[Arc<Connection>]) {
    // Memory that is reclaimed by writing to these very disks would not come before this is done.
    let _noio = NoIo::enter();
    for connection in channels {
        connection.handler().task.wake();
    }
    for connection in channels {
        connection.hang_up();
    }
    // Whoever has not seen that the session is lost has posted after this.
    synchronize_rcu();
    for connection in channels {
        connection.shutdown();
    }
    for connection in channels {
        connection.handler().close();
    }
    for connection in channels {
        connection.disconnect();
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
        let ended = this.ended();
        if this.progress.xchg(ended, Relaxed) == ended {
            this.fail(Lost::RemovalTimeout);
        } else {
            // Refused if the disks have gone meanwhile.
            let patience = this.patience.load(Relaxed);
            let _ = <Delayed<Self, 0>>::schedule(this, patience);
        }
    }
}

impl DelayedItem<4> for Session {
    fn run(this: Arc<Self>) {
        this.waiting.interrupt();
    }
}
