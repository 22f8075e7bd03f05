// SPDX-License-Identifier: GPL-2.0

//! The thread that registers the receive buffers of incoming connections, and releases ended
//! connections with their memory. Both pin or unpin many pages, so the connections of the reactor
//! do not wait for them. As it has one thread, buffers are registered when those of all connections
//! that ended before are released.

use std::{any::Any, collections::HashMap, io, os::fd::RawFd};

use verbs::{Buffer, Device};

use super::{host::HostId, LinkId};
use crate::workers::Workers;

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

enum Job {
    Register(LinkId, Device, [usize; 2]),
    Release(#[allow(dead_code)] Box<dyn Any + Send>),
}

fn work(job: Job) -> Option<(LinkId, Buffers)> {
    match job {
        Job::Register(id, domain, [receives, len]) => Some((id, domain.buffers(receives, len))),
        Job::Release(_) => None,
    }
}

pub(super) struct Registrar {
    worker: Workers<Job, Option<(LinkId, Buffers)>>,
    accepting: HashMap<LinkId, Accepting>,
}

impl Registrar {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            worker: Workers::new(1, work)?,
            accepting: HashMap::new(),
        })
    }

    /// Descriptor that is readable when the thread has done something.
    pub(super) fn fd(&self) -> RawFd {
        self.worker.fd()
    }

    /// Begins to register `receives` buffers of `len` bytes.
    pub(super) fn register(&mut self, id: LinkId, accepting: Accepting, sizes: [usize; 2]) {
        let domain = accepting.domain.clone();
        self.accepting.insert(id, accepting);
        self.worker.give(Job::Register(id, domain, sizes));
    }

    /// Begins to release what takes long to drop.
    pub(super) fn release(&self, what: impl Send + 'static) {
        self.worker.give(Job::Release(Box::new(what)));
    }

    /// All connections on a device, also those whose requests have ended meanwhile.
    pub(super) fn on(&self, host: HostId) -> impl Iterator<Item = (&LinkId, &Accepting)> {
        self.accepting.iter().filter(move |(_, a)| a.host == host)
    }

    /// Takes the connections whose buffers are registered, or cannot be.
    pub(super) fn registered(&mut self) -> Vec<(LinkId, Accepting, Buffers)> {
        let done = self.worker.done().into_iter().flatten();
        let accepting = &mut self.accepting;
        let with = done.filter_map(|(id, buffers)| Some((id, accepting.remove(&id)?, buffers)));
        with.collect()
    }
}
