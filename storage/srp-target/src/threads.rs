// SPDX-License-Identifier: GPL-2.0

//! Threads that run until they have a result.

use std::{io, os::fd::RawFd, thread};

use crate::results::{ResultSender, Results};

/// The threads, and their results.
pub(crate) struct Threads<R> {
    results: Results<R>,
    sender: ResultSender<R>,
    /// Number of threads whose results are not taken.
    running: usize,
}

impl<R> Threads<R> {
    pub(crate) fn new() -> io::Result<Self> {
        let (results, sender) = Results::new()?;
        Ok(Self {
            results,
            sender,
            running: 0,
        })
    }

    /// Descriptor that is readable when a thread has ended.
    pub(crate) fn fd(&self) -> RawFd {
        self.results.fd()
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
        let sender = self.sender.clone();
        let all = move || sender.send(work());
        thread::Builder::new().name(name.into()).spawn(all)?;
        self.running += 1;
        Ok(())
    }

    /// Takes the results.
    pub(crate) fn results(&mut self) -> Vec<R> {
        let all = self.results.take();
        self.running -= all.len();
        all
    }
}
