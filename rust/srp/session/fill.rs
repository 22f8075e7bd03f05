// SPDX-License-Identifier: GPL-2.0

//! Adds the channels that a login has left out, and the answer channels, which no reconnect sets
//! up.

use super::Session;
use crate::{
    srp::{
        connect::Purpose,
        error::Lost,
        ktime::{
            ktime_get,
            AtomicKtime,
            Ktime, //
        },
        log::session_log,
        logic::{
            backoff::fill_delay_ms,
            session::{
                FORGET_FLAPS_MS,
                LOGIN_TIMEOUT_MS, //
            }, //
        },
    },
    sync::noio,
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Delayed,
        DelayedItem,
        Handle, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

const FILL: u64 = 2;
type Timer = Delayed<Session, FILL>;
impl_has_delayed! { impl HasDelayed<FILL> for Session { self.fill.timer } }

/// The next attempt to add missing channels.
#[pin_data]
pub(super) struct Fill {
    #[pin]
    timer: Timer,
    /// Number of attempts so far.
    tries: Atomic<u32>,
    /// How often an answer channel was lost; `flapped` is when last. Updates may race; a lost
    /// increment is harmless.
    flaps: Atomic<u32>,
    flapped: AtomicKtime,
}

impl Fill {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::fill"),
            tries: Atomic::new(0),
            flaps: Atomic::new(0),
            flapped: AtomicKtime::new(Ktime::MIN),
        })
    }
}

impl Session {
    /// Starts to add the channels that a new connection lacks. `again`: the session had a
    /// connection earlier.
    pub(super) fn begin_fill(self: &Arc<Self>, again: bool) {
        let (Some(channels), _) = self.parts() else {
            return;
        };
        if channels.missing() > 0 {
            self.fill.tries.store(0, Relaxed);
            let delay = match channels.iter().all(|c| c.is_open()) {
                // The target has just refused a channel.
                false => fill_delay_ms(0),
                true => match self.flaps() {
                    // The reconnect has not requested answer channels.
                    0 if again => 0,
                    flaps => fill_delay_ms(flaps),
                },
            };
            self.later::<FILL>(delay);
        }
    }

    /// Answer channel `number` is lost; without `why`, the session's connection is lost with it.
    /// Each loss lengthens the pause, so that a flapping channel disturbs the session less.
    pub(super) fn count_flap(&self, number: usize, why: Option<&Lost>) {
        if self.is_lost() || self.is_ending() {
            return;
        }
        self.fill
            .flaps
            .store(self.flaps().saturating_add(1), Relaxed);
        self.fill.flapped.store(ktime_get());
        let Some(from) = self.nexus.plan.answers_from.get(number) else {
            return;
        };
        let from = &from.destination;
        // The pauses limit the rate of these log lines.
        match why {
            None => session_log!(
                Warning,
                self,
                "the answer channel to {} is lost",
                fmt!("{from}")
            ),
            Some(why) => session_log!(
                Warning,
                self,
                "no answer channel to {}: {}",
                fmt!("{from}"),
                format_args!("{why}")
            ),
        }
    }

    /// Whether the pause after the last loss of an answer channel is not over.
    fn is_flapping(&self) -> bool {
        let flaps = self.flaps();
        flaps > 0 && ktime_get().ms_since(self.fill.flapped.load()) < fill_delay_ms(flaps)
    }

    fn flaps(&self) -> u32 {
        match ktime_get().ms_since(self.fill.flapped.load()) {
            0..FORGET_FLAPS_MS => self.fill.flaps.load(Relaxed),
            _ => 0,
        }
    }

    /// Stops adding channels, until [`Self::begin_fill`]. Sleeps.
    pub(super) fn end_fill(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }

    /// Attempts to add the channels that are missing.
    fn add_missing(self: &Arc<Self>) {
        let (Some(channels), _) = self.parts() else {
            return;
        };
        let before = channels.missing();
        if before == 0 || self.is_lost() {
            return;
        }
        let result = self
            .log_in(Purpose::More, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.more(&channels, !self.is_flapping()));
        if self.is_lost() {
            return;
        }
        let left = channels.missing();
        let tries = match left {
            0 => 0,
            _ => self.fill.tries.fetch_add(1, Relaxed) + 1,
        };
        if left < before {
            let all = channels.len() + channels.answers().len();
            session_log!(Info, self, "{} of {all} channels connected", all - left);
        } else if let (Err(why), true) = (
            result,
            fill_delay_ms(tries) > fill_delay_ms(tries.saturating_sub(1)),
        ) {
            // Only while the pause grows: then a full target refuses each minute.
            session_log!(
                Warning,
                self,
                "{left} channels still missing: {}",
                format_args!("{why}")
            );
        }
        if left > 0 {
            self.later::<FILL>(fill_delay_ms(tries));
        }
    }
}

impl DelayedItem<FILL> for Session {
    fn run(this: Arc<Self>) {
        noio(|| this.add_missing());
    }
}
