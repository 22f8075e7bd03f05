// SPDX-License-Identifier: GPL-2.0

//! Threads that run until they have a result.

use std::{
    io,
    os::fd::RawFd,
    sync::mpsc::{channel, Receiver, Sender},
    thread,
};

use crate::wake::{Waker, Woken};

/// The threads, and their results.
pub(crate) struct Threads<R> {
    sender: Sender<R>,
    results: Receiver<R>,
    woken: Woken,
    waker: Waker,
    /// Number of threads whose results are not taken.
    running: usize,
}

impl<R> Threads<R> {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, results) = channel();
        let (woken, waker) = Woken::new()?;
        Ok(Self {
            sender,
            results,
            woken,
            waker,
            running: 0,
        })
    }

    /// Descriptor that is readable when a thread has ended.
    pub(crate) fn fd(&self) -> RawFd {
        self.woken.fd()
    }

    /// Number of threads whose results are not taken.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Starts a thread.
    pub(crate) fn start(
        &mut self,
        name: &str,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<()>
    where
        R: Send + 'static,
    {
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let all = move || {
            // Without a receiver the process ends.
            let _ = sender.send(work());
            waker.wake();
        };
        thread::Builder::new().name(name.into()).spawn(all)?;
        self.running += 1;
        Ok(())
    }

    /// Takes the results.
    pub(crate) fn results(&mut self) -> Vec<R> {
        self.woken.clear();
        let all: Vec<_> = self.results.try_iter().collect();
        self.running -= all.len();
        all
    }
}
