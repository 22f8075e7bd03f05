// SPDX-License-Identifier: GPL-2.0

//! Scans for disks: at the end of the login, and when the target reports a change.

use super::Session;
use crate::{
    srp::{
        error::LoginFailure,
        ktime::{
            ktime_get,
            AtomicKtime,
            Ktime, //
        },
        log::session_log,
        logic::{
            recovery::LoggedIn,
            session::Life, //
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
    sync::Arc,
    time::Msecs,
    workqueue::WorkItem, //
};

/// Maximum length of one wait, in milliseconds.
const WAIT_SLICE_MS: Msecs = 10_000;
/// Minimum interval of rescans, in milliseconds, whatever the target reports.
const INTERVAL_MS: Msecs = 30_000;

/// Identifies the first scan, a `Work` of the session.
pub(super) const SCAN: u64 = 3;
impl_has_work! { impl HasWork<Session, SCAN> for Session { self.scan } }

const RESCAN: u64 = 4;
type Timer = Delayed<Session, RESCAN>;
impl_has_delayed! { impl HasDelayed<RESCAN> for Session { self.rescan.timer } }

/// Scans for disks.
#[pin_data]
pub(super) struct Rescan {
    /// Completed when the first scan is done.
    #[pin]
    scanned: Completion,
    /// The next scan.
    #[pin]
    timer: Timer,
    /// The time of the last rescan.
    last: AtomicKtime,
}

impl Rescan {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            scanned <- Completion::new(),
            timer <- new_delayed!(queue, "Session::rescan"),
            last: AtomicKtime::new(Ktime::MIN),
        })
    }
}

impl Session {
    /// Scans for disks, as the last step of the login. Sleeps, for as long as the commands take.
    ///
    /// The midlayer's wait ignores signals, so the scan runs on a queue. A signal ends the
    /// connection, and with it the commands.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::Signal`] after a signal, [`LoginFailure::Disconnected`] otherwise.
    pub fn scan(self: &Arc<Self>) -> Result<(), LoginFailure> {
        // Cannot be queued already, as a login calls this once.
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
        match self.on(|recovery| recovery.logged_in(ktime_get())) {
            LoggedIn::StartTimers => {
                self.start_timers(false);
                Ok(())
            }
            LoggedIn::TooLate => Err(LoginFailure::Disconnected),
        }
    }

    /// Schedules a scan for disks, now or when the minimum interval has passed. Any context.
    pub(in crate::srp) fn begin_rescan(self: &Arc<Self>) {
        let passed = ktime_get().ms_since(self.last_scan());
        self.later::<RESCAN>(INTERVAL_MS.saturating_sub(passed));
    }

    /// The time of the last rescan.
    pub(in crate::srp) fn last_scan(&self) -> Ktime {
        self.rescan.last.load()
    }

    /// Cancels further scans. The session is ending. Sleeps.
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
        this.rescan.last.store(ktime_get());
        match this.life() {
            Life::Live => {}
            Life::Recovering => return this.begin_rescan(),
            _ => return,
        }
        if let (_, Some(host)) = this.parts() {
            session_log!(Info, this, "the target's LUNs have changed, rescanning");
            host.rescan();
        }
    }
}
