// SPDX-License-Identifier: GPL-2.0

//! What other threads have for a thread that waits for descriptors.

use std::{
    io,
    os::fd::RawFd,
    sync::mpsc::{channel, Receiver, Sender},
};

use crate::wake::{Waker, Woken};

/// The results that have arrived.
pub struct Results<R> {
    receiver: Receiver<R>,
    woken: Woken,
}

/// Sends results, and wakes the thread that has the [`Results`].
pub struct ResultSender<R> {
    sender: Sender<R>,
    waker: Waker,
}

impl<R> Results<R> {
    /// Returns it with its sender. Returns the error of the failed system call.
    pub fn new() -> io::Result<(Self, ResultSender<R>)> {
        let (sender, receiver) = channel();
        let (woken, waker) = Woken::new()?;
        Ok((Self { receiver, woken }, ResultSender { sender, waker }))
    }

    /// Descriptor that is readable when there are results.
    pub fn fd(&self) -> RawFd {
        self.woken.fd()
    }

    /// Takes all results.
    pub fn take(&self) -> Vec<R> {
        self.woken.clear();
        self.receiver.try_iter().collect()
    }
}

impl<R> ResultSender<R> {
    /// Sends a result. Never waits. Without a receiver the result is dropped.
    pub fn send(&self, result: R) {
        let _ = self.sender.send(result);
        self.waker.wake();
    }
}

impl<R> Clone for ResultSender<R> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            waker: self.waker.clone(),
        }
    }
}
