// SPDX-License-Identifier: GPL-2.0

//! Adding the channels that a login has left out.

use super::Session;
use crate::{
    srp::{
        channel::Connection,
        connect::Purpose,
        log::session_log,
        logic::session::{
            fill_delay_ms,
            LOGIN_TIMEOUT_MS, //
        },
    },
    sync::NoIo,
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

/// The next try to add them.
#[pin_data]
pub(super) struct Fill {
    #[pin]
    timer: Timer,
    /// Tries so far.
    tries: Atomic<u32>,
}

impl Fill {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::fill"),
            tries: Atomic::new(0),
        })
    }
}

fn is_missing(connection: &&Arc<Connection>) -> bool {
    !connection.is_open()
}

impl Session {
    /// The connection is new: begins to add what it lacks.
    pub(super) fn begin_fill(self: &Arc<Self>) {
        let (channels, _) = self.parts();
        if channels.is_some_and(|all| all.iter().any(|c| is_missing(&c))) {
            self.fill.tries.store(0, Relaxed);
            self.later::<FILL>(fill_delay_ms(0));
        }
    }

    /// Nothing is added, until [`Self::begin_fill`]. Sleeps.
    pub(super) fn end_fill(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }

    /// Tries to add the channels that are missing.
    fn add_missing(self: &Arc<Self>) {
        let _noio = NoIo::enter();
        let (Some(channels), _) = self.parts() else {
            return;
        };
        let before = channels.iter().filter(is_missing).count();
        if before == 0 || self.is_lost() {
            return;
        }
        let result = self
            .log_in(Purpose::More, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.more(&channels));
        if self.is_lost() {
            return;
        }
        let left = channels.iter().filter(is_missing).count();
        let tries = match left {
            0 => 0,
            _ => self.fill.tries.fetch_add(1, Relaxed) + 1,
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
            // A target without room for more says the same each minute from then on.
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
        this.add_missing();
    }
}
