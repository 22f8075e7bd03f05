// SPDX-License-Identifier: GPL-2.0

//! The signals that stop a command without an end of its own.

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use std::os::fd::{AsFd, BorrowedFd};

/// Signals that are read from a file instead of being delivered.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks these signals for this thread, and reads them from now on.
    pub fn take(signals: &[Signal]) -> nix::Result<Self> {
        let all: SigSet = signals.iter().copied().collect();
        all.thread_block()?;
        SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map(Self)
    }

    /// Returns whether a signal has arrived.
    pub fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
