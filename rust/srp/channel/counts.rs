// SPDX-License-Identifier: GPL-2.0

//! What commands change of their channel.

use super::super::{
    error::Violation,
    logic::{
        credit,
        registration::{
            Transfer,
            Way, //
        },
        send_queue::SIGNAL_EVERY, //
    },
    statistics::Count, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Counters of a channel. What each command changes, both when it is sent and when it ends, has a cache line of
/// its own, because of the rest of the channel a command changes nothing.
#[repr(C, align(64))]
pub struct Counts {
    /// What may be sent; see [`credit`].
    pub(super) credits: Atomic<i32>,
    /// Sends that nothing else recycles, modulo 2^32.
    unsignaled: Atomic<i32>,
    /// Commands that have ended, modulo 2^32.
    pub(super) ended: Atomic<i32>,
    /// Answered commands by the [`Way`] of their data.
    ways: [Count; 4],
    /// Data of answered commands.
    read_bytes: Count,
    /// Data of answered commands.
    write_bytes: Count,
    /// How often a command had to wait for a credit. The next line begins here.
    pub(super) credit_waits: Count,
    /// How often the block layer was told to try again.
    pub(super) busy: Count,
}

const _: () = assert!(core::mem::offset_of!(Counts, credit_waits) == 64);

impl Counts {
    /// No credit.
    pub(super) fn new() -> Self {
        Self {
            credits: Atomic::new(0),
            unsignaled: Atomic::new(0),
            ended: Atomic::new(0),
            ways: [const { Count::new() }; 4],
            read_bytes: Count::new(),
            write_bytes: Count::new(),
            credit_waits: Count::new(),
            busy: Count::new(),
        }
    }

    /// Counts a command that the target has answered, and its data. For completion callbacks only, of which one
    /// runs at a time.
    #[inline(always)]
    pub(super) fn answered(&self, way: Way, data: Transfer) {
        if let Some(count) = self.ways.get(way as usize) {
            count.add_alone(1);
        }
        match data {
            Transfer::None => {}
            Transfer::Read(len) => self.read_bytes.add_alone(len.into()),
            Transfer::Write(len) => self.write_bytes.add_alone(len.into()),
        }
    }

    /// Commands that the target has answered.
    pub fn commands(&self) -> u64 {
        self.ways.iter().map(Count::get).sum()
    }

    /// Those of them whose data went this way.
    pub fn by_way(&self, way: Way) -> u64 {
        self.ways.get(way as usize).map_or(0, Count::get)
    }

    /// Bytes that the target has sent for them, as far as its answers say.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }

    /// Bytes that it has taken.
    pub fn write_bytes(&self) -> u64 {
        self.write_bytes.get()
    }

    /// How often a command had to wait for a credit.
    pub fn credit_waits(&self) -> u64 {
        self.credit_waits.get()
    }

    /// How often the block layer was told to try a command again, for want of a credit, of a slot, of memory or of a
    /// connection.
    pub fn busy(&self) -> u64 {
        self.busy.get()
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
