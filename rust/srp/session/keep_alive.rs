// SPDX-License-Identifier: GPL-2.0

//! Testing a connection: an idle one, and each when something may have ended it without a word.

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
    /// The number of a [`Stage`]. Changed with the timer not set, or by it.
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

    /// Time has passed that nobody has noticed: as [`Self::test`], with all of the time for an answer that is due already;
    /// a session without a connection tries now. Sleeps.
    pub fn wake(self: &Arc<Self>) {
        self.begin_reconnect();
        self.begin_test();
    }

    /// Finds out whether the connection still works, in 5 s, if that is not being found out. Sleeps.
    pub(super) fn test(self: &Arc<Self>) {
        let (channels, _) = self.parts();
        let mut all = channels.iter().flat_map(|all| all.iter());
        let due = all.any(|channel| channel.probe.is_out());
        if self.keep_alive.stage().begins_anew(due) {
            self.begin_test();
        }
    }

    fn begin_test(self: &Arc<Self>) {
        // The timer may have been set for much later. There is one only, as a test is not to find that of
        // another unanswered.
        self.end_keep_alive();
        self.keep_alive.set_stage(Stage::Ask);
        self.later::<KEEP_ALIVE>(0);
    }

    /// Asks each channel that is to be asked, and ends the connection if one has not answered.
    /// From the last answer on an idle channel that is less than three times `keep_alive`: in the first the answer came,
    /// after the second it is asked, the third is for that.
    fn test_channels(self: &Arc<Self>) {
        let stage = self.keep_alive.stage();
        if self.is_lost() {
            // The next connection sets the timer again.
            return self.keep_alive.set_stage(Stage::Keep);
        }
        let (next, delay) = stage.next();
        self.keep_alive.set_stage(next);
        let (channels, _) = self.parts();
        for channel in channels.iter().flat_map(|all| all.iter()) {
            // Each has a way of its own through the network.
            let idle = channel.probe.is_idle(channel.ended());
            // What it says is of this connection, which does not go before this.
            let _posting = rcu::read_lock();
            let tested = match stage.verdict(idle, channel.probe.is_out()) {
                Verdict::Wait => Ok(()),
                Verdict::Dead => Err(Lost::KeepAlive),
                // Without commands that the target has, one that waits for a credit comes first.
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
