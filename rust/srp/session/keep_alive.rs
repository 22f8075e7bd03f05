// SPDX-License-Identifier: GPL-2.0

//! Tests of a connection: when it is idle, and when it may have ended silently.

use super::Session;
use crate::{
    params,
    srp::{
        error::Lost,
        logic::keep_alive::{
            Stage,
            Verdict, //
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
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc, //
    }, //
};

const KEEP_ALIVE: u64 = 3;
type Timer = Delayed<Session, KEEP_ALIVE>;
impl_has_delayed! { impl HasDelayed<KEEP_ALIVE> for Session { self.keep_alive.timer } }

/// The next test.
#[pin_data]
pub(super) struct KeepAlive {
    #[pin]
    timer: Timer,
    /// The number of a [`Stage`]. Changed by the timer, or while it is not armed.
    stage: Atomic<u32>,
}

impl KeepAlive {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::keep_alive"),
            stage: Atomic::new(Stage::Keep as u32),
        })
    }

    fn stage(&self) -> Stage {
        Stage::from_number(self.stage.load(Relaxed))
    }

    fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u32, Relaxed);
    }
}

impl Session {
    /// Arms the timer, if the parameter `keep_alive` enables it.
    pub(super) fn begin_keep_alive(self: &Arc<Self>) {
        let seconds = params::keep_alive();
        if seconds > 0 {
            self.later::<KEEP_ALIVE>(seconds.saturating_mul(1000));
        }
    }

    /// Cancels any test, until the timer is armed again. Sleeps.
    pub(super) fn end_keep_alive(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }

    /// Handles a resume: as [`Self::test`], and an outstanding response gets the full time again; a
    /// session without a connection reconnects now. Sleeps.
    pub fn wake(self: &Arc<Self>) {
        self.begin_reconnect();
        self.begin_test();
    }

    /// Tests whether the connection still works, in 5 s, unless a test is in flight. Sleeps.
    pub(super) fn test(self: &Arc<Self>) {
        let (channels, _) = self.parts();
        let mut all = channels.iter().flat_map(|all| all.iter());
        let due = all.any(|channel| channel.probe.is_out());
        if self.keep_alive.stage().begins_anew(due) {
            self.begin_test();
        }
    }

    fn begin_test(self: &Arc<Self>) {
        // The timer may be armed for much later. All tests share one timer, as a test must not find
        // the probe of another unanswered.
        self.end_keep_alive();
        self.keep_alive.set_stage(Stage::Ask);
        self.later::<KEEP_ALIVE>(0);
    }

    /// Probes the channels that are due, and ends the connection if one has not responded. An idle
    /// channel is given up less than three times `keep_alive` after its last response: the response
    /// came in the first interval, the probe is sent after the second, and the third is for its
    /// response.
    fn test_channels(self: &Arc<Self>) {
        let stage = self.keep_alive.stage();
        if self.is_lost() {
            // The next connection arms the timer again.
            return self.keep_alive.set_stage(Stage::Keep);
        }
        let (next, delay) = stage.next();
        self.keep_alive.set_stage(next);
        let (channels, _) = self.parts();
        for channel in channels.iter().flat_map(|all| all.iter()) {
            // Each channel has its own path through the network.
            let idle = channel.probe.is_idle(channel.ended());
            // The teardown of a connection that this section has seen waits for the section to end.
            // So `fail()` ends the connection that was tested, or finds it lost, but never ends a
            // later one.
            let _posting = rcu::read_lock();
            let tested = match stage.verdict(idle, channel.probe.is_out()) {
                Verdict::Wait => Ok(()),
                Verdict::Dead => Err(Lost::KeepAlive),
                // If no command is in flight, one that waits for a credit comes before the probe.
                Verdict::Ask if !channel.has_any_out() => channel.probe.send(channel),
                Verdict::Ask => channel.probe.ask(channel).map(|_| ()),
            };
            if let Err(why) = tested {
                return self.fail(why);
            }
        }
        match delay {
            Some(delay) => self.later::<KEEP_ALIVE>(delay),
            None => self.begin_keep_alive(),
        }
    }
}

impl DelayedItem<KEEP_ALIVE> for Session {
    fn run(this: Arc<Self>) {
        this.test_channels();
    }
}
