// SPDX-License-Identifier: GPL-2.0

//! How a session ends: disks, commands, connections, in this order.

use super::Session;
use crate::{
    srp::{
        channel::Connection,
        error::Lost,
        ktime::ktime_get,
        logic::{
            recovery::{
                Recovery,
                Remove, //
            },
            removal::{
                self,
                Next, //
            },
            session::LOG_OUT_TIMEOUT_MS, //
        }, //
    },
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Delayed,
        DelayedItem,
        Handle, //
    }, //
};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Msecs,
    workqueue::WorkItem, //
};

/// The patience of a logout, in milliseconds; see [`Session::remove`].
pub const LOG_OUT_PATIENCE_MS: Msecs = 10_000;

/// Identifies a `Work` of the session.
pub(super) const TEAR_DOWN: u64 = 2;
impl_has_work! { impl HasWork<Session, TEAR_DOWN> for Session { self.tear_down } }

const REMOVAL: u64 = 7;
type Timer = Delayed<Session, REMOVAL>;
impl_has_delayed! { impl HasDelayed<REMOVAL> for Session { self.removal.timer } }

/// The next check of the disks' removal, and its state.
#[pin_data]
pub(super) struct Removal {
    #[pin]
    timer: Timer,
    /// The patience of [`Session::remove`], in milliseconds.
    patience: Atomic<u32>,
    /// Time in which the midlayer ends a command if it can, in milliseconds.
    limit: Atomic<u32>,
    /// Number of commands that had ended when the timer was armed.
    ended: Atomic<i32>,
    /// How long no command has ended, in milliseconds.
    quiet: Atomic<u32>,
}

impl Removal {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::removal"),
            patience: Atomic::new(LOG_OUT_PATIENCE_MS),
            limit: Atomic::new(0),
            ended: Atomic::new(0),
            quiet: Atomic::new(0),
        })
    }

    fn slice(&self) -> Msecs {
        removal::slice_ms(self.patience.load(Relaxed))
    }
}

impl Session {
    /// Ends the session in the background, the disks first. Does not sleep.
    ///
    /// The disks may have much to write, for which a target may take as long as the midlayer
    /// allows. If no command ends for half of `patience` milliseconds, the target is probed,
    /// repeatedly. The connection is ended if the target does not respond in the other half, or if
    /// no command ends in a minute plus twice the longest request timeout of a disk. Only the first
    /// call counts.
    pub fn remove(self: &Arc<Self>, patience: Msecs) {
        match self.on(Recovery::remove) {
            Remove::TearDown => {
                self.removal.patience.store(patience, Relaxed);
                self.nexus.waiting.interrupt();
                // Cannot be queued already, as this is requested once.
                let _ = self.queues.removal.enqueue::<Self, TEAR_DOWN>(self.clone());
            }
            Remove::Nothing => {}
        }
    }

    /// Number of commands of the session that have ended, modulo 2^32.
    pub(in crate::srp) fn ended(&self) -> i32 {
        let channels = self.live.lock().channels.clone();
        let counts = channels.iter().flat_map(|all| all.iter());
        counts.fold(0, |sum, c| sum.wrapping_add(c.ended()))
    }

    fn tear_down(self: &Arc<Self>) {
        let (channels, host) = self.parts();
        let rport = self.rport();
        if let Some(host) = &host {
            if let Some(rport) = &rport {
                // Even if there is a connection: the class may be taking it over, with the disks
                // still blocked.
                rport.stop();
            }
            // From here on the removal timer sends the probes, which must not meet those of another
            // test.
            self.end_keep_alive();
            let limit = removal::limit_ms(host.request_timeout());
            self.removal.limit.store(limit, Relaxed);
            self.removal.ended.store(self.ended(), Relaxed);
            let _ = Timer::schedule(self.clone(), self.removal.slice());
            host.remove();
            if let Some(rport) = &rport {
                rport.stop();
            }
            Timer::cancel_sync(self);
        }
        self.on(Recovery::log_out);
        if let Some(channels) = &channels {
            log_out(channels);
        }
        self.lose(None);
        self.changed.wait(|| self.is_down());
        // An attempt in flight ends when it sees the state, which also keeps the timers from being
        // armed again.
        self.end_port_event();
        self.end_reconnect();
        self.end_fill();
        self.end_keep_alive();
        self.end_rescan();
        self.end_poll();
        // No thread posts, so the starving timer cannot be armed again.
        self.end_starving();
        drop(channels);
        drop(rport);
        drop(host);
        let live = core::mem::take(&mut *self.live.lock());
        // In this order: the remote port refers to the session, and the host to the connections.
        drop(live.rport);
        drop(live.host);
        drop(live.channels);
        drop(live.pd);
        self.on(Recovery::removed);
        self.registry.forget(self);
    }
}

impl Session {
    /// Checks whether commands have ended since the last check. Probes the target if none has.
    ///
    /// # Errors
    ///
    /// Why the connection must end.
    fn check_removal(&self) -> Result<(), Lost> {
        let ended = self.ended();
        if self.removal.ended.xchg(ended, Relaxed) != ended {
            self.removal.quiet.store(0, Relaxed);
            return Ok(());
        }
        let slice = self.removal.slice();
        let quiet = self.removal.quiet.load(Relaxed).saturating_add(slice);
        self.removal.quiet.store(quiet, Relaxed);
        match removal::next(quiet, slice, self.removal.limit.load(Relaxed)) {
            Next::Ask => self.ask(true),
            Next::AskAgain => self.ask(false),
            Next::GiveUp => Err(Lost::RemovalTimeout),
        }
    }

    /// Probes each channel. `first`: an unanswered probe may be a recent one.
    ///
    /// # Errors
    ///
    /// [`Lost::RemovalSilence`] if a channel has not responded to the last probe, or has no credit,
    /// so that it can send no command either.
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

/// Sends a logout on all channels, and waits until they have been sent, at most a second in total.
fn log_out(channels: &[Arc<Connection>]) {
    let end = ktime_get().add_ms(LOG_OUT_TIMEOUT_MS);
    for connection in channels {
        connection.begin_log_out();
    }
    for connection in channels {
        connection.end_log_out(end.ms_since(ktime_get()));
    }
}

impl WorkItem<TEAR_DOWN> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.tear_down();
    }
}

impl DelayedItem<REMOVAL> for Session {
    fn run(this: Arc<Self>) {
        match this.check_removal() {
            // Scheduling fails if the disks are gone meanwhile.
            Ok(()) => {
                let slice = this.removal.slice();
                let _ = Timer::schedule(this, slice);
            }
            Err(why) => this.fail(why),
        }
    }
}
