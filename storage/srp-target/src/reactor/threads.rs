// SPDX-License-Identifier: GPL-2.0

//! Threads that each do one thing which takes too long for the reactor.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::mpsc::{channel, Receiver, Sender},
    thread,
};

/// The threads, and their results.
pub(super) struct Threads<R> {
    sender: Sender<R>,
    results: Receiver<R>,
    woken: UnixStream,
    wake: UnixStream,
    /// Number of threads whose results are not taken.
    running: usize,
}

impl<R> Threads<R> {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, results) = channel();
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok(Self {
            sender,
            results,
            woken,
            wake,
            running: 0,
        })
    }

    /// Descriptor that is readable when a thread has ended.
    pub(super) fn fd(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// Number of threads whose results are not taken.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Starts a thread.
    pub(super) fn start(
        &mut self,
        name: &str,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<()>
    where
        R: Send + 'static,
    {
        let (sender, mut wake) = (self.sender.clone(), self.wake.try_clone()?);
        let all = move || {
            // Without a receiver the process ends.
            let _ = sender.send(work());
            // If the socket is full, a wakeup is already pending.
            let _ = wake.write(&[0]);
        };
        thread::Builder::new().name(name.into()).spawn(all)?;
        self.running += 1;
        Ok(())
    }

    /// Takes the results.
    pub(super) fn results(&mut self) -> Vec<R> {
        let mut bytes = [0; 256];
        while matches!(self.woken.read(&mut bytes), Ok(n) if n > 0) {}
        let all: Vec<_> = self.results.try_iter().collect();
        self.running -= all.len();
        all
    }
}
