// SPDX-License-Identifier: GPL-2.0

//! What each command changes, both when it is sent and when it ends.

use super::super::{
    error::Violation,
    logic::{
        credit,
        send_queue::SIGNAL_EVERY, //
    }, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Counters of a channel. They have a cache line of their own, because of the rest of the channel a command
/// changes nothing.
#[repr(align(64))]
pub(super) struct Counts {
    /// What may be sent; see [`credit`].
    pub(super) credits: Atomic<i32>,
    /// Sends that nothing else recycles, modulo 2^32.
    unsignaled: Atomic<i32>,
    /// Commands that have ended, modulo 2^32.
    pub(super) ended: Atomic<i32>,
    /// How often a command had to wait for a credit.
    pub(super) zero_req_lim: Atomic<i32>,
}

impl Counts {
    /// No credit.
    pub(super) fn new() -> Self {
        Self {
            credits: Atomic::new(0),
            unsignaled: Atomic::new(0),
            ended: Atomic::new(0),
            zero_req_lim: Atomic::new(0),
        }
    }

    /// Takes a credit unless only `reserve` are left.
    #[inline]
    pub(super) fn take_credit(&self, reserve: i32) -> bool {
        let mut unused = self.credits.load(Relaxed);
        while let Some(left) = credit::take(unused, reserve) {
            match self.credits.cmpxchg(unused, left, Relaxed) {
                Ok(_) => return true,
                Err(now) => unused = now,
            }
        }
        false
    }

    /// Counts a credit change by the target.
    #[inline]
    pub(super) fn give_credits(&self, delta: i32) -> Result<(), Violation> {
        let mut unused = self.credits.load(Relaxed);
        loop {
            let sum =
                credit::give(unused, delta, credit::MAX).map_err(|_| Violation::Credits(delta))?;
            match self.credits.cmpxchg(unused, sum, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => unused = now,
            }
        }
    }

    /// Whether to ask for the completion of a send that nothing else recycles.
    ///
    /// The memory of such a send is used again when the target has answered, which may be before it
    /// has acknowledged the send. A target that never does fills the send queue, and the session
    /// ends.
    #[inline]
    pub(super) fn signal(&self) -> bool {
        self.unsignaled.fetch_add(1, Relaxed) as u32 % SIGNAL_EVERY == SIGNAL_EVERY - 1
    }
}
