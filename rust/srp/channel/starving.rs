// SPDX-License-Identifier: GPL-2.0

//! Commands that wait for a credit.

use super::Channel;
use crate::{
    scsi::{
        Command,
        Rejected, //
    },
    srp::logic::{
        credit,
        slot::State,
        starving::{
            Sample,
            Starving,
            Verdict, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The fields of a [`Starving`]. Changed by the session's timer, and by the teardown while the
/// timer does not run.
pub(super) struct History {
    ended: Atomic<i32>,
    refused: Atomic<i32>,
    periods: Atomic<u32>,
}

impl History {
    /// Creates an empty history.
    pub(super) fn new() -> Self {
        Self {
            ended: Atomic::new(0),
            refused: Atomic::new(0),
            periods: Atomic::new(0),
        }
    }

    /// Resets the number of periods: commands now wait for the next connection.
    pub(super) fn reset(&self) {
        self.periods.store(0, Relaxed);
    }
}

impl Channel {
    /// Gives back a command that there is no credit for, and has the session check whether credits
    /// come. Any context.
    #[cold]
    #[inline(never)]
    pub(super) fn without_credit(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.credit_waits.increment();
        self.owner.as_arc_borrow().credit_missing();
        self.busy(cmd)
    }

    /// Checks whether commands wait for credits that do not come. For the session's timer only.
    pub fn check_credits(&self) -> Verdict {
        if !self.is_open() {
            return Verdict::Rest;
        }
        // A command in Building will be refused, or the next check finds it.
        let out = self
            .slots
            .iter()
            .any(|cell| !matches!(cell.word().state(), State::Free | State::Building));
        // After the slots are read: a slot is freed after its credit is given and its end is
        // counted.
        let now = Sample {
            stuck: !out && credit::take(self.credits(), credit::RESERVE_COMMAND).is_none(),
            ended: self.ended(),
            // CAST: Modulo 2^32.
            refused: self.counts.credit_waits() as i32,
        };
        let before = Starving {
            ended: self.starving.ended.load(Relaxed),
            refused: self.starving.refused.load(Relaxed),
            periods: self.starving.periods.load(Relaxed),
        };
        let (after, verdict) = before.next(now);
        self.starving.ended.store(after.ended, Relaxed);
        self.starving.refused.store(after.refused, Relaxed);
        self.starving.periods.store(after.periods, Relaxed);
        verdict
    }
}
