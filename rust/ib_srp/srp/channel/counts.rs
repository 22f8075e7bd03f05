// SPDX-License-Identifier: GPL-2.0

//! The counters of a channel.

use super::super::{
    error::Violation,
    logic::{
        credit,
        data_path::DataPath,
        send_queue::SIGNAL_EVERY, //
    },
    proto::login_iu::MAX_REQ_LIM, //
};
use crate::sync::Count;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

// The counter can hold the largest grant of a login.
const _: () = assert!(MAX_REQ_LIM <= credit::MAX);

/// Counters of a channel. The first cache line holds the counters that each command changes when it
/// is sent and when it ends. A command with its credit and response on this channel writes only
/// this line and its slot.
#[repr(C, align(64))]
pub struct Counts {
    /// Unused credits; see [`credit`].
    pub(super) credits: Atomic<i32>,
    /// Number of sends that no other completion recycles, modulo 2^32.
    unsignaled: Atomic<i32>,
    /// Number of completed commands, by [`DataPath`].
    paths: [Count; DataPath::COUNT],
    /// Data of completed commands, in bytes: read, written.
    bytes: [Count; 2],
    /// Number of commands that have ended without a response. The second cache line begins here.
    pub(super) without_response: Count,
    /// Number of times that a command had to wait for a credit.
    pub credit_waits: Count,
    /// Number of commands given back to the block layer for a retry, for lack of a credit, a slot,
    /// memory or a connection.
    pub busy: Count,
    /// Number of commands with their response on an answer channel, which counts their data paths
    /// and bytes.
    pub(super) elsewhere: Count,
}

// Loom's atomics are larger.
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Counts, without_response) == 64);

impl Counts {
    /// Creates the counters, all zero; there are no credits yet.
    pub(super) fn new() -> Self {
        Self {
            credits: Atomic::new(0),
            unsignaled: Atomic::new(0),
            paths: Default::default(),
            bytes: Default::default(),
            without_response: Count::default(),
            credit_waits: Count::default(),
            busy: Count::default(),
            elsewhere: Count::default(),
        }
    }

    /// Counts a command with its response on this channel, and `len` bytes of data. Only the
    /// channel's completion callbacks may call this, because they are serialised.
    #[inline(always)]
    pub(super) fn responded(&self, path: DataPath, len: u32) {
        let counts = (
            self.paths.get(path as usize),
            self.bytes.get(usize::from(path.is_write())),
        );
        if let (Some(command), Some(bytes)) = counts {
            command.add_alone(1);
            bytes.add_alone(len.into());
        }
    }

    fn sum(counts: &[Count]) -> u64 {
        counts.iter().map(Count::get).fold(0, u64::wrapping_add)
    }

    /// Number of completed commands on this data path.
    pub fn of(&self, path: DataPath) -> u64 {
        self.paths.get(path as usize).map_or(0, Count::get)
    }

    /// Number of commands that have ended, with a response here, on an answer channel or with none,
    /// modulo 2^64.
    pub(super) fn ended(&self) -> u64 {
        self.commands()
            .wrapping_add(self.without_response.get())
            .wrapping_add(self.elsewhere.get())
    }

    /// Number of commands with their response on this channel.
    pub fn commands(&self) -> u64 {
        Self::sum(&self.paths)
    }

    /// Number of completed commands with data that was registered for the command.
    pub fn dynamic(&self) -> u64 {
        Self::sum(
            self.paths
                .get(DataPath::DynamicWrite as usize..)
                .unwrap_or(&[]),
        )
    }

    /// Number of bytes read by completed commands, according to their responses.
    pub fn read_bytes(&self) -> u64 {
        let [read, _] = &self.bytes;
        read.get()
    }

    /// Number of bytes written by completed commands, according to their responses.
    pub fn write_bytes(&self) -> u64 {
        let [_, written] = &self.bytes;
        written.get()
    }

    /// Takes a credit, unless only `reserve` are left. Returns whether it took one.
    #[inline]
    pub fn take_credit(&self, reserve: i32) -> bool {
        let mut unused = self.credits.load(Relaxed);
        while let Some(left) = credit::take(unused, reserve) {
            match self.credits.cmpxchg(unused, left, Relaxed) {
                Ok(_) => return true,
                Err(now) => unused = now,
            }
        }
        false
    }

    /// Applies a credit change by the target.
    #[inline]
    pub(super) fn give_credits(&self, delta: i32) -> Result<(), Violation> {
        let mut unused = self.credits.load(Relaxed);
        loop {
            let sum = credit::give(unused, delta, credit::MAX).ok_or(Violation::Credits(delta))?;
            match self.credits.cmpxchg(unused, sum, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => unused = now,
            }
        }
    }

    /// Counts a send that no other completion recycles. Returns whether to request its completion.
    ///
    /// The memory of such a send is reused when the target has responded, which may be before it
    /// has acknowledged the send. If a target never acknowledges, the send queue fills up and the
    /// session ends.
    #[inline]
    pub(super) fn signal(&self) -> bool {
        self.unsignaled.fetch_add(1, Relaxed) as u32 % SIGNAL_EVERY == SIGNAL_EVERY - 1
    }
}
