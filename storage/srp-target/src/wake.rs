// SPDX-License-Identifier: GPL-2.0

//! Wakes a thread that waits for descriptors.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

/// Wakes the thread with the [`Woken`]. May be called from any thread, and never waits.
#[derive(Clone)]
pub(crate) struct Waker(Arc<UnixStream>);

impl Waker {
    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // If the socket is full, a wakeup is already pending.
        let _ = (&*self.0).write(&[0]);
    }
}

/// The wakeups of a thread.
pub(crate) struct Woken(UnixStream);

impl Woken {
    /// Returns it with its waker. Returns the error of the failed system call.
    pub(crate) fn new() -> io::Result<(Self, Waker)> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok((Self(woken), Waker(Arc::new(wake))))
    }

    /// Descriptor that is readable after a wakeup.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes all wakeups. Call it before the work that they announce is looked for.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 256];
        while matches!((&self.0).read(&mut bytes), Ok(n) if n > 0) {}
    }
}
