// SPDX-License-Identifier: GPL-2.0

//! Looking for disks: at the end of the login, and when the target says that they have changed.

use super::Session;
use crate::{
    clock::monotonic_ns,
    srp::{
        error::LoginFailure,
        log::session_log,
        logic::{
            recovery::{
                Action,
                Event, //
            },
            session::State, //
        },
    },
    sync::Completion,
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

/// How long a wait for the disks is at a time.
const WAIT_SLICE_MS: Msecs = 10_000;
/// Disks are looked for at most once in this time, whatever the target reports.
const INTERVAL_MS: Msecs = 30_000;

/// The first look, a `Work` of the session.
pub(super) const SCAN: u64 = 3;
impl_has_work! { impl HasWork<Session, SCAN> for Session { self.scan } }

const RESCAN: u64 = 4;
type Timer = Delayed<Session, RESCAN>;
impl_has_delayed! { impl HasDelayed<RESCAN> for Session { self.rescan.timer } }

/// Looks for disks.
#[pin_data]
pub(super) struct Rescan {
    /// The first one is done.
    #[pin]
    scanned: Completion,
    /// The next one.
    #[pin]
    timer: Timer,
    /// When the last one was, in nanoseconds of the monotonic clock.
    last: Atomic<i64>,
}

impl Rescan {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            scanned <- Completion::new(),
            timer <- new_delayed!(queue, "Session::rescan"),
            last: Atomic::new(i64::MIN),
        })
    }
}

impl Session {
    /// Looks for disks, which is the end of the login. Sleeps, for as long as the commands take.
    ///
    /// The midlayer waits for them without heed to signals, so it does so on a queue. A signal ends
    /// the connection, and with it the commands.
    ///
    /// # Errors
    ///
    /// After a signal, or if the connection is lost.
    pub fn look_for_disks(self: &Arc<Self>) -> Result<(), LoginFailure> {
        // It is not queued, as this is done once.
        let _ = self.queues.removal.enqueue::<Self, SCAN>(self.clone());
        loop {
            match self
                .rescan
                .scanned
                .wait_interruptible_timeout(WAIT_SLICE_MS)
            {
                Err(e) if e == ETIMEDOUT => {}
                Err(_) => {
                    self.lose(None);
                    return Err(LoginFailure::Signal);
                }
                Ok(()) => break,
            }
        }
        if self.on(Event::LoggedIn) != Action::LookAfter {
            return Err(LoginFailure::Disconnected);
        }
        self.look_after();
        Ok(())
    }

    /// Looks for disks, now or when the interval has passed. Any context.
    pub(in crate::srp) fn look_again(self: &Arc<Self>) {
        let passed = monotonic_ns().saturating_sub(self.last_scan()) / 1_000_000;
        let left = i64::from(INTERVAL_MS).saturating_sub(passed);
        self.later::<RESCAN>(Msecs::try_from(left).unwrap_or(0));
    }

    /// When disks were looked for last, in nanoseconds of the monotonic clock.
    pub(in crate::srp) fn last_scan(&self) -> i64 {
        self.rescan.last.load(Relaxed)
    }

    /// Disks are not looked for any more. The session is ending. Sleeps.
    pub(super) fn end_rescan(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }
}

impl WorkItem<SCAN> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let (_, Some(host)) = this.parts() {
            host.scan();
        }
        this.rescan.scanned.complete_all();
    }
}

impl DelayedItem<RESCAN> for Session {
    fn run(this: Arc<Self>) {
        this.rescan.last.store(monotonic_ns(), Relaxed);
        match this.state() {
            State::Live => {}
            State::Recovering => return this.look_again(),
            _ => return,
        }
        if let (_, Some(host)) = this.parts() {
            session_log!(Info, this, "the target's units have changed");
            host.rescan();
        }
    }
}
