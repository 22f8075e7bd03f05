// SPDX-License-Identifier: GPL-2.0

//! The timer of a session. [`Recovery::tick`] returns the actions that are due.

use super::{
    Session,
    TICK, //
};
use crate::{
    params,
    srp::{
        channel::Connection,
        error::Lost,
        ktime::ktime_get,
        logic::{
            credit::{
                RESERVE_COMMAND,
                RESERVE_TSK_MGMT, //
            },
            recovery::Recovery,
            time::DISK_TIMEOUT_MS,
            watch::{
                credit_round_ms,
                Credits,
                Policy,
                Verdict,
                Watch, //
            }, //
        }, //
    },
    sync::smp_mb,
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

pub(super) type Tick = Delayed<Session, TICK>;
impl_has_delayed! { impl HasDelayed<TICK> for Session { self.tick } }

/// The rounds of a channel without progress.
#[derive(Clone, Copy, Default)]
pub(super) struct Rounds {
    test: Watch,
    credits: Watch,
}

/// The parameter `keep_alive` in milliseconds; 0 for none.
fn keep_alive_ms() -> Msecs {
    params::keep_alive().saturating_mul(1000)
}

impl Session {
    /// Applies an event that may set a deadline. Any context.
    pub(super) fn schedule<T>(self: &Arc<Self>, event: impl FnOnce(&mut Recovery) -> T) -> T {
        let outcome = self.on(event);
        let recovery = self.recovery.lock();
        if let Some(delay) = recovery.next_tick(ktime_get()) {
            // Fails if the tick begins to run, which schedules the next one, or if the teardown
            // cancels the tick, in which case there is no deadline.
            let _ = Tick::hurry(self.clone(), delay);
        }
        outcome
    }

    /// Sets the deadlines of a new connection. Any context.
    pub(super) fn begin_watch(self: &Arc<Self>) {
        let polled = self.status().geometry.polled > 0;
        self.schedule(|recovery| recovery.watch(ktime_get(), keep_alive_ms(), polled));
    }

    /// Handles a port event. A session that waits to reconnect does so now, as the network may be
    /// back, and an attempt that waits for a retransmission starts over. If the path to the target
    /// may have `moved`, a connected session tests it. Events are rate-limited. Any context.
    pub fn port_changed(self: &Arc<Self>, moved: bool) {
        self.schedule(|recovery| recovery.port_event(ktime_get(), moved));
    }

    /// Handles a resume. A connected session tests its connection, in 5 s; an outstanding probe has
    /// the full time again. A session without a connection reconnects now. Any context.
    pub fn wake(self: &Arc<Self>) {
        self.begin_reconnect();
        self.schedule(|recovery| recovery.test(ktime_get(), None));
    }

    /// The request timeout of a disk, in milliseconds.
    pub(in crate::srp) fn command_time(&self) -> Msecs {
        DISK_TIMEOUT_MS.max(self.logins.time_allowed())
    }

    /// A command was refused for lack of a credit: checks whether credits come, until no command
    /// waits or the connection is lost. If no command is outstanding, nothing times out, so neither
    /// the midlayer nor the transport notices. Any context.
    pub(super) fn watch_credits(self: &Arc<Self>) {
        // Pairs with the barrier in `look_at_credits()`: the tick sees that the command was
        // refused, or this sees that the tick has stopped checking.
        smp_mb();
        if !self.status().state().starving {
            let round = credit_round_ms(self.command_time());
            self.schedule(|recovery| recovery.credit_missing(ktime_get(), round));
        }
    }

    /// Waits for a running tick, then forgets the rounds of a lost connection. Sleeps.
    pub(super) fn forget_rounds(self: &Arc<Self>) {
        Tick::cancel_sync(self);
        for rounds in &mut *self.rounds.lock() {
            rounds.test.reset();
            rounds.credits.reset();
        }
        self.schedule(|_| ());
    }

    /// Checks the progress of the channels, and probes those that must show a sign of life: each
    /// has its own path through the network.
    ///
    /// An idle channel is given up less than three times `keep_alive` after its last response: the
    /// response came in the first interval, the probe is sent after the second, and the third is
    /// for its response.
    ///
    /// # Errors
    ///
    /// The reason to end the connection.
    fn look_at_channels(&self, channels: &[Arc<Connection>], policy: Policy) -> Result<(), Lost> {
        let removal = matches!(policy, Policy::Removal { .. });
        let mut all = self.rounds.lock();
        for (channel, rounds) in channels.iter().zip(&mut *all) {
            let idle = rounds.test.round(channel.ended()) > 0;
            if removal && !channel.is_open() {
                continue;
            }
            let silent = match removal {
                true => Lost::RemovalSilence,
                false => Lost::KeepAlive,
            };
            match policy.verdict(idle, channel.is_probed()) {
                Verdict::Wait => {}
                Verdict::Silent => return Err(silent),
                Verdict::Stuck => return Err(Lost::RemovalTimeout),
                Verdict::Ask => {
                    // With no command in flight, a command that waits comes first: the probe leaves
                    // the reserved credit alone.
                    let reserve = match removal || channel.has_any_out() {
                        true => RESERVE_TSK_MGMT,
                        false => RESERVE_COMMAND,
                    };
                    match channel.send_probe(reserve) {
                        // Without a credit, the midlayer can send no command either.
                        Ok(false) if removal => return Err(silent),
                        Err(Lost::KeepAlive) if removal => {}
                        result => result.map(drop)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks whether commands wait for credits that do not come.
    ///
    /// # Errors
    ///
    /// The reason to end the connection.
    fn look_at_credits(self: &Arc<Self>, channels: &[Arc<Connection>]) -> Result<(), Lost> {
        // Pairs with the barrier in `watch_credits()`: first the state says that the tick has
        // stopped checking, then the credits are read.
        smp_mb();
        let mut wait = false;
        for (channel, rounds) in channels.iter().zip(&mut *self.rounds.lock()) {
            match channel.look_at_credits(&mut rounds.credits) {
                Credits::Enough => {}
                Credits::Missing => wait = true,
                Credits::Starved => {
                    let seconds = self.command_time() / 1000;
                    return Err(Lost::Starved(channel.index(), seconds));
                }
            }
        }
        if wait {
            self.watch_credits();
        }
        Ok(())
    }

    /// Number of commands of the session that have ended, modulo 2^32.
    pub(super) fn ended(&self) -> i32 {
        let (channels, _) = self.parts();
        let counts = channels.iter().flat_map(|all| all.iter());
        counts.fold(0, |sum, c| sum.wrapping_add(c.ended()))
    }
}

impl DelayedItem<TICK> for Session {
    fn run(this: Arc<Self>) {
        let due = this.on(|recovery| recovery.tick(ktime_get(), keep_alive_ms()));
        let (channels, _) = this.parts();
        let channels: &[Arc<Connection>] = channels.as_ref().map_or(&[], |all| all);
        if due.unblock {
            // Even if there is a connection: the class may be taking it over, with the disks still
            // blocked. A scan may wait for them, and the removal for the scan.
            if let Some(rport) = this.rport() {
                rport.stop();
            }
        }
        if due.poll {
            for channel in channels {
                channel.poll();
            }
        }
        if due.reconnect {
            this.begin_reconnect();
            this.logins.waiting.interrupt();
        }
        if due.moved {
            let out = channels.iter().any(|channel| channel.is_probed());
            this.on(|recovery| recovery.test(ktime_get(), Some(out)));
        }
        let removal = due.removal.then(|| {
            let ended = this.ended();
            this.on(|recovery| recovery.removal_round(ended))
        });
        let mut result = Ok(());
        for policy in [due.look, removal].into_iter().flatten() {
            result = result.and_then(|()| this.look_at_channels(channels, policy));
        }
        if due.credits {
            result = result.and_then(|()| this.look_at_credits(channels));
        }
        if let Err(why) = result {
            this.fail(why);
        }
        this.schedule(|_| ());
    }
}
