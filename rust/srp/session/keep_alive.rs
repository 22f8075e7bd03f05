// SPDX-License-Identifier: GPL-2.0

//! Testing an idle connection.

use super::Session;
use crate::{
    params,
    srp::error::Lost,
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
        rcu,
        Arc, //
    },
    time::Msecs, //
};

/// After a resume a target has this time to answer.
const WAKE_TEST_MS: Msecs = 5_000;

const KEEP_ALIVE: u64 = 3;
type Timer = Delayed<Session, KEEP_ALIVE>;
impl_has_delayed! { impl HasDelayed<KEEP_ALIVE> for Session { self.keep_alive.timer } }

/// The next test.
#[pin_data]
pub(super) struct KeepAlive {
    #[pin]
    timer: Timer,
    /// The system has been asleep since the last one.
    woken: Atomic<bool>,
}

impl KeepAlive {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::keep_alive"),
            woken: Atomic::new(false),
        })
    }
}

impl Session {
    /// Sets the timer, if the parameter wants it.
    pub(super) fn begin_keep_alive(self: &Arc<Self>) {
        let seconds = params::keep_alive();
        if seconds > 0 {
            self.later::<KEEP_ALIVE>(seconds.saturating_mul(1000));
        }
    }

    /// No test is under way, until a timer is set. Sleeps.
    pub(super) fn end_keep_alive(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }

    /// Time has passed that nobody has noticed: finds out whether the connection still works, with a
    /// test now and a check for the answer a little later. Sleeps.
    pub fn wake(self: &Arc<Self>) {
        self.begin_reconnect();
        // The timer may have been set for much later. There is one only, as a test is not to find that of
        // another unanswered.
        self.end_keep_alive();
        self.keep_alive.woken.store(true, Relaxed);
        self.later::<KEEP_ALIVE>(0);
    }

    /// For each channel on which nothing has ended since the last test, which would be a sign of life: ends the connection
    /// if the target has not answered the last test, or else asks it. From the last answer that is less than
    /// three times the parameter: in the first the answer came, after the second it asks, the third is for that.
    fn test_idle(self: &Arc<Self>) {
        if self.is_lost() {
            // The next connection sets the timer again.
            return;
        }
        let woken = self.keep_alive.woken.xchg(false, Relaxed);
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
                // That test may have been sent just now. It has until the next test.
                Err(Lost::KeepAlive) if woken => {}
                Err(why) => return self.fail(why),
            }
        }
        if woken {
            self.later::<KEEP_ALIVE>(WAKE_TEST_MS);
        } else {
            self.begin_keep_alive();
        }
    }
}

impl DelayedItem<KEEP_ALIVE> for Session {
    fn run(this: Arc<Self>) {
        this.test_idle();
    }
}
