// SPDX-License-Identifier: GPL-2.0

//! The disks of a session: the scan at the end of the login, a scan when the target reports a
//! change, and the removal of disks and session.

use super::{
    reconnect::Connect,
    tick::Tick,
    Session,
    DISKS,
    WAIT_SLICE_MS, //
};
use crate::{
    srp::{
        channel::Connection,
        error::LoginFailure,
        ktime::{
            ktime_get,
            Ktime, //
        },
        log::session_log,
        logic::{
            recovery::{
                LoggedIn,
                Recovery,
                Remove, //
            },
            state::Life,
            time::LOGOUT_TIMEOUT_MS,
            watch::removal_limit_ms, //
        }, //
    },
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

/// The `patience` of [`Session::remove`] at a logout, in milliseconds.
pub const LOGOUT_PATIENCE_MS: Msecs = 10_000;
/// Minimum interval of rescans, in milliseconds, whatever the target reports.
const INTERVAL_MS: Msecs = 30_000;

pub(super) type Disks = Delayed<Session, DISKS>;
impl_has_delayed! { impl HasDelayed<DISKS> for Session { self.disks } }

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
        // Fails if a removal has scheduled the item, which ends the wait below, too. Reports of the
        // target have no effect before the session is live.
        let _ = Disks::schedule(self.clone(), 0);
        loop {
            match self.scanned.wait_interruptible_timeout(WAIT_SLICE_MS) {
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
        let recovery = self.recovery.lock();
        // The login scans by itself.
        if matches!(recovery.state().life, Life::Live | Life::Recovering) {
            // Fails if a scan is scheduled already, which suffices.
            let _ = Disks::schedule(self.clone(), INTERVAL_MS.saturating_sub(passed));
        }
    }

    /// Time at which the last rescan ran or was postponed.
    pub(in crate::srp) fn last_scan(&self) -> Ktime {
        self.last_scan.load()
    }

    /// Ends the session in the background, the disks first. May sleep, for a mutex only.
    ///
    /// The disks may have much to write, for which a target may take as long as the midlayer
    /// allows. If no command ends for half of `patience` milliseconds, the target is probed,
    /// repeatedly. The connection is ended if the target does not respond in the other half, or if
    /// no command ends in a minute plus twice the longest request timeout of a disk. Only the first
    /// call counts.
    pub fn remove(self: &Arc<Self>, patience: Msecs) {
        let ended = self.ended();
        match self.schedule(|recovery| recovery.remove(ktime_get(), patience, ended)) {
            Remove::TearDown => {
                self.logins.waiting.interrupt();
                // Fails if the item begins to run, which removes the disks.
                let _ = Disks::hurry(self.clone(), 0);
            }
            Remove::Nothing => {}
        }
    }
}

/// Sends a logout on all channels, and waits until all are sent, at most a second in total.
fn log_out(channels: &[Arc<Connection>]) {
    let end = ktime_get().add_ms(LOGOUT_TIMEOUT_MS);
    for connection in channels {
        connection.begin_log_out();
    }
    for connection in channels {
        connection.end_log_out(end.ms_since(ktime_get()));
    }
}

impl DelayedItem<DISKS> for Session {
    fn run(this: Arc<Self>) {
        let (_, host) = this.parts();
        let life = this.status().state().life;
        match (life, host) {
            (Life::Connecting, Some(host)) => host.scan(),
            (Life::Live, host) => {
                this.last_scan.store(ktime_get());
                if let Some(host) = host {
                    session_log!(Info, this, "the target's LUNs have changed, rescanning");
                    host.rescan();
                }
            }
            (Life::Recovering, _) => {
                this.last_scan.store(ktime_get());
                this.begin_rescan();
            }
            (Life::Connecting, None) | (Life::Failed | Life::Removing | Life::Gone, _) => {}
        }
        // A login may wait for this scan, in any state of the session.
        this.scanned.complete_all();
        if life == Life::Removing {
            this.tear_down();
        }
    }
}

impl Session {
    /// Removes the disks and the session. Sleeps.
    fn tear_down(self: &Arc<Self>) {
        let (channels, host) = self.parts();
        let rport = self.rport();
        if let Some(host) = &host {
            let limit = removal_limit_ms(host.request_timeout());
            self.on(|recovery| recovery.limit_removal(limit));
            host.remove();
            if let Some(rport) = &rport {
                rport.stop();
            }
        }
        self.on(Recovery::log_out);
        if let Some(channels) = &channels {
            // No message may follow the logout, so wait for a tick that may still send a probe.
            Tick::cancel_sync(self);
            self.schedule(|_| ());
            log_out(channels);
        }
        self.lose(None);
        self.changed.wait(|| self.status().state().is_down());
        // An attempt in flight ends when it sees the state. No deadline is set from here on.
        Connect::cancel_sync(self);
        Tick::cancel_sync(self);
        drop((rport, host, channels));
        let parts = core::mem::take(&mut *self.live.lock());
        drop(parts);
        self.on(Recovery::removed);
        self.registry.forget(self);
    }
}
