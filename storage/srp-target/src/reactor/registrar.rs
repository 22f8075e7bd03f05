// SPDX-License-Identifier: GPL-2.0

//! The thread that registers the receive buffers of incoming connections, and releases ended
//! connections with their memory, for all reactors of a process. Both pin or unpin many pages, so
//! connections do not wait for them. As it is one thread, logins take at most one CPU from the
//! reactors, and buffers are registered when those of all connections that ended before are
//! released.

use std::{
    any::Any,
    collections::HashMap,
    io,
    os::fd::RawFd,
    sync::{
        mpsc::{channel, Sender},
        Arc,
    },
};

use verbs::{Buffer, Device};

use super::{host::HostId, LinkId};
use crate::{
    pool::Pool,
    results::{ResultSender, Results},
};

/// An incoming connection whose buffers the thread registers.
pub(super) struct Accepting {
    pub(super) host: HostId,
    pub(super) domain: Device,
    /// Private data.
    pub(super) response: Vec<u8>,
    /// Maximum number of queued operations.
    pub(super) most: usize,
    /// Total length of the receive buffers, in bytes.
    pub(super) messages: usize,
    /// Whether it is of a role.
    pub(super) welcome: bool,
}

type Buffers = io::Result<Vec<Buffer>>;

pub(super) enum Job {
    Register {
        id: LinkId,
        domain: Device,
        sizes: [usize; 2],
        to: ResultSender<(LinkId, Buffers)>,
    },
    Release(#[allow(dead_code)] Box<dyn Any + Send>),
    /// Tells a reactor that its earlier jobs are done.
    Last(Sender<()>),
}

fn work(job: Job) {
    match job {
        Job::Register {
            id,
            domain,
            sizes: [receives, len],
            to,
        } => to.send((id, domain.buffers(receives, len))),
        Job::Release(_) => {}
        Job::Last(to) => {
            let _ = to.send(());
        }
    }
}

/// Starts the thread, which ends with the last [`Registrar`]. Returns the error of the failed
/// system call.
pub(super) fn start() -> io::Result<Arc<Pool<Job>>> {
    Pool::new("registrar", 1, work).map(Arc::new)
}

/// What the thread does for one reactor. Drop waits for it.
pub(super) struct Registrar {
    thread: Arc<Pool<Job>>,
    accepting: HashMap<LinkId, Accepting>,
    results: Results<(LinkId, Buffers)>,
    sender: ResultSender<(LinkId, Buffers)>,
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let (done, last) = channel();
        self.thread.give(Job::Last(done));
        let _ = last.recv();
    }
}

impl Registrar {
    pub(super) fn new(thread: &Arc<Pool<Job>>) -> io::Result<Self> {
        let (results, sender) = Results::new()?;
        Ok(Self {
            thread: Arc::clone(thread),
            accepting: HashMap::new(),
            results,
            sender,
        })
    }

    /// Descriptor that is readable when the thread has registered something.
    pub(super) fn fd(&self) -> RawFd {
        self.results.fd()
    }

    /// Begins to register `receives` buffers of `len` bytes.
    pub(super) fn register(&mut self, id: LinkId, accepting: Accepting, sizes: [usize; 2]) {
        let (domain, to) = (accepting.domain.clone(), self.sender.clone());
        self.accepting.insert(id, accepting);
        self.thread.give(Job::Register {
            id,
            domain,
            sizes,
            to,
        });
    }

    /// Begins to release what takes long to drop.
    pub(super) fn release(&self, what: impl Send + 'static) {
        self.thread.give(Job::Release(Box::new(what)));
    }

    /// All connections on a device, also those whose requests have ended meanwhile.
    pub(super) fn on(&self, host: HostId) -> impl Iterator<Item = (&LinkId, &Accepting)> {
        self.accepting.iter().filter(move |(_, a)| a.host == host)
    }

    /// Takes the connections whose buffers are registered, or cannot be.
    pub(super) fn registered(&mut self) -> Vec<(LinkId, Accepting, Buffers)> {
        let done = self.results.take().into_iter();
        let accepting = &mut self.accepting;
        let with = done.filter_map(|(id, buffers)| Some((id, accepting.remove(&id)?, buffers)));
        with.collect()
    }
}
