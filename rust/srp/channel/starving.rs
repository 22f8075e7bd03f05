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
            Look,
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

/// A [`Starving`], changed by the session's timer, and while that does not run by the end of the connection.
pub(super) struct Watch {
    ended: Atomic<i32>,
    refused: Atomic<i32>,
    looks: Atomic<u32>,
}

impl Watch {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self {
            ended: Atomic::new(0),
            refused: Atomic::new(0),
            looks: Atomic::new(0),
        }
    }

    /// What waited then has another connection to wait for.
    pub(super) fn reset(&self) {
        self.looks.store(0, Relaxed);
    }
}

impl Channel {
    /// Gives a command back that there is no credit for, and has the session look whether one comes. Any
    /// context.
    #[cold]
    #[inline(never)]
    pub(super) fn without_credit(&self, cmd: Command) -> Result<(), Rejected> {
        self.counts.credit_waits.increment();
        self.owner.as_arc_borrow().credit_missing();
        self.busy(cmd)
    }

    /// Looks whether commands wait for a credit that does not come. For the session's timer only.
    pub fn look_for_credits(&self) -> Verdict {
        if !self.is_open() {
            return Verdict::Rest;
        }
        // A command that is being built is one that will be refused, or the next look finds it.
        let out = self
            .slots
            .iter()
            .any(|cell| !matches!(cell.word().state(), State::Free | State::Building));
        // In this order: whoever frees a slot has given the credit and counted the end before.
        let now = Look {
            stuck: !out && credit::take(self.credits(), credit::RESERVE_COMMAND).is_none(),
            ended: self.ended(),
            // CAST: Modulo 2^32.
            refused: self.counts.credit_waits() as i32,
        };
        let before = Starving {
            ended: self.starving.ended.load(Relaxed),
            refused: self.starving.refused.load(Relaxed),
            looks: self.starving.looks.load(Relaxed),
        };
        let (after, verdict) = before.look(now);
        self.starving.ended.store(after.ended, Relaxed);
        self.starving.refused.store(after.refused, Relaxed);
        self.starving.looks.store(after.looks, Relaxed);
        verdict
    }
}
